//! TCP sockets of a namespace from `sock_diag`: addresses, state, `tcp_info`, congestion control.
//!
//! | task | method | cost |
//! |---|---|---|
//! | list all | [`SocketDiag::dump`] | a walk over the machine's whole hash table of connections |
//! | read one | [`SocketDiag::get`] | one look-up in it |
//!
//! So a sampler lists once and then reads each. Only connections: listening sockets are excluded.

mod parse;
mod tcp_info;

use std::net::SocketAddr;

use netlink_packet_core::NLM_F_REQUEST;

use crate::connection::{Connection, NetlinkError, acked, dumped};
use crate::message::Request;
use parse::{address_bytes, socket};

pub use tcp_info::{BbrInfo, TcpInfo};

const NETLINK_SOCK_DIAG: isize = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Bits of `idiag_ext`: one less than the attribute's number.
const EXT_INFO: u8 = 1 << 1;
/// Requests Vegas, DCTCP and BBR.
const EXT_VEGASINFO: u8 = 1 << 2;
const EXT_CONG: u8 = 1 << 3;
/// Established, and closing in either direction; neither listening nor half-open nor in time-wait.
const CONNECTED_STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// "Any cookie".
const NO_COOKIE: u64 = u64::MAX;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;

/// The identity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// Own address; an IPv4 connection of an IPv6 socket keeps its mapped address, which [`SocketDiag::get`] needs.
    pub local: SocketAddr,
    /// The remote address.
    pub peer: SocketAddr,
    /// The socket cookie, as in BPF; unique until the machine restarts.
    pub cookie: u64,
}

/// The state of a connection at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSocket {
    /// The connection.
    pub id: SocketId,
    /// TCP's state, as the kernel numbers it (1: established).
    pub state: u8,
    /// Inode, as `/proc/PID/fd` shows it; 0 when no process holds the socket any more.
    pub inode: u32,
    /// `struct tcp_info`, as far as this kernel provides it.
    pub info: Option<TcpInfo>,
    /// The congestion control that it uses.
    pub congestion: Option<String>,
    /// BBR's state, if it uses BBR.
    pub bbr: Option<BbrInfo>,
}

/// A socket for requests about TCP sockets in the namespace in which it was opened.
#[derive(Debug)]
pub struct SocketDiag {
    connection: Connection,
}

impl SocketDiag {
    /// Opens it in the namespace of the calling thread, to which all requests apply. Needs no
    /// privilege.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn open() -> Result<SocketDiag, NetlinkError> {
        Ok(SocketDiag {
            connection: Connection::open(NETLINK_SOCK_DIAG)?,
        })
    }

    /// All connections, IPv4 first.
    ///
    /// The kernel walks through its table of the whole machine twice: about a millisecond with much
    /// memory.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn dump(&mut self) -> Result<Vec<TcpSocket>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let header = header(family, CONNECTED_STATES, None);
            let request = Request::new(SOCK_DIAG_BY_FAMILY, dumped(), &header);
            let sockets = self.connection.dump("list TCP sockets", &request, |m| {
                (m.kind == SOCK_DIAG_BY_FAMILY).then(|| socket(m.payload))?
            })?;
            found.extend(sockets);
        }
        Ok(found)
    }

    /// This connection now; none if it ended (or another one has its addresses).
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn get(&mut self, id: &SocketId) -> Result<Option<TcpSocket>, NetlinkError> {
        let family = if id.local.is_ipv4() {
            AF_INET
        } else {
            AF_INET6
        };
        let header = header(family, u32::MAX, Some(id));
        // No dump: the answer is one message, and the acknowledgement ends it.
        let request = Request::new(SOCK_DIAG_BY_FAMILY, acked(NLM_F_REQUEST), &header);
        let mut found = None;
        let requested = self.connection.query("read a TCP socket", request, |m| {
            if m.kind == SOCK_DIAG_BY_FAMILY {
                found = socket(m.payload);
            }
        });
        match requested {
            Ok(()) => Ok(found),
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ESTALE)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// `struct inet_diag_req_v2`: ports and addresses in network order, the rest in the host's.
fn header(family: u8, states: u32, id: Option<&SocketId>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    let extensions = EXT_INFO | EXT_VEGASINFO | EXT_CONG;
    bytes.extend_from_slice(&[family, libc::IPPROTO_TCP as u8, extensions, 0]);
    bytes.extend_from_slice(&states.to_ne_bytes());
    match id {
        Some(id) => {
            bytes.extend_from_slice(&id.local.port().to_be_bytes());
            bytes.extend_from_slice(&id.peer.port().to_be_bytes());
            bytes.extend_from_slice(&address_bytes(id.local.ip()));
            bytes.extend_from_slice(&address_bytes(id.peer.ip()));
        }
        None => bytes.resize(bytes.len() + 4 + 32, 0),
    }
    // Any interface.
    bytes.extend_from_slice(&[0; 4]);
    let cookie = id.map_or(NO_COOKIE, |id| id.cookie);
    bytes.extend_from_slice(&(cookie as u32).to_ne_bytes());
    bytes.extend_from_slice(&((cookie >> 32) as u32).to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_request_has_the_length_the_kernel_expects() {
        assert_eq!(header(AF_INET, 0, None).len(), REQUEST_BYTES);
        let id = SocketId {
            local: "10.0.0.1:80".parse().unwrap(),
            peer: "10.0.0.2:4000".parse().unwrap(),
            cookie: 0x1_0000_0002,
        };
        let bytes = header(AF_INET, 0, Some(&id));
        assert_eq!(bytes.len(), REQUEST_BYTES);
        assert_eq!(bytes[8..12], [0, 80, 15, 160]);
        assert_eq!(bytes[48..], [2, 0, 0, 0, 1, 0, 0, 0]);
    }

    fn exchange(listen: &str) {
        let listener = TcpListener::bind(listen).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();

        let (local, peer) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let mut diag = SocketDiag::open().unwrap();
        let all = diag.dump().unwrap();
        let listed = all
            .iter()
            .find(|s| s.id.local == local && s.id.peer == peer)
            .expect("our own connection is there");
        assert_eq!(listed.state, 1);
        let info = listed.info.as_ref().unwrap();
        assert!(info.snd_mss > 500 && info.snd_cwnd > 0, "{info:?}");
        assert_eq!(info.bytes_sent, 5000);
        assert!(!listed.congestion.as_ref().unwrap().is_empty());

        let again = diag.get(&listed.id).unwrap().expect("still there");
        assert_eq!((again.id, again.inode), (listed.id, listed.inode));
        let stranger = SocketId {
            cookie: listed.id.cookie ^ 1 << 40,
            ..listed.id
        };
        assert_eq!(diag.get(&stranger).unwrap(), None);
        drop((near, far, listener));
    }

    #[test]
    fn a_connection_is_listed_and_found_by_name() {
        exchange("127.0.0.1:0");
        exchange("[::1]:0");
    }
}
