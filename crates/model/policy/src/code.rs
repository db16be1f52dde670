//! An author's instructions, out of the object's bytes and into a form that runs fast.
//!
//! Accepted: the BPF instruction set, version 3 (32-bit arithmetic and jumps included), calls between
//! functions of the file, and constant tables. Refused, with the line of the source: helpers, variables,
//! external functions, atomics, and divisions and shifts that the
//! compiler could not prove harmless. Afterwards every register number is below 11, r10 is never
//! written, and every jump and call leads to the start of an instruction of the same file.
//! Source: RFC 9669 (BPF instruction set architecture).

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::elf::{Elf, Relocation, Section, Symbol};
use crate::lines::{Lines, SourceLine};
use crate::regions;

/// The most instructions that a file may have.
pub const INSTRUCTIONS: usize = 1 << 16;
/// The most bytes of constant tables.
pub const CONSTANT_BYTES: usize = 1 << 20;

/// Why the file's code is not one that can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a BPF object, or a corrupted one.
    #[error("not a valid BPF object: compile the policy again")]
    NotBpf,
    /// No POLICY block.
    #[error("it has no POLICY block: begin with POLICY{{ STATE, .name = \"...\", ... }};")]
    NoPolicy,
    /// A function in another section.
    #[error("it has code in section {0}: a policy's functions stay in .text; remove SEC(...)")]
    Elsewhere(String),
    /// Variables.
    #[error(
        "variable {0}: a policy keeps what it remembers in struct flow, class and global; constants are `static const`"
    )]
    Variable(String),
    /// A table of addresses.
    #[error("constants in {0} hold addresses: tables are of numbers")]
    Addresses(String),
    /// Too much of something.
    #[error("it has {0} {1}: at most {2}")]
    TooMuch(usize, &'static str, usize),
    /// Calls of the kernel.
    #[error(
        "{}it calls helper {helper}: a policy calls nothing, times and packets come as arguments",
        at(line)
    )]
    Helper {
        /// The helper's number.
        helper: i32,
        /// Where.
        line: Option<SourceLine>,
    },
    /// Calls of what is not there.
    #[error(
        "{}it calls {name}, which is not in the file{}",
        at(line),
        remedy(name)
    )]
    Missing {
        /// Of the function.
        name: String,
        /// Where.
        line: Option<SourceLine>,
    },
    /// A division that may divide by zero.
    #[error("{}a divisor may be 0: write div(a, b) or mod(a, b), which give 0 then", at(.0))]
    Division(Option<SourceLine>),
    /// A shift that may be as wide as its operand.
    #[error("{}a shift may be too wide: write shl(a, bits) or shr(a, bits), which give 0 then", at(.0))]
    Shift(Option<SourceLine>),
    /// Atomic operations.
    #[error("{}an atomic operation: a policy runs alone, plain ones do", at(.0))]
    Atomic(Option<SourceLine>),
    /// An instruction that is none.
    #[error(
        "{}instruction {index} (operation {code:#04x}) is none of BPF version 3: compile with -mcpu=v3",
        at(line)
    )]
    Unknown {
        /// From the start of the code.
        index: usize,
        /// Its first byte.
        code: u8,
        /// Where.
        line: Option<SourceLine>,
    },
}

fn at(line: &Option<SourceLine>) -> String {
    line.as_ref()
        .map_or_else(String::new, |line| format!("{line}\n  "))
}

fn remedy(name: &str) -> &'static str {
    match name {
        "memset" | "memcpy" | "memmove" => {
            ": clang makes it of copies of whole structures; copy their members"
        }
        _ => ": define it there, as static",
    }
}

/// The operation of an instruction; 64 and 32 are the widths of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub(super) enum Op {
    Add64, Sub64, Mul64, Div64, Or64, And64, Lsh64, Rsh64, Neg64, Mod64, Xor64, Mov64, Arsh64,
    Add32, Sub32, Mul32, Div32, Or32, And32, Lsh32, Rsh32, Neg32, Mod32, Xor32, Mov32, Arsh32,
    Swap16, Swap32, Swap64, Low16, Low32, Low64,
    Load8, Load16, Load32, Load64, Store8, Store16, Store32, Store64,
    Jump,
    Eq64, Gt64, Ge64, Set64, Ne64, SGt64, SGe64, Lt64, Le64, SLt64, SLe64,
    Eq32, Gt32, Ge32, Set32, Ne32, SGt32, SGe32, Lt32, Le32, SLt32, SLe32,
    /// `may_goto`: continues; the budget ends loops here.
    May,
    /// A 64-bit constant: `imm` is its place in the pool.
    Wide,
    Call, Exit,
    /// The second half of a 64-bit constant.
    Hole,
}

/// One instruction, decoded.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Instruction {
    pub op: Op,
    pub dst: u8,
    pub src: u8,
    /// The operand is `imm`, not `src`.
    pub immediate: bool,
    /// Of memory: the offset. Of jumps and calls: the index to go to.
    pub off: i32,
    pub imm: i32,
}

/// A function of the file.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub name: String,
    pub start: usize,
    pub end: usize,
}

/// All that runs.
#[derive(Debug)]
pub(super) struct Program {
    pub code: Vec<Instruction>,
    pub constants: Vec<u64>,
    pub rom: Vec<u64>,
    /// By start.
    pub functions: Vec<Function>,
    /// By instruction: of a function that begins there, the words of stack, from the top, that it may
    /// read before it wrote them.
    pub stack_words: Vec<u8>,
    pub lines: Lines,
}

impl Program {
    /// The same for the same instructions and constants, whatever their lines are.
    pub fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.code, &self.constants, &self.rom).hash(&mut hasher);
        hasher.finish()
    }

    /// The function that an instruction belongs to.
    pub fn function_at(&self, index: usize) -> Option<&Function> {
        let mut all = self.functions.iter();
        all.find(|function| (function.start..function.end).contains(&index))
    }
}

/// Reads the code of an object; all that is wrong with it.
pub(super) fn read(elf: &Elf<'_>) -> Result<Program, Vec<Refusal>> {
    let mut refusals = misplaced(elf);
    let Some((text, section)) = elf.section(".text") else {
        refusals.push(Refusal::NotBpf);
        return Err(refusals);
    };
    let lines = Lines::of(elf, ".text");
    let count = section.data.len() / 8;
    if count > INSTRUCTIONS {
        return Err(vec![Refusal::TooMuch(count, "instructions", INSTRUCTIONS)]);
    }
    let (rom, places) = constants(elf).map_err(|refusal| vec![refusal])?;
    let mut reader = Reader {
        elf,
        text,
        places,
        lines: &lines,
        constants: Vec::new(),
    };
    let raw: Vec<_> = section.data.chunks_exact(8).map(Raw::read).collect();
    let relocations = reader.relocations(raw.len());
    let mut code = Vec::with_capacity(count);
    let mut at = 0;
    while at < raw.len() {
        let step = reader.instruction(&raw, at, relocations[at]);
        let wide = raw[at].code == Raw::WIDE;
        match step {
            Ok(instruction) => code.push(instruction),
            Err(refusal) => {
                if !refusals.contains(&refusal) {
                    refusals.push(refusal);
                }
                code.push(HOLE);
            }
        }
        at += 1;
        if wide && at < raw.len() {
            code.push(HOLE);
            at += 1;
        }
    }
    let constants = reader.constants;
    let functions = functions(elf, text, count);
    if refusals.is_empty() {
        refusals.extend(astray(&code, &functions, &lines));
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut stack_words = vec![0; count];
    for function in &functions {
        stack_words[function.start] = words_of_stack(&code[function.start..function.end]);
    }
    Ok(Program {
        code,
        constants,
        rom,
        functions,
        stack_words,
        lines,
    })
}

const HOLE: Instruction = Instruction {
    op: Op::Hole,
    dst: 0,
    src: 0,
    immediate: true,
    off: 0,
    imm: 0,
};

/// Variables, and functions outside .text.
fn misplaced(elf: &Elf<'_>) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for (index, section) in elf.sections.iter().enumerate() {
        let has = |kind| {
            let mut symbols = elf.symbols.iter();
            symbols.find(move |s| s.section == index && s.kind == kind)
        };
        if section.is_code() && section.name != ".text" && !section.data.is_empty() {
            refusals.push(Refusal::Elsewhere(section.name.to_owned()));
        } else if section.is_writable()
            && let Some(object) = has(Symbol::OBJECT)
        {
            refusals.push(Refusal::Variable(object.name.to_owned()));
        } else if section.is_constant() && elf.relocations(index).next().is_some() {
            refusals.push(Refusal::Addresses(section.name.to_owned()));
        }
    }
    refusals
}

/// All constant tables one behind the other, and where each section begins.
fn constants(elf: &Elf<'_>) -> Result<(Vec<u64>, Vec<Option<u64>>), Refusal> {
    // As much as tables are ever aligned to.
    const ALIGN: usize = 8;
    let (mut rom, mut places) = (Vec::new(), Vec::with_capacity(elf.sections.len()));
    for section in &elf.sections {
        places.push(section.is_constant().then_some(8 * rom.len() as u64));
        if section.is_constant() {
            if 8 * rom.len() + section.data.len() > CONSTANT_BYTES {
                let bytes = 8 * rom.len() + section.data.len();
                return Err(Refusal::TooMuch(
                    bytes,
                    "bytes of constants",
                    CONSTANT_BYTES,
                ));
            }
            rom.extend(section.data.chunks(8).map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }));
            rom.resize(rom.len().next_multiple_of(ALIGN), 0);
        }
    }
    Ok((rom, places))
}

/// An instruction as it is in the file.
#[derive(Clone, Copy)]
struct Raw {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Raw {
    const WIDE: u8 = 0x18;

    fn read(bytes: &[u8]) -> Raw {
        Raw {
            code: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }
}

struct Reader<'a> {
    elf: &'a Elf<'a>,
    text: usize,
    places: Vec<Option<u64>>,
    lines: &'a Lines,
    constants: Vec<u64>,
}

impl<'a> Reader<'a> {
    fn relocations(&self, count: usize) -> Vec<Option<Relocation>> {
        let mut table = vec![None; count];
        for relocation in self.elf.relocations(self.text) {
            let index = usize::try_from(relocation.offset / 8).unwrap_or(usize::MAX);
            if let Some(place) = table.get_mut(index) {
                *place = Some(relocation);
            }
        }
        table
    }

    fn line(&self, at: usize) -> Option<SourceLine> {
        self.lines.at(at).cloned()
    }

    fn unknown(&self, raw: Raw, index: usize) -> Refusal {
        let (code, line) = (raw.code, self.line(index));
        Refusal::Unknown { index, code, line }
    }

    fn instruction(
        &mut self,
        all: &[Raw],
        at: usize,
        relocation: Option<Relocation>,
    ) -> Result<Instruction, Refusal> {
        let raw = all[at];
        let unknown = self.unknown(raw, at);
        if raw.dst > 10 || raw.src > 10 {
            return Err(unknown);
        }
        let instruction = match raw.code & 7 {
            0 => return self.wide(all, at, relocation),
            1..=3 if raw.code & 0xe0 == 0xc0 => return Err(Refusal::Atomic(self.line(at))),
            1 => memory(raw, LOADS),
            2 | 3 => memory(raw, STORES),
            4 => arithmetic(raw, ARITHMETIC_32),
            7 => arithmetic(raw, ARITHMETIC_64),
            _ if raw.code == 0x85 => return self.call(raw, at, relocation),
            5 => jump(raw, at, JUMPS_64),
            _ => jump(raw, at, JUMPS_32),
        };
        let instruction = instruction
            .filter(|_| relocation.is_none())
            .ok_or(unknown.clone())?;
        let writes = !matches!(raw.code & 7, 2 | 3 | 5 | 6);
        if writes && raw.dst == 10 {
            Err(unknown)
        } else {
            Ok(instruction)
        }
    }

    /// A 64-bit constant, or the address of a constant table.
    fn wide(
        &mut self,
        all: &[Raw],
        at: usize,
        relocation: Option<Relocation>,
    ) -> Result<Instruction, Refusal> {
        let unknown = self.unknown(all[at], at);
        let (raw, Some(next)) = (all[at], all.get(at + 1)) else {
            return Err(unknown);
        };
        if raw.code != Raw::WIDE || raw.src != 0 || raw.dst == 10 || next.code != 0 {
            return Err(unknown);
        }
        let mut value =
            u64::from(raw.imm.cast_unsigned()) | u64::from(next.imm.cast_unsigned()) << 32;
        if let Some(relocation) = relocation {
            let symbol = self
                .elf
                .symbols
                .get(relocation.symbol)
                .ok_or(unknown.clone())?;
            if relocation.kind != Relocation::LOAD {
                return Err(unknown);
            }
            let place = self.places.get(symbol.section).copied().flatten();
            let Some(place) = place else {
                let section = self.elf.sections.get(symbol.section);
                return Err(match section.map(Section::is_code) {
                    Some(true) => Refusal::Addresses(".text".to_owned()),
                    _ => Refusal::Variable(self.object_name(symbol, value)),
                });
            };
            let offset = place.wrapping_add(symbol.value).wrapping_add(value);
            value = regions::address(regions::ROM, offset);
        }
        let imm = i32::try_from(self.constants.len()).map_err(|_| unknown)?;
        self.constants.push(value);
        Ok(Instruction {
            op: Op::Wide,
            dst: raw.dst,
            imm,
            ..HOLE
        })
    }

    /// The variable that a relocation means; sections stand for those that are static.
    fn object_name(&self, symbol: &Symbol<'a>, offset: u64) -> String {
        if symbol.kind != Symbol::SECTION && !symbol.name.is_empty() {
            return symbol.name.to_owned();
        }
        let mut objects = self.elf.symbols.iter();
        let object = objects.find(|object| {
            let inside = offset.wrapping_sub(object.value) < object.size.max(1);
            object.kind == Symbol::OBJECT && object.section == symbol.section && inside
        });
        let section = self.elf.sections.get(symbol.section);
        let section = section.map_or("?", |section| section.name);
        object.map_or(section, |object| object.name).to_owned()
    }

    fn call(
        &self,
        raw: Raw,
        at: usize,
        relocation: Option<Relocation>,
    ) -> Result<Instruction, Refusal> {
        let line = self.line(at);
        let own = i64::from(raw.imm) + 1;
        let target = match (relocation, raw.src) {
            (None, 1) => own + at as i64,
            (Some(relocation), 1) if relocation.kind == Relocation::CALL => {
                let symbol = self.elf.symbols.get(relocation.symbol);
                let symbol = symbol.ok_or_else(|| self.unknown(raw, at))?;
                if symbol.section != self.text {
                    return Err(missing(symbol.name, line));
                }
                own.wrapping_add_unsigned(symbol.value / 8)
            }
            (None, 0) => {
                return Err(Refusal::Helper {
                    helper: raw.imm,
                    line,
                });
            }
            _ => return Err(self.unknown(raw, at)),
        };
        let off = i32::try_from(target).map_err(|_| self.unknown(raw, at))?;
        Ok(Instruction {
            op: Op::Call,
            off,
            ..HOLE
        })
    }
}

/// Clang puts calls where it cannot prove that an operation is harmless: see `fairpath_bpf::author`.
fn missing(name: &str, line: Option<SourceLine>) -> Refusal {
    if name.starts_with("__ubsan_handle_divrem") {
        Refusal::Division(line)
    } else if name.starts_with("__ubsan_handle_shift") {
        Refusal::Shift(line)
    } else {
        let name = name.to_owned();
        Refusal::Missing { name, line }
    }
}

#[rustfmt::skip]
const ARITHMETIC_64: [Op; 13] = [
    Op::Add64, Op::Sub64, Op::Mul64, Op::Div64, Op::Or64, Op::And64, Op::Lsh64, Op::Rsh64,
    Op::Neg64, Op::Mod64, Op::Xor64, Op::Mov64, Op::Arsh64,
];
#[rustfmt::skip]
const ARITHMETIC_32: [Op; 13] = [
    Op::Add32, Op::Sub32, Op::Mul32, Op::Div32, Op::Or32, Op::And32, Op::Lsh32, Op::Rsh32,
    Op::Neg32, Op::Mod32, Op::Xor32, Op::Mov32, Op::Arsh32,
];
/// By operation; calls and exits are elsewhere.
#[rustfmt::skip]
const JUMPS_64: [Op; 14] = [
    Op::Jump, Op::Eq64, Op::Gt64, Op::Ge64, Op::Set64, Op::Ne64, Op::SGt64, Op::SGe64,
    Op::Hole, Op::Hole, Op::Lt64, Op::Le64, Op::SLt64, Op::SLe64,
];
#[rustfmt::skip]
const JUMPS_32: [Op; 14] = [
    Op::Jump, Op::Eq32, Op::Gt32, Op::Ge32, Op::Set32, Op::Ne32, Op::SGt32, Op::SGe32,
    Op::Hole, Op::Hole, Op::Lt32, Op::Le32, Op::SLt32, Op::SLe32,
];
/// By the bits of the size: word, half word, byte, double word.
const LOADS: [Op; 4] = [Op::Load32, Op::Load16, Op::Load8, Op::Load64];
const STORES: [Op; 4] = [Op::Store32, Op::Store16, Op::Store8, Op::Store64];

fn operands(op: Op, raw: Raw, immediate: bool, off: i32) -> Instruction {
    let Raw { dst, src, imm, .. } = raw;
    Instruction {
        op,
        dst,
        src,
        immediate,
        off,
        imm,
    }
}

fn memory(raw: Raw, by_size: [Op; 4]) -> Option<Instruction> {
    const PLAIN: u8 = 0x60;
    let op = by_size[usize::from(raw.code >> 3 & 3)];
    let immediate = raw.code & 7 == 2;
    (raw.code & 0xe0 == PLAIN).then(|| operands(op, raw, immediate, raw.off.into()))
}

fn arithmetic(raw: Raw, by_code: [Op; 13]) -> Option<Instruction> {
    const END: u8 = 0xd;
    let immediate = raw.code & 8 == 0;
    if raw.off != 0 {
        return None;
    }
    if raw.code >> 4 == END {
        // To little-endian, which machines are: the low bits. Of 64-bit arithmetic: always a swap.
        let swaps = !immediate || raw.code & 7 == 7;
        let op = match (raw.imm, swaps) {
            (16, true) => Op::Swap16,
            (32, true) => Op::Swap32,
            (64, true) => Op::Swap64,
            (16, false) => Op::Low16,
            (32, false) => Op::Low32,
            (64, false) => Op::Low64,
            _ => return None,
        };
        return Some(operands(op, raw, true, 0));
    }
    let op = *by_code.get(usize::from(raw.code >> 4))?;
    Some(operands(op, raw, immediate, 0))
}

fn jump(raw: Raw, at: usize, by_code: [Op; 14]) -> Option<Instruction> {
    const EXIT: u8 = 0x95;
    const MAY: u8 = 0xe5;
    const FAR: u8 = 0x06;
    let near = i64::from(raw.off);
    let (op, distance) = match raw.code {
        EXIT => return Some(operands(Op::Exit, raw, true, 0)),
        MAY => (Op::May, near),
        FAR => (Op::Jump, raw.imm.into()),
        code => (*by_code.get(usize::from(code >> 4))?, near),
    };
    let target = i32::try_from(at as i64 + 1 + distance).ok()?;
    (op != Op::Hole).then(|| operands(op, raw, raw.code & 8 == 0, target))
}

/// The first jump that does not lead to an instruction, or call that does not lead to a function.
fn astray(code: &[Instruction], functions: &[Function], lines: &Lines) -> Option<Refusal> {
    let astray = |i: &Instruction| {
        let to = usize::try_from(i.off).unwrap_or(usize::MAX);
        if i.op == Op::Call {
            return !functions.iter().any(|function| function.start == to);
        }
        let is_jump = (Op::Jump as u8..=Op::May as u8).contains(&(i.op as u8));
        is_jump && code.get(to).is_none_or(|there| there.op == Op::Hole)
    };
    let index = code.iter().position(astray)?;
    let line = lines.at(index).cloned();
    Some(Refusal::Unknown {
        index,
        code: 5,
        line,
    })
}

/// The functions of .text, by start; functions elsewhere are excluded.
fn functions(elf: &Elf<'_>, text: usize, count: usize) -> Vec<Function> {
    let symbols = elf.symbols.iter();
    let symbols = symbols.filter(|s| s.kind == Symbol::FUNCTION && s.section == text);
    let function = |symbol: &Symbol<'_>| {
        let start = usize::try_from(symbol.value / 8).ok()?;
        let end = start.checked_add(usize::try_from(symbol.size / 8).ok()?)?;
        let name = symbol.name.to_owned();
        (start < end && end <= count).then_some(Function { name, start, end })
    };
    let mut all: Vec<_> = symbols.filter_map(function).collect();
    all.sort_by_key(|function| function.start);
    all
}

/// The part of the stack that a function may read: all of it once the address is anywhere else.
fn words_of_stack(body: &[Instruction]) -> u8 {
    const TOP: u8 = 10;
    let words = body.iter().map(|i| {
        let is_load = (Op::Load8 as u8..=Op::Load64 as u8).contains(&(i.op as u8));
        let is_store = (Op::Store8 as u8..=Op::Store64 as u8).contains(&(i.op as u8));
        let reads = !i.immediate && i.src == TOP;
        match () {
            () if is_load && i.src == TOP => (-i.off).max(0) as usize,
            () if is_store && i.dst == TOP && !reads => (-i.off).max(0) as usize,
            () if reads => 8 * regions::STACK_WORDS,
            () => 0,
        }
    });
    let bytes = words.max().unwrap_or(0);
    u8::try_from(bytes.div_ceil(8).min(regions::STACK_WORDS)).unwrap_or(u8::MAX)
}
