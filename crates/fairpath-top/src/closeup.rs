//! One class closely: figures, both histograms, its day, remotes, hosts and flows, as lines.

use fairpath_rtt::snapshot::{AlertKind, Detail, FlowLine, Leg, Peer, Point, Row};
use ratatui::text::{Line, Span};

use crate::figures::{count, grouped, maybe, millis, percent, scaled, span};
use crate::glyphs::Look;
use crate::grid::{self, Field, Item};
use crate::histogram;
use crate::judge::{self, Level};
use crate::table::{Trend, sparkline};
use crate::text::{cut, left, width};

/// From this width on, lists stand side by side.
const SIDE_BY_SIDE: u16 = 110;
const fn field(title: &'static str, width: usize, rank: u8) -> Field {
    Field { title, width, rank }
}

/// Of a leg; times in milliseconds, losses in percent.
const LEG: [Field; 8] = [
    field("min", 5, 4),
    field("p50", 5, 1),
    field("p95", 5, 0),
    field("p99", 5, 5),
    field("samples", 7, 6),
    field("lost% to", 8, 2),
    field("from", 5, 3),
    field("reordered", 9, 7),
];

/// Of a remote or a host.
const PEER: [Field; 5] = [
    field("mean ms", 7, 0),
    field("max ms", 6, 3),
    field("up B", 5, 2),
    field("down B", 6, 1),
    field("lost", 5, 4),
];

/// Of a flow.
const FLOW: [Field; 7] = [
    field("in ms", 5, 0),
    field("out ms", 6, 1),
    field("up B", 5, 3),
    field("down B", 6, 2),
    field("retr", 5, 4),
    field("age", 6, 5),
    field("idle", 6, 6),
];

/// Everything known of a class, in lines of at most `width` columns.
pub fn lines(detail: &Detail, width: u16, look: Look) -> Vec<Line<'static>> {
    let page = Page {
        width: width.into(),
        look,
    };
    let mut lines = page.identity(&detail.row);
    lines.extend(page.figures(&detail.row));
    lines.push(Line::default());
    lines.extend(histogram::lines(&detail.row, page.width, look));
    lines.push(Line::default());
    lines.extend(page.day(detail));
    lines.extend(page.peers(detail));
    lines.extend(page.flows(&detail.flows));
    lines
}

struct Page {
    width: usize,
    look: Look,
}

impl Page {
    fn title(&self, title: &str) -> Line<'static> {
        let rule = self.width.saturating_sub(title.len() + 1);
        Line::from(vec![
            Span::styled(title.to_owned(), self.look.title()),
            Span::styled(
                format!(" {}", self.look.rule().repeat(rule)),
                self.look.quiet(),
            ),
        ])
    }

    fn quiet(&self, text: &str) -> Line<'static> {
        Line::styled(left(text, self.width, self.look), self.look.quiet())
    }

    /// Where it stands, and what is wrong with it; nothing for a topmost class without alerts.
    fn identity(&self, row: &Row) -> Vec<Line<'static>> {
        let mut pieces = Vec::new();
        if let Some(parent) = &row.parent {
            pieces.push(Span::raw(format!("below {}", cut(parent, 40, self.look))));
        }
        if row.children > 0 {
            pieces.push(Span::raw(format!(
                "{} directly below it",
                grouped(row.children.into())
            )));
        }
        for alert in &row.alerts {
            let what = match alert {
                AlertKind::RttShift => "round-trip time left its baseline!",
                AlertKind::Loss => "loss above its threshold!",
                AlertKind::SlaBreach => "a promise of its plan is broken!",
            };
            pieces.push(Span::styled(what, self.look.level(Level::Bad)));
        }
        if pieces.is_empty() {
            return Vec::new();
        }
        self.wrap("class    ", pieces)
    }

    fn figures(&self, row: &Row) -> Vec<Line<'static>> {
        let mut lines = self.rates(row);
        let legs = [
            leg("inside", &row.inside, judge::inside_p95(&row.inside)),
            leg("outside", &row.outside, judge::outside_p95(&row.outside)),
        ];
        lines.extend(grid::lines(("ms", 8), &LEG, &legs, self.width, self.look));
        lines.extend(self.load(row));
        lines.extend(self.counts(row));
        lines
    }

    fn wrap(&self, name: &str, pieces: Vec<Span<'static>>) -> Vec<Line<'static>> {
        grid::wrap(name, pieces, self.width, self.look)
    }

    fn rates(&self, row: &Row) -> Vec<Line<'static>> {
        let plan = |plan: Option<u64>, rate: f64| {
            plan.filter(|plan| *plan > 0).map_or(String::new(), |plan| {
                let share = rate / plan as f64 * 100.0;
                format!(" ({share:.0}% of {})", scaled(plan as f64))
            })
        };
        let (up, down) = (&row.up, &row.down);
        let rate = |way: &str, bps: f64, plan: String| {
            Span::raw(format!("{way} {}bit/s{plan}", unit(bps)))
        };
        let packets = [up.packet_rate, down.packet_rate].map(scaled).join("/");
        let pieces = vec![
            rate("up", up.rate_bps, plan(row.plan_up_bps, up.rate_bps)),
            rate(
                "down",
                down.rate_bps,
                plan(row.plan_down_bps, down.rate_bps),
            ),
            Span::raw(format!("packets/s {packets}")),
        ];
        self.wrap("rate     ", pieces)
    }

    fn load(&self, row: &Row) -> Vec<Line<'static>> {
        let load = &row.load;
        let ms = |ns: Option<u64>| maybe(ns, |ns| format!("{} ms", millis(ns)));
        let judged = |text: String, level: Level| {
            Span::styled(
                format!("{text}{}", level.mark().trim()),
                self.look.level(level),
            )
        };
        let score = maybe(load.score, |score| format!("{score} of 100"));
        let pieces = vec![
            Span::raw(format!("p50 idle {}", ms(load.idle_p50_ns))),
            Span::raw(format!("busy {}", ms(load.loaded_p50_ns))),
            Span::raw(format!("p95 busy {}", ms(load.loaded_p95_ns))),
            judged(format!("growth {}", ms(load.growth_ns)), judge::growth(row)),
            judged(format!("score {score}"), judge::score(row)),
        ];
        self.wrap("load     ", pieces)
    }

    fn counts(&self, row: &Row) -> Vec<Line<'static>> {
        let flows = &row.flows;
        let bytes = unit((row.up.bytes + row.down.bytes) as f64);
        let pieces = [
            format!("{} open", grouped(flows.open())),
            format!("{} in all", grouped(flows.opened)),
            format!("{} handshakes failed", grouped(flows.handshakes_failed)),
            format!("{} one-sided", grouped(flows.one_sided)),
            format!("{bytes}B in all"),
        ];
        self.wrap("flows    ", pieces.map(Span::raw).to_vec())
    }

    fn day(&self, detail: &Detail) -> Vec<Line<'static>> {
        let mut lines = vec![self.title("LAST DAY, oldest first")];
        let Some(first) = detail.day.first() else {
            lines.push(self.quiet("nothing kept yet"));
            lines.push(Line::default());
            return lines;
        };
        let points: Vec<Point> = detail
            .day
            .iter()
            .map(|point| Point {
                rate_bps: point.rate_up_bps + point.rate_down_bps,
                p95_rtt_ns: point.inside_p95_rtt_ns,
            })
            .collect();
        let last = detail
            .day
            .last()
            .map_or(first.unix_ns, |point| point.unix_ns);
        let room = self.width.saturating_sub(26);
        let points = thin(&points, room);
        let rate = points.iter().map(|p| p.rate_bps).fold(0.0, f64::max);
        let p95 = points.iter().filter_map(|p| p.p95_rtt_ns).max();
        for (what, trend, most) in [
            ("rate", Trend::Rate, format!("{}bit/s", unit(rate))),
            (
                "p95 in",
                Trend::InsideP95,
                maybe(p95, |ns| format!("{} ms", millis(ns))),
            ),
        ] {
            let spark = sparkline(&points, points.len(), trend, self.look);
            lines.push(Line::raw(format!("{what:<7} {spark}  most {most}")));
        }
        let covers = span(last.saturating_sub(first.unix_ns));
        lines.push(self.quiet(&format!("        {covers} in {} steps", detail.day.len())));
        lines.push(Line::default());
        lines
    }

    fn peers(&self, detail: &Detail) -> Vec<Line<'static>> {
        let lists = [
            ("WORST REMOTES", "remote", &detail.worst),
            ("BUSIEST REMOTES", "remote", &detail.busiest),
            ("ITS HOSTS", "host", &detail.talkers),
        ];
        if self.width < usize::from(SIDE_BY_SIDE) {
            let lists = lists.into_iter();
            return lists
                .flat_map(|(title, name, peers)| self.list(title, name, peers))
                .collect();
        }
        let half = Page {
            width: (self.width - 3) / 2,
            look: self.look,
        };
        let [worst, busiest, hosts] =
            lists.map(|(title, name, peers)| half.list(title, name, peers));
        let mut lines = beside(worst, busiest, half.width + 3);
        lines.extend(hosts);
        lines
    }

    fn list(&self, title: &str, name: &str, peers: &[Peer]) -> Vec<Line<'static>> {
        let mut lines = vec![self.title(title)];
        if peers.is_empty() {
            lines.push(self.quiet("none"));
        } else {
            let items: Vec<Item> = peers.iter().map(peer).collect();
            lines.extend(grid::lines(
                (name, 20),
                &PEER,
                &items,
                self.width,
                self.look,
            ));
        }
        lines.push(Line::default());
        lines
    }

    fn flows(&self, flows: &[FlowLine]) -> Vec<Line<'static>> {
        let mut lines = vec![self.title("LIVE FLOWS")];
        if flows.is_empty() {
            lines.push(self.quiet("none"));
            return lines;
        }
        let longest = flows.iter().map(|flow| width(&host(flow))).max();
        let ends = longest.unwrap_or(0).max(4).min(self.width / 4);
        let items: Vec<Item> = flows.iter().map(|flow| self.flow(flow, ends)).collect();
        let title = format!("{}  remote", left("host", ends, self.look));
        lines.extend(grid::lines(
            (&title, 40),
            &FLOW,
            &items,
            self.width,
            self.look,
        ));
        lines
    }

    fn flow(&self, flow: &FlowLine, ends: usize) -> Item {
        let figures = [
            maybe(flow.inside_min_rtt_ns, millis),
            maybe(flow.outside_min_rtt_ns, millis),
            scaled(flow.bytes_up as f64),
            scaled(flow.bytes_down as f64),
            count(flow.retransmitted_packets),
            span(flow.age_ns),
            span(flow.idle_ns),
        ];
        let host = left(&host(flow), ends, self.look);
        Item {
            name: format!("{host}  {}", remote(flow)),
            figures: figures.map(|text| (text, Level::Fine)).to_vec(),
        }
    }
}

fn leg(name: &str, leg: &Leg, p95: Level) -> Item {
    let rtt = |ns: Option<u64>| maybe(ns, millis);
    let plain = |text: String| (text, Level::Fine);
    let lost = |share: Option<f64>| (maybe(share, percent), judge::loss(share));
    Item {
        name: format!("{name:<8}"),
        figures: vec![
            plain(rtt(leg.min_rtt_ns)),
            plain(rtt(leg.p50_rtt_ns)),
            (rtt(leg.p95_rtt_ns), p95),
            plain(rtt(leg.p99_rtt_ns)),
            plain(count(leg.samples)),
            lost(leg.loss_to),
            lost(leg.loss_from),
            plain(count(leg.reordered_packets)),
        ],
    }
}

fn peer(peer: &Peer) -> Item {
    let figures = [
        maybe(peer.mean_rtt_ns, millis),
        maybe(peer.max_rtt_ns, millis),
        scaled(peer.bytes_up as f64),
        scaled(peer.bytes_down as f64),
        count(peer.lost_packets),
    ];
    Item {
        name: peer.name.clone(),
        figures: figures.map(|text| (text, Level::Fine)).to_vec(),
    }
}

fn host(flow: &FlowLine) -> String {
    endpoint(flow, flow.host, flow.host_port)
}

fn remote(flow: &FlowLine) -> String {
    endpoint(flow, flow.remote, flow.remote_port)
}

fn endpoint(flow: &FlowLine, address: std::net::IpAddr, port: u16) -> String {
    if flow.proto == "tcp" {
        std::net::SocketAddr::new(address, port).to_string()
    } else {
        format!("{address} {}", flow.proto)
    }
}

/// A number and its unit's prefix, with a space between as units are written: `12.3 M`.
fn unit(value: f64) -> String {
    let text = scaled(value);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits} {}", &text[digits.len()..])
}

/// At most `room` points: neighbours become one, with the greatest of their values.
fn thin(points: &[Point], room: usize) -> Vec<Point> {
    let together = points.len().div_ceil(room.max(1)).max(1);
    let greatest = |some: &[Point]| Point {
        rate_bps: some.iter().map(|p| p.rate_bps).fold(0.0, f64::max),
        p95_rtt_ns: some.iter().filter_map(|p| p.p95_rtt_ns).max(),
    };
    points.chunks(together).map(greatest).collect()
}

/// Lines beside each other; the right ones begin at `column`.
fn beside(
    on_left: Vec<Line<'static>>,
    on_right: Vec<Line<'static>>,
    column: usize,
) -> Vec<Line<'static>> {
    let number = on_left.len().max(on_right.len());
    let (mut on_left, mut on_right) = (on_left.into_iter(), on_right.into_iter());
    let mut joined = Vec::with_capacity(number);
    for _ in 0..number {
        let mut line = on_left.next().unwrap_or_default();
        let gap = column.saturating_sub(line.width());
        line.spans.push(Span::raw(" ".repeat(gap)));
        let other = on_right.next().unwrap_or_default();
        let style = other.style;
        let spans = other.spans.into_iter();
        line.spans.extend(spans.map(|span| span.patch_style(style)));
        joined.push(line);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_peaks() {
        let point = |rate_bps: f64| Point {
            rate_bps,
            p95_rtt_ns: None,
        };
        let many: Vec<Point> = (0..10).map(|i| point(f64::from(i % 4))).collect();
        let few = thin(&many, 4);
        let rates: Vec<f64> = few.iter().map(|p| p.rate_bps).collect();
        assert_eq!(rates, [2.0, 3.0, 3.0, 1.0]);
        assert_eq!(thin(&many, 10).len(), 10);
        assert!(thin(&[], 0).is_empty());
    }
}
