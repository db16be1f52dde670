//! Output of records as text or JSON, and the summary or table at the end.

use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use fairpath_core::{Event, Stats};
use fairpath_files::Existing;
use fairpath_rtt::{Context, Summary, json, text};

use fairpath_units::text::lines;

use super::args::{Args, Format};
use super::by::ByTable;
use super::report::{self, Run};

/// Flows that the summary lists by default.
pub const SUMMARY_FLOWS: usize = 20;

/// Writes records, and collects the summary or the table.
pub struct Output {
    out: BufWriter<Box<dyn Write>>,
    /// The last line: memory that is used again.
    line: Vec<u8>,
    to_file: bool,
    format: Format,
    quiet: bool,
    samples_only: bool,
    max_samples: u64,
    limit: usize,
    samples: u64,
    is_closed: bool,
    /// With `--by`: the table that is printed instead of everything else.
    pub table: Option<ByTable>,
    /// Clock and interface names.
    pub context: Context,
    summary: Summary,
}

impl Output {
    /// Opens the output that the arguments name; `table` is that of `--by`.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn new(args: &Args, table: Option<ByTable>) -> anyhow::Result<Output> {
        let out: Box<dyn Write> = match &args.write {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                fairpath_files::output(path, Existing::Append)
                    .with_context(|| format!("open {path:?} for appending"))?,
            ),
        };
        Ok(Output {
            out: BufWriter::with_capacity(1 << 16, out),
            line: Vec::new(),
            to_file: args.write.is_some(),
            format: args.format,
            quiet: args.quiet,
            samples_only: args.samples_only,
            max_samples: args.count.unwrap_or(u64::MAX),
            limit: args.limit.unwrap_or(SUMMARY_FLOWS),
            samples: 0,
            is_closed: false,
            table,
            context: Context::default(),
            summary: Summary::default(),
        })
    }

    /// True if the reader closed the pipe, or `--count` is reached.
    pub fn done(&self) -> bool {
        self.is_closed || self.samples >= self.max_samples
    }

    /// Adds an event. Samples after `--count` are ignored.
    ///
    /// # Errors
    /// A write fails, except on a closed pipe.
    pub fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        let sample = matches!(event, Event::Sample(_));
        if sample && self.done() {
            return Ok(());
        }
        self.samples += u64::from(sample);
        if let Some(table) = &mut self.table {
            table.add(event);
            return Ok(());
        }
        self.summary.add(event);
        if self.quiet || self.is_closed || (self.samples_only && !sample) {
            return Ok(());
        }
        self.line.clear();
        match self.format {
            Format::Text => self.text(event),
            Format::Json => self.json(event),
            // CSV is for tables only.
            Format::Csv => {}
        }
        let written = self.out.write_all(&self.line);
        self.check(written)
    }

    fn text(&mut self, event: &Event) {
        let (line, context) = (&mut self.line, &self.context);
        match event {
            Event::Sample(sample) => text::sample(line, sample, context),
            Event::Opened(flow) => text::flow(line, "opened", flow, context),
            Event::Closed(flow) => text::flow(line, "closed", flow, context),
            // Open flows are in the summary.
            Event::Alive(_) => {}
        }
    }

    fn json(&mut self, event: &Event) {
        let (line, context) = (&mut self.line, &self.context);
        match event {
            Event::Sample(sample) => json::sample(line, sample, context),
            Event::Opened(flow) => json::flow(line, "opened", flow, context),
            Event::Closed(flow) => json::flow(line, "closed", flow, context),
            Event::Alive(flow) => json::flow(line, "alive", flow, context),
        }
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// A write fails, except on a closed pipe.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.out.flush();
        self.check(flushed)
    }

    /// A closed pipe ends the measurement without an error.
    fn check(&mut self, result: io::Result<()>) -> anyhow::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other.context("write records"),
        }
    }

    /// Writes the summary to standard output, and as JSON into the file. With `--by`, writes the
    /// table instead.
    ///
    /// # Errors
    /// A write fails, except on a closed pipe.
    pub fn finish(mut self, run: &Run, stats: &Stats) -> anyhow::Result<()> {
        if let Some(table) = self.table.take() {
            return self.finish_table(&table, run, stats);
        }
        let summary = self
            .summary
            .line(run.duration_ns, stats, self.limit, &self.context);
        let written = match self.format {
            Format::Json => serde_json::to_writer(&mut self.out, &report::json(&summary, run))
                .map_err(io::Error::from)
                .and_then(|()| self.out.write_all(b"\n")),
            Format::Text if self.to_file => Ok(()),
            Format::Text => self
                .out
                .write_all(lines(&report::text(&summary, run)).as_bytes()),
            Format::Csv => Ok(()),
        };
        self.check(written)?;
        self.flush()?;
        if self.to_file {
            fairpath_cli::print(report::text(&summary, run))?;
        }
        Ok(())
    }

    fn finish_table(mut self, table: &ByTable, run: &Run, stats: &Stats) -> anyhow::Result<()> {
        let (text, remarks) = table.finish(self.format)?;
        let written = self.out.write_all(lines(&text).as_bytes());
        self.check(written)?;
        self.flush()?;
        if self.is_closed {
            return Ok(());
        }
        let dropped = report::drops(stats);
        let dropped = (!dropped.is_empty()).then(|| format!("dropped: {}", dropped.join(", ")));
        for remark in run.notes.iter().chain(&remarks).chain(&dropped) {
            fairpath_cli::note(remark);
        }
        Ok(())
    }
}
