//! Compares the evaluators of rules with the kernel's ebtables, on generated rulesets and frames, for a guest's scenario.
//!
//! ```text
//! outside e0 ══ in0 ┐     ┌ out0 ══ e1 outside      inside: ebtables-legacy on a bridge without addresses
//!                   └ br0 ┘
//! ```
//!
//! Nothing else passes the bridge. Thus counters of rules count injected frames only, and each accepted frame is seen once:
//! at the bridge device, which takes all frames, or behind the other port.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fairpath_rules::image::{Lookups, build};
use fairpath_testbed::{FrameSocket, LinkEnd, Netns, Testbed, Veth, wait_for};
use fairpath_tests::oracle::bridge::{
    BRIDGE, BRIDGE_MAC, Base, OUT, frames, generate, of_core, of_reference, parse,
};
use fairpath_tests::oracle::compare::{Answer, RuleCount, compare};
use fairpath_tests::oracle::pools::{IN, IN_MAC, OUT_MAC};
use fairpath_units::test_seeds;
use tempfile::NamedTempFile;

/// Rulesets of a full run, and frames of each.
const RULESETS: u64 = 500;
const FRAMES: usize = 128;
/// The second port's address, which no frame has.
const PORT_MAC: [u8; 6] = [0x02, 0xfa, 0x40, 0, 0, 5];

/// A pause, which a bridge drops before any rule. A processor takes frames in the order in which they were sent, so all
/// others are through once this one is there.
const LAST: [u8; 18] = [
    0x01, 0x80, 0xc2, 0, 0, 1, 0x02, 0xfa, 0x20, 0, 0, 2, 0x88, 0x08, 0, 1, 0, 0,
];
/// Frames take milliseconds, and an emulated processor may have none for some time.
const DEADLINE: Duration = Duration::from_secs(30);
/// Empty tables; one of the same name may follow.
const EMPTY: &str = "*filter\n*nat\n*broute\n";

/// A bridge with two ports, and the other ends of these.
struct Bridge {
    inside: Netns,
    near: FrameSocket,
    far: FrameSocket,
    device: FrameSocket,
    /// All frames that arrive at `in0`.
    tap: FrameSocket,
    /// True while `in0` is a port.
    has_port: bool,
    file: NamedTempFile,
}

impl Bridge {
    fn new() -> Result<Bridge> {
        let testbed = Testbed::new();
        let (inside, outside) = (testbed.netns("inside")?, testbed.netns("outside")?);
        for netns in [&inside, &outside] {
            netns.set_sysctls(&[("net.ipv6.conf.default.disable_ipv6", "1")])?;
        }
        let veth = |port: &str, mac, end: &str, end_mac| {
            let port = LinkEnd::new(&inside, port).with_mac(mac);
            let end = LinkEnd::new(&outside, end).with_mac(end_mac);
            Veth::between(port, end).build()
        };
        veth(IN, IN_MAC, "e0", OUT_MAC)?;
        veth(OUT, PORT_MAC, "e1", [0x02, 0xfa, 0x40, 0, 0, 6])?;
        let mac = BRIDGE_MAC.map(|byte| format!("{byte:02x}")).join(":");
        let device = format!(
            "link add {BRIDGE} address {mac} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        );
        let lines = [device].into_iter().chain(port(IN)).chain(port(OUT));
        let lines = lines.chain([format!("link set {BRIDGE} up promisc on")]);
        let lines: Vec<String> = lines.collect();
        inside.ip_batch(&lines)?;
        Ok(Bridge {
            near: FrameSocket::open(&outside, "e0")?,
            far: FrameSocket::open(&outside, "e1")?,
            device: FrameSocket::open(&inside, BRIDGE)?,
            tap: FrameSocket::open(&inside, IN)?,
            inside,
            has_port: true,
            file: NamedTempFile::new()?,
        })
    }

    /// Frames of the bridge device leave by the other port only.
    fn prepare(&mut self, base: Base) -> Result<()> {
        let has_port = base.is_from_port();
        if has_port && !self.has_port {
            self.inside.ip_batch(&port(IN))?;
        } else if self.has_port && !has_port {
            self.inside.ip_batch(&[format!("link set {IN} nomaster")])?;
        }
        self.has_port = has_port;
        Ok(())
    }

    /// Replaces all tables by those of the ruleset.
    ///
    /// The tool does not set the flags of an nflog watcher, and the kernel refuses what free memory left
    /// there. With these settings, malloc fills memory with zeros.
    fn load(&self, ruleset: &str) -> Result<()> {
        fs::write(self.file.path(), EMPTY.to_owned() + ruleset)?;
        let script = format!(
            "GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=255 \
             ebtables-legacy-restore <{}",
            self.file.path().display()
        );
        self.inside.run(&["sh", "-c", &script])?;
        Ok(())
    }

    /// The answer of the tables to frames, after a load.
    fn answer(&mut self, ruleset: &str, base: Base, frames: &[Vec<u8>]) -> Result<Answer> {
        self.prepare(base)?;
        self.load(ruleset)?;
        self.drain();
        let sender = match base.is_from_port() {
            true => &self.near,
            false => &self.device,
        };
        for frame in frames {
            sender.send(frame)?;
        }
        self.near.send(&LAST)?;
        let tap = &mut self.tap;
        let arrived = wait_for(DEADLINE, || {
            let mut frames = std::iter::from_fn(|| tap.receive());
            frames.find(|frame| frame[..] == LAST)
        });
        arrived.context("the last frame did not arrive")?;
        let list = ["ebtables-legacy", "-t", base.table, "-L", "--Lc"];
        let text = self.inside.run(&list)?;
        let accepted = match base.is_seen_at_bridge() {
            true => drain(&mut self.device),
            false => drain(&mut self.far),
        };
        Ok(Answer {
            counts: read_list(base.table, &text)?,
            accepted,
        })
    }

    fn drain(&mut self) {
        for socket in [&mut self.far, &mut self.device, &mut self.tap] {
            drain(socket);
        }
    }
}

/// Makes a device a port, which learns no source.
fn port(name: &str) -> [String; 2] {
    [
        format!("link set {name} master {BRIDGE}"),
        format!("link set {name} type bridge_slave learning off"),
    ]
}

/// Takes all frames that have arrived, and counts them.
fn drain(socket: &mut FrameSocket) -> u64 {
    let mut count = 0;
    while socket.receive().is_some() {
        count += 1;
    }
    count
}

/// Reads `ebtables -L --Lc`: chains have no counters.
fn read_list(table: &str, text: &str) -> Result<Vec<RuleCount>> {
    let (mut chain, mut next, mut counts) = ("", 0, Vec::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("Bridge chain: ") {
            chain = head.split(',').next().unwrap_or_default();
            next = 0;
        }
        let Some((_, numbers)) = line.rsplit_once(", pcnt = ") else {
            continue;
        };
        let numbers = numbers.split_once(" -- bcnt = ").context("no bcnt")?;
        counts.push(RuleCount {
            table: table.to_owned(),
            chain: chain.to_owned(),
            rule: Some(next),
            packets: numbers.0.trim().parse()?,
            bytes: numbers.1.trim().parse()?,
        });
        next += 1;
    }
    Ok(counts)
}

fn main() -> Result<()> {
    let mut bridge = Bridge::new()?;
    let (mut compared, mut refused) = (0, 0);
    for seed in test_seeds(RULESETS) {
        let base = Base::of(seed);
        let text = generate(base, seed);
        let frames = frames(base, seed, FRAMES);
        let ruleset = parse(&text);
        let built = build(&ruleset, None, Lookups::Always)?;
        let core = |frames: &[Vec<u8>]| of_core(base, &ruleset, &built, frames);
        if let Err(reason) = core(&frames) {
            println!("seed {seed} is refused: {reason:?}");
            refused += 1;
            continue;
        }
        ensure!(
            core(&frames) == of_reference(base, &ruleset, &frames),
            "seed {seed}: core and reference differ; remedy: run the test \"bridge_reference_and_core_agree\"\n{text}"
        );
        compared += 1;
        let mut kernel = |frames: &[Vec<u8>]| {
            let answer = bridge.answer(&text, base, frames);
            answer.unwrap_or_else(|error| panic!("seed {seed}: {error:#}\n{text}"))
        };
        let mut known =
            |frames: &[Vec<u8>]| vec![("core", core(frames).expect("they were known together"))];
        if let Err(difference) = compare(&text, &frames, &mut kernel, &mut known) {
            bail!("seed {seed}: {difference}");
        }
    }
    ensure!(compared > 20 * refused, "most rulesets must be compared");
    println!("{compared} rulesets with {FRAMES} frames each agree, {refused} are refused");
    Ok(())
}
