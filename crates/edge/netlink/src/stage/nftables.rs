//! Base chains of nftables (`nfnetlink`, subsystem 10).

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::{Stage, StageError, StageKind, absent};
use crate::connection::{Connection, dumped};
use crate::htb::Device;
use crate::message::{Request, attr, attr_str, attrs, text, u32_at};

const NFT_MSG_GETCHAIN: u16 = 10 << 8 | 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_NAME: u16 = 1;
const NF_ACCEPT: u32 = 1;
/// `struct nfgenmsg`.
pub(super) const NFGEN_LEN: usize = 4;
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_BRIDGE: u8 = 7;
const NFPROTO_IPV6: u8 = 10;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_LOCAL_OUT: u32 = 3;

/// Chains with an effect on forwarded packets, in any family.
pub(super) fn chains(devices: &[Device<'_>]) -> Result<Vec<Stage>, StageError> {
    let Some(mut connection) = absent(Connection::open(NETLINK_NETFILTER).map(Some))? else {
        return Ok(Vec::new());
    };
    let request = Request::new(NFT_MSG_GETCHAIN, dumped(), &[0; NFGEN_LEN]);
    absent(
        connection.dump("list nftables chains", &request, |message| {
            let family = *message.payload.first()?;
            let chain = Chain::read(family, message.payload.get(NFGEN_LEN..)?)?;
            chain.concerns(devices).then(|| chain.stage())
        }),
    )
}

struct Chain {
    family: u8,
    table: String,
    name: String,
    hook: u32,
    nat: bool,
    idle: bool,
    devices: Vec<String>,
}

/// Numbers of nftables are in network order.
pub(super) fn be32(bytes: &[u8], kind: u16) -> Option<u32> {
    u32_at(attr(bytes, kind)?, 0).map(u32::from_be)
}

impl Chain {
    /// `None` for a chain without a hook.
    fn read(family: u8, attributes: &[u8]) -> Option<Chain> {
        let hook = attr(attributes, NFTA_CHAIN_HOOK)?;
        let several = attrs(attr(hook, NFTA_HOOK_DEVS).unwrap_or(&[]));
        let several = several.filter(|(kind, _)| *kind == NFTA_DEVICE_NAME);
        let mut devices: Vec<String> = several.map(|(_, name)| text(name)).collect();
        // A single device has two encodings.
        devices.extend(attr_str(hook, NFTA_HOOK_DEV).filter(|_| devices.is_empty()));
        let accepts = be32(attributes, NFTA_CHAIN_POLICY).is_none_or(|policy| policy == NF_ACCEPT);
        Some(Chain {
            family,
            table: attr_str(attributes, NFTA_CHAIN_TABLE)?,
            name: attr_str(attributes, NFTA_CHAIN_NAME)?,
            hook: be32(hook, NFTA_HOOK_HOOKNUM)?,
            nat: attr_str(attributes, NFTA_CHAIN_TYPE).as_deref() == Some("nat"),
            idle: accepts && be32(attributes, NFTA_CHAIN_USE) == Some(0),
            devices,
        })
    }

    fn concerns(&self, devices: &[Device<'_>]) -> bool {
        let passed = match self.family {
            NFPROTO_INET | NFPROTO_IPV4 | NFPROTO_IPV6 | NFPROTO_BRIDGE => {
                !matches!(self.hook, NF_INET_LOCAL_IN | NF_INET_LOCAL_OUT)
            }
            NFPROTO_NETDEV => true,
            _ => false,
        };
        let ours = |name: &String| devices.iter().any(|device| device.name == name);
        passed && !self.idle && (self.devices.is_empty() || self.devices.iter().any(ours))
    }

    fn stage(&self) -> Stage {
        let family = match self.family {
            NFPROTO_INET => "inet",
            NFPROTO_IPV4 => "ip",
            NFPROTO_IPV6 => "ip6",
            NFPROTO_BRIDGE => "bridge",
            _ => "netdev",
        };
        Stage {
            kind: if self.nat {
                StageKind::Nat
            } else {
                StageKind::Netfilter
            },
            name: format!("nft {family} {} {}", self.table, self.name),
            interface: (!self.devices.is_empty()).then(|| self.devices.join(", ")),
        }
    }
}
