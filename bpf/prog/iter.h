/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * iter.h: the types that iterators over the kernel's own lists share.
 */
#ifndef FP_ITER_H
#define FP_ITER_H

#include "kernel.h"

#define NAME_BYTES 16

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} FP_CO_RE;

struct bpf_prog_aux {
	u32 id;
	char name[NAME_BYTES];
} FP_CO_RE;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} FP_CO_RE;

#endif /* FP_ITER_H */
