//! Raw sockets that send whole packets, with the addresses that the packets have.
//!
//! The packets take the path of packets of this host: through `output` and the later hooks.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Context;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    setsockopt, socket, sockopt,
};
use rustix::net::sockopt::socket_cookie;

/// Sockets for both families.
#[derive(Debug)]
pub struct RawSockets {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl RawSockets {
    /// Opens them, with a mark for their packets; a host without IPv6 has one.
    ///
    /// # Errors
    /// Where raw sockets are not allowed.
    pub fn open(mark: Option<u32>) -> anyhow::Result<RawSockets> {
        let v4 = open(AddressFamily::Inet, mark)
            .context("open a raw socket: needs root or CAP_NET_RAW and CAP_NET_ADMIN")?;
        let v6 = open(AddressFamily::Inet6, mark).ok();
        Ok(RawSockets { v4, v6 })
    }

    /// The numbers by which the kernel knows the sockets: IPv4, IPv6. 0: there is none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn cookies(&self) -> io::Result<[u64; 2]> {
        let v6 = self.v6.as_ref().map_or(Ok(0), socket_cookie)?;
        Ok([socket_cookie(&self.v4)?, v6])
    }

    /// Sends a packet, from its IP header on. `interface` is the index for a link-local address.
    ///
    /// # Errors
    /// It is no packet, or the kernel did not take it.
    pub fn send(&self, packet: &[u8], interface: u32) -> io::Result<()> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => self.send_v4(packet),
            Some(6) => self.send_v6(packet, interface),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn send_v4(&self, packet: &[u8]) -> io::Result<()> {
        let to = packet.get(16..).and_then(|rest| rest.first_chunk::<4>());
        let to = Ipv4Addr::from(*to.ok_or(io::ErrorKind::InvalidData)?);
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        sendto(self.v4.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    fn send_v6(&self, packet: &[u8], interface: u32) -> io::Result<()> {
        let to = packet.get(24..).and_then(|rest| rest.first_chunk::<16>());
        let to = Ipv6Addr::from(*to.ok_or(io::ErrorKind::InvalidData)?);
        let to = SockaddrIn6::from(scoped(to, 0, interface));
        let socket = self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        sendto(socket.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

/// The address that the kernel chooses for packets to this one.
pub fn source_to(to: Ipv6Addr, interface: u32) -> Option<Ipv6Addr> {
    // Sends nothing.
    const ANY_PORT: u16 = 9;
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(scoped(to, ANY_PORT, interface)).ok()?;
    match socket.local_addr().ok()? {
        std::net::SocketAddr::V6(address) => Some(*address.ip()),
        std::net::SocketAddr::V4(_) => None,
    }
}

fn scoped(address: Ipv6Addr, port: u16, interface: u32) -> SocketAddrV6 {
    let scope = if address.is_unicast_link_local() {
        interface
    } else {
        0
    };
    SocketAddrV6::new(address, port, 0, scope)
}

/// `IPPROTO_RAW`: the packet comes with its IP header.
fn open(family: AddressFamily, mark: Option<u32>) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::Broadcast, &true)?;
    if let Some(mark) = mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    Ok(socket)
}
