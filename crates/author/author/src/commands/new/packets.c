/*
 * @NAME@: short packets a little earlier, and none starved.
 *
 * A packet's rank is when it came, plus so much for each of its bytes: of two that came together the
 * shorter leaves first, and a long one waits at most `per_byte` times its length longer than in a FIFO.
 * Smaller ranks leave first; equal ones as they came.
 *
 * What there is to use (p, f, c, g, r) is told in <fairpath/policy.h> and docs/guide/sched-policies.md.
 */
#include <fairpath/policy.h>

/* The policy's parameters, by number: c->param[PER_BYTE]. */
enum { PER_BYTE };

/* What is kept for each flow, at most 64 bytes. It is zero when a flow is new. */
struct flow {
	u64 packets;
};

/* What is kept for each node of the tree that has this policy; parameters first. */
struct class {
	PARAMS;
};

/* What is kept once, for all nodes. */
struct global {
};

POLICY{
	STATE,
	.name = "@NAME@",
	.about = "short packets a little earlier, and none starved",
	.source = "fairpath sched new",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.params = {
		[PER_BYTE] = {
			.name = "per_byte",
			.unit = "ns",
			.about = "what a byte costs a packet",
			.least = 0,
			.most = 1000000,
			.standard = 1000,
		},
	},
};

/* A packet came: its rank. */
RANK_ENQUEUE
{
	f->packets = add(f->packets, 1);
	return add(r->now, p->bytes * c->param[PER_BYTE]);
}
