/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/pifo.h>: queues of one kind, for BPF programs. */
#include "core/pifo/pifo.h"
