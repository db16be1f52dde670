//! The results of a part, from its own tools: nothing here comes from `fairpath rtt`.

use std::fmt;

use crate::loss::ConfiguredLoss;
use crate::samples::Traffic;
use crate::spread::Spread;

/// The results of a part, from its own tools.
#[derive(Debug)]
pub struct Outcome {
    /// The line of progress.
    pub headline: String,
    /// Traffic to be looked up in the samples.
    pub blocks: Vec<Block>,
    /// Configured loss and the counts of the dropper.
    pub configured: Option<ConfiguredLoss>,
    /// Segments sent again, as the senders' kernels count: up, then down.
    pub retransmits: Vec<u64>,
    /// Connections that were made and answered, of how many.
    pub connections: Option<(u64, u64)>,
}

/// Traffic of one kind, and what others say of its round-trip times.
#[derive(Debug)]
pub struct Block {
    /// The title.
    pub title: String,
    /// Which records belong to it.
    pub traffic: Traffic,
    /// True if it is IPv6.
    pub v6: bool,
    /// The other measurement.
    pub peer: Option<Peer>,
}

/// Another one's round-trip times of both legs together.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name of the program.
    pub name: &'static str,
    /// The least, milliseconds.
    pub min_ms: Option<f64>,
    /// All values; those of a kernel are smoothed.
    pub rtt: Spread,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.headline)
    }
}

impl Outcome {
    /// A line of progress, and nothing else yet.
    pub fn headline(headline: String) -> Outcome {
        Outcome {
            headline,
            blocks: Vec::new(),
            configured: None,
            retransmits: Vec::new(),
            connections: None,
        }
    }
}

impl Block {
    /// True if it is echo requests, not TCP.
    pub fn is_ping(&self) -> bool {
        matches!(self.traffic, Traffic::Echo { .. })
    }
}
