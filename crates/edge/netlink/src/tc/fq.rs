//! The qdisc fq at the egress of a link: it sends each packet at its time (`skb->tstamp`).

use std::time::Duration;

use fairpath_units::IfIndex;

use super::place::{of_link, stats_of};
use super::{Qdisc, TCA_OPTIONS, Tc};
use crate::connection::NetlinkError;
use crate::message::{attr, u32_at};

const TCA_FQ_PLIMIT: u16 = 1;
const TCA_FQ_FLOW_PLIMIT: u16 = 2;
const TCA_FQ_HORIZON: u16 = 14;
/// The upper half of a parent of qdiscs that packets do not wait in: clsact, ingress.
const TC_H_CLSACT_MAJOR: u32 = 0xffff_0000;

/// The fq of a link, or the lowest limits of those of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fq {
    /// Packets of a queue (`limit`).
    pub packets: u32,
    /// Packets of a flow (`flow_limit`).
    pub flow_packets: u32,
    /// A packet whose time is later is dropped, or sent at this time (`horizon`).
    pub horizon: Duration,
    /// Packets that they dropped, all together.
    pub drops: u64,
}

/// The qdisc of a link's egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Egress {
    /// fq at the root, or in all queues of `mq`.
    Fq(Fq),
    /// The kind of another one, at the root or in a queue.
    Other(String),
}

impl Tc {
    /// The qdisc of a link's egress. O(its qdiscs).
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn egress(&mut self, ifindex: IfIndex) -> Result<Egress, NetlinkError> {
        Ok(egress_of(of_link(self, ifindex, fq_of)?))
    }
}

fn fq_of(attributes: &[u8]) -> Fq {
    let options = attr(attributes, TCA_OPTIONS).unwrap_or(&[]);
    let option = |id| attr(options, id).and_then(|value| u32_at(value, 0));
    Fq {
        packets: option(TCA_FQ_PLIMIT).unwrap_or(0),
        flow_packets: option(TCA_FQ_FLOW_PLIMIT).unwrap_or(0),
        horizon: Duration::from_micros(option(TCA_FQ_HORIZON).unwrap_or(0).into()),
        drops: stats_of(attributes).drops.into(),
    }
}

fn egress_of(all: Vec<(Qdisc, Fq)>) -> Egress {
    let Some((root, _)) = all.iter().find(|(qdisc, _)| qdisc.is_root()) else {
        return Egress::Other("noqueue".to_owned());
    };
    let is_queue = |qdisc: &Qdisc| match root.kind.as_str() {
        "mq" => {
            let major = qdisc.parent & TC_H_CLSACT_MAJOR;
            !qdisc.is_root() && major == root.handle & TC_H_CLSACT_MAJOR
        }
        _ => qdisc.is_root(),
    };
    let mut lowest: Option<Fq> = None;
    for (qdisc, fq) in all.iter().filter(|(qdisc, _)| is_queue(qdisc)) {
        if qdisc.kind != "fq" {
            return Egress::Other(qdisc.kind.clone());
        }
        lowest = Some(match lowest {
            None => *fq,
            Some(lowest) => Fq {
                packets: lowest.packets.min(fq.packets),
                flow_packets: lowest.flow_packets.min(fq.flow_packets),
                horizon: lowest.horizon.min(fq.horizon),
                drops: lowest.drops + fq.drops,
            },
        });
    }
    lowest.map_or_else(|| Egress::Other(root.kind.clone()), Egress::Fq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Links, NewLink};
    use crate::tc::TC_H_ROOT;
    use crate::testing::in_scratch_namespace;

    fn fq(flow_packets: u32) -> Fq {
        Fq {
            packets: 10_000,
            flow_packets,
            horizon: Duration::from_secs(10),
            drops: 1,
        }
    }

    fn qdisc(kind: &str, handle: u32, parent: u32, flow_packets: u32) -> (Qdisc, Fq) {
        let qdisc = Qdisc {
            ifindex: IfIndex(7),
            kind: kind.to_owned(),
            handle,
            parent,
        };
        (qdisc, fq(flow_packets))
    }

    #[test]
    fn all_queues_of_mq_must_be_fq() {
        let clsact = || qdisc("clsact", 0xffff_0000, 0xffff_fff1, 0);
        // With handles, and the kernel's default without.
        for mq in [0, 0x1_0000] {
            let root = || qdisc("mq", mq, TC_H_ROOT, 0);
            let first = || qdisc("fq", 0x8001_0000, mq | 1, 100);
            let all = vec![root(), first(), qdisc("fq", 0, mq | 2, 50), clsact()];
            let expected = Fq { drops: 2, ..fq(50) };
            assert_eq!(egress_of(all), Egress::Fq(expected));
            let all = vec![root(), first(), qdisc("pfifo_fast", 0, mq | 2, 0)];
            assert_eq!(egress_of(all), Egress::Other("pfifo_fast".to_owned()));
            assert_eq!(egress_of(vec![root()]), Egress::Other("mq".to_owned()));
        }
        let alone = vec![qdisc("fq", 0x1_0000, TC_H_ROOT, 100), clsact()];
        assert_eq!(egress_of(alone), Egress::Fq(fq(100)));
        // Below another classful qdisc, it is not where packets enter.
        let below = vec![
            qdisc("htb", 0x1_0000, TC_H_ROOT, 0),
            qdisc("fq", 0x2_0000, 0x1_0001, 100),
        ];
        assert_eq!(egress_of(below), Egress::Other("htb".to_owned()));
        assert_eq!(egress_of(vec![]), Egress::Other("noqueue".to_owned()));
    }

    #[test]
    fn qdiscs_of_egress_are_found() {
        let name = "qdiscs_of_egress_are_found";
        in_scratch_namespace(name, || {
            let mut links = Links::open().unwrap();
            let veth = NewLink::Veth {
                name: "q0",
                peer: "q1",
            };
            links.create(veth).unwrap();
            let ifindex = links.by_name("q0").unwrap().unwrap().ifindex;
            let mut tc = Tc::open().unwrap();
            let other = |kind: &str| Egress::Other(kind.to_owned());
            tc.add_root(ifindex, "pfifo").unwrap();
            assert_eq!(tc.egress(ifindex).unwrap(), other("pfifo"));
            tc.delete_root(ifindex).unwrap();
            if !tc.supports("fq").unwrap() {
                return;
            }
            tc.add_root(ifindex, "fq").unwrap();
            assert_eq!(
                tc.egress(ifindex).unwrap(),
                Egress::Fq(Fq {
                    drops: 0,
                    ..fq(100)
                })
            );
        });
    }
}
