// Formats numbers. A value that was not measured (null) is a dash, never a zero.

export const NONE = "–";
const THIN = "\u202f";

// At most three significant digits, with separated thousands.
function digits(value) {
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(value < 1 ? 2 : 1);
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, THIN);
}

// A value and its SI prefix: [12.4, "M"].
function prefixed(value) {
  for (const [size, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size * 0.9995) return [value / size, prefix];
  }
  return [value, ""];
}

function short(value) {
  if (value >= 100) return Math.round(value).toString();
  return value.toFixed(value >= 10 ? 1 : 2);
}

// For a column of bit rates: ["12.4", "M"], with whole numbers below 1000.
export function rateParts(bps) {
  const [value, prefix] = prefixed(bps);
  return [prefix ? short(value) : Math.round(value).toString(), prefix];
}

export function rate(bps) {
  if (bps === null || bps === undefined) return NONE;
  const [value, prefix] = rateParts(bps);
  return `${value} ${prefix}bit/s`;
}

// For axes, which have round values.
export function rateTick(bps) {
  const [value, prefix] = prefixed(bps);
  return bps === 0 ? "0" : `${+value.toPrecision(3)} ${prefix}bit/s`;
}

export function bytes(count) {
  const [value, prefix] = prefixed(count);
  return `${prefix ? short(value) : Math.round(value)} ${prefix}B`;
}

export function count(value) {
  return value.toString().replace(/\B(?=(\d{3})+$)/g, THIN);
}

// For a column of milliseconds.
export function ms(ns) {
  return ns === null || ns === undefined ? NONE : digits(ns / 1e6);
}

// With its unit, for text and axes.
export function span(ns) {
  if (ns === null || ns === undefined) return NONE;
  if (ns < 1e6) return `${digits(ns / 1e3)} µs`;
  if (ns < 1e9) return `${digits(ns / 1e6)} ms`;
  return `${(ns / 1e9).toFixed(ns < 1e10 ? 2 : 1)} s`;
}

// For axes, which have round values.
export function tick(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= size) return `${+(ns / size).toPrecision(3)} ${unit}`;
  }
  return ns === 0 ? "0" : `${ns} ns`;
}

// A ratio as percent, without the sign.
export function percent(share) {
  if (share === null || share === undefined) return NONE;
  const value = share * 100;
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  return value.toFixed(value < 10 ? 2 : 1);
}

export function share(value) {
  return value === null || value === undefined ? NONE : `${percent(value)} %`;
}

// For axes, which have round values.
export function shareTick(value) {
  return `${+(value * 100).toPrecision(3)} %`;
}

// A duration in its two largest units.
export function age(ns) {
  const s = Math.floor(ns / 1e9);
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d > 0) return `${d} d ${h} h`;
  if (h > 0) return `${h} h ${m} min`;
  return m > 0 ? `${m} min ${s % 60} s` : `${s} s`;
}

const two = (n) => n.toString().padStart(2, "0");

// Local time of day, with seconds if requested.
export function clock(unixNs, seconds = false) {
  const at = new Date(unixNs / 1e6);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${text}:${two(at.getSeconds())}` : text;
}

// Local month and day of a time in milliseconds.
export function date(unixMs) {
  const at = new Date(unixMs);
  return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// Local date and time, largest unit first.
export function moment(unixNs) {
  const at = new Date(unixNs / 1e6);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(unixNs)}`;
}
