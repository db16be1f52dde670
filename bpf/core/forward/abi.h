/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/abi.h: what forwarding shares with user space and with the hooks that ask for it.
 *
 *   struct fp_forward   the plan: bridge or router, two exits, addresses of this host
 *   FP_GO_*             what becomes of a frame, counted by exit
 *   struct fp_fib       a question to the FIB of the kernel, and its answer
 *   FP_GO()             a decision in one number: outcome, exits, where the IP header is
 *   struct fp_metadata      what AF_XDP gets before a frame
 */
#ifndef FP_FORWARD_ABI_H
#define FP_FORWARD_ABI_H

#include "../runtime.h"
#include "../sched/abi.h"

#define FP_EXITS     2
#define FP_MAX_OWN   4
#define FP_MAC_BYTES 6

#define FP_METADATA_MAGIC 0x746e7066u /* "fpnt" */

/* How packets are forwarded. */
enum fp_forwarding {
	FP_FORWARD_OFF = 0,
	FP_FORWARD_BRIDGE = 1,
	FP_FORWARD_ROUTER = 2,
};

/* What becomes of a frame; mirrored in crates/model/core/src/forward.rs. */
enum fp_forward_outcome {
	FP_GO_TO_SOCKET,
	FP_GO_NO_SOCKET,
	FP_GO_NOT_IP,
	FP_GO_GROUP,
	FP_GO_OWN,
	FP_GO_NEIGHBOUR,
	FP_GO_SHORT,
	FP_GO_NO_ROOM, /* before the frame, for the note: passed */
	FP_GO_REDIRECT_OUTCOMES,
	/* Of rtt_forward only. */
	FP_GO_OTHER_VLAN = FP_GO_REDIRECT_OUTCOMES, /* its tag is none of the exits' */
	FP_GO_NO_SCRATCH,			    /* the monitor has no work area for this CPU */
	FP_GO_TOO_BIG,
	/* Of its router mode only. */
	FP_GO_OTHER_HOST, /* not sent to the interface's MAC address */
	FP_GO_TTL,
	FP_GO_OPTIONS,	       /* IPv4's, or hop-by-hop ones */
	FP_GO_NOT_FORWARDABLE, /* addresses that no router forwards, or a wrong header checksum */
	FP_GO_NO_NEIGHBOUR,    /* the next hop's MAC address is not known yet */
	FP_GO_LOCAL,	       /* this host's own, broadcast, no route */
	FP_GO_UNREACHABLE,     /* a route that says so; blackholes */
	FP_GO_NOT_FORWARDING,  /* sysctl forwarding is off */
	FP_GO_TUNNEL,	       /* the route encapsulates */
	FP_GO_OTHER_EXIT,      /* by an interface that is not one of the exits */
	/* Dropped. */
	FP_GO_LOST, /* the socket went away when the frame was changed already */
	FP_GO_OUTCOMES,
};

/* Integers in host order. Mirrored in crates/model/core/src/forward.rs. */
struct fp_exit {
	u32 ifindex;	/* where its frames come and go */
	u32 route;	/* what the FIB calls it: the VLAN device, or ifindex */
	u32 end;	/* enum fp_end: whose class counts for what leaves here */
	u32 mtu;	/* bytes of IP */
	u16 vlan;	/* its tag; 0: none, or in a bridge whatever tag a frame has */
	u16 stack_seen; /* what goes to the stack is measured there (tcx ingress) */
	u8 mac[FP_MAC_BYTES];
	u16 zero;
};

struct fp_forward {
	u32 mode; /* enum fp_forwarding */
	u32 zero;
	struct fp_exit exit[FP_EXITS];
	u8 own[FP_MAX_OWN][8]; /* MAC addresses of this host; zero where unused */
};

_Static_assert(sizeof(struct fp_forward) == 96, "what forward.rs writes");

/* Before a frame in AF_XDP; mirrored in crates/edge/afxdp/src/metadata.rs. */
struct fp_metadata {
	u32 magic;
	u32 exit;
	struct fp_meta meta;
};

_Static_assert(sizeof(struct fp_metadata) == 88, "what metadata.rs reads");

/* The kernel's struct bpf_fib_lookup: what the FIB is asked, and what it answers. */
struct fp_fib {
	u8 family;
	u8 l4_protocol;
	u16 sport;
	u16 dport;
	u16 tot_len;  /* question: bytes of IP; answer: the MTU */
	u32 ifindex;  /* question: where the packet came in; answer: where it leaves */
	u32 flowinfo; /* IPv4: tos in the first byte */
	u32 src[4];   /* network order, as all addresses here */
	u32 dst[4];
	u32 vlan;
	u8 smac[FP_MAC_BYTES];
	u8 dmac[FP_MAC_BYTES];
};

_Static_assert(sizeof(struct fp_fib) == 64, "UAPI");

/* A decision: outcome, exits by which it came and leaves, and where its IP header is. */
#define FP_GO(outcome, in, out, ip) ((outcome) | (in) << 8 | (out) << 12 | (ip) << 16)
#define FP_GO_OUTCOME(go)	    ((go) & 0xff)
#define FP_GO_IN(go)		    ((go) >> 8 & 1)
#define FP_GO_OUT(go)		    ((go) >> 12 & 1)
#define FP_GO_IP(go)		    ((go) >> 16 & 31)

#endif /* FP_FORWARD_ABI_H */
