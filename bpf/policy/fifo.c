/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* First in, first out: the baseline for comparisons. All ranks are 0, so it has no function. */
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
	.name = "fifo",
	.about = "first in, first out",
	.source = "the default of every interface",
	.over = PACKETS | FLOWS | CHILDREN | REFERENCES,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_BANDS, .buckets = 1 },
};
