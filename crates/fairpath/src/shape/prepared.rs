//! What takes privileges that are given up before shaping begins.

use std::path::Path;

use fairpath_bpf::{Pins, QdiscPins};

use super::Via;
use crate::run::ShapeConfig;

/// A place where what is attached outlives this process, and what was found out by trying.
#[derive(Debug, Default)]
pub struct Prepared {
    pins: Option<(Pins, QdiscPins)>,
    why_not: Option<String>,
    /// The kernel has qdiscs for HTB's leaves that keep latency low.
    aqm_leaves: bool,
}

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
            let place = beside.join("bpf");
            let pins = Pins::at(&place).map_err(|error| error.to_string());
            let pins = pins.and_then(|pins| {
                let qdiscs = QdiscPins::open(&place).map_err(|error| error.to_string())?;
                Ok((pins, qdiscs))
            });
            match pins {
                Ok(pins) => prepared.pins = Some(pins),
                Err(why) => prepared.why_not = Some(why),
            }
        }
        if config.via.is_none() {
            prepared.aqm_leaves =
                crate::features::has_qdisc("fq_codel") || crate::features::has_qdisc("cake");
        }
        prepared
    }

    /// For programs.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref().map(|(pins, _)| pins)
    }

    /// For qdiscs.
    pub fn qdisc_pins(&self) -> Option<&QdiscPins> {
        self.pins.as_ref().map(|(_, pins)| pins)
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
