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
const ESTABLISHED: u8 = 8;
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
    /// The place of a TCP checksum that a target changed: the kernel corrects it, except where
    /// hardware will calculate it later.
    pub checksum_unknown: Option<usize>,
    pub changes: Changes,
}

fn without_entry(state: u8) -> Connection {
    Connection {
        state,
        ..Connection::default()
    }
}

/// The connection that table raw sees: mostly none, because it is before connection tracking.
fn early(packet: &Packet, hook: Hook) -> Result<Connection, Unknown> {
    let facts = &packet.facts;
    let connection = facts.connection.ok_or(Unknown::Connection);
    let none = Ok(without_entry(INVALID));
    if hook != Hook::Prerouting {
        // The kernel's answer to a rejected packet has its connection from the start, or the mark of
        // a packet without one.
        let usual = NEW | ESTABLISHED | SOURCE_NAT | DESTINATION_NAT;
        let is_usual = connection.is_ok_and(|known| known.state & !usual == 0);
        return if is_usual {
            none
        } else {
            Err(Unknown::Connection)
        };
    }
    // A packet that this host sent has the connection of its sending, and is confirmed.
    let is_confirmed = match connection {
        Ok(known) if known.state & INVALID != 0 => return none,
        Ok(known) if known.state & NEW != 0 => known.status.map(|bits| bits & CONFIRMED != 0),
        _ => Some(true),
    };
    match (facts.input.as_deref(), is_confirmed) {
        (_, Some(false)) => none,
        (None, _) => Err(Unknown::Input),
        (Some(b"lo"), None) => Err(Unknown::Connection),
        (Some(b"lo"), _) => connection,
        // A copy of a broadcast or multicast comes by the interface that sent it.
        (Some(_), _) if destination_is_unicast(packet) => none,
        (Some(_), _) => match facts.packet_type {
            Some(1 | 2) => Err(Unknown::Connection),
            Some(_) => none,
            None => Err(Unknown::PacketType),
        },
    }
}

/// True for a destination of IPv6 that is known, and not multicast. One of IPv4 may be a broadcast.
fn destination_is_unicast(packet: &Packet) -> bool {
    let first = packet.network_bytes().get(24);
    packet.family == Family::Ipv6 && first.is_some_and(|first| *first != 0xff)
}

impl<'p> Context<'p> {
    pub fn new(packet: &'p Packet<'p>, hook: Hook) -> Self {
        let facts = &packet.facts;
        let connection = facts.connection.ok_or(Unknown::Connection);
        let early = early(packet, hook);
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
            checksum_unknown: None,
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
