/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/policies.h: the policies that are compiled in. A new one is included here and has a line in
 * FP_POLICIES: its number, which stays, its name, and which functions it has (E for RANK_ENQUEUE,
 * D for RANK_DEQUEUE, T for SEND_TIME, P for ON_DROP; N for none of that kind).
 */
#ifndef FP_SCHED_POLICIES_H
#define FP_SCHED_POLICIES_H

#define FP_POLICY_NAME fifo
#include "../../policy/fifo.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME stfq
#include "../../policy/stfq.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME fq_codel
#include "../../policy/fq_codel.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME class_tree
#include "../../policy/class_tree.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME priority
#include "../../policy/priority.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME diffserv
#include "../../policy/diffserv.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME codel
#include "../../policy/codel.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME token_bucket
#include "../../policy/token_bucket.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME pacing
#include "../../policy/pacing.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME hclock
#include "../../policy/hclock.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME drr
#include "../../policy/drr.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME srpt
#include "../../policy/srpt.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME pfabric
#include "../../policy/pfabric.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME lstf
#include "../../policy/lstf.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME edf
#include "../../policy/edf.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME hpfq
#include "../../policy/hpfq.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME sp_pifo
#include "../../policy/sp_pifo.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME aifo
#include "../../policy/aifo.c"
#undef FP_POLICY_NAME
#define FP_POLICY_NAME qfq
#include "../../policy/qfq.c"
#undef FP_POLICY_NAME

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
