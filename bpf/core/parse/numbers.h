/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * parse/numbers.h: the assigned numbers of link and network headers that the core compares.
 */
#ifndef FP_PARSE_NUMBERS_H
#define FP_PARSE_NUMBERS_H

#define FP_ETH_IPV4	     0x0800
#define FP_ETH_IPV6	     0x86dd
#define FP_ETH_VLAN	     0x8100
#define FP_ETH_QINQ	     0x88a8
#define FP_ETH_QINQ_OLD	     0x9100
#define FP_ETH_PPPOE_SESSION 0x8864
#define FP_PPP_IPV4	     0x0021
#define FP_PPP_IPV6	     0x0057

#define FP_PROTO_HOPOPT 0
#define FP_PROTO_ICMP	1
#define FP_PROTO_TCP	6
#define FP_PROTO_UDP	17
#define FP_PROTO_ICMPV6 58

#endif /* FP_PARSE_NUMBERS_H */
