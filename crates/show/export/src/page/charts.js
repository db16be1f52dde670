// Charts as SVG: sparklines, histograms over a logarithmic axis, lines over a day.
//
// Each function draws into a <figure> of any width, again with every snapshot. The style sheet has
// the colours.

import { clock, NONE, percent, span, tick } from "/numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 68;
const RIGHT = 10;
const BOTTOM = 20;
const TOP = 16;

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function html(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function sparkline(values, width = 120, height = 22) {
  const max = Math.max(...values, 1);
  const x = (i) => ((i / Math.max(values.length - 1, 1)) * (width - 2) + 1).toFixed(1);
  const y = (value) => (height - 2 - (value / max) * (height - 4)).toFixed(1);
  const points = values.map((value, i) => `${x(i)},${y(value)}`).join(" ");
  const area = `M${x(0)},${height - 1} L${points.replaceAll(" ", " L")} L${x(values.length - 1)},${height - 1} Z`;
  const idle = values.every((value) => value === 0);
  return svg("svg", { class: idle ? "spark idle" : "spark", width, height, "aria-hidden": "true" }, svg("path", { d: area }), svg("polyline", { points }));
}

// At most `count` round steps from 0 to at least `max`.
function steps(max, count = 4) {
  const rough = Math.max(max, 1e-9) / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((s) => s >= rough * 0.999);
  const made = [];
  for (let i = 0; i <= Math.ceil(max / step - 1e-9); i++) made.push(i * step);
  return made.length > 1 ? made : [0, step];
}

function frame(figure, height, caption) {
  const width = Math.max(figure.clientWidth, 240);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  figure.replaceChildren(html("figcaption", "", ...caption), drawing);
  return { drawing, width, inner: width - LEFT - RIGHT, base: height - BOTTOM };
}

function label(x, y, text, anchor = "middle", className = "") {
  return svg("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, class: className }, text);
}

function line(className, x1, y1, x2, y2) {
  return svg("line", { class: className, x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1) });
}

function yAxis({ drawing, width, base }, top, write) {
  const ticks = steps(top);
  const max = ticks[ticks.length - 1];
  const y = (value) => base - (value / max) * (base - TOP);
  for (const value of ticks) {
    drawing.append(line("grid", LEFT, y(value), width - RIGHT, y(value)), label(LEFT - 8, y(value) + 4, write(value), "end"));
  }
  return y;
}

// The buckets of the core: 32 per octave, from 2^13 ns.
const start = (bucket) => 2 ** (13 + Math.floor(bucket / 32)) * (1 + (bucket % 32) / 32);

// A bar combines four buckets, so that an octave has eight bars.
function bars(buckets) {
  const sums = new Map();
  for (const [bucket, n] of buckets) {
    const bar = bucket - (bucket % 4);
    sums.set(bar, (sums.get(bar) ?? 0) + n);
  }
  const total = buckets.reduce((sum, [, n]) => sum + n, 0);
  return [...sums].map(([bar, n]) => ({ from: start(bar), to: start(bar + 4), share: n / total }));
}

function quantile(buckets, q) {
  const rank = Math.max(1, Math.ceil(q * buckets.reduce((sum, [, n]) => sum + n, 0)));
  let counted = 0;
  for (const [bucket, n] of buckets) {
    counted += n;
    if (counted >= rank) return (start(bucket) + start(bucket + 1)) / 2;
  }
  return null;
}

// The common range of both legs' histograms, for comparison: [ns, ns].
export function rttRange(histograms) {
  const all = histograms.flat().map(([bucket]) => bucket);
  if (all.length === 0) return [1e6, 1e8];
  const [low, high] = [start(Math.min(...all)), start(Math.max(...all) + 1)];
  return [low / 1.4, Math.max(high * 1.4, low * 8)];
}

function logTicks([low, high], inner) {
  const perDecade = inner / Math.log10(high / low);
  const wanted = perDecade > 190 ? [1, 2, 5] : perDecade > 110 ? [1, 3] : [1];
  const made = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) {
    made.push(...wanted.map((m) => m * 10 ** e).filter((v) => v >= low && v <= high));
  }
  return made;
}

export function histogram(figure, title, className, buckets, range) {
  const samples = buckets.reduce((sum, [, n]) => sum + n, 0);
  const [p50, p95] = [quantile(buckets, 0.5), quantile(buckets, 0.95)];
  const summary = samples ? `p50 ${span(p50)}   p95 ${span(p95)}` : "not measured";
  const caption = [html("b", "", title), html("span", `key ${className}`, html("em", "", "share of RTT samples")), html("span", "at", summary)];
  const frameOf = frame(figure, 200, caption);
  const { drawing, inner, base } = frameOf;
  drawing.setAttribute("aria-label", `${title}: ${summary}`);
  const made = samples ? bars(buckets) : [];
  const y = yAxis(frameOf, Math.max(...made.map((bar) => bar.share), 0.01) * 100, (v) => `${+v.toFixed(2)} %`);
  const x = (ns) => LEFT + (Math.log(ns / range[0]) / Math.log(range[1] / range[0])) * inner;
  for (const bar of made) {
    const [left, right, top] = [x(bar.from), x(bar.to), y(bar.share * 100)];
    const shape = svg("rect", { class: `ink bar ${className}`, x: (left + 0.5).toFixed(1), y: top.toFixed(1), width: Math.max(right - left - 1, 1).toFixed(1), height: Math.max(base - top, 0.5).toFixed(1) });
    shape.append(svg("title", {}, `${span(bar.from)} to ${span(bar.to)}: ${percent(bar.share)} %`));
    drawing.append(shape);
  }
  for (const value of logTicks(range, inner)) drawing.append(label(Math.min(x(value), LEFT + inner - 12), base + 15, tick(value)));
  if (samples) {
    for (const [name, value] of [["p50", p50], ["p95", p95]]) {
      drawing.append(line("mark", x(value), TOP - 2, x(value), base), label(x(value), TOP - 5, name, "middle", "mark-text"));
    }
  }
}

// Runs of successive points with a value. Other points are gaps.
function runs(points, value) {
  const made = [];
  let run = [];
  for (const point of points) {
    if (value(point) === null || value(point) === undefined) {
      if (run.length) made.push(run);
      run = [];
    } else {
      run.push(point);
    }
  }
  if (run.length) made.push(run);
  return made;
}

function timeTicks(from, to, inner) {
  const hour = 3600e9;
  const every = [1, 2, 3, 4, 6, 12].find((h) => (inner / ((to - from) / hour)) * h >= 56) ?? 24;
  const made = [];
  const first = new Date(from / 1e6);
  first.setMinutes(0, 0, 0);
  for (let at = first.getTime() * 1e6; at <= to; at += hour) {
    if (at >= from && new Date(at / 1e6).getHours() % every === 0) made.push(at);
  }
  return made;
}

// Lines over time. `series`: {name, className, value(point), area}. `write` formats a value.
export function overTime(figure, title, points, series, write, writeTick) {
  const at = html("span", "at");
  const keys = series.map((s) => html("span", `key ${s.className}`, html("em", "", s.name)));
  const frameOf = frame(figure, 168, [html("b", "", title), ...keys, at]);
  const { drawing, inner, base } = frameOf;
  const known = points.flatMap((point) => series.map((s) => s.value(point))).filter((v) => v !== null && v !== undefined);
  drawing.setAttribute("aria-label", known.length ? `${title}, up to ${write(Math.max(...known))}` : `${title}: not measured`);
  if (known.length === 0 || points.length < 2) {
    at.textContent = "not measured";
    yAxis(frameOf, 1, () => "");
    return;
  }
  const y = yAxis(frameOf, Math.max(...known), writeTick);
  const [from, to] = [points[0].unix_ns, points[points.length - 1].unix_ns];
  const x = (point) => LEFT + ((point.unix_ns - from) / (to - from)) * inner;
  for (const time of timeTicks(from, to, inner)) drawing.append(label(x({ unix_ns: time }), base + 15, clock(time)));
  for (const s of series) {
    for (const run of runs(points, s.value)) {
      const path = run.map((point) => `${x(point).toFixed(1)},${y(s.value(point)).toFixed(1)}`);
      if (s.area) drawing.append(svg("path", { class: `ink area ${s.className}`, d: `M${x(run[0]).toFixed(1)},${base} L${path.join(" L")} L${x(run[run.length - 1]).toFixed(1)},${base} Z` }));
      drawing.append(svg("polyline", { class: `ink ${s.className}`, points: path.length > 1 ? path.join(" ") : `${path[0]} ${path[0]}` }));
    }
  }
  readout(frameOf, points, series, x, write, at);
}

// Shows the values under the pointer.
function readout({ drawing, width, inner, base }, points, series, x, write, at) {
  const cursor = line("cursor", 0, TOP, 0, base);
  cursor.setAttribute("visibility", "hidden");
  drawing.append(cursor);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const position = (((event.clientX - box.left) / box.width) * width - LEFT) / inner;
    const point = points[Math.round(Math.min(Math.max(position, 0), 1) * (points.length - 1))];
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(point));
    cursor.setAttribute("x2", x(point));
    const values = series.map((s) => `${s.name} ${s.value(point) === null ? NONE : write(s.value(point))}`);
    at.textContent = `${clock(point.unix_ns)}   ${values.join("   ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    at.textContent = "";
  });
}
