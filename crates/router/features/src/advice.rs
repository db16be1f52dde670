//! Improvements of an interface, each with its command. Pure rules.
//!
//! Only `physical` interfaces have rings, interrupts and offloads of a driver. A command is listed only
//! if the driver supports it. The module `cpus` has the rules about interrupts and CPUs.

use fairpath_machine::Cpus;
use serde::Serialize;

use super::cpus::HostCpus;
use super::interface::{Interface, Offload};

/// Receive rings longer than this add memory traffic, not fewer drops.
const RX_RING_ENOUGH: u32 = 4096;
/// The kernel's default for Ethernet. Leaves of HTB and TBF need it for bursts.
const TXQUEUELEN_DEFAULT: u32 = 1000;

/// One improvement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The collision of queues, interrupts and CPUs that it ends; `None` for other improvements.
    pub collision: Option<&'static str>,
    pub what: String,
    pub why: String,
    pub command: String,
}

/// Facts of the host for the rules.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    pub cpus: HostCpus,
    /// True if the kernel has FQ-CoDel.
    pub fq_codel: Option<bool>,
}

/// All improvements, most important first.
pub fn advise(interface: &Interface, situation: &Situation) -> Vec<Advice> {
    const RULES: [fn(&Interface, &Situation) -> Option<Advice>; 8] = [
        lro_off,
        gro_on,
        spread_by_rps,
        rxhash_on,
        spread_by_xps,
        longer_rx_ring,
        queue_with_codel,
        txqueuelen_not_zero,
    ];
    if !interface.is_physical() && interface.kind != "ppp" {
        return Vec::new();
    }
    RULES
        .iter()
        .filter_map(|rule| rule(interface, situation))
        .collect()
}

fn lro_off(i: &Interface, _: &Situation) -> Option<Advice> {
    let lro = i.offload("lro");
    (lro.on && lro.changeable).then(|| Advice {
        collision: None,
        what: "disable LRO".to_owned(),
        why: "LRO merges packets that cannot be split again, which breaks forwarding; many \
              drivers also refuse native XDP with it"
            .to_owned(),
        command: format!("ethtool -K {} lro off", i.shell_name()),
    })
}

fn gro_on(i: &Interface, _: &Situation) -> Option<Advice> {
    let gro = i.offload("gro");
    (i.is_physical() && !gro.on && gro.changeable).then(|| Advice {
        collision: None,
        what: "enable GRO".to_owned(),
        why: "without it, each packet passes the stack separately".to_owned(),
        command: format!("ethtool -K {} gro on", i.shell_name()),
    })
}

/// A device with one queue can still be spread, in software.
fn spread_by_rps(i: &Interface, s: &Situation) -> Option<Advice> {
    let one_queue = i.queues.rx == 1 && i.queues.channels_max <= 1;
    (one_queue && i.rps_masks.is_empty() && s.cpus.usable().len() > 1).then(|| Advice {
        collision: None,
        what: "spread received flows over the CPUs (RPS)".to_owned(),
        why: "the device has one receive queue, so one CPU does all the forwarding".to_owned(),
        command: format!(
            "echo {} > /sys/class/net/{}/queues/rx-0/rps_cpus",
            s.cpus.usable().mask(),
            i.shell_name()
        ),
    })
}

fn rxhash_on(i: &Interface, _: &Situation) -> Option<Advice> {
    let Offload { on, changeable } = i.offload("rxhash");
    (!on && changeable && i.is_physical() && i.queues.rx > 1).then(|| Advice {
        collision: None,
        what: "enable the receive hash".to_owned(),
        why: "the kernel does not have to compute it for each packet then".to_owned(),
        command: format!("ethtool -K {} rxhash on", i.shell_name()),
    })
}

fn spread_by_xps(i: &Interface, s: &Situation) -> Option<Advice> {
    let cpus = s.cpus.usable();
    (i.is_physical() && i.queues.tx > 1 && cpus.len() > 1 && i.xps_masks.is_empty()).then(|| {
        let masks: Vec<String> = (0..i.queues.tx)
            .map(|queue| {
                let every = cpus.iter().skip(queue as usize);
                let share: Cpus = every.step_by(i.queues.tx as usize).collect();
                format!("{queue}:{}", share.mask())
            })
            .collect();
        Advice {
            collision: None,
            what: "use a separate transmit queue for each CPU (XPS)".to_owned(),
            why: "CPUs that share a queue wait for each other's lock".to_owned(),
            command: format!(
                "for p in {}; do echo ${{p#*:}} > /sys/class/net/{}/queues/tx-${{p%%:*}}/xps_cpus; done",
                masks.join(" "),
                i.shell_name()
            ),
        }
    })
}

/// Only the receive ring: a longer transmit ring is queueing delay that no scheduler sees.
fn longer_rx_ring(i: &Interface, _: &Situation) -> Option<Advice> {
    let rings = i.rings.as_ref()?;
    let wanted = rings.rx_max.min(RX_RING_ENOUGH);
    (i.is_physical() && rings.rx > 0 && rings.rx < wanted).then(|| Advice {
        collision: None,
        what: format!("increase the receive ring from {} to {wanted}", rings.rx),
        why: "bursts that overflow it are lost upstream of Fairpath".to_owned(),
        command: format!("ethtool -G {} rx {wanted}", i.shell_name()),
    })
}

fn queue_with_codel(i: &Interface, s: &Situation) -> Option<Advice> {
    let plain = |kind: &str| matches!(kind, "pfifo_fast" | "pfifo" | "bfifo");
    let root = i.qdisc.kind.as_deref()?;
    let children_plain = i.qdisc.child_kinds.iter().any(|kind| plain(kind));
    let command = match root {
        kind if plain(kind) => format!("tc qdisc replace dev {} root fq_codel", i.shell_name()),
        "mq" if children_plain => format!(
            "sysctl -w net.core.default_qdisc=fq_codel; tc qdisc replace dev {} root mq",
            i.shell_name()
        ),
        _ => return None,
    };
    (i.up && s.fq_codel == Some(true)).then(|| Advice {
        collision: None,
        what: "queue with FQ-CoDel".to_owned(),
        why: format!(
            "without shaping, a full queue of {} delays all flows",
            if root == "mq" {
                "a plain fifo in each queue"
            } else {
                root
            }
        ),
        command,
    })
}

fn txqueuelen_not_zero(i: &Interface, _: &Situation) -> Option<Advice> {
    (i.is_physical() && i.txqueuelen_packets == 0).then(|| Advice {
        collision: None,
        what: "set a queue length".to_owned(),
        why: "it is the limit of leaves of HTB and TBF, which queue one packet if it is 0"
            .to_owned(),
        command: format!(
            "ip link set dev {} txqueuelen {TXQUEUELEN_DEFAULT}",
            i.shell_name()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::interface::{Queues, Ring, RootQdisc};
    use super::*;

    fn situation() -> Situation {
        Situation {
            cpus: HostCpus {
                online: Cpus::from([0, 1, 2, 3]),
                ..Default::default()
            },
            fq_codel: Some(true),
        }
    }

    /// A network card with nothing to improve.
    fn good() -> Interface {
        let on = Offload {
            on: true,
            changeable: true,
        };
        let off = Offload {
            on: false,
            changeable: true,
        };
        Interface {
            name: "eth0".to_owned(),
            kind: "physical".to_owned(),
            up: true,
            txqueuelen_packets: 1000,
            queues: Queues {
                rx: 4,
                tx: 4,
                channels: 4,
                channels_max: 8,
                channels_combined: true,
            },
            rings: Some(Ring {
                rx: 4096,
                rx_max: 8192,
                tx: 512,
                tx_max: 8192,
            }),
            xps_masks: vec!["1".to_owned(); 4],
            offloads: [("gro", on), ("lro", off), ("rxhash", on)].into(),
            qdisc: RootQdisc {
                kind: Some("mq".to_owned()),
                children: 4,
                child_kinds: vec!["fq_codel".to_owned()],
            },
            ..Default::default()
        }
    }

    fn commands(change: impl FnOnce(&mut Interface)) -> Vec<String> {
        let mut interface = good();
        change(&mut interface);
        let advice = advise(&interface, &situation());
        advice.into_iter().map(|a| a.command).collect()
    }

    #[test]
    fn a_good_or_virtual_interface_gets_no_advice() {
        assert_eq!(commands(|_| {}), Vec::<String>::new());
        for kind in ["veth", "tun", "loopback", "bridge", "vlan", "ifb"] {
            let virtual_link = |i: &mut Interface| {
                i.kind = kind.to_owned();
                i.txqueuelen_packets = 0;
                i.rings = Some(Ring {
                    rx: 1,
                    rx_max: 9,
                    ..Default::default()
                });
                i.offloads.clear();
                i.queues.rx = 1;
            };
            assert_eq!(commands(virtual_link), Vec::<String>::new(), "{kind}");
        }
    }

    #[test]
    fn lro_is_turned_off_only_where_possible() {
        let lro = |changeable| {
            commands(|i| {
                let on = true;
                i.offloads.insert("lro", Offload { on, changeable });
            })
        };
        assert_eq!(lro(true), ["ethtool -K eth0 lro off"]);
        assert_eq!(lro(false), Vec::<String>::new());
    }

    #[test]
    fn single_queues_get_rps() {
        let one_queue = |i: &mut Interface| {
            i.queues = Queues {
                rx: 1,
                tx: 1,
                channels: 1,
                channels_max: 1,
                channels_combined: true,
            };
        };
        assert_eq!(
            commands(one_queue),
            ["echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"]
        );
    }

    #[test]
    fn rings_queues_and_xps_are_improved() {
        assert_eq!(
            commands(|i| i.rings.as_mut().unwrap().rx = 512),
            ["ethtool -G eth0 rx 4096"]
        );
        assert_eq!(
            commands(|i| i.qdisc.kind = Some("pfifo_fast".to_owned())),
            ["tc qdisc replace dev eth0 root fq_codel"]
        );
        assert_eq!(
            commands(|i| i.txqueuelen_packets = 0),
            ["ip link set dev eth0 txqueuelen 1000"]
        );
        assert_eq!(
            commands(|i| i.xps_masks.clear()),
            [
                "for p in 0:1 1:2 2:4 3:8; do echo ${p#*:} > /sys/class/net/eth0/queues/tx-${p%%:*}/xps_cpus; done"
            ]
        );
    }

    #[test]
    fn fq_codel_is_advised_only_where_available() {
        let mut interface = good();
        interface.qdisc.kind = Some("pfifo_fast".to_owned());
        let mut without = situation();
        without.fq_codel = Some(false);
        assert_eq!(advise(&interface, &without), []);
    }
}
