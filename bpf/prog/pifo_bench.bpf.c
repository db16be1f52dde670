// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * pifo_bench.bpf.c: the cost of pop and push in the kernel, without attaching, next to the kernel's
 * own data structures. Each program removes one object and puts it back at a later rank, so the
 * occupancy stays that of fill_*. bench_empty is the cost of a call.
 *
 *   bench_cffs          a number in FP_CFFS, in an arena, kind known when compiling
 *   bench_cffs_slots    the same, and the object in an array of kptrs by that number
 *   bench_cffs_calls    the same, through fp_pifo_pop() and fp_pifo_push()
 *   bench_heap_slots    FP_HEAP
 *   bench_list          bpf_obj_new, bpf_list push and pop (a FIFO), bpf_obj_drop
 *   bench_rbtree        bpf_obj_new, bpf_rbtree add and remove, bpf_obj_drop
 *   bench_list_kept     objects created once and kept as kptrs between lists
 *   bench_rbtree_kept   the same for bpf_rbtree
 */
#include "kernel.h"
#include "../core/pifo/pifo.h"

#define BPF_MAP_TYPE_ARRAY 2
/* Objects, items, slots at most. */
#define MAX_OBJECTS 16384
/* The distance of the new rank from the served one. */
#define AHEAD 4000
/* Where the pool begins: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull
/* PIFOs of the pool. */
#define CFFS 1
#define HEAP 2

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

struct bpf_spin_lock {
	u32 val;
};

struct bpf_list_head {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	u64 opaque[3];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	u64 opaque[4];
} __attribute__((aligned(8)));

/* Represents a packet: one type cannot be in a list and in a tree without a reference count. */
struct listed {
	struct bpf_list_node node;
	u32 slot;
};

struct treed {
	struct bpf_rb_node node;
	u64 rank;
	u32 slot;
};

struct list_slot {
	struct listed __kptr *object;
};

struct tree_slot {
	struct treed __kptr *object;
};

/* Key: item or slot; value: its object. Written by the programs only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, u32);
	__type(value, struct list_slot);
} slots SEC(".maps");

/* The same for the second type. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, u32);
	__type(value, struct tree_slot);
} tree_slots SEC(".maps");

#define FP_CONTAINS(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
#define FP_PRIVATE(name)	  SEC(".data." #name) __hidden __attribute__((aligned(8)))

FP_PRIVATE(list) struct bpf_spin_lock list_lock;
FP_PRIVATE(list) struct bpf_list_head list FP_CONTAINS(listed, node);
FP_PRIVATE(tree) struct bpf_spin_lock tree_lock;
FP_PRIVATE(tree) struct bpf_rb_root tree FP_CONTAINS(treed, node);

extern void *bpf_obj_new_impl(u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node,
				   void *meta, u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       _Bool(less)(struct bpf_rb_node *a, const struct bpf_rb_node *b),
			       void *meta, u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root,
					     struct bpf_rb_node *node) __ksym;

#define NEW(type) ((struct type *)bpf_obj_new_impl(__builtin_btf_type_id(*(struct type *)0, 0), 0))
#define OBJECT_OF(type, pointer)                                                                   \
	((struct type *)((void *)(pointer) - __builtin_offsetof(struct type, node)))

char _license[] SEC("license") = "Dual MIT/GPL";

u64 random_state = 88172645463325252ull;
/* The next slot that fill_* fills. */
u32 filled = 0;
/* Errors: the benchmark fails if it is not 0. */
u64 mishaps = 0;

/* xorshift64 (Marsaglia, 2003). */
FP_INLINE u64 draw(void)
{
	u64 x = random_state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	random_state = x;
	return x;
}

/* A rank above `rank`, by a multiplication instead of a division. */
FP_INLINE u64 later(u64 rank)
{
	return rank + ((draw() >> 32) * AHEAD >> 32);
}

FP_INLINE struct fp_pool FP_MEM *the_pool(void)
{
	struct fp_pool FP_MEM *pool = (struct fp_pool FP_MEM *)FP_ARENA_START;

	/* Hides the number, so that the address is kept and fields are offsets from it. */
	asm volatile("" : "+r"(pool) : "r"(&arena));
	return pool;
}

FP_INLINE struct listed *take_slot(u32 number)
{
	struct list_slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot ? bpf_kptr_xchg(&slot->object, (struct listed *)0) : 0;
}

FP_INLINE void give_slot(u32 number, struct listed *object)
{
	struct list_slot *slot = bpf_map_lookup_elem(&slots, &number);

	if (slot)
		object = bpf_kptr_xchg(&slot->object, object);
	if (object) {
		mishaps++;
		bpf_obj_drop_impl(object, 0);
	}
}

FP_INLINE struct treed *take_tree_slot(u32 number)
{
	struct tree_slot *slot = bpf_map_lookup_elem(&tree_slots, &number);

	return slot ? bpf_kptr_xchg(&slot->object, (struct treed *)0) : 0;
}

FP_INLINE void give_tree_slot(u32 number, struct treed *object)
{
	struct tree_slot *slot = bpf_map_lookup_elem(&tree_slots, &number);

	if (slot)
		object = bpf_kptr_xchg(&slot->object, object);
	if (object) {
		mishaps++;
		bpf_obj_drop_impl(object, 0);
	}
}

static _Bool by_rank(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return OBJECT_OF(treed, a)->rank < OBJECT_OF(treed, b)->rank;
}

FP_INLINE void list_push(struct listed *object)
{
	bpf_spin_lock(&list_lock);
	bpf_list_push_back_impl(&list, &object->node, 0, 0);
	bpf_spin_unlock(&list_lock);
}

FP_INLINE struct listed *list_pop(void)
{
	struct bpf_list_node *node;

	bpf_spin_lock(&list_lock);
	node = bpf_list_pop_front(&list);
	bpf_spin_unlock(&list_lock);
	return node ? OBJECT_OF(listed, node) : 0;
}

FP_INLINE void tree_push(struct treed *object)
{
	bpf_spin_lock(&tree_lock);
	bpf_rbtree_add_impl(&tree, &object->node, by_rank, 0, 0);
	bpf_spin_unlock(&tree_lock);
}

FP_INLINE struct treed *tree_pop(void)
{
	struct bpf_rb_node *node;

	bpf_spin_lock(&tree_lock);
	node = bpf_rbtree_first(&tree);
	if (!node) {
		bpf_spin_unlock(&tree_lock);
		return 0;
	}
	node = bpf_rbtree_remove(&tree, node);
	bpf_spin_unlock(&tree_lock);
	return node ? OBJECT_OF(treed, node) : 0;
}

/* One more object in PIFO `q`, and in its slot. */
FP_INLINE int fill_pifo(u32 q)
{
	struct listed *object = NEW(listed);
	u32 item = ++filled;

	if (!object)
		return 1;
	object->slot = item;
	give_slot(item, object);
	return fp_pifo_push(the_pool(), q, item, later(0));
}

SEC("tc")
int fill_cffs(struct __sk_buff *skb)
{
	mishaps += fill_pifo(CFFS) != 0;
	return 0;
}

SEC("tc")
int fill_heap(struct __sk_buff *skb)
{
	mishaps += fill_pifo(HEAP) != 0;
	return 0;
}

SEC("tc")
int fill_list(struct __sk_buff *skb)
{
	struct listed *object = NEW(listed);

	if (!object)
		return ++mishaps;
	object->slot = ++filled;
	list_push(object);
	return 0;
}

SEC("tc")
int fill_tree(struct __sk_buff *skb)
{
	struct treed *object = NEW(treed);

	if (!object)
		return ++mishaps;
	object->slot = ++filled;
	object->rank = later(0);
	tree_push(object);
	return 0;
}

SEC("tc")
int bench_empty(struct __sk_buff *skb)
{
	the_pool();
	return 0;
}

SEC("tc")
int bench_cffs(struct __sk_buff *skb)
{
	struct fp_pool FP_MEM *pool = the_pool();
	u32 item = fp_pifo_pop_as(pool, CFFS, FP_CFFS);

	if (fp_pifo_push_as(pool, CFFS, item, later(fp_item_at(pool, item)->rank), FP_CFFS))
		mishaps++;
	return 0;
}

SEC("tc")
int bench_cffs_slots(struct __sk_buff *skb)
{
	struct fp_pool FP_MEM *pool = the_pool();
	u32 item = fp_pifo_pop_as(pool, CFFS, FP_CFFS);
	struct listed *object = take_slot(item);

	if (!object)
		return ++mishaps;
	if (fp_pifo_push_as(pool, CFFS, item, later(fp_item_at(pool, item)->rank), FP_CFFS))
		mishaps++;
	give_slot(item, object);
	return 0;
}

SEC("tc")
int bench_cffs_calls(struct __sk_buff *skb)
{
	struct fp_pool FP_MEM *pool = the_pool();
	u32 item = fp_pifo_pop(pool, CFFS);
	struct listed *object = take_slot(item);

	if (!object)
		return ++mishaps;
	if (fp_pifo_push(pool, CFFS, item, later(fp_item_at(pool, item)->rank)))
		mishaps++;
	give_slot(item, object);
	return 0;
}

SEC("tc")
int bench_heap_slots(struct __sk_buff *skb)
{
	struct fp_pool FP_MEM *pool = the_pool();
	u32 item = fp_pifo_pop_as(pool, HEAP, FP_HEAP);
	struct listed *object = take_slot(item);

	if (!object)
		return ++mishaps;
	if (fp_pifo_push_as(pool, HEAP, item, later(fp_item_at(pool, item)->rank), FP_HEAP))
		mishaps++;
	give_slot(item, object);
	return 0;
}

SEC("tc")
int bench_list(struct __sk_buff *skb)
{
	struct listed *object = list_pop();

	if (object)
		bpf_obj_drop_impl(object, 0);
	else
		mishaps++;
	object = NEW(listed);
	if (!object)
		return ++mishaps;
	list_push(object);
	return 0;
}

SEC("tc")
int bench_rbtree(struct __sk_buff *skb)
{
	struct treed *object = tree_pop();
	u64 rank;

	if (!object)
		return ++mishaps;
	rank = object->rank;
	bpf_obj_drop_impl(object, 0);
	object = NEW(treed);
	if (!object)
		return ++mishaps;
	object->rank = later(rank);
	tree_push(object);
	return 0;
}

SEC("tc")
int bench_list_kept(struct __sk_buff *skb)
{
	struct listed *object = list_pop();
	u32 number;

	if (!object)
		return ++mishaps;
	number = object->slot;
	give_slot(number, object);
	object = take_slot(number);
	if (!object)
		return ++mishaps;
	list_push(object);
	return 0;
}

SEC("tc")
int bench_rbtree_kept(struct __sk_buff *skb)
{
	struct treed *object = tree_pop();
	u32 number;
	u64 rank;

	if (!object)
		return ++mishaps;
	number = object->slot;
	rank = object->rank;
	give_tree_slot(number, object);
	object = take_tree_slot(number);
	if (!object)
		return ++mishaps;
	object->rank = later(rank);
	tree_push(object);
	return 0;
}
