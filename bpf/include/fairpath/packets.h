/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/packets.h>: packets that a BPF qdisc owns. */
#include "core/pifo/needs.h"
#include "core/pifo/packets.h"
