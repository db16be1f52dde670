// Charts with one time axis: ranges, zoom, moving, and the values under the pointer.

import { overTime } from "/charts.js";
import { moment } from "/numbers.js";
import { thinned } from "/series.js";

const SECOND = 1000;
const MIN_SPAN = 10 * SECOND;
const MIN_DRAG_PX = 8;
// Charts have this distance between their axis and their left and right edge.
export const LEFT = 68;
export const RIGHT = 12;

const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
// Ranges that a snapshot has, and those that need the daemon's history.
export const RANGES = [["5 min", 5 * MINUTE], ["1 h", HOUR], ["1 day", DAY]];
export const LONG_RANGES = [["1 week", 7 * DAY], ["90 days", 90 * DAY]];

function button(text, title, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = title;
  made.setAttribute("aria-label", title);
  made.addEventListener("click", act);
  return made;
}

export class Timeline {
  // charts: [{figure, title, series, write, writeTick, lines}], see overTime(). `moved` is called when
  // the shown time changes.
  constructor(bar, charts, moved) {
    this.charts = charts;
    this.moved = moved;
    this.span = RANGES[0][1];
    this.end = null; // null: the present
    this.now = Date.now();
    this.points = [];
    this.pointer = null; // a time
    this.drag = null;
    this.bar = bar;
    this.label = document.createElement("span");
    this.label.className = "when";
    this.offer(RANGES);
    for (const { figure } of charts) this.listen(figure);
  }

  offer(ranges) {
    if (this.ranges === ranges) return;
    this.ranges = ranges;
    this.buttons = ranges.map(([text, span]) => button(text, `Last ${text}`, () => this.show(span, null)));
    const moves = [
      button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
      button("‹", "Earlier", () => this.move(-0.5)), button("›", "Later", () => this.move(0.5)),
    ];
    const group = (...children) => {
      const made = document.createElement("span");
      made.className = "group";
      made.append(...children);
      return made;
    };
    this.bar.replaceChildren(this.label, group(...this.buttons), group(...moves));
    this.mark();
  }

  get view() {
    const to = this.end ?? this.now;
    return [to - this.span, to];
  }

  get longest() {
    return this.ranges[this.ranges.length - 1][1];
  }

  // Shows `span` before `end`, or before the present.
  show(span, end) {
    this.span = Math.min(Math.max(span, MIN_SPAN), this.longest);
    const first = this.now - this.longest + this.span;
    this.end = end === null || end >= this.now ? null : Math.max(end, first);
    this.mark();
    this.moved();
  }

  // Zooms about the middle, or about the present.
  zoom(factor) {
    const span = Math.min(Math.max(this.span * factor, MIN_SPAN), this.longest);
    this.show(span, this.end === null ? null : this.end + (span - this.span) / 2);
  }

  move(share) {
    this.show(this.span, (this.end ?? this.now) + share * this.span);
  }

  present() {
    this.show(this.ranges[0][1], null);
  }

  mark() {
    this.buttons.forEach((made, i) => made.setAttribute("aria-pressed", String(this.end === null && this.ranges[i][1] === this.span)));
  }

  // Draws points up to the time `now`.
  draw(points, now) {
    [this.points, this.now] = [points, now];
    this.redraw();
  }

  redraw() {
    const [from, to] = this.view;
    const day = to - from > 12 * HOUR ? `${moment(from * 1e6)} – ${moment(to * 1e6)}` : "";
    this.label.textContent = this.end === null ? day : `${moment(from * 1e6)} – ${moment(to * 1e6)}`;
    const drag = this.drag?.select ? [this.drag.from, this.drag.to].sort((a, b) => a - b) : null;
    for (const chart of this.charts) {
      const inner = Math.max(chart.figure.clientWidth - LEFT - RIGHT, 100);
      overTime(chart, thinned(this.points, from, to, Math.round(inner)), [from, to], this.pointer, drag);
    }
  }

  timeAt(figure, event) {
    const box = figure.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / Math.max(box.width - LEFT - RIGHT, 1);
    const [from, to] = this.view;
    return from + Math.min(Math.max(share, 0), 1) * (to - from);
  }

  listen(figure) {
    figure.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.target.closest("svg")) return;
      figure.setPointerCapture(event.pointerId);
      const at = this.timeAt(figure, event);
      this.drag = { x: event.clientX, from: at, to: at, select: !event.shiftKey, end: this.end ?? this.now, width: figure.clientWidth - LEFT - RIGHT };
      event.preventDefault();
    });
    figure.addEventListener("pointermove", (event) => {
      const inside = event.target.closest?.("svg") || this.drag;
      if (!inside) return;
      if (this.drag?.select) this.drag.to = this.timeAt(figure, event);
      if (this.drag && !this.drag.select) {
        const moved = ((this.drag.x - event.clientX) / Math.max(this.drag.width, 1)) * this.span;
        this.show(this.span, this.drag.end + moved);
      }
      this.pointer = this.timeAt(figure, event);
      this.redraw();
    });
    const finish = (event) => {
      const drag = this.drag;
      this.drag = null;
      if (event.type === "pointerup" && drag?.select && Math.abs(event.clientX - drag.x) >= MIN_DRAG_PX) {
        const [from, to] = [drag.from, drag.to].sort((a, b) => a - b);
        this.show(to - from, to);
      }
      this.redraw();
    };
    figure.addEventListener("pointerup", finish);
    figure.addEventListener("pointercancel", finish);
    figure.addEventListener("pointerleave", () => {
      if (this.drag) return;
      this.pointer = null;
      this.redraw();
    });
    figure.addEventListener("dblclick", () => this.present());
    figure.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / 1000);
      else return;
      event.preventDefault();
    }, { passive: false });
  }

  // Keys: returns true if it is one of the timeline.
  key(name) {
    const act = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), ",": () => this.move(-0.5), ".": () => this.move(0.5), 0: () => this.present() }[name];
    act?.();
    return act !== undefined;
  }
}
