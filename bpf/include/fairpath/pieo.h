/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/pieo.h>: queues whose entries become eligible at a time. */
#include "core/pifo/needs.h"
#include "core/pifo/pieo.h"
