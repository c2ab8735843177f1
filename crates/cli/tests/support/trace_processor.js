// Asks Perfetto's own trace processor about a trace: node trace_processor.js FOLDER TRACE SQL…
//
// FOLDER holds engine_bundle.js and trace_processor.wasm of Perfetto's page, in which they run as a web worker. Here they get the little of a
// worker that they look for. Prints one JSON document: for each query its rows, each an object by column. What goes to and fro are messages of
// Perfetto's trace_processor.proto (TraceProcessorRpc); only the fields that are needed are written and read.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace, ...queries] = process.argv.slice(2);
const [APPEND, FINALIZE, QUERY] = [1, 2, 3];

// Varints of a protocol buffer.
function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

// The fields of a message: [field, BigInt or Buffer].
function* fields(message) {
  let at = 0;
  const next = () => {
    let found = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message[at++];
      found |= BigInt(byte & 127) << shift;
      if (byte < 128) return found;
    }
  };
  while (at < message.length) {
    const key = Number(next());
    const size = { 1: 8, 5: 4 }[key & 7] ?? (key & 7 ? Number(next()) : 0);
    yield [key >> 3, key & 7 ? message.subarray(at, at + size) : next()];
    at += key & 7 ? size : 0;
  }
}

// A packed list of varints.
function packed(message) {
  const found = [];
  for (let at = 0, value = 0n, shift = 0n; at < message.length; at++) {
    value |= BigInt(message[at] & 127) << shift;
    shift += 7n;
    if (message[at] < 128) {
      found.push(Number(BigInt.asIntN(64, value)));
      [value, shift] = [0n, 0n];
    }
  }
  return found;
}

// Columns, cells and error of a part of a query's result.
function addResult(result, message) {
  for (const [field, value] of fields(message)) {
    if (field === 1) result.columns.push(value.toString());
    if (field === 2 && value.length) throw new Error(value.toString());
    if (field !== 3) continue;
    const batch = { kinds: [], integers: [], floats: [], texts: [] };
    for (const [part, cells] of fields(value)) {
      if (part === 1) batch.kinds.push(...packed(cells));
      if (part === 2) batch.integers.push(...packed(cells));
      if (part === 3) for (let at = 0; at < cells.length; at += 8) batch.floats.push(cells.readDoubleLE(at));
      if (part === 5) batch.texts.push(...cells.toString().split("\0"));
    }
    const take = { 2: () => batch.integers.shift(), 3: () => batch.floats.shift(), 4: () => batch.texts.shift() };
    result.cells.push(...batch.kinds.map((kind) => take[kind]?.() ?? null));
  }
}

let sequence = 0;
const port = { onmessage: null, postMessage: null };
async function ask(method, args = Buffer.alloc(0)) {
  const result = { columns: [], cells: [] };
  port.postMessage = (reply) => {
    for (const [, message] of fields(Buffer.from(reply))) {
      for (const [field, value] of fields(message)) {
        if (field === 5) throw new Error(value.toString());
        if (field === 203) addResult(result, value);
        if (field === 201) for (const [part, error] of fields(value)) if (part === 2) throw new Error(error.toString());
      }
    }
  };
  const message = Buffer.concat([number(1, sequence++), number(2, method), args]);
  port.onmessage({ data: new Uint8Array(bytes(1, message)) });
  const wide = result.columns.length;
  const row = (_, at) => Object.fromEntries(result.columns.map((name, column) => [name, result.cells[at * wide + column]]));
  return Array.from({ length: wide && result.cells.length / wide }, row);
}

async function main() {
  const quiet = { log() {}, warn() {}, error() {} };
  const worker = { console: quiet, location: { href: "file:///" }, performance, URL, TextDecoder, TextEncoder, Uint8Array, setTimeout, crypto };
  worker.WorkerGlobalScope = class {};
  // The glue asks for the program as a worker may: it waits for the answer.
  worker.XMLHttpRequest = class {
    open(_, name) {
      this.name = path.basename(String(name));
    }
    send() {
      this.response = fs.readFileSync(path.join(folder, this.name));
    }
  };
  worker.self = worker;
  vm.runInNewContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);
  worker.onmessage({ data: port });
  await new Promise((resolve) => setImmediate(resolve)); // its own promises first
  await ask(APPEND, bytes(101, fs.readFileSync(trace)));
  await ask(FINALIZE);
  const found = [];
  for (const query of queries) found.push(await ask(QUERY, bytes(103, bytes(1, Buffer.from(query)))));
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
