//! The traffic of an experiment: flows, echo requests, voice calls.

use serde::{Deserialize, Serialize};

use crate::quantity::{Rate, Time};

/// Echo requests: time between two, unless the experiment says otherwise.
const PING_INTERVAL_NS: u64 = 50_000_000;
/// Where traffic comes from, unless the experiment says otherwise.
pub const FROM: &str = "client";
/// Where it goes.
pub const TO: &str = "server";

/// A flow, or several of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowSpec {
    /// The kind.
    #[serde(default)]
    pub kind: FlowKind,
    /// Of the senders; each has its own process.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Flows of this kind: "bulk", "bulk-2", ...
    #[serde(default = "one")]
    pub number: u32,
    /// The sender.
    #[serde(default = "from")]
    pub from: String,
    /// The receiver.
    #[serde(default = "to")]
    pub to: String,
    /// Seconds since the traffic began.
    #[serde(default)]
    pub start: f64,
    /// Between the starts of two flows of this kind.
    #[serde(default)]
    pub stagger: f64,
    /// The duration; `None` until the end.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Maximum rate of the sender; UDP needs it.
    #[serde(default)]
    pub bitrate: Option<Rate>,
    /// The sockets' congestion control changes while they send.
    #[serde(default)]
    pub switch: Vec<SwitchSpec>,
    /// Bytes of the sender's window, to cause a fault; none: the kernel's choice.
    #[serde(default)]
    pub window: Option<u32>,
}

/// Kinds of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowKind {
    /// As much as the path takes.
    #[default]
    Tcp,
    /// A rate without congestion control.
    Udp,
}

/// A change of congestion control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SwitchSpec {
    /// Seconds since the traffic began.
    pub at: f64,
    /// To which.
    pub to: String,
}

/// Echo requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PingSpec {
    /// The host that sends requests.
    #[serde(default = "from")]
    pub from: String,
    /// The host that answers.
    #[serde(default = "to")]
    pub to: String,
    /// Between two.
    #[serde(default = "ping_interval")]
    pub interval: Time,
    /// Seconds of requests before the flows begin.
    #[serde(default)]
    pub idle: f64,
}

/// A voice call, one direction: G.711, 20 ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CallSpec {
    /// The speaker.
    #[serde(default = "from")]
    pub from: String,
    /// The listener.
    #[serde(default = "to")]
    pub to: String,
}

fn one() -> u32 {
    1
}

fn from() -> String {
    FROM.to_owned()
}

fn to() -> String {
    TO.to_owned()
}

fn ping_interval() -> Time {
    Time::from_ns(PING_INTERVAL_NS)
}
