//! The few parts of an ELF object that a custom policy is read from.
//!
//! Every offset, size and index comes from a file that may be corrupted. All are checked, an invalid
//! string is empty, and no size of the file determines an allocation.
//! Source: ELF-64 Object File Format, version 1.5; relocation numbers from LLVM's BPF target.
//! Absent: big-endian objects, compressed sections, section indices beyond 65,279.

/// A section's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    pub name: &'a str,
    kind: u32,
    flags: u64,
    /// The section to which relocations of this section are applied, as an index.
    info: u32,
    pub data: &'a [u8],
}

impl Section<'_> {
    const NOBITS: u32 = 8;
    const REL: u32 = 9;

    /// Variables live here: data or bss of the program (not of debuggers), which it may write.
    pub fn is_writable(&self) -> bool {
        self.flags & 3 == 3
    }

    pub fn is_code(&self) -> bool {
        self.flags & 6 == 6
    }

    pub fn is_constant(&self) -> bool {
        self.flags & 7 == 2 && self.kind != Section::NOBITS && self.name.starts_with(".rodata")
    }
}

/// An entry of the symbol table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol<'a> {
    pub name: &'a str,
    pub kind: u8,
    /// Index of its section; 0 is somewhere else.
    pub section: usize,
    pub value: u64,
    pub size: u64,
}

impl Symbol<'_> {
    pub const OBJECT: u8 = 1;
    pub const FUNCTION: u8 = 2;
    pub const SECTION: u8 = 3;
}

/// Something that the linker or loader would fill in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocation {
    /// In bytes from the start of its section.
    pub offset: u64,
    pub symbol: usize,
    pub kind: u32,
}

impl Relocation {
    /// The two words of a 64-bit load.
    pub const LOAD: u32 = 1;
    /// A call.
    pub const CALL: u32 = 10;
}

/// A BPF object, as far as it is one.
#[derive(Debug)]
pub(super) struct Elf<'a> {
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol<'a>>,
}

/// Little-endian numbers out of bytes that may be too short.
pub(super) trait Numbers {
    fn u16_at(&self, at: usize) -> Option<u16>;
    fn u32_at(&self, at: usize) -> Option<u32>;
    fn u64_at(&self, at: usize) -> Option<u64>;
    /// `size` bytes from `at`.
    fn part(&self, at: u64, size: u64) -> Option<&[u8]>;
    /// The string that begins at `at`; empty if it does not end or is no UTF-8.
    fn text_at(&self, at: u32) -> &str;
}

impl Numbers for [u8] {
    fn u16_at(&self, at: usize) -> Option<u16> {
        let bytes = self.get(at..at.checked_add(2)?)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn u64_at(&self, at: usize) -> Option<u64> {
        let bytes = self.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn part(&self, at: u64, size: u64) -> Option<&[u8]> {
        let end = usize::try_from(at.checked_add(size)?).ok()?;
        self.get(usize::try_from(at).ok()?..end)
    }

    fn text_at(&self, at: u32) -> &str {
        let rest = self.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }
}

impl<'a> Elf<'a> {
    /// Reads the headers and the symbols; `None` if this is no relocatable little-endian BPF object.
    pub fn parse(file: &'a [u8]) -> Option<Elf<'a>> {
        const BPF: u16 = 247;
        let is_elf = file.starts_with(b"\x7fELF\x02\x01");
        if !is_elf || file.u16_at(16)? != 1 || file.u16_at(18)? != BPF {
            return None;
        }
        let sections = sections(file)?;
        let symbols = symbols(file, &sections)?;
        Some(Elf { sections, symbols })
    }

    /// The first section of that name, and its index.
    pub fn section(&self, name: &str) -> Option<(usize, &Section<'a>)> {
        let mut all = self.sections.iter().enumerate();
        all.find(|(_, section)| section.name == name)
    }

    /// The relocations of a section.
    pub fn relocations(&self, of: usize) -> impl Iterator<Item = Relocation> {
        let tables = self.sections.iter();
        let tables = tables.filter(move |s| s.kind == Section::REL && s.info as usize == of);
        tables.flat_map(|table| {
            table.data.chunks_exact(16).filter_map(|entry| {
                let info = entry.u64_at(8)?;
                Some(Relocation {
                    offset: entry.u64_at(0)?,
                    symbol: (info >> 32) as usize,
                    kind: u32::try_from(info & 0xffff_ffff).ok()?,
                })
            })
        })
    }
}

fn sections(file: &[u8]) -> Option<Vec<Section<'_>>> {
    const ENTRY: u64 = 64;
    let (offset, count) = (file.u64_at(0x28)?, u64::from(file.u16_at(0x3c)?));
    if u64::from(file.u16_at(0x3a)?) != ENTRY {
        return None;
    }
    let headers = file.part(offset, count * ENTRY)?;
    let data = |header: &[u8]| {
        if header.u32_at(4)? == Section::NOBITS {
            return Some(&file[..0]);
        }
        file.part(header.u64_at(24)?, header.u64_at(32)?)
    };
    let mut headers_each = headers.chunks_exact(64);
    let names = data(headers_each.nth(file.u16_at(0x3e)?.into())?)?;
    let section = |header| {
        Some(Section {
            name: names.text_at(Numbers::u32_at(header, 0)?),
            kind: Numbers::u32_at(header, 4)?,
            flags: Numbers::u64_at(header, 8)?,
            info: Numbers::u32_at(header, 44)?,
            data: data(header)?,
        })
    };
    headers.chunks_exact(64).map(section).collect()
}

fn symbols<'a>(file: &'a [u8], sections: &[Section<'a>]) -> Option<Vec<Symbol<'a>>> {
    const TABLE: u32 = 2;
    let at = sections.iter().position(|section| section.kind == TABLE)?;
    // Which strings it names is in its header, which `sections` has shown to be there.
    let header = file.u64_at(0x28)?.checked_add(64 * at as u64)?;
    let strings = file.part(header, 64)?.u32_at(40)? as usize;
    let strings = sections.get(strings)?.data;
    let symbol = |entry: &'a [u8]| {
        Some(Symbol {
            name: strings.text_at(entry.u32_at(0)?),
            kind: entry.get(4)? & 15,
            section: entry.u16_at(6)?.into(),
            value: entry.u64_at(8)?,
            size: entry.u64_at(16)?,
        })
    };
    sections[at].data.chunks_exact(24).map(symbol).collect()
}
