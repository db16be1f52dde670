//! One class closely: figures, both histograms, its day, remotes, hosts and flows, as lines.

use fairpath_rtt::snapshot::{Detail, FlowLine, Leg, Peer, Point, Row};
use ratatui::text::{Line, Span};

use crate::figures::{count, grouped, maybe, millis, percent, scaled, span};
use crate::glyphs::Look;
use crate::histogram;
use crate::judge;
use crate::table::{Trend, sparkline};
use crate::text::{left, right};

/// From this width on, lists stand side by side.
const SIDE_BY_SIDE: u16 = 110;
/// Columns of the figures of a peer.
const PEER_FIGURES: usize = 37;
/// Longest name of a peer that is given room for.
const MAX_PEER: usize = 43;

/// Everything known of a class, in lines of at most `width` columns.
pub fn lines(detail: &Detail, width: u16, look: Look) -> Vec<Line<'static>> {
    let page = Page {
        width: width.into(),
        look,
    };
    let mut lines = page.figures(&detail.row);
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

    fn figures(&self, row: &Row) -> Vec<Line<'static>> {
        let mut lines = vec![self.rates(row)];
        lines.push(self.quiet(
            "      ms      min     p50     p95      p99   samples   loss % to  from  reordered",
        ));
        lines.push(self.leg("inside", &row.inside, judge::inside_p95(&row.inside)));
        lines.push(self.leg("outside", &row.outside, judge::outside_p95(&row.outside)));
        lines.push(self.load(row));
        lines.push(self.counts(row));
        lines
    }

    fn rates(&self, row: &Row) -> Line<'static> {
        let plan = |plan: Option<u64>, rate: f64| {
            plan.filter(|plan| *plan > 0).map_or(String::new(), |plan| {
                let share = rate / plan as f64 * 100.0;
                format!(" ({share:.0}% of {})", scaled(plan as f64))
            })
        };
        let (up, down) = (&row.up, &row.down);
        let parts = [
            format!(
                "up {}bit/s{}",
                unit(up.rate_bps),
                plan(row.plan_up_bps, up.rate_bps)
            ),
            format!(
                "down {}bit/s{}",
                unit(down.rate_bps),
                plan(row.plan_down_bps, down.rate_bps)
            ),
            format!(
                "packets {}/{} a second",
                scaled(up.packet_rate),
                scaled(down.packet_rate)
            ),
        ];
        Line::raw(left(&parts.join("   "), self.width, self.look))
    }

    fn leg(&self, name: &str, leg: &Leg, level: judge::Level) -> Line<'static> {
        let rtt = |ns: Option<u64>| right(&maybe(ns, millis), 7, self.look);
        let judged = |share: Option<f64>| {
            let level = judge::loss(share);
            let text = format!("{:>5}{}", maybe(share, percent), level.mark());
            Span::styled(text, self.look.level(level))
        };
        let p95 = format!(" {}{}", rtt(leg.p95_rtt_ns), level.mark());
        Line::from(vec![
            Span::raw(format!(
                "{name:<10}{} {}",
                rtt(leg.min_rtt_ns),
                rtt(leg.p50_rtt_ns)
            )),
            Span::styled(p95, self.look.level(level)),
            Span::raw(format!(" {}", rtt(leg.p99_rtt_ns))),
            Span::raw(format!(" {:>9}     ", count(leg.samples))),
            judged(leg.loss_to),
            judged(leg.loss_from),
            Span::raw(format!(" {:>9}", count(leg.reordered_packets))),
        ])
    }

    fn load(&self, row: &Row) -> Line<'static> {
        let load = &row.load;
        let level = judge::growth(row).max(judge::score(row));
        let idle = maybe(load.idle_p50_ns, millis);
        let busy = maybe(load.loaded_p50_ns, millis);
        let p95 = maybe(load.loaded_p95_ns, millis);
        let growth = maybe(load.growth_ns, |ns| format!("+{}", millis(ns)));
        let score = maybe(load.score, |score| format!("{score} of 100"));
        Line::from(vec![
            Span::raw(format!(
                "load      p50 idle {idle} ms, busy {busy} ms (p95 {p95} ms), "
            )),
            Span::styled(
                format!("{growth} ms, score {score}{}", level.mark()),
                self.look.level(level),
            ),
        ])
    }

    fn counts(&self, row: &Row) -> Line<'static> {
        let flows = &row.flows;
        let bytes = row.up.bytes + row.down.bytes;
        let text = format!(
            "flows     {} open, {} since counting began, {} handshakes failed, {} one-sided, {}B",
            grouped(flows.open()),
            grouped(flows.opened),
            grouped(flows.handshakes_failed),
            grouped(flows.one_sided),
            unit(bytes as f64),
        );
        Line::raw(left(&text, self.width, self.look))
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
            ("WORST REMOTES", &detail.worst),
            ("BUSIEST REMOTES", &detail.busiest),
            ("ITS HOSTS", &detail.talkers),
        ];
        if self.width < usize::from(SIDE_BY_SIDE) {
            let lists = lists.into_iter();
            return lists
                .flat_map(|(title, peers)| self.list(title, peers))
                .collect();
        }
        let half = Page {
            width: (self.width - 3) / 2,
            look: self.look,
        };
        let [worst, busiest, hosts] = lists.map(|(title, peers)| half.list(title, peers));
        let mut lines = beside(worst, busiest, half.width + 3);
        lines.extend(hosts);
        lines
    }

    fn list(&self, title: &str, peers: &[Peer]) -> Vec<Line<'static>> {
        let mut lines = vec![self.title(title)];
        if peers.is_empty() {
            lines.push(self.quiet("none"));
            lines.push(Line::default());
            return lines;
        }
        let name = self.width.saturating_sub(PEER_FIGURES).min(MAX_PEER);
        let titles = format!(
            "{}  mean ms   max ms   up B down B  lost",
            " ".repeat(name.saturating_sub(2))
        );
        lines.push(self.quiet(&titles));
        lines.extend(peers.iter().map(|peer| self.peer(peer, name)));
        lines.push(Line::default());
        lines
    }

    fn peer(&self, peer: &Peer, name: usize) -> Line<'static> {
        let text = format!(
            "{} {:>6}   {:>6}  {:>5}  {:>5} {:>5}",
            left(&peer.name, name, self.look),
            maybe(peer.mean_rtt_ns, millis),
            maybe(peer.max_rtt_ns, millis),
            scaled(peer.bytes_up as f64),
            scaled(peer.bytes_down as f64),
            count(peer.lost_packets),
        );
        Line::raw(left(&text, self.width, self.look))
    }

    fn flows(&self, flows: &[FlowLine]) -> Vec<Line<'static>> {
        let mut lines = vec![self.title("LIVE FLOWS")];
        if flows.is_empty() {
            lines.push(self.quiet("none"));
            return lines;
        }
        const FIGURES: usize = 43;
        let ends = self.width.saturating_sub(FIGURES + 4) / 2;
        let longest = flows.iter().flat_map(|f| [host(f), remote(f)]);
        let ends = longest
            .map(|end| end.len())
            .max()
            .unwrap_or(0)
            .min(ends.max(8));
        lines.push(self.quiet(&format!(
            "{} {} -> in ms out ms   up B down B  retr    age   idle",
            left("host", ends, self.look),
            left("remote", ends.saturating_sub(3), self.look),
        )));
        lines.extend(flows.iter().map(|flow| self.flow(flow, ends)));
        lines
    }

    fn flow(&self, flow: &FlowLine, ends: usize) -> Line<'static> {
        let text = format!(
            "{} {} {:>5} {:>6}  {:>5}  {:>5} {:>5} {:>6} {:>6}",
            left(&host(flow), ends, self.look),
            left(&remote(flow), ends, self.look),
            maybe(flow.inside_min_rtt_ns, millis),
            maybe(flow.outside_min_rtt_ns, millis),
            scaled(flow.bytes_up as f64),
            scaled(flow.bytes_down as f64),
            count(flow.retransmitted_packets),
            span(flow.age_ns),
            span(flow.idle_ns),
        );
        Line::raw(left(&text, self.width, self.look))
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
