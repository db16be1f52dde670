// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * qdisc.bpf.c: the scheduler as a qdisc (BPF qdisc, Linux 6.16 and newer).
 *
 *   enqueue   parses, asks the scheduler, keeps the packet in a slot under its handle
 *   dequeue   asks the scheduler, gives the packet out of its slot; a timer where nothing may leave
 *   reset     frees every packet that waits
 *
 * Packets (skbs) lie in a map of pointers, by handle; everything else in the arena, as in the other
 * homes. The qdisc's own lock lets one of these functions run at a time. An object is one qdisc:
 * a second one of its name is refused, since both would share a queue.
 *
 * Absent: marking (a BPF qdisc may not write a packet): policies are told not to.
 */
#include "kernel.h"
#include "../core/sched/sched.h"
#include "../core/sched/meta.h"

#define FP_ARENA_START 4096ull
#define FP_MAX_HANDLES (1u << 22)

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP	 1
#define EBUSY		 16
/* The watchdog may come this much late, if that saves an interrupt. */
#define FP_SLACK_NS 10000

struct sk_buff {
	u32 len;
	u32 mark;
	char cb[48];
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

/* Everything the scheduler knows; struct fp_sched first, struct fp_port behind it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* What one call of a policy may touch: its copies, one for each CPU. Key 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_desk);
} desks SEC(".maps");

struct waiting {
	struct sk_buff __kptr *skb;
};

/* The packets, by handle. Room for as many as the plan has, and one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, u32);
	__type(value, struct waiting);
} packets SEC(".maps");

/* Headers on their way into the arena, one for each CPU. Key 0. */
struct head {
	u64 words[FP_HEAD_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct head);
} heads SEC(".maps");

/* What the port keeps besides: behind the scheduler in the arena. Mirrored in src/qdisc.rs. */
struct fp_port {
	u64 qdisc;     /* 1: somebody's */
	u64 strangers; /* handles that had no packet: somebody wrote to the memory */
	u64 again;     /* when to ask again */
	u32 free;      /* handles on the stack */
	u32 sent;      /* the handle that a dequeue gave */
	/* offsets from the arena's beginning */
	u64 op_at;
	u64 free_at; /* the stack */
	u64 work_at;
};

_Static_assert(sizeof(struct fp_work) <= 4096, "what src/qdisc.rs leaves for it");

/* Where it begins, from the arena's own beginning. Set before loading. */
const volatile u64 port_at SEC(".rodata.port") = 0;

char _license[] SEC("license") = "GPL";

static struct fp_desk *fp_desk_of_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&desks, &key);
}

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_sched FP_MEM *the_scheduler(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct fp_sched FP_MEM *)FP_ARENA_START;
}

FP_INLINE struct fp_port FP_MEM *the_port(void)
{
	return (struct fp_port FP_MEM *)port_at;
}

FP_INLINE u32 FP_MEM *free_at(struct fp_port FP_MEM *port, u32 i)
{
	return (u32 FP_MEM *)(port->free_at + 4ull * (i & (FP_MAX_HANDLES - 1)));
}

FP_INLINE void give_back(struct fp_port FP_MEM *port, u32 handle)
{
	*free_at(port, port->free) = handle;
	port->free++;
}

FP_INLINE struct fp_outcome FP_MEM *outcome_at(struct fp_sched FP_MEM *s, u32 i)
{
	return FP_AT(struct fp_outcome, s, s->outcomes_at + (u64)i * sizeof(struct fp_outcome));
}

/* The packet of a handle leaves its slot: NULL where there is none. */
FP_INLINE struct sk_buff *take(u32 handle)
{
	struct waiting *slot = bpf_map_lookup_elem(&packets, &handle);

	return slot ? bpf_kptr_xchg(&slot->skb, (struct sk_buff *)0) : 0;
}

FP_INLINE u32 wire_bytes(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

FP_INLINE void left(struct Qdisc *sch, u32 bytes)
{
	sch->q.qlen--;
	sch->qstats.backlog -= bytes;
}

/* Headers of the packet into the work area, and what policies see of it into the operation. */
/* Not inline: its frame is gone before the scheduler's chain of calls begins. */
static __attribute__((noinline)) int look(struct sk_buff *skb)
{
	struct fp_port FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct fp_work FP_MEM *w = (struct fp_work FP_MEM *)port->work_at;
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
	w->frame.wire_len = skb->len;
	w->frame.segs = 1;
	w->frame.link = FP_LINK_ETHERNET;
	FP_PUT(w->frame.vlan, 0);
	fp_parse(w);
	fp_meta_of(&op->meta, w);
	FP_PUT(op->meta.arrival, op->now);
	FP_PUT(op->meta.bytes, wire_bytes(skb));
	FP_PUT(op->meta.class_id, 0);
	FP_PUT(op->meta.mark, skb->mark);
	FP_PUT(op->meta.segments, 0);
	return 0;
}

SEC("struct_ops")
int qdisc_enqueue(u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0], *old;
	struct Qdisc *sch = (struct Qdisc *)ctx[1];
	struct bpf_sk_buff_ptr *to_free = (struct bpf_sk_buff_ptr *)ctx[2];
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_port FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	struct waiting *slot;
	u32 handle, bytes, i, result = NET_XMIT_SUCCESS;

	handle = port->free ? *free_at(port, port->free - 1) : 0;
	slot = bpf_map_lookup_elem(&packets, &handle);
	if (!handle || !slot) {
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
	if (old)
		bpf_qdisc_skb_drop(old, to_free);
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	FP_PUT(s->outcomes, 0);
	fp_begin(s, op->now);
	fp_enqueue(s, op);
	fp_loop(i, s->outcomes) {
		struct fp_outcome FP_MEM *o = outcome_at(s, i);
		u32 gone = o->handle;

		if (o->kind != FP_DROPPED)
			continue;
		old = take(gone);
		if (!old)
			continue;
		left(sch, wire_bytes(old));
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(old, to_free);
		give_back(port, gone);
		if (gone == handle)
			result = NET_XMIT_DROP;
	}
	return result;
}

SEC("struct_ops")
u64 qdisc_dequeue(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_port FP_MEM *port = the_port();
	struct sk_buff *skb;
	u32 i;

	port->sent = 0;
	port->again = FP_NEVER;
	FP_PUT(s->outcomes, 0);
	fp_begin(s, bpf_ktime_get_ns());
	fp_dequeue(s, 1, 0);
	fp_loop(i, s->outcomes) {
		struct fp_outcome FP_MEM *o = outcome_at(s, i);
		u32 kind = o->kind;

		if (kind == FP_SENT) {
			port->sent = o->handle;
		} else if (kind == FP_NOTHING) {
			port->again = o->at;
		} else if (kind == FP_DROPPED) {
			skb = take(o->handle);
			if (!skb)
				continue;
			left(sch, wire_bytes(skb));
			sch->qstats.drops++;
			bpf_kfree_skb(skb);
			give_back(port, o->handle);
		}
	}
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
	left(sch, wire_bytes(skb));
	bpf_qdisc_bstats_update(sch, skb);
	return (u64)skb;
}

SEC("struct_ops")
int qdisc_init(u64 *ctx)
{
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_port FP_MEM *port = the_port();
	struct Qdisc *sch = (struct Qdisc *)ctx[0];

	if (s->magic != FP_SCHED_MAGIC || fp_cas64(&port->qdisc, 0, 1))
		return -EBUSY;
	sch->limit = s->config.packets;
	return 0;
}

SEC("struct_ops")
int qdisc_reset(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	struct fp_sched FP_MEM *s = the_scheduler();
	struct fp_port FP_MEM *port = the_port();
	struct fp_op FP_MEM *op = (struct fp_op FP_MEM *)port->op_at;
	u32 handle;

	op->now = 0;
	op->kind = FP_OP_REMOVE;
	fp_loop(handle, s->config.packets + 1) {
		struct sk_buff *skb = take(handle);

		if (!skb)
			continue;
		bpf_kfree_skb(skb);
		op->handle = handle;
		FP_PUT(s->outcomes, 0);
		fp_set(s, op);
		give_back(port, handle);
	}
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
	return 0;
}

SEC("struct_ops")
int qdisc_destroy(u64 *ctx)
{
	the_scheduler();
	the_port()->qdisc = 0;
	return 0;
}

SEC(".struct_ops")
struct Qdisc_ops fairpath = {
	.enqueue = (void *)qdisc_enqueue,
	.dequeue = (void *)qdisc_dequeue,
	.init = (void *)qdisc_init,
	.reset = (void *)qdisc_reset,
	.destroy = (void *)qdisc_destroy,
	.id = "fairpath",
};
