/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/chain.h: walks the chains of an image with a packet.
 *
 *   fp_rules_chain()  one base chain, to its verdict
 *
 * A run of rules with equal shape is scanned by their first comparison; a lookup finds the next
 * rule of a segment that can match. Both only skip rules that do not match, so order, verdict and
 * counters are those of the linear walk.
 */
#ifndef FP_RULES_CHAIN_H
#define FP_RULES_CHAIN_H

#include "change.h"

FP_INLINE struct fp_rules_image FP_MEM *fp_rules_image(struct fp_rules FP_MEM *r)
{
	return FP_AT(struct fp_rules_image, r, r->image);
}

/*
 * Mode sampled: selects each packet with a probability of one in `sample_every`, independently of
 * the others, so traffic with a period is not preferred. The sequence is Knuth's generator (MMIX).
 */
FP_INLINE void fp_rules_sample(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w)
{
	if (r->mode != FP_COUNT_SAMPLED)
		return;
	w->sampler = w->sampler * 6364136223846793005ull + 1442695040888963407ull;
	w->sample = !((w->sampler >> 32) * r->sample_every >> 32);
}

/* Counts a packet for an id. */
FP_INLINE void fp_rules_count(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w, u32 id)
{
	struct fp_rules_counter FP_MEM *counter;
	u32 mode = r->mode, times = 1;

	if (mode == FP_COUNT_NONE || id == FP_RULES_NONE)
		return;
	counter = FP_AT(struct fp_rules_counter, r,
			r->counters + w->cpu * r->stride + (u64)id * sizeof(*counter));
	if (fp_unlikely(mode == FP_COUNT_SAMPLED || w->shared))
		goto rare;
	counter->packets++;
	counter->bytes += w->counted;
	return;
rare:
	if (mode == FP_COUNT_SAMPLED) {
		if (!w->sample)
			return;
		times = r->sample_every;
	}
	if (w->shared) {
		fp_add64(&counter->packets, times);
		fp_add64(&counter->bytes, (u64)times * w->counted);
		return;
	}
	counter->packets += times;
	counter->bytes += (u64)times * w->counted;
}

FP_INLINE void fp_rules_note(struct fp_rules_work FP_MEM *w, u32 id)
{
	if (fp_unlikely(w->tracing)) {
		if (w->traced < FP_RULES_TRACE)
			w->trace[w->traced & (FP_RULES_TRACE - 1)] = id;
		w->traced++;
	}
}

/* The hash of a packet's words under the masks of a tuple; never 0. */
FP_INLINE u32 fp_rules_hash(const struct fp_rules_work FP_MEM *w,
			    const struct fp_rules_tuple FP_MEM *t)
{
	u32 i, shape = t->shape;
	u64 sum = t->seed;

	FP_UNROLL
	for (i = 0; i < FP_RULES_COMPARES; i++) {
		if (i >= t->count)
			break;
		sum = fp_mix64(sum ^ (w->word[shape & 15] & t->masks[i]));
		shape >>= 5;
	}
	sum >>= 32;
	return (u32)sum | !sum;
}

#define FP_RULES_LIST 0xffffff

/* The first record at or after `from` in a list of a table, or `none`. */
FP_INLINE u32 fp_rules_in_list(const u8 FP_MEM *segment, u32 list, u32 from, u32 none)
{
	const u32 FP_MEM *offsets = FP_AT(const u32, segment, list);
	u32 low = FP_ZERO, high, i;

	if (list & 1)
		return list - 1 >= from ? list - 1 : none;
	high = offsets[0];
	fp_loop(i, 32) {
		u32 middle = (low + high) >> 1;

		if (low >= high)
			break;
		if (offsets[1 + middle] < from)
			low = middle + 1;
		else
			high = middle;
	}
	return low < offsets[0] ? offsets[1 + low] : none;
}

/* The address that a table of prefixes is about. */
FP_INLINE u64 fp_rules_address(const struct fp_rules_work FP_MEM *w,
			       const struct fp_rules_prefixes FP_MEM *p)
{
	return __builtin_bswap64(w->word[p->word & (FP_RULES_WORDS - 1)] << (p->left & 63) &
				 p->mask);
}

/* The place of the index, for the range of an address. */
FP_INLINE const u32 FP_MEM *fp_rules_place(const u8 FP_MEM *segment,
					   const struct fp_rules_work FP_MEM *w,
					   const struct fp_rules_prefixes FP_MEM *p)
{
	u64 address = fp_rules_address(w, p), place = FP_ZERO;

	if (address >= p->base)
		place = (address - p->base) >> (p->shift & 63);
	if (place > p->most)
		place = p->most;
	return FP_AT(const u32, segment, p->at + place * sizeof(u32));
}

/* The rules of all prefixes that contain the packet's address, as in an entry; or 0. */
FP_INLINE u32 fp_rules_in_range(const u8 FP_MEM *segment, const struct fp_rules_work FP_MEM *w,
				const struct fp_rules_prefixes FP_MEM *p)
{
	const struct fp_rules_range FP_MEM *ranges =
		FP_AT(const struct fp_rules_range, segment, p->ranges);
	const u32 FP_MEM *place = fp_rules_place(segment, w, p);
	u64 address = fp_rules_address(w, p);
	u32 low = place[0], high = place[1], i;

	fp_loop(i, 32) {
		u32 middle = (low + high + 1) >> 1;

		if (low >= high)
			break;
		if (ranges[middle].first <= address)
			low = middle;
		else
			high = middle - 1;
	}
	return ranges[low].list;
}

/* The entry of a tuple that is `k` places behind that of the hash. */
FP_INLINE const struct fp_rules_entry FP_MEM *
fp_rules_entry(const u8 FP_MEM *segment, const struct fp_rules_tuple FP_MEM *t, u32 hash, u32 k)
{
	return FP_AT(const struct fp_rules_entry, segment,
		     t->at + (u64)((hash + k) & t->mask) * sizeof(struct fp_rules_entry));
}

/*
 * Fetches the counter of the rule at `at` of a segment. It is a guess: rules of a segment have ids in
 * order, and mostly the size of the first. A wrong guess stays within the counters, because in the
 * kernel a load from another page would fault, for each packet.
 */
FP_INLINE void fp_rules_fetch_counter(const struct fp_rules FP_MEM *r,
				      const struct fp_rules_work FP_MEM *w,
				      const struct fp_rules_record FP_MEM *segment, u32 at)
{
	const struct fp_rules_image FP_MEM *image = FP_AT(const struct fp_rules_image, r, r->image);
	const struct fp_rules_record FP_MEM *first = segment + 1;
	u32 size = (first->units | !first->units) * FP_RULES_UNIT;
	u64 id = (u64)first->id + (at - FP_RULES_UNIT) / size;

	if (id < image->rules)
		FP_FETCH(FP_AT(const struct fp_rules_counter, r,
			       r->counters + w->cpu * r->stride +
				       id * sizeof(struct fp_rules_counter)));
}

/*
 * The offset from the segment of the next rule that can match, from `from` on; or its end. The
 * entries of all tuples are fetched before the first is read, so that their cache misses overlap.
 */
FP_FUNC u32 fp_rules_next(const struct fp_rules FP_MEM *r FP_ARG,
			  struct fp_rules_work FP_MEM *w FP_ARG, const u8 FP_MEM *segment FP_ARG,
			  u32 from)
{
	const struct fp_rules_record FP_MEM *record =
		(const struct fp_rules_record FP_MEM *)segment;
	const struct fp_rules_lookup FP_MEM *lookup =
		FP_AT(const struct fp_rules_lookup, segment, record->id);
	const struct fp_rules_tuple FP_MEM *t = (const struct fp_rules_tuple FP_MEM *)(lookup + 1);
	volatile u32 FP_MEM *n = &w->step[0];
	u32 i, k, best = lookup->end;

	fp_loop(*n, FP_RULES_TUPLES) {
		const struct fp_rules_tuple FP_MEM *tuple = t + *n;
		u32 hash;

		if (*n >= lookup->tuples)
			break;
		if (tuple->count == FP_RULES_PREFIXES) {
			FP_FETCH(fp_rules_place(segment, w,
						(const struct fp_rules_prefixes FP_MEM *)tuple));
			continue;
		}
		hash = fp_rules_hash(w, tuple);
		w->hashes[*n] = hash;
		FP_FETCH(fp_rules_entry(segment, tuple, hash, 0));
	}
	fp_loop(i, FP_RULES_TUPLES) {
		u32 hash, found;

		if (i >= lookup->tuples)
			break;
		if (t->count == FP_RULES_PREFIXES) {
			found = fp_rules_in_range(segment, w,
						  (const struct fp_rules_prefixes FP_MEM *)t);
			if (found) {
				found = fp_rules_in_list(segment, found, from, best);
				best = found < best ? found : best;
			}
			t++;
			continue;
		}
		hash = w->hashes[i];
		fp_loop(k, FP_RULES_PROBES) {
			const struct fp_rules_entry FP_MEM *entry =
				fp_rules_entry(segment, t, hash, k);

			if (!entry->hash)
				break;
			if (entry->hash == hash) {
				found = fp_rules_in_list(segment, entry->list, from, best);
				best = found < best ? found : best;
				break;
			}
		}
		t++;
	}
	fp_rules_fetch_counter(r, w, record, best);
	return best;
}

/*
 * Scans a run: the number of rules from the start whose first comparison fails. Four are compared
 * for each check of the loop's budget.
 */
FP_INLINE u32 fp_rules_scan(const u8 FP_MEM *first, u32 count, u32 stride, u64 key, u32 not)
{
	u32 i = FP_ZERO;

#define FP_FIRST_(n)                                                                               \
	(((key & FP_AT(const struct fp_rules_compare, first, (u64)(n) * stride)->mask) ==          \
	  FP_AT(const struct fp_rules_compare, first, (u64)(n) * stride)->value) != not)
	while (i + 4 <= count && fp_can_loop) {
		if (FP_FIRST_(0))
			return i;
		if (FP_FIRST_(1))
			return i + 1;
		if (FP_FIRST_(2))
			return i + 2;
		if (FP_FIRST_(3))
			return i + 3;
		first += 4 * stride;
		i += 4;
	}
	while (i < count && fp_can_loop) {
		if (FP_FIRST_(0))
			return i;
		first += stride;
		i++;
	}
	return i;
}

FP_INLINE u32 fp_rules_verdict(struct fp_rules_work FP_MEM *w, u32 verdict, u32 argument, u32 rule)
{
	w->verdict = verdict;
	w->argument = argument;
	w->rule = rule;
	return verdict;
}

/*
 * A stack entry: offset of the next record | offset of the run or segment it is in << 32. Offsets
 * are in units.
 */
FP_INLINE u64 fp_rules_frame(u32 next, u32 within)
{
	return (u64)(within / FP_RULES_UNIT) << 32 | next / FP_RULES_UNIT;
}

#define FP_MATCHES_WORD_(k)                                                                        \
	if (k < words) {                                                                           \
		u32 s_ = shape >> (5 * k);                                                         \
		if (((w->word[s_ & 15] & compare[k].mask) != compare[k].value) != !!(s_ & 16))     \
			goto no;                                                                   \
	}

/* Without branches, of which the verifier would follow every combination. */
#define FP_KEY_(k)		  w->word[shape >> (5 * (k)) & 15]
#define FP_USED_(k)		  ((u64)(((s64)(k) - (s64)words) >> 63))
#define FP_DIFFERS_(k, key, used) ((((key) & compare[k].mask) ^ compare[k].value) & (used))

/*
 * Counts rules of a run from `at` on that match and have no target, as long as they have the shape of
 * the first, which has no tests and no negation. Returns the offset of the first other rule. The words
 * of the packet stay in registers. A rule of an odd number of comparisons is followed by 16 bytes.
 */
FP_INLINE u32 fp_rules_count_run(const struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
				 u32 at, u32 end)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image((struct fp_rules FP_MEM *)r);
	const struct fp_rules_record FP_MEM *record =
		FP_AT(const struct fp_rules_record, image, at);
	/* Units, number of comparisons and of tests, and the shape. */
	u64 kind = *(const u64 FP_MEM *)record;
	u32 words = record->words, shape = record->shape, stride = record->units * FP_RULES_UNIT;
	u32 exact = r->mode == FP_COUNT_EXACT;
	u64 counted = w->counted, row = r->counters + w->cpu * r->stride;
	u64 key0 = FP_KEY_(0), key1 = FP_KEY_(1), key2 = FP_KEY_(2), key3 = FP_KEY_(3);
	u64 used1 = FP_USED_(1), used3 = FP_USED_(3);

	if (w->tracing || w->shared || r->mode == FP_COUNT_SAMPLED || w->doomed || words > 4 ||
	    (shape & FP_SHAPE_NOTS))
		return at;
	while (at < end && fp_can_loop) {
		const struct fp_rules_compare FP_MEM *compare = fp_rules_compares(record);
		u64 differs;

		if (*(const u64 FP_MEM *)record != kind || record->action != FP_ACT_NONE)
			break;
		differs = FP_DIFFERS_(0, key0, ~0ull) | FP_DIFFERS_(1, key1, used1);
		if (words > 2)
			differs |= FP_DIFFERS_(2, key2, ~0ull) | FP_DIFFERS_(3, key3, used3);
		if (differs)
			break;
		if (exact) {
			struct fp_rules_counter FP_MEM *counter =
				FP_AT(struct fp_rules_counter, r,
				      row + (u64)record->id * sizeof(*counter));

			counter->packets++;
			counter->bytes += counted;
		}
		w->evaluated++;
		at += stride;
		record = FP_AT(const struct fp_rules_record, record, stride);
	}
	return at;
}

FP_INLINE u32 fp_rules_run_end(const struct fp_rules_record FP_MEM *head, u32 within)
{
	return within + FP_RULES_UNIT + head->id * (head->tests * FP_RULES_UNIT);
}

/*
 * From the rule at `at` of the run at `within`: skips rules whose first comparison fails, and counts
 * those that match without a target. Returns the offset of the first other rule, or the end of the run.
 * If nothing is counted, rules that only count are not compared.
 */
FP_FUNC u32 fp_rules_run(const struct fp_rules FP_MEM *r FP_ARG,
			 struct fp_rules_work FP_MEM *w FP_ARG, u32 within, u32 at)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image((struct fp_rules FP_MEM *)r);
	const struct fp_rules_record FP_MEM *head =
		FP_AT(const struct fp_rules_record, image, within);
	const struct fp_rules_record FP_MEM *record =
		FP_AT(const struct fp_rules_record, image, at);
	u32 stride = head->tests * FP_RULES_UNIT, end = fp_rules_run_end(head, within), skipped;

	if (at >= end || !stride || (head->action && r->mode == FP_COUNT_NONE && !w->tracing))
		return end;
	skipped = fp_rules_scan((const u8 FP_MEM *)fp_rules_compares(record), (end - at) / stride,
				stride, w->word[head->shape & 15], !!(head->shape & 16));
	at += skipped * stride;
	w->evaluated += skipped;
	if (at >= end)
		return end;
	record = FP_AT(const struct fp_rules_record, image, at);
	if (record->tests || record->action != FP_ACT_NONE)
		return at;
	return fp_rules_count_run(r, w, at, end);
}

/*
 * The answer of all tests by the first one, if that is one of known bits, such as the states of a
 * connection with which most sets begin; otherwise FP_MAYBE. It saves the calls.
 */
FP_INLINE u32 fp_rules_known_bits(const struct fp_rules_work FP_MEM *w,
				  const struct fp_rules_record FP_MEM *record)
{
	const struct fp_rules_test FP_MEM *t = fp_rules_tests(record);
	u32 word = t->word & 15;

	if (t->kind != FP_TEST_ANY_BITS || (w->unknown[word] & t->b))
		return FP_MAYBE;
	if (!(w->word[word] & t->b) != !(t->flags & FP_TEST_NOT))
		return record->tests == 1 ? FP_YES : FP_MAYBE;
	return FP_NO;
}

/* Walks from w->at to a verdict. */
FP_FUNC u32 fp_rules_walk_chains(struct fp_rules FP_MEM *r FP_ARG,
				 struct fp_rules_work FP_MEM *w FP_ARG)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image(r);
	const u32 FP_MEM *chains = FP_AT(const u32, image, image->chain_at);
	volatile u32 FP_MEM *evaluated = &w->evaluated, *i = &w->step[2];
	u32 at = w->at, within = w->within, slow = w->slow;

	fp_loop(*i, FP_RULES_STEPS) {
		const struct fp_rules_record FP_MEM *record =
			FP_AT(const struct fp_rules_record, image, at);
		const struct fp_rules_compare FP_MEM *compare;
		u32 words, shape, action, state, argument;

		if (within && !slow) {
			const struct fp_rules_record FP_MEM *head =
				FP_AT(const struct fp_rules_record, image, within);

			if (head->words == FP_RECORD_RUN) {
				at = fp_rules_run(r, w, within, at);
				/* Behind the run. */
				if (at == fp_rules_run_end(head, within)) {
					within = 0;
					continue;
				}
				record = FP_AT(const struct fp_rules_record, image, at);
			} else {
				at = within +
				     fp_rules_next(r, w, (const u8 FP_MEM *)head, at - within);
				record = FP_AT(const struct fp_rules_record, image, at);
				/* The record after the segment is the end of it. */
				if (record->words == FP_RECORD_LEAVE) {
					within = 0;
					at += FP_RULES_UNIT;
					continue;
				}
			}
		}
		words = record->words;
		action = record->action;
		argument = action >> 8;
		if (words > FP_RULES_COMPARES) {
			if (words == FP_RECORD_RUN || words == FP_RECORD_LOOKUP) {
				within = at;
				at += FP_RULES_UNIT;
				continue;
			}
			if (words == FP_RECORD_LEAVE) {
				within = 0;
				at += FP_RULES_UNIT;
				continue;
			}
			/* The end of a chain. */
			state = action & 0xff;
			if (state != FP_ACT_RETURN) {
				fp_rules_count(r, w, record->id);
				fp_rules_note(w, record->id);
				return fp_rules_verdict(w, state, 0, FP_RULES_NONE);
			}
			goto leave;
		}
		++*evaluated;
		shape = record->shape;
		compare = fp_rules_compares(record);
		if (fp_unlikely(slow)) {
			state = fp_rules_match_slowly(r, w, record);
			if (state == FP_NO)
				goto no;
			if (state == FP_HOTDROP)
				return fp_rules_verdict(w, FP_ACT_DROP, 1, FP_RULES_NONE);
			if (state == FP_MAYBE)
				return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->argument, record->id);
		} else {
			FP_MATCHES_WORD_(0)
			FP_MATCHES_WORD_(1)
			FP_MATCHES_WORD_(2)
			FP_MATCHES_WORD_(3)
			FP_MATCHES_WORD_(4)
			FP_MATCHES_WORD_(5)
			state = record->tests ? fp_rules_known_bits(w, record) : FP_YES;
			if (state == FP_NO)
				goto no;
			if (state == FP_MAYBE) {
				w->waiting = 0;
				state = fp_rules_all_tests(r, w, record, 0);
				if (state == FP_NO)
					goto no;
				if (state == FP_HOTDROP)
					return fp_rules_verdict(w, FP_ACT_DROP, 1, FP_RULES_NONE);
				if (w->waiting)
					return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->waiting,
								record->id);
			}
		}
		fp_rules_count(r, w, record->id);
		fp_rules_note(w, record->id);
		if (fp_unlikely(w->doomed)) {
			/* Its target still has its effect. */
			state = action & 0xff;
			if (state == FP_ACT_TARGET &&
			    fp_rules_change(r, w,
					    FP_AT(const struct fp_rules_test, record, argument)) ==
				    FP_MAYBE)
				return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->argument, record->id);
			if (state == FP_ACT_REJECT)
				return fp_rules_verdict(w, FP_ACT_REJECT, argument, record->id);
			return fp_rules_verdict(w, FP_ACT_DROP, 1, FP_RULES_NONE);
		}
		switch (action & 0xff) {
		case FP_ACT_NONE:
			goto no;
		case FP_ACT_TARGET: {
			const struct fp_rules_test FP_MEM *change =
				FP_AT(const struct fp_rules_test, record, argument);

			state = fp_rules_change(r, w, change);
			if (state == FP_HOTDROP)
				return fp_rules_verdict(w, FP_ACT_DROP, 0, record->id);
			if (state == FP_MAYBE)
				return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->argument, record->id);
			goto no;
		}
		case FP_ACT_RETURN:
			goto leave;
		case FP_ACT_JUMP:
			if (w->depth >= FP_RULES_DEPTH)
				return fp_rules_verdict(w, FP_ACT_UNKNOWN, FP_UNKNOWN_DEPTH,
							record->id);
			w->stack[w->depth & (FP_RULES_DEPTH - 1)] =
				fp_rules_frame(at + record->units * FP_RULES_UNIT, within);
			w->depth++;
			at = chains[argument];
			within = 0;
			continue;
		case FP_ACT_GOTO:
			at = chains[argument];
			within = 0;
			continue;
		default:
			return fp_rules_verdict(w, action & 0xff, argument, record->id);
		}
	no:
		at += record->units * FP_RULES_UNIT;
		continue;
	leave:
		if (!w->depth) {
			/* Out of a base chain: its policy. */
			const struct fp_rules_chain FP_MEM *chain =
				FP_AT(const struct fp_rules_chain, image, w->base);

			fp_rules_count(r, w, chain->policy_id);
			fp_rules_note(w, chain->policy_id);
			return fp_rules_verdict(w, chain->policy, 0, FP_RULES_NONE);
		}
		w->depth--;
		{
			u64 frame = w->stack[w->depth & (FP_RULES_DEPTH - 1)];

			at = (u32)frame * FP_RULES_UNIT;
			within = (u32)(frame >> 32) * FP_RULES_UNIT;
		}
	}
	w->error = 1;
	return fp_rules_verdict(w, FP_ACT_UNKNOWN, FP_UNKNOWN_STEPS, FP_RULES_NONE);
}

/* Runs a base chain. */
FP_INLINE u32 fp_rules_chain(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w, u32 number)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image(r);
	const u32 FP_MEM *chains = FP_AT(const u32, image, image->chain_at);

	w->at = chains[number];
	w->base = chains[number] - FP_RULES_UNIT;
	w->within = 0;
	w->depth = 0;
	return fp_rules_walk_chains(r, w);
}

#endif /* FP_RULES_CHAIN_H */
