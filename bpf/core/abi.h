/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * abi.h: every structure that the core shares with Rust.
 *
 * All sizes are multiples of eight, without implicit padding, and integers are in host order unless
 * the type says net16. crates/model/core/src/abi.rs mirrors this file, and a test compares every
 * size and offset. Times are nanoseconds of the clock that the runtime passes as `now`.
 */
#ifndef FP_ABI_H
#define FP_ABI_H

#include "rtt/methods.h"
#include "runtime.h"

#define FP_ABI_VERSION 3

/* The first header of a frame. */
enum fp_link {
	FP_LINK_ETHERNET = 1,
	FP_LINK_RAW = 2, /* an IPv4 or IPv6 header: ppp, tun, wireguard */
	FP_LINK_SLL = 3, /* Linux cooked capture, version 1 */
	FP_LINK_SLL2 = 4,
	FP_LINK_NULL = 5, /* BSD loopback: address family in either byte order */
	FP_LINK_PPP = 6,
};

/* The direction of a frame through the interface. */
enum fp_direction {
	FP_DIRECTION_UNKNOWN = 0,
	FP_INGRESS = 1,
	FP_EGRESS = 2,
};

/* It came in by an interface whose ingress is monitored too, and that hook takes its samples. */
#define FP_FRAME_SEEN_BEFORE 0x01
/* Observed after the egress queue of its interface (packet taps), not before it (tcx). */
#define FP_FRAME_AFTER_QUEUE 0x02
/*
 * Ingress here, and egress by rx_ifindex where no hook observes it (AF_XDP): both ends are counted
 * here.
 */
#define FP_FRAME_THROUGH 0x04

/* The metadata of a frame from the runtime. */
struct fp_frame {
	u64 now;
	u64 number;	/* frame number in a capture, 0 live */
	u32 wire_len;	/* bytes on the wire, captured or not */
	u32 segs;	/* wire segments of a GSO packet; 0 counts as 1 */
	u32 ifindex;	/* of the hook; 0 unknown */
	u32 rx_ifindex; /* egress: ingress interface; 0 this host or unknown */
			/* going through: egress interface */
	u16 link;	/* enum fp_link */
	u16 vlan;	/* tag control that the kernel removed from the frame, 0 none */
	u8 direction;	/* enum fp_direction */
	u8 flags;	/* FP_FRAME_* */
	u16 out_vlan;	/* going through: tag control at egress, 0 none */
	u32 mark;	/* of the packet, 0 none or unknown */
	u32 zero2;
};

/* The identity of a flow. Side 0 is the one with the lower (address, port) as loaded. */
struct fp_key {
	u64 addr[2][2]; /* by side; network order as loaded; IPv4 as ::ffff:a.b.c.d */
	net16 port[2];	/* by side; the echo identifier on both for ICMP */
	u8 proto;
	u8 family; /* 4 or 6 */
	u16 zero;
};

/* The method of a sample. */
#define FP_METHOD_(number, name, constant, about) FP_METHOD_##constant = number,
#define FP_ONE_MORE_(...)			  +1
enum fp_method { FP_METHODS(FP_METHOD_) FP_METHOD_COUNT = 0 FP_METHODS(FP_ONE_MORE_) };

/* The TCP methods that are enabled. */
enum fp_mode {
	FP_MODE_HYBRID = 0,
	FP_MODE_SEQ = 1,
	FP_MODE_TS = 2,
	FP_MODE_HANDSHAKE = 3,
	FP_MODE_TSHARK = 4, /* native runtime only: tshark's pairing instead of Karn's rule */
};

struct fp_config {
	u64 seed;	       /* of the hashes (hash.h); secret live, fixed in tests */
	u64 flow_timeout;      /* idle time after which a flow is closed */
	u64 half_open_timeout; /* the same for handshakes that never complete */
	u64 closed_timeout;    /* how long a closed flow accepts late packets */
	u64 echo_timeout;      /* idle time of an ICMP flow */
	u64 evict_guard;       /* an established flow that is idle for less is never evicted */
	u64 max_rtt;	       /* maximum age of a match */
	u64 rate_limit;	       /* minimum time between two samples reported per flow and leg */
	u32 rate_limit_rtts;   /* the same as a multiple of the leg's minimum RTT, 1/256 units */
	u32 mode;	       /* enum fp_mode */
	u32 icmp;	       /* 0: no samples from echo */
	u32 flow_sets;	       /* sets of flows; power of two */
	u32 half_sets;	       /* sets of half-open flows; power of two */
	u32 chunks;	       /* of FP_CHUNK_SEGMENTS outstanding segments */
	u32 max_segments;      /* outstanding segments of one direction of one flow */
	u32 cpus;	       /* work areas and counters, one each */
	u64 image_bytes;       /* space for one image of the rules; there are two */
	u32 slots;	       /* classes that can be counted; 0: nothing is classified */
	u32 cell_sets;	       /* sets of FP_CELL_WAYS cells, twice; power of two */
	u32 pair_sets;	       /* sets of FP_PAIR_WAYS pairs, twice; power of two */
	u32 remote_v4;	       /* prefix length by which IPv4 remotes are distinguished */
	u32 remote_v6;	       /* the same for IPv6 */
	u32 quiet;	       /* no events: counts only */
	u32 ring_bytes;	       /* of the ring of events of each CPU; a power of two */
	u32 zero;
};

/* Maximum of filters of one monitor. */
#define FP_MAX_FILTERS 32
/* Excludes packets that match. Without it, packets that match no filter are excluded. */
#define FP_FILTER_EXCEPT 0x01
#define FP_FILTER_PREFIX 0x02
#define FP_FILTER_PORT	 0x04

/* A packet matches if one of its ends is in the prefix and one of its ports is the port. */
struct fp_filter {
	u64 addr[2]; /* masked, network order as loaded */
	u64 mask[2];
	net16 port;
	u16 flags; /* FP_FILTER_* */
	u32 zero;
};

enum fp_event_kind {
	FP_EVENT_SAMPLE = 1,
	FP_EVENT_OPENED = 2,
	FP_EVENT_CLOSED = 3,
	FP_EVENT_ALIVE = 4, /* still open when monitoring ended */
};

/* Why a flow was opened or closed. */
enum fp_reason {
	FP_REASON_NONE = 0,
	FP_OPENED_SYN = 1,
	FP_OPENED_SYN_ACK = 2,
	FP_OPENED_FIRST_SEEN = 3,
	FP_CLOSED_FIN = 4,
	FP_CLOSED_RST = 5,
	FP_CLOSED_TIMEOUT = 6,
	FP_CLOSED_REUSE = 7,   /* the same 5-tuple started again */
	FP_CLOSED_EVICTED = 8, /* the table needed the entry */
	FP_CLOSED_END = 9,     /* monitoring ended */
};

/* The place of the router's own egress queue in a sample. */
enum fp_own_queue {
	FP_OWN_QUEUE_UNKNOWN = 0,
	FP_OWN_QUEUE_IN = 1,
	FP_OWN_QUEUE_OUT = 2,
};

/* Counts of one direction: packets of side N. Bytes are TCP payload, or ICMP messages. */
struct fp_counts {
	u64 packets; /* wire packets: GSO packets count their segments */
	u64 bytes;
	u64 retransmitted_bytes; /* sent again although observed here: lost downstream */
	u64 upstream_lost_bytes; /* holes that a retransmission filled: lost upstream */
	u64 sampled_bytes;	 /* acknowledged by an ACK that gave a sample */
	u32 retransmitted_packets;
	u32 upstream_lost_packets;
	u32 spurious_packets; /* retransmitted although acknowledged already, or reported by D-SACK */
	u32 reordered_packets; /* arrived here late, but not retransmitted */
	u32 unobserved_bytes; /* acknowledged but not observed here: capture loss or another path */
	u32 samples;	      /* taken from this direction's data, reported or not */
	u32 data_packets;
	u32 zero;
};

/* The head of every event. Samples end here; flow events continue with struct fp_counts twice. */
struct fp_event {
	u64 time;
	u64 number; /* the frame that completed the sample or made the event; 0 live */
	u64 rtt;    /* ns; of a sample */
	u64 min;    /* minimum RTT of this leg so far; ns */
	struct fp_key key;
	u32 flow;	 /* number of the flow; unique until it wraps */
	u32 ifindex;	 /* where the completing packet was seen */
	u32 towards;	 /* the interface towards the measured host; 0 unknown or this host */
	u32 seq;	 /* end of the matched data (the next number), or the number of the echo */
	u32 ack;	 /* acknowledgement number of the completing packet */
	u32 acked_bytes; /* newly acknowledged */
	u8 kind;	 /* enum fp_event_kind */
	u8 method;	 /* enum fp_method */
	u8 side;	 /* samples: the measured host; flow events: who opened or closed */
	u8 reason;	 /* enum fp_reason */
	u8 own_queue;	 /* enum fp_own_queue */
	u8 direction;	 /* enum fp_direction of the completing packet */
	u16 seen;	 /* bit N: packets of side N were seen */
	u64 opened;	 /* flow events: when the flow was opened */
};

struct fp_flow_event {
	struct fp_event head;
	struct fp_counts counts[2];
	u64 min[2];	/* minimum RTT towards side N, if counts[!N] has samples */
	u32 towards[2]; /* the interface towards side N */
};

/* Counts of a class as user space reads them (struct fp_class is the layout). They only grow. */
struct fp_dir_counts {
	u64 packets;	      /* wire packets of IP */
	u64 bytes;	      /* of IP, headers of all segments included */
	u64 unmeasured_bytes; /* of flows without a sample so far, and of other protocols */
	u32 data_packets;     /* of TCP; fp_tally_flush() adds this and the next four */
	u32 retransmitted_packets;
	u32 upstream_lost_packets;
	u32 spurious_packets;
	u32 reordered_packets;
	u32 zero;
};

struct fp_leg_counts {
	u32 samples;
	u32 unbinned; /* samples that found no free cell */
	u64 sum_ns;
};

#define FP_UP	   0 /* sent by the class's hosts */
#define FP_DOWN	   1
#define FP_INSIDE  0 /* between this router and the class's hosts */
#define FP_OUTSIDE 1 /* between this router and the remote hosts */

struct fp_class_counts {
	struct fp_dir_counts dir[2]; /* FP_UP, FP_DOWN */
	struct fp_leg_counts leg[2]; /* FP_INSIDE, FP_OUTSIDE */
	u32 flows_opened;
	u32 flows_closed;
	u32 handshakes_failed;
	u32 one_sided;
};

/* Counters, one set per CPU. The reader adds them up. Their names are public keys. */
struct fp_stats {
	u64 frames;
	u64 frame_bytes;
	u64 not_ip;
	u64 truncated;	    /* headers not captured far enough */
	u64 malformed;	    /* lengths that contradict each other or the frame's */
	u64 fragments;	    /* later fragments, and first ones of TCP: not measured */
	u64 other_protocol; /* neither TCP nor ICMP echo */
	u64 tcp_packets;
	u64 tcp_bytes;
	u64 echo_packets;
	u64 second_hook_packets; /* the same packet at another hook: counted once */
	union {
		struct {
#define FP_SAMPLES_(number, name, constant, about) u64 samples_##name;
			FP_METHODS(FP_SAMPLES_)
		};
		u64 samples[FP_METHOD_COUNT]; /* by method, less one */
	};
	u64 samples_suppressed; /* suppressed by the rate limit of output */
	u64 refused_stale_ack;	/* TSecr newer than the data acknowledged: an ACK was lost */
	u64 refused_old_echo;	/* TSecr older: the ACK answers an earlier copy */
	u64 refused_age;	/* older than max_rtt */
	u64 refused_clock;	/* time went backwards */
	u64 flows_opened;
	u64 flows_closed;
	u64 flows_timed_out;
	u64 flows_reused;
	u64 flows_evicted;
	u64 flows_refused;   /* packets of flows without an entry that the age guard permits */
	u64 one_sided_flows; /* ended with only one direction seen: not measurable */
	u64 one_sided_bytes;
	u64 half_open_started;
	u64 half_open_evicted;
	u64 half_open_failed; /* timed out or reset before the handshake completed */
	u64 holes_dropped;    /* holes and retransmissions dropped for newer ones */
	u64 segments_refused; /* no chunk left, or max_segments outstanding */
	u64 lock_failures;
	u64 scratch_busy;
	u64 events_lost;
	u64 keepalives;
	u64 tcp_bytes_sampled;
	u64 filtered;	      /* frames that the filters exclude */
	u64 samples_unbinned; /* without a free cell: only in the sum of their class */
	u64 pairs_evicted;    /* peers of classes evicted by others within one reading */
};

#endif /* FP_ABI_H */
