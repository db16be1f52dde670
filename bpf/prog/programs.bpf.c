// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * programs.bpf.c: ids and names of all BPF programs. The kernel gives a name by id to CAP_SYS_ADMIN
 * only, but an iterator needs CAP_BPF and CAP_PERFMON, which the daemon keeps.
 */
#include "iter.h"

struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
} FP_CO_RE;

struct named_program {
	u32 id;
	char name[NAME_BYTES];
};

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("iter/bpf_prog")
int program_names(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *program = ctx->prog;
	struct named_program entry = {};

	/* The last call has no program. */
	if (!program)
		return 0;
	entry.id = program->aux->id;
	bpf_probe_read_kernel_str(entry.name, sizeof(entry.name), program->aux->name);
	bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry));
	return 0;
}
