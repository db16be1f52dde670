/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* needs.h: refuses compilers that cannot compile Fairpath's queues, with the remedy. */
#ifndef FP_NEEDS_H
#define FP_NEEDS_H

#ifdef __bpf__
#if !defined(__clang__) || __clang_major__ < 19
#error "Fairpath's queues need clang 19 or newer for BPF: install clang-19, and compile with clang-19 -target bpf -mcpu=v3"
#endif
#if !defined(__BPF_CPU_VERSION__) || __BPF_CPU_VERSION__ < 3
#error "Fairpath's queues need BPF instructions of version 3: add -mcpu=v3"
#endif
#endif

#endif /* FP_NEEDS_H */
