/*
 * xsk_forward.c: the least that forwards by AF_XDP: the bench's peer.
 *
 *	xsk_forward IF_A IF_B
 *
 * Two sockets on queue 0 of two interfaces, one UMEM, copy mode, need-wakeup, batches of 64; what
 * comes by one interface leaves by the other, unlooked at. Raw system calls as the kernel's
 * Documentation/networking/af_xdp.rst describes them; the XDP program is five instructions long.
 * No checks of what arrives, no counts, no order: what a forwarder cannot do without.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SOL_XDP
#define SOL_XDP 283
#endif
#ifndef AF_XDP
#define AF_XDP 44
#endif
#define RING	      2048u
#define FRAME	      2048u
#define FRAMES	      (8 * RING)
#define BATCH	      64
#define BUDGET_OPTION 9 /* XDP_MAX_TX_SKB_BUDGET, Linux 6.17 */
#define BUDGET	      256

struct ring {
	uint32_t *producer;
	uint32_t *consumer;
	void *entries;
	uint32_t mine, theirs; /* indices: our own, and the other side's when last seen */
};

struct side {
	int fd;
	uint32_t pending;
	struct ring fill, done, rx, tx;
};

static uint64_t spare[FRAMES];
static uint32_t spares;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* A program that sends every packet to the socket of its queue, on an interface. */
static int steer(unsigned int ifindex, int socket)
{
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 4
	};
	union bpf_attr set = {}, load = {}, link = {};
	uint32_t key = 0, value = socket;
	int fd = bpf(BPF_MAP_CREATE, &map);
	struct bpf_insn program[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16 },
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = 1, .imm = fd },
		{},
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	set.map_fd = fd;
	set.key = (uintptr_t)&key;
	set.value = (uintptr_t)&value;
	if (fd < 0 || bpf(BPF_MAP_UPDATE_ELEM, &set) < 0)
		die("map");
	load.prog_type = BPF_PROG_TYPE_XDP;
	load.insns = (uintptr_t)program;
	load.insn_cnt = sizeof(program) / sizeof(*program);
	load.license = (uintptr_t)"GPL";
	link.link_create.prog_fd = bpf(BPF_PROG_LOAD, &load);
	link.link_create.target_ifindex = ifindex;
	link.link_create.attach_type = BPF_XDP;
	return bpf(BPF_LINK_CREATE, &link);
}

static void map_ring(struct ring *r, int fd, const struct xdp_ring_offset *at, size_t entry,
		     off_t page)
{
	char *start = mmap(NULL, at->desc + RING * entry, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, fd, page);

	if (start == MAP_FAILED)
		die("map ring");
	r->producer = (uint32_t *)(start + at->producer);
	r->consumer = (uint32_t *)(start + at->consumer);
	r->entries = start + at->desc;
}

static void open_side(struct side *s, unsigned int ifindex, void *frames, const struct side *first)
{
	struct xdp_umem_reg umem = { .addr = (uintptr_t)frames,
				     .len = (uint64_t)FRAMES * FRAME,
				     .chunk_size = FRAME };
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_ifindex = ifindex };
	int sizes[] = { XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING };
	struct xdp_mmap_offsets at;
	socklen_t len = sizeof(at);
	uint32_t ring = RING, budget = BUDGET, i;

	s->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (!first && setsockopt(s->fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)))
		die("umem");
	for (i = 0; i < 4; i++)
		if (setsockopt(s->fd, SOL_XDP, sizes[i], &ring, sizeof(ring)))
			die("ring");
	setsockopt(s->fd, SOL_XDP, BUDGET_OPTION, &budget, sizeof(budget));
	if (getsockopt(s->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &len))
		die("offsets");
	map_ring(&s->fill, s->fd, &at.fr, 8, XDP_UMEM_PGOFF_FILL_RING);
	map_ring(&s->done, s->fd, &at.cr, 8, XDP_UMEM_PGOFF_COMPLETION_RING);
	map_ring(&s->rx, s->fd, &at.rx, 16, XDP_PGOFF_RX_RING);
	map_ring(&s->tx, s->fd, &at.tx, 16, XDP_PGOFF_TX_RING);
	address.sxdp_flags = first ? XDP_SHARED_UMEM : XDP_COPY | XDP_USE_NEED_WAKEUP;
	address.sxdp_shared_umem_fd = first ? first->fd : 0;
	/* A queue is busy for a little while after its last owner ended. */
	for (i = 0; bind(s->fd, (struct sockaddr *)&address, sizeof(address)); i++) {
		if (errno != EBUSY || i == 100)
			die("bind");
		usleep(5000);
	}
	if (steer(ifindex, s->fd) < 0)
		die("attach");
}

/* Entries to read, at most `most`. */
static uint32_t ready(struct ring *r, uint32_t most)
{
	if (r->theirs - r->mine < most)
		r->theirs = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
	return r->theirs - r->mine < most ? r->theirs - r->mine : most;
}

/* Entries to write, at most `most`. */
static uint32_t capacity(struct ring *r, uint32_t most)
{
	if (RING - (r->mine - r->theirs) < most)
		r->theirs = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE);
	return RING - (r->mine - r->theirs) < most ? RING - (r->mine - r->theirs) : most;
}

static void refill(struct side *s)
{
	uint64_t *entries = s->fill.entries;
	uint32_t n = capacity(&s->fill, RING);

	while (n-- && spares)
		entries[s->fill.mine++ & (RING - 1)] = spare[--spares];
	__atomic_store_n(s->fill.producer, s->fill.mine, __ATOMIC_RELEASE);
}

static void reap(struct side *s)
{
	uint64_t *entries = s->done.entries;
	uint32_t n = ready(&s->done, RING);

	while (n--)
		spare[spares++] = entries[s->done.mine++ & (RING - 1)] & ~(uint64_t)(FRAME - 1);
	__atomic_store_n(s->done.consumer, s->done.mine, __ATOMIC_RELEASE);
}

static void kick(struct side *s)
{
	while (s->pending) {
		if (sendto(s->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0)
			s->pending = 0;
		else if (errno == EAGAIN)
			s->pending -= s->pending < BUDGET ? s->pending : BUDGET;
		else
			break;
	}
}

static uint32_t forward(struct side *from, struct side *to)
{
	struct xdp_desc *in = from->rx.entries, *out = to->tx.entries;
	uint32_t n = capacity(&to->tx, ready(&from->rx, BATCH)), i;

	for (i = 0; i < n; i++)
		out[to->tx.mine++ & (RING - 1)] = in[from->rx.mine++ & (RING - 1)];
	__atomic_store_n(from->rx.consumer, from->rx.mine, __ATOMIC_RELEASE);
	__atomic_store_n(to->tx.producer, to->tx.mine, __ATOMIC_RELEASE);
	to->pending += n;
	kick(to);
	reap(to);
	refill(from);
	return n;
}

int main(int argc, char **argv)
{
	struct side sides[2] = {};
	struct pollfd wait[2];
	void *frames = mmap(NULL, (size_t)FRAMES * FRAME, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t i;

	if (argc != 3 || frames == MAP_FAILED)
		return 2;
	for (i = 0; i < FRAMES; i++)
		spare[spares++] = (uint64_t)i * FRAME;
	for (i = 0; i < 2; i++) {
		open_side(&sides[i], if_nametoindex(argv[i + 1]), frames, i ? sides : NULL);
		refill(&sides[i]);
		wait[i] = (struct pollfd){ .fd = sides[i].fd, .events = POLLIN };
	}
	puts("forwarding");
	fflush(stdout);
	for (;;)
		if (forward(&sides[0], &sides[1]) + forward(&sides[1], &sides[0]) == 0)
			poll(wait, 2, -1);
}
