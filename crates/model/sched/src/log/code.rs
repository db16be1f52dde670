//! The encoding of numbers, operations and outcomes.
//!
//! Invariant: decoding an encoded value returns the same value with all fields. Decoding other bytes
//! returns [`Bad`] or any value, but never panics.

use std::collections::HashMap;

use fairpath_core::sched::{Meta, Op, OpKind, Outcome, OutcomeKind};

/// The reason why bytes cannot be decoded.
pub(super) type Bad = &'static str;

const CUT: Bad = "the block ends in the middle of a value";

/// Bytes to decode, from the front.
pub(super) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Bad> {
        let (first, rest) = self.0.split_first().ok_or(CUT)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits")
    }

    pub(super) fn small(&mut self) -> Result<u32, Bad> {
        u32::try_from(self.number()?).map_err(|_| "a number has more than 32 bits")
    }

    pub(super) fn text(&mut self) -> Result<String, Bad> {
        let length = self.small()? as usize;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a name is not UTF-8")?;
        Ok(text.to_owned())
    }
}

pub(super) fn number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

pub(super) fn text(to: &mut Vec<u8>, text: &str) {
    number(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

/// The fields that packets of a flow share. A block contains each flow once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Flow {
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    hash: u32,
}

/// The flows of a block in the writer.
#[derive(Default)]
pub(super) struct Encoder {
    now: u64,
    flows: HashMap<Flow, u64>,
}

/// The flows of a block in the reader.
#[derive(Default)]
pub(super) struct Decoder {
    now: u64,
    flows: Vec<Flow>,
}

/// Flags of the fields of an operation that follow.
mod has {
    pub const VALUE: u8 = 1 << 3;
    pub const HANDLE: u8 = 1 << 4;
    pub const COUNT: u8 = 1 << 5;
    pub const NODE: u8 = 1 << 6;
    pub const META: u8 = 1 << 7;
    pub const KIND: u8 = 7;
}

/// Flags of the fields of a packet that follow.
mod packet {
    pub const ARRIVAL: u8 = 1;
    pub const HINT: u8 = 2;
    pub const CLASS: u8 = 4;
    pub const MARK: u8 = 8;
    pub const SEGMENTS: u8 = 16;
    pub const NEW_FLOW: u8 = 32;
    pub const ACK: u8 = 64;
    pub const SACK: u8 = 128;
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

impl Encoder {
    pub(super) fn op(&mut self, to: &mut Vec<u8>, op: &Op) {
        let has_meta = op.meta != Meta::default();
        let kind = (op.kind as u32).to_le_bytes()[0];
        to.push(
            kind | flag(op.value != 0, has::VALUE)
                | flag(op.handle != 0, has::HANDLE)
                | flag(op.count != 0, has::COUNT)
                | flag(op.node != 0, has::NODE)
                | flag(has_meta, has::META),
        );
        number(to, op.now.wrapping_sub(self.now));
        self.now = op.now;
        let fields = [op.value, op.handle.into(), op.count.into(), op.node.into()];
        for field in fields.into_iter().filter(|field| *field != 0) {
            number(to, field);
        }
        if has_meta {
            self.meta(to, op.now, &op.meta);
        }
    }

    fn meta(&mut self, to: &mut Vec<u8>, now: u64, meta: &Meta) {
        let flow = Flow {
            source: meta.source,
            destination: meta.destination,
            source_port: meta.source_port,
            destination_port: meta.destination_port,
            protocol: meta.protocol,
            hash: meta.flow_hash,
        };
        let no_sack = Meta::default().sack;
        let next = self.flows.len() as u64;
        let index = *self.flows.entry(flow).or_insert(next);
        to.push(
            flag(meta.arrival != now, packet::ARRIVAL)
                | flag(meta.hint != 0, packet::HINT)
                | flag(meta.class_id != 0, packet::CLASS)
                | flag(meta.mark != 0, packet::MARK)
                | flag(meta.segments != 0, packet::SEGMENTS)
                | flag(index == next, packet::NEW_FLOW)
                | flag(meta.ack_flags != 0, packet::ACK)
                | flag(meta.sack != no_sack, packet::SACK),
        );
        to.extend_from_slice(&[meta.dscp, meta.ecn]);
        number(to, meta.bytes.into());
        if meta.arrival != now {
            number(to, meta.arrival);
        }
        let fields = [
            meta.hint,
            meta.class_id.into(),
            meta.mark.into(),
            meta.segments.into(),
        ];
        for field in fields.into_iter().filter(|field| *field != 0) {
            number(to, field);
        }
        if meta.ack_flags != 0 {
            number(to, meta.ack_flags.into());
            number(to, meta.ack.into());
        }
        if meta.sack != no_sack {
            meta.sack.iter().for_each(|block| number(to, *block));
        }
        if index == next {
            to.extend_from_slice(&flow.source);
            to.extend_from_slice(&flow.destination);
            to.extend_from_slice(&flow.source_port.to_le_bytes());
            to.extend_from_slice(&flow.destination_port.to_le_bytes());
            to.push(flow.protocol);
            to.extend_from_slice(&flow.hash.to_le_bytes());
        } else {
            number(to, index);
        }
    }
}

impl Decoder {
    pub(super) fn op(&mut self, from: &mut Bytes<'_>) -> Result<Op, Bad> {
        let head = from.byte()?;
        let kind = kind(head & has::KIND)?;
        self.now = self.now.wrapping_add(from.number()?);
        let mut op = Op {
            now: self.now,
            kind,
            ..Op::default()
        };
        if head & has::VALUE != 0 {
            op.value = from.number()?;
        }
        for (bit, field) in [
            (has::HANDLE, &mut op.handle),
            (has::COUNT, &mut op.count),
            (has::NODE, &mut op.node),
        ] {
            if head & bit != 0 {
                *field = from.small()?;
            }
        }
        if head & has::META != 0 {
            op.meta = self.meta(from)?;
        }
        Ok(op)
    }

    fn meta(&mut self, from: &mut Bytes<'_>) -> Result<Meta, Bad> {
        let has = from.byte()?;
        let [dscp, ecn] = [from.byte()?, from.byte()?];
        if dscp > 63 || ecn > 3 {
            return Err("a packet's DSCP or ECN is out of range");
        }
        let bytes = from.small()?;
        let mut meta = Meta {
            arrival: self.now,
            bytes,
            dscp,
            ecn,
            ..Meta::default()
        };
        if has & packet::ARRIVAL != 0 {
            meta.arrival = from.number()?;
        }
        if has & packet::HINT != 0 {
            meta.hint = from.number()?;
        }
        if has & packet::CLASS != 0 {
            meta.class_id = from.small()?;
        }
        if has & packet::MARK != 0 {
            meta.mark = from.small()?;
        }
        if has & packet::SEGMENTS != 0 {
            let segments = u8::try_from(from.number()?);
            meta.segments = segments.map_err(|_| "a packet has more than 255 segments")?;
        }
        if has & packet::ACK != 0 {
            (meta.ack_flags, meta.ack) = (from.small()?, from.small()?);
        }
        if has & packet::SACK != 0 {
            for block in &mut meta.sack {
                *block = from.number()?;
            }
        }
        if has & packet::NEW_FLOW != 0 {
            self.flows.push(flow(from)?);
        }
        let index = match has & packet::NEW_FLOW != 0 {
            true => self.flows.len() - 1,
            false => from.small()? as usize,
        };
        let flow = self
            .flows
            .get(index)
            .ok_or("a packet's flow is not in its block")?;
        Ok(Meta {
            source: flow.source,
            destination: flow.destination,
            source_port: flow.source_port,
            destination_port: flow.destination_port,
            protocol: flow.protocol,
            flow_hash: flow.hash,
            ..meta
        })
    }
}

fn flow(from: &mut Bytes<'_>) -> Result<Flow, Bad> {
    let mut flow = Flow {
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        protocol: 0,
        hash: 0,
    };
    flow.source.copy_from_slice(from.take(16)?);
    flow.destination.copy_from_slice(from.take(16)?);
    flow.source_port = u16::from_le_bytes([from.byte()?, from.byte()?]);
    flow.destination_port = u16::from_le_bytes([from.byte()?, from.byte()?]);
    flow.protocol = from.byte()?;
    flow.hash = u32::from_le_bytes([from.byte()?, from.byte()?, from.byte()?, from.byte()?]);
    Ok(flow)
}

fn kind(number: u8) -> Result<OpKind, Bad> {
    Ok(match number {
        1 => OpKind::Enqueue,
        2 => OpKind::Dequeue,
        3 => OpKind::Param,
        4 => OpKind::Weight,
        5 => OpKind::Remove,
        6 => OpKind::Node,
        7 => OpKind::Impair,
        _ => return Err("this version does not support the kind of an operation"),
    })
}

/// Encodes an outcome. Ranks and times are stored plus 1, so that "never" is one byte.
pub(super) fn outcome(to: &mut Vec<u8>, outcome: &Outcome) {
    to.push(outcome.kind as u8 | flag(outcome.flags != 0, 0x80) | flag(outcome.reason != 0, 0x40));
    number(to, outcome.rank.wrapping_add(1));
    number(to, outcome.at.wrapping_add(1));
    number(to, outcome.handle.into());
    number(to, outcome.node.into());
    let fields = [outcome.flags, outcome.reason];
    to.extend(fields.into_iter().filter(|field| *field != 0));
    if outcome.flags & Outcome::CORRUPT != 0 {
        number(to, outcome.bit.into());
    }
}

pub(super) fn read_outcome(from: &mut Bytes<'_>, op: u32) -> Result<Outcome, Bad> {
    let head = from.byte()?;
    let kind = match head & 0x3f {
        1 => OutcomeKind::Queued,
        2 => OutcomeKind::Sent,
        3 => OutcomeKind::Dropped,
        4 => OutcomeKind::Nothing,
        5 => OutcomeKind::Done,
        6 => OutcomeKind::Failed,
        _ => return Err("this version does not support the kind of an outcome"),
    };
    let mut outcome = Outcome {
        kind,
        op,
        ..Outcome::default()
    };
    outcome.rank = from.number()?.wrapping_sub(1);
    outcome.at = from.number()?.wrapping_sub(1);
    outcome.handle = from.small()?;
    outcome.node = from.small()?;
    if head & 0x80 != 0 {
        outcome.flags = from.byte()?;
    }
    if head & 0x40 != 0 {
        outcome.reason = from.byte()?;
    }
    if outcome.flags & Outcome::CORRUPT != 0 {
        outcome.bit = from.small()?;
    }
    Ok(outcome)
}
