//! Where a wire takes and puts frames: a packet socket on an Ethernet interface, or a TUN device.
//!
//! The kernel moves the outermost VLAN tag of a received frame into its metadata, even without VLAN
//! devices; [`Port::receive`] puts it back in place. Sockets and devices belong to the namespace they
//! were opened in, so the wire's threads stay where they are.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::{mem, ptr};

use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{read, write};

/// Largest frame taken: a GSO frame of 64 KiB with its headers.
const FRAME_LIMIT: usize = 65_536 + 256;
/// Room in front for a VLAN tag that the kernel has taken out.
const TAG_LEN: usize = 4;
const MAC_LEN: usize = 12;
/// Receive buffer of a packet socket: about 20,000 full frames, 0.6 s at 30,000 per second.
const SOCKET_BUFFER_BYTES: usize = 64 << 20;
/// Capacity for the two requested control messages (auxdata 20 + 16 bytes, time stamp 16 + 16).
const CONTROL_LEN: usize = 128;

/// Something to take frames from and put frames on; non-blocking.
#[derive(Debug)]
pub(super) enum Port {
    Packet(OwnedFd),
    Tun(OwnedFd),
}

/// The result of reading a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A frame of which [`Inbox::frame`] holds the bytes, and when it came (monotonic clock).
    Frame {
        arrival_ns: u64,
        partial_checksum: bool,
    },
    /// A frame larger than any limit; it is gone.
    Oversized,
    /// Nothing is there.
    Empty,
    /// The port is broken, or was for a moment (link down).
    Broken,
}

/// Buffer for one received frame.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            bytes: vec![0; TAG_LEN + FRAME_LIMIT].into(),
            start: 0,
            end: 0,
        }
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn hold(&mut self, len: usize) {
        self.start = TAG_LEN;
        self.end = TAG_LEN + len;
    }

    /// Puts a tag that the kernel had taken out back after the addresses.
    fn restore_tag(&mut self, tpid: u16, tci: u16) {
        if self.end - self.start < MAC_LEN {
            return;
        }
        self.bytes.copy_within(TAG_LEN..TAG_LEN + MAC_LEN, 0);
        self.bytes[MAC_LEN..MAC_LEN + 2].copy_from_slice(&tpid.to_be_bytes());
        self.bytes[MAC_LEN + 2..MAC_LEN + 4].copy_from_slice(&tci.to_be_bytes());
        self.start = 0;
    }
}

/// Monotonic time in nanoseconds.
pub(super) fn now_ns() -> u64 {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

impl Port {
    /// A packet socket that sees every frame arriving on `ifname` in the calling thread's namespace.
    pub(super) fn packet(ifname: &str) -> io::Result<Port> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed. Protocol 0: no frame arrives before `bind`.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES)?;
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true)?;
        set_packet_option(&fd, libc::PACKET_AUXDATA)?;
        set_packet_option(&fd, libc::PACKET_IGNORE_OUTGOING)?;
        bind(&fd, ifname)?;
        Ok(Port::Packet(fd))
    }

    /// A TUN device `ifname` (IP packets, no header) in the calling thread's namespace.
    pub(super) fn tun(ifname: &str) -> io::Result<Port> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open("/dev/net/tun")?;
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let name = ifname.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Port::Tun(file.into()))
    }

    /// Takes one frame, if there is one.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> Received {
        match self {
            Port::Packet(fd) => receive_packet(fd, inbox),
            Port::Tun(fd) => match read(fd, &mut inbox.bytes[TAG_LEN..]) {
                Ok(len) => {
                    inbox.hold(len);
                    Received::Frame {
                        arrival_ns: now_ns(),
                        partial_checksum: false,
                    }
                }
                Err(error) => nothing(error),
            },
        }
    }

    /// Puts a frame on the other side's link.
    pub(super) fn send(&self, frame: &[u8]) -> nix::Result<()> {
        match self {
            Port::Packet(fd) => send(fd.as_raw_fd(), frame, MsgFlags::empty()).map(drop),
            Port::Tun(fd) => write(fd, frame).map(drop),
        }
    }

    /// Frames that the kernel dropped for lack of room since the last call.
    pub(super) fn take_kernel_drops(&self) -> u64 {
        let Port::Packet(fd) = self else { return 0 };
        let mut counted = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of_val(&counted) as libc::socklen_t;
        // SAFETY: the option writes at most `len` bytes, the size of `counted`.
        let answer = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                ptr::from_mut(&mut counted).cast(),
                &mut len,
            )
        };
        if answer < 0 {
            0
        } else {
            counted.tp_drops.into()
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (Port::Packet(fd) | Port::Tun(fd)) = self;
        fd.as_fd()
    }
}

fn nothing(error: nix::Error) -> Received {
    match error {
        nix::Error::EAGAIN | nix::Error::EINTR => Received::Empty,
        _ => Received::Broken,
    }
}

fn set_packet_option(fd: &OwnedFd, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    let value = ptr::from_ref(&on).cast();
    // SAFETY: `value` points to `len` bytes that outlive the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind(fd: &OwnedFd, ifname: &str) -> io::Result<()> {
    let name = CString::new(ifname)?;
    // SAFETY: `name` is a C string that outlives the call.
    let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if ifindex == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = ifindex.cast_signed();
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is `len` bytes long and outlives the call.
    match unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&address).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Control messages, aligned as the kernel writes them.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

fn receive_packet(fd: &OwnedFd, inbox: &mut Inbox) -> Received {
    let mut control = Control([0; CONTROL_LEN]);
    let mut part = IoSliceMut::new(&mut inbox.bytes[TAG_LEN..]);
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // `IoSliceMut` is guaranteed to have the layout of `iovec`.
    message.msg_iov = ptr::from_mut(&mut part).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_LEN;
    // SAFETY: `message` names buffers with their true lengths; all outlive the call.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, 0) };
    let Ok(len) = usize::try_from(len) else {
        return nothing(nix::Error::last());
    };
    if message.msg_flags & libc::MSG_TRUNC != 0 {
        return Received::Oversized;
    }
    inbox.hold(len);
    let recorded = read_control(&message);
    if let Some((tpid, tci)) = recorded.tag {
        inbox.restore_tag(tpid, tci);
    }
    Received::Frame {
        arrival_ns: recorded.arrival_ns(),
        partial_checksum: recorded.partial_checksum,
    }
}

/// The kernel's metadata of a frame.
#[derive(Default)]
struct Recorded {
    tag: Option<(u16, u16)>,
    partial_checksum: bool,
    stamped_ns: Option<u64>,
}

impl Recorded {
    /// Arrival on the monotonic clock; the kernel stamps with the real-time clock.
    fn arrival_ns(&self) -> u64 {
        let now = now_ns();
        let Some(stamped) = self.stamped_ns else {
            return now;
        };
        now - clock_ns(ClockId::CLOCK_REALTIME)
            .saturating_sub(stamped)
            .min(now)
    }

    fn note_auxdata(&mut self, aux: &libc::tpacket_auxdata) {
        self.partial_checksum = aux.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
        if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
            let known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let tpid = if known {
                aux.tp_vlan_tpid
            } else {
                libc::ETH_P_8021Q as u16
            };
            self.tag = Some((tpid, aux.tp_vlan_tci));
        }
    }
}

fn read_control(message: &libc::msghdr) -> Recorded {
    let mut recorded = Recorded::default();
    // SAFETY: `recvmsg` has filled `message` and its control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header inside the control buffer.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: `header` is a complete control message, so its data follow it.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the kernel writes a whole `tpacket_auxdata` for this type.
                let aux: libc::tpacket_auxdata = unsafe { ptr::read_unaligned(data.cast()) };
                recorded.note_auxdata(&aux);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel writes a whole `timespec` for this type.
                let stamp: libc::timespec = unsafe { ptr::read_unaligned(data.cast()) };
                recorded.stamped_ns =
                    Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64);
            }
            _ => {}
        }
        // SAFETY: `next` is the header just read, inside `message`.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    recorded
}
