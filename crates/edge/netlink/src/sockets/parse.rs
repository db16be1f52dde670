//! One answer of `sock_diag`: `struct inet_diag_msg` and its attributes, as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{AF_INET, AF_INET6, BbrInfo, SocketId, TcpInfo, TcpSocket};
use crate::message::{attrs, text, u32_at};

const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_BBRINFO: u16 = 16;
/// Bytes of `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;

/// The socket that a message describes; none if it is too short or of another family.
pub(super) fn socket(message: &[u8]) -> Option<TcpSocket> {
    let head = message.get(..MESSAGE_BYTES)?;
    let family = head[0];
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let cookie = u64::from(u32_at(head, 44)?) | u64::from(u32_at(head, 48)?) << 32;
    let mut socket = TcpSocket {
        id: SocketId {
            local: SocketAddr::new(address(family, &head[8..24])?, port(4)),
            peer: SocketAddr::new(address(family, &head[24..40])?, port(6)),
            cookie,
        },
        state: head[1],
        inode: u32_at(head, 68)?,
        info: None,
        congestion: None,
        bbr: None,
    };
    for (kind, value) in attrs(&message[MESSAGE_BYTES..]) {
        match kind {
            INET_DIAG_INFO => socket.info = Some(TcpInfo::parse(value)),
            INET_DIAG_CONG => socket.congestion = Some(text(value)),
            INET_DIAG_BBRINFO => socket.bbr = BbrInfo::parse(value),
            _ => {}
        }
    }
    Some(socket)
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => {
            let bytes: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        }
        AF_INET6 => {
            let bytes: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// An address in the sixteen bytes that requests have for it.
pub(super) fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of 10.0.0.1:5201 -> 10.0.0.2:4000 with these attributes.
    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        bytes[0] = AF_INET;
        bytes[1] = 1;
        bytes[4..8].copy_from_slice(&[0x14, 0x51, 0x0f, 0xa0]);
        bytes[8..12].copy_from_slice(&[10, 0, 0, 1]);
        bytes[24..28].copy_from_slice(&[10, 0, 0, 2]);
        bytes[44..48].copy_from_slice(&9u32.to_ne_bytes());
        bytes[48..52].copy_from_slice(&1u32.to_ne_bytes());
        bytes[68..72].copy_from_slice(&4711u32.to_ne_bytes());
        for (kind, value) in attributes {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn a_message_is_read() {
        let read = socket(&message(&[(INET_DIAG_CONG, b"cubic\0")])).unwrap();
        assert_eq!(read.id.local, "10.0.0.1:5201".parse().unwrap());
        assert_eq!(read.id.peer, "10.0.0.2:4000".parse().unwrap());
        assert_eq!(read.id.cookie, 0x1_0000_0009);
        assert_eq!((read.state, read.inode), (1, 4711));
        assert_eq!(read.congestion.as_deref(), Some("cubic"));
        assert_eq!((read.info, read.bbr), (None, None));
    }

    #[test]
    fn bbr_structures_of_any_length_are_read() {
        let mut words = Vec::new();
        for word in [0x10u32, 1, 250, 739, 512] {
            words.extend_from_slice(&word.to_ne_bytes());
        }
        let read = socket(&message(&[(INET_DIAG_BBRINFO, &words)])).unwrap();
        let bbr = read.bbr.unwrap();
        assert_eq!(bbr.bw_bytes_per_second, 0x1_0000_0010);
        assert_eq!((bbr.min_rtt_us, bbr.info_bytes), (250, 20));
        words.extend_from_slice(&[0; 44]);
        let read = socket(&message(&[(INET_DIAG_BBRINFO, &words)])).unwrap();
        assert_eq!(read.bbr.unwrap().info_bytes, 64);
    }

    #[test]
    fn a_short_message_and_another_family_are_refused() {
        assert_eq!(socket(&message(&[])[..MESSAGE_BYTES - 1]), None);
        let mut other = message(&[]);
        other[0] = 1;
        assert_eq!(socket(&other), None);
    }
}
