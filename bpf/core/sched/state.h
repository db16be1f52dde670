/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/state.h: the memory of one scheduler.
 *
 *   fp_sched   header
 *   packets    by handle
 *   flows      by 8
 *   hosts      by 8
 *   nodes      tree
 *   references
 *   classes    -> leaf
 *   splits     DSCP
 *   accounts   if asked
 *   limited    if asked: shared limits of nodes
 *   impairments
 *   words      what these look up
 *   wheel      due times: slots, then for each node the next one in its slot
 *   queues     fp_pool
 *
 * Everything is addressed by offsets from the header. Items of the pool stand for packets, flows,
 * nodes and references, each with the number of its object, so nothing is allocated:
 *
 *   1 .. P | P+1 .. P+F | .. +N | .. +R      | .. +N          | .. +F
 *   packet | flow       | node  | reference  | node, when due | flow, by its bytes
 *
 * A waiting flow or node is in one queue: that of its node (its parent), or the shaper. A packet
 * that was not released to its leaf is in the delay queue.
 */
#ifndef FP_SCHED_STATE_H
#define FP_SCHED_STATE_H

#include "../limit/limit.h"
#include "../pifo/pifo.h"
#include "impair.h"
#include "policy_types.h"

#define FP_FLOW_WAYS 8
/*
 * Queues: the shaper, flows by bytes, the delay queue, then for each node its queue by rank, then
 * for each node its queue by due time.
 */
#define FP_SHAPER      1
#define FP_FAT	       2
#define FP_DELAY_QUEUE 3
/* The wheel: slots of 2^20 ns, which is 1 ms. */
#define FP_DUE_SLOTS 1024
#define FP_DUE_SHIFT 20
/* Bands of FP_FAT: two per octave, the fattest flows first. */
#define FP_FAT_BANDS 64
/* Policies by number; custom policies have the last eight. */
#define FP_POLICIES_MAX 32
#define FP_CUSTOM	24

/* A packet; its handle is its index. */
struct fp_slot {
	u64 enqueued; /* ns */
	u64 rank;
	u32 leaf; /* 0: the handle is free */
	u32 flow; /* 0: its leaf has no flows */
	u32 next; /* in its flow */
	u32 prev;
	u32 bit;      /* to be inverted */
	u32 impaired; /* FP_OUTCOME_*, FP_IMPAIRED_DELAYED; from bit 8: additional bytes on the link */
	u64 order;    /* of arrival */
	struct fp_meta meta;
	u64 pad[4];
};

/* In the delay queue. */
#define FP_IMPAIRED_DELAYED 0x80u
/* Maximum of additional bytes on the link. */
#define FP_IMPAIRED_MORE 0xffffffu

/* The queue of a flow, or the state of a flow under a packet policy. */
struct fp_fq {
	u32 leaf; /* 0: never used */
	u32 hash;
	u32 head;
	u32 tail;
	u32 packets;
	u32 bytes;
	u32 cost;   /* of a byte: FP_COST_ONE over its weight */
	u32 source; /* hosts; 0 if not counted */
	u32 destination;
	u32 zero;
	u64 used; /* last use, in packets that arrived; 0: never */
	u64 rank; /* while in the shaper */
	u64 pad;
	u64 state[FP_STATE_WORDS];
};

/* Waiting flows of one host at one leaf. */
struct fp_host {
	u32 tag; /* hash of leaf and address */
	u32 flows;
};

struct fp_reference {
	u32 child;
	u32 leaf;
	u32 next; /* free */
	u32 zero;
	u64 rank;
};

/* The part of fp_node_config that packets need; its parameters are in `class`. */
struct fp_node_settings {
	u32 parent;
	u8 policy;
	u8 over;
	u8 supports_flows;
	u8 undo; /* a packet may be refused after ranks were computed */
	u32 impair;
	u32 split;
	u32 limit_packets;
	u32 limit_bytes;
	u32 cost;
	u32 wants; /* of its policy */
	u64 floor;
	u64 ceil;
	u64 burst;
};

/* Five lines. A packet needs the first three of its leaf, and of the nodes above. */
struct fp_node {
	struct fp_node_settings config;
	u32 due_slot;  /* in the wheel (due.h); 0: not there */
	u8 functions;  /* bits of fp_function that its policy has */
	u8 due_queued; /* in the queue of due times of its parent */
	u8 continues;  /* of a handover: as a node of the new tree */
	u8 zero;
	struct fp_node_stats stats;
	u64 rank; /* while in the shaper */
	u64 due;
	u64 child[FP_STATE_WORDS];	       /* its state as a child of its parent */
	u64 class[FP_PARAMS + FP_STATE_WORDS]; /* parameters, then state */
};

_Static_assert(sizeof(struct fp_node) == 320, "five cache lines");
_Static_assert(sizeof(struct fp_slot) == 192, "three cache lines");
_Static_assert(sizeof(struct fp_fq) == 128, "two cache lines");

/* Entries of due times that have not come, by slots (due.h). */
struct fp_wheel {
	u64 bits[FP_DUE_SLOTS / 64]; /* bit set <=> the slot has entries */
	u32 first[FP_DUE_SLOTS];     /* a child */
};

/* The state to restore if a push is refused halfway up the tree. */
struct fp_undo {
	u32 node;      /* node of the queue, 0: nothing here */
	u32 reference; /* pushed into it, or delayed; 0 none */
	u64 flow_at;   /* offset of the state of flow or child */
	u64 flow[FP_STATE_WORDS];
	u64 class[FP_STATE_WORDS];
	u64 global[FP_STATE_WORDS];
};

struct fp_sched {
	u32 magic;
	u32 version;
	u64 bytes;
	struct fp_sched_config config;
	u64 pool_at;
	u64 packets_at;
	u64 flows_at;
	u64 hosts_at;
	u64 nodes_at;
	u64 references_at;
	u64 classes_at;
	u64 splits_at;
	u64 accounts_at;
	u64 impairments_at;
	u64 words_at;
	u64 wheel_at;
	u64 wheel_next_at;
	u64 limited_at;
	u64 limits_at; /* offset of struct fp_limits, outside of the scheduler; 0 none */
	u32 limit_cpu; /* whose pools are those of this scheduler */
	u32 zero3;
	/* operations of a test run, and where outcomes go */
	u64 ops_at;
	u64 outcomes_at;
	u32 ops;
	u32 op; /* the next */
	u32 outcomes;
	u32 outcomes_most;
	u64 custom;		  /* of the native runtime: what runs its custom policies */
	struct fp_hash_keys hash; /* from config.seed */
	/* now */
	u64 now;
	u64 arrived; /* packets */
	u32 packets;
	u32 bytes_waiting;
	u32 delayed; /* packets in the delay queue; not among `packets` */
	u32 lost;    /* scratch: whether the new packet is lost */
	u32 impair;  /* scratch: impairment before the leaf of the new packet; 0 none */
	u32 zero;
	u32 free_reference;
	u32 free_references;
	u64 due_slot;	 /* of the wheel: slots up to this one have come */
	u64 due_words;	 /* bit set <=> the word of its bits is not 0 */
	u32 due_rest;	 /* entries of a slot that has come remain in it */
	u32 has_packets; /* scratch: packets wait below the child in question, of shared limits */
	/* scratch */
	u64 flow_at; /* offset of the state that the policy gets as f */
	u64 at;	     /* when the new packet may leave, or be released */
	u64 number;  /* of the new packet, at its impairment */
	u32 handle;  /* of the packet in question */
	u32 undone;  /* step of undo */
	u32 upwards; /* a child to activate in its parent */
	u32 depth;
	u32 marked;		    /* the packet that leaves gets CE */
	u32 wanted;		    /* packets that this operation may still send */
	u32 path[FP_SCHED_LEVELS];  /* nodes from the root on */
	u32 entry[FP_SCHED_LEVELS]; /* items chosen in their queues */
	u32 by_floor[FP_SCHED_LEVELS];
	struct fp_call call;
	struct fp_sched_stats stats;
	u64 nobody[FP_STATE_WORDS]; /* f if there is none */
	u64 global[FP_POLICIES_MAX][FP_STATE_WORDS];
	struct fp_undo undo[FP_SCHED_LEVELS];
};

FP_INLINE struct fp_pool FP_MEM *fp_pool_of(struct fp_sched FP_MEM *s)
{
	return FP_AT(struct fp_pool, s, s->pool_at);
}

/* Every number read from memory is checked: an invalid one becomes 0, which no object uses. */
FP_INLINE struct fp_slot FP_MEM *fp_slot_at(struct fp_sched FP_MEM *s, u32 handle)
{
	if (handle > s->config.packets)
		handle = 0;
	return FP_AT(struct fp_slot, s, s->packets_at + (u64)handle * sizeof(struct fp_slot));
}

/*
 * Entries of flows: those of the table, then one that is reserved for each node. So a leaf with a
 * packet has an entry, whatever other leaves have.
 */
FP_INLINE u32 fp_flow_entries(const struct fp_sched_config FP_MEM *c)
{
	return c->flows + c->nodes;
}

FP_INLINE struct fp_fq FP_MEM *fp_fq_at(struct fp_sched FP_MEM *s, u32 flow)
{
	if (flow > fp_flow_entries(&s->config))
		flow = 0;
	return FP_AT(struct fp_fq, s, s->flows_at + (u64)flow * sizeof(struct fp_fq));
}

FP_INLINE struct fp_host FP_MEM *fp_host_at(struct fp_sched FP_MEM *s, u32 host)
{
	if (host > s->config.hosts)
		host = 0;
	return FP_AT(struct fp_host, s, s->hosts_at + (u64)host * sizeof(struct fp_host));
}

FP_INLINE struct fp_node FP_MEM *fp_node_at(struct fp_sched FP_MEM *s, u32 node)
{
	if (node > s->config.nodes)
		node = 0;
	return FP_AT(struct fp_node, s, s->nodes_at + (u64)node * sizeof(struct fp_node));
}

FP_INLINE struct fp_reference FP_MEM *fp_reference_at(struct fp_sched FP_MEM *s, u32 reference)
{
	if (reference > s->config.references)
		reference = 0;
	return FP_AT(struct fp_reference, s,
		     s->references_at + (u64)reference * sizeof(struct fp_reference));
}

/* Only valid if config.accounts is set. */
FP_INLINE struct fp_account FP_MEM *fp_account_at(struct fp_sched FP_MEM *s, u32 node)
{
	if (node > s->config.nodes)
		node = 0;
	return FP_AT(struct fp_account, s, s->accounts_at + (u64)node * sizeof(struct fp_account));
}

/* Only valid if config.limited is set. */
FP_INLINE struct fp_limited FP_MEM *fp_limited_at(struct fp_sched FP_MEM *s, u32 node)
{
	if (node > s->config.nodes)
		node = 0;
	return FP_AT(struct fp_limited, s, s->limited_at + (u64)node * sizeof(struct fp_limited));
}

FP_INLINE struct fp_impair FP_MEM *fp_impair_at(struct fp_sched FP_MEM *s, u32 impair)
{
	if (impair > s->config.impairments)
		impair = 0;
	return FP_AT(struct fp_impair, s,
		     s->impairments_at + (u64)impair * sizeof(struct fp_impair));
}

/* The items of objects. */
FP_INLINE u32 fp_flow_item(const struct fp_sched FP_MEM *s, u32 flow)
{
	return s->config.packets + flow;
}

FP_INLINE u32 fp_node_item(const struct fp_sched FP_MEM *s, u32 node)
{
	return s->config.packets + fp_flow_entries(&s->config) + node;
}

FP_INLINE u32 fp_reference_item(const struct fp_sched FP_MEM *s, u32 reference)
{
	return fp_node_item(s, s->config.nodes) + reference;
}

FP_INLINE u32 fp_due_item(const struct fp_sched FP_MEM *s, u32 node)
{
	return fp_reference_item(s, s->config.references) + node;
}

FP_INLINE u32 fp_fat_item(const struct fp_sched FP_MEM *s, u32 flow)
{
	return fp_due_item(s, s->config.nodes) + flow;
}

FP_INLINE u32 fp_items(const struct fp_sched_config FP_MEM *c)
{
	return c->packets + 2 * fp_flow_entries(c) + 2 * c->nodes + c->references;
}

FP_INLINE u32 fp_queue_of(u32 node)
{
	return FP_DELAY_QUEUE + node;
}

FP_INLINE u32 fp_due_queue_of(const struct fp_sched FP_MEM *s, u32 node)
{
	return FP_DELAY_QUEUE + s->config.nodes + node;
}

/* The number of entries in the queue of node `n` that may leave, eligible or not. */
FP_INLINE u32 fp_waiting_at(struct fp_sched FP_MEM *s, u32 node, const struct fp_node FP_MEM *n)
{
	u32 count = fp_pifo_at(fp_pool_of(s), fp_queue_of(node))->count;

	if (!count && (n->config.wants & WANTS_ELIGIBLE))
		count = fp_pifo_at(fp_pool_of(s), fp_due_queue_of(s, node))->count;
	return count;
}

FP_INLINE u32 fp_waiting(struct fp_sched FP_MEM *s, u32 node)
{
	return fp_waiting_at(s, node, fp_node_at(s, node));
}

#endif /* FP_SCHED_STATE_H */
