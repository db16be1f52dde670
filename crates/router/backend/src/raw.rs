//! Raw sockets that send whole packets, with the addresses that the packets have.
//!
//! The packets take the path of packets of this host: through `output` and the later hooks.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Context;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
    SockaddrIn6, bind, connect, getsockname, getsockopt, sendmsg, setsockopt, socket, sockopt,
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

    /// The kernel's route knows the packet's addresses, as `ip rule` can select by them.
    fn send_v4(&self, packet: &[u8]) -> io::Result<()> {
        let address = |at: usize| {
            let octets = packet.get(at..).and_then(|rest| rest.first_chunk::<4>());
            octets.copied().map(Ipv4Addr::from)
        };
        let (from, to) = address(12)
            .zip(address(16))
            .ok_or(io::ErrorKind::InvalidData)?;
        let info = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr {
                s_addr: u32::from(from).to_be(),
            },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        let with = [ControlMessage::Ipv4PacketInfo(&info)];
        let slices = [IoSlice::new(packet)];
        let fd = self.v4.as_raw_fd();
        sendmsg(fd, &slices, &with, MsgFlags::MSG_DONTWAIT, Some(&to))?;
        Ok(())
    }

    fn send_v6(&self, packet: &[u8], interface: u32) -> io::Result<()> {
        let address = |at: usize| {
            let octets = packet.get(at..).and_then(|rest| rest.first_chunk::<16>());
            octets.copied().map(Ipv6Addr::from)
        };
        let (from, to) = address(8)
            .zip(address(24))
            .ok_or(io::ErrorKind::InvalidData)?;
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr {
                s6_addr: from.octets(),
            },
            ipi6_ifindex: 0,
        };
        // The port is that of the route: the protocol.
        let protocol = u16::from(packet[6]);
        let to = SockaddrIn6::from(scoped(to, protocol, interface));
        let socket = self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let with = [ControlMessage::Ipv6PacketInfo(&info)];
        let slices = [IoSlice::new(packet)];
        let fd = socket.as_raw_fd();
        sendmsg(fd, &slices, &with, MsgFlags::MSG_DONTWAIT, Some(&to))?;
        Ok(())
    }

    /// Source, and TTL or hop limit, of packets to an address. `from` is the source if it is
    /// known. An unspecified IPv4 source leaves it to the kernel. `input` is the interface, by name and
    /// index, of the packet that is answered.
    pub fn route(
        &self,
        to: IpAddr,
        from: Option<IpAddr>,
        input: (&str, u32),
    ) -> Option<(IpAddr, u8)> {
        match to {
            IpAddr::V4(to) => {
                let ttl = getsockopt(&self.v4, sockopt::Ipv4Ttl).ok()?;
                let from = from.or_else(|| inbound_address(input.0, to).map(IpAddr::V4));
                let from = from.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
                Some((from, u8::try_from(ttl).ok()?))
            }
            IpAddr::V6(to) => route_v6(to, from, input.1).ok(),
        }
    }
}

/// A connected socket has the route of its packets. It sends nothing.
fn route_v6(to: Ipv6Addr, from: Option<IpAddr>, interface: u32) -> io::Result<(IpAddr, u8)> {
    const ANY_PORT: u16 = 9;
    let socket = socket(
        AddressFamily::Inet6,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    if let Some(IpAddr::V6(from)) = from {
        setsockopt(&socket, sockopt::IpFreebind, &true)?;
        let from = SockaddrIn6::from(scoped(from, 0, interface));
        bind(socket.as_raw_fd(), &from)?;
    }
    let to = SockaddrIn6::from(scoped(to, ANY_PORT, interface));
    connect(socket.as_raw_fd(), &to)?;
    let from = getsockname::<SockaddrIn6>(socket.as_raw_fd())?.ip();
    let hops = getsockopt(&socket, sockopt::Ipv6Ttl)?;
    let hops = u8::try_from(hops).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((from.into(), hops))
}

/// The source of errors by `net.ipv4.icmp_errors_use_inbound_ifaddr`: an address of the interface where
/// the packet came in, in the network of `to` if there is one.
fn inbound_address(input: &str, to: Ipv4Addr) -> Option<Ipv4Addr> {
    let setting = "/proc/sys/net/ipv4/icmp_errors_use_inbound_ifaddr";
    if std::fs::read_to_string(setting).ok()?.trim() == "0" {
        return None;
    }
    let of_input = getifaddrs().ok()?.filter(|one| one.interface_name == input);
    let addresses: Vec<(Ipv4Addr, u32)> = of_input
        .filter_map(|one| {
            let mask = one.netmask?.as_sockaddr_in()?.ip();
            Some((one.address?.as_sockaddr_in()?.ip(), mask.to_bits()))
        })
        .collect();
    let near = addresses
        .iter()
        .find(|(address, mask)| (address.to_bits() ^ to.to_bits()) & mask == 0);
    near.or(addresses.first()).map(|(address, _)| *address)
}

fn scoped(address: Ipv6Addr, port: u16, interface: u32) -> SocketAddrV6 {
    let scope = if address.is_unicast_link_local() {
        interface
    } else {
        0
    };
    SocketAddrV6::new(address, port, 0, scope)
}

/// Packets may have sources that are not addresses of this host.
#[derive(Clone, Copy)]
struct Freebind6;

nix::setsockopt_impl!(
    Freebind6,
    libc::IPPROTO_IPV6,
    libc::IPV6_FREEBIND,
    bool,
    sockopt::SetBool
);

/// `IPPROTO_RAW`: the packet comes with its IP header.
fn open(family: AddressFamily, mark: Option<u32>) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::Broadcast, &true)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&socket, Freebind6, &true)?;
    }
    if let Some(mark) = mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    Ok(socket)
}
