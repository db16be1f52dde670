/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/policy_types.h: the interface between policies and the scheduler. Policies include
 * policy.h.
 */
#ifndef FP_POLICY_TYPES_H
#define FP_POLICY_TYPES_H

#include "../pifo/item.h"
#include "abi.h"

#define FP_POLICY_VERSION 1

enum fp_function {
	FP_RANK_ENQUEUE = 0,
	FP_RANK_DEQUEUE = 1,
	FP_SEND_TIME = 2,
	FP_ON_DROP = 3,
};

/* Input and output of a call. */
struct fp_call {
	/* in */
	u64 now;
	u64 rank;	/* at which flow or child waits; at dequeue of a packet, its own */
	u64 sojourn;	/* dequeue: ns that the packet has waited */
	u64 floor;	/* of the child: ns a byte << FP_RATE_SHIFT; 0 none */
	u64 ceil;	/* the same */
	u64 burst;	/* ns that the child may be ahead */
	u64 next_hint;	/* dequeue: p->hint of the next packet of the same flow */
	u32 next_bytes; /* its length, 0 if there is none */
	u32 cost;    /* of a byte in virtual time: FP_COST_ONE over the weight of a flow; of a child
		   * times the weight of its heaviest sibling */
	u32 packets; /* waiting in flow or leaf, including this one */
	u32 bytes;
	u32 queue_packets; /* waiting in the leaf */
	u32 queue_bytes;
	u32 hosts;	/* waiting flows of the busier of the packet's two hosts; at least 1 */
	u32 backlogged; /* enqueue: flow or child is waiting in the queue already; 0 of packets */
	u32 by_floor;	/* dequeue: chosen because its floor was due */
	u32 reason;	/* ON_DROP: enum fp_drop */
	u32 over;	/* enum fp_over: of the queue */
	u32 waiting;	/* entries in the node's queue that may leave now */
	/* out */
	u64 due; /* time from which it precedes all ranks; NEVER (the initial value): by rank only */
	u32 verdict;
	u32 zero;
	u64 zero2;
};

_Static_assert(sizeof(struct fp_call) == 128, "sixteen words");

enum {
	SEND = 0,
	DROP = 1,   /* RANK_ENQUEUE, RANK_DEQUEUE of a leaf: this packet */
	LATER = 2,  /* RANK_DEQUEUE over flows: not now, wait at the new rank */
	MARK = 4,   /* with SEND: set CE */
	LINGER = 8, /* with SEND, or for an empty flow: keep the turn, at the new rank */
};

/* RANK_ENQUEUE: a waiting flow stays where it is. */
#define KEEP  (~0ull - 1)
#define NEVER FP_NEVER

/* The entries that the policy can rank. */
#define PACKETS	   (1u << FP_OVER_PACKETS)
#define FLOWS	   (1u << FP_OVER_FLOWS)
#define CHILDREN   (1u << FP_OVER_CHILDREN)
#define REFERENCES (1u << FP_OVER_REFERENCES)

/* Only policies that want it get r->hosts, which costs two lookups per packet. Over flows only. */
#define WANTS_HOSTS 1
/* Entries may be due (r->due): a second queue. Over children only. */
#define WANTS_DUE 2
/*
 * A flow keeps its turn after its last packet left or was dropped. If it is still empty at its
 * turn, RANK_DEQUEUE is called again (r->packets is 0, p is empty) and the flow ends unless the
 * verdict is LINGER.
 */
#define WANTS_EMPTY 4
/*
 * Entries become eligible at r->due of the node's own virtual time, the first word of its state
 * after the parameters. If none is eligible, virtual time jumps to the lowest. Over children only.
 */
#define WANTS_ELIGIBLE 8

/* A parameter: what `fairpath sched show` prints and `set` checks. */
struct fp_param {
	char name[24];
	char unit[16]; /* "ns", "bytes", "bps" (stored as ns a byte << FP_RATE_SHIFT), "packets", ""
			*/
	char about[104];
	u64 min;
	u64 most;
	u64 standard;
};

/* The queue that a policy uses unless the tree sets another (enum fp_pifo_kind). */
struct fp_policy_queue {
	u32 kind;
	u32 buckets;
	u32 shift;
	u32 full;
};

struct fp_policy {
	u32 version; /* FP_POLICY_VERSION */
	u32 over;    /* PACKETS, FLOWS ... that it can rank */
	u32 usual;   /* one of FP_OVER_* */
	u32 wants;   /* WANTS_* */
	u32 zero;
	u32 flow_bytes; /* of its state */
	u32 class_bytes;
	u32 global_bytes;
	char name[24];
	char about[160];
	char source[160]; /* paper or RFC */
	struct fp_policy_queue queue;
	struct fp_param params[FP_PARAMS];
};

/*
 * The state of a node begins with its parameters: `struct class { PARAMS; ... };`, read as
 * c->param[QUANTUM].
 */
#define PARAMS u64 param[FP_PARAMS]

#endif /* FP_POLICY_TYPES_H */
