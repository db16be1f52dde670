//! What takes privileges that are given up before shaping begins.

use std::path::Path;

use fairpath_bpf::Pins;

use super::Via;
use crate::run::ShapeConfig;

/// A place where what is attached outlives this process, and what was found out by trying.
#[derive(Debug, Default)]
pub struct Prepared {
    pins: Option<Pins>,
    why_not: Option<String>,
    /// The kernel has qdiscs for HTB's leaves that keep latency low.
    aqm_leaves: bool,
}

/// Where pins are if there can be no bpffs of our own.
const SYSTEM: &str = "/sys/fs/bpf/fairpath";

impl Prepared {
    /// For this configuration: a bpffs beside the control socket where a port wants one, which takes
    /// CAP_SYS_ADMIN.
    pub fn new(config: Option<&ShapeConfig>, socket: &Path) -> Prepared {
        let Some(config) = config else {
            return Prepared::default();
        };
        let mut prepared = Prepared::default();
        if matches!(config.via, None | Some(Via::Qdisc | Via::Kernel)) {
            let beside = socket.parent().unwrap_or(Path::new("/run/fairpath"));
            // Under systemd nothing may be mounted, but the system's own bpffs is there.
            let pins = Pins::at(beside.join("pins"));
            match pins.or_else(|why| Pins::at(SYSTEM).map_err(|_| why)) {
                Ok(pins) => prepared.pins = Some(pins),
                Err(why) => prepared.why_not = Some(why.to_string()),
            }
        }
        if config.via.is_none() {
            prepared.aqm_leaves =
                crate::features::has_qdisc("fq_codel") || crate::features::has_qdisc("cake");
        }
        prepared
    }

    /// That place, if it could be had.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// Why there is no such place, where one was wanted.
    pub fn why_not_pinned(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Whether HTB's leaves can be fq_codel or CAKE.
    pub fn has_aqm_leaves(&self) -> bool {
        self.aqm_leaves
    }
}
