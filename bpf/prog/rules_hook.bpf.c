// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * rules_hook.bpf.c: rules at the hooks of netfilter, one program for each table.
 *
 *   rules_raw, rules_mangle, rules_filter, rules_security; rules_after for rules in the shadow
 *   rules_early (rules_early.h): drops in the driver what table raw would drop
 *   rules_arp_in, rules_arp_out (rules_arp.h): rules of arptables at tcx of interfaces
 *   rules_br_in, rules_br_out (rules_bridge.h): rules of ebtables at tcx of bridges and ports
 *   rules_egress (rules_egress.h): table mangle in POSTROUTING, if it changes packets
 *     rules_path.h: the MTU of the path
 *     rules_limits.h: limits of the MSS by rules in FORWARD
 *
 * rules_passing.h: one set for a packet while rules change; rules_facts.h: what rules read of a packet;
 * rules_events.h: packets for user space.
 *
 * A program evaluates its table for IPv4 and IPv6. The arena has two places for a set; `active` names
 * the one that packets meet. A program runs on several CPUs, and is interrupted by another run: packets
 * that are sent nest in softirqs. So each takes a scratch by an atomic bit.
 *
 * Programs of netfilter cannot change a packet or its mark, so rules that do run at tcx.
 */
#include "word.h"

#include "../core/rules/early.h"

#define FP_ARENA_START 4096ull

/* struct rules_hook, scratches, sets. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

struct nf_hook_state {
	u8 hook;
	u8 pf;
	struct net_device *in;
	struct net_device *out;
	struct net *net;
} FP_CO_RE;

struct net_device {
	char name[16];
	u16 type;
} FP_CO_RE;

struct sk_buff {
	u32 len;
	u32 data_len;
	u8 *head;
	u8 *data;
	struct net_device *dev;
	struct sock *sk;
	u32 mark;
	u64 _nfct;
	unsigned long _skb_refdst;
	u16 protocol;
	u16 network_header;
	u16 mac_header;
	u8 pkt_type : 3;
	u8 ip_summed : 2;
	u8 cloned : 1;
} FP_CO_RE;

struct sk_buff___skip {
	u8 tc_skip_classify : 1;
} FP_CO_RE;

struct rtable {
	u32 rt_flags;
	u16 rt_type;
} FP_CO_RE;

struct rt6_info {
	u32 rt6i_flags;
} FP_CO_RE;

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
} FP_CO_RE;

union nf_inet_addr {
	u32 all[4];
} FP_CO_RE;

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union {
		u16 all;
	} u;
} FP_CO_RE;

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			u16 all;
		} u;
	} dst;
} FP_CO_RE;

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} FP_CO_RE;

struct nf_conn {
	unsigned long status;
	u32 mark;
	struct nf_conntrack_tuple_hash tuplehash[2];
} FP_CO_RE;

struct sock_common {
	unsigned char skc_state;
	struct {
		struct net *net;
	} skc_net;
	struct sock *skc_listener; /* of a request */
	struct {
		s64 counter;
	} skc_cookie;
} FP_CO_RE;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
} FP_CO_RE;

struct socket {
	struct file *file;
} FP_CO_RE;

struct file {
	const struct cred *f_cred;
} FP_CO_RE;

struct cred {
	struct {
		u32 val;
	} fsuid, fsgid;
} FP_CO_RE;

struct hrtimer_clock_base {
	struct hrtimer_cpu_base *cpu_base;
	s64 offset;
} FP_CO_RE;

struct hrtimer_cpu_base {
	struct hrtimer_clock_base clock_base[2];
} FP_CO_RE;

struct hrtimer {
	struct hrtimer_clock_base *base;
} FP_CO_RE;

struct sched_dl_entity {
	struct hrtimer dl_timer;
} FP_CO_RE;

struct task_struct {
	struct sched_dl_entity dl;
} FP_CO_RE;

extern int bpf_dynptr_from_skb(struct sk_buff *skb, u64 flags, struct bpf_dynptr *ptr) __ksym;

struct bpf_dynptr {
	u64 opaque[2];
} __attribute__((aligned(8)));

/* The address of a packet. The verifier calculates with numbers only, so it is read as one. */
FP_INLINE u64 packet_of(struct bpf_nf_ctx *ctx)
{
	const struct timespec64 *words =
		bpf_rdonly_cast(ctx, bpf_core_type_id_kernel(struct timespec64));

	return words->tv_nsec;
}

/* Scratches of a CPU: more than nest on it. */
#define NESTED 4
/* Bytes of a packet that are copied at first: headers of IP with that of TCP, without options; and of IPv4. */
#define FIRST_BYTES  64
#define FIRST4_BYTES 40
/* Facts that rules read: bits of `programs`. */
#define NEEDS_BYTES	 (1u << 24)
#define NEEDS_TIME	 (2u << 24)
#define NEEDS_RANDOM	 (4u << 24)
#define NEEDS_NAMES	 (8u << 24)
#define NEEDS_CONNECTION (16u << 24)
#define NEEDS_RECEIVED	 (32u << 24)
#define NEEDS_OWNER	 (64u << 24)
#define NEEDS_DATE	 (128u << 24)
#define NEEDS_ALL	 (255u << 24)
/* The bit of each program at hook 0. */
#define EACH_PROGRAM (1u | 1u << 5 | 1u << 10 | 1u << 15)
#define TRACING	     (1u << 22) /* in `used` of evaluate(): a command traces packets */
/* Rules of the place decide nothing: rules_shadow.h. A bit of `programs`, too. */
#define SHADOW (1u << 23)
/* In `programs`: table mangle has rules in POSTROUTING, which run at tcx. */
#define EGRESS (1u << 20)
/* In `programs`: rules of it limit the MSS in FORWARD, and tcx carries that out. */
#define LIMITS (1u << 21)
/* Bytes of one copy from pages. */
#define PART 64
/* Events that are kept, and bytes of a packet in each. */
#define EVENTS	    1024
#define EVENT_BYTES 256
/* Places for a set, its images: IPv4, IPv6, ARP, bridges; families at the hooks of netfilter: the first two. */
#define PLACES	 2
#define IMAGES	 4
#define FAMILIES 2

/* Words that a filter compares, the first ones: addresses, protocol and ports, interfaces. */
#define FILTER_WORDS 9
/* A packet in one direction of its flow, and in the other one. */
#define FILTER_DIRECTIONS 2

/* Answers to rejected packets that are on their way by lo. */
#define ANSWERED 32

/* The packets that a command traces. */
struct rules_filter {
	u64 until; /* time at which it ends, if its command does not move it */
	u32 directions;
	u32 pad;
	struct fp_rules_compare compare[FILTER_DIRECTIONS][FAMILIES][FILTER_WORDS];
};

/* Mirrored in src/rules_hook.rs. Offsets are from the beginning. */
struct rules_hook {
	/*
	 * Bit 0: the place whose sets packets meet. The other bits: 0, or the time from which they meet
	 * the other place again.
	 */
	u64 active;
	u64 generations[PLACES];  /* of their content; 0: it is being written */
	u64 sets[PLACES][IMAGES]; /* struct fp_rules; 0: no rules */
	/*
	 * Bit PROGRAM * 5 + hook: it has something to evaluate. From bit 24 on: NEEDS_*. ARP and bridges
	 * have one program.
	 */
	u32 programs[PLACES][IMAGES];
	u64 scratches; /* struct rules_scratch by CPU, NESTED each */
	u64 passing;   /* struct rules_passing by CPU, PASSING each */
	u64 parked;    /* user space: packets that waited elsewhere while rules changed */
	u64 events;    /* struct rules_event, EVENTS of them */
	u64 event;     /* number of the next one */
	u64 unlogged;  /* logs of packets that more rules logged than have a place */
	u64 pressed;   /* packets without a scratch, which are dropped */
	u64 unknown;   /* packets with an unknown answer, which are dropped */
	u32 changing;  /* rules are being replaced, or wait for a confirmation */
	u32 tracing;   /* `filter` is in use, until its time is over */
	u32 cpus;
	u32 format;	      /* user space: version of all this; the texts of the places */
	u64 texts[PLACES][2]; /* offset, bytes */
	/* Cookies of the sockets that answer rejected packets, by family; 0: they are not answered. */
	u64 answers[FAMILIES];
	u64 namespace;	  /* user space: cookie of the network namespace */
	u32 local_offset; /* seconds of local time, from the kernel's time zone */
	u32 pad;
	struct rules_filter filter;
	u64 shadow; /* rules_shadow.h; 0: there were no rules in the shadow yet */
	/* Bits as in `programs`: it may drop packets. Of rules in the shadow. */
	u32 drops[PLACES][FAMILIES];
	u32 clamps[PLACES][FAMILIES]; /* 1: rules read the MTU of the path */
	u64 limits;		/* rules_limits.h; 0: no rules limited the MSS in FORWARD yet */
	u64 strays;		/* SYNs without the limits of FORWARD */
	u64 unsaved;		/* connections that were not found for their mark */
	u64 answered[ANSWERED]; /* meet_answer() */
};

#define EVENT_LOG    1 /* a rule logged the packet */
#define EVENT_REJECT 2 /* a rule rejected it, and it wants an answer */
#define EVENT_TRACE  3 /* a filter selects it */

/* A packet for user space. Readers compare the number before and after. */
struct rules_event {
	u64 number; /* 1 and more; 0 while it is written */
	u64 time;
	u64 generation;
	u64 in[2];
	u64 out[2];
	u64 source; /* link-layer addresses, if `has_link` */
	u64 destination;
	u32 kind;
	u32 where; /* EVENT_LOG: offset in the image of the test; others: the counter's id */
	u32 argument;
	u32 mark;
	u32 length;
	u32 captured;
	u8 family;
	u8 hook;
	u8 program;
	u8 has_link;
	u8 verdict; /* EVENT_TRACE from here on */
	u8 kind_of_packet;
	u16 pad;
	u64 head[EVENT_BYTES / 8];
	u64 connection; /* FP_W_META */
	u64 date;
	u32 connection_mark;
	u32 random;
	u32 user;
	u32 group;
	u32 known; /* FP_KNOWN_* */
	u32 local_offset;
	/* EVENT_REJECT: the destination before its translation, of a connection that ends with the packet. */
	u64 original[2];
	u16 port; /* network order */
	u8 is_translated;
	u8 packet; /* kind of the link-layer destination; from bit 4 on: who checks the checksum */
	u32 state; /* bits of --ctstate */
	u32 route; /* flags of the route */
	u32 path;  /* EVENT_TRACE: MTU of the path, or 0 */
	u32 types; /* EVENT_TRACE: of the destination, as bits; 0: not known */
	u32 pad2;
	u64 spare;
};

struct rules_scratch {
	u32 busy;
	u32 pad;
	u64 dropped; /* by rules_early */
	u64 spare[6];
	struct fp_rules_work work;
	struct fp_rules quiet; /* of rules_early */
};

char _license[] SEC("license") = "Dual MIT/GPL";

#define NF_DROP		0
#define NF_ACCEPT	1
#define PF_IPV4		2
#define PACKET_LOOPBACK 5
#define TYPE_ETHERNET	1
#define TYPE_LOOPBACK	772
#define FP_HOOK_INPUT	1
#define FP_HOOK_FORWARD 2
#define STATE_TIME_WAIT 6
#define STATE_REQUEST	12 /* TCP_NEW_SYN_RECV */
#define CLOCK_BASE_REAL 1  /* HRTIMER_BASE_REALTIME */
#define NO_ID		(~0u)

FP_INLINE struct rules_hook FP_MEM *the_hook(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct rules_hook FP_MEM *)FP_ARENA_START;
}

#include "rules_passing.h"

/*
 * The scratch with this number of this CPU, or 0. The first has its own counters. Those of interrupts share
 * one row of all CPUs, as does a task that runs in place of another one in an evaluation.
 */
FP_INLINE struct rules_scratch FP_MEM *try_scratch(struct rules_hook FP_MEM *h, u32 cpu, u32 number)
{
	struct rules_scratch FP_MEM *s =
		FP_AT(struct rules_scratch, h,
		      h->scratches + ((u64)cpu * NESTED + number) * sizeof(struct rules_scratch));

	if (fp_unlikely(fp_cas32(&s->busy, 0, 1)))
		return 0;
	s->work.cpu = number ? h->cpus : cpu;
	s->work.shared = number > 0;
	return s;
}

/* One from this number on. */
FP_INLINE struct rules_scratch FP_MEM *take_scratch_from(struct rules_hook FP_MEM *h, u32 cpu,
							 u32 number)
{
	struct rules_scratch FP_MEM *s;

	for (; number < NESTED; number++) {
		s = try_scratch(h, cpu, number);
		if (s)
			return s;
	}
	return 0;
}

FP_INLINE struct rules_scratch FP_MEM *take_scratch(struct rules_hook FP_MEM *h, u32 cpu)
{
	return take_scratch_from(h, cpu, 0);
}

#include "rules_facts.h"
#include "rules_events.h"
#include "rules_shadow.h"
#include "rules_limits.h"

/* Read again each time: a known bit would double the paths that the verifier follows. */
FP_INLINE u32 is_shadow(const struct rules_hook FP_MEM *h, u32 place, u32 family)
{
	return *(volatile u32 FP_MEM *)&h->programs[place & 1][family & 1] & SHADOW;
}

/* The fact with which many sets begin: the state of the connection. */
FP_INLINE void read_first_facts(struct fp_rules_work FP_MEM *w, const struct sk_buff *skb,
				u32 family, u32 used)
{
	w->family = family ? FP_FAMILY_IPV6 : FP_FAMILY_IPV4;
	w->word[FP_W_META] = 0;
	if (used & NEEDS_CONNECTION)
		connection_of(w, skb);
}

/* The others, without the packet's bytes and interfaces. */
FP_INLINE void read_other_facts(const struct rules_hook FP_MEM *h, struct fp_rules_work FP_MEM *w,
				const struct sk_buff *skb, u32 family, u32 used)
{
	w->word[FP_W_MARK] = skb->mark;
	if (used & NEEDS_CONNECTION) {
		w->word[FP_W_MARK] |= connection_mark(skb) << 32;
		if (is_answer(h, skb, family))
			w->word[FP_W_META] = ANSWER_STATE;
	}
	if (used & NEEDS_TIME)
		w->now = bpf_ktime_get_ns();
	if (used & NEEDS_RANDOM)
		w->random = bpf_get_prandom_u32();
	/* IP has trimmed a received packet. A raw socket may send any length of payload in a header of IPv6. */
	w->known = FP_KNOWN_RANDOM | FP_KNOWN_EARLY | FP_KNOWN_OWNER | FP_KNOWN_LENGTH;
	/* Recent lists read that there is one, not whose it is. */
	if (skb->sk)
		w->known |= FP_KNOWN_SOCKET;
	w->word[FP_W_MISC] = BPF_CORE_READ_BITFIELD(skb, pkt_type);
	w->slow = 0;
	w->logged = 0;
}

/* True for the program of table mangle in FORWARD. */
FP_INLINE int is_limiting(u32 program, u32 hook)
{
	return program == 1 && hook == FP_HOOK_FORWARD;
}

/*
 * Runs the program with this number for a table at its hook.
 *
 * With the kernel's mitigations, a return from a function takes 8 ns. Between two packets, the kernel's code
 * replaces this one in the caches, so each branch that is taken costs as much as a wrong prediction, and clang
 * keeps the order of the source. So what a usual packet passes is in one function, and what it does not
 * pass is at the end.
 */
FP_INLINE int evaluate(struct bpf_nf_ctx *ctx, u32 program, u32 table)
{
	struct rules_hook FP_MEM *h = the_hook();
	const struct nf_hook_state *state = ctx->state;
	u32 cpu = bpf_get_smp_processor_id(), family = state->pf != PF_IPV4, place;
	u32 hook = state->hook, verdict = FP_ACT_ACCEPT, used, is_limited = 0;
	struct sk_buff *skb = ctx->skb;
	struct rules_scratch FP_MEM *s;
	struct fp_rules_work FP_MEM *w;
	struct fp_rules FP_MEM *r;
	u64 active;

	if (fp_unlikely(cpu >= h->cpus))
		goto unknown_cpu;
	active = *(volatile u64 FP_MEM *)&h->active;
	place = active & 1;
	used = h->programs[place & 1][family & 1];
	/* `active` has a time; rules change; a command traces packets; rules are in the shadow. */
	if (fp_unlikely(active >> 1 | *(volatile u32 FP_MEM *)&h->changing |
			*(volatile u32 FP_MEM *)&h->tracing | (used & SHADOW)))
		goto unusual;
	if (fp_unlikely(hook != FP_HOOK_FORWARD && used >> FP_RULES_OUTPUT & EACH_PROGRAM))
		goto perhaps_looped;
placed:
	if (!(used >> (program * 5 + hook) & 1))
		return NF_ACCEPT;
	s = try_scratch(h, cpu, 0);
	if (fp_unlikely(!s))
		goto nested;
taken:
	w = &s->work;
	read_first_facts(w, skb, family, used);
	if (used & NEEDS_NAMES) {
		name_of(state->in, &w->word[FP_W_IN]);
		name_of(state->out, &w->word[FP_W_OUT]);
	}
	r = FP_AT(struct fp_rules, h, h->sets[place & 1][family & 1]);
	if (table == FP_RULES_RAW || fp_unlikely(used & (TRACING | LIMITS | SHADOW)))
		goto whole;
	if (h->answers[family & 1])
		goto perhaps_answer;
first_rules:
	w->counted = skb->len;
	verdict = fp_rules_first(r, w, hook, table);
	if (verdict != FP_ACT_NONE)
		goto done;
whole:
	verdict = FP_ACT_ACCEPT;
	w->length = skb->len;
	read_other_facts(h, w, skb, family, used);
	copy_head(w, skb, used & NEEDS_BYTES);
	if (used & NEEDS_CONNECTION && h->answers[family & 1] && is_looped(state, skb))
		meet_answer(ctx, w);
	if (fp_unlikely(used & (NEEDS_RECEIVED | NEEDS_OWNER | NEEDS_DATE)))
		read_rare(ctx, w, used);
	/* A looped packet is multicast or broadcast, for pkttype. */
	if ((w->word[FP_W_MISC] & 0xff) == PACKET_LOOPBACK)
		w->word[FP_W_MISC] = family || (w->head[16] & 0xf0) == 0xe0 ? 2 : 1;
	if (fp_rules_read(w)) {
		if (used & LIMITS && (hook == FP_HOOK_FORWARD || hook == FP_RULES_POSTROUTING) &&
		    is_syn(w))
			is_limited = begin_limits(w, place, is_limiting(program, hook)) + 1;
		verdict = fp_rules_evaluate_table(r, w, hook, table);
		if (fp_unlikely(used & TRACING))
			trace(s, place, link_of(w, skb) << 16 | program << 8 | hook);
		if (is_limited)
			end_limits(ctx, w, place, is_limiting(program, hook), verdict);
	} else {
		fp_rules_verdict(w, FP_ACT_ACCEPT, 1, FP_RULES_NONE);
	}
	if (fp_unlikely(is_shadow(h, place, family))) {
		record_verdict(ctx, s, place,
			       is_first_at(used, program, hook) << 16 | hook << 8 | program);
		verdict = FP_ACT_ACCEPT;
	}
	if (fp_unlikely(w->logged || verdict == FP_ACT_REJECT)) {
		/* The MSS changes later. */
		if (w->captured < EVENT_BYTES || is_limited)
			copy_head(w, skb, 1);
		name_of(state->in, &w->word[FP_W_IN]);
		name_of(state->out, &w->word[FP_W_OUT]);
		w->now = bpf_ktime_get_ns();
		report(s, skb, verdict, place, link_of(w, skb) << 16 | program << 8 | hook);
	}
	if (verdict == FP_ACT_UNKNOWN)
		fp_add64(&h->unknown, 1);
done:
	fp_store_release32(&s->busy, 0);
	return verdict == FP_ACT_ACCEPT ? NF_ACCEPT : NF_DROP;

perhaps_looped:
	if (!is_looped(state, skb))
		goto placed;
unusual:
	place = place_of(h, ctx, cpu, program);
	used = h->programs[place & 1][family & 1];
	if (!(used >> (program * 5 + hook) & 1))
		return NF_ACCEPT;
	if (*(volatile u32 FP_MEM *)&h->tracing && bpf_ktime_get_ns() < h->filter.until)
		used |= NEEDS_ALL | TRACING;
	if (is_shadow(h, place, family) && !is_first_at(used, program, hook) && is_settled(ctx))
		return NF_ACCEPT;
	goto placed;
perhaps_answer:
	if (is_answer(h, skb, family) || is_looped(state, skb))
		goto whole;
	goto first_rules;
nested:
	s = take_scratch_from(h, cpu, 1);
	if (s)
		goto taken;
	fp_add64(&h->pressed, 1);
	if (!is_shadow(h, place, family))
		return NF_DROP;
	give_up(ctx, is_first_at(used, program, hook));
	return NF_ACCEPT;
unknown_cpu:
	fp_add64(&h->pressed, 1);
	used = h->programs[h->active & 1][family & 1];
	return used & SHADOW ? NF_ACCEPT : NF_DROP;
}

SEC("netfilter")
int rules_raw(struct bpf_nf_ctx *ctx)
{
	return evaluate(ctx, 0, FP_RULES_RAW);
}

SEC("netfilter")
int rules_mangle(struct bpf_nf_ctx *ctx)
{
	return evaluate(ctx, 1, FP_RULES_MANGLE);
}

/* At INPUT, nat is the last table. */
SEC("netfilter")
int rules_filter(struct bpf_nf_ctx *ctx)
{
	return evaluate(ctx, 2, ctx->state->hook == FP_HOOK_INPUT ? 2 : 3);
}

SEC("netfilter")
int rules_security(struct bpf_nf_ctx *ctx)
{
	return evaluate(ctx, 3, ctx->state->hook == FP_HOOK_INPUT ? 3 : 4);
}

/* Behind the tables of iptables: only for rules in the shadow. */
SEC("netfilter")
int rules_after(struct bpf_nf_ctx *ctx)
{
	was_accepted(ctx);
	return NF_ACCEPT;
}

#include "rules_early.h"
#include "rules_arp.h"
#include "rules_egress.h"
#include "rules_bridge.h"
