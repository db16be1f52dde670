//! The measurements of one rate: of the line, or of a class in one direction.

use fairpath_core::sched::{NodeConfig, decode_rate};
use fairpath_shape::Side;

use crate::simulate::{Count, Histogram};

/// The rates of a node, and the measured packets of it and of the nodes below it.
#[derive(Clone, Debug, PartialEq)]
pub struct RateFindings {
    /// The direction.
    pub side: Side,
    /// The class, or "line".
    pub name: String,
    /// The ceiling, bits per second.
    pub ceil_bps: Option<u64>,
    /// The floor.
    pub floor_bps: Option<u64>,
    /// The place of the rate around this one.
    pub above: Option<usize>,
    /// Bits per second that were offered, by CPU. Rates below this one may reduce them.
    pub offered_bps: Vec<f64>,
    /// Packets and bytes that left, as bytes on the link.
    pub sent: Count,
    /// Packets that were dropped.
    pub dropped: u64,
    /// The times in the queue of packets that left, ns. The ring of the CPU counts.
    pub sojourn: Histogram,
    /// The most bytes above the ceiling that left in any time.
    pub burst_bytes: u64,
    /// The bound of these, with several CPUs.
    pub bound_bytes: Option<u64>,
    /// The time in which packets of a capture waited.
    pub backlogged_ns: u64,
    /// The time in which operations of CPUs used its shared word.
    pub word_ns: u64,
}

/// Measures one rate.
#[derive(Debug)]
pub(super) struct Meter {
    pub findings: RateFindings,
    pub node: u32,
    excess: Excess,
    /// The shared word is used until then.
    word_free_at: u64,
    waiting: u64,
    waits_since: u64,
}

impl Meter {
    /// None if the node has no rate.
    pub fn new(side: Side, node: u32, name: &str, config: &NodeConfig, cpus: u32) -> Option<Meter> {
        let rate = |encoded: u64| (encoded != 0).then(|| decode_rate(encoded));
        let (ceil_bps, floor_bps) = (rate(config.ceil), rate(config.floor));
        (ceil_bps.is_some() || floor_bps.is_some()).then(|| Meter {
            node,
            excess: Excess::new(ceil_bps),
            waiting: 0,
            waits_since: 0,
            findings: RateFindings {
                side,
                name: name.to_owned(),
                ceil_bps,
                floor_bps,
                above: None,
                offered_bps: vec![0.0; cpus as usize],
                sent: Count::default(),
                dropped: 0,
                sojourn: Histogram::default(),
                burst_bytes: 0,
                bound_bytes: None,
                backlogged_ns: 0,
                word_ns: 0,
            },
            word_free_at: 0,
        })
    }

    /// Its memory.
    pub fn bytes(&self) -> u64 {
        let of_cpus = size_of::<f64>() * self.findings.offered_bps.len();
        (size_of::<Meter>() + of_cpus) as u64 + Histogram::BYTES
    }

    /// A packet of a capture arrives.
    pub fn arrive(&mut self, now: u64) {
        if self.waiting == 0 {
            self.waits_since = now;
        }
        self.waiting += 1;
    }

    /// A packet of a capture left, or was dropped.
    pub fn leave(&mut self, now: u64) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.findings.backlogged_ns += now - self.waits_since;
        }
    }

    /// A CPU uses the shared word for `ns`, after those that came before. Returns the time that it waits for them.
    pub fn use_word(&mut self, now: u64, ns: u64, is_measured: bool) -> u64 {
        let from = self.word_free_at.max(now);
        self.word_free_at = from + ns;
        if is_measured {
            self.findings.word_ns += ns;
        }
        from - now
    }

    /// A packet left.
    pub fn send(&mut self, now: u64, bytes: u32, sojourn: u64, is_measured: bool) {
        self.excess.send(now, bytes);
        if is_measured {
            self.findings.sent.add(bytes);
            self.findings.sojourn.record(sojourn);
        }
    }

    /// The findings at the end.
    pub fn finish(mut self, now: u64) -> RateFindings {
        if self.waiting > 0 {
            self.findings.backlogged_ns += now - self.waits_since;
        }
        self.findings.burst_bytes = self.excess.most.ceil() as u64;
        self.findings
    }
}

/// The most bytes above a rate in any time: the largest rise of the sum of bytes over the line of the rate.
#[derive(Debug)]
struct Excess {
    bytes_per_ns: f64,
    sum: f64,
    lowest: f64,
    most: f64,
}

impl Excess {
    fn new(ceil_bps: Option<u64>) -> Excess {
        Excess {
            bytes_per_ns: ceil_bps.map_or(f64::INFINITY, |bps| bps as f64 / 8e9),
            sum: 0.0,
            lowest: f64::MAX,
            most: 0.0,
        }
    }

    fn send(&mut self, now: u64, bytes: u32) {
        if self.bytes_per_ns.is_infinite() {
            return;
        }
        let line = now as f64 * self.bytes_per_ns;
        self.lowest = self.lowest.min(self.sum - line);
        self.sum += f64::from(bytes);
        self.most = self.most.max(self.sum - line - self.lowest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_that_of_the_worst_interval() {
        // A byte a nanosecond.
        let mut excess = Excess::new(Some(8_000_000_000));
        for (now, bytes) in [(0, 100), (1000, 300), (1100, 300), (5000, 100)] {
            excess.send(now, bytes);
        }
        assert_eq!(excess.most, 500.0);
    }

    #[test]
    fn backlogged_time_includes_the_last_wait() {
        let config = NodeConfig {
            ceil: 1,
            ..NodeConfig::default()
        };
        let mut meter = Meter::new(Side::Down, 2, "line", &config, 1).unwrap();
        for (now, leaves) in [
            (10, false),
            (15, false),
            (20, true),
            (30, true),
            (50, false),
        ] {
            match leaves {
                true => meter.leave(now),
                false => meter.arrive(now),
            }
        }
        assert_eq!(meter.finish(60).backlogged_ns, 20 + 10);
    }
}
