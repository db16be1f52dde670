//! A blocklist of 100,000 prefixes in the driver (`load --early-drop`), next to a set of nftables at ingress:
//! packets that are dropped a second on one CPU, with the generator on the same CPU.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Hook, Injector, Traffic};
use fairpath_testbed::Netns;
use serde::Serialize;

pub use super::hooks::Args;
use crate::measure::{Measured, Target};
use crate::scene::{LAN, Scene, WAN, attach_empty};
use crate::slice::settle;
use crate::table::build as table;

/// Elements of the blocklist.
const PREFIXES: usize = 100_000;
/// Flows of the flood, and bytes of its packets.
const FLOWS: u32 = 10_000;
const BYTES: u32 = 64;
/// Packets of one call of the generator.
const CALL: u32 = 500_000;
/// Of all packets, those that must have been dropped.
const MIN_DROPPED: f64 = 0.98;

/// Millions of packets a second.
#[derive(Debug, Serialize)]
pub struct EarlyReport {
    ours: Measured,
    nft: Measured,
    targets: Vec<Target>,
}

/// The blocklist for iptables and for nft. It has the hosts of the scene and other networks.
fn blocklist() -> (String, String) {
    let hosts = ["10.64.0.0/16", "10.128.0.0/16"].map(str::to_owned);
    let others = (0..PREFIXES - hosts.len())
        .map(|at| format!("{}.{}.{}.0/24", 11 + at / 65_536, at / 256 % 256, at % 256));
    let prefixes: Vec<String> = others.chain(hosts).collect();
    let mut text = String::from("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    for prefix in &prefixes {
        let _ = writeln!(text, "-A PREROUTING -s {prefix} -j DROP");
    }
    text.push_str("COMMIT\n");
    let members = prefixes.join(", ");
    let mut nft = format!(
        "add table netdev bench\n\
         add set netdev bench blocked {{ type ipv4_addr; flags interval; elements = {{ {members} }}; }}\n"
    );
    for name in [LAN, WAN] {
        let _ = write!(
            nft,
            "add chain netdev bench {name} {{ type filter hook ingress device {name} priority 0; }}\n\
             add rule netdev bench {name} ip saddr @blocked counter drop\n"
        );
    }
    (text, nft)
}

/// Millions of packets a second that were dropped, by a number that the router has.
fn flood(
    scene: &Scene,
    traffic: &Traffic,
    time: Duration,
    dropped: &dyn Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let before = dropped()?;
    let send = || -> anyhow::Result<(u64, Duration)> {
        settle(0)?;
        let injector = Injector::new(traffic)?;
        let started = Instant::now();
        while started.elapsed() < time {
            injector.send(CALL)?;
        }
        // The first segments have no ACKs.
        let sent = injector.sent().saturating_sub(traffic.lag.into());
        Ok((sent, started.elapsed()))
    };
    let (sent, elapsed) = scene.outside.enter(send)??;
    let dropped = dropped()? - before;
    if (dropped as f64) < MIN_DROPPED * sent as f64 {
        bail!("of {sent} packets only {dropped} were dropped");
    }
    Ok(dropped as f64 / elapsed.as_secs_f64() / 1e6)
}

/// Runs a command in the router, and returns its output.
fn output(router: &Netns, words: &[&str]) -> anyhow::Result<String> {
    let mut command = router.command_without_sysfs(words[0]);
    let output = command.args(&words[1..]).output()?;
    if !output.status.success() {
        bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The sum of the counters of nftables.
fn counted(router: &Netns) -> anyhow::Result<u64> {
    let mut sum = 0;
    for name in [LAN, WAN] {
        let chain = output(router, &["nft", "list", "chain", "netdev", "bench", name])?;
        let number = chain.split("counter packets ").nth(1);
        let number = number.and_then(|rest| rest.split(' ').next());
        sum += number.context("nft prints a counter")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Measures it.
///
/// # Errors
/// No root, or a peer is missing.
pub fn run(args: &Args) -> anyhow::Result<EarlyReport> {
    let scene = Scene::build()?;
    let router = &scene.router;
    let traffic = scene.traffic(FLOWS, BYTES);
    let time = Duration::from_millis(args.millis);
    let place = tempfile::tempdir()?;
    let path = |name: &str| -> anyhow::Result<String> {
        let path = place.path().join(name);
        Ok(path.to_str().context("a path in UTF-8")?.to_owned())
    };
    let (text, nft) = blocklist();
    let (rules, set, pins) = (path("rules.v4")?, path("rules.nft")?, path("pins")?);
    std::fs::write(&rules, text)?;
    std::fs::write(&set, nft)?;
    let fairpath = crate::fairpath()?;
    let fairpath = fairpath.to_str().context("a path in UTF-8")?;
    let dropped_early = || -> anyhow::Result<u64> {
        let words = [
            fairpath, "rules", "show", "--format", "json", "--pins", &pins,
        ];
        let shown: serde_json::Value = serde_json::from_str(&output(router, &words)?)?;
        let number = shown["packets_dropped_early"].as_u64();
        number.context("show has the number of dropped packets")
    };
    let load = [
        fairpath,
        "rules",
        "load",
        &rules,
        "--pins",
        &pins,
        "--early-drop",
        LAN,
        "--early-drop",
        WAN,
    ];
    let mut each = [const { Vec::new() }; 2];
    for _ in 0..args.rounds {
        output(router, &load)?;
        each[0].push(flood(&scene, &traffic, time, &dropped_early)?);
        output(router, &[fairpath, "rules", "unload", "--pins", &pins])?;
        // A veth takes the generator's frames only with an XDP program.
        let empty = || -> anyhow::Result<f64> {
            let mut empty = Empty::load().context("load empty programs")?;
            let _takes_frames = attach_empty(&mut empty, &[Hook::Xdp])?;
            output(router, &["nft", "-f", &set])?;
            flood(&scene, &traffic, time, &|| counted(router))
        };
        each[1].push(router.enter(empty)??);
        output(router, &["nft", "flush", "ruleset"])?;
    }
    nix::mount::umount(&pins[..])?;
    let [ours, nft] = each.map(Measured::of);
    let ratio = ours.pairs(&nft, |ours, nft| ours / nft);
    let name = "100,000 prefixes: packets dropped a second, as a multiple of nftables at ingress";
    let target = Target::at_least(name.to_owned(), ratio.median, 1.0, "");
    Ok(EarlyReport {
        targets: vec![target],
        ours,
        nft,
    })
}

impl EarlyReport {
    /// A table.
    pub fn text(&self) -> String {
        let cell = |m: &Measured| format!("{:.2} ({:.2} to {:.2})", m.median, m.min, m.most);
        let rows = vec![vec![
            PREFIXES.to_string(),
            cell(&self.ours),
            cell(&self.nft),
        ]];
        let mut out = String::from(
            "\nloaded rules: millions of packets a second that one CPU makes and drops\n",
        );
        let head = ["prefixes", "driver (--early-drop)", "nftables at ingress"];
        out.push_str(&table(&head, &rows));
        for target in &self.targets {
            out.push_str(&target.text());
        }
        out
    }
}
