//! From the core's events to records, histograms and summaries.
