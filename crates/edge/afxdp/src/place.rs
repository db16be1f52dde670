//! CPU and NUMA node of a forwarder: separate from the interrupts, near the NIC.
//!
//! ```text
//!   /sys/class/net/NAME/device/{numa_node, msi_irqs/}   the NIC's node and interrupts
//!   /proc/interrupts                                    their names, which end with the queue
//!   /proc/irq/N/effective_affinity_list                 the CPUs they go to
//! ```
//!
//! Invariant: nothing is guessed. A thread is pinned only if the CPUs of its queues' interrupts are
//! known and another permitted CPU is free. Otherwise the kernel's scheduler decides. Deliberately
//! absent: moving interrupts, which is up to the administrator (irqbalance).

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
        Machine::real().place(queues, &allowed, taken)
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
fn allowed() -> io::Result<BTreeSet<u32>> {
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

/// The directories in which the kernel shows its state.
struct Machine {
    sys: PathBuf,
    proc: PathBuf,
}

impl Machine {
    fn real() -> Machine {
        Machine {
            sys: "/sys".into(),
            proc: "/proc".into(),
        }
    }

    fn place(&self, queues: &[LinkQueue], allowed: &BTreeSet<u32>, taken: &[u32]) -> Placement {
        let nodes: BTreeSet<Option<u32>> = queues.iter().map(|q| self.node(&q.name)).collect();
        let node = match nodes.len() {
            1 => nodes.into_iter().next().flatten(),
            _ => None,
        };
        let interrupts: BTreeSet<u32> = queues.iter().flat_map(|q| self.cpus_of(q)).collect();
        let free = |cpu: &&u32| !interrupts.contains(cpu) && !taken.contains(cpu);
        let near = node.map(|node| self.cpus_near(node)).unwrap_or_default();
        let mut candidates = allowed.iter().filter(free);
        // The last one: low CPUs run everything else.
        let cpu = match interrupts.is_empty() {
            true => None,
            false => candidates
                .clone()
                .rfind(|cpu| near.contains(cpu))
                .or_else(|| candidates.next_back())
                .copied(),
        };
        Placement {
            cpu,
            node,
            interrupts: interrupts.into_iter().collect(),
        }
    }

    fn device(&self, name: &str) -> PathBuf {
        self.sys.join("class/net").join(name).join("device")
    }

    /// The kernel reports -1 where only one node exists.
    fn node(&self, name: &str) -> Option<u32> {
        let device = self.device(name);
        // The node of a virtio device is that of its parent device.
        let texts = [device.join("numa_node"), device.join("../numa_node")];
        texts
            .iter()
            .find_map(|path| read(path)?.trim().parse().ok())
    }

    fn cpus_near(&self, node: u32) -> BTreeSet<u32> {
        let list = self
            .sys
            .join(format!("devices/system/node/node{node}/cpulist"));
        read(&list).map(|text| cpu_list(&text)).unwrap_or_default()
    }

    /// CPUs of the interrupts of a queue.
    fn cpus_of(&self, queue: &LinkQueue) -> BTreeSet<u32> {
        let device = self.device(&queue.name);
        let folders = [device.join("msi_irqs"), device.join("../msi_irqs")];
        let numbers: BTreeSet<u32> = folders.iter().flat_map(|folder| names(folder)).collect();
        let all = read(&self.proc.join("interrupts")).unwrap_or_default();
        let named: Vec<(u32, bool)> = all
            .lines()
            .filter_map(|line| interrupt(line, queue.queue))
            .filter(|(number, _)| numbers.contains(number))
            .collect();
        let own = named.iter().any(|(_, own)| *own);
        let chosen = named.iter().filter(|(_, of_queue)| *of_queue || !own);
        let affinity = |number: u32| {
            let irq = self.proc.join("irq").join(number.to_string());
            let lists = [
                irq.join("effective_affinity_list"),
                irq.join("smp_affinity_list"),
            ];
            let text = lists.iter().find_map(|path| read(path));
            text.map(|text| cpu_list(&text)).unwrap_or_default()
        };
        chosen.flat_map(|(number, _)| affinity(*number)).collect()
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The entries of a directory that are numbers.
fn names(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Number of the interrupt in a line of `/proc/interrupts`, and whether its name ends with the queue:
/// `eth0-TxRx-3`, `virtio0-input.3`, `mlx5_comp3@pci:...`.
fn interrupt(line: &str, queue: u32) -> Option<(u32, bool)> {
    let (number, rest) = line.split_once(':')?;
    let name = rest.split_whitespace().next_back()?.split('@').next()?;
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let of_queue = name[name.len() - digits..].parse() == Ok(queue);
    Some((number.trim().parse().ok()?, of_queue))
}

/// The kernel's lists: `0-3,8`.
fn cpu_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',')
        .filter_map(range)
        .flatten()
        .take(MAX_CPUS)
        .collect()
}

#[cfg(test)]
mod tests {
    use fairpath_units::IfIndex;

    use super::*;

    /// Files of a machine with two NICs of two queues each.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str) -> Made {
            let root =
                std::env::temp_dir().join(format!("fairpath-place-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Made(root)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn nic(&self, name: &str, node: i32, first: u32) {
            self.file(
                &format!("sys/class/net/{name}/device/numa_node"),
                &format!("{node}\n"),
            );
            for irq in first..first + 2 {
                self.file(
                    &format!("sys/class/net/{name}/device/msi_irqs/{irq}"),
                    "msix\n",
                );
            }
        }

        fn machine(&self) -> Machine {
            Machine {
                sys: self.0.join("sys"),
                proc: self.0.join("proc"),
            }
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn queues(queue: u32) -> Vec<LinkQueue> {
        let link = |name: &str| LinkQueue {
            ifindex: IfIndex(1),
            name: name.to_owned(),
            queue,
        };
        vec![link("a"), link("b")]
    }

    fn two_nics(name: &str) -> Made {
        let made = Made::new(name);
        made.nic("a", 1, 40);
        made.nic("b", 1, 50);
        made.file("sys/devices/system/node/node1/cpulist", "4-7\n");
        let line = |irq, name| format!(" {irq}:  0  17  PCI-MSIX-0000:01:00.0  0-edge  {name}\n");
        let lines = [
            (40, "a-TxRx-0"),
            (41, "a-TxRx-1"),
            (50, "virtio1-input.0"),
            (51, "c"),
        ];
        let text: String = lines.iter().map(|(irq, name)| line(irq, name)).collect();
        made.file("proc/interrupts", &format!("   CPU0 CPU1\n{text}"));
        for (irq, cpus) in [(40, "7"), (41, "2"), (50, "6"), (51, "0-1")] {
            made.file(
                &format!("proc/irq/{irq}/effective_affinity_list"),
                &format!("{cpus}\n"),
            );
        }
        made
    }

    #[test]
    fn threads_run_near_the_nic_off_its_interrupts() {
        let made = two_nics("apart");
        let all: BTreeSet<u32> = (0..8).collect();
        let placed = made.machine().place(&queues(0), &all, &[]);
        let text = "on CPU 5, interrupts on 6, 7; frames on node 1";
        assert_eq!((placed.cpu, placed.to_string().as_str()), (Some(5), text));
        let second = made.machine().place(&queues(0), &all, &[5]);
        assert_eq!(second.cpu, Some(4));
        let far = made.machine().place(&queues(0), &all, &[4, 5]);
        assert_eq!(far.cpu, Some(3), "another node's rather than none");
    }

    #[test]
    fn unnamed_interrupts_count_for_all_queues() {
        let made = two_nics("names");
        let all: BTreeSet<u32> = (0..8).collect();
        let placed = made.machine().place(&queues(1), &all, &[]);
        assert_eq!(placed.interrupts, [0, 1, 2, 6]);
    }

    #[test]
    fn unknown_placement_is_not_guessed() {
        let made = Made::new("unknown");
        let placed = made.machine().place(&queues(0), &(0..8).collect(), &[]);
        assert_eq!((placed.cpu, placed.node), (None, None));
        assert!(
            placed
                .to_string()
                .contains("no interrupts of the queues are known")
        );
        let made = two_nics("full");
        let placed = made.machine().place(&queues(0), &[6, 7].into(), &[]);
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
        let last = allowed().unwrap().into_iter().next_back();
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
