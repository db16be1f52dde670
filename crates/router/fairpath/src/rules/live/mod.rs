//! Rules at the hooks of the kernel: loaded, replaced, counted, unloaded.
//!
//! ```text
//!   files ─┬─ suitable.rs: refused rules, and those that act otherwise ── loaded.rs: text, trees ── images ──> HookRules
//!          '─ given.rs: tables that iptables keeps ──> iptables-restore, with record.rs
//! ```
//!
//! The loaded rules are their own record: their text is next to their images, so that no file can differ
//! from what packets meet. kept.rs keeps this text for boot.rs, which loads it at the next start of the
//! machine. shadow.rs compares rules that decide nothing with those that run.

mod again;
mod answers;
mod boot;
mod counters;
mod daemon;
mod early;
mod edit_chains;
mod edit_sets;
mod egress;
mod figures;
mod follow;
mod frames;
mod given;
mod journal;
mod kept;
mod loaded;
mod log;
mod options;
mod paths;
mod reader;
mod record;
mod shadow;
mod shared_state;
mod status;
mod suitable;
mod trace;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_backend::{Tracked, end_tracking, keep_tracking, lasting, tracked};
use fairpath_bpf::{
    AnswerLock, FrameFamily, HOOK_FAMILIES, HookError, HookLock, HookRules, HookSet, NewRules, Pins,
};
use fairpath_core::rules::{Carry, Counter, CounterMode};
use fairpath_history::snapshot::DEFAULT_SOCKET;
use fairpath_rules::image::{Built, Placed, Used, carry, carry_edited};
use fairpath_rules::{Family, FindingKind, Ruleset, check_rules};
use fairpath_units::counted;
use fairpath_units::quantity::read_duration;
use serde_json::json;

use super::Format;
use super::files::{FileArgs, load as load_files};
pub use answers::{ANSWERING, AnswerArgs, AnswerCounts, Answers, answer};
pub use boot::{BootArgs, boot};
use counters::counted_rules;
pub use counters::{CountersArgs, run as print_counters};
pub use daemon::{is_needed as needs_daemon, listed as listed_by_daemon};
pub use edit_sets::{edit_sets, loaded_sets, look_for};
pub use figures::{Figures, Found};
pub use follow::{FollowArgs, run as follow};
use given::{Given, NAT, NatArg, Outcome};
use kept::KeptArgs;
use loaded::{Loaded, Parts, Source, counters};
pub use log::{LogArgs, run as log};
use options::Options;
use paths::Paths;
use record::{Rest, Settled, settle};
pub use record::{WatchArgs, watch};
pub use shadow::{ShadowArgs, run as shadow};
pub use status::status;
use suitable::Suitable;
pub use trace::{TraceArgs, run as trace};

/// The bpffs that systemd mounts.
const SYSTEM: &str = "/sys/fs/bpf";
/// Of the names of our pins in it.
const PREFIX: &str = "fairpath-";
/// Another one, if that is missing.
const OWN: &str = "/run/fairpath/rules";
/// Reads of counters while loads replace the rules.
const READS: u32 = 20;
/// Time for which a command waits for another one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most time for a confirmation.
const LONGEST_WAITING: Duration = Duration::from_secs(86_400);
const SHORTEST_WAITING: Duration = Duration::from_secs(1);

/// The place of the loaded rules.
#[derive(Clone, clap::Args)]
pub struct PinArgs {
    /// The bpffs that keeps the loaded rules [default: /sys/fs/bpf, else /run/fairpath/rules]
    #[arg(long, value_name = "DIR")]
    pins: Option<PathBuf>,
}

impl PinArgs {
    /// The place of a daemon with this control socket: that of the commands, and with another socket the
    /// directory `pins` next to it.
    pub fn of_daemon(socket: &Path) -> PinArgs {
        let is_default = socket == Path::new(DEFAULT_SOCKET);
        PinArgs {
            pins: (!is_default).then(|| socket.with_file_name("pins")),
        }
    }

    /// The bpffs, mounted if it is not there.
    fn pins(&self) -> anyhow::Result<Pins> {
        let own = |path| lasting(path).map_err(anyhow::Error::msg);
        match (&self.pins, self.mounted()?) {
            (_, Some(pins)) => Ok(pins),
            (Some(path), None) => own(path.clone()),
            (None, None) => own(OWN.into()),
        }
        .context("keep loaded rules")
    }

    /// The directory of the command line, for a process with another working directory.
    fn absolute(&self) -> anyhow::Result<Option<PathBuf>> {
        let absolute = |path| std::path::absolute(path).context("find the directory of --pins");
        self.pins.as_ref().map(absolute).transpose()
    }

    /// The bpffs that has rules of this network namespace, else the first one that is mounted.
    fn mounted(&self) -> Result<Option<Pins>, HookError> {
        let places = match &self.pins {
            Some(path) => vec![Pins::shared(path, "")],
            None => vec![Pins::shared(SYSTEM, PREFIX), Pins::shared(OWN, "")],
        };
        let mut first = None;
        for pins in places.into_iter().flatten() {
            if HookRules::is_pinned(&pins)? {
                return Ok(Some(pins));
            }
            first = first.or(Some(pins));
        }
        Ok(first)
    }
}

/// Load rules into the kernel, in place of those that are loaded.
///
/// The rules run at the hooks of netfilter in this network namespace, each table just before that of
/// iptables. Each packet meets the old or the new rules at all hooks. They stay until `unload` or a
/// restart of the machine, also without this process. If any rule is refused, nothing changes.
/// A file keeps them for `fairpath rules boot` of the unit fairpath-rules, as they are after each edit.
///
/// iptables keeps table nat: its tools get it in the same transaction. With --defer, they get each table
/// with a rule that is refused, too. With --confirm, a process in the background brings these tables back.
///
/// Rules that stay keep their counters, limits and recent lists. With --confirm, the old rules come
/// back unless `fairpath rules confirm` comes in time, so a mistake ends SSH for a short time only.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules load /etc/iptables/rules.v4 /etc/iptables/rules.v6\n  \
    fairpath rules load --confirm 60s rules.v4 && fairpath rules confirm\n  \
    fairpath rules load rules.v4 --defer\n  \
    fairpath rules load rules.v4 --nat=skip --skip-table mangle\n  \
    fairpath rules load rules.v4 --early-drop eth0\n  \
    fairpath rules load --shadow rules.v4 && fairpath rules shadow")]
pub struct LoadArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Decide nothing: count, and compare with the rules that run (`fairpath rules shadow`)
    #[arg(long, conflicts_with_all = ["confirm", "require_answers", "early_drop"])]
    shadow: bool,
    /// Bring the old rules back after this time, unless they are confirmed: 1s to 24h
    #[arg(long, value_name = "TIME", value_parser = waiting)]
    confirm: Option<Duration>,
    /// A table that is not loaded, because iptables keeps its own; may be given several times
    #[arg(long, value_name = "TABLE", value_parser = ["raw", "mangle", "nat", "filter", "security", "broute"])]
    skip_table: Vec<String>,
    /// Give tables with refused rules to iptables, unchanged
    #[arg(long)]
    defer: bool,
    /// Refuse the load if rules reject packets and no process answers them
    #[arg(long, alias = "require-daemon")]
    require_answers: bool,
    /// An interface whose driver drops what table raw drops in PREROUTING; may be given several times
    #[arg(long, value_name = "IFACE")]
    early_drop: Vec<String>,
    /// Table nat of the files; --skip-table nat is --nat=skip
    #[arg(long, value_enum, default_value_t = NatArg::HandOver)]
    nat: NatArg,
    /// Packets that are counted
    #[arg(long, value_enum, default_value_t = CounterArg::Exact)]
    counters: CounterArg,
    /// Evaluate all chains in order, without lookups
    #[arg(long)]
    no_optimise: bool,
    #[command(flatten)]
    kept: KeptArgs,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CounterArg {
    /// Every packet
    Exact,
    /// One packet of 64, at random, as 64
    Sampled,
    /// Nothing
    None,
}

impl From<CounterArg> for CounterMode {
    fn from(arg: CounterArg) -> CounterMode {
        match arg {
            CounterArg::Exact => CounterMode::Exact,
            CounterArg::Sampled => CounterMode::Sampled,
            CounterArg::None => CounterMode::None,
        }
    }
}

fn waiting(text: &str) -> Result<Duration, String> {
    let time = read_duration(text).map_err(|why| why.to_string())?;
    match (SHORTEST_WAITING..=LONGEST_WAITING).contains(&time) {
        true => Ok(time),
        false => Err("a confirmation has 1 s to 24 h".to_owned()),
    }
}

/// Remove the loaded rules from the kernel, and the file that keeps them for the next start.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules unload\n  \
    fairpath rules unload --keep-file\n  \
    fairpath rules unload --pins /run/fairpath/rules")]
pub struct UnloadArgs {
    /// Leave that file, so that the rules come back at the next start of the machine
    #[arg(long)]
    keep_file: bool,
    #[command(flatten)]
    place: PinArgs,
}

/// Keep the rules of `load --confirm`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules confirm\n  \
    fairpath rules load --confirm 60s rules.v4 && fairpath rules confirm")]
pub struct ConfirmArgs {
    #[command(flatten)]
    place: PinArgs,
}

/// Waits until no other command changes the rules of this network namespace.
fn lock() -> anyhow::Result<HookLock> {
    let start = Instant::now();
    loop {
        if let Some(lock) = HookLock::try_new()? {
            return Ok(lock);
        }
        if start.elapsed() > PATIENCE {
            bail!("another command changes the loaded rules: try again when it is done");
        }
        sleep(Duration::from_millis(20));
    }
}

const NONE_LOADED: &str =
    "no rules are loaded in this network namespace: `fairpath rules load` loads them";

const ENDED: &str = "no rules are loaded in this network namespace: the first load was not confirmed in time; `fairpath rules load` loads them again, `fairpath rules unload` removes its programs";

fn must_open(place: &PinArgs) -> anyhow::Result<(Pins, HookRules)> {
    must_open_with(place, HookRules::open)
}

/// The same without a copy of the text.
fn must_open_to_edit(place: &PinArgs) -> anyhow::Result<HookRules> {
    must_open_with(place, HookRules::open_to_edit).map(|(_, rules)| rules)
}

fn must_open_with(
    place: &PinArgs,
    open: impl FnOnce(&Pins) -> Result<Option<HookRules>, HookError>,
) -> anyhow::Result<(Pins, HookRules)> {
    let pins = place.mounted()?.context(NONE_LOADED)?;
    match open(&pins)? {
        Some(rules) => Ok((pins, rules)),
        None if HookRules::ended_unconfirmed(&pins)? => bail!(ENDED),
        None => bail!(NONE_LOADED),
    }
}

/// Runs `fairpath rules load`.
///
/// # Errors
/// A file has a problem, a rule is refused, or the kernel refuses the programs: the old rules stay.
pub fn load(args: &LoadArgs) -> anyhow::Result<()> {
    early::cards(&args.early_drop)?;
    let mut files = load_files(&args.files.files, &args.files.reading)?;
    if let Some(problem) = files.set_problems.first() {
        bail!("{problem}; nothing was changed");
    }
    let mut skip = args.skip_table.clone();
    // Rules in the shadow decide nothing, so nat stays as it runs.
    let is_nat_left = args.nat == NatArg::Skip || args.shadow && args.nat == NatArg::HandOver;
    if is_nat_left && skip.iter().all(|table| table != NAT) {
        skip.push(NAT.to_owned());
    }
    let mut suitable = Suitable::new(&skip, args.shadow).on(Paths::of_namespace());
    let mut given = Given::default();
    let mut rulesets: Vec<(String, Ruleset)> = Vec::new();
    for file in files.rules.drain(..) {
        let name = file.name.clone();
        let mut ruleset = file.reading.complete().context("nothing was changed")?;
        let refused = frames::refuse(ruleset.family, args.shadow);
        refused.map_err(|why| anyhow::anyhow!("{name}: {why}; nothing was changed"))?;
        if rulesets
            .iter()
            .any(|(_, other)| other.family == ruleset.family)
        {
            bail!(
                "{name}: give one file of rules for {}: nothing was changed",
                ruleset.family
            );
        }
        let findings = check_rules(&ruleset, files.sets.as_ref());
        // A rule whose set is missing is refused, or its table is left to iptables.
        let is_error = |kind: FindingKind| kind.is_error() && kind != FindingKind::UndefinedSet;
        if let Some(finding) = findings.list.iter().find(|found| is_error(found.kind)) {
            bail!(
                "{name}:{}: {}; nothing was changed",
                finding.line,
                finding.text
            );
        }
        let is_ip = ruleset.family.is_ip();
        if is_ip && args.nat == NatArg::HandOver && skip.iter().all(|table| table != NAT) {
            given.take(&name, &mut ruleset, NAT);
        }
        suitable.examine(&name, &mut ruleset, files.sets.as_ref());
        rulesets.push((name, ruleset));
    }
    if rulesets.is_empty() {
        bail!("give a file of rules");
    }
    suitable.share(&mut rulesets, &mut given, files.sets.as_ref(), args.defer);
    suitable.complete()?;
    if !args.early_drop.is_empty() {
        for (name, ruleset) in &rulesets {
            early::check(name, ruleset)?;
        }
        let mut deferred = suitable.deferred();
        deferred.retain(|name| name.table == "raw");
        if !deferred.is_empty() {
            let tables = given::list(&deferred);
            fairpath_cli::note(format!(
                "--early-drop drops nothing of a table that iptables has: {tables}"
            ));
        }
    }
    if suitable.rejects() && !args.shadow {
        suitable.set_answered(AnswerLock::is_taken()?);
        if args.require_answers && !suitable.is_answered() {
            bail!(
                "rules reject packets, and no process answers them: run `fairpath rules answer`, nothing was changed"
            );
        }
    }
    if args.shadow {
        // Rules in the shadow decide nothing, so iptables has its own tables.
        given = Given::default();
    }
    given.check()?;
    let sources = rulesets.iter();
    let sources = sources.map(|(name, ruleset)| Source::new(name, ruleset));
    let sources: Vec<Source> = sources.collect();
    drop(rulesets);
    let sets = files.sets.map(edit_sets::text_of).transpose()?;
    let mode = args.counters.into();
    let options = Options {
        left: skip,
        early: args.early_drop.clone(),
        shadow: args.shadow,
        deferred: suitable.deferred(),
        elsewhere: suitable.elsewhere().clone(),
        // Rules in the shadow are not known to be good.
        kept: args.kept.checked()?.filter(|_| !args.shadow),
        ..Options::default()
    };
    let mut new = Loaded::new(sources, sets, !args.no_optimise, mode, options)?;
    new.give(given.sources());
    // Before the lock: large sets keep no other command waiting.
    let built = new.build()?;
    let lock = lock()?;
    let when = (args.confirm, Start::Command);
    let (placed, outcomes) = put(&new, built, &given, &args.place, when, &lock)?;
    drop(lock);
    let kept = placed.iter().flatten().map(|placed| placed.kept).sum();
    report(args, &new, &suitable, kept, &outcomes)
}

/// The occasion on which rules are put to the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Command,
    /// Without another chance: a driver may not drop packets yet, and all other rules are there.
    Machine,
}

/// Puts a load in place of the loaded rules, and its tables in place of those of iptables.
fn put(
    new: &Loaded,
    built: [Option<Built>; HOOK_FAMILIES],
    given: &Given,
    place: &PinArgs,
    (confirm, start): (Option<Duration>, Start),
    _lock: &HookLock,
) -> anyhow::Result<([Option<Placed>; HOOK_FAMILIES], Vec<Outcome>)> {
    let pins = place.pins()?;
    let found = settle(Rest::Empty).and_then(|_| found(&pins));
    let done = found.and_then(|found| {
        shadow::refuse_to_end(new, found.as_ref())?;
        let old = found.as_ref();
        let back = old.map_or(Vec::new(), |(_, old)| old.options().taken_by(new.options()));
        let switch = || install(new, built, found, &pins, (confirm, start), None);
        given.hand_over(new.options().load, place, confirm, &back, switch)
    });
    if done.is_err() && pins.is_new() {
        // The first error is the one to print.
        let _ = pins.unmount();
    }
    let (installed, outcomes) = done?;
    if confirm.is_none() {
        kept::keep(new.options(), &installed.text);
    }
    Ok((installed.placed, outcomes))
}

/// True if a command of iptables is for the real tool, because iptables keeps the table.
///
/// # Errors
/// No rules are loaded, or a change would be lost, because a load waits for its confirmation.
pub fn is_left(
    place: &PinArgs,
    family: Family,
    table: &str,
    is_change: bool,
) -> anyhow::Result<bool> {
    let _lock = lock()?;
    let settled = settle(Rest::Empty)?;
    let rules = must_open_to_edit(place)?;
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    let is_left = parts.options.leaves(family, table);
    let is_given = is_left && !parts.options.skips(table);
    if is_given && is_change && matches!(settled, Settled::Waiting(_)) {
        refuse_while_waiting(&rules)?;
    }
    Ok(is_left)
}

/// Applies a command that changes nothing to the loaded rules of a family.
///
/// # Errors
/// No rules are loaded, or the command fails.
pub fn check_loaded(
    place: &PinArgs,
    family: Family,
    command: impl FnOnce(Ruleset) -> anyhow::Result<Ruleset>,
) -> anyhow::Result<()> {
    let (_, rules) = must_open(place)?;
    let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    let ruleset = loaded.ruleset(family as usize).cloned();
    command(ruleset.unwrap_or_else(|| Ruleset::new(family))).map(drop)
}

/// The loaded rules of a family with their counters.
///
/// # Errors
/// No rules are loaded.
pub fn loaded_rules(place: &PinArgs, family: Family) -> anyhow::Result<Ruleset> {
    let loaded = counted_rules(place, None)?;
    let found = loaded.ruleset(family as usize).cloned();
    Ok(found.unwrap_or_else(|| Ruleset::new(family)))
}

/// Edits the loaded rules of a family. `text`: the lines that `edit` applies. Returns their number before
/// and after.
///
/// # Errors
/// No rules are loaded, the edit has a problem, or a rule is refused: nothing changes.
pub fn edit_loaded(
    place: &PinArgs,
    family: Family,
    text: &[u8],
    edit: impl Fn(Ruleset) -> anyhow::Result<Ruleset>,
) -> anyhow::Result<(usize, usize)> {
    let _lock = lock()?;
    settle(Rest::Empty)?;
    refuse_left(place, family, text)?;
    if let Some(done) = edit_chains::edit(place, family, text, &edit)? {
        return Ok(done);
    }
    let (pins, rules) = must_open(place)?;
    refuse_while_waiting(&rules)?;
    let mut old = Loaded::read(rules.text()).context("read the loaded rules")?;
    let number = family as usize;
    let mut counted = HashMap::new();
    if let Some(memory) = rules.memory(number) {
        old.count(number, memory.image(), |id| {
            let counter = memory.counter(id);
            counted.insert(id, counter);
            counter
        });
    }
    old.identify(number);
    let before = old.ruleset(number).cloned();
    let before = before.unwrap_or_else(|| Ruleset::new(family));
    let count = before.rules();
    let mut changed = edit(before)?;
    let sets = old.members()?;
    let examined = |ruleset: &mut Ruleset| {
        let options = old.options();
        let mut suitable = Suitable::new(&[], options.shadow).on(Paths::of_namespace());
        suitable.examine("edit", ruleset, sets.as_ref());
        suitable.refuse_shared("edit", ruleset, sets.as_ref(), &options.elsewhere);
        suitable
    };
    let mut suitable = examined(&mut changed);
    // For example by a route that appeared after the load.
    if suitable.is_refused()
        && let Some(before) = old.ruleset(number)
    {
        suitable.permit(&examined(&mut before.clone()));
    }
    suitable.complete_edit()?;
    if !old.options().early.is_empty() {
        early::check("edit", &changed)?;
    }
    let new = old.with(&changed)?;
    let rules_now = changed.rules();
    let edited = Edited {
        family: number,
        changed,
        counted,
    };
    let found = Some((rules, old));
    let when = (None, Start::Command);
    let installed = install(&new, new.build()?, found, &pins, when, Some(&edited))?;
    kept::keep(new.options(), &installed.text);
    Ok((count, rules_now))
}

/// Refuses lines of edits of a table that iptables keeps.
fn refuse_left(place: &PinArgs, family: Family, text: &[u8]) -> anyhow::Result<()> {
    let rules = must_open_to_edit(place)?;
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    for line in text.split(|byte| *byte == b'\n') {
        let table = line.strip_prefix(b"*").map(String::from_utf8_lossy);
        if let Some(table) = table.filter(|table| parts.options.leaves(family, table.trim_end())) {
            let (table, tool) = (table.trim_end(), family.tool());
            bail!(
                "table {table} was left to iptables ({family}): edit it with {tool} or {tool}-restore --noflush, nothing was changed"
            );
        }
    }
    Ok(())
}

/// Rules of a family after an edit. Rules that it did not touch have their identity, and the counters
/// that were read before it.
struct Edited {
    family: usize,
    changed: Ruleset,
    /// By id.
    counted: HashMap<u32, Counter>,
}

/// Opens the loaded rules to change them, and reads their text.
fn found(pins: &Pins) -> anyhow::Result<Option<(HookRules, Loaded)>> {
    let Some(rules) = HookRules::open(pins)? else {
        return Ok(None);
    };
    refuse_while_waiting(&rules)?;
    let old = Loaded::read(rules.text()).context("read the loaded rules")?;
    Ok(Some((rules, old)))
}

fn refuse_while_waiting(rules: &HookRules) -> Result<(), HookError> {
    match rules.waiting() {
        Some(left) => Err(HookError::Waiting {
            seconds: left.as_secs() + 1,
        }),
        None => Ok(()),
    }
}

/// Rules that are loaded.
struct Installed {
    placed: [Option<Placed>; HOOK_FAMILIES],
    text: Vec<u8>,
}

/// Puts rules in place of those that were found.
fn install(
    new: &Loaded,
    built: [Option<Built>; HOOK_FAMILIES],
    found: Option<(HookRules, Loaded)>,
    pins: &Pins,
    (until, start): (Option<Duration>, Start),
    edited: Option<&Edited>,
) -> anyhow::Result<Installed> {
    let text = new.text(&built)?;
    let placed = place(new, built, found.as_ref(), edited)?;
    let sets = std::array::from_fn(|family| {
        let placed = placed[family].as_ref()?;
        Some(HookSet {
            image: &placed.image,
            counters: &placed.counters,
            slots: &placed.slots,
            tables: &placed.tables,
            needs: placed.needs,
            rules: new
                .ruleset(family)
                .map_or(0, |ruleset| ruleset.rules() as u64),
            egress: new.ruleset(family).is_some_and(egress::runs),
            limits: new.ruleset(family).is_some_and(egress::limits),
        })
    });
    let change = NewRules {
        sets,
        mode: new.mode(),
        text: &text,
        until,
        shadow: new.options().shadow.then(|| shadow::drops(new)),
    };
    // An edit leaves the interfaces as they are.
    let cards = match edited {
        None => early::present(&new.options().early),
        Some(_) => Vec::new(),
    };
    let mut interfaces = Vec::new();
    for family in FrameFamily::ALL {
        interfaces.push((family, frames::interfaces(family, new)?));
    }
    let leaving = egress::interfaces(new)?;
    let before = (HookRules::early_cards(pins)?, frames::Attached::of(pins)?);
    let prepare = |rules: &mut HookRules| {
        match rules.drop_early(pins, &cards) {
            Err(error) if start == Start::Machine => {
                fairpath_cli::note(format!("{error}: rules drop no packet in this driver"));
            }
            done => done?,
        }
        for (family, interfaces) in &interfaces {
            rules.attach_frames(pins, *family, &interfaces.named())?;
        }
        rules.attach_egress(pins, &leaving.named())
    };
    let wanted = new.reads_connections();
    let tracking = match wanted.contains(&true) {
        true => {
            let before = tracked()?;
            Some((before, keep_tracking(before, wanted)?))
        }
        false => None,
    };
    let done = match found {
        Some((mut rules, _)) => prepare(&mut rules).and_then(|()| rules.set_pinned(&change, pins)),
        None => load_first(&change, pins, prepare),
    };
    if let Err(error) = done {
        // The first error is the one to print.
        let _ = HookRules::keep_early(pins, &before.0);
        before.1.restore(pins);
        // That of before may be of rules with other pins.
        if let Some((before, all)) = tracking {
            let _ = end_tracking(all, before);
        }
        return Err(error.into());
    }
    if until.is_none() && edited.is_none() {
        early::keep(pins, &new.options().early)?;
    }
    // The rules before may read connections or change packets, and come back without a process.
    if until.is_none() {
        frames::keep(pins, new)?;
        egress::keep(pins, new)?;
        release_tracking(tracking.map(|(_, all)| all), new);
    }
    Ok(Installed { placed, text })
}

/// Ends connection tracking that loaded rules do not need. They are loaded already, so a failure is a
/// remark.
fn release_tracking(there: Option<Tracked>, loaded: &Loaded) {
    let there = there.map_or_else(tracked, Ok);
    let ended = there.and_then(|there| end_tracking(there, loaded.reads_connections()));
    if let Err(error) = ended {
        fairpath_cli::note(format!("{error:#}: connections are tracked needlessly"));
    }
}

impl Edited {
    /// Rules whose counters the edit changed begin with new ones: so the change takes effect at once.
    fn carry(&self, old: (&Ruleset, &[u8]), new: (&Ruleset, &Built)) -> Carry {
        let mut carry = carry_edited(old, &self.changed, new);
        let wanted = counters(&self.changed, new.0, &new.1.image);
        carry
            .ids
            .retain(|(from, to)| self.counted.get(from) == wanted.get(to));
        carry
    }
}

/// Gives numbers of state to images: those of the found rules to rules that stay.
fn place(
    new: &Loaded,
    built: [Option<Built>; HOOK_FAMILIES],
    found: Option<&(HookRules, Loaded)>,
    edited: Option<&Edited>,
) -> anyhow::Result<[Option<Placed>; HOOK_FAMILIES]> {
    let mut used = Used::default();
    let mut memories = [const { None }; HOOK_FAMILIES];
    if let Some((rules, old)) = found {
        for (family, memory) in memories.iter_mut().enumerate() {
            *memory = rules.memory(family);
            match memory {
                Some(memory) => used.add(memory.image()),
                None if old.ruleset(family).is_some() => {
                    bail!(
                        "the image of the loaded rules is corrupt: unload them, and load them again"
                    )
                }
                None => {}
            }
        }
    }
    let mut placed = [const { None }; HOOK_FAMILIES];
    for (family, built) in built.into_iter().enumerate() {
        let (Some(built), Some(ruleset)) = (built, new.ruleset(family)) else {
            continue;
        };
        let image = memories[family].as_ref().map(|memory| memory.image());
        let before = found.and_then(|(_, old)| old.ruleset(family)).zip(image);
        let edited = edited.filter(|edited| edited.family == family);
        let before = before.map(|old| {
            let carry = match edited {
                Some(edited) => edited.carry(old, (ruleset, &built)),
                None => carry(old, (ruleset, &built)),
            };
            (old.1, carry)
        });
        let before = before.as_ref().map(|(image, carry)| (*image, carry));
        let mut set = used.place(built, before)?;
        if let Some(edited) = edited {
            let wanted = counters(&edited.changed, ruleset, &set.image);
            for (id, first) in &mut set.counters {
                *first = wanted.get(id).copied().unwrap_or_default();
            }
        }
        placed[family] = Some(set);
    }
    Ok(placed)
}

/// Loads programs and rules where none are.
fn load_first(
    change: &NewRules,
    pins: &Pins,
    prepare: impl FnOnce(&mut HookRules) -> Result<(), HookError>,
) -> Result<(), HookError> {
    HookRules::sweep(pins)?;
    HookRules::refuse_others()?;
    let mut rules = HookRules::load()?;
    rules.pin(pins)?;
    prepare(&mut rules)?;
    rules.set_pinned(change, pins)
}

fn report(
    args: &LoadArgs,
    new: &Loaded,
    suitable: &Suitable,
    kept: usize,
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    let seconds = args.confirm.map(|time| time.as_secs());
    let mut notes = suitable.notes();
    notes.extend(frames::note(new));
    notes.extend(kept::note_of_others(new));
    notes.extend(shadow::notes(new));
    if args.format == Format::Json {
        let object = json!({"loaded": new.describe(), "counters_kept": kept,
            "confirm_seconds": seconds, "notes": notes, "tables": outcomes,
            "deferred": suitable.causes_as_json()});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let rules = counted(new.rules(), "rule", "rules");
    let mut out = match new.options().shadow {
        true => format!("loaded {rules} in the shadow: they decide nothing\n"),
        false => format!("loaded {rules}\n"),
    };
    if kept > 0 {
        let _ = writeln!(out, "{} kept", counted(kept, "counter", "counters"));
    }
    let outcomes = outcomes.iter().map(|one| one.line(seconds.is_some()));
    for line in suitable.causes().into_iter().chain(outcomes).chain(notes) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(seconds) = seconds {
        let _ = writeln!(
            out,
            "the rules before come back in {seconds} s: `fairpath rules confirm` keeps these"
        );
    }
    fairpath_cli::print(out)?;
    Ok(())
}

/// Runs `fairpath rules unload`.
///
/// # Errors
/// No rules are loaded, or another process changes them.
pub fn unload(args: &UnloadArgs) -> anyhow::Result<()> {
    let _lock = lock()?;
    // They stay with iptables, as table nat does.
    let settled = settle(Rest::Stay);
    let opened = must_open(&args.place).ok();
    let old = opened.and_then(|(_, rules)| Loaded::read(rules.text()).ok());
    let options = old.map_or_else(Options::default, |old| old.options().clone());
    let removed = remove(&args.place);
    // What a load did that waited, or whose rules could not be read.
    let settled = match settled {
        Ok(Settled::Nothing | Settled::Back) => settled,
        _ => settle(Rest::Stay),
    };
    let removed = removed?;
    if settled? != Settled::Back && removed == Removed::Nothing {
        bail!(NONE_LOADED);
    }
    if let Some(file) = options.kept.filter(|_| !args.keep_file) {
        kept::remove(&file)?;
    }
    // Tables next to rules in the shadow are those of the rules that run.
    let described = match removed {
        Removed::Shadow => Vec::new(),
        _ => given::describe(&options.deferred),
    };
    for (name, line) in described {
        let removal = name.removal();
        fairpath_cli::note(format!("{line}: `{removal}` removes them"));
    }
    Ok(())
}

/// The rules that `unload` removes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removed {
    Nothing,
    Deciding,
    Shadow,
}

/// Removes rules, programs and connection tracking.
fn remove(place: &PinArgs) -> anyhow::Result<Removed> {
    let Some(pins) = place.mounted()? else {
        return Ok(Removed::Nothing);
    };
    let found = match HookRules::open(&pins) {
        Ok(Some(rules)) => {
            let is_shadow = rules.is_shadow();
            rules.unload(&pins)?;
            match is_shadow {
                true => Removed::Shadow,
                false => Removed::Deciding,
            }
        }
        // Programs without rules are those of an interrupted command.
        Ok(None) => {
            let is_swept = HookRules::sweep(&pins)?;
            // Rules with other pins need the connections.
            HookRules::refuse_others()?;
            match is_swept || tracked()?.contains(&true) {
                true => Removed::Deciding,
                false => Removed::Nothing,
            }
        }
        Err(HookError::Version { .. }) => {
            HookRules::sweep(&pins)?;
            Removed::Deciding
        }
        Err(error) => return Err(error.into()),
    };
    end_tracking(tracked()?, Tracked::default())?;
    Ok(found)
}

/// Runs `fairpath rules confirm`.
///
/// # Errors
/// No load waits, or the time is over.
pub fn confirm(args: &ConfirmArgs) -> anyhow::Result<()> {
    let _lock = lock()?;
    settle(Rest::Empty)?;
    let (pins, mut rules) = must_open(&args.place)?;
    rules.confirm(&pins)?;
    let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    early::keep(&pins, &loaded.options().early)?;
    frames::keep(&pins, &loaded)?;
    egress::keep(&pins, &loaded)?;
    let text = rules.text().to_vec();
    drop(rules);
    // The record of the load, whose process then ends.
    settle(Rest::Empty)?;
    release_tracking(None, &loaded);
    kept::keep(loaded.options(), &text);
    Ok(())
}
