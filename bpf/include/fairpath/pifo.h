/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/pifo.h>: queues of one kind. */
#include "core/pifo/needs.h"
#include "core/pifo/pifo.h"
