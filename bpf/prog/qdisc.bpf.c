// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * qdisc.bpf.c: the scheduler as a qdisc (BPF qdisc, Linux 6.16 and newer).
 *
 *   enqueue  parses, classifies, calls the scheduler; stores the packet in a slot under its
 *            handle
 *   dequeue  calls the scheduler and takes the packet from its slot; sets a timer if none may
 *            leave
 *   reset  frees every waiting packet
 *
 *   arena: [ fp_qdisc ][ operation, outcomes ][ handles ][ posts ][ log ][ half 0 ][ half 1 ]
 *                                              a half: a scheduler, the rules of its classes
 *
 * Packets (skbs) are in a map of pointers, by handle. Everything else is in the arena, as in the
 * other runtimes. Nothing here needs user space, which may have ended. User space changes shared
 * memory in two ways, both checked at the next packet. Small settings are posted in a ring. A new
 * plan with its rules is built in the inactive half and then named by `next`: the packets move over
 * (sched/move.h) under the lock of the qdisc, which permits one function at a time.
 *
 * An object is one qdisc, by name: a second one with the same name is refused, since both would
 * share a queue. So devices and children of mq have one object each, and a fault in one does not
 * affect the others.
 *
 * An impairment before a leaf loses and delays as in the other runtimes, but a GSO packet is one
 * packet here, with one outcome for all its segments. These are counted (impaired_whole).
 *
 * Deliberately absent: marking and corruption (a BPF qdisc may not write to a packet) and
 * duplication. Policies must not use them, and plans with them are refused. Also absent: a rate for
 * all children of mq together. Each has the rate of its plan.
 */
#define FP_WITH_SLOTS
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include "scratches.h"
#include "../core/sched/sched.h"
#include "../core/sched/move.h"
#include "../core/sched/meta.h"

/* Offset of the shared memory. */
#define FP_QDISC_AT    4096ull
#define FP_QDISC_MAGIC 0x74726f7066ull /* "fport" */
#define FP_MAX_HANDLES (1u << 22)
/* Maximum of settings posted before a packet comes. */
#define FP_POSTS 1024

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP	 1
/* The packet was dropped, and the parents of the qdisc do not count it as queued. */
#define NET_XMIT_BYPASS 0x00020000
#define EBUSY		16
#define ARPHRD_ETHER	1
#define ARPHRD_LOOPBACK 772
/* The watchdog may be late by this time, to save an interrupt. */
#define FP_SLACK_NS 10000

struct net_device {
	int ifindex;
	unsigned short type;
} FP_CO_RE;

struct sk_buff {
	struct net_device *dev;
	u32 len;
	u32 mark;
	int skb_iif;
	u32 vlan_all;
	u16 vlan_tci;
	u32 end;
	unsigned char *head;
	char cb[48];
} FP_CO_RE;

struct skb_shared_info {
	u16 gso_segs;
} FP_CO_RE;

struct qdisc_skb_cb {
	u32 pkt_len;
} FP_CO_RE;

struct qdisc_skb_head {
	u32 qlen;
} FP_CO_RE;

struct gnet_stats_queue {
	u32 backlog;
	u32 drops;
} FP_CO_RE;

struct Qdisc {
	u32 limit;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} FP_CO_RE;

struct nlattr;
struct netlink_ext_ack;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

struct bpf_dynptr {
	u64 opaque[2];
} __attribute__((aligned(8)));

#define __ksym __attribute__((section(".ksyms")))
#define __kptr __attribute__((btf_type_tag("kptr")))

extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, u64 flags, struct bpf_dynptr *into) __ksym;

/* The memory shared with user space; struct fp_qdisc at FP_QDISC_AT. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

struct waiting {
	struct sk_buff __kptr *skb;
};

/* The packets by handle: one entry more than the plan has handles. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, u32);
	__type(value, struct waiting);
} packets SEC(".maps");

/* Headers on the path into the arena, one per CPU. Key 0. */
struct head {
	u64 words[FP_HEAD_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct head);
} heads SEC(".maps");

/* A plan and the rules of its classes. Offsets are from the arena's beginning. */
struct fp_half {
	u64 sched_at;
	u64 rtt_at;	/* struct fp_rtt, for its rules */
	u64 changes_at; /* struct fp_changes since the other half */
	u64 note;	/* metadata of user space */
};

/* Other state of the qdisc; mirrored in crates/edge/bpf/src/qdisc/port.rs. */
struct fp_qdisc {
	u64 magic;
	u64 code;  /* hash of the object, for a later process */
	u64 bytes; /* of the arena */
	u64 qdisc; /* address of the qdisc that uses it, 0 none */
	u32 packets;
	u32 end;	/* enum fp_end */
	u64 op_at;	/* offsets from the arena's beginning */
	u64 free_at;	/* the stack of handles */
	u64 posts_at;	/* FP_POSTS operations */
	u64 log_at;	/* operations that were run, at most log_most */
	u64 halves_at;	/* where user space may build halves */
	u64 half_bytes; /* each */
	struct fp_half halves[2];
	u32 half;      /* active */
	u32 next;      /* 1 and 2: half to activate at the next packet; 0 none */
	u32 post_head; /* posted, by user space */
	u32 post_tail; /* done, by the qdisc */
	u32 log_most;
	u32 log_count;
	u32 free;  /* handles on the stack */
	u32 sent;  /* the handle from a dequeue */
	u64 again; /* time of the next call */
	u64 turns; /* two a call */
	u64 owner; /* of user space: the process that may change settings */
	u64 slots[FP_POLICIES_MAX -
		  FP_CUSTOM]; /* of user space: the policy in each, by a hash; 0 none */
	/* counters */
	u64 arrived; /* packets */
	u64 arrived_segments;
	u64 sent_segments;
	u64 sent_packets;
	u64 sent_bytes;
	u64 dropped;   /* packets that the scheduler dropped */
	u64 no_handle; /* packets that arrived while all handles were in use */
	u64 lost;      /* packets that resets freed: link down, removal */
	u64 strangers; /* handles without a packet: another program wrote to the memory */
	u64 resets;
	u64 flips; /* new plans active */
	u64 flips_refused;
	u64 flip_ns;	    /* of the last one */
	u64 moved;	    /* packets that it handed over */
	u64 posts_refused;  /* no such node or parameter, or not a setting */
	u64 impaired_whole; /* GSO packets with one outcome for all segments */
	struct fp_work work;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct fp_qdisc) <= 8192, "what user space leaves for it");
/* port.rs has the same numbers. */
_Static_assert(__builtin_offsetof(struct fp_qdisc, halves) == 88, "");
_Static_assert(__builtin_offsetof(struct fp_qdisc, log_count) == 172, "");
_Static_assert(__builtin_offsetof(struct fp_qdisc, turns) == 192, "");
_Static_assert(__builtin_offsetof(struct fp_qdisc, impaired_whole) == 392, "");

char _license[] SEC("license") = "GPL";

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_qdisc FP_MEM *the_port(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct fp_qdisc FP_MEM *)FP_QDISC_AT;
}

/* Odd while counts change: a reader checks it before and after. */
FP_INLINE void turn(void)
{
	fp_add64(&the_port()->turns, 1);
}

FP_INLINE struct fp_sched FP_MEM *scheduler_of(struct fp_qdisc FP_MEM *port, u32 half)
{
	return (struct fp_sched FP_MEM *)port->halves[half & 1].sched_at;
}

FP_INLINE struct fp_sched FP_MEM *the_scheduler(void)
{
	struct fp_qdisc FP_MEM *port = the_port();

	return scheduler_of(port, port->half);
}

FP_INLINE u32 FP_MEM *free_at(struct fp_qdisc FP_MEM *port, u32 i)
{
	return (u32 FP_MEM *)(port->free_at + 4ull * (i & (FP_MAX_HANDLES - 1)));
}

FP_INLINE void give_back(struct fp_qdisc FP_MEM *port, u32 handle)
{
	*free_at(port, port->free) = handle;
	port->free++;
}

FP_INLINE struct fp_outcome FP_MEM *outcome_at(struct fp_sched FP_MEM *s, u32 i)
{
	return FP_AT(struct fp_outcome, s, s->outcomes_at + (u64)i * sizeof(struct fp_outcome));
}

/* Takes the packet of a handle from its slot: NULL if there is none. */
FP_INLINE struct sk_buff *take(u32 handle)
{
	struct waiting *slot = bpf_map_lookup_elem(&packets, &handle);

	return slot ? bpf_kptr_xchg(&slot->skb, (struct sk_buff *)0) : 0;
}

/* Bytes on the wire: all segments of a GSO packet, each with its headers. */
FP_INLINE u32 wire_bytes(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

/* The log is for tests, which repeat the operations natively. */
FP_INLINE void log_op(struct fp_qdisc FP_MEM *port, u32 result)
{
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct fp_op FP_MEM *to;

	if (port->log_count >= port->log_most)
		return;
	to = (struct fp_op FP_MEM *)(port->log_at + (u64)port->log_count * sizeof(*to));
	FP_COPY(to, op);
	FP_PUT(to->node, result);
	port->log_count++;
}

/* Frees the packets that the scheduler dropped in this call. */
static __attribute__((noinline)) int free_dropped(struct Qdisc *sch)
{
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_qdisc FP_MEM *port = the_port();
	u32 i;

	fp_loop(i, s->outcomes) {
		struct fp_outcome FP_MEM *o = outcome_at(s, i);
		struct sk_buff *skb;
		u32 handle = o->handle;

		if (o->kind != FP_DROPPED || !handle)
			continue;
		skb = take(handle);
		if (!skb) {
			port->strangers++;
			continue;
		}
		sch->q.qlen--;
		sch->qstats.backlog -= wire_bytes(skb);
		sch->qstats.drops++;
		port->dropped++;
		bpf_kfree_skb(skb);
		give_back(port, handle);
	}
	FP_PUT(s->outcomes, 0);
	return 0;
}

/* Applies a setting from user space, which neither adds nor removes packets. */
static __attribute__((noinline)) int do_post(void)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct fp_op FP_MEM *from =
		(struct fp_op FP_MEM *)(port->posts_at +
					(u64)(port->post_tail % FP_POSTS) * sizeof(*from));
	u32 kind = from->kind;

	port->post_tail++;
	if (kind != FP_OP_PARAM && kind != FP_OP_WEIGHT && kind != FP_OP_NODE) {
		port->posts_refused++;
		return 0;
	}
	FP_COPY(op, from);
	op->now = bpf_ktime_get_ns();
	log_op(port, op->node);
	FP_PUT(s->outcomes, 0);
	fp_run_set_op(s, op);
	if (s->outcomes && outcome_at(s, 0)->kind != FP_DONE)
		port->posts_refused++;
	return 0;
}

/* Activates the new plan. Returns 1, or 0 if it is invalid. */
static __attribute__((noinline)) int begin_flip(u64 now)
{
	struct fp_qdisc FP_MEM *port = the_port();
	u32 next = port->next, half = next - 1;
	struct fp_sched FP_MEM *old = the_scheduler();

	if (half > 1 || half == port->half || fp_cas32(&port->next, next, 0) != next)
		return 0;
	if (fp_move_begin(scheduler_of(port, half), old,
			  (struct fp_changes FP_MEM *)port->halves[half].changes_at, now)) {
		port->flips_refused++;
		return 0;
	}
	port->half = half;
	port->moved = 0;
	return 1;
}

/* Applies the requests of user space since the last packet. */
static __attribute__((noinline)) int attend(struct Qdisc *sch)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct fp_sched FP_MEM *old;
	struct fp_sched FP_MEM *s;
	struct fp_changes FP_MEM *changes;
	u64 now;
	u32 i;

	fp_loop(i, FP_POSTS) {
		if (port->post_tail == port->post_head)
			break;
		/* A full barrier: the setting was written before the head. */
		fp_fetch_add32(&port->post_tail, 0);
		do_post();
	}
	now = bpf_ktime_get_ns();
	old = the_scheduler();
	if (!port->next || !begin_flip(now))
		return 0;
	s = the_scheduler();
	changes = (struct fp_changes FP_MEM *)port->halves[port->half & 1].changes_at;
	FP_PUT(s->outcomes, 0);
	fp_loop(i, old->config.packets) {
		u32 handle = fp_move_out(s, old, changes);

		if (!handle)
			break;
		if (!fp_move_in(s, handle))
			fp_queue_packet(s, handle);
		port->moved++;
		if (s->outcomes)
			free_dropped(sch);
	}
	fp_close_emptied(old);
	port->flip_ns = bpf_ktime_get_ns() - now;
	port->flips++;
	return 0;
}

FP_INLINE int is_requested(struct fp_qdisc FP_MEM *port)
{
	return *(volatile u32 FP_MEM *)&port->next ||
	       *(volatile u32 FP_MEM *)&port->post_head != port->post_tail;
}

/* The number of segments of a GSO packet, 1 for other packets. */
FP_INLINE u32 segments_of(const struct sk_buff *skb)
{
	u16 segments = 1;

	if (wire_bytes(skb) <= skb->len)
		return 1;
	bpf_probe_read_kernel(&segments, sizeof(segments),
			      skb->head + skb->end +
				      bpf_core_field_offset(struct skb_shared_info, gso_segs));
	return segments ? segments : 1;
}

/* The metadata of a packet. */
FP_INLINE void facts_of(struct fp_work FP_MEM *w, struct sk_buff *skb, u64 now)
{
	struct net_device *dev = skb->dev;
	u32 type = dev->type;

	w->frame.now = now;
	w->frame.number = 0;
	w->frame.wire_len = skb->len;
	w->frame.ifindex = dev->ifindex;
	w->frame.rx_ifindex = skb->skb_iif;
	w->frame.link =
		type == ARPHRD_ETHER || type == ARPHRD_LOOPBACK ? FP_LINK_ETHERNET : FP_LINK_RAW;
	w->frame.vlan = skb->vlan_all ? skb->vlan_tci : 0;
	w->frame.mark = skb->mark;
	w->frame.direction = FP_EGRESS;
	w->frame.flags = 0;
}

/*
 * Copies headers of the packet into the work area. Not inline, so that its stack frame is free
 * before fp_parse_and_classify().
 */
static __attribute__((noinline)) int load_head(struct sk_buff *skb)
{
	struct fp_work FP_MEM *w = &the_port()->work;
	u32 key = 0, i, bytes = skb->len < FP_HEAD_BYTES ? skb->len : FP_HEAD_BYTES;
	struct head *head = bpf_map_lookup_elem(&heads, &key);
	struct bpf_dynptr packet;

	w->head_bytes = 0;
	if (head && !bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet) && bytes &&
	    bytes <= FP_HEAD_BYTES && !bpf_dynptr_read(head, bytes, &packet, 0, 0)) {
		for (i = 0; i < FP_HEAD_BYTES / 8; i++)
			((volatile u64 FP_MEM *)w->head)[i] = head->words[i];
		w->head_bytes = bytes;
	}
	return 0;
}

/* Copies what policies see of the packet into the operation. Not inline, for the same reason. */
static __attribute__((noinline)) int look(struct sk_buff *skb)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	u32 segments = segments_of(skb);

	facts_of(&port->work, skb, op->now);
	port->work.frame.segs = segments;
	load_head(skb);
	fp_parse_and_classify((struct fp_rtt FP_MEM *)port->halves[port->half & 1].rtt_at,
			      &port->work, &op->meta, port->end);
	FP_PUT(op->meta.bytes,
	       fp_link_bytes(&the_scheduler()->config.framing, wire_bytes(skb), segments));
	port->arrived++;
	port->arrived_segments += segments;
	return 0;
}

/*
 * True if an impairment lost the new packet, called before outcomes are freed. Its own outcome is the
 * last one.
 */
FP_INLINE int was_impaired(struct fp_sched FP_MEM *s)
{
	struct fp_outcome FP_MEM *o;

	if (!s->outcomes)
		return 0;
	o = outcome_at(s, s->outcomes - 1);
	return o->kind == FP_DROPPED && o->reason == FP_DROP_IMPAIRED;
}

FP_INLINE int take_in(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct fp_sched FP_MEM *s;
	struct sk_buff *old;
	struct waiting *slot;
	u32 handle, bytes, impaired;

	if (is_requested(port))
		attend(sch);
	s = the_scheduler();
	handle = port->free ? *free_at(port, port->free - 1) : 0;
	slot = bpf_map_lookup_elem(&packets, &handle);
	if (!handle || !slot) {
		port->no_handle++;
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	port->free--;
	bytes = wire_bytes(skb);
	op->now = bpf_ktime_get_ns();
	op->kind = FP_OP_ENQUEUE;
	op->handle = handle;
	look(skb);
	old = bpf_kptr_xchg(&slot->skb, skb);
	if (old) {
		port->strangers++;
		bpf_qdisc_skb_drop(old, to_free);
	}
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	FP_PUT(s->outcomes, 0);
	fp_begin_op(s, op->now);
	fp_enqueue(s, op);
	log_op(port, fp_slot_at(s, handle)->leaf);
	if (s->impair && op->meta.segments > 1)
		port->impaired_whole++;
	/* Its own outcome is the last one, and the only one if nothing was dropped. */
	if (s->outcomes == 1 && outcome_at(s, 0)->kind == FP_QUEUED)
		return NET_XMIT_SUCCESS;
	impaired = was_impaired(s);
	handle = fp_slot_at(s, handle)->leaf;
	free_dropped(sch);
	/* A deliberate loss is a loss of the network: a local sender must not detect it sooner. */
	if (impaired)
		return NET_XMIT_SUCCESS | NET_XMIT_BYPASS;
	return handle ? NET_XMIT_SUCCESS : NET_XMIT_DROP;
}

SEC("struct_ops")
int qdisc_enqueue(u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct Qdisc *sch = (struct Qdisc *)ctx[1];
	struct bpf_sk_buff_ptr *to_free = (struct bpf_sk_buff_ptr *)ctx[2];
	int result;

	turn();
	result = take_in(skb, sch, to_free);
	turn();
	return result;
}

/* Stores the result of a dequeue in port->sent and port->again. */
static __attribute__((noinline)) int read_outcomes(struct Qdisc *sch)
{
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_qdisc FP_MEM *port = the_port();
	u32 i, dropped = 0;

	port->sent = 0;
	port->again = FP_NEVER;
	fp_loop(i, s->outcomes) {
		struct fp_outcome FP_MEM *o = outcome_at(s, i);
		u32 kind = o->kind;

		if (kind == FP_SENT)
			port->sent = o->handle;
		else if (kind == FP_NOTHING)
			port->again = o->at;
		else if (kind == FP_DROPPED)
			dropped = 1;
	}
	if (dropped)
		free_dropped(sch);
	return 0;
}

FP_INLINE struct sk_buff *next_packet(struct Qdisc *sch)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct fp_sched FP_MEM *s;
	struct sk_buff *skb;

	if (is_requested(port))
		attend(sch);
	s = the_scheduler();
	FP_PUT(s->outcomes, 0);
	op->now = bpf_ktime_get_ns();
	op->kind = FP_OP_DEQUEUE;
	fp_begin_op(s, op->now);
	fp_dequeue(s, 1, 0);
	read_outcomes(sch);
	log_op(port, port->sent);
	if (!port->sent) {
		if (port->again != FP_NEVER)
			bpf_qdisc_watchdog_schedule(sch, port->again, FP_SLACK_NS);
		return 0;
	}
	skb = take(port->sent);
	if (!skb) {
		port->strangers++;
		return 0;
	}
	give_back(port, port->sent);
	sch->q.qlen--;
	sch->qstats.backlog -= wire_bytes(skb);
	port->sent_packets++;
	port->sent_segments += segments_of(skb);
	port->sent_bytes += wire_bytes(skb);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops")
u64 qdisc_dequeue(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	struct sk_buff *skb;

	turn();
	skb = next_packet(sch);
	turn();
	return (u64)skb;
}

SEC("struct_ops")
int qdisc_init(u64 *ctx)
{
	struct fp_qdisc FP_MEM *port = the_port();
	struct Qdisc *sch = (struct Qdisc *)ctx[0];

	if (port->magic != FP_QDISC_MAGIC || fp_cas64(&port->qdisc, 0, (u64)sch))
		return -EBUSY;
	sch->limit = port->packets;
	return 0;
}

/* Puts all handles back on the stack, the first on top. */
FP_INLINE void stack_handles(struct fp_qdisc FP_MEM *port)
{
	u32 i;

	fp_loop(i, port->packets)
		*free_at(port, i) = port->packets - i;
	port->free = port->packets;
}

SEC("struct_ops")
int qdisc_reset(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	struct fp_qdisc FP_MEM *port = the_port();
	u32 handle;

	if (port->qdisc != (u64)sch)
		return 0;
	turn();
	fp_loop(handle, port->packets + 1) {
		struct sk_buff *skb = take(handle);

		if (skb) {
			port->lost++;
			bpf_kfree_skb(skb);
		}
	}
	fp_clear(the_scheduler());
	stack_handles(port);
	port->resets++;
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
	turn();
	return 0;
}

/* The kernel also calls it if qdisc_init() refused: then another qdisc owns the state. */
SEC("struct_ops")
int qdisc_destroy(u64 *ctx)
{
	struct fp_qdisc FP_MEM *port = the_port();

	fp_cas64(&port->qdisc, ctx[0], 0);
	return 0;
}

/* With a link that can be pinned: the name outlives the process. */
SEC(".struct_ops.link")
struct Qdisc_ops fairpath = {
	.enqueue = (void *)qdisc_enqueue,
	.dequeue = (void *)qdisc_dequeue,
	.init = (void *)qdisc_init,
	.reset = (void *)qdisc_reset,
	.destroy = (void *)qdisc_destroy,
	.id = "fairpath",
};
