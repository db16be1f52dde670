//! Mirror of `bpf/core/abi.h`: every structure that the core shares with Rust.
//!
//! Integers are in host order; ports and address words are as loaded from the packet (network order
//! in memory). `layout_matches_the_c_compiler` compares sizes and offsets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first header of a frame (`enum fp_link`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Link {
    /// Ethernet, tagged or not, with or without PPPoE.
    Ethernet = 1,
    /// An IPv4 or IPv6 header: ppp, tun, wireguard.
    Raw = 2,
    /// Linux cooked capture, version 1.
    Sll = 3,
    /// Linux cooked capture, version 2.
    Sll2 = 4,
    /// BSD loopback: the address family in either byte order.
    Null = 5,
    /// PPP, with or without its HDLC-like framing.
    Ppp = 6,
}

/// The direction of a frame through the interface (`enum fp_direction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameDirection {
    /// Unknown in the capture.
    #[default]
    Unknown = 0,
    /// Received.
    In = 1,
    /// Sent.
    Out = 2,
}

impl FrameDirection {
    fn from_abi(value: u8) -> FrameDirection {
        match value {
            1 => FrameDirection::In,
            2 => FrameDirection::Out,
            _ => FrameDirection::Unknown,
        }
    }
}

/// The metadata of a frame (`struct fp_frame`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Frame {
    /// Nanoseconds of the driver's clock.
    pub now: u64,
    /// Number in a capture, 0 live.
    pub number: u64,
    /// Bytes on the wire, captured or not.
    pub wire_len: u32,
    /// Wire segments of a GSO packet; 0 counts as 1.
    pub segs: u32,
    /// Interface of the hook; 0 unknown.
    pub ifindex: u32,
    /// At egress: ingress interface; 0 this host or unknown. Going through ([`Frame::THROUGH`]):
    /// egress interface.
    pub rx_ifindex: u32,
    /// A [`Link`].
    pub link: u16,
    /// Tag control that was removed from the frame; 0 none.
    pub vlan: u16,
    /// A [`FrameDirection`].
    pub direction: u8,
    /// [`Frame::AFTER_QUEUE`], [`Frame::SEEN_BEFORE`] and [`Frame::THROUGH`].
    pub flags: u8,
    /// Going through: tag control at egress; 0 none.
    pub out_vlan: u16,
    /// The mark of the packet; 0 none or unknown.
    pub mark: u32,
    /// Always 0.
    pub zero2: u32,
}

impl Frame {
    /// The ingress of its interface is monitored too.
    pub const SEEN_BEFORE: u8 = 1;
    /// Observed after the egress queue of its interface (packet taps).
    pub const AFTER_QUEUE: u8 = 2;
    /// Ingress here, and egress where no hook observes it (AF_XDP): both ends are counted here.
    pub const THROUGH: u8 = 4;
}

/// The identity of a flow (`struct fp_key`): side 0 is the lower endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Key {
    addr: [[u64; 2]; 2],
    port: [u16; 2],
    /// IP protocol: 6, 1 or 58.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    zero: u16,
}

impl Key {
    #[cfg(test)]
    pub(crate) const PORT_OFFSET: usize = std::mem::offset_of!(Key, port);

    /// Its words as the core hashes them.
    #[cfg(test)]
    pub(crate) fn words(&self) -> [u64; 5] {
        let bytes = |port: u16| port.to_ne_bytes();
        let [[a, b], [c, d]] = [bytes(self.port[0]), bytes(self.port[1])];
        let rest = [a, b, c, d, self.proto, self.family, 0, 0];
        let [x, y] = self.addr;
        [x[0], x[1], y[0], y[1], u64::from_ne_bytes(rest)]
    }

    /// The key of two endpoints of one family: side 0 is the first. Ports are echo identifiers for ICMP.
    pub fn new(proto: u8, ends: [SocketAddr; 2]) -> Key {
        let words = |end: &SocketAddr| {
            let bytes = match end.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let bytes = bytes.octets();
            [0, 8].map(|at| {
                let half = std::array::from_fn(|i| bytes[at + i]);
                u64::from_ne_bytes(half)
            })
        };
        Key {
            addr: [words(&ends[0]), words(&ends[1])],
            port: [ends[0].port().to_be(), ends[1].port().to_be()],
            proto,
            family: if ends[0].is_ipv4() { 4 } else { 6 },
            zero: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_words([a, b, c, d, rest]: [u64; 5]) -> Key {
        let [p, q, r, s, proto, family, _, _] = rest.to_ne_bytes();
        Key {
            addr: [[a, b], [c, d]],
            port: [u16::from_ne_bytes([p, q]), u16::from_ne_bytes([r, s])],
            proto,
            family,
            zero: 0,
        }
    }

    /// Address and port (or echo identifier) of side 0 or 1.
    pub fn endpoint(&self, side: usize) -> SocketAddr {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addr[side][0].to_ne_bytes());
        bytes[8..].copy_from_slice(&self.addr[side][1].to_ne_bytes());
        let address = if self.family == 4 {
            IpAddr::V4(Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]))
        } else {
            IpAddr::V6(Ipv6Addr::from(bytes))
        };
        SocketAddr::new(address, u16::from_be(self.port[side]))
    }
}

/// The monitor's settings (`struct fp_config`); times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Of the hashes: secret live, constant in tests.
    pub seed: u64,
    /// Idle time after which a TCP flow is closed.
    pub flow_timeout: u64,
    /// The same for handshakes that never complete.
    pub half_open_timeout: u64,
    /// The time for which a closed flow accepts late packets.
    pub closed_timeout: u64,
    /// Idle time of an ICMP flow.
    pub echo_timeout: u64,
    /// An established flow that is idle for less is never evicted.
    pub evict_guard: u64,
    /// Maximum age of a match.
    pub max_rtt: u64,
    /// Minimum time between two samples reported, per flow and leg.
    pub rate_limit: u64,
    /// The same as a multiple of the leg's minimum RTT, in 1/256.
    pub rate_limit_rtts: u32,
    /// A [`Mode`].
    pub mode: u32,
    /// 0: no samples from echo.
    pub icmp: u32,
    /// Sets of [`WAYS`] flows; a power of two.
    pub flow_sets: u32,
    /// Sets of [`WAYS`] half-open flows; a power of two.
    pub half_sets: u32,
    /// Chunks of [`CHUNK_SEGMENTS`] outstanding segments.
    pub chunks: u32,
    /// Outstanding segments of one direction of one flow.
    pub max_segments: u32,
    /// Work areas and counters, one for each possible CPU.
    pub cpus: u32,
    /// Address space for one image of the rules; there are two. Memory is used as far as needed.
    pub image_bytes: u64,
    /// Slots for classes, [`crate::OTHER`] included; 0: nothing is classified.
    pub slots: u32,
    /// Sets of [`CELL_WAYS`] cells, twice; a power of two.
    pub cell_sets: u32,
    /// Sets of [`PAIR_WAYS`] pairs, twice; a power of two.
    pub pair_sets: u32,
    /// Prefix length by which IPv4 remotes are distinguished.
    pub remote_v4: u32,
    /// The same for IPv6.
    pub remote_v6: u32,
    /// 1: no events, counts only.
    pub quiet: u32,
    /// Bytes of the ring of events of each CPU: a power of two, at least [`MIN_RING_BYTES`].
    pub ring_bytes: u32,
    /// Always 0.
    pub zero: u32,
}

/// The smallest ring of events: one set of flows fits.
pub const MIN_RING_BYTES: u32 = 1 << 12;

/// Cells in a set (`FP_CELL_WAYS`).
pub const CELL_WAYS: u32 = 8;
/// Pairs in a set (`FP_PAIR_WAYS`).
pub const PAIR_WAYS: u32 = 4;
/// Size of an image: two million rules, with markers.
const IMAGE_BYTES: u64 = 65 << 20;

/// Flows in a set, a C constant of the same value.
pub const WAYS: u32 = 8;
/// Segments in a chunk (`FP_CHUNK_SEGMENTS`).
pub const CHUNK_SEGMENTS: u32 = 5;
/// Header bytes that the core parses (`FP_HEAD_BYTES`).
pub const HEAD_BYTES: usize = 192;
/// Maximum of flows that a table can be configured for.
pub const MAX_FLOWS: u32 = 1 << 22;

const SECOND: u64 = 1_000_000_000;

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            flow_timeout: 300 * SECOND,
            half_open_timeout: 30 * SECOND,
            closed_timeout: 10 * SECOND,
            echo_timeout: 60 * SECOND,
            evict_guard: 30 * SECOND,
            max_rtt: 60 * SECOND,
            rate_limit: 0,
            rate_limit_rtts: 0,
            mode: Mode::Hybrid as u32,
            icmp: 1,
            flow_sets: 65_536 / WAYS,
            half_sets: 16_384 / WAYS,
            chunks: 262_144,
            max_segments: 16_384,
            cpus: 1,
            image_bytes: 0,
            slots: 0,
            cell_sets: 0,
            pair_sets: 0,
            remote_v4: 24,
            remote_v6: 48,
            quiet: 0,
            ring_bytes: MIN_RING_BYTES,
            zero: 0,
        }
    }
}

impl Config {
    /// Sets a capacity of `flows` flows (rounded up to a power of two), four chunks per flow, and a
    /// quarter as many half-open flows.
    #[must_use]
    pub fn with_flows(mut self, flows: u32) -> Config {
        let flows = flows.clamp(WAYS, MAX_FLOWS).next_power_of_two();
        self.flow_sets = flows / WAYS;
        self.half_sets = (flows / 4).max(1024) / WAYS;
        self.chunks = (flows * 4).max(65_536);
        self
    }

    /// Sets a capacity of `classes` classes, interfaces and subnets, with sixteen cells per class
    /// and one pair for two classes per reading.
    #[must_use]
    pub fn with_classes(mut self, classes: u32) -> Config {
        self.slots = classes.saturating_add(1).min(crate::MAX_SLOTS);
        let slots = self.slots.next_power_of_two().max(1024);
        self.cell_sets = slots * 16 / CELL_WAYS;
        self.pair_sets = slots / 2 / PAIR_WAYS;
        self.image_bytes = IMAGE_BYTES;
        self
    }

    /// Bytes of kernel memory for counts, cells and pairs of classes. The rules are in addition.
    pub fn class_bytes(&self) -> u64 {
        if self.slots == 0 {
            return 0;
        }
        u64::from(self.slots) * (64 + u64::from(self.cpus) * (64 + 32))
            + u64::from(self.cell_sets) * u64::from(CELL_WAYS) * 8 * 2
            + u64::from(self.pair_sets) * (u64::from(PAIR_WAYS) * 64 + 8) * 2
    }
}

/// The TCP methods that are enabled (`enum fp_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Sequence numbers where they are unambiguous, otherwise timestamps.
    #[default]
    Hybrid = 0,
    /// Sequence and acknowledgement numbers with Karn's rule.
    Seq = 1,
    /// TCP timestamps.
    Ts = 2,
    /// Only SYN and its answers.
    Handshake = 3,
    /// tshark's pairing, without Karn's rule (tests; native only).
    Tshark = 4,
}

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

macro_rules! method {
    ($($number:literal $variant:ident $name:ident $samples:ident $about:literal;)*) => {
        /// The method of a sample: the lines of `bpf/core/rtt/methods.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = $about] $variant = $number,)*
        }

        impl Method {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Method] = &[$(Method::$variant),*];

            /// Its name in options, records and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Method::$variant => stringify!($name),)*
                }
            }

            /// The counter of its samples in [`Stats`].
            pub fn counter(self) -> &'static str {
                match self {
                    $(Method::$variant => stringify!($samples),)*
                }
            }

            fn from_abi(value: u8) -> Option<Method> {
                Method::ALL.iter().copied().find(|method| *method as u8 == value)
            }
        }

        impl Stats {
            /// Samples of each method.
            pub fn by_method(&self) -> [(Method, u64); Method::ALL.len()] {
                [$((Method::$variant, self.$samples)),*]
            }
        }
    };
}

for_methods!(method);

/// Why a flow was opened or closed (`enum fp_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A SYN was seen.
    Syn,
    /// A SYN-ACK without an observed SYN.
    SynAck,
    /// Its start was not observed.
    FirstSeen,
    /// Both sides sent FIN.
    Fin,
    /// Reset.
    Rst,
    /// Idle for too long.
    Timeout,
    /// The same 5-tuple started again.
    Reuse,
    /// The table needed its entry.
    Evicted,
    /// Monitoring ended.
    End,
}

/// The router's own egress queue in a sample (`enum fp_own_queue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnQueue {
    /// Unknown in the capture.
    Unknown,
    /// Included.
    In,
    /// Not included.
    Out,
}

/// Counts of one direction (`struct fp_counts`); bytes are TCP payload or ICMP messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // abi.h says what each is, the summary prints them by name
pub struct Counts {
    pub packets: u64,
    pub bytes: u64,
    pub retransmitted_bytes: u64,
    pub upstream_lost_bytes: u64,
    pub sampled_bytes: u64,
    pub retransmitted_packets: u32,
    pub upstream_lost_packets: u32,
    pub spurious_packets: u32,
    pub reordered_packets: u32,
    pub unobserved_bytes: u32,
    pub samples: u32,
    pub data_packets: u32,
    pub zero: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawEvent {
    pub time: u64,
    pub number: u64,
    pub rtt: u64,
    pub min: u64,
    pub key: Key,
    pub flow: u32,
    pub ifindex: u32,
    pub towards: u32,
    pub seq: u32,
    pub ack: u32,
    pub acked_bytes: u32,
    pub kind: u8,
    pub method: u8,
    pub side: u8,
    pub reason: u8,
    pub own_queue: u8,
    pub direction: u8,
    pub seen: u16,
    pub opened: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawFlowEvent {
    pub head: RawEvent,
    pub counts: [Counts; 2],
    pub min: [u64; 2],
    pub towards: [u32; 2],
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a monitor (`struct fp_stats`), summed over CPUs.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            /// Every counter by name, in the order of `abi.h`.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

macro_rules! stats_of_methods {
    ($($number:literal $variant:ident $name:ident $samples:ident $about:literal;)*) => {
        stats! {
            /// Frames; GSO packets count their segments.
            frames,
            /// Their bytes.
            frame_bytes,
            /// Neither IPv4 nor IPv6.
            not_ip,
            /// Headers not captured far enough.
            truncated,
            /// Inconsistent lengths.
            malformed,
            /// Later fragments.
            fragments,
            /// Neither TCP nor ICMP echo.
            other_protocol,
            /// TCP segments.
            tcp_packets,
            /// TCP payload.
            tcp_bytes,
            /// ICMP echo packets.
            echo_packets,
            /// The same packet at another hook, not counted twice.
            second_hook_packets,
            $(#[doc = concat!("Samples by: ", $about)] $samples,)*
            /// Samples suppressed by the rate limit.
            samples_suppressed,
            /// Matches refused: the ACK was a later one than the first.
            refused_stale_ack,
            /// Matches refused: the ACK answers an earlier copy.
            refused_old_echo,
            /// Matches refused: older than `max_rtt`.
            refused_age,
            /// Matches refused: time went backwards.
            refused_clock,
            /// Flows announced.
            flows_opened,
            /// Flows closed.
            flows_closed,
            /// Closed after an idle time.
            flows_timed_out,
            /// Closed because their 5-tuple started again.
            flows_reused,
            /// Closed because the table needed the entry.
            flows_evicted,
            /// Not tracked: no entry that the age guard permits.
            flows_refused,
            /// Ended with only one direction seen: not measurable.
            one_sided_flows,
            /// Their bytes.
            one_sided_bytes,
            /// Handshakes started.
            half_open_started,
            /// Handshakes dropped for newer ones.
            half_open_evicted,
            /// Handshakes timed out or reset.
            half_open_failed,
            /// Holes and retransmissions dropped for newer ones.
            holes_dropped,
            /// Segments that were not stored: no chunk left or too many outstanding.
            segments_refused,
            /// Packets skipped because a lock was not free in time.
            lock_failures,
            /// Packets skipped because the CPU's work area was in use.
            scratch_busy,
            /// Events lost to a full ring.
            events_lost,
            /// Keep-alives and probes, never sampled.
            keepalives,
            /// TCP payload acknowledged by an ACK that gave a sample.
            tcp_bytes_sampled,
            /// Frames excluded by filters.
            filtered,
            /// Samples without a free cell: only in the sum of their class.
            samples_unbinned,
            /// Peers of classes evicted by others within one reading.
            pairs_evicted,
        }
    };
}

for_methods!(stats_of_methods);

/// A round-trip time of one leg, from passing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of completion.
    pub time: u64,
    /// Frame that completed it; 0 live.
    pub number: u64,
    /// Nanoseconds.
    pub rtt: u64,
    /// Minimum of this flow and leg so far, nanoseconds.
    pub min: u64,
    /// The flow.
    pub key: Key,
    /// Its number.
    pub flow: u32,
    /// The side of the key that answered: the measured host.
    pub measured: usize,
    /// The method.
    pub method: Method,
    /// Interface of the completing packet; 0 unknown.
    pub ifindex: u32,
    /// Interface towards the measured host; 0 unknown or this host.
    pub towards: u32,
    /// The router's own queue in the sample.
    pub own_queue: OwnQueue,
    /// Direction of the completing packet.
    pub direction: FrameDirection,
    /// End of the matched data, or the echo's number.
    pub seq: u32,
    /// Acknowledgement number of the completing packet.
    pub ack: u32,
    /// Newly acknowledged bytes.
    pub acked_bytes: u32,
}

/// A flow was opened, closed, or was still open at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The time.
    pub time: u64,
    /// Frame that caused it; 0 live or by time.
    pub number: u64,
    /// The flow.
    pub key: Key,
    /// Its number.
    pub flow: u32,
    /// The reason.
    pub reason: Reason,
    /// The side that opened or closed it.
    pub side: usize,
    /// Time of its first packet.
    pub opened: u64,
    /// Counts of each side's packets.
    pub counts: [Counts; 2],
    /// Minimum RTT towards each side; 0 none.
    pub min: [u64; 2],
    /// Interface towards each side; 0 unknown or this host.
    pub towards: [u32; 2],
}

/// An event of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A sample.
    Sample(Sample),
    /// Both sides of a flow were seen.
    Opened(FlowRecord),
    /// A flow ended.
    Closed(FlowRecord),
    /// A flow was open when monitoring ended.
    Alive(FlowRecord),
}

impl Event {
    /// The time of the packet that completed or caused it, by the clock of the runtime.
    pub fn time(&self) -> u64 {
        match self {
            Event::Sample(sample) => sample.time,
            Event::Opened(record) | Event::Closed(record) | Event::Alive(record) => record.time,
        }
    }

    /// Reads an event of the core. `None` if its kind or a discriminant is invalid.
    pub(crate) fn from_raw(raw: &RawFlowEvent) -> Option<Event> {
        let head = &raw.head;
        if head.kind == 1 {
            return Sample::from_raw(head).map(Event::Sample);
        }
        let record = FlowRecord {
            time: head.time,
            number: head.number,
            key: head.key,
            flow: head.flow,
            reason: Reason::from_abi(head.reason)?,
            side: usize::from(head.side & 1),
            opened: head.opened,
            counts: raw.counts,
            min: raw.min,
            towards: raw.towards,
        };
        match head.kind {
            2 => Some(Event::Opened(record)),
            3 => Some(Event::Closed(record)),
            4 => Some(Event::Alive(record)),
            _ => None,
        }
    }
}

impl Sample {
    fn from_raw(head: &RawEvent) -> Option<Sample> {
        Some(Sample {
            time: head.time,
            number: head.number,
            rtt: head.rtt,
            min: head.min,
            key: head.key,
            flow: head.flow,
            measured: usize::from(head.side & 1),
            method: Method::from_abi(head.method)?,
            ifindex: head.ifindex,
            towards: head.towards,
            own_queue: match head.own_queue {
                1 => OwnQueue::In,
                2 => OwnQueue::Out,
                _ => OwnQueue::Unknown,
            },
            direction: FrameDirection::from_abi(head.direction),
            seq: head.seq,
            ack: head.ack,
            acked_bytes: head.acked_bytes,
        })
    }
}

impl Reason {
    fn from_abi(value: u8) -> Option<Reason> {
        Some(match value {
            1 => Reason::Syn,
            2 => Reason::SynAck,
            3 => Reason::FirstSeen,
            4 => Reason::Fin,
            5 => Reason::Rst,
            6 => Reason::Timeout,
            7 => Reason::Reuse,
            8 => Reason::Evicted,
            9 => Reason::End,
            _ => return None,
        })
    }
}
