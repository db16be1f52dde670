/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/policy.h>: what a policy's file includes. */
#include "core/sched/policy.h"
