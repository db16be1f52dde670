//! `fairpath rules boot`: kept rules at the start of the machine, before its network.
//!
//! ```text
//!   kept file ─┬─ rules ──> put(), as a load
//!              └─ fault ─┬─ open: no rules
//!                        └─ closed: rules that drop all but loopback and known connections
//! ```

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, bail};
use fairpath_backend::xtables::{Restore, restore};
use fairpath_bpf::{AnswerLock, FrameFamily, HookRules};
use fairpath_config::Fail;
use fairpath_core::rules::CounterMode;
use fairpath_rules::{Family, Names, Ruleset, read};
use fairpath_units::counted;

use super::given::Given;
use super::kept::{self, KeptArgs};
use super::loaded::{Loaded, Source};
use super::options::Options;
use super::paths::Paths;
use super::suitable::Suitable;
use super::{PinArgs, Start, early, egress, frames, lock, put};

/// The name of the rules of [`CLOSED`].
const CLOSED_NAME: &str = "fail = \"closed\"";
/// IPv4, and IPv6 with neighbour discovery, which IPv4 has below its rules.
const CLOSED: [&str; 2] = [
    "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
     -A INPUT -i lo -j ACCEPT\n\
     -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
     COMMIT\n",
    "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
     -A INPUT -i lo -j ACCEPT\n\
     -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
     -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 134 -m hl --hl-eq 255 -j ACCEPT\n\
     -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT\n\
     -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 136 -m hl --hl-eq 255 -j ACCEPT\n\
     COMMIT\n",
];

/// Load the kept rules, at the start of the machine.
///
/// The unit fairpath-rules does this before the network is up. The rules are those of the last load that was
/// confirmed or needed no confirmation, with later edits. Table nat and tables of `load --defer` go to
/// iptables as that load gave them. Counters, limits and recent lists begin again, and elements of sets end
/// when they would have. If rules are loaded already, nothing changes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules boot\n  \
    fairpath rules boot --fail closed")]
pub struct BootArgs {
    /// State of the machine if the kept rules cannot be loaded [default: `fail` of the configuration]
    #[arg(long, value_enum, value_name = "STATE")]
    fail: Option<Fail>,
    /// The configuration, of which the section [rules] is read
    #[arg(short, long, value_name = "FILE", default_value = fairpath_config::DEFAULT_FILE)]
    config: PathBuf,
    #[command(flatten)]
    kept: KeptArgs,
    #[command(flatten)]
    place: PinArgs,
}

/// Runs `fairpath rules boot`.
///
/// # Errors
/// The kept rules cannot be loaded, whatever is loaded then.
pub fn boot(args: &BootArgs) -> anyhow::Result<()> {
    let path = args.kept.path()?.context(
        "no file of kept rules: name it with --kept, since this is not the network namespace of the machine",
    )?;
    if is_loaded(&args.place)? {
        fairpath_cli::note("rules are loaded already: the kept ones are not");
        return Ok(());
    }
    let error = match load_kept(&path, &args.place) {
        Ok(report) => return fairpath_cli::print(report),
        Err(error) => error,
    };
    match args.fail() {
        Fail::Open => bail!("{error:#}; the machine starts without rules"),
        Fail::Closed => {
            let closed = close(&args.place);
            let closed =
                closed.with_context(|| format!("{error:#}; and it could not be closed"))?;
            bail!("{error:#}; {closed}")
        }
    }
}

impl BootArgs {
    /// Closed if the configuration could want that, but cannot be read.
    fn fail(&self) -> Fail {
        let of_file = || {
            fairpath_config::fail_of_rules(&self.config).unwrap_or_else(|error| {
                fairpath_cli::note(format!("{error:#}: as with fail = \"closed\""));
                Fail::Closed
            })
        };
        self.fail.unwrap_or_else(of_file)
    }
}

/// True if rules are loaded, other than those of [`close`], which kept ones replace.
fn is_loaded(place: &PinArgs) -> anyhow::Result<bool> {
    let Some(pins) = place.mounted()? else {
        return Ok(false);
    };
    let Some(rules) = HookRules::open(&pins)? else {
        return Ok(false);
    };
    let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    Ok(loaded.rulesets().any(|(name, _)| name != CLOSED_NAME))
}

/// Loads the rules of the file.
fn load_kept(path: &str, place: &PinArgs) -> anyhow::Result<String> {
    let new = kept::read(path)?;
    let given = Given::of(new.given())?;
    let left = &new.options().left;
    let mut suitable = Suitable::new(left, false);
    // Paths of this machine are no reason to start without rules.
    let mut on_paths = Suitable::new(left, false).on(Paths::of_namespace());
    let sets = new.members()?;
    for (name, ruleset) in new.rulesets() {
        suitable.examine(name, &mut ruleset.clone(), sets.as_ref());
        on_paths.examine(name, &mut ruleset.clone(), sets.as_ref());
    }
    // Another version loaded them, perhaps.
    suitable.complete()?;
    if suitable.rejects() {
        suitable.set_answered(AnswerLock::is_taken()?);
    }
    given.check()?;
    let built = new.build()?;
    let lock = lock()?;
    let (_, outcomes) = put(&new, built, &given, place, (None, Start::Machine), &lock)?;
    let mut out = format!(
        "loaded {} of {path}\n",
        counted(new.rules(), "rule", "rules")
    );
    let outcomes = outcomes.iter().map(|one| one.line(false));
    let later = later(&new).into_iter().chain(follow(&new)?);
    let notes = suitable.notes().into_iter().chain(on_paths.warning());
    for line in outcomes.chain(notes).chain(later) {
        let _ = writeln!(out, "{line}");
    }
    Ok(fairpath_units::text::lines(&out).into_owned())
}

/// A sentence about interfaces of early drop that are not there yet.
fn later(new: &Loaded) -> Option<String> {
    let names = &new.options().early;
    let present = early::present(names);
    let is_missing = |name: &&String| present.iter().all(|(_, other)| *other != name.as_str());
    let missing: Vec<&str> = names
        .iter()
        .filter(is_missing)
        .map(|name| &name[..])
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "early drop begins with the next load at interfaces that are not there yet: {}",
            missing.join(", ")
        )
    })
}

/// A sentence about rules at interfaces, which appear later than the rules.
fn follow(new: &Loaded) -> anyhow::Result<Option<String>> {
    let mut is_at_interfaces = !egress::interfaces(new)?.named().is_empty();
    for family in FrameFamily::ALL {
        is_at_interfaces |= !frames::interfaces(family, new)?.named().is_empty();
    }
    Ok(is_at_interfaces.then(|| {
        "interfaces that appear later get rules of arptables, of ebtables, and rules that change packets, by the unit fairpath-rules-follow".to_owned()
    }))
}

/// Drops all but what [`CLOSED`] accepts. Returns a sentence about the way back.
fn close(place: &PinArgs) -> anyhow::Result<String> {
    let what = "all packets are dropped but those of loopback and of connections of this machine";
    let error = match load_closed(place) {
        Ok(()) => {
            return Ok(format!(
                "{what}: on the console, `fairpath rules load FILE` loads rules, and `fairpath rules unload` ends this"
            ));
        }
        Err(error) => error,
    };
    // Without the programs, tools of iptables may still have their modules.
    for (family, text) in [Family::Ipv4, Family::Ipv6].into_iter().zip(CLOSED) {
        let no_output = File::options().write(true).open("/dev/null")?;
        let how = Restore::Now(no_output);
        let given = restore(family.tool(), "filter", text.as_bytes(), false, how);
        given.with_context(|| format!("{error:#}; and iptables"))?;
    }
    Ok(format!(
        "{what}, by iptables ({error:#}): on the console, `iptables -P INPUT ACCEPT` and `iptables -P FORWARD ACCEPT` end this, the same with ip6tables"
    ))
}

fn load_closed(place: &PinArgs) -> anyhow::Result<()> {
    let mut sources = Vec::new();
    for (family, text) in [Family::Ipv4, Family::Ipv6].into_iter().zip(CLOSED) {
        sources.push(Source::new(CLOSED_NAME, &closed(family, text)?));
    }
    // No file keeps them, so that the kept rules stay as they are.
    let new = Loaded::new(sources, None, true, CounterMode::Exact, Options::default())?;
    let built = new.build()?;
    let lock = lock()?;
    let when = (None, Start::Machine);
    put(&new, built, &Given::default(), place, when, &lock).map(drop)
}

fn closed(family: Family, text: &str) -> anyhow::Result<Ruleset> {
    let reading = read(&mut text.as_bytes(), CLOSED_NAME, family, &Names::default());
    match reading?.complete() {
        Ok(ruleset) => Ok(ruleset),
        Err(error) => bail!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_rules_are_evaluated_exactly() {
        let mut suitable = Suitable::new(&[], false);
        for (family, text) in [Family::Ipv4, Family::Ipv6].into_iter().zip(CLOSED) {
            suitable.examine(CLOSED_NAME, &mut closed(family, text).unwrap(), None);
        }
        suitable.complete().unwrap();
    }
}
