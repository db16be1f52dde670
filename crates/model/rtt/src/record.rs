//! One record an event: what goes out as a line for people or as JSON.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;

use fairpath_core::{Counts, FlowRecord, Key, OwnQueue, Reason, Sample};
use fairpath_units::Nanos;
use serde::Serialize;

/// The schema number of every JSON record; grows when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// Turns the core's times into wall-clock time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Unix time of the core's zero, nanoseconds: 0 for captures, now − monotonic live.
    pub unix_of_zero_ns: i128,
}

impl Clock {
    /// RFC 3339 with nanoseconds, in UTC.
    pub fn rfc3339(&self, time_ns: u64) -> String {
        let unix = self.unix_of_zero_ns + i128::from(time_ns);
        jiff::Timestamp::from_nanosecond(unix)
            .map_or_else(|_| unix.to_string(), |t| format!("{t:.9}"))
    }

    /// Time of the day, microseconds, in UTC.
    pub fn time_of_day(&self, time_ns: u64) -> String {
        let text = self.rfc3339(time_ns);
        text.get(11..26).unwrap_or(&text).to_owned()
    }
}

/// What records need besides the event.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The clock.
    pub clock: Clock,
    /// Interfaces by index, as they were called last.
    pub names: HashMap<u32, String>,
}

impl Context {
    /// An interface's name; its index where it has none; nothing for 0.
    pub fn interface(&self, ifindex: u32) -> Option<String> {
        if ifindex == 0 {
            return None;
        }
        Some(
            self.names
                .get(&ifindex)
                .cloned()
                .unwrap_or_else(|| format!("if{ifindex}")),
        )
    }
}

/// `address:port`, or the address alone for ICMP.
pub fn endpoint(key: &Key, side: usize) -> String {
    let at: SocketAddr = key.endpoint(side);
    if key.proto == 6 {
        at.to_string()
    } else {
        at.ip().to_string()
    }
}

pub(crate) fn proto(key: &Key) -> &'static str {
    match key.proto {
        6 => "tcp",
        1 => "icmp",
        _ => "icmpv6",
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Syn => "syn",
        Reason::SynAck => "syn-ack",
        Reason::FirstSeen => "first-seen",
        Reason::Fin => "fin",
        Reason::Rst => "rst",
        Reason::Timeout => "timeout",
        Reason::Reuse => "reuse",
        Reason::Evicted => "evicted",
        Reason::End => "end",
    }
}

/// A sample as JSON has it; `src` sent the data, `dst` is the measured host that answered.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct SampleLine {
    pub schema: u32,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub time: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub frame: u64,
    pub flow: u32,
    pub proto: &'static str,
    pub src: String,
    pub dst: String,
    pub sport: u16,
    pub dport: u16,
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    pub method: &'static str,
    pub interface: Option<String>,
    pub towards: Option<String>,
    /// Whether the router's own queue is in it; null where the capture does not tell.
    pub own_queue: Option<bool>,
    pub seq: u32,
    pub ack: u32,
    pub acked_bytes: u32,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl SampleLine {
    /// The record of one sample.
    pub fn new(sample: &Sample, context: &Context) -> SampleLine {
        let dst = sample.key.endpoint(sample.measured);
        let src = sample.key.endpoint(1 - sample.measured);
        SampleLine {
            schema: SCHEMA,
            kind: "sample",
            time: context.clock.rfc3339(sample.time),
            frame: sample.number,
            flow: sample.flow,
            proto: proto(&sample.key),
            src: src.ip().to_string(),
            dst: dst.ip().to_string(),
            sport: src.port(),
            dport: dst.port(),
            rtt_ns: sample.rtt,
            min_rtt_ns: sample.least,
            method: sample.method.name(),
            interface: context.interface(sample.ifindex),
            towards: context.interface(sample.towards),
            own_queue: match sample.own_queue {
                OwnQueue::Unknown => None,
                OwnQueue::In => Some(true),
                OwnQueue::Out => Some(false),
            },
            seq: sample.seq,
            ack: sample.ack,
            acked_bytes: sample.acked_bytes,
        }
    }

    /// The line for people.
    pub fn text(sample: &Sample, context: &Context) -> String {
        let towards = context
            .interface(sample.towards)
            .map(|n| format!(" towards {n}"));
        format!(
            "{} {:>11}  min {:>11}  {:<9} {} -> {}{}",
            context.clock.time_of_day(sample.time),
            Nanos(sample.rtt).to_string(),
            Nanos(sample.least).to_string(),
            sample.method.name(),
            endpoint(&sample.key, 1 - sample.measured),
            endpoint(&sample.key, sample.measured),
            towards.unwrap_or_default(),
        )
    }
}

/// What one side of a flow sent, as JSON has it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct SideLine {
    pub address: String,
    pub port: u16,
    pub behind: Option<String>,
    pub min_rtt_ns: Option<u64>,
    pub packets: u64,
    pub bytes: u64,
    pub data_packets: u32,
    pub samples: u32,
    pub sampled_bytes: u64,
    pub retransmitted_packets: u32,
    pub retransmitted_bytes: u64,
    pub lost_before_packets: u32,
    pub lost_before_bytes: u64,
    pub spurious_packets: u32,
    pub reordered_packets: u32,
    pub unseen_bytes: u32,
}

impl SideLine {
    fn new(flow: &FlowRecord, side: usize, context: &Context) -> SideLine {
        let at = flow.key.endpoint(side);
        let c: &Counts = &flow.counts[side];
        SideLine {
            address: at.ip().to_string(),
            port: at.port(),
            behind: context.interface(flow.towards[side]),
            min_rtt_ns: (flow.least[side] != 0).then_some(flow.least[side]),
            packets: c.packets,
            bytes: c.bytes,
            data_packets: c.data_packets,
            samples: c.samples,
            sampled_bytes: c.sampled_bytes,
            retransmitted_packets: c.retransmitted_packets,
            retransmitted_bytes: c.retransmitted_bytes,
            lost_before_packets: c.lost_before_packets,
            lost_before_bytes: c.lost_before_bytes,
            spurious_packets: c.spurious_packets,
            reordered_packets: c.reordered_packets,
            unseen_bytes: c.unseen_bytes,
        }
    }
}

/// A flow event as JSON has it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct FlowLine {
    pub schema: u32,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub event: &'static str,
    pub time: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub frame: u64,
    pub flow: u32,
    pub proto: &'static str,
    pub reason: &'static str,
    pub by: String,
    pub opened: String,
    /// `[0]` is the lower endpoint; what it sent, and the least RTT towards it.
    pub sides: [SideLine; 2],
}

impl FlowLine {
    /// The record of one flow event: `opened`, `closed` or `alive`.
    pub fn new(event: &'static str, flow: &FlowRecord, context: &Context) -> FlowLine {
        FlowLine {
            schema: SCHEMA,
            kind: "flow",
            event,
            time: context.clock.rfc3339(flow.time),
            frame: flow.number,
            flow: flow.flow,
            proto: proto(&flow.key),
            reason: reason(flow.reason),
            by: endpoint(&flow.key, flow.side),
            opened: context.clock.rfc3339(flow.opened),
            sides: [
                SideLine::new(flow, 0, context),
                SideLine::new(flow, 1, context),
            ],
        }
    }

    /// The line for people.
    pub fn text(event: &'static str, flow: &FlowRecord, context: &Context) -> String {
        let by = match flow.reason {
            Reason::FirstSeen | Reason::Timeout | Reason::Evicted | Reason::End => String::new(),
            _ => format!(" by {}", endpoint(&flow.key, flow.side)),
        };
        format!(
            "{} {event:<7} {} <-> {} ({}{by})",
            context.clock.time_of_day(flow.time),
            endpoint(&flow.key, 0),
            endpoint(&flow.key, 1),
            reason(flow.reason),
        )
    }
}

impl fmt::Display for SideLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}
