//! CPUs, NUMA nodes, queues and interrupts of a machine, read from its `/sys` and `/proc`.
//!
//! ```text
//!   /sys/devices/system/cpu/{online, isolated, nohz_full}    CPUs
//!   /sys/devices/system/node/nodeN/cpulist                   NUMA nodes
//!   /sys/class/net/NAME/queues/{rx-N/rps_cpus, tx-N/xps_cpus}
//!   /sys/class/net/NAME/device/{numa_node, msi_irqs/, irq}   the NIC's node and interrupts
//!   /proc/interrupts                                         their names, which end with the queue
//!   /proc/irq/N/{effective,smp}_affinity_list                the CPUs that they go to
//! ```
//!
//! Invariant: nothing is guessed. A value that cannot be read is absent, and only a name that ends with
//! a number has a queue. Nothing is written. Deliberately absent: settings that need a socket (channels, RSS).

mod cpus;
mod interrupts;
pub mod made;
mod nic;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use cpus::Cpus;
pub use interrupts::{InterruptLine, interrupt_lines};
pub use nic::{Direction, Interrupt, Nic, Queue};

/// The directories in which the kernel shows its state.
#[derive(Clone, Debug)]
pub struct Machine {
    sys: PathBuf,
    proc: PathBuf,
}

impl Machine {
    /// This machine.
    pub fn real() -> Machine {
        Machine::at("/sys", "/proc")
    }

    /// A machine whose state is shown in other directories, for tests.
    pub fn at(sys: impl Into<PathBuf>, proc: impl Into<PathBuf>) -> Machine {
        Machine {
            sys: sys.into(),
            proc: proc.into(),
        }
    }

    /// CPUs online.
    pub fn online(&self) -> Cpus {
        self.cpus("online")
    }

    /// CPUs without tasks of the scheduler (`isolcpus`, isolated partitions of cpusets).
    pub fn isolated(&self) -> Cpus {
        self.cpus("isolated")
    }

    /// CPUs without a timer tick while one task runs (`nohz_full`).
    pub fn nohz_full(&self) -> Cpus {
        self.cpus("nohz_full")
    }

    fn cpus(&self, file: &str) -> Cpus {
        cpu_list(&self.sys.join("devices/system/cpu").join(file)).unwrap_or_default()
    }

    /// NUMA nodes with their CPUs; empty if the kernel shows none.
    pub fn nodes(&self) -> BTreeMap<u32, Cpus> {
        names(&self.sys.join("devices/system/node"))
            .filter_map(|name| name.strip_prefix("node")?.parse().ok())
            .map(|node| (node, self.cpus_of_node(node)))
            .collect()
    }

    /// The CPUs of a node; none if it is unknown.
    pub fn cpus_of_node(&self, node: u32) -> Cpus {
        let list = format!("devices/system/node/node{node}/cpulist");
        cpu_list(&self.sys.join(list)).unwrap_or_default()
    }

    /// True if a process of this PID namespace has the name (`comm`).
    pub fn runs(&self, program: &str) -> bool {
        names(&self.proc)
            .filter(|name| name.parse::<u32>().is_ok())
            .filter_map(|pid| read(&self.proc.join(pid).join("comm")))
            .any(|name| name.trim_end() == program)
    }

    /// The interrupts of all devices; see [`Nic::interrupts`].
    pub fn interrupt_lines(&self) -> Vec<InterruptLine> {
        let table = read(&self.proc.join("interrupts")).unwrap_or_default();
        interrupt_lines(&table)
    }

    /// A network interface.
    pub fn nic<'a>(&'a self, name: &'a str) -> Nic<'a> {
        Nic::new(self, name)
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn cpu_list(path: &Path) -> Option<Cpus> {
    read(path).map(|text| Cpus::from_list(&text))
}

/// Names of the entries of a directory.
fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::made::MadeMachine;

    #[test]
    fn cpus_nodes_and_processes_are_read() {
        let made = MadeMachine::new("host");
        made.file("sys/devices/system/cpu/online", "0-511\n");
        made.file("sys/devices/system/cpu/isolated", "4-5,511\n");
        made.file("sys/devices/system/cpu/nohz_full", "(null)\n");
        made.file("sys/devices/system/node/node0/cpulist", "0-255\n");
        made.file("sys/devices/system/node/node1/cpulist", "256-511\n");
        made.file("sys/devices/system/node/possible", "0-1\n");
        made.file("proc/7/comm", "irqbalance\n");
        made.file("proc/self/comm", "other\n");
        let machine = made.machine();
        assert_eq!(machine.online().len(), 512);
        assert_eq!(machine.isolated().to_string(), "4-5,511");
        assert!(machine.nohz_full().is_empty());
        let nodes: Vec<String> = machine.nodes().values().map(ToString::to_string).collect();
        assert_eq!(nodes, ["0-255", "256-511"]);
        assert!(machine.runs("irqbalance") && !machine.runs("other"));
    }

    #[test]
    fn missing_files_give_nothing() {
        let made = MadeMachine::new("nothing");
        let machine = made.machine();
        assert!(machine.online().is_empty() && machine.nodes().is_empty());
        assert!(machine.interrupt_lines().is_empty() && !machine.runs("irqbalance"));
    }
}
