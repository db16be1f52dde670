//! `fairpath rules explain`: the path of a packet through tables and chains.
//!
//! The core walks its packed image, and the reference the tree of rules. Both must agree, or the
//! command fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_core::rules::{CounterMode, TRACE};
use fairpath_rules::image::{Built, Counted, Lookups, build};
use fairpath_rules::{
    ChainId, Core, CoreOutcome, Facts, Family, Hook, MssLimit, Outcome, Packet, Policy, Reference,
    RuleAt, Ruleset, Sets, Step, Unknown, Verdict, unknown_text,
};
use serde_json::json;

use super::Format;
use super::capture::{FactArgs, malformed, packets};
use super::diff::verdict;
use super::files::{FileArgs, load_one};
use super::path::{self, PathLine, why};

/// Most paths that a summary keeps.
const MAX_PATHS: usize = 100_000;

/// Show the path of a packet through tables and chains, with file and line.
///
/// The packet is given by its fields (for ARP, a request), or is one of a capture. Facts that its bytes do not have are
/// options; an answer that depends on a missing one names it.
///
/// The rest of a packet that is given by its fields is fixed. TTL is 64, DSCP 0, the length 40 bytes
/// (IPv6: 60). There are no fragments and no options, and checksums are 0. TCP is a SYN, ICMP an echo
/// request, SCTP an INIT, DCCP a REQUEST; headers of other protocols are 0. Before the packet, limits and
/// quotas are full, recent lists are empty, and counters of statistic are at their start.
///
/// JSON is one object, and one per line in the summary of a capture.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules explain rules.v4 --src 192.0.2.7 --dst 198.51.100.1 --protocol tcp --dport 22 -i eth0 --ctstate NEW\n  \
    fairpath rules explain rules.v4 -r capture.pcap --packet 7 -i eth0 -o eth1 --ctstate NEW\n  \
    fairpath rules explain rules.v4 -r capture.pcap -i eth0 --ctstate ESTABLISHED")]
pub struct Args {
    #[command(flatten)]
    files: FileArgs,
    /// Source address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "read")]
    src: Option<IpAddr>,
    /// Destination address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "read")]
    dst: Option<IpAddr>,
    /// Protocol, by name or number (default: tcp with ports, otherwise icmp)
    #[arg(long, value_name = "PROTOCOL", conflicts_with = "read")]
    protocol: Option<String>,
    /// Source port (default: 40000)
    #[arg(long, value_name = "PORT", conflicts_with = "read")]
    sport: Option<u16>,
    /// Destination port (default: 0)
    #[arg(long, value_name = "PORT", conflicts_with = "read")]
    dport: Option<u16>,
    /// TCP flags, such as SYN,ACK (default: SYN)
    #[arg(long, value_name = "FLAGS", conflicts_with = "read")]
    tcp_flags: Option<String>,
    /// A capture
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// The packet of the capture, by its number from 1 (default: a summary of all)
    #[arg(long, value_name = "NUMBER", requires = "read")]
    packet: Option<u64>,
    #[command(flatten)]
    facts: FactArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A chunk INIT of SCTP, without parameters.
const SCTP_INIT: [u8; 8] = [1, 0, 0, 8, 0, 0, 0, 1];

/// A set with both evaluators.
struct Explained<'a> {
    name: &'a str,
    ruleset: &'a Ruleset,
    built: Built,
    sets: Option<&'a Sets>,
}

/// Runs `fairpath rules explain`.
///
/// # Errors
/// The files or the packet have a problem, or the evaluators do not agree.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (name, ruleset, sets) = load_one(&args.files.files, &args.files.reading)?;
    let explained = Explained {
        name: &name,
        ruleset: &ruleset,
        built: build(&ruleset, sets.as_ref(), Lookups::default())?,
        sets: sets.as_ref(),
    };
    let hook = args.facts.hook(ruleset.family);
    let facts = args.facts.facts(hook)?;
    match (&args.read, args.packet) {
        (None, _) => {
            let bytes = packet_bytes(args, ruleset.family)?;
            let packet = Packet {
                family: ruleset.family,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts,
            };
            explained.one(hook, &packet, args.format)
        }
        (Some(capture), Some(number)) => {
            let mut result = None;
            packets(capture, ruleset.family, &facts, &mut |at, packet| {
                if at == number {
                    result = Some(match malformed(packet, hook) {
                        Some(why) => Err(anyhow::anyhow!("rules do not see packet {at}: {why}")),
                        None => explained.one(hook, packet, args.format),
                    });
                }
                at < number
            })?;
            result.with_context(|| {
                format!(
                    "{} has no {} packet {number}",
                    capture.display(),
                    ruleset.family
                )
            })?
        }
        (Some(capture), None) => explained.summary(hook, capture, &facts, args.format),
    }
}

fn flags(text: &str) -> anyhow::Result<u8> {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let mut bits = 0;
    for part in text
        .split(',')
        .filter(|part| !part.is_empty() && *part != "NONE")
    {
        let bit = names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(part))
            .with_context(|| format!("\"{part}\" is not a TCP flag: {}", names.join(", ")))?;
        bits |= 1 << bit;
    }
    Ok(bits)
}

/// The packet of the arguments.
fn packet_bytes(args: &Args, family: Family) -> anyhow::Result<Vec<u8>> {
    if family == Family::Bridge {
        bail!("frames of a bridge are read from captures: give -r FILE --packet NUMBER");
    }
    let v6 = family == Family::Ipv6;
    let address = |given: Option<IpAddr>, option: &str| -> anyhow::Result<IpAddr> {
        match given {
            Some(address) if address.is_ipv6() == v6 => Ok(address),
            Some(address) => bail!("{option} {address} is not an address of {family}"),
            None => bail!("{option} is missing: give the address, or a capture with -r"),
        }
    };
    let (source, destination) = (address(args.src, "--src")?, address(args.dst, "--dst")?);
    if let (Family::Arp, IpAddr::V4(source), IpAddr::V4(destination)) =
        (family, source, destination)
    {
        // A request, from a link-layer address that no vendor has.
        let mut out = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
        out.extend_from_slice(&source.octets());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&destination.octets());
        return Ok(out);
    }
    let ports = args.sport.is_some() || args.dport.is_some();
    let default = match (ports, v6) {
        (true, _) => "tcp",
        (false, false) => "icmp",
        (false, true) => "ipv6-icmp",
    };
    let protocol = args.protocol.as_deref().unwrap_or(default);
    let names = super::files::names();
    let protocol = match protocol.parse::<u8>() {
        Ok(number) => number,
        Err(_) => names.protocol(protocol).with_context(|| {
            format!("\"{protocol}\" is not a protocol: write a name or a number")
        })?,
    };
    if ports && !matches!(protocol, 6 | 17 | 33 | 132 | 136) {
        bail!("--sport and --dport need a protocol with ports, such as tcp");
    }
    if let Some(flags) = args.tcp_flags.as_ref().filter(|_| protocol != 6) {
        bail!("--tcp-flags {flags}: the packet is not of tcp; remove the option");
    }
    // Headers of IPv6 that have another behind them.
    if v6 && matches!(protocol, 0 | 43 | 44 | 51 | 60 | 135) {
        bail!("--protocol {protocol}: a header before the protocol; give a capture with -r");
    }
    let mut transport = vec![0u8; 20];
    if matches!(protocol, 6 | 17 | 33 | 132 | 136) {
        transport[..2].copy_from_slice(&args.sport.unwrap_or(40_000).to_be_bytes());
        transport[2..4].copy_from_slice(&args.dport.unwrap_or(0).to_be_bytes());
    }
    match protocol {
        6 => {
            (transport[12], transport[13]) =
                (0x50, flags(args.tcp_flags.as_deref().unwrap_or("SYN"))?)
        }
        1 => transport[..4].copy_from_slice(&[8, 0, 0, 0]),
        58 => transport[..4].copy_from_slice(&[128, 0, 0, 0]),
        132 => transport[12..].copy_from_slice(&SCTP_INIT),
        _ => {}
    }
    Ok(match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut out = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
            out.extend_from_slice(&transport);
            out
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut out = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
            out.extend_from_slice(&transport);
            out
        }
        _ => bail!("--src and --dst are of different families"),
    })
}

impl Explained<'_> {
    fn core(&self) -> anyhow::Result<Core> {
        let mut core = Core::new(&self.built, CounterMode::None)?;
        core.trace(true);
        Ok(core)
    }

    /// One packet, by core and reference.
    fn one(&self, hook: Hook, packet: &Packet, format: Format) -> anyhow::Result<()> {
        let mut core = self.core()?;
        let mut outcome = core
            .evaluate(hook, packet)
            .context("rules do not see this packet: it is shorter than its network header, or than the length in it")?;
        let lines = self.lines(hook, packet, &mut outcome)?;
        let decided = self.decided(&outcome, hook, packet);
        let text = super::capture::describe(packet);
        if format == Format::Json {
            let object = json!({"file": self.name, "hook": hook.chain(), "packet": text,
                "verdict": self.verdict(&outcome), "decided_by": decided,
                "mark": outcome.changes.mark, "connection_mark": outcome.changes.connection_mark,
                "class": outcome.changes.priority.map(class_text), "tos": outcome.changes.tos,
                "ttl": outcome.changes.ttl, "mss": outcome.changes.mss.map(mss_as_json),
                "untracked": outcome.changes.untracked, "logged": outcome.changes.logged,
                "path": path::to_json(&lines)});
            fairpath_cli::print(format!("{object}\n"))?;
        } else {
            let mut out = format!("{}: {text}\n", hook.chain());
            path::to_text(self.name, &lines, &mut out);
            let _ = writeln!(out, "{} by {decided}", self.verdict(&outcome));
            changes(&outcome, packet, &mut out);
            fairpath_cli::print(out)?;
        }
        if let Verdict::Unknown(reason) = outcome.verdict {
            let why = match self.place(&outcome) {
                Some(Counted::Rule(table, chain, rule)) => {
                    let rule = &self.ruleset.tables[table].get(chain).rules[rule];
                    why(self.ruleset, self.sets, rule, reason)
                }
                _ => unknown_text(reason).to_owned(),
            };
            bail!("the answer depends on {why}");
        }
        Ok(())
    }

    /// The path in lines, by the reference, whose answer must be that of the core.
    fn lines(
        &self,
        hook: Hook,
        packet: &Packet,
        outcome: &mut CoreOutcome,
    ) -> anyhow::Result<Vec<PathLine>> {
        if outcome.verdict == Verdict::Unknown(Unknown::Steps) {
            return Ok(Vec::new());
        }
        let mut reference = Reference::new(self.ruleset, self.sets);
        reference.trace(true);
        let other = reference.evaluate(hook, packet);
        if other.verdict == Verdict::Unknown(Unknown::Steps) {
            bail!("the answer depends on {}", unknown_text(Unknown::Steps));
        }
        agree(outcome, &other)?;
        self.known_by_both(outcome, &other);
        // The reference evaluates some parts that the core does not: the path ends there.
        let limit = match (&outcome.verdict, &other.verdict, self.place(outcome)) {
            (_, Verdict::Unknown(_), _) => None,
            (Verdict::Unknown(reason), _, Some(Counted::Rule(table, chain, rule))) => {
                Some((RuleAt { table, chain, rule }, *reason))
            }
            _ => None,
        };
        Ok(path::lines(self.ruleset, self.sets, &other.path, limit))
    }

    /// Makes the answer unknown if the reference does not know it.
    fn known_by_both(&self, outcome: &mut CoreOutcome, other: &Outcome) {
        if matches!(other.verdict, Verdict::Unknown(_)) {
            outcome.verdict = other.verdict.clone();
            outcome.rule = other
                .at
                .map(|at| self.built.rule_id(at.table, at.chain, at.rule));
        }
    }

    /// The rule that decided.
    fn place(&self, outcome: &CoreOutcome) -> Option<Counted> {
        outcome
            .rule
            .and_then(|id| self.built.place(self.ruleset, id))
    }

    /// The verdict in words; of an unknown one, what it depends on.
    fn verdict(&self, outcome: &CoreOutcome) -> String {
        match (&outcome.verdict, self.place(outcome)) {
            (Verdict::Unknown(reason), Some(Counted::Rule(table, chain, rule))) => {
                let rule = &self.ruleset.tables[table].get(chain).rules[rule];
                format!("unknown ({})", why(self.ruleset, self.sets, rule, *reason))
            }
            (other, _) => verdict(other),
        }
    }

    /// The policy that ended the path of the reference. The core does not name policies of a
    /// bridge's other chains, because they have no counters, nor any after a full trace.
    fn policy(&self, hook: Hook, packet: &Packet) -> Option<String> {
        let mut reference = Reference::new(self.ruleset, self.sets);
        reference.trace(true);
        match reference.evaluate(hook, packet).path.last() {
            Some(Step::Policy { table, chain }) => Some(self.policy_text(*table, *chain)),
            _ => None,
        }
    }

    /// The rule or policy that decided.
    fn decided(&self, outcome: &CoreOutcome, hook: Hook, packet: &Packet) -> String {
        if (self.ruleset.family == Family::Bridge || outcome.matched.len() == TRACE)
            && outcome.rule.is_none()
            && let Some(policy) = self.policy(hook, packet)
        {
            return policy;
        }
        if let Some(Counted::Rule(table, chain, rule)) = self.place(outcome) {
            return self.rule_text(table, chain, rule);
        }
        let last = outcome.matched.last();
        let policy = match last.and_then(|id| self.built.place(self.ruleset, *id)) {
            Some(Counted::Policy(table, chain)) => Some((table, chain)),
            _ => None,
        };
        match (&outcome.verdict, policy) {
            (Verdict::Unknown(Unknown::Steps), _) => format!("no rule at {}", hook.chain()),
            (Verdict::Unknown(_), _) => "table nat, which may translate the packet".into(),
            (Verdict::Accept, Some((table, chain))) => self.policy_text(table, chain),
            (Verdict::Drop, Some((table, chain))) if self.drops(table, chain) => {
                self.policy_text(table, chain)
            }
            (Verdict::Drop, _) => "a broken header, which netfilter drops".into(),
            _ => format!("no rule at {}", hook.chain()),
        }
    }

    fn drops(&self, table: usize, chain: ChainId) -> bool {
        self.ruleset.tables[table].get(chain).policy == Policy::Drop
    }

    fn policy_text(&self, table: usize, chain: ChainId) -> String {
        path::policy_text(self.ruleset, table, chain)
    }

    fn rule_text(&self, table: usize, chain: ChainId, rule: usize) -> String {
        path::rule_text(self.name, self.ruleset, RuleAt { table, chain, rule })
    }

    /// All packets of a capture, by verdict and the rule that decided.
    fn summary(
        &self,
        hook: Hook,
        capture: &Path,
        facts: &Facts,
        format: Format,
    ) -> anyhow::Result<()> {
        let mut core = self.core()?;
        let mut reference = Reference::new(self.ruleset, self.sets);
        let mut dropped: BTreeMap<&str, u64> = BTreeMap::new();
        let mut disagreement = Ok(());
        // False after a packet of which one evaluator does not know the answer: from then on, limits
        // and lists of both may differ.
        let mut comparable = true;
        let mut counts: BTreeMap<(String, String), (u64, u64, u64)> = BTreeMap::new();
        let mut others = 0u64;
        let seen = packets(
            capture,
            self.ruleset.family,
            facts,
            &mut |number, packet| {
                if let Some(why) = malformed(packet, hook) {
                    *dropped.entry(why).or_default() += 1;
                    return true;
                }
                let Some(mut outcome) = core.evaluate(hook, packet) else {
                    others += 1;
                    return true;
                };
                let mut is_certain = true;
                if outcome.verdict == Verdict::Unknown(Unknown::Steps) {
                    comparable = false;
                } else {
                    let other = reference.evaluate(hook, packet);
                    let unknown = |verdict: &Verdict| matches!(verdict, Verdict::Unknown(_));
                    comparable &= unknown(&outcome.verdict) == unknown(&other.verdict);
                    match agree(&outcome, &other) {
                        Ok(()) => self.known_by_both(&mut outcome, &other),
                        Err(error) if comparable => {
                            disagreement = Err(error.context(format!("packet {number}")));
                            return false;
                        }
                        Err(_) => is_certain = false,
                    }
                }
                let answer = match is_certain {
                    true => self.verdict(&outcome),
                    false => "unknown (what an earlier unknown packet left)".into(),
                };
                let key = (answer, self.decided(&outcome, hook, packet));
                if counts.len() < MAX_PATHS || counts.contains_key(&key) {
                    let count = counts.entry(key).or_insert((0, 0, number));
                    count.0 += 1;
                    count.1 += packet.length as u64;
                } else {
                    others += 1;
                }
                true
            },
        )?;
        disagreement?;
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by_key(|(_, (packets, ..))| std::cmp::Reverse(*packets));
        let mut out = String::new();
        for ((verdict, by), (packets, bytes, first)) in &rows {
            if format == Format::Json {
                let object = json!({"verdict": verdict, "decided_by": by, "packets": packets,
                    "bytes": bytes, "first_packet": first});
                let _ = writeln!(out, "{object}");
            } else {
                let _ = writeln!(
                    out,
                    "{packets} packets, {bytes} bytes: {verdict} by {by} (first: packet {first})"
                );
            }
        }
        for (why, packets) in &dropped {
            if format == Format::Json {
                let object = json!({"verdict": "DROP", "decided_by": "the kernel, before rules",
                    "reason": why, "packets": packets});
                let _ = writeln!(out, "{object}");
            } else {
                let _ = writeln!(
                    out,
                    "{packets} packets: the kernel drops each before the rules, because {why}"
                );
            }
        }
        let skipped = seen.skipped + others;
        if skipped > 0 && format == Format::Text {
            let _ = writeln!(
                out,
                "{skipped} packets were not evaluated: another family, or an incomplete packet"
            );
        }
        fairpath_cli::print(out)?;
        Ok(())
    }
}

/// Compares the answers of the evaluators, if both know one.
fn agree(core: &CoreOutcome, reference: &Outcome) -> anyhow::Result<()> {
    let same = match (&reference.verdict, &core.verdict) {
        (_, Verdict::Unknown(_)) | (Verdict::Unknown(_), _) => true,
        (a, b) => a == b && reference.changes.mark == core.changes.mark,
    };
    if !same {
        bail!(
            "the evaluators do not agree: {} by the core, {} by the reference; please report this rule set and packet",
            verdict(&core.verdict),
            verdict(&reference.verdict)
        );
    }
    Ok(())
}

/// A class as tc writes it.
fn class_text(priority: u32) -> String {
    format!("{:x}:{:x}", priority >> 16, priority & 0xffff)
}

/// A limit of the MSS: its bytes, or `path`.
fn mss_as_json(mss: MssLimit) -> serde_json::Value {
    match mss {
        MssLimit::Bytes(bytes) => bytes.into(),
        MssLimit::Path => "path".into(),
    }
}

/// Changes of the packet in words.
fn changes(outcome: &CoreOutcome, packet: &Packet, out: &mut String) {
    let changes = &outcome.changes;
    if changes.mark != packet.facts.mark {
        let _ = writeln!(out, "mark: 0x{:x}", changes.mark);
    }
    if let Some(mark) = changes.connection_mark {
        let _ = writeln!(out, "connection mark: 0x{mark:x}");
    }
    if let Some(priority) = changes.priority {
        let _ = writeln!(out, "class: {}", class_text(priority));
    }
    if let Some(tos) = changes.tos {
        let _ = writeln!(out, "DSCP: {}, ECN: {}", tos >> 2, tos & 3);
    }
    if let Some(mss) = changes.mss {
        let _ = match mss {
            MssLimit::Path => writeln!(out, "MSS: at most that of the path"),
            MssLimit::Bytes(bytes) => writeln!(out, "MSS: at most {bytes}"),
        };
    }
    if let Some(ttl) = changes.ttl {
        let _ = writeln!(out, "TTL: {ttl}");
    }
    if changes.logged > 0 {
        let _ = writeln!(out, "logged: {} times", changes.logged);
    }
    if changes.untracked {
        out.push_str("not tracked\n");
    }
}
