//! The file that keeps the loaded rules for the next start of the machine.
//!
//! ```text
//!   first line │ part: text of the loaded rules │ part: lines of an edit │ part: ...
//!   part:  #part LENGTH │ bytes │ #kept NUMBER BYTES MONOTONIC REAL CRC
//! ```
//!
//! A load replaces the file at once, and a short edit appends its lines. An end of a part has the number of
//! the text and the bytes of all parts. So an edit whose file is not that of the rules before replaces
//! it, and a part that was cut is not read. Ends of elements are times of the monotonic clock, which
//! begins with the machine: an end has both clocks, so that they are found again.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use fairpath_bpf::{HookRules, hook_time};
use fairpath_rules::Sets;
use jiff::Timestamp;

use super::edit_sets::text_of;
use super::loaded::{Loaded, Parts};
use super::options::Options;

/// The file of the machine's rules.
const FILE: &str = "/var/lib/fairpath/rules";
/// The word for no file.
const OFF: &str = "off";
/// Most bytes: the text of loaded rules has 512 MiB.
const MAX_FILE: u64 = 1 << 30;
/// The first line, with the version of the file.
const FIRST: &[u8] = b"fairpath rules 1\n";
/// The beginning of a part: its bytes.
const PART: &str = "#part ";
const PART_LINE: usize = PART.len() + 16 + 1;
/// The end of a part.
const END: &str = "#kept ";
const END_LINE: usize = END.len() + 4 * 17 + 8 + 1;

/// The file that keeps rules.
#[derive(Clone, clap::Args)]
pub struct KeptArgs {
    /// File that keeps the rules for the next start of the machine, or off [default: /var/lib/fairpath/rules, in other network namespaces off]
    #[arg(long, value_name = "FILE")]
    kept: Option<String>,
}

impl KeptArgs {
    /// The absolute path. `None`: the rules are not kept.
    ///
    /// # Errors
    /// The working directory is unknown.
    pub fn path(&self) -> anyhow::Result<Option<String>> {
        match self.kept.as_deref() {
            Some(OFF) => Ok(None),
            Some(path) => {
                let path = std::path::absolute(path).context("find the file of --kept")?;
                let path = path.into_os_string().into_string();
                path.map(Some)
                    .ok()
                    .context("the path of --kept is not UTF-8: name another file")
            }
            None => Ok(is_of_machine().then(|| FILE.to_owned())),
        }
    }

    /// The same, of a file that a load may replace.
    ///
    /// # Errors
    /// It is another file than one of kept rules.
    pub fn checked(&self) -> anyhow::Result<Option<String>> {
        let path = self.path()?;
        if let Some(path) = &path {
            check(path).with_context(|| format!("--kept {}, nothing was changed", shown(path)))?;
        }
        Ok(path)
    }
}

/// # Errors
/// There is something else than a file of kept rules, which is not replaced.
fn check(path: impl AsRef<Path>) -> anyhow::Result<()> {
    let path = path.as_ref();
    // A symbolic link would be replaced, whatever it leads to.
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.context("read the file")?,
    };
    anyhow::ensure!(
        found.is_file(),
        "it is no file: remove it, or name another one"
    );
    // A corrupt one of the machine is replaced: its directory has nothing else.
    if path == Path::new(FILE) {
        return Ok(());
    }
    let mut first = Vec::new();
    let file = File::open(path).context("read the file")?;
    file.take(FIRST.len() as u64).read_to_end(&mut first)?;
    // A load puts a whole file there at once, and a power failure cuts edits behind this line only.
    anyhow::ensure!(
        first == FIRST,
        "it is a file of something else than kept rules: remove it, or name another one"
    );
    Ok(())
}

/// True in the network namespace of the first process.
fn is_of_machine() -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((of("thread-self"), of("1")), (Ok(own), Ok(first)) if own == first)
}

/// The end of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// Of the text.
    number: u64,
    /// Of all parts so far.
    bytes: u64,
    /// Nanoseconds.
    monotonic: u64,
    /// Nanoseconds since 1970.
    real: u64,
    crc: u32,
}

impl End {
    fn text(&self) -> String {
        let End {
            number,
            bytes,
            monotonic,
            real,
            crc,
        } = self;
        format!("{END}{number:016x} {bytes:016x} {monotonic:016x} {real:016x} {crc:08x}\n")
    }

    fn of(line: &[u8]) -> Option<End> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.strip_prefix(END)?.strip_suffix('\n')?.split(' ');
        let mut word = || u64::from_str_radix(words.next()?, 16).ok();
        let end = End {
            number: word()?,
            bytes: word()?,
            monotonic: word()?,
            real: word()?,
            crc: u32::try_from(word()?).ok()?,
        };
        (end.text() == line).then_some(end)
    }

    /// The checksum of a part with the other values.
    fn checksum(&self, part: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(part);
        for value in [self.number, self.bytes, self.monotonic, self.real] {
            hasher.update(&value.to_le_bytes());
        }
        hasher.finalize()
    }
}

fn real_time() -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0)
}

fn part_line(bytes: usize) -> String {
    format!("{PART}{bytes:016x}\n")
}

/// A part behind others.
fn part(number: u64, before: usize, bytes: &[u8]) -> Vec<u8> {
    let mut end = End {
        number,
        bytes: (before + bytes.len()) as u64,
        // Sets of a process with another clock have no ends.
        monotonic: hook_time().unwrap_or(0),
        real: real_time(),
        crc: 0,
    };
    end.crc = end.checksum(bytes);
    let mut out = part_line(bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(end.text().as_bytes());
    out
}

/// The first part of a text that is whole, and the rest. `before`: bytes of parts before.
fn next_part(text: &[u8], before: usize) -> Option<(&[u8], End, &[u8])> {
    let (line, rest) = text.split_at_checked(PART_LINE)?;
    let line = std::str::from_utf8(line).ok()?;
    let bytes = line.strip_prefix(PART)?.strip_suffix('\n')?;
    let bytes = usize::from_str_radix(bytes, 16).ok()?;
    if part_line(bytes) != line {
        return None;
    }
    let (part, rest) = rest.split_at_checked(bytes)?;
    let (end, rest) = rest.split_at_checked(END_LINE)?;
    let end = End::of(end)?;
    let is_whole = end.bytes == (before + bytes) as u64 && end.crc == end.checksum(part);
    is_whole.then_some((part, end, rest))
}

/// The text of loaded rules with its last end, and the bytes of a part that was cut.
fn text_of_file(file: &[u8]) -> anyhow::Result<(Vec<u8>, End, usize)> {
    let mut rest = file
        .strip_prefix(FIRST)
        .context("it is no file of kept rules, or of another version of Fairpath")?;
    let (mut text, mut last) = (Vec::new(), None);
    while let Some((part, end, behind)) = next_part(rest, text.len())
        && last.is_none_or(|last: End| last.number == end.number)
    {
        text.extend_from_slice(part);
        (last, rest) = (Some(end), behind);
    }
    let last = last.context("it is cut, or was changed by other programs")?;
    Ok((text, last, rest.len()))
}

/// Kept rules, for another load. Elements of sets that have ended are not there.
///
/// # Errors
/// There is no such file, other users can change it, or it is corrupt.
pub fn read(path: &str) -> anyhow::Result<Loaded> {
    let mut file = Vec::new();
    fairpath_files::trusted(Path::new(path))
        .and_then(|found| found.take(MAX_FILE + 1).read_to_end(&mut file))
        .with_context(|| format!("read the kept rules of {}", shown(path)))?;
    let found = if file.len() as u64 > MAX_FILE {
        Err(anyhow::anyhow!("it has more than {MAX_FILE} bytes"))
    } else {
        text_of_file(&file).and_then(|(text, end, cut)| Ok((Loaded::read(&text)?, end, cut)))
    };
    drop(file);
    let (loaded, end, cut) =
        found.with_context(|| format!("read the kept rules of {}", shown(path)))?;
    if cut > 0 {
        fairpath_cli::note(format!(
            "{}: the last edit was cut, and is not loaded: {cut} bytes",
            shown(path)
        ));
    }
    let sets = loaded.members()?.map(|sets| sets_left(&sets, &end));
    loaded.again(sets.transpose()?, path.to_owned())
}

/// The text of sets whose elements end when they would have. A real time that went back is not believed.
fn sets_left(sets: &Sets, end: &End) -> anyhow::Result<String> {
    let passed = real_time().saturating_sub(end.real);
    let mut left = String::new();
    sets.write_left(&mut left, end.monotonic.saturating_add(passed))?;
    text_of(Sets::read("kept sets", left.as_bytes())?)
}

fn shown(path: &str) -> String {
    fairpath_units::text::line(path).into_owned()
}

/// Keeps rules that are loaded, if their load has a file. Only with the lock.
pub fn keep(options: &Options, text: &[u8]) {
    if let Some(path) = &options.kept {
        report(path, keep_at(Path::new(path), text));
    }
}

fn report(path: &str, kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        fairpath_cli::note(format!(
            "the rules are loaded, but the next start of the machine has others: keep them in {}: {error:#}",
            shown(path)
        ));
    }
}

fn keep_at(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    check(path)?;
    let number = Parts::of(text).context("read the loaded rules")?.number;
    let mut file = FIRST.to_vec();
    file.extend(part(number, 0, text));
    let directory = fairpath_files::directory_of(path);
    fairpath_files::create_directory(directory, fairpath_files::DIRECTORY_MODE)?;
    Ok(fairpath_files::replace_private(path, &file)?)
}

/// The file before an edit.
pub struct Edited {
    path: String,
    number: u64,
    /// Bytes of the text.
    bytes: usize,
}

impl Edited {
    /// `None`: the rules are not kept.
    pub fn before(parts: &Parts, text: &[u8]) -> Option<Edited> {
        Some(Edited {
            path: parts.options.kept.clone()?,
            number: parts.number,
            bytes: text.len(),
        })
    }

    /// Keeps lines of an edit, that `rules` have now.
    pub fn keep(self, lines: &[u8], rules: &HookRules) {
        let path = Path::new(&self.path);
        let kept = match self.append(lines) {
            Ok(true) => Ok(()),
            Ok(false) => keep_at(path, rules.text_here()),
            Err(error) => Err(error.into()),
        };
        report(&self.path, kept);
    }

    /// False: the file has not the rules before.
    fn append(&self, lines: &[u8]) -> io::Result<bool> {
        if !is_of(&self.path, self.number, self.bytes)? {
            return Ok(false);
        }
        let mut file = fairpath_files::append(Path::new(&self.path))?;
        file.write_all(&part(self.number, self.bytes, lines))?;
        Ok(true)
    }
}

/// True if the file has a text with this number and length.
fn is_of(path: &str, number: u64, bytes: usize) -> io::Result<bool> {
    let file = match fairpath_files::trusted(Path::new(path)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let end = last_end(&file)?;
    Ok(end.is_some_and(|end| number != 0 && (end.number, end.bytes) == (number, bytes as u64)))
}

fn last_end(file: &File) -> io::Result<Option<End>> {
    let Some(at) = file.metadata()?.len().checked_sub(END_LINE as u64) else {
        return Ok(None);
    };
    let mut line = [0; END_LINE];
    file.read_exact_at(&mut line, at)?;
    Ok(End::of(&line))
}

/// The file of loaded rules.
pub struct State {
    pub file: String,
    /// It has them.
    pub is_current: bool,
    /// Why edits do not keep them there.
    pub obstacle: Option<String>,
}

/// `None`: the rules are not kept.
pub fn state(loaded: &Loaded, text: &[u8]) -> Option<State> {
    let file = loaded.options().kept.clone()?;
    let found = check(&file).and_then(|()| Ok(is_of(&file, loaded.number(), text.len())?));
    Some(State {
        is_current: matches!(found, Ok(true)),
        obstacle: found.err().map(|error| format!("{error:#}")),
        file,
    })
}

/// A sentence if the machine's file has other rules than those that are loaded, because their load named another
/// file, or none.
pub fn note_of_others(loaded: &Loaded) -> Option<String> {
    let is_elsewhere = loaded.options().kept.as_deref() != Some(FILE);
    let is_there = || Path::new(FILE).symlink_metadata().is_ok();
    (is_elsewhere && is_of_machine() && is_there()).then(|| {
        format!("the unit fairpath-rules loads {FILE} at the next start, which has other rules")
    })
}

/// Removes the file of rules that were unloaded.
///
/// # Errors
/// The kernel refuses.
pub fn remove(path: &str) -> anyhow::Result<()> {
    if let Err(error) = check(path) {
        let path = shown(path);
        fairpath_cli::note(format!("the file {path} stays: {error:#}"));
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = shown(path);
            Err(error).with_context(|| {
                format!("the rules are unloaded, but come back at the next start: remove {path}")
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A text, and two edits behind it.
    fn file() -> Vec<u8> {
        let mut file = FIRST.to_vec();
        file.extend(part(7, 0, b"text\n"));
        file.extend(part(7, 5, b"one\n"));
        file.extend(part(7, 9, b"two\n"));
        file
    }

    fn text(file: &[u8]) -> Option<String> {
        let (text, end, _) = text_of_file(file).ok()?;
        assert_eq!((end.number, end.bytes), (7, text.len() as u64));
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_cut_file_ends_with_a_whole_edit() {
        let file = file();
        assert_eq!(text(&file).as_deref(), Some("text\none\ntwo\n"));
        let lines = [0, 5, 9, 13].map(|bytes| {
            let parts = [0, 5, 9, 13]
                .iter()
                .filter(|end| (1..=bytes).contains(*end));
            FIRST.len() + bytes + parts.count() * (PART_LINE + END_LINE)
        });
        for length in 0..file.len() {
            let mut whole = ["", "text\n", "text\none\n"].into_iter().zip(&lines);
            let whole = whole.rfind(|(_, end)| **end <= length);
            let expected = whole.map(|(text, _)| text).filter(|text| !text.is_empty());
            assert_eq!(text(&file[..length]).as_deref(), expected, "{length}");
        }
    }

    #[test]
    fn no_changed_byte_is_believed() {
        let file = file();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                let found = text(&changed);
                let found = found.as_deref();
                assert!(
                    matches!(found, None | Some("text\n" | "text\none\n")),
                    "{at} {bit}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn parts_of_another_text_are_not_read() {
        let mut file = file();
        file.extend(part(8, 13, b"three\n"));
        assert_eq!(text(&file).as_deref(), Some("text\none\ntwo\n"));
    }

    /// The lines of sets that were kept some seconds ago, when 100 s of the monotonic clock had passed.
    fn left(ago: i64) -> Vec<String> {
        let text = "create a hash:ip timeout 0\ncreate b hash:ip\n\
            add a 192.0.2.1 timeout 600 end 700000000000\n\
            add a 192.0.2.2 timeout 60 end 130000000000\n\
            add a 192.0.2.3 timeout 0 end 0\nadd b 192.0.2.4\n";
        let sets = Sets::read_loaded("sets", text.as_bytes(), 0).unwrap();
        let end = End {
            number: 1,
            bytes: 0,
            monotonic: 100 * SECOND,
            real: real_time().saturating_add_signed(-ago * SECOND as i64),
            crc: 0,
        };
        let now = hook_time().unwrap();
        let text = sets_left(&sets, &end).unwrap();
        let sets = Sets::read_loaded("sets", text.as_bytes(), 0).unwrap();
        let mut out = String::new();
        sets.write_left(&mut out, now).unwrap();
        let lines = out.lines().filter(|line| line.starts_with("add"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn elements_end_when_they_would_have() {
        fn of(first: &[&'static str]) -> Vec<&'static str> {
            let stay = ["add a 192.0.2.3 timeout 0", "add b 192.0.2.4"];
            [first, &stay].concat()
        }
        assert_eq!(
            left(20),
            of(&["add a 192.0.2.1 timeout 579", "add a 192.0.2.2 timeout 9"])
        );
        assert_eq!(left(40), of(&["add a 192.0.2.1 timeout 559"]));
        assert_eq!(left(700), of(&[]));
        // The clock went back, as that of a machine without one.
        assert_eq!(
            left(-1_000_000),
            of(&["add a 192.0.2.1 timeout 600", "add a 192.0.2.2 timeout 30"])
        );
    }
}
