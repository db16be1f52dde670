/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * head.h: copies the first bytes of a packet from the kernel to the scratch (struct fp_work) in the
 * arena.
 *
 * Copies FP_FIRST_LOOK bytes of the linear part directly. The rest, or bytes outside it, are copied
 * only if the parser needs more headers.
 */
#ifndef FP_HEAD_H
#define FP_HEAD_H

#include "kernel.h"
#include "../core/work.h"

/* Bytes for the first attempt of the parser, and up to a word more. */
#define FP_FIRST_LOOK 96

/* Copies `bytes` at `at` if they are in the linear part, and advances `at`. */
#define COPY_PART(type)                                                                            \
	do {                                                                                       \
		if (data + at + sizeof(type) <= end) {                                             \
			*(volatile type FP_MEM *)(w->head + at) = *(const type *)(data + at);      \
			at += sizeof(type);                                                        \
		}                                                                                  \
	} while (0)

/*
 * Copies the first bytes that are in the linear part. Words begin at those of IP and TCP after
 * Ethernet (at 6, 14, ...): a load that spans two stores waits until both are complete.
 */
FP_INLINE u32 copy_linear(struct fp_work FP_MEM *w, const u8 *data, const u8 *end)
{
	u32 at = 0, i;

	COPY_PART(u32);
	COPY_PART(u16);
	for (i = 0; i < FP_FIRST_LOOK / 8; i++) {
		if (data + 6 + 8 * i + 8 > end)
			break;
		*(volatile u64 FP_MEM *)(w->head + 6 + 8 * i) = *(const u64 *)(data + 6 + 8 * i);
		at += 8;
	}
	COPY_PART(u32);
	COPY_PART(u16);
	COPY_PART(u8);
	return at;
}

FP_INLINE void copy_buffer(struct fp_work FP_MEM *w, const u64 *buffer)
{
	u32 i;

	for (i = 0; i < FP_HEAD_BYTES / 8; i++)
		((volatile u64 FP_MEM *)w->head)[i] = buffer[i];
}

/* Headers (partly) outside the linear part: slow and rare, but never missed. */
static __attribute__((noinline)) int load_skb(struct __sk_buff *skb, struct fp_work FP_MEM *w,
					      u32 bytes)
{
	u64 buffer[FP_HEAD_BYTES / 8] = {};

	if (bytes > FP_HEAD_BYTES)
		bytes = FP_HEAD_BYTES;
	if (bytes == 0 || bpf_skb_load_bytes(skb, 0, buffer, bytes))
		return 0;
	copy_buffer(w, buffer);
	w->head_bytes = bytes;
	return 0;
}

#endif /* FP_HEAD_H */
