/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_events.h: packets that rules logged or rejected, and those that a command traces, for user space.
 */
#ifndef RULES_EVENTS_H
#define RULES_EVENTS_H

/* Facts about a rejected packet that its answer needs. */
FP_INLINE void put_rejected(struct rules_event FP_MEM *e, struct fp_rules_work FP_MEM *w,
			    const struct sk_buff *skb)
{
	u64 nfct = skb->_nfct & ~7ull, route = skb->_skb_refdst & ~1ull, status;
	const u8 *to;

	e->packet = BPF_CORE_READ_BITFIELD(skb, pkt_type) | BPF_CORE_READ_BITFIELD(skb, ip_summed)
								    << 4;
	e->state = w->word[FP_W_META] >> FP_META_STATE & 31;
	e->route = 0;
	e->is_translated = 0;
	if (route)
		e->route = word_at((const u8 *)route +
				   (w->family == FP_FAMILY_IPV4
					    ? bpf_core_field_offset(struct rtable, rt_flags)
					    : bpf_core_field_offset(struct rt6_info, rt6i_flags)));
	if (!nfct)
		return;
	status = word_at((const u8 *)nfct + bpf_core_field_offset(struct nf_conn, status));
	/* IPS_CONFIRMED, IPS_DST_NAT */
	if (status & 8 || !(status & 32))
		return;
	to = (const u8 *)nfct + bpf_core_field_offset(struct nf_conn, tuplehash) +
	     bpf_core_field_offset(struct nf_conntrack_tuple_hash, tuple) +
	     bpf_core_field_offset(struct nf_conntrack_tuple, dst);
	e->original[0] = word_at(to);
	e->original[1] = word_at(to + 8);
	e->port = word_at(to + 16);
	e->is_translated = 1;
}

/* `skb`: of a rejected packet. */
FP_INLINE void put_event(struct rules_hook FP_MEM *h, struct fp_rules_work FP_MEM *w, u32 kind,
			 u32 where, u32 place, u32 point, const struct sk_buff *skb)
{
	u64 number = __sync_fetch_and_add(&h->event, 1);
	struct rules_event FP_MEM *e =
		FP_AT(struct rules_event, h,
		      h->events + (number & (EVENTS - 1)) * sizeof(struct rules_event));
	u32 i;

	/* A full barrier: a reader that sees a word of this packet sees the number change. */
	__sync_lock_test_and_set(&e->number, 0);
	e->time = w->now;
	e->generation = h->generations[place & 1];
	e->in[0] = w->word[FP_W_IN];
	e->in[1] = w->word[FP_W_IN + 1];
	e->out[0] = w->word[FP_W_OUT];
	e->out[1] = w->word[FP_W_OUT + 1];
	e->source = w->word[FP_W_SMAC];
	e->destination = w->word[FP_W_DMAC];
	e->kind = kind;
	e->where = where;
	e->argument = w->argument;
	e->mark = (u32)w->word[FP_W_MARK];
	e->length = w->length;
	e->captured = w->captured < EVENT_BYTES ? w->captured : EVENT_BYTES;
	e->family = w->family;
	e->hook = point & 0xff;
	e->program = point >> 8 & 0xff;
	e->has_link = point >> 16;
	e->verdict = w->verdict;
	e->kind_of_packet = w->word[FP_W_MISC];
	e->connection = w->word[FP_W_META];
	e->date = w->date;
	e->connection_mark = w->word[FP_W_MARK] >> 32;
	e->random = w->random;
	e->user = w->user;
	e->group = w->group;
	e->known = w->known;
	e->local_offset = w->local_offset;
	e->path = w->path;
	e->types = w->word[FP_W_TYPE] >> 16;
	for (i = 0; i < EVENT_BYTES / 8; i++)
		e->head[i] = ((volatile u64 FP_MEM *)w->head)[i];
	if (skb)
		put_rejected(e, w, skb);
	fp_cas64(&e->number, 0, number + 1);
}

/* Rules that logged a packet, and one that rejected it. */
static __attribute__((noinline)) int
report(struct rules_scratch FP_MEM *s, const struct sk_buff *skb, u32 verdict, u32 place, u32 point)
{
	struct rules_hook FP_MEM *h = the_hook();
	struct fp_rules_work FP_MEM *w = &s->work;
	u32 image, i = FP_ZERO;

	image = (u32)(u64)fp_rules_image(
		FP_AT(struct fp_rules, h, h->sets[place & 1][w->family & 1]));
	for (; i < w->logged && i < FP_RULES_LOGS && fp_can_loop; i++)
		put_event(h, w, EVENT_LOG, w->log[i & (FP_RULES_LOGS - 1)] - image, place, point,
			  0);
	if (w->logged > FP_RULES_LOGS)
		fp_add64(&h->unlogged, w->logged - FP_RULES_LOGS);
	if (verdict == FP_ACT_REJECT)
		put_event(h, w, EVENT_REJECT, w->rule, place, point, skb);
	return 0;
}

/* A packet that a filter selects, after its evaluation. */
static __attribute__((noinline)) int trace(struct rules_scratch FP_MEM *s, u32 place, u32 point)
{
	struct rules_hook FP_MEM *h = the_hook();
	struct fp_rules_work FP_MEM *w = &s->work;
	u32 side = FP_ZERO, i, directions = h->filter.directions;

	for (; side < directions && side < FILTER_DIRECTIONS && fp_can_loop; side++) {
		const struct fp_rules_compare FP_MEM *c =
			h->filter.compare[side & 1][w->family & 1];

		for (i = FP_ZERO; i < FILTER_WORDS && fp_can_loop; i++)
			if ((w->word[i & (FP_RULES_WORDS - 1)] & c[i & 15].mask) != c[i & 15].value)
				break;
		if (i == FILTER_WORDS) {
			put_event(h, w, EVENT_TRACE, w->rule, place, point, 0);
			break;
		}
	}
	return 0;
}

#endif
