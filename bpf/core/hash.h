/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * hash.h: the hash of every table whose keys a remote host can choose.
 *
 *   sum = key[0] + (key[1] + low half) * (key[2] + high half) + ...      one product per word
 *   hash = fp_mix64(sum)
 *
 * The sum is Multilinear-HM (Lemire and Kaser, Strongly Universal String Hashing is Fast, The
 * Computer Journal, 2014): with random keys, two different inputs have equal sums with a
 * probability of at most 2^-32. So no set of inputs collides under every seed. The sum alone would
 * map addresses that step by a constant to sums that step by a constant, and some seeds would
 * cluster them. The finalizer distributes these too. The products do not depend on each other, so a
 * CPU computes them at the same time.
 *
 * The keys are a SplitMix64 sequence from a seed of 64 bits. A live runtime draws the seed at
 * start. Simulation, captures and tests use a fixed seed, so that they are repeatable. Deliberately
 * absent: security against a reader of hashes. No hash leaves the process.
 */
#ifndef FP_HASH_H
#define FP_HASH_H

#include "runtime.h"

#define FP_HASH_WORDS 5

struct fp_hash_keys {
	u64 key[1 + 2 * FP_HASH_WORDS];
};

/*
 * The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every output bit depends on every
 * bit of x.
 */
FP_INLINE u64 fp_mix64(u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Only for user space, which formats the memory of every runtime. */
FP_INLINE void fp_hash_fill(struct fp_hash_keys FP_MEM *h, u64 seed)
{
	u64 state = fp_mix64(seed);
	u32 i;

	for (i = 0; i < 1 + 2 * FP_HASH_WORDS; i++) {
		state += 0x9e3779b97f4a7c15ull;
		h->key[i] = fp_mix64(state);
	}
}

/* The product of the word at position `i`. */
FP_INLINE u64 fp_hash_word(const struct fp_hash_keys FP_MEM *h, u32 i, u64 word)
{
	return (h->key[2 * i + 1] + (u32)word) * (h->key[2 * i + 2] + (word >> 32));
}

FP_INLINE u64 fp_hash_1(const struct fp_hash_keys FP_MEM *h, u64 a)
{
	return fp_mix64(h->key[0] + fp_hash_word(h, 0, a));
}

FP_INLINE u64 fp_hash_2(const struct fp_hash_keys FP_MEM *h, u64 a, u64 b)
{
	return fp_mix64(h->key[0] + fp_hash_word(h, 0, a) + fp_hash_word(h, 1, b));
}

FP_INLINE u64 fp_hash_3(const struct fp_hash_keys FP_MEM *h, u64 a, u64 b, u64 c)
{
	return fp_mix64(h->key[0] + fp_hash_word(h, 0, a) + fp_hash_word(h, 1, b) +
			fp_hash_word(h, 2, c));
}

FP_INLINE u64 fp_hash_5(const struct fp_hash_keys FP_MEM *h, u64 a, u64 b, u64 c, u64 d, u64 e)
{
	return fp_mix64(h->key[0] + fp_hash_word(h, 0, a) + fp_hash_word(h, 1, b) +
			fp_hash_word(h, 2, c) + fp_hash_word(h, 3, d) + fp_hash_word(h, 4, e));
}

#endif /* FP_HASH_H */
