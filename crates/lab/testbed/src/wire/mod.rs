//! A wire in user space: delay, loss, reordering, duplication, and VLAN or PPPoE encapsulation.
//!
//! ```text
//!  client eth0 ══ left │ wire │ right ══ lan router     Wire::between
//!
//!  ppp0 (TUN) │ wire │ carrier ══ VLAN, PPPoE ══ carrier │ wire │ ppp0 (TUN)     Wire::tunnel_pair
//! ```
//!
//! One thread per direction takes frames from one port, lets an [`impair::Engine`] decide when they
//! leave, and puts them on the other port. The delay counts from the kernel's receive time stamp, so
//! the thread's own wake-up does not add to it; what a late wake-up at release adds is counted in
//! [`DirectionStats::late_max_ns`]. The kernel in the wire's namespace sees the frames too: its links
//! have no address and IPv6 off, so it never answers.
//!
//! Deliberately absent: rate limits (a bottleneck is a qdisc's work, `tbf`), jitter, learning.

mod encap;
mod frames;
mod impair;
mod port;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::link::{Address, LinkEnd, LinkError, Mac, Offloads, Veth};
use crate::netns::{Netns, NetnsError};
use crate::process::RunError;
use crate::sysctl::SysctlError;

pub use encap::{Encap, MAX_VLAN_TAGS, Tpid, VlanTag};
pub use frames::{FrameError, FrameSocket};
pub use impair::{Impairment, Reorder};

use port::Port;
use worker::{Direction, Shared, Transform};

/// Frames that a TUN device queues for a late reader, in place of the default of 500.
const TUN_QUEUE_FRAMES: u32 = 10_000;

/// A wire could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A packet socket or TUN device refused.
    #[error("open \"{ifname}\" in namespace \"{place}\" for a wire")]
    Open {
        /// The interface.
        ifname: String,
        /// Its namespace.
        place: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The thread or its stop event could not be made.
    #[error("start a wire's thread")]
    Thread(#[source] io::Error),
    /// The namespace could not be entered.
    #[error("enter a wire's namespace")]
    Netns(#[from] NetnsError),
    /// A link refused.
    #[error("prepare a wire's link")]
    Link(#[from] LinkError),
    /// `ip` refused.
    #[error("prepare a wire's TUN device")]
    Tool(#[from] RunError),
    /// A sysctl refused.
    #[error("prepare a wire's TUN device")]
    Sysctl(#[from] SysctlError),
}

/// One of the two directions of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireDirection {
    /// From the left port to the right one.
    LeftToRight,
    /// From the right port to the left one.
    RightToLeft,
}

/// The counters of one direction. `taken = lost + refused + queue_full + distinct frames queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames taken from the source port.
    pub taken: u64,
    /// Frames put on the destination port, duplicates included.
    pub sent: u64,
    /// Frames lost as [`Impairment::loss`] wants.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames that were delayed for reordering.
    pub delayed: u64,
    /// Frames dropped because too many were under way.
    pub queue_full: u64,
    /// Frames of another kind than the encapsulation's, or larger than any limit; dropped.
    pub refused: u64,
    /// Frames the destination port did not take.
    pub send_failed: u64,
    /// Frames the kernel dropped before the wire could take them.
    pub kernel_dropped: u64,
    /// Frames that came with an unfinished checksum: an offload is on somewhere.
    pub partial_checksums: u64,
    /// Frames under way now.
    pub midflow: u64,
    /// Longest time a frame left after its due time.
    pub late_max_ns: u64,
    /// Sum of these times over all frames sent.
    pub late_sum_ns: u64,
}

impl DirectionStats {
    /// Frames lost for another reason than the configured one.
    pub fn unwanted_drops(&self) -> u64 {
        self.queue_full + self.refused + self.send_failed + self.kernel_dropped
    }
}

/// The counters of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// From the left port to the right one.
    pub left_to_right: DirectionStats,
    /// From the right port to the left one.
    pub right_to_left: DirectionStats,
}

/// A TUN device that a wire shall make: the IP end of a tunnel.
#[derive(Clone, Debug)]
pub struct Tun {
    ns: Netns,
    ifname: String,
    mtu: u32,
    addresses: Vec<Address>,
}

impl Tun {
    /// A device called `ifname` in `ns`, MTU 1500, without address.
    pub fn new(ns: &Netns, ifname: &str) -> Tun {
        let (ns, ifname) = (ns.clone(), ifname.to_owned());
        Tun {
            ns,
            ifname,
            mtu: 1500,
            addresses: Vec::new(),
        }
    }

    /// Sets the MTU; 1492 is usual for PPPoE.
    #[must_use]
    pub fn with_mtu(mut self, mtu: u32) -> Tun {
        self.mtu = mtu;
        self
    }

    /// Adds an address.
    #[must_use]
    pub fn with_address(mut self, ip: impl Into<std::net::IpAddr>, prefix: u8) -> Tun {
        self.addresses.push(Address::new(ip, prefix));
        self
    }

    /// Makes the device and sets it up.
    fn open(&self) -> Result<Port, WireError> {
        let port = open(&self.ns, &self.ifname, Port::tun)?;
        let (dev, mtu) = (&self.ifname, self.mtu);
        let mut lines = vec![format!(
            "link set dev {dev} mtu {mtu} txqueuelen {TUN_QUEUE_FRAMES} up"
        )];
        for address in &self.addresses {
            let nodad = if address.ip.is_ipv6() { "nodad" } else { "" };
            lines.push(format!("address add {address} dev {dev} {nodad}"));
        }
        self.ns.ip_batch(&lines)?;
        Ok(port)
    }
}

/// A running wire; dropping it stops its threads and loses the frames under way.
#[derive(Debug)]
pub struct Wire {
    left_to_right: Running,
    right_to_left: Running,
    /// The sockets keep these alive anyway; held, they are visible from outside.
    _places: [Netns; 2],
}

impl Wire {
    /// Joins two veth pairs: frames go between `near.right()` and `far.left()`.
    ///
    /// Left is the side of `near`. Turns off the offloads of all four ends and IPv6 on the two in the
    /// middle, which should be in a separate namespace and have no address.
    pub fn between(
        near: &Veth,
        far: &Veth,
        left_to_right: Impairment,
        right_to_left: Impairment,
    ) -> Result<Wire, WireError> {
        for veth in [near, far] {
            veth.set_offloads(Offloads::Off)?;
        }
        let left = open_end(near.right())?;
        let right = open_end(far.left())?;
        let pass = || Transform::Pass;
        Wire::start(
            [near.right().ns().clone(), far.left().ns().clone()],
            [left, right],
            [pass(), pass()],
            [left_to_right, right_to_left],
        )
    }

    /// Joins a new TUN device (left) to a carrier (right): each packet becomes a frame for `dst`.
    ///
    /// The device goes when the wire does. Turns off the offloads of the carrier and IPv6 on it, and
    /// sets its MTU so that full packets fit; the far end of the carrier is the caller's.
    pub fn tunnel(
        tun: &Tun,
        carrier: &LinkEnd,
        dst: Mac,
        encap: &Encap,
        left_to_right: Impairment,
        right_to_left: Impairment,
    ) -> Result<Wire, WireError> {
        carrier.set_offloads(Offloads::Off)?;
        carrier.set_mtu(tun.mtu + encap.overhead())?;
        let right = open_end(carrier)?;
        let left = Arc::new(tun.open()?);
        let wrap = Transform::Wrap {
            encap: encap.clone(),
            dst,
            src: carrier.mac(),
        };
        let unwrap = Transform::Unwrap(encap.clone());
        Wire::start(
            [tun.ns.clone(), carrier.ns().clone()],
            [left, right],
            [wrap, unwrap],
            [left_to_right, right_to_left],
        )
    }

    /// Two wires that carry IP between two TUN devices over `carrier`, encapsulated there.
    ///
    /// `there` happens to packets from `left` (the namespace of `carrier.left()`), `back` to those
    /// from `right`.
    pub fn tunnel_pair(
        [left, right]: [&Tun; 2],
        carrier: &Veth,
        encap: &Encap,
        there: Impairment,
        back: Impairment,
    ) -> Result<[Wire; 2], WireError> {
        let [near, far] = carrier.ends();
        let none = Impairment::default;
        let left = Wire::tunnel(left, near, far.mac(), encap, there, none())?;
        let right = Wire::tunnel(right, far, near.mac(), encap, back, none())?;
        Ok([left, right])
    }

    fn start(
        places: [Netns; 2],
        [left, right]: [Arc<Port>; 2],
        [out, back]: [Transform; 2],
        [left_to_right, right_to_left]: [Impairment; 2],
    ) -> Result<Wire, WireError> {
        let (near, far) = (Arc::clone(&left), Arc::clone(&right));
        Ok(Wire {
            left_to_right: Running::start(left, right, out, left_to_right)?,
            right_to_left: Running::start(far, near, back, right_to_left)?,
            _places: places,
        })
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> WireStats {
        WireStats {
            left_to_right: self.left_to_right.shared.stats(),
            right_to_left: self.right_to_left.shared.stats(),
        }
    }

    /// Changes what happens to frames taken from now on; those under way keep their release time.
    ///
    /// The seed restarts. Takes effect before the next frame.
    pub fn set_impairment(&self, direction: WireDirection, impairment: Impairment) {
        match direction {
            WireDirection::LeftToRight => self.left_to_right.shared.change(impairment),
            WireDirection::RightToLeft => self.right_to_left.shared.change(impairment),
        }
    }
}

fn open(
    ns: &Netns,
    ifname: &str,
    how: impl FnOnce(&str) -> io::Result<Port> + Send,
) -> Result<Port, WireError> {
    let opened = ns.enter(|| how(ifname))?;
    let (ifname, place) = (ifname.to_owned(), ns.name().to_owned());
    opened.map_err(|source| WireError::Open {
        ifname,
        place,
        source,
    })
}

fn open_end(end: &LinkEnd) -> Result<Arc<Port>, WireError> {
    end.disable_ipv6()?;
    open(end.ns(), end.ifname(), Port::packet).map(Arc::new)
}

/// One direction with its thread.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(
        source: Arc<Port>,
        destination: Arc<Port>,
        transform: Transform,
        impairment: Impairment,
    ) -> Result<Running, WireError> {
        let shared = Arc::new(Shared::new(Arc::clone(&source)).map_err(WireError::Thread)?);
        let direction = Direction::new(Arc::clone(&shared), destination, transform, impairment);
        let thread = thread::Builder::new().name("wire".to_owned());
        let thread = thread
            .spawn(|| direction.run())
            .map_err(WireError::Thread)?;
        Ok(Running {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed; there is no more to do about it here.
            let _ = thread.join();
        }
    }
}
