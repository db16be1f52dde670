//! `fairpath shape`: start and stop shaping, print its status, change rates.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use fairpath_backend::{Mode, OnBypass, OnFailure, ShapeVia, is_own};
use fairpath_cli::{Global, wrong_usage};
use fairpath_history::snapshot::{Answer, Kind, Query, Request, ShapeSet, Snapshot, Sort};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};
use fairpath_units::quantity::read_rate;

use super::{plan, text};

/// A back end loads programs and builds schedulers before the daemon answers.
const START_TIME: Duration = Duration::from_secs(60);

/// Limit the rate of each class, and share it fairly among its flows.
///
/// The daemon shapes if its configuration has a section [shape]; these commands control it. Without
/// a daemon, `shape start --inside IF` shapes for as long as it runs.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath shape start --inside lan --outside wan --down 100mbit --up 20mbit\n  \
    fairpath shape status --limit 10")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Start(Box<StartArgs>),
    Stop(StopArgs),
    Status(StatusArgs),
    Set(SetArgs),
    Plan(Box<plan::PlanArgs>),
}

#[derive(ClapArgs)]
struct SocketArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// Stop the shaping of the daemon.
///
/// Queued packets are sent, and traffic continues without limits.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath shape stop\n  \
    fairpath shape stop --socket /run/fairpath/test.sock")]
struct StopArgs {
    #[command(flatten)]
    socket: SocketArgs,
}

/// Start shaping: by the daemon, or with --inside by this process until it ends.
///
/// The last group of options is for --inside only, and corresponds to the section [shape] of the
/// daemon's configuration.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath shape start\n  \
    fairpath shape start --inside lan --outside wan --down 100mbit --up 20mbit --class-file plan.csv")]
struct StartArgs {
    /// Interface towards subscribers; this process shapes, without a daemon
    #[arg(long, value_name = "IF")]
    inside: Option<String>,
    /// Interface towards the internet
    #[arg(long, value_name = "IF", requires = "inside")]
    outside: Option<String>,
    /// VLAN of the inside, 1 to 4094, if both sides of an AF_XDP bridge are one interface
    #[arg(long, value_name = "VLAN", requires = "outside_vlan")]
    inside_vlan: Option<u16>,
    /// VLAN of the outside, 1 to 4094
    #[arg(long, value_name = "VLAN", requires = "inside_vlan")]
    outside_vlan: Option<u16>,
    /// Rate towards subscribers, for example 100mbit [default: no limit]
    #[arg(long, value_name = "RATE", requires = "inside", value_parser = rate)]
    down: Option<String>,
    /// Rate towards the internet, for example 20mbit [default: no limit]
    #[arg(long, value_name = "RATE", requires = "inside", value_parser = rate)]
    up: Option<String>,
    /// Back end [default: chosen for the interfaces, and printed with the reason]
    #[arg(long, value_enum, value_name = "BACKEND", requires = "inside")]
    via: Option<ShapeVia>,
    /// Forwarding by AF_XDP [default: bridge if both interfaces are ports of one bridge]
    #[arg(long, value_enum, requires = "inside")]
    mode: Option<Mode>,
    /// Policy of the flows of a class: a name of `fairpath sched list`, or the object (.o) of a custom policy
    /// [default: fq_codel]
    #[arg(long, value_name = "NAME|FILE.o", requires = "inside")]
    policy: Option<String>,
    /// Object of a custom policy that nodes of --tree name; may be repeated
    #[arg(long, value_name = "FILE.o", requires = "inside")]
    policy_object: Vec<String>,
    /// Tree of the scheduler in place of that of the classes; its nodes name their policies
    #[arg(long, value_name = "FILE", requires = "inside")]
    tree: Option<PathBuf>,
    /// Parameter of the policy, for example target=10ms; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "inside")]
    set: Vec<String>,
    /// File with classes, as of `fairpath class check`; may be repeated
    #[arg(long, value_name = "FILE", requires = "inside")]
    class_file: Vec<PathBuf>,
    /// Tins of each class by DSCP, as in tc-cake(8): besteffort, diffserv3 or diffserv4 [default:
    /// besteffort]
    #[arg(
        long,
        value_name = "TINS",
        requires = "inside",
        conflicts_with = "tree"
    )]
    diffserv: Option<String>,
    /// Drop a TCP ACK if a later one of its connection waits behind it, as tc-cake(8) with ack-filter
    #[arg(long, requires = "inside")]
    ack_filter: bool,
    /// Bytes that a packet takes on the link in addition to the IP packet, -64 to 256, or the link by its
    /// name in tc-cake(8), for example pppoe-ptm [default: an Ethernet header, 14]
    #[arg(
        long,
        value_name = "BYTES",
        requires = "inside",
        allow_negative_numbers = true
    )]
    overhead: Option<String>,
    /// Minimum bytes of a packet on the link, overhead included, 0 to 256 [default: 0]
    #[arg(long, value_name = "BYTES", requires = "inside")]
    mpu: Option<u16>,
    /// Cells of the link: none, atm (48 bytes in 53) or ptm (64 bytes in 65) [default: none]
    #[arg(long, value_name = "LINK", requires = "inside")]
    atm: Option<String>,
    /// Maximum number of queued packets of each direction, 64 to 1048576 [default: 10240]
    #[arg(
        long,
        value_name = "N",
        requires = "inside",
        value_parser = clap::value_parser!(u32).range(64..=1 << 20)
    )]
    max_packets: Option<u32>,
    /// Threads of AF_XDP, or of each direction of NFQUEUE, that share the rates, 1 to 512 [default: by the rates,
    /// queues and CPUs]
    #[arg(
        long,
        value_name = "N",
        requires = "inside",
        value_parser = clap::value_parser!(u32).range(1..=512)
    )]
    workers: Option<u32>,
    /// Maximum time in a queue; later packets are dropped; 0s: none [default: 500ms]
    #[arg(long, value_name = "TIME", requires = "inside")]
    max_sojourn: Option<String>,
    /// First of six queue numbers of NFQUEUE for each worker, 0 to 65530 [default: 40]
    #[arg(
        long,
        value_name = "N",
        requires = "inside",
        value_parser = clap::value_parser!(u16).range(..=65_530)
    )]
    queue_num: Option<u16>,
    /// Treatment of traffic after this process was killed [default: pass]
    #[arg(long, value_enum, requires = "inside")]
    on_failure: Option<OnFailure>,
    /// The replacement of AF_XDP if packets would bypass firewall rules [default: end]
    #[arg(long, value_enum, requires = "inside")]
    on_bypass: Option<OnBypass>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Print the status of shaping: configured and achieved rates, counters and sojourn times by class.
///
/// Rates are in bits per second of Ethernet frames, over the last interval of the daemon.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath shape status\n  \
    fairpath shape status --cpus\n  \
    fairpath shape status --limit 0 --format json\n  \
    fairpath shape status --limit 1000 --format csv")]
struct StatusArgs {
    /// Classes to print as text or CSV, those with the highest rates first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Also print the threads that shape, their CPUs, and what each did of a class
    #[arg(long)]
    cpus: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables
    Text,
    /// One JSON object for the shaper, then one per class
    Json,
    /// One line per class and direction
    Csv,
}

/// Change the rates of a class until the next reload.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath shape set anna --down 50mbit --up 10mbit\n  \
    fairpath shape set line --down none")]
struct SetArgs {
    /// Name of the class; "line" for the total rates
    class: String,
    /// Ceiling towards its hosts, for example 50mbit, or none [default: unchanged]
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    down: Option<u64>,
    /// Ceiling from its hosts [default: unchanged]
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    up: Option<u64>,
    /// Guaranteed rate towards its hosts [default: unchanged]
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    down_floor: Option<u64>,
    /// Guaranteed rate from its hosts [default: unchanged]
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    up_floor: Option<u64>,
    #[command(flatten)]
    socket: SocketArgs,
}

fn rate(text: &str) -> Result<String, String> {
    match read_rate(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn rate_or_none(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => read_rate(text).map_err(|error| error.to_string()),
    }
}

/// Runs `fairpath shape`.
///
/// # Errors
/// No daemon answers, it refuses, or this process cannot shape.
pub fn run(args: &Args, global: &Global) -> anyhow::Result<()> {
    match &args.command {
        Command::Start(start) => match start.inside {
            Some(_) => crate::run::run_alone(&configuration(start), global),
            None => request(&start.socket, &Request::ShapeStart),
        },
        Command::Stop(args) => request(&args.socket, &Request::ShapeStop),
        Command::Status(args) => status(args),
        Command::Plan(args) => plan::run(args),
        Command::Set(args) => {
            let rates = [args.down, args.up, args.down_floor, args.up_floor];
            if rates.iter().all(Option::is_none) {
                return Err(wrong_usage(format!(
                    "shape set {:?}: no rate is given: add --down, --up, --down-floor or --up-floor",
                    args.class
                )));
            }
            let rates = ShapeSet {
                class: args.class.clone(),
                down_bps: args.down,
                up_bps: args.up,
                floor_down_bps: args.down_floor,
                floor_up_bps: args.up_floor,
            };
            request(&args.socket, &Request::ShapeSet { rates })
        }
    }
}

fn request(socket: &SocketArgs, request: &Request) -> anyhow::Result<()> {
    let mut source = SocketSource::connect_within(&socket.socket, START_TIME)?;
    let Answer::Done { text } = source.query(request)? else {
        bail!(
            "shape: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    fairpath_cli::print(format!("{text}\n"))
}

fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect(&args.socket.socket)?;
    let query = Query {
        sort: Sort::Tree,
        kind: Some(Kind::Class),
        workers: args.cpus,
        ..Query::default()
    };
    let Answer::Snapshot { snapshot } = source.query(&Request::Snapshot { query })? else {
        bail!(
            "shape: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    match args.format {
        Format::Text => fairpath_cli::print(text::status(&snapshot, args.limit, args.cpus)),
        Format::Json => fairpath_cli::print(json(&snapshot)),
        Format::Csv => fairpath_cli::print(text::csv(&snapshot, args.limit)?),
    }
}

fn json(snapshot: &Snapshot) -> String {
    let shaper = serde_json::json!({
        "schema": snapshot.schema, "time": snapshot.time, "shape": snapshot.shape,
    });
    let mut lines = format!("{shaper}\n");
    for row in &snapshot.rows {
        let row = serde_json::json!({
            "schema": snapshot.schema, "class": row.name, "parent": row.parent,
            "ceil_down_bps": row.ceil_down_bps, "ceil_up_bps": row.ceil_up_bps,
            "down": row.down_queue, "up": row.up_queue,
        });
        lines += &format!("{row}\n");
    }
    lines
}

/// The text of a configuration file with these options.
fn configuration(args: &StartArgs) -> String {
    let mut text = String::from("[shape]\n");
    // A string of JSON is one of TOML.
    let quoted = |text: &dyn AsRef<str>| serde_json::Value::from(text.as_ref()).to_string();
    let word = |value: &Option<String>| value.as_ref().map(|value| quoted(value));
    let choice = |name: Option<clap::builder::PossibleValue>| {
        name.map(|value| quoted(&value.get_name().to_owned()))
    };
    // Relative paths of a command line begin at the working directory.
    let path = |path: &PathBuf| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        quoted(&whole.to_string_lossy())
    };
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let keys = [
        ("inside", word(&args.inside)),
        ("outside", word(&args.outside)),
        ("inside_vlan", args.inside_vlan.map(|n| n.to_string())),
        ("outside_vlan", args.outside_vlan.map(|n| n.to_string())),
        ("down", word(&args.down)),
        ("up", word(&args.up)),
        ("via", choice(args.via.and_then(|v| v.to_possible_value()))),
        (
            "mode",
            choice(args.mode.and_then(|v| v.to_possible_value())),
        ),
        (
            "policy",
            args.policy.as_ref().map(|policy| match is_own(policy) {
                true => path(&policy.into()),
                false => quoted(policy),
            }),
        ),
        (
            "policies",
            (!args.policy_object.is_empty()).then(|| {
                list(
                    args.policy_object
                        .iter()
                        .map(|file| path(&file.into()))
                        .collect(),
                )
            }),
        ),
        ("tree", args.tree.as_ref().map(path)),
        ("diffserv", word(&args.diffserv)),
        ("ack_filter", args.ack_filter.then(|| "true".to_owned())),
        (
            "overhead",
            args.overhead
                .as_ref()
                .map(|overhead| match overhead.parse::<i64>() {
                    Ok(bytes) => bytes.to_string(),
                    Err(_) => quoted(overhead),
                }),
        ),
        ("mpu", args.mpu.map(|n| n.to_string())),
        ("atm", word(&args.atm)),
        ("packets", args.max_packets.map(|n| n.to_string())),
        ("workers", args.workers.map(|n| n.to_string())),
        ("max_sojourn", word(&args.max_sojourn)),
        ("queue", args.queue_num.map(|n| n.to_string())),
        (
            "on_failure",
            choice(args.on_failure.and_then(|v| v.to_possible_value())),
        ),
        (
            "on_bypass",
            choice(args.on_bypass.and_then(|v| v.to_possible_value())),
        ),
        (
            "set",
            Some(list(args.set.iter().map(|set| quoted(set)).collect())),
        ),
    ];
    for (key, value) in keys {
        if let Some(value) = value {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    let files = list(args.class_file.iter().map(path).collect());
    let socket = path(&args.socket.socket);
    format!(
        "class_files = {files}\n{text}[control]\nsocket = {socket}\n[metrics]\nlisten = \"off\"\n[state]\nfile = \"off\"\n"
    )
}
