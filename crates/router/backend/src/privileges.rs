//! Retained capabilities after the start, and their reasons: of the daemon, of shaping in the
//! foreground, and of `rtt -i`, `top -i` and `impair`.
//!
//! | capability | retained by | for |
//! |---|---|---|
//! | CAP_NET_ADMIN | all | attaching to interfaces that appear later, and after a reload |
//! | CAP_BPF | all | `bpf()` for attaching, for the program that closes silent flows, and for maps |
//! | CAP_PERFMON | all | the same calls for programs with arenas and bounded loops |
//! | CAP_NET_RAW | shaping, impairment | AF_XDP sockets, and iptables, which requires it |
//! | CAP_IPC_LOCK | shaping, impairment | memory that AF_XDP shares with the kernel |
//! | CAP_SYS_NICE | shaping, impairment | priority of worker threads |
//!
//! Worker threads have the capabilities of a process that shapes: each verdict to netfilter needs
//! CAP_NET_ADMIN. `impair` with a command keeps everything in the thread that starts it, because the
//! command inherits it.
//!
//! Threads that serve sockets, read loaded rules and write files retain none. Those that start hooks retain CAP_SETUID,
//! CAP_SETGID and CAP_KILL only: a hook has another user, and is killed at its timeout. The user of the daemon does not change, since socket and
//! state belong to root; without capabilities, root only owns files.
//! `no_new_privs` applies to all child processes.

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

/// Drops all capabilities that the calling thread, and threads that it starts, do not need to measure
/// or to shape.
///
/// Returns the names of the retained capabilities.
///
/// # Errors
/// The kernel refuses.
pub fn keep(shapes: bool) -> anyhow::Result<Vec<String>> {
    let wanted: Vec<Capability> = match shapes {
        true => KEPT.into_iter().chain(SHAPING).collect(),
        false => KEPT.to_vec(),
    };
    keep_these(&wanted)
}

/// Drops all capabilities of a process that answers rejected packets and has its sockets: the pinned rules
/// belong to root.
///
/// # Errors
/// The kernel refuses.
pub fn keep_to_answer() -> anyhow::Result<()> {
    keep_these(&[]).map(drop)
}

fn keep_these(wanted: &[Capability]) -> anyhow::Result<Vec<String>> {
    nix::sys::prctl::set_no_new_privs().context("drop privileges: set no_new_privs")?;
    let permitted = caps::read(None, CapSet::Permitted).context("read own capabilities")?;
    let kept: CapsHashSet = wanted
        .iter()
        .copied()
        .filter(|c| permitted.contains(c))
        .collect();
    if permitted.contains(&Capability::CAP_SETPCAP) {
        shrink_bounding_set(wanted).context("drop privileges: shrink the bounding set")?;
    }
    let give_up = |set, what: &CapsHashSet| {
        caps::set(None, set, what).with_context(|| format!("drop privileges: {set:?} set"))
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

/// [`keep`] for a worker thread, which starts before its process has found the programs of others.
pub(crate) fn keep_of_worker() {
    if let Err(error) = keep(true) {
        tracing::warn!("drop the capabilities of a worker: {error:#}");
    }
}

/// Drops all capabilities of the calling thread except those that change the user of a child and kill
/// it. The thread must begin before [`keep`].
pub fn keep_to_change_user() {
    let wanted = [
        Capability::CAP_KILL,
        Capability::CAP_SETGID,
        Capability::CAP_SETUID,
    ];
    if let Err(error) = keep_these(&wanted) {
        tracing::warn!("drop the capabilities of a thread that starts hooks: {error:#}");
        drop_all();
    }
}

/// Drops all capabilities of the calling thread and of threads that it starts.
pub fn drop_all() {
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        // The kernel always permits fewer capabilities.
        if let Err(error) = caps::clear(None, set) {
            tracing::warn!("drop the capabilities of a thread ({set:?}): {error}");
        }
    }
}
