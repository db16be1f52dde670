//! Puts schedulers on devices as BPF qdiscs, by commands over a socket; each is answered by one line of
//! JSON. For the guest's scenarios:
//!
//! ```text
//! shape-qdisc serve DIR SOCKET   DIR is, or becomes, the bpffs of the pins
//! shape-qdisc ask SOCKET COMMAND KEY ...
//!   add KEY DEV PLACE RATE CLASSES [LOG]   registers KEY and puts it on; PLACE: root, or a queue's number
//!   leaves KEY FILE.o ...                  swaps the leaves to these custom policies, in turn
//!   find KEY DEV PLACE RATE CLASSES        continues the qdisc that an earlier process left under KEY
//!   swap KEY RATE CLASSES SHIFT            a new plan: class c is c + SHIFT now
//!   rate KEY RATE                          by a posted setting
//!   settle KEY                             waits until the last swap and all settings hold
//!   stats KEY                              counters, sums and what `tc -s` says
//!   replay KEY                             the log again, natively: is the order the same?
//!   off KEY                                takes it off its device and looks for what was left behind
//!   on KEY                                 puts it on again
//!   renew KEY                              registers it again under another name, in the old one's place
//!   remove KEY                             gives the name up
//! ```
//!
//! The tree: root, a link of RATE, and below it a leaf for each class: of FQ-CoDel, or a FIFO where
//! CLASSES ends with `fifo`. Class 1 is
//! 192.0.2.2, class 2 VLAN 5, class n is in 10.0.0.0/8; what has none goes to the first leaf.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fairpath_bpf::author;
use fairpath_bpf::{
    BpfQdisc, Pins, QdiscContent, QdiscError, QdiscOptions, QdiscPolicy, qdisc_names, quiet_libbpf,
    without_marks,
};
use fairpath_core::sched::{
    COST_ONE, Changes, Custom, End, NodeConfig, Op, OpKind, OutcomeKind, Over, Overflow, Plan,
    Policy, SchedConfig, SchedRuntime, Scheduler, Setting, encode_rate, policies,
};
use fairpath_core::{Prefix, Rules};
use fairpath_netlink::{Links, QdiscPlace, Tc};
use fairpath_policy::Author;
use fairpath_units::IfIndex;
use serde_json::{Value, json};

/// For a name to become free.
const PATIENCE: Duration = Duration::from_secs(20);
/// Handles, and packets that wait at most.
const PACKETS: u32 = 4096;
/// The link of the tree.
const LINK: u32 = 2;
/// The VLAN of class 2, unless the address has another class.
const VLAN: u16 = 5;
/// The maximum lead of the link after a delay: an emulated processor is late often.
const BURST_NS: u64 = 20_000_000;
/// The maximum time until a plan is active while packets pass.
const SETTLES_S: u64 = 20;

/// One qdisc and where it is.
struct Shaped {
    qdisc: BpfQdisc,
    ifindex: IfIndex,
    place: QdiscPlace,
    rate: u64,
    classes: u32,
    fifo: bool,
    /// Of the leaves, in turn; empty: as CLASSES says.
    customs: Vec<Author>,
}

fn node(parent: u32, name: &str, over: Over) -> NodeConfig {
    let policy = policies().iter().find(|policy| policy.name == name);
    let policy = policy.expect("the policies of this tree are shipped");
    let [kind, buckets, shift, _] = policy.queue;
    // Zeroes are the usual one, a heap.
    let kind = kind.max(1);
    NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue: kind,
        queue_buckets: buckets,
        queue_shift: shift,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    }
}

/// Root, link, a leaf for unmatched packets and one for each class; FIFOs drop no packet before all is full.
fn plan(rate: u64, classes: u32, fifo: bool, customs: &[Author]) -> Plan {
    let link = NodeConfig {
        ceil: encode_rate(rate),
        burst: BURST_NS,
        ..node(1, "class_tree", Over::Children)
    };
    let mut nodes = vec![node(0, "class_tree", Over::Children), link];
    let (leaf, overflow) = match fifo {
        true => (node(LINK, "fifo", Over::Packets), Overflow::Tail),
        false => (node(LINK, "fq_codel", Over::Flows), Overflow::Fattest),
    };
    let leaf = |class: u32| match customs.get(class as usize % customs.len().max(1)) {
        Some(custom) => NodeConfig {
            parent: LINK,
            policy: Policy::CUSTOM + class % customs.len() as u32,
            over: custom.policy.usual,
            queue: custom.policy.queue[0].max(1),
            queue_buckets: custom.policy.queue[1],
            queue_shift: custom.policy.queue[2],
            cost: COST_ONE,
            params: custom.policy.standards(),
            ..NodeConfig::default()
        },
        None => leaf,
    };
    nodes.extend((0..=classes).map(leaf));
    let config = SchedConfig {
        packets: PACKETS,
        limit_packets: PACKETS,
        flows: 4096,
        hosts: 4096,
        overflow,
        seed: 7,
        ..SchedConfig::default()
    };
    let class_table = (0..=classes).map(|class| LINK + 1 + class).collect();
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

/// Class `1 + shift` is the far host, the others are elsewhere.
fn rules(classes: u32, shift: u32) -> Rules {
    let far = ([192, 0, 2, 2].into(), 1 + shift);
    let others = (2 + shift..=classes).map(|class| {
        let [_, a, b, c] = class.to_be_bytes();
        ([10, a, b, c].into(), class)
    });
    let all = std::iter::once(far).chain(others);
    let prefixes = all.map(|(ip, class)| (Prefix::new(std::net::IpAddr::V4(ip), 32), class));
    Rules {
        prefixes: prefixes.collect(),
        vlans: vec![(VLAN, 2 + shift)],
        ..Rules::default()
    }
}

/// Class c is c + shift, and so is its leaf.
fn changes(old: u32, new: u32, shift: u32) -> Changes {
    let nodes = (1..=new + LINK + 1).map(|id| match id.checked_sub(LINK + 2 + shift) {
        _ if id <= LINK + 1 => id,
        Some(class) if class < old => LINK + 2 + class,
        _ => 0,
    });
    let classes = (0..=old).map(|class| match class {
        0 => 0,
        _ if class + shift <= new => class + shift,
        _ => 0,
    });
    Changes {
        nodes: nodes.collect(),
        classes: classes.collect(),
    }
}

fn shaped_on(qdisc: BpfQdisc, words: &[&str]) -> Result<Shaped> {
    let [device, place, rate, classes] = words else {
        bail!("DEV PLACE RATE CLASSES");
    };
    let link = Links::open()?.by_name(device)?.context("no such device")?;
    let place = match *place {
        "root" => QdiscPlace::Root,
        queue => QdiscPlace::Queue(queue.parse()?),
    };
    Ok(Shaped {
        qdisc,
        ifindex: link.ifindex,
        place,
        rate: rate.parse()?,
        classes: classes.trim_end_matches("fifo").parse()?,
        fifo: classes.ends_with("fifo"),
        customs: Vec::new(),
    })
}

fn content<'a>(
    plan: &'a Plan,
    rules: &'a Rules,
    customs: &'a [QdiscPolicy<'a>],
) -> QdiscContent<'a> {
    QdiscContent {
        plan,
        customs,
        rules,
        end: End::Receiver,
        note: b"classes by number",
    }
}

fn qdisc_policies(customs: &[Author]) -> Vec<QdiscPolicy<'_>> {
    let all = customs.iter().map(|one| QdiscPolicy {
        policy: &one.policy,
        identity: one.identity(),
        object: one.object(),
    });
    all.collect()
}

impl Shaped {
    fn settle(&self) -> Result<f64> {
        let begun = Instant::now();
        while !self.qdisc.is_settled() || !self.qdisc.is_posted() {
            ensure!(
                begun.elapsed() < Duration::from_secs(SETTLES_S),
                "no packet took the change"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    fn swap(&mut self, rate: u64, classes: u32, shift: u32) -> Result<()> {
        let changes = changes(self.classes, classes, shift);
        let plan = plan(rate, classes, self.fifo, &self.customs);
        let (rules, customs) = (rules(classes, shift), qdisc_policies(&self.customs));
        let content = content(&plan, &rules, &customs);
        self.qdisc.replace(&content, &changes)?;
        (self.rate, self.classes) = (rate, classes);
        Ok(())
    }

    /// Other policies of the leaves. After an error, the previous ones stay.
    fn leaves(&mut self, files: &[&str]) -> Result<Value> {
        let read = |(place, file): (usize, &&str)| {
            let object = std::fs::read(file).with_context(|| format!("read {file}"))?;
            Ok(author::parse(Path::new(file), &object)?.numbered(place))
        };
        let new = files.iter().enumerate().map(read).collect::<Result<_>>()?;
        let old = std::mem::replace(&mut self.customs, new);
        let begun = Instant::now();
        if let Err(error) = self.swap(self.rate, self.classes, 0) {
            self.customs = old;
            return Err(error);
        }
        Ok(json!({"ms": begun.elapsed().as_secs_f64() * 1e3}))
    }

    fn stats(&self) -> Result<Value> {
        let (c, s, agree) = self.qdisc.reading();
        let tc = Tc::open()?.at(self.ifindex, self.place)?;
        let (there, tc) = tc.map_or((None, None), |(qdisc, stats)| {
            (Some(qdisc.kind), Some(stats))
        });
        let tc = tc.unwrap_or_default();
        let far = self.qdisc.node_stats(LINK + 2);
        Ok(json!({
            "name": self.qdisc.name(), "there": there, "used": self.qdisc.is_used(),
            "agree": agree, "note": String::from_utf8_lossy(&self.qdisc.note()),
            "came": c.arrived, "came_segments": c.arrived_segments,
            "sent": c.sent_packets, "sent_segments": c.sent_segments, "sent_bytes": c.sent_bytes,
            "dropped": c.dropped, "no_handle": c.no_handle, "lost": c.lost,
            "waiting": c.waiting, "strangers": c.strangers, "resets": c.resets,
            "flips": c.flips, "flips_refused": c.flips_refused, "flip_ns": c.flip_ns,
            "moved": c.moved, "posts_refused": c.posts_refused,
            "impaired_whole": c.impaired_whole,
            "sched_enqueued": s.enqueued, "sched_sent": s.sent, "sched_bytes": s.sent_bytes,
            "sched_dropped": s.dropped.iter().sum::<u64>(), "sched_marked": s.marked,
            "far_packets": far.sent, "far_bytes": far.sent_bytes,
            "vlan_packets": self.qdisc.node_stats(LINK + 3).sent,
            "other_packets": self.qdisc.node_stats(LINK + 1).sent,
            "link_bytes": self.qdisc.node_stats(LINK).sent_bytes,
            "tc_bytes": tc.bytes, "tc_packets": tc.packets, "tc_drops": tc.drops,
            "tc_qlen": tc.qlen, "tc_backlog": tc.backlog,
        }))
    }

    /// The log through a native scheduler: the same packets leave, in the same order.
    fn replay(&self) -> Result<Value> {
        let policies: Vec<Policy> = self.customs.iter().map(|one| one.policy.clone()).collect();
        let plan = plan(self.rate, self.classes, self.fifo, &self.customs);
        let customs = self.customs.iter().map(|one| {
            let machine: Box<dyn Custom> = Box::new(one.machine());
            (one.policy.clone(), machine)
        });
        let plan = without_marks(&plan, &policies);
        let mut native = Scheduler::with_customs(&plan, customs.collect())?;
        let (mut sent, mut dropped, mut outcomes) = (0, 0, Vec::new());
        let log = self.qdisc.log();
        for (index, logged) in log.iter().enumerate() {
            let op = match logged.kind {
                OpKind::Dequeue => Op::dequeue(logged.now, 1),
                _ => *logged,
            };
            outcomes.clear();
            native.run(&[op], &mut outcomes)?;
            let left = outcomes
                .iter()
                .find(|reported| reported.kind == OutcomeKind::Sent);
            let left = left.map_or(0, |reported| reported.handle);
            if logged.kind == OpKind::Dequeue {
                ensure!(
                    left == logged.node,
                    "operation {index}: {left} left natively, {} in the kernel",
                    logged.node
                );
                sent += u32::from(left != 0);
            }
            dropped += outcomes
                .iter()
                .filter(|reported| reported.drop().is_some())
                .count();
        }
        Ok(json!({"replayed": log.len(), "sent": sent, "dropped": dropped}))
    }

    fn on(&self) -> Result<Value> {
        let mut tc = Tc::open()?;
        tc.put(self.ifindex, self.place, self.qdisc.name(), false)?;
        Ok(json!({}))
    }

    fn off(&mut self) -> Result<Value> {
        let taken = Tc::open()?.take_off(self.ifindex, self.place, self.qdisc.name())?;
        // What is taken off is freed a grace period later.
        let begun = Instant::now();
        while self.qdisc.is_used() {
            ensure!(
                begun.elapsed() < Duration::from_secs(SETTLES_S),
                "it is still used"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        self.qdisc.audit().map_err(anyhow::Error::msg)?;
        let counters = self.qdisc.counters();
        ensure!(counters.waiting == 0, "handles are missing: {counters:?}");
        Ok(json!({"taken": taken, "lost": counters.lost, "resets": counters.resets}))
    }
}

/// All commands' state.
struct Tool {
    pins: Pins,
    shaped: BTreeMap<String, Shaped>,
}

impl Tool {
    fn add(&mut self, key: &str, words: &[&str]) -> Result<Value> {
        let (words, log) = match words.len() {
            5 => (&words[..4], words[4].parse()?),
            _ => (words, 0),
        };
        let (rate, fifo) = (words[2].parse()?, words[3].ends_with("fifo"));
        let classes = words[3].trim_end_matches("fifo").parse()?;
        let (plan, rules) = (plan(rate, classes, fifo, &[]), rules(classes, 0));
        let options = QdiscOptions {
            pins: Some(&self.pins),
            log,
        };
        let name = qdisc_names(key).next().context("a name")?;
        let begun = Instant::now();
        let qdisc = loop {
            match BpfQdisc::register(&content(&plan, &rules, &[]), &name, options) {
                // What another scenario left goes when the kernel comes to it.
                Err(QdiscError::Taken(_)) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                done => break done?,
            }
        };
        let loaded_ms = begun.elapsed().as_millis();
        let shaped = shaped_on(qdisc, words)?;
        let mut tc = Tc::open()?;
        if shaped.place != QdiscPlace::Root {
            tc.split(shaped.ifindex, false)?;
        }
        tc.put(shaped.ifindex, shaped.place, &name, false)?;
        self.shaped.insert(key.to_owned(), shaped);
        Ok(json!({"name": name, "loaded_ms": loaded_ms}))
    }

    fn find(&mut self, key: &str, words: &[&str]) -> Result<Value> {
        let name = qdisc_names(key).next().context("a name")?;
        let Some(qdisc) = BpfQdisc::find(&self.pins, &name)? else {
            return Ok(json!({"found": false}));
        };
        let mut shaped = shaped_on(qdisc, words)?;
        let before = shaped.qdisc.counters();
        let (rate, classes) = (shaped.rate, shaped.classes);
        shaped.swap(rate, classes, 0)?;
        self.shaped.insert(key.to_owned(), shaped);
        Ok(json!({"found": true, "came": before.arrived}))
    }

    /// A qdisc that cannot be continued, of another version or too small: it is removed, with its packets.
    fn renew(&mut self, key: &str) -> Result<Value> {
        let mut shaped = self.shaped.remove(key).context("no such key")?;
        let plan = plan(shaped.rate, shaped.classes, shaped.fifo, &shaped.customs);
        let (rules, customs) = (rules(shaped.classes, 0), qdisc_policies(&shaped.customs));
        let options = QdiscOptions {
            pins: Some(&self.pins),
            log: 0,
        };
        let mut names = qdisc_names(key);
        names.find(|name| name == shaped.qdisc.name());
        let name = names.next().context("another name")?;
        let new = BpfQdisc::register(&content(&plan, &rules, &customs), &name, options)?;
        let begun = Instant::now();
        Tc::open()?.put(shaped.ifindex, shaped.place, &name, true)?;
        let put_ms = begun.elapsed().as_secs_f64() * 1e3;
        let old = std::mem::replace(&mut shaped.qdisc, new);
        let lost = old.counters().lost;
        old.remove(Some(&self.pins))?;
        self.shaped.insert(key.to_owned(), shaped);
        Ok(json!({"name": name, "put_ms": put_ms, "lost": lost}))
    }

    fn run(&mut self, words: &[&str]) -> Result<Value> {
        let (&[command, key], rest) = words.split_first_chunk::<2>().context("COMMAND KEY ...")?;
        match command {
            "add" => return self.add(key, rest),
            "find" => return self.find(key, rest),
            "renew" => return self.renew(key),
            "remove" => {
                let shaped = self.shaped.remove(key).context("no such key")?;
                shaped.qdisc.remove(Some(&self.pins))?;
                return Ok(json!({"pinned": self.pins.qdiscs()?}));
            }
            _ => {}
        }
        let shaped = self.shaped.get_mut(key).context("no such key")?;
        match (command, rest) {
            ("swap", [rate, classes, shift]) => {
                shaped.swap(rate.parse()?, classes.parse()?, shift.parse()?)?;
                Ok(json!({}))
            }
            ("leaves", files) => shaped.leaves(files),
            ("rate", [rate]) => {
                let ceil = encode_rate(rate.parse()?);
                shaped.qdisc.post(&Op::node(0, LINK, Setting::Ceil, ceil))?;
                Ok(json!({}))
            }
            ("settle", []) => Ok(json!({"ms": shaped.settle()?})),
            ("stats", []) => shaped.stats(),
            ("replay", []) => shaped.replay(),
            ("off", []) => shaped.off(),
            ("on", []) => shaped.on(),
            _ => bail!("no such command: {words:?}"),
        }
    }
}

fn serve(dir: &str, socket: &str) -> Result<()> {
    let pins = Pins::at(dir)?;
    let mut tool = Tool {
        pins,
        shaped: BTreeMap::new(),
    };
    let _ = std::fs::remove_file(socket);
    for client in UnixListener::bind(socket)?.incoming() {
        let mut client = client?;
        let mut line = String::new();
        BufReader::new(&client).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = tool.run(&words);
        let answer = answer.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
        writeln!(client, "{answer}")?;
    }
    Ok(())
}

fn query(socket: &str, words: &[String]) -> Result<()> {
    let mut server = UnixStream::connect(socket)?;
    writeln!(server, "{}", words.join(" "))?;
    let mut answer = String::new();
    BufReader::new(server).read_line(&mut answer)?;
    print!("{answer}");
    let parsed: Value = serde_json::from_str(&answer)?;
    ensure!(parsed["error"].is_null(), "refused");
    Ok(())
}

fn main() -> Result<()> {
    quiet_libbpf();
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [verb, dir, socket] if verb == "serve" => serve(dir, socket),
        [verb, socket, words @ ..] if verb == "ask" => query(socket, words),
        _ => bail!("usage: shape-qdisc serve DIR SOCKET | shape-qdisc ask SOCKET COMMAND KEY ..."),
    }
}
