//! Queues, interrupts and CPUs that get in each other's way, each with a remedy. Pure rules.
//!
//! An interrupt is moved by one rule only, so the commands of all rules can be run one after the other.
//! Rules about places come first; their targets count as taken for the rules about sharing.

use std::collections::{BTreeMap, BTreeSet};

use fairpath_machine::{Cpus, Interrupt};
use fairpath_units::text::shell_word;

use super::HostCpus;
use crate::advice::Advice;
use crate::interface::Interface;

/// An interrupt, and the CPU on which it belongs.
struct Move {
    interrupt: u32,
    from: Cpus,
    to: u32,
}

/// The moves so far, and what each CPU has then.
struct Planner<'a> {
    cpus: &'a HostCpus,
    /// Interrupts of receive queues by CPU.
    load: BTreeMap<u32, usize>,
    moved: BTreeSet<u32>,
}

/// The collisions of each interface. `interfaces` are all of the machine: they share its CPUs.
pub fn find(interfaces: &[Interface], cpus: &HostCpus) -> Vec<Vec<Advice>> {
    let mut planner = Planner::new(interfaces, cpus);
    let mut found: Vec<Vec<Advice>> = interfaces
        .iter()
        .map(|i| few_queues(i, cpus).into_iter().collect())
        .collect();
    let rules = [isolated_cpu, far_node, shared_cpu];
    for rule in rules {
        for (interface, found) in interfaces.iter().zip(&mut found) {
            found.extend(rule(interface, interfaces, &mut planner));
        }
    }
    for (interface, found) in interfaces.iter().zip(&mut found) {
        found.extend(unused_queues(interface));
    }
    found
}

impl<'a> Planner<'a> {
    fn new(interfaces: &[Interface], cpus: &'a HostCpus) -> Planner<'a> {
        let mut load = BTreeMap::new();
        for interrupt in interfaces
            .iter()
            .flat_map(|i| &i.irqs)
            .filter(|i| i.receives)
        {
            for cpu in known(interrupt).iter() {
                *load.entry(cpu).or_default() += 1;
            }
        }
        let moved = BTreeSet::new();
        Planner { cpus, load, moved }
    }

    fn load(&self, cpu: u32) -> usize {
        self.load.get(&cpu).copied().unwrap_or(0)
    }

    /// Plans a move to the permitted CPU with the fewest interrupts.
    fn move_to(&mut self, interrupt: &Interrupt, permitted: &Cpus) -> Option<Move> {
        let to = permitted.iter().min_by_key(|cpu| self.load(*cpu))?;
        if !self.moved.insert(interrupt.number) {
            return None;
        }
        if interrupt.receives {
            for cpu in known(interrupt).iter() {
                *self.load.entry(cpu).or_insert(1) -= 1;
            }
            *self.load.entry(to).or_default() += 1;
        }
        Some(Move {
            interrupt: interrupt.number,
            from: known(interrupt),
            to,
        })
    }

    /// Moves those interrupts of an interface that `is_wrong` names.
    fn move_all(&mut self, i: &Interface, is_wrong: impl Fn(&Cpus) -> bool) -> Vec<Move> {
        let permitted = self.cpus.usable_near(&i.numa_cpus);
        let is_wrong = |irq: &&Interrupt| {
            let cpus = known(irq);
            !cpus.is_empty() && is_wrong(&cpus)
        };
        let wrong = i.irqs.iter().filter(is_wrong);
        wrong
            .filter_map(|irq| self.move_to(irq, &permitted))
            .collect()
    }

    fn advice(&self, collision: &'static str, why: String, moves: &[Move]) -> Option<Advice> {
        let to: Cpus = moves.iter().map(|m| m.to).collect();
        let pairs: Vec<String> = moves
            .iter()
            .map(|m| format!("{}:{}", m.interrupt, m.to))
            .collect();
        let reverted = match self.cpus.irqbalance {
            true => ". irqbalance runs and may revert the change: stop it first",
            false => "",
        };
        (!moves.is_empty()).then(|| Advice {
            collision: Some(collision),
            what: format!(
                "move {} to {}",
                counted(moves.len(), "interrupt"),
                cpus(&to)
            ),
            why: why + reverted,
            command: format!(
                "for p in {}; do echo ${{p#*:}} > /proc/irq/${{p%:*}}/smp_affinity_list; done",
                pairs.join(" ")
            ),
        })
    }
}

/// The CPUs on which an interrupt surely arrives; none if the kernel does not show them.
fn known(interrupt: &Interrupt) -> Cpus {
    match interrupt.effective.is_empty() && interrupt.allowed.len() > 1 {
        true => Cpus::default(),
        false => interrupt.cpus().clone(),
    }
}

/// CPUs of the moved interrupts.
fn from(moves: &[Move]) -> Cpus {
    moves.iter().flat_map(|m| m.from.iter()).collect()
}

fn isolated_cpu(i: &Interface, _: &[Interface], planner: &mut Planner<'_>) -> Option<Advice> {
    let reserved = planner.cpus.reserved();
    let moves = planner.move_all(i, |cpus| !cpus.and(&reserved).is_empty());
    let why = format!(
        "{} on {}, which isolcpus or nohz_full reserves for other tasks",
        arrive(moves.len()),
        cpus(&from(&moves).and(&reserved))
    );
    planner.advice("isolated_cpu", why, &moves)
}

fn far_node(i: &Interface, _: &[Interface], planner: &mut Planner<'_>) -> Option<Advice> {
    let near = planner.cpus.usable().and(&i.numa_cpus);
    if near.is_empty() {
        return None;
    }
    let moves = planner.move_all(i, |cpus| cpus.and(&i.numa_cpus).is_empty());
    let node = i
        .numa_node
        .map(|node| format!(" {node}"))
        .unwrap_or_default();
    let why = format!(
        "{} on {}, away from NUMA node{node} of the device",
        arrive(moves.len()),
        cpus(&from(&moves))
    );
    planner.advice("far_node", why, &moves)
}

/// Receive queues on one CPU, while a CPU near the device has none.
fn shared_cpu(i: &Interface, all: &[Interface], planner: &mut Planner<'_>) -> Option<Advice> {
    let permitted = planner.cpus.usable_near(&i.numa_cpus);
    let idle = |planner: &Planner<'_>| -> Cpus {
        permitted
            .iter()
            .filter(|cpu| planner.load(*cpu) == 0)
            .collect()
    };
    let idle_before = idle(planner);
    let mut moves = Vec::new();
    for irq in i.irqs.iter().filter(|irq| irq.receives) {
        let shares = known(irq).only().is_some_and(|cpu| planner.load(cpu) > 1);
        if shares {
            moves.extend(planner.move_to(irq, &idle(planner)));
        }
    }
    let busy = from(&moves);
    let why = format!(
        "{} share {}, and {} no interrupt of a receive queue",
        sharing(all, &busy),
        cpus(&busy),
        verb(&idle_before, "has", "have")
    );
    planner.advice("shared_cpu", why, &moves)
}

/// Interfaces whose receive queues interrupt these CPUs.
fn sharing(all: &[Interface], busy: &Cpus) -> String {
    let here = |irq: &&Interrupt| irq.receives && !known(irq).and(busy).is_empty();
    let count = |i: &Interface| i.irqs.iter().filter(here).count();
    let counted: Vec<String> = all
        .iter()
        .filter(|i| count(i) > 0)
        .map(|i| format!("{} of {}", counted(count(i), "receive queue"), i.name))
        .collect();
    counted.join(" and ")
}

/// The driver can have more queues, and CPUs near the device are free for them.
fn few_queues(i: &Interface, cpus: &HostCpus) -> Option<Advice> {
    let usable = cpus.usable_near(&i.numa_cpus).len();
    let wanted = i.queues.channels_max.min(usable as u32);
    let now = i.queues.channels;
    let kind = if i.queues.channels_combined {
        "combined"
    } else {
        "rx"
    };
    (now > 0 && now < wanted).then(|| Advice {
        collision: Some("few_queues"),
        what: format!("use {wanted} channels instead of {now}"),
        why: format!("each can be received by a separate one of {usable} CPUs"),
        command: format!("ethtool -L {} {kind} {wanted}", shell_word(&i.name)),
    })
}

fn unused_queues(i: &Interface) -> Option<Advice> {
    let rss = i.rss.as_ref().filter(|rss| !rss.queues_unused.is_empty())?;
    let unused: Cpus = rss.queues_unused.iter().copied().collect();
    let all = rss.queues_used + unused.len();
    Some(Advice {
        collision: Some("unused_queues"),
        what: format!("spread packets over all {all} receive queues"),
        why: format!(
            "the RSS table sends no packet to {}",
            numbered("queue", &unused)
        ),
        command: format!("ethtool -X {} equal {all}", shell_word(&i.name)),
    })
}

fn arrive(interrupts: usize) -> String {
    let verb = if interrupts == 1 { "arrives" } else { "arrive" };
    format!("{} {verb}", counted(interrupts, "interrupt"))
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// `CPU 3`, `CPUs 0-1`.
fn cpus(cpus: &Cpus) -> String {
    numbered("CPU", cpus)
}

fn numbered(noun: &str, numbers: &Cpus) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {numbers}")
}

fn verb(of: &Cpus, one: &str, many: &str) -> String {
    format!("{} {}", cpus(of), if of.len() == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use fairpath_machine::made::MadeMachine;
    use fairpath_machine::{Direction, Machine};

    use super::*;
    use crate::interface::{Queues, Rss};

    /// Two nodes of four CPUs each, and a card with four queues at node 1.
    fn made(name: &str, isolated: &str, interrupts: [&str; 4]) -> MadeMachine {
        let mut made = MadeMachine::new(name);
        made.file("sys/devices/system/cpu/online", "0-7\n");
        made.file("sys/devices/system/cpu/isolated", &format!("{isolated}\n"));
        made.file("sys/devices/system/node/node0/cpulist", "0-3\n");
        made.file("sys/devices/system/node/node1/cpulist", "4-7\n");
        made.nic("eth0", 2, 1, 4);
        for (queue, cpus) in (0..).zip(interrupts) {
            made.interrupt("eth0", 40 + queue, &format!("eth0-TxRx-{queue}"), cpus);
        }
        made
    }

    fn interface(machine: &Machine, name: &str) -> Interface {
        let nic = machine.nic(name);
        let queues = nic.queues(Direction::Rx).len() as u32;
        Interface {
            name: name.to_owned(),
            numa_node: nic.node(),
            numa_cpus: nic
                .node()
                .map(|n| machine.cpus_of_node(n))
                .unwrap_or_default(),
            irqs: nic.interrupts(&machine.interrupt_lines()),
            queues: Queues {
                rx: queues,
                channels: queues,
                channels_max: 8,
                channels_combined: true,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn collisions(made: &MadeMachine, change: impl FnOnce(&mut Interface)) -> Vec<Advice> {
        let machine = made.machine();
        let mut eth0 = interface(&machine, "eth0");
        change(&mut eth0);
        find(&[eth0], &HostCpus::read(&machine)).remove(0)
    }

    fn moves(pairs: &str) -> String {
        format!("for p in {pairs}; do echo ${{p#*:}} > /proc/irq/${{p%:*}}/smp_affinity_list; done")
    }

    #[test]
    fn separate_cpus_near_the_card_do_not_collide() {
        let made = made("good", "", ["4", "5", "6", "7"]);
        assert_eq!(collisions(&made, |_| ()), []);
    }

    #[test]
    fn unknown_cpus_of_interrupts_do_not_collide() {
        let made = made("unknown", "6-7", ["6", "6", "6", "6"]);
        let found = collisions(&made, |i| {
            for irq in &mut i.irqs {
                irq.effective = Cpus::default();
                irq.allowed = Cpus::from_list("0-7");
            }
            i.queues = Queues::default();
        });
        assert_eq!(found, []);
    }

    #[test]
    fn transmit_interrupts_may_share_a_cpu() {
        let mut made = made("transmit", "", ["4", "5", "6", "6"]);
        made.nic("eth1", 3, 1, 1);
        made.interrupt("eth1", 50, "eth1-tx-0", "6");
        made.interrupt("eth1", 51, "eth1-tx-1", "6");
        let machine = made.machine();
        let all = [interface(&machine, "eth1"), interface(&machine, "eth0")];
        let found = find(&all, &HostCpus::read(&machine));
        assert!(found[0].iter().all(|a| a.collision == Some("few_queues")));
        assert!(
            found[1][0]
                .why
                .starts_with("2 receive queues of eth0 share CPU 6")
        );
    }

    #[test]
    fn interrupts_are_moved_by_one_rule() {
        let made = made("once", "0", ["0", "0", "6", "7"]);
        let found = collisions(&made, |_| ());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].collision, Some("isolated_cpu"));
        assert_eq!(found[0].command, moves("40:4 41:5"));
    }

    #[test]
    fn queues_on_one_cpu_move_to_idle_ones() {
        let made = made("shared", "", ["4", "4", "4", "5"]);
        let found = collisions(&made, |_| ());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].collision, Some("shared_cpu"));
        assert_eq!(found[0].command, moves("40:6 41:7"));
        assert_eq!(
            found[0].why,
            "3 receive queues of eth0 share CPU 4, and CPUs 6-7 have no interrupt of a receive queue"
        );
        assert_eq!(found[0].what, "move 2 interrupts to CPUs 6-7");
    }

    #[test]
    fn cards_that_share_a_cpu_collide() {
        let mut made = made("cards", "", ["4", "5", "6", "6"]);
        made.nic("eth1", 3, 1, 1);
        made.interrupt("eth1", 50, "eth1-rx-0", "4");
        made.interrupt("eth1", 51, "eth1-tx-0", "5");
        let machine = made.machine();
        let all = [interface(&machine, "eth0"), interface(&machine, "eth1")];
        let found = find(&all, &HostCpus::read(&machine));
        assert_eq!(found[0][0].command, moves("40:7"));
        assert!(
            found[0][0]
                .why
                .contains("receive queue of eth0 and 1 receive queue of eth1 share CPU 4"),
            "{}",
            found[0][0].why
        );
        let of_eth1 = found[1]
            .iter()
            .filter(|a| a.collision == Some("shared_cpu"));
        assert_eq!(of_eth1.count(), 0, "CPU 7 is taken now");
    }

    #[test]
    fn all_cpus_with_a_queue_are_no_collision() {
        let made = made("full", "6-7", ["4", "4", "5", "5"]);
        assert_eq!(collisions(&made, |i| i.queues.channels_max = 4), []);
    }

    #[test]
    fn interrupts_leave_isolated_cpus() {
        let made = made("isolated", "6-7", ["4", "5", "6", "7"]);
        let found = collisions(&made, |_| ());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].collision, Some("isolated_cpu"));
        assert_eq!(found[0].command, moves("42:4 43:5"));
        assert!(found[0].why.starts_with("2 interrupts arrive on CPUs 6-7"));
    }

    #[test]
    fn interrupts_move_to_the_cards_node() {
        let made = made("far", "", ["0", "5", "0-3", "7"]);
        let found = collisions(&made, |_| ());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].collision, Some("far_node"));
        assert_eq!(found[0].command, moves("40:4 42:6"));
        assert!(
            found[0]
                .why
                .ends_with("away from NUMA node 1 of the device")
        );
        let isolated = self::made("no-near", "4-7", ["0", "1", "2", "3"]);
        assert_eq!(collisions(&isolated, |_| ()), []);
    }

    #[test]
    fn running_irqbalance_is_named() {
        let made = made("balanced", "", ["4", "4", "6", "7"]);
        made.file("proc/9/comm", "irqbalance\n");
        let found = collisions(&made, |_| ());
        assert!(
            found[0]
                .why
                .ends_with("irqbalance runs and may revert the change: stop it first")
        );
    }

    #[test]
    fn more_queues_are_possible_up_to_the_cpus() {
        let made = made("few", "7", ["4", "5", "6", "6"]);
        let commands = |channels, max, combined| {
            let found = collisions(&made, |i| {
                i.queues.channels = channels;
                i.queues.channels_max = max;
                i.queues.channels_combined = combined;
            });
            let few = found
                .into_iter()
                .find(|a| a.collision == Some("few_queues"));
            few.map(|advice| advice.command)
        };
        let set = |command: &str| Some(command.to_owned());
        assert_eq!(commands(2, 8, true), set("ethtool -L eth0 combined 3"));
        assert_eq!(commands(1, 2, false), set("ethtool -L eth0 rx 2"));
        assert_eq!(commands(3, 8, true), None);
        assert_eq!(commands(0, 8, true), None);
    }

    #[test]
    fn unused_queues_of_rss_are_reported() {
        let made = made("rss", "", ["4", "5", "6", "7"]);
        let found = collisions(&made, |i| {
            i.name = "a;b".to_owned();
            i.rss = Some(Rss::of(&[0, 1, 0, 1], 4, true));
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].command, "ethtool -X 'a;b' equal 4");
        assert_eq!(found[0].why, "the RSS table sends no packet to queues 2-3");
    }

    #[test]
    fn cards_of_512_cpus_are_planned() {
        let mut made = MadeMachine::new("many");
        made.file("sys/devices/system/cpu/online", "0-511\n");
        made.nic("eth0", 2, -1, 128);
        for queue in 0..128 {
            made.interrupt("eth0", 100 + queue, &format!("eth0-TxRx-{queue}"), "511");
        }
        let machine = made.machine();
        let mut eth0 = interface(&machine, "eth0");
        eth0.queues.channels_max = 128;
        let found = find(&[eth0], &HostCpus::read(&machine)).remove(0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "move 127 interrupts to CPUs 0-126");
    }
}
