//! Routing rules in addition to the default ones.

use netlink_sys::protocols::NETLINK_ROUTE;

use super::{Stage, StageError, StageKind, absent};
use crate::connection::{Connection, dumped};
use crate::message::{Request, attr_u32};

const RTM_GETRULE: u16 = 34;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
/// `struct fib_rule_hdr`.
const RULE_LEN: usize = 12;
/// Local, main, default: priority and table.
const STANDARD: [(u32, u32); 3] = [(0, 255), (32_766, 254), (32_767, 253)];

/// Rules of both families.
pub(super) fn rules() -> Result<Vec<Stage>, StageError> {
    let mut found = Vec::new();
    for (family, tool) in [(libc::AF_INET, "ip"), (libc::AF_INET6, "ip -6")] {
        let mut header = [0; RULE_LEN];
        header[0] = family as u8;
        let mut connection = Connection::open(NETLINK_ROUTE)?;
        let request = Request::new(RTM_GETRULE, dumped(), &header);
        let rules = absent(connection.dump("list routing rules", &request, |message| {
            // The kernel answers with all families if it lacks the rules of this one.
            (i32::from(*message.payload.first()?) == family).then_some(())?;
            rule(message.payload)
        }))?;
        let others = rules.into_iter().filter(|rule| !STANDARD.contains(rule));
        found.extend(others.map(|(priority, table)| Stage {
            kind: StageKind::PolicyRouting,
            name: format!("{tool} rule {priority} (table {table})"),
            interface: None,
        }));
    }
    Ok(found)
}

/// Priority and table; the table is 0 if the rule has another action.
fn rule(payload: &[u8]) -> Option<(u32, u32)> {
    let attributes = payload.get(RULE_LEN..)?;
    let table = attr_u32(attributes, FRA_TABLE).unwrap_or(u32::from(*payload.get(4)?));
    Some((attr_u32(attributes, FRA_PRIORITY).unwrap_or(0), table))
}
