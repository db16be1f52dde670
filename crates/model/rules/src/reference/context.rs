//! A packet on its path: facts, bytes, and the changes by rules so far.

use super::RuleAt;
use super::state::State;
use super::view::{Stop, View};
use crate::packet::{Changes, Connection, Facts, Packet, Unknown};
use crate::tree::{Family, Hook};

/// Bits of `--ctstate`.
pub(super) const INVALID: u8 = 1;
pub(super) const NEW: u8 = 2;
pub(super) const RELATED: u8 = 4;
pub(super) const UNTRACKED: u8 = 16;
pub(super) const SOURCE_NAT: u8 = 32;
pub(super) const DESTINATION_NAT: u8 = 64;
/// A bit of `--ctstatus`.
pub(super) const CONFIRMED: u8 = 8;

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
    connection: Result<Connection, Unknown>,
    /// The connection as table raw sees it: that table is before connection tracking.
    early: Result<Connection, Unknown>,
    /// The rule whose template is in place of the connection, in table raw.
    template: Option<RuleAt>,
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
        let connection = facts.connection.ok_or(Unknown::Connection);
        let is_invalid = connection.is_ok_and(|connection| connection.state == INVALID);
        let is_answer = connection.is_ok_and(|known| known.state & (RELATED | UNTRACKED) != 0);
        // Packets of the loopback device met connection tracking when they were sent. Answers of the
        // kernel to rejected packets have their connection from the start.
        let early = match (hook, facts.input.as_deref()) {
            (Hook::Prerouting, Some(b"lo")) => connection,
            (Hook::Prerouting, None) if !is_invalid => Err(Unknown::Input),
            (Hook::Output, _) if connection.is_err() || is_answer => Err(Unknown::Connection),
            _ => Ok(without_entry(INVALID)),
        };
        Self {
            facts,
            family: packet.family,
            hook,
            link: &packet.bytes[..packet.network.min(packet.bytes.len())],
            view: View::new(packet),
            mark: facts.mark,
            connection,
            early,
            template: None,
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
        let seen = if self.in_raw {
            self.early
        } else {
            self.connection
        };
        seen.map_err(Stop::Unknown)
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

    /// Sets the mark of the connection, or that of the template in its place, which the template
    /// keeps for later packets.
    pub fn set_connection_mark(&mut self, mark: u32, state: &mut State) {
        let seen = if self.in_raw {
            &mut self.early
        } else {
            &mut self.connection
        };
        let Some(seen) = seen.as_mut().ok().filter(|seen| seen.mark != Some(mark)) else {
            return;
        };
        seen.mark = Some(mark);
        let seen = *seen;
        match self.template {
            Some(rule) if self.in_raw => {
                state.templates.insert(rule, mark);
            }
            _ => {
                self.connection = Ok(seen);
                self.changes.connection_mark = Some(mark);
            }
        }
    }

    /// NOTRACK, which has no effect on a packet that has an entry or template.
    pub fn untrack(&mut self) -> Result<(), Stop> {
        if self.connection()?.state == INVALID {
            self.early = Ok(without_entry(UNTRACKED));
            self.connection = self.early;
            self.changes.untracked = true;
        }
        Ok(())
    }

    /// CT with other options: the packet gets the rule's template, which looks like a new connection.
    pub fn add_template(&mut self, rule: RuleAt, state: &State) -> Result<(), Stop> {
        if self.connection()?.state == INVALID {
            self.early = Ok(Connection {
                state: NEW,
                status: Some(CONFIRMED),
                mark: Some(state.templates.get(&rule).copied().unwrap_or_default()),
                reply: Some(false),
            });
            self.template = Some(rule);
        }
        Ok(())
    }
}
