/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Token bucket: a maximum rate, with a burst after idle time. First in, first out.
 *
 * Over packets there is one bucket for all, over flows one for each. A packet may leave when the
 * bucket holds its length. A packet that borrows makes the tokens negative, and later packets wait
 * for them.
 *
 * Stored as one time, `full`: when the bucket will be full again, or was. It holds `burst` bytes
 * minus (full - now) * rate.
 *
 * Source: Sivaraman and others, Programmable Packet Scheduling at Line Rate, SIGCOMM 2016, section
 * 3.1 (send_time of a shaping transaction). Deliberately absent: a peak rate, which is a second
 * bucket.
 */
#include <fairpath/policy.h>

enum {
	TOKEN_BUCKET_RATE,
	TOKEN_BUCKET_BURST,
};

struct flow {
	u64 full;
};

struct class
{
	PARAMS;
	u64 full;
};

struct global {
};

POLICY{
	STATE,
	.name = "token_bucket",
	.about = "first in, first out, limited to a rate with bursts; over flows, each flow",
	.source = "Sivaraman and others: Programmable Packet Scheduling, SIGCOMM 2016, 3.1",
	.over = PACKETS | FLOWS,
	.usual = FP_OVER_PACKETS,
	.params = { { .name = "rate",
		      .unit = "bps",
		      .about = "rate of tokens",
		      .min = 8000,
		      .most = 1000000000000,
		      .standard = 100000000 },
		    { .name = "burst",
		      .unit = "bytes",
		      .about = "capacity of the bucket",
		      .min = 64,
		      .most = 8388608,
		      .standard = 15140 } },
};

/* When a packet of `bytes` may leave; takes its tokens. */
FP_INLINE u64 token_bucket_take(u64 *full, const u64 *param, u64 now, u64 bytes)
{
	u64 rate = param[TOKEN_BUCKET_RATE];

	*full = add(max(*full, now), time_at(bytes, rate));
	return sub(*full, time_at(param[TOKEN_BUCKET_BURST], rate));
}

RANK_ENQUEUE
{
	return r->backlogged ? KEEP : 0;
}

SEND_TIME
{
	if (r->over == FP_OVER_FLOWS)
		return token_bucket_take(&f->full, c->param, r->now, p->bytes);
	return token_bucket_take(&c->full, c->param, r->now, p->bytes);
}
