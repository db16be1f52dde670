//! Filters and root qdiscs of interfaces.

use netlink_sys::protocols::NETLINK_ROUTE;

use super::{Stage, StageError, StageKind, absent};
use crate::connection::{Connection, dumped};
use crate::htb::{Device, HTB_MAJOR};
use crate::message::{Request, attr_str};
use crate::tc::{MQ_HANDLE, Qdisc, TCA_KIND, TCMSG_LEN, Tc, tcmsg};

const RTM_GETTFILTER: u16 = 46;
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const CLSACT_EGRESS: u32 = 0xffff_fff3;

/// The stages of these interfaces.
pub(super) fn filters_and_roots(devices: &[Device<'_>]) -> Result<Vec<Stage>, StageError> {
    let qdiscs = Tc::open()?.qdiscs()?;
    let mut found = Vec::new();
    for device in devices {
        for qdisc in qdiscs
            .iter()
            .filter(|qdisc| qdisc.ifindex == device.ifindex)
        {
            let places: &[(u32, &str)] = match qdisc.kind.as_str() {
                "clsact" => &[(CLSACT_INGRESS, "ingress"), (CLSACT_EGRESS, "egress")],
                "ingress" => &[(CLSACT_INGRESS, "ingress")],
                _ if qdisc.is_root() && !is_standard(qdisc) => {
                    found.push(root(*device, qdisc));
                    &[(0, "root")]
                }
                _ => &[],
            };
            for (parent, place) in places {
                let parent = if *parent == 0 { qdisc.handle } else { *parent };
                found.extend(filters(*device, parent, place)?);
            }
        }
    }
    Ok(found)
}

/// The kernel's default, which has no handle, or ours.
fn is_standard(qdisc: &Qdisc) -> bool {
    let ours = match qdisc.kind.as_str() {
        "htb" => qdisc.handle >> 16 == u32::from(HTB_MAJOR),
        "mq" => qdisc.handle == MQ_HANDLE,
        _ => false,
    };
    qdisc.handle == 0 || ours
}

fn root(device: Device<'_>, qdisc: &Qdisc) -> Stage {
    Stage {
        kind: StageKind::Qdisc,
        name: format!("{} {:x}:", qdisc.kind, qdisc.handle >> 16),
        interface: Some(device.name.to_owned()),
    }
}

/// Each kind of filter once per position.
fn filters(device: Device<'_>, parent: u32, place: &str) -> Result<Vec<Stage>, StageError> {
    let mut connection = Connection::open(NETLINK_ROUTE)?;
    let request = Request::new(
        RTM_GETTFILTER,
        dumped(),
        &tcmsg(device.ifindex, 0, parent, 0),
    );
    let mut kinds = absent(connection.dump("list tc filters", &request, |message| {
        attr_str(message.payload.get(TCMSG_LEN..)?, TCA_KIND)
    }))?;
    kinds.sort_unstable();
    kinds.dedup();
    let stage = |kind: String| Stage {
        kind: StageKind::Filter,
        name: format!("{place} {kind}"),
        interface: Some(device.name.to_owned()),
    };
    Ok(kinds.into_iter().map(stage).collect())
}
