//! Capabilities that a command needs, and the message where the process lacks them.

use std::fmt;
use std::fs;

use thiserror::Error;

/// A capability of capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Interfaces, routes, qdiscs and netfilter.
    NetAdmin = 12,
    /// Raw and packet sockets.
    NetRaw = 13,
    /// Namespaces and the statistics of BPF programs.
    SysAdmin = 21,
    /// BPF programs with arenas and bounded loops.
    Perfmon = 38,
    /// The system call `bpf()`.
    Bpf = 39,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        })
    }
}

/// An operation that this process may not do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{operation}: needs root or {}: run it with sudo, or grant {}", listed(.missing), grant(.missing))]
pub struct NeedsPrivilege {
    /// For example `measure live`.
    pub operation: String,
    /// Not empty.
    pub missing: Vec<Capability>,
}

/// Checks that this process has all of `needed`.
///
/// # Errors
/// Names the capabilities that it lacks. Where `/proc` cannot be read, nothing is refused: the
/// operation itself reports what it lacks.
pub fn require(operation: &str, needed: &[Capability]) -> Result<(), NeedsPrivilege> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing(&status, needed);
    if missing.is_empty() {
        return Ok(());
    }
    let operation = operation.to_owned();
    Err(NeedsPrivilege { operation, missing })
}

fn missing(status: &str, needed: &[Capability]) -> Vec<Capability> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(u64::MAX);
    let lacks = |capability: &&Capability| effective & (1 << **capability as u8) == 0;
    needed.iter().filter(lacks).copied().collect()
}

fn listed(missing: &[Capability]) -> String {
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn grant(missing: &[Capability]) -> String {
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    format!(
        "{} with `setcap {}+ep`",
        if missing.len() == 1 { "it" } else { "them" },
        names.join(",").to_lowercase()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named_with_the_remedy() {
        let needed = [Capability::NetAdmin, Capability::Bpf];
        let status = "Name:\tx\nCapEff:\t0000000000001000\n";
        assert_eq!(missing(status, &needed), [Capability::Bpf]);
        assert_eq!(missing("CapEff:\t000001ffffffffff\n", &needed), []);
        assert_eq!(missing("", &needed), []);
        let error = NeedsPrivilege {
            operation: "measure live".to_owned(),
            missing: missing("CapEff:\t0\n", &needed),
        };
        assert_eq!(
            error.to_string(),
            "measure live: needs root or CAP_NET_ADMIN and CAP_BPF: run it with sudo, \
             or grant them with `setcap cap_net_admin,cap_bpf+ep`"
        );
    }
}
