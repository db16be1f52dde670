/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * limit/abi.h: limits of rate that many CPUs share, and their memory, shared with Rust.
 *
 *   struct fp_limits | limits | pools of CPU 0, one for each limit | pools of CPU 1 | ...
 */
#ifndef FP_LIMIT_ABI_H
#define FP_LIMIT_ABI_H

#include "../runtime.h"

/* No parent. */
#define FP_LIMIT_NONE 0xffffffffu
/* Limits from a class to the port. */
#define FP_LIMIT_LEVELS 8
/* Bits of such a number in an answer; times above them end after 36 years. */
#define FP_LIMIT_LEVEL_BITS 4
/* Bytes that one request may have: more than a GSO packet of BIG TCP. */
#define FP_LIMIT_REQUEST (1u << 20)
/* Times inside of a limit have this number of bits more than nanoseconds. */
#define FP_LIMIT_FRACTION 4
/* Of fp_limit_pay: a packet waits whose bytes are not known. It is taken for as long as the last one. */
#define FP_LIMIT_SOME 1
/* Bytes that a pool may owe. */
#define FP_LIMIT_DEBT (1ull << 24)
/*
 * Nanoseconds until a paced packet leaves, at most. The horizon of fq must be longer: it drops packets
 * beyond that.
 */
#define FP_LIMIT_LONGEST 5000000000ull
/* Attempts to begin the shared word again after a pause. */
#define FP_LIMIT_TRIES 16

/* A rate. A limit has two, so that a change is one store. */
struct fp_limit_rate {
	u64 mult;    /* a byte takes mult >> shift, in units of 1/16 ns */
	u64 depth;   /* time that grants may be ahead of the clock, in these units */
	u64 horizon; /* the shared word is never as far ahead of a clock that did not go back */
	u64 life;    /* nanoseconds after which a grant that was not used ends */
	u64 wait;    /* nanoseconds that granted packets may wait before a paced one is dropped */
	u32 shift;
	u32 pool;  /* bytes that a pool gets at once, at most; 0: as many as are requested */
	u64 spare; /* bytes that CPUs give back for others, at most; 0: none */
	u64 pad;
};

/* A limit. The first line is written by grants, the others by user space only. */
struct fp_limit {
	u64 granted; /* the time at which all grants so far have left at the rate: the shared word */
	u64 resets;  /* times that the clock went back */
	u64 spare;   /* bytes that were granted and not used: those of the next request */
	u64 pad[5];
	struct fp_limit_rate rate[2];
	u32 change; /* number of the last change; its lowest bit is the rate in use */
	u32 parent; /* from which a pool of this limit is filled, or FP_LIMIT_NONE */
	u64 rest[7];
};

/* The part of a limit that one CPU has. */
struct fp_limit_pool {
	u64 tokens;   /* bytes that may leave; a debt is below 0. Paced: from `ready` on */
	u64 waiting;  /* bytes of a grant that may leave from `ready` on */
	u64 ready;    /* nanoseconds */
	u64 ends;     /* nanoseconds at which tokens end */
	u64 sent;     /* bytes that left */
	u32 change;   /* of the limit, when tokens were granted */
	u32 grants;   /* operations on the shared words: grants, and bytes given back */
	u32 refusals; /* requests that must wait, or are dropped */
	u32 own; /* bytes that it gets at once, instead of the pool of the rate; 0: that. Written by user space */
	union {
		u64 last;   /* fp_limit_pay(): bytes of the last packet that paid */
		u64 closed; /* fp_limit_pace(): the nanosecond before which no grant is requested */
	};
};

struct fp_limits {
	u64 zero; /* FP_ZERO of a test run */
	u32 count;
	u32 cpus;
	u64 limits; /* offset of the first struct fp_limit */
	u64 pools;  /* offset of the first struct fp_limit_pool */
	u64 row;    /* bytes of the pools of a CPU */
	u64 pad[3];
};

#endif /* FP_LIMIT_ABI_H */
