//! The options of a port, and the errors of opening it.

use std::io;

use fairpath_units::IfIndex;

use crate::frames::MAX_PARTS;
use crate::umem::{FRAME_BYTES, HEADROOM_BYTES, MAX_FRAMES};

/// Ethernet and two VLAN tags: the bytes of a frame in addition to its MTU.
const LINK_BYTES: u32 = 14 + 2 * 4;
/// Maximum of entries of a ring. A port has eight rings for two links.
pub const MAX_RING: u32 = 1 << 16;
/// Maximum of links and queues of a port.
pub const MAX_SOCKETS: usize = 64;

/// The mode of receiving and sending frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Zero copy if the driver supports it, otherwise copied: tried at opening.
    #[default]
    Tried,
    /// Copied by the kernel; works with every driver.
    Copy,
    /// Zero copy, or opening fails.
    ZeroCopy,
}

/// A queue of an interface for a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkQueue {
    /// The interface, in the thread's network namespace.
    pub ifindex: IfIndex,
    /// Its name, for its MTU and for messages.
    pub name: String,
    /// The receive queue, and the transmit queue of the same number.
    pub queue: u32,
}

/// The options of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One socket each, with a shared UMEM.
    pub queues: Vec<LinkQueue>,
    /// Frames of the UMEM.
    pub frames: u32,
    /// Maximum of packets that the user of the port may hold: the scheduler's limit. Their frames are
    /// in addition to those for the rings, so that reception never waits for a frame.
    pub held: u32,
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame_bytes: u32,
    /// Frames of the largest packet. Above 1, the kernel must permit it (`XDP_USE_SG`).
    pub parts: u32,
    /// Entries of each ring, a power of two; also the frames in the kernel for each queue.
    pub ring: u32,
    /// Copied or not.
    pub copying: Copying,
    /// The NUMA node of the NICs, to place the UMEM there.
    pub node: Option<u32>,
}

impl Plan {
    /// Usual sizes: rings of 2,048, twice as many frames for each queue to hold, frames of 2,048
    /// bytes.
    pub fn new(queues: Vec<LinkQueue>) -> Plan {
        let ring = 2048;
        let held = 2 * ring * queues.len() as u32;
        Plan {
            frames: Plan::ring_frames(ring, queues.len()) + held,
            held,
            queues,
            frame_bytes: 2048,
            parts: 1,
            ring,
            copying: Copying::Tried,
            node: None,
        }
    }

    /// The same with `held` packets to hold, and rings of `ring` entries.
    pub fn sized(self, ring: u32, held: u32) -> Plan {
        let rings = Plan::ring_frames(ring, self.queues.len());
        Plan {
            frames: rings.saturating_add(held.saturating_mul(self.parts)),
            ring,
            held,
            ..self
        }
    }

    /// The same for packets of an MTU: the smaller frames if one is enough, otherwise as few of the
    /// larger ones as a packet needs.
    pub fn for_mtu(self, mtu: u32) -> Plan {
        let [small, large] = FRAME_BYTES;
        let frame_bytes = match mtu > Plan::largest_mtu(small) {
            true => large,
            false => small,
        };
        let packet = mtu.saturating_add(LINK_BYTES);
        let parts = packet.div_ceil(frame_bytes - HEADROOM_BYTES);
        let plan = Plan {
            frame_bytes,
            parts: parts.min(MAX_PARTS),
            ..self
        };
        let (ring, held) = (plan.ring, plan.held);
        plan.sized(ring, held)
    }

    /// Maximum of frames in the rings: a full fill ring and a full TX ring for each queue.
    fn ring_frames(ring: u32, queues: usize) -> u32 {
        ring.saturating_mul(2).saturating_mul(queues as u32)
    }

    /// The maximum MTU of packets that fit into a frame of `frame_bytes`.
    pub fn largest_mtu(frame_bytes: u32) -> u32 {
        frame_bytes.saturating_sub(HEADROOM_BYTES + LINK_BYTES)
    }

    /// Packets to hold while every fill and TX ring is full. The scheduler's limit in packets must
    /// not exceed it.
    pub fn holdable(&self) -> u32 {
        self.frames.saturating_sub(self.in_rings()) / self.parts.max(1)
    }

    /// Frames of full fill and TX rings.
    pub(crate) fn in_rings(&self) -> u32 {
        Plan::ring_frames(self.ring, self.queues.len())
    }

    /// The maximum MTU of packets of [`Plan::parts`] frames.
    pub(crate) fn max_mtu(&self) -> u32 {
        let bytes = self.parts.saturating_mul(self.frame_bytes - HEADROOM_BYTES);
        bytes.saturating_sub(LINK_BYTES)
    }
}

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Sizes that the kernel does not support.
    #[error(
        "create a UMEM of {frames} frames of {frame_bytes} bytes: the kernel accepts frames of {} or {} bytes; use 1 to {MAX_FRAMES} frames",
        FRAME_BYTES[0], FRAME_BYTES[1]
    )]
    Frames {
        /// Requested.
        frames: u32,
        /// Requested.
        frame_bytes: u32,
    },
    /// Invalid ring size.
    #[error("create rings of {0} entries: use a power of two up to {MAX_RING}")]
    Ring(u32),
    /// Too few frames for the sockets.
    #[error(
        "open {queues} queues with {frames} frames, {held} of them for queued packets: use 1 to {MAX_SOCKETS} queues and {held} frames in addition to the {rings} frames of their rings, or queue fewer packets"
    )]
    TooFew {
        /// Requested.
        queues: usize,
        /// Requested.
        frames: u32,
        /// Requested.
        held: u32,
        /// Frames of the rings.
        rings: u32,
    },
    /// Not enough memory.
    #[error("map {bytes} bytes of frames: {source}; use fewer frames")]
    Memory {
        /// Requested.
        bytes: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The MTU of the interface is too large.
    #[error(
        "open AF_XDP on \"{name}\": its MTU of {mtu} is above {largest}, the largest possible with packets of {} of {frame_bytes} bytes; {}",
        fairpath_units::counted(*parts as usize, "frame", "frames"), mtu_remedy(*mtu, *frame_bytes)
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The maximum MTU.
        largest: u32,
        /// Requested.
        frame_bytes: u32,
        /// Requested.
        parts: u32,
    },
    /// Too many frames of a packet.
    #[error("open a port for packets of {0} frames: use 1 to {MAX_PARTS}")]
    Parts(u32),
    /// A system call failed.
    #[error("{doing} AF_XDP socket of \"{name}\" queue {queue}: {source}; {}", remedy(.source))]
    Socket {
        /// The operation: "open the", "bind the".
        doing: &'static str,
        /// The interface.
        name: String,
        /// Its queue.
        queue: u32,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn mtu_remedy(mtu: u32, frame_bytes: u32) -> String {
    let larger = FRAME_BYTES
        .iter()
        .find(|&&bytes| bytes > frame_bytes && mtu <= Plan::largest_mtu(bytes));
    match larger {
        Some(bytes) => format!("use frames of {bytes} bytes or lower the MTU"),
        None => "use several frames for a packet or lower the MTU".to_owned(),
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
    fn mtu_errors_name_the_maximum_and_frame_size() {
        let error = |mtu| {
            let (frame_bytes, name) = (2048, "wan".to_owned());
            let largest = Plan::largest_mtu(frame_bytes);
            OpenError::Mtu {
                name,
                mtu,
                largest,
                frame_bytes,
                parts: 1,
            }
            .to_string()
        };
        assert_eq!(
            error(1800),
            "open AF_XDP on \"wan\": its MTU of 1800 is above 1770, the largest possible with \
             packets of 1 frame of 2048 bytes; use frames of 4096 bytes or lower the MTU"
        );
        assert!(error(9000).ends_with("bytes; use several frames for a packet or lower the MTU"));
    }

    #[test]
    fn packets_of_an_mtu_have_the_fewest_frames() {
        let plan = Plan::new(Vec::new());
        for (mtu, frame_bytes, parts) in [
            (68, 2048, 1),
            (1500, 2048, 1),
            (1770, 2048, 1),
            (1771, 4096, 1),
            (3818, 4096, 1),
            (3819, 4096, 2),
            (9000, 4096, 3),
            (65_535, 4096, 18),
        ] {
            let plan = plan.clone().for_mtu(mtu);
            assert_eq!(
                (plan.frame_bytes, plan.parts),
                (frame_bytes, parts),
                "{mtu}"
            );
            assert!(plan.max_mtu() >= mtu, "{mtu}");
        }
    }

    #[test]
    fn holdable_frames_are_those_outside_the_rings() {
        let queue = LinkQueue {
            ifindex: IfIndex(1),
            name: "a".into(),
            queue: 0,
        };
        let plan = Plan::new(vec![queue.clone(), queue]);
        assert_eq!((plan.frames, plan.holdable()), (16_384, 8192));
        let jumbo = plan.clone().for_mtu(9000);
        assert_eq!((jumbo.frames, jumbo.holdable()), (32_768, 8192));
        let larger = plan.sized(256, 100_000);
        assert_eq!((larger.frames, larger.holdable()), (101_024, 100_000));
    }
}
