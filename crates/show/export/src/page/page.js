// What is shown and when it is asked for: once a second, never while the page is hidden.
//
// Everything comes from this server. Names go into the document as text, never as markup.

import * as detail from "/detail.js";
import { age, clock, count, span } from "/numbers.js";
import * as table from "/table.js";

const EVERY_MS = 1000;
const GIVE_UP_MS = 8000;
const MOST_ROWS = 300;

const $ = (id) => document.getElementById(id);

let sort = "tree";
let picture = null;
let timer = 0;
let asking = null;

const shownClass = () => (location.hash.startsWith("#class=") ? decodeURIComponent(location.hash.slice(7)) : null);

class Refused extends Error {}

async function ask(path, parameters) {
  asking?.abort();
  const asked = (asking = new AbortController());
  const late = setTimeout(() => asked.abort(new Refused("no answer in time")), GIVE_UP_MS);
  try {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal: asked.signal });
    if (!answer.ok) throw new Refused((await answer.text()).trim());
    return await answer.json();
  } finally {
    clearTimeout(late);
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
    // Another question overtook this one.
    if (error.name === "AbortError") return;
    problem(error instanceof Refused ? error.message : "the monitor does not answer; it is asked again every second");
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY_MS);
}

async function overview() {
  const snapshot = await ask("/api/snapshot", { sort, filter: $("filter").value.trim(), limit: MOST_ROWS, history: 1 });
  if (shownClass() !== null) return;
  picture = snapshot;
  heard(snapshot);
  draw();
}

async function one(name) {
  const [answer, since] = [await ask("/api/detail", { class: name, limit: 10 }), picture?.counting_since_unix_ns];
  if (shownClass() !== name) return;
  if (since === undefined) {
    picture = await ask("/api/snapshot", { limit: 1 });
  }
  detail.show(answer, picture.counting_since_unix_ns);
  heard(null);
}

function heard(snapshot) {
  $("state").dataset.state = "live";
  $("state").textContent = `live ${clock(Date.now() * 1e6, true)}`;
  const from = snapshot ?? picture;
  $("host").textContent = from.host;
  document.title = `${shownClass() ?? from.host} – Fairpath`;
}

function draw() {
  const { rows } = picture;
  const tree = sort === "tree";
  table.show($("rows"), rows, tree, draw);
  $("empty").hidden = rows.length > 0;
  const filter = $("filter").value.trim();
  $("empty").textContent = filter ? `No class has “${filter}” in its name.` : "No classes yet: nothing is configured and no traffic was seen.";
  const gap = picture.gap_ns === null ? "" : `, after a gap of ${span(picture.gap_ns)}`;
  $("shown").textContent = `${count(rows.length)} of ${count(picture.rows_total)} rows · running ${age(picture.up_ns)}${gap}`;
  const counter = ([name, value]) => {
    const pair = document.createElement("div");
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    [dt.textContent, dd.textContent] = [name, count(value)];
    pair.append(dt, dd);
    return pair;
  };
  $("counters").replaceChildren(...Object.entries(picture.counters).map(counter));
}

function problem(text) {
  $("problem").hidden = text === null;
  document.body.classList.toggle("stale", text !== null);
  if (text === null) return;
  if ($("problem").textContent !== text) $("problem").textContent = text;
  $("state").dataset.state = "stale";
  if ($("state").textContent.startsWith("live")) $("state").textContent = $("state").textContent.replace("live", "last heard");
}

function sortBy(wanted) {
  sort = wanted === "name" && sort === "name" ? "tree" : wanted;
  $("sort").value = sort;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const head = button.closest("th");
    if (button.dataset.sort === sort) head.setAttribute("aria-sort", sort === "name" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  refresh();
}

function turn() {
  const name = shownClass();
  $("overview").hidden = name !== null;
  $("detail").hidden = name === null;
  if (name !== null) {
    $("class").textContent = name;
    scrollTo(0, 0);
  }
  refresh();
}

// A heading over two columns stands over one where the style sheet hides the other.
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
addEventListener("hashchange", turn);
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
turn();
