//! The receiver's buffer of a call: which packets come in time, how late speech is played, and what
//! is missing then.
//!
//! ```text
//! delay of packet i:   10  12  45  11  lost  80  13 ms
//! deadline 60 ms:      .   .   .   .   x     x   .       x: missing (a burst of two)
//! ```
//!
//! Delays are relative to the minimum, so a constant offset between clocks does not affect lateness. It
//! does shift the stated delay. A missing packet is silence: one gap per burst.

use crate::record::CallRecord;
use crate::voice::Received;

/// The waiting time of the receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buffer {
    /// This long after the fastest packet's delay, always.
    Fixed {
        /// Nanoseconds.
        wait_ns: u64,
    },
    /// Mean delay and four times its variation, set at each talk spurt (R. Ramjee, J. Kurose,
    /// D. Towsley, H. Schulzrinne, "Adaptive playout mechanisms for packetized audio applications in
    /// wide-area networks", INFOCOM 1994, algorithm 1).
    Adaptive,
}

/// The usual fixed buffer of a telephone: three packets of 20 ms.
pub const FIXED: Buffer = Buffer::Fixed {
    wait_ns: 60_000_000,
};
/// Weight of the past in the adaptive buffer's means (Ramjee et al., section 3: 0.998002).
const WEIGHT: f64 = 0.998_002;
/// The variation is taken this many times (section 3).
const VARIATIONS: f64 = 4.0;
/// Length of a talk spurt: the source never pauses, so a buffer could otherwise never adapt. About
/// the mean spurt of ITU-T P.59 table 1 (1.004 s).
const SPURT_NS: u64 = 1_000_000_000;
/// A silence longer than this is an audible gap.
pub const GAP_NS: u64 = 60_000_000;
const NS_PER_MINUTE: f64 = 60e9;

/// The outcome of playout for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playout {
    /// Packets sent.
    pub packets: usize,
    /// Never came.
    pub lost: usize,
    /// Came after their deadline.
    pub late: usize,
    /// Bursts of missing packets.
    pub bursts: usize,
    /// Bursts longer than [`GAP_NS`], a minute of the call.
    pub gaps_per_minute: f64,
    /// Mean one-way delay from mouth to ear: a packet of speech, the path, the wait. ms.
    pub delay_ms: f64,
}

impl Playout {
    /// Share of packets that were not there when they were to be played.
    pub fn missing(&self) -> f64 {
        (self.lost + self.late) as f64 / self.packets as f64
    }

    /// Mean burst against that of independent loss of the same rate, 1 / (1 - p) (G.107 7-30).
    pub fn burst_ratio(&self) -> f64 {
        if self.bursts == 0 {
            return 1.0;
        }
        let mean_burst = (self.lost + self.late) as f64 / self.bursts as f64;
        mean_burst * (1.0 - self.missing())
    }

    /// As the E-model asks.
    pub fn received(&self) -> Received {
        Received {
            delay_ms: self.delay_ms,
            loss: self.missing(),
            burst_ratio: self.burst_ratio(),
        }
    }
}

/// Plays `call` through `buffer`, which received the packets before the measured part, and rates that part
/// alone; none if no packet of it was received or sent.
pub fn play(call: &CallRecord, buffer: Buffer) -> Option<Playout> {
    call.delays_ns.iter().flatten().next()?;
    let min_ns = whole(call).flatten().min()?;
    let deadlines = match buffer {
        Buffer::Fixed { wait_ns } => vec![min_ns + wait_ns; call.delays_ns.len()],
        Buffer::Adaptive => adaptive(call),
    };
    let mut playout = Playout {
        packets: call.delays_ns.len(),
        lost: 0,
        late: 0,
        bursts: 0,
        gaps_per_minute: 0.0,
        delay_ms: mouth_to_ear_ms(call, &deadlines),
    };
    let mut run = 0;
    let mut gaps = 0;
    for (delay, deadline) in call.delays_ns.iter().zip(&deadlines) {
        match delay {
            None => playout.lost += 1,
            Some(delay) if delay > deadline => playout.late += 1,
            Some(_) => {
                gaps += usize::from(is_gap(run, call.interval_ns));
                run = 0;
                continue;
            }
        }
        playout.bursts += usize::from(run == 0);
        run += 1;
    }
    gaps += usize::from(is_gap(run, call.interval_ns));
    let length_ns = call.interval_ns as f64 * playout.packets as f64;
    playout.gaps_per_minute = gaps as f64 * NS_PER_MINUTE / length_ns;
    Some(playout)
}

fn is_gap(missing: u64, interval_ns: u64) -> bool {
    missing * interval_ns > GAP_NS
}

/// Speech is played at its deadline, and a packet is full only an interval after its first word.
fn mouth_to_ear_ms(call: &CallRecord, deadlines: &[u64]) -> f64 {
    let sum: f64 = deadlines.iter().map(|ns| *ns as f64).sum();
    (sum / deadlines.len() as f64 + call.interval_ns as f64) / 1e6
}

/// The delays of all packets, of the measured part last.
fn whole(call: &CallRecord) -> impl Iterator<Item = Option<u64>> + '_ {
    call.before_ns.iter().chain(&call.delays_ns).copied()
}

/// The deadline of each measured packet, set at the start of a spurt from the packets before.
fn adaptive(call: &CallRecord) -> Vec<u64> {
    let spurt = (SPURT_NS / call.interval_ns.max(1)).max(1) as usize;
    let first = whole(call).flatten().next();
    let mut mean = first.unwrap_or(0) as f64;
    // Before anything is known a telephone starts with a buffer of ordinary length.
    let Buffer::Fixed { wait_ns } = FIXED else {
        return Vec::new();
    };
    let mut variation = wait_ns as f64 / VARIATIONS;
    let mut deadline = (mean + VARIATIONS * variation) as u64;
    let mut deadlines = Vec::with_capacity(call.delays_ns.len());
    for (index, delay) in whole(call).enumerate() {
        if index % spurt == 0 {
            deadline = (mean + VARIATIONS * variation) as u64;
        }
        if index >= call.before_ns.len() {
            deadlines.push(deadline);
        }
        if let Some(delay) = delay {
            mean = WEIGHT * mean + (1.0 - WEIGHT) * delay as f64;
            let off = (mean - delay as f64).abs();
            variation = WEIGHT * variation + (1.0 - WEIGHT) * off;
        }
    }
    deadlines
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn call(delays_ms: &[Option<u64>]) -> CallRecord {
        CallRecord {
            name: "call".into(),
            interval_ns: 20 * MS,
            delays_ns: delays_ms.iter().map(|d| d.map(|ms| ms * MS)).collect(),
            before_ns: Vec::new(),
        }
    }

    #[test]
    fn late_packets_count_as_lost_in_bursts() {
        // Deadline 10 + 60 ms. Missing: 1, then 2 together.
        let call = call(&[
            Some(10),
            Some(70),
            Some(71),
            Some(12),
            None,
            Some(90),
            Some(13),
            Some(11),
            Some(10),
            Some(10),
        ]);
        let got = play(&call, FIXED).unwrap();
        assert_eq!((got.lost, got.late, got.bursts), (1, 2, 2));
        assert!((got.missing() - 0.3).abs() < 1e-12);
        // Mean burst 1.5 against 1 / 0.7.
        assert!((got.burst_ratio() - 1.05).abs() < 1e-12);
        assert!(
            (got.delay_ms - 90.0).abs() < 1e-9,
            "20 + 10 + 60, not {}",
            got.delay_ms
        );
    }

    #[test]
    fn only_silences_over_sixty_milliseconds_are_gaps() {
        let mut delays = vec![Some(5); 3000];
        // 60 ms: no gap. 80 ms: one. 200 ms at the very end: one.
        delays[100..103].fill(None);
        delays[500..504].fill(None);
        delays[2990..].fill(None);
        let got = play(&call(&delays), FIXED).unwrap();
        assert_eq!(got.bursts, 3);
        assert!(
            (got.gaps_per_minute - 2.0).abs() < 1e-9,
            "{}",
            got.gaps_per_minute
        );
    }

    #[test]
    fn a_clock_that_is_off_loses_nothing() {
        let delays: Vec<_> = (0..500).map(|i| Some(1_000_000 + i % 7)).collect();
        let got = play(&call(&delays), FIXED).unwrap();
        assert_eq!((got.lost, got.late), (0, 0));
    }

    #[test]
    fn the_adaptive_buffer_follows_the_paths_jitter() {
        let calm: Vec<_> = (0..15_000).map(|_| Some(10)).collect();
        let restless: Vec<_> = (0..15_000).map(|i| Some(10 + (i * 37) % 200)).collect();
        let calm = play(&call(&calm), Buffer::Adaptive).unwrap();
        let fixed = play(&call(&restless), FIXED).unwrap();
        let restless = play(&call(&restless), Buffer::Adaptive).unwrap();
        assert!(calm.delay_ms < 45.0, "{calm:?}");
        assert!(restless.delay_ms > 200.0, "{restless:?}");
        assert!(
            restless.missing() < 0.25 * fixed.missing(),
            "{restless:?} {fixed:?}"
        );
    }

    #[test]
    fn a_buffer_is_judged_after_the_warm_up() {
        let calm: Vec<_> = (0..15_000).map(|_| Some(10)).collect();
        let cold = play(&call(&calm[..500]), Buffer::Adaptive).unwrap();
        let mut warm = call(&calm);
        warm.before_ns = warm.delays_ns.drain(..14_500).collect();
        // Earlier losses do not count.
        warm.before_ns[100] = None;
        let played = play(&warm, Buffer::Adaptive).unwrap();
        assert_eq!((played.packets, played.lost), (500, 0));
        assert!(
            cold.delay_ms > 60.0 && played.delay_ms < 35.0,
            "{cold:?} {played:?}"
        );
        warm.delays_ns.fill(None);
        assert_eq!(play(&warm, FIXED), None);
    }

    #[test]
    fn a_call_without_packets_has_no_playout() {
        assert_eq!(play(&call(&[None, None]), FIXED), None);
        assert_eq!(play(&call(&[]), Buffer::Adaptive), None);
    }
}
