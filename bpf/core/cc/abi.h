/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * abi.h: the state of a sender, the input of one ACK, and the constants.
 *
 * Written from draft-ietf-ccwg-bbr (section numbers change, names do not). Names are those of the
 * draft: max_bw, inflight_longterm, bw_shortterm. Volumes are packets, as in Linux; the draft
 * counts bytes. Times are microseconds of the clock of ACK timestamps. Rates of the model are
 * packets per microsecond, times 2^24. Only the pacing rate is in bytes per second.
 *
 * Deliberately absent: ECN (the draft has no response to it), and the state per sent packet (TCP
 * does not expose it): struct fp_bbr3_sent approximates it.
 */
#ifndef FP_CC_ABI_H
#define FP_CC_ABI_H

#include "../runtime.h"

/*
 * Steps are global functions: the verifier checks each once, so its work is a sum. Pointer
 * arguments are marked as never null, and results are numbers.
 */
#ifdef __bpf__
#define FP_CC_ARG __attribute__((btf_decl_tag("arg:nonnull")))
#else
#define FP_CC_ARG
#endif

/* Neither sent nor measured: above every volume, rate and time. */
#define FP_BBR3_NONE32 0xffffffffu
#define FP_BBR3_NONE64 0xffffffffffffffffull

#define FP_BBR3_BW_SHIFT 24

/* Gains and shares, in hundredths. */
#define FP_BBR3_STARTUP_PACING 277
#define FP_BBR3_DRAIN_PACING   50
#define FP_BBR3_DOWN_PACING    90
#define FP_BBR3_UP_PACING      125
#define FP_BBR3_DEFAULT_CWND   200
#define FP_BBR3_UP_CWND	       225
#define FP_BBR3_PROBE_RTT_CWND 50
#define FP_BBR3_LOSS_THRESH    2
#define FP_BBR3_BETA	       70
#define FP_BBR3_HEADROOM       15
#define FP_BBR3_PACING_MARGIN  1
#define FP_BBR3_FULL_BW_GROWTH 125

#define FP_BBR3_FULL_BW_ROUNDS	   3
#define FP_BBR3_FULL_LOSS_COUNT	   6
#define FP_BBR3_DRAIN_ROUNDS	   3
#define FP_BBR3_EXTRA_ACKED_ROUNDS 10
/* At most as many rounds as Reno needs: fair to it where the pipe is short. */
#define FP_BBR3_RENO_ROUNDS 63
#define FP_BBR3_MIN_CWND    4 /* packets */

#define FP_BBR3_MIN_RTT_US	  10000000ull
#define FP_BBR3_PROBE_RTT_US	  5000000ull
#define FP_BBR3_PROBE_RTT_HOLD_US 200000ull
#define FP_BBR3_PROBE_WAIT_US	  2000000ull
#define FP_BBR3_PROBE_SPREAD_US	  1000000u
#define FP_BBR3_QUANTUM_BYTES	  65536ull

enum fp_bbr3_phase {
	FP_BBR3_STARTUP,
	FP_BBR3_DRAIN,
	FP_BBR3_DOWN,
	FP_BBR3_CRUISE,
	FP_BBR3_REFILL,
	FP_BBR3_UP,
	FP_BBR3_PROBE_RTT,
	FP_BBR3_PHASES
};

/* The meaning of ACKs relative to the last probe for bandwidth. */
enum fp_bbr3_acks {
	FP_BBR3_ACKS_INIT,
	FP_BBR3_ACKS_REFILLING,
	FP_BBR3_ACKS_STARTING,
	FP_BBR3_ACKS_FEEDBACK,
	FP_BBR3_ACKS_STOPPING
};

/* The input of one ACK, from Linux' struct tcp_sock and struct rate_sample. */
struct fp_bbr3_ack {
	u64 now_us;
	u64 interval_us;     /* of the rate sample; 0: none, or too short to be one */
	u64 max_pacing;	     /* maximum pacing rate of the socket in bytes per second */
	u32 delivered;	     /* C.delivered: ever, this ACK included */
	u32 lost;	     /* C.lost: ever */
	u32 prior_delivered; /* delivered when the newest packet acknowledged was sent */
	u32 prior_in_flight; /* before this ACK */
	u32 in_flight;	     /* now */
	u32 acked;	     /* newly delivered */
	u32 sample;	     /* packets delivered over the interval */
	u32 rtt_us;	     /* FP_BBR3_NONE32: none */
	u32 srtt_us;	     /* 0: none */
	u32 cwnd;
	u32 mss; /* bytes */
	u32 random;
	u8 sampled;	 /* prior_delivered is valid */
	u8 app_limited;	 /* the sample is */
	u8 cwnd_limited; /* cwnd was used up */
	u8 has_sack;
	u8 in_recovery; /* fast recovery or after a timeout */
	u8 ack_delayed;
};

/*
 * A moment at which `delivered` packets were delivered, `lost` were lost and at most `in_flight`
 * were in flight. It holds for every packet sent then; the draft stores it per packet.
 */
struct fp_bbr3_sent {
	u32 delivered;
	u32 lost;
	u32 in_flight;
};

/* A power of two. One round trip fills half. */
#define FP_BBR3_SENT 64

/* One connection. */
struct fp_bbr3 {
	/* rates, in packets a microsecond << FP_BBR3_BW_SHIFT */
	u64 max_bw_of[2]; /* the previous cycle of probing, this one */
	u64 max_bw;
	u64 bw_shortterm;
	u64 bw;
	u64 bw_latest;
	u64 full_bw;
	u64 undo_bw_shortterm;
	u64 rate;	 /* of this ACK's sample, 0 none */
	u64 pacing_rate; /* bytes a second */
	/* moments and durations, in microseconds */
	u64 min_rtt_stamp;
	u64 probe_rtt_min_stamp;
	u64 probe_rtt_done; /* 0: in flight is still too much */
	u64 cycle_stamp;
	u64 probe_wait;
	u64 extra_acked_start;
	u32 min_rtt;
	u32 probe_rtt_min;
	/* volumes, in packets */
	u32 cwnd;
	u32 prior_cwnd;
	u32 initial_cwnd;
	u32 inflight_longterm;
	u32 inflight_shortterm;
	u32 inflight_latest;
	u32 undo_inflight_longterm;
	u32 undo_inflight_shortterm;
	u32 extra_acked_of[2]; /* by half a window */
	u32 extra_acked_delivered;
	u32 probe_up_acked;
	u32 probe_up_per_inc;
	u32 quantum;	  /* of one burst */
	u32 tx_in_flight; /* when the newest packet that this ACK is of was sent, */
	u32 lost_since;	  /* and how many were lost since */
	/* counts of C.delivered, C.lost */
	u32 begun;
	u32 next_round;
	u32 loss_round;
	u32 lost_seen;
	/* rounds */
	u32 round_count;
	u32 drain_start_round;
	u32 extra_acked_round;
	u32 rounds_since_probe;
	u32 full_bw_count;
	u32 probe_up_rounds;
	u32 loss_events;
	u32 sent_head;
	u8 phase; /* enum fp_bbr3_phase */
	u8 acks;  /* enum fp_bbr3_acks */
	u8 undo_phase;
	u8 round_start;
	u8 loss_round_start;
	u8 loss_in_round;
	u8 full_bw_reached;
	u8 full_bw_now;
	u8 probe_sample;
	u8 probe_too_high;
	u8 probe_precautionary;
	u8 probe_rtt_expired;
	u8 probe_rtt_round_done;
	u8 idle_restart;
	u8 seen_rtt;
	u8 was_in_recovery;
	u8 too_high; /* set when loss exceeded the threshold, cleared when counted */
	u8 mark_app_limited;
	u8 pad[6];
	struct fp_bbr3_sent sent[FP_BBR3_SENT];
};

#endif /* FP_CC_ABI_H */
