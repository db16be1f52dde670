/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * timer.h: a program that runs when something becomes eligible, by bpf_timer.
 *
 *   FP_TIMER(wake, serve);                  static int serve(void *map, u32 *key, void *value)
 *   wake_at(fp_pieo_next_event(pool, q));   replaces an earlier time; FP_NEVER: none
 *
 * Times are those of bpf_ktime_get_ns(). The callback may arm the timer again. It runs in interrupt
 * context, perhaps within a program that holds the lock of the pool (fp_pool_lock()). A BPF qdisc has
 * bpf_qdisc_watchdog_schedule() instead. Needs <bpf/bpf_helpers.h>. The process that loads the
 * program must hold the map, or a pin of it: otherwise the kernel cancels the timer.
 */
#ifndef FP_TIMER_H
#define FP_TIMER_H

#include "item.h"

#define FP_CLOCK_MONOTONIC 1
#define FP_TIMER_ABSOLUTE  1 /* BPF_F_TIMER_ABS */

/* The callback is declared before. name_at() returns 0, or a negative error of the kernel. */
#define FP_TIMER(name, callback)                                                                   \
	struct name##_value {                                                                      \
		struct bpf_timer timer;                                                            \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, 2); /* BPF_MAP_TYPE_ARRAY */                                          \
		__uint(max_entries, 1);                                                            \
		__type(key, u32);                                                                  \
		__type(value, struct name##_value);                                                \
	} name SEC(".maps");                                                                       \
	FP_INLINE long name##_at(u64 time)                                                         \
	{                                                                                          \
		u32 key = 0;                                                                       \
		struct name##_value *value = bpf_map_lookup_elem(&name, &key);                     \
                                                                                                   \
		if (!value)                                                                        \
			return -1;                                                                 \
		if (time == FP_NEVER)                                                              \
			return bpf_timer_cancel(&value->timer);                                    \
		/* Refused where it was initialized before. */                                     \
		bpf_timer_init(&value->timer, &name, FP_CLOCK_MONOTONIC);                          \
		bpf_timer_set_callback(&value->timer, callback);                                   \
		return bpf_timer_start(&value->timer, time, FP_TIMER_ABSOLUTE);                    \
	}                                                                                          \
	struct name##_value

#endif /* FP_TIMER_H */
