//! The netlink socket of one queue: connected to the kernel, read many datagrams a call.
//!
//! Invariant: a connected netlink socket takes datagrams from its peer only, and the peer is the kernel;
//! nobody else can put a packet into our hands. All of this crate's unsafe code is here.

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

/// A socket that speaks with the kernel's netfilter.
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
        // Errors echo the request's header and not all of it.
        inner.set_cap_ack(true)?;
        Ok(Socket { inner, port })
    }

    /// Our address among netlink sockets.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Whether a full buffer is said once as `ENOBUFS`, or not at all.
    pub fn set_overrun_reports(&self, on: bool) -> io::Result<()> {
        self.inner.set_no_enobufs(!on)
    }

    /// Asks for a receive buffer of so many bytes; returns what there is now and whether the limit of
    /// `net.core.rmem_max` was passed by right (`CAP_NET_ADMIN` in the first user namespace).
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<(usize, bool)> {
        // The kernel doubles what it is given, and takes it as an int.
        let half = (bytes / 2).min(i32::MAX as usize / 2);
        let forced = setsockopt(&self.inner, sockopt::RcvBufForce, &half).is_ok();
        if !forced {
            setsockopt(&self.inner, sockopt::RcvBuf, &half)?;
        }
        Ok((getsockopt(&self.inner, sockopt::RcvBuf)?, forced))
    }

    /// Sends one datagram; the kernel has worked it off when this returns.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.inner.send(bytes, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads as many datagrams as there are and `slots` takes; none when time is up or a signal came.
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
        // SAFETY: `arm` has just pointed every header to a vector and that to a separate slot, all
        // owned by `slots`, which is borrowed mutably meanwhile.
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

/// Places for datagrams, one `recvmmsg` fills them.
pub(crate) struct Slots {
    /// Slots of `bytes` each, one after the other.
    memory: Box<[u8]>,
    bytes: usize,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
}

// SAFETY: the pointers in vectors and headers are used only after `arm` has set them again.
unsafe impl Send for Slots {}

impl Slots {
    /// Memory that is never written costs nothing: a slot of 64 KiB is as cheap as the packets that come.
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

    /// Empties all slots and points the headers to them.
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

    /// Forgets what the last read brought.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// How many datagrams the last read brought.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The datagram in slot `at`, cut at the slot's length.
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

/// Waits until every packet that is on its way through the kernel's rules has left them.
///
/// The barrier waits for an RCU grace period, and rules are walked under RCU. Kernels that refuse it
/// (`nohz_full`) leave a window of microseconds.
pub(crate) fn wait_for_rules() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
    // SAFETY: the call takes three numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
}
