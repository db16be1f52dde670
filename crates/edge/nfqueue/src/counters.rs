//! Counters of one queue, from this crate and from the kernel.
//!
//! They are consistent. Of the packets that rules sent to a queue without fail-open, the sum is
//! `received` + the kernel's `queue_dropped` + `user_dropped` (without packets in the socket), and
//! `missing` is the kernel's `user_dropped`. With fail-open, the kernel does not count bypassing
//! packets: compare the counter of the rule.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::verdict::Action;

/// The calling thread's namespace; `/proc/net` would be that of the main thread.
const FILE: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
/// A line has about 60 bytes, and there are 65,536 queues at most.
const FILE_LIMIT_BYTES: usize = 8 << 20;

/// Counters of the owner of a queue, since binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received packets.
    pub packets: PacketCounters,
    /// Verdicts.
    pub verdicts: VerdictCounters,
}

/// Received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Packets passed to the caller.
    pub received: u64,
    /// Missing ids: the socket's buffer was full (the kernel's `user_dropped`, or bypassed by
    /// fail-open).
    pub missing: u64,
    /// Refused verdicts: the kernel had dropped the packet (its interface went down, or the table
    /// of its rule was removed).
    pub refused: u64,
    /// Reports of a full buffer; far fewer than the packets lost then.
    pub overruns: u64,
    /// Messages that could not be parsed; the kernel sends none.
    pub malformed: u64,
    /// System calls for reading.
    pub reads: u64,
}

/// Verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounters {
    /// To accept.
    pub accepted: u64,
    /// To drop.
    pub dropped: u64,
    /// To another queue.
    pub requeued: u64,
    /// To repeat.
    pub repeated: u64,
    /// Verdicts of all kinds with new content.
    pub rewritten: u64,
    /// System calls for sending.
    pub sends: u64,
}

impl VerdictCounters {
    pub(crate) fn add(&mut self, action: Action, packets: u64) {
        *match action {
            Action::Accept => &mut self.accepted,
            Action::Drop => &mut self.dropped,
            Action::Queue { .. } => &mut self.requeued,
            Action::Repeat => &mut self.repeated,
        } += packets;
    }
}

/// A line of the kernel's table of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCounts {
    /// The queue's number.
    pub queue: u16,
    /// The netlink port that owns it.
    pub port: u32,
    /// Packets that wait for a verdict.
    pub waiting: u32,
    /// 1 for metadata only, 2 for payload.
    pub copy_mode: u8,
    /// Maximum bytes of copied payload.
    pub copy_range: u32,
    /// Dropped because the queue was full. Wraps at 2^32.
    pub queue_dropped: u32,
    /// Dropped because the socket's receive buffer was full. Wraps at 2^32.
    pub user_dropped: u32,
    /// The newest packet's id. Wraps at 2^32.
    pub id_sequence: u32,
}

impl KernelCounts {
    fn read(line: &str) -> Option<KernelCounts> {
        let mut columns = line.split_ascii_whitespace();
        let mut next = || columns.next();
        Some(KernelCounts {
            queue: next()?.parse().ok()?,
            port: next()?.parse().ok()?,
            waiting: next()?.parse().ok()?,
            copy_mode: next()?.parse().ok()?,
            copy_range: next()?.parse().ok()?,
            queue_dropped: next()?.parse().ok()?,
            user_dropped: next()?.parse().ok()?,
            id_sequence: next()?.parse().ok()?,
        })
    }
}

/// The kernel's table of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct KernelTable(File);

impl KernelTable {
    pub fn open() -> io::Result<KernelTable> {
        File::open(FILE).map(KernelTable)
    }

    /// The line of `queue`; `None` if the queue is not bound.
    pub fn look(&self, queue: u16) -> io::Result<Option<KernelCounts>> {
        let text = self.text()?;
        let mut lines = text.lines().filter_map(KernelCounts::read);
        Ok(lines.find(|line| line.queue == queue))
    }

    /// A read returns at most a page.
    fn text(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        let mut page = [0; 4096];
        while bytes.len() < FILE_LIMIT_BYTES {
            match self.0.read_at(&mut page, bytes.len() as u64)? {
                0 => break,
                read => bytes.extend(&page[..read]),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The owner of each queue in the calling thread's namespace, and its drops.
///
/// # Errors
/// If `/proc` is missing, or the kernel has no NFQUEUE support.
pub fn kernel_counts() -> io::Result<Vec<KernelCounts>> {
    let text = KernelTable::open()?.text()?;
    Ok(text.lines().filter_map(KernelCounts::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let counts = KernelCounts::read("    3  12345     7 2 65531     4     5       16  1");
        let expected = KernelCounts {
            queue: 3,
            port: 12_345,
            waiting: 7,
            copy_mode: 2,
            copy_range: 65_531,
            queue_dropped: 4,
            user_dropped: 5,
            id_sequence: 16,
        };
        assert_eq!(counts, Some(expected));
        assert_eq!(KernelCounts::read("3 12345 7 2 65531 4 5"), None);
        assert_eq!(KernelCounts::read(""), None);
    }
}
