//! The least privilege: what is kept after set-up, and why.
//!
//! | capability | kept by | for |
//! |---|---|---|
//! | CAP_NET_ADMIN | the loop | attaching to interfaces that come later, and after a reload |
//! | CAP_BPF | the loop | `bpf()` for that, for running the program that closes silent flows, for maps |
//! | CAP_PERFMON | the loop | the same calls on programs that use arenas and bounded loops |
//! | CAP_NET_RAW | the loop, where it shapes | AF_XDP sockets, and iptables, which insists on it |
//! | CAP_IPC_LOCK | the loop, where it shapes | memory that AF_XDP shares with the kernel |
//! | CAP_SYS_NICE | the loop, where it shapes | threads that carry packets are preferred to others |
//!
//! Threads with schedulers have what the loop has: each verdict to netfilter takes CAP_NET_ADMIN.
//!
//! Capabilities belong to threads: those that serve sockets, write files and run hooks keep none.
//! The user stays who it was, since socket and state are root's; without capabilities, root is a
//! user who owns files. `no_new_privs` holds for all that is started from here.

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};

const KEPT: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

const SHAPING: [Capability; 3] = [
    Capability::CAP_IPC_LOCK,
    Capability::CAP_NET_RAW,
    Capability::CAP_SYS_NICE,
];

/// Gives up everything but what the loop needs; call it before other threads are started.
///
/// Returns the names of what is left.
///
/// # Errors
/// Where the kernel refuses to take a privilege away.
pub fn keep(shapes: bool) -> anyhow::Result<Vec<String>> {
    let wanted: Vec<Capability> = match shapes {
        true => KEPT.into_iter().chain(SHAPING).collect(),
        false => KEPT.to_vec(),
    };
    nix::sys::prctl::set_no_new_privs().context("give up privileges: set no_new_privs")?;
    let permitted = caps::read(None, CapSet::Permitted).context("read own capabilities")?;
    let kept: CapsHashSet = wanted
        .iter()
        .copied()
        .filter(|c| permitted.contains(c))
        .collect();
    if permitted.contains(&Capability::CAP_SETPCAP) {
        shrink_bounding_set(&wanted).context("give up privileges: shrink the bounding set")?;
    }
    let give_up = |set, what: &CapsHashSet| {
        caps::set(None, set, what).with_context(|| format!("give up privileges: {set:?} set"))
    };
    let none = CapsHashSet::new();
    give_up(CapSet::Ambient, &none)?;
    give_up(CapSet::Inheritable, &none)?;
    give_up(CapSet::Effective, &kept)?;
    give_up(CapSet::Permitted, &kept)?;
    let mut names: Vec<String> = kept.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    Ok(names)
}

fn shrink_bounding_set(wanted: &[Capability]) -> Result<(), caps::errors::CapsError> {
    for capability in caps::read(None, CapSet::Bounding)? {
        if !wanted.contains(&capability) {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    Ok(())
}

/// Gives up every capability of the calling thread; what it starts has none either.
pub fn keep_nothing() {
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        // Fewer privileges are always granted; a kernel that says otherwise is told of.
        if let Err(error) = caps::clear(None, set) {
            tracing::warn!("give up a thread's capabilities ({set:?}): {error}");
        }
    }
}
