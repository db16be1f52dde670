/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * word.h: loads of kernel memory by address, where the verifier does not know the type. A load that fails is 0.
 */
#ifndef FP_WORD_H
#define FP_WORD_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>

/* A kernel type of words, for loads of bytes that have no type. */
struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
} FP_CO_RE;

extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym;

FP_INLINE u64 word_at(const void *at)
{
	const struct timespec64 *words =
		bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct timespec64));

	return words->tv_sec;
}

#endif /* FP_WORD_H */
