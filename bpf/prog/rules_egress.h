/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_egress.h: table mangle in POSTROUTING, at tcx egress of the output interface.
 *
 * Behind POSTROUTING, a packet reaches the interface with its route, its connection and its socket. So
 * rules read the same facts, and their marks, priorities and headers are those that the qdisc sees. Only
 * the source has been translated in between, and is taken from the connection.
 */
#ifndef FP_RULES_EGRESS_PROGRAM_H
#define FP_RULES_EGRESS_PROGRAM_H

struct dst_entry {
	struct net_device *dev;
} FP_CO_RE;

#define BPF_F_PSEUDO_HDR (1ull << 4)
/* The part of the header that is copied to the packet. */
#define HEAD_BYTES_IPV4 12
#define HEAD_BYTES_IPV6 8
#define CHECKSUM_AT	16 /* in a TCP header */
#define OFFSET_AT	12
#define MSS_OPTION	0x0402 /* kind and length, as they are in a packet */
/* Of events: the number of the program, and the hook. */
#define POSTROUTING_OF_MANGLE (1 << 8 | FP_RULES_POSTROUTING)

#include "rules_path.h"

struct bpf_ct_opts___fairpath {
	s32 netns_id;
	s32 error;
	u8 l4proto;
	u8 dir;
	u16 ct_zone_id;
	u8 ct_zone_dir;
	u8 reserved[3];
};

struct nf_conn___zone {
	struct {
		u16 id;
		u8 flags;
		u8 dir;
	} zone;
} FP_CO_RE;

struct bpf_sock_tuple {
	union {
		struct {
			u32 saddr;
			u32 daddr;
			u16 sport;
			u16 dport;
		} ipv4;
		struct {
			u32 saddr[4];
			u32 daddr[4];
			u16 sport;
			u16 dport;
		} ipv6;
	};
};

struct nf_conntrack_tuple___protocol {
	struct {
		u8 protonum;
	} dst;
} FP_CO_RE;

/* With conntrack only, which rules of CONNMARK load. */
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple,
					 u32 bytes, struct bpf_ct_opts___fairpath *opts,
					 u32 opts_bytes) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *entry) __ksym __weak;

/* Bits of ctinfo: related, and its reply. Replies are behind the third one. */
FP_INLINE int is_related(u32 info)
{
	return info == 1 || info == 4;
}

/* True for a packet that a filter of tc sent elsewhere, and that comes again: rules have seen it. */
FP_INLINE int comes_again(const struct sk_buff *skb)
{
	const struct sk_buff___skip *same = (const struct sk_buff___skip *)skb;

	return bpf_core_field_exists(same->tc_skip_classify) &&
	       BPF_CORE_READ_BITFIELD(same, tc_skip_classify);
}

/* The interface to which a packet was routed, or 0. */
FP_INLINE u64 device_of_route(const struct sk_buff *skb)
{
	const u8 *dst = (const u8 *)(skb->_skb_refdst & ~1ull);

	return dst ? word_at(dst + bpf_core_field_offset(struct dst_entry, dev)) : 0;
}

/*
 * True for a packet that was routed to this interface of this namespace: it has been in POSTROUTING. Others are
 * frames that a bridge forwards, of packet sockets, and of devices on top of this one.
 */
FP_INLINE int was_routed(const struct sk_buff *skb)
{
	u64 device = word_at((const u8 *)skb + bpf_core_field_offset(struct sk_buff, dev));

	return device_of_route(skb) == device && is_here((const u8 *)device);
}

/* Copies bytes from offset `at` of the frame on, whether they are linear or not. */
static __attribute__((noinline)) int
copy_network(struct __sk_buff *ctx, struct fp_rules_work FP_MEM *w, u32 at, u32 wanted)
{
	u32 done = FP_ZERO, i;
	u64 part[PART / 8];

	FP_PUT(w->captured, 0);
	if (wanted > w->length)
		wanted = w->length;
	while (done < wanted && fp_can_loop) {
		u32 size = wanted - done;

		if (size > PART)
			size = PART;
		/* For the verifier, which needs two comparisons of the same register. */
		size = fp_hide32(size);
		if (size > PART)
			return 0;
		asm volatile("" : "+r"(size));
		if (!size)
			return 0;
		if (bpf_skb_load_bytes(ctx, at + done, part, size))
			return 0;
		for (i = 0; i < PART / 8; i++)
			*(volatile u64 FP_MEM *)(w->head + ((done + 8 * i) & (FP_RULES_HEAD - 1))) =
				part[i];
		done += PART;
		w->captured = done < wanted ? done : wanted;
	}
	return 0;
}

FP_INLINE void copy_packet(struct __sk_buff *ctx, const struct sk_buff *skb,
			   struct fp_rules_work FP_MEM *w, u32 at, u32 deep)
{
	u32 linear = skb->len - skb->data_len, i;
	const u8 *data = skb->data + at;

	if (linear >= at + FIRST_BYTES) {
		for (i = 0; i < FIRST_BYTES; i += 8)
			*(volatile u64 FP_MEM *)(w->head + i) = word_at(data + i);
		w->captured = FIRST_BYTES;
	} else {
		copy_network(ctx, w, at, FIRST_BYTES);
	}
	if (deep || has_extensions(w))
		copy_network(ctx, w, at, FP_RULES_HEAD);
}

/* True for errors about a connection. IPv6: those behind other headers look as expected connections do. */
FP_INLINE int is_error(const struct fp_rules_work FP_MEM *w)
{
	u32 next = w->family == FP_FAMILY_IPV4 ? w->head[9] : w->head[6];

	return next == FP_P_ICMP || next == FP_P_ICMPV6 || fp_rules_is_extension(next);
}

/*
 * The source of the packet's connection in its direction, which the packet had in POSTROUTING; or 0. Packets of
 * an expected connection are related, too, and translated as others.
 */
FP_INLINE const u8 *source_before(const struct sk_buff *skb, const struct fp_rules_work FP_MEM *w)
{
	u64 nfct = skb->_nfct;
	const u8 *entry = (const u8 *)(nfct & ~7ull);
	u32 info = nfct & 7;
	u64 status;

	if (!entry || (is_related(info) && is_error(w)))
		return 0;
	status = word_at(entry + bpf_core_field_offset(struct nf_conn, status));
	/* IPS_SRC_NAT, IPS_DST_NAT */
	if (!(status >> 4 & 3))
		return 0;
	if (info > 2)
		return entry + bpf_core_field_offset(struct nf_conn, tuplehash[1].tuple.src);
	return entry + bpf_core_field_offset(struct nf_conn, tuplehash[0].tuple.src);
}

FP_INLINE void put_source(struct fp_rules_work FP_MEM *w, const u8 *source)
{
	if (w->family == FP_FAMILY_IPV4) {
		*(volatile u32 FP_MEM *)(w->head + 12) = (u32)word_at(source);
	} else {
		*(volatile u64 FP_MEM *)(w->head + 8) = word_at(source);
		*(volatile u64 FP_MEM *)(w->head + 16) = word_at(source + 8);
	}
}

/* The port of one side of a connection, as it is in a packet. Both sides have it at the same place. */
FP_INLINE u16 port_at(const u8 *side)
{
	return (u16)word_at(side + bpf_core_field_offset(struct nf_conntrack_man, u.all));
}

/* The same for the port, if there is one. */
FP_INLINE void put_port(struct fp_rules_work FP_MEM *w, const u8 *source)
{
	u64 word = w->word[FP_W_L4];
	u32 port, at = w->transport;

	if (!(word & FP_L4_PORTS) || !fp_rules_has_ports((u8)word))
		return;
	port = port_at(source);
	w->head[at & (FP_RULES_HEAD - 1)] = (u8)port;
	w->head[(at + 1) & (FP_RULES_HEAD - 1)] = (u8)(port >> 8);
	fp_set_field(w, FP_W_L4, 16, 0xffff, __builtin_bswap16(port));
}

/* Type of service, hop limit and length, with the checksum. */
static __attribute__((noinline)) int write_header(struct __sk_buff *ctx,
						  struct fp_rules_work FP_MEM *w, u32 at)
{
	u32 words[HEAD_BYTES_IPV4 / 4], i;

	for (i = 0; i < HEAD_BYTES_IPV4 / 4; i++)
		words[i] = *(volatile u32 FP_MEM *)(w->head + 4 * i);
	if (w->family == FP_FAMILY_IPV4)
		return bpf_skb_store_bytes(ctx, at, words, HEAD_BYTES_IPV4, 0);
	return bpf_skb_store_bytes(ctx, at, words, HEAD_BYTES_IPV6, 0);
}

/* 16 bits of the evaluated packet, as they are in memory. */
FP_INLINE u32 bits_at(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return __builtin_bswap16((u16)fp_rules_u16(w, at));
}

/* Makes space for the option that was added, and writes the TCP header around it. */
static __attribute__((noinline)) int add_option(struct __sk_buff *ctx,
						struct fp_rules_work FP_MEM *w, u32 at, u32 size)
{
	u32 tcp = at + w->transport, check = tcp + CHECKSUM_AT, step = FP_ZERO;
	u16 before, bytes = __builtin_bswap16(size),
		    grown = __builtin_bswap16(size - FP_MSS_OPTION);

	if (bpf_skb_load_bytes(ctx, tcp + OFFSET_AT, &before, sizeof(before)) ||
	    bpf_skb_change_tail(ctx, ctx->len + FP_MSS_OPTION, 0))
		return 1;
	for (step = OFFSET_AT; step < 60 && step < size && fp_can_loop; step += 4) {
		u32 word = fp_rules_u32_raw(w, w->transport + step);

		/* The checksum is corrected below. */
		if (step == CHECKSUM_AT)
			continue;
		if (bpf_skb_store_bytes(ctx, tcp + step, &word, sizeof(word), 0))
			return 1;
	}
	/* The pseudo header has the length, of which only the difference counts. */
	bpf_l4_csum_replace(ctx, check, grown, bytes, BPF_F_PSEUDO_HDR | sizeof(u16));
	bpf_l4_csum_replace(ctx, check, before, bits_at(w, w->transport + OFFSET_AT), sizeof(u16));
	bpf_l4_csum_replace(ctx, check, 0, MSS_OPTION, sizeof(u16));
	bpf_l4_csum_replace(ctx, check, 0, bits_at(w, w->transport + 22), sizeof(u16));
	return write_header(ctx, w, at);
}

/* The MSS of a SYN, `longer` by the option that was added. Returns 1 if that is not possible. */
static __attribute__((noinline)) int write_mss(struct __sk_buff *ctx,
					       struct fp_rules_work FP_MEM *w, u32 at, u32 longer)
{
	u32 size = (fp_rules_u8(w, w->transport + OFFSET_AT) >> 4) * 4, mss, odd;
	u16 before, now;

	if (longer)
		return add_option(ctx, w, at, size);
	mss = fp_rules_mss_at(w, size);
	if (!mss)
		return 0;
	now = bits_at(w, mss);
	if (bpf_skb_load_bytes(ctx, at + mss, &before, sizeof(before)))
		return 1;
	if (before == now)
		return 0;
	odd = (mss - w->transport) & 1;
	bpf_l4_csum_replace(ctx, at + w->transport + CHECKSUM_AT,
			    odd ? __builtin_bswap16(before) : before,
			    odd ? __builtin_bswap16(now) : now, sizeof(u16));
	return bpf_skb_store_bytes(ctx, at + mss, &now, sizeof(now), 0) != 0;
}

/* Gives the packet what rules changed. Returns 1 if that is not possible. */
FP_INLINE int write_changes(struct __sk_buff *ctx, struct fp_rules_work FP_MEM *w, u32 at,
			    u32 length)
{
	u32 changed = w->changed;

	ctx->mark = (u32)w->word[FP_W_MARK];
	if (changed & FP_CHANGED_PRIORITY)
		ctx->priority = w->priority;
	if (changed & (FP_CHANGED_TOS | FP_CHANGED_TTL) && write_header(ctx, w, at))
		return 1;
	return changed & FP_CHANGED_MSS ? write_mss(ctx, w, at, w->length > length) : 0;
}

/*
 * Gives the connection of a packet its mark. Programs may change an entry that they looked up, for TCP and UDP
 * only. It is looked up by its first direction and its zone, and must be that of the packet.
 */
static __attribute__((noinline)) int save_mark(struct __sk_buff *ctx, const struct sk_buff *skb,
					       u32 family, u32 mark)
{
	struct bpf_ct_opts___fairpath opts = { .netns_id = -1 /* that of the interface */ };
	const u8 *entry = (const u8 *)(skb->_nfct & ~7ull), *from, *to;
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *found = 0;
	u64 at;
	u32 i;

	from = entry + bpf_core_field_offset(struct nf_conn, tuplehash[0].tuple.src);
	to = entry + bpf_core_field_offset(struct nf_conn, tuplehash[0].tuple.dst);
	opts.l4proto = (u8)word_at(
		entry + bpf_core_field_offset(struct nf_conn, tuplehash[0].tuple) +
		bpf_core_field_offset(struct nf_conntrack_tuple___protocol, dst.protonum));
	if (!bpf_ksym_exists(bpf_skb_ct_lookup))
		goto missing;
	if (bpf_core_field_exists(struct nf_conn___zone, zone)) {
		at = word_at(entry + bpf_core_field_offset(struct nf_conn___zone, zone));
		opts.ct_zone_id = (u16)at;
		opts.ct_zone_dir = (u8)(at >> 24);
	}
	if (family) {
		for (i = 0; i < 4; i++) {
			tuple.ipv6.saddr[i] = (u32)word_at(from + 4 * i);
			tuple.ipv6.daddr[i] = (u32)word_at(to + 4 * i);
		}
		tuple.ipv6.sport = port_at(from);
		tuple.ipv6.dport = port_at(to);
		found = bpf_skb_ct_lookup(ctx, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	} else {
		tuple.ipv4.saddr = (u32)word_at(from);
		tuple.ipv4.daddr = (u32)word_at(to);
		tuple.ipv4.sport = port_at(from);
		tuple.ipv4.dport = port_at(to);
		found = bpf_skb_ct_lookup(ctx, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	}
	if (!found)
		goto missing;
	/* Else the compiler takes the entry for what was found. */
	at = (u64)found;
	asm volatile("" : "+r"(at));
	if (at == (u64)entry) {
		found->mark = mark;
		bpf_ct_release(found);
		return 0;
	}
	bpf_ct_release(found);
missing:
	fp_add64(&the_hook()->unsaved, 1);
	return 1;
}

/* False for most packets that are no TCP packets with SYN. */
FP_INLINE int may_be_syn(const struct sk_buff *skb, u32 at, u32 family)
{
	u32 linear = skb->len - skb->data_len, next;
	const u8 *head = skb->data + at;

	if (family) {
		if (linear < at + 54)
			return 1;
		next = (u8)(word_at(head) >> 48);
		if (next == FP_P_TCP)
			return word_at(head + 46) >> 56 & TCP_SYN;
		return next != FP_P_UDP && next != FP_P_ICMPV6;
	}
	if (linear < at + 34)
		return 1;
	if (word_at(head + 2) >> 56 != FP_P_TCP)
		return 0;
	return (u8)word_at(head) != 0x45 || (word_at(head + 26) >> 56 & TCP_SYN);
}

/* Facts about a SYN: the MTU of its path, and limits of FORWARD. Returns 1 if it is dropped for them. */
static __attribute__((noinline)) int limit_syn(struct __sk_buff *ctx, const struct sk_buff *skb,
					       struct fp_rules_work FP_MEM *w, u32 place, u32 used)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 limits, state;

	if (h->clamps[place & 1][w->family & 1])
		w->path = mtu_of_path(ctx, skb, w);
	if (!(used & LIMITS))
		return 0;
	limits = find_limits(w, place);
	/* Of rules that were replaced since. */
	if ((limits & FP_LIMITS_PATH) && !w->path)
		w->path = mtu_of_path(ctx, skb, w);
	/* That of a sent packet has not been in FORWARD. */
	if (!limits && ctx->ingress_ifindex)
		fp_add64(&h->strays, 1);
	if (!(limits & (FP_LIMITS_BYTES | FP_LIMITS_PATH)))
		return 0;
	state = fp_rules_repeat_mss(w, limits);
	if (state == FP_MAYBE)
		fp_add64(&h->unknown, 1);
	return state != FP_YES;
}

/* Evaluates the chain, and drops packets only as the kernel does: broken, or without an answer. */
static __attribute__((noinline)) int evaluate_egress(struct __sk_buff *ctx,
						     const struct sk_buff *skb, u32 family)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 cpu = bpf_get_smp_processor_id(), place = active_place(h), used, length;
	u32 at = (u32)((u64)skb->head + skb->network_header - (u64)skb->data);
	u32 verdict = FP_ACT_ACCEPT;
	struct rules_scratch FP_MEM *s;
	struct fp_rules_work FP_MEM *w;
	const u8 *source;
	int failed = 0;

	used = h->programs[0][family & 1] | h->programs[1][family & 1];
	if (!(used & EGRESS) && (!(used & LIMITS) || !may_be_syn(skb, at, family)))
		return TCX_NEXT;
	s = cpu < h->cpus ? take_scratch(h, cpu) : 0;
	if (!s) {
		fp_add64(&h->pressed, 1);
		return TCX_DROP;
	}
	w = &s->work;
	if (fp_unlikely(*(volatile u32 FP_MEM *)&h->changing)) {
		/* The verifier calculates with numbers only. */
		*(volatile u64 FP_MEM *)&s->spare[0] = (u64)skb;
		place = recorded_place(*(volatile u64 FP_MEM *)&s->spare[0], cpu, place, 0);
	}
	used = h->programs[place & 1][family & 1];
	if (!(used & (EGRESS | LIMITS)))
		goto next;
	if (fp_unlikely(*(volatile u32 FP_MEM *)&h->tracing) &&
	    bpf_ktime_get_ns() < h->filter.until)
		used |= NEEDS_ALL | TRACING;
	read_first_facts(w, skb, family, used);
	read_other_facts(h, w, skb, family, used);
	FP_PUT(w->word[FP_W_IN], 0);
	FP_PUT(w->word[FP_W_IN + 1], 0);
	name_of(skb->dev, &w->word[FP_W_OUT]);
	w->length = skb->len - at;
	copy_packet(ctx, skb, w, at, used & NEEDS_BYTES);
	FP_PUT(w->word[FP_W_SMAC], 0);
	if (used & NEEDS_OWNER)
		owner_of(w, space_of((const u8 *)skb->dev),
			 word_at((const u8 *)skb + bpf_core_field_offset(struct sk_buff, sk)));
	if (used & NEEDS_DATE)
		read_date(w);
	FP_PUT(w->changed, 0);
	FP_PUT(w->mss_limits, 0);
	FP_PUT(w->path, 0);
	source = source_before(skb, w);
	if (source)
		put_source(w, source);
	if (!fp_rules_read(w))
		goto next;
	if (source)
		put_port(w, source);
	length = w->length;
	if (is_syn(w))
		failed = limit_syn(ctx, skb, w, place, used);
	if (!failed && used & EGRESS) {
		verdict = fp_rules_evaluate_table(
			FP_AT(struct fp_rules, h, h->sets[place & 1][family & 1]), w,
			FP_RULES_POSTROUTING, FP_RULES_MANGLE);
		if (fp_unlikely(used & TRACING))
			trace(s, place, POSTROUTING_OF_MANGLE);
		if (verdict == FP_ACT_UNKNOWN)
			fp_add64(&h->unknown, 1);
		failed = verdict != FP_ACT_ACCEPT;
	}
	if (!failed)
		failed = write_changes(ctx, w, at, length);
	if (!failed && w->changed & FP_CHANGED_CONNMARK)
		save_mark(ctx, skb, family, (u32)(w->word[FP_W_MARK] >> 32));
	/* Programs at the hooks take the scratch next, and change nothing. */
	FP_PUT(w->mss_unknown, 0);
	FP_PUT(w->path, 0);
	if (fp_unlikely(w->logged)) {
		if (w->captured < EVENT_BYTES)
			copy_packet(ctx, skb, w, at, 1);
		w->now = bpf_ktime_get_ns();
		report(s, 0, verdict, place, POSTROUTING_OF_MANGLE);
	}
next:
	fp_store_release32(&s->busy, 0);
	return failed ? TCX_DROP : TCX_NEXT;
}

SEC("tcx/egress")
int rules_egress(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	u32 type = skb->protocol;

	if ((type != TYPE_IPV4_RAW && type != TYPE_IPV6_RAW) || !was_routed(skb) ||
	    comes_again(skb))
		return TCX_NEXT;
	return evaluate_egress(ctx, skb, type == TYPE_IPV6_RAW);
}

#endif /* FP_RULES_EGRESS_PROGRAM_H */
