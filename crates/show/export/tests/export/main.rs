//! Exported data in other programs: promtool, Prometheus, a browser, a Parquet reader.

mod browser;
mod duckdb;
mod large;
mod made;
mod metrics;
mod needs;
mod page;
mod prometheus;
mod rows;
mod scraper;
mod screens;
mod times;
mod web;
