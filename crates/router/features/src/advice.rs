//! Improvements of an interface, each with its command. Pure rules.
//!
//! Only `physical` interfaces have rings, interrupts and offloads of a driver. A command is listed only
//! if the driver supports it.

use serde::Serialize;

use super::interface::{Interface, Offload};
use super::parse::cpu_mask;

/// Receive rings longer than this add memory traffic, not fewer drops.
const RX_RING_ENOUGH: u32 = 4096;
/// The kernel's default for Ethernet. Leaves of HTB and TBF need it for bursts.
const TXQUEUELEN_DEFAULT: u32 = 1000;

/// One improvement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub what: String,
    pub why: String,
    pub command: String,
}

/// Facts of the host for the rules.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    pub online_cpus: Vec<u32>,
    /// True if the kernel has FQ-CoDel.
    pub fq_codel: Option<bool>,
}

/// All improvements, most important first.
pub fn advise(interface: &Interface, situation: &Situation) -> Vec<Advice> {
    const RULES: [fn(&Interface, &Situation) -> Option<Advice>; 11] = [
        lro_off,
        gro_on,
        more_channels,
        spread_interrupts,
        interrupts_near_device,
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
        what: "disable LRO".to_owned(),
        why: "LRO merges packets that cannot be split again, which breaks forwarding; many \
              drivers also refuse native XDP with it"
            .to_owned(),
        command: format!("ethtool -K {} lro off", i.name),
    })
}

fn gro_on(i: &Interface, _: &Situation) -> Option<Advice> {
    let gro = i.offload("gro");
    (i.is_physical() && !gro.on && gro.changeable).then(|| Advice {
        what: "enable GRO".to_owned(),
        why: "without it, each packet passes the stack separately".to_owned(),
        command: format!("ethtool -K {} gro on", i.name),
    })
}

fn more_channels(i: &Interface, s: &Situation) -> Option<Advice> {
    let wanted = i.queues.channels_max.min(s.online_cpus.len() as u32);
    (i.is_physical() && i.queues.channels > 0 && i.queues.channels < wanted).then(|| Advice {
        what: format!("use {wanted} channels instead of {}", i.queues.channels),
        why: "each channel is received by a separate CPU".to_owned(),
        command: match i.queues.channels_combined {
            true => format!("ethtool -L {} combined {wanted}", i.name),
            false => format!("ethtool -L {} rx {wanted}", i.name),
        },
    })
}

/// Several receive queues gain nothing when one CPU takes all their interrupts.
fn spread_interrupts(i: &Interface, s: &Situation) -> Option<Advice> {
    let cpu = single_cpu(i)?;
    (i.queues.rx > 1 && i.irqs.len() > 1 && s.online_cpus.len() > 1).then(|| Advice {
        what: format!("spread the {} interrupts over the CPUs", i.irqs.len()),
        why: format!(
            "all of them arrive on CPU {cpu} (stop irqbalance first, because it reverts this)"
        ),
        command: affinity_command(i, &s.online_cpus),
    })
}

/// The CPU that all interrupts arrive on, if it is one.
fn single_cpu(i: &Interface) -> Option<u32> {
    let first = i.irqs.first()?.effective_cpus.as_slice();
    let [cpu] = *first else { return None };
    let same = i.irqs.iter().all(|irq| irq.effective_cpus == first);
    same.then_some(cpu)
}

fn interrupts_near_device(i: &Interface, s: &Situation) -> Option<Advice> {
    let far = |irq: &&super::interface::Irq| {
        !irq.effective_cpus.is_empty()
            && !irq
                .effective_cpus
                .iter()
                .any(|cpu| i.numa_cpus.contains(cpu))
    };
    let near: Vec<u32> = i
        .numa_cpus
        .iter()
        .filter(|cpu| s.online_cpus.contains(cpu))
        .copied()
        .collect();
    let far_count = i.irqs.iter().filter(far).count();
    (!near.is_empty() && far_count > 0).then(|| Advice {
        what: "move the interrupts to the device's NUMA node".to_owned(),
        why: format!(
            "{far_count} of {} arrive on CPUs whose memory is not the device's",
            i.irqs.len()
        ),
        command: affinity_command(i, &near),
    })
}

/// One interrupt after the other to one of `cpus` after the other.
fn affinity_command(i: &Interface, cpus: &[u32]) -> String {
    let pairs: Vec<String> = i
        .irqs
        .iter()
        .zip(cpus.iter().cycle())
        .map(|(irq, cpu)| format!("{}:{cpu}", irq.irq))
        .collect();
    format!(
        "for p in {}; do echo ${{p#*:}} > /proc/irq/${{p%:*}}/smp_affinity_list; done",
        pairs.join(" ")
    )
}

/// A device with one queue can still be spread, in software.
fn spread_by_rps(i: &Interface, s: &Situation) -> Option<Advice> {
    let one_queue = i.queues.rx == 1 && i.queues.channels_max <= 1;
    (one_queue && i.rps_masks.is_empty() && s.online_cpus.len() > 1).then(|| Advice {
        what: "spread received flows over the CPUs (RPS)".to_owned(),
        why: "the device has one receive queue, so one CPU does all the forwarding".to_owned(),
        command: format!(
            "echo {} > /sys/class/net/{}/queues/rx-0/rps_cpus",
            cpu_mask(&s.online_cpus),
            i.name
        ),
    })
}

fn rxhash_on(i: &Interface, _: &Situation) -> Option<Advice> {
    let Offload { on, changeable } = i.offload("rxhash");
    (!on && changeable && i.is_physical() && i.queues.rx > 1).then(|| Advice {
        what: "enable the receive hash".to_owned(),
        why: "the kernel does not have to compute it for each packet then".to_owned(),
        command: format!("ethtool -K {} rxhash on", i.name),
    })
}

fn spread_by_xps(i: &Interface, s: &Situation) -> Option<Advice> {
    let cpus = &s.online_cpus;
    (i.is_physical() && i.queues.tx > 1 && cpus.len() > 1 && i.xps_masks.is_empty()).then(|| {
        let masks: Vec<String> = (0..i.queues.tx)
            .map(|queue| {
                let share: Vec<u32> = cpus
                    .iter()
                    .skip(queue as usize)
                    .step_by(i.queues.tx as usize)
                    .copied()
                    .collect();
                format!("{queue}:{}", cpu_mask(&share))
            })
            .collect();
        Advice {
            what: "use a separate transmit queue for each CPU (XPS)".to_owned(),
            why: "CPUs that share a queue wait for each other's lock".to_owned(),
            command: format!(
                "for p in {}; do echo ${{p#*:}} > /sys/class/net/{}/queues/tx-${{p%%:*}}/xps_cpus; done",
                masks.join(" "),
                i.name
            ),
        }
    })
}

/// Only the receive ring: a longer transmit ring is queueing delay that no scheduler sees.
fn longer_rx_ring(i: &Interface, _: &Situation) -> Option<Advice> {
    let rings = i.rings.as_ref()?;
    let wanted = rings.rx_max.min(RX_RING_ENOUGH);
    (i.is_physical() && rings.rx > 0 && rings.rx < wanted).then(|| Advice {
        what: format!("increase the receive ring from {} to {wanted}", rings.rx),
        why: "bursts that overflow it are lost upstream of Fairpath".to_owned(),
        command: format!("ethtool -G {} rx {wanted}", i.name),
    })
}

fn queue_with_codel(i: &Interface, s: &Situation) -> Option<Advice> {
    let plain = |kind: &str| matches!(kind, "pfifo_fast" | "pfifo" | "bfifo");
    let root = i.qdisc.kind.as_deref()?;
    let children_plain = i.qdisc.child_kinds.iter().any(|kind| plain(kind));
    let command = match root {
        kind if plain(kind) => format!("tc qdisc replace dev {} root fq_codel", i.name),
        "mq" if children_plain => format!(
            "sysctl -w net.core.default_qdisc=fq_codel; tc qdisc replace dev {} root mq",
            i.name
        ),
        _ => return None,
    };
    (i.up && s.fq_codel == Some(true)).then(|| Advice {
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
        what: "set a queue length".to_owned(),
        why: "it is the limit of leaves of HTB and TBF, which queue one packet if it is 0"
            .to_owned(),
        command: format!("ip link set dev {} txqueuelen {TXQUEUELEN_DEFAULT}", i.name),
    })
}

#[cfg(test)]
mod tests {
    use super::super::interface::{Irq, Queues, Ring, RootQdisc};
    use super::*;

    fn situation() -> Situation {
        Situation {
            online_cpus: vec![0, 1, 2, 3],
            fq_codel: Some(true),
        }
    }

    /// A network card with nothing to improve.
    fn good() -> Interface {
        let irq = |number| Irq {
            irq: 40 + number,
            action: format!("eth0-TxRx-{number}"),
            allowed_cpus: vec![number],
            effective_cpus: vec![number],
        };
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
            irqs: (0..4).map(irq).collect(),
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
    fn interrupts_on_one_cpu_are_spread_over_all() {
        let piled = commands(|i| {
            i.irqs
                .iter_mut()
                .for_each(|irq| irq.effective_cpus = vec![2])
        });
        assert_eq!(
            piled,
            [
                "for p in 40:0 41:1 42:2 43:3; do echo ${p#*:} > /proc/irq/${p%:*}/smp_affinity_list; done"
            ]
        );
        let on_two = commands(|i| i.irqs[0].effective_cpus = vec![2]);
        assert_eq!(on_two, Vec::<String>::new());
    }

    #[test]
    fn interrupts_are_moved_to_the_devices_node() {
        let far = commands(|i| i.numa_cpus = vec![0, 1]);
        assert_eq!(
            far,
            [
                "for p in 40:0 41:1 42:0 43:1; do echo ${p#*:} > /proc/irq/${p%:*}/smp_affinity_list; done"
            ]
        );
    }

    #[test]
    fn single_queues_get_rps_and_few_get_channels() {
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
        let few = commands(|i| i.queues.channels = 2);
        assert_eq!(few, ["ethtool -L eth0 combined 4"]);
        let apart = commands(|i| {
            i.queues.channels = 2;
            i.queues.channels_combined = false;
        });
        assert_eq!(apart, ["ethtool -L eth0 rx 4"]);
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
