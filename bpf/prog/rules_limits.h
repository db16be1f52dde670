/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_limits.h: limits of the MSS that TCPMSS sets in FORWARD, until the packet reaches tcx egress.
 *
 *   mangle FORWARD ─ limits ─> filter, security FORWARD, mangle POSTROUTING ─> tcx egress: the MSS changes
 *
 * The limits belong to a SYN: its addresses and ports between both translations, and its sequence number.
 * So a packet that waits for a neighbour or in a queue, that moves to another CPU, and a copy of it keep
 * theirs. Each forwarded SYN has limits, perhaps none, in place of those of the same SYN before. Nothing
 * else removes them, so a dropped packet leaves them until their place is the oldest one of its group.
 */
#ifndef RULES_LIMITS_H
#define RULES_LIMITS_H

/* Mirrored in src/rules_hook.rs. */
#define LIMITS_GROUPS 4096
#define LIMITS_PLACES 4
#define LIMITS_USED   (1ull << 31)
#define TCP_SYN	      2
#define FAKE_ROUTE    0x10 /* DST_FAKE_RTABLE */
#define MILLISECOND   1000000

struct rules_limits {
	u64 check; /* key ^ value ^ second: a place that is written at the same time has another one */
	u64 value;  /* milliseconds << 32 | LIMITS_USED | FP_LIMITS_* */
	u64 second; /* ports and sequence number */
	u64 zero;
};

struct dst_entry___seen {
	struct net_device *dev;
	struct xfrm_state *xfrm;
	unsigned short flags;
} FP_CO_RE;

/* True if a packet that was read is a TCP packet with SYN. */
FP_INLINE int is_syn(const struct fp_rules_work FP_MEM *w)
{
	u64 word = w->word[FP_W_L4];

	return (u8)word == FP_P_TCP && (word & FP_L4_HEADER) && (word >> 48 & TCP_SYN);
}

/* Ports and sequence number of a SYN. */
FP_INLINE u64 second_of(const struct fp_rules_work FP_MEM *w)
{
	return fp_rules_u32_raw(w, w->transport) | (u64)fp_rules_u32_raw(w, w->transport + 4) << 32;
}

/* The key of the rest of it. Remote hosts choose addresses, so it has the seed of the set. */
FP_INLINE u64 key_of(const struct fp_rules FP_MEM *r, const struct fp_rules_work FP_MEM *w,
		     u64 second)
{
	if (w->family == FP_FAMILY_IPV4)
		return fp_hash_2(&r->keys, w->word[FP_W_ADDR], second);
	return fp_hash_5(&r->keys, w->word[FP_W_ADDR], w->word[FP_W_ADDR1], w->word[FP_W_ADDR2],
			 w->word[FP_W_ADDR3], second);
}

FP_INLINE struct rules_limits FP_MEM *limits_at(struct rules_hook FP_MEM *h, u64 key, u32 place)
{
	u64 at = (key & (LIMITS_GROUPS - 1)) * LIMITS_PLACES + place;

	return FP_AT(struct rules_limits, h, h->limits + at * sizeof(struct rules_limits));
}

/* The limits in a place, if they are those of the key; or 0. */
FP_INLINE u64 limits_in(const struct rules_limits FP_MEM *p, u64 key, u64 second)
{
	u64 check = *(volatile u64 FP_MEM *)&p->check, value = *(volatile u64 FP_MEM *)&p->value;

	if (*(volatile u64 FP_MEM *)&p->second != second || (check ^ value ^ second) != key)
		return 0;
	return value;
}

/* The limits of a SYN. LIMITS_USED: rules set none; 0: it is not known. */
static __attribute__((noinline)) u32 find_limits(struct fp_rules_work FP_MEM *w, u32 place)
{
	struct rules_hook FP_MEM *h = the_hook();
	const struct fp_rules FP_MEM *r =
		FP_AT(const struct fp_rules, h, h->sets[place & 1][w->family & 1]);
	u64 second = second_of(w), key = key_of(r, w, second), value;
	u32 i;

	for (i = 0; i < LIMITS_PLACES; i++) {
		value = limits_in(limits_at(h, key, i), key, second);
		if (value)
			return (u32)value;
	}
	return 0;
}

/* Keeps the limits of a SYN. */
static __attribute__((noinline)) int keep_limits(struct fp_rules_work FP_MEM *w, u32 place)
{
	struct rules_hook FP_MEM *h = the_hook();
	const struct fp_rules FP_MEM *r =
		FP_AT(const struct fp_rules, h, h->sets[place & 1][w->family & 1]);
	u64 second = second_of(w), key = key_of(r, w, second), value;
	u32 now = bpf_ktime_get_ns() / MILLISECOND, oldest = 0, age, i;
	struct rules_limits FP_MEM *to = limits_at(h, key, 0);

	for (i = 0; i < LIMITS_PLACES; i++) {
		struct rules_limits FP_MEM *p = limits_at(h, key, i);

		if (limits_in(p, key, second)) {
			to = p;
			break;
		}
		value = *(volatile u64 FP_MEM *)&p->value;
		age = value ? now - (u32)(value >> 32) : ~0u;
		if (age >= oldest) {
			oldest = age;
			to = p;
		}
	}
	value = (u64)now << 32 | LIMITS_USED | w->mss_limits;
	*(volatile u64 FP_MEM *)&to->second = second;
	*(volatile u64 FP_MEM *)&to->value = value;
	*(volatile u64 FP_MEM *)&to->check = key ^ value ^ second;
	return 0;
}

/* True if the packet does not reach tcx egress as it is: IPsec encrypts it, or a bridge forwards it. */
FP_INLINE int is_unseen(const struct sk_buff *skb)
{
	const u8 *dst = (const u8 *)(skb->_skb_refdst & ~1ull);

	if (bpf_core_field_exists(struct dst_entry___seen, xfrm) &&
	    word_at(dst + bpf_core_field_offset(struct dst_entry___seen, xfrm)))
		return 1;
	return word_at(dst + bpf_core_field_offset(struct dst_entry___seen, flags)) & FAKE_ROUTE;
}

/* Before the evaluation of a SYN at a hook behind mangle in FORWARD: it looks as limited there. */
static __attribute__((noinline)) int begin_limits(struct fp_rules_work FP_MEM *w, u32 place,
						  u32 is_first)
{
	u32 limits;

	FP_PUT(w->mss_limits, 0);
	FP_PUT(w->mss_unknown, 0);
	if (is_first)
		return 0;
	limits = find_limits(w, place);
	if (limits & (FP_LIMITS_BYTES | FP_LIMITS_PATH))
		fp_rules_repeat_mss(w, limits);
	return 0;
}

/* After it. */
static __attribute__((noinline)) int end_limits(struct bpf_nf_ctx *ctx,
						struct fp_rules_work FP_MEM *w, u32 place,
						u32 is_first, u32 verdict)
{
	if (is_first && verdict == FP_ACT_ACCEPT) {
		keep_limits(w, place);
		if (w->mss_limits & (FP_LIMITS_BYTES | FP_LIMITS_PATH) && is_unseen(ctx->skb))
			fp_add64(&the_hook()->strays, 1);
	}
	w->length = ctx->skb->len;
	/* Other packets take the scratch next. */
	FP_PUT(w->mss_unknown, 0);
	return 0;
}

#endif /* RULES_LIMITS_H */
