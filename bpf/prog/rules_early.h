/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_early.h: drops in the driver what table raw would drop in PREROUTING.
 *
 * The program of the stage "rules" of an interface (xdp.bpf.c). Packets that it does not drop meet the
 * hook as ever, so it may leave any of them: frames with tags, for other hosts, or of interfaces whose
 * packets another device receives.
 */
#ifndef FP_RULES_EARLY_PROGRAM_H
#define FP_RULES_EARLY_PROGRAM_H

struct xdp_rxq_info {
	struct net_device *dev;
} FP_CO_RE;

struct xdp_buff {
	struct xdp_rxq_info *rxq;
} FP_CO_RE;

struct net_device___card {
	u64 features;
	u8 *dev_addr;
	void *rx_handler;
	struct vlan_info *vlan_info;
} FP_CO_RE;

struct vlan_info {
	struct {
		u32 nr_vlan_devs;
	} grp;
} FP_CO_RE;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

#define ETHERNET_BYTES 14
#define TYPE_IPV4_RAW  0x0008 /* as it is in a frame */
#define TYPE_IPV6_RAW  0xdd86
#define TAG_OFFLOAD    (1ull << 8) /* NETIF_F_HW_VLAN_CTAG_RX */

#define CARD_OFFSET(field) bpf_core_field_offset(struct net_device___card, field)

/*
 * True for a card whose packets the stack receives from it. Bridges, bonds and the like take those of their
 * ports. With VLANs, a card that removes tags hides them.
 */
FP_INLINE int receives(const u8 *card)
{
	u64 info;

	if (word_at(card + CARD_OFFSET(rx_handler)))
		return 0;
	if (!bpf_core_field_exists(struct net_device___card, vlan_info) ||
	    !(word_at(card + CARD_OFFSET(features)) & TAG_OFFLOAD))
		return 1;
	info = word_at(card + CARD_OFFSET(vlan_info));
	return !info || !(u32)word_at((const u8 *)info +
				      bpf_core_field_offset(struct vlan_info, grp.nr_vlan_devs));
}

/* Copies the packet from its first byte on. Returns its bytes, of which some may be outside of the scratch. */
static __attribute__((noinline)) u32 copy_frame(struct xdp_md *ctx, struct rules_scratch FP_MEM *s,
						u32 wanted)
{
	struct fp_rules_work FP_MEM *w = &s->work;
	u32 length = bpf_xdp_get_buff_len(ctx) - ETHERNET_BYTES, at = FP_ZERO, i;
	u64 part[PART / 8];

	FP_PUT(w->captured, 0);
	if (wanted > length)
		wanted = length;
	while (at < wanted && fp_can_loop) {
		u32 size = wanted - at;

		if (size > PART)
			size = PART;
		/* For the verifier, which needs two comparisons of the same register. */
		size = fp_hide32(size);
		if (size > PART)
			return length;
		asm volatile("" : "+r"(size));
		if (!size)
			return length;
		if (bpf_xdp_load_bytes(ctx, ETHERNET_BYTES + at, part, size))
			return length;
		for (i = 0; i < PART / 8; i++)
			*(volatile u64 FP_MEM *)(w->head + ((at + 8 * i) & (FP_RULES_HEAD - 1))) =
				part[i];
		at += PART;
		w->captured = at < wanted ? at : wanted;
	}
	return length;
}

/* The packet's bytes and facts, as the hook has them. */
FP_INLINE int read_frame(struct xdp_md *ctx, struct rules_scratch FP_MEM *s, const u8 *card,
			 u32 family, u32 used)
{
	struct fp_rules_work FP_MEM *w = &s->work;
	const u8 *data = (const u8 *)(long)ctx->data, *end = (const u8 *)(long)ctx->data_end;
	u32 i;

	if (data + ETHERNET_BYTES + 20 > end)
		return 0;
	FP_PUT(w->word[FP_W_SMAC], 0);
	if (used & NEEDS_RECEIVED)
		w->word[FP_W_SMAC] = (*(const u64 *)(data + 6) & 0xffffffffffffull) | FP_HAS_LINK;
	w->family = family ? FP_FAMILY_IPV6 : FP_FAMILY_IPV4;
	if (data + ETHERNET_BYTES + FIRST_BYTES <= end) {
		for (i = 0; i < FIRST_BYTES; i += 8)
			*(volatile u64 FP_MEM *)(w->head + i) =
				*(const u64 *)(data + ETHERNET_BYTES + i);
		w->captured = FIRST_BYTES;
		w->length = bpf_xdp_get_buff_len(ctx) - ETHERNET_BYTES;
		if (used & NEEDS_BYTES || has_extensions(w))
			copy_frame(ctx, s, FP_RULES_HEAD);
	} else {
		w->length = copy_frame(ctx, s, FIRST_BYTES);
	}
	FP_PUT(w->word[FP_W_MARK], 0);
	w->word[FP_W_META] = 1ull << FP_META_STATE;
	FP_PUT(w->word[FP_W_OUT], 0);
	FP_PUT(w->word[FP_W_OUT + 1], 0);
	name_of((const struct net_device *)card, &w->word[FP_W_IN]);
	w->known = FP_KNOWN_OWNER | FP_KNOWN_EARLY;
	if (used & NEEDS_DATE)
		read_date(w);
	if (used & NEEDS_TIME)
		w->now = bpf_ktime_get_ns();
	FP_PUT(w->slow, 0);
	return 1;
}

FP_INLINE const u8 *card_of(struct xdp_md *ctx)
{
	const struct xdp_buff *buffer = bpf_cast_to_kern_ctx(ctx);

	return (const u8 *)buffer->rxq->dev;
}

/* The kind of a packet by the destination of its frame. OTHER: it is for another host. */
#define OTHER 3
FP_INLINE u32 kind_of(u64 to, const u8 *card)
{
	u64 own = word_at((const u8 *)word_at(card + CARD_OFFSET(dev_addr)));

	to &= 0xffffffffffffull;
	if (to == 0xffffffffffffull)
		return 1;
	if (to & 1)
		return 2;
	return to == (own & 0xffffffffffffull) ? 0 : OTHER;
}

/* 1 if table raw drops the packet. */
static __attribute__((noinline)) int drops_early(struct xdp_md *ctx, u32 family, u32 kind)
{
	struct rules_hook FP_MEM *h = the_hook();
	const u8 *card = card_of(ctx);
	u32 cpu = bpf_get_smp_processor_id(), place = active_place(h), used, length;
	struct rules_scratch FP_MEM *s;
	struct fp_rules FP_MEM *r;
	struct fp_rules_work FP_MEM *w;
	int drops = 0;

	if (!is_here(card))
		return 0;
	used = h->programs[place & 1][family & 1];
	/* A trace sees all packets at the hook. Rules in the shadow decide nothing, also if they come back. */
	if (!(used & 1) || used & SHADOW || cpu >= h->cpus || *(volatile u32 FP_MEM *)&h->tracing)
		return 0;
	s = take_scratch(h, cpu);
	if (!s)
		return 0;
	w = &s->work;
	if (read_frame(ctx, s, card, family, used)) {
		w->word[FP_W_MISC] = kind;
		length = w->length;
		r = FP_AT(struct fp_rules, h, h->sets[place & 1][family & 1]);
		if (fp_rules_read(w) && fp_rules_drop_early(r, &s->quiet, w, length)) {
			s->dropped++;
			drops = 1;
		}
	}
	fp_store_release32(&s->busy, 0);
	return drops;
}

SEC("xdp.frags")
int rules_early(struct xdp_md *ctx)
{
	const u8 *data = (const u8 *)(long)ctx->data, *end = (const u8 *)(long)ctx->data_end;
	const u8 *card = card_of(ctx);
	u32 type, kind;

	if (data + ETHERNET_BYTES > end)
		return XDP_PASS;
	type = *(const u16 *)(data + 12);
	if (type != TYPE_IPV4_RAW && type != TYPE_IPV6_RAW)
		return XDP_PASS;
	kind = kind_of(*(const u64 *)data, card);
	if (kind == OTHER || !receives(card) ||
	    ((const struct net_device *)card)->type != TYPE_ETHERNET)
		return XDP_PASS;
	return drops_early(ctx, type == TYPE_IPV6_RAW, kind) ? XDP_DROP : XDP_PASS;
}

#endif /* FP_RULES_EARLY_PROGRAM_H */
