/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * outside.bpf.c: a queue of Fairpath in another BPF program.
 *
 * It needs only the installed headers:
 *
 *   clang-19 -target bpf -mcpu=v3 -O2 -g -c outside.bpf.c -o outside.bpf.o
 *
 * The queue is in an arena that user space has formatted (format.c). Its items are numbers whose
 * meaning the program defines: a packet in a map, a request, or another queue. Load it with libbpf
 * 1.5 or newer, which reads the address of the arena from the map.
 */
#include <fairpath/pifo.h>

/* As in <bpf/bpf_helpers.h>. */
#define SEC(name)	   __attribute__((section(name), used))
#define __uint(name, val)  int(*name)[val]
#define __ulong(name, val) enum { name##_value = val } name

/* Memory shared with user space. */
struct {
	__uint(type, 33);		/* BPF_MAP_TYPE_ARENA */
	__uint(map_flags, 1 << 10);	/* BPF_F_MMAPABLE */
	__uint(max_entries, 16);	/* pages */
	__ulong(map_extra, 3ull << 44); /* address in user space */
} arena SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The pool begins after the first page, which stays empty. */
#define POOL ((struct fp_pool FP_MEM *)4096ull)
/* The only queue of the pool. */
#define QUEUE 1

/* Ranks of the items 1 to 8, in four bits each. */
const volatile u32 ranks = 0x35171924;

/* Pushes eight items and returns the order in which they leave, the first in the highest bits.
 */
SEC("syscall")
int order(void *context)
{
	u32 i, left = 0;

	asm volatile("" : : "r"(&arena));
	fp_loop(i, 8) {
		if (fp_pifo_push(POOL, QUEUE, i + 1, ranks >> (i * 4 & 31) & 15))
			return 0;
	}
	fp_loop(i, 8) {
		left = left << 4 | (fp_pifo_pop(POOL, QUEUE) & 15);
	}
	return left;
}
