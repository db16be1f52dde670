//! CPU and NUMA node of a forwarder: separate from the interrupts, near the NIC.
//!
//! The facts are those of fairpath-machine.
//!
//! Invariant: nothing is guessed. A thread is pinned only if the CPUs of its queues' interrupts are
//! known and another permitted CPU is free. Otherwise the kernel's scheduler decides. Deliberately
//! absent: moving interrupts, which is up to the administrator (irqbalance).

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use fairpath_machine::{Cpus, Machine};

use crate::open::LinkQueue;

/// CPUs in a mask of the kernel's usual size.
const MAX_CPUS: usize = 1024;

/// The selected CPU and node, with the interrupts they depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The CPU to pin to; none: the kernel's scheduler decides.
    pub cpu: Option<u32>,
    /// The NUMA node of all NICs, for [`Plan::node`](crate::Plan); none: several, or unknown.
    pub node: Option<u32>,
    /// CPUs of the queues' interrupts, as far as known.
    pub interrupts: Vec<u32>,
}

impl Placement {
    /// Selects a CPU for a thread of these queues; `taken` are CPUs of other such threads.
    pub fn of(queues: &[LinkQueue], taken: &[u32]) -> Placement {
        let allowed = allowed().unwrap_or_default();
        place(&Machine::real(), queues, &allowed, taken)
    }

    /// Pins the calling thread, if a CPU is selected.
    ///
    /// # Errors
    /// The error of the kernel: the CPU went offline, or a cpuset forbids it.
    pub fn pin(&self) -> io::Result<()> {
        let Some(cpu) = self.cpu else { return Ok(()) };
        // SAFETY: a structure of numbers, for which zeros are fine.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: sets a bit of this very mask; numbers beyond it set none.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
        // SAFETY: reads a mask of that size; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<_> = self.interrupts.iter().map(u32::to_string).collect();
        let listed = listed.join(", ");
        match (self.cpu, self.interrupts.is_empty()) {
            (Some(cpu), _) => write!(f, "on CPU {cpu}, interrupts on {listed}")?,
            (None, true) => write!(f, "on any CPU: no interrupts of the queues are known")?,
            (None, false) => write!(f, "on any CPU: interrupts go to all allowed ({listed})")?,
        }
        match self.node {
            Some(node) => write!(f, "; frames on node {node}"),
            None => Ok(()),
        }
    }
}

/// CPUs that the calling thread may run on.
fn allowed() -> io::Result<Cpus> {
    // SAFETY: a structure of numbers, for which zeros are fine.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes a mask of that size; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: reads bits of this very mask.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..MAX_CPUS).filter(is_set).map(|cpu| cpu as u32).collect())
}

fn place(machine: &Machine, queues: &[LinkQueue], allowed: &Cpus, taken: &[u32]) -> Placement {
    let node = node_of_all(machine, queues);
    let interrupts: Cpus = interrupt_cpus(machine, queues);
    let near = node
        .map(|node| machine.cpus_of_node(node))
        .unwrap_or_default();
    let free = allowed
        .without(&interrupts)
        .without(&taken.iter().copied().collect());
    // The last one: low CPUs run everything else.
    let cpu = match interrupts.is_empty() {
        true => None,
        false => free
            .and(&near)
            .iter()
            .next_back()
            .or_else(|| free.iter().next_back()),
    };
    Placement {
        cpu,
        node,
        interrupts: interrupts.iter().collect(),
    }
}

/// The node of all NICs, if it is one.
fn node_of_all(machine: &Machine, queues: &[LinkQueue]) -> Option<u32> {
    let node = |queue: &LinkQueue| machine.nic(&queue.name).node();
    let nodes: BTreeSet<Option<u32>> = queues.iter().map(node).collect();
    nodes
        .first()
        .copied()
        .flatten()
        .filter(|_| nodes.len() == 1)
}

/// CPUs of the interrupts of these queues; of all queues of a NIC whose interrupts name no such queue.
fn interrupt_cpus(machine: &Machine, queues: &[LinkQueue]) -> Cpus {
    let lines = machine.interrupt_lines();
    let mut cpus = Cpus::default();
    for queue in queues {
        let all = machine.nic(&queue.name).interrupts(&lines);
        let is_own = |queue_of: Option<u32>| queue_of == Some(queue.queue);
        let named = all.iter().any(|interrupt| is_own(interrupt.queue));
        let chosen = all.iter().filter(|i| !named || is_own(i.queue));
        cpus = chosen.fold(cpus, |cpus, interrupt| cpus.or(interrupt.cpus()));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use fairpath_machine::made::MadeMachine;
    use fairpath_units::IfIndex;

    use super::*;

    fn queues(queue: u32) -> Vec<LinkQueue> {
        let link = |name: &str| LinkQueue {
            ifindex: IfIndex(1),
            name: name.to_owned(),
            queue,
        };
        vec![link("a"), link("b")]
    }

    /// A machine with two NICs of two queues each.
    fn two_nics(name: &str) -> MadeMachine {
        let mut made = MadeMachine::new(name);
        made.nic("a", 1, 1, 2);
        made.nic("b", 2, 1, 2);
        made.file("sys/devices/system/node/node1/cpulist", "4-7\n");
        for (nic, number, action, cpus) in [
            ("a", 40, "a-TxRx-0", "7"),
            ("a", 41, "a-TxRx-1", "2"),
            ("b", 50, "virtio1-input.0", "6"),
            ("b", 51, "c", "0-1"),
        ] {
            made.interrupt(nic, number, action, cpus);
        }
        made
    }

    #[test]
    fn threads_run_near_the_nic_off_its_interrupts() {
        let made = two_nics("apart");
        let all: Cpus = (0..8).collect();
        let placed = place(&made.machine(), &queues(0), &all, &[]);
        let text = "on CPU 5, interrupts on 6, 7; frames on node 1";
        assert_eq!((placed.cpu, placed.to_string().as_str()), (Some(5), text));
        let second = place(&made.machine(), &queues(0), &all, &[5]);
        assert_eq!(second.cpu, Some(4));
        let far = place(&made.machine(), &queues(0), &all, &[4, 5]);
        assert_eq!(far.cpu, Some(3), "another node's rather than none");
    }

    #[test]
    fn unnamed_interrupts_count_for_all_queues() {
        let made = two_nics("names");
        let all: Cpus = (0..8).collect();
        let placed = place(&made.machine(), &queues(1), &all, &[]);
        assert_eq!(placed.interrupts, [0, 1, 2, 6]);
    }

    #[test]
    fn unknown_placement_is_not_guessed() {
        let made = MadeMachine::new("unknown");
        let placed = place(&made.machine(), &queues(0), &(0..8).collect(), &[]);
        assert_eq!((placed.cpu, placed.node), (None, None));
        assert!(
            placed
                .to_string()
                .contains("no interrupts of the queues are known")
        );
        let made = two_nics("full");
        let placed = place(&made.machine(), &queues(0), &Cpus::from([6, 7]), &[]);
        assert_eq!(placed.cpu, None);
        assert!(
            placed
                .to_string()
                .contains("interrupts go to all allowed (6, 7)"),
            "{placed}"
        );
    }

    #[test]
    fn a_thread_that_is_pinned_runs_there() {
        let last = allowed().unwrap().iter().next_back();
        let placement = Placement {
            cpu: last,
            node: None,
            interrupts: Vec::new(),
        };
        let pinned = std::thread::spawn(move || {
            placement.pin().unwrap();
            allowed().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), last.into_iter().collect());
    }
}
