//! Second packets: sent by a raw socket, with a mark that keeps them from the queue.
//!
//! They take the path of packets of this host, with the addresses of the original: through `output` and
//! the later hooks. Only packets that leave can be duplicated, not packets for this host.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Context;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    setsockopt, socket, sockopt,
};

/// "fp" and a number that other programs are unlikely to use.
pub const MARK: u32 = 0x6670_0001;

/// Sockets for both families.
pub struct Again {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Again {
    /// Opens them; a host without IPv6 has one.
    ///
    /// # Errors
    /// Where raw sockets are not allowed.
    pub fn open() -> anyhow::Result<Again> {
        let v4 = open(AddressFamily::Inet).context(
            "open a raw socket for duplicates: needs root or CAP_NET_RAW and CAP_NET_ADMIN",
        )?;
        let v6 = open(AddressFamily::Inet6).ok();
        Ok(Again { v4, v6 })
    }

    /// Sends a packet, from its IP header on. False: it is no packet, or the kernel did not take it.
    pub fn send(&self, packet: &[u8]) -> bool {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => self.send_v4(packet).is_some(),
            Some(6) => self.send_v6(packet).is_some(),
            _ => false,
        }
    }

    fn send_v4(&self, packet: &[u8]) -> Option<()> {
        let to = Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?);
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        let sent = sendto(self.v4.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT);
        sent.ok().map(drop)
    }

    fn send_v6(&self, packet: &[u8]) -> Option<()> {
        let to = Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?);
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
        let socket = self.v6.as_ref()?.as_raw_fd();
        sendto(socket, packet, &to, MsgFlags::MSG_DONTWAIT)
            .ok()
            .map(drop)
    }
}

/// `IPPROTO_RAW`: the packet comes with its IP header.
fn open(family: AddressFamily) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::Mark, &MARK)?;
    Ok(socket)
}
