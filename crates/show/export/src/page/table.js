// The table of rows. Only rows in and near the window exist as elements: any number of rows is fluid.
//
// Elements are reused between snapshots, so that focus stays.

import { sparkline } from "/charts.js";
import { count, ms, NONE, percent, rateParts } from "/numbers.js";

const ALERTS = { rtt_shift: "RTT", loss: "loss", sla_breach: "SLA" };
const LEVELS = ["", "warning", "critical"];
// Rows above and below the window that are requested and drawn.
const OVERSCAN = 4;
// Maximum number of rows in an answer.
const MAX_ROWS = 200;
// Maximum number of folded rows, and of their characters in a request.
const MAX_FOLDS = 100;
const MAX_FOLD_CHARS = 8000;

export const address = (name) => `#class=${encodeURIComponent(name)}`;

const $ = (id) => document.getElementById(id);
const key = (row) => `${row.kind}/${row.name}`;

function make(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// A row of `/api/page`.
export function read([name, kind, parent, depth, children, alerts, down, up, ip50, ip95, op50, op95, growth, score, lossIn, lossOut, flows, levels, spark]) {
  return { name, kind, parent, depth, children, alerts, down, up, ip50, ip95, op50, op95, growth, score, lossIn, lossOut, flows, levels, spark };
}

// Cells after the name: CSS classes, label on narrow screens, and functions that fill them from a row.
const rateCell = (field) => (cell, row) => {
  const [value, prefix] = rateParts(row[field]);
  const shown = `${value} ${prefix}`;
  if (cell.dataset.shown === shown) return;
  cell.dataset.shown = shown;
  cell.replaceChildren(value, make("i", "", prefix));
};
const judged = (cell, row, at, value) => {
  text(cell, value);
  const level = LEVELS[Number(row.levels[at])];
  cell.classList.toggle("warning", level === "warning");
  cell.classList.toggle("critical", level === "critical");
};
const us = (value) => (value === null ? null : value * 1000);
const lossOf = (ppm) => percent(ppm === null ? null : ppm / 1e6);
const growth = (value) => (value ? `+${ms(us(value))}` : ms(us(value)));
const CELLS = [
  ["first", "↓", rateCell("down")],
  ["slim", "↑", rateCell("up")],
  ["first mid", "", (cell, row) => text(cell, ms(us(row.ip50)))],
  ["p95", "ms", (cell, row) => judged(cell, row, 0, ms(us(row.ip95)))],
  ["first wide", "", (cell, row) => text(cell, ms(us(row.op50)))],
  ["wide", "", (cell, row) => judged(cell, row, 1, ms(us(row.op95)))],
  ["first mid", "", (cell, row) => judged(cell, row, 2, growth(row.growth))],
  ["mid", "", (cell, row) => judged(cell, row, 3, row.score === null ? NONE : String(row.score))],
  ["first", "%", (cell, row) => judged(cell, row, 4, lossOf(row.lossIn))],
  ["mid", "", (cell, row) => judged(cell, row, 5, lossOf(row.lossOut))],
  ["first mid", "", (cell, row) => text(cell, count(row.flows))],
  ["first wide", "", (cell, row) => {
    if (cell.dataset.shown === row.spark) return;
    cell.dataset.shown = row.spark;
    cell.replaceChildren(row.spark.length > 1 ? sparkline(row.spark) : NONE);
  }],
];

function text(cell, value) {
  if (cell.textContent !== value) cell.textContent = value;
  cell.classList.toggle("none", value === NONE);
}

// The table, in any order of a list of `selected` rows. `changed` is called when other rows are needed.
export class Table {
  rows = new Map(); // index -> row
  kept = new Map(); // key of a row -> elements
  selected = 0;
  tree = true;
  foldFrom = null;
  flips = new Set();

  constructor(changed) {
    this.changed = changed;
    addEventListener("scroll", () => this.moved(), { passive: true });
    addEventListener("resize", () => this.moved());
  }

  // Forgets the rows, because another order or selection was requested.
  forget() {
    this.rows.clear();
    if (scrollY > this.top) scrollTo(0, this.top - 60);
  }

  get top() {
    return $("above").getBoundingClientRect().top + scrollY;
  }

  get height() {
    return $("rows").rows[0]?.getBoundingClientRect().height || 31;
  }

  // First index and number of the rows in and near the window.
  get wanted() {
    const height = this.height;
    const first = Math.max(Math.floor((scrollY - this.top) / height) - OVERSCAN, 0);
    const limit = Math.min(Math.ceil(innerHeight / height) + 2 * OVERSCAN, MAX_ROWS);
    const visible = Math.ceil((scrollY + innerHeight - this.top) / height) + OVERSCAN - first;
    return { offset: first, limit: Math.max(Math.min(limit, visible), 8) };
  }

  moved() {
    if ($("overview").hidden || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
      const { offset, limit } = this.wanted;
      for (let at = offset; at < Math.min(offset + limit, this.selected); at++) {
        if (!this.rows.has(at)) return this.changed();
      }
    });
  }

  isFolded(row) {
    return (this.foldFrom !== null && row.depth >= this.foldFrom) !== this.flips.has(row.name);
  }

  // Folds or unfolds a row. The oldest of too many is reversed again.
  toggle(name) {
    if (!this.flips.delete(name)) this.flips.add(name);
    const size = () => [...this.flips].reduce((sum, flip) => sum + encodeURIComponent(flip).length + 6, 0);
    while (this.flips.size > MAX_FOLDS || size() > MAX_FOLD_CHARS) this.flips.delete(this.flips.values().next().value);
    const at = [...this.rows].find(([, row]) => row.name === name)?.[0] ?? 0;
    for (const index of [...this.rows.keys()]) if (index > at) this.rows.delete(index);
    this.changed();
  }

  // Shows the rows of an answer.
  show(offset, rows, selected, tree) {
    [this.selected, this.tree] = [selected, tree];
    rows.forEach((row, i) => this.rows.set(offset + i, read(row)));
    for (const index of this.rows.keys()) if (index >= selected) this.rows.delete(index);
    this.draw();
  }

  draw() {
    const body = $("rows");
    const { offset, limit } = this.wanted;
    const [from, to] = [Math.min(offset, this.selected), Math.min(offset + limit, this.selected)];
    const [shown, lines] = [new Set(), []];
    const focused = document.activeElement;
    for (let at = from; at < to; at++) {
      const row = this.rows.get(at);
      const id = row ? key(row) : `#${at}`;
      if (shown.has(id)) continue; // A row that moved while rows were requested.
      let made = this.kept.get(id);
      if (!made) this.kept.set(id, (made = row ? this.makeRow(row) : blank()));
      shown.add(id);
      if (row) this.fill(made, row);
      lines.push(made.line);
    }
    for (const id of this.kept.keys()) if (!shown.has(id)) this.kept.delete(id);
    arrange(body, lines);
    const height = this.height;
    space($("above"), from * height);
    space($("below"), (this.selected - to) * height);
    if (focused !== document.activeElement && body.contains(focused)) focused.focus();
  }

  makeRow(row) {
    const fold = make("button", "fold");
    fold.type = "button";
    fold.addEventListener("click", (event) => {
      event.stopPropagation();
      this.toggle(row.name);
    });
    const link = make("a", "", row.name);
    link.href = address(row.name);
    const tags = make("span", "tags");
    const name = make("td", "name", make("div", "who", fold, link, tags));
    const cells = CELLS.map(([className, label]) => {
      const cell = make("td", className);
      if (label) cell.dataset.label = label;
      return cell;
    });
    const line = make("tr", "", name, ...cells);
    line.addEventListener("click", (event) => {
      if (event.target !== link) location.hash = address(row.name);
    });
    return { line, name, fold, link, tags, cells };
  }

  fill(made, row) {
    const { line, name, fold, link, tags, cells } = made;
    line.classList.toggle("parent", row.children > 0);
    name.title = row.parent === null ? row.name : `${row.name}, child of ${row.parent}`;
    const foldable = this.tree && row.children > 0;
    const folded = foldable && this.isFolded(row);
    fold.className = foldable ? "fold" : "leaf";
    fold.disabled = !foldable;
    fold.textContent = foldable ? (folded ? "▸" : "▾") : "";
    if (foldable) {
      fold.setAttribute("aria-expanded", String(!folded));
      fold.setAttribute("aria-label", `${row.children} children of ${row.name}`);
    } else {
      fold.removeAttribute("aria-expanded");
      fold.removeAttribute("aria-label");
    }
    name.style.setProperty("--depth", this.tree ? Math.min(row.depth, 8) : 0);
    link.dataset.name = row.name;
    const wanted = `${row.kind} ${row.alerts}`;
    if (tags.dataset.shown !== wanted) {
      tags.dataset.shown = wanted;
      const kind = row.kind === "class" || row.kind === row.name ? [] : [make("span", "tag", row.kind)];
      const alerts = row.alerts.map((alert) => make("span", "tag alert", ALERTS[alert] ?? alert));
      tags.replaceChildren(...kind, ...alerts);
    }
    CELLS.forEach(([, , write], i) => write(cells[i], row));
  }

  // Arrow keys: up and down select rows, left and right collapse and expand them.
  steer(event) {
    const links = [...$("rows").querySelectorAll("td.name a")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
      next?.focus();
      return next !== undefined;
    }
    const name = links[at]?.dataset.name;
    const row = [...this.rows.values()].find((other) => other.name === name && other.children > 0);
    if (!this.tree || row === undefined || !["ArrowLeft", "ArrowRight"].includes(event.key)) return false;
    if (this.isFolded(row) !== (event.key === "ArrowLeft")) this.toggle(name);
    return true;
  }
}

function blank() {
  const cell = make("td", "name blank", "…");
  cell.colSpan = CELLS.length + 1;
  return { line: make("tr", "", cell) };
}

function space(body, height) {
  const cell = body.rows[0].cells[0];
  const wanted = `${Math.max(height, 0)}px`;
  if (cell.style.height !== wanted) cell.style.height = wanted;
}

// Moves only rows whose position changed, because moving an element removes the focus.
function arrange(body, lines) {
  const wanted = new Set(lines);
  for (const line of [...body.children]) if (!wanted.has(line)) line.remove();
  lines.forEach((line, i) => {
    if (body.children[i] !== line) body.insertBefore(line, body.children[i] ?? null);
  });
}
