//! Checks an image before it is interpreted: every offset, number and length that the core follows.
//!
//! The core follows offsets without comparing them, in the kernel inside of its arena, natively in
//! memory. So an image is either accepted here as a whole or refused.
//!
//! Chains may share bytes, since they are only read, and each is checked from its first record. The
//! parts that are checked have together no more bytes than the image, so that a check is linear.

use std::cell::Cell;

use super::abi::{
    COMPARES, ENDING, FAMILIES, HOOKS, Header, MAGIC, MEMBER, NONE, PREFIXES, SET_HEADER,
    SET_LEVELS, TABLES, TESTS, TUPLES, Table, UNIT, VERSION, action, record, set_kind, table, test,
};

/// Most bytes of an image.
const MAX_BYTES: usize = 1 << 30;
const CHAIN_HEADER: usize = 16;
const LOOKUP: usize = 16;
const TUPLE: usize = 80;
const ENTRY: usize = 8;
/// Of `struct fp_rules_extension` and `struct fp_rules_time`.
const EXTENSION: usize = 96;
const TIME: usize = 40;

/// The image is corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the image of rules is corrupt: {problem} at byte {at}; build it again from its files")]
pub struct ImageError {
    /// Offset in the image.
    pub at: usize,
    /// The contradiction.
    pub problem: &'static str,
}

fn bad<T>(at: usize, problem: &'static str) -> Result<T, ImageError> {
    Err(ImageError { at, problem })
}

struct Image<'a> {
    bytes: &'a [u8],
    header: Header,
    /// Kinds of tables.
    tables: Vec<u32>,
    /// Bytes of parts that are not yet checked: [`Image::spend`].
    left: Cell<usize>,
}

impl Image<'_> {
    fn u8(&self, at: usize) -> Result<u8, ImageError> {
        self.bytes
            .get(at)
            .copied()
            .map_or_else(|| bad(at, "the end is missing"), Ok)
    }

    fn u32(&self, at: usize) -> Result<u32, ImageError> {
        match at.checked_add(4).and_then(|end| self.bytes.get(at..end)) {
            Some(bytes) => Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes"))),
            None => bad(at, "the end is missing"),
        }
    }

    fn u64(&self, at: usize) -> Result<u64, ImageError> {
        Ok(u64::from(self.u32(at)?) | u64::from(self.u32(at + 4)?) << 32)
    }

    /// Counts bytes that are checked. Parts of a built image do not overlap.
    fn spend(&self, at: usize, bytes: usize) -> Result<(), ImageError> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => return bad(at, "parts of the image overlap"),
        }
        Ok(())
    }
}

/// Checks an image, and returns its header. O(bytes).
///
/// # Errors
///
/// [`ImageError`]: the first contradiction.
pub fn check(bytes: &[u8]) -> Result<Header, ImageError> {
    let header = check_shared(bytes)?;
    let most = bytes.len() as u64;
    if u64::from(header.slots) > most || u64::from(header.rules) > most {
        return bad(20, "more rules or slots than bytes");
    }
    Ok(header)
}

/// The same for an image whose state is shared with others: its numbers may have gaps.
///
/// # Errors
///
/// [`ImageError`]: the first contradiction.
pub fn check_shared(bytes: &[u8]) -> Result<Header, ImageError> {
    let header_bytes = size_of::<Header>();
    if bytes.len() < header_bytes {
        return bad(bytes.len(), "the header is cut short");
    }
    if bytes.len() > MAX_BYTES {
        return bad(MAX_BYTES, "more bytes than an image may have");
    }
    // SAFETY: the header is plain numbers, and the bytes are enough; read_unaligned needs no more.
    let header = unsafe { bytes.as_ptr().cast::<Header>().read_unaligned() };
    if header.magic != MAGIC {
        return bad(0, "the first word is not that of an image");
    }
    if header.version != VERSION {
        return bad(4, "the version is another one");
    }
    if header.bytes as usize != bytes.len() || !bytes.len().is_multiple_of(UNIT) {
        return bad(8, "the number of bytes is another one");
    }
    let mut image = Image {
        bytes,
        header,
        tables: Vec::new(),
        left: Cell::new(bytes.len()),
    };
    image.tables = check_tables(&image)?;
    let image = image;
    let table = u64::from(header.chain_at) + 4 * u64::from(header.chains);
    if !is_table(header.chain_at) || table > bytes.len() as u64 {
        return bad(28, "the chain table is outside");
    }
    let sets = u64::from(header.set_at) + 4 * u64::from(header.sets);
    if !is_table(header.set_at) || sets > bytes.len() as u64 {
        return bad(32, "the table of sets is outside");
    }
    for family in 0..FAMILIES {
        for hook in 0..HOOKS {
            for table in 0..TABLES {
                let chain = header.entry[family][hook][table];
                if chain != NONE && chain >= header.chains {
                    return bad(64, "a hook names a chain that does not exist");
                }
            }
        }
    }
    for chain in 0..header.chains {
        check_chain(
            &image,
            image.u32(header.chain_at as usize + 4 * chain as usize)? as usize,
        )?;
    }
    for set in 0..header.sets {
        check_set(
            &image,
            image.u32(header.set_at as usize + 4 * set as usize)? as usize,
        )?;
    }
    Ok(header)
}

/// Checks chains of an image whose other parts were accepted before, by the places of their first
/// records. O(bytes of the chains).
///
/// # Errors
///
/// [`ImageError`]: the first contradiction.
pub fn check_chains(bytes: &[u8], starts: &[usize]) -> Result<(), ImageError> {
    // SAFETY: the header is plain numbers, and an image that was accepted has its bytes.
    let header = unsafe { bytes.as_ptr().cast::<Header>().read_unaligned() };
    let mut image = Image {
        bytes,
        header,
        tables: Vec::new(),
        left: Cell::new(bytes.len()),
    };
    image.tables = check_tables(&image)?;
    starts
        .iter()
        .try_for_each(|start| check_chain(&image, *start))
}

/// Checks sets by number, of an image of which the rest was accepted before: what an edit wrote.
/// O(number of sets).
///
/// # Errors
///
/// [`ImageError`]: the first contradiction.
pub fn check_sets(bytes: &[u8], numbers: &[u32]) -> Result<(), ImageError> {
    let Some(header) = Header::of(bytes) else {
        return bad(0, "the header is cut short");
    };
    let image = Image {
        bytes,
        header,
        tables: Vec::new(),
        left: Cell::new(bytes.len()),
    };
    numbers.iter().try_for_each(|number| match number {
        number if *number < header.sets => {
            let at = header.set_at as usize + 4 * *number as usize;
            check_set(&image, image.u32(at)? as usize)
        }
        _ => bad(36, "a set does not exist"),
    })
}

/// True for the place of a table of offsets.
fn is_table(at: u32) -> bool {
    at as usize >= size_of::<Header>() && at.is_multiple_of(4)
}

/// A blob: its header is before `start`, and its records reach an end inside of it.
fn check_chain(image: &Image, start: usize) -> Result<(), ImageError> {
    if !start.is_multiple_of(UNIT) || start < size_of::<Header>() + CHAIN_HEADER {
        return bad(start, "a chain is not at a place for chains");
    }
    let head = start - CHAIN_HEADER;
    let policy = image.u32(head)?;
    if policy != action::ACCEPT && policy != action::DROP {
        return bad(head, "a policy is neither ACCEPT nor DROP");
    }
    check_id(image, head + 4)?;
    let bytes = image.u32(head + 12)? as usize;
    if bytes < CHAIN_HEADER + UNIT || head + bytes > image.bytes.len() {
        return bad(head + 12, "a chain is longer than the image");
    }
    let end = head + bytes;
    let mut at = start;
    // The run whose rules are being read: the place after them.
    let mut inside: Option<Inside> = None;
    loop {
        if at + UNIT > end {
            return bad(at, "a chain has no end");
        }
        let words = image.u8(at + 2)?;
        let place = inside.take();
        match words {
            record::END => {
                image.spend(at, CHAIN_HEADER + UNIT)?;
                if place.is_some() {
                    return bad(at, "a chain ends inside of a run");
                }
                return check_end(image, at);
            }
            record::RUN | record::LOOKUP if place.is_some() => {
                return bad(at, "a run is inside of another one");
            }
            record::RUN => {
                image.spend(at, UNIT)?;
                inside = Some(check_run(image, at, end)?);
                at += UNIT;
            }
            record::LOOKUP => {
                image.spend(at, UNIT)?;
                inside = Some(check_lookup(image, at, end)?);
                at += UNIT;
            }
            record::LEAVE => {
                image.spend(at, UNIT)?;
                match place {
                    Some(Inside::Segment { end, .. }) if end == at => {}
                    _ => return bad(at, "a segment ends where none is"),
                }
                at += UNIT;
            }
            _ => {
                let units = check_rule(image, at, end)?;
                image.spend(at, units * UNIT)?;
                let next = at + units * UNIT;
                inside = match place {
                    None => None,
                    Some(Inside::Run {
                        stride,
                        end,
                        shape,
                        idle,
                    }) => {
                        if units * UNIT != stride
                            || words == 0
                            || image.u32(at + 4)? & 31 != shape
                            || next > end
                        {
                            return bad(at, "a rule of a run has another shape");
                        }
                        if idle && (image.u8(at + 3)? != 0 || image.u32(at + 8)? != 0) {
                            return bad(at, "a rule of an idle run has an effect");
                        }
                        (next < end).then_some(Inside::Run {
                            stride,
                            end,
                            shape,
                            idle,
                        })
                    }
                    Some(Inside::Segment { mut offsets, end }) => {
                        if offsets.last() == Some(&at) {
                            offsets.pop();
                        }
                        if next > end {
                            return bad(at, "a segment is shorter than its rules");
                        }
                        if next == end && !offsets.is_empty() {
                            return bad(at, "a lookup leads to the middle of a rule");
                        }
                        Some(Inside::Segment { offsets, end })
                    }
                };
                at = next;
            }
        }
    }
}

enum Inside {
    Run {
        stride: usize,
        end: usize,
        shape: u32,
        /// Its rules only count.
        idle: bool,
    },
    /// `offsets`: places that the lookup leads to, last first.
    Segment { offsets: Vec<usize>, end: usize },
}

fn check_id(image: &Image, at: usize) -> Result<(), ImageError> {
    let id = image.u32(at)?;
    if id != NONE && id >= image.header.rules {
        return bad(at, "an id is larger than all ids");
    }
    Ok(())
}

fn check_end(image: &Image, at: usize) -> Result<(), ImageError> {
    if !matches!(
        image.u32(at + 8)?,
        action::ACCEPT | action::DROP | action::RETURN
    ) {
        return bad(at + 8, "the end of a chain has no verdict");
    }
    check_id(image, at + 12)
}

fn check_run(image: &Image, at: usize, end: usize) -> Result<Inside, ImageError> {
    let stride = usize::from(image.u8(at + 3)?) * UNIT;
    let count = image.u32(at + 12)? as usize;
    let bytes = count.checked_mul(stride);
    match bytes {
        Some(bytes) if bytes > 0 && at + UNIT + bytes < end => Ok(Inside::Run {
            stride,
            end: at + UNIT + bytes,
            shape: image.u32(at + 4)? & 31,
            idle: image.u32(at + 8)? != 0,
        }),
        _ => bad(at, "a run is longer than its chain"),
    }
}

fn check_rule(image: &Image, at: usize, end: usize) -> Result<usize, ImageError> {
    let units = usize::from(image.u8(at)?) | usize::from(image.u8(at + 1)?) << 8;
    let words = usize::from(image.u8(at + 2)?);
    let tests = usize::from(image.u8(at + 3)?);
    if words > COMPARES || tests > TESTS {
        return bad(at + 2, "a rule has too many tests");
    }
    let next = at + units * UNIT;
    if units < 1 + words || next > end {
        return bad(at, "a rule is longer than its chain");
    }
    check_id(image, at + 12)?;
    let mut place = at + UNIT * (1 + words);
    let mut last = None;
    for _ in 0..tests {
        if place + UNIT > next {
            return bad(place, "a rule is shorter than its tests");
        }
        if last.is_some_and(|last| image.u8(last).is_ok_and(is_change)) {
            return bad(
                place,
                "the change of a target is not the last test of its rule",
            );
        }
        last = Some(place);
        place += check_test(image, place, next)?;
    }
    if place != next {
        return bad(place, "a rule is longer than its tests");
    }
    let word = image.u32(at + 8)?;
    let (kind, argument) = (word & 0xff, word >> 8);
    let change = last.filter(|last| image.u8(*last).is_ok_and(is_change));
    match kind {
        action::JUMP | action::GOTO if argument >= image.header.chains => {
            bad(at + 8, "a jump leads to a chain that does not exist")
        }
        action::TARGET if change != Some(at + argument as usize) => {
            bad(at + 8, "a target is not the last test of its rule")
        }
        0..=action::TARGET => Ok(units),
        _ => bad(at + 8, "the action of a rule is not known"),
    }
}

fn is_change(kind: u8) -> bool {
    kind >= test::SET_MARK
}

fn check_test(image: &Image, at: usize, end: usize) -> Result<usize, ImageError> {
    let kind = image.u8(at)?;
    let units = usize::from(image.u8(at + 1)?);
    let bytes = units * UNIT;
    if units == 0 || at + bytes > end {
        return bad(at, "a test is longer than its rule");
    }
    let data = bytes - UNIT;
    let a = image.u32(at + 4)? as usize;
    let b = image.u64(at + 8)?;
    let fits = match kind {
        test::WORDS => b as usize <= COMPARES && data >= b as usize * 16,
        test::PORTS => a <= 16 && data >= a * 4,
        test::ADDRESSES => data >= 32,
        test::CHUNKS => a <= 32 && data >= 32 + a * 4 && image.u8(at + 3)? < 3,
        test::EXTENSION => data >= EXTENSION && image.u32(at + UNIT + 24)? <= 16,
        test::U32 => check_program(image, at + UNIT, data, a)?,
        test::LIMIT => data >= 16 && a < image.header.slots as usize,
        test::QUOTA | test::SET_TEMPLATE => a < image.header.slots as usize,
        test::NTH => a < image.header.slots as usize && b > 0,
        test::TIME => data >= TIME,
        test::SET => a < image.header.sets as usize,
        test::AMONG => a < image.header.sets as usize && is_plain_set(image, a)?,
        test::RECENT => image.tables.get(a) == Some(&table::RECENT) && image.u8(at + 3)? < 32,
        test::HASHLIMIT => {
            let kind = image.tables.get(a).copied();
            matches!(kind, Some(table::LIMIT | table::WINDOW)) && image.u8(at + 3)? < 2
        }
        test::PHYSICAL => data >= 32,
        test::SPI => matches!(image.u8(at + 3)?, 0 | 4),
        // 0 is no reason: the core would take the answer for known.
        test::UNKNOWN => a != 0,
        test::RANGE => b & 63 <= 48 && (1..=16).contains(&(b >> 8 & 63)),
        _ => kind < test::KINDS || (test::SET_MARK..=test::SET_LOGGED).contains(&kind),
    };
    if fits {
        Ok(bytes)
    } else {
        bad(at, "the data of a test do not fit")
    }
}

/// True for a set without ports and members that are sets.
fn is_plain_set(image: &Image, number: usize) -> Result<bool, ImageError> {
    let set = image.u32(image.header.set_at as usize + 4 * number)? as usize;
    Ok(image.u32(set + 12)? == 0)
}

/// Most credits of a limit, so that sums of them fit.
const MAX_CREDITS: u64 = 1 << 61;
/// Most credits of a nanosecond, and of 16 bytes of a packet.
const MAX_GAIN: u64 = 1 << 16;
const MAX_BYTE_COST: u64 = 1 << 46;
/// Largest rate of a window, so that its product with 2^31 seconds fits.
const MAX_WINDOW_RATE: u64 = 1 << 33;

/// The descriptions of tables: each is inside of the memory, and they are apart. Returns their kinds.
fn check_tables(image: &Image) -> Result<Vec<u32>, ImageError> {
    let header = &image.header;
    let start = header.table_at as usize;
    let bytes = header.tables as usize * size_of::<Table>();
    if start < size_of::<Header>() || !start.is_multiple_of(8) || start + bytes > image.bytes.len()
    {
        return bad(40, "the descriptions of tables are outside, or not aligned");
    }
    if header.table_bytes > table::BYTES {
        return bad(48, "the tables need more memory than tables may have");
    }
    let mut kinds = Vec::new();
    let mut places = Vec::new();
    for number in 0..header.tables as usize {
        let at = start + number * size_of::<Table>();
        let place = &image.bytes[at..at + size_of::<Table>()];
        // SAFETY: the slice has the bytes of a description, which is plain numbers.
        let table = unsafe { place.as_ptr().cast::<Table>().read_unaligned() };
        if !(1..=table::ENTRIES).contains(&table.entries)
            || !(table.buckets.wrapping_add(1)).is_power_of_two()
            || !(1..2 * table::ENTRIES).contains(&table.buckets)
        {
            return bad(at + 4, "a table has too many entries, or none");
        }
        let fits = match table.kind {
            table::RECENT => table.stamps < table::STAMPS && (table.stamps + 1).is_power_of_two(),
            table::LIMIT => {
                table.capacity <= MAX_CREDITS
                    && table.cost <= MAX_CREDITS
                    && table.gain <= MAX_GAIN
                    && table.expire <= MAX_CREDITS
                    && (!table.counts_bytes()
                        || table.capacity <= MAX_BYTE_COST && table.cost <= MAX_BYTE_COST)
            }
            table::WINDOW => {
                table.cost <= MAX_WINDOW_RATE
                    && table.capacity <= MAX_CREDITS
                    && table.gain <= 1
                    && (1..=table::INTERVAL).contains(&table.interval)
                    && table.expire <= MAX_CREDITS
            }
            _ => false,
        };
        if !fits {
            return bad(at, "a table has numbers that are too large");
        }
        let end = table
            .bytes()
            .and_then(|bytes| bytes.checked_add(table.at))
            .filter(|end| *end <= header.table_bytes);
        match end {
            Some(end) if table.at.is_multiple_of(8) => places.push((table.at, end, at + 16)),
            _ => return bad(at + 16, "a table is outside of the memory of tables"),
        }
        kinds.push(table.kind);
    }
    places.sort_unstable();
    let shared = places.windows(2).find(|pair| pair[0].1 > pair[1].0);
    match shared {
        Some(pair) => bad(pair[1].2, "a table shares memory with another one"),
        None => Ok(kinds),
    }
}

/// A program of u32: numbers of steps and ranges stay inside of it.
fn check_program(
    image: &Image,
    start: usize,
    bytes: usize,
    tests: usize,
) -> Result<bool, ImageError> {
    let mut at = 0;
    if tests > 10 {
        return Ok(false);
    }
    for _ in 0..tests {
        if (at + 3) * 4 > bytes {
            return Ok(false);
        }
        let steps = image.u32(start + 4 * (at + 1))? as usize;
        let ranges = image.u32(start + 4 * (at + 2))? as usize;
        if steps > 10 || ranges > 10 {
            return Ok(false);
        }
        at += 3 + 2 * steps + 2 * ranges;
    }
    Ok(at * 4 <= bytes)
}

/// A lookup: its tables are in the blob, and their lists lead to its rules in order.
fn check_lookup(image: &Image, at: usize, end: usize) -> Result<Inside, ImageError> {
    let lookup = at + image.u32(at + 12)? as usize;
    if lookup + LOOKUP > end || !lookup.is_multiple_of(8) {
        return bad(at + 12, "a lookup is outside of its chain");
    }
    let tuples = image.u32(lookup)? as usize;
    let after = at + image.u32(lookup + 4)? as usize;
    if tuples > TUPLES || lookup + LOOKUP + tuples * TUPLE > end || after + UNIT > end {
        return bad(lookup, "a lookup is longer than its chain");
    }
    if image.u8(after + 2)? != record::LEAVE {
        return bad(lookup + 4, "a segment has no end");
    }
    image.spend(lookup, LOOKUP + tuples * TUPLE)?;
    let mut offsets = Vec::new();
    for tuple in 0..tuples {
        let place = lookup + LOOKUP + tuple * TUPLE;
        if image.u32(place + 4)? == PREFIXES {
            check_prefixes(image, at, place, end, &mut offsets)?;
            continue;
        }
        if image.u32(place + 4)? as usize > COMPARES {
            return bad(place + 4, "a tuple has too many words");
        }
        let mask = image.u32(place + 8)? as usize;
        let entries = at + image.u32(place + 12)? as usize;
        let fits = mask
            .checked_add(1)
            .filter(|count| count.is_power_of_two())
            .and_then(|count| count.checked_mul(ENTRY))
            .is_some_and(|bytes| entries + bytes <= end);
        if !fits || !entries.is_multiple_of(4) {
            return bad(place + 8, "the table of a tuple is outside of its chain");
        }
        image.spend(entries, (mask + 1) * ENTRY)?;
        for entry in (0..=mask).map(|entry| entries + entry * ENTRY) {
            if image.u32(entry)? != 0 {
                check_list(image, at, image.u32(entry + 4)?, end, &mut offsets)?;
            }
        }
    }
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    offsets.dedup();
    if offsets.last().is_some_and(|first| *first < at + UNIT)
        || offsets.first().is_some_and(|last| *last >= after)
    {
        return bad(lookup, "a lookup leads outside of its segment");
    }
    Ok(Inside::Segment {
        offsets,
        end: after,
    })
}

/// A table of prefixes: the index leads to its ranges, and their lists are in the blob.
fn check_prefixes(
    image: &Image,
    segment: usize,
    place: usize,
    end: usize,
    offsets: &mut Vec<usize>,
) -> Result<(), ImageError> {
    let number = |at: usize| image.u32(place + at).map(|number| number as usize);
    const RANGE: usize = 16;
    let (most, ranges) = (number(8)?, number(20)?);
    let (index, first) = (segment + number(12)?, segment + number(16)?);
    let inside = |at: usize, count: usize, size: usize| {
        at.is_multiple_of(size.min(8))
            && count <= (end - segment) / size
            && at + count * size <= end
    };
    let fits =
        ranges > 0 && most < end && inside(index, most + 2, 4) && inside(first, ranges, RANGE);
    if !fits {
        return bad(place + 8, "a table of prefixes is outside of its chain");
    }
    image.spend(index, 4 * (most + 2) + RANGE * ranges)?;
    for at in 0..most + 2 {
        if image.u32(index + 4 * at)? as usize >= ranges {
            return bad(
                index + 4 * at,
                "an index of prefixes leads outside of its table",
            );
        }
    }
    // Ranges between and behind nested prefixes have the list of the outer one.
    let mut places = Vec::with_capacity(ranges);
    for at in 0..ranges {
        places.push(image.u32(first + RANGE * at + 8)?);
    }
    places.sort_unstable();
    places.dedup();
    for list in places.into_iter().filter(|list| *list != 0) {
        check_list(image, segment, list, end, offsets)?;
    }
    Ok(())
}

fn check_list(
    image: &Image,
    segment: usize,
    list: u32,
    end: usize,
    offsets: &mut Vec<usize>,
) -> Result<(), ImageError> {
    if list & 1 == 1 {
        offsets.push(segment + list as usize - 1);
        return Ok(());
    }
    let start = segment + list as usize;
    let count = image.u32(start)? as usize;
    if count > (end - segment) / UNIT || start + 4 + 4 * count > end || !start.is_multiple_of(4) {
        return bad(start, "a list of a lookup is outside of its chain");
    }
    image.spend(start, 4 + 4 * count)?;
    let mut before = 0;
    for at in 0..count {
        let offset = image.u32(start + 4 + 4 * at)?;
        if offset <= before {
            return bad(start, "a list of a lookup is not in order");
        }
        before = offset;
        offsets.push(segment + offset as usize);
    }
    Ok(())
}

fn check_set(image: &Image, at: usize) -> Result<(), ImageError> {
    if !at.is_multiple_of(8) || at + SET_HEADER > image.bytes.len() {
        return bad(at, "a set is outside");
    }
    image.spend(at, SET_HEADER)?;
    let levels = image.u32(at)? as usize;
    let kind = image.u32(at + 12)?;
    if levels > SET_LEVELS {
        return bad(at, "a set has too many levels");
    }
    if kind & set_kind::LIST != 0 {
        for level in 0..levels {
            let member = image.u32(at + 16 + 4 * level)?;
            let inner = if member < image.header.sets {
                image.u32(image.header.set_at as usize + 4 * member as usize)? as usize
            } else {
                return bad(at, "a list names a set that does not exist");
            };
            if image.u32(inner + 12)? & set_kind::LIST != 0 {
                return bad(at, "a list has a list as member");
            }
        }
        let ends = at + image.u32(at + 8)? as usize;
        let fits = ends.is_multiple_of(8) && ends + 8 * levels <= image.bytes.len();
        return match kind & set_kind::ENDS != 0 && !fits {
            true => bad(at + 8, "the ends of a list are outside"),
            false => Ok(()),
        };
    }
    let mask = image.u32(at + 4)? as usize;
    let place = at + image.u32(at + 8)? as usize;
    let member = match kind & set_kind::ENDS {
        0 => MEMBER,
        _ => ENDING,
    };
    let fits = mask
        .checked_add(1)
        .filter(|count| count.is_power_of_two())
        .and_then(|count| count.checked_mul(member))
        .is_some_and(|bytes| place + bytes <= image.bytes.len());
    if !fits || !place.is_multiple_of(8) {
        return bad(at + 4, "the table of a set is outside");
    }
    for level in 0..levels {
        if image.u32(at + 16 + 4 * level)? & 255 > 128 {
            return bad(at + 16, "a prefix of a set is longer than an address");
        }
    }
    Ok(())
}
