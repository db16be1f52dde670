//! `fairpath rules shadow`: verdicts of rules that decide nothing, compared with those of the rules that
//! run.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use anyhow::{Context, bail};
use fairpath_bpf::{
    Comparison, Disagreement, HookPlace, HookRules, IP_FAMILIES, SHADOW_ROWS, ShadowKind,
    ShadowOutcomes, ShadowPacket,
};
use fairpath_core::rules::action;
use fairpath_rules::image::Chains;
use fairpath_rules::spec::Kind;
use fairpath_rules::{ChainId, Hook, Logged, Policy, Rule, log_line, rule_string};
use fairpath_units::counted;
use fairpath_units::text::line;
use serde_json::{Value, json};

use super::super::Format;
use super::again::AgainArgs;
use super::log::NO_OPTIONS;
use super::reader::wall;
use super::{Loaded, PinArgs, READS, must_open};

/// Compare the rules of `load --shadow` with the rules that run.
///
/// Prints packets by hook, and each rule that disagrees with iptables or nftables, with its packets and
/// the first examples. Marks, connections and translated addresses are not compared. Exit status 1 if
/// verdicts about a packet differ.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules shadow\n  \
    fairpath rules shadow --format json\n  \
    fairpath rules shadow --watch --interval 10s")]
pub struct ShadowArgs {
    #[command(flatten)]
    again: AgainArgs,
    #[command(flatten)]
    place: PinArgs,
    /// Output format; JSON is one object for each report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs `fairpath rules shadow`.
///
/// # Errors
/// No rules are in the shadow, or verdicts about a packet differ.
pub fn run(args: &ShadowArgs) -> anyhow::Result<()> {
    verdict(&args.again.print(|| report(args))?)
}

/// An error if packets met other verdicts.
fn verdict(sums: &ShadowOutcomes) -> anyhow::Result<()> {
    let differing = sums.ours + sums.theirs;
    if differing > 0 {
        bail!(
            "{differing} of {} met another verdict",
            counted(sums.compared() as usize, "packet", "packets")
        );
    }
    Ok(())
}

/// Refuses rules in the shadow in place of those that decide.
pub fn refuse_to_end(new: &Loaded, found: Option<&(HookRules, Loaded)>) -> anyhow::Result<()> {
    if new.options().shadow && found.is_some_and(|(_, old)| !old.options().shadow) {
        bail!(
            "the loaded rules decide about packets, and a load with --shadow would end them: `fairpath rules unload` them first, or load without --shadow; nothing was changed"
        );
    }
    Ok(())
}

/// Programs that may drop packets, as bits PROGRAM * 5 + hook: all but empty chains that accept.
pub fn drops(loaded: &Loaded) -> [u32; IP_FAMILIES] {
    [0, 1].map(|family| {
        let tables = loaded.ruleset(family).map(|ruleset| &ruleset.tables);
        let tables = tables.into_iter().flatten().filter_map(|table| {
            let all = ["raw", "mangle", "filter", "security"];
            Some((all.iter().position(|name| **name == *table.name)?, table))
        });
        tables.fold(0, |bits, (program, table)| {
            let chains = table
                .chains()
                .filter(|(_, chain)| !chain.rules.is_empty() || chain.policy == Policy::Drop);
            chains.fold(bits, |bits, (_, chain)| match chain.hook {
                Some(hook) => bits | 1 << (program * 5 + hook as usize),
                None => bits,
            })
        })
    })
}

/// True for rules that read or change a state, which is not that of the rules that run.
fn has_state(rule: &Rule) -> bool {
    let kinds = [
        Kind::Limit,
        Kind::Hashlimit,
        Kind::Quota,
        Kind::Recent,
        Kind::Statistic,
    ];
    rule.matches().any(|group| kinds.contains(&group.kind))
}

/// A sentence about rules that have their own state.
pub fn notes(loaded: &Loaded) -> Option<String> {
    let tables = loaded.rulesets().flat_map(|(_, ruleset)| &ruleset.tables);
    let chains = tables.flat_map(|table| table.chains());
    let rules = chains.flat_map(|(_, chain)| &chain.rules);
    let count = rules.filter(|rule| has_state(rule)).count();
    (loaded.options().shadow && count > 0).then(|| {
        let rules = counted(count, "rule has its", "rules have their");
        format!("{rules} own limits, lists or random numbers, and may disagree without an error")
    })
}

/// Names of families.
const FAMILIES: [&str; IP_FAMILIES] = ["IPv4", "IPv6"];

/// A rule or policy that disagrees.
struct Named<'a> {
    file: &'a str,
    /// 0: not known.
    line: u32,
    table: &'a str,
    chain: String,
    text: String,
    has_state: bool,
}

/// The table, chain and rule of a counter; no rule: the policy.
type Counted = (usize, ChainId, Option<usize>);

/// The rules in the shadow, and those that disagree by family and counter.
struct Rules {
    loaded: Loaded,
    found: HashMap<(usize, u32), Counted>,
    /// Hooks of each family at which the shadow has no chains.
    absent: [Vec<Hook>; IP_FAMILIES],
}

impl Rules {
    fn new(
        loaded: Loaded,
        images: &[Option<Vec<u8>>; IP_FAMILIES],
        places: &[HookPlace],
        rows: &[Disagreement],
    ) -> Rules {
        let wanted = rows.iter().filter_map(|row| Some((family(row), row.id?)));
        let wanted: HashSet<(usize, u32)> = wanted.collect();
        let mut found = HashMap::new();
        for (family, image) in images.iter().enumerate() {
            let (Some(ruleset), Some(image)) = (loaded.ruleset(family), image) else {
                continue;
            };
            let chains = Chains::new(ruleset, image);
            for (at, table) in ruleset.tables.iter().enumerate() {
                for (chain, _) in table.chains() {
                    let policy = chains.policy_id(at, chain).map(|id| (id, None));
                    let rules = chains.rule_ids(at, chain).enumerate();
                    let rules = rules.map(|(rule, id)| (id, Some(rule)));
                    let all = policy.into_iter().chain(rules);
                    let all = all.filter(|(id, _)| wanted.contains(&(family, *id)));
                    found.extend(all.map(|(id, rule)| ((family, id), (at, chain, rule))));
                }
            }
        }
        let absent = [true, false].map(|is_ipv4| {
            let is_at = |place: &HookPlace, hook: Hook| {
                place.is_ipv4() == is_ipv4 && place.hook as usize == hook as usize
            };
            let hooks = Hook::ALL.into_iter();
            hooks
                .filter(|hook| *hook != Hook::Brouting)
                .filter(|hook| !places.iter().any(|place| is_at(place, *hook)))
                .collect()
        });
        Rules {
            loaded,
            found,
            absent,
        }
    }

    /// `None`: no rule decided.
    fn find(&self, row: &Disagreement) -> Option<Named<'_>> {
        let family = family(row);
        let (table, chain, rule) = *self.found.get(&(family, row.id?))?;
        let mut sets = self.loaded.rulesets();
        let (file, ruleset) = sets.find(|(_, ruleset)| ruleset.family as usize == family)?;
        let table = &ruleset.tables[table];
        let chain = table.get(chain);
        let rule = rule.and_then(|at| chain.rules.get(at));
        let policy = match chain.policy {
            Policy::Drop => "DROP",
            _ => "ACCEPT",
        };
        Some(Named {
            file,
            line: rule.map_or(0, |rule| rule.line),
            table: &table.name,
            chain: chain.name().into_owned(),
            text: match rule {
                Some(rule) => rule_string(ruleset.family, table, chain, rule),
                None => format!("-P {} {policy}", chain.name()),
            },
            has_state: rule.is_some_and(has_state),
        })
    }
}

fn family(row: &Disagreement) -> usize {
    usize::from(!row.is_ipv4)
}

/// Reads and prints the comparison. Returns its sums.
fn report(args: &ShadowArgs) -> anyhow::Result<ShadowOutcomes> {
    let (rules, comparison) = compared(args)?;
    let mut sums = ShadowOutcomes::default();
    comparison
        .outcomes
        .iter()
        .flatten()
        .for_each(|one| sums.add(one));
    let out = match args.format {
        Format::Json => format!("{}\n", to_json(&rules, &comparison)),
        Format::Text => text(&rules, &comparison, &sums),
    };
    fairpath_cli::print(out)?;
    Ok(sums)
}

fn compared(args: &ShadowArgs) -> anyhow::Result<(Rules, Comparison)> {
    // Loads at the same time write the memory again.
    for _ in 0..READS {
        let (_, rules) = must_open(&args.place)?;
        let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
        if !loaded.options().shadow {
            bail!(
                "the loaded rules decide about packets, so there is nothing to compare: `fairpath rules load --shadow` loads rules that decide nothing"
            );
        }
        let images = [0, 1].map(|family| rules.image(family));
        let places: Vec<HookPlace> = rules.places().filter(|place| place.is_after()).collect();
        if let Some(comparison) = rules.comparison() {
            let rules = Rules::new(loaded, &images, &places, &comparison.disagreements);
            return Ok((rules, comparison));
        }
    }
    bail!("compare rules: loads replace them faster than they can be read")
}

/// Names of the counts of a hook, for JSON.
fn outcomes_json(sums: &ShadowOutcomes) -> Value {
    json!({"compared": sums.compared(), "both_accept": sums.accepted, "both_drop": sums.dropped,
        "only_fairpath_drops": sums.ours, "only_running_rules_drop": sums.theirs,
        "running_rules_drop_early": sums.early, "not_compared_no_record_free": sums.full,
        "not_compared_without_record": sums.unknown, "not_listed": sums.unlisted})
}

/// Hooks and families that packets passed.
fn used(comparison: &Comparison) -> impl Iterator<Item = (&'static str, &str, &ShadowOutcomes)> {
    let hooks = comparison.outcomes.iter().zip(Hook::ALL);
    let all = hooks.flat_map(|(families, hook)| {
        let families = families.iter().zip(FAMILIES);
        families.map(move |(sums, family)| (hook.chain(), family, sums))
    });
    all.filter(|(.., sums)| **sums != ShadowOutcomes::default())
}

fn word(verdict: u32) -> &'static str {
    match verdict {
        action::ACCEPT => "ACCEPT",
        action::REJECT => "REJECT",
        action::UNKNOWN => "unknown",
        _ => "DROP",
    }
}

fn packet_line(packet: &ShadowPacket) -> String {
    let packet = Logged {
        input: &packet.input,
        output: &packet.output,
        link: None,
        is_ethernet: false,
        mark: packet.mark,
        bytes: &packet.bytes,
        length: packet.length,
    };
    log_line(NO_OPTIONS, &packet).trim_end().to_owned()
}

fn kind(kind: ShadowKind) -> &'static str {
    match kind {
        ShadowKind::Ours => "only_fairpath_drops",
        ShadowKind::Theirs => "only_running_rules_drop",
        ShadowKind::Early => "running_rules_drop_early",
    }
}

fn to_json(rules: &Rules, comparison: &Comparison) -> Value {
    let hooks = used(comparison).map(|(hook, family, sums)| {
        let mut object = outcomes_json(sums);
        object["hook"] = hook.into();
        object["family"] = family.into();
        object
    });
    let rows = comparison.disagreements.iter().map(|row| {
        let rule = rules.find(row).map(|named| {
            json!({"file": named.file, "line": (named.line > 0).then_some(named.line),
                "table": named.table, "chain": named.chain, "rule": named.text,
                "has_state": named.has_state})
        });
        let examples = row.examples.iter().map(|packet| {
            json!({"time": wall(packet.time).to_string(), "verdict": word(packet.verdict),
                "length": packet.length, "line": packet_line(packet)})
        });
        json!({"kind": kind(row.kind), "hook": Hook::ALL[row.hook].chain(),
            "family": if row.is_ipv4 { "IPv4" } else { "IPv6" }, "rule": rule,
            "packets": row.packets, "examples": examples.collect::<Vec<_>>()})
    });
    let absent = rules
        .absent
        .iter()
        .zip(FAMILIES)
        .flat_map(|(hooks, family)| {
            let hooks = hooks.iter();
            hooks.map(move |hook| json!({"hook": hook.chain(), "family": family}))
        });
    json!({"loaded": rules.loaded.describe(), "hooks": hooks.collect::<Vec<_>>(),
        "hooks_not_compared": absent.collect::<Vec<_>>(),
        "disagreements": rows.collect::<Vec<_>>(), "packets_in_queues": comparison.waiting})
}

fn text(rules: &Rules, comparison: &Comparison, sums: &ShadowOutcomes) -> String {
    let mut out = format!("in the shadow: {}\n", rules.loaded.summary());
    let _ = writeln!(
        out,
        "{:<12} {:<6} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "hook", "family", "both accept", "both drop", "ours drop", "theirs drop", "early"
    );
    for (hook, family, sums) in used(comparison) {
        let _ = writeln!(
            out,
            "{hook:<12} {family:<6} {:>12} {:>12} {:>12} {:>12} {:>12}",
            sums.accepted, sums.dropped, sums.ours, sums.theirs, sums.early
        );
    }
    for row in &comparison.disagreements {
        row_text(&mut out, rules, row);
    }
    if sums.ours + sums.theirs > 0 {
        let _ = notes(&rules.loaded).map(|note| writeln!(out, "{note}"));
    }
    for (hooks, family) in rules.absent.iter().zip(FAMILIES) {
        let hooks: Vec<&str> = hooks.iter().map(|hook| hook.chain()).collect();
        let _ = match hooks.len() {
            0 => Ok(()),
            5 => writeln!(out, "not compared: {family}, which has no rules here"),
            _ => writeln!(
                out,
                "not compared: {} of {family}, which have no chains here",
                hooks.join(", ")
            ),
        };
    }
    let mut remark = |count: u64, text: &str| {
        if count > 0 {
            let packets = counted(count as usize, "packet", "packets");
            let _ = writeln!(out, "{packets} {text}");
        }
    };
    remark(comparison.waiting, "may wait in queues of user space");
    remark(sums.full, "not compared: all places of records were in use");
    remark(sums.unknown, "not compared: accepted without a record");
    let full = format!("in no list: more than {SHADOW_ROWS} rules disagree");
    remark(sums.unlisted, &full);
    let packets = counted(sums.compared() as usize, "packet", "packets");
    match (sums.compared(), sums.ours + sums.theirs) {
        (0, _) => out += "no packet was compared yet\n",
        (_, 0) => drop(writeln!(out, "{packets} compared, no verdict differs")),
        _ => {}
    }
    out
}

fn row_text(out: &mut String, rules: &Rules, row: &Disagreement) {
    let named = rules.find(row);
    match &named {
        Some(named) => {
            let _ = write!(out, "{}:", line(named.file));
            if named.line > 0 {
                let _ = write!(out, "{}:", named.line);
            }
            let _ = writeln!(out, " {}: {}", named.table, line(&named.text));
        }
        None => *out += "no rule: broken headers\n",
    }
    let (who, theirs) = match row.kind {
        ShadowKind::Ours => ("Fairpath drops, the running rules accept", "ACCEPT"),
        ShadowKind::Theirs => ("the running rules drop, Fairpath accepts", "DROP"),
        ShadowKind::Early => (
            "the running rules drop before later tables of Fairpath",
            "DROP",
        ),
    };
    let packets = counted(row.packets as usize, "packet", "packets");
    let (hook, family) = (
        Hook::ALL[row.hook].chain(),
        if row.is_ipv4 { "IPv4" } else { "IPv6" },
    );
    let _ = writeln!(out, "  {who}: {packets} at {hook}, {family}");
    if named.is_some_and(|named| named.has_state) {
        *out += "  its limits, lists or random numbers are not those of the running rules\n";
    }
    for packet in &row.examples {
        let time = wall(packet.time);
        let ours = word(packet.verdict);
        let packet = packet_line(packet);
        let packet = line(&packet);
        let _ = writeln!(out, "  {time:.3} ours {ours}, theirs {theirs}: {packet}");
    }
}
