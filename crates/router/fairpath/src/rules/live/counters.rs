//! The counters of the loaded rules.

use anyhow::{Context, bail};
use fairpath_bpf::{HOOK_FAMILIES, HookRules};
use fairpath_core::rules::{Counter, Memory};
use fairpath_rules::{Family, WithCounters, to_bytes};

use super::super::Format;
use super::super::files::FamilyArg;
use super::super::show::to_json;
use super::again::AgainArgs;
use super::given::Name;
use super::{Loaded, PinArgs, READS, daemon, lock, must_open};

/// Print the loaded rules with their counters, as iptables-save -c does.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules counters\n  \
    fairpath rules counters --family ipv6 --zero\n  \
    fairpath rules counters --watch --zero")]
pub struct CountersArgs {
    /// Only this family
    #[arg(long, value_enum, value_name = "FAMILY")]
    family: Option<FamilyArg>,
    /// Set them to 0 after printing
    #[arg(long)]
    zero: bool,
    #[command(flatten)]
    again: AgainArgs,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs `fairpath rules counters`.
///
/// # Errors
/// No rules are loaded.
pub fn run(args: &CountersArgs) -> anyhow::Result<()> {
    args.again.print(|| print(args))
}

fn print(args: &CountersArgs) -> anyhow::Result<()> {
    let family = args.family.map(FamilyArg::family);
    let (loaded, read) = match daemon::is_needed() {
        true if args.zero => {
            bail!("set counters to 0: only root may do this: run it with sudo, or omit --zero")
        }
        true => (daemon::request(&args.place, family)?.0, None),
        false => {
            let (rules, loaded, counted) = read(&args.place, family)?;
            (loaded, Some((rules, counted)))
        }
    };
    let mut out = Vec::new();
    for (name, ruleset) in loaded.rulesets() {
        match args.format {
            Format::Json => {
                let object = to_json(name, ruleset);
                out.extend_from_slice(format!("{object}\n").as_bytes());
            }
            Format::Text => {
                out.extend(to_bytes(ruleset, WithCounters::Always));
                for Name { family, table } in loaded.options().deferred_of(ruleset.family) {
                    let line = format!("# {table}: `{}-save -c -t {table}`\n", family.tool());
                    out.extend_from_slice(line.as_bytes());
                }
            }
        }
    }
    fairpath_cli::print_bytes(&out)?;
    // What no one has seen is not lost.
    let Some((rules, counted)) = read.filter(|_| args.zero && !fairpath_cli::reader_has_ended())
    else {
        return Ok(());
    };
    // Not before: a slow reader keeps no other command waiting.
    let _lock = lock()?;
    match subtract(&rules, &counted) {
        Ok(()) => Ok(()),
        Err(error) if args.again.is_repeated() => {
            fairpath_cli::note(format!("{error:#}"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Counters by family.
pub type Counted = [Vec<Printed>; HOOK_FAMILIES];

/// A counter of a rule or a policy.
pub struct Printed {
    id: u32,
    counter: Counter,
    /// Another command that sets it to 0 changes this.
    subtracted: Counter,
}

/// Subtracts what was printed, so that packets since then still count. Only with the lock.
///
/// # Errors
/// The printed counters are there no more: nothing changes.
fn subtract(rules: &HookRules, counted: &Counted) -> anyhow::Result<()> {
    if !rules.is_active() || !rules.is_loaded() {
        bail!(
            "set counters to 0: the rules were replaced while their counters were printed: repeat the command, no counter was set to 0"
        );
    }
    let families = counted.iter().enumerate();
    let mut families: Vec<_> = families
        .filter_map(|(family, counters)| Some((rules.memory(family)?, counters)))
        .collect();
    let is_other = |(memory, counters): &(Memory, &Vec<Printed>)| {
        let mut counters = counters.iter();
        counters.any(|printed| memory.subtracted(printed.id) != printed.subtracted)
    };
    if families.iter().any(is_other) {
        bail!(
            "set counters to 0: another command did so while they were printed: repeat the command"
        );
    }
    for (memory, counters) in &mut families {
        for printed in *counters {
            memory.subtract(printed.id, printed.counter);
        }
    }
    Ok(())
}

/// The loaded rules with their counters, of all families or the wanted one.
///
/// # Errors
/// No rules are loaded.
pub fn counted_rules(place: &PinArgs, wanted: Option<Family>) -> anyhow::Result<Loaded> {
    read(place, wanted).map(|(_, loaded, _)| loaded)
}

/// The same with the opened rules, and with the counters by their numbers.
fn read(place: &PinArgs, wanted: Option<Family>) -> anyhow::Result<(HookRules, Loaded, Counted)> {
    // Loads at the same time write the memory again.
    for _ in 0..READS {
        let (_, rules) = must_open(place)?;
        if let Some((loaded, counted)) = count(&rules, wanted)? {
            return Ok((rules, loaded, counted));
        }
    }
    bail!("read counters: loads replace the rules faster than they can be read")
}

/// The loaded rules with their counters, and these by their numbers, of opened rules. `None`: another process replaced them during this time.
pub fn count(
    rules: &HookRules,
    wanted: Option<Family>,
) -> anyhow::Result<Option<(Loaded, Counted)>> {
    let mut counted = Counted::default();
    let mut loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    for (family, counted) in counted.iter_mut().enumerate() {
        let chosen = wanted.is_none_or(|wanted| wanted as usize == family);
        if !chosen {
            loaded.forget(family);
            continue;
        }
        // The image first: it is compared with the generation when all is read.
        let (Some(image), Some(memory)) = (rules.image(family), rules.memory(family)) else {
            continue;
        };
        loaded.count(family, &image, |id| {
            // Before the counter: a command in between is seen later.
            let subtracted = memory.subtracted(id);
            let counter = memory.counter(id);
            counted.push(Printed {
                id,
                counter,
                subtracted,
            });
            counter
        });
    }
    Ok(rules.is_current().then_some((loaded, counted)))
}
