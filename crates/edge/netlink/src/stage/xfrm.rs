//! IPsec policies (XFRM) of forwarded packets, and the default policy.

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_sys::protocols::NETLINK_XFRM;

use super::{Stage, StageError, StageKind, absent};
use crate::connection::{Connection, NetlinkError, acked, dumped};
use crate::message::Request;

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// Offsets in `struct xfrm_userpolicy_info`, which begins with a `struct xfrm_selector`.
mod at {
    pub const SOURCE: usize = 16;
    pub const FAMILY: usize = 40;
    pub const PREFIXES: usize = 42;
    pub const DIRECTION: usize = 160;
}
/// Directions that a forwarded packet meets, by number: 0 is `in`, for packets to this host.
const DIRECTIONS: [(u8, &str); 2] = [(1, "out"), (2, "fwd")];

/// Policies of forwarded packets, in the words of `ip xfrm policy`.
pub(super) fn policies() -> Result<Vec<Stage>, StageError> {
    let mut names = absent(listed())?;
    names.extend(absent(defaults())?);
    let stage = |name| Stage {
        kind: StageKind::Xfrm,
        name,
        interface: None,
    };
    Ok(names.into_iter().map(stage).collect())
}

fn listed() -> Result<Vec<String>, NetlinkError> {
    let mut connection = Connection::open(NETLINK_XFRM)?;
    let request = Request::new(XFRM_MSG_GETPOLICY, dumped(), &[]);
    connection.dump("list IPsec policies", &request, |message| {
        (message.kind == XFRM_MSG_NEWPOLICY).then(|| policy(message.payload))?
    })
}

/// `None` for a policy of packets to this host, or of one socket.
fn policy(payload: &[u8]) -> Option<String> {
    let number = *payload.get(at::DIRECTION)?;
    let (_, direction) = DIRECTIONS.iter().find(|(known, _)| *known == number)?;
    let is_v4 = payload[at::FAMILY] == libc::AF_INET as u8;
    let address = |from: usize| -> Option<String> {
        let octets: [u8; 16] = payload.get(from..from + 16)?.try_into().ok()?;
        Some(match is_v4 {
            true => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).to_string(),
            false => Ipv6Addr::from(octets).to_string(),
        })
    };
    let [to_bits, from_bits] = [payload[at::PREFIXES], payload[at::PREFIXES + 1]];
    Some(format!(
        "ip xfrm policy src {}/{from_bits} dst {}/{to_bits} dir {direction}",
        address(at::SOURCE)?,
        address(0)?
    ))
}

/// Directions that drop packets without a policy (Linux 5.15).
fn defaults() -> Result<Vec<String>, NetlinkError> {
    let mut connection = Connection::open(NETLINK_XFRM)?;
    let request = Request::new(XFRM_MSG_GETDEFAULT, acked(0), &[0; 4]);
    let mut blocked = Vec::new();
    connection.query("read default IPsec policy", request, |message| {
        // In, forward, out: not the order of the numbers.
        for (at, direction) in [(1, "fwd"), (2, "out")] {
            if message.payload.get(at) == Some(&XFRM_USERPOLICY_BLOCK) {
                blocked.push(format!("ip xfrm policy setdefault {direction} block"));
            }
        }
    })?;
    Ok(blocked)
}
