//! A chain of 1,000 rules is replaced in loaded rules: from the start of the command to the first packet
//! that meets the new chain, next to iptables-legacy and nft in namespaces with the same rules.

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_testbed::{Netns, Testbed};
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::table::build as table;

/// Other rules that are loaded, in chains of 1,000.
const OTHERS: [usize; 3] = [0, 100, 662];
const RULES: usize = 1000;
/// Of the packets that meet the chain.
const PORT: u16 = 7001;
/// A command that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The target for all sizes.
const TARGET_MS: f64 = 10.0;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Replacements of each case
    #[arg(long, default_value_t = 10)]
    rounds: u32,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args { rounds: 10 }
    }
}

/// Milliseconds of a replacement.
#[derive(Debug, Serialize)]
struct ReplaceRow {
    rules: usize,
    ours: Measured,
    legacy: Measured,
    nft: Measured,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct ReplaceReport {
    rows: Vec<ReplaceRow>,
    targets: Vec<Target>,
}

/// Source and destination of a rule that no packet of the measurement has.
fn addresses(number: usize) -> (String, String) {
    let address = |first: usize| format!("{first}.{}.{}.1", number / 250 % 250, number % 250);
    (address(20 + number / 62_500), address(40))
}

/// Rules of the chain, the last of which decides about the packets.
fn chain(target: &str) -> String {
    let rules = (0..RULES - 1).map(|number| {
        let (source, destination) = addresses(number);
        format!("-A mine -s {source} -d {destination} -j DROP\n")
    });
    rules.collect::<String>() + &format!("-A mine -j {target}\n")
}

fn nft_chain(target: &str) -> String {
    let rules = (0..RULES - 1).map(|number| {
        let (source, destination) = addresses(number);
        format!("add rule ip bench mine ip saddr {source} ip daddr {destination} counter drop\n")
    });
    let last = format!("add rule ip bench mine counter {target}\n");
    "flush chain ip bench mine\n".to_owned() + &rules.collect::<String>() + &last
}

/// A set with other chains, as text for iptables and for nft.
fn sets(others: usize) -> (String, String) {
    let mut text = String::from("*filter\n:mine - [0:0]\n");
    let mut nft = String::from(
        "add table ip bench\nadd chain ip bench mine\n\
         add chain ip bench input { type filter hook input priority 0; }\n\
         add chain ip bench forward { type filter hook forward priority 0; }\n",
    );
    for other in 0..others {
        let _ = writeln!(text, ":other{other} - [0:0]");
        let _ = writeln!(nft, "add chain ip bench other{other}");
    }
    let _ = writeln!(text, "-A INPUT -p udp -m udp --dport {PORT} -j mine");
    let _ = writeln!(nft, "add rule ip bench input udp dport {PORT} jump mine");
    for other in 0..others {
        let _ = writeln!(text, "-A FORWARD -j other{other}");
        let _ = writeln!(nft, "add rule ip bench forward jump other{other}");
        for number in other * RULES..(other + 1) * RULES {
            let (source, destination) = addresses(number);
            let _ = writeln!(text, "-A other{other} -s {source} -d {destination} -j DROP");
            let _ = writeln!(
                nft,
                "add rule ip bench other{other} ip saddr {source} ip daddr {destination} counter drop"
            );
        }
    }
    (text + &chain("DROP") + "COMMIT\n", nft + &nft_chain("drop"))
}

/// A namespace with rules, and the commands that replace the chain: it drops or accepts.
struct Peer {
    netns: Netns,
    replace: [Vec<String>; 2],
}

impl Peer {
    fn new(netns: Netns, load: &[&str], replace: [Vec<String>; 2]) -> anyhow::Result<Peer> {
        netns.run(&["ip", "link", "set", "lo", "up"])?;
        // Large sets take longer than the deadline of usual tools.
        let mut command = netns.command_without_sysfs(load[0]);
        let output = command.args(&load[1..]).output()?;
        if !output.status.success() {
            bail!("{load:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Peer { netns, replace })
    }

    /// Milliseconds from the command that accepts to the first packet.
    fn ms(&self) -> anyhow::Result<f64> {
        let command = |words: &[String]| -> Command {
            let mut command = self.netns.command_without_sysfs(&words[0]);
            command.args(&words[1..]).stdout(Stdio::null());
            command
        };
        let status = command(&self.replace[0]).status()?;
        if !status.success() {
            bail!("{:?} failed", self.replace[0]);
        }
        let sockets = self.netns.enter(|| -> std::io::Result<_> {
            let receiver = UdpSocket::bind(("127.0.0.1", PORT))?;
            receiver.set_nonblocking(true)?;
            Ok((receiver, UdpSocket::bind("127.0.0.1:0")?))
        });
        let (receiver, sender) = sockets??;
        let begin = Instant::now();
        let mut child = command(&self.replace[1]).spawn()?;
        let mut buffer = [0; 8];
        let ms = loop {
            sender.send_to(b"x", ("127.0.0.1", PORT))?;
            if receiver.recv(&mut buffer).is_ok() {
                break begin.elapsed().as_secs_f64() * 1e3;
            }
            if begin.elapsed() > PATIENCE {
                bail!("{:?}: no packet met the new chain", self.replace[1]);
            }
            // The command needs a processor as well.
            std::thread::sleep(Duration::from_micros(100));
        };
        child.wait()?;
        Ok(ms)
    }
}

fn row(args: &Args, others: usize, place: &Path) -> anyhow::Result<ReplaceRow> {
    let fairpath = crate::fairpath()?;
    let fairpath = fairpath.to_str().context("a path in UTF-8")?;
    let file = |name: &str, text: &str| -> anyhow::Result<String> {
        let path: PathBuf = place.join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("a path in UTF-8")?.to_owned())
    };
    let (text, nft) = sets(others);
    let (rules, nft) = (file("rules.v4", &text)?, file("rules.nft", &nft)?);
    let both = |name: &str, make: &dyn Fn(&str) -> String| -> anyhow::Result<[String; 2]> {
        let texts = ["DROP", "ACCEPT"].map(make);
        Ok([
            file(&format!("{name}0"), &texts[0])?,
            file(&format!("{name}1"), &texts[1])?,
        ])
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let pins = place.join(format!("pins{others}"));
    let pins = pins.to_str().context("a path in UTF-8")?;
    let ours = both("ours", &chain)?;
    let restore = |target: &str| format!("*filter\n:mine - [0:0]\n{}COMMIT\n", chain(target));
    let legacy = both("legacy", &restore)?;
    let of_nft = both("nft", &|target| nft_chain(&target.to_lowercase()))?;
    let testbed = Testbed::new();
    let peers = [
        Peer::new(
            testbed.netns("ours")?,
            &[fairpath, "rules", "load", &rules, "--pins", pins],
            ours.map(|file| {
                words(&[
                    fairpath,
                    "rules",
                    "replace-chain",
                    "mine",
                    &file,
                    "--pins",
                    pins,
                ])
            }),
        )?,
        Peer::new(
            testbed.netns("legacy")?,
            &["iptables-legacy-restore", &rules],
            legacy.map(|file| words(&["iptables-legacy-restore", "--noflush", &file])),
        )?,
        Peer::new(
            testbed.netns("nft")?,
            &["nft", "-f", &nft],
            of_nft.map(|file| words(&["nft", "-f", &file])),
        )?,
    ];
    let mut each = [const { Vec::new() }; 3];
    for _ in 0..args.rounds {
        for (peer, each) in peers.iter().zip(&mut each) {
            each.push(peer.ms()?);
        }
    }
    let unload = [fairpath, "rules", "unload", "--pins", pins];
    peers[0].netns.run(&unload)?;
    nix::mount::umount(pins)?;
    let [ours, legacy, nft] = each.map(Measured::of);
    Ok(ReplaceRow {
        rules: (others + 1) * RULES,
        ours,
        legacy,
        nft,
    })
}

/// Measures it.
///
/// # Errors
/// No root, or a peer is missing.
pub fn run(args: &Args) -> anyhow::Result<ReplaceReport> {
    let place = tempfile::tempdir()?;
    let rows = OTHERS
        .iter()
        .map(|others| row(args, *others, place.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let targets = rows.iter().map(|row| {
        Target::at_most(
            format!("{} rules: a chain of {RULES} is replaced in", row.rules),
            row.ours.median,
            TARGET_MS,
            "ms",
        )
    });
    Ok(ReplaceReport {
        targets: targets.collect(),
        rows,
    })
}

impl ReplaceReport {
    /// A table.
    pub fn text(&self) -> String {
        let cell = |m: &Measured| format!("{:.1} ({:.1} to {:.1})", m.median, m.min, m.most);
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let cells = [&row.ours, &row.legacy, &row.nft].map(cell);
                [vec![row.rules.to_string()], cells.to_vec()].concat()
            })
            .collect();
        let mut out = String::from(
            "\nloaded rules: ms from the command to the first packet that meets a new chain of 1,000 rules\n",
        );
        out.push_str(&table(
            &["rules", "Fairpath", "iptables-legacy", "nftables"],
            &rows,
        ));
        for target in &self.targets {
            out.push_str(&target.text());
        }
        out
    }
}
