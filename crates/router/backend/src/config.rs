//! The configuration of the shaper.

use std::path::PathBuf;

use fairpath_shape::{Settings, Side};

use crate::{Mode, OnBypass, OnFailure, Via};

/// `[shape]`
#[derive(Clone, Debug, PartialEq)]
pub struct ShapeConfig {
    /// The interface towards subscribers: what leaves by it is down.
    pub inside: String,
    /// The interface towards the internet, if what leaves by it is scheduled, too.
    pub outside: Option<String>,
    /// Of a one-armed bridge: VLANs of both sides, inside first.
    pub vlans: Option<[u16; 2]>,
    /// The forwarding mode, if it is configured.
    pub via: Option<Via>,
    /// The same for AF_XDP.
    pub mode: Option<Mode>,
    /// Threads that shape, if configured.
    pub workers: Option<u32>,
    /// Rates, policy or tree, limits. `marks` and `stack` are the port's to say.
    pub lines: Settings,
    /// The first of the packet queues that NFQUEUE uses.
    pub queue: u16,
    /// The treatment of traffic after this process ended.
    pub on_failure: OnFailure,
    /// The replacement of AF_XDP where packets would bypass functions of the stack.
    pub on_bypass: OnBypass,
    /// A directory for operation logs.
    pub record: Option<PathBuf>,
    /// True if it begins with the daemon.
    pub start: bool,
}

impl ShapeConfig {
    /// The interface that a side leaves by, if it is scheduled.
    pub fn interface(&self, side: Side) -> Option<&str> {
        match side {
            Side::Down => Some(&self.inside),
            Side::Up => self.outside.as_deref(),
        }
    }

    /// The scheduled sides and their interfaces.
    pub fn sides(&self) -> impl Iterator<Item = (Side, &str)> {
        let named = |side: Side| Some((side, self.interface(side)?));
        Side::BOTH.into_iter().filter_map(named)
    }
}

/// True if a policy's name is that of a file with a custom policy: an object, or its source.
pub fn is_own(policy: &str) -> bool {
    let extension = std::path::Path::new(policy).extension();
    extension.is_some_and(|extension| {
        ["o", "c"]
            .iter()
            .any(|of| extension.eq_ignore_ascii_case(of))
    })
}
