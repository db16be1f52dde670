/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_bridge.h: rules of ebtables at tcx, because netfilter has no programs for frames of bridges.
 *
 *   rules_br_in    INPUT: at ingress of a bridge; at that of a port, it records the port
 *   rules_br_out   FORWARD and OUTPUT: at egress of a port; at that of a bridge, it records who sent the frame
 *
 * A frame passes one of these chains on each way, so it needs no record while rules change.
 *
 * Deliberately absent: tables nat and broute, whose chains are before the bridge decides.
 */
#ifndef FP_RULES_BRIDGE_PROGRAM_H
#define FP_RULES_BRIDGE_PROGRAM_H

struct hlist_node {
	struct hlist_node *next;
} FP_CO_RE;

struct net_device___port {
	u32 ifindex;
	u32 priv_flags;
	struct hlist_node index_hlist;
} FP_CO_RE;

struct sk_buff___tag {
	u16 vlan_proto;
} FP_CO_RE;

struct net___devices {
	struct hlist_node *dev_index_head;
} FP_CO_RE;

#define PORT_OFFSET(field) bpf_core_field_offset(struct net_device___port, field)

#define IMAGE_BRIDGE 3
#define IS_BRIDGE    0x002 /* IFF_EBRIDGE */
#define IS_PORT	     0x200 /* IFF_BRIDGE_PORT */
/* The kernel's lists of devices by index, and the devices of one that are compared. */
#define INDEX_LISTS   256
#define INDEX_DEVICES 4096
/* In place of an index of which 16 bits are zero. */
#define NO_BITS 0xffff
/* The part of a frame that all matches but few read. */
#define FRAME_BYTES 64
#define TAG_AT	    12
/* Of queries for groups: offsets in the frame, with the options that all of them have. */
#define QUERY_PROTOCOL	23
#define QUERY_KIND	38
#define IGMP_QUERY	0x11
#define QUERY6_PROTOCOL 54
#define QUERY6_KIND	62
#define MLD_QUERY	130
/* Words of `spare`. */
#define RECORDED 2
#define RECORD	 3

FP_INLINE u32 role_of(const u8 *card)
{
	return (u32)word_at(card + PORT_OFFSET(priv_flags));
}

FP_INLINE u32 index_of(const u8 *card)
{
	return (u32)word_at(card + PORT_OFFSET(ifindex));
}

/* The bits of a port's index that a frame takes to the bridge. */
FP_INLINE u32 bits_of(u32 index)
{
	return index & 0xffff ? index & 0xffff : NO_BITS;
}

/* A port of a bridge by its index, or some bits of it; or 0. */
static __attribute__((noinline)) u64 port_of(u64 bridge, u32 index, u32 mask)
{
	u64 space = space_of((const u8 *)bridge);
	u64 lists = word_at((const u8 *)space +
			    bpf_core_field_offset(struct net___devices, dev_index_head));
	u64 node = word_at((const u8 *)(lists + (index & (INDEX_LISTS - 1)) * sizeof(u64)));
	u32 i = FP_ZERO;

	for (; node && i < INDEX_DEVICES && fp_can_loop; i++) {
		const u8 *card = (const u8 *)(node - PORT_OFFSET(index_hlist));

		if (!((index_of(card) ^ index) & mask) && master_of(card) == bridge)
			return (u64)card;
		node = word_at((const u8 *)node);
	}
	return 0;
}

/* The port by which a frame came to a bridge, if it has been recorded; or 0. */
FP_INLINE u64 recorded_port(u64 bridge, u32 bits)
{
	u64 port = bits ? port_of(bridge, bits, 0xffff) : 0;

	return !port && bits == NO_BITS ? port_of(bridge, 0, 0xffff) : port;
}

/* True if matches may read behind the first bytes: options, headers behind that of IPv6, odd ARP. */
FP_INLINE int is_long(const struct fp_rules_work FP_MEM *w)
{
	u32 type = fp_rules_u16(w, 12), next = w->head[FP_LINK_BYTES + 6];

	if (type == FP_TYPE_IPV4)
		return w->head[FP_LINK_BYTES] != 0x45;
	if (type == FP_TYPE_IPV6)
		return next != FP_P_TCP && next != FP_P_UDP && next != FP_P_ICMPV6;
	if (type == FP_TYPE_ARP || type == FP_TYPE_RARP)
		return w->head[FP_LINK_BYTES + 4] != 6 || w->head[FP_LINK_BYTES + 5] != 4;
	return 0;
}

/* Puts the tag, in the order of the wire, between the addresses and the type. */
static __attribute__((noinline)) int insert_tag(struct fp_rules_work FP_MEM *w, u32 tag)
{
	u32 at = (w->captured + 3) & ~3u, captured = w->captured + FP_TAG_BYTES;

	if (at > FP_RULES_HEAD - 4)
		at = FP_RULES_HEAD - 4;
	for (; at > TAG_AT && fp_can_loop; at -= 4)
		*(volatile u32 FP_MEM *)(w->head + (at & (FP_RULES_HEAD - 1))) =
			*(volatile u32 FP_MEM *)(w->head + ((at - 4) & (FP_RULES_HEAD - 1)));
	*(volatile u32 FP_MEM *)(w->head + TAG_AT) = tag;
	w->captured = captured < FP_RULES_HEAD ? captured : FP_RULES_HEAD;
	w->length += FP_TAG_BYTES;
	return 0;
}

/* The frame as it is on the wire: the kernel has taken the outer tag out. */
static __attribute__((noinline)) int read_bridged(struct __sk_buff *ctx,
						  struct fp_rules_work FP_MEM *w, u32 deep)
{
	const u8 *skb = (const u8 *)bpf_cast_to_kern_ctx(ctx);
	u32 tag;

	w->length = ctx->len;
	copy_network(ctx, w, 0, FRAME_BYTES);
	if (deep || is_long(w))
		copy_network(ctx, w, 0, FP_RULES_HEAD);
	if (ctx->vlan_present) {
		tag = (u16)word_at(skb + bpf_core_field_offset(struct sk_buff___tag, vlan_proto));
		tag |= (u32)__builtin_bswap16(ctx->vlan_tci) << 16;
		insert_tag(w, tag);
	}
	return 0;
}

/* Bytes and type as the kernel has them for a frame whose tag is still in its bytes. */
FP_INLINE void keep_tag(struct fp_rules_work FP_MEM *w)
{
	u32 type = fp_rules_u16(w, 12);

	if (type != FP_TYPE_VLAN && type != FP_TYPE_QINQ)
		return;
	w->counted += FP_TAG_BYTES;
	fp_set_field(w, FP_W_SMAC, 48, 0xffff, type);
}

FP_INLINE void name_at(u64 card, u64 FP_MEM *words)
{
	const u8 *name = (const u8 *)card + bpf_core_field_offset(struct net_device, name);
	u64 first = 0, second = 0;

	if (card) {
		first = word_at(name);
		second = word_at(name + 8);
	}
	((volatile u64 FP_MEM *)words)[0] = first;
	((volatile u64 FP_MEM *)words)[1] = second;
}

/* Of the packet before, which another program evaluated, and for the next one. */
FP_INLINE void forget_packet(struct fp_rules_work FP_MEM *w)
{
	u32 i;

	for (i = 0; i < FP_RULES_WORDS; i++) {
		((volatile u64 FP_MEM *)w->word)[i] = 0;
		((volatile u64 FP_MEM *)w->unknown)[i] = 0;
	}
}

/* Facts that are not in the bytes. `in` is 0 in INPUT for a frame whose port is not known. */
FP_INLINE void read_ports(struct __sk_buff *ctx, struct fp_rules_work FP_MEM *w, u64 bridge, u64 in,
			  u64 out, u32 hook)
{
	w->family = FP_FAMILY_BRIDGE;
	w->word[FP_W_MARK] = ctx->mark;
	w->word[FP_W_MISC] = ctx->pkt_type;
	w->known = FP_KNOWN_EARLY | FP_KNOWN_OWNER | FP_KNOWN_PHYSICAL;
	FP_PUT(w->slow, 0);
	FP_PUT(w->logged, 0);
	FP_PUT(w->changed, 0);
	name_at(in, &w->word[FP_W_IN]);
	name_at(out, &w->word[FP_W_OUT]);
	name_at(hook == FP_RULES_OUTPUT ? 0 : bridge, &w->physical[0]);
	name_at(hook == FP_HOOK_INPUT ? 0 : bridge, &w->physical[2]);
	if (hook == FP_HOOK_INPUT && !in) {
		FP_PUT(w->unknown[FP_W_IN], ~0ull);
		FP_PUT(w->unknown[FP_W_IN1], ~0ull);
		FP_PUT(w->slow, 1);
	}
}

/*
 * Runs the chain at a hook: place << 8 | hook | bytes << 16, by which the kernel counts more. Returns the verdict
 * of the program.
 */
static __attribute__((noinline)) int run_bridge(struct __sk_buff *ctx,
						struct rules_scratch FP_MEM *s, u32 point)
{
	struct rules_hook FP_MEM *h = the_hook();
	struct fp_rules_work FP_MEM *w = &s->work;
	u32 place = point >> 8 & 1, verdict, used = h->programs[place][IMAGE_BRIDGE];

	if (used & NEEDS_TIME)
		w->now = bpf_ktime_get_ns();
	read_bridged(ctx, w, used & NEEDS_BYTES);
	if (!fp_rules_read(w))
		return TCX_NEXT;
	if (!ctx->vlan_present)
		keep_tag(w);
	w->counted += point >> 16;
	verdict = fp_rules_evaluate(FP_AT(struct fp_rules, h, h->sets[place][IMAGE_BRIDGE]), w,
				    point & 0xff);
	if (verdict == FP_ACT_UNKNOWN)
		fp_add64(&h->unknown, 1);
	if (verdict != FP_ACT_ACCEPT)
		return TCX_DROP;
	ctx->mark = (u32)w->word[FP_W_MARK];
	return TCX_NEXT;
}

/* `in` and `out`: ports, or 0. `more`: bytes that the kernel counts in addition. */
FP_INLINE int evaluate_bridge(struct __sk_buff *ctx, u64 bridge, u64 in, u64 out, u32 hook,
			      u32 more)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 cpu = bpf_get_smp_processor_id(), place = active_place(h) & 1;
	struct rules_scratch FP_MEM *s;
	int verdict;

	if (!(h->programs[place][IMAGE_BRIDGE] >> hook & 1))
		return TCX_NEXT;
	s = cpu < h->cpus ? take_scratch(h, cpu) : 0;
	if (!s) {
		fp_add64(&h->pressed, 1);
		return TCX_DROP;
	}
	forget_packet(&s->work);
	read_ports(ctx, &s->work, bridge, in, out, hook);
	verdict = run_bridge(ctx, s, more << 16 | place << 8 | hook);
	if (s->work.slow)
		forget_packet(&s->work);
	fp_store_release32(&s->busy, 0);
	return verdict;
}

/*
 * True for what a bridge itself sends by a port: queries for groups, and messages of spanning tree, which the
 * kernel counts with their link-layer header (2).
 */
static __attribute__((noinline)) int is_of_bridge(struct __sk_buff *ctx)
{
	u8 head[FP_LINK_BYTES], kind, next;
	u32 type;

	if (bpf_skb_load_bytes(ctx, 0, head, sizeof(head)))
		return 0;
	/* The group of spanning tree is 0, or another of these. */
	if (head[0] == 1 && head[1] == 0x80 && head[2] == 0xc2 &&
	    !(head[3] | head[4] | (head[5] & 0xf0)))
		return 2;
	type = head[12] << 8 | head[13];
	if (type == FP_TYPE_IPV4)
		return !bpf_skb_load_bytes(ctx, QUERY_PROTOCOL, &next, 1) && next == FP_P_IGMP &&
		       !bpf_skb_load_bytes(ctx, QUERY_KIND, &kind, 1) && kind == IGMP_QUERY;
	return type == FP_TYPE_IPV6 && !bpf_skb_load_bytes(ctx, QUERY6_PROTOCOL, &next, 1) &&
	       next == FP_P_ICMPV6 && !bpf_skb_load_bytes(ctx, QUERY6_KIND, &kind, 1) &&
	       kind == MLD_QUERY;
}

/* The last port of this CPU, and the bytes of the frame. */
FP_INLINE struct rules_scratch FP_MEM *record_of(struct rules_hook FP_MEM *h)
{
	u32 cpu = bpf_get_smp_processor_id();

	return FP_AT(struct rules_scratch, h,
		     h->scratches + (u64)(cpu < h->cpus ? cpu : 0) * NESTED *
					    sizeof(struct rules_scratch));
}

FP_INLINE void record_port(const struct sk_buff *skb, u32 index)
{
	struct rules_scratch FP_MEM *s = record_of(the_hook());

	*(volatile u64 FP_MEM *)&s->spare[RECORDED] = 0;
	*(volatile u64 FP_MEM *)&s->spare[RECORD] = index;
	*(volatile u64 FP_MEM *)&s->spare[RECORDED] =
		word_at((const u8 *)skb + bpf_core_field_offset(struct sk_buff, head));
}

/* The index that was recorded with this frame, or 0. A frame comes to its bridge once. */
FP_INLINE u32 take_record(const struct sk_buff *skb)
{
	struct rules_scratch FP_MEM *s = record_of(the_hook());
	u64 bytes = word_at((const u8 *)skb + bpf_core_field_offset(struct sk_buff, head));

	if (*(volatile u64 FP_MEM *)&s->spare[RECORDED] != bytes)
		return 0;
	*(volatile u64 FP_MEM *)&s->spare[RECORDED] = 0;
	return *(volatile u64 FP_MEM *)&s->spare[RECORD];
}

/* A frame that leaves by a port does not come to the bridge as well, unless it was copied. */
FP_INLINE void forget_record(const struct sk_buff *skb)
{
	if (!BPF_CORE_READ_BITFIELD(skb, cloned))
		take_record(skb);
}

/*
 * A port records its index twice: in the packet, where another program at this hook may overwrite it, and for
 * this CPU, on which the bridge usually receives it next.
 */
SEC("tcx/ingress")
int rules_br_in(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	const u8 *card = (const u8 *)skb->dev;
	u32 role = role_of(card), index, bits;
	u64 port;

	if (role & IS_PORT) {
		index = index_of(card);
		ctx->tc_index = bits_of(index);
		record_port(skb, index);
		return TCX_NEXT;
	}
	if (!(role & IS_BRIDGE) || ctx->pkt_type == PACKET_LOOPBACK || !is_here(card))
		return TCX_NEXT;
	bits = ctx->tc_index;
	ctx->tc_index = 0;
	/* A bridge receives its own queries. The record may be of an older frame at the same address. */
	if (!bits && is_of_bridge(ctx))
		return TCX_NEXT;
	index = take_record(skb);
	port = index ? port_of((u64)card, index, ~0u) : 0;
	if (!port)
		port = recorded_port((u64)card, bits);
	return evaluate_bridge(ctx, (u64)card, port, 0, FP_HOOK_INPUT, 0);
}

/*
 * A port sends frames of other ports, which have an input interface, and those of its bridge. Others are from
 * sockets of packets at the port, and from devices on top of it.
 */
SEC("tcx/egress")
int rules_br_out(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	const u8 *card = (const u8 *)skb->dev;
	u32 role = role_of(card), index = ctx->ingress_ifindex, bits = ctx->tc_index, is_sent, hook;
	u32 own = 0;
	u64 bridge, port = 0;

	if (role & IS_BRIDGE) {
		ctx->tc_index = with_sent(bits, SENT_FRAME);
		return TCX_NEXT;
	}
	if (!(role & IS_PORT) || !is_here(card))
		return TCX_NEXT;
	forget_record(skb);
	bridge = master_of(card);
	/* A packet that a port receives and the router sends by another one has not been in the bridge. */
	if (index && !was_routed(skb))
		port = port_of(bridge, index, ~0u);
	/* Another program at the bridge may overwrite the mark, but not the route. */
	is_sent = !port && (was_sent(bits, SENT_FRAME) || device_of_route(skb) == bridge);
	if (is_sent && was_sent(bits, SENT_FRAME))
		ctx->tc_index = bits & ~SENT_FRAME;
	/* A VLAN device of the bridge may be on top of this one, which has another bridge. */
	if (!is_sent && !index && !skb->sk && (bits & ~SENT_ALL) != SENT)
		own = is_of_bridge(ctx);
	if (own)
		ctx->tc_index = SENT;
	if (port)
		hook = FP_HOOK_FORWARD;
	else if (is_sent || own)
		hook = FP_RULES_OUTPUT;
	else
		return TCX_NEXT;
	return evaluate_bridge(ctx, bridge, port, (u64)card, hook, own == 2 ? FP_LINK_BYTES : 0);
}

#endif /* FP_RULES_BRIDGE_PROGRAM_H */
