/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/policies.h: the policies that are compiled in: bpf/policy/NAME.c and a line here, nothing
 * else. The line has its number, which stays, its name, and which functions it has (E for
 * RANK_ENQUEUE, D for RANK_DEQUEUE, T for SEND_TIME, P for ON_DROP; N for none of that kind).
 */
#ifndef FP_SCHED_POLICIES_H
#define FP_SCHED_POLICIES_H

/* bpf/policy/NAME.c of each line below; made by bpf/policy_files.rs when this is built. */
#include "policy_files.h"

#define FP_POLICIES(X)                                                                             \
	X(1, fifo, E, N, N, N)                                                                     \
	X(2, stfq, E, D, N, N)                                                                     \
	X(3, fq_codel, E, D, N, N)                                                                 \
	X(4, class_tree, E, D, T, N)                                                               \
	X(5, priority, E, D, N, N)                                                                 \
	X(6, diffserv, E, D, N, N)                                                                 \
	X(7, codel, E, D, N, N)                                                                    \
	X(8, token_bucket, E, N, T, N)                                                             \
	X(9, pacing, E, N, T, N)                                                                   \
	X(10, hclock, E, D, T, N)                                                                  \
	X(13, drr, E, D, N, P)                                                                     \
	X(14, srpt, E, N, N, N)                                                                    \
	X(15, pfabric, E, D, N, N)                                                                 \
	X(16, lstf, E, N, N, N)                                                                    \
	X(17, edf, E, N, N, N)                                                                     \
	X(18, hpfq, E, D, N, N)                                                                    \
	X(19, sp_pifo, E, D, N, N)                                                                 \
	X(20, aifo, E, N, N, N)                                                                    \
	X(21, qfq, E, D, N, N)

/* An author's own, compiled in with -DFP_CUSTOM_FILE="..." -DFP_CUSTOM_HAS="E, D, N, N". */
#ifdef FP_CUSTOM_FILE
#define FP_POLICY_NAME custom
#include FP_CUSTOM_FILE
#undef FP_POLICY_NAME
#define FP_CUSTOM_POLICY_(X, ...) X(31, custom, __VA_ARGS__)
#define FP_CUSTOM_POLICY(X)	  FP_CUSTOM_POLICY_(X, FP_CUSTOM_HAS)
#else
#define FP_CUSTOM_POLICY(X)
#endif

#undef flow
#undef class
#undef global

#endif /* FP_SCHED_POLICIES_H */
