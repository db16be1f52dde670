//! Table nat, which iptables keeps: its tools get it together with a load of rules.
//!
//! ```text
//!   record of nat before ── iptables-restore, ip6tables-restore ── switch of the rules ── record removed
//! ```
//!
//! A killed command leaves the record. It has the number of its load: if packets meet these rules, the
//! new nat stays, else the next command brings nat back. A load that waits for a confirmation leaves the
//! record as well, and a process that does the same after the time ([`watch`]). A tool that outlives its
//! command has the record locked until its end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_backend::xtables::{Restore, ToolError, count_nat, restore, save_nat};
use fairpath_backend::{with_signals, without_signals};
use fairpath_bpf::{HookRules, netns_cookie};
use fairpath_rules::{Family, Names, Ruleset, WithCounters, read, to_bytes};
use fairpath_units::counted;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::loaded::Loaded;
use super::{PinArgs, lock};

/// The table.
pub const NAT: &str = "nat";
/// Records, one for each network namespace. The daemon's directory ends with the daemon.
const RECORDS: &str = "/run/fairpath-nat";
/// Only root sees them.
const RECORDS_MODE: u32 = 0o700;
/// Time for a tool whose command was killed: it waits 5 s for the lock of iptables.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks of a watcher at its record.
const LOOK: Duration = Duration::from_millis(500);
/// Age of a file of an interrupted write: a write takes a moment.
const LEFTOVER: Duration = Duration::from_secs(60);
/// Attempts of a watcher to bring nat back, each a second after the one before.
const ATTEMPTS: u32 = 600;

/// The destination of table nat of the files.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NatArg {
    /// iptables-restore and ip6tables-restore get it, in the same transaction
    HandOver,
    /// It stays as it runs
    Skip,
    /// Rules of nat are refused
    Refuse,
}

/// Table nat of a file.
struct Table {
    file: String,
    /// This table alone.
    ruleset: Ruleset,
    with_counters: bool,
}

impl Table {
    fn tool(&self) -> &'static str {
        self.ruleset.family.tool()
    }

    fn text(&self) -> Vec<u8> {
        to_bytes(&self.ruleset, WithCounters::AsRead)
    }

    fn give(&self, how: Restore) -> anyhow::Result<()> {
        restore(self.tool(), &self.text(), self.with_counters, how)
            .map_err(|error| self.refusal(&error))
    }

    /// The error with the line of the file, and the rule.
    fn refusal(&self, error: &ToolError) -> anyhow::Error {
        let text = self.text();
        let line = error.line.and_then(|line| line.checked_sub(1));
        let rule = line.and_then(|at| text.split(|byte| *byte == b'\n').nth(at));
        let chains = self
            .ruleset
            .tables
            .iter()
            .flat_map(|table| table.sorted().into_iter().map(|(_, chain)| chain));
        let before = 1 + chains.clone().count();
        let mut rules = chains.flat_map(|chain| &chain.rules);
        let place = line
            .and_then(|at| rules.nth(at.checked_sub(before)?))
            .map_or(String::new(), |rule| format!(":{}", rule.line));
        let rule = match (&place[..], rule) {
            ("", _) | (_, None) => String::new(),
            (_, Some(rule)) => format!(" (\"{}\")", String::from_utf8_lossy(rule)),
        };
        anyhow::anyhow!(
            "{}{place}: table nat is refused: {}{rule}",
            self.file,
            error.text
        )
    }
}

/// Tables nat of all files.
#[derive(Default)]
pub struct Nat {
    tables: Vec<Table>,
}

/// The result for a family.
#[derive(Serialize)]
pub struct Outcome {
    family: String,
    rules: usize,
    /// False: it ran already.
    changed: bool,
}

impl Outcome {
    /// One sentence.
    pub fn line(&self) -> String {
        let rules = counted(self.rules, "rule", "rules");
        let Outcome { family, .. } = self;
        match self.changed {
            true if family == "IPv4" => format!("{rules} of nat given to iptables-restore"),
            true => format!("{rules} of nat given to ip6tables-restore"),
            false => format!("nat with {rules} ran already, and was not touched ({family})"),
        }
    }
}

impl Nat {
    /// Takes table nat out of the rules of a file.
    pub fn take(&mut self, file: &str, ruleset: &mut Ruleset) {
        let Some(at) = ruleset.tables.iter().position(|table| &*table.name == NAT) else {
            return;
        };
        let table = ruleset.tables.remove(at);
        let with_counters = table
            .chains()
            .flat_map(|(_, chain)| &chain.rules)
            .any(|rule| rule.counters.is_some());
        let mut ruleset = Ruleset::new(ruleset.family);
        ruleset.tables.push(table);
        self.tables.push(Table {
            file: file.to_owned(),
            ruleset,
            with_counters,
        });
    }

    /// Lets the tools read the tables.
    ///
    /// # Errors
    /// The message of a tool.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut tables = self.tables.iter();
        let checked = tables.try_for_each(|table| table.give(Restore::Test));
        checked.map_err(|error| unchanged(&error))
    }

    /// Gives the tables to the tools, then switches the rules: all or nothing. Only with the lock, after
    /// [`settle`].
    ///
    /// # Errors
    /// A tool or the switch failed: nat is as before.
    pub fn hand_over<T>(
        &self,
        load: u64,
        place: &PinArgs,
        confirm: Option<Duration>,
        switch: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<Outcome>)> {
        let (mut outcomes, mut changed, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for table in &self.tables {
            let family = table.ruleset.family;
            let running = save_nat(table.tool()).map_err(|error| unchanged(&error.into()))?;
            let is_same = plain(family, &running)
                .is_some_and(|running| running == to_bytes(&table.ruleset, WithCounters::Never));
            outcomes.push(Outcome {
                family: family.to_string(),
                rules: table.ruleset.rules(),
                changed: !is_same,
            });
            if !is_same {
                changed.push(table);
                before.push(Saved {
                    family,
                    text: running,
                });
            }
        }
        if changed.is_empty() {
            return Ok((switch()?, outcomes));
        }
        let record = Record {
            load,
            pins: place.absolute()?,
            before,
        };
        // Ctrl-C comes after it, and leaves all or nothing, too.
        without_signals(|| record.transact(&changed, confirm, switch))?
            .map(|switched| (switched, outcomes))
    }
}

fn unchanged(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}; nothing was changed")
}

/// Table nat of a family, without counters and in canonical form. `None`: it cannot be read.
fn plain(family: Family, text: &[u8]) -> Option<Vec<u8>> {
    let reading = read(&mut &text[..], "nat", family, &Names::default()).ok()?;
    Some(to_bytes(&reading.complete().ok()?, WithCounters::Never))
}

/// Table nat before a load.
struct Saved {
    family: Family,
    text: Vec<u8>,
}

/// Tables nat before a load that changes them.
struct Record {
    /// The number of the load.
    load: u64,
    /// The place of its rules, if it is not the usual one.
    pins: Option<PathBuf>,
    before: Vec<Saved>,
}

/// The first line of a record; the texts follow.
#[derive(Serialize, Deserialize)]
struct Heading {
    load: u64,
    pins: Option<PathBuf>,
    /// True for IPv4, else IPv6; and bytes.
    parts: Vec<(bool, usize)>,
}

/// The record of this network namespace.
fn path() -> anyhow::Result<PathBuf> {
    let cookie = netns_cookie().context("identify the network namespace")?;
    Ok(Path::new(RECORDS).join(cookie.to_string()))
}

fn remove() -> anyhow::Result<()> {
    let path = path()?;
    std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))
}

/// Removes files of interrupted writes. Commands in other namespaces may write now.
fn sweep() -> io::Result<()> {
    for entry in std::fs::read_dir(RECORDS)? {
        let entry = entry?;
        let age = entry.metadata()?.modified()?.elapsed();
        let is_old = age.is_ok_and(|age| age > LEFTOVER);
        if is_old && entry.file_name().as_encoded_bytes().starts_with(b".") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Record {
    fn find() -> anyhow::Result<Option<Record>> {
        let path = path()?;
        let mut bytes = Vec::new();
        match fairpath_files::trusted(&path) {
            Ok(mut file) => file.read_to_end(&mut bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        }
        .with_context(|| format!("read {}", path.display()))?;
        let record = Record::of(&bytes);
        record.map(Some).with_context(|| {
            format!(
                "{} has table nat before a load, and cannot be read: restore nat, and remove the file",
                path.display()
            )
        })
    }

    fn of(bytes: &[u8]) -> Option<Record> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let heading: Heading = serde_json::from_slice(&bytes[..end]).ok()?;
        let (mut rest, mut before) = (&bytes[end + 1..], Vec::new());
        for (is_ipv4, bytes) in heading.parts {
            let (text, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            let family = if is_ipv4 { Family::Ipv4 } else { Family::Ipv6 };
            before.push(Saved {
                family,
                text: text.to_vec(),
            });
        }
        let Heading { load, pins, .. } = heading;
        Some(Record { load, pins, before })
    }

    fn write(&self) -> anyhow::Result<()> {
        let parts = self.before.iter();
        let heading = Heading {
            load: self.load,
            pins: self.pins.clone(),
            parts: parts
                .map(|saved| (saved.family == Family::Ipv4, saved.text.len()))
                .collect(),
        };
        let mut bytes =
            serde_json::to_vec(&heading).context("describe table nat before the load")?;
        bytes.push(b'\n');
        for saved in &self.before {
            bytes.extend_from_slice(&saved.text);
        }
        let path = path()?;
        fairpath_files::create_directory(Path::new(RECORDS), RECORDS_MODE)
            .and_then(|()| sweep())
            .and_then(|()| fairpath_files::replace(&path, &bytes))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Waits until no tool changes nat. One that outlived its command has the lock.
    fn lock() -> anyhow::Result<Flock<File>> {
        let mut file = File::open(path()?).context("open the record of table nat")?;
        let start = Instant::now();
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((same, Errno::EWOULDBLOCK)) if start.elapsed() < PATIENCE => file = same,
                Err((_, Errno::EWOULDBLOCK)) => {
                    bail!(
                        "a tool of a killed command still changes table nat: end it, and try again"
                    )
                }
                Err((_, error)) => return Err(error).context("lock the record of table nat"),
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Gives new tables to the tools, and switches the rules. If that fails, nat is brought back.
    fn transact<T>(
        &self,
        tables: &[&Table],
        confirm: Option<Duration>,
        switch: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.write()?;
        let given = self.give(tables, confirm);
        let is_given = given.is_ok();
        match given.and_then(|()| switch()) {
            Ok(switched) => {
                if confirm.is_none() {
                    remove()?;
                }
                Ok(switched)
            }
            Err(error) => {
                bring_back_quietly().with_context(|| format!("{error:#}; after that"))?;
                Err(if is_given { error } else { unchanged(&error) })
            }
        }
    }

    /// Gives new tables to the tools.
    fn give(&self, tables: &[&Table], confirm: Option<Duration>) -> anyhow::Result<()> {
        if let Some(time) = confirm {
            start_watching(self.load, time)?;
        }
        let lock = Record::lock()?;
        for table in tables {
            table.give(Restore::Now(lock.try_clone()?))?;
        }
        Ok(())
    }

    /// Brings nat of all families back, and removes the record.
    fn bring_back(&self) -> anyhow::Result<()> {
        let lock = Record::lock()?;
        let mut result = Ok(());
        for Saved { family, text } in &self.before {
            let tool = family.tool();
            let running = save_nat(tool).ok().and_then(|text| plain(*family, &text));
            if running.is_some() && running == plain(*family, text) {
                continue;
            }
            let restored = lock
                .try_clone()
                .map_err(anyhow::Error::from)
                .and_then(|lock| Ok(restore(tool, text, true, Restore::Now(lock))?));
            result = result.and(restored);
        }
        result.with_context(|| {
            let path = path().unwrap_or_default();
            format!("bring table nat back from {}", path.display())
        })?;
        remove()
    }
}

/// The outcome of [`settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// No command was interrupted.
    Nothing,
    /// A load waits for its confirmation.
    Waiting(Duration),
    /// Nat of before was brought back.
    Back,
}

/// Completes or undoes what an interrupted load did to nat. Only with the lock.
///
/// # Errors
/// A tool failed: the record stays.
pub fn settle() -> anyhow::Result<Settled> {
    let settled = bring_back_quietly()?;
    if settled == Settled::Back {
        fairpath_cli::note("the last load with table nat did not last: nat of before is back");
    }
    Ok(settled)
}

fn bring_back_quietly() -> anyhow::Result<Settled> {
    let Some(record) = Record::find()? else {
        return Ok(Settled::Nothing);
    };
    match record.loaded()? {
        Some(Some(left)) => Ok(Settled::Waiting(left)),
        Some(None) => remove().map(|()| Settled::Nothing),
        None => record.bring_back().map(|()| Settled::Back),
    }
}

impl Record {
    /// If packets meet the rules of the load: the time for its confirmation, if it waits.
    fn loaded(&self) -> anyhow::Result<Option<Option<Duration>>> {
        let place = PinArgs {
            pins: self.pins.clone(),
        };
        let Some(pins) = place.mounted()? else {
            return Ok(None);
        };
        let Some(rules) = HookRules::open(&pins)? else {
            return Ok(None);
        };
        let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
        // In this order: the time may end in between, and then the rules were those of before.
        let left = rules.waiting();
        let went_back = left.is_none() && rules.went_back();
        Ok((loaded.load() == self.load && !went_back).then_some(left))
    }
}

/// The sentence of `show` about an interrupted load or one that waits.
///
/// # Errors
/// The record cannot be read.
pub fn pending() -> anyhow::Result<Option<&'static str>> {
    let Some(record) = Record::find()? else {
        return Ok(None);
    };
    Ok(match record.loaded()? {
        Some(Some(_)) => Some("nat of before comes back with the rules of before"),
        Some(None) => None,
        None => Some(
            "an interrupted load changed table nat: the next load, confirm, unload or apply --loaded brings it back",
        ),
    })
}

/// Rules of nat with iptables, by family. `None`: the tool is missing.
pub fn running() -> [(Family, Option<usize>); 2] {
    [Family::Ipv4, Family::Ipv6].map(|family| (family, count_nat(family.tool())))
}

/// Families that have rules of nat, with a line for each.
pub fn describe() -> Vec<(Family, String)> {
    let with_rules = running().into_iter().filter_map(|(family, rules)| {
        let rules = rules.filter(|rules| *rules > 0)?;
        let rules = counted(rules, "rule", "rules");
        Some((family, format!("nat: {rules} with iptables ({family})")))
    });
    with_rules.collect()
}

/// Bring table nat back if a load is not confirmed; `load --confirm` starts it.
#[derive(clap::Args)]
pub struct WatchArgs {
    load: u64,
    milliseconds: u64,
}

fn start_watching(load: u64, time: Duration) -> anyhow::Result<()> {
    // The path of this binary, even after an upgrade replaced it.
    let mut command = Command::new("/proc/self/exe");
    let time = time.as_millis().to_string();
    command.args(["rules", "watch-nat", &load.to_string(), &time]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status();
    match status.context("start the process that brings table nat back")? {
        status if status.success() => Ok(()),
        status => bail!("start the process that brings table nat back: {status}"),
    }
}

/// Waits in a separate session until the time is over, or the record is removed.
///
/// # Errors
/// The process cannot be detached.
pub fn watch(args: &WatchArgs) -> anyhow::Result<()> {
    let path = path()?;
    let number = || std::fs::metadata(&path).map(|found| found.ino()).ok();
    let first = number();
    with_signals()?;
    nix::unistd::daemon(false, false).context("detach")?;
    let mut left = Duration::from_millis(args.milliseconds);
    for _ in 0..ATTEMPTS {
        let end = Instant::now() + left;
        while Instant::now() < end {
            sleep(LOOK.min(end - Instant::now()));
            if number() != first {
                return Ok(());
            }
        }
        left = match end_load(args.load) {
            Ok(Settled::Waiting(left)) => left,
            Ok(_) => return Ok(()),
            // The lock, or a tool.
            Err(_) => Duration::from_secs(1),
        };
    }
    Ok(())
}

/// As [`settle`], unless the record is that of another load.
fn end_load(load: u64) -> anyhow::Result<Settled> {
    let _lock = lock()?;
    match Record::find()? {
        Some(record) if record.load == load => bring_back_quietly(),
        _ => Ok(Settled::Nothing),
    }
}
