/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/abi.h: the packed image of rules, and the packet that they see, shared with Rust
 * (crates/model/core/src/rules.rs). docs/design/0019-rules.md describes each byte.
 *
 *   struct fp_rules ─┬─ image: header, chain table, blobs        read-only, replaced as a whole or
 *                    │                                           by chain
 *                    ├─ counters: by rule id                     continue when a chain is replaced
 *                    └─ state: limits, quotas, lists by slot     the same
 *
 * A blob is one chain: its header, records in order, an end. A jump holds the number of a chain,
 * and the chain table its offset, so that replacing a chain changes one word.
 */
#ifndef FP_RULES_ABI_H
#define FP_RULES_ABI_H

#include "../runtime.h"

#define FP_RULES_MAGIC	  0x4c555246 /* "FRUL" */
#define FP_RULES_VERSION  1
#define FP_RULES_UNIT	  16u /* records and chains are aligned to it */
#define FP_RULES_WORDS	  16
#define FP_RULES_HEAD	  512 /* bytes of a packet that tests can read */
#define FP_RULES_DEPTH	  512 /* nested jumps; more drop the packet, as in xtables */
#define FP_RULES_STEPS	  (1u << 22) /* records of one packet */
#define FP_RULES_TRACE	  4096	     /* rules that a trace keeps */
#define FP_RULES_TABLES	  5	     /* tables of a hook */
#define FP_RULES_NONE	  0xffffffffu
#define FP_RULES_FAMILIES 4
#define FP_RULES_HOOKS	  6

/* Fields of a packet, as words of 64 bits: most tests are a mask and a comparison of one. */
enum fp_rules_word {
	FP_W_ADDR,    /* IPv4, ARP: sender | receiver << 32; IPv6: 4 words; as loaded */
	FP_W_ADDR1,   /* IPv6: sender, second half */
	FP_W_ADDR2,   /* IPv6: receiver, first half */
	FP_W_ADDR3,   /* IPv6: receiver, second half */
	FP_W_L4,      /* protocol | FP_L4_* << 8 | source << 16 | destination << 32 | flags << 48 */
	FP_W_IN,      /* name of the input interface: 2 words */
	FP_W_IN1,
	FP_W_OUT, /* name of the output interface: 2 words */
	FP_W_OUT1,
	FP_W_SMAC, /* sender of the frame | ethertype << 48 (host order) */
	FP_W_DMAC, /* receiver of the frame | VLAN tag << 48 */
	FP_W_MARK, /* mark | connection mark << 32 */
	FP_W_META, /* see FP_META_* */
	FP_W_TYPE, /* type of the source address | of the destination << 16, as bits; ... */
	FP_W_ARP,  /* operation | hardware type << 16 | protocol type << 32 | length << 48 */
	FP_W_MISC, /* packet type | reverse path << 8 | socket << 16 | bridged << 24 | ... */
};

/* Bits of FP_W_L4 after the protocol. */
#define FP_L4_FRAGMENT 0x100u /* not the first fragment */
#define FP_L4_PORTS    0x200u /* four bytes of ports are there */
#define FP_L4_HEADER   0x400u /* the header of the protocol is there */
#define FP_L4_FAILED   0x800u /* IPv6: the protocol could not be found */
#define FP_L4_NEEDS    (FP_L4_PORTS | FP_L4_HEADER)

/* Positions in FP_W_META. */
#define FP_META_STATE  0  /* bits of --ctstate */
#define FP_META_STATUS 8  /* bits of --ctstatus */
#define FP_META_TOS    16 /* byte with DSCP and ECN */
#define FP_META_TTL    24
#define FP_META_REPLY  32 /* 1 in the reply direction */
#define FP_META_LENGTH 48 /* of the packet; at most 65535 */

/* Reasons why a verdict is unknown: `Unknown` of fairpath-rules. */
enum fp_rules_unknown {
	FP_UNKNOWN_NONE,
	FP_UNKNOWN_MATCH,
	FP_UNKNOWN_TARGET,
	FP_UNKNOWN_INPUT,
	FP_UNKNOWN_OUTPUT,
	FP_UNKNOWN_PHYSICAL,
	FP_UNKNOWN_CONNECTION,
	FP_UNKNOWN_SOURCE_TYPE,
	FP_UNKNOWN_DESTINATION_TYPE,
	FP_UNKNOWN_PACKET_TYPE,
	FP_UNKNOWN_OWNER,
	FP_UNKNOWN_REVERSE_PATH,
	FP_UNKNOWN_DATE,
	FP_UNKNOWN_RANDOM,
	FP_UNKNOWN_TRANSLATION,
	FP_UNKNOWN_CUT_BYTES,
	FP_UNKNOWN_SET,
	FP_UNKNOWN_LINK_LAYER,
};

/* A word of a packet that must have a value under a mask. */
struct fp_rules_compare {
	u64 mask;
	u64 value;
};

/* The head of a record. Word comparisons follow, then other tests. */
struct fp_rules_record {
	u16 units; /* of FP_RULES_UNIT, with everything that follows */
	u8 words;  /* comparisons, at most FP_RULES_COMPARES; or FP_RECORD_* */
	u8 tests;  /* of other tests, the target's options included */
	u32 shape; /* for each comparison 5 bits: word, and 16 if negated */
	u32 action; /* FP_ACT_* | argument << 8 */
	u32 id;	    /* of the rule: its counter */
};

#define FP_RULES_COMPARES 6
#define FP_SHAPE_NOT	  16u
/* Values of `words` of records that are not rules. */
#define FP_RECORD_END	 0xff /* end of the chain: action; id of the policy's counter */
#define FP_RECORD_RUN	 0xfe /* `id` rules of equal shape follow, `tests` units each */
#define FP_RECORD_LOOKUP 0xfd /* a lookup finds the next rule of a segment; id: fp_rules_lookup */
#define FP_RECORD_LEAVE	 0xfc /* after the rules of a segment */

enum fp_rules_action {
	FP_ACT_NONE, /* count, and go on */
	FP_ACT_ACCEPT,
	FP_ACT_DROP,
	FP_ACT_RETURN,
	FP_ACT_JUMP, /* argument: chain */
	FP_ACT_GOTO,
	FP_ACT_REJECT, /* argument: kind of the answer */
	FP_ACT_QUEUE,
	FP_ACT_UNKNOWN, /* argument: reason */
	FP_ACT_TARGET,	/* the last test is the target's change; go on */
};

/* Before the first record of a chain. The chain table has the offset of that record. */
struct fp_rules_chain {
	u32 policy;    /* FP_ACT_ACCEPT or FP_ACT_DROP: of a base chain that is left */
	u32 policy_id; /* its counter, or FP_RULES_NONE */
	u32 number;    /* of the chain */
	u32 bytes;     /* of the blob with this header */
};

/* A test that is more than a word comparison: 16 bytes, and `units` - 1 of data. */
struct fp_rules_test {
	u8 kind;
	u8 units;
	u8 flags; /* FP_TEST_* */
	u8 word;  /* or another small argument */
	u32 a;
	u64 b;
};

#define FP_TEST_NOT	  1u
#define FP_TEST_HEADER	  2u /* belongs to the header of the frame: before all matches */
#define FP_TEST_STATEFUL  4u /* has an effect if it is reached */

enum fp_rules_test_kind {
	FP_TEST_WORDS,	    /* data: comparisons, all must hold; a: shape, b: number */
	FP_TEST_RANGE,	    /* bits of a word: a: first | last << 16; b: shift | width << 8 */
	FP_TEST_ANY_BITS,   /* word & b is not 0 */
	FP_TEST_PORTS,	    /* multiport: a: number; word: 1 source, 2 destination, 3 either */
	FP_TEST_ADDRESSES,  /* range of addresses: word: 0 source, 1 destination; data */
	FP_TEST_TCP_OPTION, /* a: option */
	FP_TEST_TCP_MSS,    /* a: first | last << 16 */
	FP_TEST_ECN,	    /* a: mask of what is compared; b: value */
	FP_TEST_SPI,	    /* ah, esp: word: offset; a: first; b: last; length in b >> 32 */
	FP_TEST_DCCP,	    /* a: bits of types; option: b */
	FP_TEST_CHUNKS,	    /* sctp: word: any, all, only; data: entries */
	FP_TEST_EXTENSION,  /* IPv6 extension header: word: header; see fp_rules_extension */
	FP_TEST_HEADERS,    /* ipv6header: a: bits; word: 1 soft */
	FP_TEST_U32,	    /* data: program */
	FP_TEST_LIMIT,	    /* a: slot; data: nanoseconds a packet, burst */
	FP_TEST_QUOTA,	    /* a: slot; b: bytes */
	FP_TEST_NTH,	    /* a: slot; b: every */
	FP_TEST_RANDOM,	    /* a: share of 2^31 */
	FP_TEST_TIME,	    /* data: fp_rules_time */
	FP_TEST_SET,	    /* a: set; word: dimensions as bits, 1 destination */
	FP_TEST_OWNER,	    /* word: 0 user, 1 group; a: first; b: last */
	FP_TEST_PHYSICAL,   /* name of a bridge port: word: 0 in, 1 out; data: masks and values */
	FP_TEST_UNKNOWN,    /* a: reason: the answer is not known */
	FP_TEST_NEVER,	    /* false */
	FP_TEST_KINDS,
	/* Changes of targets. */
	FP_SET_MARK = 128, /* a: value; b: mask */
	FP_SET_CONNMARK,   /* a: value; b: mask */
	FP_SAVE_CONNMARK,  /* b: mask of mark | mask of connection mark << 32 */
	FP_RESTORE_CONNMARK,
	FP_SET_PRIORITY, /* a */
	FP_SET_TOS,	 /* a: value; b: mask */
	FP_SET_DSCP,	 /* a */
	FP_SET_TTL,	 /* word: 0 set, 1 decrement, 2 increment; a */
	FP_SET_MSS,	 /* a */
	FP_SET_UNTRACKED,
	FP_SET_LOGGED,
};

/*
 * Lookup of a segment of rules. It returns the offset of the next rule whose comparisons can hold,
 * from a given one on. Rules that it skips cannot match the packet.
 */
struct fp_rules_lookup {
	u32 tuples;  /* number */
	u32 end;     /* offset in the blob of the record after the segment */
	u32 first;   /* offset in the blob of its first rule */
	u32 words;   /* bits of the words that tuples use */
};

struct fp_rules_tuple {
	u32 shape; /* 5 bits for each word, as in a record, without negation */
	u32 count; /* of words, at most FP_RULES_COMPARES */
	u32 mask;  /* entries less one */
	u32 at;	   /* offset of the entries in the blob */
	u64 masks[FP_RULES_COMPARES];
	u64 seed;
	u64 zero;
};

/* An entry of a tuple's table: open addressing, at most FP_RULES_PROBES from its place. */
struct fp_rules_entry {
	u32 hash; /* 0: free */
	u32 list; /* offset of a record (lowest bit 1), or of a list: number, offsets in order */
};

#define FP_RULES_PROBES 32
#define FP_RULES_TUPLES 40

struct fp_rules_image {
	u32 magic;
	u32 version;
	u32 bytes;
	u32 generation; /* changes with each replacement */
	u32 chains;
	u32 rules;    /* ids in use: rules, then policies */
	u32 slots;    /* of state, 16 bytes each */
	u32 chain_at; /* offset of the chain table: offsets of blobs */
	u32 set_at;   /* offset of the table of sets: offsets */
	u32 sets;
	u32 zero[6];
	/* Chains to run, by family and hook, in order; FP_RULES_NONE: none. */
	u32 entry[FP_RULES_FAMILIES][FP_RULES_HOOKS][FP_RULES_TABLES];
	/* Bit n: the n-th chain there is of table nat. */
	u32 nat[FP_RULES_FAMILIES][FP_RULES_HOOKS];
};

/* Counter modes. */
#define FP_COUNT_NONE	 0
#define FP_COUNT_SAMPLED 1
#define FP_COUNT_EXACT	 2

struct fp_rules_counter {
	u64 packets;
	u64 bytes;
};

struct fp_rules_slot {
	u64 value; /* limit: credit; quota: bytes left; nth: position */
	u64 time;
};

/* A set: entries by hash of the masked key, levels by prefix length. */
struct fp_rules_set {
	u32 levels;
	u32 mask; /* entries less one */
	u32 at;	  /* offset of the entries from here */
	u32 kind; /* bits: 1 has ports, 2 IPv6 */
	u32 level[132]; /* lengths, longest first */
};

struct fp_rules_member {
	u64 key[2];
	u32 port;  /* protocol << 16 | port */
	u32 level; /* length + 1 | 256 for nomatch; 0 free */
};

/* The packet, and the progress of its evaluation: the scratch of one CPU. */
struct fp_rules_work {
	u64 word[FP_RULES_WORDS];
	u64 unknown[FP_RULES_WORDS]; /* bits of words that are not known */
	u64 physical[4];	     /* names of bridge ports: in 2 words, out 2 words */
	u64 now;		     /* nanoseconds */
	u64 date;		     /* seconds since 1970 */
	u64 scratch[4];		     /* of a test */
	u32 family;
	u32 captured; /* bytes in `head` */
	u32 length;   /* of the packet from its network header, on the wire */
	u32 slow;     /* irregular, or with unknown facts */
	u32 known;    /* FP_KNOWN_* */
	u32 local_offset; /* seconds of local time */
	u32 random;
	u32 user;
	u32 group;
	/* Set by the reader. */
	u32 transport; /* offset of the transport header */
	u32 fragment;  /* offset of the fragment, as xtables counts it */
	u32 walk_at; /* of fp_rules_walk(): offset, next header, fragment offset */
	u32 walk_next;
	u32 walk_fragment;
	u32 step[4]; /* counters of loops with calls: see runtime facts in ARCHITECTURE.md */
	/* Progress. */
	u32 at; /* offset of the record in the image */
	u32 base; /* offset of the base chain's header */
	u32 within; /* offset of the run or segment around the record, or 0 */
	u32 depth;
	u32 table;
	u32 cpu;
	u32 sample;
	/* Results. */
	u32 verdict; /* FP_ACT_ACCEPT, _DROP, _REJECT, _QUEUE or _UNKNOWN */
	u32 argument;
	u32 rule; /* that decided, or FP_RULES_NONE */
	u32 evaluated; /* rules */
	u32 priority;
	u32 mss;
	u32 changed; /* FP_CHANGED_* */
	u32 logged;
	u32 waiting; /* reason of an unknown answer in the present rule */
	u32 error; /* the image is corrupt */
	u32 tracing;
	u32 traced;
	u64 stack[FP_RULES_DEPTH]; /* of fp_rules_frame() */
	u32 trace[FP_RULES_TRACE]; /* ids of rules that matched */
	u8 head[FP_RULES_HEAD + 8];
};

#define FP_KNOWN_PHYSICAL  1u
#define FP_KNOWN_DATE	   2u
#define FP_KNOWN_RANDOM	   4u
#define FP_KNOWN_OWNER	   8u
#define FP_KNOWN_LINK	   16u
#define FP_KNOWN_OWNED	   32u /* there is a socket */
#define FP_CHANGED_PRIORITY  1u
#define FP_CHANGED_MSS	     2u
#define FP_CHANGED_UNTRACKED 4u
#define FP_CHANGED_TOS	     8u
#define FP_CHANGED_TTL	     16u
#define FP_CHANGED_CONNMARK  32u

/* The memory of an evaluator: this header, then the parts. Offsets are from here. */
struct fp_rules {
	u64 image;
	u64 counters; /* for each CPU `stride` bytes */
	u64 slots;
	u64 stride;
	u32 mode; /* FP_COUNT_* */
	u32 sample_every;
	u64 zero[3];
};

#endif /* FP_RULES_ABI_H */
