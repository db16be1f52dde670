//! A packet as rules see it: its bytes, and facts that are not in them.

use crate::tree::Family;

/// Everything about a packet that a rule can match.
///
/// Facts that are unknown (`None`) are never guessed: an answer that depends on one is
/// [`Verdict::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The protocol family.
    pub family: Family,
    /// Bytes from the link-layer header (or, without one, from the network header). Rules of bridges
    /// see only packets with one.
    pub bytes: &'a [u8],
    /// Offset of the network header: of IPv4, IPv6 or ARP.
    pub network: usize,
    /// Length from the network header on the wire, in bytes; more than the bytes if these were cut.
    pub length: usize,
    /// Facts that are not in the bytes.
    pub facts: Facts,
}

impl<'a> Packet<'a> {
    /// The bytes from the network header on.
    pub fn network_bytes(&self) -> &'a [u8] {
        self.bytes.get(self.network..).unwrap_or_default()
    }
}

/// A name of an interface, as bytes.
pub type InterfaceName = Box<[u8]>;

/// Facts that are not in a packet's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Names of interfaces; an empty name: the packet has none here.
    pub input: Option<InterfaceName>,
    /// Output interface.
    pub output: Option<InterfaceName>,
    /// Ports of a bridge below these interfaces; an empty name: not through a bridge.
    pub physical_input: Option<InterfaceName>,
    /// Port of the bridge at output.
    pub physical_output: Option<InterfaceName>,
    /// Bridges: the bridge devices.
    pub logical_input: Option<InterfaceName>,
    /// Bridge at output.
    pub logical_output: Option<InterfaceName>,
    /// The packet mark. Known: packets begin without one.
    pub mark: u32,
    /// The connection.
    pub connection: Option<Connection>,
    /// Connections that connlimit counts, this one included.
    pub connections: Option<u16>,
    /// Bits of [`crate::spec`]'s address types: 1 << RTN number (2 unicast, 4 local, 8 broadcast ...).
    pub source_type: Option<u16>,
    /// Type of the destination address.
    pub destination_type: Option<u16>,
    /// 0 to this host, 1 broadcast, 2 multicast, 3 to another host.
    pub packet_type: Option<u8>,
    /// User and group of the local socket; `Some(None)`: no socket.
    pub owner: Option<Option<Owner>>,
    /// IP: true if there is no Ethernet header, as on `lo` and in tunnels, and not just none in the bytes.
    pub no_link: bool,
    /// Reverse path: true if the route back leads through the input interface.
    pub reverse_path: Option<bool>,
    /// The MTU of the path: the smaller one of the packet's route and of the route back. Not 0.
    pub path_mtu: Option<u32>,
    /// Nanoseconds of a clock that does not jump: limits, recent lists.
    pub now: u64,
    /// Seconds since 1970-01-01, UTC; and the offset of local time.
    pub date: Option<(u64, i32)>,
    /// 32 random bits for `statistic --mode random`, made by the caller.
    pub random: Option<u32>,
}

impl Facts {
    /// Every fact known, with a usual value: a new connection from `eth0` to `docker0`. For tests
    /// and fuzzing.
    pub fn usual() -> Self {
        let name = |name: &[u8]| Some(name.into());
        Self {
            input: name(b"eth0"),
            output: name(b"docker0"),
            physical_input: name(b"eth0"),
            physical_output: name(b""),
            logical_input: name(b""),
            logical_output: name(b""),
            mark: 0,
            connection: Some(Connection {
                state: 2,
                ..Connection::default()
            }),
            connections: Some(1),
            source_type: Some(2),
            destination_type: Some(4),
            packet_type: Some(0),
            owner: Some(None),
            no_link: false,
            reverse_path: Some(true),
            path_mtu: Some(1500),
            now: 0,
            date: Some((1_700_000_000, 3600)),
            random: Some(7),
        }
    }
}

/// The state of a packet's connection, and what is known of the rest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// One bit of `--ctstate`: 1 INVALID, 2 NEW, 4 RELATED, 8 ESTABLISHED, 16 UNTRACKED; and 32 SNAT,
    /// 64 DNAT.
    pub state: u8,
    /// Bits of `--ctstatus`.
    pub status: Option<u8>,
    /// The mark of the connection.
    pub mark: Option<u32>,
    /// True in the reply direction.
    pub reply: Option<bool>,
}

/// Everything is known, and 0.
impl Default for Connection {
    fn default() -> Self {
        Self {
            state: 0,
            status: Some(0),
            mark: Some(0),
            reply: Some(false),
        }
    }
}

/// The owner of a local socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// The outcome of a packet at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All tables of the hook accept it.
    Accept,
    /// A rule, a policy or a broken header drops it.
    Drop,
    /// Dropped, and an answer is sent: the number of `--reject-with`.
    Reject(u8),
    /// User space decides (QUEUE, NFQUEUE).
    Queue,
    /// The answer depends on something that is not known.
    Unknown(Unknown),
}

/// A reason why a verdict is not known, at a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unknown {
    /// A match that Fairpath does not evaluate.
    OpaqueMatch = 1,
    /// A target that changes or moves the packet in a way that Fairpath does not evaluate.
    OpaqueTarget = 2,
    /// The input interface.
    Input = 3,
    /// The output interface.
    Output = 4,
    /// The port of a bridge.
    Physical = 5,
    /// The connection.
    Connection = 6,
    /// The type of the source address.
    SourceType = 7,
    /// The type of the destination address.
    DestinationType = 8,
    /// The packet type.
    PacketType = 9,
    /// The owner of the socket.
    Owner = 10,
    /// The route back.
    ReversePath = 11,
    /// The date.
    Date = 12,
    /// Chance.
    Random = 13,
    /// Address translation: tables after `nat` see other addresses.
    Translation = 14,
    /// Bytes that the capture did not keep.
    CutBytes = 15,
    /// A set that was not given.
    Set = 16,
    /// The link-layer header is missing.
    LinkLayer = 17,
    /// More rules than one packet may meet ([`crate::reference::MAX_VISITS`]).
    Steps = 18,
    /// A set of a type that is not evaluated.
    SetType = 19,
    /// More nested jumps than one packet may follow ([`crate::reference::MAX_DEPTH`]).
    Depth = 20,
    /// The number of connections.
    Connections = 21,
}

/// The limit of TCPMSS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MssLimit {
    /// This one.
    Bytes(u16),
    /// That of the path, which is not known.
    Path,
}

/// Changes of a packet by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// The packet mark.
    pub mark: u32,
    /// Mark of the connection, if a rule changed it.
    pub connection_mark: Option<u32>,
    /// CLASSIFY: major << 16 | minor.
    pub priority: Option<u32>,
    /// The byte with DSCP and ECN, if a rule changed it.
    pub tos: Option<u8>,
    /// Time to live, if a rule changed it.
    pub ttl: Option<u8>,
    /// The last limit of TCPMSS.
    pub mss: Option<MssLimit>,
    /// True if the packet gets no connection.
    pub untracked: bool,
    /// Packets logged (LOG, NFLOG, TRACE).
    pub logged: u32,
}
