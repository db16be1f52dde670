//! Exports snapshots to existing tools: metrics, rows, and a web page.
//!
//! Snapshots become Prometheus metrics, interval rows become JSON lines and Parquet files, and a
//! browser shows the page. This crate counts nothing and does not use the kernel. The server
//! requests snapshots through [`SnapshotSource`].

mod metrics;
mod rows;
mod web;

pub use metrics::{
    Exposition, MAX_SERIES, MetricsOptions, RTT_BOUNDS_S, openmetrics, rule_series, series_needed,
};
pub use rows::{JsonLines, PARQUET_SCHEMA, ParquetOptions, ParquetWriter, RowsError, RowsWanted};
pub use web::{
    MAX_CONNECTIONS, MAX_SNAPSHOTS, SNAPSHOT_WAIT, ServeError, Server, ServerOptions,
    SnapshotSource, serve,
};
