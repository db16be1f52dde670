/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pool_ops.h: operations on a pool as values, so that every runtime runs the same log and the
 * results can be compared.
 */
#ifndef FP_POOL_OPS_H
#define FP_POOL_OPS_H

#include "pieo.h"

enum fp_pool_code {
	FP_OP_PUSH = 1,	     /* q, item, rank -> refusal; extra: pushed out */
	FP_OP_POP = 2,	     /* q -> item; extra: its rank */
	FP_OP_PEEK = 3,	     /* q -> item; extra: its rank */
	FP_OP_LAST = 4,	     /* q -> item; extra: its rank */
	FP_OP_REMOVE = 5,    /* item -> refusal */
	FP_OP_MOVE = 6,	     /* item, rank -> refusal */
	FP_OP_PIEO_PUSH = 7, /* q, item, rank, time -> refusal; extra: pushed out */
	FP_OP_PIEO_POP = 8,  /* q, time -> item; extra: its rank */
	FP_OP_PIEO_NEXT = 9, /* q -> 0; extra: the time */
};

struct fp_pool_op {
	u32 code; /* enum fp_pool_code; others do nothing */
	u32 q;
	u32 item;
	u32 answer; /* written */
	u64 rank;
	u64 time;
	u64 extra; /* written */
};

/* Returns an item and its rank. */
FP_INLINE int fp_op_found(struct fp_pool FP_MEM *pool, struct fp_pool_op FP_MEM *op, u32 item)
{
	op->answer = item;
	op->extra = item ? fp_item_at(pool, item)->rank : 0;
	return 0;
}

/* Runs `op`, optimised for an FP_CFFS (fp_pifo_pop_as), and stores the result. */
FP_FUNC int fp_pool_run_op(struct fp_pool FP_MEM *pool FP_ARG, struct fp_pool_op FP_MEM *op FP_ARG)
{
	switch (op->code) {
	case FP_OP_PUSH:
		op->answer = fp_pifo_push_as(pool, op->q, op->item, op->rank, FP_CFFS);
		op->extra = pool->pushed_out;
		return 0;
	case FP_OP_POP:
		return fp_op_found(pool, op, fp_pifo_pop_as(pool, op->q, FP_CFFS));
	case FP_OP_PEEK:
		return fp_op_found(pool, op, fp_pifo_peek(pool, op->q));
	case FP_OP_LAST:
		return fp_op_found(pool, op, fp_pifo_last(pool, op->q));
	case FP_OP_REMOVE:
		op->answer = fp_pifo_remove(pool, op->item);
		return 0;
	case FP_OP_MOVE:
		op->answer = fp_pifo_move(pool, op->item, op->rank);
		return 0;
	case FP_OP_PIEO_PUSH:
		op->answer = fp_pieo_push(pool, op->q, op->item, op->time, op->rank);
		op->extra = pool->pushed_out;
		return 0;
	case FP_OP_PIEO_POP:
		return fp_op_found(pool, op, fp_pieo_pop(pool, op->q, op->time));
	case FP_OP_PIEO_NEXT:
		op->extra = fp_pieo_next_event(pool, op->q);
		return 0;
	}
	return 0;
}

#endif /* FP_POOL_OPS_H */
