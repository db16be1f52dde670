//! Probes of this kernel's support for BPF and AF_XDP, with this user's permissions.
//!
//! Every function tries one operation and undoes it before it returns: `Ok` means that it worked.
//! The programs are a few instructions written by hand, so that no object file has to fit the
//! kernel under test. Nothing is pinned. Functions with an [`IfIndex`](fairpath_units::IfIndex) or
//! a hook use the calling thread's network namespace: call them in a temporary one.
//!
//! Deliberately absent: kernel versions, because distributions backport features.

mod af_xdp;
mod congestion;
mod insn;
mod kernel;
mod kernel_type;
mod try_bpf;
mod try_hooks;

pub use af_xdp::{AfXdpMode, af_xdp};
pub use congestion::congestion_info;
pub(crate) use kernel::create_link;
pub use kernel_type::{KernelStruct, kernel_struct};
pub use try_bpf::{
    arena, bpf, bpf_qdisc, bpf_stats, bpf_tcp_cc, kernel_btf, may_goto, prog_test_run_syscall,
};
pub use try_hooks::{XdpPlace, netfilter, netfilter_link, tcx, xdp, xdp_link};

/// The kernel's internal `ENOTSUPP`, which BPF returns to user space although it has no name there.
pub const ENOTSUPP: i32 = 524;
