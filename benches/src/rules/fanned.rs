//! A tree of chains by destination on packets with random destinations: ns that they take more than without
//! rules, next to iptables-legacy and nftables with the same rules.
//!
//! Each peer has its own router, which keeps its rules during all rounds. All get the same packets. At the end
//! the counters of all rules show which of them the packets passed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Attached, Fan, Hook as Attachment, HookRules, Traffic};
use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{Family, Ruleset};
use serde::Serialize;

pub use super::hooks::Args;
use super::hooks::load_built;
use super::made::{self, Made};
use crate::measure::{Measured, Target};
use crate::scene::{Scene, attach_empty};
use crate::slice::{self, Plan};
use crate::table::{build as table, grouped};

/// Rules and chains of the sets.
const SETS: [(usize, usize); 2] = [(67_892, 18_329), (662_160, 151_426)];
/// All destinations of the sets.
const DESTINATIONS: [&str; 3] = ["16.0.0.0/4", "32.0.0.0/3", "64.0.0.0/3"];
/// Flows of the traffic, and bytes of its packets.
const FLOWS: u32 = 1000;
const BYTES: u32 = 64;
/// A tool that needs longer to load rules, or to print their counters, has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of the accepted packets, those that must have arrived.
const MIN_ARRIVED: f64 = 0.98;
/// The maximum difference of rules that a packet passes from their expected number.
const MAX_DIFFERENCE: f64 = 0.01;
/// Of the rules for hosts that random packets should meet, those that they must have met.
const MIN_HOSTS: f64 = 0.98;
/// The targets: added ns, as a share of those of a peer.
const TARGETS: [(&str, f64); 2] = [("iptables-legacy", 0.25), (WITHOUT_COUNTERS.name(), 1.05)];

/// Nanoseconds that a packet takes more than without rules.
#[derive(Debug, Serialize)]
struct FannedRow {
    set: String,
    /// By the counters of all peers.
    rules_passed: f64,
    ns_without_rules: Measured,
    peers: Vec<PeerRow>,
}

/// One of the peers.
#[derive(Debug, Serialize)]
struct PeerRow {
    peer: &'static str,
    /// `None`: see `failure`.
    added_ns: Option<Measured>,
    /// Of the same round, added ns of Fairpath as a share of those of this peer.
    share: Option<Measured>,
    load_seconds: Option<f64>,
    failure: Option<String>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct FannedReport {
    rows: Vec<FannedRow>,
    targets: Vec<Target>,
}

/// The program that evaluates the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    None,
    Ours(Lookups, CounterMode),
    Tool {
        name: &'static str,
        restore: &'static str,
        save: &'static str,
    },
}

const WITHOUT_COUNTERS: Peer = Peer::Ours(Lookups::Estimated, CounterMode::None);
const PEERS: [Peer; 6] = [
    Peer::None,
    Peer::Ours(Lookups::Estimated, CounterMode::Exact),
    WITHOUT_COUNTERS,
    Peer::Ours(Lookups::Never, CounterMode::Exact),
    Peer::Tool {
        name: "iptables-legacy",
        restore: "iptables-legacy-restore",
        save: "iptables-legacy-save",
    },
    Peer::Tool {
        name: "nftables, the same rules",
        restore: "iptables-nft-restore",
        save: "iptables-nft-save",
    },
];

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Peer::None => "without rules",
            WITHOUT_COUNTERS => "Fairpath, no counters",
            Peer::Ours(Lookups::Never, _) => "Fairpath, in order",
            Peer::Ours(..) => "Fairpath",
            Peer::Tool { name, .. } => name,
        }
    }
}

/// A router with the rules of a peer.
struct Loaded {
    peer: Peer,
    hooks: Option<(HookRules, Ruleset, Built)>,
    /// A veth takes the generator's frames only with an XDP program.
    _takes_frames: (Vec<Attached>, Empty),
    scene: Scene,
    load_seconds: f64,
    ns: Vec<f64>,
    arrived: u64,
}

impl Loaded {
    fn new(peer: Peer, made: &Made) -> anyhow::Result<Loaded> {
        let scene = Scene::build()?;
        scene.route_to_servers(&DESTINATIONS)?;
        let takes_frames = || -> anyhow::Result<_> {
            let mut empty = Empty::load().context("load empty programs")?;
            Ok((attach_empty(&mut empty, &[Attachment::Xdp])?, empty))
        };
        let takes_frames = scene.router.enter(takes_frames)??;
        let start = Instant::now();
        let hooks = match peer {
            Peer::None => None,
            Peer::Ours(lookups, counters) => {
                let ruleset = super::rules(made, Family::Ipv4)?;
                let built = build(&ruleset, None, lookups)?;
                let load = || load_built(built.clone(), Family::Ipv4, counters);
                Some((scene.router.enter(load)??, ruleset, built))
            }
            Peer::Tool { restore, .. } => {
                let file = tempfile::NamedTempFile::new()?;
                std::fs::write(&file, &made.text)?;
                let mut command = scene.router.command_without_sysfs(restore);
                command.arg(file.path());
                scene.router.spawn(command)?.finish(PATIENCE)?;
                None
            }
        };
        Ok(Loaded {
            peer,
            scene,
            hooks,
            load_seconds: start.elapsed().as_secs_f64(),
            ns: Vec::new(),
            arrived: 0,
            _takes_frames: takes_frames,
        })
    }

    fn measure(&mut self, args: &Args, fan: Fan) -> anyhow::Result<()> {
        let traffic = Traffic {
            fan: Some(fan),
            ..self.scene.traffic(FLOWS, BYTES)
        };
        let plan = Plan {
            cpu: 0,
            watcher_cpu: 0,
            time: Duration::from_millis(args.millis),
            statistics: false,
        };
        let slice = slice::run(&self.scene, &traffic, None, &plan)?;
        self.ns.push(1e9 / slice.pps);
        self.arrived += slice.arrived.packets();
        Ok(())
    }

    /// Packets of the rules of each chain, in order.
    fn counters(&self) -> anyhow::Result<Vec<Vec<u64>>> {
        match (&self.hooks, self.peer) {
            (Some((hooks, ruleset, built)), _) => {
                let memory = hooks.memory(Family::Ipv4 as usize);
                let memory = memory.context("the rules were replaced")?;
                let tables = ruleset.tables.iter().enumerate();
                let chains =
                    tables.flat_map(|(at, table)| table.chains().map(move |chain| (at, chain)));
                let counts = chains.map(|(table, (id, chain))| {
                    let rules = 0..chain.rules.len();
                    let id = |rule| built.rule_id(table, id, rule);
                    rules.map(|rule| memory.counter(id(rule)).packets).collect()
                });
                Ok(counts.collect())
            }
            (None, Peer::Tool { save, .. }) => self.saved_counters(save),
            _ => bail!("{} has no counters", self.peer.name()),
        }
    }

    /// Those of lines `[PACKETS:BYTES] -A CHAIN ...`, which have the rules of a chain together.
    fn saved_counters(&self, save: &str) -> anyhow::Result<Vec<Vec<u64>>> {
        let file = tempfile::NamedTempFile::new()?;
        let mut command = self.scene.router.command_without_sysfs("sh");
        command
            .args(["-c", &format!("exec {save} -c -t filter >\"$1\""), "sh"])
            .arg(file.path())
            .stdout(Stdio::null());
        self.scene.router.spawn(command)?.finish(PATIENCE)?;
        let text = std::fs::read_to_string(&file)?;
        let mut chains: Vec<Vec<u64>> = Vec::new();
        let mut last = "";
        for line in text.lines().filter(|line| line.starts_with('[')) {
            let mut words = line.split(' ');
            let packets = words.next().and_then(|word| word[1..].split(':').next());
            let packets = packets.context("a counter")?.parse()?;
            let chain = words.nth(1).context("a chain")?;
            if chain != last || chains.is_empty() {
                chains.push(Vec::new());
                last = chain;
            }
            chains.last_mut().context("a chain")?.push(packets);
        }
        Ok(chains)
    }

    /// Rules that a packet passed until its verdict, in order; an error if they are not those of random
    /// destinations. A rule of the tree that matches ends its chain, so its place is the number of rules
    /// that the packet passed there.
    fn rules_passed(&self, made: &Made, fan: Fan) -> anyhow::Result<f64> {
        let name = self.peer.name();
        let chains = self.counters()?;
        let rules: usize = chains.iter().map(Vec::len).sum();
        ensure!(rules == made.rules, "{name} has {rules} rules");
        let (mut matched, mut passed, mut hosts) = (0, 0, 0u64);
        for chain in &chains {
            for (packets, place) in chain.iter().zip(1..) {
                matched += packets;
                passed += packets * place;
                hosts += u64::from(*packets > 0);
            }
        }
        let levels = fan.each.len() as u64;
        let accepted = matched / levels;
        ensure!(
            matched % levels == 0 && accepted >= self.arrived,
            "{name}: {matched} packets were counted by rules, which is not {levels} times {}",
            self.arrived
        );
        ensure!(
            self.arrived as f64 >= MIN_ARRIVED * accepted as f64,
            "{name}: rules accepted {accepted} packets, and {} arrived",
            self.arrived
        );
        let [passed, accepted] = [passed, accepted].map(|number| number as f64);
        let mean = passed / accepted;
        let expected: f64 = fan.each.iter().map(|n| f64::from(n + 1) / 2.0).sum();
        ensure!(
            (mean - expected).abs() <= MAX_DIFFERENCE * expected,
            "{name}: a packet passed {mean:.2} rules, and {expected:.2} are expected"
        );
        let all: f64 = fan.each.iter().map(|n| f64::from(*n)).product();
        // Each round has the same packets.
        let different = accepted / self.ns.len() as f64;
        let expected = all * (1.0 - (-different / all).exp());
        ensure!(
            hosts as f64 >= MIN_HOSTS * expected,
            "{name}: packets met {hosts} rules, and {expected:.0} are expected"
        );
        Ok(mean)
    }
}

fn row(args: &Args, rules: usize, chains: usize) -> anyhow::Result<FannedRow> {
    let made = made::fanned(rules, chains);
    let fan = Fan {
        each: made::fans(rules, chains),
    };
    let set = format!("{} rules", grouped(rules as u64));
    let mut all = Vec::new();
    for peer in PEERS {
        eprintln!("rules-fanned: {set}: {}", peer.name());
        let loaded = Loaded::new(peer, &made);
        // A peer that cannot load this number of rules is no failure of the bench.
        match peer {
            Peer::Tool { .. } => all.push(loaded.map_err(|error| (peer, format!("{error:#}")))),
            _ => all.push(Ok(loaded?)),
        }
    }
    for round in 1..=args.rounds {
        eprintln!("rules-fanned: {set}: round {round} of {}", args.rounds);
        for loaded in all.iter_mut().flatten() {
            loaded.measure(args, fan)?;
        }
    }
    let mut passed = Vec::new();
    let uncounted = [Peer::None, WITHOUT_COUNTERS];
    for loaded in all.iter().flatten() {
        if uncounted.contains(&loaded.peer) {
            continue;
        }
        eprintln!("rules-fanned: {set}: counters of {}", loaded.peer.name());
        passed.push(loaded.rules_passed(&made, fan)?);
    }
    let added = |base: &Measured, one: &Loaded| {
        Measured::of(one.ns.clone()).pairs(base, |one, base| one - base)
    };
    let mut measured = all.iter().flatten();
    let base = measured.next().context("a base")?;
    let base = Measured::of(base.ns.clone());
    let ours = added(&base, measured.next().context("our rules")?);
    let peers = all[1..].iter().map(|one| match one {
        Ok(loaded) => {
            let added = added(&base, loaded);
            PeerRow {
                peer: loaded.peer.name(),
                share: Some(ours.pairs(&added, |ours, peer| ours / peer)),
                added_ns: Some(added),
                load_seconds: Some(loaded.load_seconds),
                failure: None,
            }
        }
        Err((peer, failure)) => PeerRow {
            peer: peer.name(),
            added_ns: None,
            share: None,
            load_seconds: None,
            failure: Some(failure.clone()),
        },
    });
    Ok(FannedRow {
        set,
        rules_passed: passed.iter().sum::<f64>() / passed.len() as f64,
        peers: peers.collect(),
        ns_without_rules: base,
    })
}

/// Measures it all.
///
/// # Errors
/// No root, or packets did not pass the rules that they should.
pub fn run(args: &Args) -> anyhow::Result<FannedReport> {
    let rows = SETS
        .iter()
        .map(|(rules, chains)| row(args, *rules, *chains))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut targets = Vec::new();
    for row in &rows {
        for (peer, most) in TARGETS {
            let found = row.peers.iter().find(|one| one.peer == peer);
            if let Some(share) = found.and_then(|found| found.share.as_ref()) {
                let set = &row.set;
                let name = format!("{set}, random destinations: added ns, as a share of {peer}");
                targets.push(Target::at_most(name, share.median, most, ""));
            }
        }
    }
    Ok(FannedReport { rows, targets })
}

impl FannedReport {
    /// Tables.
    pub fn text(&self) -> String {
        let mut out = String::from(
            "\nloaded rules: ns of a forwarded packet to a random destination more than without rules\n",
        );
        let mut rows = Vec::new();
        let mut failures = String::new();
        for row in &self.rows {
            for one in &row.peers {
                let cell = |m: &Option<Measured>, digits: usize| match m {
                    Some(m) => format!(
                        "{:.digits$} ({:.digits$} to {:.digits$})",
                        m.median, m.min, m.most
                    ),
                    None => "-".to_owned(),
                };
                let seconds = one
                    .load_seconds
                    .map_or("-".to_owned(), |s| format!("{s:.1}"));
                rows.push(vec![
                    row.set.clone(),
                    format!("{:.1}", row.rules_passed),
                    format!("{:.0}", row.ns_without_rules.median),
                    one.peer.to_owned(),
                    cell(&one.added_ns, 0),
                    cell(&one.share, 3),
                    seconds,
                ]);
                if let Some(failure) = &one.failure {
                    failures += &format!("  {}, {}: not measured: {failure}\n", row.set, one.peer);
                }
            }
        }
        let head = [
            "set",
            "rules passed",
            "ns without",
            "peer",
            "added ns",
            "Fairpath / peer",
            "load s",
        ];
        out.push_str(&table(&head, &rows));
        out.push_str(&failures);
        for target in &self.targets {
            out.push_str(&target.text());
        }
        out
    }
}
