//! `make bench`: measures Fairpath's speed, always compared with a peer in the same run.
//!
//! ```text
//!   afxdp.rs    packets per second through the AF_XDP back end, and C
//!   order.rs    what a scheduler adds to that
//!   routed.rs   one worker of the daemon, and the stack's forwarding
//!   workers.rs  two workers of the daemon, and one
//!   live.rs     packets through a router, monitor off and on        scene.rs, slice.rs
//!   classes.rs  the monitor without and with ten thousand classes  scene.rs, slice.rs
//!   daemon.rs   `fairpath run`: its own CPU, memory and start
//!   check.rs    files with many classes through `fairpath class check`
//!   pifo.rs     a pop and a push, natively and in the kernel
//!   rules.rs    files of rules to images, and packets through them
//!   sched.rs    a simulated link: packets a second of CPU time
//!   engine.rs   a packet through a policy, natively and in the kernel
//!   counters.rs instructions, cache lines and pages of a packet, by source file
//!   impair.rs   loss by XDP at 0 % and an empty program; lateness of a delay
//!   nfqueue.rs  a packet's visit to user space, and with the C library
//!   shape.rs    TCP through a router that shapes, and HTB by hand
//!   offline.rs  a capture through fairpath, tshark and tcptrace     made.rs
//!   all         medians, spread and targets                         measure.rs, cpus.rs, table.rs
//! ```
//!
//! A report and no test: a missed target is printed and the exit status stays 0. It is not 0 where
//! the bench itself failed.

mod afxdp;
mod check;
mod classes;
mod counters;
mod cpus;
mod daemon;
mod engine;
mod impair;
mod limits;
mod live;
mod machine;
mod made;
mod measure;
mod nfqueue;
mod offline;
mod order;
mod peer;
mod pifo;
mod routed;
mod rules;
mod scene;
mod sched;
mod shape;
mod slice;
mod table;
mod workers;

use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use machine::Machine;
use serde_json::json;

/// Measure the speed of Fairpath and its peers on this machine.
#[derive(Parser)]
#[command(name = "fairpath-bench")]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Tables for people, or one JSON object
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
}

#[derive(Subcommand)]
enum What {
    /// Packets per second through the AF_XDP back end, compared with a minimal forwarder in C (root)
    Afxdp(afxdp::Args),
    /// The forwarder that is measured
    #[command(hide = true)]
    AfxdpForward {
        /// The two interfaces
        #[arg(num_args = 2)]
        links: Vec<String>,
        /// The order of packets, behind the monitor's own program
        #[arg(long)]
        order: Option<order::Kind>,
    },
    /// Forwarded packets per second with the monitor off and on (root)
    Live(live::Args),
    /// The cost of classes for each packet, and the time of a reload (root)
    Classes(classes::Args),
    /// The cost of loss by XDP at 0 %, and the lateness of delayed packets (root)
    Impair(impair::Args),
    /// The daemon's own CPU, memory and start with many classes and flows (root)
    Daemon(daemon::Args),
    /// Seconds that a check of many classes takes
    Check(check::Args),
    /// Nanoseconds of a pop and a push, natively and in the kernel (root)
    Pifo(pifo::Args),
    /// Nanoseconds of a decision of a limit that CPUs share, next to a lock and to compare-and-swap (root)
    Limits(limits::Args),
    /// Seconds from rules to an image, and nanoseconds of a packet (root)
    Rules(rules::Args),
    /// Loaded rules on pings and forwarded packets, next to iptables-legacy and nftables (root)
    RulesHooks(rules::hooks::Args),
    /// A tree of loaded chains on random destinations, next to iptables-legacy and nftables (root)
    RulesFanned(rules::hooks::Args),
    /// A blocklist in the driver, next to nftables at ingress (root)
    RulesEarly(rules::early::Args),
    /// A chain of loaded rules is replaced, next to iptables-legacy and nft (root)
    RulesReplace(rules::replace::Args),
    /// Prints one of the sets of `rules`, to try commands with it
    RulesMake(rules::MakeArgs),
    /// Loads a file; started by `rules`
    #[command(hide = true)]
    RulesLoad(rules::LoadArgs),
    /// Simulated packets per second of CPU time
    Sched(sched::Args),
    /// Nanoseconds of a packet through a policy, natively and in the kernel (root)
    Engine(engine::Args),
    /// Instructions, cache lines and pages of a packet by source file, counted by valgrind
    Counters(counters::Args),
    /// A case; started by `counters`
    #[command(hide = true)]
    Counted(counters::CountedArgs),
    /// Cost of a packet's visit to user space through NFQUEUE, compared with the C library (root)
    Nfqueue(nfqueue::Args),
    /// Accepts every packet of queue 0; started by `nfqueue`
    #[command(hide = true)]
    Answer(nfqueue::AnswerArgs),
    /// The cost and the added delay of shaping TCP, by each port and by HTB (root)
    Shape(shape::Args),
    /// Packets per second from a capture, compared with tshark and tcptrace
    Offline(offline::Args),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// One JSON object
    Json,
}

fn main() -> anyhow::Result<()> {
    fairpath_bpf::quiet_libbpf();
    let args = Args::parse();
    if let Some(What::AfxdpForward { links, order }) = &args.what {
        return match order {
            None => afxdp::forward(links),
            Some(kind) => order::forward(links, *kind),
        };
    }
    if let Some(What::Answer(args)) = &args.what {
        return nfqueue::answer(args);
    }
    if let Some(What::RulesMake(args)) = &args.what {
        return rules::make(args);
    }
    if let Some(What::RulesLoad(args)) = &args.what {
        return rules::load(args);
    }
    if let Some(What::Counted(args)) = &args.what {
        return counters::counted(args);
    }
    let machine = Machine::look()?;
    let text = args.format == Format::Text;
    if text {
        print!("{}", machine.text());
    }
    let all = args.what.is_none();
    let (
        mut live,
        mut classes,
        mut daemon,
        mut check,
        mut pifo,
        mut rules,
        mut sched,
        mut engine,
        mut counters,
        mut offline,
    ) = (None, None, None, None, None, None, None, None, None, None);
    let (mut afxdp, mut nfqueue, mut shape, mut impair) = (None, None, None, None);
    let mut limits = None;
    let mut rules_hooks = None;
    let mut rules_replace = None;
    let mut rules_early = None;
    let mut rules_fanned = None;
    match args.what {
        Some(What::Afxdp(args)) => afxdp = Some(args),
        Some(What::Live(args)) => live = Some(args),
        Some(What::Classes(args)) => classes = Some(args),
        Some(What::Daemon(args)) => daemon = Some(args),
        Some(What::Check(args)) => check = Some(args),
        Some(What::Pifo(args)) => pifo = Some(args),
        Some(What::Limits(args)) => limits = Some(args),
        Some(What::Rules(args)) => rules = Some(args),
        Some(What::RulesHooks(args)) => rules_hooks = Some(args),
        Some(What::RulesEarly(args)) => rules_early = Some(args),
        Some(What::RulesFanned(args)) => rules_fanned = Some(args),
        Some(What::RulesReplace(args)) => rules_replace = Some(args),
        Some(What::Sched(args)) => sched = Some(args),
        Some(What::Engine(args)) => engine = Some(args),
        Some(What::Counters(args)) => counters = Some(args),
        Some(What::Offline(args)) => offline = Some(args),
        Some(What::Nfqueue(args)) => nfqueue = Some(args),
        Some(What::Shape(args)) => shape = Some(args),
        Some(What::Impair(args)) => impair = Some(args),
        Some(
            What::AfxdpForward { .. }
            | What::Answer(_)
            | What::Counted(_)
            | What::RulesLoad(_)
            | What::RulesMake(_),
        )
        | None => {}
    }
    let live = live.or_else(|| all.then(live::Args::usual));
    let live = part(live, live::run, live::LiveReport::text, text)?;
    let classes = classes.or_else(|| all.then(classes::Args::usual));
    let classes = part(classes, classes::run, classes::ClassesReport::text, text)?;
    let daemon = daemon.or_else(|| all.then(daemon::Args::usual));
    let daemon = part(daemon, daemon::run, daemon::DaemonReport::text, text)?;
    let check = check.or_else(|| all.then(check::Args::usual));
    let check = part(check, check::run, check::CheckReport::text, text)?;
    let pifo = pifo.or_else(|| all.then(pifo::Args::usual));
    let pifo = part(pifo, pifo::run, pifo::PifoReport::text, text)?;
    let limits = limits.or_else(|| all.then(limits::Args::usual));
    let limits = part(limits, limits::run, limits::LimitsReport::text, text)?;
    let rules = rules.or_else(|| all.then(rules::Args::usual));
    let rules = part(rules, rules::run, rules::RulesReport::text, text)?;
    let rules_hooks = rules_hooks.or_else(|| all.then(rules::hooks::Args::usual));
    let rules_hooks = part(
        rules_hooks,
        rules::hooks::run,
        rules::hooks::HooksReport::text,
        text,
    )?;
    let rules_replace = rules_replace.or_else(|| all.then(rules::replace::Args::usual));
    let rules_replace = part(
        rules_replace,
        rules::replace::run,
        rules::replace::ReplaceReport::text,
        text,
    )?;
    let rules_early = rules_early.or_else(|| all.then(rules::early::Args::usual));
    let rules_early = part(
        rules_early,
        rules::early::run,
        rules::early::EarlyReport::text,
        text,
    )?;
    let rules_fanned = rules_fanned.or_else(|| all.then(rules::hooks::Args::usual));
    let rules_fanned = part(
        rules_fanned,
        rules::fanned::run,
        rules::fanned::FannedReport::text,
        text,
    )?;
    let sched = sched.or_else(|| all.then(sched::Args::usual));
    let sched = part(sched, sched::run, sched::SchedReport::text, text)?;
    let engine = engine.or_else(|| all.then(engine::Args::usual));
    let engine = part(engine, engine::run, engine::EngineReport::text, text)?;
    let counters = counters.or_else(|| all.then(counters::Args::usual));
    let counters = part(
        counters,
        counters::run,
        counters::CountersReport::text,
        text,
    )?;
    let nfqueue = nfqueue.or_else(|| all.then(nfqueue::Args::usual));
    let nfqueue = part(nfqueue, nfqueue::run, nfqueue::NfqueueReport::text, text)?;
    let shape = shape.or_else(|| all.then(shape::Args::usual));
    let shape = part(shape, shape::run, shape::ShapeReport::text, text)?;
    let latency = part(
        all.then(shape::Args::latency),
        shape::run,
        shape::ShapeReport::text,
        text,
    )?;
    let impair = impair.or_else(|| all.then(impair::Args::usual));
    let impair = part(impair, impair::run, impair::ImpairReport::text, text)?;
    let offline = offline.or_else(|| all.then(offline::Args::usual));
    let offline = part(offline, offline::run, offline::OfflineReport::text, text)?;
    let afxdp = afxdp.or_else(|| all.then(afxdp::Args::usual));
    let afxdp = part(afxdp, afxdp::run, afxdp::AfxdpReport::text, text)?;
    if !text {
        let all = json!({
            "schema": 1, "machine": machine,
            "live": live, "classes": classes, "daemon": daemon, "check": check, "pifo": pifo, "limits": limits, "rules": rules,
            "rules_hooks": rules_hooks,
            "rules_replace": rules_replace,
            "rules_early": rules_early,
            "rules_fanned": rules_fanned,
            "sched": sched, "engine": engine, "counters": counters, "offline": offline, "afxdp": afxdp, "nfqueue": nfqueue,
            "shape": shape, "latency": latency, "impair": impair
        });
        println!("{all}");
    }
    Ok(())
}

/// Measures one part if it is requested, and prints it as text.
fn part<A, R>(
    args: Option<A>,
    run: impl Fn(&A) -> anyhow::Result<R>,
    to_text: impl Fn(&R) -> String,
    text: bool,
) -> anyhow::Result<Option<R>> {
    let report = args.map(|args| run(&args)).transpose()?;
    if let (true, Some(report)) = (text, &report) {
        print!("{}", to_text(report));
    }
    Ok(report)
}

/// The release binary in the directory of this program.
fn fairpath() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("fairpath");
    if !path.exists() {
        bail!(
            "{} is missing; build it (cargo build --release --package fairpath)",
            path.display()
        );
    }
    Ok(path)
}
