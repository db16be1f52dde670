/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rtt/methods.h: the methods of taking samples. A line has the number of the method (from 1,
 * without gaps), its name, its constant, and what it matches. The counters, the names in records
 * and reports, and the Rust type are generated from it. Each method has its own header:
 * fp_match_ack() in tcp.h calls those of TCP, and fp_measure_in_flow() in rtt.h calls those with
 * other packets.
 */
#ifndef FP_METHODS_H
#define FP_METHODS_H

#define FP_METHODS(X)                                                                              \
	X(1, seq, SEQ, "Sequence and acknowledgement numbers, Karn's rule.")                       \
	X(2, ts, TS, "TCP timestamps, RFC 7323.")                                                  \
	X(3, handshake, HANDSHAKE, "SYN and its answers.")                                         \
	X(4, icmp, ICMP, "Echo request and reply.")

#endif /* FP_METHODS_H */
