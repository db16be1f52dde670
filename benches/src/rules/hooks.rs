//! Loaded rules: the round trip of pings, and nanoseconds of forwarded packets, next to iptables-legacy
//! and nftables with sets. The base has no rules.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{HOOK_FAMILIES, Hook as Attachment, HookRules, HookSet, NewRules, Traffic};
use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, Used, build};
use fairpath_rules::{Family, Names, read};
use fairpath_testbed::{Netns, Testbed};
use serde::Serialize;

use super::made;
use crate::measure::{Measured, Target};
use crate::scene::{Scene, attach_empty};
use crate::slice::{self, Plan};
use crate::table::build as table;

/// Rules of an ordinary set.
const ORDINARY: [usize; 3] = [30, 80, 200];
/// Flows of forwarded traffic, and bytes of its packets.
const FLOWS: u32 = 1000;
const BYTES: u32 = 500;
/// Elements of a large set.
const PREFIXES: usize = 100_000;
/// Pings of a round.
const PINGS: u32 = 2000;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds of each case
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: u32,
    /// Milliseconds of traffic
    #[arg(long, default_value_t = 1000)]
    pub(super) millis: u64,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            rounds: 5,
            millis: 1000,
        }
    }
}

/// Milliseconds of a round trip.
#[derive(Debug, Serialize)]
struct PingRow {
    case: String,
    ms: Measured,
}

/// Nanoseconds that a packet takes more than without rules.
#[derive(Debug, Serialize)]
struct PacketRow {
    case: String,
    /// Connection tracking, without rules: each of the others has it, too. Empty without rules that read it.
    tracking: Measured,
    ours: Measured,
    legacy: Measured,
    nft: Measured,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct HooksReport {
    pings: Vec<PingRow>,
    packets: Vec<PacketRow>,
    targets: Vec<Target>,
}

/// Loads rules in the network namespace of the caller.
fn load(
    rules: &str,
    family: Family,
    lookups: Lookups,
    mode: CounterMode,
) -> anyhow::Result<HookRules> {
    let names = Names::default();
    let ruleset = read(&mut rules.as_bytes(), "made", family, &names)?.complete()?;
    load_built(build(&ruleset, None, lookups)?, family, mode)
}

/// The same with a built image, whose counters keep their numbers.
pub(super) fn load_built(
    built: Built,
    family: Family,
    mode: CounterMode,
) -> anyhow::Result<HookRules> {
    let placed = Used::default().place(built, None)?;
    let mut sets = [None; HOOK_FAMILIES];
    sets[family as usize] = Some(HookSet {
        image: &placed.image,
        counters: &placed.counters,
        slots: &placed.slots,
        tables: &placed.tables,
        needs: placed.needs,
        rules: 0,
        egress: false,
        limits: false,
    });
    let mut loaded = HookRules::load()?;
    loaded.set(&NewRules {
        sets,
        mode,
        ..NewRules::default()
    })?;
    loaded.attach_used()?;
    Ok(loaded)
}

/// Runs a tool with a file.
fn give(netns: &Netns, tool: &[&str], text: &str) -> anyhow::Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, text)?;
    let path = file.path().to_str().context("a path in UTF-8")?;
    let words: Vec<&str> = tool.iter().copied().chain([path]).collect();
    netns.run(&words)?;
    Ok(())
}

/// The mean round trip in ms.
fn ping(netns: &Netns) -> anyhow::Result<f64> {
    let count = PINGS.to_string();
    let out = netns.run(&["ping", "-6", "-A", "-q", "-c", &count, "::1"])?;
    let line = out.lines().find(|line| line.starts_with("rtt "));
    let mean = line.and_then(|line| line.split('/').nth(4));
    Ok(mean.context("ping prints a mean")?.parse()?)
}

fn pings(args: &Args) -> anyhow::Result<Vec<PingRow>> {
    let made = made::flat(100, 1000);
    let testbed = Testbed::new();
    let [none, legacy, ours] = ["none", "legacy", "ours"].map(|name| testbed.netns(name));
    let (none, legacy, ours) = (none?, legacy?, ours?);
    for netns in [&none, &legacy, &ours] {
        netns.run(&["ip", "link", "set", "lo", "up"])?;
    }
    give(&legacy, &["ip6tables-legacy-restore"], &made.text)?;
    let cases = [
        (
            "exact counters, in order",
            Lookups::Never,
            CounterMode::Exact,
        ),
        (
            "no counters, with lookups",
            Lookups::Estimated,
            CounterMode::None,
        ),
    ];
    let mut each = [const { Vec::new() }; 4];
    for _ in 0..args.rounds {
        each[0].push(ping(&none)?);
        each[1].push(ping(&legacy)?);
        for (at, (_, lookups, mode)) in cases.iter().enumerate() {
            let loaded = ours.enter(|| load(&made.text, Family::Ipv6, *lookups, *mode))?;
            each[2 + at].push(ping(&ours)?);
            drop(loaded?);
        }
    }
    let names = ["no rules", "ip6tables-legacy", cases[0].0, cases[1].0];
    let rows = names.iter().zip(each).map(|(case, each)| PingRow {
        case: (*case).to_owned(),
        ms: Measured::of(each),
    });
    Ok(rows.collect())
}

/// The head of an ordinary set: answers first, the rest accepts the traffic of the scene at its end.
fn ordinary(rules: usize) -> (String, String) {
    let service = |at: usize| (at / 250, at % 250, 1000 + at);
    let mut text = String::from(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate INVALID -j DROP\n",
    );
    let mut members = String::new();
    for (a, b, port) in (0..rules - 3).map(service) {
        let _ = writeln!(
            text,
            "-A FORWARD -d 10.128.{a}.{b} -p tcp -m tcp --dport {port} -j ACCEPT"
        );
        let _ = write!(members, "10.128.{a}.{b} . {port}, ");
    }
    text.push_str("-A FORWARD -s 10.64.0.0/10 -j ACCEPT\nCOMMIT\n");
    let nft = format!(
        "add table ip bench\n\
         add chain ip bench forward {{ type filter hook forward priority 0; policy drop; }}\n\
         add set ip bench services {{ type ipv4_addr . inet_service; elements = {{ {members} }}; }}\n\
         add rule ip bench forward ct state vmap {{ established : accept, related : accept, invalid : drop }}\n\
         add rule ip bench forward ip daddr . tcp dport @services counter accept\n\
         add rule ip bench forward ip saddr 10.64.0.0/10 counter accept\n"
    );
    (text, nft)
}

/// Prefixes of which no packet is, in a chain that each packet meets.
fn blocklist() -> (String, String) {
    let prefix = |at: usize| format!("{}.{}.{}.0/24", 11 + at / 65_536, at / 256 % 256, at % 256);
    let mut text =
        String::from("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    let mut members = Vec::new();
    for prefix in (0..PREFIXES).map(prefix) {
        let _ = writeln!(text, "-A FORWARD -s {prefix} -j DROP");
        members.push(prefix);
    }
    text.push_str("COMMIT\n");
    let members = members.join(", ");
    let nft = format!(
        "add table ip bench\n\
         add chain ip bench forward {{ type filter hook forward priority 0; }}\n\
         add set ip bench blocked {{ type ipv4_addr; flags interval; elements = {{ {members} }}; }}\n\
         add rule ip bench forward ip saddr @blocked counter drop\n"
    );
    (text, nft)
}

/// Nanoseconds that rules add to a packet that is forwarded.
struct Forwarding<'a> {
    args: &'a Args,
    scene: &'a Scene,
    traffic: Traffic,
}

impl Forwarding<'_> {
    fn ns(&self) -> anyhow::Result<f64> {
        let plan = Plan {
            cpu: 0,
            watcher_cpu: 0,
            time: Duration::from_millis(self.args.millis),
            statistics: false,
        };
        Ok(1e9 / slice::run(self.scene, &self.traffic, None, &plan)?.pps)
    }

    /// `legacy`: false without it, where it would take minutes to walk.
    fn row(&self, case: &str, rules: &str, nft: &str, legacy: bool) -> anyhow::Result<PacketRow> {
        let router = &self.scene.router;
        let mut each = [const { Vec::new() }; 5];
        for _ in 0..self.args.rounds {
            each[0].push(self.ns()?);
            let tracked = rules.contains("conntrack");
            {
                let table = "add table inet keep\nadd chain inet keep never\n\
                    add rule inet keep never ct state new\n";
                if tracked {
                    give(router, &["nft", "-f"], table)?;
                    each[4].push(self.ns()?);
                }
                let loaded = load(rules, Family::Ipv4, Lookups::Estimated, CounterMode::Exact)?;
                each[1].push(self.ns()?);
                drop(loaded);
                router.run(&["nft", "flush", "ruleset"])?;
            }
            if legacy {
                give(router, &["iptables-legacy-restore"], rules)?;
                each[2].push(self.ns()?);
                let empty = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
                give(router, &["iptables-legacy-restore"], empty)?;
            }
            give(router, &["nft", "-f"], nft)?;
            each[3].push(self.ns()?);
            router.run(&["nft", "flush", "ruleset"])?;
        }
        let [base, ours, legacy, nft, tracking] = each.map(Measured::of);
        let more = |one: Measured| one.pairs(&base, |one, base| one - base);
        Ok(PacketRow {
            case: case.to_owned(),
            tracking: more(tracking),
            ours: more(ours),
            legacy: more(legacy),
            nft: more(nft),
        })
    }
}

fn packets(args: &Args) -> anyhow::Result<Vec<PacketRow>> {
    let scene = Scene::build()?;
    let measure = || -> anyhow::Result<Vec<PacketRow>> {
        let mut empty = Empty::load().context("load empty programs")?;
        let _takes_frames = attach_empty(&mut empty, &[Attachment::Xdp])?;
        let forwarding = Forwarding {
            args,
            traffic: scene.traffic(FLOWS, BYTES),
            scene: &scene,
        };
        // Generated segments have no checksums, and begin in the middle of their connections.
        for (name, value) in [
            ("checksum", "0"),
            ("tcp_be_liberal", "1"),
            ("tcp_loose", "1"),
        ] {
            let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
            std::fs::write(&path, value).with_context(|| format!("write {path}"))?;
        }
        let mut rows = Vec::new();
        for rules in ORDINARY {
            let (text, nft) = ordinary(rules);
            let case = format!("{rules} rules, connections first");
            rows.push(forwarding.row(&case, &text, &nft, true)?);
        }
        let (text, nft) = blocklist();
        rows.push(forwarding.row("100,000 prefixes", &text, &nft, false)?);
        Ok(rows)
    };
    scene.router.enter(measure)?
}

/// Measures it all.
///
/// # Errors
/// No root, or a peer is missing.
pub fn run(args: &Args) -> anyhow::Result<HooksReport> {
    let pings = pings(args)?;
    let packets = packets(args)?;
    Ok(HooksReport {
        targets: targets(&pings, &packets),
        pings,
        packets,
    })
}

fn targets(pings: &[PingRow], packets: &[PacketRow]) -> Vec<Target> {
    let (none, legacy) = (&pings[0].ms, &pings[1].ms);
    let ratio = pings[2].ms.pairs(legacy, |ours, legacy| ours / legacy);
    let mut all = vec![Target::at_most(
        "100,000 rules in order: round trip, as a share of ip6tables-legacy".to_owned(),
        ratio.median,
        0.5,
        "",
    )];
    // A ping is four packets: two that leave, two that arrive, of which INPUT has rules for two.
    let more = pings[3]
        .ms
        .pairs(none, |ours, none| (ours - none) * 1e3 / 2.0);
    all.push(Target::at_most(
        "the same without counters: a packet more than without rules".to_owned(),
        more.median,
        1.0,
        "µs",
    ));
    for row in packets {
        for (peer, ns) in [("iptables-legacy", &row.legacy), ("nftables", &row.nft)] {
            if !ns.each.is_empty() {
                all.push(Target::at_most(
                    format!("{}: added ns, as a share of {peer}", row.case),
                    row.ours.median / ns.median,
                    1.0,
                    "",
                ));
            }
        }
    }
    all
}

impl HooksReport {
    /// Tables.
    pub fn text(&self) -> String {
        let cell = |m: &Measured| match m.each.is_empty() {
            true => "-".to_owned(),
            false => format!("{:.3} ({:.3} to {:.3})", m.median, m.min, m.most),
        };
        let pings: Vec<Vec<String>> = self
            .pings
            .iter()
            .map(|row| vec![row.case.clone(), cell(&row.ms)])
            .collect();
        let packets: Vec<Vec<String>> = self
            .packets
            .iter()
            .map(|row| {
                let columns = [&row.tracking, &row.ours, &row.legacy, &row.nft];
                let cells = columns.map(|m| match m.each.is_empty() {
                    true => "-".to_owned(),
                    false => format!("{:.0} ({:.0} to {:.0})", m.median, m.min, m.most),
                });
                [vec![row.case.clone()], cells.to_vec()].concat()
            })
            .collect();
        let mut out = String::from("\nloaded rules: ping -6 -A ::1, 100 chains of 1,000 rules\n");
        out.push_str(&table(&["case", "ms"], &pings));
        out.push_str("\nloaded rules: ns of a forwarded packet more than without rules\n");
        let head = [
            "case",
            "connection tracking alone",
            "Fairpath",
            "iptables-legacy",
            "nftables with sets",
        ];
        out.push_str(&table(&head, &packets));
        for target in &self.targets {
            out.push_str(&target.text());
        }
        out
    }
}
