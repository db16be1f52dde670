//! The results of the answerers: medians of the rounds, ratios of the same round, targets.

use serde::Serialize;

use super::answerer::Answerer;
use crate::measure::{Measured, Target};
use crate::table::build;

/// Of the rate without a queue.
const TCP_SHARE: f64 = 45.0;
/// Of the C program's rate.
const TCP_RATIO: f64 = 100.0;
/// Of what the C program adds.
const PING_RATIO: f64 = 110.0;
/// Of the CPU time with single verdicts.
const PACKED_RATIO: f64 = 80.0;

/// All of it.
#[derive(Debug, Serialize)]
pub struct NfqueueReport {
    /// Bit/s of the flow without a queue.
    tcp_without: Measured,
    /// Microseconds of a round trip without a queue.
    ping_without: Measured,
    answerers: Vec<AnswererRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct AnswererRow {
    who: Answerer,
    /// Percent of the rate without a queue.
    tcp_share: Measured,
    /// Median round trip, microseconds, less that without a queue.
    ping_added_us: Measured,
    /// CPU nanoseconds a packet.
    udp_cpu_ns: Measured,
    /// Packets a second that were answered.
    udp_pps: Measured,
}

/// Measured in each round.
#[derive(Default)]
pub struct Lists {
    pub tcp: Vec<f64>,
    pub ping: Vec<f64>,
    pub cpu: Vec<f64>,
    pub pps: Vec<f64>,
}

impl NfqueueReport {
    /// Of the rounds without a queue, and of those of each answerer.
    pub fn of(without: Lists, with: [Lists; Answerer::ALL.len()]) -> NfqueueReport {
        let tcp_without = Measured::of(without.tcp);
        let ping_without = Measured::of(without.ping);
        let rows = Answerer::ALL.into_iter().zip(with);
        let answerers: Vec<AnswererRow> = rows
            .map(|(who, lists)| AnswererRow {
                who,
                tcp_share: Measured::of(lists.tcp).pairs(&tcp_without, |a, b| 100.0 * a / b),
                ping_added_us: Measured::of(lists.ping).pairs(&ping_without, |a, b| a - b),
                udp_cpu_ns: Measured::of(lists.cpu),
                udp_pps: Measured::of(lists.pps),
            })
            .collect();
        let targets = targets(&answerers);
        NfqueueReport {
            tcp_without,
            ping_without,
            answerers,
            targets,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let heads = [
            "accepts all",
            "TCP %",
            "least",
            "most",
            "ping +us",
            "least",
            "most",
            "UDP ns",
            "least",
            "most",
            "kpps",
        ];
        let row = |row: &AnswererRow| {
            let three = |m: &Measured| [m.median, m.min, m.most].map(|v| format!("{v:.1}"));
            let mut cells = vec![row.who.name().to_owned()];
            cells.extend(three(&row.tcp_share));
            cells.extend(three(&row.ping_added_us));
            cells.extend(
                [
                    row.udp_cpu_ns.median,
                    row.udp_cpu_ns.min,
                    row.udp_cpu_ns.most,
                ]
                .map(|v| format!("{v:.0}")),
            );
            cells.push(format!("{:.0}", row.udp_pps.median / 1e3));
            cells
        };
        let rows: Vec<_> = self.answerers.iter().map(row).collect();
        let targets: String = self.targets.iter().map(Target::text).collect();
        format!(
            "\nNFQUEUE: one TCP flow with GSO (without a queue {:.1} Gbit/s), ping (without {:.1} us), \
             CPU time of a 64-byte UDP packet\n{}{targets}",
            self.tcp_without.median / 1e9,
            self.ping_without.median,
            build(&heads, &rows)
        )
    }
}

fn targets(rows: &[AnswererRow]) -> Vec<Target> {
    let row = |who| rows.iter().find(|row| row.who == who);
    let [ours, packed, single, c] = [
        Answerer::InOrder,
        Answerer::Packed,
        Answerer::Single,
        Answerer::C,
    ]
    .map(row);
    let (Some(ours), Some(packed), Some(single), Some(c)) = (ours, packed, single, c) else {
        return Vec::new();
    };
    let ratio = |a: &Measured, b: &Measured| a.pairs(b, |a, b| 100.0 * a / b).median;
    let of = |name: &str, row: &AnswererRow| {
        let min = |what: &str, figure, bound| {
            Target::at_least(format!("NFQUEUE, {name}: {what}"), figure, bound, "%")
        };
        let most = |what: &str, figure, bound| {
            Target::at_most(format!("NFQUEUE, {name}: {what}"), figure, bound, "%")
        };
        let to_c = ratio(&row.tcp_share, &c.tcp_share);
        let added = ratio(&row.ping_added_us, &c.ping_added_us);
        let cpu = ratio(&row.udp_cpu_ns, &single.udp_cpu_ns);
        [
            min(
                "TCP's share of the rate without",
                row.tcp_share.median,
                TCP_SHARE,
            ),
            min("TCP's rate to the C program's", to_c, TCP_RATIO),
            most("added round trip to the C program's", added, PING_RATIO),
            most("CPU to that of single verdicts", cpu, PACKED_RATIO),
        ]
    };
    [of("in order", ours), of("holding", packed)].concat()
}
