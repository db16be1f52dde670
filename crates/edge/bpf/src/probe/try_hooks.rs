//! Probes that attach an empty program to a hook and detach it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use fairpath_units::IfIndex;
use libbpf_sys::{
    BPF_NETFILTER, BPF_PROG_TYPE_NETFILTER, BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP,
    BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, XDP_FLAGS_UPDATE_IF_NOEXIST,
    bpf_link_create_opts, bpf_link_create_opts__bindgen_ty_1__bindgen_ty_5,
};

use super::insn::{exit, mov};
use super::kernel::{ProgramKind, create_link, load, set_xdp};

/// The mode of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpPlace {
    /// In the stack.
    Generic,
    /// In the driver.
    Native,
}

impl XdpPlace {
    fn flags(self) -> u32 {
        match self {
            XdpPlace::Generic => XDP_FLAGS_SKB_MODE,
            XdpPlace::Native => XDP_FLAGS_DRV_MODE,
        }
    }
}

/// Attaches a program that passes everything at tcx ingress, by a link.
pub fn tcx(ifindex: IfIndex) -> io::Result<()> {
    const TCX_NEXT: i32 = -1;
    let program = pass_all(BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, TCX_NEXT)?;
    create_link(
        &program,
        ifindex.0 as i32,
        BPF_TCX_INGRESS,
        Default::default(),
    )
    .map(drop)
}

/// Attaches a program that passes everything as XDP, by netlink. Fails if there is a program
/// already.
pub fn xdp(ifindex: IfIndex, place: XdpPlace) -> io::Result<()> {
    let program = pass_all_xdp()?;
    let flags = place.flags() | XDP_FLAGS_UPDATE_IF_NOEXIST;
    let printer = libbpf_rs::set_print(None); // libbpf prints the kernel's refusal, which is returned here
    let attached = set_xdp(ifindex.0 as i32, Some(program.as_fd()), flags)
        .and_then(|()| set_xdp(ifindex.0 as i32, None, place.flags()));
    libbpf_rs::set_print(printer);
    attached
}

/// Attaches a program that passes everything as XDP, by a link.
pub fn xdp_link(ifindex: IfIndex, place: XdpPlace) -> io::Result<()> {
    let options = bpf_link_create_opts {
        flags: place.flags(),
        ..Default::default()
    };
    create_link(&pass_all_xdp()?, ifindex.0 as i32, BPF_XDP, options).map(drop)
}

/// Attaches a program that accepts everything at netfilter's IPv4 `forward` hook, by a link.
pub fn netfilter() -> io::Result<()> {
    const NF_ACCEPT: i32 = 1;
    netfilter_link(NF_ACCEPT).map(drop)
}

/// Attaches a program that returns `verdict` at netfilter's IPv4 `forward` hook. It ends with the
/// descriptor.
pub fn netfilter_link(verdict: i32) -> io::Result<OwnedFd> {
    const NF_INET_FORWARD: u32 = 2;
    let program = pass_all(BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER, verdict)?;
    let mut options = bpf_link_create_opts::default();
    options.__bindgen_anon_1.netfilter = bpf_link_create_opts__bindgen_ty_1__bindgen_ty_5 {
        pf: libc::NFPROTO_IPV4 as u32,
        hooknum: NF_INET_FORWARD,
        priority: -128,
        flags: 0,
    };
    create_link(&program, 0, BPF_NETFILTER, options)
}

fn pass_all_xdp() -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    pass_all(BPF_PROG_TYPE_XDP, BPF_XDP, XDP_PASS)
}

fn pass_all(program_type: u32, attach_type: u32, verdict: i32) -> io::Result<OwnedFd> {
    let kind = ProgramKind {
        program_type,
        attach_type,
        ..Default::default()
    };
    load(kind, &[mov(0, verdict), exit()])
}
