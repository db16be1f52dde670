//! `fairpath shape`: begins and ends shaping, tells how it is, changes rates.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use fairpath_backend::{Mode, OnFailure, ShapeVia, is_own};
use fairpath_history::snapshot::{Answer, Kind, Query, Request, ShapeSet, Snapshot, Sort};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};
use fairpath_units::quantity::read_rate;

use super::text;

/// Starting a port loads programs and lays schedulers out before there is an answer.
const START_TIME: Duration = Duration::from_secs(60);

/// Gives every class its rate and every flow its fair share of it.
///
/// The daemon does it, where its configuration has a section [shape]; these commands ask it. Without a
/// daemon, `shape start --inside IF` shapes by itself for as long as it runs.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Begin: the daemon's, or with --inside by this process, until it is ended
    Start(Box<StartArgs>),
    /// End: packets that wait go their way, and traffic goes on unshaped
    Stop(SocketArgs),
    /// Tell how it is: by which port, what was sent, dropped and marked, how long packets waited
    Status(StatusArgs),
    /// Change a class's rates until the next reload
    Set(SetArgs),
}

#[derive(ClapArgs)]
struct SocketArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(ClapArgs)]
struct StartArgs {
    /// Shape without a configuration: the interface towards subscribers
    #[arg(long, value_name = "IF")]
    inside: Option<String>,
    /// The interface towards the internet
    #[arg(long, value_name = "IF", requires = "inside")]
    outside: Option<String>,
    /// Of a one-armed AF_XDP bridge, where both sides are one interface: the VLAN inside
    #[arg(long, value_name = "VLAN", requires = "outside_vlan")]
    inside_vlan: Option<u16>,
    /// Likewise the VLAN outside
    #[arg(long, value_name = "VLAN", requires = "inside_vlan")]
    outside_vlan: Option<u16>,
    /// Rate of what leaves by the inside interface, such as 100mbit
    #[arg(long, value_name = "RATE", requires = "inside", value_parser = rate)]
    down: Option<String>,
    /// Rate of what leaves by the outside interface
    #[arg(long, value_name = "RATE", requires = "inside", value_parser = rate)]
    up: Option<String>,
    /// How packets come and go
    #[arg(long, value_enum, requires = "inside")]
    via: Option<ShapeVia>,
    /// What AF_XDP does with packets
    #[arg(long, value_enum, requires = "inside")]
    mode: Option<Mode>,
    /// Policy of the flows of a class, as `fairpath sched list` names them, or an author's file (.c)
    #[arg(long, value_name = "NAME|FILE.c", requires = "inside")]
    policy: Option<String>,
    /// A scheduler's tree instead of the classes'; its nodes name their policies, and may name the
    /// author's that --policy has
    #[arg(long, value_name = "FILE", requires = "inside")]
    tree: Option<PathBuf>,
    /// A parameter, such as target=10ms; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "inside")]
    set: Vec<String>,
    /// A file with classes; may be repeated
    #[arg(long, value_name = "FILE", requires = "inside")]
    classes: Vec<PathBuf>,
    /// Packets that each side holds at most
    #[arg(long, value_name = "N", requires = "inside")]
    packets: Option<u32>,
    /// The first packet queue of NFQUEUE
    #[arg(long, value_name = "N", requires = "inside")]
    queue: Option<u16>,
    /// What becomes of traffic if this process is killed
    #[arg(long, value_enum, requires = "inside")]
    on_failure: Option<OnFailure>,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(ClapArgs)]
struct StatusArgs {
    /// Classes shown at most, those whose packets waited longest first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 20)]
    classes: usize,
    /// Text for people, or JSON: the whole first, then one class a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A rate that is taken away is "none".
#[derive(ClapArgs)]
struct SetArgs {
    /// The class; "line" for the whole
    class: String,
    /// Most that its hosts receive, such as 50mbit, or none
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    down: Option<u64>,
    /// Most that its hosts send
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    up: Option<u64>,
    /// Least that its hosts receive if they want it
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    down_floor: Option<u64>,
    /// Least that its hosts send if they want to
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
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
/// Where no daemon answers, or it refuses.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Start(start) => match start.inside {
            Some(_) => crate::run::run_alone(&configuration(start)),
            None => ask(&start.socket, &Request::ShapeStart),
        },
        Command::Stop(socket) => ask(socket, &Request::ShapeStop),
        Command::Status(args) => status(args),
        Command::Set(args) => {
            let rates = ShapeSet {
                class: args.class.clone(),
                down_bps: args.down,
                up_bps: args.up,
                down_floor_bps: args.down_floor,
                up_floor_bps: args.up_floor,
            };
            ask(&args.socket, &Request::ShapeSet { rates })
        }
    }
}

fn ask(socket: &SocketArgs, request: &Request) -> anyhow::Result<()> {
    let mut source = SocketSource::connect_within(&socket.socket, START_TIME)?;
    let Answer::Done { text } = source.ask(request)? else {
        bail!("shape: the daemon answered another question; are both of one version?");
    };
    println!("{text}");
    Ok(())
}

fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect(&args.socket.socket)?;
    let query = Query {
        sort: Sort::Tree,
        kind: Some(Kind::Class),
        ..Query::default()
    };
    let Answer::Snapshot { snapshot } = source.ask(&Request::Snapshot { query })? else {
        bail!("shape: the daemon answered another question; are both of one version?");
    };
    match args.format {
        Format::Text => print!("{}", text::status(&snapshot, args.classes)),
        Format::Json => print_json(&snapshot)?,
    }
    Ok(())
}

fn print_json(snapshot: &Snapshot) -> anyhow::Result<()> {
    let whole = serde_json::json!({
        "schema": snapshot.schema, "time": snapshot.time, "shape": snapshot.shape,
    });
    println!("{whole}");
    for row in &snapshot.rows {
        let row = serde_json::json!({
            "schema": snapshot.schema, "class": row.name, "parent": row.parent,
            "plan_down_bps": row.plan_down_bps, "plan_up_bps": row.plan_up_bps,
            "down": row.down_queue, "up": row.up_queue,
        });
        println!("{row}");
    }
    Ok(())
}

/// The configuration that these options are: a file's text.
fn configuration(args: &StartArgs) -> String {
    let mut text = String::from("[shape]\n");
    // A string of JSON is one of TOML.
    let quoted = |text: &dyn AsRef<str>| serde_json::Value::from(text.as_ref()).to_string();
    let word = |value: &Option<String>| value.as_ref().map(|value| quoted(value));
    let choice = |name: Option<clap::builder::PossibleValue>| {
        name.map(|value| quoted(&value.get_name().to_owned()))
    };
    // Paths of a command line begin where it is typed, not where a file is.
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
        ("tree", args.tree.as_ref().map(path)),
        ("packets", args.packets.map(|n| n.to_string())),
        ("queue", args.queue.map(|n| n.to_string())),
        (
            "on_failure",
            choice(args.on_failure.and_then(|v| v.to_possible_value())),
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
    let files = list(args.classes.iter().map(path).collect());
    let socket = path(&args.socket.socket);
    format!(
        "class_files = {files}\n{text}[control]\nsocket = {socket}\n[metrics]\nlisten = \"off\"\n[state]\nfile = \"off\"\n"
    )
}
