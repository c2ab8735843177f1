// @ts-check
// Shows runs and updates them while they change. Everything from outside is inserted as text; the only markup comes from the
// report module, which escapes its input.
"use strict";

/** A line of the list. @typedef {{name: string, label: string, state: string, model: string, strategy: string, data: string, workers: number, batch: number, step: number, planned: number|null, train_loss: number|null, test_loss: number|null, accuracy: number|null, rate: number|null, seconds: number, started: number, verdict: string, silent: number|null, settings: Record<string, string|number|boolean>, tags: string[], note: string, archived: boolean}} Run */
/** What happened in a run. @typedef {{time: number, what: string, notable: boolean}} Mark */
/** The last minute of a task's machine. @typedef {{task: string, times: number[], figures: [string, (number|null)[]][], cores: {name: string, percent: (number|null)[]}[]}} Machine */
/** A run's page. @typedef {{state: string, html: string, tasks: {task: string, host: string}[], marks: Mark[], logs: string[]}} RunPage */
/** @typedef {string|number|boolean|null|undefined|((event: any) => void)} Option */

/** A part of the page that is always there. @param {string} id @returns {HTMLElement} */
const part = (id) => document.getElementById(id) ?? document.body;
const [view, where, pulse] = ["view", "where", "pulse"].map(part);
const POLL = 2000; // milliseconds between two questions of a page in the background
const MOST_ROWS = 1000; // rows beyond this are reached by the filter
const MOST_NAMED = 100; // runs of a comparison that are asked for by address; more are in the body of the question
const REST = 4; // a comparison rests this many times as long as it takes
/** @type {Record<string, string>} */
const ALIASES = { lr: "learning_rate", batch: "batch_size", loss: "train_loss", acc: "accuracy", tag: "tags", rate: "rate" };
/** @type {{may_change: boolean, csrf: string, reason: string|null}} */
let session = { may_change: false, csrf: "", reason: "" };
let leave = () => {}; // ends what the page before had begun

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name @param {Record<string, Option>} options @param {(Node|string)[]} children @returns {HTMLElementTagNameMap[Name]}
 */
function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") made.textContent = String(value ?? "");
    else if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
async function ask(address, options = {}) {
  const answer = await fetch(address, { cache: "no-store", ...options });
  const text = await answer.text();
  if (!answer.ok) {
    let words = text.trim();
    try { words = JSON.parse(text).error || words; } catch { /* plain text */ }
    throw new Error(words || `status ${answer.status}`);
  }
  return JSON.parse(text);
}

/** @param {string} address @param {object} body */
function change(address, body) {
  return ask(address, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Paceline-Csrf": session.csrf } });
}

/** @param {string} words */
function say(words, bad = false) {
  pulse.className = bad ? "lost" : "";
  pulse.textContent = words;
}

/** @param {any} error */
function failed(error) {
  say(error instanceof TypeError ? "the server does not respond" : error.message, true);
}

// What this browser remembers; without storage it forgets.
const memory = {
  /** @param {string} key @param {any} otherwise @returns {any} */
  get(key, otherwise) { try { return JSON.parse(localStorage.getItem(`paceline.${key}`) ?? "null") ?? otherwise; } catch { return otherwise; } },
  /** @param {string} key @param {unknown} value */
  set(key, value) { try { localStorage.setItem(`paceline.${key}`, JSON.stringify(value)); } catch { /* private window */ } },
};

/** @param {number|null|undefined} value @param {number} digits */
function number(value, digits = 0) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @param {number} seconds */
function duration(seconds) {
  if (seconds < 60) return `${number(seconds, seconds < 1 ? 2 : 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** @param {number|null|undefined} value */
function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${number(value, value < 10 && at ? 1 : 0)} ${units[at]}`;
}

/** @param {string} state */
function badge(state) {
  return element("span", { class: `state ${state}`, text: state });
}

// Puts new content in place of old and keeps what the reader has chosen in it; the script of the charts, which reports have too.
const { morph, start } = /** @type {any} */ (window).pacelineCharts;

/** @param {Element} place @param {string} html */
function markup(place, html) {
  const made = /** @type {Element} */ (place.cloneNode(false));
  made.innerHTML = html;
  morph(place, made);
  start(place);
}

// Opens the one stream of updates. A page in the background asks now and then instead: browsers have six connections to a
// server, for all tabs together.
/** @param {string} address @param {Record<string, (data: any) => void>} handlers @param {() => void} poll */
function listen(address, handlers, poll) {
  /** @type {EventSource|null} */
  let source = null;
  let over = false;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.onopen = () => say("live");
    source.onerror = () => {
      say("the server does not respond", true);
      // A browser gives up by itself after an answer that is not a stream.
      if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(() => { if (!over) open(); }, 2000); }
    };
    for (const [event, handle] of Object.entries(handlers)) source.addEventListener(event, (message) => handle(JSON.parse(message.data)));
  };
  const close = () => { if (source) source.close(); source = null; };
  let timer = 0;
  const turn = () => {
    clearInterval(timer);
    if (document.hidden) { close(); timer = setInterval(poll, POLL); } else open();
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => { over = true; clearInterval(timer); document.removeEventListener("visibilitychange", turn); close(); };
}

// --- The list -------------------------------------------------------------------------------------------------------------

/** @type {Map<string, Run>} */
const runs = new Map();
/** @type {Set<string>} */
const chosen = new Set();
/** @type {Set<string>} */
const hidden = new Set(memory.get("hidden", []));
let filter = memory.get("filter", "");
/** @type {{key: string, down: boolean}} */
let sort = memory.get("sort", { key: "started", down: true });
let group = memory.get("group", "");
/** @type {string[]|null} */
let picked = memory.get("columns", null); // null: those in which the runs differ
let archive = false;

/** @type {Record<string, {head: string, text: (run: Run) => string}>} */
const FIGURES = {
  step: { head: "step", text: (run) => `${number(run.step)}${run.planned ? ` / ${number(run.planned)}` : ""}` },
  rate: { head: "examples/s", text: (run) => number(run.rate) },
  accuracy: { head: "accuracy %", text: (run) => number(run.accuracy === null ? null : 100 * run.accuracy, 2) },
  train_loss: { head: "training loss", text: (run) => number(run.train_loss, 4) },
  test_loss: { head: "test loss", text: (run) => number(run.test_loss, 4) },
  seconds: { head: "time", text: (run) => duration(run.seconds) },
  started: { head: "started (UTC)", text: (run) => (run.started ? new Date(1000 * run.started).toISOString().slice(0, 16).replace("T", " ") : "–") },
};
const ALWAYS = ["step", "rate", "accuracy", "train_loss", "seconds"];

/** @param {Run} run @param {string} key @returns {any} */
function value(run, key) {
  const name = ALIASES[key] || key;
  if (name in run && name !== "settings") return /** @type {Record<string, any>} */ (run)[name];
  if (name in run.settings) return run.settings[name];
  return name === "batch_size" ? run.batch : undefined;
}

/** @param {string} key */
function title(key) {
  return FIGURES[key]?.head || plain(key);
}

/** A setting's name as reports have it. @param {string} key */
function plain(key) {
  return key.replace(/^(stop|tasks)\./, "").replaceAll("_", " ").replaceAll(".", " ");
}

/** @param {Run} run @param {string} key */
function cellText(run, key) {
  if (FIGURES[key]) return FIGURES[key].text(run);
  const found = value(run, key);
  if (found === undefined || found === null) return "–";
  return key === "data" ? lastPart(String(found)) : String(found);
}

/** A regular expression, or why it is none. @param {string} text @returns {RegExp|string} */
function expression(text) {
  try { return new RegExp(text, "i"); } catch (error) {
    return (error instanceof Error ? error.message : "").split(": ").pop()?.toLowerCase() || "it cannot be read";
  }
}

/**
 * `lr<0.1 model=lenet tag=best note~"two words" lenet|softmax`: every part must hold. A word, and what follows `~`, is a regular
 * expression or a part of the text; quotes keep spaces.
 * @param {string} text @returns {{holds: (run: Run) => boolean, wrong: string}}
 */
function predicate(text) {
  /** @type {string[]} */
  const wrong = [];
  const looked = (/** @type {string} */ wanted) => {
    const found = expression(wanted);
    if (typeof found === "string") wrong.push(`\`${wanted}\` is not a regular expression (${found}): searched as plain text`);
    const plain = wanted.toLowerCase();
    return (/** @type {string} */ has) => has.toLowerCase().includes(plain) || (typeof found !== "string" && found.test(has));
  };
  const known = (/** @type {string} */ key) => !runs.size || [...runs.values()].some((run) => value(run, key) !== undefined);
  const parts = (text.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []).map((part) => {
    const found = part.replaceAll('"', "").match(/^([\w.]+)(<=|>=|!=|!~|=|<|>|~)(.*)$/);
    if (!found) {
      const holds = looked(part.replaceAll('"', ""));
      return (/** @type {Run} */ run) => holds([run.name, run.label, run.state, run.model, run.strategy, run.data, `batch ${run.batch}`, run.note, ...run.tags].join(" "));
    }
    const [, key, sign, wanted] = found;
    if (!known(key)) wrong.push(`no run has \`${key}\``);
    const matches = sign.endsWith("~") ? looked(wanted) : () => false;
    return (/** @type {Run} */ run) => {
      const has = value(run, key);
      const all = Array.isArray(has) ? has : has === undefined || has === null ? [] : [has];
      if (sign === "~") return all.some((one) => matches(String(one)));
      if (sign === "!~") return !all.some((one) => matches(String(one)));
      if (Array.isArray(has)) return sign === "!=" ? !has.includes(wanted) : has.includes(wanted);
      if (!all.length) return sign === "!=";
      const [a, b] = [Number(has), Number(wanted)];
      const numeric = wanted !== "" && !Number.isNaN(a) && !Number.isNaN(b);
      const order = a - b;
      const same = numeric ? a === b : String(has).toLowerCase() === wanted.toLowerCase();
      if (sign === "=") return same;
      if (sign === "!=") return !same;
      if (!numeric) return false;
      return sign === "<" ? order < 0 : sign === ">" ? order > 0 : sign === "<=" ? order <= 0 : order >= 0;
    };
  });
  return { holds: (run) => parts.every((holds) => holds(run)), wrong: [...new Set(wrong)].join("; ") };
}

/** @type {string[]} */
let apart = []; // settings in which runs of one kind differ, as the server says

/** @param {string} path */
function lastPart(path) {
  return path.includes("://") ? path : path.replace(/\/+$/, "").split("/").pop() ?? path;
}

function settingNames() {
  const names = new Set();
  for (const run of runs.values()) Object.keys(run.settings).forEach((key) => names.add(key));
  return [...names].sort();
}

function columns() {
  return picked || [...apart.filter((key) => key !== "strategy").slice(0, 4), ...ALWAYS];
}

const body = element("tbody");
const chooseAll = element("input", { type: "checkbox", class: "all", "aria-label": "choose all runs that the filter lets pass", title: "Choose all runs that the filter lets pass",
  onchange: (event) => { for (const run of listed) event.target.checked ? chosen.add(run.name) : chosen.delete(run.name); list(); } });
/** @type {Run[]} */
let listed = []; // runs that the filter lets pass; the table has the first of them
const head = element("tr");
const count = element("span", { class: "count" });
const complaint = element("output", { class: "wrong" }); // what is wrong with the filter
const search = element("input", { type: "search", placeholder: "Filter: lenet|softmax lr<0.1 model=lenet tag=best", "aria-label": "Filter runs",
  title: "Every part must hold: words or regular expressions (lenet|soft), settings (lr<0.1 model=lenet batch!=64 tag=best), settings by regular expression (data~^digits host!~vm); quotes keep spaces",
  oninput: (event) => { filter = event.target.value; memory.set("filter", filter); list(); } });
const compareButton = element("button", { type: "button", class: "compare", onclick: () => { location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`; } });
const groupBy = element("select", { "aria-label": "Group by", onchange: (event) => { group = event.target.value; memory.set("group", group); list(); } });
const columnBox = element("div", { class: "columns" });
const columnMenu = element("details", { class: "menu" }, element("summary", { text: "Columns" }), columnBox);
const archiveBox = element("input", { type: "checkbox", onchange: (event) => { archive = event.target.checked; list(); } });
const unhide = element("button", { type: "button", class: "unhide", onclick: () => { hidden.clear(); memory.set("hidden", []); list(); } });
const hideButton = element("button", { type: "button", class: "hide", text: "Hide", onclick: () => { chosen.forEach((name) => hidden.add(name)); chosen.clear(); memory.set("hidden", [...hidden]); list(); } });
const archiveButton = element("button", { type: "button", class: "archive", text: "Archive", onclick: () => archiveChosen() });
/** @type {Map<string, {made: string, row: HTMLTableRowElement}>} */
const rows = new Map(); // by name: the row, and what it was made of

async function archiveChosen() {
  try {
    for (const name of chosen) {
      const run = runs.get(name);
      if (run) await change("/api/run/notes", { name, tags: run.tags, note: run.note, archived: !run.archived });
    }
    chosen.clear();
    await fetchList();
  } catch (error) { failed(error); }
}

function tools() {
  const many = chosen.size;
  const here = listed.filter((run) => chosen.has(run.name)).length;
  chooseAll.checked = here > 0 && here === listed.length;
  chooseAll.indeterminate = here > 0 && here < listed.length;
  compareButton.textContent = many > 1 ? `Compare ${many} runs` : "Compare";
  compareButton.disabled = many < 2;
  hideButton.disabled = many < 1;
  archiveButton.disabled = many < 1 || !session.may_change;
  archiveButton.title = session.reason || "";
  archiveButton.textContent = [...chosen].some((name) => runs.get(name)?.archived) ? "Unarchive" : "Archive";
  unhide.hidden = hidden.size === 0;
  unhide.textContent = `Show ${hidden.size} hidden`;
}

/** @param {Run} run */
function meter(run) {
  if (!run.planned || run.state !== "running") return "";
  const bar = element("i");
  bar.style.width = `${Math.min(100, (100 * run.step) / run.planned)}%`;
  return element("div", { class: "meter" }, bar);
}

/** @param {Run} run */
function called(run) {
  return run.label || run.name;
}

/** Where a run lies; its time stamp stays in one piece. @param {Run} run */
function folder(run) {
  const last = lastPart(run.name);
  const [, stamp, rest] = last.match(/^(\d{8}-\d{6})(.*)$/) || ["", "", last];
  const made = element("small", { class: "folder", title: run.name });
  if (stamp) made.append(element("span", { class: "whole", text: stamp }));
  made.append(rest);
  return made;
}

/** @param {Run} run @param {string[]} keys */
function row(run, keys) {
  const address = `#/run/${encodeURIComponent(run.name)}`;
  const box = element("input", { type: "checkbox", "aria-label": `choose ${run.name}`, onclick: (event) => event.stopPropagation(),
    onchange: (event) => { event.target.checked ? chosen.add(run.name) : chosen.delete(run.name); tools(); } });
  box.checked = chosen.has(run.name);
  const cells = keys.map((key) => {
    const cell = element("td", { class: [isNumber(key) ? "num" : "", FIGURES[key] || picked ? "" : "setting"].join(" ").trim(), "data-label": title(key) }, element("span", { text: cellText(run, key) }));
    if (key === "step") cell.append(meter(run));
    return cell;
  });
  return element("tr", { "data-run": run.name, "data-step": run.step, onclick: () => { if (!String(getSelection())) location.hash = address; } },
    element("td", { class: "choose" }, box),
    element("td", { class: "name" }, element("a", { href: address, text: called(run), onclick: (event) => event.stopPropagation() }),
      ...run.tags.map((tag) => element("span", { class: "chip", text: tag })), folder(run),
      run.note ? element("small", { class: "note", text: run.note.split("\n")[0] }) : ""),
    element("td", { class: "is" }, badge(run.state), run.archived ? element("small", { text: " archived" }) : "", run.silent ? element("small", { text: ` no event for ${duration(run.silent)}` }) : ""),
    ...cells);
}

/** @type {Set<string>} */
let numeric = new Set(); // settings that are numbers in some run

/** @param {string} key */
function isNumber(key) {
  return key in FIGURES || numeric.has(key);
}

/** @param {string[]} keys */
function header(keys) {
  const sortable = (/** @type {string} */ key, /** @type {string} */ text, /** @type {boolean} */ numeric) => element("th", { scope: "col", class: numeric ? "num" : "", "aria-sort": sort.key === key ? (sort.down ? "descending" : "ascending") : "none" },
    element("button", { type: "button", "data-sort": key, text: `${text}${sort.key === key ? (sort.down ? " ↓" : " ↑") : ""}`,
      onclick: () => { sort = { key, down: sort.key === key ? !sort.down : Boolean(FIGURES[key]) }; memory.set("sort", sort); list(); } }));
  const made = element("tr", {}, element("th", { scope: "col" }, chooseAll), sortable("name", "run", false), sortable("state", "state", false),
    ...keys.map((key) => sortable(key, title(key), isNumber(key))));
  head.replaceChildren(...made.childNodes);
}

/** @param {Run} a @param {Run} b */
function compare(a, b) {
  const [x, y] = [value(a, sort.key), value(b, sort.key)];
  const missing = (/** @type {unknown} */ one) => one === undefined || one === null;
  if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y)); // at the end, whichever way
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return (sort.down ? -order : order) || a.name.localeCompare(b.name);
}

/** @param {string[]} keys */
function menus(keys) {
  const names = settingNames();
  const all = [...Object.keys(FIGURES), ...names];
  const wanted = all.join(" ") + keys.join(" ");
  if (columnBox.dataset.made !== wanted) {
    columnBox.dataset.made = wanted;
    columnBox.replaceChildren(element("button", { type: "button", class: "differing", text: "Those in which runs differ", onclick: () => { picked = null; memory.set("columns", null); list(); } }),
      ...all.map((key) => {
        const box = element("input", { type: "checkbox", "data-column": key, onchange: () => {
          const now = new Set(columns());
          box.checked ? now.add(key) : now.delete(key);
          picked = [...names, ...Object.keys(FIGURES)].filter((one) => now.has(one));
          memory.set("columns", picked);
          list();
        } });
        box.checked = keys.includes(key);
        return element("label", {}, box, ` ${title(key)}`);
      }));
  }
  if (groupBy.dataset.made !== names.join(" ")) {
    groupBy.dataset.made = names.join(" ");
    groupBy.replaceChildren(element("option", { value: "", text: "No groups" }), ...["state", "tags", ...names].map((key) => element("option", { value: key, text: `Group by ${title(key)}` })));
  }
  groupBy.value = group;
}

function list() {
  const all = [...runs.values()].filter((run) => archive || !run.archived);
  const keys = columns();
  const { holds, wrong } = predicate(filter);
  complaint.textContent = wrong;
  search.toggleAttribute("data-wrong", wrong !== "");
  if (wrong) search.setAttribute("aria-invalid", "true"); else search.removeAttribute("aria-invalid");
  const shown = all.filter((run) => !hidden.has(run.name) && holds(run)).sort(compare);
  const drawn = shown.slice(0, MOST_ROWS);
  listed = shown;
  numeric = new Set(keys.filter((key) => all.some((run) => typeof value(run, key) === "number")));
  header(keys);
  menus(keys);
  /** @type {HTMLTableRowElement[]} */
  const wanted = [];
  const layout = keys.join(" ");
  const add = (/** @type {Run} */ run) => {
    const made = JSON.stringify(run) + layout;
    const known = rows.get(run.name) ?? { made, row: row(run, keys) };
    rows.set(run.name, known);
    if (known.made !== made) {
      morph(known.row, row(run, keys));
      known.made = made;
    }
    const box = known.row.querySelector("input");
    if (box) box.checked = chosen.has(run.name); // a property, which is not part of the markup
    wanted.push(known.row);
  };
  if (group) {
    const groups = new Map();
    for (const run of drawn) {
      const has = value(run, group);
      const key = Array.isArray(has) ? has.join(", ") || "–" : String(has ?? "–");
      groups.set(key, [...(groups.get(key) || []), run]);
    }
    for (const [key, members] of groups) {
      const best = Math.max(...members.map((/** @type {Run} */ run) => run.accuracy ?? -1));
      wanted.push(element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: keys.length + 3,
        text: `${title(group)} ${key}: ${members.length} ${members.length === 1 ? "run" : "runs"}${best >= 0 ? `, best accuracy ${number(100 * best, 2)} %` : ""}` })));
      members.forEach(add);
    }
  } else drawn.forEach(add);
  if (!runs.size) wanted.push(element("tr", {}, element("td", { colspan: keys.length + 3, class: "soft", text: "No runs yet: `paceline train` creates one." })));
  // Rows that are in place already are not touched.
  let at = body.firstChild;
  for (const one of wanted) {
    if (at === one) at = at.nextSibling;
    else body.insertBefore(one, at);
  }
  while (at) { const after = at.nextSibling; at.remove(); at = after; }
  for (const name of rows.keys()) if (!runs.has(name)) rows.delete(name);
  const every = `${runs.size} ${runs.size === 1 ? "run" : "runs"}`;
  count.textContent = shown.length === runs.size ? every : `${shown.length} of ${every}`;
  if (shown.length > drawn.length) count.textContent += `, the first ${drawn.length} are listed`;
  tools();
}

async function fetchList() {
  const answer = await ask("/api/runs");
  runs.clear();
  apart = answer.differing;
  answer.runs.forEach((/** @type {Run} */ run) => runs.set(run.name, run));
  for (const name of chosen) if (!runs.has(name)) chosen.delete(name);
  list();
}

function listPage() {
  where.textContent = "";
  search.value = filter;
  const table = element("table", { class: "runs" }, element("thead", {}, head), body);
  const archived = element("label", { class: "soft" }, archiveBox, " show archived");
  view.replaceChildren(element("div", { class: "tools" }, search, groupBy, columnMenu), complaint,
    element("div", { class: "tools acts" }, compareButton, hideButton, archiveButton, unhide, archived, count), element("div", { class: "scroll" }, table));
  fetchList().catch(failed);
  return listen("/api/events", {
    hello: () => fetchList().catch(failed),
    reset: () => fetchList().catch(failed),
    runs: (/** @type {{changed: Run[], removed: string[], differing: string[]}} */ { changed, removed, differing }) => {
      removed.forEach((name) => { runs.delete(name); chosen.delete(name); });
      changed.forEach((run) => runs.set(run.name, run));
      apart = differing;
      list();
    },
  }, () => fetchList().catch(failed));
}

// --- One run --------------------------------------------------------------------------------------------------------------

/** A name, where the values come from, how the last one reads. @type {[string, (of: (...names: string[]) => (number|null)[]) => (number|null)[], (value: any) => string][]} */
const MACHINE = [
  ["CPU", (of) => of("cpu_user_percent", "cpu_system_percent"), (v) => `${number(v)} %`],
  ["busiest core", (of) => of("cpu_busiest_core_percent"), (v) => `${number(v)} %`],
  ["this task, cores", (of) => of("process_cpu_percent"), (v) => number(v === null ? null : v / 100, 2)],
  ["memory of the task", (of) => of("process_rss_bytes"), bytes],
  ["memory used", (of) => of("memory_used_bytes"), bytes],
  ["memory free", (of) => of("memory_available_bytes"), bytes],
  ["received", (of) => of("network_received_bytes_per_second"), (v) => `${bytes(v)}/s`],
  ["sent", (of) => of("network_sent_bytes_per_second"), (v) => `${bytes(v)}/s`],
  ["packets in", (of) => of("network_received_packets_per_second"), (v) => `${number(v)}/s`],
  ["packets out", (of) => of("network_sent_packets_per_second"), (v) => `${number(v)}/s`],
  ["disk read", (of) => of("disk_read_bytes_per_second"), (v) => `${bytes(v)}/s`],
  ["disk written", (of) => of("disk_written_bytes_per_second"), (v) => `${bytes(v)}/s`],
  ["disk operations", (of) => of("disk_reads_per_second", "disk_writes_per_second"), (v) => `${number(v)}/s`],
];

/** @param {string} name @param {Record<string, string|number>} attributes @param {string} [text] */
function svgElement(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, is] of Object.entries(attributes)) made.setAttribute(key, String(is));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The last minute as a line, from 0 to the highest value. @param {(number|null)[]} values @param {number} most */
function spark(values, most) {
  const known = values.flatMap((one, at) => (one === null ? [] : [[at, one]]));
  const svg = svgElement("svg", { viewBox: "0 0 60 20", class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" });
  const top = Math.max(most, 1e-9);
  const path = svgElement("path", {});
  path.setAttribute("d", known.map(([at, one], first) => `${first ? "L" : "M"}${((60 * at) / Math.max(1, values.length - 1)).toFixed(1)} ${(19 - (18 * one) / top).toFixed(1)}`).join(""));
  svg.append(path);
  return svg;
}

/** @param {Machine[]} tasks */
function machineTable(tasks) {
  const rowOf = (/** @type {Machine} */ one) => {
    const figures = new Map(one.figures);
    const of = (/** @type {string[]} */ ...names) => {
      const lists = names.flatMap((name) => { const found = figures.get(name); return found ? [found] : []; });
      return lists.length ? one.times.map((_, at) => (lists.some((values) => values[at] === null) ? null : lists.reduce((sum, values) => sum + (values[at] ?? 0), 0))) : [];
    };
    return MACHINE.map(([, pick, show]) => {
      const values = pick(of);
      const last = values.length ? values[values.length - 1] : null;
      const percent = show(1).endsWith("%");
      const highest = Math.max(...values.filter((one) => one !== null), percent ? 100 : 0);
      return element("td", { class: "num" }, last === null ? "–" : show(last), values.length > 1 ? spark(values, highest) : "");
    });
  };
  return element("table", { class: "machines" }, element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "task" }), ...MACHINE.map(([name]) => element("th", { scope: "col", class: "num", text: name })))),
    element("tbody", {}, ...tasks.map((one) => element("tr", {}, element("th", { scope: "row", text: one.task.replace(/-(\d+)$/, "/$1") }), ...rowOf(one)))));
}

/** The cores of each host in the last minute, a row for each, with what happened meanwhile as lines across. @param {Machine[]} tasks @param {Map<string, string>} hosts @param {Mark[]} marks */
function coreMaps(tasks, hosts, marks) {
  const seen = new Set();
  const maps = [];
  for (const one of tasks) {
    const task = one.task.replace(/-(\d+)$/, "/$1");
    const host = hosts.get(task) || task;
    if (seen.has(host) || one.cores.length < 2 || one.times.length < 2) continue;
    seen.add(host);
    const [left, width, row] = [40, 336, Math.max(8, Math.min(18, 220 / one.cores.length))];
    const [from, to] = [one.times[0], one.times[one.times.length - 1]];
    const across = (/** @type {number} */ time) => left + (width * (time - from)) / (to - from);
    const bottom = 18 + row * one.cores.length;
    const svg = svgElement("svg", { class: "chart cores", viewBox: `0 0 ${left + width + 4} ${bottom + 22}`, role: "img", "aria-label": `Cores of ${host}, last minute` });
    const many = one.cores.length * one.times.length > 600;
    one.cores.forEach(({ name, percent }, at) => {
      const y = 18 + row * at;
      if (row >= 12 || at % 4 === 0) svg.append(svgElement("text", { class: "end", x: left - 6, y: y + row / 2 + 4.5 }, name));
      const line = svg.appendChild(svgElement("g", { class: "c0" }));
      // A reading tells of the time before it; on a large machine neighbours of the same shade are one.
      const shade = (/** @type {number|null} */ share) => (share === null ? -1 : Math.ceil(share / 100 * 9));
      for (let begin = 1; begin < percent.length;) {
        let end = begin;
        while (many && end + 1 < percent.length && shade(percent[end + 1]) === shade(percent[begin])) end += 1;
        if (percent[begin] !== null) {
          const cell = svgElement("rect", { class: `cell s${shade(percent[begin])}`, x: across(one.times[begin - 1]).toFixed(1), y: y.toFixed(1), width: (across(one.times[end]) - across(one.times[begin - 1])).toFixed(1), height: (row - 1).toFixed(1) });
          if (!many) cell.append(svgElement("title", {}, `core ${name}: ${number(percent[begin])} % busy`));
          line.append(cell);
        }
        begin = end + 1;
      }
    });
    let free = 0;
    for (const mark of marks.filter(({ time }) => time >= from && time <= to)) {
      const x = across(mark.time);
      const words = svgElement("path", { class: mark.notable ? "mark loud" : "mark", d: `M${x.toFixed(1)} 14V${bottom}` });
      words.append(svgElement("title", {}, mark.what));
      svg.append(words);
      const end = x + 7 * mark.what.length > left + width;
      const begin = end ? x - 7 * mark.what.length : x;
      if (begin < free) continue;
      free = begin + 7 * mark.what.length + 6;
      svg.append(svgElement("text", { class: end ? "value end" : "value", x: x.toFixed(1), y: 11 }, mark.what));
    }
    svg.append(svgElement("text", { x: left, y: bottom + 16 }, `${number(to - from)} s ago`), svgElement("text", { class: "end", x: left + width, y: bottom + 16 }, "now"));
    maps.push(element("figure", { class: "core-map" }, element("figcaption", {}, element("h3", { text: `Cores of ${host}` }), element("div", { class: "key", text: "the stronger the colour, the busier" })), svg));
  }
  return maps;
}

/** What happened last, the newest first. @param {Mark[]} marks */
function markLines(marks) {
  const last = marks.slice(-5).reverse();
  return last.length ? [element("p", { class: "marks small soft", text: `Lately: ${last.map(({ time, what }) => `${what} (${new Date(1000 * time).toISOString().slice(11, 19)} UTC)`).join(", ")}` })] : [];
}

/** @param {string} name */
function notesBox(name) {
  const tags = element("input", { type: "text", class: "tags", "aria-label": "Tags", placeholder: "tags, separated by spaces" });
  const note = element("textarea", { class: "notes-text", rows: 2, "aria-label": "Note", placeholder: "note" });
  const save = element("button", { type: "button", class: "save", text: "Save notes", disabled: !session.may_change, title: session.reason || null });
  let archived = false;
  save.addEventListener("click", async () => {
    try {
      await change("/api/run/notes", { name, tags: tags.value.split(/[\s,]+/).filter(Boolean), note: note.value, archived });
      say("notes saved");
    } catch (error) { failed(error); }
  });
  const box = element("details", { class: "menu notes-box" }, element("summary", { text: "Notes" }), tags, note, save);
  const fill = (/** @type {Run|undefined} */ run) => {
    if (!run || box.contains(document.activeElement)) return;
    [tags.value, note.value, archived] = [run.tags.join(" "), run.note, run.archived];
    if (run.tags.length || run.note) box.open = true;
  };
  return { box, fill };
}

/** @param {string} name */
function runPage(name) {
  where.textContent = name;
  document.title = `${name} · Paceline`;
  const state = element("span");
  const tabs = element("div", { class: "tabs", role: "group", "aria-label": "Task" });
  const content = element("div", {}, element("p", { class: "soft", text: "Loading…" }));
  const machineNow = element("div", { class: "now" });
  const machineBox = element("section", { class: "live", hidden: true }, element("h2", { text: "Machines now" }), machineNow);
  const logTabs = element("div", { class: "tabs", role: "group", "aria-label": "Log" });
  const log = element("pre", { class: "log", tabindex: "0" });
  const follow = element("input", { type: "checkbox", checked: true });
  const logs = element("section", { hidden: true }, element("h2", { text: "Logs" }), logTabs, element("label", { class: "soft" }, follow, " follow"), log);
  const report = element("a", { class: "button", href: `/report?name=${encodeURIComponent(name)}`, text: "Report" });
  const stop = element("button", { type: "button", class: "stop", text: "Stop", hidden: true, title: session.reason || "writes a checkpoint and ends, as Ctrl-C does" });
  const remove = element("button", { type: "button", class: "delete", text: "Delete…", hidden: true, title: session.reason || null });
  const sure = element("dialog", { class: "sure" });
  const { box, fill } = notesBox(name);
  view.replaceChildren(element("div", { class: "tools" }, element("a", { class: "button", href: "#", text: "← All runs" }), state, report, stop, remove, box), sure, tabs, content, machineBox, logs);
  let task = "";
  let file = "";
  /** Where the log goes on; null before it was read. @type {number|null} */
  let next = null;
  /** @type {string[]} */
  let known = [];
  let fetching = false;
  let over = false;
  let unlisten = () => {};

  const confirm = (/** @type {string} */ words, /** @type {string} */ act, /** @type {() => void} */ run) => {
    const cancel = element("button", { type: "button", class: "no", text: "Cancel", onclick: () => sure.close() });
    const yes = element("button", { type: "button", class: "yes", text: act, onclick: () => { sure.close(); run(); } });
    sure.replaceChildren(element("p", { text: words }), element("div", { class: "tools" }, cancel, yes));
    sure.showModal();
    cancel.focus();
  };
  stop.addEventListener("click", () => confirm(`Stop ${name}? It writes a checkpoint and ends; \`paceline train --resume\` continues it.`, "Stop the run", async () => {
    try { await change("/api/run/stop", { name }); say("the run was asked to stop"); } catch (error) { failed(error); }
  }));
  remove.addEventListener("click", () => confirm(`Delete ${name} with its checkpoints and logs? This cannot be undone.`, "Delete the run", async () => {
    try { await change("/api/run/delete", { name, confirm: name }); location.hash = "#"; } catch (error) { failed(error); }
  }));

  /** @param {HTMLElement} group @param {[string, string][]} names @param {string} current @param {(one: string) => void} choose */
  const pick = (group, names, current, choose) => {
    const made = names.map(([one, text]) => element("button", { type: "button", "aria-pressed": String(one === current), "data-value": one, text }));
    const fresh = /** @type {HTMLElement} */ (group.cloneNode(false));
    fresh.append(...made);
    morph(group, fresh);
    group.onclick = (event) => { const button = event.target instanceof Element ? event.target.closest("button") : null; if (button) choose(button.dataset.value ?? ""); };
  };
  const readLog = async () => {
    if (!file || fetching || over) return;
    fetching = true;
    try {
      for (let more = true; more;) {
        const [of, from] = [file, next];
        const piece = await ask(`/api/log?name=${encodeURIComponent(name)}&file=${encodeURIComponent(of)}${from === null ? "" : `&from=${from}`}`);
        if (over) return;
        if (of !== file) { more = Boolean(file); continue; }
        if (from !== null && piece.from !== from) log.textContent = ""; // the file was cut
        if (piece.text) log.append(piece.text);
        more = next !== piece.next && piece.text.length > 0 && from !== null;
        next = piece.next;
      }
      if (follow.checked) {
        log.scrollTop = log.scrollHeight;
        note();
      }
    } catch (error) { failed(error); } finally { fetching = false; }
  };
  // Reading further up ends following, reaching the end begins it; a window of another size does neither.
  // What was last seen is kept when the page scrolls or the window changes, not only when an event tells of it: one jump up
  // right after either has but one event.
  const place = () => ({ top: log.scrollTop, width: log.clientWidth, height: log.clientHeight });
  let last = place();
  const note = () => { last = place(); };
  new ResizeObserver(note).observe(log);
  log.addEventListener("scroll", () => {
    const now = place();
    if (now.top + now.height >= log.scrollHeight - 8) follow.checked = true;
    else if (now.top < last.top && now.width === last.width && now.height === last.height) follow.checked = false;
    last = now;
  });
  const choose = (/** @type {string} */ one) => { file = one; next = null; log.textContent = ""; showLogs(); readLog(); };
  const showLogs = () => {
    logs.hidden = !known.length;
    if (!known.includes(file)) { file = known[0] || ""; next = null; log.textContent = ""; }
    pick(logTabs, known.map((one) => /** @type {[string, string]} */ ([one, one])), file, choose);
  };
  const machines = async (/** @type {RunPage} */ run) => {
    const { tasks } = await ask(`/api/machines?name=${encodeURIComponent(name)}`);
    if (over) return;
    machineBox.hidden = !tasks.length;
    if (tasks.length) {
      const hosts = new Map(run.tasks.map((one) => [one.task, one.host]));
      const fresh = element("div", { class: "now" });
      fresh.append(element("div", { class: "scroll" }, machineTable(tasks)), ...markLines(run.marks), element("div", { class: "figures" }, ...coreMaps(tasks, hosts, run.marks)));
      morph(machineNow, fresh);
    }
  };
  const show = (/** @type {RunPage} */ answer) => {
    if (over) return;
    const running = answer.state === "running" || answer.state === "forming";
    state.replaceChildren(badge(answer.state));
    stop.hidden = answer.state !== "running";
    remove.hidden = running;
    stop.disabled = remove.disabled = !session.may_change;
    markup(content, answer.html);
    const names = answer.tasks.map((one) => one.task);
    pick(tabs, names.length > 1 ? [["", "All tasks"], ...names.map((one) => /** @type {[string, string]} */ ([one, one]))] : [], task, (one) => { task = one; unlisten(); watch(); });
    known = answer.logs;
    showLogs();
    if (running) machines(answer).catch(failed); else machineBox.hidden = true;
  };
  const watch = () => {
    const query = `${encodeURIComponent(name)}&task=${encodeURIComponent(task)}`;
    const fetchRun = () => ask(`/api/run?name=${query}`).then(show).then(readLog).catch(failed);
    fetchRun();
    unlisten = listen(`/api/events?run=${query}`, { run: (answer) => { show(answer); readLog(); }, logs: (lengths) => { known = Object.keys(lengths); showLogs(); readLog(); }, gone: () => say("the run is gone", true) }, fetchRun);
  };
  ask("/api/runs").then((answer) => {
    const run = answer.runs.find((/** @type {Run} */ run) => run.name === name);
    fill(run);
    if (run?.label && !over) {
      where.textContent = `${run.label} · ${lastPart(name)}`;
      document.title = `${run.label} · Paceline`;
    }
  }).catch(failed);
  watch();
  return () => { over = true; unlisten(); };
}

// --- A comparison ---------------------------------------------------------------------------------------------------------

/** @param {string[]} names */
function comparePage(names) {
  where.textContent = `${names.length} runs compared`;
  const content = element("div", {}, element("p", { class: "soft", text: "Loading…" }));
  view.replaceChildren(element("div", { class: "tools" }, element("a", { class: "button", href: "#", text: "← All runs" })), content);
  let over = false;
  let drawing = false;
  let asked = false;
  const query = names.map((name) => `name=${encodeURIComponent(name)}`).join("&");
  const question = () => (names.length > MOST_NAMED
    ? ask("/api/compare/many", { method: "POST", body: JSON.stringify({ names }), headers: { "Content-Type": "application/json" } })
    : ask(`/api/compare?${query}`));
  // Thousands of runs take a second to compare: what changes meanwhile, and for some time after it, is one more comparison.
  const draw = async () => {
    asked = true;
    if (drawing) return;
    drawing = true;
    while (asked && !over) {
      asked = false;
      const begun = performance.now();
      await question().then((answer) => { if (!over) markup(content, answer.html); }).catch(failed);
      const took = performance.now() - begun;
      if (took > 250) await new Promise((ready) => { setTimeout(ready, REST * took); });
    }
    drawing = false;
  };
  const wanted = new Set(names);
  draw();
  const unlisten = listen("/api/events", { reset: draw, runs: ({ changed }) => { if (changed.some((/** @type {Run} */ run) => wanted.has(run.name))) draw(); } }, draw);
  return () => { over = true; unlisten(); };
}

function route() {
  leave();
  document.title = "Paceline";
  const [, kind, rest] = location.hash.match(/^#\/(run|compare)\/(.*)$/) || [];
  if (kind === "run") leave = runPage(decodeURIComponent(rest));
  else if (kind === "compare") leave = comparePage(rest.split(",").map(decodeURIComponent));
  else leave = listPage();
}

window.addEventListener("hashchange", route);
ask("/api/session").then((answer) => { session = answer; }).catch(failed).finally(route);
