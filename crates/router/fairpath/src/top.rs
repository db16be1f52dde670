//! `fairpath top`: the table of classes, live in a terminal or once.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use fairpath_config::duration::parse_duration;
use fairpath_config::filter::read_filter;
use fairpath_history::snapshot::{Query, Sort};
use fairpath_top::{ANSWER_TIMEOUT, DEFAULT_SOCKET, Look, Options, SocketSource, Source};

use crate::run::{Own, Wish};

/// Rows that the live table asks for unless told otherwise: more than anybody scrolls through, and
/// little enough for a picture a second.
const LIVE_LIMIT: usize = 1_000;
/// Least time between two pictures.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);
/// How long a whole snapshot may take: all rows with their histograms, on a small router.
const ONCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Intervals that --once looks at with -i before it prints.
const ONCE_INTERVALS: u32 = 5;
/// Columns of a table that goes to a pipe or a file, unless COLUMNS says otherwise.
const PIPE_COLUMNS: u16 = 120;

/// Shows each class's rates, round-trip times on both sides of the router, delay under load, loss
/// and flows, live.
///
/// The numbers come from the daemon (`fairpath run`) over its control socket; that takes root or
/// membership in the group fairpath. With -i, this process watches by itself, without daemon or
/// configuration, and the subnets that it sees are the classes; that takes the rights of `fairpath
/// run`. Press ? for the keys.
#[derive(clap::Args)]
pub struct Args {
    /// The daemon's control socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Watch this interface without a daemon, or all that match a pattern; may be repeated
    #[arg(
        short,
        long = "interface",
        value_name = "IF",
        conflicts_with = "socket"
    )]
    interfaces: Vec<String>,
    /// Of these, one whose hosts are remote and no classes; may be repeated
    #[arg(short, long = "uplink", value_name = "IF", requires = "interfaces")]
    uplinks: Vec<String>,
    /// Look only at packets with an end in this prefix, with this port, or both ("10.0.0.0/8 port
    /// 443"); may be repeated, any suffices
    #[arg(long, value_name = "FILTER", requires = "interfaces", value_parser = filter)]
    only: Vec<String>,
    /// Leave such packets out; may be repeated, and wins over --only
    #[arg(long, value_name = "FILTER", requires = "interfaces", value_parser = filter)]
    except: Vec<String>,
    /// Print the table once; with -i, after five intervals
    #[arg(long)]
    once: bool,
    /// A table for people, or one JSON object (implies --once)
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// In which order; the greatest first
    #[arg(long, value_enum, default_value_t = Order::Tree)]
    sort: Order,
    /// Only classes whose name contains this, ignoring case
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only this class and those below it
    #[arg(long, value_name = "CLASS")]
    under: Option<String>,
    /// Rows to ask for, 0 for all; live 1000 unless given, once all
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Time between two pictures; never less than the daemon's own interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Write ASCII only; without, the locale decides
    #[arg(long)]
    ascii: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Text,
    /// The whole snapshot as one JSON object
    Json,
}

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// As configured, parents before their children
    Tree,
    /// By name, from a to z
    Name,
    /// Bits a second, both directions
    Rate,
    /// 95th percentile of the round-trip time inside
    InP95,
    /// Likewise outside
    OutP95,
    /// Growth of the round-trip time under load
    Growth,
    /// Share lost, on whichever leg more is
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

/// A filter as the monitor's configuration has it.
fn filter(text: &str) -> Result<String, String> {
    read_filter(text, false).map(|_| text.to_owned())
}

/// Runs `fairpath top`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.once || args.format == Format::Json {
        return once(args, source(args, ONCE_TIMEOUT)?);
    }
    let source = source(args, ANSWER_TIMEOUT)?;
    let options = Options {
        query: query(args, LIVE_LIMIT),
        interval: args.interval,
        look: Look::from_environment(args.ascii),
    };
    Ok(fairpath_top::run(source, &options)?)
}

/// Where pictures come from: the daemon, whose answer may take `patience`, or a monitor in this
/// process.
fn source(args: &Args, patience: Duration) -> anyhow::Result<Box<dyn Source>> {
    if args.interfaces.is_empty() {
        let source = SocketSource::connect_within(&args.socket, patience)?;
        return Ok(Box::new(source));
    }
    let watched = [&args.interfaces[..], &args.uplinks].concat();
    let own = Own::watch(&Wish {
        interfaces: &watched,
        uplinks: &args.uplinks,
        only: &args.only,
        except: &args.except,
        interval: args.interval,
    })?;
    if args.once || args.format == Format::Json {
        // What was just attached has counted nothing yet.
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

fn once(args: &Args, mut source: Box<dyn Source>) -> anyhow::Result<()> {
    let json = args.format == Format::Json;
    let query = Query {
        histograms: json,
        history: true,
        ..query(args, 0)
    };
    let snapshot = source.snapshot(&query)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = if json {
        serde_json::to_writer(&mut out, &snapshot)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        let look = Look::from_environment(args.ascii);
        fairpath_top::print_once(snapshot, &query, columns(), look, &mut out)
    };
    match printed.and_then(|()| out.flush()) {
        // Who reads has seen enough, as with head.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("print the table"),
    }
}

/// Those of the terminal; where there is none, those that COLUMNS names.
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
    if interval < LEAST_INTERVAL {
        return Err(format!("{text:?} is too short; the least is 100ms"));
    }
    Ok(interval)
}
