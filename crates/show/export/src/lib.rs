//! Snapshots for existing tools: metrics, rows, a page.
//!
//! What a router's operator has already reads Prometheus' formats, JSON lines and Parquet; and every
//! desk has a browser. This crate turns snapshots and interval rows into those. It counts nothing
//! itself and knows no kernel; the server asks for its pictures through [`Pictures`].

mod metrics;
mod rows;
mod web;

pub use metrics::{Exposition, MAX_SERIES, MetricsOptions, RTT_BOUNDS_S, openmetrics};
pub use rows::{JsonLines, PARQUET_SCHEMA, ParquetOptions, ParquetWriter, RowsError, RowsWanted};
pub use web::{
    MAX_CONNECTIONS, MAX_PICTURES, PICTURE_WAIT, Pictures, ServeError, Server, ServerOptions, serve,
};
