//! The configuration in force: values within their limits, defaults filled in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairpath_backend::ShapeConfig as Shape;
use fairpath_core::Filter;
use fairpath_export::RowsWanted;

use crate::classes::Classes;
use crate::measure::{Hook, Method};

/// Everything that the file says, and what holds where it says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is watched, and how closely.
    pub monitor: Monitor,
    /// Rows for what no class matches.
    pub subnets: Subnets,
    /// The control socket.
    pub control: Control,
    /// For Prometheus.
    pub metrics: Metrics,
    /// The page.
    pub web: Web,
    /// A row per class and interval.
    pub rows: Rows,
    /// The exceptional.
    pub alerts: Alerts,
    /// What survives a restart.
    pub state: State,
    /// What is scheduled, if anything is.
    pub shape: Option<Shape>,
    /// Classes and labels, of this file and those that it names.
    pub classes: Classes,
}

/// `[monitor]`
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// Names and patterns.
    pub interfaces: Vec<String>,
    /// Of these, the ones that lead to remote hosts.
    pub uplinks: Vec<String>,
    /// Where packets are seen on their way in.
    pub hook: Hook,
    /// How TCP is measured.
    pub method: Method,
    /// Whether ICMP echo is.
    pub icmp: bool,
    /// Flows that the table holds.
    pub flows: u32,
    /// After which a silent TCP flow is closed.
    pub flow_timeout: Duration,
    /// Between two readings of the kernel.
    pub interval: Duration,
    /// Intervals that rates and quantiles look back over.
    pub window: usize,
    /// Classes, interfaces and subnets together, if not as many as there are now and some more.
    pub max_classes: Option<u32>,
    /// Which packets are looked at.
    pub filters: Filters,
}

/// Which packets are looked at: by prefix and port, and by class, those below it included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Prefixes and ports.
    pub packets: Vec<Filter>,
    /// Only those with an end in one of these classes, unless there are none.
    pub only_classes: Vec<String>,
    /// None with an end in one of these.
    pub except_classes: Vec<String>,
}

/// `[subnets]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnets {
    /// Bits of an IPv4 subnet.
    pub v4: u8,
    /// Bits of an IPv6 subnet.
    pub v6: u8,
    /// Rows at most; 0 for none.
    pub max: usize,
    /// A row goes after this time without a packet.
    pub idle: Duration,
}

/// `[control]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The socket.
    pub socket: PathBuf,
    /// Who may read.
    pub group: String,
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Where `/metrics` is served.
    pub listen: Option<SocketAddr>,
    /// Time series of one answer.
    pub max_series: usize,
}

/// `[web]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Where the page is served.
    pub listen: Option<SocketAddr>,
    /// Names by which it may be asked for, besides localhost.
    pub hosts: Vec<String>,
}

/// `[rows]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The file of JSON lines.
    pub json: Option<PathBuf>,
    /// The directory of Parquet files.
    pub parquet: Option<PathBuf>,
    /// Which.
    pub which: RowsWanted,
}

/// `[alerts]`
#[derive(Clone, Debug, PartialEq)]
pub struct Alerts {
    /// What is run for each.
    pub hook: Option<Arc<AlertHook>>,
    /// The file of JSON lines.
    pub json: Option<PathBuf>,
    /// Times its baseline that a round-trip time must reach.
    pub rtt_shift: f64,
    /// And at least so much above it.
    pub rtt_floor: Duration,
    /// Share lost on a leg.
    pub loss: f64,
}

/// What is run, and for how long it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertHook {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// Then it is killed.
    pub timeout: Duration,
}

/// `[state]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The file.
    pub file: Option<PathBuf>,
    /// How often.
    pub save_every: Duration,
}
