//! One AF_XDP socket: its rings, bound to a queue of an interface.
//!
//! Invariant: the mappings of the rings outlive the rings. The first socket of a port registers the
//! UMEM and selects copy or zero copy. The others share it, with separate fill and completion
//! rings, and use the same mode (the kernel permits no other).
//!
//! In copy mode, a system call sends 32 entries of a TX ring, or more if the kernel permits
//! (`XDP_MAX_TX_SKB_BUDGET`, tried). Source: the kernel's `af_xdp.rst`.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::xdp_desc;

use crate::open::{Copying, LinkQueue, OpenError};
use crate::ring::{Consumer, Layout, Producer};
use crate::umem::Umem;

/// Default of entries that a call sends in copy mode.
const USUAL_BUDGET: u32 = 32;
/// Requested number.
const WANTED_BUDGET: u32 = 256;
/// `linux/if_xdp.h` of Linux 6.17; libc has no name for it yet.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// The kernel's counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    /// Packets not received: too long for a frame, or no frame to receive into.
    pub rx_dropped: u64,
    /// Packets not received because the RX ring was full.
    pub rx_ring_full: u64,
    /// The number of times that the fill ring was empty; in copy mode included in `rx_dropped`.
    pub fill_ring_empty: u64,
    /// Entries of the fill ring with an invalid frame.
    pub rx_invalid: u64,
    /// Entries of the TX ring with an invalid packet.
    pub tx_invalid: u64,
    /// The number of times that the kernel found the TX ring empty.
    pub tx_ring_empty: u64,
}

impl RingStatistics {
    /// Packets that reached the socket but not its user.
    pub fn lost(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }
}

/// The result of a call for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The kernel took what it could.
    Sent,
    /// A queue is full: try again.
    Later,
    /// The link is down.
    Down,
    /// The link has no carrier: the kernel dropped a packet.
    Refused,
    /// The interface was removed.
    Removed,
}

/// The options of the first socket, which apply to all of its port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub copying: Copying,
    /// Packets may have several frames.
    pub several: bool,
}

/// A bound socket with its four rings.
#[derive(Debug)]
pub(crate) struct Socket {
    // The rings precede their memory, to be dropped first.
    pub fill: Producer<u64>,
    pub completion: Consumer<u64>,
    pub rx: Consumer<xdp_desc>,
    pub tx: Producer<xdp_desc>,
    _mappings: [Mapping; 4],
    fd: OwnedFd,
    budget: u32,
}

impl Socket {
    /// Opens a socket and binds it; `first` is the socket with the UMEM, unless it is this one.
    pub fn open(
        link: &LinkQueue,
        umem: &Umem,
        ring: u32,
        options: Options,
        first: Option<&Socket>,
    ) -> Result<Socket, OpenError> {
        let failed = |doing| {
            move |source| OpenError::Socket {
                doing,
                name: link.name.clone(),
                queue: link.queue,
                source,
            }
        };
        let fd = open().map_err(failed("open the"))?;
        if first.is_none() {
            register(&fd, umem).map_err(failed("register frames with the"))?;
        }
        for option in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(&fd, option, &ring).map_err(failed("size the rings of the"))?;
        }
        let budget = WANTED_BUDGET.min(ring);
        let raised = set(&fd, XDP_MAX_TX_SKB_BUDGET, &budget).is_ok();
        let offsets = offsets(&fd).map_err(failed("read the ring offsets of the"))?;
        let rings = Rings::map(&fd, &offsets, ring).map_err(failed("map the rings of the"))?;
        bind(&fd, link, options, first).map_err(failed("bind the"))?;
        let Rings {
            fill,
            completion,
            rx,
            tx,
            mappings,
        } = rings;
        Ok(Socket {
            fill,
            completion,
            rx,
            tx,
            _mappings: mappings,
            fd,
            budget: if raised { budget } else { USUAL_BUDGET },
        })
    }

    /// True if it uses zero copy.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let mut options = libc::xdp_options { flags: 0 };
        get(&self.fd, libc::XDP_OPTIONS, &mut options)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// The counters of the kernel so far.
    pub fn statistics(&self) -> io::Result<RingStatistics> {
        let mut raw = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        get(&self.fd, libc::XDP_STATISTICS, &mut raw)?;
        Ok(RingStatistics {
            rx_dropped: raw.rx_dropped,
            rx_ring_full: raw.rx_ring_full,
            fill_ring_empty: raw.rx_fill_ring_empty_descs,
            rx_invalid: raw.rx_invalid_descs,
            tx_invalid: raw.tx_invalid_descs,
            tx_ring_empty: raw.tx_ring_empty_descs,
        })
    }

    /// Makes the kernel send the TX ring, if it needs to be woken.
    ///
    /// At most as many calls as `pending` entries need, each for one budget.
    pub fn kick(&mut self, pending: u32) -> SendResult {
        for _ in 0..pending.div_ceil(self.budget) {
            if !self.tx.wants_wakeup() {
                return SendResult::Sent;
            }
            match self.wake() {
                // The kernel also returns it when the budget is used up.
                SendResult::Later => (),
                kicked => return kicked,
            }
        }
        SendResult::Later
    }

    /// One call with any TX ring: the result shows the state of the link.
    pub fn wake(&self) -> SendResult {
        // SAFETY: no bytes are passed.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent >= 0 {
            return SendResult::Sent;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV | libc::EBADF) => SendResult::Removed,
            Some(libc::ENETDOWN) => SendResult::Down,
            Some(libc::EBUSY) => SendResult::Refused,
            _ => SendResult::Later,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The four rings, mapped.
struct Rings {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<xdp_desc>,
    tx: Producer<xdp_desc>,
    mappings: [Mapping; 4],
}

impl Rings {
    fn map(fd: &OwnedFd, offsets: &libc::xdp_mmap_offsets, ring: u32) -> io::Result<Rings> {
        let map = |offset: &libc::xdp_ring_offset, entry: usize, page: u64| {
            let layout = Layout {
                producer: offset.producer as usize,
                consumer: offset.consumer as usize,
                flags: offset.flags as usize,
                entries: offset.desc as usize,
            };
            let bytes = layout.entries + ring as usize * entry;
            Mapping::new(fd, bytes, page).map(|mapping| (mapping, layout))
        };
        let (fill, fill_at) = map(&offsets.fr, 8, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let (done, done_at) = map(&offsets.cr, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let (rx, rx_at) = map(&offsets.rx, 16, libc::XDP_PGOFF_RX_RING as u64)?;
        let (tx, tx_at) = map(&offsets.tx, 16, libc::XDP_PGOFF_TX_RING as u64)?;
        Ok(Rings {
            // SAFETY: the kernel's ring of that many entries with its layout; the mapping is next
            // to the ring in `Socket`, and each ring is created once.
            fill: unsafe { Producer::at(fill.start, &fill_at, ring) },
            // SAFETY: as above.
            completion: unsafe { Consumer::at(done.start, &done_at, ring) },
            // SAFETY: as above.
            rx: unsafe { Consumer::at(rx.start, &rx_at, ring) },
            // SAFETY: as above.
            tx: unsafe { Producer::at(tx.start, &tx_at, ring) },
            mappings: [fill, done, rx, tx],
        })
    }
}

/// The memory of a ring.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that no thread owns.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, bytes: usize, page: u64) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping of the socket's ring, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made exactly this mapping, and the rings in it are dropped with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The MTU of an interface of the thread's network namespace.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    // SAFETY: a structure of numbers, for which zeros are fine.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let capacity = request.ifr_name.len() - 1;
    if name.len() > capacity {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU of this very structure.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the call wrote this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// A socket for ioctls on interfaces.
pub(crate) fn query_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_INET, libc::SOCK_DGRAM)
}

fn open() -> io::Result<OwnedFd> {
    socket(libc::AF_XDP, libc::SOCK_RAW)
}

fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    checked(fd)?;
    // SAFETY: the call gave a descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn register(fd: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: umem.address(),
        len: umem.bytes() as u64,
        chunk_size: umem.frame_bytes(),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &registration)
}

fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let zero = || libc::xdp_ring_offset {
        producer: 0,
        consumer: 0,
        desc: 0,
        flags: 0,
    };
    let mut offsets = libc::xdp_mmap_offsets {
        rx: zero(),
        tx: zero(),
        fr: zero(),
        cr: zero(),
    };
    get(fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

fn bind(
    fd: &OwnedFd,
    link: &LinkQueue,
    options: Options,
    first: Option<&Socket>,
) -> io::Result<()> {
    let chosen = match options.copying {
        Copying::Tried => 0,
        Copying::Copy => libc::XDP_COPY,
        Copying::ZeroCopy => libc::XDP_ZEROCOPY,
    };
    let several = match options.several {
        true => libc::XDP_USE_SG,
        false => 0,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: match first {
            Some(_) => libc::XDP_SHARED_UMEM,
            None => libc::XDP_USE_NEED_WAKEUP | chosen | several,
        },
        sxdp_ifindex: link.ifindex.0,
        sxdp_queue_id: link.queue,
        sxdp_shared_umem_fd: first.map_or(0, |first| first.fd.as_raw_fd() as u32),
    };
    let len = size_of_val(&address) as libc::socklen_t;
    let address = (&raw const address).cast();
    // SAFETY: `address` points to a `sockaddr_xdp` of `len` bytes that outlives the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), address, len) })
}

fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = (value as *const T).cast();
    // SAFETY: `value` points to `len` readable bytes for the call's duration.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, len) })
}

/// Only for structures of numbers; an older kernel fills the first part.
fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = (value as *mut T).cast();
    // SAFETY: `value` points to `len` writable bytes, for which any number will do.
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, &mut len) })
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
