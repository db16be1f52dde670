//! Header fields of the receive hash, by kind of flow (`ETHTOOL_GRXFH`).
//!
//! ethtool's netlink family has them only since Linux 6.17, so this is the older ioctl. Read only; needs
//! no privilege.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GRXFH: u32 = 0x29;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// The fields by their bit (`RXH_*` in `linux/ethtool.h`).
const FIELDS: [(u32, &str); 7] = [
    (1, "dst_mac"),
    (2, "vlan"),
    (3, "protocol"),
    (4, "src_address"),
    (5, "dst_address"),
    (6, "src_port"),
    (7, "dst_port"),
];

/// A kind of flow whose hash has separate settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
}

impl FlowKind {
    /// All of them.
    pub const ALL: [FlowKind; 4] = [
        FlowKind::Tcp4,
        FlowKind::Udp4,
        FlowKind::Tcp6,
        FlowKind::Udp6,
    ];

    /// The name: `tcp4`, as ethtool(8) writes it.
    pub fn name(self) -> &'static str {
        match self {
            FlowKind::Tcp4 => "tcp4",
            FlowKind::Udp4 => "udp4",
            FlowKind::Tcp6 => "tcp6",
            FlowKind::Udp6 => "udp6",
        }
    }

    /// `TCP_V4_FLOW` and so on.
    fn number(self) -> u32 {
        match self {
            FlowKind::Tcp4 => 1,
            FlowKind::Udp4 => 2,
            FlowKind::Tcp6 => 5,
            FlowKind::Udp6 => 6,
        }
    }
}

/// `struct ethtool_rxnfc`; this command uses only the first three fields.
#[repr(C)]
struct FlowRequest {
    command: u32,
    flow_kind: u32,
    fields: u64,
    rules: [u64; 22],
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut FlowRequest,
    rest_of_union: [u8; 16],
}

/// Queries of receive hashes in the calling thread's namespace.
#[derive(Debug)]
pub struct FlowHash {
    socket: OwnedFd,
}

impl FlowHash {
    /// Opens a socket.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> io::Result<FlowHash> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        Ok(FlowHash { socket })
    }

    /// The fields of the hash of `kind`: none if the driver does not hash it.
    ///
    /// # Errors
    /// The driver does not support the request (`EOPNOTSUPP`), or there is no such interface (`ENODEV`).
    pub fn fields(&self, interface: &str, kind: FlowKind) -> io::Result<Vec<&'static str>> {
        let mut flow = FlowRequest {
            command: ETHTOOL_GRXFH,
            flow_kind: kind.number(),
            fields: 0,
            rules: [0; 22],
        };
        let mut request = InterfaceRequest {
            name: name(interface)?,
            data: &raw mut flow,
            rest_of_union: [0; 16],
        };
        // SAFETY: both structures have the size and layout of the kernel's, and outlive the call.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
            0.. => Ok(field_names(flow.fields)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// With at least one terminating zero.
fn name(interface: &str) -> io::Result<[u8; libc::IFNAMSIZ]> {
    let mut name = [0; libc::IFNAMSIZ];
    let longest = name.len() - 1;
    let bytes = interface.as_bytes();
    if bytes.len() > longest {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name[..bytes.len()].copy_from_slice(bytes);
    Ok(name)
}

fn field_names(bits: u64) -> Vec<&'static str> {
    let set = FIELDS.iter().filter(|(bit, _)| bits & 1 << bit != 0);
    set.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_kernels_layout() {
        assert_eq!(size_of::<FlowRequest>(), 192);
        assert_eq!(std::mem::offset_of!(FlowRequest, fields), 8);
        assert_eq!(
            size_of::<InterfaceRequest>().max(size_of::<libc::ifreq>()),
            size_of::<InterfaceRequest>()
        );
    }

    #[test]
    fn bits_are_named_as_header_fields() {
        assert_eq!(field_names(0x30), ["src_address", "dst_address"]);
        assert_eq!(field_names(0xf0).len(), 4);
        assert!(field_names(0).is_empty());
    }

    #[test]
    fn unknown_interfaces_and_drivers_are_refused() {
        let hash = FlowHash::open().unwrap();
        let refused = |name| {
            hash.fields(name, FlowKind::Tcp4)
                .unwrap_err()
                .raw_os_error()
        };
        assert_eq!(refused("fpf-none"), Some(libc::ENODEV));
        assert_eq!(refused("a-name-of-16-byt"), Some(libc::ENODEV));
        assert_eq!(refused("lo"), Some(libc::EOPNOTSUPP));
    }
}
