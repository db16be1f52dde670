//! Packets that netfilter queues to user space (NFQUEUE), and the verdicts on them.
//!
//! A rule sends packets to a queue. The owner of the queue gets them and decides about each:
//! accept, drop, send to another queue, mark or change, now or later, in any order. This crate
//! contains no scheduling or filtering: it is only the back end.
//!
//! ```sh
//! iptables -I FORWARD -i lan -o wan -j NFQUEUE --queue-num 0 --queue-bypass
//! ```
//!
//! ```no_run
//! use fairpath_nfqueue::{Config, Verdict, Wait};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut queue = Config::new(0).copy_bytes(128).bind_in_order()?;
//! loop {
//!     queue.answer(Wait::Forever, |packet| match packet.payload().first() {
//!         Some(0x45) => Verdict::ACCEPT.with_mark(packet.mark() | 1),
//!         _ => Verdict::DROP,
//!     })?;
//! }
//! # }
//! ```
//!
//! Holding packets and releasing them in another order:
//!
//! ```no_run
//! use fairpath_nfqueue::{Config, Held, Verdict, Wait};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut queue = Config::new(0).length(10_000).bind()?;
//! let mut stack: Vec<Held> = Vec::new();
//! loop {
//!     for (packet, held) in queue.receive(Wait::Forever)?.packets {
//!         println!("{packet:?}");
//!         stack.push(held);
//!     }
//!     while let Some(held) = stack.pop() {
//!         queue.release().give(held, Verdict::ACCEPT)?;
//!     } // they leave with the next `receive`, or at `flush`
//! }
//! # }
//! ```
//!
//! `examples/accept_all.rs` is a complete program that also exits without losing a packet.
//!
//! # Parts
//!
//! | part | for |
//! |---|---|
//! | [`Config`] | the configuration of the queue; binds it |
//! | [`Queue`]`<`[`Holding`]`>` | packets with their [`Held`], verdicts in any order, many per system call |
//! | [`Queue`]`<`[`InOrder`]`>` | each packet decided at once; runs of equal verdicts are one message to the kernel |
//! | [`Packet`] | a packet, borrowed from the receive buffer without allocation |
//! | [`Packet::rewrite`] | new content, with matching lengths and checksums |
//! | [`Queue::drain`] | closing a queue without losing a packet |
//! | [`Counters`], [`KernelCounts`] | received packets, verdicts, and drops by their place |
//!
//! # Notes for users
//!
//! **Batch verdicts.** The kernel's batch verdict applies to every waiting packet with an id up to
//! the given one. In a program that holds packets, one batch verdict releases them all. Here only
//! [`InOrder`] uses it, which cannot hold packets. [`Holding`] packs single verdicts into one
//! datagram, which saves most of the cost. [`Queue::release_all`] is the documented exception.
//!
//! **GSO packets.** With GSO (the default), up to 64 KiB of a TCP stream come as one packet without
//! a final checksum. Accept it unchanged: the kernel completes it. The size of its segments is
//! unknown, so it cannot be rewritten ([`RewriteError`]): bind without GSO to change packets. Marks
//! can always be set.
//!
//! **Buffers.** A packet is lost if the queue has its full [`length`](Config::length) (the kernel's
//! `queue_dropped`) or the receive buffer of the socket is full (`user_dropped`,
//! [`PacketCounters::missing`]). The default buffer holds a full queue up to 64 MiB. It is forced
//! past `net.core.rmem_max`, and [`Queue::receive_buffer`] shows whether that succeeded. With
//! [`fail_open`](Config::fail_open), such packets pass without being counted. Without it: packets
//! that matched the rule = received + missing + `queue_dropped` + packets in the socket.
//!
//! **Several queues.** Use one thread and one [`Queue`] each, because only the socket that bound a
//! queue may answer. `--queue-balance 0:3` selects by a hash of the *addresses*: all flows of two
//! hosts use the same queue. `--queue-cpu-fanout` selects by CPU, so a flow that migrates loses its
//! order. Prefer rules that select by mark, u32 or class, with one queue each.
//!
//! **Conntrack.** Newer kernels drop packets of an unconfirmed connection that share their entry
//! (bridged multicast, or segments released out of order or by several threads). A rule in `raw`
//! with `-j CT --notrack`, or order within a flow until it is confirmed, avoids that.
//!
//! **Loss of held packets.** The kernel drops them if their interface goes down, if the table of
//! their hook is removed, or if the owner of the queue ends (`kill -9`: all at once). Verdicts for
//! them are refused and counted.
//!
//! **Ids out of order.** Kernels before 2026 search an id in a list: release a queue of thousands
//! of packets in order there, or use several queues.
//!
//! # Why not an existing crate
//!
//! `nfq` needs one system call per verdict and per packet, and cannot force the size of its buffer.
//! `nfqueue` binds the C library. `netlink-packet-netfilter` supports logs but not queues. The
//! socket itself is from `netlink-sys`. Deliberately absent: rules (iptables, nftables), protocol
//! parsing, async runtimes (a [`Queue`] is [`AsFd`](std::os::fd::AsFd) for them).

mod config;
mod counters;
mod drain;
mod error;
mod intake;
mod message;
mod packet;
mod queue;
mod rewrite;
mod socket;
mod verdict;

pub use config::{COPY_LIMIT_BYTES, Config};
pub use counters::{Counters, KernelCounts, PacketCounters, VerdictCounters, kernel_counts};
pub use error::{BindError, DrainError, QueueError, RewriteError};
pub use intake::Packets;
pub use packet::{Devices, Hook, Owner, Packet, SkbInfo, Vlan};
pub use queue::{Answer, Holding, InOrder, Mode, Queue, ReceiveBuffer, Received, Wait};
pub use rewrite::Rewrite;
pub use verdict::{Action, Held, Verdict, Verdicts};
