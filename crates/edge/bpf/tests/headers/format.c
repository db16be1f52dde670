/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * format.c: formats a pool in plain memory, uses its queue, and writes the memory to standard
 * output. The queue is exact and has at most 64 items.
 */
#include <fairpath/pool.h>

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	struct fp_pifo_config queue = { .kind = FP_HEAP, .capacity = 64 };
	struct fp_pool_config config = {
		.items = 64,
		.pifos = 1,
		.array_bytes = fp_pifo_bytes(FP_HEAP, 64, 0),
	};
	u64 bytes = (fp_pool_bytes(&config) + 63) & ~63ull;
	struct fp_pool *pool = aligned_alloc(64, bytes);

	if (!pool)
		return 1;
	memset(pool, 0, bytes);
	if (fp_pool_format(pool, &config) || fp_pifo_format(pool, 1, &queue, pool->arrays))
		return 1;
	if (fp_pifo_push(pool, 1, 7, 20) || fp_pifo_push(pool, 1, 9, 10))
		return 1;
	if (fp_pifo_pop(pool, 1) != 9 || fp_pifo_pop(pool, 1) != 7)
		return 1;
	return fwrite(pool, bytes, 1, stdout) != 1;
}
