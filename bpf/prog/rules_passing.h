/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_passing.h: which set a packet meets while rules change: the one of its first hook, at all of them.
 */
#ifndef RULES_PASSING_H
#define RULES_PASSING_H

/*
 * Packets on their way that a CPU knows, by a hash of their address: groups of AMONG, the last one first.
 * The kernel takes up to 64 packets, with two addresses each, through one hook before the first of them
 * comes to the next. That five of these fall into one group has a probability below 1:5,000 for each
 * address.
 */
#define PASSING 2048
#define AMONG	4

/* A packet on its way through the hooks, and the set that it met first. */
struct rules_passing {
	u64 key;
	u64 generation;
};

/* A group of AMONG. */
FP_INLINE struct rules_passing FP_MEM *passing_at(struct rules_hook FP_MEM *h, u32 cpu, u64 key)
{
	u64 at = cpu * (u64)PASSING + (fp_mix64(key) & (PASSING - AMONG));

	return FP_AT(struct rules_passing, h, h->passing + at * sizeof(struct rules_passing));
}

/* An interrupt in between finds no key. */
FP_INLINE void write_passing(struct rules_passing FP_MEM *p, u64 key, u64 generation)
{
	*(volatile u64 FP_MEM *)&p->key = 0;
	*(volatile u64 FP_MEM *)&p->generation = generation;
	*(volatile u64 FP_MEM *)&p->key = key;
}

/* The oldest of the group goes. An older record of the same address is behind the new one. */
FP_INLINE void record_passing(struct rules_passing FP_MEM *p, u64 key, u64 generation)
{
	u32 i;

	for (i = AMONG - 1; i; i--)
		write_passing(p + i, *(volatile u64 FP_MEM *)&p[i - 1].key,
			      *(volatile u64 FP_MEM *)&p[i - 1].generation);
	write_passing(p, key, generation);
}

/* 0: there is no record. An interrupt in between moves records towards the end. */
FP_INLINE u64 recorded_generation(struct rules_passing FP_MEM *p, u64 key)
{
	u64 found;
	u32 i;

	for (i = 0; i < AMONG; i++) {
		if (*(volatile u64 FP_MEM *)&p[i].key != key)
			continue;
		found = *(volatile u64 FP_MEM *)&p[i].generation;
		if (*(volatile u64 FP_MEM *)&p[i].key == key)
			return found;
	}
	return 0;
}

/* For recorded_place(). */
#define PASSING_FIND   0
#define PASSING_KEEP   1 /* there may be one, else it is the first */
#define PASSING_RECORD 2 /* an older one is of another packet */

/*
 * The place of a packet while rules change. The first program records it under the addresses of the packet
 * and of its bytes: a clone has the bytes, and a copied packet has the address. A packet without a record
 * meets the active place.
 */
static __attribute__((noinline)) u32 recorded_place(u64 skb, u32 cpu, u32 place, u32 how)
{
	struct rules_hook FP_MEM *h = the_hook();
	u64 bytes = skb + bpf_core_field_offset(struct sk_buff, head);
	struct rules_passing FP_MEM *p = passing_at(h, cpu, skb);
	struct rules_passing FP_MEM *q;
	u64 generation = *(volatile u64 FP_MEM *)&h->generations[place & 1], found;

	bytes = word_at((const void *)bytes);
	q = passing_at(h, cpu, bytes);
	if (how != PASSING_RECORD) {
		found = recorded_generation(p, skb);
		if (!found)
			found = recorded_generation(q, bytes);
		if (found && found == *(volatile u64 FP_MEM *)&h->generations[!place])
			return !place;
		if (how == PASSING_FIND || found == generation)
			return place;
	}
	record_passing(p, skb, generation);
	record_passing(q, bytes, generation);
	return place;
}

/* The number of the place that packets meet, except for those on their way during a change. */
FP_INLINE u32 active_place(const struct rules_hook FP_MEM *h)
{
	u64 active = *(volatile u64 FP_MEM *)&h->active;
	u32 place = active & 1;

	if (fp_unlikely(active > 1) && bpf_ktime_get_ns() >= (active & ~1ull))
		place = !place;
	return place;
}

/* True if no program before this one evaluates at the hook. The verifier does not know for which it is. */
FP_INLINE u32 is_first_at(u32 used, u32 program, u32 hook)
{
	return !(used >> hook & EACH_PROGRAM & ((1u << (program * 5 + FP_ZERO)) - 1));
}

/* True at a hook of a packet that goes by the loopback device: it passes the hooks of both directions. */
FP_INLINE int is_looped(const struct nf_hook_state *state)
{
	const struct net_device *device = state->hook < FP_RULES_OUTPUT ? state->in : state->out;

	return device && device->type == TYPE_LOOPBACK;
}

/*
 * The number of the place that a packet meets: one at all of its hooks, which it passes without a pause
 * except for queues and reassembly. While rules change, the program of table raw is at the first hooks. An
 * edit of chains needs no such time, since a packet passes one hook with these tables, but one of lo passes
 * OUTPUT and INPUT: so it is always recorded.
 */
FP_INLINE u32 place_of(struct rules_hook FP_MEM *h, struct bpf_nf_ctx *ctx, u32 cpu, u32 program)
{
	const struct nf_hook_state *state = ctx->state;
	u32 place = active_place(h), looped = is_looped(state), hook = state->hook;
	u32 how = PASSING_FIND, used;

	if (fp_unlikely(*(volatile u32 FP_MEM *)&h->changing)) {
		if (!program)
			how = looped && !hook ? PASSING_KEEP : PASSING_RECORD;
	} else {
		used = h->programs[place & 1][state->pf != PF_IPV4];
		if (fp_likely(!looped) || !(used >> FP_RULES_OUTPUT & EACH_PROGRAM))
			return place;
		if (hook == FP_RULES_OUTPUT && is_first_at(used, program, hook))
			how = PASSING_RECORD;
	}
	return recorded_place(packet_of(ctx), cpu, place, how);
}

#endif
