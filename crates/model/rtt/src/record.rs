//! One record for each event, printed as a line of JSON; `text.rs` has the lines of text.
//!
//! Keys follow three rules. An address is in `ROLE_address` and its port in `ROLE_port`. Names of
//! quantities end in their unit. A value that was not measured is null, never 0.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;

use fairpath_core::{Counts, FlowRecord, Key, OwnQueue, Reason, Sample};
use serde::Serialize;

/// The schema number of every JSON record. It grows when a key changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// Converts the core's times into real time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Unix time of the core's zero, nanoseconds: 0 for captures, real time − monotonic time live.
    pub unix_of_zero_ns: i128,
}

impl Clock {
    /// RFC 3339 with nanoseconds, in UTC.
    pub fn rfc3339(&self, time_ns: u64) -> String {
        let unix = self.unix_of_zero_ns + i128::from(time_ns);
        jiff::Timestamp::from_nanosecond(unix)
            .map_or_else(|_| unix.to_string(), |t| format!("{t:.9}"))
    }
}

/// The context of records in addition to the event.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Converts times.
    pub clock: Clock,
    /// The last known name of each interface, by index.
    pub names: HashMap<u32, String>,
}

impl Context {
    /// The name of an interface, or `ifINDEX` if it has none. `None` for index 0.
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

/// `ADDRESS:PORT`, or the address alone for ICMP.
pub fn endpoint(key: &Key, side: usize) -> String {
    let at: SocketAddr = key.endpoint(side);
    if key.proto == 6 {
        at.to_string()
    } else {
        at.ip().to_string()
    }
}

pub(crate) fn protocol(key: &Key) -> &'static str {
    match key.proto {
        6 => "tcp",
        1 => "icmp",
        _ => "icmpv6",
    }
}

pub(crate) fn reason(reason: Reason) -> &'static str {
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

/// A sample as JSON: `src` sent the data, `dst` is the measured host that answered.
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
    pub protocol: &'static str,
    pub src_address: String,
    pub src_port: u16,
    pub dst_address: String,
    pub dst_port: u16,
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    pub method: &'static str,
    pub interface: Option<String>,
    pub towards: Option<String>,
    /// True if the time includes the router's own queue. Null if the capture does not show it.
    pub own_queue_included: Option<bool>,
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
            protocol: protocol(&sample.key),
            src_address: src.ip().to_string(),
            src_port: src.port(),
            dst_address: dst.ip().to_string(),
            dst_port: dst.port(),
            rtt_ns: sample.rtt,
            min_rtt_ns: sample.min,
            method: sample.method.name(),
            interface: context.interface(sample.ifindex),
            towards: context.interface(sample.towards),
            own_queue_included: match sample.own_queue {
                OwnQueue::Unknown => None,
                OwnQueue::In => Some(true),
                OwnQueue::Out => Some(false),
            },
            seq: sample.seq,
            ack: sample.ack,
            acked_bytes: sample.acked_bytes,
        }
    }
}

/// The data that one side of a flow sent, as JSON.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // docs/guide/rtt.md describes every key
pub struct SideLine {
    pub address: String,
    pub port: u16,
    /// The interface behind which this side is.
    pub towards: Option<String>,
    pub min_rtt_ns: Option<u64>,
    pub packets: u64,
    pub bytes: u64,
    pub data_packets: u32,
    pub samples: u32,
    pub sampled_bytes: u64,
    pub retransmitted_packets: u32,
    pub retransmitted_bytes: u64,
    pub upstream_lost_packets: u32,
    pub upstream_lost_bytes: u64,
    pub spurious_packets: u32,
    pub reordered_packets: u32,
    pub unobserved_bytes: u32,
}

impl SideLine {
    fn new(flow: &FlowRecord, side: usize, context: &Context) -> SideLine {
        let at = flow.key.endpoint(side);
        let c: &Counts = &flow.counts[side];
        SideLine {
            address: at.ip().to_string(),
            port: at.port(),
            towards: context.interface(flow.towards[side]),
            min_rtt_ns: (flow.counts[1 - side].samples != 0).then_some(flow.min[side]),
            packets: c.packets,
            bytes: c.bytes,
            data_packets: c.data_packets,
            samples: c.samples,
            sampled_bytes: c.sampled_bytes,
            retransmitted_packets: c.retransmitted_packets,
            retransmitted_bytes: c.retransmitted_bytes,
            upstream_lost_packets: c.upstream_lost_packets,
            upstream_lost_bytes: c.upstream_lost_bytes,
            spurious_packets: c.spurious_packets,
            reordered_packets: c.reordered_packets,
            unobserved_bytes: c.unobserved_bytes,
        }
    }
}

/// A flow event as JSON.
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
    pub protocol: &'static str,
    pub reason: &'static str,
    /// The side whose packet caused the event.
    pub by_address: String,
    pub by_port: u16,
    pub opened_time: String,
    /// The data that each side sent, and the minimum RTT towards it. `[0]` is the lower endpoint.
    pub sides: [SideLine; 2],
}

impl FlowLine {
    /// The record of one flow event: `opened`, `closed` or `alive`.
    pub fn new(event: &'static str, flow: &FlowRecord, context: &Context) -> FlowLine {
        let by = flow.key.endpoint(flow.side);
        FlowLine {
            schema: SCHEMA,
            kind: "flow",
            event,
            time: context.clock.rfc3339(flow.time),
            frame: flow.number,
            flow: flow.flow,
            protocol: protocol(&flow.key),
            reason: reason(flow.reason),
            by_address: by.ip().to_string(),
            by_port: by.port(),
            opened_time: context.clock.rfc3339(flow.opened),
            sides: [
                SideLine::new(flow, 0, context),
                SideLine::new(flow, 1, context),
            ],
        }
    }
}

impl fmt::Display for SideLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}
