//! A window that slides over a stream: the input of the parsers.
//!
//! ```text
//! stream   ......[ taken | visible      |  free   ]......
//!                0       start          end       WINDOW_BYTES
//! ```
//!
//! Invariant: `start <= end <= bytes.len()`, and `base` is the stream offset of `bytes[0]`. Bytes move only when a
//! request does not fit behind `start`, so each byte is moved at most once for every time the window is used up.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use super::MAX_BLOCK_BYTES;

/// Capacity for the longest block and a large read; small enough to stay in a second-level cache.
const WINDOW_BYTES: usize = 512 * 1024;
const _: () = assert!(MAX_BLOCK_BYTES as usize <= WINDOW_BYTES);

/// The size of one read of compressed input.
const GZIP_INPUT_BYTES: usize = 64 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

type Prefixed<R> = Chain<Cursor<Vec<u8>>, R>;

enum Source<R> {
    Plain(Prefixed<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Prefixed<R>>>>),
}

/// Why bytes could not be brought into the window.
pub(super) enum FillError {
    Io(io::Error),
    Gzip(io::Error),
}

pub(super) struct Window<R> {
    source: Source<R>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    base: u64,
}

impl<R: Read> Window<R> {
    /// Begins a stream; reads as little as it takes to see whether it is gzipped.
    pub(super) fn new(mut stream: R) -> Result<Window<R>, FillError> {
        let mut begin = Vec::with_capacity(GZIP_MAGIC.len());
        (&mut stream)
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut begin)
            .map_err(FillError::Io)?;
        let gzipped = begin == GZIP_MAGIC;
        let stream = Cursor::new(begin).chain(stream);
        let source = if gzipped {
            let input = BufReader::with_capacity(GZIP_INPUT_BYTES, stream);
            Source::Gzip(Box::new(MultiGzDecoder::new(input)))
        } else {
            Source::Plain(stream)
        };
        Ok(Window {
            source,
            bytes: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            base: 0,
        })
    }

    /// The bytes that are here, from the current position on.
    pub(super) fn visible(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Stream offset of the current position.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Stream offset of the last byte that was read.
    pub(super) fn end_offset(&self) -> u64 {
        self.base + self.end as u64
    }

    /// Makes `len` bytes visible; `false` if the stream ends before. At most [`MAX_BLOCK_BYTES`].
    #[inline]
    pub(super) fn need(&mut self, len: usize) -> Result<bool, FillError> {
        if self.end - self.start >= len {
            return Ok(true);
        }
        self.fill(len)
    }

    #[cold]
    fn fill(&mut self, len: usize) -> Result<bool, FillError> {
        debug_assert!(len <= WINDOW_BYTES);
        if self.start + len > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < len {
            match self.read_some()? {
                0 => return Ok(false),
                n => self.end += n,
            }
        }
        Ok(true)
    }

    /// One read into the free part. A gzip stream that ends early is an end like any other.
    fn read_some(&mut self) -> Result<usize, FillError> {
        let free = &mut self.bytes[self.end..];
        loop {
            let result = match &mut self.source {
                Source::Plain(stream) => stream.read(free).map_err(FillError::Io),
                Source::Gzip(stream) => stream.read(free).map_err(FillError::Gzip),
            };
            match result {
                Err(FillError::Io(e) | FillError::Gzip(e))
                    if e.kind() == io::ErrorKind::Interrupted => {}
                Err(FillError::Gzip(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(0);
                }
                Err(FillError::Gzip(e))
                    if !matches!(
                        e.kind(),
                        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
                    ) =>
                {
                    return Err(FillError::Io(e));
                }
                other => return other,
            }
        }
    }

    /// Passes visible bytes.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> &[u8] {
        let from = self.start;
        self.start += len;
        &self.bytes[from..self.start]
    }

    /// Skips `len` bytes, of any number; `false` if the stream ends before.
    pub(super) fn skip(&mut self, len: u64) -> Result<bool, FillError> {
        let mut left = len;
        loop {
            let step = left.min((self.end - self.start) as u64);
            self.start += step as usize;
            left -= step;
            if left == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }
}
