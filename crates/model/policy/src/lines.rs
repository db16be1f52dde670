//! The source line of an instruction of a custom policy, read from `.BTF.ext`.
//!
//! Only messages need it: an object without it, or with a corrupted one, has no lines.
//! Source: the kernel's Documentation/bpf/btf.rst, sections 3 and 4.

use crate::elf::{Elf, Numbers};

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// As the compiler was given it.
    pub file: String,
    /// From 1.
    pub number: u32,
    /// The line itself, without the blanks around it.
    pub text: String,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        write!(out, "{name}:{}: {}", self.number, self.text)
    }
}

/// The lines of one section, by instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Vec<(usize, SourceLine)>);

impl Lines {
    /// Of the section with that name; empty if there are none.
    pub fn of(elf: &Elf<'_>, section: &str) -> Lines {
        let data = |name| elf.section(name).map(|(_, section)| section.data);
        let (btf, ext) = (data(".BTF"), data(".BTF.ext"));
        let mut lines = btf.zip(ext).and_then(|(btf, ext)| read(btf, ext, section));
        if let Some(lines) = &mut lines {
            lines.sort_by_key(|(at, _)| *at);
        }
        Lines(lines.unwrap_or_default())
    }

    /// The line of the instruction at `index`, counted from the start of the section.
    pub fn at(&self, index: usize) -> Option<&SourceLine> {
        let behind = self.0.partition_point(|(at, _)| *at <= index);
        let (_, line) = self.0.get(behind.checked_sub(1)?)?;
        (line.number > 0).then_some(line)
    }
}

fn read(btf: &[u8], ext: &[u8], section: &str) -> Option<Vec<(usize, SourceLine)>> {
    let header = u64::from(btf.u32_at(4)?);
    let at = header.checked_add(u64::from(btf.u32_at(16)?))?;
    let strings = btf.part(at, u64::from(btf.u32_at(20)?))?;
    let header = u64::from(ext.u32_at(4)?);
    let at = header.checked_add(u64::from(ext.u32_at(16)?))?;
    let table = ext.part(at, u64::from(ext.u32_at(20)?))?;
    let size = u64::from(table.u32_at(0)?);
    let mut at = 4;
    // Each section has at least its header, so this ends.
    while let Some(name) = table.u32_at(usize::try_from(at).ok()?) {
        let count = u64::from(table.u32_at(usize::try_from(at + 4).ok()?)?);
        let records = table.part(at + 8, count.checked_mul(size)?)?;
        if strings.text_at(name) == section && size >= 16 {
            let records = records.chunks_exact(usize::try_from(size).ok()?);
            return records.map(|record| line(record, strings)).collect();
        }
        at += 8 + count * size;
    }
    None
}

fn line(record: &[u8], strings: &[u8]) -> Option<(usize, SourceLine)> {
    let text = |at| Some(strings.text_at(record.u32_at(at)?).trim().to_owned());
    let line = SourceLine {
        file: text(4)?,
        text: text(8)?,
        number: record.u32_at(12)? >> 10,
    };
    Some((record.u32_at(0)? as usize / 8, line))
}
