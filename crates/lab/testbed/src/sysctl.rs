//! Sysctls of a namespace, written through `/proc/sys` from a thread inside it.

use std::{fs, io};

use crate::netns::{Netns, NetnsError};

/// A sysctl could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The file refused.
    #[error("sysctl {key} in namespace \"{place}\"")]
    Access {
        /// Key as the caller wrote it.
        key: String,
        /// Name of the namespace.
        place: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error("enter the namespace of a sysctl")]
    Enter(#[source] Box<NetnsError>),
}

/// The settings that keep IPv6 silent on later links: no duplicate address detection, no router
/// solicitations, no autoconfiguration; and IPv4 without reverse path filter.
const QUIET: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.dad_transmits", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.autoconf", "0"),
    // 1: no link-local address, so none is announced.
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    // Multicast reports come at once, not in the middle of a test.
    (
        "net.ipv6.conf.default.mldv1_unsolicited_report_interval",
        "1",
    ),
    (
        "net.ipv6.conf.default.mldv2_unsolicited_report_interval",
        "1",
    ),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

impl Netns {
    /// Writes a sysctl; `key` with dots, or with slashes where an interface name holds a dot.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), SysctlError> {
        self.set_sysctls(&[(key, value)])
    }

    /// Writes several sysctls in order; the first that fails ends it.
    pub fn set_sysctls(&self, settings: &[(&str, &str)]) -> Result<(), SysctlError> {
        let write = || {
            settings.iter().try_for_each(|(key, value)| {
                fs::write(path(key), value).map_err(|source| self.denied(key, source))
            })
        };
        self.enter(write)
            .map_err(|error| SysctlError::Enter(Box::new(error)))?
    }

    /// Reads a sysctl, without the final newline.
    pub fn sysctl(&self, key: &str) -> Result<String, SysctlError> {
        let read = || fs::read_to_string(path(key)).map_err(|source| self.denied(key, source));
        let text = self
            .enter(read)
            .map_err(|error| SysctlError::Enter(Box::new(error)))??;
        Ok(text.trim_end().to_owned())
    }

    /// Turns forwarding of both families on or off.
    pub fn set_forwarding(&self, on: bool) -> Result<(), SysctlError> {
        let value = digit(on);
        self.set_sysctls(&[
            ("net.ipv4.ip_forward", value),
            ("net.ipv6.conf.all.forwarding", value),
        ])
    }

    /// Turns TCP timestamps on or off for connections made later.
    pub fn set_tcp_timestamps(&self, on: bool) -> Result<(), SysctlError> {
        self.set_sysctl("net.ipv4.tcp_timestamps", digit(on))
    }

    /// Chooses the congestion control of sockets made later (`cubic`, `bbr`, `reno`).
    pub fn set_congestion_control(&self, name: &str) -> Result<(), SysctlError> {
        self.set_sysctl("net.ipv4.tcp_congestion_control", name)
    }

    pub(crate) fn quieten(&self) -> Result<(), SysctlError> {
        self.set_sysctls(QUIET)
    }

    fn denied(&self, key: &str, source: io::Error) -> SysctlError {
        SysctlError::Access {
            key: key.to_owned(),
            place: self.name().to_owned(),
            source,
        }
    }
}

fn digit(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

fn path(key: &str) -> String {
    if key.contains('/') {
        format!("/proc/sys/{key}")
    } else {
        format!("/proc/sys/{}", key.replace('.', "/"))
    }
}
