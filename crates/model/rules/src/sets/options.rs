//! Options of an element: read, kept and printed. Only `nomatch` changes the answer of a lookup.

use super::header::{Header, Kind, MAX_TIMEOUT};
use super::line::{Part, Word, Words, unknown};
use crate::LineError;
use std::fmt;

/// Maximum length of a comment in bytes (`IPSET_MAX_COMMENT_SIZE`).
const MAX_COMMENT: usize = 255;

/// Options of an element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The element is an exception: addresses that it matches are not in the set.
    pub nomatch: bool,
    /// Seconds; 0 is permanent, `None` is the default of the set.
    pub timeout: Option<u32>,
    /// The last nanosecond at which it is in the set; 0: it stays.
    pub end: u64,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Text for people.
    pub comment: Option<Box<str>>,
    /// Firewall mark and its mask; both 0 without one.
    pub skbmark: (u32, u32),
    /// Priority, a class of tc: major number in the upper 16 bits; 0 without one.
    pub skbprio: u32,
    /// Transmit queue; 0 without one.
    pub skbqueue: u16,
}

/// The options of an element without options.
pub(super) const PLAIN: Options = Options {
    nomatch: false,
    timeout: None,
    end: 0,
    packets: 0,
    bytes: 0,
    comment: None,
    skbmark: (0, 0),
    skbprio: 0,
    skbqueue: 0,
};

const NAMES: [&str; 8] = [
    "timeout", "nomatch", "packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue",
];

/// The option of loaded sets for the end of an element, in nanoseconds: seconds would move it.
const END: &str = "end";

impl Options {
    /// True for an element that has ended (`ip_set_timeout_expired`).
    pub fn is_over(&self, now: u64) -> bool {
        self.end != 0 && self.end < now
    }

    /// Whole seconds until the end, at least 1, as the kernel prints them; 0: it stays.
    pub fn left(&self, now: u64) -> u32 {
        match self.end {
            0 => 0,
            end => (end.saturating_sub(now) / SECOND).max(1) as u32,
        }
    }

    /// Sets the end by the timeout, or by that of its set.
    pub(super) fn begin(&mut self, usual: Option<u32>, now: u64) {
        self.end = match self.timeout.or(usual) {
            None | Some(0) => 0,
            Some(seconds) => now + u64::from(seconds) * SECOND,
        };
    }
}

const SECOND: u64 = 1_000_000_000;

/// Reads options; each may occur once.
#[derive(Default)]
pub(super) struct Reader {
    pub options: Options,
    /// A bit for each of [`NAMES`] that occurred.
    seen: u8,
    end: Option<u64>,
}

impl Reader {
    /// Reads the option `word` and its value.
    pub fn take(
        &mut self,
        word: &Word,
        words: &mut Words,
        header: &Header,
    ) -> Result<(), LineError> {
        let name = word.text();
        if name == END && words.has_ends && header.timeout.is_some() {
            let value = words.value(word)?;
            self.end = Some(value.part().number(name, 0..=u64::MAX - 1)?);
            return Ok(());
        }
        let known = NAMES.iter().position(|known| *known == name);
        let Some(bit) = known.filter(|_| name != "nomatch" || header.kind.has_networks()) else {
            return Err(unknown(word));
        };
        if self.seen & 1 << bit != 0 {
            return Err(word.error(format!("option \"{name}\" occurs twice: remove one")));
        }
        self.seen |= 1 << bit;
        supported(word, header)?;
        if name == "nomatch" {
            self.options.nomatch = true;
            return Ok(());
        }
        let value = words.value(word)?;
        self.set(name, value.part())
    }

    fn set(&mut self, name: &str, value: Part) -> Result<(), LineError> {
        let options = &mut self.options;
        match name {
            "timeout" => options.timeout = Some(value.number(name, 0..=MAX_TIMEOUT.into())? as u32),
            "packets" => options.packets = value.number(name, 0..=u64::MAX - 1)?,
            "bytes" => options.bytes = value.number(name, 0..=u64::MAX - 1)?,
            "comment" => options.comment = Some(comment(value)?),
            "skbmark" => options.skbmark = skbmark(value)?,
            "skbprio" => options.skbprio = skbprio(value)?,
            _ => options.skbqueue = value.number(name, 0..=u16::MAX.into())? as u16,
        }
        Ok(())
    }

    /// The options as `header`'s set keeps them: the set's timeout is not repeated.
    pub fn finish(mut self, header: &Header, now: Option<u64>) -> Options {
        match (self.end, now) {
            (Some(end), _) => self.options.end = end,
            (None, Some(now)) => self.options.begin(header.timeout, now),
            (None, None) => {}
        }
        if self.options.timeout == header.timeout {
            self.options.timeout = None;
        }
        self.options
    }
}

/// An error if the set was created without the option's extension.
fn supported(word: &Word, header: &Header) -> Result<(), LineError> {
    let (extension, there) = match word.text() {
        "nomatch" => return Ok(()),
        "timeout" => ("timeout", header.timeout.is_some()),
        "packets" | "bytes" => ("counters", header.counters),
        "comment" => ("comment", header.comment),
        _ => ("skbinfo", header.skbinfo),
    };
    if there {
        return Ok(());
    }
    let name = word.text();
    Err(word.error(format!(
        "option \"{name}\" needs a set with {extension}: \
         add \"{extension}\" to the set's create line, or remove the option"
    )))
}

fn comment(value: Part) -> Result<Box<str>, LineError> {
    let length = value.text.len();
    if length > MAX_COMMENT {
        return Err(value.error(format!(
            "the comment has {length} bytes: write at most {MAX_COMMENT}"
        )));
    }
    Ok(value.text.into())
}

/// `0xMARK` or `0xMARK/0xMASK`.
fn skbmark(value: Part) -> Result<(u32, u32), LineError> {
    let hex = |text: &str| u32_from_hex(text.strip_prefix("0x")?, u32::MAX);
    let mark = match value.text.split_once('/') {
        Some((mark, mask)) => hex(mark).zip(hex(mask)),
        None => hex(value.text).map(|mark| (mark, u32::MAX)),
    };
    mark.ok_or_else(|| {
        let text = value.text;
        value.error(format!(
            "skbmark \"{text}\" is not a mark: write for example 0x1 or 0x1/0xff"
        ))
    })
}

/// `MAJOR:MINOR`, both hexadecimal without a prefix.
fn skbprio(value: Part) -> Result<u32, LineError> {
    let half = |text: &str| u32_from_hex(text, u16::MAX.into());
    let pair = value.text.split_once(':');
    let both = pair.and_then(|(major, minor)| half(major).zip(half(minor)));
    let (major, minor) = both.ok_or_else(|| {
        let text = value.text;
        value.error(format!(
            "skbprio \"{text}\" is not a class: write for example 1:10"
        ))
    })?;
    Ok(major << 16 | minor)
}

fn u32_from_hex(text: &str, max: u32) -> Option<u32> {
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    let value = digits.then(|| u32::from_str_radix(text, 16).ok())?;
    value.filter(|value| *value <= max)
}

/// The timeouts that are printed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Times {
    /// Those of the file.
    Whole,
    /// Seconds that are left now.
    Left(u64),
    /// Ends, for loaded sets.
    Ends,
}

impl Times {
    /// False for what has ended.
    pub fn shows(self, options: &Options) -> bool {
        match self {
            Times::Left(now) => !options.is_over(now),
            Times::Whole | Times::Ends => true,
        }
    }
}

/// Options as `ipset save` prints them, with a space before each.
pub(super) struct Printed<'a>(pub &'a Options, pub &'a Header, pub Times);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Printed(options, header, times) = self;
        if let Some(usual) = header.timeout {
            let whole = options.timeout.unwrap_or(usual);
            match times {
                Times::Whole => write!(f, " timeout {whole}")?,
                Times::Left(now) => write!(f, " timeout {}", options.left(*now))?,
                Times::Ends => write!(f, " timeout {whole} {END} {}", options.end)?,
            }
        }
        if options.nomatch {
            f.write_str(" nomatch")?;
        }
        if header.counters {
            write!(f, " packets {} bytes {}", options.packets, options.bytes)?;
        }
        if let Some(comment) = &options.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        match options.skbmark {
            (0, 0) => {}
            (mark, u32::MAX) => write!(f, " skbmark {mark:#x}")?,
            (mark, mask) => write!(f, " skbmark {mark:#x}/{mask:#x}")?,
        }
        if options.skbprio != 0 {
            let (major, minor) = (options.skbprio >> 16, options.skbprio & 0xffff);
            write!(f, " skbprio {major:x}:{minor:x}")?;
        }
        if options.skbqueue != 0 {
            write!(f, " skbqueue {}", options.skbqueue)?;
        }
        Ok(())
    }
}

impl Kind {
    fn has_networks(self) -> bool {
        matches!(self, Kind::Net | Kind::NetPort)
    }
}
