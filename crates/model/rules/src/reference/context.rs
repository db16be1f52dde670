//! A packet on its path: facts, bytes, and the changes by rules so far.

use super::view::{Stop, View};
use crate::packet::{Changes, Connection, Facts, Packet, Unknown};
use crate::tree::{Family, Hook};

/// Bits of `--ctstate`.
pub(super) const INVALID: u8 = 1;
pub(super) const NEW: u8 = 2;
pub(super) const RELATED: u8 = 4;
pub(super) const UNTRACKED: u8 = 16;

/// A packet while it passes the tables of a hook.
#[derive(Debug)]
pub(super) struct Context<'p> {
    pub facts: &'p Facts,
    pub family: Family,
    pub hook: Hook,
    /// Bytes before the network header.
    pub link: &'p [u8],
    pub view: View,
    pub mark: u32,
    connection: Option<Connection>,
    /// The connection as table raw sees it: that table is before connection tracking.
    early: Option<Connection>,
    /// True in table raw.
    pub in_raw: bool,
    /// A target changed the MSS option in a way that the view does not show.
    pub mss_unknown: bool,
    pub changes: Changes,
}

fn without_entry(state: u8) -> Connection {
    Connection {
        state,
        ..Connection::default()
    }
}

impl<'p> Context<'p> {
    pub fn new(packet: &'p Packet<'p>, hook: Hook) -> Self {
        let facts = &packet.facts;
        // Packets of the loopback device met connection tracking when they were sent.
        let looped = hook == Hook::Prerouting && facts.input.as_deref() == Some(b"lo");
        Self {
            facts,
            family: packet.family,
            hook,
            link: &packet.bytes[..packet.network.min(packet.bytes.len())],
            view: View::new(packet),
            mark: facts.mark,
            connection: facts.connection,
            early: (!looped).then(|| without_entry(INVALID)),
            in_raw: false,
            mss_unknown: false,
            changes: Changes {
                mark: facts.mark,
                ..Changes::default()
            },
        }
    }

    /// The connection, as rules of this table see it.
    pub fn connection(&self) -> Result<Connection, Stop> {
        let known = match self.early {
            Some(early) if self.in_raw => Some(early),
            _ => self.connection,
        };
        known.ok_or(Stop::Unknown(Unknown::Connection))
    }

    /// The entry of the connection; INVALID and UNTRACKED packets have none.
    pub fn entry(&self) -> Result<Option<Connection>, Stop> {
        let connection = self.connection()?;
        let none = connection.state & (INVALID | UNTRACKED) != 0;
        Ok((!none).then_some(connection))
    }

    pub fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
        self.changes.mark = mark;
    }

    pub fn set_connection_mark(&mut self, mark: u32) {
        if let Some(connection) = &mut self.connection
            && connection.mark != mark
        {
            connection.mark = mark;
            self.changes.connection_mark = Some(mark);
        }
    }

    /// NOTRACK, which has no effect on a packet that has an entry or template.
    pub fn untrack(&mut self) {
        let is_first = match self.early {
            Some(early) if self.in_raw => early.state == INVALID,
            Some(_) => true,
            None => false,
        };
        if is_first {
            self.early = Some(without_entry(UNTRACKED));
            self.connection = self.early;
            self.changes.untracked = true;
        }
    }

    /// CT with other options: the packet gets a template, which looks like a new connection.
    pub fn add_template(&mut self) {
        if let Some(early) = &mut self.early
            && early.state == INVALID
        {
            early.state = NEW;
        }
    }
}
