//! The identity of a network namespace.

use std::io;
use std::net::UdpSocket;

use nix::sys::socket::getsockopt;
// The macro names all three.
use nix::{getsockopt_impl, libc, sockopt_impl};

sockopt_impl!(
    /// The number of a network namespace.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

/// The number of the calling thread's network namespace, which no later one gets. Numbers of inodes are
/// given again.
///
/// # Errors
/// The kernel refuses a socket.
pub fn netns_cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    Ok(getsockopt(&socket, NetnsCookie)?)
}
