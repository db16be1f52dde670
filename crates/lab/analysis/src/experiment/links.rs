//! The parameters of a link, and of each of its directions.
//!
//! `[links.NAME]` is for both directions; `[links.NAME.to.HOST]` overrides it for what goes towards
//! HOST, an end of the link. Values are those of `fairpath impair`, which does the work; what this file
//! does not know by name is handed over as `impair = "..."`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::buffer::Limit;
use crate::quantity::{Rate, Share, Time};

/// Bits of a full frame.
pub(crate) const FRAME_BITS: f64 = 1514.0 * 8.0;

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSpec {
    /// Back end of `fairpath impair`; none: its choice.
    #[serde(default)]
    pub via: Option<Via>,
    /// Bits a second.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Each way.
    #[serde(default)]
    pub delay: Option<Time>,
    /// Both ways together: half of it each way.
    #[serde(default)]
    pub rtt: Option<Time>,
    /// Of the delay: standard deviation of a normal distribution, which no delay below 0 is drawn from.
    #[serde(default)]
    pub jitter: Option<Time>,
    /// Correlation of successive delays.
    #[serde(default)]
    pub correlation: Option<Share>,
    /// True if jitter reorders packets.
    #[serde(default)]
    pub reordering: Option<bool>,
    /// Share of packets on the wire, lost independently.
    #[serde(default)]
    pub loss: Option<Share>,
    /// Packets that wait for the rate at most.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// The order of waiting packets: a policy of `fairpath sched list`.
    #[serde(default)]
    pub policy: Option<String>,
    /// The policy's parameters, such as "target=5ms".
    #[serde(default)]
    pub set: Vec<String>,
    /// Delays at times into the run, each until the next: the path that changes.
    #[serde(default)]
    pub delay_steps: Vec<DelayStep>,
    /// More, in the words of `fairpath impair`: "loss gemodel 1% 25%".
    #[serde(default)]
    pub impair: Option<String>,
    /// The differences of the direction to one of its ends.
    #[serde(default)]
    pub to: BTreeMap<String, Towards>,
}

/// Back ends of `fairpath impair`.
///
/// The lab starts that program and has no crate of the router: these are words of its command line,
/// and an experiment with another word is refused when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Loss alone, in the kernel.
    Xdp,
    /// AF_XDP sockets.
    Afxdp,
    /// Packets that netfilter queues.
    Nfqueue,
}

impl Via {
    /// As `--via` has it.
    pub fn name(self) -> &'static str {
        match self {
            Via::Xdp => "xdp",
            Via::Afxdp => "afxdp",
            Via::Nfqueue => "nfqueue",
        }
    }
}

/// A delay from a moment of the run on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayStep {
    /// Seconds since the traffic began.
    pub at: f64,
    /// The delay, each way.
    pub delay: Time,
}

/// The differences of one direction; omitted keys are those of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Towards {
    /// As [`LinkSpec::rate`].
    #[serde(default)]
    pub rate: Option<Rate>,
    /// As [`LinkSpec::delay`].
    #[serde(default)]
    pub delay: Option<Time>,
    /// As [`LinkSpec::jitter`].
    #[serde(default)]
    pub jitter: Option<Time>,
    /// As [`LinkSpec::correlation`].
    #[serde(default)]
    pub correlation: Option<Share>,
    /// As [`LinkSpec::reordering`].
    #[serde(default)]
    pub reordering: Option<bool>,
    /// As [`LinkSpec::loss`].
    #[serde(default)]
    pub loss: Option<Share>,
    /// As [`LinkSpec::limit`].
    #[serde(default)]
    pub limit: Option<Limit>,
    /// As [`LinkSpec::policy`].
    #[serde(default)]
    pub policy: Option<String>,
    /// As [`LinkSpec::impair`].
    #[serde(default)]
    pub impair: Option<String>,
}

/// One direction, complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Bits a second; none: as fast as the machine.
    pub rate: Option<Rate>,
    /// Added to each packet.
    pub delay: Time,
    /// Of the delay.
    pub jitter: Time,
    /// Of successive delays.
    pub correlation: Option<Share>,
    /// True if packets can be reordered.
    pub reordering: bool,
    /// Of wire packets; what `impair` says of loss is not in here.
    pub loss: Share,
    /// Packets that wait at most.
    pub limit: Option<Limit>,
    /// The order of waiting packets.
    pub policy: Option<String>,
    /// Delays at times.
    pub delay_steps: Vec<DelayStep>,
    /// In the words of `fairpath impair`.
    pub impair: Option<String>,
}

impl Direction {
    /// True if this is a cable: nothing is asked.
    pub fn is_plain(&self) -> bool {
        *self == Direction::default()
    }

    /// True if only loss is configured: then the kernel does it alone.
    pub fn is_loss_alone(&self) -> bool {
        *self
            == Direction {
                loss: self.loss,
                ..Direction::default()
            }
    }

    /// Packets that wait at most, if they are a number: at a setting of the axes they always are.
    pub fn limit_packets(&self) -> Option<u32> {
        match self.limit {
            Some(Limit::Packets(packets)) => Some(packets),
            Some(Limit::Products(_)) | None => None,
        }
    }

    /// Full frames that the longest of its delays holds at its rate; 0 without either.
    pub fn pipe_packets(&self) -> f64 {
        let steps = self.delay_steps.iter().map(|step| step.delay.ns());
        let longest = steps.fold(self.delay.ns(), |longest, ns| longest.max(ns));
        let rate = self.rate.map_or(0.0, |rate| rate.bps());
        rate * longest as f64 / 1e9 / FRAME_BITS
    }
}

impl LinkSpec {
    /// The direction towards `host`.
    pub fn towards(&self, host: &str) -> Direction {
        let none = Towards::default();
        let own = self.to.get(host).unwrap_or(&none);
        let half_rtt = self.rtt.map(|rtt| rtt.times(0.5));
        Direction {
            rate: own.rate.or(self.rate),
            delay: own.delay.or(self.delay).or(half_rtt).unwrap_or_default(),
            jitter: own.jitter.or(self.jitter).unwrap_or_default(),
            correlation: own.correlation.or(self.correlation),
            reordering: own.reordering.or(self.reordering).unwrap_or(false),
            loss: own.loss.or(self.loss).unwrap_or_default(),
            limit: own.limit.or(self.limit),
            policy: own.policy.clone().or_else(|| self.policy.clone()),
            delay_steps: self.delay_steps.clone(),
            impair: own.impair.clone().or_else(|| self.impair.clone()),
        }
    }

    /// Rates times `factor`, times divided by it.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> LinkSpec {
        let rate = |rate: Option<Rate>| rate.map(|rate| rate.times(factor));
        let time = |time: Option<Time>| time.map(|time| time.times(1.0 / factor));
        let step = |step: &DelayStep| DelayStep {
            delay: step.delay.times(1.0 / factor),
            ..*step
        };
        let towards = |own: &Towards| Towards {
            rate: rate(own.rate),
            delay: time(own.delay),
            jitter: time(own.jitter),
            ..own.clone()
        };
        LinkSpec {
            rate: rate(self.rate),
            delay: time(self.delay),
            rtt: time(self.rtt),
            jitter: time(self.jitter),
            delay_steps: self.delay_steps.iter().map(step).collect(),
            to: (self.to.iter())
                .map(|(host, own)| (host.clone(), towards(own)))
                .collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> LinkSpec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_directions_own_values_override_the_links() {
        let link =
            spec("rate = '100mbit'\nrtt = '20ms'\n[to.server]\nloss = '1%'\ndelay = '1ms'\n");
        let [there, back] = ["server", "client"].map(|host| link.towards(host));
        assert_eq!(there.delay.to_string(), "1ms");
        assert_eq!(back.delay.to_string(), "10ms");
        assert_eq!([there.loss.value(), back.loss.value()], [0.01, 0.0]);
        assert_eq!(there.rate, back.rate);
        assert!(!there.is_loss_alone() && !back.is_plain());
        assert!(spec("loss = '1%'").towards("server").is_loss_alone());
        assert!(LinkSpec::default().towards("server").is_plain());
    }

    #[test]
    fn rate_times_round_trip_outlives_scaling() {
        let link = spec("rate = '850mbit'\n[to.server]\ndelay = '500us'\n");
        let small = link.scaled(0.1).towards("server");
        assert_eq!(small.rate.unwrap().to_string(), "85mbit");
        assert_eq!(small.delay.to_string(), "5ms");
    }
}
