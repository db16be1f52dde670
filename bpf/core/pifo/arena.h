/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * arena.h: the memory of queues that BPF programs use.
 *
 *   +--------+----------------------------------+
 *   | page 0 | fp_pool, items, PIFOs, arrays    |  FP_ARENA(name, pages)
 *   +--------+----------------------------------+
 *   empty     FP_ARENA_POOL
 *
 * A BPF program includes <bpf/bpf_helpers.h> before this file. It declares the arena, and calls
 * fp_arena_pages() in a program that may sleep (SEC("syscall")) before others run. Instead, user
 * space may touch every page of the mapping, and format it there.
 */
#ifndef FP_ARENA_H
#define FP_ARENA_H

#include "pool.h"

/* Where the pool begins. */
#define FP_ARENA_START 4096ull

#ifdef __bpf__

#define FP_ARENA_POOL ((struct fp_pool FP_MEM *)FP_ARENA_START)

/* Declares an arena of `pages` pages, at 16 TiB in the address space of the process that loads it. */
#define FP_ARENA(name, pages)                                                                      \
	struct {                                                                                   \
		__uint(type, 33);	    /* BPF_MAP_TYPE_ARENA */                               \
		__uint(map_flags, 1 << 10); /* BPF_F_MMAPABLE */                                   \
		__uint(max_entries, pages);                                                        \
		__ulong(map_extra, 1ull << 44);                                                    \
	} name SEC(".maps")

/* Once in each program: ties it to the arena, which its instructions do not name. */
#define FP_USE(name) asm volatile("" : : "r"(&name))

extern void FP_MEM *bpf_arena_alloc_pages(void *map, void FP_MEM *address, u32 pages, int node,
					  u64 flags) __attribute__((section(".ksyms"), weak));

/* Allocates the first `pages` pages of an arena, zeroed. Returns 0, or 1 if that fails. */
#define fp_arena_pages(name, pages) (!bpf_arena_alloc_pages(&name, 0, pages, -1, 0))

#else

#include <bpf/libbpf_version.h>

#if LIBBPF_MAJOR_VERSION < 1 || (LIBBPF_MAJOR_VERSION == 1 && LIBBPF_MINOR_VERSION < 5)
#error "Fairpath's queues need libbpf 1.5 or newer to load arenas: install it, or add -I to its headers"
#endif

#endif

#endif /* FP_ARENA_H */
