//! `fairpath rules show`: a set in canonical form, or the plan of its lookups.

use std::fmt::Write as _;
use std::path::PathBuf;

use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Counters, Ruleset, Sets, WithCounters, rule_string, to_bytes};
use serde_json::json;

use super::Format;
use super::files::{ReadArgs, load};
use super::live::{PinArgs, status};

/// Print rules in canonical form, or with --plan the lookups of long chains.
///
/// The canonical form is equal to the output of the original save tool, comment lines aside. A file of
/// sets alone is printed as by ipset save. Without files, the state of the loaded rules is printed:
/// their number, their priorities at the hooks, and whether a load waits for its confirmation.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules show rules.v4\n  \
    fairpath rules show\n  \
    fairpath rules show --plan rules.v4")]
pub struct Args {
    /// Files of rules and of sets; - is standard input. Without any: the loaded rules
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    place: PinArgs,
    /// Print for each long chain how rules are found, and why
    #[arg(long, requires = "files")]
    plan: bool,
    /// Evaluate all chains in order, without lookups
    #[arg(long, requires = "plan")]
    no_optimise: bool,
    /// Print counters of all rules, or of none
    #[arg(long, value_enum, default_value_t = CounterArg::AsRead)]
    counters: CounterArg,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CounterArg {
    /// Those of the file
    AsRead,
    /// None
    Never,
    /// Of every rule, 0 if the file has none
    Always,
}

/// Runs `fairpath rules show`.
///
/// # Errors
/// The files have a problem.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.files.is_empty() {
        return status(&args.place, args.format);
    }
    let files = load(&args.files, &args.reading)?;
    if let (false, [], [], Some(sets)) = (
        args.plan,
        &files.rules[..],
        &files.set_problems[..],
        &files.sets,
    ) {
        return match args.format {
            Format::Text => fairpath_cli::print_bytes(sets.to_string().as_bytes()),
            Format::Json => fairpath_cli::print(format!("{}\n", sets_json(sets)?)),
        };
    }
    let (name, ruleset, sets) = files.only()?;
    if !args.plan {
        if args.format == Format::Json {
            fairpath_cli::print(format!("{}\n", to_json(&name, &ruleset)))?;
            return Ok(());
        }
        let counters = match args.counters {
            CounterArg::AsRead => WithCounters::AsRead,
            CounterArg::Never => WithCounters::Never,
            CounterArg::Always => WithCounters::Always,
        };
        fairpath_cli::print_bytes(&to_bytes(&ruleset, counters))?;
        return Ok(());
    }
    let lookups = match args.no_optimise {
        true => Lookups::Never,
        false => Lookups::Estimated,
    };
    let built = build(&ruleset, sets.as_ref(), lookups)?;
    if args.format == Format::Json {
        let plans: Vec<serde_json::Value> = built
            .plans
            .iter()
            .map(|plan| {
                let table = &ruleset.tables[plan.table];
                json!({"table": *table.name, "chain": table.get(plan.chain).name(),
                    "rules": plan.rules, "reason": plan.reason,
                    "tables": plan.segment.as_ref().map(|segment| &segment.tuples)})
            })
            .collect();
        let object = json!({"file": name, "image_bytes": built.image.len(), "chains": plans});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let mut out = String::new();
    let short = ruleset.chains() - built.plans.len();
    for plan in &built.plans {
        let table = &ruleset.tables[plan.table];
        let _ = writeln!(
            out,
            "{} {}: {} rules, {}",
            table.name,
            table.get(plan.chain).name(),
            plan.rules,
            plan.reason
        );
        for tuple in plan.segment.iter().flat_map(|segment| &segment.tuples) {
            let _ = writeln!(out, "  {tuple}");
        }
    }
    let _ = writeln!(
        out,
        "{short} {}evaluated in order; image {} bytes",
        if args.no_optimise {
            "chains, all "
        } else {
            "shorter chains are "
        },
        built.image.len()
    );
    fairpath_cli::print(out)?;
    Ok(())
}

/// Sets with their lines.
fn sets_json(sets: &Sets) -> Result<serde_json::Value, std::fmt::Error> {
    let mut list = Vec::new();
    for (name, set) in sets.iter() {
        let mut text = String::new();
        set.write(name, &mut text)?;
        let lines: Vec<&str> = text.lines().collect();
        list.push(
            json!({"set": name, "type": set.type_name(), "elements": set.len(),
            "lines": lines}),
        );
    }
    Ok(json!({ "sets": list }))
}

/// Tables, chains and rules; counters are 0 if the file has none.
pub fn to_json(name: &str, ruleset: &Ruleset) -> serde_json::Value {
    let tables = ruleset.tables.iter().map(|table| {
        let chains = table.sorted().into_iter().map(|(_, chain)| {
            let rules = chain.rules.iter().map(|rule| {
                let Counters { packets, bytes } =
                    rule.counters.as_deref().copied().unwrap_or_default();
                let text = rule_string(ruleset.family, table, chain, rule);
                json!({"line": rule.line, "text": text, "packets": packets, "bytes": bytes})
            });
            json!({"chain": chain.name(), "hook": chain.hook.map(|hook| hook.chain()),
                "policy": chain.policy.name(), "packets": chain.counters.packets,
                "bytes": chain.counters.bytes, "rules": rules.collect::<Vec<_>>()})
        });
        json!({"table": *table.name, "chains": chains.collect::<Vec<_>>()})
    });
    json!({"file": name, "family": ruleset.family.to_string(),
        "tables": tables.collect::<Vec<_>>()})
}
