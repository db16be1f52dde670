//! The configuration file: every key with its type, without further validation.

use std::collections::BTreeMap;

use fairpath_class::ClassEntry;
use serde::Deserialize;
use toml::Spanned;

use super::framing::Overhead;

/// An optional value, with its place in the file.
pub type Given<T> = Option<Spanned<T>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub monitor: Monitor,
    pub subnets: Subnets,
    pub control: Control,
    pub metrics: Metrics,
    pub web: Web,
    pub rows: Rows,
    pub alerts: Alerts,
    pub state: State,
    pub history: History,
    pub labels: Labels,
    pub rules: Rules,
    pub shape: Option<Spanned<Shape>>,
    pub class_files: Vec<Spanned<String>>,
    pub class: Vec<Spanned<ClassEntry>>,
}

/// `[monitor]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Monitor {
    pub interfaces: Given<Vec<Spanned<String>>>,
    pub uplinks: Vec<Spanned<String>>,
    pub hook: Given<String>,
    pub method: Given<String>,
    pub icmp: Given<bool>,
    pub flows: Given<i64>,
    pub flow_timeout: Given<String>,
    pub interval: Given<String>,
    pub window: Given<i64>,
    pub max_classes: Given<i64>,
    pub only: Vec<Spanned<String>>,
    pub except: Vec<Spanned<String>>,
}

/// `[subnets]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Subnets {
    pub v4: Given<i64>,
    pub v6: Given<i64>,
    pub max: Given<i64>,
    pub idle: Given<String>,
}

/// `[control]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    pub socket: Given<String>,
    pub group: Given<String>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    pub listen: Given<String>,
    pub max_series: Given<i64>,
}

/// `[web]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Web {
    pub listen: Given<String>,
    pub hosts: Vec<Spanned<String>>,
}

/// `[rows]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rows {
    pub json: Given<String>,
    pub parquet: Given<String>,
    pub parquet_step: Given<String>,
    pub parquet_max_bytes: Given<String>,
    pub which: Given<String>,
}

/// `[alerts]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alerts {
    pub hook: Given<Vec<Spanned<String>>>,
    pub hook_timeout: Given<String>,
    pub json: Given<String>,
    pub rtt_shift: Given<f64>,
    pub rtt_floor: Given<String>,
    pub loss: Given<f64>,
    pub rtt_p95: Given<String>,
}

/// `[state]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    pub file: Given<String>,
    pub save_every: Given<String>,
}

/// `[history]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    pub file: Given<String>,
    pub max_bytes: Given<String>,
}

/// `[labels]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Labels {
    pub file: Given<String>,
}

/// `[rules]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    pub fail: Given<String>,
    pub answer: Given<bool>,
    pub answer_limit: Given<i64>,
}

/// `[shape]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    pub inside: Given<String>,
    pub outside: Given<String>,
    pub inside_vlan: Given<i64>,
    pub outside_vlan: Given<i64>,
    pub via: Given<String>,
    pub mode: Given<String>,
    pub down: Given<String>,
    pub up: Given<String>,
    pub policy: Given<String>,
    pub policies: Vec<Spanned<String>>,
    pub tree: Given<String>,
    pub set: Vec<Spanned<String>>,
    pub diffserv: Given<String>,
    pub ack_filter: Given<bool>,
    pub overhead: Given<Overhead>,
    pub mpu: Given<i64>,
    pub atm: Given<String>,
    pub packets: Given<i64>,
    pub workers: Given<i64>,
    pub max_sojourn: Given<String>,
    pub queue: Given<i64>,
    pub on_failure: Given<String>,
    pub on_bypass: Given<String>,
    pub record: Given<String>,
    pub start: Given<bool>,
    pub impair: Impaired,
    pub impair_class: BTreeMap<String, Impaired>,
}

/// `[shape.impair]`, `[shape.impair_class.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impaired {
    pub down: Given<String>,
    pub up: Given<String>,
}
