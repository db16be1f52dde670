/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/loss.h: which packets are lost.
 *
 * There is no generator with state. The number of a packet, a seed and a purpose give 64 bits, so
 * packet n of a direction has the same outcome in every runtime. A chance is a threshold of 64
 * bits: 0 is never and ~0 is always, exactly.
 *
 *   each     each packet is lost with chance p
 *   two      good and bad: the state changes, then the chance of the new state decides. Gilbert
 *            (1960), Elliott (1963). Correlated loss is such a chain.
 *   four     received 1, lost in a burst 3, received in a burst 2, lost alone 4: the new state is
 *            the outcome. Salsano and others: Definition of a general and intuitive loss model
 *            for packet networks and its implementation in the Netem module, 2012
 *   pattern  a list of bits, repeated
 *
 * Chains start in a state that is drawn from their stationary distribution, so that the mean loss
 * holds from the first packet.
 *
 * The only input is a packet number. An XDP program includes this file with an empty FP_LOSS_MEM,
 * and stores the state in a map under a lock.
 */
#ifndef FP_LOSS_H
#define FP_LOSS_H

#include "../hash.h"

#ifndef FP_LOSS_MEM
#define FP_LOSS_MEM FP_MEM
#endif

#define FP_PATTERN_WORDS 16
#define FP_LOSS_CHANCES	 8

/* Purposes of draws: different purposes give independent numbers for the same packet. */
enum fp_purpose {
	FP_FOR_LOSS = 1,
	FP_FOR_MOVE = 2,
	FP_FOR_START = 3,
	FP_FOR_DELAY = 4,
	FP_FOR_COPY = 5,
	FP_FOR_CORRUPTION = 6,
	FP_FOR_BIT = 7,
	FP_FOR_AHEAD = 8,
	FP_FOR_SLOT = 9,
};

enum fp_loss_model {
	FP_LOSS_NONE = 0,
	FP_LOSS_EACH = 1,    /* chance[0] */
	FP_LOSS_TWO = 2,     /* good to bad, bad to good, loss in good, loss in bad, begins bad */
	FP_LOSS_FOUR = 3,    /* of 1: to 3, to 3 or 4; of 2: to 3; of 3: to 1, to 1 or 2; begins in
				1, in 1 or 2, in 1 to 3 */
	FP_LOSS_PATTERN = 4, /* `bits` of pattern, the lowest of the first word first */
};

struct fp_loss_config {
	u64 seed;
	u32 model; /* enum fp_loss_model */
	u32 bits;
	u64 chance[FP_LOSS_CHANCES];
	u64 pattern[FP_PATTERN_WORDS];
};

struct fp_loss_state {
	u64 packets; /* numbered so far, which is the number of the next */
	u32 state;   /* of the chain; 0 before the first packet */
	u32 lost;    /* whether the last packet was lost */
};

/* The number of packet `n` for a purpose. */
FP_INLINE u64 fp_draw(u64 seed, u64 n, u32 purpose)
{
	u64 stream = fp_mix64(seed + purpose * 0xda942042e4dd58b5ull);

	return fp_mix64(stream + n * 0x9e3779b97f4a7c15ull);
}

FP_INLINE int fp_happens(u64 draw, u64 chance)
{
	return draw < chance || chance == ~0ull;
}

/* State 1 is good, 2 is bad. */
FP_INLINE u32 fp_loss_next_of_two(const struct fp_loss_config FP_LOSS_MEM *c, u32 state, u64 n)
{
	u64 draw = fp_draw(c->seed, n, FP_FOR_MOVE);

	if (state == 1)
		return fp_happens(draw, c->chance[0]) ? 2 : 1;
	if (state == 2)
		return fp_happens(draw, c->chance[1]) ? 1 : 2;
	return 1 + fp_happens(fp_draw(c->seed, n, FP_FOR_START), c->chance[4]);
}

FP_INLINE u32 fp_loss_first_of_four(const struct fp_loss_config FP_LOSS_MEM *c, u64 n)
{
	u64 draw = fp_draw(c->seed, n, FP_FOR_START);

	if (fp_happens(draw, c->chance[5]))
		return 1;
	if (fp_happens(draw, c->chance[6]))
		return 2;
	return fp_happens(draw, c->chance[7]) ? 3 : 4;
}

FP_INLINE u32 fp_loss_next_of_four(const struct fp_loss_config FP_LOSS_MEM *c, u32 state, u64 n)
{
	u64 draw = fp_draw(c->seed, n, FP_FOR_MOVE);

	switch (state) {
	case 1:
		if (fp_happens(draw, c->chance[0]))
			return 3;
		return fp_happens(draw, c->chance[1]) ? 4 : 1;
	case 2:
		return fp_happens(draw, c->chance[2]) ? 3 : 2;
	case 3:
		if (fp_happens(draw, c->chance[3]))
			return 1;
		return fp_happens(draw, c->chance[4]) ? 2 : 3;
	case 4:
		return 1;
	}
	return fp_loss_first_of_four(c, n);
}

FP_INLINE int fp_loss_in_pattern(const struct fp_loss_config FP_LOSS_MEM *c, u64 n)
{
	u32 bits = c->bits;
	u32 bit;

	if (!bits || bits > FP_PATTERN_WORDS * 64)
		return 0;
	bit = fp_hide32((u32)(n % bits));
	return c->pattern[bit >> 6 & (FP_PATTERN_WORDS - 1)] >> (bit & 63) & 1;
}

/*
 * True if packet `n` is lost. The state changes, so call it once for each packet, in the order of
 * their numbers.
 */
FP_INLINE int fp_loss_decide(const struct fp_loss_config FP_LOSS_MEM *c,
			     struct fp_loss_state FP_LOSS_MEM *state, u64 n)
{
	u32 is;

	switch (c->model) {
	case FP_LOSS_EACH:
		return fp_happens(fp_draw(c->seed, n, FP_FOR_LOSS), c->chance[0]);
	case FP_LOSS_TWO:
		is = fp_loss_next_of_two(c, state->state, n);
		FP_PUT(state->state, is);
		return fp_happens(fp_draw(c->seed, n, FP_FOR_LOSS), c->chance[is == 2 ? 3 : 2]);
	case FP_LOSS_FOUR:
		is = fp_loss_next_of_four(c, state->state, n);
		FP_PUT(state->state, is);
		return is >= 3;
	case FP_LOSS_PATTERN:
		return fp_loss_in_pattern(c, n);
	}
	return 0;
}

#endif /* FP_LOSS_H */
