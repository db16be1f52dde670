//! The text formats: OpenMetrics 1.0 and Prometheus 0.0.4.
//!
//! They differ in the names of counters and infos after `# TYPE`, in `# UNIT` and in `# EOF`.
//! Timestamps and exemplars are not written.

use std::fmt::Write;

/// The exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
    /// `text/plain; version=0.0.4`
    Prometheus,
}

impl Exposition {
    /// The format for an `Accept` header: OpenMetrics if the header names it.
    pub fn accepted(accept: &str) -> Exposition {
        if accept.contains("application/openmetrics-text") {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        }
    }

    /// The value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows. The names of samples end in `_total`.
    Counter,
    Gauge,
    Histogram,
    /// Always 1, with information in its labels. The names of samples end in `_info`.
    Info,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }
}

/// Writes families one after another.
pub(super) struct Encoder {
    out: String,
    exposition: Exposition,
    /// The name of this family's samples, without suffix.
    name: String,
}

impl Encoder {
    pub(super) fn new(exposition: Exposition) -> Encoder {
        Encoder {
            out: String::new(),
            exposition,
            name: String::new(),
        }
    }

    /// Begins a family. `name` is without `_total`. `unit` is the end of `name`, or empty.
    pub(super) fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        self.name = format!("{name}{}", kind.suffix());
        let (declared, kind) = match (self.exposition, kind) {
            (Exposition::OpenMetrics, Kind::Counter) => (name, "counter"),
            (Exposition::OpenMetrics, Kind::Info) => (name, "info"),
            (Exposition::Prometheus, Kind::Counter) => (self.name.as_str(), "counter"),
            (Exposition::Prometheus, Kind::Info) => (self.name.as_str(), "gauge"),
            (_, Kind::Gauge) => (name, "gauge"),
            (_, Kind::Histogram) => (name, "histogram"),
        };
        self.out.push_str(&format!("# TYPE {declared} {kind}\n"));
        if !unit.is_empty() && self.exposition == Exposition::OpenMetrics {
            self.out.push_str(&format!("# UNIT {declared} {unit}\n"));
        }
        self.out.push_str(&format!("# HELP {declared} "));
        escape(
            &mut self.out,
            help,
            self.exposition == Exposition::OpenMetrics,
        );
        self.out.push('\n');
    }

    /// Writes a sample of the family. `suffix` names the part of a histogram.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(&self.name);
        self.out.push_str(suffix);
        for (at, (name, value)) in labels.iter().enumerate() {
            self.out.push(if at == 0 { '{' } else { ',' });
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(&mut self.out, value, true);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, " {value}");
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        if self.exposition == Exposition::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}
