//! What a whole run came to: round-trip times by side, loss, flows, coverage.
//!
//! Samples go into log-linear histograms (two significant digits, 1 us to 60 s): one for each
//! interface towards which was measured, and one for each of the first [`MAX_FLOW_ROWS`] flows
//! and legs; what comes later is in the totals only, and counted.

use std::collections::HashMap;

use fairpath_core::{Counts, DirCounts, Event, FlowRecord, Key, Method, Sample, Stats};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::record::{Context, SCHEMA, endpoint};

/// Flow legs that a summary keeps a histogram for.
pub const MAX_FLOW_ROWS: usize = 4096;
/// Two significant digits: values are right within 1 %.
const DIGITS: u8 = 2;
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 60_000_000_000;

/// A distribution of round-trip times that keeps its extremes exactly.
#[derive(Clone, Debug)]
struct Spread {
    histogram: Histogram<u32>,
    min: u64,
    max: u64,
}

impl Spread {
    fn new() -> Spread {
        // Small at first; it grows to what is recorded, not to what could be.
        let mut histogram = Histogram::new_with_bounds(LOWEST_NS, 2 * LOWEST_NS, DIGITS)
            .expect("constant bounds are valid");
        histogram.auto(true);
        Spread {
            histogram,
            min: u64::MAX,
            max: 0,
        }
    }

    fn add(&mut self, rtt_ns: u64) {
        // Growing up to HIGHEST_NS cannot fail.
        let _ = self.histogram.record(rtt_ns.clamp(LOWEST_NS, HIGHEST_NS));
        self.min = self.min.min(rtt_ns);
        self.max = self.max.max(rtt_ns);
    }

    /// A quantile, never outside what was seen.
    fn quantile(&self, q: f64) -> u64 {
        self.histogram
            .value_at_quantile(q)
            .clamp(self.min.min(self.max), self.max)
    }

    fn line(&self) -> LegLine {
        LegLine {
            samples: self.histogram.len(),
            min_rtt_ns: if self.max == 0 { 0 } else { self.min },
            p50_rtt_ns: self.quantile(0.50),
            p95_rtt_ns: self.quantile(0.95),
            p99_rtt_ns: self.quantile(0.99),
            max_rtt_ns: self.max,
        }
    }
}

/// Round-trip times of one leg.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct LegLine {
    pub samples: u64,
    pub min_rtt_ns: u64,
    pub p50_rtt_ns: u64,
    pub p95_rtt_ns: u64,
    pub p99_rtt_ns: u64,
    pub max_rtt_ns: u64,
}

/// Loss on the way of one direction's data, as estimated from what passed here.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct LossLine {
    pub data_packets: u64,
    pub lost_before_packets: u64,
    pub lost_beyond_packets: u64,
    pub reordered_packets: u64,
    pub lost_before: f64,
    pub lost_beyond: f64,
}

impl LossLine {
    /// Adds what one side of a flow sent.
    pub(crate) fn add(&mut self, c: &Counts) {
        let again = c.retransmitted_packets.saturating_sub(c.spurious_packets);
        self.add_packets([
            c.data_packets,
            c.lost_before_packets,
            again,
            c.reordered_packets,
        ]);
    }

    /// Adds what a class sent or received.
    pub(crate) fn add_direction(&mut self, c: &DirCounts) {
        let again = c.retransmitted_packets.saturating_sub(c.spurious_packets);
        self.add_packets([
            c.data_packets,
            c.lost_before_packets,
            again,
            c.reordered_packets,
        ]);
    }

    fn add_packets(&mut self, [data, before, again, reordered]: [u32; 4]) {
        self.data_packets += u64::from(data);
        self.lost_before_packets += u64::from(before);
        self.lost_beyond_packets += u64::from(again);
        self.reordered_packets += u64::from(reordered);
        let sent = self.data_packets + self.lost_before_packets;
        if sent > 0 {
            self.lost_before = self.lost_before_packets as f64 / sent as f64;
        }
        if self.data_packets > 0 {
            self.lost_beyond = self.lost_beyond_packets as f64 / self.data_packets as f64;
        }
    }
}

/// One flow and leg.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct FlowRow {
    pub flow: u32,
    pub src: String,
    pub dst: String,
    pub towards: Option<String>,
    #[serde(flatten)]
    pub rtt: LegLine,
    pub loss: Option<LossLine>,
}

struct FlowLeg {
    flow: u32,
    key: Key,
    measured: usize,
    towards: u32,
    spread: Spread,
}

/// Collects events until the end.
#[derive(Default)]
pub struct Summary {
    by_interface: HashMap<u32, Spread>,
    legs: HashMap<(u32, usize), FlowLeg>,
    legs_beyond: u64,
    ended: HashMap<u32, [Counts; 2]>,
    loss: HashMap<u32, LossLine>,
    methods: [u64; Method::ALL.len()],
    opened: u64,
    closed: u64,
    alive: u64,
}

/// The summary as JSON has it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct SummaryLine {
    pub schema: u32,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub duration_ns: u64,
    pub flows_opened: u64,
    pub flows_closed: u64,
    pub flows_alive: u64,
    pub flows_not_measurable: u64,
    pub bytes_not_measurable: u64,
    pub packets: u64,
    pub tcp_packets: u64,
    pub tcp_bytes: u64,
    pub tcp_bytes_measured: u64,
    pub samples: u64,
    /// `samples_seq` and so on.
    #[serde(flatten)]
    pub samples_by: SamplesBy,
    pub samples_held_back: u64,
    pub events_lost: u64,
    /// Round-trip times by the interface behind which the measured host lies.
    pub towards: Vec<TowardsLine>,
    pub flows: Vec<FlowRow>,
    pub flow_rows_left_out: u64,
    /// Every counter of the packet path by name.
    pub counters: serde_json::Map<String, serde_json::Value>,
}

/// How many samples each method gave; in JSON a key for each.
#[derive(Clone, Copy, Debug)]
pub struct SamplesBy(pub [(Method, u64); Method::ALL.len()]);

impl Serialize for SamplesBy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.map(|(method, count)| (method.counter(), count)))
    }
}

/// Round-trip times and loss towards one interface.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct TowardsLine {
    pub towards: Option<String>,
    #[serde(flatten)]
    pub rtt: LegLine,
    /// Of data sent towards there.
    pub loss: LossLine,
}

impl Summary {
    /// Takes an event in.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Sample(sample) => self.add_sample(sample),
            Event::Opened(_) => self.opened += 1,
            Event::Closed(flow) => {
                self.closed += 1;
                self.add_flow(flow);
            }
            Event::Alive(flow) => {
                self.alive += 1;
                self.add_flow(flow);
            }
        }
    }

    fn add_sample(&mut self, sample: &Sample) {
        self.methods[sample.method as usize - 1] += 1;
        self.by_interface
            .entry(sample.towards)
            .or_insert_with(Spread::new)
            .add(sample.rtt);
        let leg = (sample.flow, sample.measured);
        if self.legs.len() >= MAX_FLOW_ROWS && !self.legs.contains_key(&leg) {
            self.legs_beyond += 1;
            return;
        }
        let row = self.legs.entry(leg).or_insert_with(|| FlowLeg {
            flow: sample.flow,
            key: sample.key,
            measured: sample.measured,
            towards: sample.towards,
            spread: Spread::new(),
        });
        row.spread.add(sample.rtt);
    }

    fn add_flow(&mut self, flow: &FlowRecord) {
        if flow.key.proto != 6 {
            return;
        }
        for side in 0..2 {
            let towards = flow.towards[1 - side];
            self.loss
                .entry(towards)
                .or_default()
                .add(&flow.counts[side]);
        }
        if self.ended.len() < MAX_FLOW_ROWS {
            self.ended.insert(flow.flow, flow.counts);
        }
    }

    /// Samples taken in so far.
    pub fn samples(&self) -> u64 {
        self.methods.iter().sum()
    }

    /// Flow legs, most samples first, at most `most`.
    pub fn rows(&self, most: usize, context: &Context) -> Vec<FlowRow> {
        let mut legs: Vec<&FlowLeg> = self.legs.values().collect();
        legs.sort_by_key(|l| {
            (
                std::cmp::Reverse(l.spread.histogram.len()),
                l.flow,
                l.measured,
            )
        });
        legs.iter()
            .take(most)
            .map(|leg| self.row(leg, context))
            .collect()
    }

    fn row(&self, leg: &FlowLeg, context: &Context) -> FlowRow {
        let loss = self.ended.get(&leg.flow).map(|counts| {
            let mut line = LossLine::default();
            line.add(&counts[1 - leg.measured]);
            line
        });
        FlowRow {
            flow: leg.flow,
            src: endpoint(&leg.key, 1 - leg.measured),
            dst: endpoint(&leg.key, leg.measured),
            towards: context.interface(leg.towards),
            rtt: leg.spread.line(),
            loss,
        }
    }

    fn towards(&self, context: &Context) -> Vec<TowardsLine> {
        let mut lines: Vec<TowardsLine> = self
            .by_interface
            .iter()
            .map(|(ifindex, spread)| TowardsLine {
                towards: context.interface(*ifindex),
                rtt: spread.line(),
                loss: self.loss.get(ifindex).copied().unwrap_or_default(),
            })
            .collect();
        lines.sort_by(|a, b| a.towards.cmp(&b.towards));
        lines
    }

    /// The whole of it; `stats` are the packet path's counters.
    pub fn line(
        &self,
        duration_ns: u64,
        stats: &Stats,
        rows: usize,
        context: &Context,
    ) -> SummaryLine {
        SummaryLine {
            schema: SCHEMA,
            kind: "summary",
            duration_ns,
            flows_opened: self.opened,
            flows_closed: self.closed,
            flows_alive: self.alive,
            flows_not_measurable: stats.one_sided_flows,
            bytes_not_measurable: stats.one_sided_bytes,
            // What a second hook saw again is one packet.
            packets: stats.frames.saturating_sub(stats.other_sighting),
            tcp_packets: stats.tcp_packets,
            tcp_bytes: stats.tcp_bytes,
            tcp_bytes_measured: stats.tcp_bytes_sampled.min(stats.tcp_bytes),
            samples: stats.by_method().iter().map(|(_, count)| count).sum(),
            samples_by: SamplesBy(stats.by_method()),
            samples_held_back: stats.samples_held_back,
            events_lost: stats.events_lost,
            towards: self.towards(context),
            flows: self.rows(rows, context),
            flow_rows_left_out: (self.legs.len().saturating_sub(rows)) as u64 + self.legs_beyond,
            counters: stats
                .by_name()
                .map(|(name, n)| (name.to_owned(), n.into()))
                .collect(),
        }
    }
}
