//! Cheap evidence that netfilter's rules changed.

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::nftables::{NFGEN_LEN, be32};
use super::{StageError, absent, xtables};
use crate::connection::{Connection, acked};
use crate::message::Request;

const NFT_MSG_GETGEN: u16 = 10 << 8 | 16;
const NFTA_GEN_ID: u16 = 1;

/// A value that differs after each change of nftables, and after each change of the number, size or
/// places of rules in a table of iptables (both families), of the calling thread's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesVersion {
    nftables: Option<u32>,
    iptables: Vec<(String, Vec<u8>)>,
}

/// The present version. Three system calls, and two for each table of iptables that exists. Needs
/// `CAP_NET_ADMIN` and `CAP_NET_RAW`.
///
/// # Errors
/// [`StageError`]: the kernel does not report it.
pub fn rules_version() -> Result<RulesVersion, StageError> {
    let mut nftables = None;
    if let Some(mut connection) = absent(Connection::open(NETLINK_NETFILTER).map(Some))? {
        let request = Request::new(NFT_MSG_GETGEN, acked(0), &[0; NFGEN_LEN]);
        absent(
            connection.query("read the generation of nftables", request, |message| {
                let attributes = message.payload.get(NFGEN_LEN..).unwrap_or_default();
                nftables = be32(attributes, NFTA_GEN_ID).or(nftables);
            }),
        )?;
    }
    Ok(RulesVersion {
        nftables,
        iptables: xtables::layouts()?,
    })
}
