//! The configuration of a queue, and the one message that sends it to the kernel.
//!
//! One message binds the queue and sets copy mode, length and flags, so the queue never refuses
//! packets because its mode is not set.

use crate::message::{ACK, CONFIG, REQUEST, VALUE_LIMIT_BYTES, put, write};

const NFQA_CFG_CMD: u16 = 1;
const NFQA_CFG_PARAMS: u16 = 2;
const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;
const NFQA_CFG_MASK: u16 = 4;
const NFQA_CFG_FLAGS: u16 = 5;
const CMD_BIND: u8 = 1;
const CMD_UNBIND: u8 = 2;
const COPY_META: u8 = 1;
const COPY_PACKET: u8 = 2;
const FLAG_FAIL_OPEN: u32 = 1;
const FLAG_CONNTRACK: u32 = 2;
const FLAG_GSO: u32 = 4;
const FLAG_UID_GID: u32 = 8;
const FLAG_SECCTX: u32 = 16;

/// Maximum bytes of a packet in one message. A longer packet is truncated.
pub const COPY_LIMIT_BYTES: u32 = VALUE_LIMIT_BYTES as u32;
/// The kernel's default.
const DEFAULT_LENGTH: u32 = 1024;
/// Packets per read.
const DEFAULT_AT_ONCE: usize = 64;
/// The maximum of `recvmmsg`.
const AT_ONCE_LIMIT: usize = 1024;
/// Per message: headers and attributes in addition to the payload.
const HEADROOM_BYTES: usize = 4096;
/// The size of a message in the account of the socket, in addition to its payload.
const MESSAGE_COST_BYTES: usize = 2048;
/// A payload if GSO packets are segmented before.
const FRAME_COST_BYTES: usize = 2048;
/// The maximum of the default receive buffer.
const DEFAULT_BUFFER_LIMIT_BYTES: usize = 64 << 20;

/// The configuration of a queue.
///
/// Defaults: all bytes of each packet, GSO packets whole, 1,024 packets, closed on overload, no
/// extra attributes, and a receive buffer for a full queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) queue: u16,
    copy_bytes: u32,
    length: u32,
    flags: u32,
    at_once: usize,
    buffer_bytes: Option<usize>,
    pub(crate) overrun_reports: bool,
}

impl Config {
    /// A queue with this number, as in the rule (`--queue-num`).
    pub fn new(queue: u16) -> Config {
        Config {
            queue,
            copy_bytes: COPY_LIMIT_BYTES,
            length: DEFAULT_LENGTH,
            flags: FLAG_GSO,
            at_once: DEFAULT_AT_ONCE,
            buffer_bytes: None,
            overrun_reports: false,
        }
    }

    /// Copies at most this many bytes of each packet, from the network header. 0 is
    /// [`Config::metadata_only`].
    ///
    /// Truncated packets cannot be rewritten. 128 bytes include every header and save copying.
    #[must_use]
    pub fn copy_bytes(mut self, bytes: u32) -> Config {
        self.copy_bytes = bytes.min(COPY_LIMIT_BYTES);
        self
    }

    /// Copies no bytes of the packet: only id, hook, interfaces and mark.
    #[must_use]
    pub fn metadata_only(self) -> Config {
        self.copy_bytes(0)
    }

    /// Maximum of packets without a verdict, including held ones.
    #[must_use]
    pub fn length(mut self, packets: u32) -> Config {
        self.length = packets;
        self
    }

    /// Sets whether GSO packets come whole (default), or segmented by the kernel at most of the speed.
    ///
    /// Whole ones may exceed the MTU and cannot be rewritten. Some are segmented anyway (SCTP).
    #[must_use]
    pub fn gso(self, on: bool) -> Config {
        self.flag(FLAG_GSO, on)
    }

    /// Sets whether packets bypass a full queue or socket buffer (default: they are dropped): they are
    /// dropped).
    ///
    /// Bypassing packets are not counted.
    #[must_use]
    pub fn fail_open(self, on: bool) -> Config {
        self.flag(FLAG_FAIL_OPEN, on)
    }

    /// True if each packet has the attributes of its connection.
    #[must_use]
    pub fn conntrack(self, on: bool) -> Config {
        self.flag(FLAG_CONNTRACK, on)
    }

    /// True if local packets have the user and group of their socket.
    #[must_use]
    pub fn uid_gid(self, on: bool) -> Config {
        self.flag(FLAG_UID_GID, on)
    }

    /// True if local packets have their security label.
    #[must_use]
    pub fn security_context(self, on: bool) -> Config {
        self.flag(FLAG_SECCTX, on)
    }

    /// Reads at most this many packets per system call, 1 to 1,024.
    ///
    /// More need fewer calls under load, but the first packet of a batch waits for the decision
    /// about the last.
    #[must_use]
    pub fn at_once(mut self, packets: usize) -> Config {
        self.at_once = packets.clamp(1, AT_ONCE_LIMIT);
        self
    }

    /// Requests a receive buffer of this many bytes, as the kernel counts them (payload and about 2
    /// KiB per packet).
    #[must_use]
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Config {
        self.buffer_bytes = Some(bytes);
        self
    }

    /// True if a full receive buffer is reported at once, in
    /// [`PacketCounters::overruns`](crate::PacketCounters::overruns).
    ///
    /// Off by default, because the kernel then drops packets until the socket was read empty. The
    /// kernel's own counters count each packet in both cases.
    #[must_use]
    pub fn overrun_reports(mut self, on: bool) -> Config {
        self.overrun_reports = on;
        self
    }

    fn flag(mut self, flag: u32, on: bool) -> Config {
        self.flags = if on {
            self.flags | flag
        } else {
            self.flags & !flag
        };
        self
    }

    /// The receive buffer to request.
    pub(crate) fn buffer_wanted(&self) -> usize {
        let payload = if self.flags & FLAG_GSO != 0 {
            self.copy_bytes as usize
        } else {
            FRAME_COST_BYTES.min(self.copy_bytes as usize)
        };
        let all = (payload + MESSAGE_COST_BYTES).saturating_mul(self.length as usize);
        self.buffer_bytes
            .unwrap_or(all.min(DEFAULT_BUFFER_LIMIT_BYTES))
    }

    /// Number and size of the buffers for one read.
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.at_once, self.copy_bytes as usize + HEADROOM_BYTES)
    }

    /// The flags that differ from the default, for an error message.
    pub(crate) fn options(&self) -> String {
        let named = [
            (FLAG_GSO, "GSO"),
            (FLAG_FAIL_OPEN, "fail-open"),
            (FLAG_CONNTRACK, "conntrack"),
            (FLAG_UID_GID, "user and group"),
            (FLAG_SECCTX, "security label"),
        ];
        let on = named.iter().filter(|(flag, _)| self.flags & flag != 0);
        on.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Binds the queue and sets all options.
    pub(crate) fn bind_message(&self, sequence: u32) -> Vec<u8> {
        let mode = if self.copy_bytes == 0 {
            COPY_META
        } else {
            COPY_PACKET
        };
        let [a, b, c, d] = self.copy_bytes.to_be_bytes();
        let mut out = Vec::new();
        write(
            &mut out,
            CONFIG,
            REQUEST | ACK,
            sequence,
            self.queue,
            |out| {
                put(out, NFQA_CFG_CMD, &[CMD_BIND, 0, 0, 0]);
                put(out, NFQA_CFG_PARAMS, &[a, b, c, d, mode]);
                put(out, NFQA_CFG_QUEUE_MAXLEN, &self.length.to_be_bytes());
                let mask = FLAG_FAIL_OPEN | FLAG_CONNTRACK | FLAG_GSO | FLAG_UID_GID | FLAG_SECCTX;
                // A kernel without a flag must not refuse a queue that does not request it.
                let mask = mask & (self.flags | FLAG_FAIL_OPEN | FLAG_GSO);
                put(out, NFQA_CFG_MASK, &mask.to_be_bytes());
                put(out, NFQA_CFG_FLAGS, &self.flags.to_be_bytes());
            },
        );
        out
    }
}

/// Unbinds the queue; requests no acknowledgement.
pub(crate) fn unbind_message(queue: u16) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, CONFIG, REQUEST, 0, queue, |out| {
        put(out, NFQA_CFG_CMD, &[CMD_UNBIND, 0, 0, 0]);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attributes, FAMILY_BYTES, Messages};

    #[test]
    fn one_message_configures_the_queue() {
        let config = Config::new(3)
            .copy_bytes(128)
            .length(50)
            .fail_open(true)
            .uid_gid(true);
        let bytes = config.bind_message(1);
        let mut messages = Messages(&bytes);
        let body = &messages.next().unwrap().body[FAMILY_BYTES..];
        let read: Vec<_> = Attributes::of(body).collect();
        assert_eq!(
            read,
            [
                (NFQA_CFG_CMD, &[CMD_BIND, 0, 0, 0][..]),
                (NFQA_CFG_PARAMS, &[0, 0, 0, 128, COPY_PACKET]),
                (NFQA_CFG_QUEUE_MAXLEN, &[0, 0, 0, 50]),
                (NFQA_CFG_MASK, &[0, 0, 0, 13]),
                (NFQA_CFG_FLAGS, &[0, 0, 0, 13]),
            ]
        );
        assert!(messages.next().is_none());
    }

    #[test]
    fn the_default_buffer_holds_what_the_queue_may() {
        assert_eq!(Config::new(0).buffer_wanted(), 64 << 20);
        let small = Config::new(0).copy_bytes(128).length(1000);
        assert_eq!(small.buffer_wanted(), 1000 * (2048 + 128));
        assert_eq!(small.gso(false).receive_buffer_bytes(5).buffer_wanted(), 5);
        assert_eq!(Config::new(0).gso(false).length(10).buffer_wanted(), 40_960);
    }
}
