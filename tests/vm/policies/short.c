/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The flow with the fewest bytes goes first; each packet that leaves adds to them. */
#include <fairpath/policy.h>

struct flow {
	u64 bytes;
};

struct class
{
	PARAMS;
};

struct global {
};

POLICY{
	STATE,
	.name = "short",
	.about = "the flow with the fewest bytes goes first",
	.source = "a test",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
	.params = {
		{ "quantum", "bytes", "bytes of one turn", 1, 1000000, 3000 },
	},
};

RANK_ENQUEUE
{
	return r->backlogged ? KEEP : div(f->bytes, c->param[0]);
}

RANK_DEQUEUE
{
	f->bytes += p->bytes;
	return div(f->bytes, c->param[0]);
}
