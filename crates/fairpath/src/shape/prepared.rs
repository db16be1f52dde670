//! What takes privileges that are given up before shaping begins.

use std::path::Path;

use fairpath_bpf::Pins;

use crate::features::has_qdisc;
use crate::run::ShapeConfig;

/// A place where what is attached outlives this process, and what was found out by trying.
#[derive(Debug, Default)]
pub struct Prepared {
    pins: Option<Pins>,
    why_not: Option<String>,
    /// The kernel has HTB, and qdiscs for its leaves that keep latency low.
    aqm_leaves: bool,
}

/// Where pins are if there can be no bpffs of our own.
const SYSTEM: &str = "/sys/fs/bpf/fairpath";

impl Prepared {
    /// Where something is to be shaped, whatever the port: a reload may choose another. A bpffs beside
    /// the control socket takes CAP_SYS_ADMIN; under systemd nothing may be mounted, but the system's
    /// own is there.
    pub fn new(config: Option<&ShapeConfig>, socket: &Path) -> Prepared {
        if config.is_none() {
            return Prepared::default();
        }
        let beside = socket.parent().unwrap_or(Path::new("/run/fairpath"));
        let pins = Pins::at(beside.join("pins")).map_err(|why| why.to_string());
        let pins =
            pins.or_else(|why| Pins::at(SYSTEM).map_err(|system| format!("{why}, and {system}")));
        let (pins, why_not) = match pins {
            Ok(pins) => (Some(pins), None),
            Err(why) => (None, Some(why)),
        };
        Prepared {
            pins,
            why_not,
            aqm_leaves: has_qdisc("htb") && (has_qdisc("fq_codel") || has_qdisc("cake")),
        }
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

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(pins) = &self.pins {
            pins.leave();
        }
    }
}
