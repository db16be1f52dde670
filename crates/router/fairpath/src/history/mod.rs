//! `fairpath history`: the counts of a class over hours, days and weeks.

mod text;
mod when;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_history::series::{Series, SeriesQuery};
use fairpath_history::snapshot::{Answer, Kind, Request};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};
use jiff::Zoned;

/// Time for an answer: a quarter of a day from slices takes a second on a slow disk.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Show a class over hours, days and weeks.
///
/// The daemon keeps rates, round-trip times, loss and busy time of each class: by second for five
/// minutes, by 10 s for an hour, by minute for a day, and by 5 min for 90 days. Percentiles are exact
/// to 1.6 %, for any step. Needs root, or membership in the group of the control socket.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath history anna\n  \
    fairpath history anna --since tuesday --for 1d\n  \
    fairpath history anna --since \"2026-11-17 18:00\" --until \"2026-11-17 23:00\" --step 1m\n  \
    fairpath history wan0 --kind interface --since 90d --step 1d --format csv\n  \
    fairpath history anna --file /var/lib/fairpath/state.history\n\n\
    Times are of the local time zone: now, today, yesterday, a day of the week (the last one before\n\
    today), a date, date and time, or a time before now such as 30m, 6h, 2d, 8w.")]
pub struct Args {
    /// Name of the class, interface or subnet
    pub name: String,
    /// Kind of the name: by default a class, else an interface, else a subnet
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Begin, for example 6h, yesterday or 2026-11-17
    #[arg(long, value_name = "TIME", default_value = "1d")]
    pub since: String,
    /// End, for example 30m
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        conflicts_with = "length"
    )]
    pub until: String,
    /// Length, instead of an end, for example 1d
    #[arg(long = "for", value_name = "LENGTH")]
    pub length: Option<String>,
    /// Length of a step: whole seconds, for example 10s or 1m. By default at most 400 steps
    #[arg(long, value_name = "LENGTH")]
    pub step: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Read this file instead of asking the daemon
    #[arg(long, value_name = "PATH", conflicts_with = "socket")]
    pub file: Option<PathBuf>,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, and the sum
    Text,
    /// One JSON object
    Json,
    /// One line per step, with a header
    Csv,
}

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Configured
    Class,
    /// Monitored
    Interface,
    /// Found in traffic
    Subnet,
    /// Packets of no class
    Other,
}

/// Runs `fairpath history`.
///
/// # Errors
/// A time is not understood, no daemon answers, or there are no such counts.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let query = query(args, &Zoned::now())?;
    // Refused here already, with its remedy.
    query.step()?;
    let series = match &args.file {
        Some(file) => fairpath_archive::read_series(file, &query)
            .with_context(|| format!("read {}", file.display()))?,
        None => request(args, query)?,
    };
    let text = match args.format {
        Format::Text => text::table(&series, &jiff::tz::TimeZone::system()),
        Format::Json => serde_json::to_string(&series).context("write the history as JSON")? + "\n",
        Format::Csv => text::csv(&series)?,
    };
    fairpath_cli::print(text)
}

fn request(args: &Args, query: SeriesQuery) -> anyhow::Result<Series> {
    let mut source = SocketSource::connect_within(&args.socket, ANSWER_TIME)?;
    match source.query(&Request::History { query })? {
        Answer::History { series } => Ok(*series),
        Answer::Error { text } => bail!(text),
        _ => bail!(
            "history: unexpected answer of the daemon: check that it has the version of this command"
        ),
    }
}

fn query(args: &Args, now: &Zoned) -> anyhow::Result<SeriesQuery> {
    let since = when::point(&args.since, now).context("--since")?;
    let until = match &args.length {
        Some(length) => when::after(&since, length).context("--for")?,
        None => when::point(&args.until, now).context("--until")?,
    };
    let step_ns = args
        .step
        .as_ref()
        .map(|step| when::length(step, now).context("--step"));
    Ok(SeriesQuery {
        name: args.name.clone(),
        kind: args.kind.map(|kind| match kind {
            KindArg::Class => Kind::Class,
            KindArg::Interface => Kind::Interface,
            KindArg::Subnet => Kind::Subnet,
            KindArg::Other => Kind::Other,
        }),
        since_unix_ns: when::unix_ns(&since),
        until_unix_ns: when::unix_ns(&until),
        step_ns: step_ns.transpose()?,
    })
}
