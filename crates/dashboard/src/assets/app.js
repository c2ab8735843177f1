// Shows runs and updates them while they change. Everything from outside is inserted as text; the only markup comes from the
// report module, which escapes its input.
"use strict";

const POLL = 400; // milliseconds between two polls while something runs
const IDLE = 2000; // and while nothing does
const view = document.getElementById("view");
const where = document.getElementById("where");
const pulse = document.getElementById("pulse");
const chosen = new Set();
let filter = "";
let timer = 0;
let turn = 0; // answers to an earlier page are dropped
const tags = new Map();

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// The answer, or null where nothing has changed since the last one.
async function ask(address) {
  const headers = tags.has(address) ? { "If-None-Match": tags.get(address) } : {};
  const answer = await fetch(address, { headers, cache: "no-store" });
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  const tag = answer.headers.get("ETag");
  if (tag) tags.set(address, tag);
  return answer.json();
}

function number(value, digits = 0) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function duration(seconds) {
  if (seconds < 60) return `${number(seconds, 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function badge(state) {
  return element("span", { class: `state ${state}`, text: state });
}

function meter(run) {
  const box = element("div", {}, `${number(run.step)}${run.planned ? ` / ${number(run.planned)}` : ""}`);
  if (run.planned && run.state === "running") {
    const bar = element("i");
    bar.style.width = `${Math.min(100, (100 * run.step) / run.planned)}%`;
    box.append(element("div", { class: "meter" }, bar));
  }
  return box;
}

function matches(run) {
  const text = [run.name, run.state, run.model, run.strategy, run.data, `batch ${run.batch}`].join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function row(run) {
  const open = () => { location.hash = `#/run/${encodeURIComponent(run.name)}`; };
  const box = element("input", { type: "checkbox", "aria-label": `compare ${run.name}`, onclick: (event) => event.stopPropagation(),
    onchange: (event) => { event.target.checked ? chosen.add(run.name) : chosen.delete(run.name); tools(); } });
  box.checked = chosen.has(run.name);
  const percent = run.accuracy === null ? null : 100 * run.accuracy;
  const cell = (label, text) => element("td", { class: "num wide", "data-label": label, text });
  return element("tr", { onclick: open, "data-run": run.name, "data-step": run.step },
    element("td", {}, box),
    element("td", { class: "name" }, element("a", { href: `#/run/${encodeURIComponent(run.name)}`, text: `${run.model || "?"} ${run.strategy}` }),
      element("small", { text: run.name })),
    element("td", {}, badge(run.state), run.silent ? element("small", { text: ` no event for ${duration(run.silent)}` }) : ""),
    element("td", { class: "num", "data-label": "step" }, meter(run)),
    element("td", { class: "num", "data-label": "examples/s", text: number(run.rate) }),
    element("td", { class: "num", "data-label": "accuracy %", text: number(percent, 2) }),
    cell("batch", number(run.batch)), cell("workers", number(run.workers)),
    cell("training loss", number(run.train_loss, 4)), cell("test loss", number(run.test_loss, 4)), cell("time", duration(run.seconds)));
}

let runs = [];
const compareButton = element("button", { type: "button", onclick: () => { location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`; } });
const count = element("span", { class: "count" });
const search = element("input", { type: "search", placeholder: "Filter by name, model, strategy, state", "aria-label": "Filter runs", oninput: (event) => { filter = event.target.value; list(); } });
const body = element("tbody");

function tools() {
  compareButton.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Compare";
  compareButton.disabled = chosen.size < 2;
}

// Rows beyond this are reached by the filter: a thousand rows are enough to scroll through.
const MOST_ROWS = 1000;

function list() {
  const shown = runs.filter(matches);
  body.replaceChildren(...shown.slice(0, MOST_ROWS).map(row));
  count.textContent = shown.length === runs.length ? `${runs.length} runs` : `${shown.length} of ${runs.length} runs`;
  tools();
}

function listPage() {
  where.textContent = "";
  const heads = ["", "run", "state"].map((text) => element("th", { scope: "col", text }));
  const numbers = ["step", "examples/s", "accuracy %", "batch", "workers", "training loss", "test loss", "time"];
  const table = element("table", { class: "runs" }, element("thead", {}, element("tr", {}, ...heads, ...numbers.map((text) => element("th", { scope: "col", class: "num", text })))), body);
  view.replaceChildren(element("div", { class: "tools" }, search, compareButton, count), element("div", { class: "scroll" }, table));
  runs = [];
  tags.delete("/api/runs");
  return async (mine) => {
    const answer = await ask("/api/runs");
    if (mine !== turn) return IDLE;
    if (answer) {
      runs = answer.runs;
      list();
      if (!runs.length) body.replaceChildren(element("tr", {}, element("td", { colspan: 11, class: "soft", text: "No runs yet: `paceline train` creates one." })));
    }
    return runs.some((run) => run.state === "running" || run.state === "forming") ? POLL : IDLE;
  };
}

function runPage(name) {
  where.textContent = name;
  document.title = `${name} · Paceline`;
  const state = element("span");
  const tabs = element("div", { class: "tabs", role: "group", "aria-label": "Task" });
  const content = element("div", {}, element("p", { class: "soft", text: "Loading…" }));
  const logTabs = element("div", { class: "tabs", role: "group", "aria-label": "Log" });
  const log = element("pre", { class: "log", tabindex: "0" });
  const logs = element("section", { hidden: "" }, element("h2", { text: "Logs" }), logTabs, log);
  const report = element("a", { class: "button", href: `/report?name=${encodeURIComponent(name)}`, text: "Report" });
  view.replaceChildren(element("div", { class: "tools" }, element("a", { class: "button", href: "#", text: "← All runs" }), state, report), tabs, content, logs);
  let task = "";
  let file = "";
  let next = null;
  let running = false;
  const pick = (group, names, current, choose) => {
    group.replaceChildren(...names.map(([value, text]) => element("button", { type: "button", "aria-pressed": String(value === current), text, onclick: () => choose(value) })));
  };
  const address = () => `/api/run?name=${encodeURIComponent(name)}&task=${encodeURIComponent(task)}`;
  const show = (answer) => {
    running = answer.state === "running" || answer.state === "forming";
    state.replaceChildren(badge(answer.state));
    content.innerHTML = answer.html;
    const names = answer.tasks.map((one) => one.task);
    pick(tabs, names.length > 1 ? [["", "All tasks"], ...names.map((one) => [one, one])] : [], task, (value) => { task = value; tags.delete(address()); renew(); });
    logs.hidden = !answer.logs.length;
    if (!answer.logs.includes(file)) { file = answer.logs[0] || ""; next = null; log.textContent = ""; }
    pick(logTabs, answer.logs.map((one) => [one, one]), file, (value) => { file = value; next = null; log.textContent = ""; show(answer); renew(); });
  };
  tags.delete(address());
  return async (mine) => {
    const answer = await ask(address());
    if (mine !== turn) return IDLE;
    if (answer) show(answer);
    if (file) {
      const piece = await ask(`/api/log?name=${encodeURIComponent(name)}&file=${encodeURIComponent(file)}${next === null ? "" : `&from=${next}`}`);
      if (mine !== turn) return IDLE;
      const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      if (piece && piece.text) log.append(piece.text);
      if (piece) next = piece.next;
      if (atEnd) log.scrollTop = log.scrollHeight;
    }
    return running ? POLL : IDLE;
  };
}

function comparePage(names) {
  where.textContent = `${names.length} runs compared`;
  const content = element("div", {}, element("p", { class: "soft", text: "Loading…" }));
  view.replaceChildren(element("div", { class: "tools" }, element("a", { class: "button", href: "#", text: "← All runs" })), content);
  const address = `/api/compare?${names.map((name) => `name=${encodeURIComponent(name)}`).join("&")}`;
  tags.delete(address);
  return async (mine) => {
    const answer = await ask(address);
    if (mine === turn && answer) content.innerHTML = answer.html;
    return IDLE;
  };
}

let look = async () => IDLE;

async function renew() {
  clearTimeout(timer);
  const mine = turn;
  const started = performance.now();
  let wait = IDLE;
  try {
    wait = await look(mine);
    pulse.className = "";
    pulse.textContent = wait === POLL ? "live" : "";
  } catch (error) {
    pulse.className = "lost";
    pulse.textContent = error instanceof TypeError ? "the server does not respond" : error.message;
  }
  // A slow answer must not become a busy server.
  if (mine === turn) {
    clearTimeout(timer);
    timer = setTimeout(renew, Math.max(wait, 2 * (performance.now() - started)));
  }
}

function route() {
  turn += 1;
  document.title = "Paceline";
  const [, kind, rest] = location.hash.match(/^#\/(run|compare)\/(.*)$/) || [];
  if (kind === "run") look = runPage(decodeURIComponent(rest));
  else if (kind === "compare") look = comparePage(rest.split(",").map(decodeURIComponent));
  else look = listPage();
  renew();
}

window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) renew(); });
route();
