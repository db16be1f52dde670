//! What a packet passes in the stack, and would not pass if a port carried it around the stack (AF_XDP).
//!
//! ```text
//!            tc ingress --- prerouting --- routing --- forward --- postrouting --- tc egress --- qdisc
//! in --- XDP ---------------------- AF_XDP goes straight ------------------------------------------- out
//! ```
//!
//! [`stages`] lists what has something to do there: chains with rules or a policy other than accept, NAT, tracked
//! connections, policy routing, filters and qdiscs of the interfaces. Empty chains, which every distribution's firewall
//! leaves, are not listed; neither is what concerns this host's own traffic only (input, output).
//!
//! Absent: programs of others at tcx and XDP (`fairpath_bpf::tcx_programs` and [`crate::Link::xdp`] tell), and
//! `bridge-nf-call-iptables`, which sends bridged packets through the chains that are listed here.

mod device;
mod hooks;
mod nftables;
mod routing;
mod xtables;

use std::fmt;
use std::io;

use crate::connection::NetlinkError;
use crate::htb::Device;

/// A kind of stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageKind {
    /// A chain of nftables or iptables, or anything else at a netfilter hook.
    Netfilter,
    /// A chain that translates addresses.
    Nat,
    /// Connections are tracked.
    Conntrack,
    /// A routing rule besides the three that every host has.
    PolicyRouting,
    /// A filter of tc at the interface.
    Filter,
    /// A root qdisc that somebody made.
    Qdisc,
}

impl StageKind {
    /// For messages: "NAT", "conntrack".
    pub fn name(self) -> &'static str {
        match self {
            StageKind::Netfilter => "netfilter",
            StageKind::Nat => "NAT",
            StageKind::Conntrack => "conntrack",
            StageKind::PolicyRouting => "policy routing",
            StageKind::Filter => "tc filter",
            StageKind::Qdisc => "qdisc",
        }
    }
}

/// Something that packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What it is.
    pub kind: StageKind,
    /// As its own tool calls it: `nft inet filter forward`, `iptables nat POSTROUTING`, `rule 100 (table 5)`.
    pub name: String,
    /// The interface that it belongs to; `None` where it is the whole namespace's.
    pub interface: Option<String>,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.kind.name(), self.name)?;
        match &self.interface {
            Some(interface) => write!(f, " on \"{interface}\")"),
            None => f.write_str(")"),
        }
    }
}

/// It is not known what packets pass.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The kernel did not answer.
    #[error("list what packets pass in the stack")]
    Netlink(#[from] NetlinkError),
    /// A file of `/proc` could not be read.
    #[error("list what packets pass in the stack: read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A table of iptables could not be read.
    #[error(
        "list what packets pass in the stack: read table \"{table}\" of {tool}: {source}; needs CAP_NET_ADMIN and CAP_NET_RAW"
    )]
    Table {
        /// The table.
        table: String,
        /// Its tool.
        tool: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Everything that packets between these interfaces pass, in the calling thread's namespace.
///
/// A part that this kernel does not have is no stage. Needs `CAP_NET_ADMIN`, for iptables `CAP_NET_RAW` too.
/// O(chains, rules of iptables, routing rules, qdiscs).
///
/// # Errors
/// [`StageError`]: then nothing is known, and nothing should be bypassed.
pub fn stages(devices: &[Device<'_>]) -> Result<Vec<Stage>, StageError> {
    let mut found = nftables::chains(devices)?;
    found.extend(xtables::chains()?);
    found.extend(hooks::others()?);
    found.extend(conntrack()?);
    found.extend(routing::rules()?);
    found.extend(device::filters_and_roots(devices)?);
    found.sort_by_key(|stage| stage.kind);
    Ok(found)
}

/// Connections that are tracked now: a namespace without rules for it tracks none.
fn conntrack() -> Result<Option<Stage>, StageError> {
    let count = read("/proc/sys/net/netfilter/nf_conntrack_count")?;
    let tracked = count.as_deref().and_then(|text| text.trim().parse().ok());
    Ok(tracked.filter(|count: &u64| *count > 0).map(|count| Stage {
        kind: StageKind::Conntrack,
        name: format!("{count} connections tracked"),
        interface: None,
    }))
}

/// A file's text; `None` where the kernel has no such file.
fn read(path: &str) -> Result<Option<String>, StageError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StageError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// What a netlink family's absence looks like.
fn absent<T: Default>(answer: Result<T, NetlinkError>) -> Result<T, StageError> {
    match answer {
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT | libc::EPROTONOSUPPORT)
            ) =>
        {
            Ok(T::default())
        }
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests;
