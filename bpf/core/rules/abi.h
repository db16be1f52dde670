/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/abi.h: the packed image of rules, and the packet that they see, shared with Rust
 * (crates/model/core/src/rules.rs). docs/design/0019-rules.md describes each byte.
 *
 *   struct fp_rules ─┬─ image: header, chain table, blobs        read-only, replaced as a whole or
 *                    │                                           by chain
 *                    ├─ counters: by rule id                     continue when a chain is replaced
 *                    ├─ state: limits and quotas by slot         the same
 *                    └─ tables: keys that packets make           the same
 *
 * A blob is one chain: its header, records in order, an end. A jump holds the number of a chain,
 * and the chain table its offset, so that replacing a chain changes one word.
 */
#ifndef FP_RULES_ABI_H
#define FP_RULES_ABI_H

#include "../hash.h"

#define FP_RULES_MAGIC	  0x4c555246 /* "FRUL" */
#define FP_RULES_VERSION  5
#define FP_RULES_UNIT	  16u /* records and chains are aligned to it */
#define FP_RULES_WORDS	  16
#define FP_RULES_HEAD	  512	     /* bytes of a packet that tests can read */
#define FP_RULES_DEPTH	  512	     /* nested jumps; with more the verdict is unknown */
#define FP_RULES_STEPS	  (1u << 23) /* records of one packet; most turns of a loop in 6.12 */
#define FP_RULES_TRACE	  4096	     /* rules that a trace keeps */
#define FP_RULES_LOGS	  8	     /* of a packet that have a place; a power of two */
#define FP_RULES_TABLES	  5	     /* tables of a hook */
#define FP_RULES_RAW	  0	     /* the first of them: before conntrack */
#define FP_RULES_MANGLE	  1
#define FP_RULES_NAT	  2 /* except at INPUT */
#define FP_RULES_NONE	  0xffffffffu
#define FP_RULES_FAMILIES 4
#define FP_RULES_HOOKS	  6

/* Fields of a packet, as words of 64 bits: most tests are a mask and a comparison of one. */
enum fp_rules_word {
	FP_W_ADDR,  /* IPv4, ARP: sender | receiver << 32; IPv6: 4 words; as loaded */
	FP_W_ADDR1, /* IPv6: sender, second half */
	FP_W_ADDR2, /* IPv6: receiver, first half */
	FP_W_ADDR3, /* IPv6: receiver, second half */
	FP_W_L4,    /* protocol | FP_L4_* << 8 | source << 16 | destination << 32 | flags << 48 */
	FP_W_IN,    /* name of the input interface: 2 words */
	FP_W_IN1,
	FP_W_OUT, /* name of the output interface: 2 words */
	FP_W_OUT1,
	FP_W_SMAC, /* sender of the frame | bridges: ethertype << 48 (host order); IP: FP_HAS_LINK */
	FP_W_DMAC, /* receiver of the frame | VLAN tag << 48 */
	FP_W_MARK, /* mark | connection mark << 32 */
	FP_W_META, /* see FP_META_* */
	FP_W_TYPE, /* type of the source address | of the destination << 16, as bits;
		    * | number of connections of connlimit << 32 */
	FP_W_ARP,  /* operation | hardware type << 16 | protocol type << 32 | length << 48 */
	FP_W_MISC, /* packet type | reverse path << 8 | ... | bridges: type after the tag << 48 */
};

/* Bits of FP_W_L4 after the protocol. */
#define FP_L4_FRAGMENT 0x100u /* not the first fragment */
#define FP_L4_PORTS    0x200u /* four bytes of ports are there */
#define FP_L4_HEADER   0x400u /* the header of the protocol is there */
#define FP_L4_FAILED   0x800u /* IPv6: the protocol could not be found */
/* Bridges: the network header or tag is there (FP_L4_HEADER); of ARP, what is there. */
#define FP_L4_ADDRESSES	 0x1000u /* IPv4 addresses: FP_W_ADDR */
#define FP_L4_GRATUITOUS 0x2000u /* they are equal */
#define FP_L4_SENDER	 0x4000u /* link-layer address: FP_W_ADDR1 */
#define FP_L4_RECEIVER	 0x8000u /* FP_W_ADDR2 */
#define FP_L4_NEEDS	 (FP_L4_PORTS | FP_L4_HEADER)

/* IP: FP_W_SMAC is that of an Ethernet header. -m mac is false without one, also if negated. */
#define FP_HAS_LINK (1ull << 48)

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
	FP_UNKNOWN_STEPS,
	FP_UNKNOWN_SET_TYPE,
	FP_UNKNOWN_DEPTH,
	FP_UNKNOWN_CONNECTIONS,
};

/* A word of a packet that must have a value under a mask. */
struct fp_rules_compare {
	u64 mask;
	u64 value;
};

/* The head of a record. Word comparisons follow, then other tests. */
struct fp_rules_record {
	u16 units;  /* of FP_RULES_UNIT, with everything that follows */
	u8 words;   /* comparisons, at most FP_RULES_COMPARES; or FP_RECORD_* */
	u8 tests;   /* of other tests, the target's options included */
	u32 shape;  /* for each comparison 5 bits: word, and 16 if negated */
	u32 action; /* FP_ACT_* | argument << 8 */
	u32 id;	    /* of the rule: its counter */
};

#define FP_RULES_COMPARES 6
#define FP_SHAPE_NOT	  16u
#define FP_SHAPE_NOTS	  0x21084210u /* of all comparisons */
/* Values of `words` of records that are not rules. */
#define FP_RECORD_END 0xff /* end of the chain: action; id of the policy's counter */
/* `id` rules of equal shape follow, `tests` units each; action: 1 if they only count. */
#define FP_RECORD_RUN	 0xfe
#define FP_RECORD_LOOKUP 0xfd /* a lookup finds the next rule of a segment; id: fp_rules_lookup */
#define FP_RECORD_LEAVE	 0xfc /* after the rules of a segment */

enum fp_rules_action {
	FP_ACT_NONE, /* count, and continue */
	FP_ACT_ACCEPT,
	FP_ACT_DROP,
	FP_ACT_RETURN,
	FP_ACT_JUMP, /* argument: chain */
	FP_ACT_GOTO,
	FP_ACT_REJECT, /* argument: kind of the answer */
	FP_ACT_QUEUE,
	FP_ACT_UNKNOWN, /* argument: reason */
	FP_ACT_TARGET,	/* the last test is the target's change; continue */
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

#define FP_TEST_NOT	 1u
#define FP_TEST_HEADER	 2u /* belongs to the header of the frame: before all matches */
#define FP_TEST_STATEFUL 4u /* has an effect if it is reached */

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
	FP_TEST_SET,	    /* a: set; word: dimensions as bits, 1 destination; b: number */
	FP_TEST_OWNER,	    /* word: 0 user, 1 group; a: first; b: last */
	FP_TEST_PHYSICAL,   /* name of a bridge port: word: 0 in, 1 out; data: masks and values */
	FP_TEST_UNKNOWN,    /* a: reason: the answer is not known */
	FP_TEST_NEVER,	    /* false */
	FP_TEST_RECENT,	    /* a: table; word: FP_RECENT_*; b: seconds | hits << 32 */
	FP_TEST_HASHLIMIT,  /* a: table; word: 1 bytes */
	FP_TEST_TYPES,	    /* bridges, ICMP: a: bytes: types first, last, codes first, last */
	FP_TEST_AMONG,	    /* bridges: a: set of addresses; word: 1 receiver */
	FP_TEST_DO_MARK,    /* true; changes the mark: a: value; b: mask */
	FP_TEST_DO_LOG,	    /* true; counts as logged */
	FP_TEST_ADDRTYPE,   /* a: types as bits; word: 1 destination, 2 of one interface */
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
	FP_SET_MSS,	 /* a: bytes, or FP_MSS_OF_PATH */
	FP_SET_UNTRACKED,
	FP_SET_LOGGED,
	FP_SET_TEMPLATE, /* a: slot: the mark of the template */
};

/* The word of FP_TEST_RECENT: what to do in two bits, and options. */
#define FP_RECENT_SET	 0u
#define FP_RECENT_CHECK	 1u
#define FP_RECENT_UPDATE 2u
#define FP_RECENT_REMOVE 3u
#define FP_RECENT_DEST	 4u /* the address of the receiver */
#define FP_RECENT_TTL	 8u /* the TTL must be equal, too */
#define FP_RECENT_REAP	 16u

/*
 * Lookup of a segment of rules. It returns the offset of the next rule whose comparisons can hold,
 * from a given one on. Rules that it skips cannot match the packet.
 */
struct fp_rules_lookup {
	u32 tuples; /* number */
	u32 end;    /* offset in the blob of the record after the segment */
	u32 first;  /* offset in the blob of its first rule */
	u32 words;  /* bits of the words that tuples use */
};

struct fp_rules_tuple {
	u32 shape; /* 5 bits for each word, as in a record, without negation */
	u32 count; /* of words, at most FP_RULES_COMPARES; or FP_RULES_PREFIXES */
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

/*
 * A table of prefixes, in place of a tuple. Prefixes divide the addresses into ranges, and each range
 * has the rules of all prefixes that contain it.
 */
struct fp_rules_prefixes {
	u32 word;  /* that has the address */
	u32 count; /* FP_RULES_PREFIXES */
	u32 most;  /* places of the index less one */
	u32 at; /* offset of the index: for each place the range of its first address; the last */
	u32 ranges; /* offset of the ranges in order, of which the first begins at 0 */
	u32 number; /* of ranges */
	u8 shift;   /* bits of an address that do not change its place */
	u8 left;    /* bits to shift the word to the left, before the mask */
	u8 zero[6];
	u64 mask;
	u64 base; /* address at which the index begins */
	u64 more[4];
};

struct fp_rules_range {
	u64 first; /* address */
	u32 list;  /* as in an entry; 0: none */
	u32 zero;
};

#define FP_RULES_PREFIXES 0xffu

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
	u32 table_at; /* offset of the descriptions of tables */
	u32 tables;
	u64 table_bytes; /* of memory that the tables need */
	u32 zero[2];
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

/*
 * Tables: keys that packets make, such as the addresses of a recent list. The image describes each,
 * and rules refer to it by its number. Its memory begins with struct fp_rules_store, buckets follow
 * (the number of the first entry, 0 none), then entries. All zero is an empty table.
 */
#define FP_TABLE_RECENT	 1
#define FP_TABLE_LIMIT	 2
#define FP_TABLE_WINDOW	 3	    /* a limit that compares rates: --hashlimit-rate-match */
#define FP_TABLE_ENTRIES (1u << 20) /* most entries */
#define FP_TABLE_SWEEP	 4	    /* expired entries that a new one removes at most */
#define FP_RECENT_STAMPS 4096	    /* most stamps of an entry */
#define FP_LIMIT_LENGTH	 0xfffffu   /* longer packets cost as much */
#define FP_LIMIT_SEND	 1u	    /* bits of `ports` */
#define FP_LIMIT_RECEIVE 2u

struct fp_rules_table {
	u32 kind;
	u32 entries;   /* capacity */
	u32 buckets;   /* number less one: a mask */
	u32 stamps;    /* recent: of an entry, number less one: a mask */
	u64 at;	       /* offset in the memory of tables */
	u64 source[2]; /* masks of the sender's address; recent: of either address */
	u64 destination[2];
	u64 cost; /* limit: credits of a packet, or of each 16 bytes; window: units of an interval at the rate */
	u64 capacity; /* limit: credits; window: most units of an interval */
	u64 gain;     /* limit: credits of a nanosecond; window: 1 to count packets, 0 bytes */
	u64 refills;  /* limit of bytes: times that an empty bucket becomes full */
	u64 interval; /* window: seconds */
	u64 expire;   /* limit, window: nanoseconds without a packet until an entry is removed */
	u32 ports;    /* limit, window: FP_LIMIT_*: parts of the key */
	u32 ttl;      /* recent: a rule compares it */
};

struct fp_rules_store {
	u32 lock;
	u32 used;   /* entries from the start that were ever in use */
	u32 free;   /* first unused entry of these */
	u32 count;  /* entries in use */
	u32 oldest; /* by the last packet */
	u32 newest;
	u64 evicted;   /* entries that were evicted for a new one */
	u64 expired;   /* entries removed for their age */
	u64 refused;   /* packets dropped because no entry was free */
	u64 contended; /* packets dropped because other CPUs held the lock too long */
	u64 zero;
};

/* An entry. Numbers of entries begin with 1. Data follow: stamps, or FP_LIMIT_WORDS. */
struct fp_rules_kept {
	u64 key[5];
	u32 next; /* of its bucket, or unused */
	u32 bucket;
	u32 older;
	u32 newer;
	u32 ttl;   /* recent */
	u32 index; /* recent: where the next stamp is written */
	u32 stamps;
	u32 zero;
};

/* Words of an entry of a limit, and of a window. */
#define FP_LIMIT_CREDIT	 0
#define FP_WINDOW_UNITS	 0 /* of this interval << 1 | FP_WINDOW_OVER */
#define FP_LIMIT_LAST	 1 /* time of the last packet; windows too */
#define FP_LIMIT_REFILLS 2 /* left */
#define FP_WINDOW_START	 2 /* of this interval */
#define FP_LIMIT_WORDS	 3
#define FP_WINDOW_OVER	 1u /* the interval before was above the rate */

/* A set: entries by hash of the masked key, levels by prefix length. */
struct fp_rules_set {
	u32 levels;
	u32 mask;	/* entries less one */
	u32 at;		/* offset of the entries from here */
	u32 kind;	/* bits: 1 has ports, 2 IPv6, 4 list, 8 entries end */
	u32 level[130]; /* lengths, longest first, and from bit 8 on the number of their entries */
	u64 seed;	/* of the hash */
};

struct fp_rules_member {
	u64 key[2];
	u32 port;  /* protocol << 16 | port */
	u32 level; /* length + 1 | 256 for nomatch; 0 free */
};

/* An entry of a set whose entries end. A list has such ends alone, by member. */
struct fp_rules_ending {
	struct fp_rules_member member;
	u64 end; /* the last nanosecond at which it is in the set; 0: it stays */
};

/* The packet, and the progress of its evaluation: the scratch of one CPU. */
struct fp_rules_work {
	u64 word[FP_RULES_WORDS];
	u64 unknown[FP_RULES_WORDS]; /* bits of words that are not known */
	u64 physical[4];	     /* names of bridge ports: in 2 words, out 2 words */
	u64 now;		     /* nanoseconds */
	u64 date;		     /* seconds since 1970 */
	u64 scratch[5];		     /* of a test */
	u64 hidden_meta;	     /* the connection while table raw runs */
	u64 hidden_mark;
	u64 hidden_unknown;
	u64 hidden_unknown_mark;
	u64 sampler; /* mode sampled: the sequence that selects packets; kept between them */
	u32 family;
	u32 captured;	  /* bytes in `head` */
	u32 length;	  /* of the packet on the wire, from where `head` begins */
	u32 slow;	  /* irregular, or with unknown facts */
	u32 known;	  /* FP_KNOWN_* */
	u32 local_offset; /* seconds of local time */
	u32 random;
	u32 user;
	u32 group;
	u32 path; /* MTU of the path of the packet; 0: not known */
	/* Set by the reader. */
	u32 transport; /* offset of the transport header */
	u32 fragment;  /* offset of the fragment, as xtables counts it */
	u32 network;   /* offset of the network header */
	u32 counted;   /* bytes for counters */
	u32 walk_at;   /* of fp_rules_walk(): offset, next header, fragment offset */
	u32 walk_next;
	u32 walk_fragment;
	u32 step[4]; /* counters of loops with calls: see runtime facts in ARCHITECTURE.md */
	/* Progress. */
	u32 at;	    /* offset of the record in the image */
	u32 base;   /* offset of the base chain's header */
	u32 within; /* offset of the run or segment around the record, or 0 */
	u32 depth;
	u32 table;
	u32 cpu;    /* the row of counters */
	u32 shared; /* another packet may count in that row at the same time */
	u32 sample; /* mode sampled: this packet counts */
	/* Results. */
	u32 verdict; /* FP_ACT_ACCEPT, _DROP, _REJECT, _QUEUE or _UNKNOWN */
	u32 argument;
	u32 rule;      /* that decided, or FP_RULES_NONE */
	u32 evaluated; /* rules */
	u32 priority;
	u32 mss;	 /* the last limit, or FP_MSS_OF_PATH */
	u32 mss_limits;	 /* all limits of this evaluation: FP_LIMITS_* | the least in bytes */
	u32 mss_unknown; /* after TCPMSS: FP_MSS_* */
	u32 changed;	 /* FP_CHANGED_* */
	u32 logged;
	u32 log[FP_RULES_LOGS]; /* the tests that logged it: the low bits of their addresses */
	u32 waiting;		/* reason of an unknown answer in the present rule */
	u32 hidden; /* true while table raw runs, if the packet's connection is not visible there */
	u32 by_fact; /* in table raw, the reason that makes the connection unknown, or 0 */
	u32 template; /* number of the slot with its mark, plus 1: a template is in place of the connection */
	u32 doomed;   /* the packet is dropped after the present rule */
	u32 doomable; /* a broken header was found by a match that is negated afterwards */
	u32 early;    /* the evaluation must have no effect: see early.h */
	u32 error;    /* more than FP_RULES_STEPS records */
	u32 tracing;
	u32 traced;
	u32 hashes[FP_RULES_TUPLES]; /* of the tuples of a lookup */
	u64 stack[FP_RULES_DEPTH];   /* of fp_rules_frame() */
	u32 trace[FP_RULES_TRACE];   /* ids of rules that matched */
	u8 head[FP_RULES_HEAD + 8];
};

/* The limit of TCPMSS is that of the path: more than 16 bits. */
#define FP_MSS_OF_PATH 0x10000u
/* Limits of a packet: bytes are one of them, so is the path, and an option was added. */
#define FP_LIMITS_BYTES 0x10000u
#define FP_LIMITS_PATH	0x20000u
#define FP_LIMITS_ADDED 0x40000u
/*
 * The MSS is that of the path. The TCP checksum is not known: the kernel corrects it, except where
 * hardware will calculate it later.
 */
#define FP_MSS_PATH	     1u
#define FP_MSS_CHECKSUM	     2u
#define FP_KNOWN_PHYSICAL    1u
#define FP_KNOWN_DATE	     2u
#define FP_KNOWN_RANDOM	     4u
#define FP_KNOWN_OWNER	     8u
#define FP_KNOWN_LINK	     16u
#define FP_KNOWN_OWNED	     32u  /* -m owner sees a socket */
#define FP_KNOWN_NO_READS    64u  /* no rule reads the connection */
#define FP_KNOWN_EARLY	     128u /* the connection is that of the table: it runs at its hook */
#define FP_KNOWN_SOCKET	     256u /* there is a socket */
#define FP_KNOWN_LENGTH	     512u /* `length`, whatever the header says */
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
	u64 tables;
	u64 stride;
	u32 mode; /* FP_COUNT_* */
	u32 sample_every;
	u64 zero[2];
	struct fp_hash_keys keys; /* of tables: remote hosts choose what is hashed */
	u64 end;
};

#endif /* FP_RULES_ABI_H */
