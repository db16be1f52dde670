/*
 * @NAME@: share the bytes equally among flows, with a head start for a flow that was idle.
 *
 * The rank of a flow is the virtual time at which its next packet starts. This is the end of its last
 * packet, or the current virtual time minus the head start, whichever is later. The flow with the
 * smallest rank sends. Its rank then grows by the bytes of the packet times the cost per byte. A
 * heavier flow has a lower cost.
 *
 * <fairpath/policy.h> and docs/guide/sched-policies.md describe the arguments p, f, c, g and r.
 */
#include <fairpath/policy.h>

/* Indices of the parameters: c->param[HEAD_START]. */
enum { HEAD_START };

/* State of each flow, at most 64 bytes. It is zero for a new flow. */
struct flow {
	u64 finish;
};

/* State of each tree node with this policy, at most 64 bytes after the parameters. */
struct class
{
	PARAMS;
	u64 virtual;
	u64 finish; /* the largest of all flows */
};

/* State that all nodes share, at most 64 bytes. */
struct global {
};

POLICY{
	STATE,
	.name = "@NAME@",
	.about = "equal shares for flows, with a head start after idle time",
	.source = "fairpath sched new",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
	.params = {
		[HEAD_START] = {
			.name = "head_start",
			.unit = "bytes",
			.about = "head start of a flow that was idle",
			.min = 0,
			.most = 1000000,
			.standard = 3000,
		},
	},
};

/* A packet is enqueued: return the rank of its flow. A flow that already waits keeps its rank. */
RANK_ENQUEUE
{
	u64 ahead = c->param[HEAD_START] * FP_COST_ONE;

	if (r->backlogged)
		return KEEP;
	/* Nothing waits: no flow pays for what it sent before. */
	if (!r->waiting)
		c->virtual = max(c->virtual, add(c->finish, ahead));
	return max(f->finish, sub(c->virtual, ahead));
}

/* A packet of the flow leaves: return the new rank of the flow. */
RANK_DEQUEUE
{
	c->virtual = max(c->virtual, r->rank);
	f->finish = add(r->rank, (u64)p->bytes * r->cost);
	c->finish = max(c->finish, f->finish);
	return f->finish;
}
