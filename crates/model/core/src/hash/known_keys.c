/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * known_keys.c: prints the hash of flow keys whose fields were written just before, for the test
 * known_keys_hash_alike_with_every_compiler. Arguments: a seed, then five words of each key.
 */
#include <stdio.h>
#include <stdlib.h>
#include "rtt/flow.h"

/* Inlined into each caller, which may then move these stores. */
FP_INLINE void fill(struct fp_key *key, const u64 *words)
{
	key->addr[0][0] = words[0];
	key->addr[0][1] = words[1];
	key->addr[1][0] = words[2];
	key->addr[1][1] = words[3];
	key->port[0] = (net16)words[4];
	key->port[1] = (net16)(words[4] >> 16);
	key->proto = (u8)(words[4] >> 32);
	key->family = (u8)(words[4] >> 40);
	key->zero = 0;
}

static __attribute__((noinline)) u32 hash_of_fields(const struct fp_hash_keys *h, const u64 *words)
{
	struct fp_key key;

	fill(&key, words);
	return fp_hash_key(h, &key);
}

static __attribute__((noinline)) u32 hash_of_copy(const struct fp_hash_keys *h, const u64 *words)
{
	struct fp_key key, copy;

	fill(&key, words);
	FP_COPY(&copy, &key);
	return fp_hash_key(h, &copy);
}

static __attribute__((noinline)) int equal(const u64 *words, const struct fp_key *to)
{
	struct fp_key key;

	fill(&key, words);
	return fp_key_equal(&key, to);
}

int main(int count, char **arguments)
{
	struct fp_hash_keys h;
	struct fp_key key;
	u64 words[5];
	int i, word;

	fp_hash_fill(&h, strtoull(arguments[1], 0, 10));
	for (i = 2; i + 5 <= count; i += 5) {
		for (word = 0; word < 5; word++)
			words[word] = strtoull(arguments[i + word], 0, 10);
		fill(&key, words);
		printf("%u %u %d\n", hash_of_fields(&h, words), hash_of_copy(&h, words),
		       equal(words, &key));
	}
	return 0;
}
