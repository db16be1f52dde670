//! A machine of made directories, for tests.

use std::fs;
use std::path::PathBuf;
use std::process;

use crate::Machine;

/// Files as `/sys` and `/proc` have them, in a temporary directory that ends with the value.
///
/// Every method panics if a file cannot be written.
#[derive(Debug)]
pub struct MadeMachine {
    root: PathBuf,
    table: String,
}

impl MadeMachine {
    /// An empty machine; `name` is unique in its test executable.
    pub fn new(name: &str) -> MadeMachine {
        let directory = format!("fairpath-machine-{}-{name}", process::id());
        let root = std::env::temp_dir().join(directory);
        fs::create_dir_all(&root).expect("a temporary directory");
        MadeMachine {
            root,
            table: "   CPU0 CPU1\n".to_owned(),
        }
    }

    /// Writes a file below `sys/` or `proc/`.
    pub fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let directory = path.parent().expect("a path below the root");
        fs::create_dir_all(directory).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    /// Adds a network card with `queues` queues of each direction, RPS off and no XPS masks.
    pub fn nic(&mut self, name: &str, ifindex: u32, node: i32, queues: u32) {
        let nic = format!("sys/class/net/{name}");
        self.file(&format!("{nic}/ifindex"), &format!("{ifindex}\n"));
        self.file(&format!("{nic}/device/numa_node"), &format!("{node}\n"));
        for queue in 0..queues {
            self.file(&format!("{nic}/queues/rx-{queue}/rps_cpus"), "0\n");
            self.file(&format!("{nic}/queues/tx-{queue}/tx_timeout"), "0\n");
        }
    }

    /// Adds an interrupt to the table that arrives on `cpus`, one of the card `nic` unless this is empty.
    pub fn interrupt(&mut self, nic: &str, number: u32, action: &str, cpus: &str) {
        let line = format!(" {number}:  0  17  PCI-MSIX-0000:01:00.0  0-edge  {action}\n");
        self.table.push_str(&line);
        self.file("proc/interrupts", &self.table);
        let list = format!("proc/irq/{number}/effective_affinity_list");
        self.file(&list, &format!("{cpus}\n"));
        if !nic.is_empty() {
            let entry = format!("sys/class/net/{nic}/device/msi_irqs/{number}");
            self.file(&entry, "msix\n");
        }
    }

    /// The machine of these files.
    pub fn machine(&self) -> Machine {
        Machine::at(self.root.join("sys"), self.root.join("proc"))
    }
}

impl Drop for MadeMachine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
