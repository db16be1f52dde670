//! Finds out what this kernel lets this user do with BPF and AF_XDP, by doing it.
//!
//! Every function tries one thing and undoes it before it returns: `Ok` means it worked. The programs are a few
//! instructions written here by hand, so that no object file has to fit the kernel under test. Nothing is pinned.
//! Functions that take an [`IfIndex`](fairpath_units::IfIndex) or attach a hook act on the calling thread's network
//! namespace: call them in a throw-away one.
//!
//! Deliberately absent: versions. What a kernel is called says nothing about what a distribution put into it.

mod af_xdp;
mod congestion;
mod insn;
mod kernel;
mod kernel_type;
mod try_bpf;
mod try_hooks;

pub use af_xdp::{AfXdpMode, af_xdp};
pub use congestion::congestion_info;
pub use kernel_type::{KernelStruct, kernel_struct};
pub use try_bpf::{
    arena, bpf, bpf_qdisc, bpf_stats, bpf_tcp_cc, kernel_btf, may_goto, prog_test_run_syscall,
    ringbuf,
};
pub use try_hooks::{XdpPlace, netfilter, tcx, xdp, xdp_link};

/// The kernel's internal `ENOTSUPP`, which reaches user space from BPF although it has no name there.
pub const ENOTSUPP: i32 = 524;
