/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * runtime.h: the differences between the runtimes of the core, and nothing else.
 *
 * The core runs in the kernel (compiled for BPF, tables in an arena), natively (compiled by cc,
 * tables in plain memory) and in test runs of the BPF object without attaching. It calls no helper.
 * This file has what it needs of a runtime: the address space of its tables, loops that a verifier
 * accepts, unaligned big-endian loads, three atomic operations and one bounded lock.
 *
 * Deliberately absent: allocation (see segments.h), clocks (`now` is an argument), output (of the
 * monitor: rings of events; of the scheduler: outcomes; both in their memory).
 */
#ifndef FP_RUNTIME_H
#define FP_RUNTIME_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
/* Network byte order, as loaded from a packet; never mixed with host-order integers. */
typedef u16 net16;

/* A word of any structure. Compilers may not reorder it with accesses to fields. */
typedef u64 __attribute__((may_alias)) fp_any64;

#define FP_INLINE static __attribute__((always_inline)) inline
/*
 * Conditions of a path that nearly all packets take. Between two packets of a hook, the kernel's
 * code replaces this code and its branches in the caches of a CPU: then each taken branch costs as
 * much as a wrong prediction, so that path should have none.
 */
#define fp_likely(condition)   __builtin_expect(!!(condition), 1)
#define fp_unlikely(condition) __builtin_expect(!!(condition), 0)

#ifdef __bpf__

/* Tables and scratch are in the arena, which bounds every access. */
#define FP_MEM __attribute__((address_space(1)))
/*
 * The verifier checks a global function once, not for each caller, so its work adds up instead of
 * multiplying. Arguments are numbers and arena pointers, marked FP_ARG, and results are numbers.
 */
#define FP_FUNC __attribute__((noinline))
/* The same for what most packets do not need: natively, it is not inlined. */
#define FP_RARE FP_FUNC
/* A short function: inline natively, and verified once in BPF. */
#define FP_SHORT FP_FUNC
#define FP_ARG	 __attribute__((btf_decl_tag("arg:arena")))
/* Before a loop with few iterations of known number. */
#define FP_UNROLL _Pragma("unroll")

/* True until the kernel's budget for loops is exhausted (may_goto, Linux 6.9). */
#define fp_can_loop                                                                                \
	({                                                                                         \
		__label__ out_of_budget, proceed;                                                  \
		int more_ = 1;                                                                     \
		asm volatile goto("may_goto %l[out_of_budget]" : : : : out_of_budget);             \
		goto proceed;                                                                      \
	out_of_budget:                                                                             \
		more_ = 0;                                                                         \
	proceed:;                                                                                  \
		more_;                                                                             \
	})

/*
 * Zero that the verifier does not know, from the first page of the arena, which stays empty. With a
 * known start value, it would check every iteration of a counter.
 */
#define FP_ZERO (*(volatile u32 FP_MEM *)8ull)

/* BPF loads need no alignment on the machines that JIT them; the arena needs no bounds. */
FP_INLINE u16 fp_load16(const u8 FP_MEM *p)
{
	return __builtin_bswap16(*(const u16 FP_MEM *)p);
}

FP_INLINE u32 fp_load32(const u8 FP_MEM *p)
{
	return __builtin_bswap32(*(const u32 FP_MEM *)p);
}

FP_INLINE u32 fp_load32_raw(const u8 FP_MEM *p)
{
	return *(const u32 FP_MEM *)p;
}

FP_INLINE u64 fp_load64_raw(const u8 FP_MEM *p)
{
	return *(const u64 FP_MEM *)p;
}

/* Bytes of a packet. The verifier requires a comparison of their bounds before. */
FP_INLINE u16 fp_packet16(const u8 *p)
{
	return *(const u16 *)p;
}

FP_INLINE u32 fp_packet32(const u8 *p)
{
	return *(const u32 *)p;
}

FP_INLINE void fp_set_packet16(u8 *p, u16 value)
{
	*(u16 *)p = value;
}

FP_INLINE void fp_set_packet32(u8 *p, u32 value)
{
	*(u32 *)p = value;
}

/* Full barriers: clang 19 has no acquire and release atomics for BPF. */
FP_INLINE u64 fp_cas64(u64 FP_MEM *p, u64 expected, u64 desired)
{
	return __sync_val_compare_and_swap(p, expected, desired);
}

FP_INLINE u32 fp_cas32(u32 FP_MEM *p, u32 expected, u32 desired)
{
	return __sync_val_compare_and_swap(p, expected, desired);
}

FP_INLINE u32 fp_fetch_add32(u32 FP_MEM *p, u32 value)
{
	return __sync_fetch_and_add(p, value);
}

/* Adds without ordering. */
FP_INLINE void fp_add32(u32 FP_MEM *p, u32 value)
{
	__sync_fetch_and_add(p, value);
}

FP_INLINE void fp_add64(u64 FP_MEM *p, u64 value)
{
	__sync_fetch_and_add(p, value);
}

/* Words that threads of every runtime share. */
FP_INLINE u64 fp_shared_load64(const u64 FP_MEM *p)
{
	return *(const volatile u64 FP_MEM *)p;
}

FP_INLINE u64 fp_shared_cas64(u64 FP_MEM *p, u64 expected, u64 desired)
{
	return __sync_val_compare_and_swap(p, expected, desired);
}

FP_INLINE u64 fp_shared_add64(u64 FP_MEM *p, u64 value)
{
	return __sync_fetch_and_add(p, value);
}

/*
 * Hides the origin of a number from the compiler. It keeps the mask of an index, from which the
 * verifier derives bounds, and prevents a sign-extending load, which Linux 6.12 does not support
 * for an arena.
 */
FP_INLINE u32 fp_hide32(u32 number)
{
	asm volatile("" : "+r"(number));
	return number;
}

/*
 * x86 keeps the order of stores, so only the compiler needs a barrier. Other machines use an
 * exchange.
 */
FP_INLINE void fp_store_release32(u32 FP_MEM *p, u32 value)
{
#ifdef __TARGET_ARCH_x86
	asm volatile("" : : : "memory");
	*(volatile u32 FP_MEM *)p = value;
#else
	__sync_lock_test_and_set(p, value);
#endif
}

FP_INLINE void fp_store_release64(u64 FP_MEM *p, u64 value)
{
#ifdef __TARGET_ARCH_x86
	asm volatile("" : : : "memory");
	*(volatile u64 FP_MEM *)p = value;
#else
	__sync_lock_test_and_set(p, value);
#endif
}

#else /* native */

#include <string.h>

#define FP_MEM
/* Not every includer uses all functions of a header. */
#define FP_FUNC	 static __attribute__((unused))
#define FP_RARE	 static __attribute__((unused, noinline, cold))
#define FP_SHORT FP_INLINE
#define FP_ARG
#define FP_UNROLL
#define fp_can_loop 1
#define FP_ZERO	    0

FP_INLINE u32 fp_hide32(u32 number)
{
	return number;
}

FP_INLINE u16 fp_load16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

FP_INLINE u32 fp_load32_raw(const u8 *p)
{
	u32 value;

	memcpy(&value, p, sizeof(value));
	return value;
}

FP_INLINE u64 fp_load64_raw(const u8 *p)
{
	u64 value;

	memcpy(&value, p, sizeof(value));
	return value;
}

FP_INLINE u32 fp_load32(const u8 *p)
{
	return __builtin_bswap32(fp_load32_raw(p));
}

FP_INLINE u16 fp_packet16(const u8 *p)
{
	u16 value;

	memcpy(&value, p, sizeof(value));
	return value;
}

FP_INLINE u32 fp_packet32(const u8 *p)
{
	return fp_load32_raw(p);
}

FP_INLINE void fp_set_packet16(u8 *p, u16 value)
{
	memcpy(p, &value, sizeof(value));
}

FP_INLINE void fp_set_packet32(u8 *p, u32 value)
{
	memcpy(p, &value, sizeof(value));
}

/* One thread works on a native monitor at a time (Monitor is not Sync), so these are not atomic. */
FP_INLINE u64 fp_cas64(u64 *p, u64 expected, u64 desired)
{
	u64 there = *p;

	if (there == expected)
		*p = desired;
	return there;
}

FP_INLINE u32 fp_cas32(u32 *p, u32 expected, u32 desired)
{
	u32 there = *p;

	if (there == expected)
		*p = desired;
	return there;
}

FP_INLINE u32 fp_fetch_add32(u32 *p, u32 value)
{
	u32 there = *p;

	*p = there + value;
	return there;
}

FP_INLINE void fp_add32(u32 *p, u32 value)
{
	*p += value;
}

FP_INLINE void fp_add64(u64 *p, u64 value)
{
	*p += value;
}

/* Called before each operation on a shared word, if set: tests choose the order of threads there. */
extern void (*fp_native_before_shared)(void);

FP_INLINE void fp_before_shared(void)
{
	if (fp_unlikely(fp_native_before_shared))
		fp_native_before_shared();
}

/* Words that threads share, unlike a monitor. */
FP_INLINE u64 fp_shared_load64(const u64 *p)
{
	fp_before_shared();
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

FP_INLINE u64 fp_shared_cas64(u64 *p, u64 expected, u64 desired)
{
	fp_before_shared();
	return __sync_val_compare_and_swap(p, expected, desired);
}

FP_INLINE u64 fp_shared_add64(u64 *p, u64 value)
{
	fp_before_shared();
	return __sync_fetch_and_add(p, value);
}

FP_INLINE void fp_store_release32(u32 *p, u32 value)
{
	*p = value;
}

FP_INLINE void fp_store_release64(u64 *p, u64 value)
{
	*p = value;
}

#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the core's loads are written for little-endian machines"
#endif

/* Converts between network and host order, in both directions. */
#define fp_be16(x) ((u16)__builtin_bswap16(x))
#define fp_be32(x) ((u32)__builtin_bswap32(x))

/*
 * A single store: clang merges adjacent constant stores into a memset and loses the address space,
 * which the verifier refuses.
 */
#define FP_PUT(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

/* Copies a whole structure of u64 size; in BPF word by word for the same reason. */
#ifdef __bpf__
#define FP_COPY(to, from)                                                                          \
	do {                                                                                       \
		volatile fp_any64 FP_MEM *to_ = (volatile fp_any64 FP_MEM *)(to);                  \
		const volatile fp_any64 FP_MEM *from_ = (const volatile fp_any64 FP_MEM *)(from);  \
		u32 word_;                                                                         \
		_Static_assert(sizeof(*(to)) == sizeof(*(from)) && sizeof(*(to)) % 8 == 0, "");    \
		for (word_ = 0; word_ < sizeof(*(to)) / 8; word_++)                                \
			to_[word_] = from_[word_];                                                 \
	} while (0)
#else
#define FP_COPY(to, from)                                                                          \
	do {                                                                                       \
		_Static_assert(sizeof(*(to)) == sizeof(*(from)), "");                              \
		memcpy(to, from, sizeof(*(to)));                                                   \
	} while (0)
#endif

/* Begins to load the cache line of `place`, so that it is there when it is read. */
#ifdef __bpf__
#define FP_FETCH(place) ((void)*(const volatile u8 FP_MEM *)(place))
#else
#define FP_FETCH(place) __builtin_prefetch(place)
#endif

/* Counts `i` from 0 to `bound` - 1 in a form that every runtime accepts. */
#define fp_loop(i, bound) for ((i) = FP_ZERO; (i) < (bound) && fp_can_loop; (i)++)

/* The object of `type` at `offset` bytes from `base`. */
#define FP_AT(type, base, offset) ((type FP_MEM *)((u8 FP_MEM *)(base) + (offset)))

/* RFC 1982 serial arithmetic: negative, zero or positive if `a` is before, at or after `b`. */
FP_INLINE s32 fp_serial(u32 a, u32 b)
{
	return (s32)(a - b);
}

/*
 * A bounded lock: makes FP_LOCK_TRIES attempts and then fails, because a packet path must not hang.
 * Holders never sleep, and wait only for locks that are later in the order (flow set, then
 * half-open set).
 */
#define FP_LOCK_TRIES 4096

FP_INLINE int fp_lock(u32 FP_MEM *lock)
{
	u32 i;

	if (fp_likely(fp_cas32(lock, 0, 1) == 0))
		return 1;
	fp_loop(i, FP_LOCK_TRIES) {
		if (*(volatile u32 FP_MEM *)lock == 0 && fp_cas32(lock, 0, 1) == 0)
			return 1;
	}
	return 0;
}

FP_INLINE void fp_unlock(u32 FP_MEM *lock)
{
	fp_store_release32(lock, 0);
}

#endif /* FP_RUNTIME_H */
