//! The records of rules as bytes, and what lookups need of them: comparisons, and bits that are read.

use std::ops::Range;

use fairpath_core::rules::{UNIT, WORDS, meta, record, test, word};

pub(super) const NOT: u32 = 16;

/// A comparison of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compare {
    pub word: usize,
    pub not: bool,
    pub mask: u64,
    pub value: u64,
}

impl Compare {
    pub fn shape(self) -> u32 {
        self.word as u32 | if self.not { NOT } else { 0 }
    }
}

/// A record in [`Encoded`].
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    pub(super) start: u32,
    pub units: u16,
    /// The shape of the first comparison.
    pub first_shape: Option<u32>,
}

/// The records of a chain.
#[derive(Debug, Default)]
pub struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub records: Vec<Placed>,
}

impl Encoded {
    /// Appends a record of another blob.
    pub fn copy(&mut self, bytes: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        let shape = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        self.records.push(Placed {
            start,
            units: (bytes.len() / UNIT) as u16,
            first_shape: (bytes[2] > 0).then_some(shape & 31),
        });
    }

    pub fn bytes_of(&self, record: &Placed) -> &[u8] {
        let start = record.start as usize;
        &self.bytes[start..start + usize::from(record.units) * UNIT]
    }

    /// Adds the bits of each word that records read. Tests of addresses and of the transport header
    /// have none: those words are unknown in a packet that was cut, which the core notes itself.
    pub fn reads(&self, reads: &mut Reads) {
        for record in &self.records {
            for (shape, mask, _) in self.compares(record) {
                reads[(shape & 15) as usize] |= mask;
            }
            let bytes = self.bytes_of(record);
            let mut at = UNIT * (1 + usize::from(bytes[2]));
            for _ in 0..bytes[3] {
                read_by_test(&bytes[at..], reads);
                at += UNIT * usize::from(bytes[at + 1]);
            }
        }
    }

    /// The comparisons of a record: shape, mask, value.
    pub fn compares(&self, record: &Placed) -> impl Iterator<Item = (u32, u64, u64)> {
        let bytes = self.bytes_of(record);
        let words = usize::from(bytes[2]);
        let shape = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        (0..words).map(move |at| {
            let place = UNIT * (1 + at);
            let number =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            (shape >> (5 * at) & 31, number(place), number(place + 8))
        })
    }
}

/// Bits of each word of a packet that rules read.
pub type Reads = [u64; WORDS];

/// True if rules read something of a packet's connection.
pub fn reads_connection(reads: &Reads) -> bool {
    let connection = 0xffff << meta::STATE | 0xff << meta::REPLY;
    reads[word::META] & connection != 0 || reads[word::MARK] >> 32 != 0
}

/// Adds the bits that can be unknown and that a test reads: all for a test that is not listed.
fn read_by_test(test: &[u8], reads: &mut Reads) {
    let number = |at: usize| u32::from_le_bytes(test[at..at + 4].try_into().expect("four bytes"));
    let word = usize::from(test[3] & 15);
    match test[0] {
        test::WORDS => {
            for at in 0..number(8) {
                reads[(number(4) >> (5 * at) & 15) as usize] = u64::MAX;
            }
        }
        test::RANGE => reads[word] |= ((1 << (number(8) >> 8 & 63)) - 1) << (number(8) & 63),
        test::ANY_BITS => reads[word] = u64::MAX,
        test::ECN | test::SET_TOS | test::SET_DSCP | test::SET_TTL => reads[word::META] = u64::MAX,
        test::ADDRTYPE => reads[word::TYPE] |= u64::from(u32::MAX),
        test::RECENT => {
            reads[word::IN] = u64::MAX;
            reads[word::OUT] = u64::MAX;
        }
        test::SET_MARK => reads[word::MARK] = u64::MAX,
        test::SET_UNTRACKED | test::SET_TEMPLATE => {
            reads[word::META] = u64::MAX;
            reads[word::MARK] = u64::MAX;
        }
        test::PORTS | test::ADDRESSES | test::TCP_OPTION | test::TCP_MSS | test::SPI => {}
        test::DCCP | test::CHUNKS | test::EXTENSION | test::HEADERS | test::U32 => {}
        test::LIMIT | test::QUOTA | test::NTH | test::RANDOM | test::TIME | test::SET => {}
        test::OWNER | test::PHYSICAL | test::UNKNOWN | test::NEVER | test::HASHLIMIT => {}
        test::SET_PRIORITY | test::SET_MSS | test::SET_LOGGED => {}
        _ => *reads = [u64::MAX; WORDS],
    }
}

pub fn put_record(
    out: &mut Vec<u8>,
    units: u16,
    words: u8,
    tests: u8,
    shape: u32,
    act: u32,
    id: u32,
) {
    out.extend_from_slice(&units.to_le_bytes());
    out.push(words);
    out.push(tests);
    for word in [shape, act, id] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Rules of equal shape that make a run worthwhile.
const MIN_RUN: usize = 4;

/// True for a rule without a target and without tests: it only counts.
fn is_idle(record: &[u8]) -> bool {
    record[3] == 0 && record[8..12] == [0; 4]
}

/// Writes rules, those of equal shape as runs.
pub fn write_runs(rules: &Encoded, range: Range<usize>, out: &mut Vec<u8>) {
    let mut at = range.start;
    while at < range.end {
        let first = &rules.records[at];
        let same = |record: &Placed| {
            record.units == first.units
                && record.first_shape == first.first_shape
                && record.first_shape.is_some()
        };
        let mut count = rules.records[at..range.end]
            .iter()
            .take_while(|record| same(record))
            .count();
        if count >= MIN_RUN && first.units < 256 {
            let first_shape = first.first_shape.unwrap_or_default();
            let mut run = rules.records[at..at + count].iter();
            let idle = run.all(|record| is_idle(rules.bytes_of(record)));
            put_record(
                out,
                1,
                record::RUN,
                first.units as u8,
                first_shape,
                u32::from(idle),
                count as u32,
            );
        } else {
            count = count.max(1);
        }
        for record in &rules.records[at..at + count] {
            out.extend_from_slice(rules.bytes_of(record));
        }
        at += count;
    }
}
