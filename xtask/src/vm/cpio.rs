//! The archive format of an initramfs: "newc" cpio (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Written here because device nodes and owners then need neither root nor a staging directory. No hard links, no checksums.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction. Parents of every entry are added automatically.
pub struct Cpio<W: Write> {
    to: W,
    inode: u32,
    written: BTreeSet<String>,
}

impl<W: Write> Cpio<W> {
    pub fn new(to: W) -> Self {
        Cpio {
            to,
            inode: 0,
            written: BTreeSet::new(),
        }
    }

    pub fn dir(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// A regular file with the permissions `mode`; the first of one name wins.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | mode, (0, 0), content)
    }

    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    pub fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[])
    }

    /// Writes the closing entry and hands the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.record("TRAILER!!!", 0, (0, 0), &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.dir(parent)?;
        }
        if self.written.insert(path.to_string()) {
            self.record(path, mode, device, content)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        name: &str,
        mode: u32,
        (major, minor): (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{name} exceeds 4 GiB")))?;
        let name_size = u32::try_from(name.len() + 1).expect("a name is short");
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        let mut header = String::from("070701");
        fields
            .iter()
            .for_each(|field| header.push_str(&format!("{field:08x}")));
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    /// Header with name, and content, each fill up to four bytes.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.to
            .write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = 0;
        while at < archive.len() {
            let field = |n: usize| {
                let hex = std::str::from_utf8(&archive[at + 6 + n * 8..at + 14 + n * 8]).unwrap();
                usize::from_str_radix(hex, 16).unwrap()
            };
            let (size, name_size) = (field(6), field(11));
            names
                .push(String::from_utf8(archive[at + 110..at + 109 + name_size].to_vec()).unwrap());
            at += (110 + name_size).next_multiple_of(4) + size.next_multiple_of(4);
        }
        names
    }

    #[test]
    fn entries_bring_their_parents_once_and_first() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.file("/usr/bin/a", 0o755, b"hello").unwrap();
        cpio.file("usr/bin/b", 0o644, b"").unwrap();
        cpio.file("usr/bin/a", 0o644, b"again").unwrap();
        let archive = cpio.finish().unwrap();
        assert_eq!(
            names(&archive),
            ["usr", "usr/bin", "usr/bin/a", "usr/bin/b", "TRAILER!!!"]
        );
    }

    #[test]
    fn header_is_newc_and_everything_is_aligned() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.device("console", 5, 1).unwrap();
        let archive = cpio.finish().unwrap();
        assert!(archive.starts_with(b"070701"));
        assert_eq!(&archive[14..22], b"00002180");
        assert_eq!(&archive[78..94], b"0000000500000001");
        assert_eq!(archive.len() % 4, 0);
    }
}
