// The details of one class: configuration, tiles, charts over time, histograms, remotes, hosts and flows.

import { histogram, rttRange } from "/charts.js";
import { fromDetail, fromStore, joined, Recent, steady, stepOf } from "/series.js";
import { LONG_RANGES, RANGES, Timeline } from "/timeline.js";
import { age, bytes, count, moment, ms, NONE, rate, rateTick, share, shareTick, span, tick } from "/numbers.js";

const $ = (id) => document.getElementById(id);
const KINDS = { class: "class", subnet: "subnet found in traffic", interface: "interface", other: "packets that match no class" };

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// The last details, drawn again when the width of the window changes.
let last = null;
let recent = new Recent();
let day = [];
let dayAt = 0;
let seenAt = 0;
// Points of the daemon's history: [] until an answer, null if it keeps none.
let stored = [];
let storedView = null;
let querying = null;
let now = Date.now();

// Steps of the history, milliseconds, and the number of them that fills a chart.
const STORE_STEPS = [1, 10, 60, 300, 900, 3600, 6 * 3600].map((s) => s * 1000);
const STORE_POINTS = 500;
const DAY_STEP = 300e3;
// The present is requested again this often.
const STORE_AGE = 60e3;

const plan = (value, text, className) => (value ? [{ value, text: `${text} ${rate(value)}`, className }] : []);
const series = (name, className, field, area = false) => ({ name, className, field, area });
const charts = [
  {
    figure: $("time-rate"), title: "Rate", write: rate, writeTick: rateTick, minimum: 1,
    series: [series("down", "inside", "down", true), series("up", "up", "up")],
    lines: () => [...plan(last.row.ceil_down_bps, "plan down", "inside"), ...plan(last.row.ceil_up_bps, "plan up", "up")],
  },
  {
    figure: $("time-inside"), title: "Inside RTT", write: span, writeTick: tick,
    series: [series("p95", "inside", "ip95"), series("p50", "inside faint", "ip50")],
  },
  {
    figure: $("time-outside"), title: "Outside RTT", write: span, writeTick: tick,
    series: [series("p95", "outside", "op95"), series("p50", "outside faint", "op50")],
  },
  {
    figure: $("time-loss"), title: "Loss inside", write: share, writeTick: shareTick, minimum: 0.001,
    series: [series("loss", "loss", "loss", true)],
  },
];
const timeline = new Timeline($("detail-range"), charts, () => {
  queryStore();
  redraw();
});
timeline.offer(RANGES);
export const key = (name) => timeline.key(name);

// True if the answer should have the day and all seconds, also after a time without answers.
export const wantsAll = () => last === null || Date.now() - dayAt > 60e3 || Date.now() - seenAt > 5e3;

// Another class is shown.
export function forget() {
  [last, recent, day, dayAt] = [null, new Recent(), [], 0];
  [stored, storedView, querying] = [stored === null ? null : [], null, null];
  timeline.present();
}

export function show(detail, countingSince, unixMs) {
  last = detail;
  const { row } = detail;
  $("class").textContent = row.name;
  $("about").textContent = [row.parent === null ? "" : `child of ${row.parent}`, KINDS[row.kind], row.children > 0 ? `${row.children} children` : ""].filter(Boolean).join(" · ");
  $("since").textContent = countingSince === null ? "" : `since ${moment(countingSince)}`;
  seenAt = Date.now();
  const points = (detail.recent ?? []).map(fromDetail);
  // The clock of the daemon was set back.
  if (points.length && points[points.length - 1].t < recent.last - 5e3) recent = new Recent();
  recent.add(points);
  if (detail.day.length) {
    const steps = detail.day.map(fromDetail);
    day = steady(steps, stepOf(steps, DAY_STEP));
    dayAt = Date.now();
  } else if (dayAt === 0) {
    dayAt = Date.now();
  }
  now = Math.max(recent.last === null ? 0 : recent.last + 1000, unixMs ?? 0);
  timeline.now = now;
  tiles(row, detail.levels);
  configured(detail.configured);
  queryStore();
  redraw();
  const rtt = [["Mean ms", (peer) => ms(peer.mean_rtt_ns)], ["Max ms", (peer) => ms(peer.max_rtt_ns), "extra"]];
  const volume = [["Down", (peer) => bytes(peer.bytes_down)], ["Up", (peer) => bytes(peer.bytes_up), "extra"]];
  const lost = [["Lost", (peer) => count(peer.lost_packets)]];
  list($("worst"), detail.worst_remotes, [["Remote", (peer) => peer.name], ...rtt, ...lost, ...volume]);
  list($("busiest"), detail.busiest_remotes, [["Remote", (peer) => peer.name], ...volume, ...rtt, ...lost]);
  list($("hosts"), detail.busiest_hosts, [["Host", (peer) => peer.name], ...volume, ...rtt, ...lost]);
  flows(detail.flows);
}

// Requests the shown time from the daemon's history, if it has changed. Without history, the ranges
// end with the day.
async function queryStore() {
  if (last === null || stored === null || querying !== null) return;
  const [from, to] = timeline.view;
  const step = STORE_STEPS.find((s) => (to - from) / s <= STORE_POINTS) ?? STORE_STEPS[STORE_STEPS.length - 1];
  const known = storedView;
  const same = known && known.step === step && known.from <= from && (known.to >= to || (timeline.end === null && to - known.to < Math.max(STORE_AGE, step)));
  if (same) return;
  const { name, kind } = last.row;
  const seconds = (time) => Math.floor(time / 1000);
  const wanted = { step, from, to };
  querying = wanted;
  try {
    const answer = await fetch(`/api/history?${new URLSearchParams({ name, kind, since: seconds(from), until: seconds(to) + 1, step: step / 1000 })}`);
    if (querying !== wanted) return;
    if (answer.status === 404) {
      stored = null;
    } else if (answer.ok) {
      const points = (await answer.json()).points.map(fromStore);
      [stored, storedView] = [steady(points, step), wanted];
      timeline.offer([...RANGES, ...LONG_RANGES.filter((range) => !RANGES.includes(range))]);
    }
  } catch {
    // The daemon does not answer: the next snapshot requests it again.
  } finally {
    if (querying === wanted) querying = null;
  }
  redraw();
}

function configured(known) {
  $("configured").hidden = !known;
  if (!known) return;
  const more = known.criteria_total - known.criteria.length;
  const entries = [["Matches", [...known.criteria, ...(more > 0 ? [`and ${count(more)} more`] : [])].join(", ") || "its children only"]];
  for (const [name, value] of Object.entries(known.attributes)) entries.push([name, value]);
  if (known.sla_p95_rtt_ns !== null) entries.push(["Service level", `inside p95 at most ${span(known.sla_p95_rtt_ns)}`]);
  if (known.sla_loss_ratio !== null) entries.push(["Service level", `loss at most ${share(known.sla_loss_ratio)}`]);
  $("configuration").replaceChildren(...entries.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
}

// The growth, and its explanation: a row with classes below and an interface have the mean of these classes if that is higher than their own.
function growthTile({ rtt_growth_ns: growth, idle_p50_rtt_ns: idle, loaded_p50_rtt_ns: busy, score }) {
  const name = "Growth under load";
  if (growth === null) return [name, NONE, "needs idle and busy intervals"];
  const own = idle === null || busy === null ? null : Math.max(busy - idle, 0);
  const source = growth === own ? "" : "mean of its classes; itself ";
  return [name, `+${span(growth)}`, `${source}${span(idle)} idle, ${span(busy)} busy; score ${score ?? NONE}`];
}

function tiles(row, levels) {
  const ceiling = (bps) => (bps === null ? "no ceiling" : `of ${rate(bps)}`);
  const unmeasured = (volume) => (volume.unmeasured_ratio === null ? "" : `, ${share(volume.unmeasured_ratio)} unmeasured`);
  const leg = (name, { p50_rtt_ns: p50, p95_rtt_ns: p95, min_rtt_ns: min, samples }) => [name, `${span(p50)}`, p50 === null ? "not measured" : `p95 ${span(p95)}, min ${span(min)}; ${count(samples)} samples`];
  const loss = (name, { loss_to_ratio: to, loss_from_ratio: from, lost_packets: lost }) => [name, to === null && from === null ? NONE : share(Math.max(to ?? 0, from ?? 0)), `to ${share(to)}, from ${share(from)}, ${count(lost)} packets in total`];
  const { load, flows: f } = row;
  const shown = [
    ["Down", rate(row.down.rate_bps), ceiling(row.ceil_down_bps) + unmeasured(row.down)],
    ["Up", rate(row.up.rate_bps), ceiling(row.ceil_up_bps) + unmeasured(row.up)],
    leg("Inside, median", row.inside),
    leg("Outside, median", row.outside),
    growthTile(load),
    loss("Loss inside", row.inside),
    loss("Loss outside", row.outside),
    ["Open flows", count(f.opened - f.closed), `${count(f.opened)} opened, ${count(f.handshakes_failed)} handshakes failed`],
  ];
  // The verdict of each tile, the worse one of growth and score.
  const verdicts = [0, 0, levels[0], levels[1], Math.max(levels[2], levels[3]), levels[4], levels[5], 0];
  $("tiles").replaceChildren(...shown.map(([name, value, note], i) => {
    const level = ["", " warning", " critical"][verdicts[i]];
    return element("div", "", element("dt", "", name), element("dd", `value${level}`, value), element("dd", "note", note));
  }));
}

export function redraw() {
  if (last === null || $("detail").hidden) return;
  const { row } = last;
  const [inside, outside] = [row.inside.total.histogram ?? [], row.outside.total.histogram ?? []];
  const range = rttRange([inside, outside]);
  histogram($("hist-inside"), "Inside", "inside", inside, range);
  histogram($("hist-outside"), "Outside", "outside", outside, range);
  const fine = recent.points.map((point) => ({ ...point, step: point.step ?? 1000 }));
  const [from, to] = timeline.view;
  const coarse = stored?.length ? stored : day;
  const points = joined(coarse, fine);
  timeline.draw(points, now);
  const shown = points.filter((point) => point.t + point.step > from && point.t < to);
  const step = Math.max(...shown.map((point) => point.step), 0);
  $("step").textContent = step ? `steps of ${age(step * 1e6).replace(/ 0 (s|min|h)$/, "")}` : "";
}

// A table; columns: [heading, value(item), class name].
function list(table, items, columns) {
  const cells = (tag, value) => element("tr", "", ...columns.map(([head, read, className]) => {
    const cell = element(tag, className ?? "", value(head, read));
    cell.classList.toggle("none", cell.textContent === NONE);
    return cell;
  }));
  if (items.length === 0) {
    table.replaceChildren(element("caption", "empty", "none"));
    return;
  }
  const head = element("thead", "", cells("th", (name) => name));
  table.replaceChildren(head, element("tbody", "", ...items.map((item) => cells("td", (_, read) => read(item)))));
  for (const row of table.tBodies[0].rows) row.cells[0].title = row.cells[0].textContent;
}

function endpoint(host, port) {
  if (port === 0) return host;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function flows(items) {
  list($("flows"), items, [
    ["Host → remote", (f) => `${endpoint(f.host_address, f.host_port)} → ${endpoint(f.remote_address, f.remote_port)}`],
    ["", (f) => f.protocol, "extra"],
    ["Age", (f) => age(f.age_ns), "extra"],
    ["Down", (f) => bytes(f.bytes_down)],
    ["In p50", (f) => ms(f.inside_p50_rtt_ns)],
    ["In min", (f) => ms(f.inside_min_rtt_ns), "extra"],
    ["Out p50", (f) => ms(f.outside_p50_rtt_ns)],
    ["Out min", (f) => ms(f.outside_min_rtt_ns), "extra"],
    ["Retr.", (f) => count(f.retransmitted_packets), "extra"],
  ]);
}
