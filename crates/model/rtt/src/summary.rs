//! The summary of a run: round-trip times by interface, loss, flows, coverage.
//!
//! Samples go into log-linear histograms (two significant digits, 1 us to 60 s). Each interface
//! towards which a host was measured has one, and so has each of the first [`MAX_FLOW_ROWS`]
//! pairs of flow and leg. Later pairs are counted, and their samples are in the totals only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use fairpath_core::{Counts, Event, FlowRecord, Key, Method, Sample, Stats};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::record::{Context, SCHEMA, endpoint};

/// Maximum number of flow legs with a histogram.
pub const MAX_FLOW_ROWS: usize = 4096;
/// Maximum number of interfaces with a row. A capture of all interfaces names any number of them.
pub const MAX_TOWARDS_ROWS: usize = 1024;
/// Two significant digits: values are exact to within 1 %.
const DIGITS: u8 = 2;
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 60_000_000_000;

/// A distribution of round-trip times with its exact minimum and maximum.
#[derive(Clone, Debug)]
struct Distribution {
    histogram: Histogram<u32>,
    min: u64,
    max: u64,
}

impl Distribution {
    fn new() -> Distribution {
        // Starts small and grows with the recorded values.
        let mut histogram = Histogram::new_with_bounds(LOWEST_NS, 2 * LOWEST_NS, DIGITS)
            .expect("constant bounds are valid");
        histogram.auto(true);
        Distribution {
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

    /// A quantile, within the recorded minimum and maximum.
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

/// Loss of one direction's data, estimated from the packets that passed here.
///
/// Upstream is between the sender and this router, downstream between this router and the receiver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct LossLine {
    pub data_packets: u64,
    pub upstream_lost_packets: u64,
    pub downstream_lost_packets: u64,
    pub reordered_packets: u64,
    pub upstream_loss_ratio: f64,
    pub downstream_loss_ratio: f64,
}

impl LossLine {
    fn add(&mut self, c: &Counts) {
        self.data_packets += u64::from(c.data_packets);
        self.upstream_lost_packets += u64::from(c.upstream_lost_packets);
        let again = c.retransmitted_packets.saturating_sub(c.spurious_packets);
        self.downstream_lost_packets += u64::from(again);
        self.reordered_packets += u64::from(c.reordered_packets);
        let sent = self.data_packets + self.upstream_lost_packets;
        if sent > 0 {
            self.upstream_loss_ratio = self.upstream_lost_packets as f64 / sent as f64;
        }
        if self.data_packets > 0 {
            self.downstream_loss_ratio =
                self.downstream_lost_packets as f64 / self.data_packets as f64;
        }
    }
}

/// One flow and leg.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct FlowRow {
    pub flow: u32,
    pub src_address: String,
    pub src_port: u16,
    pub dst_address: String,
    pub dst_port: u16,
    /// Source as `ADDRESS:PORT`, for text.
    #[serde(skip)]
    pub src: String,
    /// Destination, the measured host, as `ADDRESS:PORT`, for text.
    #[serde(skip)]
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
    distribution: Distribution,
}

/// The rows of one interface.
struct Towards {
    rtt: Distribution,
    loss: LossLine,
}

/// Hashes one number by a multiplication (Fibonacci hashing; Knuth, The Art of Computer Programming 3,
/// 6.4). The core counts flows, and all maps here are small: collisions cost little.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Maps use the lowest and the highest bits; the highest are the best mixed ones.
        self.0.rotate_left(26)
    }
}

type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Collects the events of a run.
#[derive(Default)]
pub struct Summary {
    towards: ByNumber<u32, Towards>,
    towards_excluded: u64,
    /// By twice the number of the flow, and the measured side.
    legs: ByNumber<u64, FlowLeg>,
    legs_excluded: u64,
    ended: ByNumber<u32, [Counts; 2]>,
    methods: [u64; Method::ALL.len()],
    opened: u64,
    closed: u64,
    alive: u64,
}

/// The summary as JSON.
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
    /// A key for each method, such as `samples_seq`.
    #[serde(flatten)]
    pub samples_by: SamplesBy,
    pub samples_suppressed: u64,
    pub events_lost: u64,
    /// Round-trip times by the interface behind which the measured host is.
    pub towards: Vec<TowardsLine>,
    /// Samples towards further interfaces, which have no row.
    pub towards_samples_excluded: u64,
    pub flows: Vec<FlowRow>,
    pub flow_rows_excluded: u64,
    /// Every counter of the packet path by name.
    pub counters: serde_json::Map<String, serde_json::Value>,
}

/// The number of samples by method. In JSON each method has a key.
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
    /// Of the data sent towards it.
    pub loss: LossLine,
}

impl Summary {
    /// Adds an event.
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
        match self.towards_row(sample.towards) {
            Some(row) => row.rtt.add(sample.rtt),
            None => self.towards_excluded += 1,
        }
        let leg = 2 * u64::from(sample.flow) + sample.measured as u64;
        if let Some(row) = self.legs.get_mut(&leg) {
            row.distribution.add(sample.rtt);
            return;
        }
        if self.legs.len() >= MAX_FLOW_ROWS {
            self.legs_excluded += 1;
            return;
        }
        let mut distribution = Distribution::new();
        distribution.add(sample.rtt);
        let row = FlowLeg {
            flow: sample.flow,
            key: sample.key,
            measured: sample.measured,
            towards: sample.towards,
            distribution,
        };
        self.legs.insert(leg, row);
    }

    /// The row of an interface, unless there are too many.
    fn towards_row(&mut self, ifindex: u32) -> Option<&mut Towards> {
        let is_full = self.towards.len() >= MAX_TOWARDS_ROWS;
        match self.towards.entry(ifindex) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(place) => Some(place.insert(Towards {
                rtt: Distribution::new(),
                loss: LossLine::default(),
            })),
        }
    }

    fn add_flow(&mut self, flow: &FlowRecord) {
        if flow.key.proto != 6 {
            return;
        }
        for side in 0..2 {
            if let Some(row) = self.towards_row(flow.towards[1 - side]) {
                row.loss.add(&flow.counts[side]);
            }
        }
        if self.ended.len() < MAX_FLOW_ROWS {
            self.ended.insert(flow.flow, flow.counts);
        }
    }

    /// The number of samples so far.
    pub fn samples(&self) -> u64 {
        self.methods.iter().sum()
    }

    /// At most `limit` flow legs, sorted by number of samples, largest first.
    pub fn rows(&self, limit: usize, context: &Context) -> Vec<FlowRow> {
        let mut legs: Vec<&FlowLeg> = self.legs.values().collect();
        legs.sort_by_key(|l| {
            (
                std::cmp::Reverse(l.distribution.histogram.len()),
                l.flow,
                l.measured,
            )
        });
        legs.iter()
            .take(limit)
            .map(|leg| self.row(leg, context))
            .collect()
    }

    fn row(&self, leg: &FlowLeg, context: &Context) -> FlowRow {
        let loss = self.ended.get(&leg.flow).map(|counts| {
            let mut line = LossLine::default();
            line.add(&counts[1 - leg.measured]);
            line
        });
        let src = leg.key.endpoint(1 - leg.measured);
        let dst = leg.key.endpoint(leg.measured);
        FlowRow {
            flow: leg.flow,
            src_address: src.ip().to_string(),
            src_port: src.port(),
            dst_address: dst.ip().to_string(),
            dst_port: dst.port(),
            src: endpoint(&leg.key, 1 - leg.measured),
            dst: endpoint(&leg.key, leg.measured),
            towards: context.interface(leg.towards),
            rtt: leg.distribution.line(),
            loss,
        }
    }

    fn towards(&self, context: &Context) -> Vec<TowardsLine> {
        let mut lines: Vec<TowardsLine> = self
            .towards
            .iter()
            .filter(|(_, row)| !row.rtt.histogram.is_empty())
            .map(|(ifindex, row)| TowardsLine {
                towards: context.interface(*ifindex),
                rtt: row.rtt.line(),
                loss: row.loss,
            })
            .collect();
        lines.sort_by(|a, b| a.towards.cmp(&b.towards));
        lines
    }

    /// The summary record. `stats` are the counters of the packet path.
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
            // A packet at two hooks counts once.
            packets: stats.frames.saturating_sub(stats.second_hook_packets),
            tcp_packets: stats.tcp_packets,
            tcp_bytes: stats.tcp_bytes,
            tcp_bytes_measured: stats.tcp_bytes_sampled.min(stats.tcp_bytes),
            samples: stats.by_method().iter().map(|(_, count)| count).sum(),
            samples_by: SamplesBy(stats.by_method()),
            samples_suppressed: stats.samples_suppressed,
            events_lost: stats.events_lost,
            towards: self.towards(context),
            towards_samples_excluded: self.towards_excluded,
            flows: self.rows(rows, context),
            flow_rows_excluded: (self.legs.len().saturating_sub(rows)) as u64 + self.legs_excluded,
            counters: stats
                .by_name()
                .map(|(name, n)| (name.to_owned(), n.into()))
                .collect(),
        }
    }
}
