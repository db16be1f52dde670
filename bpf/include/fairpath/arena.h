/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/arena.h>: the memory of queues, for BPF programs and what loads them. */
#include "core/pifo/needs.h"
#include "core/pifo/arena.h"
