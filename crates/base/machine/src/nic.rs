//! A network interface in sysfs: its device, NUMA node, queues and interrupts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::{Cpus, InterruptLine, Machine, cpu_list, names, read};

/// The direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// A queue of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its number, from 0.
    pub number: u32,
    /// CPUs that process its packets (RPS, receive) or use it (XPS, transmit). Empty: not set. Absent: the
    /// kernel shows no mask, as XPS of an interface with one queue.
    pub cpus: Option<Cpus>,
}

/// An interrupt of the queues of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number, as in `/proc/irq`.
    #[serde(rename = "irq")]
    pub number: u32,
    /// Its name, as in `/proc/interrupts`. The driver chose it: clean it before printing.
    pub action: String,
    /// The number of its queue, if its name has one.
    pub queue: Option<u32>,
    /// False if its name is that of a transmit queue.
    pub receives: bool,
    /// CPUs on which it may arrive.
    #[serde(rename = "allowed_cpus")]
    pub allowed: Cpus,
    /// CPUs on which it arrives; empty if the kernel does not show them.
    #[serde(rename = "effective_cpus")]
    pub effective: Cpus,
}

impl Interrupt {
    /// The CPUs on which it arrives, else those on which it may arrive.
    pub fn cpus(&self) -> &Cpus {
        match self.effective.is_empty() {
            true => &self.allowed,
            false => &self.effective,
        }
    }
}

/// A network interface of a machine.
#[derive(Debug)]
pub struct Nic<'a> {
    machine: &'a Machine,
    name: &'a str,
    directory: PathBuf,
}

impl<'a> Nic<'a> {
    pub(crate) fn new(machine: &'a Machine, name: &'a str) -> Nic<'a> {
        Nic {
            machine,
            name,
            directory: machine.sys.join("class/net").join(name),
        }
    }

    /// Its index. In another network namespace, sysfs may show another interface of the same name.
    pub fn ifindex(&self) -> Option<u32> {
        read(&self.directory.join("ifindex"))?.trim().parse().ok()
    }

    /// True if it has a device, real or of a virtual machine.
    pub fn has_device(&self) -> bool {
        self.device().exists()
    }

    /// The driver of its device.
    pub fn driver(&self) -> Option<String> {
        let target = fs::read_link(self.device().join("driver")).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The NUMA node of its device; absent where only one exists (the kernel reports -1).
    pub fn node(&self) -> Option<u32> {
        // The node of a virtio device is that of its parent device.
        let files = ["numa_node", "../numa_node"];
        files
            .iter()
            .find_map(|file| read(&self.device().join(file))?.trim().parse().ok())
    }

    /// Its queues of one direction, by number.
    pub fn queues(&self, direction: Direction) -> Vec<Queue> {
        let (prefix, mask) = match direction {
            Direction::Rx => ("rx-", "rps_cpus"),
            Direction::Tx => ("tx-", "xps_cpus"),
        };
        let directory = self.directory.join("queues");
        let numbers: BTreeSet<u32> = names(&directory)
            .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
            .collect();
        let queue = |number: u32| {
            let path = directory.join(format!("{prefix}{number}")).join(mask);
            let cpus = read(&path).and_then(|text| Cpus::from_mask(&text));
            Queue { number, cpus }
        };
        numbers.into_iter().map(queue).collect()
    }

    /// The interrupts of its queues, in the order of `lines` ([`Machine::interrupt_lines`]).
    ///
    /// Those that carry no packets are excluded. An interface with a single interrupt gives it its name.
    pub fn interrupts(&self, lines: &[InterruptLine]) -> Vec<Interrupt> {
        let numbers = self.interrupt_numbers();
        let own = || lines.iter().filter(|line| numbers.contains(&line.number));
        let mut chosen: Vec<_> = own().filter(|l| l.carries_packets(self.name)).collect();
        if chosen.is_empty() {
            chosen = own().filter(|line| line.is_named(self.name)).collect();
        }
        chosen
            .into_iter()
            .map(|line| self.interrupt(line))
            .collect()
    }

    fn interrupt(&self, line: &InterruptLine) -> Interrupt {
        let directory = self.machine.proc.join("irq").join(line.number.to_string());
        let list = |file| cpu_list(&directory.join(file)).unwrap_or_default();
        Interrupt {
            number: line.number,
            action: line.action.clone(),
            queue: line.queue(self.name),
            receives: line.receives(self.name),
            allowed: list("smp_affinity_list"),
            effective: list("effective_affinity_list"),
        }
    }

    /// The interrupts of its device, else those of its bus device (virtio), else the one without MSI.
    fn interrupt_numbers(&self) -> Vec<u32> {
        let numbers = |directory: &str| -> Vec<u32> {
            names(&self.device().join(directory))
                .filter_map(|name| name.parse().ok())
                .collect()
        };
        let found = ["msi_irqs", "../msi_irqs"].into_iter().map(numbers);
        let without_msi = || read(&self.device().join("irq"))?.trim().parse().ok();
        found
            .filter(|numbers| !numbers.is_empty())
            .chain(without_msi().map(|number| vec![number]))
            .next()
            .unwrap_or_default()
    }

    fn device(&self) -> PathBuf {
        self.directory.join("device")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::MadeMachine;

    #[test]
    fn queues_are_in_order_with_masks() {
        let mut made = MadeMachine::new("queues");
        made.nic("eth0", 2, 1, 11);
        made.file("sys/class/net/eth0/queues/rx-10/rps_cpus", "ff,ffffffff\n");
        let machine = made.machine();
        let nic = machine.nic("eth0");
        assert_eq!((nic.ifindex(), nic.node()), (Some(2), Some(1)));
        let rx = nic.queues(Direction::Rx);
        let numbers: Vec<u32> = rx.iter().map(|queue| queue.number).collect();
        assert_eq!(numbers, (0..11).collect::<Vec<u32>>());
        assert_eq!(rx[10].cpus.as_ref().unwrap().to_string(), "0-39");
        assert_eq!(rx[9].cpus, Some(Cpus::default()), "not set");
        assert_eq!(nic.queues(Direction::Tx)[0].cpus, None, "not shown");
    }

    #[test]
    fn interrupts_have_queue_and_cpus() {
        let mut made = MadeMachine::new("interrupts");
        made.nic("eth0", 2, -1, 2);
        made.interrupt("eth0", 40, "eth0-TxRx-0", "3");
        made.interrupt("eth0", 41, "eth0", "0");
        made.interrupt("", 50, "eth1-TxRx-0", "0");
        made.file("proc/irq/40/smp_affinity_list", "0-3\n");
        let machine = made.machine();
        let nic = machine.nic("eth0");
        let read = nic.interrupts(&machine.interrupt_lines());
        assert_eq!(read.len(), 1, "{read:?}");
        assert_eq!((read[0].number, read[0].queue), (40, Some(0)));
        assert_eq!(read[0].cpus().only(), Some(3));
        assert_eq!((read[0].allowed.len(), nic.node()), (4, None));
    }

    #[test]
    fn single_interrupts_have_the_interfaces_name() {
        let mut made = MadeMachine::new("single");
        made.nic("eth0", 2, 0, 1);
        made.file("sys/class/net/eth0/device/irq", "16\n");
        made.interrupt("", 16, "i801_smbus, eth0", "1");
        let machine = made.machine();
        let read = machine.nic("eth0").interrupts(&machine.interrupt_lines());
        assert_eq!((read[0].number, read[0].queue), (16, None));
    }
}
