//! What survives a restart, as a value and as bytes. Writing it to a file is the daemon's.
//!
//! ```text
//! "fairpath"  version u32  length u64  CRC-32 u32  postcard
//! ```
//!
//! Numbers are little-endian; length and checksum are those of what follows. Saved are totals,
//! distributions, load, baselines, alerts that hold, days, and since when was counted. Not saved
//! are windows, sparklines, peers and unmatched subnets: minutes make them anew.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::account::Account;
use super::day::DayClock;
use super::pad::Sums;
use super::{Clock, Ledger, Moment, Parked, Settings};
use crate::snapshot::Kind;

/// The version that is written. Older ones are taken over when read; there is none yet.
pub const STATE_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"fairpath";
const HEADER: usize = 24;

/// Why bytes are no state. Nothing is taken from them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// They begin otherwise.
    #[error("not a state file of Fairpath: move it to start without history")]
    NotState,
    /// Of another program version.
    #[error(
        "the state file has version {found}, this program reads only {STATE_VERSION}: \
         install the version that wrote it, or move the file to start without history"
    )]
    Version {
        /// What it says.
        found: u32,
    },
    /// Cut off or changed.
    #[error("the state file is damaged, {what}: move it to start without history")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SavedRow {
    kind: Kind,
    name: String,
    account: Account,
}

/// What survives a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Of the last reading.
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

    /// Rows in it, parked ones included.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Names of its rows of a kind: those that a configuration does not name (subnets that were
    /// found) can be made again.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(move |row| row.kind == kind);
        rows.map(|row| row.name.as_str())
    }

    /// To write down. Fails only for want of memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let mut bytes = vec![0; HEADER];
        bytes = postcard::to_extend(self, bytes).map_err(|_| StateError::Damaged {
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

    /// What was written down, if it is whole and of a version that is known.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, StateError> {
        let damaged = |what| StateError::Damaged { what };
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return Err(if bytes.starts_with(MAGIC) {
                damaged("its header is incomplete")
            } else {
                StateError::NotState
            });
        };
        if !header.starts_with(MAGIC) {
            return Err(StateError::NotState);
        }
        let found = little(&header[8..12]) as u32;
        if found != STATE_VERSION {
            return Err(StateError::Version { found });
        }
        if body.len() as u64 != little(&header[12..20]) {
            return Err(damaged("its length differs from its header"));
        }
        if u64::from(crc32fast::hash(body)) != little(&header[20..24]) {
            return Err(damaged("its checksum is wrong"));
        }
        postcard::from_bytes(body).map_err(|_| damaged("its content cannot be decoded"))
    }
}

/// At most eight bytes, least first.
fn little(bytes: &[u8]) -> u64 {
    let least_last = bytes.iter().rev();
    least_last.fold(0, |n, byte| (n << 8) | u64::from(*byte))
}

impl Ledger {
    /// What survives a restart, as of the last reading. Copies all rows: O(their buckets and days).
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

    /// Goes on from what was saved. Counting begins again at `start`, and the time since the last
    /// reading that was saved is the gap ([`Ledger::gap_ns`]; `None` if the clock was set back
    /// behind it). The rows are there as soon as [`Ledger::configure`] names them, within
    /// [`super::PARKED_NS`].
    ///
    /// Flows that were open when it was saved count as closed: the core knows them no more, and
    /// those that go on are opened again.
    pub fn restore(settings: Settings, start: Moment, state: State) -> Ledger {
        let mut ledger = Ledger::new(settings, start);
        let gap_ns = start.unix_ns.checked_sub(state.unix_ns);
        let t = state.clock_t.saturating_add(gap_ns.unwrap_or(0));
        ledger.gap_ns = gap_ns;
        ledger.clock = Clock::new(start, t);
        ledger.day_clock = state.day_clock;
        ledger.counting_since_unix_ns = state.counting_since_unix_ns;
        for row in state.rows {
            let mut account = row.account;
            let open = account.totals.flows().open();
            account.totals.flows_closed += open;
            let key = (row.kind, row.name);
            ledger.parked.insert(key, Parked { account, since: t });
        }
        ledger.list_rows();
        ledger
    }
}
