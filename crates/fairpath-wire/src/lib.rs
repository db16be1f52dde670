//! Capture files in and out, and packets as values.
