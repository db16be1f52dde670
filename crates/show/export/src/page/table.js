// The table of rows. Elements are reused between snapshots, so that focus and collapsed rows stay.

import { sparkline } from "/charts.js";
import { count, ms, NONE, percent, rateParts } from "/numbers.js";

const ALERTS = { rtt_shift: "RTT", loss: "loss", sla_breach: "SLA" };
const LOSSY = 0.01;

const kept = new Map();
const folded = new Set();
const key = (row) => `${row.kind}/${row.name}`;

export const address = (name) => `#class=${encodeURIComponent(name)}`;

function make(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// Cells after the name: their CSS classes, and functions that fill them from a row.
const rateCell = (volume) => (cell, row) => {
  const [value, prefix] = rateParts(row[volume].rate_bps);
  cell.replaceChildren(value, make("i", "", prefix));
};
const msCell = (leg, field) => (cell, row) => text(cell, ms(row[leg][field]));
const lossCell = (leg) => (cell, row) => {
  const hosts = leg === "inside" ? "hosts" : "remote hosts";
  const { loss_to_ratio: to, loss_from_ratio: from } = row[leg];
  const loss = to === null ? from : Math.max(to, from ?? 0);
  text(cell, percent(loss));
  cell.classList.toggle("lossy", loss >= LOSSY);
  cell.title = `to the ${hosts} ${percent(to)} %, from the ${hosts} ${percent(from)} %`;
};
const CELLS = [
  ["first", rateCell("down")],
  ["slim", rateCell("up")],
  ["first mid", msCell("inside", "p50_rtt_ns")],
  ["p95", msCell("inside", "p95_rtt_ns")],
  ["first wide", msCell("outside", "p50_rtt_ns")],
  ["wide", msCell("outside", "p95_rtt_ns")],
  ["first mid", (cell, row) => text(cell, growth(row.load.rtt_growth_ns))],
  ["mid", (cell, row) => text(cell, row.load.score === null ? NONE : String(row.load.score))],
  ["first", lossCell("inside")],
  ["mid", lossCell("outside")],
  ["first mid", (cell, row) => text(cell, count(row.flows.opened - row.flows.closed))],
  ["first wide", (cell, row) => cell.replaceChildren(...(row.history?.length > 1 ? [sparkline(row.history.map((p) => p.rate_bps))] : [NONE]))],
];

const growth = (ns) => (ns ? `+${ms(ns)}` : ms(ns));

function text(cell, value) {
  if (cell.textContent !== value) cell.textContent = value;
  cell.classList.toggle("none", value === NONE);
}

function makeRow(row, refold) {
  const fold = make("button", "fold");
  fold.type = "button";
  fold.addEventListener("click", (event) => {
    event.stopPropagation();
    toggle(row.name);
    refold();
  });
  const link = make("a", "", row.name);
  link.href = address(row.name);
  const tags = make("span", "tags");
  const name = make("td", "name", make("div", "who", fold, link, tags));
  const cells = CELLS.map(([className]) => make("td", className));
  const line = make("tr", "", name, ...cells);
  line.addEventListener("click", (event) => {
    if (event.target !== link) location.hash = address(row.name);
  });
  return { line, name, fold, link, tags, cells };
}

function toggle(name) {
  if (!folded.delete(name)) folded.add(name);
}

function fill(made, row, tree) {
  const { line, name, fold, link, tags, cells } = made;
  line.classList.toggle("parent", row.children > 0);
  name.title = row.name;
  const foldable = tree && row.children > 0;
  fold.className = foldable ? "fold" : "leaf";
  fold.disabled = !foldable;
  fold.textContent = foldable ? (folded.has(row.name) ? "▸" : "▾") : "";
  if (foldable) {
    fold.setAttribute("aria-expanded", String(!folded.has(row.name)));
    fold.setAttribute("aria-label", `${row.children} children of ${row.name}`);
  } else {
    fold.removeAttribute("aria-expanded");
    fold.removeAttribute("aria-label");
  }
  name.style.setProperty("--depth", tree ? Math.min(row.depth, 8) : 0);
  link.dataset.name = row.name;
  const kind = row.kind === "class" || row.kind === row.name ? [] : [make("span", "tag", row.kind)];
  const alerts = (row.alerts ?? []).map((alert) => make("span", "tag alert", ALERTS[alert] ?? alert));
  tags.replaceChildren(...kind, ...alerts);
  CELLS.forEach(([, write], i) => write(cells[i], row));
}

// Shows `rows`, except those below a collapsed row. `refold` draws the same rows again.
export function show(body, rows, tree, refold) {
  const focused = document.activeElement;
  const hidden = new Set();
  const lines = [];
  const shown = new Set();
  for (const row of rows) {
    const above = row.parent !== null && (folded.has(row.parent) || hidden.has(row.parent));
    if (tree && above) {
      hidden.add(row.name);
      continue;
    }
    let made = kept.get(key(row));
    if (!made) kept.set(key(row), (made = makeRow(row, refold)));
    shown.add(key(row));
    fill(made, row, tree);
    lines.push(made.line);
  }
  for (const name of kept.keys()) if (!shown.has(name)) kept.delete(name);
  arrange(body, lines);
  if (focused !== document.activeElement && body.contains(focused)) focused.focus();
}

// Moves only rows whose position changed, because moving an element removes the focus.
function arrange(body, lines) {
  const wanted = new Set(lines);
  for (const line of [...body.children]) if (!wanted.has(line)) line.remove();
  lines.forEach((line, i) => {
    if (body.children[i] !== line) body.insertBefore(line, body.children[i] ?? null);
  });
}

// Arrow keys: up and down select rows, left and right collapse and expand them.
export function steer(body, event, refold) {
  const links = [...body.querySelectorAll("td.name a")];
  const at = links.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step]?.focus();
    return true;
  }
  const name = links[at]?.dataset.name;
  if (name === undefined || !["ArrowLeft", "ArrowRight"].includes(event.key)) return false;
  if (folded.has(name) !== (event.key === "ArrowLeft")) {
    toggle(name);
    refold();
  }
  return true;
}
