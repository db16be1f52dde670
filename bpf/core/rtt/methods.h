/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rtt/methods.h: the methods by which samples are taken. A line has the method's number (from 1
 * on, without gaps), its name, its constant, and what it matches. The counters, the names in records
 * and reports, and the Rust type are derived from it. A method lies in its own header: one of TCP is
 * called by fp_match_ack() in tcp.h, one with packets separate by fp_measure_in_flow() in rtt.h.
 */
#ifndef FP_METHODS_H
#define FP_METHODS_H

#define FP_METHODS(X)                                                                              \
	X(1, seq, SEQ, "Sequence and acknowledgement numbers, Karn's rule.")                       \
	X(2, ts, TS, "TCP timestamps, RFC 7323.")                                                  \
	X(3, handshake, HANDSHAKE, "SYN and its answers.")                                         \
	X(4, icmp, ICMP, "Echo request and reply.")

#endif /* FP_METHODS_H */
