//! Errors about rules at the hooks.

use std::io;

use fairpath_core::rules::ImageError;

use super::FORMAT;
use super::lock::LOCK;
use crate::attach::AttachError;
use crate::pin::PinError;

/// Rules at the hooks could not be loaded, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The kernel refused map, program or pin.
    #[error(
        "load the programs of rules: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.12 or newer with CONFIG_NETFILTER_BPF_LINK (`fairpath features` shows what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// The programs at the hooks are unknown.
    #[error("list the programs at the hooks: {0}; needs CAP_BPF and CAP_PERFMON")]
    List(#[source] io::Error),
    /// A program could not be attached.
    #[error(
        "attach the rules of table {table} at {hook}: {source}; the priorities {first} to {last} were tried: free one of them"
    )]
    Attach {
        /// The table.
        table: &'static str,
        /// The hook.
        hook: &'static str,
        /// The first priority.
        first: i32,
        /// The last one.
        last: i32,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// Larger than the place for a set.
    #[error(
        "load rules: they need {needed} {unit}, and there are {reserved} for old and new ones: divide the set"
    )]
    TooLarge {
        /// Needed.
        needed: usize,
        /// Reserved.
        reserved: usize,
        /// Their kind.
        unit: &'static str,
    },
    /// The arena's mapping is missing.
    #[error("map the arena of rules: its address is in use, or the kernel is too old")]
    NotMapped,
    /// Another version of Fairpath loaded the rules.
    #[error(
        "open the loaded rules: another version of Fairpath loaded them (format {found:#x}, here {FORMAT:#x}): unload them, and load them again"
    )]
    Version {
        /// Its number.
        found: u32,
    },
    /// The lock cannot be taken.
    #[error("lock the loaded rules with {LOCK}: {0}; run it as root")]
    Lock(#[source] io::Error),
    /// The pins cannot be read.
    #[error("look for loaded rules: {0}; run it as root")]
    Look(#[source] io::Error),
    /// Rules have other pins.
    #[error(
        "change rules: others of Fairpath are at the hooks of this network namespace, with pins in another directory: name it with --pins"
    )]
    Elsewhere,
    /// The clock of this process is not that of the kernel.
    #[error(
        "load rules with --confirm, use sets with timeouts, or trace packets: the time namespace of this process has another clock than the kernel: run it outside"
    )]
    OtherClock,
    /// The rules changed since they were opened.
    #[error(
        "change the loaded rules: they changed at the same time, or the time of an unconfirmed load ended: nothing was changed, try again"
    )]
    Changed,
    /// A load waits for its confirmation.
    #[error(
        "change the loaded rules: the last load waits for `fairpath rules confirm`, and ends in {seconds} s without it"
    )]
    Waiting {
        /// Until it is undone.
        seconds: u64,
    },
    /// There is no load that waits.
    #[error("confirm rules: no load waits for it")]
    NotWaiting,
    /// The time is over.
    #[error("confirm rules: too late, the rules before the load are active again")]
    TooLate,
    /// Another command traces.
    #[error(
        "trace packets: another command traces packets of this network namespace: end it first"
    )]
    Traced,
    /// An interface refuses the program of early drop.
    #[error("drop packets early: {0}")]
    Early(#[from] AttachError),
    /// An interface refuses a program of rules at tcx.
    #[error("run rules at an interface: {0}")]
    Interface(#[source] AttachError),
    /// A pin.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// Corrupt image.
    #[error(transparent)]
    Image(#[from] ImageError),
}
