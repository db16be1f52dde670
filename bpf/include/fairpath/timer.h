/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <fairpath/timer.h>: a program that runs when something becomes eligible. */
#include "core/pifo/needs.h"
#include "core/pifo/timer.h"
