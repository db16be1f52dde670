//! Tests whether NFQUEUE works (`nfnetlink_queue`).

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::connection::{Connection, NetlinkError, acked};
use crate::message::Request;

const NFNL_SUBSYS_QUEUE: u16 = 3;
const NFQNL_MSG_CONFIG: u16 = 2;
const NFQA_CFG_CMD: u16 = 1;
const NFQNL_CFG_CMD_BIND: u8 = 1;

/// Binds `queue` in the calling thread's namespace and unbinds it at once.
///
/// For probes in a separate namespace: packets to the queue in between are dropped. `EINVAL` means
/// that the kernel has no such queues, `EPERM` that `CAP_NET_ADMIN` is missing.
pub fn bind_nfqueue(queue: u16) -> Result<(), NetlinkError> {
    let mut connection = Connection::open(NETLINK_NETFILTER)?;
    let [high, low] = queue.to_be_bytes();
    let header = [libc::AF_UNSPEC as u8, 0, high, low];
    let kind = NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_CONFIG;
    let command = [NFQNL_CFG_CMD_BIND, 0, 0, 0];
    let request = Request::new(kind, acked(0), &header).attr(NFQA_CFG_CMD, &command);
    connection.command("bind packet queue", request)
}
