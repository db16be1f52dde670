/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_facts.h: what rules read of a packet at the hooks of netfilter, in the scratch of its evaluation.
 * Loads are by address, since the verifier does not know most of these types.
 */
#ifndef RULES_FACTS_H
#define RULES_FACTS_H

struct net {
	u64 net_cookie;
} FP_CO_RE;

struct net_device___space {
	struct {
		struct net *net;
	} nd_net;
} FP_CO_RE;

/* Bytes of an answer that no other packet has: up to the flags of TCP. */
#define ANSWER_BYTES  40
#define ANSWER6_BYTES 56
/* Bits of the first words that rules in POSTROUTING do not change: without TOS, TTL and checksum. */
#define SAME_AT_0  (~0xff00ull)
#define SAME_AT_8  0xffffffff0000ff00ull
#define SAME6_AT_0 0x00ffffff00000000ull
/* Time of an answer on its way, in units of 67 ms. */
#define ANSWER_UNIT 26
#define ANSWER_TIME 15
/* IP_CT_RELATED_REPLY */
#define ANSWER_STATE (4ull << FP_META_STATE | 1ull << FP_META_REPLY)

FP_INLINE void name_of(const struct net_device *device, u64 FP_MEM *words)
{
	const char *name;

	if (!device) {
		((volatile u64 FP_MEM *)words)[0] = 0;
		((volatile u64 FP_MEM *)words)[1] = 0;
		return;
	}
	name = device->name;
	((volatile u64 FP_MEM *)words)[0] = word_at(name);
	((volatile u64 FP_MEM *)words)[1] = word_at(name + 8);
}

/* The network namespace of an interface. */
FP_INLINE u64 space_of(const u8 *card)
{
	return word_at(card + bpf_core_field_offset(struct net_device___space, nd_net.net));
}

/* True for an interface in the namespace of these rules: a program stays with one that moves to another. */
FP_INLINE int is_here(const u8 *card)
{
	u64 space = space_of(card);

	return word_at((const u8 *)space + bpf_core_field_offset(struct net, net_cookie)) ==
	       the_hook()->namespace;
}

/*
 * True for an answer to a rejected packet. The kernel's own has the connection of that packet from the
 * start, so it is a related reply.
 */
FP_INLINE int is_answer(const struct rules_hook FP_MEM *h, const struct sk_buff *skb, u32 family)
{
	const u8 *socket = (const u8 *)skb->sk;
	u64 cookie = h->answers[family & 1];

	if (fp_likely(!cookie) || !socket)
		return 0;
	return word_at(socket + bpf_core_field_offset(struct sock_common, skc_cookie)) == cookie;
}

/*
 * An answer to this host leaves by lo, where it loses its socket. So OUTPUT records its first bytes, and hooks of
 * received packets know it by them.
 */
static __attribute__((noinline)) int meet_answer(struct bpf_nf_ctx *ctx,
						 struct fp_rules_work FP_MEM *w)
{
	struct rules_hook FP_MEM *h = the_hook();
	u32 is_ipv4 = w->family == FP_FAMILY_IPV4, at = FP_ZERO;
	u64 now = bpf_ktime_get_ns() >> ANSWER_UNIT & 0xffff, key = 0, found, word;
	u64 FP_MEM *record;

	for (; at < (is_ipv4 ? ANSWER_BYTES : ANSWER6_BYTES) && fp_can_loop; at += 8) {
		word = *(volatile u64 FP_MEM *)(w->head + (at & (FP_RULES_HEAD - 1)));
		if (!at)
			word &= is_ipv4 ? SAME_AT_0 : SAME6_AT_0;
		if (at == 8 && is_ipv4)
			word &= SAME_AT_8;
		key = fp_mix64(key ^ word);
	}
	record = &h->answered[key >> 32 & (ANSWERED - 1)];
	if (is_answer(h, ctx->skb, !is_ipv4)) {
		*(volatile u64 FP_MEM *)record = (key & ~0xffffull) | now;
		return 0;
	}
	found = *(volatile u64 FP_MEM *)record;
	if (!((found ^ key) >> 16) && ((now - found) & 0xffff) <= ANSWER_TIME)
		w->word[FP_W_META] = ANSWER_STATE;
	return 0;
}

/*
 * Bits of --ctstate by the kernel's ctinfo: established, related, new, established and related as replies. The
 * others are not in use, except 7, which has no connection.
 */
#define STATES 0x88848248u

/* Without branches, for the reason at evaluate(). */
FP_INLINE void connection_of(struct fp_rules_work FP_MEM *w, const struct sk_buff *skb)
{
	u64 nfct = skb->_nfct, state, status, info = nfct & 7, is_reply = (info + 5) >> 3;
	/* Some kernels describe struct nf_conn twice: its fields are unique, its type is not. */
	const u8 *entry = (const u8 *)(nfct & ~7ull);

	if (fp_unlikely(!entry))
		goto none;
	status = word_at(entry + bpf_core_field_offset(struct nf_conn, status));
	state = STATES >> (info * 4) & 15;
	/* IPS_SRC_NAT, IPS_DST_NAT */
	state |= (status >> 4 & 3) << 5;
	w->word[FP_W_META] = state << FP_META_STATE | (status & 15) << FP_META_STATUS |
			     is_reply << FP_META_REPLY;
	return;
none:
	/* Untracked, or invalid. */
	w->word[FP_W_META] = (info ? 16ull : 1ull) << FP_META_STATE;
}

/* The mark of the packet's connection, or 0. */
FP_INLINE u64 connection_mark(const struct sk_buff *skb)
{
	const u8 *entry = (const u8 *)(skb->_nfct & ~7ull);

	if (!entry)
		return 0;
	return (u32)word_at(entry + bpf_core_field_offset(struct nf_conn, mark));
}

/*
 * The link-layer header, for events: 1 of Ethernet, 2 of the loopback device. 0: there is none.
 */
FP_INLINE u32 link_of(struct fp_rules_work FP_MEM *w, const struct sk_buff *skb)
{
	const struct net_device *device = skb->dev;
	const u8 *mac = skb->head + skb->mac_header;

	if (!device || (device->type != TYPE_ETHERNET && device->type != TYPE_LOOPBACK) ||
	    skb->mac_header == 0xffff || mac + FP_LINK_BYTES > skb->data)
		return 0;
	w->word[FP_W_DMAC] = word_at(mac) & 0xffffffffffffull;
	w->word[FP_W_SMAC] = word_at(mac + 6) & 0xffffffffffffull;
	return device->type == TYPE_ETHERNET ? 1 : 2;
}

/*
 * The owner of the packet's socket, as xt_owner finds it. There is one without ids: that of a socket of the
 * kernel. A socket that is closed while this runs has lost its file at the end, and has none then.
 */
FP_INLINE void owner_of(struct fp_rules_work FP_MEM *w, u64 net, u64 sk)
{
	const u8 *at = (const u8 *)sk;
	u64 socket, file, owner;
	u8 step;

	if (!sk)
		return;
	step = word_at(at + bpf_core_field_offset(struct sock, __sk_common.skc_state));
	if (step == STATE_TIME_WAIT)
		return;
	if (step == STATE_REQUEST)
		at = (const u8 *)word_at(at +
					 bpf_core_field_offset(struct sock_common, skc_listener));
	if (word_at(at + bpf_core_field_offset(struct sock, __sk_common.skc_net.net)) != net)
		return;
	at += bpf_core_field_offset(struct sock, sk_socket);
	socket = word_at(at);
	w->user = NO_ID;
	w->group = NO_ID;
	file = word_at((const u8 *)socket + bpf_core_field_offset(struct socket, file));
	if (file) {
		owner = word_at((const u8 *)file + bpf_core_field_offset(struct file, f_cred));
		w->user = word_at((const u8 *)owner + bpf_core_field_offset(struct cred, fsuid));
		w->group = word_at((const u8 *)owner + bpf_core_field_offset(struct cred, fsgid));
	}
	if (socket && word_at(at) == socket)
		w->known |= FP_KNOWN_OWNED;
}

/*
 * Seconds since 1970. No helper has the clock of the real time, but timers of all CPUs have its offset, which
 * the kernel sets on all of them with the clock. Each task has a timer.
 */
FP_INLINE u64 date_now(void)
{
	u64 at = bpf_get_current_task() +
		 bpf_core_field_offset(struct task_struct, dl.dl_timer.base);

	at = word_at((const void *)at);
	at += bpf_core_field_offset(struct hrtimer_clock_base, cpu_base);
	at = word_at((const void *)at);
	at += bpf_core_field_offset(struct hrtimer_cpu_base, clock_base[CLOCK_BASE_REAL].offset);
	return (bpf_ktime_get_ns() + word_at((const void *)at)) / 1000000000;
}

FP_INLINE void read_date(struct fp_rules_work FP_MEM *w)
{
	w->date = date_now();
	w->local_offset = the_hook()->local_offset;
	w->known |= FP_KNOWN_DATE;
}

/*
 * The type of a received IPv4 packet's destination, as bits: that of its route, which is in table local, where
 * xt_addrtype looks. Only rules in INPUT read it.
 */
FP_INLINE u64 types_of(const struct sk_buff *skb, u32 hook)
{
	u64 route = skb->_skb_refdst & ~1ull;

	if (hook != FP_HOOK_INPUT || !route)
		return 0;
	route += bpf_core_field_offset(struct rtable, rt_type);
	return (1ull << (word_at((const void *)route) & 15)) << 16;
}

/* Facts that few sets read. */
static __attribute__((noinline)) int read_rare(struct bpf_nf_ctx *ctx,
					       struct fp_rules_work FP_MEM *w, u32 used)
{
	if (used & NEEDS_RECEIVED) {
		w->word[FP_W_SMAC] = 0;
		if (link_of(w, ctx->skb) == 1)
			w->word[FP_W_SMAC] |= FP_HAS_LINK;
		w->word[FP_W_TYPE] = 0;
		if (w->family == FP_FAMILY_IPV4)
			w->word[FP_W_TYPE] = types_of(ctx->skb, ctx->state->hook);
	}
	if (used & NEEDS_OWNER)
		owner_of(w,
			 word_at((const u8 *)ctx->state +
				 bpf_core_field_offset(struct nf_hook_state, net)),
			 word_at((const u8 *)packet_of(ctx) +
				 bpf_core_field_offset(struct sk_buff, sk)));
	if (used & NEEDS_DATE)
		read_date(w);
	return 0;
}

/* Copies bytes of the linear part, from a multiple of 8. Returns how many are in the scratch then. */
FP_INLINE u32 copy_linear(struct fp_rules_work FP_MEM *w, const struct sk_buff *skb, u32 from,
			  u32 to)
{
	u32 linear = skb->len - skb->data_len, at = FP_ZERO;
	const u8 *data = skb->data;

	for (at += from; at < to && at < linear && fp_can_loop; at += 8)
		*(volatile u64 FP_MEM *)(w->head + (at & (FP_RULES_HEAD - 1))) = word_at(data + at);
	return linear < to ? linear : to;
}

/* Bytes outside of the linear part: rare, but never missed. */
static __attribute__((noinline)) int copy_pages(struct sk_buff *skb, struct fp_rules_work FP_MEM *w)
{
	u32 at = FP_ZERO, i, length = skb->len < FP_RULES_HEAD ? skb->len : FP_RULES_HEAD;
	struct bpf_dynptr bytes;
	u64 part[PART / 8];

	if (bpf_dynptr_from_skb(skb, 0, &bytes))
		return 0;
	while (at < length && fp_can_loop) {
		u32 size = length - at;

		if (size > PART)
			size = PART;
		/* For the verifier. */
		size = fp_hide32(size);
		if (size > PART)
			return 0;
		if (bpf_dynptr_read(part, size, &bytes, at, 0))
			return 0;
		for (i = 0; i < PART / 8; i++)
			*(volatile u64 FP_MEM *)(w->head + ((at + 8 * i) & (FP_RULES_HEAD - 1))) =
				part[i];
		at += PART;
	}
	w->captured = length;
	return 0;
}

/* True if there are options of IPv4, or headers behind that of IPv6, which may be long. */
FP_INLINE int has_extensions(const struct fp_rules_work FP_MEM *w)
{
	u32 next = w->head[6];

	if (w->family == FP_FAMILY_IPV4)
		return w->head[0] != 0x45;
	return next != FP_P_TCP && next != FP_P_UDP && next != FP_P_ICMPV6;
}

FP_INLINE void copy_head(struct fp_rules_work FP_MEM *w, struct sk_buff *skb, u32 deep)
{
	u32 linear = skb->len - skb->data_len, i;
	u32 wanted = w->family == FP_FAMILY_IPV4 ? FIRST4_BYTES : FIRST_BYTES;
	const u8 *data = skb->data;

	if (linear >= wanted) {
		for (i = 0; i < FIRST4_BYTES; i += 8)
			*(volatile u64 FP_MEM *)(w->head + i) = word_at(data + i);
		for (; wanted > FIRST4_BYTES && i < FIRST_BYTES; i += 8)
			*(volatile u64 FP_MEM *)(w->head + i) = word_at(data + i);
		w->captured = wanted;
	} else {
		w->captured = copy_linear(w, skb, 0, wanted);
	}
	if (deep || has_extensions(w)) {
		w->captured = copy_linear(w, skb, wanted, FP_RULES_HEAD);
		wanted = FP_RULES_HEAD;
	}
	if (w->captured < wanted && w->captured < skb->len)
		copy_pages(skb, w);
}

#endif
