//! Packets that netfilter queues to user space (NFQUEUE), and the verdicts on them.
//!
//! A rule sends packets to a queue; whoever has bound it gets them, looks, and says what shall become of
//! each: accepted, dropped, sent to another queue, marked, changed, now or later, in any order. Nothing
//! of scheduling or filtering is in here: this is the port.
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
//! `examples/accept_all.rs` is a whole program that also leaves without losing a packet.
//!
//! # Which parts there are
//!
//! | part | for |
//! |---|---|
//! | [`Config`] | what the queue shall be like; binds it |
//! | [`Queue`]`<`[`Holding`]`>` | packets with their [`Held`], verdicts in any order, packed many to a system call |
//! | [`Queue`]`<`[`InOrder`]`>` | each packet decided at once; runs of equal verdicts are one message to the kernel |
//! | [`Packet`] | a packet, borrowed from the receive buffer; nothing is allocated for it |
//! | [`Packet::rewrite`] | new content, with lengths and checksums that fit |
//! | [`Queue::drain`] | leaving without losing a packet |
//! | [`Counters`], [`KernelCounts`] | what came, what was answered, and what was dropped by whom |
//!
//! # What to know
//!
//! **Batch verdicts.** The kernel's batch verdict counts for every packet that still waits with an id up
//! to the given one. A program that holds packets and gives one releases them all. Here only
//! [`InOrder`] gives it, which cannot hold; [`Holding`] packs single verdicts into one datagram, which
//! saves most of what batches save. [`Queue::release_all`] is the exception, and says so.
//!
//! **GSO packets.** With GSO (the default) up to 64 KiB of a TCP stream come as one packet whose
//! checksum is not ready. Accept it untouched: the kernel finishes it. The size of its segments is not
//! told. It cannot be rewritten ([`RewriteError`]): bind without GSO to change packets. Marks are free.
//!
//! **Buffers.** A packet is lost when the queue has its full [`length`](Config::length) (the kernel's
//! `queue_dropped`) or the socket's receive buffer is full (`user_dropped`, [`PacketCounters::missing`]).
//! The default buffer holds a full queue up to 64 MiB; it is forced past `net.core.rmem_max`, or
//! [`Queue::receive_buffer`] says that it is not. With [`fail_open`](Config::fail_open) such packets pass
//! instead, uncounted. Accounting without it: packets that met the rule = received + missing +
//! `queue_dropped` + what waits in the socket.
//!
//! **Many queues.** One thread and one [`Queue`] each; only the socket that bound a queue may answer.
//! `--queue-balance 0:3` chooses by a hash of the *addresses*: all flows of two hosts land in one
//! queue. `--queue-cpu-fanout` chooses by the CPU, so a flow that migrates loses its order. Better: rules
//! that choose by mark, u32 or class, one queue each.
//!
//! **Conntrack.** Packets of a connection that is not confirmed yet are dropped by newer kernels where
//! they share their entry (bridged multicast; segments released out of order or by several threads). A
//! rule in `raw` with `-j CT --notrack`, or order within a flow until it is confirmed, avoids that.
//!
//! **What drops held packets.** Their interface going down, their hook's table going away, the queue's
//! owner ending (`kill -9`: all, at once). Verdicts for them are refused and counted.
//!
//! **Ids out of order.** Kernels before 2026 look for an id along a list: release a queue of thousands
//! in order there, or spread it over several queues.
//!
//! # Why not an existing crate
//!
//! `nfq` gives one verdict a system call, reads one packet a system call, and cannot size its buffer by
//! force; `nfqueue` binds the C library; `netlink-packet-netfilter` knows logs but not queues. The socket
//! itself is `netlink-sys`'s. Absent here: rules (iptables, nftables), protocol parsing, async runtimes
//! (a [`Queue`] is [`AsFd`](std::os::fd::AsFd) for them).

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
