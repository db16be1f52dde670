/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A loop whose end the verifier cannot find: the interpreter runs it, the kernel refuses it. */
#include <fairpath/policy.h>

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
	.name = "refused",
	.about = "a loop of as many rounds as the packet has bytes",
	.source = "a test",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	u64 sum = 1;
	u32 i;

	for (i = 0; i < p->bytes; i++)
		sum = sum * 31 + (sum >> 7) + i;
	return sum;
}
