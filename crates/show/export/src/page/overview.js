// The first screen: all traffic over time, affected classes, alerts.

import { address } from "/table.js";
import { age, clock, moment, rate, rateTick, share, span, tick } from "/numbers.js";
import { fromPage, joined, Recent, steady } from "/series.js";
import { RANGES, Timeline } from "/timeline.js";

const $ = (id) => document.getElementById(id);
const ALERTS = { rtt_shift: "RTT", loss: "loss", sla_breach: "SLA" };
const DAY_STEP = 300e3;
const CLOCK_BACK = 5e3;
// A smaller excess delay of a class with loss is not named.
const MIN_DELAY_US = 1000;

function make(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

const recent = new Recent();
let day = [];
let interval = 1000;

const timeline = new Timeline($("total-range"), [
  {
    figure: $("total-rate"), title: "Throughput", height: 130, write: rate, writeTick: rateTick, minimum: 1,
    series: [{ name: "down", className: "inside", field: "down", area: true }, { name: "up", className: "up", field: "up" }],
  },
  {
    figure: $("total-rtt"), title: "Round-trip time", height: 130, write: span, writeTick: tick,
    series: [
      { name: "inside p95", className: "inside", field: "ip95" }, { name: "inside p50", className: "inside faint", field: "ip50" },
      { name: "outside p95", className: "outside", field: "op95" }, { name: "outside p50", className: "outside faint", field: "op50" },
    ],
  },
], redraw);
timeline.offer(RANGES);

// Points after this time are still unknown. 0 requests all, and the day.
export function after() {
  if (recent.last === null) return 0;
  // The day has a new point only every five minutes.
  const stale = Math.floor(recent.last / DAY_STEP) > Math.floor((day.readAt ?? 0) / DAY_STEP);
  return stale ? 0 : Math.floor(recent.last);
}

export function forget() {
  recent.points = [];
  day = [];
}

export function show(view) {
  interval = view.interval_ns / 1e6 || 1000;
  // The clock of the daemon was set back.
  if (recent.last !== null && view.unix_ms < recent.last - CLOCK_BACK) return forget();
  if (view.total) {
    recent.add(view.total.recent.map(fromPage));
    if (view.total.day?.length || day.readAt === undefined) {
      day = steady((view.total.day ?? []).map(fromPage), DAY_STEP);
      day.readAt = recent.last ?? view.unix_ms;
    }
  }
  if (view.lists) lists(view.lists, view.unix_ms);
  redraw(view.unix_ms);
}

let shownAt = Date.now();

export function redraw(now) {
  if (typeof now === "number") shownAt = now;
  if ($("overview").hidden) return;
  const fine = recent.points.map((point) => ({ ...point, step: point.step ?? interval }));
  timeline.draw(joined(day, fine), shownAt);
  const last = fine[fine.length - 1];
  $("total-now").textContent = last ? `${rate(last.down)} down, ${rate(last.up)} up` : "no interval yet";
}

export const key = (name) => timeline.key(name);

const LEVELS = ["", "warning", "critical"];
const level = (digits, at) => LEVELS[Number(digits[at])] ?? "";

function item(entry, text, ...notes) {
  const link = make("a", "", entry.class);
  link.href = address(entry.class);
  const side = make("span", "tag", entry.leg);
  const made = make("li", "", make("span", "line", link, side), make("span", "note", ...notes));
  made.title = text;
  return made;
}

function affected(entry, now) {
  const parts = [];
  if (entry.excess_us >= MIN_DELAY_US) parts.push(make("b", level(entry.levels, 0), `+${span(entry.excess_us * 1000)}`), " delay");
  if (entry.loss_ppm) {
    if (parts.length) parts.push(", ");
    parts.push(make("b", level(entry.levels, 1), share(entry.loss_ppm / 1e6)), " loss");
  }
  const since = `for ${age(Math.max(now - entry.since_ms, 0) * 1e6)}`;
  const place = entry.parent === null ? "" : `${entry.parent}; `;
  return item(entry, `${place}since ${moment(entry.since_ms * 1e6)}`, ...parts, " ", make("span", "since", since));
}

function alert(entry, now, past) {
  const length = (past ? entry.unix_ms : now) - entry.since_ms;
  const since = past ? `ended ${clock(entry.unix_ms * 1e6)}, after ${age(Math.max(length, 0) * 1e6)}` : `for ${age(Math.max(length, 0) * 1e6)}`;
  // The text begins with class and leg, which the line above has.
  const text = entry.text.replace(`${entry.class}: ${entry.leg}: `, "");
  const kind = make("b", past ? "" : "critical", ALERTS[entry.alert] ?? entry.alert);
  const named = text.startsWith("loss ") ? text.slice(5) : text;
  return item(entry, entry.text, kind, ` ${named} `, make("span", "since", since));
}

function fill(list, entries) {
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...entries);
  if (focused !== null) [...list.querySelectorAll("a")].find((link) => link.textContent === focused)?.focus();
}

function lists(shown, now) {
  const of = (listed, total) => (total > listed ? `${listed} of ${total}` : total > 0 ? `${total}` : "");
  fill($("affected"), shown.affected.map((entry) => affected(entry, now)));
  $("affected-count").textContent = of(shown.affected.length, shown.affected_total);
  $("affected-none").hidden = shown.affected.length > 0;
  fill($("alerts"), shown.alerts.map((entry) => alert(entry, now, false)));
  $("alerts-count").textContent = shown.alerts_total ? `${of(shown.alerts.length, shown.alerts_total)} active` : "";
  $("alerts-none").hidden = shown.alerts.length > 0;
  fill($("past"), shown.past.map((entry) => alert(entry, now, true)));
  $("past-count").textContent = shown.past.length || "none";
}
