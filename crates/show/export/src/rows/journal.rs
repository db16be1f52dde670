//! The rows of a file that is not complete, in a journal that survives a crash.
//!
//! ```text
//! journal   "FPROWS1\n", then frames
//! frame     bytes of the content, CRC-32 of the content, number of rows: 32 bits each; content
//! ```

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use fairpath_history::{Histogram, IntervalRow};

const MAGIC: &[u8; 8] = b"FPROWS1\n";
const HEAD_BYTES: usize = 12;
/// Maximum size of a frame, many times that of a step of 100,000 rows.
const MAX_FRAME_BYTES: u32 = 256 << 20;

/// The journal that is written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// Bytes of complete frames.
    pub bytes: u64,
}

impl Journal {
    /// Creates a journal.
    pub fn create(path: &Path) -> io::Result<Journal> {
        let mut file = fairpath_files::create(path)?;
        file.write_all(MAGIC)?;
        Ok(Journal {
            file,
            bytes: MAGIC.len() as u64,
        })
    }

    /// Appends rows, and waits until they are on the disk: all or none.
    pub fn append(&mut self, rows: &[IntervalRow]) -> io::Result<()> {
        let content: Vec<(&IntervalRow, &Histogram, &Histogram)> = rows
            .iter()
            .map(|row| (row, &row.inside_histogram, &row.outside_histogram))
            .collect();
        let content = postcard::to_stdvec(&content).map_err(io::Error::other)?;
        let length = u32::try_from(content.len()).ok();
        let length = length.filter(|length| *length <= MAX_FRAME_BYTES);
        let length = length.ok_or(ErrorKind::FileTooLarge)?;
        let mut frame = Vec::with_capacity(HEAD_BYTES + content.len());
        for number in [length, crc32fast::hash(&content), rows.len() as u32] {
            frame.extend(number.to_le_bytes());
        }
        frame.extend(content);
        let written = self
            .file
            .write_all(&frame)
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A part of a frame would end the journal.
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
            return Err(error);
        }
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

/// Reads the frames of a journal.
pub(super) struct Frames {
    file: BufReader<File>,
    /// Rows of a frame that a crash cut.
    pub lost_rows: u64,
}

impl Frames {
    /// Opens a journal. `InvalidData` if it is none.
    pub fn open(path: &Path) -> io::Result<Frames> {
        let mut file = BufReader::new(File::open(path)?);
        let mut magic = [0; MAGIC.len()];
        // A crash may also cut the head.
        let complete = read_all(&mut file, &mut magic)?;
        if complete && magic != *MAGIC {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Frames { file, lost_rows: 0 })
    }

    /// The rows of the next frame. `None` at the end, or where a crash cut the journal.
    pub fn next(&mut self) -> io::Result<Option<Vec<IntervalRow>>> {
        let mut head = [0; HEAD_BYTES];
        if !read_all(&mut self.file, &mut head)? {
            return Ok(None);
        }
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, sum, rows) = (number(0), number(4), number(8));
        let mut content = Vec::new();
        if length <= MAX_FRAME_BYTES {
            let mut file = (&mut self.file).take(length.into());
            file.read_to_end(&mut content)?;
        }
        let decoded =
            (content.len() == length as usize && crc32fast::hash(&content) == sum).then(|| {
                postcard::from_bytes::<Vec<(IntervalRow, Histogram, Histogram)>>(&content).ok()
            });
        let Some(Some(decoded)) = decoded else {
            self.lost_rows += u64::from(rows);
            return Ok(None);
        };
        let row = |(row, inside_histogram, outside_histogram)| IntervalRow {
            inside_histogram,
            outside_histogram,
            ..row
        };
        Ok(Some(decoded.into_iter().map(row).collect()))
    }
}

/// False if the file ends before.
fn read_all(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
