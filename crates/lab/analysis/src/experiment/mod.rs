//! An experiment: the network, the traffic, the axes and the figures.
//!
//! ```text
//! file (TOML) ─ Document ─ form ─ settings ─ Experiment of one setting ─ run
//!                 │                              ▲
//!                 └── axes set dotted paths ─────┘
//! ```
//!
//! A [`Document`](document::Document) is the file as it was written; an [`Experiment`] is it with every
//! axis at one value. Unknown keys are refused everywhere, with the nearest known one.

pub mod buffer;
pub mod check;
pub mod document;
pub mod form;
pub mod links;
pub mod shipped;
pub mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figure::FigureSpec;
use crate::topology::TopologyChoice;
pub use buffer::Limit;
pub use document::{Document, LoadError};
pub use form::{Axis, Form, FormName, Grid, Point};
pub(crate) use links::FRAME_BITS;
pub use links::{Direction, LinkSpec};
pub use traffic::{CallSpec, FlowKind, FlowSpec, PingSpec, SwitchSpec};

/// Seconds of traffic, unless the experiment says otherwise.
const SECONDS: f64 = 10.0;
/// Seconds before the measurement.
const WARMUP: f64 = 1.0;

/// An experiment with every axis at one value; the file's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// As `fairpath lab run` calls it.
    pub name: String,
    /// One line.
    pub title: String,
    /// The question that it answers, one sentence.
    pub question: String,
    /// The description and its reason; paragraphs.
    #[serde(default)]
    pub text: String,
    /// Remarks for the reader before the figures, a sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// A name, or a drawing.
    pub topology: TopologyChoice,
    /// The emulator of links.
    #[serde(default)]
    pub engine: EngineName,
    /// Seconds of traffic, what is before the measurement included.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Of these, before the measurement.
    #[serde(default = "warmup")]
    pub warmup: f64,
    /// Runs of each setting.
    #[serde(default = "one")]
    pub repeats: u32,
    /// The seed of order and random numbers.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The scale of rates and round trips.
    #[serde(default)]
    pub scale: ScaleChoice,
    /// Links with a rate, a delay or anything else that a cable has not; by the topology's names.
    #[serde(default)]
    pub links: BTreeMap<String, LinkSpec>,
    /// Flows by name.
    #[serde(default)]
    pub flows: BTreeMap<String, FlowSpec>,
    /// Echo requests during the flows, by name.
    #[serde(default)]
    pub pings: BTreeMap<String, PingSpec>,
    /// Voice calls during the flows, by name.
    #[serde(default)]
    pub calls: BTreeMap<String, CallSpec>,
    /// The host where `fairpath rtt` watches what leaves towards the first flow's receiver; none: it does
    /// not run. Not the router that emulates: AF_XDP passes its stack by.
    #[serde(default)]
    pub watch: Option<String>,
    /// True if the machine itself is measured: full processors and windows are no faults then.
    #[serde(default)]
    pub measures_machine: bool,
    /// A program that receives the packets of a router, by NFQUEUE.
    #[serde(default)]
    pub divert: Option<DivertSpec>,
    /// True if interfaces accept GSO packets, which is a fault that is detected.
    #[serde(default)]
    pub offloads: bool,
    /// The varied parameters.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// The quick form, the full one.
    #[serde(default, rename = "form")]
    pub forms: BTreeMap<FormName, Form>,
    /// Figures of the report.
    #[serde(default, rename = "figure")]
    pub figures: Vec<FigureSpec>,
}

/// The emulator of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// `fairpath impair`.
    #[default]
    Impair,
    /// The kernel's netem, where it has one.
    Netem,
}

/// The scale of rates and round trips, within the limits of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScaleChoice {
    /// A factor of the rates; times get its inverse.
    Fixed(f64),
    /// The largest at which a trial is true.
    Named(NamedScale),
}

/// Names of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedScale {
    /// By trial.
    Auto,
}

impl Default for ScaleChoice {
    fn default() -> ScaleChoice {
        ScaleChoice::Fixed(1.0)
    }
}

/// A program that every packet of a router passes through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DivertSpec {
    /// The router.
    pub at: String,
    /// "none", or over which library: "c", "go", "fairpath".
    pub program: String,
    /// True if GSO packets are not segmented.
    #[serde(default)]
    pub gso: bool,
}

impl Experiment {
    /// The kind of a flow by its name in records, "bulk" or "bulk-2": its name here, and what it is.
    pub fn kind_of(&self, flow: &str) -> Option<(&String, &FlowSpec)> {
        let numbered = |name: &str| {
            let number = flow
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let exact = self.flows.get_key_value(flow);
        exact.or_else(|| self.flows.iter().find(|(name, _)| numbered(name)))
    }

    /// The moments in which delays of links or congestion controls of flows change, seconds, in order.
    pub fn changes(&self) -> Vec<f64> {
        let switches = self.flows.values().flat_map(|flow| &flow.switch);
        let steps = self.links.values().flat_map(|link| &link.delay_steps);
        let mut moments: Vec<f64> = switches
            .map(|switch| switch.at)
            .chain(steps.map(|step| step.at))
            .collect();
        moments.sort_by(f64::total_cmp);
        moments.dedup();
        moments
    }

    /// This, with rates times `factor` and times of links divided by it: rate times round trip stays.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Experiment {
        for link in self.links.values_mut() {
            *link = link.scaled(factor);
        }
        for flow in self.flows.values_mut() {
            flow.bitrate = flow.bitrate.map(|rate| rate.times(factor));
        }
        self
    }
}

fn seconds() -> f64 {
    SECONDS
}

fn warmup() -> f64 {
    WARMUP
}

fn one() -> u32 {
    1
}

fn first_seed() -> u64 {
    1
}
