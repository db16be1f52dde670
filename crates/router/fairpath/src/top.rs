//! `fairpath top`: the table of classes, live in a terminal or once.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{ColorChoice, ValueEnum};
use fairpath_cli::Global;
use fairpath_config::duration::parse_duration;
use fairpath_config::filter::read_filter;
use fairpath_history::loaded_rules::MAX_LISTED_RULES;
use fairpath_history::snapshot::{Query, Sort};
use fairpath_top::{ANSWER_TIMEOUT, DEFAULT_SOCKET, Look, Options, SocketSource, Source};

use crate::run::{Own, Wish};

/// Default of --limit in the live table: small enough for one snapshot per second.
const LIVE_LIMIT: usize = 1_000;
/// Minimum time between two snapshots.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time for a snapshot of all rows with their histograms, on a small router.
const ONCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Intervals that --once measures with -i before it prints.
const ONCE_INTERVALS: u32 = 5;
/// Columns of a table in a pipe or a file without COLUMNS.
const PIPE_COLUMNS: u16 = 120;

/// Show rates, RTTs, delay under load, loss and flows of each class, live or once.
///
/// The values come from the daemon (`fairpath run`) over its control socket, which needs root or
/// membership in the group fairpath. With -i, this process measures without a daemon or a
/// configuration: the subnets in the traffic are the rows, and it needs the capabilities of
/// `fairpath run`. Press ? for the keys.
///
/// With --rules, or after the key r, it shows the rules that `fairpath rules load` loaded in the network
/// namespace of the source, those with the highest packet rates first.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath top --sort in-p95\n  \
    fairpath top --rules\n  \
    fairpath top -i lan -i wan --uplink wan --once")]
pub struct Args {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Measure on this interface without a daemon, or on all that match a pattern; may be repeated
    #[arg(
        short,
        long = "interface",
        value_name = "IF",
        conflicts_with = "socket"
    )]
    interfaces: Vec<String>,
    /// Of these, an interface whose hosts are remote; may be repeated
    #[arg(short, long = "uplink", value_name = "IF", requires = "interfaces")]
    uplinks: Vec<String>,
    /// Measure only packets from or to this prefix, this port, or both ("10.0.0.0/8 port 443");
    /// may be repeated, one match suffices
    #[arg(long, value_name = "FILTER", requires = "interfaces", value_parser = filter)]
    only: Vec<String>,
    /// Exclude such packets; may be repeated, has precedence over --only
    #[arg(long, value_name = "FILTER", requires = "interfaces", value_parser = filter)]
    exclude: Vec<String>,
    /// Show the loaded rules in place of classes: at most 500, with --once at most 1000
    #[arg(long, conflicts_with_all = ["sort", "under"])]
    rules: bool,
    /// Print the table once; with -i, after five intervals
    #[arg(long)]
    once: bool,
    /// Output format; json implies --once
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Sort the rows, highest value first
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Order::Tree)]
    sort: Order,
    /// Show only classes whose name contains this text, or rules that contain it; case is ignored
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Show only this class and those below it
    #[arg(long, value_name = "CLASS")]
    under: Option<String>,
    /// Rows to show, 0 for all [default: 1000 live, all once]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Time between two snapshots, at least 100ms and the interval of the daemon
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Print ASCII only [default: by the locale]
    #[arg(long)]
    ascii: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// The snapshot as one JSON object
    Json,
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// As configured, parents before their children
    Tree,
    /// Name, ascending
    Name,
    /// Rate in both directions
    Rate,
    /// 95th percentile of the RTT inside
    InP95,
    /// 95th percentile of the RTT outside
    OutP95,
    /// Growth of the RTT under load
    Growth,
    /// Loss on the leg with more of it
    Loss,
    /// Open flows
    Flows,
}

impl From<Order> for Sort {
    fn from(order: Order) -> Sort {
        match order {
            Order::Tree => Sort::Tree,
            Order::Name => Sort::Name,
            Order::Rate => Sort::Rate,
            Order::InP95 => Sort::InsideP95,
            Order::OutP95 => Sort::OutsideP95,
            Order::Growth => Sort::Growth,
            Order::Loss => Sort::Loss,
            Order::Flows => Sort::Flows,
        }
    }
}

/// A filter of the section [monitor].
fn filter(text: &str) -> Result<String, String> {
    read_filter(text, false).map(|_| text.to_owned())
}

/// Runs `fairpath top`.
///
/// # Errors
/// There is no daemon, or this process cannot measure.
pub fn run(args: &Args, global: &Global) -> anyhow::Result<()> {
    if args.once || args.format == Format::Json {
        return once(args, source(args, ONCE_TIMEOUT)?, look(args, global));
    }
    let source = source(args, ANSWER_TIMEOUT)?;
    let options = Options {
        query: query(args, LIVE_LIMIT),
        interval: args.interval,
        rules: args.rules,
        look: look(args, global),
    };
    Ok(fairpath_top::run(source, &options)?)
}

/// Characters and colors, by the options and the environment.
fn look(args: &Args, global: &Global) -> Look {
    let mut look = Look::from_environment(args.ascii);
    match global.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => look.colour = true,
        ColorChoice::Never => look.colour = false,
    }
    look
}

/// The source of snapshots: the daemon, whose answer may take `timeout`, or a monitor in this
/// process.
fn source(args: &Args, timeout: Duration) -> anyhow::Result<Box<dyn Source>> {
    if args.interfaces.is_empty() {
        let source = SocketSource::connect_within(&args.socket, timeout)?;
        return Ok(Box::new(source));
    }
    fairpath_cli::require("measure live", &crate::MONITOR_CAPABILITIES)?;
    crate::privileges::keep(false)?;
    let watched = [&args.interfaces[..], &args.uplinks].concat();
    let own = Own::watch(&Wish {
        interfaces: &watched,
        uplinks: &args.uplinks,
        only: &args.only,
        except: &args.exclude,
        interval: args.interval,
    })?;
    if args.once || args.format == Format::Json {
        // Programs that were just attached have counted nothing yet.
        std::thread::sleep(args.interval * ONCE_INTERVALS);
    }
    Ok(Box::new(own))
}

fn query(args: &Args, limit: usize) -> Query {
    Query {
        sort: args.sort.into(),
        filter: args.filter.clone(),
        under: args.under.clone(),
        limit: args.limit.unwrap_or(limit),
        ..Query::default()
    }
}

fn once(args: &Args, mut source: Box<dyn Source>, look: Look) -> anyhow::Result<()> {
    let json = args.format == Format::Json;
    let query = Query {
        histograms: json,
        history: true,
        rules: if args.rules { MAX_LISTED_RULES } else { 0 },
        ..query(args, 0)
    };
    let query = match args.rules {
        // The filter is for rules, and no row is printed.
        true => Query {
            filter: None,
            limit: 1,
            ..query
        },
        false => query,
    };
    let snapshot = source.snapshot(&query)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = if json {
        serde_json::to_writer(&mut out, &snapshot)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else if args.rules {
        let filter = args.filter.as_deref();
        fairpath_top::print_rules_once(snapshot, filter, columns(), look, &mut out)
    } else {
        fairpath_top::print_once(snapshot, &query, columns(), look, &mut out)
    };
    match printed.and_then(|()| out.flush()) {
        // A reader such as head closes the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("print the table"),
    }
}

/// The columns of the terminal, or those of the variable COLUMNS.
fn columns() -> u16 {
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    let terminal = io::stdout()
        .is_terminal()
        .then(fairpath_top::terminal_columns)
        .flatten();
    terminal.or_else(named).unwrap_or(PIPE_COLUMNS)
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < MIN_INTERVAL {
        return Err(format!("{text:?} is too short: the minimum is 100ms"));
    }
    Ok(interval)
}
