/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/abi.h: what the scheduler shares with Rust and with its back ends, mirrored in
 * crates/model/core/src/sched/abi.rs.
 *
 * A back end (AF_XDP, NFQUEUE, a BPF qdisc, the simulator, a script) stores the packets and names
 * them by handles, 1 to `packets`. It passes operations and gets outcomes. Every handle that it
 * passes comes back exactly once: sent, or dropped with a reason.
 */
#ifndef FP_SCHED_ABI_H
#define FP_SCHED_ABI_H

#include "../runtime.h"

#define FP_SCHED_VERSION 7
#define FP_SCHED_MAGIC	 0x64637366u /* "fscd" */

/* Never, as a time or a rank. */
#define FP_NEVER (~0ull)

/* Parameters of a policy at one node. */
#define FP_PARAMS 8
/* Words of state of a policy: per flow or child, per node ("class"), per policy ("global"). */
#define FP_STATE_WORDS 8
/* Depth of a tree. */
#define FP_SCHED_LEVELS 16
/* The cost of a byte in virtual time at weight 1. */
#define FP_COST_ONE 16384
/* Rates are nanoseconds per byte, times this. */
#define FP_RATE_SHIFT 20
/* Attempts of one dequeue to find a packet: packets dropped and entries ranked again. */
#define FP_DEQUEUE_TRIES 1024
/* A packet may wait for as many of its length at its rate, even beyond max_sojourn. */
#define FP_OLD_PACKETS 4
/* Maximum of outcomes of one operation. */
#define FP_OUTCOMES_PER_OP 1056
/*
 * Maximum of packets dropped from the fattest flow at once when the scheduler is full (RFC 8290
 * section 4.1.3).
 */
#define FP_FAT_BATCH 64

/* Blocks of a SACK option (RFC 2018, section 3). */
#define FP_SACK_BLOCKS 4

/* `sched check` compiles a policy with u64 also, to find sums of bytes kept in 32 bits. */
#ifndef FP_META_BYTES
#define FP_META_BYTES u32
#endif

/* A packet as policies see it, filled in by the back end. Ports and addresses as on the wire. */
struct fp_meta {
	u64 arrival;	     /* ns */
	u64 hint;	     /* for policies that rank by the packet: bytes left, deadline, slack */
	FP_META_BYTES bytes; /* on the wire, headers of all segments included */
	u32 flow_hash;	     /* hash over addresses, protocol and ports */
	u32 class_id;	     /* number of its class, 0 none */
	u32 mark;
	u8 source[16]; /* IPv4 mapped */
	u8 destination[16];
	u16 source_port; /* host order */
	u16 destination_port;
	u8 protocol;
	u8 dscp;
	u8 ecn;
	u8 segments; /* of a GSO packet; 0 counts as 1 */
	u32 ack_flags; /* of an ACK that a later one can replace: FP_PURE_ACK and its TCP flags; else 0 */
	u32 ack;       /* what it acknowledges */
	u64 sack[FP_SACK_BLOCKS]; /* blocks beyond that: left edge << 32 | right edge; 0 none */
};

/* A TCP segment without data, and without options other than timestamps and SACK blocks. */
#define FP_PURE_ACK 0x100

/* Why a packet was dropped. 1 to 15: refused by a queue (enum fp_refusal). */
enum fp_drop {
	FP_DROP_NONE = 0,
	FP_DROP_LIMIT = 16,   /* the scheduler is full */
	FP_DROP_NODE_LIMIT,   /* its leaf is full */
	FP_DROP_PUSHED_OUT,   /* a packet with a lower rank needed its entry */
	FP_DROP_FATTEST,      /* the scheduler is full and its flow is the fattest */
	FP_DROP_REFUSED,      /* by the policy at enqueue */
	FP_DROP_POLICY,	      /* by the policy at dequeue: CoDel */
	FP_DROP_HORIZON,      /* its send time is too late */
	FP_DROP_NO_LEAF,      /* no leaf for its class */
	FP_DROP_BAD_HANDLE,   /* 0, too large, or queued already */
	FP_DROP_NO_REFERENCE, /* no free reference */
	FP_DROP_BROKEN,	      /* corrupted memory */
	FP_DROP_REMOVED,      /* by FP_OP_REMOVE */
	FP_DROP_NO_FLOW,      /* flows of other leaves wait in all entries of its set */
	FP_DROP_IMPAIRED,     /* lost by the impairment of its leaf */
	FP_DROP_TOO_OLD,      /* it waited longer than max_sojourn */
	FP_DROP_ACK_FILTERED, /* a later ACK of its connection has all that it has */
	FP_DROP_REASONS,
};

enum fp_op_kind {
	FP_OP_ENQUEUE = 1, /* handle, meta */
	FP_OP_DEQUEUE = 2, /* up to `count` packets, or until `value` bytes (0: no limit) */
	FP_OP_PARAM = 3,   /* node, index `count`, value */
	FP_OP_WEIGHT = 4,  /* of flow `handle` at `node`: cost of a byte `value`, of FP_COST_ONE */
	FP_OP_REMOVE = 5,  /* removes packet `handle` from any queue */
	FP_OP_NODE = 6,	   /* node, enum fp_setting `count`, value as in fp_node_config */
	FP_OP_IMPAIR = 7,  /* impairment `node`, word `count` of fp_impair_config, value */
};

/*
 * Settings of FP_OP_NODE; effective when the node is ranked next. If its floor or ceiling changes,
 * that is now: a node that waits for a time of the old rate gets one of the new rate.
 */
enum fp_setting {
	FP_SET_COST = 0, /* not 0 */
	FP_SET_FLOOR = 1,
	FP_SET_CEIL = 2,
	FP_SET_BURST = 3,
};

struct fp_op {
	u64 now; /* ns, never decreasing */
	u64 value;
	u32 kind;
	u32 handle;
	u32 count;
	u32 node;
	struct fp_meta meta;
};

enum fp_outcome_kind {
	FP_QUEUED = 1,	/* rank as given at its leaf */
	FP_SENT = 2,	/* rank: as above; sojourn */
	FP_DROPPED = 3, /* reason */
	FP_NOTHING = 4, /* nothing may leave; `at`: time of the next call, FP_NEVER if empty */
	FP_DONE = 5,	/* FP_OP_PARAM, FP_OP_WEIGHT, FP_OP_NODE, FP_OP_IMPAIR */
	FP_FAILED = 6,	/* no such node, parameter or packet */
};

#define FP_OUTCOME_MARK	   1 /* sent: set CE */
#define FP_OUTCOME_COPY	   2 /* sent: send it twice */
#define FP_OUTCOME_CORRUPT 4 /* sent: invert one bit, `bit` */

struct fp_outcome {
	u64 rank;
	u64 at; /* queued: its send time; nothing: time of the next call; else its sojourn in ns */
	u32 op; /* index of the operation */
	u32 handle;
	u32 node;  /* its leaf */
	u8 kind;   /* enum fp_outcome_kind */
	u8 reason; /* enum fp_drop or fp_refusal */
	u8 flags;  /* FP_OUTCOME_* */
	u8 zero;
	u32 bit; /* of the packet, from its beginning; modulo its length if that is shorter */
	u32 zero2;
};

/* The entries of the queue of a node. */
enum fp_over {
	FP_OVER_PACKETS = 1,  /* leaf: a PIFO of packets */
	FP_OVER_FLOWS = 2,    /* leaf: a FIFO each flow, a PIFO of flows */
	FP_OVER_CHILDREN = 3, /* inner: a PIFO of children that have packets */
	FP_OVER_REFERENCES =
		4, /* inner: a PIFO with a reference to a child for each packet below */
};

/* The packets that a full scheduler drops. */
enum fp_overflow {
	FP_OVERFLOW_TAIL = 0,	 /* the new packet */
	FP_OVERFLOW_FATTEST = 1, /* from the head of the flow (or leaf) with the most bytes */
};

/* A node as user space describes it: ids from 1, parents before children, 1 is the root. */
struct fp_node_config {
	u32 parent;
	u32 policy;
	u32 over;	    /* enum fp_over */
	u32 queue;	    /* enum fp_pifo_kind */
	u32 queue_capacity; /* entries; 0: the maximum */
	u32 queue_buckets;
	u32 queue_shift; /* granularity, as a power of two; FP_AIFO: headroom, in parts of 256 */
	u32 queue_below; /* enum fp_pifo_policy */
	u32 queue_beyond;
	u32 queue_full;
	u32 limit_packets; /* of a leaf; 0 none */
	u32 limit_bytes;
	u32 split; /* first of 64 children by DSCP in the table of splits, plus 1; 0: not split */
	u32 cost; /* of a byte for its parent: FP_COST_ONE * the heaviest sibling's weight / its own */
	u32 impair; /* of a leaf: the impairment before it, from 1; 0 none */
	u32 zero;
	u64 floor; /* ns a byte << FP_RATE_SHIFT; 0 no floor */
	u64 ceil;  /* the same; 0 no ceiling */
	u64 burst; /* ns that it may be ahead of its ceiling or behind its floor */
	u64 params[FP_PARAMS];
};

/*
 * Bytes of a packet on the link in addition to its own: framing.h. As words, it equals two of 32
 * bits, overhead and cell_payload, and cell_bytes.
 */
struct fp_framing {
	u16 overhead;	  /* bytes, signed */
	u16 mpu;	  /* bytes at least, with the overhead; 0 none */
	u16 cell_payload; /* then the packet takes cells; 0 none */
	u16 cell_partial; /* 1: the last cell is as short as its payload */
	u16 cell_bytes;	  /* of a full cell */
	u16 zero;
};

struct fp_sched_config {
	u32 packets;	   /* handles are 1 to this */
	u32 limit_packets; /* full at this number; at most `packets` */
	u32 flows;	   /* rounded up to sets of 8 */
	u32 hosts;
	u32 nodes;
	u32 classes; /* entries of the class table: class -> leaf */
	u32 splits;  /* entries of the table of splits */
	u32 references;
	u32 overflow;	 /* enum fp_overflow */
	u32 limit_bytes; /* the same; 0 none */
	u32 seed;
	u32 accounts; /* 1: struct fp_account is kept for each node */
	u64 horizon;  /* ns; a packet with a later send time is dropped. 0: none */
	/* ns; a packet that waited longer is dropped when its turn comes. 0: none */
	u64 max_sojourn;
	u32 impairments;
	u32 words;		   /* of 8 bytes: tables of impairments */
	u32 service;		   /* the impairment whose rate trace the root follows; 0 none */
	struct fp_framing framing; /* of the link, for back ends: they pass bytes on the link */
	u32 ack_filter;		   /* 1: in leaves over flows, an ACK replaces the one ahead */
	u32 limited;		   /* 1: nodes may have limits that several schedulers share */
};

/* Counters, sums since the start. */
struct fp_sched_stats {
	u64 enqueued; /* operations that passed a packet */
	u64 queued;
	u64 sent;
	u64 sent_bytes;
	u64 marked;
	u64 dropped[32]; /* by reason */
	u64 put_off;	 /* entries ranked again without sending */
	u64 shared;	 /* packets that share a flow's queue with another flow */
	u64 state_lost;	 /* flows whose state was evicted */
	u64 tries_spent; /* dequeues that gave up after FP_DEQUEUE_TRIES */
	u64 woken;	 /* entries that the shaper returned */
};

/* Limits of a node in struct fp_limits, from 1; 0: its own rates. */
struct fp_limited {
	u32 ceil;
	u32 floor;
};

/* A node's counters and content. */
struct fp_node_stats {
	u32 packets;
	u32 bytes;
	u64 sent;
	u64 sent_bytes;
	u64 dropped;
	u64 marked;
	u64 by_floor; /* packets sent because the floor was due */
};

/* Histogram of sojourn times: four bins per octave, from 2^10 ns (1 us) to 2^34 ns (17 s). */
#define FP_SOJOURN_FIRST   10
#define FP_SOJOURN_OCTAVES 24
#define FP_SOJOURN_BINS	   (4 * FP_SOJOURN_OCTAVES)

/*
 * Counts of all packets of a leaf. Those of an inner node, or of number 0, are of packets of the past:
 * of nodes below that a handover ended. Number 0 also has bad handles and packets without a leaf.
 */
struct fp_account {
	u64 arrived;
	u64 arrived_bytes;
	u64 dropped[32]; /* by reason */
	u64 dropped_bytes;
	u32 sojourn[FP_SOJOURN_BINS]; /* of those sent; these wrap */
};

#endif /* FP_SCHED_ABI_H */
