// The page: requests data once a second, except while it is hidden.
//
// All data comes from this server. Names enter the document as text, never as markup.

import * as detail from "/detail.js";
import { age, clock, count, span } from "/numbers.js";
import * as table from "/table.js";

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 8000;
const MAX_ROWS = 300;

const $ = (id) => document.getElementById(id);

let sort = "tree";
let current = null;
let timer = 0;
let pending = null;

const shownClass = () => (location.hash.startsWith("#class=") ? decodeURIComponent(location.hash.slice(7)) : null);

class Refused extends Error {}

async function request(path, parameters) {
  pending?.abort();
  const controller = (pending = new AbortController());
  const timeout = setTimeout(() => controller.abort(new Refused("no answer in time")), TIMEOUT_MS);
  try {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal: controller.signal });
    if (!answer.ok) throw new Refused((await answer.text()).trim());
    return await answer.json();
  } finally {
    clearTimeout(timeout);
  }
}

async function refresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  const name = shownClass();
  try {
    await (name === null ? overview() : one(name));
    problem(null);
  } catch (error) {
    // A newer request replaced this one.
    if (error.name === "AbortError") return;
    problem(error instanceof Refused ? error.message : "the daemon does not answer; retrying every second");
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, INTERVAL_MS);
}

async function overview() {
  const snapshot = await request("/api/snapshot", { sort, filter: $("filter").value.trim(), limit: MAX_ROWS, history: 1 });
  if (shownClass() !== null) return;
  current = snapshot;
  showState(snapshot);
  draw();
}

async function one(name) {
  const [answer, since] = [await request("/api/detail", { class: name, limit: 10 }), current?.counting_since_unix_ns];
  if (shownClass() !== name) return;
  if (since === undefined) {
    current = await request("/api/snapshot", { limit: 1 });
  }
  detail.show(answer, current.counting_since_unix_ns);
  showState(null);
}

function showState(snapshot) {
  $("state").dataset.state = "live";
  $("state").textContent = `live ${clock(Date.now() * 1e6, true)}`;
  const from = snapshot ?? current;
  $("host").textContent = from.hostname;
  document.title = `${shownClass() ?? from.hostname} – Fairpath`;
}

function draw() {
  const { rows } = current;
  const tree = sort === "tree";
  table.show($("rows"), rows, tree, draw);
  $("empty").hidden = rows.length > 0;
  const filter = $("filter").value.trim();
  $("empty").textContent = filter ? `No class name contains “${filter}”.` : "No rows: no class is configured, and no traffic yet.";
  const gap = current.restart_gap_ns === null ? "" : `, ${span(current.restart_gap_ns)} not measured at the last restart`;
  $("shown").textContent = `${count(rows.length)} of ${count(current.rows_total)} rows · uptime ${age(current.uptime_ns)}${gap}`;
  const counter = ([name, value]) => {
    const pair = document.createElement("div");
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    [dt.textContent, dd.textContent] = [name, count(value)];
    pair.append(dt, dd);
    return pair;
  };
  $("counters").replaceChildren(...Object.entries(current.counters).map(counter));
}

function problem(text) {
  $("problem").hidden = text === null;
  document.body.classList.toggle("stale", text !== null);
  if (text === null) return;
  if ($("problem").textContent !== text) $("problem").textContent = text;
  $("state").dataset.state = "stale";
  if ($("state").textContent.startsWith("live")) $("state").textContent = $("state").textContent.replace("live", "last update");
}

function sortBy(order) {
  sort = order === "name" && sort === "name" ? "tree" : order;
  $("sort").value = sort;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const head = button.closest("th");
    if (button.dataset.sort === sort) head.setAttribute("aria-sort", sort === "name" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  refresh();
}

function navigate() {
  const name = shownClass();
  $("overview").hidden = name !== null;
  $("detail").hidden = name === null;
  if (name !== null) {
    $("class").textContent = name;
    scrollTo(0, 0);
  }
  refresh();
}

// A heading spans one column where the style sheet hides the other one.
for (const head of document.querySelectorAll("[data-single]")) {
  const narrow = matchMedia(`(max-width: ${head.dataset.single}px)`);
  const fit = () => (head.colSpan = narrow.matches ? 1 : 2);
  narrow.addEventListener("change", fit);
  fit();
}
for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => sortBy(button.dataset.sort));
}
$("sort").addEventListener("change", (event) => sortBy(event.target.value));
$("filter").addEventListener("input", refresh);
addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", refresh);
addEventListener("resize", () => shownClass() !== null && detail.redraw());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("filter") || event.target === $("sort");
  if (event.key === "Escape") {
    if (shownClass() !== null) location.hash = "";
    else if (typing) event.target.blur();
  } else if (event.key === "/" && !typing && shownClass() === null) {
    event.preventDefault();
    $("filter").focus();
  } else if (!typing && shownClass() === null && table.steer($("rows"), event, draw)) {
    event.preventDefault();
  }
});
navigate();
