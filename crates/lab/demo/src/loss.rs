//! Configured loss, its interval, and the estimate of `fairpath rtt`.

use std::fmt;

use anyhow::Context;
use fairpath_bpf::{DropError, Dropper};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

use crate::lab::{Lab, Leg};
use crate::samples::{Records, Traffic};

/// Frames of at least this size are dropped: those with data in bulk, neither ACKs nor handshakes.
const MIN_FRAME_BYTES: u32 = 1_000;
/// Quantile of the normal distribution with 0.5 % above it: two-sided 99 %.
const Z_99: f64 = 2.575_829;

/// Where packets are lost, seen from the router along their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As they arrive at the router, before it looks.
    Before,
    /// As they arrive at the server.
    Beyond,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Place::Before => "upstream of the router",
            Place::Beyond => "downstream of the router",
        })
    }
}

impl Place {
    /// Drops a share of the data towards the server, until the value is dropped.
    pub fn attach(self, lab: &Lab, share: f64) -> anyhow::Result<Dropper> {
        let end = match self {
            Place::Before => &lab.net.lan_end,
            Place::Beyond => &lab.net.server_end,
        };
        let name = end.ifname();
        let attach = || -> anyhow::Result<Dropper> {
            let ifindex = if_nametoindex(name).with_context(|| format!("find {name}"))?;
            let dropper: Result<Dropper, DropError> =
                Dropper::attach(IfIndex(ifindex), name, share, MIN_FRAME_BYTES);
            Ok(dropper?)
        };
        end.ns()
            .enter(attach)?
            .with_context(|| format!("start the dropper: {self}"))
    }
}

/// The counts of the dropper: the actual loss, in contrast to the configured share.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredLoss {
    /// Where.
    pub place: Place,
    /// Packets that came.
    pub eligible: u64,
    /// Of these, dropped.
    pub dropped: u64,
}

impl ConfiguredLoss {
    /// From a dropper's counts: came, dropped.
    pub fn new(place: Place, (eligible, dropped): (u64, u64)) -> ConfiguredLoss {
        ConfiguredLoss {
            place,
            eligible,
            dropped,
        }
    }

    /// The 99 % interval of the share, from the dropper's counts (Wilson, JASA 22, 1927).
    pub fn interval(&self) -> (f64, f64) {
        let n = self.eligible.max(1) as f64;
        let share = self.dropped as f64 / n;
        let z2 = Z_99 * Z_99;
        let centre = share + z2 / (2.0 * n);
        let half = Z_99 * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z2 / n;
        ((centre - half) / scale, (centre + half) / scale)
    }
}

/// The estimates of `fairpath rtt` for data that some flows sent in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    /// Packets with data that passed the router.
    pub passed: u64,
    /// Lost upstream.
    pub before: u64,
    /// Lost downstream: retransmitted, and needed.
    pub beyond: u64,
}

impl Estimate {
    /// Of all that the hosts behind `from` sent.
    pub fn of(records: &Records, traffic: Traffic, from: Leg) -> Estimate {
        let mut sum = Estimate::default();
        for side in records.sides(traffic, from) {
            sum.passed += side.data_packets;
            sum.before += side.upstream_lost_packets;
            sum.beyond += side
                .retransmitted_packets
                .saturating_sub(side.spurious_packets);
        }
        sum
    }

    /// Share of what was sent.
    pub fn share_before(&self) -> f64 {
        self.before as f64 / (self.passed + self.before).max(1) as f64
    }

    /// Share of what passed.
    pub fn share_beyond(&self) -> f64 {
        self.beyond as f64 / self.passed.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // The textbook's form, computed apart: roots of (p - 0.01)^2 = z^2 p (1 - p) / 1000.
        let (low, high) = ConfiguredLoss::new(Place::Beyond, (1000, 10)).interval();
        assert!((low - 0.004_530).abs() < 1e-5, "{low}");
        assert!((high - 0.021_929).abs() < 1e-5, "{high}");
    }
}
