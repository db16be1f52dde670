// The page: requests data once a second, except while it is hidden.
//
// All data comes from this server. Names enter the document as text, never as markup.

import * as detail from "/detail.js";
import { age, clock, count, span } from "/numbers.js";
import * as overview from "/overview.js";
import * as rules from "/rules.js";
import { Table } from "/table.js";

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 8000;
// Alerts and affected classes are requested less often than rows.
const LISTS_MS = 5000;
const LISTED = 10;

const $ = (id) => document.getElementById(id);

let sort = "tree";
let current = null;
let timer = 0;
let pending = null;
let listsAt = -Infinity;
// The position of the overview while details are shown.
let place = null;
const table = new Table(() => refresh());

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
    await (name === null ? all() : one(name));
    problem(null);
  } catch (error) {
    // A newer request replaced this one.
    if (error.name === "AbortError") return;
    problem(error instanceof Refused ? error.message : "the daemon does not answer; retrying every second");
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, INTERVAL_MS);
}

// The tree is shown in its order, or with sorted siblings. A search shows a flat list.
const isTree = () => $("filter").value.trim() === "" && (sort === "tree" || $("by-parent").checked);

async function all() {
  const wanted = table.wanted;
  const search = $("filter").value.trim();
  const lists = performance.now() - listsAt >= LISTS_MS;
  const parameters = [["sort", sort], ["offset", wanted.offset], ["limit", wanted.limit], ["after_ms", overview.after()]];
  if (search) parameters.push(["search", search]);
  if (isTree()) {
    if ($("by-parent").checked) parameters.push(["by_parent", 1]);
    if (table.foldFrom !== null) parameters.push(["fold_from", table.foldFrom]);
    for (const name of table.flips) parameters.push(["fold", name]);
  }
  if (lists) parameters.push(["lists", LISTED]);
  const wantedRules = rules.wanted(lists);
  if (wantedRules) parameters.push(["rules", wantedRules]);
  if ($("counters").parentElement.open) parameters.push(["counters", 1]);
  const view = await request("/api/page", parameters);
  if (shownClass() !== null) return;
  if (current && view.counting_since_ms !== current.counting_since_ms) overview.forget();
  if (lists) listsAt = performance.now();
  current = view;
  showState();
  table.show(view.offset, view.rows, view.rows_selected, isTree());
  overview.show(view);
  if (wantedRules) rules.show(view.rules, view.unix_ms);
  draw();
}

async function one(name) {
  const parameters = { class: name, limit: 10 };
  if (!detail.wantsAll()) parameters.brief = 1;
  const answer = await request("/api/detail", parameters);
  if (shownClass() !== name) return;
  // The time of the daemon: its clock may differ from that of this computer.
  if (current === null) {
    current = await request("/api/page", { limit: 1 });
    current.received = performance.now();
  }
  if (shownClass() !== name) return;
  const now = current.unix_ms + performance.now() - current.received;
  detail.show(answer, current.counting_since_ms * 1e6, now);
  showState();
}

function showState() {
  $("state").dataset.state = "live";
  $("state").textContent = `live ${clock(Date.now() * 1e6, true)}`;
  $("host").textContent = current.hostname;
  document.title = `${shownClass() ?? current.hostname} – Fairpath`;
}

function draw() {
  current.received = performance.now();
  $("empty").hidden = current.rows_selected > 0;
  const search = $("filter").value.trim();
  $("empty").textContent = search ? `No class matches “${search}”.` : "No rows: no class is configured, and no traffic yet.";
  const gap = current.restart_gap_ns === null ? "" : `, ${span(current.restart_gap_ns)} not measured at the last restart`;
  $("shown").textContent = `${count(current.rows_selected)} of ${count(current.rows_total)} rows · uptime ${age(current.uptime_ns)}${gap}`;
  if (!current.counters) return;
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
  table.forget();
  refresh();
}

function navigate() {
  const name = shownClass();
  $("overview").hidden = name !== null;
  $("detail").hidden = name === null;
  if (name !== null) {
    if (place === null) place = scrollY;
    $("class").textContent = name;
    detail.forget();
    scrollTo(0, 0);
  } else {
    listsAt = -Infinity;
    if (place !== null) scrollTo(0, place);
    place = null;
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
$("filter").addEventListener("input", () => {
  table.forget();
  refresh();
});
$("by-parent").addEventListener("change", () => {
  table.forget();
  refresh();
});
$("levels").addEventListener("change", (event) => {
  table.foldFrom = event.target.value === "" ? null : Number(event.target.value);
  table.flips.clear();
  table.forget();
  refresh();
});
$("counters").parentElement.addEventListener("toggle", refresh);
$("loaded-rules").addEventListener("toggle", refresh);
addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", refresh);
addEventListener("resize", () => (shownClass() === null ? overview.redraw() : detail.redraw()));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("filter") || event.target.tagName === "SELECT";
  if (event.key === "Escape") {
    if (shownClass() !== null) location.hash = "";
    else if (typing) event.target.blur();
  } else if (event.key === "/" && !typing && shownClass() === null) {
    event.preventDefault();
    $("filter").focus();
  } else if (!typing && shownClass() === null && table.steer(event)) {
    event.preventDefault();
  } else if (!typing && (shownClass() === null ? overview : detail).key(event.key)) {
    event.preventDefault();
  }
});
navigate();
