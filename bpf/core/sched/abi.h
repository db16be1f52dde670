/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/abi.h: what the scheduler shares with Rust and with its ports, mirrored in
 * crates/model/core/src/sched/abi.rs.
 *
 * A port (AF_XDP, NFQUEUE, a BPF qdisc, the simulator, a script) keeps the packets and names them
 * by handles, 1 to `packets`. It says what happens as operations and gets outcomes; every handle
 * that it gave comes back exactly once: sent, or dropped with its reason.
 */
#ifndef FP_SCHED_ABI_H
#define FP_SCHED_ABI_H

#include "../runtime.h"

#define FP_SCHED_VERSION 2
#define FP_SCHED_MAGIC	 0x64637366u /* "fscd" */

/* Never, as a time or a rank. */
#define FP_NEVER (~0ull)

/* Parameters of a policy at one node. */
#define FP_PARAMS 8
/* Words of a policy's state: of a flow or child, of a node ("class"), of the policy ("global"). */
#define FP_STATE_WORDS 8
/* From root to leaf. */
#define FP_SCHED_LEVELS 16
/* The weight 1, inverted: what a byte costs in virtual time. */
#define FP_COST_ONE 16384
/* Rates are nanoseconds a byte, times this. */
#define FP_RATE_SHIFT 20
/* Tries at one dequeue to find a packet: packets dropped and entries put off. */
#define FP_DEQUEUE_TRIES 1024
/* Outcomes that one operation gives at most. */
#define FP_OUTCOMES_PER_OP 1056
/* Packets that leave the fattest flow at once when the scheduler is full (RFC 8290 section 4.1.3).
 */
#define FP_FAT_BATCH 64

/* A packet as policies see it; the port fills it in. Ports and addresses as on the wire. */
struct fp_meta {
	u64 arrival;   /* ns */
	u64 hint;      /* what ranks by the packet itself read: bytes left, deadline, slack */
	u32 bytes;     /* on the wire, headers of all segments included */
	u32 flow_hash; /* hash over addresses, protocol and ports */
	u32 class_id;  /* number of its class, 0 none */
	u32 mark;
	u8 source[16]; /* IPv4 mapped */
	u8 destination[16];
	u16 source_port; /* host order */
	u16 destination_port;
	u8 protocol;
	u8 dscp;
	u8 ecn;
	u8 segments; /* of a GSO packet; 0 counts as 1 */
	u32 zero;
	u32 zero2;
};

/* Why a packet was dropped. 1 to 15: refused by a queue (enum fp_refusal). */
enum fp_drop {
	FP_DROP_NONE = 0,
	FP_DROP_LIMIT = 16,   /* the scheduler is full */
	FP_DROP_NODE_LIMIT,   /* its leaf is full */
	FP_DROP_PUSHED_OUT,   /* a better-ranked packet took its place */
	FP_DROP_FATTEST,      /* the scheduler is full and its flow the fattest */
	FP_DROP_REFUSED,      /* by the policy, at enqueue */
	FP_DROP_POLICY,	      /* by the policy, at dequeue: CoDel */
	FP_DROP_HORIZON,      /* its send time is too far away */
	FP_DROP_NO_LEAF,      /* no leaf for its class */
	FP_DROP_BAD_HANDLE,   /* 0, too large, or queued already */
	FP_DROP_NO_REFERENCE, /* the pool of references is used up */
	FP_DROP_BROKEN,	      /* the tree contradicts itself: corrupted memory */
	FP_DROP_REMOVED,      /* by FP_OP_REMOVE */
	FP_DROP_NO_FLOW,      /* flows of other leaves wait in all places that its flow may have */
	FP_DROP_IMPAIRED,     /* lost by the impairment of its leaf */
	FP_DROP_REASONS,
};

enum fp_op_kind {
	FP_OP_ENQUEUE = 1, /* handle, meta */
	FP_OP_DEQUEUE = 2, /* up to `count` packets, or until `value` bytes (0: no limit) */
	FP_OP_PARAM = 3,   /* node, index `count`, value */
	FP_OP_WEIGHT = 4,  /* of flow `handle` at `node`: cost of a byte `value`, of FP_COST_ONE */
	FP_OP_REMOVE = 5,  /* takes packet `handle` out, wherever it is */
	FP_OP_NODE = 6,	   /* node, enum fp_setting `count`, value as in fp_node_config */
	FP_OP_IMPAIR = 7,  /* impairment `node`, word `count` of fp_impair_config, value */
};

/* What FP_OP_NODE sets; it holds from the next time that the node is ranked. */
enum fp_setting {
	FP_SET_COST = 0, /* not 0 */
	FP_SET_FLOOR = 1,
	FP_SET_CEIL = 2,
	FP_SET_BURST = 3,
};

struct fp_op {
	u64 now; /* ns, never going back */
	u64 value;
	u32 kind;
	u32 handle;
	u32 count;
	u32 node;
	struct fp_meta meta;
};

enum fp_outcome_kind {
	FP_QUEUED = 1,	/* rank as given at its leaf */
	FP_SENT = 2,	/* rank: also; sojourn */
	FP_DROPPED = 3, /* reason */
	FP_NOTHING = 4, /* nothing may leave; `at`: when to ask again, FP_NEVER if empty */
	FP_DONE = 5,	/* FP_OP_PARAM, FP_OP_WEIGHT, FP_OP_NODE, FP_OP_IMPAIR */
	FP_FAILED = 6,	/* no such node, parameter or packet */
};

#define FP_OUTCOME_MARK	   1 /* sent: set CE */
#define FP_OUTCOME_COPY	   2 /* sent: send it twice */
#define FP_OUTCOME_CORRUPT 4 /* sent: turn over one bit, `bit` */

struct fp_outcome {
	u64 rank;
	u64 at; /* queued: its send time; nothing: when to ask again; else its sojourn in ns */
	u32 op; /* index of the operation */
	u32 handle;
	u32 node;  /* its leaf */
	u8 kind;   /* enum fp_outcome_kind */
	u8 reason; /* enum fp_drop or fp_refusal */
	u8 flags;  /* FP_OUTCOME_* */
	u8 zero;
	u32 bit; /* of the packet, from its beginning; modulo its length where that is less */
	u32 zero2;
};

/* What the entries of a node's queue are. */
enum fp_over {
	FP_OVER_PACKETS = 1,  /* leaf: a PIFO of packets */
	FP_OVER_FLOWS = 2,    /* leaf: a FIFO each flow, a PIFO of flows */
	FP_OVER_CHILDREN = 3, /* inner: a PIFO of children that have packets */
	FP_OVER_REFERENCES =
		4, /* inner: a PIFO with a reference to a child for each packet below */
};

/* Whom a full scheduler drops. */
enum fp_overflow {
	FP_OVERFLOW_TAIL = 0,	 /* who comes */
	FP_OVERFLOW_FATTEST = 1, /* from the head of the flow (or leaf) with the most bytes */
};

/* A node as user space describes it; ids from 1, parents before children, 1 is the root. */
struct fp_node_config {
	u32 parent;
	u32 policy;
	u32 over;	    /* enum fp_over */
	u32 queue;	    /* enum fp_pifo_kind */
	u32 queue_capacity; /* entries; 0: as many as there can be */
	u32 queue_buckets;
	u32 queue_shift; /* granularity, as a power of two; FP_AIFO: headroom, in parts of 256 */
	u32 queue_below; /* enum fp_pifo_policy */
	u32 queue_beyond;
	u32 queue_full;
	u32 limit_packets; /* of a leaf; 0 none */
	u32 limit_bytes;
	u32 split; /* first of 64 children by DSCP in the table of splits plus 1; 0: no splitting */
	u32 cost;  /* of a byte as its parent sees it: FP_COST_ONE over its weight */
	u32 impair; /* of a leaf: the impairment before it, from 1; 0 none */
	u32 zero;
	u64 floor; /* ns a byte << FP_RATE_SHIFT; 0 no floor */
	u64 ceil;  /* the same; 0 no ceiling */
	u64 burst; /* ns that it may run ahead of its ceiling and behind its floor */
	u64 params[FP_PARAMS];
};

struct fp_sched_config {
	u32 packets;	   /* handles are 1 to this */
	u32 limit_packets; /* full from here on; at most `packets` */
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
	u64 horizon;  /* ns; a send time further away is dropped. 0: none */
	u32 impairments;
	u32 words;   /* of 8 bytes: what impairments look up */
	u32 service; /* the impairment by whose rate trace the root sends; 0 none */
	u32 zero;
};

/* Counters, sums since the start. */
struct fp_sched_stats {
	u64 enqueued; /* operations that gave a packet */
	u64 queued;
	u64 sent;
	u64 sent_bytes;
	u64 marked;
	u64 dropped[32]; /* by reason */
	u64 put_off;	 /* entries re-ranked without sending */
	u64 shared;	 /* packets that share a flow's queue with another flow */
	u64 state_lost;	 /* flows whose state was evicted to another's */
	u64 tries_spent; /* dequeues that gave up after FP_DEQUEUE_TRIES */
	u64 woken;	 /* entries that the shaper gave back */
};

/* A node's counters and content. */
struct fp_node_stats {
	u64 sent;
	u64 sent_bytes;
	u64 dropped;
	u64 marked;
	u64 by_floor; /* packets sent because the floor was due */
	u32 packets;
	u32 bytes;
};

/* Sojourns are binned, four to an octave of ns, from 2^10 (1 us) to 2^34 (17 s). */
#define FP_SOJOURN_FIRST   10
#define FP_SOJOURN_OCTAVES 24
#define FP_SOJOURN_BINS	   (4 * FP_SOJOURN_OCTAVES)

/* What became of all packets that came to a leaf; 0 is nobody's: bad handles, no leaf. */
struct fp_account {
	u64 came;
	u64 came_bytes;
	u64 dropped[32]; /* by reason */
	u64 dropped_bytes;
	u32 sojourn[FP_SOJOURN_BINS]; /* of those sent; these wrap */
};

#endif /* FP_SCHED_ABI_H */
