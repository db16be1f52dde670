//! Binds an AF_XDP socket to a queue and closes it; no frame is received or sent.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use fairpath_units::IfIndex;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const FRAME_BYTES: usize = 4096;
/// The minimum that fills the smallest useful rings.
const FRAMES: usize = 4;
const UMEM_BYTES: NonZeroUsize = NonZeroUsize::new(FRAMES * FRAME_BYTES).expect("not zero");

/// The mode of frames between driver and socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfXdpMode {
    /// Copied by the kernel; works with every driver.
    Copy,
    /// Received by the driver into the socket's own memory.
    ZeroCopy,
}

/// Binds an AF_XDP socket to queue 0 of `ifindex`. Not for a link in use: with zero copy it
/// occupies the queue.
pub fn af_xdp(ifindex: IfIndex, mode: AfXdpMode) -> io::Result<()> {
    let umem = Umem::map()?; // declared first: lives until the socket is closed
    let socket = open()?;
    register(&socket, &umem)?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
    ] {
        set_option(&socket, ring, &(FRAMES as u32))?;
    }
    bind(&socket, ifindex, mode)
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    checked(fd)?;
    // SAFETY: the call gave a descriptor no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn register(socket: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: umem.start.as_ptr().addr() as u64,
        len: UMEM_BYTES.get() as u64,
        chunk_size: FRAME_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &registration)
}

fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = (value as *const T).cast();
    // SAFETY: `value` points to `len` readable bytes for the call's duration.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, len) })
}

fn bind(socket: &OwnedFd, ifindex: IfIndex, mode: AfXdpMode) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: match mode {
            AfXdpMode::Copy => libc::XDP_COPY,
            AfXdpMode::ZeroCopy => libc::XDP_ZEROCOPY,
        },
        sxdp_ifindex: ifindex.0,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of_val(&address) as libc::socklen_t;
    let address = (&raw const address).cast();
    // SAFETY: `address` points to a `sockaddr_xdp` of `len` bytes that outlives the call.
    checked(unsafe { libc::bind(socket.as_raw_fd(), address, len) })
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The frames' memory.
struct Umem {
    start: NonNull<libc::c_void>,
}

impl Umem {
    fn map() -> io::Result<Umem> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(None, UMEM_BYTES, protection, MapFlags::MAP_PRIVATE) }?;
        Ok(Umem { start })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping; nothing in this process reads it, and the kernel holds its own
        // reference to the pages while a socket uses them.
        let _ = unsafe { munmap(self.start, UMEM_BYTES.get()) };
    }
}
