/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/tables.h: tests with a memory by address: recent lists, and limits by key.
 *
 * The semantics are those of xt_recent and xt_hashlimit of Linux 6.18, with nanoseconds instead of
 * jiffies: the smaller the kernel's tick, the closer both are. Three limits are deliberate. An entry
 * of hashlimit expires at its time; the kernel removes it up to one gc interval later, or after its
 * CPU was idle. Credits do not overflow, as those of a key that is silent for 37 hours can in the
 * kernel. A packet that does not get the lock of a table within FP_LOCK_TRIES is dropped and counted,
 * because a guess could permit what a limit forbids.
 *
 *   buckets ─> entry ─> entry            open hashing with the keys of the memory's header
 *   oldest  ⇄  ...   ⇄  newest           by the last packet: for eviction and expiry
 *
 * Functions of one packet are inline here, because the chain of calls to this file is long already.
 */
#ifndef FP_RULES_TABLES_H
#define FP_RULES_TABLES_H

#include "state.h"

#define FP_SECOND 1000000000ull

/* The description of a table. */
FP_INLINE const struct fp_rules_table FP_MEM *fp_table_at(struct fp_rules FP_MEM *r, u32 number)
{
	const struct fp_rules_image FP_MEM *image = FP_AT(const struct fp_rules_image, r, r->image);

	return FP_AT(const struct fp_rules_table, image,
		     image->table_at + (u64)number * sizeof(struct fp_rules_table));
}

FP_INLINE struct fp_rules_store FP_MEM *fp_table_store(struct fp_rules FP_MEM *r,
						       const struct fp_rules_table FP_MEM *t)
{
	return FP_AT(struct fp_rules_store, r, r->tables + t->at);
}

FP_INLINE u32 FP_MEM *fp_table_bucket(struct fp_rules_store FP_MEM *s, u32 bucket)
{
	return FP_AT(u32, s + 1, (u64)bucket * sizeof(u32));
}

FP_INLINE struct fp_rules_kept FP_MEM *
fp_table_entry(struct fp_rules_store FP_MEM *s, const struct fp_rules_table FP_MEM *t, u32 number)
{
	u32 words = t->kind == FP_TABLE_RECENT ? t->stamps + 1 : FP_LIMIT_WORDS;
	u64 stride = sizeof(struct fp_rules_kept) + (u64)words * sizeof(u64);

	return FP_AT(struct fp_rules_kept, s + 1,
		     ((u64)t->buckets + 1) * sizeof(u32) + (u64)(number - 1) * stride);
}

FP_INLINE u64 FP_MEM *fp_kept_data(struct fp_rules_kept FP_MEM *e)
{
	return (u64 FP_MEM *)(e + 1);
}

/* The entry of the key in w->scratch, or 0. Leaves the key's bucket in w->walk_at. */
FP_FUNC u32 fp_table_find(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_table FP_MEM *t FP_ARG)
{
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	const u64 FP_MEM *key = w->scratch;
	u32 i, at;

	w->walk_at = (u32)fp_hash_5(&r->keys, key[0], key[1], key[2], key[3], key[4]) & t->buckets;
	at = *fp_table_bucket(s, w->walk_at);
	fp_loop(i, FP_TABLE_ENTRIES) {
		struct fp_rules_kept FP_MEM *e;

		if (!at)
			break;
		e = fp_table_entry(s, t, at);
		if (e->key[0] == key[0] && e->key[1] == key[1] && e->key[2] == key[2] &&
		    e->key[3] == key[3] && e->key[4] == key[4])
			return at;
		at = e->next;
	}
	return 0;
}

FP_INLINE void fp_table_unlink(struct fp_rules_store FP_MEM *s,
			       const struct fp_rules_table FP_MEM *t,
			       struct fp_rules_kept FP_MEM *e)
{
	if (e->older)
		fp_table_entry(s, t, e->older)->newer = e->newer;
	else
		s->oldest = e->newer;
	if (e->newer)
		fp_table_entry(s, t, e->newer)->older = e->older;
	else
		s->newest = e->older;
}

FP_INLINE void fp_table_link(struct fp_rules_store FP_MEM *s, const struct fp_rules_table FP_MEM *t,
			     struct fp_rules_kept FP_MEM *e, u32 at)
{
	e->older = s->newest;
	FP_PUT(e->newer, 0);
	if (s->newest)
		fp_table_entry(s, t, s->newest)->newer = at;
	else
		s->oldest = at;
	s->newest = at;
}

/* Makes an entry the newest. */
FP_FUNC u32 fp_table_touch(struct fp_rules_store FP_MEM *s FP_ARG,
			   const struct fp_rules_table FP_MEM *t FP_ARG, u32 at)
{
	struct fp_rules_kept FP_MEM *e = fp_table_entry(s, t, at);

	if (s->newest == at)
		return at;
	fp_table_unlink(s, t, e);
	fp_table_link(s, t, e, at);
	return at;
}

/* Adds an entry for the key of the last fp_table_find(). 0 if the table is full. */
FP_FUNC u32 fp_table_add(struct fp_rules_store FP_MEM *s FP_ARG,
			 struct fp_rules_work FP_MEM *w FP_ARG,
			 const struct fp_rules_table FP_MEM *t FP_ARG)
{
	struct fp_rules_kept FP_MEM *e;
	u32 FP_MEM *bucket = fp_table_bucket(s, w->walk_at);
	u32 at = s->free;

	if (at) {
		e = fp_table_entry(s, t, at);
		s->free = e->next;
	} else {
		if (s->used >= t->entries)
			return 0;
		at = s->used + 1;
		s->used = at;
		e = fp_table_entry(s, t, at);
	}
	FP_PUT(e->key[0], w->scratch[0]);
	FP_PUT(e->key[1], w->scratch[1]);
	FP_PUT(e->key[2], w->scratch[2]);
	FP_PUT(e->key[3], w->scratch[3]);
	FP_PUT(e->key[4], w->scratch[4]);
	e->bucket = w->walk_at;
	e->next = *bucket;
	*bucket = at;
	fp_table_link(s, t, e, at);
	s->count++;
	return at;
}

FP_FUNC u32 fp_table_remove(struct fp_rules_store FP_MEM *s FP_ARG,
			    const struct fp_rules_table FP_MEM *t FP_ARG, u32 at)
{
	struct fp_rules_kept FP_MEM *e = fp_table_entry(s, t, at);
	u32 FP_MEM *place = fp_table_bucket(s, e->bucket);
	u32 i;

	fp_loop(i, FP_TABLE_ENTRIES) {
		if (*place == at || !*place)
			break;
		place = &fp_table_entry(s, t, *place)->next;
	}
	*place = e->next;
	fp_table_unlink(s, t, e);
	e->next = s->free;
	s->free = at;
	s->count--;
	return at;
}

/* True if at least `wanted` stamps of an entry are not before `since`. */
FP_FUNC u32 fp_recent_hits(struct fp_rules_kept FP_MEM *e FP_ARG, u64 since, u32 limited,
			   u32 wanted)
{
	const u64 FP_MEM *stamps = fp_kept_data(e);
	u32 i, hits = FP_ZERO;

	fp_loop(i, FP_RECENT_STAMPS) {
		if (i >= e->stamps)
			break;
		if (limited && (s64)(since - stamps[i]) > 0)
			continue;
		if (++hits >= wanted)
			return 1;
	}
	return 0;
}

/* Removes the oldest entry if its last stamp is before `since`, but not the one that is updated. */
FP_FUNC u32 fp_recent_reap(struct fp_rules_store FP_MEM *s FP_ARG,
			   const struct fp_rules_table FP_MEM *t FP_ARG, u64 since, u32 updated)
{
	struct fp_rules_kept FP_MEM *e;
	u32 oldest = s->oldest;

	if (oldest == updated)
		return 0;
	e = fp_table_entry(s, t, oldest);
	if ((s64)(since - fp_kept_data(e)[(e->index - 1) & t->stamps]) <= 0)
		return 0;
	s->expired++;
	return fp_table_remove(s, t, oldest);
}

/* A new stamp of an entry. */
FP_FUNC u32 fp_recent_stamp(struct fp_rules_store FP_MEM *s FP_ARG,
			    const struct fp_rules_table FP_MEM *t FP_ARG, u32 at, u64 now, u32 ttl)
{
	struct fp_rules_kept FP_MEM *e = fp_table_entry(s, t, at);
	u32 index = e->index & t->stamps;

	fp_kept_data(e)[index] = now;
	e->index = index + 1;
	if (e->index > e->stamps)
		e->stamps = e->index;
	e->ttl = ttl;
	return fp_table_touch(s, t, at);
}

/* The TTL before forwarding, of a packet that leaves the host without a local socket. */
FP_INLINE u32 fp_recent_ttl(const struct fp_rules_work FP_MEM *w)
{
	u32 ttl = (u8)(w->word[FP_W_META] >> FP_META_TTL);

	if (!w->word[FP_W_OUT] || (w->known & FP_KNOWN_SOCKET))
		return ttl;
	return (u8)(ttl + 1);
}

/* With the lock of the list. */
FP_INLINE u32 fp_recent_locked(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
			       const struct fp_rules_test FP_MEM *test)
{
	const struct fp_rules_table FP_MEM *t = fp_table_at(r, test->a);
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	u32 at = fp_table_find(r, w, t), ttl = fp_recent_ttl(w), what = test->word & 3;
	u32 answer = test->flags & FP_TEST_NOT;
	u64 since = w->now - (u32)test->b * FP_SECOND;

	if (at && (test->word & FP_RECENT_TTL)) {
		u32 seen = fp_table_entry(s, t, at)->ttl;

		if (ttl && seen && ttl != seen)
			at = 0;
	}
	if (!at) {
		struct fp_rules_kept FP_MEM *e;

		if (what != FP_RECENT_SET)
			return answer;
		if (s->count >= t->entries) {
			fp_table_remove(s, t, s->oldest);
			s->evicted++;
		}
		at = fp_table_add(s, w, t);
		e = fp_table_entry(s, t, at);
		FP_PUT(e->index, 0);
		FP_PUT(e->stamps, 0);
		fp_recent_stamp(s, t, at, w->now, ttl);
		return !answer;
	}
	if (what == FP_RECENT_REMOVE) {
		fp_table_remove(s, t, at);
		return !answer;
	}
	if (what == FP_RECENT_SET) {
		answer = !answer;
	} else {
		answer ^= fp_recent_hits(fp_table_entry(s, t, at), since, (u32)test->b != 0,
					 (u32)(test->b >> 32));
		if (test->word & FP_RECENT_REAP)
			fp_recent_reap(s, t, since, what == FP_RECENT_UPDATE && answer ? at : 0);
	}
	if (what == FP_RECENT_SET || (what == FP_RECENT_UPDATE && answer))
		fp_recent_stamp(s, t, at, w->now, ttl);
	return answer;
}

/* The address of a packet as key of a recent list. */
FP_INLINE void fp_recent_key(struct fp_rules_work FP_MEM *w, const struct fp_rules_table FP_MEM *t,
			     u32 destination)
{
	u64 both = w->word[FP_W_ADDR];

	if (w->family == FP_FAMILY_IPV6) {
		w->scratch[0] = w->word[destination ? FP_W_ADDR2 : FP_W_ADDR] & t->source[0];
		w->scratch[1] = w->word[destination ? FP_W_ADDR3 : FP_W_ADDR1] & t->source[1];
	} else {
		w->scratch[0] = (u32)(destination ? both >> 32 : both) & t->source[0];
		FP_PUT(w->scratch[1], 0);
	}
	FP_PUT(w->scratch[2], 0);
	FP_PUT(w->scratch[3], 0);
	FP_PUT(w->scratch[4], 0);
}

FP_FUNC u32 fp_test_recent(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			   const struct fp_rules_test FP_MEM *test FP_ARG)
{
	const struct fp_rules_table FP_MEM *t = fp_table_at(r, test->a);
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	u32 answer;

	/* The TTL before forwarding depends on both interfaces. */
	if (t->ttl && w->unknown[FP_W_OUT])
		return fp_maybe(w, FP_UNKNOWN_OUTPUT);
	if (t->ttl && w->unknown[FP_W_IN] && !(w->known & FP_KNOWN_OWNER))
		return fp_maybe(w, FP_UNKNOWN_INPUT);
	if (t->ttl && w->word[FP_W_OUT] && !w->word[FP_W_IN] && !(w->known & FP_KNOWN_OWNER))
		return fp_maybe(w, FP_UNKNOWN_OWNER);
	fp_recent_key(w, t, test->word & FP_RECENT_DEST);
	if (!fp_lock(&s->lock)) {
		fp_add64(&s->contended, 1);
		return FP_HOTDROP;
	}
	answer = fp_recent_locked(r, w, test);
	fp_unlock(&s->lock);
	return answer;
}

/* Offset of the ports (or the index of IPsec) in a transport header, as the kernel; 256 none. */
FP_INLINE u32 fp_limit_port_at(u32 protocol)
{
	if (fp_rules_has_ports(protocol) || protocol == FP_P_ESP)
		return 0;
	return protocol == FP_P_AH ? 4 : 256;
}

/*
 * A packet of IPv6 whose headers do not lead to its protocol. As ipv6_skip_exthdr(), which ends at a
 * later fragment and reads two bytes of a routing header.
 */
FP_INLINE u32 fp_limit_broken(struct fp_rules_work FP_MEM *w)
{
	u32 next;

	if (w->unknown[FP_W_L4])
		return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
	if (fp_rules_walk(w, 256, 4) == FP_WALK_MISSING)
		return FP_YES;
	if (w->walk_next != FP_P_ROUTING || fp_rules_has(w, w->walk_at, 2) != FP_THERE)
		return FP_HOTDROP;
	next = fp_rules_u8(w, w->walk_at);
	return fp_rules_is_extension(next) || fp_limit_port_at(next) != 256 ? FP_HOTDROP : FP_YES;
}

/*
 * The key of a packet. A packet without the ports that the key has is dropped. In a later fragment of
 * IPv4 the kernel takes payload for ports.
 */
FP_FUNC u32 fp_limit_key(struct fp_rules_work FP_MEM *w FP_ARG,
			 const struct fp_rules_table FP_MEM *t FP_ARG)
{
	u64 both = w->word[FP_W_ADDR], ports = 0;
	u32 protocol = (u8)w->word[FP_W_L4], at = fp_limit_port_at(protocol), there;

	if (w->family == FP_FAMILY_IPV6) {
		w->scratch[0] = both & t->source[0];
		w->scratch[1] = w->word[FP_W_ADDR1] & t->source[1];
		w->scratch[2] = w->word[FP_W_ADDR2] & t->destination[0];
		w->scratch[3] = w->word[FP_W_ADDR3] & t->destination[1];
	} else {
		w->scratch[0] = (u32)both & t->source[0];
		FP_PUT(w->scratch[1], 0);
		w->scratch[2] = both >> 32 & t->destination[0];
		FP_PUT(w->scratch[3], 0);
	}
	FP_PUT(w->scratch[4], 0);
	if (!t->ports)
		return FP_YES;
	if (w->word[FP_W_L4] & FP_L4_FAILED)
		return fp_limit_broken(w);
	if (w->family == FP_FAMILY_IPV6 && !w->fragment && protocol == FP_P_NONE)
		return FP_HOTDROP;
	if (at == 256 || (w->family == FP_FAMILY_IPV6 && w->fragment))
		return FP_YES;
	at += w->transport;
	there = fp_rules_has(w, at, 4);
	if (there != FP_THERE)
		return fp_missing(w, there);
	if (t->ports & FP_LIMIT_SEND)
		ports = fp_rules_u16(w, at);
	if (t->ports & FP_LIMIT_RECEIVE)
		ports |= (u64)fp_rules_u16(w, at + 2) << 16;
	w->scratch[4] = ports;
	return FP_YES;
}

FP_INLINE u32 fp_limit_expired(struct fp_rules_kept FP_MEM *e,
			       const struct fp_rules_table FP_MEM *t, u64 now)
{
	return (s64)(now - fp_kept_data(e)[FP_LIMIT_LAST] - t->expire) >= 0;
}

/* Removes old entries, at most FP_TABLE_SWEEP. */
FP_FUNC u32 fp_limit_sweep(struct fp_rules_store FP_MEM *s FP_ARG,
			   struct fp_rules_work FP_MEM *w FP_ARG,
			   const struct fp_rules_table FP_MEM *t FP_ARG)
{
	volatile u32 FP_MEM *i = &w->step[1];

	fp_loop(*i, FP_TABLE_SWEEP) {
		u32 oldest = s->oldest;

		if (!oldest || !fp_limit_expired(fp_table_entry(s, t, oldest), t, w->now))
			break;
		fp_table_remove(s, t, oldest);
		s->expired++;
	}
	return 0;
}

/*
 * Ends the interval of a window if it is over: packets of the next one are above the limit if its
 * rate was. The rate's units of the interval are rounded down, which changes no comparison.
 */
FP_INLINE void fp_window_pass(u64 FP_MEM *data, const struct fp_rules_table FP_MEM *t, u64 now)
{
	u64 passed = now - data[FP_WINDOW_START], seconds = passed / FP_SECOND, units = ~0ull;

	if (seconds < t->interval)
		return;
	if (!(seconds >> 31))
		units = seconds * t->cost + passed % FP_SECOND * t->cost / FP_SECOND;
	data[FP_WINDOW_UNITS] =
		data[FP_WINDOW_UNITS] >> 1 > units / t->interval ? FP_WINDOW_OVER : 0;
	data[FP_WINDOW_START] = now;
}

/* The entry of the key with its credit at this time. 0 if the table is full. */
FP_INLINE u32 fp_limit_entry(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
			     const struct fp_rules_table FP_MEM *t)
{
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	u32 at = fp_table_find(r, w, t);
	u64 FP_MEM *data;
	u64 passed, credit, now = w->now;

	if (at && !fp_limit_expired(fp_table_entry(s, t, at), t, now)) {
		data = fp_kept_data(fp_table_entry(s, t, at));
		passed = now - data[FP_LIMIT_LAST];
		/* Packets of other CPUs can be a little later. */
		if ((s64)passed > 0) {
			data[FP_LIMIT_LAST] = now;
			if (t->kind == FP_TABLE_WINDOW) {
				fp_window_pass(data, t, now);
			} else {
				credit = t->capacity;
				if (passed < t->capacity)
					credit = data[FP_LIMIT_CREDIT] + passed * t->gain;
				if (credit > t->capacity)
					credit = t->capacity;
				data[FP_LIMIT_CREDIT] = credit;
			}
		}
		return fp_table_touch(s, t, at);
	}
	if (at) {
		s->expired++;
		fp_table_touch(s, t, at);
	} else {
		fp_limit_sweep(s, w, t);
		at = fp_table_add(s, w, t);
		if (!at)
			return 0;
	}
	data = fp_kept_data(fp_table_entry(s, t, at));
	data[FP_LIMIT_CREDIT] = t->kind == FP_TABLE_WINDOW ? 0 : t->capacity;
	data[FP_LIMIT_LAST] = now;
	data[FP_LIMIT_REFILLS] = t->kind == FP_TABLE_WINDOW ? now : t->refills;
	return at;
}

/* With the lock of the table. */
FP_INLINE u32 fp_limit_locked(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
			      const struct fp_rules_test FP_MEM *test)
{
	const struct fp_rules_table FP_MEM *t = fp_table_at(r, test->a);
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	u32 at = fp_limit_entry(r, w, t), not = test->flags & FP_TEST_NOT;
	u64 FP_MEM *data;
	u64 cost = t->cost;

	if (!at) {
		s->refused++;
		return FP_HOTDROP;
	}
	data = fp_kept_data(fp_table_entry(s, t, at));
	if (t->kind == FP_TABLE_WINDOW) {
		cost = t->gain ? 1 : w->length;
		data[FP_WINDOW_UNITS] += cost << 1;
		if (data[FP_WINDOW_UNITS] & FP_WINDOW_OVER ||
		    data[FP_WINDOW_UNITS] >> 1 > t->capacity)
			return not;
		return !not;
	}
	if (test->word) {
		u32 length = w->length < FP_LIMIT_LENGTH ? w->length : FP_LIMIT_LENGTH;

		cost *= (length >> 4) + 1;
		if (cost > t->capacity)
			cost = t->capacity;
		if (data[FP_LIMIT_CREDIT] < cost && data[FP_LIMIT_REFILLS]) {
			data[FP_LIMIT_REFILLS]--;
			data[FP_LIMIT_CREDIT] = t->capacity;
		}
	}
	if (data[FP_LIMIT_CREDIT] < cost)
		return not;
	data[FP_LIMIT_CREDIT] -= cost;
	return !not;
}

FP_FUNC u32 fp_test_hashlimit(struct fp_rules FP_MEM *r FP_ARG,
			      struct fp_rules_work FP_MEM *w FP_ARG,
			      const struct fp_rules_test FP_MEM *test FP_ARG)
{
	const struct fp_rules_table FP_MEM *t = fp_table_at(r, test->a);
	struct fp_rules_store FP_MEM *s = fp_table_store(r, t);
	u32 answer = fp_limit_key(w, t);

	if (answer != FP_YES)
		return answer;
	if (!fp_lock(&s->lock)) {
		fp_add64(&s->contended, 1);
		return FP_HOTDROP;
	}
	answer = fp_limit_locked(r, w, test);
	fp_unlock(&s->lock);
	return answer;
}

#endif /* FP_RULES_TABLES_H */
