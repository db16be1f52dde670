/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/metadata.h: what policies see of a frame to AF_XDP, from the parsed packet.
 */
#ifndef FP_FORWARD_METADATA_H
#define FP_FORWARD_METADATA_H

#include "../sched/meta.h"
#include "forward.h"

/* The slot of the class that counts, from the monitor or by a look-up here. */
FP_INLINE u32 fp_metadata_slot(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 end)
{
	u32 side = (w->packet.side ^ (end == FP_OF_RECEIVER)) & 1;

	if (!r->config.slots || !w->packet.ip_bytes)
		return FP_OTHER;
	if (w->known)
		return w->slot[side];
	w->image = *(volatile u32 FP_MEM *)&r->image;
	return fp_class_of(r, w, side, 1);
}

FP_INLINE void fp_metadata_write(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
				 const struct fp_forward *f, u32 go,
				 struct fp_metadata FP_MEM *metadata)
{
	u32 out = FP_GO_OUT(go);

	FP_PUT(metadata->magic, FP_METADATA_MAGIC);
	FP_PUT(metadata->exit, out);
	fp_fill_meta(r, &metadata->meta, w);
	FP_PUT(metadata->meta.class_id, fp_metadata_slot(r, w, f->exit[out].end));
	FP_PUT(metadata->meta.arrival, w->frame.now);
	FP_PUT(metadata->meta.bytes, w->frame.wire_len + fp_forward_growth(f, go));
	FP_PUT(metadata->meta.mark, 0);
	FP_PUT(metadata->meta.segments, 1);
}

#endif /* FP_FORWARD_METADATA_H */
