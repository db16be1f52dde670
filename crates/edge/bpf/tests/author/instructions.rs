//! Random programs, run by the kernel and by the machine: the same words are left behind.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use fairpath_core::sched::{Custom, Function, Meta};
use fairpath_policy::Author;
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seeds;

use super::object::{EXIT, object, op};
use fairpath_statistics::Random;

const PROGRAMS: u64 = 400;
const RUNS: usize = 16;
/// Registers that programs compute with; r4 is where the eight words are, r10 the stack.
const REGISTERS: [u8; 8] = [0, 2, 3, 5, 6, 7, 8, 9];
const EDGES: [u64; 10] = [
    0,
    1,
    63,
    64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 63,
    u64::MAX,
];

/// A program over eight words at r4, which r1 is in the kernel: loads all, computes, stores all.
fn program(random: &mut Random, in_kernel: bool) -> Vec<u64> {
    let mut text = vec![op(0xbf, 4, if in_kernel { 1 } else { 4 }, 0, 0)];
    let words = || REGISTERS.iter().zip((0..).step_by(8));
    text.extend(words().map(|(register, at)| op(0x79, *register, 4, at, 0)));
    text.extend(words().map(|(register, at)| op(0x7b, 10, *register, at - 64, 0)));
    let count = 48;
    let (mut jumps, end) = (0, text.len() + count);
    while text.len() < end {
        let left = end - text.len() - 1;
        let instruction = match random.below(16) {
            0 if jumps < 6 && left > 0 => {
                jumps += 1;
                jump(random, left)
            }
            1 => memory(random, 4, 0),
            2 => memory(random, 10, -64),
            3 => swap(random),
            _ => arithmetic(random),
        };
        text.push(instruction);
    }
    text.extend(words().map(|(register, at)| op(0x7b, 4, *register, at, 0)));
    text.extend([op(0xb7, 0, 0, 0, 0), EXIT]);
    text
}

fn register(random: &mut Random) -> u8 {
    REGISTERS[random.below(8) as usize]
}

fn constant(random: &mut Random) -> i32 {
    let edge = EDGES[random.below(10) as usize] as u32;
    let any = random.draw() as u32;
    (if random.below(2) == 0 { edge } else { any }).cast_signed()
}

fn arithmetic(random: &mut Random) -> u64 {
    let code = random.below(13) as u8;
    let (class, bits) = if random.below(2) == 0 {
        (7, 64)
    } else {
        (4, 32)
    };
    let dst = register(random);
    if code == 8 {
        return op(0x80 | class, dst, 0, 0, 0);
    }
    if random.below(2) == 0 {
        return op(code << 4 | 8 | class, dst, register(random), 0, 0);
    }
    // What the verifier refuses outright: constant zero divisors, constant wide shifts.
    let constant = match (code, constant(random)) {
        (3 | 9, 0) => 7,
        (6 | 7 | 12, wide) => wide & (bits - 1),
        (_, any) => any,
    };
    op(code << 4 | class, dst, 0, 0, constant)
}

fn swap(random: &mut Random) -> u64 {
    let code = if random.below(2) == 0 { 0xd4 } else { 0xdc };
    op(code, register(random), 0, 0, 16 << random.below(3))
}

fn jump(random: &mut Random, left: usize) -> u64 {
    let codes = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13];
    let code = codes[random.below(11) as usize] << 4;
    let class = if random.below(2) == 0 { 5 } else { 6 };
    let off = random.below(left as u64 + 1) as i16;
    let dst = register(random);
    if random.below(2) == 0 {
        op(code | 8 | class, dst, register(random), off, 0)
    } else {
        op(code | class, dst, 0, off, constant(random))
    }
}

/// A load or store at a multiple of its size.
fn memory(random: &mut Random, base: u8, start: i16) -> u64 {
    let (bits, size) = [(0x10, 1), (0x08, 2), (0x00, 4), (0x18, 8)][random.below(4) as usize];
    let off = start + (random.below(64 / size) * size) as i16;
    match random.below(3) {
        0 => op(0x61 | bits, register(random), base, off, 0),
        1 => op(0x63 | bits, base, register(random), off, 0),
        _ if base == 10 => op(0x62 | bits, base, 0, off, constant(random)),
        // The kernel has no constant stores into a context.
        _ => op(0x63 | bits, base, register(random), off, 0),
    }
}

/// A program in the kernel, without attaching.
fn load(text: &[u64]) -> OwnedFd {
    const SLEEPABLE: u32 = 1 << 4;
    let mut log = vec![0u8; 1 << 20];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        prog_flags: SLEEPABLE,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: text is instructions of eight bytes; names end; options and log outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SYSCALL,
            c"random".as_ptr(),
            c"GPL".as_ptr(),
            text.as_ptr().cast(),
            text.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    let log = String::from_utf8_lossy(&log);
    assert!(
        fd >= 0,
        "the verifier refused: {}",
        log.trim_end_matches('\0')
    );
    // SAFETY: a descriptor without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn run_in_kernel(program: &OwnedFd, words: &mut [u64; 8]) {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: words.as_mut_ptr().cast::<c_void>(),
        ctx_size_in: 64,
        ..Default::default()
    };
    // SAFETY: the context is 64 bytes, which the kernel reads and writes back.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(rc, 0, "run the program");
}

#[test]
fn random_programs_agree_in_kernel_and_machine() {
    requires!(Need::Root);
    for seed in test_seeds(PROGRAMS) {
        println!("seed {seed}");
        let text = program(&mut Random::new(seed), true);
        let in_kernel = load(&text);
        let author = Author::parse(&object(&program(&mut Random::new(seed), false)));
        let author = author.unwrap_or_else(|problems| panic!("{problems:?}"));
        let mut machine = author.machine();
        let mut random = Random::new(!seed);
        for _ in 0..RUNS {
            let start: [u64; 8] = std::array::from_fn(|_| match random.below(3) {
                0 => EDGES[random.below(10) as usize],
                1 => random.below(70),
                _ => random.draw(),
            });
            let (mut wanted, mut got) = (start, start);
            run_in_kernel(&in_kernel, &mut wanted);
            let (mut flow, mut class, mut call) = ([0; 8], [0; 16], [0; 16]);
            let rank = Function::RankEnqueue;
            machine.call(
                rank,
                &Meta::default(),
                &mut flow,
                &mut class,
                &mut got,
                &mut call,
            );
            assert_eq!(machine.watch().fault(), None);
            assert_eq!(
                got, wanted,
                "seed {seed}, from {start:x?}, by\n{text:016x?}"
            );
        }
    }
}
