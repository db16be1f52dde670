/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/pool.h>: sizes and formatting of queues, in user space. */
#include "core/pifo/pool.h"
