//! The lists of the details view: remotes, hosts and flows.

use fairpath_history::snapshot::{Detail, FlowLine, Peer};
use ratatui::text::{Line, Span};

use super::{Page, field};
use crate::figures::{count, maybe, millis, scaled, span};
use crate::grid::{self, Field, Item};
use crate::text::{left, width};
use fairpath_history::judge::Level;

/// From this width on, two lists are next to each other.
const SIDE_BY_SIDE: u16 = 110;

/// The fields of a remote or a host.
const PEER: [Field; 5] = [
    field("mean ms", 7, 0),
    field("max ms", 6, 3),
    field("up B", 5, 2),
    field("down B", 6, 1),
    field("lost", 5, 4),
];

/// The fields of a flow: medians and minima of RTT in milliseconds, volume, times.
const FLOW: [Field; 9] = [
    field("in p50", 6, 0),
    field("in min", 6, 5),
    field("out p50", 7, 1),
    field("out min", 7, 6),
    field("up B", 5, 3),
    field("down B", 6, 2),
    field("retr", 5, 4),
    field("age", 6, 7),
    field("idle", 6, 8),
];

impl Page {
    /// Worst remotes, busiest remotes and busiest hosts. In a wide terminal the first two share lines.
    pub(super) fn peers(&self, detail: &Detail) -> Vec<Line<'static>> {
        let lists = [
            ("WORST REMOTES", "remote", &detail.worst_remotes),
            ("BUSIEST REMOTES", "remote", &detail.busiest_remotes),
            ("BUSIEST HOSTS", "host", &detail.busiest_hosts),
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
        let mut lines = side_by_side(worst, busiest, half.width + 3);
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

    /// Open flows.
    pub(super) fn flows(&self, flows: &[FlowLine]) -> Vec<Line<'static>> {
        let mut lines = vec![self.title("OPEN FLOWS")];
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
            maybe(flow.inside_p50_rtt_ns, millis),
            maybe(flow.inside_min_rtt_ns, millis),
            maybe(flow.outside_p50_rtt_ns, millis),
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
            figures: figures.map(|text| (text, Level::Normal)).to_vec(),
        }
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
        figures: figures.map(|text| (text, Level::Normal)).to_vec(),
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

/// Joins lines. The right ones begin at `column`.
fn side_by_side(
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
