/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fq.h: whether packets of a device enter the qdisc fq, which keeps each until its time (skb->tstamp), and that
 * time. Another qdisc ignores it.
 *
 * At tcx egress, the transmit queue of a packet is not selected yet. So one queue is checked with each packet,
 * in turn: a device with one queue is known at once, one with n after n packets of a CPU.
 */
#ifndef FP_FQ_H
#define FP_FQ_H

#include "word.h"

struct Qdisc_ops {
	char id[16];
} FP_CO_RE;

struct Qdisc {
	const struct Qdisc_ops *ops;
} FP_CO_RE;

struct netdev_queue {
	struct Qdisc *qdisc;
} FP_CO_RE;

struct net_device {
	struct netdev_queue *_tx;
	u32 real_num_tx_queues;
} FP_CO_RE;

struct sk_buff {
	struct net_device *dev;
} FP_CO_RE;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Time that the clock CLOCK_MONOTONIC will have (BPF_SKB_TSTAMP_DELIVERY_MONO). */
#define FP_MONOTONIC 1

/* The word that `field` is in, of a structure at an address. */
#define FQ_WORD(address, type, field)                                                              \
	word_at((const u8 *)(address) + bpf_core_field_offset(struct type, field))

/*
 * True if transmit queue `turn` of the device, counted in circles, has the qdisc fq. Without carrier, the kernel puts
 * noop in place of each qdisc, which drops the packet.
 */
FP_INLINE int has_fq(struct __sk_buff *skb, u64 turn)
{
	u64 device = FQ_WORD(bpf_cast_to_kern_ctx(skb), sk_buff, dev);
	u32 queues = (u32)FQ_WORD(device, net_device, real_num_tx_queues);
	u64 queue = FQ_WORD(device, net_device, _tx);
	u64 ops, id;

	if (queues)
		queue += turn % queues * bpf_core_type_size(struct netdev_queue);
	ops = FQ_WORD(FQ_WORD(queue, netdev_queue, qdisc), Qdisc, ops);
	id = FQ_WORD(ops, Qdisc_ops, id);
	return (id & 0xffffff) == ('f' | 'q' << 8) ||
	       (id & 0xffffffffffull) == ('n' | 'o' << 8 | 'o' << 16 | 'p' << 24);
}

/*
 * Sets the time of a packet, unless its sender has set a later one. The helper accepts IP only. The type of the
 * time is of no interest to fq, but without it a receiver on this machine takes the time for that of arrival.
 */
FP_INLINE void set_time(struct __sk_buff *skb, u64 time)
{
	if (skb->tstamp_type == FP_MONOTONIC && skb->tstamp >= time)
		return;
	if (bpf_skb_set_tstamp(skb, time, FP_MONOTONIC))
		skb->tstamp = time;
}

#endif /* FP_FQ_H */
