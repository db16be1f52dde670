//! A netlink socket that sends one request at a time and waits for its complete answer.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
};
use netlink_sys::{Socket, SocketAddr};

use crate::message::{Received, Request, attr_str, messages, u32_at};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Above the 32 KiB the kernel uses for one datagram of a dump.
const DATAGRAM_LIMIT_BYTES: usize = 128 * 1024;
/// Retries of a dump when the table changed during it.
const DUMP_ATTEMPT_LIMIT: usize = 8;

/// Changes per datagram: if all are refused, their answers fit into the default receive buffer.
const BATCH_MESSAGE_LIMIT: usize = 128;
/// Bytes of such a datagram, far below the default send buffer.
const BATCH_BYTE_LIMIT: usize = 32 * 1024;
/// More than any change needs.
const BATCH_SPARE_BYTES: usize = 1024;

/// A request to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket could not be opened, written or read.
    #[error("{operation}: netlink socket")]
    Socket {
        /// The operation.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused, perhaps with an explanation.
    #[error("{operation}{}", message.as_deref().map(|m| format!(": kernel reports \"{m}\"")).unwrap_or_default())]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The kernel's text (extended acknowledgement).
        message: Option<String>,
        /// The error code.
        source: io::Error,
    },
    /// The answer is incomplete.
    #[error("{operation}: the kernel's reply lacks {lacks}")]
    Malformed {
        /// The operation.
        operation: &'static str,
        /// The missing part.
        lacks: &'static str,
    },
}

impl NetlinkError {
    /// The errno behind this error, if one exists.
    pub fn errno(&self) -> Option<i32> {
        match self {
            NetlinkError::Socket { source, .. } | NetlinkError::Refused { source, .. } => {
                source.raw_os_error()
            }
            NetlinkError::Malformed { .. } => None,
        }
    }
}

/// An open socket of one netlink protocol, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(protocol: isize) -> Result<Connection, NetlinkError> {
        let socket = open_socket(protocol).map_err(|source| NetlinkError::Socket {
            operation: "open",
            source,
        })?;
        Ok(Connection {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(DATAGRAM_LIMIT_BYTES),
        })
    }

    /// Requests until now.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u32 {
        self.sequence
    }

    /// Sends `request` and waits for its acknowledgement. Passes answers before it to `each`.
    pub(crate) fn query(
        &mut self,
        operation: &'static str,
        request: Request,
        mut each: impl FnMut(&Received<'_>),
    ) -> Result<(), NetlinkError> {
        let sequence = self.send(operation, request)?;
        loop {
            if self.receive(operation, sequence, &mut each)?.ended {
                return Ok(());
            }
        }
    }

    /// Like [`Connection::query`] for a request that is only acknowledged.
    pub(crate) fn command(
        &mut self,
        operation: &'static str,
        request: Request,
    ) -> Result<(), NetlinkError> {
        self.query(operation, request, |_| {})
    }

    /// Sends many changes, [`BATCH_MESSAGE_LIMIT`] to a datagram, and waits for each datagram's last one.
    ///
    /// The kernel processes a whole datagram despite failures in it, and answers for the failed
    /// requests. `failed` gets the index and the refusal of each. No further datagram is sent then.
    pub(crate) fn batch(
        &mut self,
        operation: &'static str,
        requests: Vec<Request>,
        mut failed: impl FnMut(usize, NetlinkError),
    ) -> Result<(), NetlinkError> {
        let mut requests = requests.into_iter().peekable();
        let mut done = 0;
        let mut refused = false;
        while requests.peek().is_some() && !refused {
            let first = self.sequence.wrapping_add(1);
            let mut bytes = Vec::with_capacity(BATCH_BYTE_LIMIT);
            let mut count = 0;
            while let Some(request) = requests.next() {
                count += 1;
                self.sequence = self.sequence.wrapping_add(1);
                let last = count == BATCH_MESSAGE_LIMIT
                    || bytes.len() + BATCH_SPARE_BYTES > BATCH_BYTE_LIMIT
                    || requests.peek().is_none();
                let request = if last { request.acked() } else { request };
                bytes.extend_from_slice(&request.finish(self.sequence));
                if last {
                    break;
                }
            }
            self.send_bytes(operation, &bytes)?;
            self.await_batch(operation, first, count, |at, error| {
                refused = true;
                failed(done + at, error);
            })?;
            done += count;
        }
        Ok(())
    }

    /// Reads until the last of `count` requests is answered.
    fn await_batch(
        &mut self,
        operation: &'static str,
        first: u32,
        count: usize,
        mut failed: impl FnMut(usize, NetlinkError),
    ) -> Result<(), NetlinkError> {
        loop {
            receive_datagram(&self.socket, &mut self.buffer, 0)
                .map_err(|source| NetlinkError::Socket { operation, source })?;
            for message in messages(&self.buffer).filter(|m| m.kind == NLMSG_ERROR) {
                let at = message.sequence.wrapping_sub(first) as usize;
                if at >= count {
                    continue;
                }
                if let Err(error) = acknowledged(operation, &message) {
                    failed(at, error);
                }
                if at + 1 == count {
                    return Ok(());
                }
            }
        }
    }

    /// Dumps a table: `convert` selects from each message. Restarts if the table changed during the
    /// dump.
    pub(crate) fn dump<T>(
        &mut self,
        operation: &'static str,
        request: &Request,
        mut convert: impl FnMut(&Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        for _ in 0..DUMP_ATTEMPT_LIMIT {
            found.clear();
            let sequence = self.send(operation, request.clone())?;
            let mut interrupted = false;
            loop {
                let status = self.receive(operation, sequence, &mut |m: &Received<'_>| {
                    found.extend(convert(m));
                })?;
                interrupted |= status.interrupted;
                if status.ended {
                    break;
                }
            }
            if !interrupted {
                break;
            }
        }
        Ok(found)
    }

    fn send(&mut self, operation: &'static str, request: Request) -> Result<u32, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.send_bytes(operation, &request.finish(self.sequence))?;
        Ok(self.sequence)
    }

    fn send_bytes(&self, operation: &'static str, bytes: &[u8]) -> Result<(), NetlinkError> {
        self.socket
            .send_to(bytes, &SocketAddr::new(0, 0), 0)
            .map(drop)
            .map_err(|source| NetlinkError::Socket { operation, source })
    }

    fn receive(
        &mut self,
        operation: &'static str,
        sequence: u32,
        each: &mut impl FnMut(&Received<'_>),
    ) -> Result<Status, NetlinkError> {
        let trouble = |source| NetlinkError::Socket { operation, source };
        receive_datagram(&self.socket, &mut self.buffer, 0).map_err(trouble)?;
        let mut status = Status::default();
        for message in messages(&self.buffer).filter(|m| m.sequence == sequence) {
            status.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_ERROR => {
                    status.ended = true;
                    acknowledged(operation, &message)?;
                }
                NLMSG_DONE => {
                    status.ended = true;
                    dump_ended(operation, &message)?;
                }
                _ => each(&message),
            }
        }
        Ok(status)
    }
}

/// The state of the answer after one datagram.
#[derive(Default)]
struct Status {
    ended: bool,
    interrupted: bool,
}

/// Flags of a request that is acknowledged, with `extra` added.
pub(crate) fn acked(extra: u16) -> u16 {
    NLM_F_REQUEST | NLM_F_ACK | extra
}

/// Flags of a request for a whole table.
pub(crate) fn dumped() -> u16 {
    NLM_F_REQUEST | NLM_F_DUMP
}

/// Opens and binds a socket on which the kernel explains refusals, if it can.
pub(crate) fn open_socket(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    Ok(socket)
}

/// Reads one datagram from the kernel into `buffer`. Datagrams of other processes are ignored.
pub(crate) fn receive_datagram(
    socket: &Socket,
    buffer: &mut Vec<u8>,
    flags: i32,
) -> io::Result<()> {
    loop {
        buffer.clear();
        match socket.recv_from(buffer, flags | libc::MSG_TRUNC) {
            Ok((len, _)) if len > buffer.len() => {
                return Err(io::Error::other("a datagram larger than the buffer"));
            }
            Ok((_, from)) if from.port_number() == 0 => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn acknowledged(operation: &'static str, message: &Received<'_>) -> Result<(), NetlinkError> {
    match u32_at(message.payload, 0) {
        Some(0) => Ok(()),
        Some(code) => Err(NetlinkError::Refused {
            operation,
            message: explanation(message),
            source: io::Error::from_raw_os_error((code as i32).wrapping_neg()),
        }),
        None => Err(NetlinkError::Malformed {
            operation,
            lacks: "an error code",
        }),
    }
}

/// The end of a dump carries an error code if it failed.
fn dump_ended(operation: &'static str, message: &Received<'_>) -> Result<(), NetlinkError> {
    match u32_at(message.payload, 0) {
        None | Some(0) => Ok(()),
        Some(code) => Err(NetlinkError::Refused {
            operation,
            message: None,
            source: io::Error::from_raw_os_error((code as i32).wrapping_neg()),
        }),
    }
}

/// The kernel's text: attributes after the echoed request, which is only its header when capped.
fn explanation(message: &Received<'_>) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let echoed_len = if message.flags & NLM_F_CAPPED != 0 {
        16
    } else {
        (u32_at(message.payload, 4)? as usize).next_multiple_of(4)
    };
    attr_str(message.payload.get(4 + echoed_len..)?, NLMSGERR_ATTR_MSG)
}
