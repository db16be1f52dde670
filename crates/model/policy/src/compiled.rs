//! Custom policies as machine code, from the checked instructions.
//!
//! ```text
//! Program --- proofs: which accesses stay in their region ---.
//!    '------- Cranelift's intermediate code -----------------'--> bytes --> a mapping to execute
//! ```
//!
//! The code behaves as [`crate::machine`]'s interpreter does, fault by fault. Registers are values of one
//! function, calls and returns are jumps with frames in memory, and each jump back is paid from the budget. An
//! access whose address is a known region with a known offset is proven once, here. Every other one is taken
//! apart and compared when it runs. So the code reads and writes the memory of its policy only, and ends.
//! Absent: branch speculation is not fenced. A policy is loaded by who administers the router.
//!
//! Code is written to a file without a name, which is then mapped to be read and executed. No memory is ever writable
//! and executable, so services which forbid that (`MemoryDenyWriteExecute`) run it, too.

mod call;
mod map;
mod proof;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, Function, InstBuilder, JumpTableData, MemFlags, Signature, Type, UserFuncName,
    Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, isa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use crate::code::{Instruction, Op, Program};
use crate::machine::{CALL_BUDGET, DEPTH};
use crate::regions::{self, STACK_WORDS};
pub(super) use call::{Memory, Runner};

use call::Run;
use map::Executable;
use proof::Proof;

/// Registers of BPF.
const REGISTERS: usize = 11;
/// r6 to r9, where to continue, and its place in the jump table.
const FRAME_WORDS: usize = 6;

/// Of accesses of a policy: of any alignment, and checked before.
const ACCESS: MemFlags = MemFlags::new().with_notrap();

/// Why a policy stopped: the values of [`Run::kind`].
const BUDGET: u64 = 1;
const TOO_DEEP: u64 = 2;
const END: u64 = 3;
const READ: u64 = 4;
const WRITE: u64 = 5;

macro_rules! offset {
    ($($field:tt)+) => {
        std::mem::offset_of!(Run, $($field)+) as i32
    };
}

/// Machine code of a program.
#[derive(Debug)]
pub(super) struct Code {
    memory: Executable,
    /// Bytes of the regions that it was made for.
    bytes: [u32; 8],
    /// The call may work on the caller's `struct fp_call`: only the words that go back are written.
    writes_answers_only: bool,
}

impl Code {
    /// Translates a program whose state has these bytes. O(its instructions), some milliseconds.
    ///
    /// # Errors
    /// This processor is not supported, or the kernel refuses the memory.
    pub fn new(
        program: &Program,
        entries: &[Option<usize>; 4],
        bytes: [u32; 8],
    ) -> Result<Code, String> {
        let mut flags = settings::builder();
        flags
            .set("opt_level", "speed")
            .map_err(|error| error.to_string())?;
        let target = cranelift_native::builder().map_err(str::to_owned)?;
        let target: isa::OwnedTargetIsa = target
            .finish(settings::Flags::new(flags))
            .map_err(|error| error.to_string())?;
        let fits = |region: usize, words: usize| bytes[region] as usize <= 8 * words;
        let known = [
            (regions::PACKET, regions::PACKET_WORDS),
            (2, 8),
            (3, 16),
            (4, 8),
            (5, 16),
        ];
        if !known.into_iter().all(|(region, words)| fits(region, words)) {
            return Err("a region is larger than its type".to_owned());
        }
        let proofs = proof::prove(program, entries, bytes);
        let function = translate(program, entries, &proofs, target.default_call_conv());
        let mut context = Context::for_function(function);
        let code = context
            .compile(&*target, &mut ControlPlane::default())
            .map_err(|error| format!("{:?}", error.inner))?;
        if !code.buffer.relocs().is_empty() {
            return Err("the code refers to other code".to_owned());
        }
        Ok(Code {
            memory: Executable::new(code.code_buffer()).map_err(|error| error.to_string())?,
            bytes,
            writes_answers_only: proofs.writes_answers_only,
        })
    }
}

/// Blocks by instruction, and the values of registers.
struct Translator<'a, 'f> {
    program: &'a Program,
    proofs: &'a Proof,
    builder: FunctionBuilder<'f>,
    /// Of instructions that something jumps to.
    blocks: Vec<Option<Block>>,
    registers: [Variable; REGISTERS],
    run: Variable,
    budget: Variable,
    depth: Variable,
    /// The end of this function's stack, as a pointer.
    top: Variable,
    /// Instructions behind calls, in the order of the jump table.
    returns: Vec<usize>,
    fault: Block,
    /// Of the fault: kind, instruction, address, size.
    stop: [Variable; 4],
}

fn translate(
    program: &Program,
    entries: &[Option<usize>; 4],
    proofs: &Proof,
    convention: CallConv,
) -> Function {
    let mut signature = Signature::new(convention);
    signature.params = vec![AbiParam::new(I64), AbiParam::new(I64)];
    signature.returns = vec![AbiParam::new(I64)];
    let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
    let mut place = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut function, &mut place);
    let begin = builder.create_block();
    builder.append_block_params_for_function_params(begin);
    let mut blocks = vec![None; program.code.len() + 1];
    for at in leaders(program, entries) {
        blocks[at] = Some(builder.create_block());
    }
    let fault = builder.create_block();
    builder.set_cold_block(fault);
    let registers = std::array::from_fn(|_| builder.declare_var(I64));
    let mut variable = || builder.declare_var(I64);
    let (run, budget, depth, top) = (variable(), variable(), variable(), variable());
    let stop = std::array::from_fn(|_| variable());
    let mut translator = Translator {
        program,
        proofs,
        builder,
        blocks,
        registers,
        run,
        budget,
        depth,
        top,
        returns: returns(program),
        fault,
        stop,
    };
    translator.begin(begin, entries);
    translator.code();
    translator.end_with_fault();
    translator.builder.seal_all_blocks();
    translator.builder.finalize();
    function
}

fn is_jump(op: Op) -> bool {
    (Op::Jump as u8..=Op::May as u8).contains(&(op as u8)) && op != Op::May
}

/// Instructions that follow calls.
fn returns(program: &Program) -> Vec<usize> {
    let code = program.code.iter().enumerate();
    let calls = code.filter(|(_, i)| i.op == Op::Call);
    calls.map(|(at, _)| at + 1).collect()
}

/// Instructions where a block begins, sorted.
fn leaders(program: &Program, entries: &[Option<usize>; 4]) -> Vec<usize> {
    let mut leaders: Vec<usize> = entries.iter().flatten().copied().collect();
    for (at, i) in program.code.iter().enumerate() {
        if is_jump(i.op) || i.op == Op::Call {
            leaders.extend([i.off as usize, at + 1]);
        }
    }
    leaders.push(program.code.len());
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

impl Translator<'_, '_> {
    fn number(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value.cast_signed())
    }

    fn field(&mut self, offset: i32) -> Value {
        let run = self.builder.use_var(self.run);
        self.builder
            .ins()
            .load(I64, MemFlags::trusted(), run, offset)
    }

    fn set_field(&mut self, offset: i32, value: Value) {
        let run = self.builder.use_var(self.run);
        self.builder
            .ins()
            .store(MemFlags::trusted(), value, run, offset);
    }

    /// The registers at the start, and a jump to the requested function.
    fn begin(&mut self, begin: Block, entries: &[Option<usize>; 4]) {
        self.builder.switch_to_block(begin);
        let [run, number] = *self.builder.block_params(begin) else {
            return;
        };
        self.builder.def_var(self.run, run);
        let zero = self.number(0);
        for variable in self.registers.into_iter().chain(self.stop) {
            self.builder.def_var(variable, zero);
        }
        for region in 1..6 {
            let address = self.number(regions::address(region, 0));
            self.builder.def_var(self.registers[region], address);
        }
        let budget = self.number(CALL_BUDGET);
        self.builder.def_var(self.budget, budget);
        self.builder.def_var(self.depth, zero);
        self.enter_depth(zero);
        for (at, entry) in entries.iter().enumerate() {
            let Some(block) = entry.and_then(|entry| self.blocks[entry]) else {
                continue;
            };
            let (this, next) = (self.builder.create_block(), self.builder.create_block());
            let is_it = self.builder.ins().icmp_imm(IntCC::Equal, number, at as i64);
            self.builder.ins().brif(is_it, this, [], next, []);
            self.builder.switch_to_block(this);
            self.clear_stack(entry.unwrap_or(0));
            self.builder.ins().jump(block, []);
            self.builder.switch_to_block(next);
        }
        // No such function: as one that returns 0.
        let zero = self.number(0);
        self.builder.ins().return_(&[zero]);
    }

    /// Sets r10 and the end of the stack for a depth.
    fn enter_depth(&mut self, depth: Value) {
        let bytes = 8 * STACK_WORDS as i64;
        let below = self.builder.ins().imul_imm(depth, bytes);
        let end = self.builder.ins().iadd_imm(below, bytes);
        let region = self.number(regions::address(regions::STACK, 0));
        let address = self.builder.ins().iadd(region, end);
        self.builder.def_var(self.registers[10], address);
        let stack = self.field(offset!(base) + 8 * regions::STACK as i32);
        let top = self.builder.ins().iadd(stack, end);
        self.builder.def_var(self.top, top);
    }

    /// Empties the stack of the function at `entry` as far as it may read.
    fn clear_stack(&mut self, entry: usize) {
        let words = self.program.stack_words.get(entry).copied().unwrap_or(0);
        let (top, zero) = (self.builder.use_var(self.top), self.number(0));
        for word in 1..=i32::from(words) {
            self.builder
                .ins()
                .store(MemFlags::trusted(), zero, top, -8 * word);
        }
    }

    fn code(&mut self) {
        let program = self.program;
        let (mut at, mut open) = (0, false);
        while at <= program.code.len() {
            if let Some(block) = self.blocks[at] {
                if open {
                    self.builder.ins().jump(block, []);
                }
                self.builder.switch_to_block(block);
                open = true;
            }
            let Some(i) = program.code.get(at) else {
                self.stop_here(END, at, None);
                break;
            };
            if open {
                open = self.instruction(at, i);
            }
            at += if i.op == Op::Wide { 2 } else { 1 };
        }
    }

    /// Returns false if nothing follows.
    fn instruction(&mut self, at: usize, i: &Instruction) -> bool {
        match i.op {
            Op::Load8 | Op::Load16 | Op::Load32 | Op::Load64 => self.load(at, i),
            Op::Store8 | Op::Store16 | Op::Store32 | Op::Store64 => self.store(at, i),
            Op::Wide => {
                let place = usize::try_from(i.imm).ok();
                let value = place.and_then(|place| self.program.constants.get(place));
                let value = self.number(value.copied().unwrap_or(0));
                self.set(i, value);
            }
            Op::Call => {
                self.call(at, i);
                return false;
            }
            Op::Exit => {
                self.exit(at);
                return false;
            }
            Op::Hole => {
                self.stop_here(END, at, None);
                return false;
            }
            Op::May | Op::Low64 => {}
            Op::Jump => {
                self.go(at, i.off as usize);
                return false;
            }
            op if is_jump(op) => {
                self.jump_if(at, i);
                return false;
            }
            _ => self.compute(i),
        }
        true
    }

    fn set(&mut self, i: &Instruction, value: Value) {
        self.builder
            .def_var(self.registers[usize::from(i.dst)], value);
    }

    /// The first operand, and the second one.
    fn operands(&mut self, i: &Instruction) -> (Value, Value) {
        let a = self.builder.use_var(self.registers[usize::from(i.dst)]);
        let b = match i.immediate {
            true => self.number(i64::from(i.imm).cast_unsigned()),
            false => self.builder.use_var(self.registers[usize::from(i.src)]),
        };
        (a, b)
    }

    fn compute(&mut self, i: &Instruction) {
        let (a, b) = self.operands(i);
        let is_64 = matches!(
            i.op,
            Op::Add64
                | Op::Sub64
                | Op::Mul64
                | Op::Div64
                | Op::Or64
                | Op::And64
                | Op::Lsh64
                | Op::Rsh64
                | Op::Neg64
                | Op::Mod64
                | Op::Xor64
                | Op::Mov64
                | Op::Arsh64
                | Op::Swap64
        );
        let (x, y) = match is_64 {
            true => (a, b),
            false => (
                self.builder.ins().ireduce(I32, a),
                self.builder.ins().ireduce(I32, b),
            ),
        };
        let value = match i.op {
            Op::Add64 | Op::Add32 => self.builder.ins().iadd(x, y),
            Op::Sub64 | Op::Sub32 => self.builder.ins().isub(x, y),
            Op::Mul64 | Op::Mul32 => self.builder.ins().imul(x, y),
            Op::Or64 | Op::Or32 => self.builder.ins().bor(x, y),
            Op::And64 | Op::And32 => self.builder.ins().band(x, y),
            Op::Xor64 | Op::Xor32 => self.builder.ins().bxor(x, y),
            // Amounts are taken modulo the width, as in BPF.
            Op::Lsh64 | Op::Lsh32 => self.builder.ins().ishl(x, y),
            Op::Rsh64 | Op::Rsh32 => self.builder.ins().ushr(x, y),
            Op::Arsh64 | Op::Arsh32 => self.builder.ins().sshr(x, y),
            Op::Neg64 | Op::Neg32 => self.builder.ins().ineg(x),
            Op::Mov64 | Op::Mov32 => y,
            Op::Div64 | Op::Div32 => self.divide(x, y, false),
            Op::Mod64 | Op::Mod32 => self.divide(x, y, true),
            Op::Swap64 | Op::Swap32 => self.builder.ins().bswap(x),
            Op::Swap16 => {
                let low = self.builder.ins().ireduce(I16, a);
                self.builder.ins().bswap(low)
            }
            Op::Low16 => self.builder.ins().ireduce(I16, a),
            // Low32.
            _ => x,
        };
        let value = match self.builder.func.dfg.value_type(value) {
            I64 => value,
            _ => self.builder.ins().uextend(I64, value),
        };
        self.set(i, value);
    }

    /// Division by zero gives 0, remainder by zero the dividend.
    fn divide(&mut self, x: Value, y: Value, remainder: bool) -> Value {
        let of = self.builder.func.dfg.value_type(y);
        let (zero, one) = (
            self.builder.ins().iconst(of, 0),
            self.builder.ins().iconst(of, 1),
        );
        let is_zero = self.builder.ins().icmp(IntCC::Equal, y, zero);
        let by = self.builder.ins().select(is_zero, one, y);
        let (value, otherwise) = match remainder {
            true => (self.builder.ins().urem(x, by), x),
            false => (self.builder.ins().udiv(x, by), zero),
        };
        self.builder.ins().select(is_zero, otherwise, value)
    }

    fn jump_if(&mut self, at: usize, i: &Instruction) {
        let (a, b) = self.operands(i);
        let (a, b) = match (i.op as u8) < Op::Eq32 as u8 {
            true => (a, b),
            false => (
                self.builder.ins().ireduce(I32, a),
                self.builder.ins().ireduce(I32, b),
            ),
        };
        let condition = match i.op {
            Op::Eq64 | Op::Eq32 => IntCC::Equal,
            Op::Gt64 | Op::Gt32 => IntCC::UnsignedGreaterThan,
            Op::Ge64 | Op::Ge32 => IntCC::UnsignedGreaterThanOrEqual,
            Op::SGt64 | Op::SGt32 => IntCC::SignedGreaterThan,
            Op::SGe64 | Op::SGe32 => IntCC::SignedGreaterThanOrEqual,
            Op::Lt64 | Op::Lt32 => IntCC::UnsignedLessThan,
            Op::Le64 | Op::Le32 => IntCC::UnsignedLessThanOrEqual,
            Op::SLt64 | Op::SLt32 => IntCC::SignedLessThan,
            Op::SLe64 | Op::SLe32 => IntCC::SignedLessThanOrEqual,
            // Ne, and Set of the common bits.
            _ => IntCC::NotEqual,
        };
        let holds = match i.op {
            Op::Set64 | Op::Set32 => {
                let both = self.builder.ins().band(a, b);
                self.builder.ins().icmp_imm(IntCC::NotEqual, both, 0)
            }
            _ => self.builder.ins().icmp(condition, a, b),
        };
        let (taken, next) = (self.builder.create_block(), self.block(at + 1));
        self.builder.ins().brif(holds, taken, [], next, []);
        self.builder.switch_to_block(taken);
        self.go(at, i.off as usize);
    }

    fn block(&self, at: usize) -> Block {
        // Every jump leads to a leader.
        self.blocks[at].unwrap_or(self.fault)
    }

    /// A jump; one that leads back is paid.
    fn go(&mut self, from: usize, to: usize) {
        if to <= from {
            let price = self.number((from - to) as u64 + 1);
            self.pay(from, price);
        }
        let block = self.block(to);
        self.builder.ins().jump(block, []);
    }

    fn pay(&mut self, from: usize, price: Value) {
        let budget = self.builder.use_var(self.budget);
        let spent = self
            .builder
            .ins()
            .icmp(IntCC::UnsignedLessThan, budget, price);
        self.stop_if(spent, BUDGET, from, None);
        let rest = self.builder.ins().isub(budget, price);
        self.builder.def_var(self.budget, rest);
    }

    fn call(&mut self, at: usize, i: &Instruction) {
        let depth = self.builder.use_var(self.depth);
        let limit = (DEPTH - 1) as i64;
        let too_deep = self
            .builder
            .ins()
            .icmp_imm(IntCC::UnsignedGreaterThanOrEqual, depth, limit);
        self.stop_if(too_deep, TOO_DEEP, at, None);
        let frame = self.frame(depth);
        for (place, register) in (6..10).enumerate() {
            let value = self.builder.use_var(self.registers[register]);
            let offset = 8 * place as i32;
            self.builder
                .ins()
                .store(MemFlags::trusted(), value, frame, offset);
        }
        let back = self.number(at as u64 + 1);
        let place = self.returns.iter().position(|place| *place == at + 1);
        let place = self.number(place.unwrap_or(0) as u64);
        for (word, value) in [(4, back), (5, place)] {
            self.builder
                .ins()
                .store(MemFlags::trusted(), value, frame, 8 * word);
        }
        let deeper = self.builder.ins().iadd_imm(depth, 1);
        self.builder.def_var(self.depth, deeper);
        let to = i.off as usize;
        if to <= at {
            let price = self.number((at - to) as u64 + 1);
            self.pay(at, price);
        }
        self.enter_depth(deeper);
        self.clear_stack(to);
        let block = self.block(to);
        self.builder.ins().jump(block, []);
    }

    fn frame(&mut self, depth: Value) -> Value {
        let run = self.builder.use_var(self.run);
        let frames = self.builder.ins().iadd_imm(run, i64::from(offset!(frames)));
        let offset = self.builder.ins().imul_imm(depth, 8 * FRAME_WORDS as i64);
        self.builder.ins().iadd(frames, offset)
    }

    fn exit(&mut self, at: usize) {
        let answer = self.builder.use_var(self.registers[0]);
        if self.returns.is_empty() {
            self.builder.ins().return_(&[answer]);
            return;
        }
        let depth = self.builder.use_var(self.depth);
        let (done, back) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(depth, back, [], done, []);
        self.builder.switch_to_block(done);
        self.builder.ins().return_(&[answer]);
        self.builder.switch_to_block(back);
        let higher = self.builder.ins().iadd_imm(depth, -1);
        self.builder.def_var(self.depth, higher);
        let frame = self.frame(higher);
        let mut word = |place: i32| {
            self.builder
                .ins()
                .load(I64, MemFlags::trusted(), frame, 8 * place)
        };
        let words: [Value; FRAME_WORDS] = std::array::from_fn(|place| word(place as i32));
        for (register, value) in (6..10).zip(words) {
            self.builder.def_var(self.registers[register], value);
        }
        let zero = self.number(0);
        for register in 1..6 {
            self.builder.def_var(self.registers[register], zero);
        }
        self.enter_depth(higher);
        // Paid if it leads back in the code.
        let here = self.number(at as u64);
        let distance = self.builder.ins().isub(here, words[4]);
        let leads_back = self
            .builder
            .ins()
            .icmp(IntCC::UnsignedLessThanOrEqual, words[4], here);
        let price = self.builder.ins().iadd_imm(distance, 1);
        let price = self.builder.ins().select(leads_back, price, zero);
        self.pay(at, price);
        let place = self.builder.ins().ireduce(I32, words[5]);
        let places: Vec<Block> = self.returns.iter().map(|at| self.block(*at)).collect();
        let mut to = |block| self.builder.func.dfg.block_call(block, &[]);
        let table: Vec<_> = places.into_iter().map(&mut to).collect();
        let otherwise = to(self.fault);
        let table = JumpTableData::new(otherwise, &table);
        let table = self.builder.create_jump_table(table);
        self.builder.ins().br_table(place, table);
    }

    /// The pointer of an access, checked if it is not proven.
    fn pointer(&mut self, at: usize, base: u8, offset: i32, size: u64, kind: u64) -> (Value, i32) {
        match self.proofs.at(at) {
            proof::Place::Top(offset) => return (self.builder.use_var(self.top), offset),
            proof::Place::Region(region, offset) => {
                let base = self.field(offset!(base) + 8 * i32::from(region));
                return (base, offset);
            }
            proof::Place::Unknown => {}
        }
        let base = self.builder.use_var(self.registers[usize::from(base)]);
        let address = self.builder.ins().iadd_imm(base, i64::from(offset));
        let region = self.builder.ins().ushr_imm(address, 32);
        let beyond = self
            .builder
            .ins()
            .icmp_imm(IntCC::UnsignedGreaterThan, region, 7);
        self.stop_if(beyond, kind, at, Some((address, size)));
        let run = self.builder.use_var(self.run);
        let words = self.builder.ins().ishl_imm(region, 3);
        let row = self.builder.ins().iadd(run, words);
        let limits = match kind {
            WRITE => offset!(writable),
            _ => offset!(bytes),
        };
        let limit = self
            .builder
            .ins()
            .load(I64, MemFlags::trusted(), row, limits);
        let inside = self.builder.ins().band_imm(address, 0xffff_ffff);
        let end = self.builder.ins().iadd_imm(inside, size.cast_signed());
        let outside = self
            .builder
            .ins()
            .icmp(IntCC::UnsignedGreaterThan, end, limit);
        self.stop_if(outside, kind, at, Some((address, size)));
        let start = self
            .builder
            .ins()
            .load(I64, MemFlags::trusted(), row, offset!(base));
        (self.builder.ins().iadd(start, inside), 0)
    }

    fn load(&mut self, at: usize, i: &Instruction) {
        let (of, size) = width(i.op);
        let (pointer, offset) = self.pointer(at, i.src, i.off, size, READ);
        let value = self.builder.ins().load(of, ACCESS, pointer, offset);
        let value = match of {
            I64 => value,
            _ => self.builder.ins().uextend(I64, value),
        };
        self.set(i, value);
    }

    fn store(&mut self, at: usize, i: &Instruction) {
        let (of, size) = width(i.op);
        let (_, b) = self.operands(i);
        let (pointer, offset) = self.pointer(at, i.dst, i.off, size, WRITE);
        let value = match of {
            I64 => b,
            _ => self.builder.ins().ireduce(of, b),
        };
        self.builder.ins().store(ACCESS, value, pointer, offset);
    }

    /// Ends the policy if the condition holds, and continues otherwise.
    fn stop_if(&mut self, condition: Value, kind: u64, at: usize, access: Option<(Value, u64)>) {
        let (stop, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(stop);
        self.builder.ins().brif(condition, stop, [], next, []);
        self.builder.switch_to_block(stop);
        self.stop_here(kind, at, access);
        self.builder.switch_to_block(next);
    }

    fn stop_here(&mut self, kind: u64, at: usize, access: Option<(Value, u64)>) {
        let zero = self.number(0);
        let (address, size) = access.unwrap_or((zero, 0));
        let values = [
            self.number(kind),
            self.number(at as u64),
            address,
            self.number(size),
        ];
        for (variable, value) in self.stop.into_iter().zip(values) {
            self.builder.def_var(variable, value);
        }
        self.builder.ins().jump(self.fault, []);
    }

    fn end_with_fault(&mut self) {
        self.builder.switch_to_block(self.fault);
        let offsets = [offset!(kind), offset!(at), offset!(address), offset!(size)];
        for (variable, offset) in self.stop.into_iter().zip(offsets) {
            let value = self.builder.use_var(variable);
            self.set_field(offset, value);
        }
        let zero = self.number(0);
        self.builder.ins().return_(&[zero]);
    }
}

fn width(op: Op) -> (Type, u64) {
    match op {
        Op::Load8 | Op::Store8 => (I8, 1),
        Op::Load16 | Op::Store16 => (I16, 2),
        Op::Load32 | Op::Store32 => (I32, 4),
        _ => (I64, 8),
    }
}
