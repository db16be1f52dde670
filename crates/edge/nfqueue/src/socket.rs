//! The netlink socket of one queue: connected to the kernel, reading many datagrams per call.
//!
//! Invariant: a connected netlink socket accepts only datagrams from its peer, the kernel, so no
//! other process can inject a packet. All unsafe code of this crate is here.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::queue::Wait;

/// A socket connected to the kernel's netfilter.
pub(crate) struct Socket {
    inner: netlink_sys::Socket,
    port: u32,
}

impl Socket {
    /// Opens one in the calling thread's namespace.
    pub fn open() -> io::Result<Socket> {
        let mut inner = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
        let port = inner.bind_auto()?.port_number();
        inner.connect(&SocketAddr::new(0, 0))?;
        // Errors echo only the header of the request.
        inner.set_cap_ack(true)?;
        Ok(Socket { inner, port })
    }

    /// The netlink address of this socket.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sets whether a full buffer is reported once as `ENOBUFS`, or not at all.
    pub fn set_overrun_reports(&self, on: bool) -> io::Result<()> {
        self.inner.set_no_enobufs(!on)
    }

    /// Requests a receive buffer of this many bytes. Returns the granted size, and whether the
    /// limit of `net.core.rmem_max` was overridden (`CAP_NET_ADMIN` in the first user namespace).
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<(usize, bool)> {
        // The kernel doubles the value, which is an int.
        let half = (bytes / 2).min(i32::MAX as usize / 2);
        let forced = setsockopt(&self.inner, sockopt::RcvBufForce, &half).is_ok();
        if !forced {
            setsockopt(&self.inner, sockopt::RcvBuf, &half)?;
        }
        Ok((getsockopt(&self.inner, sockopt::RcvBuf)?, forced))
    }

    /// Sends one datagram, which the kernel has processed on return.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.inner.send(bytes, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the available datagrams into `slots`; none after the time limit or a signal.
    pub fn receive(&self, slots: &mut Slots, wait: Wait) -> io::Result<()> {
        slots.arm();
        let flags = match wait {
            Wait::Forever => libc::MSG_WAITFORONE,
            Wait::Not => libc::MSG_DONTWAIT,
            Wait::For(time) => {
                let mut fds = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
                match ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None) {
                    Ok(0) | Err(nix::Error::EINTR) => return Ok(()),
                    Ok(_) => libc::MSG_DONTWAIT,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        // SAFETY: `arm` just set every header to a vector and that to its own slot, all owned by
        // `slots`, which is mutably borrowed during the call.
        let received = unsafe {
            libc::recvmmsg(
                self.inner.as_raw_fd(),
                slots.headers.as_mut_ptr(),
                slots.headers.len() as u32,
                flags,
                ptr::null_mut(),
            )
        };
        match usize::try_from(received) {
            Ok(received) => {
                slots.filled = received;
                Ok(())
            }
            Err(_) => match io::Error::last_os_error() {
                error if is_quiet(&error) => Ok(()),
                error => Err(error),
            },
        }
    }
}

fn is_quiet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("port", &self.port).finish()
    }
}

/// Buffers for datagrams, filled by one `recvmmsg`.
pub(crate) struct Slots {
    /// Slots of `bytes` each, in one block.
    memory: Box<[u8]>,
    bytes: usize,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
}

// SAFETY: the pointers in vectors and headers are used only after `arm` has set them again.
unsafe impl Send for Slots {}

impl Slots {
    /// Unwritten memory costs nothing: a slot of 64 KiB costs as much as the packets in it.
    pub fn new(count: usize, bytes: usize) -> Slots {
        let vector = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: bytes,
        };
        // SAFETY: all zero is a valid header: no address, no vectors, no control data.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Slots {
            memory: vec![0; count * bytes].into_boxed_slice(),
            bytes,
            vectors: vec![vector; count].into_boxed_slice(),
            headers: vec![header; count].into_boxed_slice(),
            filled: 0,
        }
    }

    /// Empties all slots and sets the headers.
    fn arm(&mut self) {
        self.filled = 0;
        let slots = self.memory.chunks_exact_mut(self.bytes);
        let vectors = self.vectors.iter_mut();
        for ((slot, vector), header) in slots.zip(vectors).zip(&mut self.headers) {
            vector.iov_base = slot.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
    }

    /// Drops the result of the last read.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// The number of datagrams of the last read.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The datagram in slot `at`, truncated at the length of the slot.
    pub fn datagram(&self, at: usize) -> &[u8] {
        let len = self.headers[at].msg_len as usize;
        let begin = at * self.bytes;
        &self.memory[begin..begin + len.min(self.bytes)]
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = (self.headers.len(), self.bytes);
        write!(f, "Slots({count} of {bytes} bytes, {} filled)", self.filled)
    }
}

/// Waits until every packet in the kernel's rules has left them.
///
/// The barrier waits for an RCU grace period, and rules are evaluated under RCU. On kernels that
/// refuse it (`nohz_full`), a window of microseconds remains.
pub(crate) fn wait_for_rules() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
    // SAFETY: the call takes three numbers and accesses no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
}
