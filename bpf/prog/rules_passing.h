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

/* Bits of a record with the generation; the others are its time, in units of 1.024 us. */
#define GENERATION_BITS 24
#define GENERATION_MASK ((1u << GENERATION_BITS) - 1)
#define STAMP_UNIT	10
#define STAMP_MASK	(~0ull >> GENERATION_BITS)
/* Time of a packet on its way: 1 s. An older record is of another packet with its address. */
#define PASSING_TIME (1000000000ull >> STAMP_UNIT)

/* A packet on its way through the hooks, and the set that it met first. */
struct rules_passing {
	u64 key;
	u64 record; /* the last bits of its generation, and the time */
};

/* A group of AMONG. */
FP_INLINE struct rules_passing FP_MEM *passing_at(struct rules_hook FP_MEM *h, u32 row, u64 key)
{
	u64 at = row * (u64)PASSING + (fp_mix64(key) & (PASSING - AMONG));

	return FP_AT(struct rules_passing, h, h->passing + at * sizeof(struct rules_passing));
}

/* The row of a packet that may change its CPU on its way: it follows from the key. */
FP_INLINE u32 row_of(const struct rules_hook FP_MEM *h, u64 key)
{
	return (u32)(fp_mix64(key) >> 32) % h->cpus;
}

/* An interrupt in between finds no key. */
FP_INLINE void write_passing(struct rules_passing FP_MEM *p, u64 key, u64 record)
{
	*(volatile u64 FP_MEM *)&p->key = 0;
	*(volatile u64 FP_MEM *)&p->record = record;
	*(volatile u64 FP_MEM *)&p->key = key;
}

/*
 * The oldest of the group goes. An older record of the same address is behind the new one. Two CPUs that write
 * to one group at the same time, in a row by key, may lose a record: its packet meets the active place.
 */
static __attribute__((noinline)) int record_passing(u32 row, u64 key, u64 record)
{
	struct rules_passing FP_MEM *p = passing_at(the_hook(), row, key);
	u32 i;

	for (i = AMONG - 1; i; i--)
		write_passing(p + i, *(volatile u64 FP_MEM *)&p[i - 1].key,
			      *(volatile u64 FP_MEM *)&p[i - 1].record);
	write_passing(p, key, record);
	return 0;
}

/* 0: there is no record. An interrupt in between moves records towards the end. */
static __attribute__((noinline)) u64 find_passing(u32 row, u64 key)
{
	struct rules_passing FP_MEM *p = passing_at(the_hook(), row, key);
	u64 found;
	u32 i;

	for (i = 0; i < AMONG; i++) {
		if (*(volatile u64 FP_MEM *)&p[i].key != key)
			continue;
		found = *(volatile u64 FP_MEM *)&p[i].record;
		if (*(volatile u64 FP_MEM *)&p[i].key == key)
			return found;
	}
	return 0;
}

/* The time since a record, in units of 1.024 us. That of no record, 0, is any. */
FP_INLINE u64 age_of(u64 record, u64 now)
{
	return (now - (record >> GENERATION_BITS)) & STAMP_MASK;
}

/* The newer one of two records. Their times start again after 13 days. */
FP_INLINE u64 newer_record(u64 one, u64 other, u64 now)
{
	if (!one || !other)
		return one | other;
	return age_of(one, now) < age_of(other, now) ? one : other;
}

/* For recorded_place(). */
#define PASSING_FIND   0
#define PASSING_KEEP   1 /* there may be one, else it is the first */
#define PASSING_RECORD 2 /* an older one is of another packet */
#define PASSING_LOOPED 4 /* with these: the packet comes back, perhaps on another CPU */

/*
 * The place of a packet while rules change. The first program records it under the addresses of the packet
 * and of its bytes: a clone has the bytes, and a copied packet has the address. Under its other address is
 * perhaps a record of an earlier packet, so the newer one is its own. A packet without a record meets the
 * active place.
 */
static __attribute__((noinline)) u32 recorded_place(u64 skb, u32 cpu, u32 place, u32 how)
{
	struct rules_hook FP_MEM *h = the_hook();
	u64 bytes = word_at((const void *)(skb + bpf_core_field_offset(struct sk_buff, head)));
	u64 now = (bpf_ktime_get_ns() >> STAMP_UNIT) & STAMP_MASK, found;
	u64 generation = *(volatile u64 FP_MEM *)&h->generations[place & 1] & GENERATION_MASK;
	u64 other = *(volatile u64 FP_MEM *)&h->generations[!place] & GENERATION_MASK;
	u32 first = row_of(h, skb), second = row_of(h, bytes);

	if (!(how & PASSING_RECORD)) {
		found = newer_record(find_passing(cpu, skb), find_passing(cpu, bytes), now);
		found = newer_record(found, find_passing(first, skb), now);
		found = newer_record(found, find_passing(second, bytes), now);
		if (age_of(found, now) > PASSING_TIME)
			found = 0;
		found &= GENERATION_MASK;
		if (found && found == other)
			return !place;
		if (!(how & PASSING_KEEP) || found == generation)
			return place;
	}
	now = now << GENERATION_BITS | generation;
	record_passing(how & PASSING_LOOPED ? first : cpu, skb, now);
	record_passing(how & PASSING_LOOPED ? second : cpu, bytes, now);
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

/* Types of routes with which a sent packet, or its copy, comes back: local, broadcast, multicast. */
#define RETURNING    (1u << 2 | 1u << 3 | 1u << 5)
#define ROUTE6_LOCAL 0x80000000u /* RTF_LOCAL */

/* True if a packet that this host sends may come back to it. */
FP_INLINE int is_returning(const struct sk_buff *skb, u32 is_ipv6)
{
	u64 route = skb->_skb_refdst & ~1ull, word;

	if (!route)
		return 0;
	if (!is_ipv6) {
		word = word_at(
			(const void *)(route + bpf_core_field_offset(struct rtable, rt_type)));
		return RETURNING >> (word & 15) & 1;
	}
	word = word_at((const void *)(route + bpf_core_field_offset(struct rt6_info, rt6i_flags)));
	/* The first byte of a multicast destination. */
	return word & ROUTE6_LOCAL || (word_at(skb->data + 24) & 0xff) == 0xff;
}

/*
 * True at a hook of a packet that passes, or may pass, the hooks of both directions: by the loopback device, as
 * a copy of a broadcast or multicast, or within a VRF.
 */
FP_INLINE int is_looped(const struct nf_hook_state *state, const struct sk_buff *skb)
{
	u32 is_sent = state->hook >= FP_RULES_OUTPUT;
	const struct net_device *device = is_sent ? state->out : state->in;

	if (device && device->type == TYPE_LOOPBACK)
		return 1;
	if (is_sent)
		return is_returning(skb, state->pf != PF_IPV4);
	return BPF_CORE_READ_BITFIELD(skb, pkt_type) == PACKET_LOOPBACK;
}

/*
 * The number of the place that a packet meets: one at all of its hooks, which it passes without a pause
 * except for queues and reassembly. While rules change, the program of table raw is at the first hooks. An
 * edit of chains needs no such time, since a packet passes one hook with these tables, but one that comes back
 * passes OUTPUT and INPUT: so it is always recorded.
 */
FP_INLINE u32 place_of(struct rules_hook FP_MEM *h, struct bpf_nf_ctx *ctx, u32 cpu, u32 program)
{
	const struct nf_hook_state *state = ctx->state;
	u32 place = active_place(h), hook = state->hook, how = PASSING_FIND, used;
	u32 looped = is_looped(state, ctx->skb);

	if (fp_unlikely(*(volatile u32 FP_MEM *)&h->changing)) {
		if (!program)
			how = looped && !hook ? PASSING_KEEP : PASSING_RECORD;
	} else {
		used = h->programs[place & 1][state->pf != PF_IPV4];
		if (!looped || !(used >> FP_RULES_OUTPUT & EACH_PROGRAM))
			return place;
		if (hook == FP_RULES_OUTPUT && is_first_at(used, program, hook))
			how = PASSING_RECORD;
	}
	if (looped)
		how |= PASSING_LOOPED;
	return recorded_place(packet_of(ctx), cpu, place, how);
}

#endif
