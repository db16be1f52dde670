//! The host and the user: kernel release, CPUs, capabilities.

use std::fs;
use std::io;

use fairpath_machine::Machine;
use nix::unistd::{Uid, User};
use serde::Serialize;

/// The capabilities that Fairpath uses, by their bit in `CapEff` (`linux/capability.h`).
const CAPABILITIES: [(u32, &str); 6] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (21, "CAP_SYS_ADMIN"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// The host of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The kernel's release; for information only.
    pub kernel: String,
    /// The processor architecture.
    pub arch: &'static str,
    /// The number of CPUs online.
    pub cpus: usize,
    /// The effective user's name or number.
    pub user: String,
    /// Capabilities of this process, of those that Fairpath uses.
    pub capabilities: Vec<&'static str>,
}

impl Host {
    pub fn read() -> io::Result<Host> {
        Ok(Host {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            arch: std::env::consts::ARCH,
            cpus: Machine::real().online().len(),
            user: user_name(Uid::effective()),
            capabilities: capabilities(&fs::read_to_string("/proc/self/status")?),
        })
    }

    /// True if the process has the capability; `CAP_SYS_ADMIN` includes BPF's two.
    pub fn has(&self, capability: &str) -> bool {
        let included = matches!(capability, "CAP_BPF" | "CAP_PERFMON");
        self.capabilities.contains(&capability)
            || included && self.capabilities.contains(&"CAP_SYS_ADMIN")
    }
}

fn user_name(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// The names of the bits in the line `CapEff:` of `/proc/PID/status`.
fn capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) != 0)
        .map(|(_, name)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_named_by_their_bits() {
        let status = "Name:\tx\nCapEff:\t000000c000001000\n";
        assert_eq!(
            capabilities(status),
            ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]
        );
        assert!(capabilities("CapEff:\t0000000000000000\n").is_empty());
        assert!(capabilities("").is_empty());
    }
}
