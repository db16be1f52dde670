//! Accesses whose addresses are known before the code runs.
//!
//! Each register is a region with an offset, an offset from the end of the function's stack, or anything. The
//! first four arguments and the call are known where the policy is entered, r10 everywhere, and constants are
//! added. What differs between two paths to an instruction is anything. An access is proven if all its
//! bytes are in the part of a region that may be accessed so.

use crate::code::{Instruction, Op, Program};
use crate::regions::{PACKET, ROM, STACK, STACK_WORDS};

/// The region of `struct fp_call`.
const CALL: usize = 5;
/// Offsets beyond this are anything: they are in no region.
const FAR: i64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Any,
    Region(u8, i64),
    Top(i64),
}

/// Where an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To be checked when it runs.
    Unknown,
    /// In a region, at an offset.
    Region(u8, i32),
    /// At an offset from the end of the function's stack.
    Top(i32),
}

/// The places of all accesses.
#[derive(Debug)]
pub(super) struct Proof {
    places: Vec<Place>,
    /// All writes are proven, and those to the call only change words that go back.
    pub writes_answers_only: bool,
}

impl Proof {
    /// Of an instruction.
    pub fn at(&self, at: usize) -> Place {
        self.places.get(at).copied().unwrap_or(Place::Unknown)
    }
}

type Registers = [Known; 11];

/// Proves accesses of a program whose regions have these bytes. O(instructions): a register changes at most twice.
pub(super) fn prove(program: &Program, entries: &[Option<usize>; 4], bytes: [u32; 8]) -> Proof {
    let mut before: Vec<Option<Registers>> = vec![None; program.code.len()];
    let mut work = Vec::new();
    let mut start = [Known::Any; 11];
    for (region, register) in start.iter_mut().enumerate().take(6).skip(1) {
        *register = Known::Region(region as u8, 0);
    }
    start[10] = Known::Top(0);
    for entry in entries.iter().flatten() {
        merge(&mut before, &mut work, *entry, &start);
    }
    while let Some(at) = work.pop() {
        let (Some(registers), Some(i)) = (before[at], program.code.get(at)) else {
            continue;
        };
        for (to, after) in after(program, at, i, registers) {
            merge(&mut before, &mut work, to, &after);
        }
    }
    let place = |(at, i): (usize, &Instruction)| {
        let registers = before[at];
        let base = match access(i.op) {
            Some((_, true)) => i.dst,
            _ => i.src,
        };
        let known = registers.map(|registers| registers[usize::from(base)]);
        match access(i.op) {
            Some((size, write)) => place(known, i.off, size, write, &bytes),
            None => Place::Unknown,
        }
    };
    let places: Vec<Place> = program.code.iter().enumerate().map(place).collect();
    let answers = 8 * crate::CALL_DUE as i32..8 * (crate::CALL_VERDICT as i32 + 1);
    let is_answer = |(i, place): (&Instruction, &Place)| match (access(i.op), place) {
        (Some((_, true)), Place::Unknown) => false,
        (Some((_, true)), Place::Region(region, offset)) => {
            usize::from(*region) != CALL || answers.contains(offset)
        }
        _ => true,
    };
    Proof {
        writes_answers_only: program.code.iter().zip(&places).all(is_answer),
        places,
    }
}

/// Bytes of an access, and whether it writes.
fn access(op: Op) -> Option<(u32, bool)> {
    Some(match op {
        Op::Load8 => (1, false),
        Op::Load16 => (2, false),
        Op::Load32 => (4, false),
        Op::Load64 => (8, false),
        Op::Store8 => (1, true),
        Op::Store16 => (2, true),
        Op::Store32 => (4, true),
        Op::Store64 => (8, true),
        _ => return None,
    })
}

fn place(known: Option<Known>, offset: i32, size: u32, write: bool, bytes: &[u32; 8]) -> Place {
    let fits = |at: i64, from: i64, to: i64| at >= from && at + i64::from(size) <= to;
    match known {
        Some(Known::Region(region, at)) => {
            let (at, number) = (at + i64::from(offset), usize::from(region));
            let may = !write || (number != PACKET && number != ROM);
            match may && fits(at, 0, bytes[number].into()) {
                true => Place::Region(region, at as i32),
                false => Place::Unknown,
            }
        }
        Some(Known::Top(at)) => {
            let at = at + i64::from(offset);
            match fits(at, -(8 * STACK_WORDS as i64), 0) {
                true => Place::Top(at as i32),
                false => Place::Unknown,
            }
        }
        // Never reached, or anything.
        _ => Place::Unknown,
    }
}

/// Adds what is known on one more path to an instruction.
fn merge(
    before: &mut [Option<Registers>],
    work: &mut Vec<usize>,
    at: usize,
    registers: &Registers,
) {
    let Some(known) = before.get_mut(at) else {
        return;
    };
    let merged = match known {
        None => *registers,
        Some(known) => {
            std::array::from_fn(|register| match known[register] == registers[register] {
                true => known[register],
                false => Known::Any,
            })
        }
    };
    if *known != Some(merged) {
        *known = Some(merged);
        work.push(at);
    }
}

/// The instructions that may follow, with the registers there.
fn after(
    program: &Program,
    at: usize,
    i: &Instruction,
    mut registers: Registers,
) -> Vec<(usize, Registers)> {
    let dst = usize::from(i.dst);
    let to = i.off as usize;
    let next = at + 1;
    match i.op {
        Op::Exit | Op::Hole => Vec::new(),
        Op::Jump => vec![(to, registers)],
        Op::Call => {
            // The stack of the called function is another one.
            let inside: Registers = std::array::from_fn(|register| match registers[register] {
                _ if register == 10 => Known::Top(0),
                Known::Top(_) => Known::Any,
                known => known,
            });
            registers[..6].fill(Known::Any);
            vec![(to, inside), (next, registers)]
        }
        op if (Op::Jump as u8..Op::May as u8).contains(&(op as u8)) => {
            vec![(to, registers), (next, registers)]
        }
        Op::May | Op::Low64 => vec![(next, registers)],
        Op::Wide => {
            let place = usize::try_from(i.imm).ok();
            let value = place.and_then(|place| program.constants.get(place));
            registers[dst] = match value {
                Some(value) => of_address(*value),
                None => Known::Any,
            };
            vec![(next + 1, registers)]
        }
        _ => {
            if access(i.op).is_none_or(|(_, write)| !write) {
                registers[dst] = computed(i, &registers);
            }
            vec![(next, registers)]
        }
    }
}

/// A constant may be the address of a region; one of the stack is of no function in particular.
fn of_address(value: u64) -> Known {
    let region = value >> 32;
    match usize::try_from(region) {
        Ok(region @ 1..=ROM) if region != STACK => {
            Known::Region(region as u8, i64::from(value as u32))
        }
        _ => Known::Any,
    }
}

fn computed(i: &Instruction, registers: &Registers) -> Known {
    let known = registers[usize::from(i.dst)];
    let moved = |by: i64| {
        let near = |at: i64| (-FAR..FAR).contains(&at);
        match known {
            Known::Region(region, at) if near(at + by) => Known::Region(region, at + by),
            Known::Top(at) if near(at + by) => Known::Top(at + by),
            _ => Known::Any,
        }
    };
    match (i.op, i.immediate) {
        (Op::Mov64, false) => registers[usize::from(i.src)],
        (Op::Mov64, true) => of_address(i64::from(i.imm).cast_unsigned()),
        (Op::Add64, true) => moved(i.imm.into()),
        (Op::Sub64, true) => moved(-i64::from(i.imm)),
        _ => Known::Any,
    }
}
