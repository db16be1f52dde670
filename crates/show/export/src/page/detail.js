// The details of one class: tiles, histograms, last day, remotes, hosts and flows.

import { histogram, overTime, rttRange } from "/charts.js";
import { age, bytes, count, moment, ms, NONE, rate, rateTick, share, span, tick } from "/numbers.js";

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

export function show(detail, countingSince) {
  last = detail;
  const { row } = detail;
  $("class").textContent = row.name;
  $("about").textContent = [row.parent === null ? "" : `child of ${row.parent}`, KINDS[row.kind], row.children > 0 ? `${row.children} children` : ""].filter(Boolean).join(" · ");
  $("since").textContent = countingSince === null ? "" : `since ${moment(countingSince)}`;
  tiles(row);
  redraw();
  const rtt = [["Mean ms", (peer) => ms(peer.mean_rtt_ns)], ["Max ms", (peer) => ms(peer.max_rtt_ns), "extra"]];
  const volume = [["Down", (peer) => bytes(peer.bytes_down)], ["Up", (peer) => bytes(peer.bytes_up), "extra"]];
  const lost = [["Lost", (peer) => count(peer.lost_packets)]];
  list($("worst"), detail.worst_remotes, [["Remote", (peer) => peer.name], ...rtt, ...lost, ...volume]);
  list($("busiest"), detail.busiest_remotes, [["Remote", (peer) => peer.name], ...volume, ...rtt, ...lost]);
  list($("hosts"), detail.busiest_hosts, [["Host", (peer) => peer.name], ...volume, ...rtt, ...lost]);
  flows(detail.flows);
}

// The growth, and its explanation: a row with classes below and an interface have the mean of these classes if that is higher than their own.
function growthTile({ rtt_growth_ns: growth, idle_p50_rtt_ns: idle, loaded_p50_rtt_ns: busy, score }) {
  const name = "Growth under load";
  if (growth === null) return [name, NONE, "needs idle and busy intervals"];
  const own = idle === null || busy === null ? null : Math.max(busy - idle, 0);
  const source = growth === own ? "" : "mean of its classes; itself ";
  return [name, `+${span(growth)}`, `${source}${span(idle)} idle, ${span(busy)} busy; score ${score ?? NONE}`];
}

function tiles(row) {
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
  $("tiles").replaceChildren(...shown.map(([name, value, note]) => element("div", "", element("dt", "", name), element("dd", "value", value), element("dd", "note", note))));
}

export function redraw() {
  if (last === null) return;
  const { row, day } = last;
  const [inside, outside] = [row.inside.total.histogram ?? [], row.outside.total.histogram ?? []];
  const range = rttRange([inside, outside]);
  histogram($("hist-inside"), "Inside", "inside", inside, range);
  histogram($("hist-outside"), "Outside", "outside", outside, range);
  if (day.length > 1) $("step").textContent = age(day[1].unix_ns - day[0].unix_ns).replace(" 0 s", "");
  const line = (name, className, field, area = false) => ({ name, className, area, value: (point) => point[field] });
  overTime($("day-rate"), "Rate", day, [line("down", "inside", "rate_down_bps", true), line("up", "up", "rate_up_bps")], rate, rateTick);
  overTime($("day-inside"), "Inside", day, [line("p50", "inside", "inside_p50_rtt_ns"), line("p95", "inside faint", "inside_p95_rtt_ns")], span, tick);
  overTime($("day-outside"), "Outside", day, [line("p50", "outside", "outside_p50_rtt_ns"), line("p95", "outside faint", "outside_p95_rtt_ns")], span, tick);
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
