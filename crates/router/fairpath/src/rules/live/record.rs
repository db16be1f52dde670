//! The record of tables of iptables around a load, and the process that reads it after `--confirm`.
//!
//! A killed command leaves the record. It has the number of its load: if packets meet these rules, the
//! rest is done, else the next command brings the tables back. A load that waits for a confirmation leaves
//! the record as well, and a process that does the same after the time ([`watch`]). A tool that outlives
//! its command has the record locked until its end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_backend::with_signals;
use fairpath_backend::xtables::{Restore, restore};
use fairpath_bpf::{HookRules, netns_cookie};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::given::{NAT, Name, Table, list, plain, unchanged};
use super::loaded::Loaded;
use super::{PinArgs, lock};

/// Records, one for each network namespace. The daemon's directory ends with the daemon.
const RECORDS: &str = "/run/fairpath-tables";
/// Those of versions that gave table nat only. A process of such a version may have been killed.
const OLD_RECORDS: &str = "/run/fairpath-nat";
/// Only root sees them.
const RECORDS_MODE: u32 = 0o700;
/// Time for a tool whose command was killed: it waits 5 s for the lock of iptables.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks of a watcher at its record.
const LOOK: Duration = Duration::from_millis(500);
/// Age of a file of an interrupted write: a write takes a moment.
const LEFTOVER: Duration = Duration::from_secs(60);
/// Attempts of a watcher to bring tables back, each a second after the one before.
const ATTEMPTS: u32 = 600;

/// A table before a load.
pub struct Saved {
    pub name: Name,
    /// Empty: there was none.
    pub text: Vec<u8>,
}

/// Tables of iptables around a load that changes them.
pub struct Record {
    /// Its file.
    path: PathBuf,
    /// The number of the load.
    load: u64,
    /// The place of its rules, if it is not the usual one.
    pins: Option<PathBuf>,
    /// Tables that the load gives to iptables, as they ran before.
    pub before: Vec<Saved>,
    /// Tables that are emptied after the load.
    pub back: Vec<Name>,
}

/// The first line of a record; the texts follow.
#[derive(Serialize, Deserialize)]
struct Heading {
    load: u64,
    pins: Option<PathBuf>,
    /// True for IPv4, else IPv6; and bytes.
    parts: Vec<(bool, usize)>,
    /// Tables of the parts; none in records of versions that gave table nat only.
    #[serde(default)]
    tables: Option<Vec<String>>,
    #[serde(default)]
    back: Vec<(bool, String)>,
}

/// The record of this network namespace in a directory.
fn path_in(directory: &str) -> anyhow::Result<PathBuf> {
    let cookie = netns_cookie().context("identify the network namespace")?;
    Ok(Path::new(directory).join(cookie.to_string()))
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
    pub fn new(load: u64, place: &PinArgs) -> anyhow::Result<Record> {
        Ok(Record {
            path: path_in(RECORDS)?,
            load,
            pins: place.absolute()?,
            before: Vec::new(),
            back: Vec::new(),
        })
    }

    fn find() -> anyhow::Result<Option<Record>> {
        for directory in [RECORDS, OLD_RECORDS] {
            let path = path_in(directory)?;
            let mut bytes = Vec::new();
            match fairpath_files::trusted(&path) {
                Ok(mut file) => file.read_to_end(&mut bytes),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => Err(error),
            }
            .with_context(|| format!("read {}", path.display()))?;
            let record = Record::of(&path, &bytes);
            return record.map(Some).with_context(|| {
                format!(
                    "{} has tables of iptables before a load, and cannot be read: restore these tables, and remove the file",
                    path.display()
                )
            });
        }
        Ok(None)
    }

    fn of(path: &Path, bytes: &[u8]) -> Option<Record> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let heading: Heading = serde_json::from_slice(&bytes[..end]).ok()?;
        let tables = match heading.tables {
            Some(tables) if tables.len() == heading.parts.len() => tables,
            Some(_) => return None,
            None => vec![NAT.to_owned(); heading.parts.len()],
        };
        let (mut rest, mut before) = (&bytes[end + 1..], Vec::new());
        for ((is_ipv4, bytes), table) in heading.parts.into_iter().zip(tables) {
            let (text, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            before.push(Saved {
                name: Name::from((is_ipv4, table)),
                text: text.to_vec(),
            });
        }
        Some(Record {
            path: path.to_owned(),
            load: heading.load,
            pins: heading.pins,
            before,
            back: heading.back.into_iter().map(Name::from).collect(),
        })
    }

    fn write(&self) -> anyhow::Result<()> {
        let names = || self.before.iter().map(|saved| saved.name.clone().into());
        let sizes = self.before.iter().map(|saved| saved.text.len());
        let heading = Heading {
            load: self.load,
            pins: self.pins.clone(),
            parts: names().map(|(is_ipv4, _)| is_ipv4).zip(sizes).collect(),
            tables: Some(names().map(|(_, table)| table).collect()),
            back: self.back.iter().cloned().map(Into::into).collect(),
        };
        let mut bytes = serde_json::to_vec(&heading).context("describe tables before the load")?;
        bytes.push(b'\n');
        for saved in &self.before {
            bytes.extend_from_slice(&saved.text);
        }
        fairpath_files::create_directory(Path::new(RECORDS), RECORDS_MODE)
            .and_then(|()| sweep())
            .and_then(|()| fairpath_files::replace(&self.path, &bytes))
            .with_context(|| format!("write {}", self.path.display()))
    }

    fn remove(&self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.path).with_context(|| format!("remove {}", self.path.display()))
    }

    /// Waits until no tool changes the tables. One that outlived its command has the lock.
    fn lock(&self) -> anyhow::Result<Flock<File>> {
        let mut file = File::open(&self.path).context("open the record of tables of iptables")?;
        let start = Instant::now();
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((same, Errno::EWOULDBLOCK)) if start.elapsed() < PATIENCE => file = same,
                Err((_, Errno::EWOULDBLOCK)) => {
                    bail!(
                        "a tool of a killed command still changes tables of iptables: end it, and try again"
                    )
                }
                Err((_, error)) => {
                    return Err(error).context("lock the record of tables of iptables");
                }
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Gives new tables to the tools, switches the rules, and empties tables. If a step before the switch
    /// or the switch fails, the tables are brought back.
    pub fn transact<T>(
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
                    self.complete().context("the new rules are loaded, but")?;
                }
                Ok(switched)
            }
            Err(error) => {
                settle_quietly(Rest::Empty).with_context(|| format!("{error:#}; after that"))?;
                Err(if is_given { error } else { unchanged(&error) })
            }
        }
    }

    /// Gives new tables to the tools.
    fn give(&self, tables: &[&Table], confirm: Option<Duration>) -> anyhow::Result<()> {
        if let Some(time) = confirm {
            start_watching(self.load, time)?;
        }
        let lock = self.lock()?;
        for table in tables {
            table.give(Restore::Now(lock.try_clone()?))?;
        }
        Ok(())
    }

    /// Brings the tables of before back, and removes the record.
    fn bring_back(&self) -> anyhow::Result<()> {
        let texts = self.before.iter().map(|Saved { name, text }| {
            let text = match text.is_empty() {
                true => name.empty(),
                false => text.clone(),
            };
            (name, text)
        });
        let texts: Vec<_> = texts.collect();
        self.put(&texts)
            .with_context(|| format!("bring tables back from {}", self.path.display()))?;
        self.remove()
    }

    /// Empties the tables that the loaded rules have, and removes the record.
    fn complete(&self) -> anyhow::Result<()> {
        if self.back.is_empty() {
            return self.remove();
        }
        let texts: Vec<_> = self.back.iter().map(|name| (name, name.empty())).collect();
        self.put(&texts).with_context(|| {
            let tables = list(&self.back);
            format!(
                "these tables run with iptables, too: {tables}; the next load, confirm or apply --loaded empties them"
            )
        })?;
        self.remove()
    }

    /// Gives texts of tables that do not run already to the tools, all of them also if one fails.
    fn put(&self, texts: &[(&Name, Vec<u8>)]) -> anyhow::Result<()> {
        let lock = self.lock()?;
        let mut result = Ok(());
        for (name, text) in texts {
            let Name { family, table } = name;
            let running = name.save().ok().and_then(|text| plain(*family, &text));
            if running.is_some() && running == plain(*family, text) {
                continue;
            }
            let restored = lock
                .try_clone()
                .map_err(anyhow::Error::from)
                .and_then(|lock| {
                    let how = Restore::Now(lock);
                    Ok(restore(family.tool(), table, text, true, how)?)
                });
            result = result.and(restored);
        }
        result
    }
}

/// The outcome of [`settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// No command was interrupted.
    Nothing,
    /// A load waits for its confirmation.
    Waiting(Duration),
    /// The tables of before were brought back.
    Back,
}

/// Tables that an interrupted load did not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They are emptied: the loaded rules have them.
    Empty,
    /// They stay, because the loaded rules are to be removed.
    Stay,
}

/// Completes or undoes what an interrupted load did to tables of iptables. Only with the lock.
///
/// # Errors
/// A tool failed: the record stays.
pub fn settle(rest: Rest) -> anyhow::Result<Settled> {
    let settled = settle_quietly(rest)?;
    if settled == Settled::Back {
        fairpath_cli::note(
            "the last load with tables of iptables did not last: the tables of before are back",
        );
    }
    Ok(settled)
}

fn settle_quietly(rest: Rest) -> anyhow::Result<Settled> {
    let Some(record) = Record::find()? else {
        return Ok(Settled::Nothing);
    };
    match record.loaded()? {
        Some(Some(left)) => return Ok(Settled::Waiting(left)),
        Some(None) if rest == Rest::Empty => record.complete()?,
        Some(None) => {
            // A tool of a killed command may still empty a table.
            let _lock = record.lock()?;
            record.remove()?;
        }
        None if record.before.is_empty() => record.remove()?,
        None => return record.bring_back().map(|()| Settled::Back),
    }
    Ok(Settled::Nothing)
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
        Ok((loaded.options().load == self.load && !went_back).then_some(left))
    }
}

/// The sentence of `show` about an interrupted load or one that waits.
///
/// # Errors
/// The record cannot be read.
pub fn pending() -> anyhow::Result<Option<String>> {
    let Some(record) = Record::find()? else {
        return Ok(None);
    };
    let (loaded, back) = (record.loaded()?, list(&record.back));
    let before: Vec<Name> = record.before.into_iter().map(|saved| saved.name).collect();
    let before = list(&before);
    let next = "the next load, confirm, unload or apply --loaded";
    Ok(match loaded {
        Some(Some(_)) => {
            let mut sentences = Vec::new();
            if !before.is_empty() {
                sentences.push(format!(
                    "with the rules of before, tables of before come back: {before}"
                ));
            }
            if !back.is_empty() {
                sentences.push(format!(
                    "tables run with iptables, too, until the confirmation: {back}"
                ));
            }
            Some(sentences.join("\n"))
        }
        Some(None) if back.is_empty() => None,
        Some(None) => Some(format!(
            "tables run with iptables, too, because a load was interrupted: {back}; the next load, confirm or apply --loaded empties them"
        )),
        None if before.is_empty() => None,
        None => Some(format!(
            "an interrupted load changed tables of iptables: {before}; {next} brings them back"
        )),
    })
}

/// Bring tables of iptables back if a load is not confirmed; `load --confirm` starts it.
#[derive(clap::Args)]
pub struct WatchArgs {
    load: u64,
    milliseconds: u64,
}

fn start_watching(load: u64, time: Duration) -> anyhow::Result<()> {
    // The path of this binary, even after an upgrade replaced it.
    let mut command = Command::new("/proc/self/exe");
    let time = time.as_millis().to_string();
    command.args(["rules", "watch-tables", &load.to_string(), &time]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status();
    match status.context("start the process that brings tables back")? {
        status if status.success() => Ok(()),
        status => bail!("start the process that brings tables back: {status}"),
    }
}

/// Waits in a separate session until the time is over, or the record is removed.
///
/// # Errors
/// The process cannot be detached.
pub fn watch(args: &WatchArgs) -> anyhow::Result<()> {
    let path = path_in(RECORDS)?;
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
        Some(record) if record.load == load => settle_quietly(Rest::Empty),
        _ => Ok(Settled::Nothing),
    }
}
