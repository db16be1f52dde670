//! tun and ppp units, which are created by character devices and not by rtnetlink.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// `TUNSETIFF`: `_IOW('T', 202, int)`.
const TUNSETIFF: libc::Ioctl = nix::request_code_write!(b'T', 202, size_of::<libc::c_int>());
/// `PPPIOCNEWUNIT`: `_IOWR('t', 62, int)`.
const PPPIOCNEWUNIT: libc::Ioctl = nix::request_code_readwrite!(b't', 62, size_of::<libc::c_int>());
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;

/// `struct ifreq` as `TUNSETIFF` reads it: an empty name lets the kernel choose one.
#[repr(C)]
struct TunRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    rest_of_union: [u8; 22],
}

/// Creates a tun link with a name of the kernel's choice in the calling thread's namespace.
///
/// It lives while the returned file. Needs `CAP_NET_ADMIN`; `ENOENT` means that there is no `/dev/net/tun`.
pub fn create_tun() -> io::Result<File> {
    let file = open("/dev/net/tun")?;
    let mut request = TunRequest {
        name: [0; libc::IFNAMSIZ],
        flags: IFF_TUN | IFF_NO_PI,
        rest_of_union: [0; 22],
    };
    // SAFETY: `request` has the size and layout of `struct ifreq` and outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    checked(result).map(|()| file)
}

/// Creates a ppp link with a number of the kernel's choice in the calling thread's namespace.
///
/// It lives while the returned file. Needs `CAP_NET_ADMIN`; `ENOENT`, `ENXIO` or `ENODEV` mean that there is
/// no ppp.
pub fn create_ppp() -> io::Result<File> {
    let file = open("/dev/ppp")?;
    let mut unit: libc::c_int = -1;
    // SAFETY: the request reads and writes one int, which `unit` is, and which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), PPPIOCNEWUNIT, &raw mut unit) };
    checked(result).map(|()| file)
}

fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
