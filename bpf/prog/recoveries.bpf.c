// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * recoveries.bpf.c: counts how often TCP's congestion control is told of loss, by socket.
 *
 * A recovery over a path of 0.5 ms is over long before anybody looks at the socket again, so the
 * counting is done where the state changes (tracepoint tcp:tcp_cong_state_set). The state before is
 * the one that was seen last here, so no field of the kernel's structures is read. Sockets of the
 * whole machine are counted; who asks knows the cookies separate.
 */
#include "kernel.h"

enum {
	BPF_MAP_TYPE_LRU_HASH = 9,
};

/* TCP's states of loss recovery (include/uapi/linux/tcp.h). */
enum {
	CA_CWR = 2,
	CA_RECOVERY = 3,
	CA_LOSS = 4,
};

/* Sockets that are remembered; the one that changed its state longest ago is forgotten first. */
#define SOCKETS 16384

/* Counts since the socket's first change of state. */
struct fp_recoveries {
	/* Recoveries begun: the window is reduced after three duplicate ACKs, or what RACK finds.
	 */
	u32 recoveries;
	/* Reductions without one: ECN, a full local queue, a loss that a probe repaired. */
	u32 reductions;
	/* Retransmission timeouts; those that follow one another without progress are one. */
	u32 timeouts;
	/* The state that was set last. */
	u32 state;
};

/* Key: socket cookie. Written here under the socket's lock, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOCKETS);
	__type(key, u64);
	__type(value, struct fp_recoveries);
} sockets SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

/* What this change is: a timeout from Recovery is told again, Recovery from CWR is the same cut. */
FP_INLINE void count(struct fp_recoveries *r, u32 state)
{
	if (state == CA_RECOVERY && r->state < CA_CWR)
		r->recoveries++;
	if (state == CA_CWR && r->state < CA_CWR)
		r->reductions++;
	if (state == CA_LOSS && r->state != CA_LOSS)
		r->timeouts++;
	r->state = state;
}

/* Arguments: the socket, the new state. */
SEC("tp_btf/tcp_cong_state_set")
int state_set(u64 *ctx)
{
	struct fp_recoveries fresh = {}, *r;
	u32 state = ctx[1] & 0xff;
	u64 cookie = bpf_get_socket_cookie((void *)ctx[0]);

	r = bpf_map_lookup_elem(&sockets, &cookie);
	if (r) {
		count(r, state);
		return 0;
	}
	count(&fresh, state);
	bpf_map_update_elem(&sockets, &cookie, &fresh, 0);
	return 0;
}
