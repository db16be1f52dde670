//! The link towards an address, and the check of senders (`rp_filter`).

use std::io;
use std::net::IpAddr;

use fairpath_units::IfIndex;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::{Connection, NetlinkError, acked};
use crate::message::{Request, attr_u32};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
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
