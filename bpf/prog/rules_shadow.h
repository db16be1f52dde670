/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_shadow.h: rules in the shadow decide nothing. Their verdicts are compared with those of the rules
 * that run.
 *
 *   rules_raw ... rules_security ─ record of the packet ─> iptables, nftables ─> rules_after
 *
 * A packet passes a hook without a pause. So a record that rules_after does not meet is that of a packet
 * which was dropped, unless it waits in a queue of user space. It is found when the address of the packet
 * enters a hook again, when its place is wanted after WAIT, or by user space. Every record is owned by the
 * program that has exchanged its key: interrupts and other CPUs find no key.
 */
#ifndef RULES_SHADOW_H
#define RULES_SHADOW_H

/* Places of records: BUCKETS of ENTRIES each. */
#define SHADOW_BUCKETS 8192
#define SHADOW_ENTRIES 4
/* Bytes of a packet in a record. */
#define SHADOW_BYTES 128
/* Nanoseconds after which the place of a record is used again: longer than queues keep packets. */
#define SHADOW_WAIT 10000000000ull
/* Rules that disagree, how many places are tried for one, and example packets of each. */
#define SHADOW_ROWS	1024
#define SHADOW_TRIES	32
#define SHADOW_EXAMPLES 4
/* Bits of `programs` for a hook: PROGRAM * 5. */

/* Outcomes of packets that are compared, then those of packets that are not. */
#define SHADOW_ACCEPT	0 /* both accept */
#define SHADOW_DROP	1 /* both drop */
#define SHADOW_OURS	2 /* only these rules drop */
#define SHADOW_THEIRS	3 /* only those that run drop */
#define SHADOW_EARLY	4 /* those that run dropped before all of these tables were evaluated */
#define SHADOW_FULL	5 /* all places of its bucket are in use */
#define SHADOW_UNKNOWN	6 /* accepted by those that run, without a record */
#define SHADOW_UNLISTED 7 /* disagree, and their rule has no row */
#define SHADOW_OUTCOMES 8

/* Mirrored in src/rules_hook/shadow.rs, with all that follows. */
struct rules_shadowed {
	u64 key;     /* address of the packet; 0: free; 1: it has an owner */
	u64 version; /* changes with each packet */
	u64 time;
	u64 generation;
	u64 in[2];
	u64 out[2];
	u32 rule; /* counter of the rule or policy that decided last, or FP_RULES_NONE */
	u32 mark;
	u32 length;
	u32 captured;
	u8 family;
	u8 hook;
	u8 program; /* the last one that was evaluated */
	u8 verdict;
	u32 pad;
	u64 head[SHADOW_BYTES / 8];
	u64 spare[5];
};

struct rules_disagreement {
	u64 key; /* 0: free */
	u64 count;
	u64 spare[6];
	struct rules_shadowed examples[SHADOW_EXAMPLES];
};

/* Of one CPU and place. */
struct rules_outcomes {
	u64 count[5][FAMILIES][SHADOW_OUTCOMES];
};

#define SHADOW_WRITING 1ull

FP_INLINE struct rules_shadowed FP_MEM *shadowed_at(struct rules_hook FP_MEM *h, u64 key, u32 entry)
{
	u64 at = (fp_mix64(key) & (SHADOW_BUCKETS - 1)) * SHADOW_ENTRIES + entry;

	return FP_AT(struct rules_shadowed, h, h->shadow + at * sizeof(struct rules_shadowed));
}

FP_INLINE struct rules_disagreement FP_MEM *row_at(struct rules_hook FP_MEM *h, u32 place, u64 at)
{
	u64 rows = h->shadow + SHADOW_BUCKETS * SHADOW_ENTRIES * sizeof(struct rules_shadowed);

	at = (place & 1) * SHADOW_ROWS + (at & (SHADOW_ROWS - 1));
	return FP_AT(struct rules_disagreement, h, rows + at * sizeof(struct rules_disagreement));
}

FP_INLINE void count_outcome(struct rules_hook FP_MEM *h, u32 place, u32 hook, u32 family,
			     u32 outcome)
{
	u64 rows = h->shadow + SHADOW_BUCKETS * SHADOW_ENTRIES * sizeof(struct rules_shadowed) +
		   PLACES * SHADOW_ROWS * sizeof(struct rules_disagreement);
	u32 cpu = bpf_get_smp_processor_id();
	u64 at = (place & 1) * (u64)h->cpus + (cpu < h->cpus ? cpu : 0);

	fp_add64(&FP_AT(struct rules_outcomes, h, rows + at * sizeof(struct rules_outcomes))
			  ->count[hook][family & 1][outcome],
		 1);
}

/* A packet for the report, if its rule has a row. */
FP_INLINE void note_disagreement(struct rules_hook FP_MEM *h, u32 place, u32 outcome,
				 struct rules_shadowed FP_MEM *p)
{
	u64 key = 1ull << 63 | (u64)outcome << 40 | (u64)p->family << 36 | (u64)p->hook << 32 |
		  p->rule;
	u64 first = fp_mix64(key), number;
	struct rules_disagreement FP_MEM *row;
	struct rules_shadowed FP_MEM *e;
	u32 i = FP_ZERO, word = FP_ZERO;

	for (; i < SHADOW_TRIES && fp_can_loop; i++) {
		u64 there;

		row = row_at(h, place, first + i);
		there = *(volatile u64 FP_MEM *)&row->key;
		if (!there) {
			there = fp_cas64(&row->key, 0, key);
			if (!there)
				there = key;
		}
		if (there == key)
			goto found;
	}
	count_outcome(h, place, p->hook, p->family, SHADOW_UNLISTED);
	return;
found:
	number = __sync_fetch_and_add(&row->count, 1);
	if (number >= SHADOW_EXAMPLES)
		return;
	e = &row->examples[number & (SHADOW_EXAMPLES - 1)];
	for (word = 1; word < sizeof(*e) / 8 && fp_can_loop; word++)
		((volatile u64 FP_MEM *)e)[word] = ((volatile u64 FP_MEM *)p)[word];
	fp_store_release64(&e->key, SHADOW_WRITING);
}

/* Compares the verdicts about a packet, whose record the caller owns. Records of replaced rules end here. */
FP_FUNC int judge(struct rules_shadowed FP_MEM *p FP_ARG, u32 is_accepted)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 place = 0, later, outcome, hook = p->hook;

	if (hook > 4)
		return 0;
	if (p->generation != *(volatile u64 FP_MEM *)&h->generations[0]) {
		place = 1;
		if (p->generation != *(volatile u64 FP_MEM *)&h->generations[1])
			return 0;
	}
	if (p->verdict != FP_ACT_ACCEPT) {
		outcome = is_accepted ? SHADOW_OURS : SHADOW_DROP;
	} else if (is_accepted) {
		outcome = SHADOW_ACCEPT;
	} else {
		later = EACH_PROGRAM & ~((1u << (p->program * 5 + 5)) - 1);
		outcome = h->drops[place][p->family & 1] >> hook & later ? SHADOW_EARLY
									 : SHADOW_THEIRS;
	}
	count_outcome(h, place, hook, p->family, outcome);
	if (outcome > SHADOW_DROP)
		note_disagreement(h, place, outcome, p);
	return 0;
}

/* The record of a packet. The caller owns it. 0: there is none. */
FP_INLINE struct rules_shadowed FP_MEM *take_own(struct rules_hook FP_MEM *h, u64 key)
{
	u32 i;

	for (i = 0; i < SHADOW_ENTRIES; i++) {
		struct rules_shadowed FP_MEM *p = shadowed_at(h, key, i);

		if (*(volatile u64 FP_MEM *)&p->key == key &&
		    fp_cas64(&p->key, key, SHADOW_WRITING) == key)
			return p;
	}
	return 0;
}

/* A place that is free, or that has the record of a packet which is gone. */
FP_INLINE struct rules_shadowed FP_MEM *take_free(struct rules_hook FP_MEM *h, u64 key, u64 now)
{
	u32 i;

	for (i = 0; i < SHADOW_ENTRIES; i++) {
		struct rules_shadowed FP_MEM *p = shadowed_at(h, key, i);

		if (!*(volatile u64 FP_MEM *)&p->key && !fp_cas64(&p->key, 0, SHADOW_WRITING))
			return p;
	}
	for (i = 0; i < SHADOW_ENTRIES; i++) {
		struct rules_shadowed FP_MEM *p = shadowed_at(h, key, i);
		u64 other = *(volatile u64 FP_MEM *)&p->key;

		if (other <= SHADOW_WRITING || now < p->time + SHADOW_WAIT ||
		    fp_cas64(&p->key, other, SHADOW_WRITING) != other)
			continue;
		/* The same address may have entered again in between. */
		if (now < *(volatile u64 FP_MEM *)&p->time + SHADOW_WAIT) {
			fp_store_release64(&p->key, other);
			continue;
		}
		judge(p, 0);
		return p;
	}
	return 0;
}

/* True if an earlier table of this hook has dropped the packet. */
FP_FUNC u32 is_settled(struct bpf_nf_ctx *ctx)
{
	struct rules_hook FP_MEM *h = the_hook();
	u64 key = packet_of(ctx);
	u32 i;

	for (i = 0; i < SHADOW_ENTRIES; i++) {
		struct rules_shadowed FP_MEM *p = shadowed_at(h, key, i);

		if (*(volatile u64 FP_MEM *)&p->key == key)
			return p->verdict != FP_ACT_ACCEPT;
	}
	return 0;
}

/* The counter of the rule that decided, or of the policy. */
FP_INLINE u32 deciding(struct rules_hook FP_MEM *h, struct fp_rules_work FP_MEM *w, u32 place)
{
	const struct fp_rules_chain FP_MEM *chain;

	/* A packet with a broken header has no rule, and an argument. */
	if (w->rule != FP_RULES_NONE || w->argument)
		return w->rule;
	chain = FP_AT(const struct fp_rules_chain,
		      fp_rules_image(FP_AT(struct fp_rules, h, h->sets[place & 1][w->family & 1])),
		      w->base);
	return chain->policy_id;
}

/* Records the verdict of a table. `point`: its program | hook << 8 | it is the first one at the hook << 16. */
FP_FUNC int record_verdict(struct bpf_nf_ctx *ctx, struct rules_scratch FP_MEM *s FP_ARG, u32 place,
			   u32 point)
{
	struct rules_hook FP_MEM *h = the_hook();
	struct fp_rules_work FP_MEM *w = &s->work;
	u64 key = packet_of(ctx);
	struct rules_shadowed FP_MEM *p = take_own(h, key);
	u32 i, hook = point >> 8 & 0xff;

	if (hook > 4)
		return 0;
	if (point >> 16) {
		if (p)
			judge(p, 0);
		else
			p = take_free(h, key, w->now);
		if (!p) {
			count_outcome(h, place, hook, w->family, SHADOW_FULL);
			return 0;
		}
		p->version++;
		p->time = w->now;
		p->generation = h->generations[place & 1];
		p->in[0] = w->word[FP_W_IN];
		p->in[1] = w->word[FP_W_IN + 1];
		p->out[0] = w->word[FP_W_OUT];
		p->out[1] = w->word[FP_W_OUT + 1];
		p->mark = (u32)w->word[FP_W_MARK];
		p->length = w->length;
		p->captured = w->captured < SHADOW_BYTES ? w->captured : SHADOW_BYTES;
		p->family = w->family;
		p->hook = hook;
		for (i = 0; i < SHADOW_BYTES / 8; i++)
			p->head[i] = ((volatile u64 FP_MEM *)w->head)[i];
	}
	if (!p)
		return 0;
	p->rule = deciding(h, w, place);
	p->program = point & 0xff;
	p->verdict = w->verdict;
	fp_store_release64(&p->key, key);
	return 0;
}

/* Nothing evaluates a table for the packet. A record at the first program is that of a packet before. */
FP_FUNC int give_up(struct bpf_nf_ctx *ctx, u32 is_first)
{
	struct rules_shadowed FP_MEM *p = take_own(the_hook(), packet_of(ctx));

	if (!p)
		return 0;
	if (is_first)
		judge(p, 0);
	fp_store_release64(&p->key, 0);
	return 0;
}

/* The rules that run have accepted the packet at this hook. */
FP_FUNC int was_accepted(struct bpf_nf_ctx *ctx)
{
	struct rules_hook FP_MEM *h = the_hook();
	const struct nf_hook_state *state = ctx->state;
	u32 place = *(volatile u64 FP_MEM *)&h->active & 1, family = state->pf != PF_IPV4, used;
	struct rules_shadowed FP_MEM *p;
	u32 hook = state->hook;

	if (!h->shadow || hook > 4)
		return 0;
	p = take_own(h, packet_of(ctx));
	if (p) {
		/* That of a packet before with the same address was not accepted. */
		judge(p, p->hook == hook && (p->family & 1) == family);
		fp_store_release64(&p->key, 0);
		return 0;
	}
	used = h->programs[place][family];
	/* While rules change, earlier programs may have met others. */
	if (used & SHADOW && used >> hook & EACH_PROGRAM && !h->changing)
		count_outcome(h, place, hook, family, SHADOW_UNKNOWN);
	return 0;
}

#endif /* RULES_SHADOW_H */
