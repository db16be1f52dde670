/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_arp.h: rules of arptables at tcx of interfaces, because netfilter has no programs for ARP.
 *
 *   rules_arp_in    INPUT: at ingress, what the ARP of the stack receives from the interface
 *   rules_arp_out   OUTPUT: at egress, what the ARP of the stack sends by it
 *
 * A packet passes one of these hooks, so it needs no record while rules change.
 *
 * Deliberately absent: FORWARD, which arptables has for bridges, and addresses of other than six bytes.
 */
#ifndef FP_RULES_ARP_PROGRAM_H
#define FP_RULES_ARP_PROGRAM_H

struct list_head {
	struct list_head *next;
} FP_CO_RE;

/* A device above another one. A master is the first of them. */
struct netdev_adjacent {
	struct net_device *dev;
	u8 master;
	struct list_head list;
} FP_CO_RE;

struct net_device___link {
	u32 flags;
	u8 addr_len;
	struct {
		struct list_head upper;
	} adj_list;
} FP_CO_RE;

#define LINK_OFFSET(field) bpf_core_field_offset(struct net_device___link, field)

#define IMAGE_ARP    2
#define TYPE_ARP_RAW 0x0608 /* as it is in a frame */
#define ARP_BYTES    28	    /* with addresses of Ethernet and IPv4 */
#define LINK_NO_ARP  0x80   /* IFF_NOARP */
#define TAG_NUMBER   0xfff
/* In `tc_index` of a packet: a device sent it, and this is one below it. */
#define SENT	   0xa580
#define SENT_ARP   1 /* rules of ARP had it there */
#define SENT_FRAME 2 /* that device was a bridge */
#define SENT_ALL   3

/* `index`: that of the packet, which a program may read once: the verifier permits no other address. */
FP_INLINE int was_sent(u32 index, u32 bit)
{
	return (index & ~SENT_ALL) == SENT && index & bit;
}

FP_INLINE u32 with_sent(u32 index, u32 bit)
{
	return ((index & ~SENT_ALL) == SENT ? index : SENT) | bit;
}

/* The bridge or bond of a port, or 0. */
FP_INLINE u64 master_of(const u8 *card)
{
	const u8 *list = card + LINK_OFFSET(adj_list.upper);
	const u8 *first = (const u8 *)word_at(list);

	if (first == list)
		return 0;
	first -= bpf_core_field_offset(struct netdev_adjacent, list);
	if (!(u8)word_at(first + bpf_core_field_offset(struct netdev_adjacent, master)))
		return 0;
	return word_at(first + bpf_core_field_offset(struct netdev_adjacent, dev));
}

/* True for a port whose frames its master receives: of a bridge, a bond. */
FP_INLINE int is_port(const u8 *card)
{
	return word_at(card + CARD_OFFSET(rx_handler)) && master_of(card);
}

/* True for a frame that arp_rcv() gets from this device. A tagged one is received by another device. */
FP_INLINE int is_received(struct __sk_buff *ctx, const u8 *card)
{
	u32 kind = ctx->pkt_type;

	if (kind == OTHER || kind == PACKET_LOOPBACK)
		return 0;
	if (ctx->vlan_present && ctx->vlan_tci & TAG_NUMBER)
		return 0;
	return !((u32)word_at(card + LINK_OFFSET(flags)) & LINK_NO_ARP) && !is_port(card);
}

/*
 * True for a frame that arp_xmit() has just sent. One that was received before has an input interface, and
 * one that a process sent has a socket.
 */
FP_INLINE int is_sent(struct __sk_buff *ctx, const struct sk_buff *skb)
{
	u32 index = ctx->tc_index;

	if (ctx->ingress_ifindex || was_sent(index, SENT_ARP))
		return 0;
	ctx->tc_index = with_sent(index, SENT_ARP);
	return !skb->sk;
}

/* The packet, unless the stack drops it before the rules. */
FP_INLINE int read_arp(struct __sk_buff *ctx, const struct sk_buff *skb,
		       struct fp_rules_work FP_MEM *w)
{
	u32 at = skb->network_header - (u32)(skb->data - skb->head), i;
	u64 part[(ARP_BYTES + 7) / 8] = {};

	if (bpf_skb_load_bytes(ctx, at, part, ARP_BYTES))
		return 0;
	for (i = 0; i < sizeof(part) / 8; i++)
		*(volatile u64 FP_MEM *)(w->head + 8 * i) = part[i];
	w->captured = ARP_BYTES;
	w->length = ctx->len - at;
	/* Lengths of the addresses. */
	return w->head[4] == 6 && w->head[5] == 4;
}

/* Runs the rules. Returns the verdict of the program. */
static __attribute__((noinline)) int run_arp(struct __sk_buff *ctx, struct rules_scratch FP_MEM *s,
					     u32 place, u32 hook)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct rules_hook FP_MEM *h = the_hook();
	struct fp_rules_work FP_MEM *w = &s->work;
	u32 verdict;

	if (!read_arp(ctx, skb, w))
		return TCX_NEXT;
	w->family = FP_FAMILY_ARP;
	w->word[FP_W_MARK] = ctx->mark;
	FP_PUT(w->word[FP_W_META], 0);
	w->word[FP_W_MISC] = ctx->pkt_type;
	name_of(hook == FP_HOOK_INPUT ? skb->dev : 0, &w->word[FP_W_IN]);
	name_of(hook == FP_HOOK_INPUT ? 0 : skb->dev, &w->word[FP_W_OUT]);
	w->known = FP_KNOWN_EARLY | FP_KNOWN_OWNER;
	FP_PUT(w->slow, 0);
	FP_PUT(w->logged, 0);
	FP_PUT(w->changed, 0);
	if (!fp_rules_read(w))
		return TCX_NEXT;
	verdict = fp_rules_evaluate(FP_AT(struct fp_rules, h, h->sets[place & 1][IMAGE_ARP]), w,
				    hook);
	if (verdict == FP_ACT_UNKNOWN)
		fp_add64(&h->unknown, 1);
	if (verdict != FP_ACT_ACCEPT)
		return TCX_DROP;
	ctx->mark = (u32)w->word[FP_W_MARK];
	if (w->changed & FP_CHANGED_PRIORITY)
		ctx->priority = w->priority;
	return TCX_NEXT;
}

FP_INLINE int evaluate_arp(struct __sk_buff *ctx, u32 hook)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 cpu = bpf_get_smp_processor_id(), place = active_place(h);
	struct rules_scratch FP_MEM *s;
	int verdict;

	if (!(h->programs[place & 1][IMAGE_ARP] >> hook & 1))
		return TCX_NEXT;
	s = cpu < h->cpus ? take_scratch(h, cpu) : 0;
	if (!s) {
		fp_add64(&h->pressed, 1);
		return TCX_DROP;
	}
	verdict = run_arp(ctx, s, place, hook);
	fp_store_release32(&s->busy, 0);
	return verdict;
}

/*
 * A dropped frame is one for another host from here on, which the ARP of the stack ignores. Devices above
 * this one, and sockets of packets, get theirs, as they do if arptables drops it.
 */
SEC("tcx/ingress")
int rules_arp_in(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	const u8 *card = (const u8 *)skb->dev;

	if (ctx->protocol != TYPE_ARP_RAW || (u8)word_at(card + LINK_OFFSET(addr_len)) != 6 ||
	    !is_here(card) || !is_received(ctx, card))
		return TCX_NEXT;
	if (evaluate_arp(ctx, FP_HOOK_INPUT) == TCX_NEXT)
		return TCX_NEXT;
	return bpf_skb_change_type(ctx, OTHER) ? TCX_DROP : TCX_NEXT;
}

SEC("tcx/egress")
int rules_arp_out(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	const u8 *card = (const u8 *)skb->dev;

	if (ctx->protocol != TYPE_ARP_RAW || (u8)word_at(card + LINK_OFFSET(addr_len)) != 6 ||
	    !is_here(card) || !is_sent(ctx, skb))
		return TCX_NEXT;
	return evaluate_arp(ctx, FP_RULES_OUTPUT);
}

#endif /* FP_RULES_ARP_PROGRAM_H */
