/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * work.h: the memory of one monitor, and the scratch of one CPU.
 *
 *   +---------+---------+---------+-----------+-----------+--------+-------+--------+--------+
 *   | fp_rtt  | fp_work | events  | half sets | flow sets | flows  | flows | rest   | chunks |
 *   | header  | per CPU | per CPU |           |           | (half) |       | of all |        |
 *   +---------+---------+---------+-----------+-----------+--------+-------+--------+--------+
 *   +---------+-----------+-----------+-----------+-------------+--------+
 *   | refused | classes   | cells     | pairs     | images of   | replay |
 *   | marks   | (also by  | (twice)   | (twice)   | rules (two) | (test) |
 *   |         | CPU)      |           |           |             |        |
 *   +---------+-----------+-----------+-----------+-------------+--------+
 *
 * Everything is addressed by offsets from the header, so the same bytes are valid in the kernel's
 * arena, in its mapping by user space and in plain memory.
 */
#ifndef FP_WORK_H
#define FP_WORK_H

#include "abi.h"
#include "hash.h"

/*
 * Bytes of headers that are parsed: Ethernet 14, four VLAN tags 16, PPPoE 8, IPv6 40, extensions
 * 54, TCP 60.
 */
#define FP_HEAD_BYTES 192
/* Maximum of interfaces of one monitor. */
#define FP_MAX_WATCHED	1024
#define FP_WATCH_PROBES 64
/* Free chunks are on this many stacks, so that CPUs rarely contend. */
#define FP_POOL_SHARDS 16
#define FP_WAYS	       8
/* A power of two: refused flows are counted well up to about five times as many. */
#define FP_REFUSED_MARKS 16384

/* The result of parse.h for a frame. */
enum fp_packet_kind {
	FP_PACKET_TCP = 1,
	FP_PACKET_ECHO_REQUEST = 2,
	FP_PACKET_ECHO_REPLY = 3,
};

#define FP_TCP_FIN 0x01
#define FP_TCP_SYN 0x02
#define FP_TCP_RST 0x04
#define FP_TCP_ACK 0x10
#define FP_TCP_URG 0x20

#define FP_PACKET_HAS_TS 0x01
/* First fragment of a TCP segment, whose end is unknown. */
#define FP_PACKET_CUT 0x02
/* The capture truncated the TCP options. */
#define FP_PACKET_CUT_OPTIONS 0x04

struct fp_packet {
	struct fp_key key;
	u32 seq; /* host order; of ICMP the echo's number */
	u32 ack;
	u32 payload; /* bytes after the TCP header; of ICMP the whole message */
	u32 tsval;
	u32 tsecr;
	u16 window;   /* as sent, unscaled; of ICMP the checksum */
	u8 kind;      /* enum fp_packet_kind */
	u8 side;      /* of the sender, in key */
	u8 tcp_flags; /* FP_TCP_* */
	u8 flags;     /* FP_PACKET_* */
	u16 vlan;     /* outermost tag's identifier */
	u8 dscp;
	u8 ecn;
	u16 sack_at; /* of its SACK option in the head; 0 none */
	/*
	 * On the wire, headers of all segments included, and never more than the frame has; 0: no
	 * IP header was read.
	 */
	u32 ip_bytes;
	u32 sack[2][2]; /* first two SACK blocks, if sack_at: left, right; equal where absent */
	u32 zero;
};

/* The matched data of a sample. */
struct fp_match {
	u64 time; /* of the data */
	u32 end;
	u32 flags;  /* of its segment */
	u32 acked;  /* bytes newly acknowledged */
	u32 method; /* enum fp_method, 0 no match */
};

/* A segment that an advancing ACK removed from the list of a direction. */
struct fp_covered {
	u64 time;
	u32 seq;
	u32 end;
	u32 tsval;
	u32 flags;
	u32 any;
	u32 zero;
};

/* Results of one end of a flow for the other (far: of the downstream leg). */
struct fp_peer {
	u64 bytes[2]; /* FP_UP, FP_DOWN */
	u64 rtt_sum_ns;
	u64 far_rtt_sum_ns;
	u32 samples;
	u32 far_samples;
	u32 max_rtt_us;
	u32 far_max_rtt_us;
	u32 lost_packets;
	u32 far_lost_packets;
	u32 lost_on[2]; /* on the leg of each side */
	u32 unmatched;	/* whether to find its subnet */
	u32 zero;
};

/* The ring of events of one CPU (rtt/ring.h). Positions count bytes, and never wrap. */
struct fp_ring {
	u64 head;  /* of the writer, which publishes by it */
	u64 next;  /* head after the event that is being written */
	u64 seen;  /* the reader's position when the writer last looked */
	u64 start; /* offset of the ring from the header */
	u64 zero[4];
	u64 tail; /* of the reader, in a separate cache line */
	u64 zero2[7];
};

/* Identifies a packet of an established connection when it is seen again. */
struct fp_identity {
	struct fp_key key;
	u32 seq;
	u32 ack;
	u32 payload;
	u32 tsval;
	u32 flags; /* of the packet and of TCP; 0 none */
	u32 zero;
};

/*
 * Packets that arrive in one batch (NAPI hands over eight) pass ingress before the first of them
 * leaves.
 */
#define FP_SEEN_BITS 5

/* The first 128 bytes are used by every packet: machine code has shorter addresses for these. */
struct fp_work {
	struct fp_packet packet;
	u32 packets;	/* on the wire: segments of a GSO packet */
	u32 wire_bytes; /* length of the frame, from fp_parse() on: fp_wire_bytes() */
	u32 hash;	/* of packet.key */
	u32 behind;	/* the interface towards the sender, 0 unknown or this host */
	u64 point;	/* capture point: interface, direction and VLAN in one number */
	struct fp_frame frame;
	struct fp_match match;
	struct fp_ring ring __attribute__((aligned(64)));
	u32 busy;	/* claimed, where softirqs can nest (PREEMPT_RT) */
	u32 head_bytes; /* valid bytes in head */
	u32 way;	/* counter of fp_expire_set() */
	u32 cpu;	/* whose scratch this is */
	/* Packets that were measured last, by fp_seen_place(): a later hook may see them. */
	struct fp_identity seen[1 << FP_SEEN_BITS] __attribute__((aligned(64)));
	struct fp_covered newest; /* of those that an ACK covers */
	struct fp_covered echoed; /* the newest whose TSval the ACK echoes, by --method ts */
	struct fp_covered oldest; /* sequence number, TSval and flags only */
	u32 slot[2];		  /* class of each side, if classes are counted */
	u32 facts[2];		  /* hash of what selects it in addition to the address */
	u8 natural[2];		  /* whether this hook counts the side */
	u8 measured;		  /* the packet's flow gave samples */
	u8 known;		  /* slot[] is valid */
	u32 family;		  /* fp_match_prefix(): which levels */
	u64 look[2];		  /* the address looked up; a pair's address */
	u32 low;		  /* its binary search */
	u32 high;
	u32 best;
	u32 image; /* which image of the rules this packet goes by */
	struct fp_peer peer;
	struct fp_stats stats;
	u64 own_use[18]; /* for the runtime: its state of a frame */
	u8 head[FP_HEAD_BYTES];
} __attribute__((aligned(64)));

/* A frame of an unattached test run; its bytes stand at `data`, an offset from the header. */
struct fp_replay {
	struct fp_frame frame;
	u64 data;
	u32 bytes;
	u32 result; /* enum fp_parsed, written by the run */
};

struct fp_pool_shard {
	u64 top; /* index of the first free chunk (0 none), and a tag against ABA above it */
	u64 pad[7];
};

/* Fields for all packets are at the start, those for user space and few packets at the end. */
struct fp_rtt {
	u32 abi; /* FP_ABI_VERSION */
	u32 ready;
	struct fp_config config;
	u64 bytes; /* all of it */
	u64 work;  /* offsets from here on */
	u64 rings;
	u64 half_sets;
	u64 half_flows;
	u64 flow_sets;
	u64 flows;
	u64 rare; /* from each flow to its rest */
	u64 chunks;
	u64 replay;
	u32 next_flow;
	u32 expire_cursor; /* over half sets, then flow sets */
	u64 expire_now;
	u32 expire_sets; /* sets that one call checks */
	u32 replay_frames;
	struct fp_hash_keys hash; /* from config.seed */
	u32 watched_count;
	u32 filters;
	u32 filters_only;    /* some filter says what is wanted */
	u32 interface_slots; /* interfaces that are counted separately */
	u32 class_filters;   /* FP_CLASS_ONLY, FP_CLASS_EXCEPT: some class has it */
	u32 image;	     /* the one active; written by user space */
	u32 reading;	     /* cells and pairs that are being filled; written by user space */
	u32 zero;
	u32 uses[2];	   /* of each image, copied from it */
	u32 generation[2]; /* the same */
	u64 classes;	   /* offsets */
	u64 volumes;	   /* by CPU and class */
	u64 legs;	   /* the same */
	u64 cells[2];
	u64 pair_sets[2];
	u64 pairs[2];
	u64 images[2];
	u64 refused; /* offset of FP_REFUSED_MARKS bytes, by hash: 1 if a flow was refused */
	/* The flow table as a whole; flows write here only when they start, end or are refused. */
	u32 flows_used __attribute__((aligned(64)));
	u32 refused_at;		     /* minimum of flows_used when a flow was refused; 0 none was */
	u32 chunks_begun;	     /* chunks up to here were taken once */
	u32 watched[FP_MAX_WATCHED]; /* ifindex; open addressing, 0 empty, ~0 deleted */
	u32 watched_slot[FP_MAX_WATCHED]; /* where the interface is counted, 0 nowhere */
	struct fp_filter filter[FP_MAX_FILTERS];
	struct fp_pool_shard pool[FP_POOL_SHARDS];
} __attribute__((aligned(64)));

/*
 * The length of the frame: that on the wire, captured or not. A capture file that has more bytes
 * than it claims has those.
 */
FP_INLINE u32 fp_wire_bytes(const struct fp_work FP_MEM *w)
{
	return w->wire_bytes;
}

FP_INLINE struct fp_work FP_MEM *fp_work_of(struct fp_rtt FP_MEM *r, u32 cpu)
{
	return FP_AT(struct fp_work, r, r->work + (u64)cpu * sizeof(struct fp_work));
}

/*
 * The place of an interface to try after `probes` others. The first is its own among successive
 * indexes, which most are; those of indexes that step are spread, each interface with its stride.
 */
FP_INLINE u32 fp_watch_place(u32 ifindex, u32 probes)
{
	u32 hash = ifindex * 2654435761u;

	if (!probes)
		return ifindex % FP_MAX_WATCHED;
	return ((hash >> 22) + probes * (hash >> 11 | 1)) % FP_MAX_WATCHED;
}

/* The index of `ifindex` among the interfaces with monitored ingress, or FP_MAX_WATCHED. */
FP_INLINE u32 fp_watched(struct fp_rtt FP_MEM *r, u32 ifindex)
{
	u32 i;

	if (!ifindex)
		return FP_MAX_WATCHED;
	fp_loop(i, FP_WATCH_PROBES) {
		u32 at = fp_watch_place(ifindex, i);

		if (r->watched[at] == ifindex)
			return at;
		if (r->watched[at] == 0)
			break;
	}
	return FP_MAX_WATCHED;
}

FP_INLINE int fp_is_watched(struct fp_rtt FP_MEM *r, u32 ifindex)
{
	return fp_watched(r, ifindex) != FP_MAX_WATCHED;
}

#endif /* FP_WORK_H */
