/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/framing.h: the bytes that a packet takes on a link, from its own bytes.
 *
 *   each segment --(overhead)--> --(at least mpu)--> --(cells)--> bytes on the link
 *
 * The order is that of CAKE (tc-cake(8), "Overhead compensation"). ATM carries 48 bytes in cells of
 * 53, and pads the last one (ITU-T I.363.5). PTM adds a byte to each 64 (IEEE 802.3 clause 61.3.3),
 * and pads nothing.
 *
 * The segments of a GSO packet count as equally long.
 */
#ifndef FP_FRAMING_H
#define FP_FRAMING_H

#include "abi.h"

/* Bytes of a packet of this many segments (at least 1) on the link; at least 1 a segment. */
FP_INLINE u32 fp_link_bytes(const struct fp_framing FP_MEM *f, u32 bytes, u32 segments)
{
	/* Loaded first and extended then: see fp_hide32(). */
	s64 overhead = (s32)(fp_hide32(f->overhead) << 16) >> 16;
	s64 each;
	u64 cells;

	if (!overhead && !f->mpu && !f->cell_payload)
		return bytes;
	if (!f->mpu && !f->cell_payload) {
		each = (s64)bytes + overhead * segments;
		return each < segments ? segments : (u32)each;
	}
	each = bytes / segments + overhead;
	if (each < f->mpu)
		each = f->mpu;
	if (each < 1)
		each = 1;
	if (f->cell_payload) {
		cells = ((u64)each + f->cell_payload - 1) / f->cell_payload;
		each = f->cell_partial ? each + (s64)(cells * (f->cell_bytes - f->cell_payload))
				       : (s64)(cells * f->cell_bytes);
	}
	return (u32)((u64)each * segments);
}

#endif /* FP_FRAMING_H */
