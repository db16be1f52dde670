/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * limit.c: the native runtime of limits. Every function here is declared in limit.rs; nothing else links to it.
 */
#include "limit/limit.h"

void (*fp_native_before_shared)(void);

const u32 fp_native_limit_sizes[4] = {
	sizeof(struct fp_limits),
	sizeof(struct fp_limit),
	sizeof(struct fp_limit_rate),
	sizeof(struct fp_limit_pool),
};

u64 fp_native_limit_take(struct fp_limits *l, u32 limit, u32 cpu, u32 bytes, u64 now)
{
	return fp_limit_take(l, limit, cpu, bytes, now);
}

u64 fp_native_limit_pay(struct fp_limits *l, u32 limit, u32 cpu, u32 bytes, u32 next, u64 now)
{
	return fp_limit_pay(fp_limit_at(l, limit), fp_limit_pool_at(l, limit, cpu), bytes, next,
			    now);
}

u64 fp_native_limit_pace(struct fp_limits *l, u32 limit, u32 cpu, u32 bytes, u64 now)
{
	return fp_limit_pace(l, limit, cpu, bytes, now);
}
