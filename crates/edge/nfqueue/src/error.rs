//! Errors, one enumeration per operation.

use std::io;
use std::time::Duration;

/// A queue could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The kernel has no NFQUEUE support.
    #[error(
        "bind packet queue {queue}: the kernel has no NFQUEUE support; run `modprobe nfnetlink_queue`, \
         or boot a kernel with CONFIG_NETFILTER_NETLINK_QUEUE"
    )]
    NoQueues {
        /// The queue's number.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Missing capability.
    #[error("bind packet queue {queue}: needs CAP_NET_ADMIN in this network namespace")]
    NotPermitted {
        /// The queue's number.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another socket uses it.
    #[error(
        "bind packet queue {queue}: another socket uses it (netlink port {port}, often the \
         process's id); stop that program, or use another queue number here and in the rule"
    )]
    Taken {
        /// The queue's number.
        queue: u16,
        /// The owner's netlink port.
        port: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An option that this kernel does not have.
    #[error(
        "bind packet queue {queue} with {options}: the kernel lacks one of these; omit it, \
         or load the module that it needs (conntrack: nf_conntrack_netlink; security label: CONFIG_NETWORK_SECMARK)"
    )]
    Unsupported {
        /// The queue's number.
        queue: u16,
        /// The requested options, for the message.
        options: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("bind packet queue {queue}: {operation}")]
    System {
        /// The queue's number.
        queue: u16,
        /// The operation.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A bound queue failed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The socket could not be read.
    #[error("receive packets of queue {queue}")]
    Receive {
        /// The queue's number.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The verdicts could not be sent. They stay queued and may be sent again.
    #[error("send verdicts of queue {queue}; the verdicts are still queued, flush again")]
    Send {
        /// The queue's number.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The counters of the kernel could not be read.
    #[error("read the kernel's counts of queue {queue}; is /proc mounted?")]
    Counts {
        /// The queue's number.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A packet of another queue, or one that was released with all others.
    #[error(
        "give a verdict in queue {queue}: the queue does not hold packet {id}; give the verdict to the queue \
         that the packet came from, and none after all packets were released"
    )]
    OtherQueue {
        /// The queue's number.
        queue: u16,
        /// The packet's id.
        id: u32,
    },
}

/// A queue could not be drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Packets are held.
    #[error(
        "drain packet queue {queue}: {held} packets wait for a verdict; give the verdicts, or release all"
    )]
    Held {
        /// The queue's number.
        queue: u16,
        /// Their number.
        held: u64,
    },
    /// Packets kept coming.
    #[error(
        "drain packet queue {queue}: not empty after {limit:?}; remove the rule that sends packets to it"
    )]
    StillComing {
        /// The queue's number.
        queue: u16,
        /// The time limit.
        limit: Duration,
    },
    /// The queue failed.
    #[error("drain packet queue")]
    Queue(#[from] QueueError),
}

/// A packet's content may not be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// It leaves as several packets of unknown size.
    #[error("change packet {id}: a GSO packet cannot be changed; bind the queue without GSO")]
    GsoPacket {
        /// The packet's id.
        id: u32,
    },
    /// Bytes that were not copied would be lost.
    #[error(
        "change packet {id}: only a part of the packet was copied; bind the queue with a longer copy range"
    )]
    Partial {
        /// The packet's id.
        id: u32,
    },
    /// The new content is longer than a message can carry.
    #[error("change packet {id}: {len} bytes exceed the kernel's limit of {limit}")]
    TooLong {
        /// The packet's id.
        id: u32,
        /// Length of the new content.
        len: usize,
        /// Maximum length.
        limit: usize,
    },
    /// Its checksums cannot be computed.
    #[error(
        "change packet {id}: not a valid IPv4 or IPv6 packet, so its checksums cannot be computed"
    )]
    Unreadable {
        /// The packet's id.
        id: u32,
    },
}
