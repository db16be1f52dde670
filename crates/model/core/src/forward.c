/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * forward.c: the native runtime of forwarding. Every function here is declared in forward.rs;
 * nothing else links to it.
 */
#include "forward/forward.h"

const u32 fp_native_forward_sizes[4] = {
	sizeof(struct fp_forward),
	sizeof(struct fp_fib),
	sizeof(struct fp_next_hop),
	FP_GO_OUTCOMES,
};

u32 fp_native_redirect_outcome(const u8 *frame, u32 bytes, const u8 *own)
{
	return fp_redirect_outcome(frame, frame + bytes, own);
}

u32 fp_native_forward_begin(const struct fp_forward *f, u32 ifindex, const u8 *frame, u32 bytes)
{
	return fp_forward_begin(f, ifindex, frame, frame + bytes);
}

u32 fp_native_forward_bridge(const struct fp_forward *f, u32 go, u32 bytes)
{
	return fp_forward_bridge(f, go, bytes);
}

/* `frame_bytes` is the length of the whole frame, of which `bytes` are available. */
u32 fp_native_forward_request(const struct fp_forward *f, u32 go, const u8 *frame, u32 bytes,
			      u32 frame_bytes, struct fp_fib *fib)
{
	const u8 *ip = frame + FP_GO_IP(go);
	u32 requested = fp_fib_request(fib, ip, frame + bytes, frame_bytes - FP_GO_IP(go));

	fib->ifindex = f->exit[FP_GO_IN(go)].route;
	return fp_fib_combine(go, requested);
}

u32 fp_native_forward_take(const struct fp_forward *f, u32 go, s64 answer, const struct fp_fib *fib,
			   struct fp_next_hop *next)
{
	return fp_fib_combine(go, fp_fib_result(f, (long)answer, fib, next));
}

/* True if the route back is to be queried. */
u32 fp_native_forward_reverse(const struct fp_forward *f, u32 go, const u8 *frame, u32 bytes,
			      struct fp_fib *fib)
{
	return fp_fib_reverse(f, go, fib, frame + FP_GO_IP(go), frame + bytes);
}

u32 fp_native_forward_sender(const struct fp_forward *f, u32 go, s64 answer,
			     const struct fp_fib *fib)
{
	u32 routed = FP_GO(FP_GO_TO_SOCKET, 0, FP_GO_OUT(go), 0);

	return fp_fib_combine(go, fp_fib_sender(f, FP_GO_IN(go), routed, (long)answer, fib));
}

s32 fp_native_forward_growth(const struct fp_forward *f, u32 go)
{
	return fp_forward_growth(f, go);
}

s32 fp_native_forward_change(const struct fp_forward *f, u32 go, const struct fp_next_hop *next,
			     u8 *frame, u32 bytes)
{
	return fp_forward_change(f, go, fp_forward_growth(f, go), next, frame, frame + bytes);
}
