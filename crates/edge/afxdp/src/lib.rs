//! The AF_XDP port: frames in UMEM, rings, sockets, and a forwarder whose order is given by others.
//!
//! ```text
//!   ring ─ one producer, one consumer          frames ─ where every frame is (pure)
//!      └ socket ─ four rings, a queue             └ umem ─ the memory
//!           └──────────── port ──────────────────────┘
//!                           └ forward ─ a loop between two interfaces, order by a trait
//!   place ─ the CPU and the node     first ─ a thread before all others
//!   checksum ─ what a veth's stack left open   mark ─ CE   note ─ what the XDP program saw (all pure)
//! ```
//!
//! Invariant: frames never leak and packets never disappear: what arrived is held, sent, or dropped for a
//! reason that is counted. What was lost before the port is in its [`RingStatistics`].
//!
//! A frame's number is a scheduler's handle. The XDP program that sends packets here is fairpath-bpf's
//! `Redirect` or its monitor's `rtt_forward`; whoever assembles a router puts [`Port::sockets`] into its map. When this process dies,
//! its sockets and the program go, and the stack forwards again.
//!
//! Own rings over the kernel's interface, because what there is lacks things that a scheduler needs:
//! `xsk-rs` wraps libxdp, whose sockets own their rings and frames by types that are in a scheduler's
//! way; `xdp` has neither shared UMEM over several interfaces nor ring statistics.
//!
//! On a veth a VLAN tag can be kept beside the frame, where AF_XDP cannot see it: turn `txvlan` off at
//! its peer. Deliberately absent so far: packets of several frames (`XDP_USE_SG`; too large an MTU is
//! refused), metadata for transmission, huge pages.

mod checksum;
mod fifo;
mod first;
mod forward;
mod frames;
mod mark;
mod network;
mod note;
mod open;
mod place;
mod port;
mod ring;
mod socket;
mod umem;
mod wait;

pub use checksum::{Completion, complete};
pub use fifo::Fifo;
pub use first::{Awake, PREFERENCE, Precedence, exact_timers, precede, prefer};
pub use forward::{Arrival, ForwardCounts, ForwardError, Forwarder, MAX_EXITS, Order, Outcome};
pub use frames::{FrameCounts, FrameId};
pub use mark::set_ce;
pub use note::{NOTE_BYTES, Note};
pub use open::{Copying, LinkQueue, MAX_RING, MAX_SOCKETS, OpenError, Plan};
pub use place::Placement;
pub use port::{LinkState, Port, QueueCounts, QueueId, QueueReport};
pub use socket::RingStatistics;
pub use umem::{FRAME_BYTES, HEADROOM_BYTES, MAX_FRAMES};
pub use wait::{Bell, Stop};
