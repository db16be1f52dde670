// Charts as SVG: sparklines, histograms over a logarithmic axis, lines over time.
//
// Each function draws into a <figure> of any width, again with every snapshot. The style sheet has
// the colours.

import { clock, date, NONE, percent, span, tick } from "/numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 68;
const RIGHT = 12;
// Estimated width of a character of labels, and minimum distance of labels, pixels.
const CHAR = 6.6;
const GAP = 10;
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

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// One digit of base 62 for each interval.
export function sparkline(digits, width = 120, height = 22) {
  const values = [...digits].map((digit) => DIGITS.indexOf(digit));
  const x = (i) => ((i / Math.max(values.length - 1, 1)) * (width - 2) + 1).toFixed(1);
  const y = (value) => (height - 2 - (value / (DIGITS.length - 1)) * (height - 4)).toFixed(1);
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
  const ticks = steps(top, base - TOP < 90 ? 3 : 4);
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
  let next = LEFT - 6;
  for (const value of logTicks(range, inner)) {
    const half = (tick(value).length * CHAR) / 2;
    if (x(value) - half < next || x(value) + half > LEFT + inner + RIGHT) continue;
    next = x(value) + half + GAP;
    drawing.append(label(x(value), base + 15, tick(value)));
  }
  if (samples) {
    const close = x(p95) - x(p50) < 4 * CHAR;
    for (const [name, value, side] of [["p50", p50, "end"], ["p95", p95, "start"]]) {
      drawing.append(line("mark", x(value), TOP - 2, x(value), base), label(x(value) + (close ? (side === "end" ? -2 : 2) : 0), TOP - 5, name, close ? side : "middle", "mark-text"));
    }
  }
}

// Runs of successive points with a value. Other points, and missing ones, are gaps.
function runs(points, value) {
  const made = [];
  let run = [];
  for (const point of points) {
    const last = run[run.length - 1];
    const known = value(point) !== null && value(point) !== undefined;
    if (run.length && (!known || point.t - last.t > last.step * 1.5 + point.step)) {
      made.push(run);
      run = [];
    }
    if (known) run.push(point);
  }
  if (run.length) made.push(run);
  return made;
}

const HOUR = 3600;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR, 168 * HOUR, 336 * HOUR, 720 * HOUR];

// Round local times between two times, milliseconds, with labels that fit: [[time, text]].
function timeTicks(from, to, inner) {
  const wide = (step) => (step < 60 ? 8 : 5) * CHAR + GAP;
  const fits = (step) => (inner * step * 1000) / (to - from) >= wide(step);
  const step = (STEPS.find(fits) ?? STEPS[STEPS.length - 1]) * 1000;
  const local = -new Date(from).getTimezoneOffset() * 60000;
  const made = [];
  for (let at = Math.ceil((from + local) / step) * step - local; at <= to; at += step) {
    const midnight = (at + local) % 86400e3 === 0;
    made.push([at, midnight && step >= 60000 ? date(at) : clock(at * 1e6, step < 60000)]);
  }
  return made;
}

// Lines of plans, with labels at the right, or at the left if the right one is taken.
function planLines({ drawing, width }, y, lines) {
  const taken = [];
  for (const { value, text, className } of lines) {
    const at = y(value);
    const left = taken.some((other) => Math.abs(other - at) < 15);
    taken.push(at);
    const end = left ? LEFT + 6 : width - RIGHT - 4;
    drawing.append(line(`plan ${className}`, LEFT, at, width - RIGHT, at), label(end, Math.max(at - 4, 11), text, left ? "start" : "end", "plan-text"));
  }
}

// Lines between two times. `chart`: {figure, title, series: [{name, className, field, area}], write,
// writeTick, lines(): [{value, text, className}], maximum}. `pointer` is the time under the pointer, and
// `drag` two times.
export function overTime(chart, points, [from, to], pointer, drag) {
  const { figure, title, series, write, writeTick } = chart;
  const at = html("span", "at");
  const keys = series.map((s) => html("span", `key ${s.className}`, html("em", "", s.name)));
  const frameOf = frame(figure, chart.height ?? 150, [html("b", "", title), ...keys, at]);
  const { drawing, width, inner, base } = frameOf;
  const known = points.flatMap((point) => series.map((s) => point[s.field])).filter((v) => v !== null && v !== undefined);
  const max = Math.max(...known, chart.minimum ?? 0);
  drawing.setAttribute("aria-label", known.length ? `${title}, up to ${write(Math.max(...known))}` : `${title}: not measured`);
  const x = (time) => LEFT + ((time - from) / (to - from)) * inner;
  let next = -Infinity;
  for (const [time, text] of timeTicks(from, to, inner)) {
    const half = (text.length * CHAR) / 2;
    if (x(time) - half < Math.max(next, LEFT - 6) || x(time) + half > width) continue;
    next = x(time) + half + GAP / 2;
    drawing.append(line("grid fine", x(time), TOP, x(time), base), label(x(time), base + 15, text));
  }
  if (known.length === 0) {
    at.textContent = "not measured";
    yAxis(frameOf, 1, () => "");
    return;
  }
  // A plan far above the traffic would hide it: only the caption names it then.
  const [lines, far] = [[], []];
  for (const plan of chart.lines?.() ?? []) (plan.value <= 10 * max ? lines : far).push(plan);
  if (far.length) at.before(html("span", "", far.map((plan) => plan.text).join(", ")));
  const y = yAxis(frameOf, Math.max(max, ...lines.map((plan) => plan.value)), writeTick);
  const clip = (time) => Math.min(Math.max(time, from), to);
  for (const s of series) {
    for (const run of runs(points, (point) => point[s.field])) {
      const path = run.map((point) => `${x(clip(point.t + point.step / 2)).toFixed(1)},${y(point[s.field]).toFixed(1)}`);
      const [first, last] = [path[0].split(",")[0], path[path.length - 1].split(",")[0]];
      if (s.area) drawing.append(svg("path", { class: `ink area ${s.className}`, d: `M${first},${base} L${path.join(" L")} L${last},${base} Z` }));
      drawing.append(svg("polyline", { class: `ink ${s.className}`, points: path.length > 1 ? path.join(" ") : `${path[0]} ${path[0]}` }));
    }
  }
  planLines(frameOf, y, lines);
  if (drag) drawing.append(svg("rect", { class: "drag", x: x(drag[0]).toFixed(1), y: TOP, width: Math.max(x(drag[1]) - x(drag[0]), 0).toFixed(1), height: base - TOP }));
  readout({ drawing, base }, points, series, x, write, at, pointer, to - from);
}

// The values of the point under the pointer, or the newest ones.
function readout({ drawing, base }, points, series, x, write, at, pointer, length) {
  const wanted = pointer ?? Infinity;
  const point = points.findLast((p) => p.t <= wanted) ?? points[0];
  if (pointer !== null) drawing.append(line("cursor", x(pointer), TOP, x(pointer), base));
  const values = series.map((s) => `${s.name} ${point[s.field] === null ? NONE : write(point[s.field])}`);
  const when = length > 24 * HOUR * 1000 ? `${date(point.t)} ${clock(point.t * 1e6)}` : clock(point.t * 1e6, length < HOUR * 1000);
  at.textContent = pointer === null ? "" : `${when}   ${values.join("   ")}`;
}
