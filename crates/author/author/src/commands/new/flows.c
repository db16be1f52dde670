/*
 * @NAME@: every flow its share of the bytes; one that was idle begins a little ahead.
 *
 * A flow's rank is the virtual time at which its next packet starts: where its last one ended, or now
 * less a head start. The flow with the smallest rank sends; then its packet's bytes, times what a byte
 * costs it (less for heavier flows), go onto its rank.
 *
 * What there is to use (p, f, c, g, r) is told in <fairpath/policy.h> and docs/guide/sched-policies.md.
 */
#include <fairpath/policy.h>

/* The policy's parameters, by number: c->param[HEAD_START]. */
enum { HEAD_START };

/* What is kept for each flow, at most 64 bytes. It is zero when a flow is new. */
struct flow {
	u64 finish;
};

/* What is kept for each node of the tree that has this policy; parameters first. */
struct class {
	PARAMS;
	u64 virtual;
};

/* What is kept once, for all nodes. */
struct global {
};

POLICY{
	STATE,
	.name = "@NAME@",
	.about = "every flow its share; one that was idle begins a little ahead",
	.source = "fairpath sched new",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
	.params = {
		[HEAD_START] = {
			.name = "head_start",
			.unit = "bytes",
			.about = "how far ahead of the others a flow begins",
			.least = 0,
			.most = 1000000,
			.standard = 3000,
		},
	},
};

/* A packet came: where its flow stands. One that waits already stays there. */
RANK_ENQUEUE
{
	u64 ahead = c->param[HEAD_START] * FP_COST_ONE;

	if (r->backlogged)
		return KEEP;
	return max(f->finish, sub(c->virtual, ahead));
}

/* Its packet leaves: where the flow stands from now on. */
RANK_DEQUEUE
{
	c->virtual = max(c->virtual, r->rank);
	f->finish = add(r->rank, (u64)p->bytes * r->cost);
	return f->finish;
}
