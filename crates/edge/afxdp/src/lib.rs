//! The AF_XDP back end: frames in UMEM, rings, sockets, and a forwarder with an order from a trait.
//!
//! ```text
//!   ring ─ one producer, one consumer          frames ─ state of every frame (pure)
//!      └ socket ─ four rings, a queue             └ umem ─ the memory
//!           └──────────── port ──────────────────────┘
//!                           └ forward ─ a loop between two interfaces, order by a trait
//!   place ─ CPU and NUMA node          first ─ priority of a thread   moderation ─ of wake-ups
//!   checksum ─ partial checksums of a veth   mark ─ CE   metadata ─ of the XDP program (all pure)
//! ```
//!
//! Invariant: frames never leak and packets never disappear. A received packet is stored, sent, or
//! dropped for a counted reason. Losses upstream of it are in its [`RingStatistics`].
//!
//! The number of a frame is the handle of a scheduler. The XDP program is `Redirect` of
//! fairpath-bpf or `rtt_forward` of its monitor. The caller puts [`Port::sockets`] into its map.
//! When this process ends, its sockets and the program end, and the stack forwards again.
//!
//! The rings use the kernel's interface directly, because existing crates lack what a scheduler
//! needs. `xsk-rs` wraps libxdp, whose types own rings and frames. `xdp` has neither shared UMEM
//! over several interfaces nor ring statistics.
//!
//! On a veth, the kernel can store a VLAN tag outside the frame, where AF_XDP cannot see it:
//! disable `txvlan` at its peer. Deliberately absent so far: metadata for transmission, huge pages.

mod checksum;
mod fifo;
mod first;
mod forward;
mod frames;
mod mark;
mod metadata;
mod moderation;
mod network;
mod open;
mod place;
mod port;
mod ring;
mod socket;
mod umem;
mod wait;

pub use fifo::Fifo;
pub use first::{Awake, PREFERENCE, Precedence, exact_timers, precede, prefer};
pub use forward::{Arrival, ForwardCounts, ForwardError, Forwarder, MAX_EXITS, Order, Outcome};
pub use frames::{FrameCounts, FrameId};
pub use mark::set_ce;
pub use metadata::{FrameMetadata, METADATA_BYTES};
pub use open::{Copying, LinkQueue, MAX_RING, MAX_SOCKETS, OpenError, Plan};
pub use place::Placement;
pub use port::{LinkState, Port, QueueCounts, QueueId, QueueReport};
pub use socket::RingStatistics;
pub use umem::{FRAME_BYTES, HEADROOM_BYTES, MAX_FRAMES};
pub use wait::{Bell, Stop};
