//! Live sockets of another process change their congestion control.
//!
//! `pidfd_getfd` lends us the process's own socket; `setsockopt` on it is as if the process had called it. So any
//! program can be switched, iperf3 too, which knows nothing of it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockaddrLike, SockaddrStorage, getpeername, getsockname, getsockopt, setsockopt,
    sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// A congestion control could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The process is not there, or not ours.
    #[error(
        "switch the sockets of process {pid}: {operation}; needs CAP_SYS_PTRACE or the same user"
    )]
    Process {
        /// Which process.
        pid: u32,
        /// The operation.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It has no TCP connection that was meant.
    #[error(
        "switch the sockets of process {pid}: it has no such TCP connection (yet, or any more)"
    )]
    NoSocket {
        /// Which process.
        pid: u32,
    },
    /// The kernel refused.
    #[error(
        "switch {local} -> {peer} of process {pid} from \"{was}\" to \"{wanted}\": {}", remedy(.source)
    )]
    Refused {
        /// Which process.
        pid: u32,
        /// Its own address.
        local: SocketAddr,
        /// The other's.
        peer: SocketAddr,
        /// The congestion control in use.
        was: String,
        /// The wanted congestion control.
        wanted: String,
        /// Why not.
        source: Errno,
    },
}

fn remedy(errno: &Errno) -> String {
    match errno {
        Errno::ENOENT => {
            "this kernel does not have it (tcp_available_congestion_control)".to_owned()
        }
        Errno::EPERM => {
            "needs CAP_NET_ADMIN, or its name in tcp_allowed_congestion_control".to_owned()
        }
        errno => format!("{errno}; see tcp_available_congestion_control"),
    }
}

/// A socket that was switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switched {
    /// Its own address, canonical.
    pub local: SocketAddr,
    /// The other's, canonical.
    pub peer: SocketAddr,
    /// The previous congestion control.
    pub was: String,
    /// The congestion control that the kernel reports now.
    pub now: String,
}

/// Gives those TCP connections of process `pid` another congestion control for which `choose` (own address, the
/// other's) says so. Data under way stays; the new algorithm begins with the window that it finds.
///
/// # Errors
/// [`SwitchError`]; sockets before the one that was refused have been switched.
pub fn switch_congestion(
    pid: u32,
    wanted: &str,
    mut choose: impl FnMut(SocketAddr, SocketAddr) -> bool,
) -> Result<Vec<Switched>, SwitchError> {
    let failed = |operation| {
        move |source: io::Error| SwitchError::Process {
            pid,
            operation,
            source,
        }
    };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| failed("find it")(io::ErrorKind::InvalidInput.into()))?;
    let process = pidfd_open(process, PidfdFlags::empty())
        .map_err(|errno| failed("open it")(errno.into()))?;
    let mut switched = Vec::new();
    for fd in socket_fds(pid).map_err(failed("list its descriptors"))? {
        let socket = match pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) {
            Ok(socket) => socket,
            // Closed since the list was read.
            Err(rustix::io::Errno::BADF) => continue,
            Err(errno) => return Err(failed("borrow a socket")(errno.into())),
        };
        if let Some((local, peer)) = connection(&socket)
            && choose(local, peer)
        {
            switched.push(switch(pid, &socket, local, peer, wanted)?);
        }
    }
    match switched.is_empty() {
        true => Err(SwitchError::NoSocket { pid }),
        false => Ok(switched),
    }
}

/// Descriptors of a process that are sockets of any kind.
fn socket_fds(pid: u32) -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(Result::ok);
    Ok(entries
        .filter(|entry| {
            fs::read_link(entry.path())
                .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        })
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .collect())
}

/// Both ends of a connected TCP socket.
fn connection(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    // Only TCP sockets have one; the others say ENOPROTOOPT.
    getsockopt(socket, sockopt::TcpCongestion).ok()?;
    let local = getsockname::<SockaddrStorage>(socket.as_raw_fd()).ok()?;
    let peer = getpeername::<SockaddrStorage>(socket.as_raw_fd()).ok()?;
    Some((address(&local)?, address(&peer)?))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let address: SocketAddr = match storage.family()? {
        AddressFamily::Inet => std::net::SocketAddrV4::from(*storage.as_sockaddr_in()?).into(),
        AddressFamily::Inet6 => std::net::SocketAddrV6::from(*storage.as_sockaddr_in6()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn switch(
    pid: u32,
    socket: &OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
    wanted: &str,
) -> Result<Switched, SwitchError> {
    let was = in_use(socket);
    let set = setsockopt(socket, sockopt::TcpCongestion, &OsString::from(wanted));
    match set {
        Ok(()) => Ok(Switched {
            local,
            peer,
            was,
            now: in_use(socket),
        }),
        Err(source) => Err(SwitchError::Refused {
            pid,
            local,
            peer,
            was,
            wanted: wanted.to_owned(),
            source,
        }),
    }
}

/// The congestion control of a socket, without the padding that the kernel adds.
fn in_use(socket: &OwnedFd) -> String {
    let name = getsockopt(socket, sockopt::TcpCongestion).unwrap_or_default();
    let name = name.to_string_lossy();
    name.trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn own_sockets_are_switched_and_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = near.local_addr().unwrap();
        let own = std::process::id();
        let switched = switch_congestion(own, "reno", |own, _| own == local).unwrap();
        assert_eq!(switched.len(), 1);
        assert_eq!(
            (switched[0].local, switched[0].now.as_str()),
            (local, "reno")
        );

        let refused = switch_congestion(own, "no_such_cc", |own, _| own == local).unwrap_err();
        assert!(
            matches!(
                refused,
                SwitchError::Refused {
                    source: Errno::ENOENT,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(
            refused
                .to_string()
                .contains("from \"reno\" to \"no_such_cc\""),
            "{refused}"
        );
        let nobody = switch_congestion(own, "reno", |_, _| false).unwrap_err();
        assert!(matches!(nobody, SwitchError::NoSocket { .. }), "{nobody}");
        let removed = switch_congestion(i32::MAX as u32, "reno", |_, _| true).unwrap_err();
        assert!(matches!(removed, SwitchError::Process { .. }), "{removed}");
    }
}
