//! `fairpath features --cpus`: queues, interrupts and CPUs, and where they collide.
//!
//! ```text
//!   /sys, /proc --> CPUs of the machine --.
//!   interface::collect --> interfaces ----+--> collisions --> text | JSON
//! ```
//!
//! Invariant: settings are only read, and an unknown value is never a collision.

mod collisions;
mod text;

use fairpath_machine::{Cpus, Machine};
use serde::Serialize;

pub use self::collisions::find;
pub use self::text::render;

/// The CPUs of the machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostCpus {
    pub online: Cpus,
    /// CPUs without tasks of the scheduler.
    pub isolated: Cpus,
    /// CPUs without a timer tick while one task runs.
    pub nohz_full: Cpus,
    pub numa_nodes: Vec<NumaNode>,
    /// True if a process moves interrupts between CPUs.
    pub irqbalance: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: Cpus,
}

impl HostCpus {
    pub fn read(machine: &Machine) -> HostCpus {
        let nodes = machine.nodes().into_iter();
        HostCpus {
            online: machine.online(),
            isolated: machine.isolated(),
            nohz_full: machine.nohz_full(),
            numa_nodes: nodes.map(|(node, cpus)| NumaNode { node, cpus }).collect(),
            irqbalance: machine.runs("irqbalance"),
        }
    }

    /// CPUs that are reserved for tasks of the administrator.
    pub fn reserved(&self) -> Cpus {
        self.isolated.or(&self.nohz_full)
    }

    /// CPUs online that may process packets.
    pub fn usable(&self) -> Cpus {
        self.online.without(&self.reserved())
    }

    /// Those of `usable` that are among `node`; all if none is, as without NUMA.
    pub fn usable_near(&self, node: &Cpus) -> Cpus {
        let usable = self.usable();
        let near = usable.and(node);
        if near.is_empty() { usable } else { near }
    }
}

#[cfg(test)]
mod tests {
    use fairpath_machine::made::MadeMachine;

    use super::*;

    #[test]
    fn isolated_cpus_process_no_packets() {
        let made = MadeMachine::new("usable");
        made.file("sys/devices/system/cpu/online", "0-511\n");
        made.file("sys/devices/system/cpu/isolated", "256-400\n");
        made.file("sys/devices/system/cpu/nohz_full", "400-511\n");
        let cpus = HostCpus::read(&made.machine());
        assert_eq!(cpus.usable().to_string(), "0-255");
        let near = |list| cpus.usable_near(&Cpus::from_list(list)).to_string();
        assert_eq!(near("200-300"), "200-255");
        assert_eq!(near("256-511"), "0-255", "the whole node is isolated");
        assert_eq!(near(""), "0-255");
    }
}
