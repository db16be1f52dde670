/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/pool.h>: sizes and formatting of queues. */
#include "core/pifo/needs.h"
#include "core/pifo/pool.h"
