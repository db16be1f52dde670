//! Snapshots for existing tools: OpenMetrics, rows, a page.
