//! Notifications about changes of stages.
//!
//! They say that something may have changed, not what: [`super::stages`] reads it. The legacy form of
//! iptables, tracked connections and sysctls have no notification, so a reader also reads at intervals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};

use crate::connection::{NetlinkError, open_socket, receive_datagram};

/// `RTNLGRP_LINK`, `RTNLGRP_TC`, `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_RULE`.
const ROUTE_GROUPS: [u32; 4] = [1, 4, 8, 19];
/// `NFNLGRP_NFTABLES`.
const NETFILTER_GROUPS: [u32; 1] = [7];
/// `XFRMNLGRP_POLICY`.
const XFRM_GROUPS: [u32; 1] = [4];
const SOURCES: [(isize, &[u32]); 3] = [
    (NETLINK_ROUTE, &ROUTE_GROUPS),
    (NETLINK_NETFILTER, &NETFILTER_GROUPS),
    (NETLINK_XFRM, &XFRM_GROUPS),
];
const DATAGRAM_LIMIT_BYTES: usize = 128 * 1024;
/// Maximum of datagrams per call and socket, so that a storm of changes cannot block the caller.
const DATAGRAMS_PER_CALL: usize = 256;

/// A subscription to changes of the stages of one namespace. Needs `CAP_NET_ADMIN`.
///
/// Open it before the first call of [`super::stages`]: a change in between is then reported.
#[derive(Debug)]
pub struct StageWatch {
    sockets: Vec<Socket>,
    buffer: Vec<u8>,
}

impl StageWatch {
    /// Subscribes in the calling thread's namespace. Families that this kernel lacks have no stages
    /// either.
    ///
    /// # Errors
    /// The kernel refuses a subscription.
    pub fn open() -> Result<StageWatch, NetlinkError> {
        let mut sockets = Vec::new();
        for (protocol, groups) in SOURCES {
            match subscribe(protocol, groups) {
                Ok(socket) => sockets.push(socket),
                Err(error) if is_absent(&error) => {}
                Err(source) => {
                    return Err(NetlinkError::Socket {
                        operation: "watch what packets pass in the stack",
                        source,
                    });
                }
            }
        }
        Ok(StageWatch {
            sockets,
            buffer: Vec::with_capacity(DATAGRAM_LIMIT_BYTES),
        })
    }

    /// Descriptors that are readable after a change.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Takes the notifications so far, and returns whether there were any. Never waits.
    ///
    /// Lost notifications (`ENOBUFS`) and unreadable ones count as changes.
    pub fn take(&mut self) -> bool {
        let mut changed = false;
        for socket in &self.sockets {
            for _ in 0..DATAGRAMS_PER_CALL {
                match receive_datagram(socket, &mut self.buffer, libc::MSG_DONTWAIT) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(()) | Err(_) => changed = true,
                }
            }
        }
        changed
    }
}

fn subscribe(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let socket = open_socket(protocol)?;
    socket.set_non_blocking(true)?;
    for group in groups {
        match socket.add_membership(*group) {
            Err(error) if is_absent(&error) => {}
            result => result?,
        }
    }
    Ok(socket)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPROTONOSUPPORT | libc::EINVAL | libc::ENOENT)
    )
}
