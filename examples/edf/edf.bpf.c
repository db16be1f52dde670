/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * edf.bpf.c: a queue that keeps deadlines, as a BPF qdisc (Linux 6.16 and newer).
 *
 *   packet -> class by DSCP -> rank: arrival + deadline of the class -> FP_HEAP
 *          -> the earliest deadline leaves, at most at the configured rate
 *          -> a class that misses its deadlines for 100 ms loses packets, as in CoDel
 *
 * So a call waits for one packet of others at most, bulk is sent when nothing more urgent waits, and
 * its queue stays about as long as its deadline. The queue is Fairpath's; it needs the installed
 * headers, those of libbpf, and clang 19. edf.c loads it.
 */
#include "types.h"

#include <bpf/bpf_helpers.h>
#include <fairpath/arena.h>
#include <fairpath/packets.h>
#include <fairpath/pifo.h>

#include "edf.h"

/* The numbers of packets are items; those without a packet are in FREE, in order. */
#define FREE  1
#define QUEUE 2
#define PAGES 60
/* RFC 8289. */
#define INTERVAL 100000000ull
/* Packets that one dequeue may drop. */
#define DROPS	   16
#define ETHERNET   14
#define PROTO_IPV4 0x0008 /* in network byte order */
#define PROTO_IPV6 0xdd86
#define EBUSY	   16

FP_ARENA(arena, PAGES);
FP_PACKETS(waiting, EDF_PACKETS);

char LICENSE[] SEC("license") = "GPL";

struct edf edf;
/* The qdisc that has the queue. */
u64 owner;

/* Formats the queue. Context: the settings, in struct edf. Returns 0, or the step that failed. */
SEC("syscall")
int begin(struct edf *settings)
{
	struct fp_pool_config config = { .items = EDF_PACKETS, .pifos = 2 };
	struct fp_pifo_config bands = { .kind = FP_BANDS, .capacity = EDF_PACKETS, .buckets = 1 };
	struct fp_pifo_config heap = { .kind = FP_HEAP, .capacity = EDF_PACKETS };
	u64 free_bytes = fp_pifo_bytes(FP_BANDS, EDF_PACKETS, 1), at;
	u32 i;

	FP_USE(arena);
	config.array_bytes = free_bytes + fp_pifo_bytes(FP_HEAP, EDF_PACKETS, 0);
	if (fp_pool_bytes(&config) > (PAGES - 1) * 4096)
		return 1;
	if (fp_arena_pages(arena, PAGES))
		return 2;
	if (fp_pool_format(FP_ARENA_POOL, &config))
		return 3;
	at = FP_ARENA_POOL->arrays;
	if (fp_pifo_format(FP_ARENA_POOL, FREE, &bands, at) ||
	    fp_pifo_format(FP_ARENA_POOL, QUEUE, &heap, at + free_bytes))
		return 4;
	fp_loop(i, EDF_PACKETS)
		fp_pifo_push(FP_ARENA_POOL, FREE, i + 1, 0);
	edf.rate = settings->rate;
	for (i = 0; i < EDF_CLASSES; i++)
		edf.classes[i].deadline = settings->classes[i].deadline;
	return 0;
}

/* Copies the counts to the context. */
SEC("syscall")
int report(struct edf *into)
{
	*into = edf;
	return 0;
}

/* By DSCP: 40 and above, 24 to 39, 8 (CS1) and 1 (LE), and all others. */
static __attribute__((noinline)) u32 class_of(struct sk_buff *skb)
{
	struct bpf_dynptr packet;
	u8 head[2] = { 0, 0 };
	u32 dscp;

	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet) ||
	    bpf_dynptr_read(head, sizeof(head), &packet, ETHERNET, 0))
		return 2;
	if (skb->protocol == PROTO_IPV4)
		dscp = head[1] >> 2;
	else if (skb->protocol == PROTO_IPV6)
		dscp = (head[0] & 15) << 2 | head[1] >> 6;
	else
		return 2;
	if (dscp >= 40)
		return 0;
	if (dscp >= 24)
		return 1;
	return dscp == 8 || dscp == 1 ? 3 : 2;
}

/* The time between two drops: the interval over the square root of their number. One step of Newton's method a drop. */
static u64 gap(struct edf_class *class)
{
	u64 square = (u64) class->inverse * class->inverse >> 32;

	class->inverse = (((3ull << 32) - class->drops * square) >> 2) * class->inverse >> 31;
	return INTERVAL * class->inverse >> 32;
}

/*
 * True if a packet with this deadline, the next of a class, is to be dropped. The only one is not:
 * then others are the reason. Global, so that it is verified once.
 */
__attribute__((noinline)) int drops(u32 number, u64 deadline, u64 now)
{
	struct edf_class *class = &edf.classes[number & (EDF_CLASSES - 1)];

	if (now <= deadline || !class->waiting) {
		class->first_late = 0;
		class->is_dropping = 0;
		return 0;
	}
	if (!class->first_late) {
		class->first_late = now + INTERVAL;
		return 0;
	}
	if (!class->is_dropping) {
		if (now < class->first_late)
			return 0;
		/* Soon after the last time, it begins near where that ended. */
		if (now - class->next_drop < 8 * INTERVAL && class->drops > 2) {
			class->drops -= 2;
		} else {
			class->drops = 1;
			class->inverse = ~0u;
		}
		class->is_dropping = 1;
		class->next_drop = now + gap(class);
		return 1;
	}
	if (now < class->next_drop)
		return 0;
	class->drops++;
	class->next_drop += gap(class);
	return 1;
}

SEC("struct_ops")
int edf_enqueue(u64 *context)
{
	struct sk_buff *skb = (struct sk_buff *)context[0], *old;
	struct Qdisc *sch = (struct Qdisc *)context[1];
	struct bpf_sk_buff_ptr *to_free = (struct bpf_sk_buff_ptr *)context[2];
	u32 bytes = skb->len, number = class_of(skb) & (EDF_CLASSES - 1), item;
	struct edf_class *class = &edf.classes[number];

	FP_USE(arena);
	item = fp_pifo_pop(FP_ARENA_POOL, FREE);
	if (!item) {
		edf.full++;
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return 1; /* NET_XMIT_DROP */
	}
	old = waiting_put(item, skb);
	if (old)
		bpf_qdisc_skb_drop(old, to_free);
	fp_pifo_push(FP_ARENA_POOL, QUEUE, item, bpf_ktime_get_ns() + class->deadline);
	class->waiting++;
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	return 0;
}

SEC("struct_ops")
u64 edf_dequeue(u64 *context)
{
	struct Qdisc *sch = (struct Qdisc *)context[0];
	u64 now = bpf_ktime_get_ns(), deadline;
	u32 i, item, bytes, number;
	struct edf_class *class;
	struct sk_buff *skb;

	FP_USE(arena);
	if (edf.rate && now < edf.send_at) {
		if (fp_pifo_peek(FP_ARENA_POOL, QUEUE))
			bpf_qdisc_watchdog_schedule(sch, edf.send_at, 0);
		return 0;
	}
	for (i = 0; i < DROPS; i++) {
		item = fp_pifo_pop(FP_ARENA_POOL, QUEUE);
		skb = item ? waiting_take(item) : 0;
		if (!skb)
			return 0;
		deadline = fp_item_at(FP_ARENA_POOL, item)->rank;
		fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
		bytes = skb->len;
		number = class_of(skb) & (EDF_CLASSES - 1);
		class = &edf.classes[number];
		class->waiting--;
		sch->q.qlen--;
		sch->qstats.backlog -= bytes;
		if (drops(number, deadline, now) && i < DROPS - 1) {
			class->dropped++;
			sch->qstats.drops++;
			bpf_kfree_skb(skb);
			continue;
		}
		class->sent++;
		class->late += now > deadline;
		if (edf.rate)
			edf.send_at = (edf.send_at > now - 1000000 ? edf.send_at : now) +
				      bytes * 1000000000ull / edf.rate;
		bpf_qdisc_bstats_update(sch, skb);
		return (u64)skb;
	}
	return 0;
}

SEC("struct_ops")
int edf_init(u64 *context)
{
	struct Qdisc *sch = (struct Qdisc *)context[0];

	if (__sync_val_compare_and_swap(&owner, 0, (u64)sch))
		return -EBUSY;
	sch->limit = EDF_PACKETS;
	return 0;
}

SEC("struct_ops")
int edf_reset(u64 *context)
{
	struct Qdisc *sch = (struct Qdisc *)context[0];
	struct sk_buff *skb;
	u32 i, item;

	FP_USE(arena);
	if (owner != (u64)sch)
		return 0;
	fp_loop(i, EDF_PACKETS) {
		item = fp_pifo_pop(FP_ARENA_POOL, QUEUE);
		if (!item)
			break;
		fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
		skb = waiting_take(item);
		if (skb)
			bpf_kfree_skb(skb);
	}
	for (i = 0; i < EDF_CLASSES; i++)
		edf.classes[i].waiting = 0;
	edf.send_at = 0;
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
	return 0;
}

SEC("struct_ops")
int edf_destroy(u64 *context)
{
	__sync_val_compare_and_swap(&owner, context[0], 0);
	return 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops edf_ops = {
	.enqueue = (void *)edf_enqueue,
	.dequeue = (void *)edf_dequeue,
	.init = (void *)edf_init,
	.reset = (void *)edf_reset,
	.destroy = (void *)edf_destroy,
	.id = "edf",
};
