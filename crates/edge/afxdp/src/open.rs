//! What a port is made of, and why it could not be opened.

use std::io;

use fairpath_units::IfIndex;

use crate::umem::{FRAME_BYTES, HEADROOM_BYTES, MAX_FRAMES};

/// Ethernet and two VLAN tags: what a frame has before the bytes that an MTU counts.
const LINK_BYTES: u32 = 14 + 2 * 4;
/// Entries of a ring at most; a port has eight rings for two links.
pub const MAX_RING: u32 = 1 << 16;
/// Links and queues of a port at most.
pub const MAX_SOCKETS: usize = 64;

/// How frames come into the UMEM and leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// By the driver itself where it can, else copied: detected by trying.
    #[default]
    Tried,
    /// Copied by the kernel; works with every driver.
    Copy,
    /// By the driver itself, or opening fails.
    ZeroCopy,
}

/// A queue of an interface that gets a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkQueue {
    /// The interface, in the thread's network namespace.
    pub ifindex: IfIndex,
    /// Its name, for its MTU and for messages.
    pub name: String,
    /// The receive queue, whose number is that of the transmit queue, too.
    pub queue: u32,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One socket each; all share the UMEM.
    pub queues: Vec<LinkQueue>,
    /// Frames of the UMEM.
    pub frames: u32,
    /// Of them, those that the port's user may hold at once: the scheduler's limit in packets. The
    /// rings' come on top, so that receiving never waits for a frame.
    pub held: u32,
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame_bytes: u32,
    /// Entries of each ring, a power of two; so many frames wait with the kernel for each queue.
    pub ring: u32,
    /// Copied or not.
    pub copying: Copying,
    /// The NUMA node of the NICs, if the UMEM is to be there.
    pub node: Option<u32>,
}

impl Plan {
    /// Usual sizes: rings of 2,048 and twice as many frames for each queue to be held, of 2,048 bytes.
    pub fn new(queues: Vec<LinkQueue>) -> Plan {
        let ring = 2048;
        let held = 2 * ring * queues.len() as u32;
        Plan {
            frames: Plan::ring_frames(ring, queues.len()) + held,
            held,
            queues,
            frame_bytes: 2048,
            ring,
            copying: Copying::Tried,
            node: None,
        }
    }

    /// The same with `held` frames to be held, and rings of `ring` entries.
    pub fn sized(self, ring: u32, held: u32) -> Plan {
        let rings = Plan::ring_frames(ring, self.queues.len());
        Plan {
            frames: rings.saturating_add(held),
            ring,
            held,
            ..self
        }
    }

    /// Frames that the rings take at most: a fill ring and a TX ring full for each queue.
    fn ring_frames(ring: u32, queues: usize) -> u32 {
        ring.saturating_mul(2).saturating_mul(queues as u32)
    }

    /// The largest MTU whose packets fit into a frame of `frame_bytes`.
    pub fn largest_mtu(frame_bytes: u32) -> u32 {
        frame_bytes.saturating_sub(HEADROOM_BYTES + LINK_BYTES)
    }

    /// Frames that can be held while every fill and TX ring is full: a scheduler's limit in packets
    /// must not exceed it.
    pub fn holdable(&self) -> u32 {
        let rings = Plan::ring_frames(self.ring, self.queues.len());
        self.frames.saturating_sub(rings)
    }
}

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Sizes that the kernel does not take.
    #[error(
        "create a UMEM of {frames} frames of {frame_bytes} bytes: the kernel accepts frames of {} or {} bytes; use 1 to {MAX_FRAMES} frames",
        FRAME_BYTES[0], FRAME_BYTES[1]
    )]
    Frames {
        /// As asked.
        frames: u32,
        /// As asked.
        frame_bytes: u32,
    },
    /// No ring has this size.
    #[error("create rings of {0} entries: use a power of two up to {MAX_RING}")]
    Ring(u32),
    /// Sockets and frames do not fit.
    #[error(
        "open {queues} queues with {frames} frames, {held} of them for queued packets: use 1 to {MAX_SOCKETS} queues and {held} frames in addition to the {rings} frames of their rings, or queue fewer packets"
    )]
    TooFew {
        /// As asked.
        queues: usize,
        /// As asked.
        frames: u32,
        /// As asked.
        held: u32,
        /// What the rings alone take.
        rings: u32,
    },
    /// No memory.
    #[error("map {bytes} bytes of frames: {source}; use fewer frames")]
    Memory {
        /// As asked.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface's packets do not fit.
    #[error(
        "open AF_XDP on \"{name}\": its MTU of {mtu} is above {largest}, the largest possible with frames of {frame_bytes} bytes; {}",
        mtu_remedy(*mtu, *frame_bytes)
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The largest that would do.
        largest: u32,
        /// Of the plan.
        frame_bytes: u32,
    },
    /// A system call failed.
    #[error("{doing} AF_XDP socket of \"{name}\" queue {queue}: {source}; {}", remedy(.source))]
    Socket {
        /// What was done: "open the", "bind the".
        doing: &'static str,
        /// The interface.
        name: String,
        /// Its queue.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
}

fn mtu_remedy(mtu: u32, frame_bytes: u32) -> String {
    let larger = FRAME_BYTES
        .iter()
        .find(|&&bytes| bytes > frame_bytes && mtu <= Plan::largest_mtu(bytes));
    match larger {
        Some(bytes) => format!("use frames of {bytes} bytes or lower the MTU"),
        None => "lower the MTU".to_owned(),
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "needs CAP_NET_RAW",
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (`fairpath features`)",
        Some(libc::EBUSY) => "another AF_XDP socket has this queue; end its program",
        Some(libc::ENODEV) => "the interface was removed",
        Some(libc::EINVAL) => "the interface has no such queue, or is no real one",
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => {
            "the driver cannot do it without copying; let it be copied"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => "not enough memory may be locked (ulimit -l)",
        _ => "see `fairpath features`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_error_names_the_largest_and_the_frames_that_would_do() {
        let error = |mtu| {
            let (frame_bytes, name) = (2048, "wan".to_owned());
            let largest = Plan::largest_mtu(frame_bytes);
            OpenError::Mtu {
                name,
                mtu,
                largest,
                frame_bytes,
            }
            .to_string()
        };
        assert_eq!(
            error(1800),
            "open AF_XDP on \"wan\": its MTU of 1800 is above 1770, the largest possible with \
             frames of 2048 bytes; take frames of 4096 bytes or lower the MTU"
        );
        assert!(error(9000).ends_with("bytes; lower the MTU"));
    }

    #[test]
    fn what_can_be_held_is_what_the_rings_leave() {
        let queue = LinkQueue {
            ifindex: IfIndex(1),
            name: "a".into(),
            queue: 0,
        };
        let plan = Plan::new(vec![queue.clone(), queue]);
        assert_eq!((plan.frames, plan.holdable()), (16_384, 8192));
        let larger = plan.sized(256, 100_000);
        assert_eq!((larger.frames, larger.holdable()), (101_024, 100_000));
    }
}
