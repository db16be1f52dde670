//! The active configuration: values within their limits, with defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairpath_backend::ShapeConfig as Shape;
use fairpath_core::Filter;
use fairpath_export::RowsWanted;

use crate::classes::Classes;
use crate::measure::{Hook, Method};
use crate::rules::Rules;

/// All values of the file, with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Interfaces and method of measurement.
    pub monitor: Monitor,
    /// Rows of subnets without a class.
    pub subnets: Subnets,
    /// The control socket.
    pub control: Control,
    /// For Prometheus.
    pub metrics: Metrics,
    /// The web page.
    pub web: Web,
    /// Files with a row per class and interval.
    pub rows: Rows,
    /// Alerts.
    pub alerts: Alerts,
    /// The state file.
    pub state: State,
    /// Weeks of counts.
    pub history: History,
    /// Loaded rules.
    pub rules: Rules,
    /// Shaping, if configured.
    pub shape: Option<Shape>,
    /// Classes and labels, of this file and of those that it names.
    pub classes: Classes,
}

/// `[monitor]`
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// Names and patterns.
    pub interfaces: Vec<String>,
    /// Those that lead to remote hosts.
    pub uplinks: Vec<String>,
    /// Hook at ingress.
    pub hook: Hook,
    /// Method for TCP.
    pub method: Method,
    /// True if ICMP echo is measured.
    pub icmp: bool,
    /// Capacity of the flow table.
    pub flows: u32,
    /// Time after which a silent TCP flow is closed.
    pub flow_timeout: Duration,
    /// Time between two readings of the kernel.
    pub interval: Duration,
    /// Number of intervals of rates and percentiles.
    pub window: usize,
    /// Maximum number of classes, interfaces and subnets; by default, somewhat more than there are.
    pub max_classes: Option<u32>,
    /// Filters of packets.
    pub filters: Filters,
}

/// Filters of packets: by prefix and port, and by class with those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Prefixes and ports.
    pub packets: Vec<Filter>,
    /// Measure only packets of these classes, unless empty.
    pub only_classes: Vec<String>,
    /// Exclude packets of these classes.
    pub except_classes: Vec<String>,
}

/// `[subnets]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnets {
    /// Bits of an IPv4 subnet.
    pub v4: u8,
    /// Bits of an IPv6 subnet.
    pub v6: u8,
    /// Maximum number of rows; 0 for none.
    pub max: usize,
    /// A row is removed after this time without a packet.
    pub idle: Duration,
}

/// `[control]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Group that may read.
    pub group: String,
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Address of `/metrics`.
    pub listen: Option<SocketAddr>,
    /// Maximum number of time series in one answer.
    pub max_series: usize,
}

/// `[web]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Address of the page.
    pub listen: Option<SocketAddr>,
    /// Accepted host names, in addition to localhost.
    pub hosts: Vec<String>,
}

/// `[rows]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The file of JSON lines.
    pub json: Option<PathBuf>,
    /// The directory of Parquet files.
    pub parquet: Option<PathBuf>,
    /// Length of the steps of Parquet files.
    pub parquet_step: Duration,
    /// Maximum size of all Parquet files, bytes.
    pub parquet_max_bytes: u64,
    /// All rows, or those with traffic.
    pub which: RowsWanted,
}

/// `[alerts]`
#[derive(Clone, Debug, PartialEq)]
pub struct Alerts {
    /// The hook.
    pub hook: Option<Arc<AlertHook>>,
    /// The file of JSON lines.
    pub json: Option<PathBuf>,
    /// Factor of the baseline above which an RTT is an alert.
    pub rtt_shift: f64,
    /// Minimum difference to the baseline.
    pub rtt_floor: Duration,
    /// Loss on a leg, as a share.
    pub loss: f64,
    /// Maximum of the 95th percentile of RTTs inside, for classes without their own.
    pub rtt_p95: Option<Duration>,
}

/// A command and its timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertHook {
    /// Program and arguments, without a shell.
    pub command: Vec<String>,
    /// Time after which it is killed.
    pub timeout: Duration,
}

/// `[history]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The file.
    pub file: Option<PathBuf>,
    /// Its maximum size, bytes.
    pub max_bytes: u64,
}

/// `[state]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The file.
    pub file: Option<PathBuf>,
    /// Time between two saves.
    pub save_every: Duration,
}
