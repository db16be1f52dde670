//! `fairpath rules stats` and `profile`: numbers of a set, and of packets through it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{
    Core, Family, Hook, Ruleset, Sets, check_evaluated, path, rule_string, stats,
};
use serde_json::json;

use super::Format;
use super::capture::{FactArgs, malformed, packets};
use super::files::{FileArgs, Files, load, load_one};

/// Show the size of a set, its memory, and with -r the rules that packets meet.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules stats rules.v4\n  \
    fairpath rules stats rules.v4 -r capture.pcap -i eth0 --ctstate NEW")]
pub struct Args {
    #[command(flatten)]
    files: FileArgs,
    /// A capture whose packets are evaluated
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    #[command(flatten)]
    facts: FactArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Show the rules that the packets of a capture spend time in, and the effect of lookups.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules profile rules.v4 -r capture.pcap -i eth0 -o eth1 --ctstate NEW\n  \
    fairpath rules profile rules.v4 -r capture.pcap --hook input --limit 50 --format json")]
pub struct ProfileArgs {
    #[command(flatten)]
    files: FileArgs,
    /// A capture whose packets are evaluated
    #[arg(short, long, value_name = "FILE", required = true)]
    read: PathBuf,
    #[command(flatten)]
    facts: FactArgs,
    /// Rules and chains to list
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Rules that packets met.
#[derive(Debug, Default)]
struct Met {
    each: Vec<u32>,
    unknown: u64,
    skipped: u64,
    malformed: u64,
}

impl Met {
    fn mean(&self) -> f64 {
        let sum: u64 = self.each.iter().map(|met| u64::from(*met)).sum();
        sum as f64 / self.each.len().max(1) as f64
    }

    fn share(&self, part: f64) -> u32 {
        let at = (self.each.len().max(1) - 1) as f64 * part;
        self.each.get(at.round() as usize).copied().unwrap_or(0)
    }
}

fn evaluate(
    built: &Built,
    family: Family,
    hook: Hook,
    capture: &Path,
    facts: &FactArgs,
    each: &mut dyn FnMut(&fairpath_rules::CoreOutcome),
) -> anyhow::Result<Met> {
    let mut core = Core::new(built, CounterMode::None)?;
    core.trace(true);
    let mut met = Met::default();
    let facts = facts.facts(hook)?;
    let seen = packets(capture, family, &facts, &mut |_, packet| {
        if malformed(packet, hook).is_some() {
            met.malformed += 1;
            return true;
        }
        match core.evaluate(hook, packet) {
            Some(outcome) => {
                met.each.push(outcome.evaluated);
                met.unknown += u64::from(matches!(
                    outcome.verdict,
                    fairpath_rules::Verdict::Unknown(_)
                ));
                each(&outcome);
            }
            None => met.skipped += 1,
        }
        true
    })?;
    met.skipped += seen.skipped;
    met.each.sort_unstable();
    if met.each.is_empty() && met.malformed == 0 {
        bail!("{} has no {family} packets", capture.display());
    }
    Ok(met)
}

/// Bytes of memory by counter mode, for a number of CPUs.
fn memory(built: &Built) -> anyhow::Result<[(&'static str, usize); 3]> {
    let counters = built.ids as usize * 16;
    let all = fairpath_core::rules::Memory::bytes(&built.image)?;
    Ok([("none", all - counters), ("sampled", all), ("exact", all)])
}

/// Runs `fairpath rules stats`.
///
/// # Errors
/// The files have a problem, or the capture cannot be read.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let loaded = load(&args.files.files, &args.files.reading)?;
    let not_evaluated = not_evaluated(&loaded);
    let (name, ruleset, sets) = loaded.only()?;
    let tables = stats(&ruleset);
    let linear = build(&ruleset, sets.as_ref(), Lookups::Never)?;
    let hook = args.facts.hook(ruleset.family);
    let met = match &args.read {
        Some(capture) => Some(evaluate(
            &linear,
            ruleset.family,
            hook,
            capture,
            &args.facts,
            &mut |_| {},
        )?),
        None => None,
    };
    let memory = memory(&linear)?;
    if args.format == Format::Json {
        let tables: Vec<_> = tables
            .iter()
            .map(|table| {
                json!({"table": table.name, "rules": table.rules, "chains": table.chains,
                    "rules_by_chain": table.density,
                    "longest_span": table.longest_span.iter().cloned().collect::<HashMap<_, _>>(),
                    "nested_jumps": table.depth})
            })
            .collect();
        let packets = met.as_ref().map(|met| {
            json!({"hook": hook.chain(), "packets": met.each.len(), "skipped": met.skipped,
                "malformed": met.malformed, "unknown": met.unknown, "mean": met.mean(), "p50": met.share(0.5),
                "p99": met.share(0.99), "worst": met.share(1.0)})
        });
        let object = json!({"file": name, "family": ruleset.family.to_string(), "tables": tables,
            "image_bytes": linear.image.len(),
            "memory_bytes": memory.iter().copied().collect::<HashMap<_, _>>(),
            "not_evaluated": not_evaluated, "rules_met": packets});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{name}: {}, {} rules in {} chains",
        ruleset.family,
        ruleset.rules(),
        ruleset.chains()
    );
    for table in &tables {
        let [minimum, first, median, third, maximum] = table.density;
        let _ = writeln!(
            out,
            "table {}: {} rules in {} chains; rules of a chain: {minimum}, quartiles {first} {median} {third}, maximum {maximum}; jumps nested up to {}",
            table.name, table.rules, table.chains, table.depth
        );
        for (chain, span) in &table.longest_span {
            let _ = match span {
                Some(0) => Ok(()),
                Some(span) => writeln!(out, "  {chain}: at most {span} rules for a packet"),
                None => writeln!(
                    out,
                    "  {chain}: 2^64 rules or more are possible for a packet"
                ),
            };
        }
    }
    let _ = writeln!(out, "image: {} bytes", linear.image.len());
    for (mode, bytes) in memory {
        let _ = writeln!(
            out,
            "memory with counters {mode}: {bytes} bytes for one CPU"
        );
    }
    for line in &not_evaluated {
        let _ = writeln!(out, "{line}");
    }
    if let Some(met) = &met {
        met_text(met, hook, &mut out);
    }
    fairpath_cli::print(out)?;
    Ok(())
}

/// Matches and targets that are not evaluated, with their places.
fn not_evaluated(loaded: &Files) -> Vec<String> {
    let mut out = Vec::new();
    for file in &loaded.rules {
        let findings = check_evaluated(&file.reading.ruleset, loaded.sets.as_ref()).list;
        for (finding, place) in findings.iter().zip(file.places(&findings)) {
            out.push(format!("{}:{place}: {}", file.name, finding.text));
        }
    }
    out
}

fn met_text(met: &Met, hook: Hook, out: &mut String) {
    let _ = writeln!(
        out,
        "{} packets at {}: {:.1} rules on average, half of them at most {}, 99 % at most {}, worst {}",
        met.each.len(),
        hook.chain(),
        met.mean(),
        met.share(0.5),
        met.share(0.99),
        met.share(1.0)
    );
    if met.unknown > 0 {
        let _ = writeln!(
            out,
            "{} of them have an unknown verdict: explain names what it depends on",
            met.unknown
        );
    }
    if met.malformed > 0 {
        let _ = writeln!(
            out,
            "{} malformed packets do not meet rules: the kernel drops them before; explain names the reason",
            met.malformed
        );
    }
    if met.skipped > 0 {
        let _ = writeln!(
            out,
            "{} packets of other families were skipped",
            met.skipped
        );
    }
}

/// Comparisons by rule: how often each was compared, and how often it matched.
#[derive(Default)]
struct Profile {
    compared: HashMap<(usize, u32), Vec<i64>>,
    matched: HashMap<(usize, u32, usize), u64>,
}

impl Profile {
    fn matched_at(&self, row: &ChainRow, at: usize) -> u64 {
        let place = (row.table, row.chain, at);
        self.matched.get(&place).copied().unwrap_or(0)
    }

    fn add(
        &mut self,
        ruleset: &Ruleset,
        built: &Built,
        hook: Hook,
        outcome: &fairpath_rules::CoreOutcome,
    ) {
        for stretch in path(ruleset, built, hook, outcome) {
            let rules = ruleset.tables[stretch.table].get(stretch.chain).rules.len();
            let steps = self
                .compared
                .entry((stretch.table, stretch.chain.0))
                .or_insert_with(|| vec![0; rules + 1]);
            steps[stretch.rules.0] += 1;
            steps[stretch.rules.1] -= 1;
            if stretch.matched {
                *self
                    .matched
                    .entry((stretch.table, stretch.chain.0, stretch.rules.1 - 1))
                    .or_default() += 1;
            }
        }
    }
}

/// A chain in the profile.
struct ChainRow {
    table: usize,
    chain: u32,
    compared: u64,
    /// The rule that was compared most often without a match.
    rules: Vec<u64>,
}

fn rows(profile: &Profile) -> Vec<ChainRow> {
    let mut rows: Vec<ChainRow> = profile
        .compared
        .iter()
        .map(|((table, chain), steps)| {
            let mut running = 0;
            let rules: Vec<u64> = steps[..steps.len() - 1]
                .iter()
                .map(|step| {
                    running += step;
                    running as u64
                })
                .collect();
            ChainRow {
                table: *table,
                chain: *chain,
                compared: rules.iter().sum(),
                rules,
            }
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.compared), row.table, row.chain));
    rows
}

/// Runs `fairpath rules profile`.
///
/// # Errors
/// The files have a problem, or the capture cannot be read.
pub fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    let (name, ruleset, sets) = load_one(&args.files.files, &args.files.reading)?;
    let hook = args.facts.hook(ruleset.family);
    let linear = build(&ruleset, sets.as_ref(), Lookups::Never)?;
    let mut profile = Profile::default();
    let met = evaluate(
        &linear,
        ruleset.family,
        hook,
        &args.read,
        &args.facts,
        &mut |outcome| {
            profile.add(&ruleset, &linear, hook, outcome);
        },
    )?;
    let (optimised, with) = optimised(&ruleset, sets.as_ref(), hook, args)?;
    let rows = rows(&profile);
    let total: u64 = rows.iter().map(|row| row.compared).sum();
    if args.format == Format::Json {
        let chains: Vec<_> = rows
            .iter()
            .take(args.limit)
            .map(|row| {
                let table = &ruleset.tables[row.table];
                let chain = table.get(fairpath_rules::ChainId(row.chain));
                json!({"table": *table.name, "chain": chain.name(), "compared": row.compared})
            })
            .collect();
        let rules: Vec<_> = most_compared(&rows)
            .into_iter()
            .take(args.limit)
            .map(|(count, row, at)| {
                let table = &ruleset.tables[row.table];
                let chain = table.get(fairpath_rules::ChainId(row.chain));
                json!({"table": *table.name, "chain": chain.name(), "line": chain.rules[at].line,
                    "compared": count, "matched": profile.matched_at(row, at),
                    "text": rule_string(ruleset.family, table, chain, &chain.rules[at])})
            })
            .collect();
        let plans: Vec<_> = optimised
            .plans
            .iter()
            .map(|plan| {
                let table = &ruleset.tables[plan.table];
                json!({"table": *table.name, "chain": table.get(plan.chain).name(),
                    "rules": plan.rules, "reason": plan.reason})
            })
            .collect();
        let object = json!({"file": name, "hook": hook.chain(), "packets": met.each.len(),
            "rules": rules, "lookups": plans, "comparisons": total, "mean": met.mean(), "mean_with_lookups": with.mean(),
            "worst": met.share(1.0), "worst_with_lookups": with.share(1.0), "chains": chains});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let mut out = String::new();
    met_text(&met, hook, &mut out);
    let _ = writeln!(
        out,
        "with lookups: {:.1} rules on average, 99 % at most {}, worst {} ({} chains have tables)",
        with.mean(),
        with.share(0.99),
        with.share(1.0),
        optimised
            .plans
            .iter()
            .filter(|plan| plan.segment.is_some())
            .count()
    );
    let _ = writeln!(out, "\ncomparisons by chain:");
    for row in rows.iter().take(args.limit) {
        let table = &ruleset.tables[row.table];
        let chain = table.get(fairpath_rules::ChainId(row.chain));
        let _ = writeln!(
            out,
            "  {:>5.1} %  {} {} ({} rules)",
            100.0 * row.compared as f64 / total.max(1) as f64,
            table.name,
            chain.name(),
            chain.rules.len()
        );
    }
    rule_text(&ruleset, &profile, &rows, total, args.limit, &mut out);
    fairpath_cli::print(out)?;
    Ok(())
}

fn optimised(
    ruleset: &Ruleset,
    sets: Option<&Sets>,
    hook: Hook,
    args: &ProfileArgs,
) -> anyhow::Result<(Built, Met)> {
    let built = build(ruleset, sets, Lookups::default())?;
    let met = evaluate(
        &built,
        ruleset.family,
        hook,
        &args.read,
        &args.facts,
        &mut |_| {},
    )?;
    Ok((built, met))
}

/// Rules with their comparisons, most of them first.
fn most_compared(rows: &[ChainRow]) -> Vec<(u64, &ChainRow, usize)> {
    let mut rules: Vec<(u64, &ChainRow, usize)> = rows
        .iter()
        .flat_map(|row| {
            let rules = row.rules.iter().enumerate();
            rules.map(move |(at, count)| (*count, row, at))
        })
        .collect();
    rules.sort_by_key(|(count, row, at)| (std::cmp::Reverse(*count), row.table, row.chain, *at));
    rules
}

fn rule_text(
    ruleset: &Ruleset,
    profile: &Profile,
    rows: &[ChainRow],
    total: u64,
    top: usize,
    out: &mut String,
) {
    let _ = writeln!(out, "\ncomparisons by rule (compared, matched):");
    for (count, row, at) in most_compared(rows).into_iter().take(top) {
        let table = &ruleset.tables[row.table];
        let chain = table.get(fairpath_rules::ChainId(row.chain));
        let matched = profile.matched_at(row, at);
        let _ = writeln!(
            out,
            "  {:>5.1} %  {count} {matched}  line {}: {} {}",
            100.0 * count as f64 / total.max(1) as f64,
            chain.rules[at].line,
            table.name,
            rule_string(ruleset.family, table, chain, &chain.rules[at])
        );
    }
}
