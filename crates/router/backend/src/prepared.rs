//! Preparations that need privileges which are given up before shaping begins.

use std::path::Path;

use fairpath_bpf::Pins;

use crate::ShapeConfig;

/// A place where what is attached outlives this process.
#[derive(Debug, Default)]
pub struct Prepared {
    pins: Option<Pins>,
    why_not: Option<String>,
}

/// The bpffs that systemd mounts.
const SYSTEM: &str = "/sys/fs/bpf";

impl Prepared {
    /// Prepares for this configuration: a private bpffs next to the control socket, which needs CAP_SYS_ADMIN
    /// and stays mounted, or the system's bpffs. The latter suffices if no configured back end pins
    /// objects, but a reload may select one.
    pub fn new(config: Option<&ShapeConfig>, socket: &Path) -> Prepared {
        let Some(config) = config else {
            return Prepared::default();
        };
        let against = socket.parent().unwrap_or(Path::new("/run/fairpath"));
        let shared = || Pins::shared(SYSTEM, "fairpath-");
        let shapes = config.via.and_then(|via| via.description().shapes.as_ref());
        let pins = match shapes {
            Some(shapes) if !shapes.pins => shared().map_err(|why| why.to_string()),
            _ => Pins::at(against.join("pins"))
                .or_else(|why| shared().map_err(|system| format!("{why}, and {system}"))),
        };
        let (pins, why_not) = match pins {
            Ok(pins) => (Some(pins), None),
            Err(why) => (None, Some(why)),
        };
        Prepared { pins, why_not }
    }

    /// That place, if it could be had.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// Why there is no such place, where one was wanted.
    pub fn why_not_pinned(&self) -> Option<&str> {
        self.why_not.as_deref()
    }
}
