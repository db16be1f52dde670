/*
 * @NAME@: prefer short packets without starving long ones.
 *
 * The rank of a packet is its arrival time plus `per_byte` for each of its bytes. Of two packets that
 * arrive together, the shorter leaves first. A long packet waits at most `per_byte` times its length
 * longer than in a FIFO. Smaller ranks leave first, and equal ranks leave in arrival order.
 *
 * <fairpath/policy.h> and docs/guide/sched-policies.md describe the arguments p, f, c, g and r.
 */
#include <fairpath/policy.h>

/* Indices of the parameters: c->param[PER_BYTE]. */
enum { PER_BYTE };

/* State of each flow, at most 64 bytes. It is zero for a new flow. */
struct flow {
	u64 packets;
};

/* State of each tree node with this policy, at most 64 bytes after the parameters. */
struct class
{
	PARAMS;
};

/* State that all nodes share, at most 64 bytes. */
struct global {
};

POLICY{
	STATE,
	.name = "@NAME@",
	.about = "short packets first, without starving long ones",
	.source = "fairpath sched new",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.params = {
		[PER_BYTE] = {
			.name = "per_byte",
			.unit = "ns",
			.about = "time that each byte adds to the rank",
			.min = 0,
			.most = 1000000,
			.standard = 1000,
		},
	},
};

/* A packet is enqueued: return its rank. */
RANK_ENQUEUE
{
	f->packets = add(f->packets, 1);
	return add(r->now, p->bytes * c->param[PER_BYTE]);
}
