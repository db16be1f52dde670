//! Mirror of `bpf/core/sched/abi.h`. Times in ns, lengths in bytes on the wire, host order.

use std::net::{IpAddr, Ipv6Addr};

use crate::hash::HashKeys;

/// Never, as a time or a rank.
pub const NEVER: u64 = u64::MAX;
/// Parameters of a policy at one node.
pub const PARAMS: usize = 8;
/// The cost of a byte in virtual time at weight 1.
pub const COST_ONE: u32 = 16384;
/// Rates are nanoseconds per byte, shifted left by this.
pub const RATE_SHIFT: u32 = 20;
/// Depth of a tree.
pub const LEVELS: usize = 16;
/// Maximum of outcomes of one operation.
pub const OUTCOMES_PER_OP: usize = 1056;
/// Children by DSCP of one node that splits.
pub const SPLIT: usize = 64;

/// A packet as policies see it (`struct fp_meta`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Meta {
    /// Time of arrival.
    pub arrival: u64,
    /// For policies that rank by the packet: remaining bytes of its flow, deadline, slack.
    pub hint: u64,
    /// On the wire, headers of all segments included.
    pub bytes: u32,
    /// Hash over addresses, protocol and ports: see [`Meta::with_flow_hash`].
    pub flow_hash: u32,
    /// Number of its class; 0 none.
    pub class_id: u32,
    /// Its mark.
    pub mark: u32,
    /// IPv4 mapped into IPv6.
    pub source: [u8; 16],
    /// The same.
    pub destination: [u8; 16],
    /// Host order.
    pub source_port: u16,
    /// Host order.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// 0 to 63.
    pub dscp: u8,
    /// 0 to 3: not-ECT, ECT(1), ECT(0), CE.
    pub ecn: u8,
    /// Segments of a GSO packet; 0 counts as 1.
    pub segments: u8,
    /// Of a TCP ACK that a later one can replace: [`Meta::PURE_ACK`] and its flags; else 0.
    pub ack_flags: u32,
    /// Its acknowledgement number.
    pub ack: u32,
    /// Its SACK blocks: left edge << 32 | right edge; 0 none.
    pub sack: [u64; Meta::SACK_BLOCKS],
}

impl Meta {
    /// A TCP segment without data, and without options other than timestamps and SACK blocks.
    pub const PURE_ACK: u32 = 0x100;

    /// `FP_SACK_BLOCKS`: blocks of an ACK.
    pub const SACK_BLOCKS: usize = 4;

    /// Addresses in one format.
    pub fn between(mut self, source: IpAddr, destination: IpAddr) -> Meta {
        let mapped = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        (self.source, self.destination) = (mapped(source), mapped(destination));
        self
    }

    /// Sets the hash of its flow like the packet path with seed 0: over addresses, ports and
    /// protocol. The same in every runtime and on every run.
    pub fn with_flow_hash(mut self) -> Meta {
        static KEYS: std::sync::LazyLock<HashKeys> = std::sync::LazyLock::new(|| HashKeys::new(0));
        self.flow_hash = KEYS.of_meta(&self);
        self
    }

    /// Its source address.
    pub fn source_ip(&self) -> IpAddr {
        Ipv6Addr::from(self.source).to_canonical()
    }

    /// Its destination address.
    pub fn destination_ip(&self) -> IpAddr {
        Ipv6Addr::from(self.destination).to_canonical()
    }
}

/// The kind of an operation (`enum fp_op_kind`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OpKind {
    /// A packet is enqueued: `handle`, `meta`.
    #[default]
    Enqueue = 1,
    /// Sends up to `count` packets, or until `value` bytes are sent (0: no limit).
    Dequeue = 2,
    /// Sets parameter `count` of `node` to `value`.
    Param = 3,
    /// Sets the cost of a byte of flow `handle` (its hash) at leaf `node` to `value`; [`COST_ONE`]
    /// at weight 1.
    Weight = 4,
    /// Removes packet `handle` from any queue.
    Remove = 5,
    /// Sets [`Setting`] `count` of `node` for its parent to `value`.
    Node = 6,
    /// Sets word `count` of impairment `node` to `value`: see [`super::ImpairConfig::changes`].
    Impair = 7,
}

/// A setting of a node that can change while the scheduler runs (`enum fp_setting`). It is
/// effective when the node is ranked next: when it starts to wait, or has sent. A changed floor or
/// ceiling is effective at once: a waiting node is ranked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Setting {
    /// The cost of its bytes: [`COST_ONE`] times the weight of its heaviest sibling over its own; not 0.
    Cost = 0,
    /// From [`encode_rate`](crate::sched::encode_rate); 0: none.
    Floor = 1,
    /// The same.
    Ceil = 2,
    /// ns that it may be ahead of its ceiling or behind its floor.
    Burst = 3,
}

/// One operation (`struct fp_op`); a log of them replays in every runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// Time, never decreasing.
    pub now: u64,
    /// By kind.
    pub value: u64,
    /// The kind.
    pub kind: OpKind,
    /// Of the packet: 1 to the scheduler's `packets`.
    pub handle: u32,
    /// By kind.
    pub count: u32,
    /// By kind.
    pub node: u32,
    /// Of the new packet.
    pub meta: Meta,
}

impl Op {
    /// Enqueues a packet.
    pub fn enqueue(now: u64, handle: u32, meta: Meta) -> Op {
        let kind = OpKind::Enqueue;
        Op {
            now,
            kind,
            handle,
            meta,
            ..Op::default()
        }
    }

    /// Sends up to `count` packets.
    pub fn dequeue(now: u64, count: u32) -> Op {
        let kind = OpKind::Dequeue;
        Op {
            now,
            kind,
            count,
            ..Op::default()
        }
    }

    /// Changes a parameter; `value` is from [`crate::sched::Param::encode`].
    pub fn param(now: u64, node: u32, index: u32, value: u64) -> Op {
        let kind = OpKind::Param;
        Op {
            now,
            kind,
            node,
            count: index,
            value,
            ..Op::default()
        }
    }

    /// Changes the weight of a flow.
    pub fn weight(now: u64, node: u32, flow_hash: u32, cost: u32) -> Op {
        let (kind, value) = (OpKind::Weight, cost.into());
        Op {
            now,
            kind,
            node,
            handle: flow_hash,
            value,
            ..Op::default()
        }
    }

    /// Changes weight, floor, ceiling or burst of a node; `value` as in a plan.
    pub fn node(now: u64, node: u32, setting: Setting, value: u64) -> Op {
        let kind = OpKind::Node;
        Op {
            now,
            kind,
            node,
            count: setting as u32,
            value,
            ..Op::default()
        }
    }

    /// Changes a word of an impairment. Delayed packets keep their times.
    pub fn impair(now: u64, impairment: u32, word: u32, value: u64) -> Op {
        let kind = OpKind::Impair;
        Op {
            now,
            kind,
            node: impairment,
            count: word,
            value,
            ..Op::default()
        }
    }

    /// Removes a packet.
    pub fn remove(now: u64, handle: u32) -> Op {
        let kind = OpKind::Remove;
        Op {
            now,
            kind,
            handle,
            ..Op::default()
        }
    }
}

/// The outcome of an operation, or of a packet (`enum fp_outcome_kind`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OutcomeKind {
    /// The packet waits.
    Queued = 1,
    /// The packet leaves.
    Sent = 2,
    /// The packet is dropped: `reason`.
    Dropped = 3,
    /// Nothing may leave now: call again `at`, [`NEVER`] if empty.
    #[default]
    Nothing = 4,
    /// Set.
    Done = 5,
    /// There is no such node, parameter, flow or packet.
    Failed = 6,
}

/// One outcome (`struct fp_outcome`); an operation has at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Outcome {
    /// Of the packet, as its leaf ranked it.
    pub rank: u64,
    /// Queued: its send time. Nothing: time of the next call. Else its sojourn time.
    pub at: u64,
    /// Index of the operation.
    pub op: u32,
    /// Of the packet.
    pub handle: u32,
    /// Its leaf.
    pub node: u32,
    /// The outcome.
    pub kind: OutcomeKind,
    /// The reason of a drop; see [`Outcome::drop`].
    pub reason: u8,
    /// [`Outcome::MARK`], [`Outcome::COPY`], [`Outcome::CORRUPT`].
    pub flags: u8,
    /// Always 0.
    pub zero: u8,
    /// The bit of the packet to invert, from its start; modulo its length if that is less than the
    /// back end reported.
    pub bit: u32,
    /// Always 0.
    pub zero2: u32,
}

impl Outcome {
    /// The packet leaves with CE set.
    pub const MARK: u8 = 1;
    /// The packet leaves twice; its handle comes back once.
    pub const COPY: u8 = 2;
    /// The packet leaves with [`Outcome::bit`] inverted.
    pub const CORRUPT: u8 = 4;

    /// The reason, if it was dropped.
    pub fn drop(&self) -> Option<Drop> {
        (self.kind == OutcomeKind::Dropped).then(|| Drop::from_abi(self.reason))
    }

    /// The changes of the packet before it leaves.
    pub fn change(&self) -> Change {
        Change {
            mark: self.marked(),
            twice: self.copied(),
            flip: self.corrupted_bit(),
        }
    }

    /// It leaves with CE set.
    pub fn marked(&self) -> bool {
        self.flags & Outcome::MARK != 0
    }

    /// It leaves twice.
    pub fn copied(&self) -> bool {
        self.flags & Outcome::COPY != 0
    }

    /// The bit to invert, if any.
    pub fn corrupted_bit(&self) -> Option<u32> {
        (self.flags & Outcome::CORRUPT != 0).then_some(self.bit)
    }
}

/// The changes that a back end makes to a packet before it sends it; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Congestion was experienced: CE is set (RFC 3168), if the packet is ECN-capable.
    pub mark: bool,
    /// It leaves twice; its handle comes back once.
    pub twice: bool,
    /// This bit is inverted, counted from the start of the IP header. A number above the packet's
    /// size wraps.
    pub flip: Option<u32>,
}

impl Change {
    /// Only CE.
    pub const MARK: Change = Change {
        mark: true,
        twice: false,
        flip: None,
    };
}

/// Why a packet was dropped (`enum fp_refusal`, `enum fp_drop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Drop {
    /// The queue of its leaf is full.
    QueueFull = 1,
    /// Its rank is below the queue's window.
    Below = 2,
    /// Its rank is above the queue's window.
    Beyond = 3,
    /// The queue did not admit it (AIFO).
    Admission = 4,
    /// Its item was queued already: corrupted memory.
    Item = 5,
    /// There is no such queue: corrupted memory.
    Pifo = 6,
    /// A rank outside the window, which the configuration excludes.
    Rank = 7,
    /// The scheduler is full.
    Limit = 16,
    /// Its leaf is full.
    NodeLimit = 17,
    /// A packet of lower rank needed its entry.
    PushedOut = 18,
    /// The scheduler is full, and its flow is the fattest.
    Fattest = 19,
    /// Refused by the policy at enqueue.
    Refused = 20,
    /// Dropped by the policy at dequeue: CoDel.
    Policy = 21,
    /// Its send time is after the horizon.
    Horizon = 22,
    /// There is no leaf for its class.
    NoLeaf = 23,
    /// The handle is 0, too large, or in use.
    BadHandle = 24,
    /// The pool of references is used up.
    NoReference = 25,
    /// Corrupted memory.
    Broken = 26,
    /// It was removed.
    Removed = 27,
    /// Flows of other leaves wait in all entries of its set: the table of flows is too small.
    NoFlow = 28,
    /// Lost by the impairment of its leaf.
    Impaired = 29,
    /// It waited longer than [`SchedConfig::max_sojourn`].
    TooOld = 30,
    /// The next ACK of its connection reports all that it does, and more ([`SchedConfig::ack_filter`]).
    AckFiltered = 31,
}

impl Drop {
    /// All, in the order of their numbers.
    pub const ALL: [Drop; 23] = [
        Drop::QueueFull,
        Drop::Below,
        Drop::Beyond,
        Drop::Admission,
        Drop::Item,
        Drop::Pifo,
        Drop::Rank,
        Drop::Limit,
        Drop::NodeLimit,
        Drop::PushedOut,
        Drop::Fattest,
        Drop::Refused,
        Drop::Policy,
        Drop::Horizon,
        Drop::NoLeaf,
        Drop::BadHandle,
        Drop::NoReference,
        Drop::Broken,
        Drop::Removed,
        Drop::NoFlow,
        Drop::Impaired,
        Drop::TooOld,
        Drop::AckFiltered,
    ];

    fn from_abi(reason: u8) -> Drop {
        let known = Drop::ALL.into_iter().find(|drop| *drop as u8 == reason);
        known.unwrap_or(Drop::Broken)
    }

    /// Its name in counters and tables.
    pub fn name(self) -> &'static str {
        match self {
            Drop::QueueFull => "queue_full",
            Drop::Below => "below_window",
            Drop::Beyond => "beyond_window",
            Drop::Admission => "not_admitted",
            Drop::Item => "bad_item",
            Drop::Pifo => "bad_queue",
            Drop::Rank => "outside_window",
            Drop::Limit => "limit",
            Drop::NodeLimit => "node_limit",
            Drop::PushedOut => "pushed_out",
            Drop::Fattest => "fattest_flow",
            Drop::Refused => "refused",
            Drop::Policy => "policy",
            Drop::Horizon => "beyond_horizon",
            Drop::NoLeaf => "no_leaf",
            Drop::BadHandle => "bad_handle",
            Drop::NoReference => "no_reference",
            Drop::Broken => "broken",
            Drop::Removed => "removed",
            Drop::NoFlow => "no_flow",
            Drop::Impaired => "impaired",
            Drop::TooOld => "too_old",
            Drop::AckFiltered => "ack_filtered",
        }
    }
}

/// The entries of a node's queue (`enum fp_over`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Over {
    /// Leaf: a PIFO of packets.
    #[default]
    Packets = 1,
    /// Leaf: a FIFO for each flow, a PIFO of flows.
    Flows = 2,
    /// Inner: a PIFO of children that have packets.
    Children = 3,
    /// Inner: a PIFO with a reference to a child for each packet below it.
    References = 4,
}

/// The packets that a full scheduler drops (`enum fp_overflow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Overflow {
    /// The new packet.
    #[default]
    Tail = 0,
    /// From the head of the flow with the most bytes; all leaves must be over flows.
    Fattest = 1,
}

/// `struct fp_node_config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NodeConfig {
    /// 0 for the root, else a smaller id than its own.
    pub parent: u32,
    /// Number of the policy.
    pub policy: u32,
    /// The entries of the queue.
    pub over: Over,
    /// A `PifoKind`.
    pub queue: u32,
    /// Entries; 0: the maximum.
    pub queue_capacity: u32,
    /// Of a window.
    pub queue_buckets: u32,
    /// Granularity as a power of two.
    pub queue_shift: u32,
    /// For ranks below the window.
    pub queue_below: u32,
    /// For ranks above the window.
    pub queue_beyond: u32,
    /// For a full queue.
    pub queue_full: u32,
    /// Of a leaf; 0 none.
    pub limit_packets: u32,
    /// Of a leaf; 0 none.
    pub limit_bytes: u32,
    /// First of [`SPLIT`] entries in the table of splits, plus 1; 0: not by DSCP.
    pub split: u32,
    /// Of a byte for its parent.
    pub cost: u32,
    /// Of a leaf: the impairment before it, from 1; 0 none.
    pub impair: u32,
    /// Always 0.
    pub zero: u32,
    /// ns per byte << [`RATE_SHIFT`]; 0 none.
    pub floor: u64,
    /// The same.
    pub ceil: u64,
    /// ns.
    pub burst: u64,
    /// In the policy's order.
    pub params: [u64; PARAMS],
}

/// The bytes that a packet takes on a link in addition to its own (`struct fp_framing`). The default
/// adds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Framing {
    /// Bytes added to each packet.
    pub overhead: i16,
    /// Minimum bytes of a packet, with the overhead; 0 none.
    pub mpu: u16,
    /// Then the packet takes cells with this payload; 0 none.
    pub cell_payload: u16,
    /// 1: the last cell is as short as its payload.
    pub cell_partial: u16,
    /// Bytes of a full cell on the link.
    pub cell_bytes: u16,
    /// Always 0.
    pub zero: u16,
}

impl Framing {
    /// The bytes on the link of a packet of `bytes` in this many segments of equal length.
    ///
    /// ```
    /// use fairpath_core::sched::Framing;
    ///
    /// // 8 bytes of AAL5 and 48 bytes in each cell of 53 (ITU-T I.363.5).
    /// let atm = Framing { overhead: 8, ..Framing::ATM };
    /// assert_eq!(atm.link_bytes(40, 1), 53);
    /// assert_eq!(atm.link_bytes(41, 1), 106);
    /// ```
    pub fn link_bytes(&self, bytes: u32, segments: u32) -> u32 {
        super::ffi::fp_native_link_bytes(self, bytes, segments.max(1))
    }

    /// ATM: 48 bytes in each cell of 53, the last one padded.
    pub const ATM: Framing = Framing {
        overhead: 0,
        mpu: 0,
        cell_payload: 48,
        cell_partial: 0,
        cell_bytes: 53,
        zero: 0,
    };

    /// PTM: 64 bytes in 65.
    pub const PTM: Framing = Framing {
        cell_payload: 64,
        cell_partial: 1,
        cell_bytes: 65,
        ..Framing::ATM
    };
}

/// `struct fp_sched_config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SchedConfig {
    /// Handles are 1 to this.
    pub packets: u32,
    /// Full at this number.
    pub limit_packets: u32,
    /// Queues of flows.
    pub flows: u32,
    /// Entries of the table of hosts.
    pub hosts: u32,
    /// Of the tree.
    pub nodes: u32,
    /// Entries of the table class -> node.
    pub classes: u32,
    /// Entries of the table of splits.
    pub splits: u32,
    /// References to children, over all queues of [`Over::References`].
    pub references: u32,
    /// An [`Overflow`].
    pub overflow: Overflow,
    /// Full at this number; 0 none.
    pub limit_bytes: u32,
    /// Of the flow table's hash.
    pub seed: u32,
    /// 1: an [`Account`] is kept for each node.
    pub accounts: u32,
    /// A packet with a later send time is dropped; 0 none.
    pub horizon: u64,
    /// A packet that waited longer is dropped when its turn comes, unless it takes a quarter of this time at its rate, ns; 0: none.
    pub max_sojourn: u64,
    /// Of the plan.
    pub impairments: u32,
    /// Of 8 bytes: tables of impairments.
    pub words: u32,
    /// The impairment whose rate trace the root follows; 0 none.
    pub service: u32,
    /// Of the link. Back ends apply it: [`Meta::bytes`] are bytes on the link.
    pub framing: Framing,
    /// 1: in leaves over flows, a TCP ACK replaces one ahead that acknowledges less.
    pub ack_filter: u32,
    /// 1: nodes may have limits that several schedulers share ([`Scheduler::draw_from`](super::Scheduler::draw_from)).
    pub limited: u32,
}

/// Counters (`struct fp_sched_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SchedStats {
    /// Enqueued packets.
    pub enqueued: u64,
    /// Queued packets.
    pub queued: u64,
    /// Sent packets.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of them, with CE set here.
    pub marked: u64,
    /// By [`Drop`].
    pub dropped: [u64; 32],
    /// Entries ranked again without sending.
    pub put_off: u64,
    /// Packets that share their flow's queue with another flow.
    pub shared: u64,
    /// Flows whose state was evicted.
    pub state_lost: u64,
    /// Dequeues that gave up after the maximum of attempts.
    pub tries_spent: u64,
    /// Entries that the shaper returned.
    pub woken: u64,
}

/// A node's counters (`struct fp_node_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NodeStats {
    /// Waiting at this leaf.
    pub packets: u32,
    /// Their bytes.
    pub bytes: u32,
    /// Packets sent through it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped at this leaf.
    pub dropped: u64,
    /// Packets marked at this leaf.
    pub marked: u64,
    /// Packets sent because its floor was due.
    pub by_floor: u64,
}

/// Histogram of sojourn times: four bins per octave of nanoseconds, from 2^10 (1 us) to 2^34 (17
/// s). Values outside use the first or last bin.
pub const SOJOURN_BINS: usize = 96;
const SOJOURN_FIRST_OCTAVE: u32 = 10;

/// The minimum sojourn time in ns of a bin; the first begins at 0.
pub fn sojourn_of_bin(bin: usize) -> u64 {
    let octave = SOJOURN_FIRST_OCTAVE + bin as u32 / 4;
    (4 + bin as u64 % 4) << (octave - 2)
}

/// Counts of all packets of a leaf (`struct fp_account`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Account {
    /// Packets.
    pub arrived: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// By [`Drop`].
    pub dropped: [u64; 32],
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Sojourn times of sent packets by bin; these wrap.
    pub sojourn: [u32; SOJOURN_BINS],
}

impl Default for Account {
    fn default() -> Account {
        Account {
            arrived: 0,
            arrived_bytes: 0,
            dropped: [0; 32],
            dropped_bytes: 0,
            sojourn: [0; SOJOURN_BINS],
        }
    }
}
