//! Namespaces, links, traffic and captures as values that clean up after themselves.
//!
//! ```text
//! Testbed ── netns ──► Netns ── enter, command, run, sysctl
//!                        │
//!            Veth (two LinkEnds) ── Wire (delay, loss, reordering, VLAN, PPPoE)
//!                        │
//!            Router: client ── lan [router] wan ── server
//!                        │
//!            Iperf3, Ping, ShortConnections, TcpPair, sockets (ss), Capture
//! ```
//!
//! Invariant: **nothing outlives the process that made it.** A namespace has no name on disk; it exists
//! as long as a file descriptor of this process (or a process started in it) does, and takes its links
//! along. A child dies with its parent (`PR_SET_PDEATHSIG`). So a panic, Ctrl-C and `kill -9` all clean
//! up, by the kernel's hand and not by ours; [`leftovers`] looks for what this promise missed.
//!
//! The real tools do the work (`ip`, `ethtool`, `iperf3`, `ping`, `tcpdump`, `ss`). Traffic goes only to
//! addresses inside namespaces made here. Two runs at once never meet, for no name is shared.
//!
//! Deliberately absent: netem (the development kernel has none; [`Wire`] takes its place), named
//! namespaces, links in the initial namespace, distributed set-ups.

mod capture;
mod counters;
mod guard;
mod iperf3;
mod leftovers;
mod link;
mod need;
mod netns;
mod ping;
mod process;
mod queue_program;
mod router;
mod run;
mod schema;
mod signals;
mod ss;
mod sysctl;
mod tail;
mod tcp;
mod wait;
mod wire;

pub use capture::{Capture, CaptureError, CaptureOptions, Captured, Direction, Precision};
pub use counters::LinkCounters;
pub use iperf3::{Iperf3, Iperf3Error, Iperf3Report, Iperf3Run, Iperf3Server};
pub use leftovers::{LeftProcess, Leftovers, leftovers};
pub use link::{Address, LinkEnd, LinkError, Mac, Offloads, Veth, VethBuilder};
pub use need::{Feature, Need, SKIP_LOG_ENV, missing, skip, test_name};
pub use netns::{Netns, NetnsError};
pub use ping::{Ping, PingError, PingReport};
pub use process::{Invocation, Process, RunError};
pub use queue_program::{QueueLibrary, QueueProgram, QueueProgramError, QueueSettings};
pub use router::{Host, Router, RouterBuilder, RouterError};
pub use run::{RUN_ENV, RunId, Testbed};
pub use schema::Schema;
pub use signals::with_default_signals;
pub use ss::{SocketSample, SsError, sockets};
pub use sysctl::SysctlError;
pub use tcp::{EchoServer, ShortConnections, ShortReport, TcpError, TcpPair};
pub use wait::wait_for;
pub use wire::{
    DirectionStats, Encap, FrameError, FrameSocket, Impairment, MAX_VLAN_TAGS, Reorder, Tpid, Tun,
    VlanTag, Wire, WireDirection, WireError, WireStats,
};
