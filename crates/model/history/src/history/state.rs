//! The content of the state file. The daemon writes and reads the file.
//!
//! ```text
//! "fairpath"  version u32  length u64  CRC-32 u32  postcard of State [postcard of Learned and of reported alerts, by row]
//! ```
//!
//! Numbers are little-endian. Length and checksum are those of the postcard data. It contains totals,
//! distributions, load, baselines, active alerts, days, and the time from which totals count. It does
//! not contain windows, sparklines, peers and unmatched subnets, which minutes restore.
//!
//! Version 1 had no [`Learned`]. Its load is dropped when it is read, because idle and busy were
//! compared with the plan only. It reported every alert.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::account::Account;
use super::alerts::Watch;
use super::day::DayClock;
use super::load::{Learned, LoadMeter};
use super::pad::Sums;
use super::{Clock, History, Moment, Parked, Settings};
use crate::snapshot::Kind;

/// The version that is written. Older versions are converted when read.
pub const STATE_VERSION: u32 = 2;
/// The version without [`Learned`].
const WITHOUT_LINES: u32 = 1;

const MAGIC: &[u8; 8] = b"fairpath";
const HEADER: usize = 24;

/// Why a state file is refused. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The file has another signature.
    #[error("not a state file of Fairpath: move it to start without history")]
    NotState,
    /// Another version of the format.
    #[error(
        "the state file has version {found}, this program reads up to {STATE_VERSION}: \
         install the version that wrote it, or move the file to start without history"
    )]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// Truncated or changed.
    #[error("the state file is corrupted, {what}: move it to start without history")]
    Corrupted {
        /// The corruption.
        what: &'static str,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SavedRow {
    kind: Kind,
    name: String,
    account: Account,
}

/// The data that survives a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Unix time of the last reading, nanoseconds.
    unix_ns: u64,
    clock_t: u64,
    counting_since_unix_ns: u64,
    day_clock: DayClock,
    rows: Vec<SavedRow>,
}

impl State {
    /// Unix time of the last reading in it, nanoseconds.
    pub fn unix_ns(&self) -> u64 {
        self.unix_ns
    }

    /// Number of its rows, including parked ones.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Names of its rows of a kind, for rows that are not in the configuration (found subnets).
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(move |row| row.kind == kind);
        rows.map(|row| row.name.as_str())
    }

    /// Encodes it. Fails only without memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let mut bytes = vec![0; HEADER];
        bytes = postcard::to_extend(self, bytes).map_err(|_| StateError::Corrupted {
            what: "it cannot be encoded",
        })?;
        let learned: Vec<Learned> = self.loads().map(|load| load.line).collect();
        bytes = postcard::to_extend(&learned, bytes).map_err(|_| StateError::Corrupted {
            what: "it cannot be encoded",
        })?;
        let reported: Vec<u8> = self.watches().map(Watch::reported).collect();
        bytes = postcard::to_extend(&reported, bytes).map_err(|_| StateError::Corrupted {
            what: "it cannot be encoded",
        })?;
        let body = &bytes[HEADER..];
        let (length, sum) = (body.len() as u64, crc32fast::hash(body));
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&STATE_VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&length.to_le_bytes());
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// The loads of its rows that were ever active.
    fn loads(&self) -> impl Iterator<Item = &LoadMeter> {
        let learnt = self.rows.iter().flat_map(|row| &row.account.learnt);
        learnt.map(|learnt| &learnt.load)
    }

    fn loads_mut(&mut self) -> impl Iterator<Item = &mut LoadMeter> {
        let learnt = self.rows.iter_mut().flat_map(|row| &mut row.account.learnt);
        learnt.map(|learnt| &mut learnt.load)
    }

    /// The alerts of the same rows.
    fn watches(&self) -> impl Iterator<Item = &Watch> {
        let learnt = self.rows.iter().flat_map(|row| &row.account.learnt);
        learnt.map(|learnt| &learnt.watch)
    }

    fn watches_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        let learnt = self.rows.iter_mut().flat_map(|row| &mut row.account.learnt);
        learnt.map(|learnt| &mut learnt.watch)
    }

    /// Decodes it, if it is complete and of this version or an older one.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, StateError> {
        let corrupted = |what| StateError::Corrupted { what };
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return Err(if bytes.starts_with(MAGIC) {
                corrupted("its header is incomplete")
            } else {
                StateError::NotState
            });
        };
        if !header.starts_with(MAGIC) {
            return Err(StateError::NotState);
        }
        let found = little(&header[8..12]) as u32;
        if !(WITHOUT_LINES..=STATE_VERSION).contains(&found) {
            return Err(StateError::Version { found });
        }
        if body.len() as u64 != little(&header[12..20]) {
            return Err(corrupted("its length differs from its header"));
        }
        if u64::from(crc32fast::hash(body)) != little(&header[20..24]) {
            return Err(corrupted("its checksum is wrong"));
        }
        let undecodable = |_| corrupted("its content cannot be decoded");
        let (mut state, rest) = postcard::take_from_bytes::<State>(body).map_err(undecodable)?;
        if found == WITHOUT_LINES {
            state
                .loads_mut()
                .for_each(|load| *load = LoadMeter::default());
            state
                .watches_mut()
                .for_each(|watch| watch.set_reported(u8::MAX));
            return Ok(state);
        }
        let (learned, rest) =
            postcard::take_from_bytes::<Vec<Learned>>(rest).map_err(undecodable)?;
        let reported: Vec<u8> = postcard::from_bytes(rest).map_err(undecodable)?;
        let rows = state.loads().count();
        if learned.len() != rows || reported.len() != rows {
            return Err(corrupted("it has not one line for each row"));
        }
        for (load, line) in state.loads_mut().zip(learned) {
            load.line = line;
        }
        for (watch, reported) in state.watches_mut().zip(reported) {
            watch.set_reported(reported);
        }
        Ok(state)
    }
}

/// At most eight bytes, little-endian.
fn little(bytes: &[u8]) -> u64 {
    let highest_first = bytes.iter().rev();
    highest_first.fold(0, |n, byte| (n << 8) | u64::from(*byte))
}

impl History {
    /// The data that survives a restart, as of the last reading. Copies all rows: O(buckets and days).
    pub fn save(&self) -> State {
        let rows = self.nodes.iter().map(|node| {
            let spec = &node.place.spec;
            (spec.kind, &spec.name, &node.account)
        });
        let parked = self.parked.iter();
        let parked = parked.map(|((kind, name), parked)| (*kind, name, &parked.account));
        let mut sums = Sums::default();
        let saved = |(kind, name, account): (Kind, &String, &Account)| SavedRow {
            kind,
            name: name.clone(),
            account: account.saved(&mut sums),
        };
        State {
            unix_ns: self.clock.last.unix_ns,
            clock_t: self.clock.t,
            counting_since_unix_ns: self.counting_since_unix_ns,
            day_clock: self.day_clock.clone(),
            rows: rows.chain(parked).map(saved).collect(),
        }
    }

    /// Continues from a saved state.
    ///
    /// Counting restarts at `start`. The time since the last saved reading is the gap
    /// ([`History::gap_ns`]), or `None` if the clock was set back before it. A row returns when
    /// [`History::configure`] names it within [`super::PARKED_NS`].
    ///
    /// Open flows of the saved state count as closed, because the core opens continuing flows again.
    /// A reported alert continues with its row. If its row is missing for [`super::UNJUDGED_NS`], the
    /// alert ends.
    pub fn restore(settings: Settings, start: Moment, state: State) -> History {
        let mut history = History::new(settings, start);
        let gap_ns = start.unix_ns.checked_sub(state.unix_ns);
        let t = state.clock_t.saturating_add(gap_ns.unwrap_or(0));
        history.gap_ns = gap_ns;
        history.clock = Clock::new(start, t);
        history.day_clock = state.day_clock;
        history.counting_since_unix_ns = state.counting_since_unix_ns;
        for row in state.rows {
            let mut account = row.account;
            let open = account.totals.flows().open();
            account.totals.flows_closed += open;
            let key = (row.kind, row.name);
            if let Some(learnt) = &mut account.learnt {
                learnt.watch.restore();
                if learnt.watch.reported() != 0 {
                    history.missing.push(key.clone());
                }
            }
            history.parked.insert(key, Parked { account, since: t });
        }
        history.list_rows();
        history
    }
}
