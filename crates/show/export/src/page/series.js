// Points over time, from several sources of different steps.
//
// A point: {t, step, down, up, ip50, ip95, op50, op95, loss}. Times are milliseconds, rates bits per
// second, round-trip times nanoseconds, losses ratios. A value that was not measured is null.

const KEPT = 3600;

const ns = (us) => (us === null ? null : us * 1000);

// A point of `/api/page`.
export function fromPage([t, down, up, ip50, ip95, op50, op95, loss]) {
  return { t, down, up, ip50: ns(ip50), ip95: ns(ip95), op50: ns(op50), op95: ns(op95), loss: loss === null ? null : loss / 1e6 };
}

// A point of `/api/detail`.
export function fromDetail(p) {
  return {
    t: p.unix_ns / 1e6, down: p.rate_down_bps, up: p.rate_up_bps,
    ip50: p.inside_p50_rtt_ns, ip95: p.inside_p95_rtt_ns,
    op50: p.outside_p50_rtt_ns, op95: p.outside_p95_rtt_ns, loss: p.inside_loss_ratio,
  };
}

// A point of `/api/history`.
export function fromStore(p) {
  return { ...fromDetail({ ...p, inside_loss_ratio: p.inside_loss ?? null }), step: p.length_ns / 1e6 };
}

const idle = (t, step) => ({ t, step, down: 0, up: 0, ip50: null, ip95: null, op50: null, op95: null, loss: null });

// Sets the step of points, and adds points without traffic where steps are missing: one at each end.
export function steady(points, step) {
  const made = [];
  for (const point of points) {
    const last = made[made.length - 1];
    if (last && point.t - last.t > 1.5 * step) {
      made.push(idle(last.t + step, step));
      if (point.t - last.t > 2.5 * step) made.push(idle(point.t - step, step));
    }
    made.push({ ...point, step: point.step ?? step });
  }
  return made;
}

// The step of successive points: the smallest difference.
export function stepOf(points, fallback) {
  let least = Infinity;
  for (let i = 1; i < points.length; i++) least = Math.min(least, points[i].t - points[i - 1].t);
  return Number.isFinite(least) && least > 0 ? least : fallback;
}

// The last intervals, which grow while the page is open.
export class Recent {
  points = [];

  // Adds newer points. A gap remains a gap.
  add(points) {
    const last = this.points[this.points.length - 1]?.t ?? -Infinity;
    this.points.push(...points.filter((point) => point.t > last + 1));
    if (this.points.length > KEPT) this.points.splice(0, this.points.length - KEPT);
  }

  get last() {
    return this.points[this.points.length - 1]?.t ?? null;
  }
}

// Coarse points, and fine ones from their begin on.
export function joined(coarse, fine) {
  if (fine.length === 0) return coarse;
  const begin = fine[0].t;
  const before = coarse.filter((point) => point.t < begin);
  return [...before.map((point) => ({ ...point, step: Math.min(point.step, begin - point.t) })), ...fine];
}

const FIELDS = ["down", "up", "ip50", "ip95", "op50", "op95", "loss"];

// At most `bins` points between two times, each with the maxima of its points.
export function thinned(points, from, to, bins) {
  const shown = points.filter((point) => point.t + point.step > from && point.t < to);
  if (shown.length <= bins) return shown;
  const width = (to - from) / bins;
  const made = [];
  for (const point of shown) {
    const bin = Math.floor((point.t - from) / width);
    const last = made[made.length - 1];
    if (!last || last.bin !== bin) {
      made.push({ ...point, bin });
      continue;
    }
    last.step = point.t + point.step - last.t;
    for (const field of FIELDS) {
      if (point[field] !== null) last[field] = last[field] === null ? point[field] : Math.max(last[field], point[field]);
    }
  }
  return made;
}
