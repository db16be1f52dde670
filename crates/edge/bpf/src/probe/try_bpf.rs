//! Probes that attach nothing: programs, maps, type information, statistics.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_sys::{
    BPF_F_MMAPABLE, BPF_F_SLEEPABLE, BPF_MAP_TYPE_ARENA, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_STRUCT_OPS, BPF_PROG_TYPE_SYSCALL,
};

use super::insn::{
    arena_to_kernel, exit, jump, load_map, load_u64, may_goto as may_goto_insn, mov, store_u32,
};
use super::kernel::{ProgramKind, create_map, enable_stats, load, run};

const SCHED_CLS: ProgramKind = ProgramKind {
    program_type: BPF_PROG_TYPE_SCHED_CLS,
    attach_type: 0,
    flags: 0,
    attach_btf_id: 0,
};

const SYSCALL: ProgramKind = ProgramKind {
    program_type: BPF_PROG_TYPE_SYSCALL,
    attach_type: 0,
    flags: BPF_F_SLEEPABLE,
    attach_btf_id: 0,
};

/// Loads the smallest traffic-control program.
pub fn bpf() -> io::Result<()> {
    load(SCHED_CLS, &[mov(0, 0), exit()]).map(drop)
}

/// Loads a traffic-control program whose loop is bounded by `may_goto`.
pub fn may_goto() -> io::Result<()> {
    load(SCHED_CLS, &[mov(0, 0), may_goto_insn(1), jump(-2), exit()]).map(drop)
}

/// Loads a SYSCALL program and runs it.
pub fn prog_test_run_syscall() -> io::Result<()> {
    run(&load(SYSCALL, &[mov(0, 0), exit()])?)
}

/// Creates an arena, has a program write to it, and reads the value in user space.
pub fn arena() -> io::Result<()> {
    const VALUE: i32 = 42;
    let arena = create_map(BPF_MAP_TYPE_ARENA, 1, BPF_F_MMAPABLE)?;
    let page = ArenaPage::map(&arena)?;
    page.write(0); // the kernel allocates the page on first touch
    let [map_low, map_high] = load_map(1, arena.as_raw_fd());
    let [address_low, address_high] = load_u64(2, page.address() as u64);
    let program = [
        map_low,
        map_high,
        address_low,
        address_high,
        arena_to_kernel(2),
        store_u32(2, 0, VALUE),
        mov(0, 0),
        exit(),
    ];
    run(&load(SYSCALL, &program)?)?;
    if page.read() != VALUE as u32 {
        return Err(io::Error::other("the program's write did not arrive"));
    }
    Ok(())
}

/// Reads the kernel's type information.
pub fn kernel_btf() -> io::Result<()> {
    Btf::from_vmlinux().map(drop).map_err(io::Error::other)
}

/// Loads a program for the member `reset` of a BPF qdisc; nothing is registered.
///
/// `NotFound` means that the kernel's type information has no qdiscs, [`ENOTSUPP`](super::ENOTSUPP)
/// that BPF cannot implement them.
pub fn bpf_qdisc() -> io::Result<()> {
    struct_ops("Qdisc_ops", "reset")
}

/// Loads a program for the member `ssthresh` of a TCP congestion control; nothing is registered.
///
/// Errors as of [`bpf_qdisc`].
pub fn bpf_tcp_cc() -> io::Result<()> {
    struct_ops("tcp_congestion_ops", "ssthresh")
}

/// Loads the smallest program for a member of a structure of the kernel that BPF may fill.
fn struct_ops(structure: &str, member: &str) -> io::Result<()> {
    let btf = Btf::from_vmlinux().map_err(io::Error::other)?;
    let absent = |what: &str| io::Error::new(io::ErrorKind::NotFound, format!("no {what} in BTF"));
    let ops: Struct<'_> = btf
        .type_by_name(structure)
        .ok_or_else(|| absent(structure))?;
    let index = ops
        .iter()
        .position(|found| found.name.is_some_and(|name| name == member))
        .ok_or_else(|| absent(&format!("{structure}.{member}")))?;
    let kind = ProgramKind {
        program_type: BPF_PROG_TYPE_STRUCT_OPS,
        attach_type: index as u32,
        flags: 0,
        attach_btf_id: ops.type_id().into(),
    };
    load(kind, &[mov(0, 0), exit()]).map(drop)
}

/// Enables and disables run-time statistics.
pub fn bpf_stats() -> io::Result<()> {
    enable_stats().map(drop)
}

/// The page size; 4 KiB if the system does not report it.
fn page_bytes() -> usize {
    // SAFETY: takes a number only.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).unwrap_or(4096)
}

/// One mapped page of an arena.
struct ArenaPage {
    start: *mut u32,
}

impl ArenaPage {
    fn map(arena: &OwnedFd) -> io::Result<ArenaPage> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = arena.as_raw_fd();
        // SAFETY: the kernel chooses an unused address; the descriptor is open.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_bytes(),
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(ArenaPage {
            start: start.cast(),
        })
    }

    fn address(&self) -> usize {
        self.start.addr()
    }

    fn write(&self, value: u32) {
        // SAFETY: `start` is the mapped page's first word until drop; the program runs only while we wait for it.
        unsafe { self.start.write_volatile(value) }
    }

    fn read(&self) -> u32 {
        // SAFETY: as in `write`.
        unsafe { self.start.read_volatile() }
    }
}

impl Drop for ArenaPage {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), page_bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::Uid;

    use super::*;

    /// True if the current user can only fail for reasons of the kernel.
    fn skip(name: &str) -> bool {
        let skip = !Uid::effective().is_root();
        if skip {
            fairpath_units::skip_test(name, "root", "needs root");
        }
        skip
    }

    #[test]
    fn kernels_from_the_floor_up_support_rtt() {
        if skip("kernels_from_the_floor_up_support_rtt") {
            return;
        }
        bpf().unwrap();
        kernel_btf().unwrap();
        may_goto().unwrap();
        prog_test_run_syscall().unwrap();
        arena().unwrap();
        bpf_stats().unwrap();
    }

    #[test]
    fn a_program_the_verifier_must_refuse_is_refused() {
        if skip("a_program_the_verifier_must_refuse_is_refused") {
            return;
        }
        let endless = [mov(0, 0), jump(-1), exit()];
        assert!(load(SCHED_CLS, &endless).is_err());
        let without_return_value = [exit()];
        assert!(load(SCHED_CLS, &without_return_value).is_err());
    }
}
