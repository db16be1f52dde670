// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * mark.bpf.c: the class of a packet at tcx egress of the shaped interface: passes it to HTB, or limits the
 * packets of its class.
 *
 *   mark_egress[_raw]    skb->priority = HTB's major and the minor of the class; _raw for devices
 *                        without a link header (ppp, tun)
 *   queue_class          a filter of the HTB of one transmit queue: the class of skb->priority, in that tree
 *   police_egress[_raw]  sets the time at which the limit of the class lets a packet leave, if the interface
 *                        has the qdisc fq; else drops what it has no tokens for. All CPUs share a limit
 *
 * HTB puts a packet into the leaf that its priority names, without a filter. With a tree at each queue,
 * each has another major number than the priority, and the filter selects the minor. The class is that of
 * one end of the packet, by the same rules as elsewhere. Packets without a class go to the minor of
 * class 0. Each of the two images of the rules has a table of minors, so that one store changes
 * both. For limits, the table has their numbers, from 1; 0: no limit. The verdict is "next", except
 * for packets above their limit.
 *
 * Deliberately absent: flows, times, samples. See rtt.bpf.c.
 */
#include "kernel.h"
#include "../core/limit/limit.h"
#include "../core/sched/meta.h"
#include "fq.h"
#include "head.h"

#define FP_ARENA_START 4096ull

/*
 * Rules (struct fp_rtt), then struct fp_mark. User space writes rules and tables, the program
 * counts.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* Spreads a hash whose upper or lower bits selected the queue (2^32 divided by the golden ratio). */
#define FP_MIX 0x9e3779b1u

/* Classes of a queue whose flows are counted; numbers above share a place. Mirrored in src/mark.rs. */
#define FP_QUEUE_CLASSES 4096

/*
 * Flows of a class at a transmit queue: a bit for each value of 64 of the flow's hash. Key: queue times FP_QUEUE_CLASSES
 * and the lower bits of the minor number. The filter sets bits under the lock of its queue, user space clears them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, u32);
	__type(value, u64);
} flows SEC(".maps");

/* Counts of a class. */
struct fp_mark_count {
	u64 packets; /* on the wire: segments of a GSO packet */
	u64 bytes;   /* as HTB charges them */
	u64 dropped; /* of them: packets above the limit */
	u64 dropped_bytes;
	u64 full; /* of those dropped: packets that would have waited too long */
};

/* Mirrored in src/mark.rs. */
struct fp_mark {
	u32 classes; /* entries of a table: class numbers 0 to one less */
	u32 major;   /* HTB's, in the upper half */
	/* from here on, offsets from the arena's beginning */
	u64 minors[2]; /* u32 by class number, for each image of the rules; 0: as class 0 */
	u64 counts;    /* struct fp_mark_count by CPU and class number */
	u64 metas;     /* struct fp_meta by CPU */
	u64 limits;    /* struct fp_limits; 0 none */
	u32 pace; /* 1: packets wait in fq. Written by user space, and 0 by the program where fq is absent */
	u32 unpaced; /* times that the program did so */
};

/* Its offset in the arena. Set before loading. */
const volatile u64 mark_at = 0;
/* The end whose class counts: enum fp_end. Set before loading. */
const volatile u32 mark_end = FP_OF_SENDER;
/* The major number in marks, in the upper half, for queue_class. Set before loading. */
const volatile u32 mark_major = 0;
/* Claim the work area by an atomic bit: softirqs nest on PREEMPT_RT. Set before loading. */
const volatile u32 mark_softirqs_nest = 0;

char _license[] SEC("license") = "Dual MIT/GPL";

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_rtt FP_MEM *the_rules(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct fp_rtt FP_MEM *)FP_ARENA_START;
}

FP_INLINE struct fp_mark FP_MEM *the_mark(void)
{
	return (struct fp_mark FP_MEM *)mark_at;
}

/* True if the scratch of this CPU may be used. */
FP_INLINE int claim_work(struct fp_rtt FP_MEM *r, u32 cpu)
{
	if (!r->ready || cpu >= r->config.cpus)
		return 0;
	return !mark_softirqs_nest || !fp_cas32(&fp_work_of(r, cpu)->busy, 0, 1);
}

FP_INLINE void fill_frame(struct __sk_buff *skb, struct fp_work FP_MEM *w, u32 link)
{
	FP_PUT(w->frame.now, 0ull);
	FP_PUT(w->frame.number, 0ull);
	w->frame.wire_len = skb->len;
	w->frame.segs = skb->gso_segs;
	w->frame.ifindex = skb->ifindex;
	w->frame.rx_ifindex = skb->ingress_ifindex;
	w->frame.link = link;
	w->frame.vlan = skb->vlan_present ? skb->vlan_tci : 0;
	w->frame.mark = skb->mark;
	FP_PUT(w->frame.direction, FP_EGRESS);
	FP_PUT(w->frame.flags, 0);
}

/* The class number of the packet in the scratch. */
FP_INLINE u32 class_of(struct __sk_buff *skb, struct fp_work FP_MEM *w, u32 cpu)
{
	const u8 *data = (const u8 *)(u64)skb->data, *end = (const u8 *)(u64)skb->data_end;
	struct fp_rtt FP_MEM *r = the_rules();
	struct fp_meta FP_MEM *m =
		(struct fp_meta FP_MEM *)(the_mark()->metas + (u64)cpu * sizeof(struct fp_meta));
	u32 shown = copy_linear(w, data, end);

	w->head_bytes = shown;
	w->image = *(volatile u32 FP_MEM *)&r->image;
	if (fp_parse_and_classify(r, w, m, mark_end) == FP_TRUNCATED && shown < skb->len) {
		load_skb(skb, w, skb->len);
		fp_parse_and_classify(r, w, m, mark_end);
	}
	return m->class_id < the_mark()->classes ? m->class_id : 0;
}

FP_INLINE struct fp_mark_count FP_MEM *count_of(struct fp_mark FP_MEM *mark, u32 cpu, u32 class)
{
	u64 row = (u64)cpu * mark->classes + class;

	return (struct fp_mark_count FP_MEM *)(mark->counts + row * sizeof(struct fp_mark_count));
}

FP_INLINE void count(struct fp_mark FP_MEM *mark, u32 cpu, u32 class, struct __sk_buff *skb)
{
	struct fp_mark_count FP_MEM *c = count_of(mark, cpu, class);
	u32 segs = skb->gso_segs;

	c->packets += segs ? segs : 1;
	c->bytes += skb->wire_len;
}

FP_INLINE u32 minor_of(struct fp_mark FP_MEM *mark, u32 image, u32 class)
{
	return *(volatile u32 FP_MEM *)(mark->minors[image & 1] + 4ull * class);
}

FP_INLINE void set_priority(struct __sk_buff *skb, u32 image, u32 class)
{
	struct fp_mark FP_MEM *mark = the_mark();
	u32 minor = minor_of(mark, image, class);

	if (!minor)
		minor = minor_of(mark, image, 0);
	skb->priority = mark->major | minor;
}

FP_INLINE int mark_skb(struct __sk_buff *skb, u32 link)
{
	u32 cpu = bpf_get_smp_processor_id(), class;
	struct fp_rtt FP_MEM *r = the_rules();
	struct fp_work FP_MEM *w;

	if (!claim_work(r, cpu)) {
		set_priority(skb, *(volatile u32 FP_MEM *)&r->image, 0);
		return TCX_NEXT;
	}
	w = fp_work_of(r, cpu);
	fill_frame(skb, w, link);
	class = class_of(skb, w, cpu);
	count(the_mark(), cpu, class, skb);
	set_priority(skb, w->image, class);
	if (mark_softirqs_nest)
		fp_store_release32(&w->busy, 0);
	return TCX_NEXT;
}

/* True if packets may wait in fq. */
FP_INLINE int may_wait(struct fp_mark FP_MEM *mark, struct __sk_buff *skb)
{
	if (!*(volatile u32 FP_MEM *)&mark->pace)
		return 0;
	if (fp_likely(has_fq(skb, bpf_get_prandom_u32())))
		return 1;
	*(volatile u32 FP_MEM *)&mark->pace = 0;
	fp_add32(&mark->unpaced, 1);
	return 0;
}

/* A GSO packet passes, waits or is dropped as a whole. */
FP_INLINE int limit_skb(struct fp_mark FP_MEM *mark, struct __sk_buff *skb, u32 limit, u32 cpu,
			struct fp_mark_count FP_MEM *c)
{
	struct fp_limits FP_MEM *limits = (struct fp_limits FP_MEM *)mark->limits;
	u32 segs = skb->gso_segs ? skb->gso_segs : 1;
	u64 now = bpf_ktime_get_ns(), time;

	if (!limits || !limit || limit > limits->count || cpu >= limits->cpus)
		return TCX_NEXT;
	if (may_wait(mark, skb)) {
		time = fp_limit_pace(limits, limit - 1, cpu, skb->wire_len, now);
		if (time) {
			if (time > now)
				set_time(skb, time);
			return TCX_NEXT;
		}
		c->full += segs;
	} else if (!fp_limit_take(limits, limit - 1, cpu, skb->wire_len, now)) {
		return TCX_NEXT;
	}
	c->dropped += segs;
	c->dropped_bytes += skb->wire_len;
	return TCX_DROP;
}

FP_INLINE int police_skb(struct __sk_buff *skb, u32 link)
{
	u32 cpu = bpf_get_smp_processor_id(), class;
	struct fp_mark FP_MEM *mark = the_mark();
	struct fp_rtt FP_MEM *r = the_rules();
	struct fp_work FP_MEM *w;
	int verdict;

	if (!claim_work(r, cpu))
		return TCX_NEXT;
	w = fp_work_of(r, cpu);
	fill_frame(skb, w, link);
	class = class_of(skb, w, cpu);
	count(mark, cpu, class, skb);
	verdict = limit_skb(mark, skb, minor_of(mark, w->image, class), cpu,
			    count_of(mark, cpu, class));
	if (mark_softirqs_nest)
		fp_store_release32(&w->busy, 0);
	return verdict;
}

SEC("tcx/egress")
int police_egress(struct __sk_buff *skb)
{
	return police_skb(skb, FP_LINK_ETHERNET);
}

SEC("tcx/egress")
int police_egress_raw(struct __sk_buff *skb)
{
	return police_skb(skb, FP_LINK_RAW);
}

FP_INLINE void count_flow(struct __sk_buff *skb, u32 minor)
{
	u32 key = skb->queue_mapping * FP_QUEUE_CLASSES + minor % FP_QUEUE_CLASSES;
	u64 *seen = bpf_map_lookup_elem(&flows, &key);
	u64 bit = 1ull << ((bpf_get_hash_recalc(skb) * FP_MIX) >> 26);

	if (seen && !(*seen & bit))
		*seen |= bit;
}

/*
 * A number that is no class of the tree selects its default class. 0 would be the qdisc: past all classes.
 */
SEC("tc")
int queue_class(struct __sk_buff *skb)
{
	u32 priority = skb->priority, minor = priority & 0xffff;

	count_flow(skb, minor);
	skb->tc_classid = (priority & 0xffff0000) == mark_major && minor ? minor : 0xffff;
	return TC_ACT_OK;
}

SEC("tcx/egress")
int mark_egress(struct __sk_buff *skb)
{
	return mark_skb(skb, FP_LINK_ETHERNET);
}

SEC("tcx/egress")
int mark_egress_raw(struct __sk_buff *skb)
{
	return mark_skb(skb, FP_LINK_RAW);
}
