//! Forwarding decisions: the native runtime of `bpf/core/forward`.
//!
//! ```text
//!   frame ─ link header ─ ingress ─┬─ bridge: the other interface ────┬─ Decision ─ change
//!                                  └─ router: query ─ FIB ─ result ─┘
//! ```
//!
//! The FIB and the sockets belong to the caller. [`Forwarder::decide`] looks up a socket at most once,
//! and queries the FIB at most twice: for the receiver, and for the route back to the sender.
//! [`Forwarder::change`] edits the frame like the kernel's program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_units::IfIndex;

use crate::sched::End;

/// Egress interfaces of a monitor: towards subscribers, and towards the internet.
pub const EXITS: usize = 2;
/// MAC addresses of this host that a bridge distinguishes (`FP_MAX_OWN`).
pub const MAX_OWN: usize = 4;
const MAC_BYTES: usize = 6;
/// Of `struct fp_forward`.
const PLAN_BYTES: usize = 96;

/// The selection of a packet's egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Forwarding {
    /// The other interface.
    Bridge = 1,
    /// The interface from the kernel's FIB.
    Router = 2,
}

/// The kernel's check of the sender of an IPv4 packet (sysctl `rp_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum SenderCheck {
    /// Off: the sender is not an address of this host.
    #[default]
    Other = 0,
    /// Strict (RFC 3704 section 2.2): the route to the sender leaves by the ingress interface.
    Strict = 1,
    /// Loose (RFC 3704 section 2.4): a route to the sender exists.
    Loose = 2,
}

impl SenderCheck {
    /// The check for a value of `rp_filter`. The kernel has no loose check on an interface without
    /// IPv4 addresses: only the strict one can pass there.
    pub fn of_rp_filter(value: u32, has_address: bool) -> SenderCheck {
        match (value, has_address) {
            (0, _) => SenderCheck::Other,
            (2, true) => SenderCheck::Loose,
            _ => SenderCheck::Strict,
        }
    }
}

/// An egress interface of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The interface of the program.
    pub ifindex: IfIndex,
    /// The interface as routes name it: the VLAN device, or the same.
    pub route: IfIndex,
    /// The end whose class counts for packets that leave here.
    pub end: End,
    /// MTU: bytes of IP.
    pub mtu: u32,
    /// The tag of its frames; 0: none, or in a bridge any tag.
    pub vlan: u16,
    /// Its MAC address; of a router, that of `route`.
    pub mac: [u8; MAC_BYTES],
    /// True if a tcx ingress program of this monitor measures packets to the stack from `ifindex`.
    pub stack_seen: bool,
    /// The check of the senders of IPv4 packets that a router receives here.
    pub sender: SenderCheck,
}

/// The plan of `RttMonitor::set_forwarding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardPlan {
    /// The mode.
    pub forwarding: Forwarding,
    /// Two interfaces, or two VLANs of one. Their order gives them their numbers, 0 and 1.
    pub exits: [Exit; EXITS],
    /// Of a bridge: MAC addresses whose packets go to the stack, up to four.
    pub own: Vec<[u8; MAC_BYTES]>,
}

/// The outcome for a frame (`FP_GO_*` of bpf/core/forward/abi.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ForwardOutcome {
    /// Redirected to a socket, which may have been full (`XDP_STATISTICS`).
    ToSocket,
    /// Passed: the queue had no socket.
    NoSocket,
    /// Passed: neither IPv4 nor IPv6.
    NotIp,
    /// Passed: to a group or to all.
    Group,
    /// Passed: a bridge's packet to this host.
    Own,
    /// Passed: neighbour discovery.
    Neighbour,
    /// Passed: shorter than its headers.
    Short,
    /// Passed: no headroom in the driver.
    NoHeadroom,
    /// Passed: its tag belongs to no egress interface.
    OtherVlan,
    /// Passed: the monitor has no work area for this CPU.
    NoScratch,
    /// Passed: longer than the MTU of the egress interface.
    TooBig,
    /// Passed: not sent to the interface's MAC address.
    OtherHost,
    /// Passed: its TTL or hop limit is exceeded.
    Ttl,
    /// Passed: options of IPv4, or hop-by-hop ones.
    Options,
    /// Passed: addresses that routers do not forward, or a wrong header checksum.
    Strange,
    /// Passed: the MAC address of the next hop is unknown.
    NoNeighbour,
    /// Passed: to this host, a broadcast, or no route (the FIB does not distinguish them).
    Local,
    /// Passed: a route that refuses: unreachable, prohibit, blackhole.
    Unreachable,
    /// Passed: the interface does not forward (sysctl).
    NotForwarding,
    /// Passed: the route encapsulates.
    Tunnel,
    /// Passed: the route uses an interface that is not configured.
    OtherExit,
    /// Passed: the route back to the sender does not prove its address, so the stack decides.
    Sender,
    /// Dropped: the socket was closed after the frame was changed.
    Lost,
}

impl ForwardOutcome {
    /// The number of outcomes.
    pub const COUNT: usize = ForwardOutcome::Lost as usize + 1;
    /// All, in order, with their names in a status.
    pub const ALL: [(ForwardOutcome, &'static str); ForwardOutcome::COUNT] = [
        (ForwardOutcome::ToSocket, "to socket"),
        (ForwardOutcome::NoSocket, "no socket"),
        (ForwardOutcome::NotIp, "not IP"),
        (ForwardOutcome::Group, "group address"),
        (ForwardOutcome::Own, "to this host"),
        (ForwardOutcome::Neighbour, "neighbour discovery"),
        (ForwardOutcome::Short, "cut short"),
        (ForwardOutcome::NoHeadroom, "no headroom"),
        (ForwardOutcome::OtherVlan, "other VLAN"),
        (ForwardOutcome::NoScratch, "no work area"),
        (ForwardOutcome::TooBig, "above the MTU"),
        (ForwardOutcome::OtherHost, "other MAC address"),
        (ForwardOutcome::Ttl, "TTL over"),
        (ForwardOutcome::Options, "IP options"),
        (ForwardOutcome::Strange, "not to be forwarded"),
        (ForwardOutcome::NoNeighbour, "neighbour unknown"),
        (ForwardOutcome::Local, "local address or no route"),
        (ForwardOutcome::Unreachable, "route refuses"),
        (ForwardOutcome::NotForwarding, "forwarding off"),
        (ForwardOutcome::Tunnel, "tunnel"),
        (ForwardOutcome::OtherExit, "other interface"),
        (ForwardOutcome::Sender, "unproven sender"),
        (ForwardOutcome::Lost, "lost"),
    ];
}

impl ForwardPlan {
    /// `struct fp_forward` for the kernel's map. Own addresses above [`MAX_OWN`] are ignored.
    pub fn to_bytes(&self) -> [u8; PLAN_BYTES] {
        let mut bytes = Vec::with_capacity(PLAN_BYTES);
        bytes.extend((self.forwarding as u32).to_ne_bytes());
        bytes.extend([0; 4]);
        for exit in &self.exits {
            for word in [exit.ifindex.0, exit.route.0, exit.end as u32, exit.mtu] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.extend(exit.vlan.to_ne_bytes());
            bytes.extend(u16::from(exit.stack_seen).to_ne_bytes());
            bytes.extend(exit.mac);
            bytes.extend((exit.sender as u16).to_ne_bytes());
        }
        for own in &self.own {
            bytes.extend(own);
            bytes.extend([0; 2]);
        }
        bytes.resize(PLAN_BYTES, 0);
        let mut all = [0; PLAN_BYTES];
        all.copy_from_slice(&bytes);
        all
    }
}

/// A query to the FIB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibQuestion {
    /// The ingress interface, as routes name it.
    pub arrived_by: IfIndex,
    /// The sender.
    pub source: IpAddr,
    /// The receiver, of the same family.
    pub destination: IpAddr,
    /// Of the IP header.
    pub protocol: u8,
    /// The DSCP of IPv4 without ECN; of IPv6 traffic class and flow label, in host order.
    pub flow: u32,
    /// Bytes of IP; 0: the MTU does not matter.
    pub bytes: u16,
    /// True if the neighbour must be known. The route back to the sender does not need it.
    pub needs_neighbour: bool,
}

/// The result of the FIB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibAnswer {
    /// `BPF_FIB_LKUP_RET_*`, or a negative error; 0: the rest is valid.
    pub code: i32,
    /// The egress interface.
    pub leaves_by: IfIndex,
    /// The MAC address of that interface.
    pub source: [u8; MAC_BYTES],
    /// The MAC address of the next hop.
    pub destination: [u8; MAC_BYTES],
}

/// `struct fp_fib`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fib {
    family: u8,
    l4_protocol: u8,
    sport: u16,
    dport: u16,
    tot_len: u16,
    ifindex: u32,
    flowinfo: u32,
    src: [u32; 4],
    dst: [u32; 4],
    vlan: u32,
    smac: [u8; MAC_BYTES],
    dmac: [u8; MAC_BYTES],
}

/// `struct fp_next_hop`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NextHop {
    macs: [u16; 2 * MAC_BYTES / 2],
    zero: u32,
}

/// `AF_INET` of Linux.
const IPV4: u8 = 2;

impl Fib {
    fn question(&self, needs_neighbour: bool) -> FibQuestion {
        let address = |words: &[u32; 4]| {
            if self.family == IPV4 {
                return IpAddr::V4(Ipv4Addr::from(words[0].to_ne_bytes()));
            }
            let mut octets = [0; 16];
            for (to, word) in octets.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let flow = match self.family {
            IPV4 => self.flowinfo,
            _ => u32::from_be(self.flowinfo),
        };
        FibQuestion {
            arrived_by: IfIndex(self.ifindex),
            source: address(&self.src),
            destination: address(&self.dst),
            protocol: self.l4_protocol,
            flow,
            bytes: self.tot_len,
            needs_neighbour,
        }
    }

    /// The query with its result, as the kernel writes it.
    fn answered(&self, answer: FibAnswer) -> (i64, Fib) {
        let reported = Fib {
            ifindex: answer.leaves_by.0,
            smac: answer.source,
            dmac: answer.destination,
            ..*self
        };
        (answer.code.into(), reported)
    }
}

/// The decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    go: u32,
    next: NextHop,
}

impl Decision {
    /// The outcome.
    pub fn outcome(&self) -> ForwardOutcome {
        ForwardOutcome::ALL[(self.go & 0xff) as usize].0
    }

    /// The ingress, if the core knows it (otherwise 0).
    pub fn arrived(&self) -> usize {
        (self.go >> 8 & 1) as usize
    }

    /// The egress; of [`ForwardOutcome::ToSocket`] only.
    pub fn leaves(&self) -> usize {
        (self.go >> 12 & 1) as usize
    }
}

/// A frame ends inside the headers to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("change a forwarded frame of {bytes} bytes: it ends inside its headers; drop it")]
pub struct FrameTooShort {
    /// Its length.
    pub bytes: usize,
}

unsafe extern "C" {
    #[cfg(test)]
    static fp_native_forward_sizes: [u32; 4];
    fn fp_native_redirect_outcome(frame: *const u8, bytes: u32, own: *const u8) -> u32;
    fn fp_native_forward_begin(f: *const u64, ifindex: u32, frame: *const u8, bytes: u32) -> u32;
    fn fp_native_forward_bridge(f: *const u64, go: u32, bytes: u32) -> u32;
    fn fp_native_forward_request(
        f: *const u64,
        go: u32,
        frame: *const u8,
        bytes: u32,
        frame_bytes: u32,
        fib: *mut Fib,
    ) -> u32;
    fn fp_native_forward_take(
        f: *const u64,
        go: u32,
        answer: i64,
        fib: *const Fib,
        next: *mut NextHop,
    ) -> u32;
    fn fp_native_forward_reverse(
        f: *const u64,
        go: u32,
        frame: *const u8,
        bytes: u32,
        fib: *mut Fib,
    ) -> u32;
    fn fp_native_forward_sender(f: *const u64, go: u32, answer: i64, fib: *const Fib) -> u32;
    fn fp_native_forward_growth(f: *const u64, go: u32) -> i32;
    fn fp_native_forward_change(
        f: *const u64,
        go: u32,
        next: *const NextHop,
        frame: *mut u8,
        bytes: u32,
    ) -> i32;
}

/// The decision without a plan, by the link header: [`ForwardOutcome::ToSocket`], or the reason to pass the
/// frame to the stack. `own` are MAC addresses of this host, zero where unused.
pub fn check_link(frame: &[u8], own: &[[u8; MAC_BYTES]; MAX_OWN]) -> ForwardOutcome {
    let own = own.as_flattened().as_ptr();
    // SAFETY: reads `frame` within its length, and four addresses of six bytes.
    let outcome = unsafe { fp_native_redirect_outcome(frame.as_ptr(), frame.len() as u32, own) };
    ForwardOutcome::ALL[outcome as usize].0
}

/// An active plan, natively.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// `struct fp_forward`.
    plan: [u64; PLAN_BYTES / 8],
    forwarding: Forwarding,
}

impl Forwarder {
    /// Uses this plan, without checks for contradictions.
    pub fn new(plan: &ForwardPlan) -> Forwarder {
        let mut words = [0; PLAN_BYTES / 8];
        for (to, bytes) in words.iter_mut().zip(plan.to_bytes().chunks_exact(8)) {
            *to = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
        }
        Forwarder {
            plan: words,
            forwarding: plan.forwarding,
        }
    }

    /// Decides about a frame from `ifindex`, and changes nothing.
    ///
    /// `shown` is its first part with all headers, `frame_bytes` its whole length. `socket` returns
    /// whether a queue of the egress has a socket, `fib` answers the query of a router.
    ///
    /// # Panics
    /// If a frame is shorter than the part that is shown.
    pub fn decide(
        &self,
        ifindex: IfIndex,
        shown: &[u8],
        frame_bytes: u32,
        socket: impl FnOnce(usize) -> bool,
        mut fib: impl FnMut(&FibQuestion) -> FibAnswer,
    ) -> Decision {
        let bytes = shown.len() as u32;
        assert!(
            frame_bytes >= bytes,
            "a part of a frame is no longer than it"
        );
        let (plan, frame) = (self.plan.as_ptr(), shown.as_ptr());
        // SAFETY: a whole plan; reads the frame within its length.
        let go = unsafe { fp_native_forward_begin(plan, ifindex.0, frame, bytes) };
        let begun = Decision {
            go,
            next: NextHop::default(),
        };
        if begun.outcome() != ForwardOutcome::ToSocket {
            return begun;
        }
        if !socket(begun.arrived()) {
            let go = ForwardOutcome::NoSocket as u32 | (begun.arrived() as u32) << 8;
            return Decision { go, ..begun };
        }
        if self.forwarding == Forwarding::Bridge {
            // SAFETY: a whole plan, and numbers.
            let go = unsafe { fp_native_forward_bridge(plan, go, frame_bytes) };
            return Decision { go, ..begun };
        }
        let mut requested = Fib::default();
        // SAFETY: as above; the question is as large as in C.
        let go = unsafe {
            fp_native_forward_request(plan, go, frame, bytes, frame_bytes, &raw mut requested)
        };
        let mut routed = Decision { go, ..begun };
        if routed.outcome() != ForwardOutcome::ToSocket {
            return routed;
        }
        let (code, reported) = requested.answered(fib(&requested.question(true)));
        // SAFETY: as above; the next hop is as large as in C.
        routed.go = unsafe {
            fp_native_forward_take(plan, go, code, &raw const reported, &raw mut routed.next)
        };
        let mut reverse = Fib::default();
        // SAFETY: as above.
        let is_checked =
            unsafe { fp_native_forward_reverse(plan, routed.go, frame, bytes, &raw mut reverse) };
        if is_checked != 0 {
            let (code, reported) = reverse.answered(fib(&reverse.question(false)));
            // SAFETY: as above.
            routed.go =
                unsafe { fp_native_forward_sender(plan, routed.go, code, &raw const reported) };
        }
        routed
    }

    /// The growth of a frame with this decision in bytes.
    pub fn growth(&self, decision: &Decision) -> i32 {
        // SAFETY: a whole plan, and a number.
        unsafe { fp_native_forward_growth(self.plan.as_ptr(), decision.go) }
    }

    /// Changes a forwarded frame: tag, MAC addresses, TTL and checksum.
    ///
    /// # Errors
    /// [`FrameTooShort`]: the frame does not fit the decision, and is unusable.
    pub fn change(&self, decision: &Decision, frame: &mut Vec<u8>) -> Result<(), FrameTooShort> {
        let bytes = frame.len();
        match self.growth(decision) {
            0 => (),
            more if more > 0 => drop(frame.splice(..0, vec![0; more as usize])),
            less => drop(frame.drain(..bytes.min(less.unsigned_abs() as usize))),
        }
        let (plan, next) = (self.plan.as_ptr(), &raw const decision.next);
        let (at, len) = (frame.as_mut_ptr(), frame.len() as u32);
        // SAFETY: a whole plan; reads and writes the frame within its length.
        match unsafe { fp_native_forward_change(plan, decision.go, next, at, len) } {
            0 => Ok(()),
            _ => Err(FrameTooShort { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_listed_in_order() {
        for (number, (outcome, _)) in ForwardOutcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, number);
        }
    }

    #[test]
    fn structures_are_as_large_as_in_c() {
        // SAFETY: a constant.
        let sizes = unsafe { fp_native_forward_sizes }.map(|size| size as usize);
        let ours = [
            PLAN_BYTES,
            size_of::<Fib>(),
            size_of::<NextHop>(),
            ForwardOutcome::COUNT,
        ];
        assert_eq!(sizes, ours);
    }
}
