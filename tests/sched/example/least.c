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
	.name = "least",
	.about = "the flow with the fewest bytes sent leaves first",
	.source = "the guide",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
};

RANK_ENQUEUE
{
	u64 *flows = (u64 *)f;

	return flows[p->flow_hash & 15];
}

RANK_DEQUEUE
{
	f->bytes = add(f->bytes, p->bytes);
	return f->bytes;
}
