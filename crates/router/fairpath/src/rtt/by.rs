//! `--by`: one table with a row per host, flow or class, as text, CSV or JSON lines.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use fairpath_class::{ClassSet, Severity};
use fairpath_core::{ClassReading, Event, Rules};
use fairpath_rtt::{By, Context, Listing, Order, Table};
use fairpath_units::Nanos;
use serde_json::{Map, Value, json};

use super::args::{Args, Format};
use crate::class;

/// Rows of a table in text.
const TEXT_ROWS: usize = 20;
/// Problems of class files that an error names.
const MAX_PROBLEMS: usize = 5;

/// What has a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Each measured host
    Host,
    /// Each flow and direction
    Flow,
    /// Each class and leg; needs --class-file
    Class,
}

/// Which value orders the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Number of samples
    Samples,
    /// Minimum RTT
    Min,
    /// Median RTT
    P50,
    /// 95th percentile of RTT
    P95,
    /// 99th percentile of RTT
    P99,
    /// Maximum RTT
    Max,
    /// Larger loss ratio, upstream or downstream
    Loss,
    /// Names, ascending
    Name,
}

impl Group {
    fn by(self) -> By {
        match self {
            Group::Host => By::Host,
            Group::Flow => By::Flow,
            Group::Class => By::Class,
        }
    }
}

impl Sort {
    fn order(self) -> Order {
        match self {
            Sort::Samples => Order::Samples,
            Sort::Min => Order::Min,
            Sort::P50 => Order::P50,
            Sort::P95 => Order::P95,
            Sort::P99 => Order::P99,
            Sort::Max => Order::Max,
            Sort::Loss => Order::Loss,
            Sort::Name => Order::Name,
        }
    }
}

/// Classes of `--class-file`; none without.
///
/// # Errors
/// The first problems of the files.
pub fn classes(files: &[PathBuf]) -> anyhow::Result<ClassSet> {
    if files.is_empty() {
        return Ok(ClassSet::default());
    }
    let outcome = class::read_files(files);
    let Some(set) = outcome.set else {
        let errors = outcome.report.problems.iter();
        let errors = errors.filter(|problem| problem.severity == Severity::Error);
        let errors: Vec<String> = errors.take(MAX_PROBLEMS).map(ToString::to_string).collect();
        bail!(
            "{}; `fairpath class check` lists all problems",
            errors.join("; ")
        );
    };
    Ok(set)
}

/// A table that is being filled.
pub struct Collected {
    table: Table,
    group: Group,
    order: Order,
    limit: usize,
    set: ClassSet,
    reading: ClassReading,
}

impl Collected {
    /// As the arguments say; `None` without `--by`.
    pub fn new(args: &Args, set: ClassSet) -> Option<Collected> {
        let group = args.by?;
        let all = match args.format {
            Format::Text => TEXT_ROWS,
            Format::Json | Format::Csv => usize::MAX,
        };
        Some(Collected {
            table: Table::new(group.by()),
            group,
            order: args.sort.order(),
            limit: match args.limit {
                None => all,
                Some(0) => usize::MAX,
                Some(limit) => limit,
            },
            set,
            reading: ClassReading::default(),
        })
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        self.table.add(event);
    }

    /// The classes' rules, with the interfaces that `context` has; `None` unless rows are classes.
    pub fn rules(&self, context: &Context) -> Option<Rules> {
        let index_of = |name: &str| {
            let known = context.names.iter().find(|(_, known)| *known == name);
            known.map(|(index, _)| *index)
        };
        (self.group == Group::Class).then(|| self.set.numbered_rules(index_of, &[]))
    }

    /// Adds what `read` takes out of the core, if rows are classes.
    pub fn read(&mut self, read: impl FnOnce(&mut ClassReading)) {
        if self.group == Group::Class {
            read(&mut self.reading);
            self.table.add_classes(&self.reading, &self.set);
        }
    }

    /// Writes the table, and on standard error how many rows or samples are not in it.
    ///
    /// # Errors
    /// Where writing fails.
    pub fn write(self, out: &mut impl Write, format: Format, context: &Context) -> io::Result<()> {
        let by = self.group.by().name();
        let listing = self
            .table
            .listing(self.order, self.limit, context, &self.set);
        match format {
            Format::Text => text(out, &listing)?,
            Format::Csv => csv(out, &listing)?,
            Format::Json => json_lines(out, by, &listing)?,
        }
        for (count, what) in [
            (listing.rows_excluded, "more rows; --limit 0 prints all"),
            (
                listing.samples_excluded,
                "samples are in no row: the table is full",
            ),
        ] {
            if count > 0 {
                eprintln!("fairpath: {count} {what}");
            }
        }
        Ok(())
    }
}

fn csv(out: &mut impl Write, listing: &Listing) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(&listing.columns)?;
    for row in &listing.rows {
        csv.write_record(row.iter().map(plain))?;
    }
    csv.flush()
}

fn json_lines(out: &mut impl Write, by: &str, listing: &Listing) -> io::Result<()> {
    for row in &listing.rows {
        let mut object = Map::new();
        object.insert("schema".to_owned(), json!(1));
        object.insert("type".to_owned(), json!(by));
        let named = listing.columns.iter().zip(row);
        object.extend(named.map(|(name, value)| ((*name).to_owned(), value.clone())));
        serde_json::to_writer(&mut *out, &object)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// As in CSV: nothing for null.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// For people: the unit is in the value, numbers stand to the right.
fn readable(column: &str, value: &Value) -> String {
    match (column, value.as_u64(), value.as_f64()) {
        (_, _, _) if value.is_null() => "-".to_owned(),
        (name, Some(ns), _) if name.ends_with("_ns") => Nanos(ns).to_string(),
        (name, _, Some(ratio)) if name.ends_with("_ratio") => format!("{:.2} %", 100.0 * ratio),
        _ => plain(value),
    }
}

fn text(out: &mut impl Write, listing: &Listing) -> io::Result<()> {
    let heading = |column: &str| {
        let column = column.trim_end_matches("_ns").trim_end_matches("_ratio");
        column.replace('_', " ")
    };
    let headings: Vec<String> = listing.columns.iter().map(|c| heading(c)).collect();
    let cells = listing.rows.iter().map(|row| {
        let named = listing.columns.iter().zip(row);
        named.map(|(name, value)| readable(name, value)).collect()
    });
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(cells).collect();
    let widths: Vec<usize> = (0..listing.columns.len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    for line in &lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let is_name = listing.rows.iter().any(|row| row[at].is_string());
            text += &match is_name {
                true => format!("{cell:<width$}  "),
                false => format!("{cell:>width$}  "),
            };
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// A failure to put rules into the core.
pub fn refused(error: &fairpath_core::TooManyRules) -> anyhow::Error {
    anyhow::anyhow!("{error}").context("classify by --class-file")
}
