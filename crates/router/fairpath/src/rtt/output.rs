//! Where events go: a line each for people or as JSON, and into the closing summary.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use fairpath_core::{Event, Stats};
use fairpath_rtt::{Context, FlowLine, SampleLine, Summary};

use super::args::{Args, Format};
use super::by::Collected;
use super::report::{self, Run};

/// Flows in the summary.
const FLOWS: usize = 20;

/// Writes records and collects the summary.
pub struct Output {
    out: BufWriter<Box<dyn Write>>,
    to_file: bool,
    format: Format,
    quiet: bool,
    samples_only: bool,
    count: u64,
    limit: usize,
    /// With `--by`: the table that is printed instead of everything else.
    pub by: Option<Collected>,
    given: u64,
    broken: bool,
    /// Clock and interface names.
    pub context: Context,
    summary: Summary,
}

impl Output {
    /// Opens what the arguments name.
    ///
    /// # Errors
    /// Where the file cannot be opened for appending.
    pub fn new(args: &Args, by: Option<Collected>) -> anyhow::Result<Output> {
        let out: Box<dyn Write> = match &args.write {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)
                    .with_context(|| format!("open {path:?} for appending"))?,
            ),
        };
        Ok(Output {
            out: BufWriter::with_capacity(1 << 16, out),
            to_file: args.write.is_some(),
            format: args.format,
            quiet: args.quiet,
            samples_only: args.samples_only,
            count: args.count.unwrap_or(u64::MAX),
            limit: match args.limit {
                None => FLOWS,
                Some(0) => usize::MAX,
                Some(limit) => limit,
            },
            by,
            given: 0,
            broken: false,
            context: Context::default(),
            summary: Summary::default(),
        })
    }

    /// True when nobody reads any more, or as many samples were given out as asked for.
    pub fn done(&self) -> bool {
        self.broken || self.given >= self.count
    }

    /// Takes an event; samples beyond `--count` are left out.
    ///
    /// # Errors
    /// Where writing fails other than by a closed pipe.
    pub fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        let sample = matches!(event, Event::Sample(_));
        if sample && self.done() {
            return Ok(());
        }
        self.given += u64::from(sample);
        if let Some(by) = &mut self.by {
            by.add(event);
            return Ok(());
        }
        self.summary.add(event);
        if self.quiet || self.broken || (self.samples_only && !sample) {
            return Ok(());
        }
        let written = match self.format {
            // CSV needs `--by`.
            Format::Text | Format::Csv => self.text(event),
            Format::Json => self.json(event),
        };
        self.check(written)
    }

    fn text(&mut self, event: &Event) -> io::Result<()> {
        let context = &self.context;
        match event {
            Event::Sample(sample) => writeln!(self.out, "{}", SampleLine::text(sample, context)),
            Event::Opened(flow) => {
                writeln!(self.out, "{}", FlowLine::text("opened", flow, context))
            }
            Event::Closed(flow) => {
                writeln!(self.out, "{}", FlowLine::text("closed", flow, context))
            }
            // What is still open is in the summary.
            Event::Alive(_) => Ok(()),
        }
    }

    fn json(&mut self, event: &Event) -> io::Result<()> {
        let context = &self.context;
        match event {
            Event::Sample(sample) => {
                serde_json::to_writer(&mut self.out, &SampleLine::new(sample, context))?;
            }
            Event::Opened(flow) => {
                serde_json::to_writer(&mut self.out, &FlowLine::new("opened", flow, context))?;
            }
            Event::Closed(flow) => {
                serde_json::to_writer(&mut self.out, &FlowLine::new("closed", flow, context))?;
            }
            Event::Alive(flow) => {
                serde_json::to_writer(&mut self.out, &FlowLine::new("alive", flow, context))?;
            }
        }
        self.out.write_all(b"\n")
    }

    /// Shows what was written so far.
    ///
    /// # Errors
    /// Where writing fails other than by a closed pipe.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.out.flush();
        self.check(flushed)
    }

    /// A reader that went away ends the run, without complaint.
    fn check(&mut self, result: io::Result<()>) -> anyhow::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.broken = true;
                Ok(())
            }
            other => other.context("write records"),
        }
    }

    /// The closing summary: to standard output, and as JSON into the file as well.
    ///
    /// # Errors
    /// Where writing fails other than by a closed pipe.
    pub fn finish(mut self, run: &Run, stats: &Stats) -> anyhow::Result<()> {
        if let Some(by) = self.by.take() {
            let written = by.write(&mut self.out, self.format, &self.context);
            for note in &run.notes {
                eprintln!("fairpath: {note}");
            }
            self.check(written)?;
            return self.flush();
        }
        let line = self
            .summary
            .line(run.duration_ns, stats, self.limit, &self.context);
        let written = match self.format {
            Format::Json => serde_json::to_writer(&mut self.out, &report::json(&line, run))
                .map_err(io::Error::from)
                .and_then(|()| self.out.write_all(b"\n")),
            Format::Text | Format::Csv if self.to_file => Ok(()),
            Format::Text | Format::Csv => self.out.write_all(report::text(&line, run).as_bytes()),
        };
        self.check(written)?;
        self.flush()?;
        if self.to_file {
            let shown = io::stdout().write_all(report::text(&line, run).as_bytes());
            self.check(shown)?;
        }
        Ok(())
    }
}
