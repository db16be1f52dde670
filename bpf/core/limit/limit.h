/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * limit/limit.h: one rate for many CPUs. A CPU sends from its own pool of tokens, and goes to the word that
 * all share only when the pool is empty.
 *
 *   fp_limit_take()  bytes of a limit and of those around it for a CPU, before they leave: now, or when
 *   fp_limit_pay()   bytes of one limit that left, and when the next ones may: for a scheduler, which
 *                    waits at each level of its tree
 *   fp_limit_pace()  when bytes of a limit and of those around it leave: for packets that wait elsewhere
 *
 * The shared word is the theoretical arrival time of GCRA (ITU-T I.371). A grant moves it forward by the time
 * that its bytes take, and these may leave when the word is at most `depth` ahead of the clock. A CPU that
 * must wait has its grant already. So CPUs that wait are served in the order of their grants, one grant each,
 * and none of them reads the shared word again before its time. The word never goes back, so in the long run
 * nothing leaves above the rate, whatever CPUs do at the same time.
 *
 * A pool of a class is filled from the pool of its site on the same CPU, and that one from the pool of the
 * port. Each has its own word, which is read once for each grant: depth costs a packet nothing.
 *
 * docs/design/0021 has the bounds and their proofs.
 */
#ifndef FP_LIMIT_H
#define FP_LIMIT_H

#include "abi.h"

FP_INLINE struct fp_limit FP_MEM *fp_limit_at(struct fp_limits FP_MEM *l, u32 limit)
{
	return FP_AT(struct fp_limit, l, l->limits + (u64)limit * sizeof(struct fp_limit));
}

FP_INLINE struct fp_limit_pool FP_MEM *fp_limit_pool_at(struct fp_limits FP_MEM *l, u32 limit,
							u32 cpu)
{
	return FP_AT(struct fp_limit_pool, l,
		     l->pools + cpu * l->row + (u64)limit * sizeof(struct fp_limit_pool));
}

FP_INLINE const struct fp_limit_rate FP_MEM *fp_limit_rate_of(const struct fp_limit FP_MEM *limit,
							      u32 change)
{
	return &limit->rate[change & 1];
}

/* True if bytes are more than 0: a debt is less. */
FP_INLINE int fp_limit_has(u64 bytes)
{
	return bytes && !(bytes >> 63);
}

/* Rounded up, so that the rate is never exceeded. */
FP_INLINE u64 fp_limit_time(const struct fp_limit_rate FP_MEM *rate, u64 bytes)
{
	u64 product = bytes * rate->mult;
	u32 shift = rate->shift & 63;
	u64 time = product >> shift;

	return time + (time << shift != product);
}

/*
 * A grant of `bytes`: moves the shared word, and returns the nanosecond from which they may leave. 0: not
 * granted, because other CPUs were faster each time.
 *
 * A word that is not before the clock is moved by an addition, which cannot fail. Only the first grant after a
 * pause compares.
 */
FP_INLINE u64 fp_limit_grant(struct fp_limit FP_MEM *limit, const struct fp_limit_rate FP_MEM *rate,
			     u64 bytes, u64 now)
{
	u64 time = fp_limit_time(rate, bytes), clock = now << FP_LIMIT_FRACTION, seen, next;
	u32 i;

	seen = fp_shared_load64(&limit->granted);
	fp_loop(i, FP_LIMIT_TRIES) {
		u64 there;

		if (seen >= clock && seen - clock <= rate->horizon) {
			next = fp_shared_add64(&limit->granted, time) + time;
			goto granted;
		}
		next = clock + time;
		there = fp_shared_cas64(&limit->granted, seen, next);
		if (there == seen) {
			if (seen > clock)
				fp_shared_add64(&limit->resets, 1);
			goto granted;
		}
		seen = there;
	}
	return 0;
granted:
	/* The first whole nanosecond that is not too early. */
	if (next <= rate->depth)
		return 1;
	return ((next - rate->depth - 1) >> FP_LIMIT_FRACTION) + 1;
}

/* Bytes that a pool gets at once, at most: its part of the rate, or the part that its packets claim. */
FP_INLINE u32 fp_limit_most(const struct fp_limit_pool FP_MEM *pool,
			    const struct fp_limit_rate FP_MEM *rate)
{
	u32 own = *(const volatile u32 FP_MEM *)&pool->own;

	if (!own)
		return rate->pool;
	return own < FP_LIMIT_REQUEST ? own : FP_LIMIT_REQUEST;
}

/* Takes `bytes` that other CPUs gave back. 0: there are less. */
FP_INLINE int fp_limit_take_spare(struct fp_limit FP_MEM *limit,
				  const struct fp_limit_rate FP_MEM *rate, u64 bytes)
{
	u64 seen, has;

	if (fp_likely(!rate->spare))
		return 0;
	seen = fp_shared_load64(&limit->spare);
	has = seen < rate->spare ? seen : rate->spare;
	return has >= bytes && fp_shared_cas64(&limit->spare, seen, has - bytes) == seen;
}

/*
 * Gives back `bytes` that a pool has no packets for. At a low rate, a grant is far behind the others, and would be
 * lost to all until then.
 */
FP_INLINE void fp_limit_give_back(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
				  const struct fp_limit_rate FP_MEM *rate, u64 bytes)
{
	u64 seen, sum, there;
	u32 i;

	if (fp_likely(!rate->spare) || !bytes)
		return;
	pool->grants++;
	seen = fp_shared_load64(&limit->spare);
	fp_loop(i, FP_LIMIT_TRIES) {
		sum = seen + bytes < rate->spare ? seen + bytes : rate->spare;
		there = fp_shared_cas64(&limit->spare, seen, sum);
		if (there == seen)
			break;
		seen = there;
	}
}

/* At another rate: forgets tokens above its pool, and a grant that waits. A debt stays. */
FP_INLINE void fp_limit_follow(struct fp_limit_pool FP_MEM *pool,
			       const struct fp_limit_rate FP_MEM *rate, u32 change)
{
	if (pool->change == change)
		return;
	pool->change = change;
	if (fp_limit_has(pool->tokens) && pool->tokens > fp_limit_most(pool, rate))
		pool->tokens = fp_limit_most(pool, rate);
	FP_PUT(pool->waiting, 0ull);
	FP_PUT(pool->ready, 0ull);
}

/* Ends tokens that are too old, except for `used` bytes of them. */
FP_INLINE void fp_limit_expire(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
			       const struct fp_limit_rate FP_MEM *rate, u64 used, u64 now)
{
	u64 left = pool->tokens - used;

	if (now < pool->ends || !fp_limit_has(pool->tokens) || !fp_limit_has(left))
		return;
	pool->tokens = used;
	fp_limit_give_back(limit, pool, rate, left);
}

/* Forgets a grant that was not used for too long. */
FP_INLINE void fp_limit_forget(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
			       const struct fp_limit_rate FP_MEM *rate, u64 now)
{
	if (now > pool->ready && now - pool->ready > rate->life) {
		fp_limit_give_back(limit, pool, rate, pool->waiting);
		FP_PUT(pool->waiting, 0ull);
	}
}

/* Bytes that a pool without `bytes` requests; 0: its tokens and its grant are as many. */
FP_INLINE u64 fp_limit_wanted(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
			      const struct fp_limit_rate FP_MEM *rate, u64 bytes, u64 now)
{
	u64 has, most = fp_limit_most(pool, rate);

	fp_limit_forget(limit, pool, rate, now);
	has = pool->tokens + pool->waiting;
	if (has >= bytes)
		return 0;
	return (bytes > most ? bytes : most) - has;
}

/*
 * Requests `bytes` of one limit for a pool without as many tokens. 0: its grant may leave now; else the time
 * to try again.
 */
FP_INLINE u64 fp_limit_request(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
			       const struct fp_limit_rate FP_MEM *rate, u64 bytes, u64 now)
{
	u64 wanted = fp_limit_wanted(limit, pool, rate, bytes, now), has, ready;

	if (!wanted)
		return now < pool->ready ? pool->ready : 0;
	has = pool->tokens + pool->waiting;
	if (!pool->waiting && fp_limit_take_spare(limit, rate, bytes - has)) {
		pool->grants++;
		pool->waiting = bytes - has;
		pool->ready = now;
		return 0;
	}
	ready = fp_limit_grant(limit, rate, wanted, now);
	if (!ready)
		return now + 1;
	pool->grants++;
	pool->waiting += wanted;
	pool->ready = ready;
	return now < ready ? ready : 0;
}

/*
 * Up from a limit whose pool has not enough: each pool on the path gets a grant, until one has enough tokens,
 * which pays, or has no parent. Returns their number (FP_LIMIT_LEVEL_BITS), and above it the time to wait, or 0.
 */
FP_FUNC u64 fp_limit_climb(struct fp_limits FP_MEM *l FP_ARG, u32 number, u32 cpu, u32 bytes,
			   u64 now)
{
	struct fp_limit_pool FP_MEM *first = fp_limit_pool_at(l, number, cpu), *pool;
	u64 need = bytes, wait;
	u32 at = number, level;

	fp_loop(level, FP_LIMIT_LEVELS) {
		struct fp_limit FP_MEM *limit = fp_limit_at(l, at);
		u32 change = *(volatile u32 FP_MEM *)&limit->change;
		const struct fp_limit_rate FP_MEM *rate = fp_limit_rate_of(limit, change);

		pool = fp_limit_pool_at(l, at, cpu);
		fp_limit_follow(pool, rate, change);
		fp_limit_expire(limit, pool, rate, 0, now);
		if (pool->tokens >= need) {
			pool->tokens -= need;
			pool->sent += need;
			return level;
		}
		wait = fp_limit_request(limit, pool, rate, need, now);
		if (wait) {
			/* A class that waits for its site is not checked again before. */
			if (first->ready < wait)
				first->ready = wait;
			return wait << FP_LIMIT_LEVEL_BITS | level;
		}
		need = pool->waiting;
		at = limit->parent;
		if (at == FP_LIMIT_NONE)
			return level + 1;
	}
	return level;
}

/* Down from the limit that paid: each of the `filled` pools below it gets its grant, of which it pays the next. */
FP_INLINE void fp_limit_settle(struct fp_limits FP_MEM *l, u32 number, u32 cpu, u32 bytes,
			       u32 filled, u64 now)
{
	u64 need = bytes;
	u32 at = number, level;

	fp_loop(level, FP_LIMIT_LEVELS) {
		struct fp_limit FP_MEM *limit;
		struct fp_limit_pool FP_MEM *pool;
		u64 granted, from;

		if (level >= filled)
			break;
		limit = fp_limit_at(l, at);
		pool = fp_limit_pool_at(l, at, cpu);
		granted = pool->waiting;
		from = now < pool->ready ? pool->ready : now;
		pool->ends = from + fp_limit_rate_of(limit, pool->change)->life;
		pool->tokens += granted - need;
		FP_PUT(pool->waiting, 0ull);
		pool->sent += need;
		need = granted;
		at = limit->parent;
	}
}

/*
 * Takes `bytes` of a limit and of its parents for a CPU: 0, or the nanosecond at which to try again. Requests of
 * one CPU come one after the other.
 */
FP_FUNC u64 fp_limit_take(struct fp_limits FP_MEM *l FP_ARG, u32 number, u32 cpu, u32 bytes,
			  u64 now)
{
	struct fp_limit_pool FP_MEM *pool = fp_limit_pool_at(l, number, cpu);
	struct fp_limit FP_MEM *limit = fp_limit_at(l, number);
	u64 climbed;

	if (fp_likely(pool->change == *(volatile u32 FP_MEM *)&limit->change && now < pool->ends)) {
		if (fp_likely(pool->tokens >= bytes)) {
			pool->tokens -= bytes;
			pool->sent += bytes;
			return 0;
		}
		if (pool->tokens + pool->waiting >= bytes && now < pool->ready)
			return pool->ready;
	}
	climbed = fp_limit_climb(l, number, cpu, bytes, now);
	if (climbed >> FP_LIMIT_LEVEL_BITS) {
		pool->refusals++;
		return climbed >> FP_LIMIT_LEVEL_BITS;
	}
	fp_limit_settle(l, number, cpu, bytes, (u32)climbed, now);
	return 0;
}

/*
 * 0 if a limit may grant `bytes` to a paced packet; else the nanosecond from which. It may not while packets
 * wait for it longer than they may, or would leave too late.
 */
FP_INLINE u64 fp_limit_opens(struct fp_limit FP_MEM *limit, const struct fp_limit_rate FP_MEM *rate,
			     u64 bytes, u64 now)
{
	u64 clock = now << FP_LIMIT_FRACTION, seen = fp_shared_load64(&limit->granted), ahead;
	u64 may = rate->depth + (rate->wait << FP_LIMIT_FRACTION);

	ahead = seen >= clock && seen - clock <= rate->horizon ? seen - clock : 0;
	if (ahead > may)
		return ((seen - may - 1) >> FP_LIMIT_FRACTION) + 1;
	ahead += fp_limit_time(rate, bytes);
	return ahead > rate->depth + (FP_LIMIT_LONGEST << FP_LIMIT_FRACTION) ? now + 1 : 0;
}

/* Bytes of the lowest `levels` pools of a path leave at `ready`, or later. */
FP_FUNC u64 fp_limit_defer(struct fp_limits FP_MEM *l FP_ARG, u32 number, u32 cpu, u32 levels,
			   u64 ready)
{
	u32 at = number, level;

	fp_loop(level, FP_LIMIT_LEVELS) {
		struct fp_limit_pool FP_MEM *pool;

		if (level >= levels)
			break;
		pool = fp_limit_pool_at(l, at, cpu);
		if (pool->ready < ready)
			pool->ready = ready;
		at = fp_limit_at(l, at)->parent;
	}
	return 0;
}

/*
 * Up from a limit whose pool has not enough, as fp_limit_climb(), but grants may be for later. Returns the
 * number of pools that get a grant; more than FP_LIMIT_LEVELS: one must not have it.
 */
FP_FUNC u32 fp_limit_reserve(struct fp_limits FP_MEM *l FP_ARG, u32 number, u32 cpu, u32 bytes,
			     u64 now)
{
	struct fp_limit_pool FP_MEM *first = fp_limit_pool_at(l, number, cpu), *pool;
	u32 at = number, level;
	u64 need = bytes;

	fp_loop(level, FP_LIMIT_LEVELS) {
		struct fp_limit FP_MEM *limit = fp_limit_at(l, at);
		u32 change = *(volatile u32 FP_MEM *)&limit->change;
		const struct fp_limit_rate FP_MEM *rate = fp_limit_rate_of(limit, change);
		u64 wanted, ready;

		pool = fp_limit_pool_at(l, at, cpu);
		fp_limit_follow(pool, rate, change);
		fp_limit_expire(limit, pool, rate, 0, now);
		if (pool->tokens >= need) {
			pool->tokens -= need;
			pool->sent += need;
			fp_limit_defer(l, number, cpu, level, pool->ready);
			return level;
		}
		wanted = fp_limit_wanted(limit, pool, rate, need, now);
		if (wanted) {
			ready = fp_limit_opens(limit, rate, wanted, now);
			if (ready) {
				FP_PUT(first->closed, ready);
				return FP_LIMIT_LEVELS + 1;
			}
			ready = fp_limit_grant(limit, rate, wanted, now);
			if (!ready)
				return FP_LIMIT_LEVELS + 1;
			pool->grants++;
			pool->waiting += wanted;
			if (pool->ready < ready)
				pool->ready = ready;
		}
		fp_limit_defer(l, number, cpu, level, pool->ready);
		need = pool->waiting;
		at = limit->parent;
		if (at == FP_LIMIT_NONE)
			return level + 1;
	}
	return level;
}

/*
 * Takes `bytes` of a limit and of its parents for a CPU, for a packet that waits elsewhere until its time.
 * Returns the nanosecond at which it leaves, `now` or later; 0: it is dropped, as too many wait. Packets of one
 * pool leave in the order of their requests.
 */
FP_FUNC u64 fp_limit_pace(struct fp_limits FP_MEM *l FP_ARG, u32 number, u32 cpu, u32 bytes,
			  u64 now)
{
	struct fp_limit_pool FP_MEM *pool = fp_limit_pool_at(l, number, cpu);
	struct fp_limit FP_MEM *limit = fp_limit_at(l, number);
	u32 filled;

	if (fp_unlikely(pool->change != *(volatile u32 FP_MEM *)&limit->change)) {
		FP_PUT(pool->closed, 0ull);
	} else if (fp_likely(now < pool->ends && pool->tokens >= bytes)) {
		pool->tokens -= bytes;
		pool->sent += bytes;
		return now < pool->ready ? pool->ready : now;
	} else if (now < pool->closed) {
		pool->refusals++;
		return 0;
	}
	filled = fp_limit_reserve(l, number, cpu, bytes, now);
	if (filled > FP_LIMIT_LEVELS) {
		pool->refusals++;
		return 0;
	}
	fp_limit_settle(l, number, cpu, bytes, filled, now);
	return now < pool->ready ? pool->ready : now;
}

/* Requests as many bytes for a pool without tokens as it may have, at least `next` of them. Returns as fp_limit_pay. */
FP_INLINE u64 fp_limit_fill(struct fp_limit FP_MEM *limit, struct fp_limit_pool FP_MEM *pool,
			    const struct fp_limit_rate FP_MEM *rate, u32 next, u64 now)
{
	u32 most = fp_limit_most(pool, rate);
	u64 wanted = !next ? 0 : next > most ? next : most;
	u64 has = pool->tokens + pool->waiting, ready;

	if (next ? !fp_limit_has(has) : has >> 63) {
		if (fp_unlikely(rate->spare) && !pool->waiting &&
		    fp_limit_take_spare(limit, rate, next - has)) {
			pool->grants++;
			pool->tokens = next;
			pool->ends = now + rate->life;
			return 0;
		}
		wanted -= has;
		ready = fp_limit_grant(limit, rate, wanted, now);
		if (!ready)
			return now + 1;
		pool->grants++;
		pool->waiting += wanted;
		pool->ready = ready;
	}
	if (now < pool->ready) {
		pool->refusals += next != 0;
		return pool->ready;
	}
	pool->tokens += pool->waiting;
	FP_PUT(pool->waiting, 0ull);
	pool->ends = now + rate->life;
	return 0;
}

/*
 * Before `bytes` leave: the pool follows the rate, gets a grant whose time has come, and loses tokens that are too
 * old. A packet has its grant, however long it waited for levels above.
 */
FP_RARE int fp_limit_catch_up(struct fp_limit FP_MEM *limit FP_ARG,
			      struct fp_limit_pool FP_MEM *pool FP_ARG, u32 bytes, u64 now)
{
	u32 change = *(volatile u32 FP_MEM *)&limit->change;
	const struct fp_limit_rate FP_MEM *rate = fp_limit_rate_of(limit, change);

	fp_limit_follow(pool, rate, change);
	if (pool->waiting && now >= pool->ready) {
		pool->tokens += pool->waiting;
		FP_PUT(pool->waiting, 0ull);
		pool->ends = pool->ready + rate->life;
	}
	fp_limit_expire(limit, pool, rate, bytes, now);
	return 0;
}

/* No packet waits for the tokens of a pool: of a low rate, others may have them. */
FP_RARE int fp_limit_return(struct fp_limit FP_MEM *limit FP_ARG,
			    struct fp_limit_pool FP_MEM *pool FP_ARG)
{
	const struct fp_limit_rate FP_MEM *rate = fp_limit_rate_of(limit, pool->change);

	if (!rate->spare)
		return 0;
	fp_limit_give_back(limit, pool, rate, pool->tokens);
	pool->tokens = 0;
	return 0;
}

/*
 * `bytes` of one limit left by the CPU of `pool`, perhaps more than it had. `next` are the bytes of the packet
 * that waits behind, FP_LIMIT_SOME if these are not known, 0 if none waits. Returns 0 if it may leave now,
 * else the nanosecond from which. Limits around this one are separate.
 */
FP_FUNC u64 fp_limit_pay(struct fp_limit FP_MEM *limit FP_ARG,
			 struct fp_limit_pool FP_MEM *pool FP_ARG, u32 bytes, u32 next, u64 now)
{
	u32 change = *(volatile u32 FP_MEM *)&limit->change;
	const struct fp_limit_rate FP_MEM *rate = fp_limit_rate_of(limit, change);

	pool->sent += bytes;
	if (bytes)
		FP_PUT(pool->last, (u64)bytes);
	if (next == FP_LIMIT_SOME && pool->last)
		next = (u32)pool->last;
	if (next > FP_LIMIT_REQUEST)
		next = FP_LIMIT_REQUEST;
	if (fp_unlikely(pool->change != change || now >= pool->ends ||
			(pool->waiting && now >= pool->ready)))
		fp_limit_catch_up(limit, pool, bytes, now);
	pool->tokens -= bytes;
	if (fp_likely(fp_limit_has(pool->tokens))) {
		if (fp_unlikely(!next))
			fp_limit_return(limit, pool);
		return 0;
	}
	if (fp_unlikely(pool->tokens < 0 - FP_LIMIT_DEBT && pool->tokens))
		pool->tokens = 0 - FP_LIMIT_DEBT;
	return fp_limit_fill(limit, pool, rate, next, now);
}

#endif /* FP_LIMIT_H */
