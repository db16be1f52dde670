/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * edf.c: registers the qdisc `edf`, and prints its counts when it ends.
 *
 *   edf OBJECT [RATE [DEADLINE...]]
 *
 * RATE is in Mbit/s, 0 is that of the device. DEADLINE is in ms, of voice, interactive, the rest and
 * background. While it runs, `tc qdisc replace dev DEV root edf` uses the qdisc. A device that has it
 * keeps it after the end.
 */
#include <fairpath/arena.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "edf.h"

static int fail(const char *what, int error)
{
	fprintf(stderr, "edf: %s: %s\n", what, strerror(error < 0 ? -error : error));
	return 1;
}

/* Runs a program of the object with the settings, or for the counts. Returns its result, or an error. */
static int run(struct bpf_object *object, const char *name, struct edf *edf)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);
	/* The kernel copies the context back. */
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = edf, .ctx_size_in = sizeof(*edf));
	int error = program ? bpf_prog_test_run_opts(bpf_program__fd(program), &options) : -ENOENT;

	return error ? error : (int)options.retval;
}

/* A number of an argument, or -1. */
static double number(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	return *text && !*end && value >= 0 && value <= 1e6 ? value : -1;
}

static int settings(struct edf *edf, int count, char **words)
{
	static const double usual[EDF_CLASSES] = { 5, 20, 100, 400 };
	double value = count > 0 ? number(words[0]) : 0;
	int i;

	if (value < 0 || count > 1 + EDF_CLASSES)
		return 1;
	edf->rate = (unsigned long long)(value * 1e6 / 8);
	for (i = 0; i < EDF_CLASSES; i++) {
		value = count > i + 1 ? number(words[i + 1]) : usual[i];
		if (value < 0)
			return 1;
		edf->classes[i].deadline = (unsigned long long)(value * 1e6);
	}
	return 0;
}

static void print(const struct edf *edf)
{
	static const char *names[EDF_CLASSES] = { "voice", "interactive", "rest", "background" };
	int i;

	printf("%-12s %12s %12s %12s %12s\n", "class", "deadline", "sent", "late", "dropped");
	for (i = 0; i < EDF_CLASSES; i++) {
		const struct edf_class *class = &edf->classes[i];

		printf("%-12s %9.1f ms %12llu %12llu %12llu\n", names[i],
		       (double)class->deadline / 1e6, class->sent, class->late, class->dropped);
	}
	printf("refused because %d packets waited: %llu\n", EDF_PACKETS, edf->full);
}

int main(int count, char **words)
{
	struct edf edf = { 0 };
	struct bpf_object *object;
	struct bpf_link *link;
	sigset_t signals;
	int error, signal;

	if (count < 2 || settings(&edf, count - 2, words + 2)) {
		fprintf(stderr, "usage: edf OBJECT [RATE in Mbit/s [DEADLINE in ms...]]\n");
		return 2;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	object = bpf_object__open_file(words[1], NULL);
	if (!object)
		return fail("open the object", errno);
	error = bpf_object__load(object);
	if (error)
		return fail("load the object (this needs root, and Linux 6.16 with BPF qdiscs)",
			    error);
	error = run(object, "begin", &edf);
	if (error)
		return fail("format the queue", error);
	link = bpf_map__attach_struct_ops(bpf_object__find_map_by_name(object, "edf_ops"));
	if (!link)
		return fail("register the qdisc", errno);
	printf("registered: tc qdisc replace dev DEV root edf\n");
	fflush(stdout);
	sigwait(&signals, &signal);
	error = run(object, "report", &edf);
	if (error)
		return fail("read the counts", error);
	print(&edf);
	bpf_link__destroy(link);
	bpf_object__close(object);
	return 0;
}
