//! Layouts of `bpf/core/rules/abi.h`.

/// Words of a packet.
pub const WORDS: usize = 16;
/// Nested jumps.
pub const DEPTH: usize = 512;
/// Rules that a trace keeps.
pub const TRACE: usize = 4096;
/// Places of a packet's log.
pub const LOGS: usize = 8;
/// Bytes of a packet that tests can read.
pub const HEAD: usize = 512;
/// Alignment of chains and records.
pub const UNIT: usize = 16;
/// No rule, no chain.
pub const NONE: u32 = u32::MAX;
/// Most comparisons of a record.
pub const COMPARES: usize = 6;
/// Most tests of a record.
pub const TESTS: usize = 128;
/// Most tuples of a lookup.
pub const TUPLES: usize = 40;
/// In place of a tuple's number of words: a table of prefixes (`struct fp_rules_prefixes`).
pub const PREFIXES: u32 = 0xff;
/// Entries that a lookup in a tuple probes.
pub const PROBES: usize = 32;
/// The same of a set.
pub const SET_PROBES: usize = 64;
/// Most prefix lengths of a set, and members of a list.
pub const SET_LEVELS: usize = 129;
/// Bytes of `struct fp_rules_set`.
pub const SET_HEADER: usize = 16 + (SET_LEVELS + 1) * 4 + 8;
/// Bytes of an entry of a set (`struct fp_rules_member`).
pub const MEMBER: usize = 24;
/// The same of a set whose entries end (`struct fp_rules_ending`).
pub const ENDING: usize = 32;

/// Bits of the kind of a set.
pub mod set_kind {
    /// With ports.
    pub const PORTS: u32 = 1;
    /// Of IPv6.
    pub const IPV6: u32 = 2;
    /// A list of sets.
    pub const LIST: u32 = 4;
    /// Entries end.
    pub const ENDS: u32 = 8;
}

/// Keys of the hash of tables (`struct fp_hash_keys`).
pub const HASH_KEYS: usize = 11;
/// Bytes of a slot of state.
pub const SLOT_BYTES: usize = 16;
/// First bytes of an image.
pub const MAGIC: u32 = 0x4c55_5246;
/// Version of the image's format.
pub const VERSION: u32 = 5;
/// Tables of a hook.
pub const TABLES: usize = 5;
/// Families of an image.
pub const FAMILIES: usize = 4;
/// Hooks of an image.
pub const HOOKS: usize = 6;

/// Values of a record's `words` that are not a number of comparisons.
pub mod record {
    /// End of a chain.
    pub const END: u8 = 0xff;
    /// Rules of equal shape follow.
    pub const RUN: u8 = 0xfe;
    /// A lookup finds the next rule.
    pub const LOOKUP: u8 = 0xfd;
    /// End of the rules of a lookup.
    pub const LEAVE: u8 = 0xfc;
}

/// Facts of a packet that rules read, as bits: a program obtains no others.
pub mod needs {
    /// More bytes than the headers without options.
    pub const BYTES: u32 = 1;
    /// The time.
    pub const TIME: u32 = 2;
    /// A random number.
    pub const RANDOM: u32 = 4;
    /// Names of interfaces.
    pub const NAMES: u32 = 8;
    /// The connection.
    pub const CONNECTION: u32 = 16;
    /// Facts of its reception: the link-layer source, and the type of the destination.
    pub const RECEIVED: u32 = 32;
    /// The owner of the socket.
    pub const OWNER: u32 = 64;
    /// The date.
    pub const DATE: u32 = 128;
    /// The MTU of the path, which is known where packets change.
    pub const PATH: u32 = 256;
}

/// `FP_MSS_OF_PATH`: the limit of TCPMSS is that of the path.
pub const MSS_OF_PATH: u32 = 0x10000;

/// Of [`word::SMAC`] of IP: it is that of an Ethernet header.
pub const HAS_LINK: u64 = 1 << 48;

/// Words of a packet by number.
pub mod word {
    /// `FP_W_ADDR`.
    pub const ADDR: usize = 0;
    /// `FP_W_ADDR1`.
    pub const ADDR1: usize = 1;
    /// `FP_W_ADDR2`.
    pub const ADDR2: usize = 2;
    /// `FP_W_ADDR3`.
    pub const ADDR3: usize = 3;
    /// `FP_W_L4`.
    pub const L4: usize = 4;
    /// `FP_W_IN`.
    pub const IN: usize = 5;
    /// `FP_W_IN1`.
    pub const IN1: usize = 6;
    /// `FP_W_OUT`.
    pub const OUT: usize = 7;
    /// `FP_W_OUT1`.
    pub const OUT1: usize = 8;
    /// `FP_W_SMAC`.
    pub const SMAC: usize = 9;
    /// `FP_W_DMAC`.
    pub const DMAC: usize = 10;
    /// `FP_W_MARK`.
    pub const MARK: usize = 11;
    /// `FP_W_META`.
    pub const META: usize = 12;
    /// `FP_W_TYPE`.
    pub const TYPE: usize = 13;
    /// `FP_W_ARP`.
    pub const ARP: usize = 14;
    /// `FP_W_MISC`.
    pub const MISC: usize = 15;
}

/// Bits of the word [`word::L4`] after the protocol.
pub mod l4 {
    /// Not the first fragment.
    pub const FRAGMENT: u64 = 0x100;
    /// Ports are there.
    pub const PORTS: u64 = 0x200;
    /// The header of the protocol is there.
    pub const HEADER: u64 = 0x400;
    /// IPv6: the protocol was not found.
    pub const FAILED: u64 = 0x800;
    /// ARP in a bridge: IPv4 addresses are there.
    pub const ADDRESSES: u64 = 0x1000;
    /// They are equal.
    pub const GRATUITOUS: u64 = 0x2000;
    /// The sender's link-layer address is there.
    pub const SENDER: u64 = 0x4000;
    /// The receiver's.
    pub const RECEIVER: u64 = 0x8000;
}

/// Position in [`word::TYPE`] of the number of connections that connlimit counts.
pub const CONNECTIONS: u32 = 32;

/// Positions in [`word::META`].
pub mod meta {
    /// Bits of `--ctstate`.
    pub const STATE: u32 = 0;
    /// Bits of `--ctstatus`.
    pub const STATUS: u32 = 8;
    /// DSCP and ECN.
    pub const TOS: u32 = 16;
    /// Time to live.
    pub const TTL: u32 = 24;
    /// The direction of a reply.
    pub const REPLY: u32 = 32;
    /// Length of the packet.
    pub const LENGTH: u32 = 48;
}

/// Bits of [`Work::known`].
pub mod known {
    /// Ports of a bridge.
    pub const PHYSICAL: u32 = 1;
    /// The date.
    pub const DATE: u32 = 2;
    /// Random bits.
    pub const RANDOM: u32 = 4;
    /// The socket.
    pub const OWNER: u32 = 8;
    /// The link-layer header.
    pub const LINK: u32 = 16;
    /// `-m owner` sees a socket.
    pub const OWNED: u32 = 32;
    /// No rule reads the connection.
    pub const NO_READS: u32 = 64;
    /// There is a socket.
    pub const SOCKET: u32 = 256;
}

/// Bits of [`Work::changed`].
pub mod changed {
    /// CLASSIFY.
    pub const PRIORITY: u32 = 1;
    /// TCPMSS.
    pub const MSS: u32 = 2;
    /// NOTRACK.
    pub const UNTRACKED: u32 = 4;
    /// DSCP, TOS.
    pub const TOS: u32 = 8;
    /// TTL, HL.
    pub const TTL: u32 = 16;
    /// CONNMARK.
    pub const CONNMARK: u32 = 32;
}

/// Actions of records, and verdicts.
pub mod action {
    /// `FP_ACT_NONE`.
    pub const NONE: u32 = 0;
    /// `FP_ACT_ACCEPT`.
    pub const ACCEPT: u32 = 1;
    /// `FP_ACT_DROP`.
    pub const DROP: u32 = 2;
    /// `FP_ACT_RETURN`.
    pub const RETURN: u32 = 3;
    /// `FP_ACT_JUMP`.
    pub const JUMP: u32 = 4;
    /// `FP_ACT_GOTO`.
    pub const GOTO: u32 = 5;
    /// `FP_ACT_REJECT`.
    pub const REJECT: u32 = 6;
    /// `FP_ACT_QUEUE`.
    pub const QUEUE: u32 = 7;
    /// `FP_ACT_UNKNOWN`.
    pub const UNKNOWN: u32 = 8;
    /// `FP_ACT_TARGET`.
    pub const TARGET: u32 = 9;
}

/// Kinds of tests, and changes of targets.
pub mod test {
    /// Negated.
    pub const NOT: u8 = 1;
    /// Belongs to the header of the frame.
    pub const IN_HEADER: u8 = 2;
    /// Has an effect if it is reached.
    pub const STATEFUL: u8 = 4;
    /// `FP_TEST_WORDS`.
    pub const WORDS: u8 = 0;
    /// `FP_TEST_RANGE`.
    pub const RANGE: u8 = 1;
    /// `FP_TEST_ANY_BITS`.
    pub const ANY_BITS: u8 = 2;
    /// `FP_TEST_PORTS`.
    pub const PORTS: u8 = 3;
    /// `FP_TEST_ADDRESSES`.
    pub const ADDRESSES: u8 = 4;
    /// `FP_TEST_TCP_OPTION`.
    pub const TCP_OPTION: u8 = 5;
    /// `FP_TEST_TCP_MSS`.
    pub const TCP_MSS: u8 = 6;
    /// `FP_TEST_ECN`.
    pub const ECN: u8 = 7;
    /// `FP_TEST_SPI`.
    pub const SPI: u8 = 8;
    /// `FP_TEST_DCCP`.
    pub const DCCP: u8 = 9;
    /// `FP_TEST_CHUNKS`.
    pub const CHUNKS: u8 = 10;
    /// `FP_TEST_EXTENSION`.
    pub const EXTENSION: u8 = 11;
    /// `FP_TEST_HEADERS`.
    pub const HEADERS: u8 = 12;
    /// `FP_TEST_U32`.
    pub const U32: u8 = 13;
    /// `FP_TEST_LIMIT`.
    pub const LIMIT: u8 = 14;
    /// `FP_TEST_QUOTA`.
    pub const QUOTA: u8 = 15;
    /// `FP_TEST_NTH`.
    pub const NTH: u8 = 16;
    /// `FP_TEST_RANDOM`.
    pub const RANDOM: u8 = 17;
    /// `FP_TEST_TIME`.
    pub const TIME: u8 = 18;
    /// `FP_TEST_SET`.
    pub const SET: u8 = 19;
    /// `FP_TEST_OWNER`.
    pub const OWNER: u8 = 20;
    /// `FP_TEST_PHYSICAL`.
    pub const PHYSICAL: u8 = 21;
    /// `FP_TEST_UNKNOWN`.
    pub const UNKNOWN: u8 = 22;
    /// `FP_TEST_NEVER`.
    pub const NEVER: u8 = 23;
    /// `FP_TEST_RECENT`.
    pub const RECENT: u8 = 24;
    /// `FP_TEST_HASHLIMIT`.
    pub const HASHLIMIT: u8 = 25;
    /// `FP_TEST_TYPES`.
    pub const TYPES: u8 = 26;
    /// `FP_TEST_AMONG`.
    pub const AMONG: u8 = 27;
    /// `FP_TEST_DO_MARK`.
    pub const DO_MARK: u8 = 28;
    /// `FP_TEST_DO_LOG`.
    pub const DO_LOG: u8 = 29;
    /// `FP_TEST_ADDRTYPE`.
    pub const ADDRTYPE: u8 = 30;
    /// Number of kinds.
    pub const KINDS: u8 = 31;
    /// `FP_SET_MARK`.
    pub const SET_MARK: u8 = 128;
    /// `FP_SET_CONNMARK`.
    pub const SET_CONNMARK: u8 = 129;
    /// `FP_SAVE_CONNMARK`.
    pub const SAVE_CONNMARK: u8 = 130;
    /// `FP_RESTORE_CONNMARK`.
    pub const RESTORE_CONNMARK: u8 = 131;
    /// `FP_SET_PRIORITY`.
    pub const SET_PRIORITY: u8 = 132;
    /// `FP_SET_TOS`.
    pub const SET_TOS: u8 = 133;
    /// `FP_SET_DSCP`.
    pub const SET_DSCP: u8 = 134;
    /// `FP_SET_TTL`.
    pub const SET_TTL: u8 = 135;
    /// `FP_SET_MSS`.
    pub const SET_MSS: u8 = 136;
    /// `FP_SET_UNTRACKED`.
    pub const SET_UNTRACKED: u8 = 137;
    /// `FP_SET_LOGGED`.
    pub const SET_LOGGED: u8 = 138;
    /// `FP_SET_TEMPLATE`.
    pub const SET_TEMPLATE: u8 = 139;
}

/// The small argument of [`test::RECENT`].
pub mod recent {
    /// Add the address.
    pub const SET: usize = 0;
    /// Is the address there.
    pub const CHECK: usize = 1;
    /// The same, and add a stamp if it is.
    pub const UPDATE: usize = 2;
    /// Remove the address.
    pub const REMOVE: usize = 3;
    /// The receiver's address.
    pub const DEST: usize = 4;
    /// The TTL must be equal.
    pub const TTL: usize = 8;
    /// Remove the oldest address, if it is too old.
    pub const REAP: usize = 16;
}

/// Kinds and limits of tables.
pub mod table {
    /// `FP_TABLE_RECENT`.
    pub const RECENT: u32 = 1;
    /// `FP_TABLE_LIMIT`.
    pub const LIMIT: u32 = 2;
    /// `FP_TABLE_WINDOW`.
    pub const WINDOW: u32 = 3;
    /// Most entries of a table.
    pub const ENTRIES: u32 = 1 << 20;
    /// Most stamps of an entry.
    pub const STAMPS: u32 = 4096;
    /// Most seconds of a window: more are too many ticks for the kernel.
    pub const INTERVAL: u64 = u32::MAX as u64 / 1000;
    /// Most bytes of all tables.
    pub const BYTES: u64 = 1 << 30;
    /// The key has the sender's port.
    pub const SEND: u32 = 1;
    /// The key has the receiver's port.
    pub const RECEIVE: u32 = 2;
}

/// `struct fp_rules_table`: the description of a table in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Table {
    /// See [`table`].
    pub kind: u32,
    /// Capacity.
    pub entries: u32,
    /// Number less one: a mask.
    pub buckets: u32,
    /// Recent lists: of an entry, number less one: a mask.
    pub stamps: u32,
    /// Offset in the memory of tables.
    pub at: u64,
    /// Mask of the sender's address; of recent lists: of either address.
    pub source: [u64; 2],
    /// Mask of the receiver's address.
    pub destination: [u64; 2],
    /// Limits: credits of a packet, or of each 16 bytes. Windows: units of an interval at the rate.
    pub cost: u64,
    /// Limits: most credits. Windows: most units of an interval.
    pub capacity: u64,
    /// Limits: credits of a nanosecond. Windows: 1 to count packets, 0 to count bytes.
    pub gain: u64,
    /// Limits of bytes: times that an empty bucket becomes full.
    pub refills: u64,
    /// Windows: seconds.
    pub interval: u64,
    /// Nanoseconds without a packet until an entry is removed.
    pub expire: u64,
    /// Ports that are parts of the key.
    pub ports: u32,
    /// Recent lists: a rule compares the TTL.
    pub ttl: u32,
}

impl Table {
    /// True for a limit or window that counts bytes.
    pub fn counts_bytes(&self) -> bool {
        match self.kind {
            table::WINDOW => self.gain == 0,
            _ => self.gain > 1,
        }
    }

    /// Bytes of memory that the table needs. `None`: more than a number can hold.
    pub fn bytes(&self) -> Option<u64> {
        let words = match self.kind {
            table::RECENT => u64::from(self.stamps) + 1,
            _ => LIMIT_WORDS,
        };
        let entries = u64::from(self.entries).checked_mul(size_of::<Kept>() as u64 + 8 * words)?;
        let buckets = (u64::from(self.buckets) + 1) * 4;
        (size_of::<Store>() as u64 + buckets).checked_add(entries)
    }

    /// The description as bytes of an image.
    pub fn to_bytes(self) -> [u8; size_of::<Table>()] {
        // SAFETY: the structure is plain numbers without padding.
        unsafe { std::mem::transmute(self) }
    }

    /// The description from bytes of an image.
    pub fn from_bytes(bytes: [u8; size_of::<Table>()]) -> Table {
        // SAFETY: the structure is plain numbers without padding.
        unsafe { std::mem::transmute(bytes) }
    }
}

/// Words of data of a limit's entry.
const LIMIT_WORDS: u64 = 3;

/// `struct fp_rules_store`: the state of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Store {
    lock: u32,
    used: u32,
    free: u32,
    /// Entries in use.
    pub count: u32,
    oldest: u32,
    newest: u32,
    /// Entries that were evicted for a new one.
    pub evicted: u64,
    /// Entries removed for their age.
    pub expired: u64,
    /// Packets dropped because no entry was free.
    pub refused: u64,
    /// Packets dropped because other CPUs held the lock too long.
    pub contended: u64,
    zero: u64,
}

/// `struct fp_rules_kept`: an entry of a table.
#[repr(C)]
pub(super) struct Kept {
    key: [u64; 5],
    links: [u32; 4],
    recent: [u32; 4],
}

/// `struct fp_rules`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Rules {
    /// Offset of the image.
    pub image: u64,
    /// Offset of the counters.
    pub counters: u64,
    /// Offset of the slots of state.
    pub slots: u64,
    /// Offset of the tables.
    pub tables: u64,
    /// Bytes of the counters of a CPU.
    pub stride: u64,
    /// See `CounterMode`.
    pub mode: u32,
    /// Packets for one that is counted.
    pub sample_every: u32,
    /// Reserved.
    pub zero: [u64; 2],
    /// Keys of the hash of tables.
    pub keys: [u64; HASH_KEYS],
    /// Reserved.
    pub end: u64,
}

/// `struct fp_rules_image`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of the image.
    pub bytes: u32,
    /// Changes with each replacement.
    pub generation: u32,
    /// Chains.
    pub chains: u32,
    /// Ids of counters.
    pub rules: u32,
    /// Slots of state.
    pub slots: u32,
    /// Offset of the chain table.
    pub chain_at: u32,
    /// Offset of the table of sets.
    pub set_at: u32,
    /// Sets.
    pub sets: u32,
    /// Offset of the descriptions of tables.
    pub table_at: u32,
    /// Tables.
    pub tables: u32,
    /// Bytes of memory that the tables need.
    pub table_bytes: u64,
    /// Reserved.
    pub zero: [u32; 2],
    /// Base chains by family, hook and order.
    pub entry: [[[u32; TABLES]; HOOKS]; FAMILIES],
    /// Bits: which of them are of table nat.
    pub nat: [[u32; HOOKS]; FAMILIES],
}

impl Header {
    /// The header of an image; `None`: it is shorter.
    pub fn of(image: &[u8]) -> Option<Header> {
        let bytes = image.get(..size_of::<Header>())?;
        // SAFETY: as many bytes of plain numbers.
        Some(unsafe { bytes.as_ptr().cast::<Header>().read_unaligned() })
    }

    /// Writes the header to the beginning of an image.
    ///
    /// # Panics
    ///
    /// The image is shorter than its header.
    pub fn write_to(&self, image: &mut [u8]) {
        let place = &mut image[..size_of::<Header>()];
        // SAFETY: the slice has the bytes of a header, which is plain numbers without padding.
        unsafe { place.as_mut_ptr().cast::<Header>().write_unaligned(*self) };
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// `struct fp_rules_work`: a packet, and the progress of its evaluation.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Work {
    /// Fields of the packet.
    pub word: [u64; WORDS],
    /// Bits of words that are not known.
    pub unknown: [u64; WORDS],
    /// Names of bridge ports: in 2 words, out 2 words.
    pub physical: [u64; 4],
    /// Nanoseconds.
    pub now: u64,
    /// Seconds since 1970.
    pub date: u64,
    /// Of a test.
    pub scratch: [u64; 5],
    /// The connection while table raw runs.
    pub hidden_meta: u64,
    /// Its mark.
    pub hidden_mark: u64,
    /// Its unknown bits.
    pub hidden_unknown: u64,
    /// Unknown bits of its mark.
    pub hidden_unknown_mark: u64,
    /// Mode sampled: the sequence that selects packets. Kept between packets; each CPU seeds its own.
    pub sampler: u64,
    /// 0 IPv4, 1 IPv6, 2 ARP, 3 bridge.
    pub family: u32,
    /// Bytes in `head`.
    pub captured: u32,
    /// Of the packet on the wire, from where `head` begins.
    pub length: u32,
    /// Irregular, or with unknown facts.
    pub slow: u32,
    /// `FP_KNOWN_*`.
    pub known: u32,
    /// Seconds of local time.
    pub local_offset: u32,
    /// Random bits for `statistic`.
    pub random: u32,
    /// User of the local socket.
    pub user: u32,
    /// Group of the local socket.
    pub group: u32,
    /// MTU of the path of the packet; 0: not known.
    pub path: u32,
    /// Offset of the transport header.
    pub transport: u32,
    /// Offset of the fragment, as xtables counts it.
    pub fragment: u32,
    /// Offset of the network header.
    pub network: u32,
    /// Bytes for counters.
    pub counted: u32,
    /// Of `fp_rules_walk()`: offset, next header, fragment offset.
    pub walk_at: u32,
    /// See `walk_at`.
    pub walk_next: u32,
    /// See `walk_at`.
    pub walk_fragment: u32,
    /// Counters of loops.
    pub step: [u32; 4],
    /// Offset of the record in the image.
    pub at: u32,
    /// Offset of the base chain's header.
    pub base: u32,
    /// Offset of the run or segment around the record, or 0.
    pub within: u32,
    /// Entries of the stack.
    pub depth: u32,
    /// The table of the hook that is evaluated.
    pub table: u32,
    /// The row of counters.
    pub cpu: u32,
    /// Another packet may count in that row at the same time.
    pub shared: u32,
    /// Mode sampled: true if this packet counts.
    pub sample: u32,
    /// `FP_ACT_ACCEPT`, _DROP, _REJECT, _QUEUE or _UNKNOWN.
    pub verdict: u32,
    /// Kind of the answer, or reason of an unknown verdict.
    pub argument: u32,
    /// That decided, or `FP_RULES_NONE`.
    pub rule: u32,
    /// Rules.
    pub evaluated: u32,
    /// Set by CLASSIFY.
    pub priority: u32,
    /// Set by TCPMSS: the last limit, or [`MSS_OF_PATH`].
    pub mss: u32,
    /// All limits of this evaluation: `FP_LIMITS_*`, and the least in bytes.
    pub mss_limits: u32,
    /// After TCPMSS: 1 the MSS is that of the path, 2 the TCP checksum is not known.
    pub mss_unknown: u32,
    /// `FP_CHANGED_*`.
    pub changed: u32,
    /// Times that the packet was logged.
    pub logged: u32,
    /// The tests that logged it: the low bits of their addresses.
    pub log: [u32; LOGS],
    /// Reason of an unknown answer in the present rule.
    pub waiting: u32,
    /// True while table raw runs, if the packet's connection is not visible there.
    pub hidden: u32,
    /// In table raw, the reason that makes the connection unknown, or 0.
    pub by_fact: u32,
    /// Number of the slot with its mark, plus 1: a template is in place of the connection.
    pub template: u32,
    /// The packet is dropped after the present rule.
    pub doomed: u32,
    /// A broken header was found by a match that is negated afterwards.
    pub doomable: u32,
    /// The evaluation must have no effect: that of `fp_rules_drop_early()`.
    pub early: u32,
    /// The packet met more than `FP_RULES_STEPS` records.
    pub error: u32,
    /// True to record the rules that match.
    pub tracing: u32,
    /// Rules that matched.
    pub traced: u32,
    /// Of the tuples of a lookup.
    pub hashes: [u32; TUPLES],
    /// Of `fp_rules_frame()`.
    pub stack: [u64; DEPTH],
    /// Ids of rules that matched.
    pub trace: [u32; TRACE],
    /// Bytes from the network header on; of bridges, from the link-layer header on.
    pub head: [u8; HEAD + 8],
}

impl Work {
    /// A scratch without a packet.
    pub fn new() -> Box<Work> {
        let mut work = Box::<Work>::new_uninit();
        let at = work.as_mut_ptr();
        // SAFETY: the box has the bytes of one scratch.
        unsafe { at.write_bytes(0, 1) };
        // SAFETY: all fields are numbers, for which zero bytes are valid.
        unsafe { work.assume_init() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_core() {
        let sizes = super::super::ffi::sizes();
        assert_eq!(sizes[0] as usize, size_of::<Rules>());
        assert_eq!(sizes[1] as usize, size_of::<Header>());
        assert_eq!(sizes[2] as usize, size_of::<Work>());
        assert_eq!(sizes[3], u32::from(test::KINDS));
        assert_eq!(sizes[4] as usize, size_of::<Table>());
        assert_eq!(sizes[5] as usize, size_of::<Store>());
        assert_eq!(sizes[6] as usize, size_of::<Kept>());
        assert_eq!(
            sizes[7..].to_vec(),
            [SET_HEADER as u32, MEMBER as u32, ENDING as u32]
        );
    }
}
