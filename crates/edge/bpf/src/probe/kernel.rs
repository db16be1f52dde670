//! The BPF system calls the probes use, with descriptors that close themselves.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys::{
    bpf_attach_type, bpf_insn, bpf_link_create_opts, bpf_map_create_opts, bpf_map_type,
    bpf_prog_load_opts, bpf_prog_type, bpf_test_run_opts,
};

use super::insn::Insn;

const NAME: &CStr = c"fairpath_probe";
/// struct_ops programs must be GPL-compatible; the probes' few instructions may be.
const LICENSE: &CStr = c"GPL";

/// The kind of a program, in addition to its instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramKind {
    pub(super) program_type: bpf_prog_type,
    pub(super) attach_type: bpf_attach_type,
    pub(super) flags: u32,
    pub(super) attach_btf_id: u32,
}

pub(super) fn load(kind: ProgramKind, instructions: &[Insn]) -> io::Result<OwnedFd> {
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as u64,
        expected_attach_type: kind.attach_type,
        prog_flags: kind.flags,
        attach_btf_id: kind.attach_btf_id,
        attempts: 1,
        ..Default::default()
    };
    let first = instructions.as_ptr().cast::<bpf_insn>();
    let count = instructions.len() as u64;
    // SAFETY: `Insn` has the layout of `bpf_insn`, `first` points to `count` of them, the strings end in zero,
    // `options` carries its size; all outlive the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_load(
            kind.program_type,
            NAME.as_ptr(),
            LICENSE.as_ptr(),
            first,
            count,
            &raw mut options,
        )
    };
    owned(result)
}

/// Creates a map; an arena has neither keys nor values, only pages.
pub(super) fn create_map(
    map_type: bpf_map_type,
    max_entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as u64,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: the name ends in zero, `options` carries its size; both outlive the call.
    let result = unsafe {
        libbpf_sys::bpf_map_create(
            map_type,
            NAME.as_ptr(),
            0,
            0,
            max_entries,
            &raw const options,
        )
    };
    owned(result)
}

/// Attaches by a link, which ends when the returned descriptor closes.
pub(crate) fn create_link(
    program: &OwnedFd,
    target: i32,
    attach_type: bpf_attach_type,
    mut options: bpf_link_create_opts,
) -> io::Result<OwnedFd> {
    options.sz = size_of::<bpf_link_create_opts>() as u64;
    let program = program.as_raw_fd();
    // SAFETY: `options` carries its size and outlives the call; the descriptor is open.
    let result =
        unsafe { libbpf_sys::bpf_link_create(program, target, attach_type, &raw const options) };
    owned(result)
}

/// Runs a SYSCALL program once without a context.
pub(super) fn run(program: &OwnedFd) -> io::Result<()> {
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: `options` carries its size, names no buffers and outlives the call; the descriptor is open.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    checked(result)
}

/// Turns BPF run-time statistics on while the descriptor is open.
pub(super) fn enable_stats() -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Attaches an XDP program by netlink; `None` detaches the existing one in that mode.
pub(super) fn set_xdp(ifindex: i32, program: Option<BorrowedFd<'_>>, flags: u32) -> io::Result<()> {
    let fd = program.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: numbers only; without options nothing is read through a pointer.
    checked(unsafe { libbpf_sys::bpf_xdp_attach(ifindex, fd, flags, ptr::null()) })
}

/// libbpf returns a negative errno.
fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    checked(result)?;
    // SAFETY: a call that succeeded gave a descriptor no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
