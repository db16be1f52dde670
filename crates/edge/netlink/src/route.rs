//! The link towards an address, the check of senders (`rp_filter`), and routes that limit packets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_units::IfIndex;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::{Connection, NetlinkError, acked, dumped};
use crate::message::{Request, attr, attr_u32, u16_at};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_ENCAP_TYPE: u16 = 21;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
/// An entry of a cache, not a route.
const RTM_F_CLONED: u32 = 0x200;
/// Types of routes whose packets this host receives: local, broadcast.
const TO_HOST: [u8; 2] = [2, 3];
const TABLE_LOCAL: u32 = 255;
/// `struct rtmsg`.
const ROUTE_LEN: usize = 12;

/// The value of `rp_filter` that applies to IPv4 packets from an interface, in the calling thread's
/// namespace: 0 off, 1 strict, 2 loose. The kernel uses the higher one of `all` and the interface.
///
/// # Errors
/// The files cannot be read, or the kernel has no IPv4.
pub fn rp_filter(interface: &str) -> io::Result<u32> {
    let value = |name: &str| -> io::Result<u32> {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let text = std::fs::read_to_string(path)?;
        text.trim().parse().map_err(io::Error::other)
    };
    Ok(value("all")?.max(value(interface)?))
}

/// The link by which packets of this host to `to` leave, in the calling thread's namespace. `None`
/// if there is no route, or one that refuses.
///
/// # Errors
/// Other errors of the kernel.
pub fn link_towards(to: IpAddr) -> Result<Option<IfIndex>, NetlinkError> {
    let mut connection = Connection::open(NETLINK_ROUTE)?;
    let (family, bits, bytes) = match to {
        IpAddr::V4(v4) => (libc::AF_INET, 32, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, 128, v6.octets().to_vec()),
    };
    let mut header = [0; ROUTE_LEN];
    header[..2].copy_from_slice(&[family as u8, bits]);
    let request = Request::new(RTM_GETROUTE, acked(0), &header).attr(RTA_DST, &bytes);
    let mut found = None;
    let answer = connection.query("look up route", request, |message| {
        if let (RTM_NEWROUTE, Some(attrs)) = (message.kind, message.payload.get(ROUTE_LEN..)) {
            found = attr_u32(attrs, RTA_OIF).map(IfIndex);
        }
    });
    const REFUSED: [i32; 5] = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
        libc::EAFNOSUPPORT,
    ];
    match answer {
        Ok(()) => Ok(found),
        Err(error) if error.errno().is_some_and(|errno| REFUSED.contains(&errno)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A route that limits the packets that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitingRoute {
    /// Its destination, as `ip route` prints it, and its table.
    pub name: String,
    /// Its interface, if it has one.
    pub link: Option<IfIndex>,
    /// Its MTU in bytes, if it is not locked.
    pub mtu: Option<u32>,
    /// The kind of tunnel whose headers it adds (`LWTUNNEL_ENCAP_*`).
    pub tunnel: Option<u16>,
}

/// Routes of a family with an MTU that is not locked, or with a tunnel, in the calling thread's namespace.
/// O(routes).
///
/// # Errors
/// The kernel does not list them.
pub fn limiting_routes(is_ipv4: bool) -> Result<Vec<LimitingRoute>, NetlinkError> {
    routes(is_ipv4, limiting)
}

/// IPv4 routes to this host that are not in table local, as `ip route` prints their destinations, with their
/// tables, in the calling thread's namespace. Routes of VRFs are some. O(routes).
///
/// # Errors
/// The kernel does not list them.
pub fn local_routes() -> Result<Vec<String>, NetlinkError> {
    routes(true, |payload| {
        let attributes = payload.get(ROUTE_LEN..)?;
        let kind = payload[7];
        let table = table_of(payload, attributes);
        let is_elsewhere = TO_HOST.contains(&kind) && table != TABLE_LOCAL;
        is_elsewhere.then(|| name_of(payload, attributes, table))?
    })
}

/// Of all routes of a family, what is kept of `struct rtmsg` and its attributes.
fn routes<T>(is_ipv4: bool, keep: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, NetlinkError> {
    let mut header = [0; ROUTE_LEN];
    let family = if is_ipv4 {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    header[0] = family as u8;
    let mut connection = Connection::open(NETLINK_ROUTE)?;
    let request = Request::new(RTM_GETROUTE, dumped(), &header);
    connection.dump("list routes", &request, |message| {
        // Without IPv6, the kernel answers with the routes of all families.
        let is_route = message.kind == RTM_NEWROUTE && message.payload.first() == Some(&header[0]);
        is_route.then(|| keep(message.payload))?
    })
}

fn limiting(payload: &[u8]) -> Option<LimitingRoute> {
    let attributes = payload.get(ROUTE_LEN..)?;
    let flags = u32::from_ne_bytes(payload[8..12].try_into().ok()?);
    let metrics = attr(attributes, RTA_METRICS).unwrap_or_default();
    let locked = attr_u32(metrics, RTAX_LOCK).unwrap_or(0) & 1 << RTAX_MTU != 0;
    let mtu = attr_u32(metrics, RTAX_MTU).filter(|_| !locked);
    let of_paths = attr(attributes, RTA_MULTIPATH).and_then(tunnel_of_paths);
    let tunnel = tunnel_of(attributes).or(of_paths);
    if mtu.is_none() && tunnel.is_none() || flags & RTM_F_CLONED != 0 {
        return None;
    }
    Some(LimitingRoute {
        name: name_of(payload, attributes, table_of(payload, attributes))?,
        link: attr_u32(attributes, RTA_OIF).map(IfIndex),
        mtu,
        tunnel,
    })
}

fn table_of(payload: &[u8], attributes: &[u8]) -> u32 {
    attr_u32(attributes, RTA_TABLE).unwrap_or(u32::from(payload[4]))
}

/// Its destination and its table.
fn name_of(payload: &[u8], attributes: &[u8], table: u32) -> Option<String> {
    let destination = match attr(attributes, RTA_DST) {
        Some(bytes) => format!("{}/{}", address(bytes)?, payload[1]),
        None => "default".to_owned(),
    };
    Some(format!("{destination} table {table}"))
}

fn tunnel_of(attributes: &[u8]) -> Option<u16> {
    attr(attributes, RTA_ENCAP_TYPE).and_then(|value| u16_at(value, 0))
}

/// The first tunnel of several paths: each is a `struct rtnexthop`, then its attributes.
fn tunnel_of_paths(mut paths: &[u8]) -> Option<u16> {
    const HEADER: usize = 8;
    loop {
        let bytes = usize::from(u16_at(paths, 0)?);
        let found = tunnel_of(paths.get(HEADER..bytes)?);
        if found.is_some() {
            return found;
        }
        paths = paths.get(bytes.next_multiple_of(4)..)?;
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(|octets| Ipv4Addr::from(octets).into());
    let v6 = <[u8; 16]>::try_from(bytes).map(|octets| Ipv6Addr::from(octets).into());
    v6.or_else(|_| v4()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Links;
    use crate::testing::in_scratch_namespace;

    #[test]
    fn route_to_loopback_is_loopback_or_none() {
        in_scratch_namespace("route_to_loopback_is_loopback_or_none", || {
            let mut links = Links::open().unwrap();
            let lo = links.by_name("lo").unwrap().unwrap().ifindex;
            links.set_up(lo, true).unwrap();
            let to = |text: &str| link_towards(text.parse().unwrap()).unwrap();
            assert_eq!(to("127.0.0.1"), Some(lo));
            assert_eq!(to("192.0.2.1"), None);
            assert_eq!(to("2001:db8::1"), None);
        });
    }
}
