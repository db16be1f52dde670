//! The interpreter: custom policies in the native runtime.
//!
//! It runs the very instructions that the kernel would, by the same rules: division by zero gives 0,
//! remainder by zero the dividend, shifts use the low bits of their width. Each access is checked
//! ([`regions`]), each way back in the code and each call is paid from [`CALL_BUDGET`], so a
//! policy can neither leave its state nor stay. The first violation stops it for good: it is
//! described once, and from then on the machine answers 0 to everything, which makes a FIFO of it,
//! and counts. No call allocates.
//! Absent: a compiler to machine code; helpers; atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fairpath_core::sched::{Custom, Function, Meta};

use crate::code::{Instruction, Op, Program};
use crate::compiled::{Code, Memory, Runner};
use crate::lines::SourceLine;
use crate::regions::{self, PACKET_WORDS, Regions, STACK_WORDS};

/// Instructions of one call in addition to one pass over its code: the number that the verifier is
/// ready to check.
pub const CALL_BUDGET: u64 = 1 << 20;
/// Functions that may be in each other, as in the kernel.
pub const DEPTH: usize = 8;

/// All bits of verdicts: DROP, LATER, MARK and LINGER. The word's other half is 0.
const VERDICTS: u64 = 15;

/// A forbidden action of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Memory that is not its own.
    #[error("it reads {1} bytes at byte {2} of {0}, which has {3}")]
    Read(&'static str, u32, i64, u32),
    /// Memory that is not its own, or not to be written.
    #[error("it writes {1} bytes at byte {2} of {0}, which has {3}{note}", note = read_only(.0))]
    Write(&'static str, u32, i64, u32),
    /// It ran for too long.
    #[error("it loops: {CALL_BUDGET} instructions in one call")]
    Budget,
    /// Recursion.
    #[error("its functions call each other {DEPTH} deep: there may be {DEPTH} in all")]
    Depth,
    /// The code ends without returning.
    #[error("it runs out of its code")]
    End,
}

fn read_only(region: &str) -> &'static str {
    if region.starts_with("packet") || region == "constants" {
        " and is read only"
    } else {
        ""
    }
}

/// Why a policy was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {violation}, in {function}, instruction {instruction}{}", hook(*.called), place(.line))]
pub struct Fault {
    /// The violation.
    pub violation: Violation,
    /// As what it was called.
    pub called: Function,
    /// In which function of the file.
    pub function: String,
    /// From the start of that function.
    pub instruction: usize,
    /// From which line of the file.
    pub line: Option<SourceLine>,
}

fn place(line: &Option<SourceLine>) -> String {
    line.as_ref()
        .map_or_else(String::new, |line| format!(" ({line})"))
}

/// A function as its author writes it.
pub(super) fn hook(function: Function) -> &'static str {
    match function {
        Function::RankEnqueue => "RANK_ENQUEUE",
        Function::RankDequeue => "RANK_DEQUEUE",
        Function::SendTime => "SEND_TIME",
        Function::OnDrop => "ON_DROP",
    }
}

/// The visible state of a machine while a scheduler owns it.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    fault: OnceLock<Fault>,
    verdict: OnceLock<(Function, u64)>,
    unanswered: AtomicU64,
}

impl Watch {
    /// Why it was stopped, if it was.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.get()
    }

    /// The first verdict with an undefined bit, and the function that returned it. The scheduler
    /// ignores such bits.
    pub fn undefined_verdict(&self) -> Option<(&'static str, u64)> {
        let (function, verdict) = self.0.verdict.get()?;
        Some((hook(*function), *verdict))
    }

    /// Calls that were answered with 0 since, the one that stopped it included.
    pub fn unanswered(&self) -> u64 {
        self.0.unanswered.load(Ordering::Relaxed)
    }
}

/// A policy that runs.
pub struct Machine {
    program: Arc<Program>,
    /// Where each of the four functions begins.
    entries: [Option<usize>; 4],
    /// Of each region.
    bytes: [u32; 8],
    stack: Box<[u64]>,
    rom: Box<[u64]>,
    frames: [Frame; DEPTH],
    stopped: bool,
    identity: u64,
    watch: Watch,
    compiled: Option<Runner>,
}

/// A caller that waits.
#[derive(Clone, Copy, Default)]
struct Frame {
    kept: [u64; 4],
    back: usize,
}

impl Frame {
    #[inline(always)]
    fn of(r: &[u64; 16], back: usize) -> Frame {
        let kept = [r[6], r[7], r[8], r[9]];
        Frame { kept, back }
    }

    /// Restores the registers of the caller. Returns where it continues.
    #[inline(always)]
    fn restore(&self, r: &mut [u64; 16]) -> usize {
        r[6..10].copy_from_slice(&self.kept);
        // The values that the called function left in them have no meaning.
        r[1..6].fill(0);
        self.back
    }
}

/// Bytes of each region of a program with this state.
pub(super) fn limits(program: &Program, [flow, class, global]: [u32; 3]) -> [u32; 8] {
    let bytes = |words: usize| u32::try_from(8 * words).unwrap_or(0);
    [
        0,
        bytes(PACKET_WORDS),
        flow,
        class,
        global,
        crate::CALL_BYTES,
        bytes(DEPTH * STACK_WORDS),
        bytes(program.rom.len()),
    ]
}

/// Where and why.
pub(super) type Stop = (usize, Violation);

impl Machine {
    pub(super) fn new(
        program: Arc<Program>,
        entries: [Option<usize>; 4],
        state_bytes: [u32; 3],
    ) -> Machine {
        Machine {
            rom: program.rom.clone().into(),
            stack: vec![0; DEPTH * STACK_WORDS].into(),
            frames: [Frame::default(); DEPTH],
            identity: program.identity(),
            bytes: limits(&program, state_bytes),
            program,
            entries,
            stopped: false,
            watch: Watch::default(),
            compiled: None,
        }
    }

    /// The same policy by its machine code.
    pub(super) fn with_code(self, code: Arc<Code>) -> Machine {
        Machine {
            compiled: Some(Runner::new(code)),
            ..self
        }
    }

    /// True if it runs machine code; otherwise its instructions are interpreted.
    pub fn is_compiled(&self) -> bool {
        self.compiled.is_some()
    }

    /// To ask afterwards whether it was stopped.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    #[cold]
    fn stop(&mut self, called: Function, (at, violation): Stop) {
        let function = self.program.function_at(at);
        let fault = Fault {
            violation,
            called,
            instruction: at - function.map_or(0, |function| function.start),
            function: function.map_or("?", |function| &function.name).to_owned(),
            line: self.program.lines.at(at).cloned(),
        };
        self.stopped = true;
        // Only the first is reported; nothing runs after it.
        let _ = self.watch.0.fault.set(fault);
    }
}

impl Custom for Machine {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn call(
        &mut self,
        function: Function,
        packet: &Meta,
        flow: &mut [u64; 8],
        class: &mut [u64; 16],
        global: &mut [u64; 8],
        call: &mut [u64; 16],
    ) -> u64 {
        let Some(entry) = self.entries[function as usize] else {
            return 0;
        };
        if !self.stopped {
            // Only two words of the call go back. The rest is unchanged in every runtime.
            let mut copy;
            let answers = match &self.compiled {
                Some(runner) if runner.writes_answers_only() => &mut *call,
                _ => {
                    copy = *call;
                    &mut copy
                }
            };
            let result = match &mut self.compiled {
                Some(runner) => runner.call(
                    function,
                    Memory {
                        packet,
                        flow,
                        class,
                        global,
                        call: answers,
                        stack: &mut self.stack,
                        rom: &mut self.rom,
                    },
                ),
                None => {
                    let mut packet = regions::packet_words(packet);
                    let mut memory = Regions {
                        bytes: self.bytes,
                        words: [
                            &mut [],
                            &mut packet,
                            flow,
                            class,
                            global,
                            answers,
                            &mut self.stack,
                            &mut self.rom,
                        ],
                    };
                    run(&self.program, entry, &mut memory, &mut self.frames)
                }
            };
            let (due, verdict) = (answers[crate::CALL_DUE], answers[crate::CALL_VERDICT]);
            match result {
                Ok(value) => {
                    call[crate::CALL_DUE] = due;
                    call[crate::CALL_VERDICT] = verdict;
                    if verdict > VERDICTS {
                        // The first is enough.
                        let _ = self.watch.0.verdict.set((function, verdict));
                    }
                    return value;
                }
                Err(stop) => self.stop(function, stop),
            }
        }
        self.watch.0.unanswered.fetch_add(1, Ordering::Relaxed);
        // No verdict and no time when due: those of a policy that says nothing.
        call[crate::CALL_DUE] = u64::MAX;
        call[crate::CALL_VERDICT] = 0;
        0
    }
}

/// A `match` of the operation: those that compute from `a` and `b` into a register, those that jump
/// if something holds of them, and the caller's arms for the rest. It is a macro because only one
/// `match` becomes one jump table: arithmetic as a function cost 10 to 20 % a call, measured.
macro_rules! match_operation {
    ($op:expr, $a:ident, $b:ident, $register:expr, $holds:ident => $jump:block, {$($rest:tt)*}) => {{
        let (a32, b32) = ($a as u32, $b as u32);
        let (sa, sb) = ($a.cast_signed(), $b.cast_signed());
        let (sa32, sb32) = (a32.cast_signed(), b32.cast_signed());
        macro_rules! set {
            ($value:expr) => {
                $register = $value
            };
        }
        macro_rules! set32 {
            ($value:expr) => {
                $register = u64::from($value)
            };
        }
        macro_rules! jump_if {
            ($condition:expr) => {{
                let $holds = $condition;
                $jump
            }};
        }
        match $op {
            Op::Add64 => set!($a.wrapping_add($b)),
            Op::Sub64 => set!($a.wrapping_sub($b)),
            Op::Mul64 => set!($a.wrapping_mul($b)),
            Op::Div64 => set!($a.checked_div($b).unwrap_or(0)),
            Op::Or64 => set!($a | $b),
            Op::And64 => set!($a & $b),
            Op::Lsh64 => set!($a.wrapping_shl(b32)),
            Op::Rsh64 => set!($a.wrapping_shr(b32)),
            Op::Neg64 => set!($a.wrapping_neg()),
            Op::Mod64 => set!($a.checked_rem($b).unwrap_or($a)),
            Op::Xor64 => set!($a ^ $b),
            Op::Mov64 => set!($b),
            Op::Arsh64 => set!(sa.wrapping_shr(b32).cast_unsigned()),
            Op::Add32 => set32!(a32.wrapping_add(b32)),
            Op::Sub32 => set32!(a32.wrapping_sub(b32)),
            Op::Mul32 => set32!(a32.wrapping_mul(b32)),
            Op::Div32 => set32!(a32.checked_div(b32).unwrap_or(0)),
            Op::Or32 => set32!(a32 | b32),
            Op::And32 => set32!(a32 & b32),
            Op::Lsh32 => set32!(a32.wrapping_shl(b32)),
            Op::Rsh32 => set32!(a32.wrapping_shr(b32)),
            Op::Neg32 => set32!(a32.wrapping_neg()),
            Op::Mod32 => set32!(a32.checked_rem(b32).unwrap_or(a32)),
            Op::Xor32 => set32!(a32 ^ b32),
            Op::Mov32 => set32!(b32),
            Op::Arsh32 => set32!(sa32.wrapping_shr(b32).cast_unsigned()),
            Op::Swap16 => set32!(($a as u16).swap_bytes()),
            Op::Swap32 => set32!(a32.swap_bytes()),
            Op::Swap64 => set!($a.swap_bytes()),
            Op::Low16 => set32!($a as u16),
            Op::Low32 => set32!(a32),
            Op::Jump => jump_if!(true),
            Op::Eq64 => jump_if!($a == $b),
            Op::Gt64 => jump_if!($a > $b),
            Op::Ge64 => jump_if!($a >= $b),
            Op::Set64 => jump_if!($a & $b != 0),
            Op::Ne64 => jump_if!($a != $b),
            Op::SGt64 => jump_if!(sa > sb),
            Op::SGe64 => jump_if!(sa >= sb),
            Op::Lt64 => jump_if!($a < $b),
            Op::Le64 => jump_if!($a <= $b),
            Op::SLt64 => jump_if!(sa < sb),
            Op::SLe64 => jump_if!(sa <= sb),
            Op::Eq32 => jump_if!(a32 == b32),
            Op::Gt32 => jump_if!(a32 > b32),
            Op::Ge32 => jump_if!(a32 >= b32),
            Op::Set32 => jump_if!(a32 & b32 != 0),
            Op::Ne32 => jump_if!(a32 != b32),
            Op::SGt32 => jump_if!(sa32 > sb32),
            Op::SGe32 => jump_if!(sa32 >= sb32),
            Op::Lt32 => jump_if!(a32 < b32),
            Op::Le32 => jump_if!(a32 <= b32),
            Op::SLt32 => jump_if!(sa32 < sb32),
            Op::SLe32 => jump_if!(sa32 <= sb32),
            $($rest)*
        }
    }};
}

/// Runs from `entry` until it returns. r1 to r5 are the five arguments of a policy's function.
fn run(
    program: &Program,
    entry: usize,
    memory: &mut Regions<'_>,
    frames: &mut [Frame; DEPTH],
) -> Result<u64, Stop> {
    let mut r = [0u64; 16];
    for (argument, register) in r.iter_mut().enumerate().take(6).skip(1) {
        *register = regions::address(argument, 0);
    }
    let mut depth = 0;
    let mut budget = CALL_BUDGET;
    let mut pc = entry;
    enter(program, entry, 0, &mut r, memory);
    loop {
        let Some(i) = program.code.get(pc) else {
            return Err((pc, Violation::End));
        };
        let (dst, src) = (usize::from(i.dst & 15), usize::from(i.src & 15));
        let a = r[dst];
        let b = if i.immediate {
            i64::from(i.imm).cast_unsigned()
        } else {
            r[src]
        };
        match_operation!(i.op, a, b, r[dst], holds => {
            if holds {
                pc = go(pc, i.off as usize, &mut budget)?;
                continue;
            }
        }, {
            Op::Load8 => r[dst] = load::<1>(memory, pc, r[src], i)?,
            Op::Load16 => r[dst] = load::<2>(memory, pc, r[src], i)?,
            Op::Load32 => r[dst] = load::<4>(memory, pc, r[src], i)?,
            Op::Load64 => r[dst] = load::<8>(memory, pc, r[src], i)?,
            Op::Store8 => store::<1>(memory, pc, a, b, i)?,
            Op::Store16 => store::<2>(memory, pc, a, b, i)?,
            Op::Store32 => store::<4>(memory, pc, a, b, i)?,
            Op::Store64 => store::<8>(memory, pc, a, b, i)?,
            Op::Wide => {
                r[dst] = constant(program, i);
                pc += 1;
            }
            Op::Call => {
                let Some(frame) = frames[..DEPTH - 1].get_mut(depth) else {
                    return Err((pc, Violation::Depth));
                };
                *frame = Frame::of(&r, pc + 1);
                depth += 1;
                pc = go(pc, i.off as usize, &mut budget)?;
                enter(program, pc, depth, &mut r, memory);
                continue;
            }
            Op::Exit => {
                if depth == 0 {
                    return Ok(r[0]);
                }
                depth -= 1;
                let back = frames[depth].restore(&mut r);
                r[10] = top_of_stack(depth);
                // A way back, in the code or not: a call is paid for when it returns.
                pc = go(pc, back, &mut budget)?;
                continue;
            }
            Op::Low64 | Op::May => {}
            Op::Hole => return Err((pc, Violation::End)),
        });
        pc += 1;
    }
}

#[inline(always)]
fn load<const SIZE: u32>(
    memory: &Regions<'_>,
    pc: usize,
    base: u64,
    i: &Instruction,
) -> Result<u64, Stop> {
    let from = b_address(base, i.off);
    let value = memory.load::<SIZE>(from);
    value.ok_or_else(|| outside(&memory.bytes, pc, from, SIZE, false))
}

#[inline(always)]
fn store<const SIZE: u32>(
    memory: &mut Regions<'_>,
    pc: usize,
    base: u64,
    value: u64,
    i: &Instruction,
) -> Result<(), Stop> {
    let to = b_address(base, i.off);
    let done = memory.store::<SIZE>(to, value);
    done.ok_or_else(|| outside(&memory.bytes, pc, to, SIZE, true))
}

/// Goes to `to`; what may run a second time for it is paid for.
#[inline(always)]
fn go(from: usize, to: usize, budget: &mut u64) -> Result<usize, Stop> {
    if to <= from {
        let price = (from - to) as u64 + 1;
        *budget = budget.checked_sub(price).ok_or((from, Violation::Budget))?;
    }
    Ok(to)
}

fn top_of_stack(depth: usize) -> u64 {
    regions::address(regions::STACK, 8 * (STACK_WORDS * (depth + 1)) as u64)
}

/// Gives a function its stack, empty as far as it may read.
#[inline(always)]
fn enter(program: &Program, pc: usize, depth: usize, r: &mut [u64; 16], memory: &mut Regions<'_>) {
    r[10] = top_of_stack(depth);
    let words: usize = program.stack_words.get(pc).copied().unwrap_or(0).into();
    if words > 0 {
        let top = STACK_WORDS * (depth + 1);
        memory.words[regions::STACK][top - words..top].fill(0);
    }
}

fn constant(program: &Program, i: &Instruction) -> u64 {
    let place = usize::try_from(i.imm).ok();
    place
        .and_then(|place| program.constants.get(place))
        .copied()
        .unwrap_or(0)
}

#[inline(always)]
fn b_address(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset.into())
}

#[cold]
pub(super) fn outside(limits: &[u32; 8], pc: usize, address: u64, size: u32, write: bool) -> Stop {
    // An offset before a region's start borrows from its number.
    let signed = i64::from((address & 0xffff_ffff) as u32 as i32);
    let base = address.wrapping_add_signed(-signed);
    let region = usize::try_from(base >> 32).unwrap_or(0);
    let bytes = limits.get(region).copied().unwrap_or(0);
    let name = regions::name(base);
    let violation = if write {
        Violation::Write
    } else {
        Violation::Read
    };
    (pc, violation(name, size, signed, bytes))
}
