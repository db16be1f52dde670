/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* edf.h: what edf.bpf.c and edf.c share. */
#ifndef EDF_H
#define EDF_H

/* Most packets that wait. */
#define EDF_PACKETS 4096
/* Voice, interactive, the rest, background. */
#define EDF_CLASSES 4

/* One class. */
struct edf_class {
	unsigned long long deadline;   /* ns from the arrival of a packet */
	unsigned long long first_late; /* when packets had been late for an interval; 0: none is */
	unsigned long long next_drop;
	unsigned long long sent;
	unsigned long long late; /* packets that left after their deadline */
	unsigned long long dropped;
	unsigned int drops;   /* since packets are late */
	unsigned int inverse; /* of the square root of that, in parts of 2^32 */
	unsigned int is_dropping;
	unsigned int waiting; /* packets */
};

struct edf {
	unsigned long long rate;    /* bytes per second; 0: that of the device */
	unsigned long long send_at; /* when the link is free */
	unsigned long long full;    /* packets refused for the lack of numbers */
	struct edf_class classes[EDF_CLASSES];
};

#endif /* EDF_H */
