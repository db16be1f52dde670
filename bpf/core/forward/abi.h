/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/abi.h: what forwarding shares with user space and with the hooks that use it.
 *
 *   struct fp_forward  the plan: bridge or router, two egress interfaces, addresses of this host
 *   FP_GO_*  the outcome for a frame, counted by egress interface
 *   struct fp_fib  a query to the FIB of the kernel, and its result
 *   FP_GO()  a decision as a number: outcome, interfaces, position of the IP header
 *   struct fp_metadata  what AF_XDP gets before a frame
 */
#ifndef FP_FORWARD_ABI_H
#define FP_FORWARD_ABI_H

#include "../runtime.h"
#include "../sched/abi.h"

#define FP_EXITS     2
#define FP_MAX_OWN   4
#define FP_MAC_BYTES 6

#define FP_METADATA_MAGIC 0x746e7066u /* "fpnt" */

/* The forwarding of packets. */
enum fp_forwarding {
	FP_FORWARD_OFF = 0,
	FP_FORWARD_BRIDGE = 1,
	FP_FORWARD_ROUTER = 2,
};

/* The kernel's check of the sender of an IPv4 packet: the numbers of sysctl rp_filter. */
enum fp_sender_check {
	FP_SENDER_IS_OTHER = 0, /* the sender is another host */
	FP_SENDER_STRICT = 1,	/* and the route to it leaves by the ingress interface */
	FP_SENDER_LOOSE = 2,	/* and there is a route to it */
};

/* Outcomes for a frame; mirrored in crates/model/core/src/forward.rs. */
enum fp_forward_outcome {
	FP_GO_TO_SOCKET,
	FP_GO_NO_SOCKET,
	FP_GO_NOT_IP,
	FP_GO_GROUP,
	FP_GO_OWN,
	FP_GO_NEIGHBOUR,
	FP_GO_SHORT,
	FP_GO_NO_HEADROOM, /* no headroom for metadata: passed */
	FP_GO_REDIRECT_OUTCOMES,
	/* Only of rtt_forward. */
	FP_GO_OTHER_VLAN = FP_GO_REDIRECT_OUTCOMES, /* its tag belongs to no egress interface */
	FP_GO_NO_SCRATCH,			    /* the monitor has no work area for this CPU */
	FP_GO_TOO_BIG,
	/* Only of its router mode. */
	FP_GO_OTHER_HOST, /* not sent to the interface's MAC address */
	FP_GO_TTL,
	FP_GO_OPTIONS,	       /* IPv4's, or hop-by-hop ones */
	FP_GO_NOT_FORWARDABLE, /* addresses that no router forwards, or a wrong header checksum */
	FP_GO_NO_NEIGHBOUR,    /* the MAC address of the next hop is unknown */
	FP_GO_LOCAL,	       /* this host's own, broadcast, no route */
	FP_GO_UNREACHABLE,     /* an unreachable or blackhole route */
	FP_GO_NOT_FORWARDING,  /* sysctl forwarding is off */
	FP_GO_TUNNEL,	       /* the route encapsulates */
	FP_GO_OTHER_EXIT,      /* the route uses an interface that is not configured */
	FP_GO_SENDER,	       /* the route back to the sender does not prove its address */
	/* Dropped. */
	FP_GO_LOST, /* the socket was closed after the frame was changed */
	FP_GO_OUTCOMES,
};

/* Integers in host order. Mirrored in crates/model/core/src/forward.rs. */
struct fp_exit {
	u32 ifindex;	/* interface of its frames */
	u32 route;	/* as the FIB names it: the VLAN device, or ifindex */
	u32 end;	/* enum fp_end: the end whose class counts at egress here */
	u32 mtu;	/* bytes of IP */
	u16 vlan;	/* its tag; 0: none, or in a bridge any tag */
	u16 stack_seen; /* packets to the stack are measured there (tcx ingress) */
	u8 mac[FP_MAC_BYTES];
	u16 sender; /* enum fp_sender_check: of packets that enter here */
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

_Static_assert(sizeof(struct fp_metadata) == 120, "what metadata.rs reads");

/* The kernel's struct bpf_fib_lookup: query and result. */
struct fp_fib {
	u8 family;
	u8 l4_protocol;
	u16 sport;
	u16 dport;
	u16 tot_len;  /* query: bytes of IP; result: the MTU */
	u32 ifindex;  /* query: ingress interface; result: egress interface */
	u32 flowinfo; /* IPv4: tos in the first byte */
	u32 src[4];   /* network order, as all addresses here */
	u32 dst[4];
	u32 vlan;
	u8 smac[FP_MAC_BYTES];
	u8 dmac[FP_MAC_BYTES];
};

_Static_assert(sizeof(struct fp_fib) == 64, "UAPI");

/* A decision: outcome, ingress and egress, and position of the IP header. */
#define FP_GO(outcome, in, out, ip) ((outcome) | (in) << 8 | (out) << 12 | (ip) << 16)
#define FP_GO_OUTCOME(go)	    ((go) & 0xff)
#define FP_GO_IN(go)		    ((go) >> 8 & 1)
#define FP_GO_OUT(go)		    ((go) >> 12 & 1)
#define FP_GO_IP(go)		    ((go) >> 16 & 31)

#endif /* FP_FORWARD_ABI_H */
