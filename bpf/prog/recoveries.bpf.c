// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * recoveries.bpf.c: counts loss events of TCP congestion control by socket.
 *
 * A recovery on a path of 0.5 ms ends long before user space reads the socket again, so the program
 * counts at the change of state (tracepoint tcp:tcp_cong_state_set). The previous state is the last
 * one observed here, so no field of the kernel's structures is read. It counts all sockets of the
 * machine. The reader selects its own by cookie.
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

/* Maximum of sockets. The least recently changed one is evicted first. */
#define SOCKETS 16384

/* Counts since the first state change of the socket. */
struct fp_recoveries {
	/* Recoveries: the window is reduced after three duplicate ACKs, or by RACK. */
	u32 recoveries;
	/* Reductions without a recovery: ECN, a full local queue, a loss repaired by a probe. */
	u32 reductions;
	/* Retransmission timeouts. Consecutive ones without progress count once. */
	u32 timeouts;
	/* The last state. */
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

/*
 * The kind of a change. A timeout reported again from Recovery and Recovery from CWR are the same
 * cut.
 */
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
