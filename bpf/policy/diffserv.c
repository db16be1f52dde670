/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * DiffServ tins: DSCPs in a few bands, as in home routers: voice, video, default, bulk.
 *
 * `tins` is 8, 4, 3 or 1 (best effort: all DSCPs equal). Flows of one tin take turns. A tin
 * precedes later ones, for at most `guard`: see guard.h.
 *
 *   4 tins   3 tins   what is in it
 *   0        0        voice: CS7 CS6 EF VA; of 4 tins CS5 CS4, too
 *   1        1        video: AF4x AF3x AF2x CS3 CS2; of 3 tins these are default
 *   2        1        all others
 *   3        2        bulk: CS1, LE
 *
 * Source: the classes of RFC 4594, RFC 8622 (LE) and RFC 5865 (VA), in tins as in tc-cake(8).
 * Deliberately absent: CAKE's thresholds, by which a tin with too much traffic loses its priority.
 * For those, use tins.c on a node that splits by DSCP. CoDel in each tin is also absent: use such a
 * tree with leaves of fq_codel.
 */
#include "guard.h"

enum {
	DIFFSERV_TINS,
	DIFFSERV_GUARD,
};

struct flow {
};

struct class
{
	PARAMS;
};

struct global {
};

POLICY{
	STATE,
	.name = "diffserv",
	.about = "tins by DSCP: voice, video, default, bulk, in this order, without starvation",
	.source = "RFC 4594, RFC 8622, RFC 5865; tins as in tc-cake(8)",
	.over = PACKETS | FLOWS,
	.usual = FP_OVER_FLOWS,
	.params = { { .name = "tins",
		      .about = "8, 4, 3, or 1: best effort",
		      .min = 1,
		      .most = 8,
		      .standard = 4 },
		    { .name = "guard",
		      .unit = "ns",
		      .about = "maximum time that the previous tin goes first; 0: without limit",
		      .most = 10000000000,
		      .standard = 100000000 } },
};

/* Sets of DSCPs, a bit for each. */
enum {
	DIFFSERV_CS1 = 8,
	DIFFSERV_CS2 = 16,
	DIFFSERV_CS3 = 24,
	DIFFSERV_CS4 = 32,
	DIFFSERV_CS5 = 40,
	DIFFSERV_CS6 = 48,
	DIFFSERV_CS7 = 56,
	DIFFSERV_LE = 1,
	DIFFSERV_VA = 44,
	DIFFSERV_EF = 46,
};

#define DIFFSERV_BIT(dscp) (1ull << (dscp))
/* AFx1, AFx2, AFx3. */
#define DIFFSERV_AF(x)	 (0x15ull << (8 * (x) + 2))
#define DIFFSERV_CONTROL (DIFFSERV_BIT(DIFFSERV_CS6) | DIFFSERV_BIT(DIFFSERV_CS7))
#define DIFFSERV_VOICE	 (DIFFSERV_BIT(DIFFSERV_VA) | DIFFSERV_BIT(DIFFSERV_EF))
#define DIFFSERV_CALLS	 (DIFFSERV_BIT(DIFFSERV_CS4) | DIFFSERV_BIT(DIFFSERV_CS5))
#define DIFFSERV_SHELL	 DIFFSERV_BIT(DIFFSERV_CS2)
#define DIFFSERV_QUICK	 DIFFSERV_AF(2)
#define DIFFSERV_VIDEO	 (DIFFSERV_BIT(DIFFSERV_CS3) | DIFFSERV_AF(3) | DIFFSERV_AF(4))
#define DIFFSERV_HEAVY	 DIFFSERV_AF(1)
#define DIFFSERV_BULK	 (DIFFSERV_BIT(DIFFSERV_LE) | DIFFSERV_BIT(DIFFSERV_CS1))

/* True if the DSCP, as a bit, is among these. */
#define DIFFSERV_IN(bit, set) (((bit) & (set)) != 0)

FP_INLINE u64 diffserv_of_8(u64 bit)
{
	if (DIFFSERV_IN(bit, DIFFSERV_CONTROL))
		return 0;
	if (DIFFSERV_IN(bit, DIFFSERV_VOICE | DIFFSERV_CALLS))
		return 1;
	if (DIFFSERV_IN(bit, DIFFSERV_SHELL))
		return 2;
	if (DIFFSERV_IN(bit, DIFFSERV_QUICK))
		return 3;
	if (DIFFSERV_IN(bit, DIFFSERV_VIDEO))
		return 4;
	if (DIFFSERV_IN(bit, DIFFSERV_HEAVY))
		return 6;
	return DIFFSERV_IN(bit, DIFFSERV_BULK) ? 7 : 5;
}

FP_INLINE u64 diffserv_of_4(u64 bit)
{
	if (DIFFSERV_IN(bit, DIFFSERV_CONTROL | DIFFSERV_VOICE | DIFFSERV_CALLS))
		return 0;
	if (DIFFSERV_IN(bit, DIFFSERV_SHELL | DIFFSERV_QUICK | DIFFSERV_VIDEO))
		return 1;
	return DIFFSERV_IN(bit, DIFFSERV_BULK) ? 3 : 2;
}

FP_INLINE u64 diffserv_of_3(u64 bit)
{
	if (DIFFSERV_IN(bit, DIFFSERV_CONTROL | DIFFSERV_VOICE))
		return 0;
	return DIFFSERV_IN(bit, DIFFSERV_BULK) ? 2 : 1;
}

/* The tin of a DSCP, the first being 0. */
FP_INLINE u64 diffserv_tin(u32 dscp, u64 tins)
{
	u64 bit = shl(1, dscp & 63);

	if (tins >= 8)
		return diffserv_of_8(bit);
	if (tins >= 4)
		return diffserv_of_4(bit);
	return tins >= 3 ? diffserv_of_3(bit) : 0;
}

FP_INLINE u64 diffserv_rank(const u64 *param, const struct fp_meta *p, u64 now)
{
	return guard_rank(diffserv_tin(p->dscp, param[DIFFSERV_TINS]), now, param[DIFFSERV_GUARD]);
}

RANK_ENQUEUE
{
	return r->backlogged ? KEEP : diffserv_rank(c->param, p, r->now);
}

RANK_DEQUEUE
{
	return diffserv_rank(c->param, p, r->now);
}
