//! Netfilter rules that send what passes an interface to a packet queue.
//!
//! They are in `mangle` (priority -150). Egress packets match after routing: forwarded packets and those of
//! the router, with inside addresses, since masquerading is later. nft is used if it supports `queue`,
//! otherwise iptables and ip6tables. Table and chain have unique names, so they are replaced as a whole
//! and found again after a crash.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use fairpath_netlink::{Links, RulesVersion, rules_version};

use super::others;
use crate::OnFailure;
use crate::spawn::spawn_spared;

/// One rule: such packets go to `queue`, or to several from it on, by a hash of both addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divert {
    /// Which.
    pub what: Diverted,
    /// The packet queue's number.
    pub queue: u16,
    /// Queues, one behind the other: at least 1.
    pub queues: u16,
}

impl Divert {
    /// The numbers of its queues, the first and the last if there are several.
    pub fn numbers(&self, between: &str) -> String {
        match self.queues {
            1 => self.queue.to_string(),
            queues => format!("{}{between}{}", self.queue, self.queue + queues - 1),
        }
    }
}

/// Packets by their interfaces' names, which may come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diverted {
    /// Packets that leave by this one: forwarded packets and the router's own.
    Leaving(String),
    /// Packets that arrive by this one, before their route is known.
    Arriving(String),
    /// Packets that are forwarded from the first to the second.
    Through(String, String),
}

impl Diverted {
    /// The chain: as nft calls its hook, as iptables calls it, and what our own is called behind its name.
    fn chain(&self) -> Chain {
        match self {
            Diverted::Leaving(_) => ["postrouting", "POSTROUTING", ""],
            Diverted::Arriving(_) => ["prerouting", "PREROUTING", "_in"],
            Diverted::Through(..) => ["forward", "FORWARD", "_through"],
        }
    }

    fn nft(&self) -> String {
        match self {
            Diverted::Leaving(out) => format!("oifname \"{out}\""),
            Diverted::Arriving(from) => format!("iifname \"{from}\""),
            Diverted::Through(from, out) => format!("iifname \"{from}\" oifname \"{out}\""),
        }
    }

    fn iptables(&self) -> String {
        match self {
            Diverted::Leaving(out) => format!("-o {out}"),
            Diverted::Arriving(from) => format!("-i {from}"),
            Diverted::Through(from, out) => format!("-i {from} -o {out}"),
        }
    }
}

impl Diverted {
    /// Of its interfaces.
    fn names(&self) -> Vec<&str> {
        match self {
            Diverted::Leaving(name) | Diverted::Arriving(name) => vec![name],
            Diverted::Through(from, out) => vec![from, out],
        }
    }
}

impl fmt::Display for Diverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diverted::Leaving(name) | Diverted::Arriving(name) => f.write_str(name),
            Diverted::Through(from, out) => write!(f, "{from} to {out}"),
        }
    }
}

type Chain = [&'static str; 3];

/// All that we may have rules in.
const CHAINS: [Chain; 3] = [
    ["postrouting", "POSTROUTING", ""],
    ["prerouting", "PREROUTING", "_in"],
    ["forward", "FORWARD", "_through"],
];

/// Packets that are never diverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exempt {
    /// Those with this mark: a program's own, which must not come back to it.
    pub mark: u32,
    /// Neighbour discovery (ICMPv6 types 133 to 137).
    pub neighbours: bool,
}

/// Neighbour discovery (RFC 4861 section 4): its packets must come at once, or nothing else does.
const ND_TYPES: [u8; 5] = [133, 134, 135, 136, 137];

/// Rules in place.
#[derive(Debug)]
pub struct Diversion {
    name: String,
    by: Tool,
    rules: Rules,
    /// The rules, as their tool lists them.
    listed: Option<String>,
    /// Of all rules, when ours were seen in place.
    version: Option<RulesVersion>,
    /// A rule of another program that sends packets to our queues.
    other_rule: Option<String>,
}

/// Rules to put in place.
#[derive(Clone, Debug)]
struct Rules {
    diverts: Vec<Divert>,
    /// All queues whose packets are ours.
    queues: RangeInclusive<u16>,
    on_failure: OnFailure,
    exempt: Option<Exempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Nft,
    /// The commands for IPv4 and IPv6.
    Iptables([&'static str; 2]),
}

/// In the order in which they are tried.
const TOOLS: [Tool; 3] = [
    Tool::Nft,
    Tool::Iptables(["iptables-legacy", "ip6tables-legacy"]),
    Tool::Iptables(["iptables", "ip6tables"]),
];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Nft => "nft",
            Tool::Iptables([name, _]) => name,
        }
    }
}

impl Diversion {
    /// Puts the rules in place, instead of those that a crash left. All packets of `queues` are this program's.
    ///
    /// # Errors
    /// An interface is a port of a bridge, whose packets rules do not see; another program's rule sends packets to
    /// `queues`; what each tool said where none can.
    pub fn begin(
        diverts: &[Divert],
        queues: RangeInclusive<u16>,
        on_failure: OnFailure,
        exempt: Option<Exempt>,
    ) -> anyhow::Result<Diversion> {
        refuse_bridge_ports(diverts)?;
        let first = diverts.first().map_or(0, |divert| divert.queue);
        let name = format!("fairpath_{first}");
        if let Some(rule) = others::rule_to(&queues, &name) {
            bail!("{}", refusal(&queues, &rule));
        }
        let rules = Rules {
            diverts: diverts.to_vec(),
            queues,
            on_failure,
            exempt,
        };
        let mut refusals = Vec::new();
        for by in TOOLS {
            match put(by, &name, &rules) {
                Ok(()) => {
                    return Ok(Diversion {
                        listed: list(by, &name),
                        version: rules_version().ok(),
                        other_rule: None,
                        name,
                        by,
                        rules,
                    });
                }
                Err(error) => {
                    refusals.push(format!("{}: {error:#}", by.name()));
                    // What it could do is no use alone.
                    let _ = take_away(by, &name);
                }
            }
        }
        bail!(
            "send packets to queue {first}: no tool works: {}: install nftables or iptables, and see `fairpath features`",
            refusals.join("; ")
        )
    }

    /// Puts rules in place again that another program removed or changed, as a reload of a firewall
    /// does; true if it had to. Only a change of netfilter's rules costs more than three system calls.
    ///
    /// # Errors
    /// The message of the tool: packets are not sent to the queues.
    pub fn repair(&mut self) -> anyhow::Result<bool> {
        // Unknown is a change.
        let version = rules_version().ok();
        if version.is_some() && version == self.version {
            return Ok(false);
        }
        self.version = version;
        self.look_for_others();
        if list(self.by, &self.name) == self.listed {
            return Ok(false);
        }
        put(self.by, &self.name, &self.rules).with_context(|| {
            format!(
                "put the rules of {} in place, which another program removed",
                self.name
            )
        })?;
        self.listed = list(self.by, &self.name);
        self.version = rules_version().ok();
        Ok(true)
    }

    /// Warns once of a rule of another program that sends packets to our queues.
    fn look_for_others(&mut self) {
        let found = others::rule_to(&self.rules.queues, &self.name);
        if let Some(rule) = found.as_ref().filter(|_| found != self.other_rule) {
            tracing::warn!("{}", refusal(&self.rules.queues, rule));
        }
        self.other_rule = found;
    }

    /// A rule of another program that sends packets to our queues, for the status.
    pub fn other_rule(&self) -> Option<String> {
        let rule = self.other_rule.as_ref()?;
        Some(refusal(&self.rules.queues, rule))
    }

    /// Takes the rules away.
    ///
    /// # Errors
    /// What the tool says.
    pub fn end(&self) -> anyhow::Result<()> {
        take_away(self.by, &self.name)
    }

    /// Which tool made them.
    pub fn by(&self) -> &'static str {
        self.by.name()
    }
}

fn refusal(queues: &RangeInclusive<u16>, rule: &str) -> String {
    let (first, last) = (queues.start(), queues.end());
    format!(
        "a rule of another program sends packets to queues {first} to {last}, which are Fairpath's ({rule}): \
         remove it, or use other queues (`queue` of [shape], --queue-num)"
    )
}

/// Netfilter's IP chains know the packets of a bridge's ports by the bridge's name, if they see them at all: rules
/// with a port's name would meet none, in silence.
fn refuse_bridge_ports(diverts: &[Divert]) -> anyhow::Result<()> {
    let links = Links::dump().context("find the bridges of interfaces")?;
    let master = |name: &str| {
        let link = links.iter().find(|link| link.name == name)?;
        let master = links
            .iter()
            .find(|master| Some(master.ifindex) == link.master)?;
        master.is_kind("bridge").then_some(&master.name)
    };
    for divert in diverts {
        for name in divert.what.names() {
            if let Some(bridge) = master(name) {
                bail!(
                    "send packets of {name} to queue {}: it is a port of the bridge {bridge}, and netfilter uses only the name of the bridge: name {bridge}, or use AF_XDP to forward them from port to port",
                    divert.queue
                );
            }
        }
    }
    Ok(())
}

/// Takes away whatever rules there are of the queues from `first` on, by whichever tool they were made.
///
/// # Errors
/// What a tool says that finds rules and cannot take them away.
pub fn sweep(first: u16) -> anyhow::Result<()> {
    let name = format!("fairpath_{first}");
    let done = TOOLS.map(|by| match by {
        // A host without a tool has no rules by it.
        Tool::Iptables([command, _]) if reported(command, &["--version"], "").is_err() => Ok(()),
        by => take_away(by, &name),
    });
    done.into_iter().collect()
}

/// The rules as the tool lists them; `None`: some are missing.
fn list(by: Tool, name: &str) -> Option<String> {
    match by {
        Tool::Nft => output("nft", &["list", "table", "inet", name], "").ok(),
        Tool::Iptables(commands) => {
            let mut all = String::new();
            for command in commands {
                for [_, from, suffix] in CHAINS {
                    let chain = format!("{name}{suffix}");
                    let words = |verb| ["-w", "5", "-t", "mangle", verb];
                    // A chain without rules of ours does not exist, before and after.
                    let rules = output(command, &[&words("-S")[..], &[&chain]].concat(), "");
                    let jump = [&words("-C")[..], &[from, "-j", &chain]].concat();
                    all += &rules.unwrap_or_default();
                    all += &format!("{command} {from} {}\n", output(command, &jump, "").is_ok());
                }
            }
            Some(all)
        }
    }
}

fn put(by: Tool, name: &str, rules: &Rules) -> anyhow::Result<()> {
    let Rules {
        ref diverts,
        on_failure,
        exempt,
        ..
    } = *rules;
    let bypass = on_failure == OnFailure::Pass;
    match by {
        Tool::Nft => {
            let chains: String = CHAINS
                .iter()
                .filter(|chain| diverts.iter().any(|divert| divert.what.chain() == **chain))
                .map(|chain| nft_chain(*chain, diverts, bypass, exempt))
                .collect();
            // The first line makes sure that there is something to delete.
            let text = format!(
                "table inet {name} {{}}\ndelete table inet {name}\ntable inet {name} {{\n{chains}}}\n"
            );
            reported("nft", &["-f", "-"], &text)
        }
        Tool::Iptables(commands) => {
            for command in commands {
                for chain in CHAINS {
                    put_iptables(command, name, chain, diverts, bypass, exempt)?;
                }
            }
            Ok(())
        }
    }
}

fn nft_chain(chain: Chain, diverts: &[Divert], bypass: bool, exempt: Option<Exempt>) -> String {
    let flags = if bypass { "flags bypass " } else { "" };
    let [hook, _, suffix] = chain;
    let mut rules = String::new();
    if let Some(exempt) = exempt {
        rules += &format!("    meta mark {} accept\n", exempt.mark);
        if exempt.neighbours {
            rules += "    icmpv6 type 133-137 accept\n";
        }
    }
    for divert in diverts.iter().filter(|d| d.what.chain() == chain) {
        let to = divert.numbers("-");
        rules += &format!("    {} queue {flags}to {to}\n", divert.what.nft());
    }
    format!(
        "  chain shape{suffix} {{\n    type filter hook {hook} priority mangle; policy accept;\n{rules}  }}\n"
    )
}

fn put_iptables(
    command: &str,
    name: &str,
    chain: Chain,
    diverts: &[Divert],
    bypass: bool,
    exempt: Option<Exempt>,
) -> anyhow::Result<()> {
    let [_, from, suffix] = chain;
    let (of, name) = (name, format!("{name}{suffix}"));
    let bypass = if bypass { " --queue-bypass" } else { "" };
    let mut rules = String::new();
    if let Some(exempt) = exempt {
        rules += &format!("-A {name} -m mark --mark {} -j RETURN\n", exempt.mark);
        if exempt.neighbours && command.starts_with("ip6") {
            for kind in ND_TYPES {
                rules += &format!("-A {name} -p icmpv6 --icmpv6-type {kind} -j RETURN\n");
            }
        }
    }
    let mut ours = diverts
        .iter()
        .filter(|d| d.what.chain() == chain)
        .peekable();
    if ours.peek().is_none() {
        // A crash may have left some.
        return take_away_iptables(command, of, chain);
    }
    for divert in ours {
        let what = divert.what.iptables();
        let to = match divert.queues {
            1 => format!("--queue-num {}", divert.queue),
            _ => format!("--queue-balance {}", divert.numbers(":")),
        };
        rules += &format!("-A {name} {what} -j NFQUEUE {to}{bypass}\n");
    }
    // Naming the chain empties it if it is there; the whole comes into force at once.
    let text = format!("*mangle\n:{name} - [0:0]\n{rules}COMMIT\n");
    let restore = format!("{command}-restore");
    reported(&restore, &["--noflush", "--wait", "5"], &text)?;
    let jump = |verb| ["-w", "5", "-t", "mangle", verb, from, "-j", &name].map(str::to_owned);
    let jump = |verb| reported(command, &jump(verb).each_ref().map(String::as_str), "");
    if jump("-C").is_err() {
        jump("-A")?;
    }
    Ok(())
}

fn take_away(by: Tool, name: &str) -> anyhow::Result<()> {
    match by {
        Tool::Nft => match reported("nft", &["delete", "table", "inet", name], "") {
            // Another program flushed the ruleset.
            Err(_) if reported("nft", &["list", "table", "inet", name], "").is_err() => Ok(()),
            done => done,
        },
        Tool::Iptables(commands) => {
            let both = commands.map(|command| {
                let all = CHAINS.map(|chain| take_away_iptables(command, name, chain));
                all.into_iter().collect()
            });
            both.into_iter().collect()
        }
    }
}

/// Every step is run, even after a failure: another program may have flushed the table.
fn take_away_iptables(command: &str, name: &str, chain: Chain) -> anyhow::Result<()> {
    let [_, from, suffix] = chain;
    let name = &format!("{name}{suffix}");
    let mangle = |rest: &[&str]| {
        let words: Vec<&str> = ["-w", "5", "-t", "mangle"]
            .iter()
            .chain(rest)
            .copied()
            .collect();
        reported(command, &words, "")
    };
    if mangle(&["-S", name]).is_err() {
        return Ok(());
    }
    let steps: [&[&str]; 3] = [&["-D", from, "-j", name], &["-F", name], &["-X", name]];
    let done: Vec<_> = steps.iter().map(|step| mangle(step)).collect();
    match mangle(&["-S", name]) {
        Ok(()) => done.into_iter().collect(),
        // Gone, which is what was wanted.
        Err(_) => Ok(()),
    }
}

/// The lock file of iptables: a private one if the default cannot be written, as under systemd.
fn own_lock() -> Option<&'static str> {
    let usual = OpenOptions::new()
        .create(true)
        .append(true)
        .open("/run/xtables.lock");
    usual.is_err().then_some("/run/fairpath/xtables.lock")
}

/// Runs a command with `input`; its complaint is the error. Ctrl-C is this process's, which waits for it.
fn reported(command: &str, words: &[&str], input: &str) -> anyhow::Result<()> {
    output(command, words, input).map(drop)
}

/// The same, with what it prints.
pub(crate) fn output(command: &str, words: &[&str], input: &str) -> anyhow::Result<String> {
    let output = finished(command, words, input.as_bytes(), Stdio::piped())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    match text.lines().next() {
        Some(text) => bail!("{}", text.trim()),
        None => bail!("{command}: {}", output.status),
    }
}

/// Runs a command with `input` to its end, also if Ctrl-C comes.
pub(crate) fn finished(
    command: &str,
    words: &[&str],
    input: &[u8],
    stdout: Stdio,
) -> anyhow::Result<Output> {
    let mut child = Command::new(command);
    if let Some(lock) = own_lock() {
        child.env("XTABLES_LOCKFILE", lock);
    }
    child
        .args(words)
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .env("LC_ALL", "C");
    let mut child = spawn_spared(&mut child)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads nothing may be gone already.
        let _ = stdin.write_all(input);
    }
    child.wait_with_output().context("wait for its end")
}
