//! The numbered lines of `/proc/interrupts`, and the purpose of an interrupt by its name.

/// One numbered line of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptLine {
    /// The number.
    pub number: u32,
    /// The purpose: the last column, for example `eth0-TxRx-0`; several are separated by `, `.
    pub action: String,
}

impl InterruptLine {
    /// Drivers have interrupts for configuration, errors and mailboxes, too, and name them so.
    pub(crate) fn carries_packets(&self, interface: &str) -> bool {
        const OTHER: [&str; 8] = [
            "config", "async", "misc", "mailbox", "mbx", "aux", "control", "mgmnt",
        ];
        let words = || words(&self.action, interface);
        self.action != interface && !words().any(|w| OTHER.iter().any(|other| w.contains(other)))
    }

    /// True if the interface itself is an action: its only interrupt, or one without packets.
    pub(crate) fn is_named(&self, interface: &str) -> bool {
        self.action.split(", ").any(|action| action == interface)
    }

    /// The number at the end of the name: `eth0-TxRx-3`, `virtio0-input.3`, `mlx5_comp3@pci:...`.
    pub(crate) fn queue(&self, interface: &str) -> Option<u32> {
        let name = self.action.rsplit(", ").next()?.split('@').next()?;
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let queue = name[name.len() - digits..].parse().ok();
        queue.filter(|_| name != interface)
    }

    /// False if the name is that of a transmit queue: `eth0-tx-3`, `virtio0-output.3`.
    pub(crate) fn receives(&self, interface: &str) -> bool {
        let name: Vec<String> = words(&self.action, interface)
            .map(str::to_ascii_lowercase)
            .collect();
        let has = |part: &str| name.iter().any(|word| word.contains(part));
        has("rx") || has("input") || !(has("tx") || has("output"))
    }
}

/// The parts of a name that are not the interface's own.
fn words<'a>(action: &'a str, interface: &'a str) -> impl Iterator<Item = &'a str> {
    action
        .split(|c: char| "-:@.,".contains(c) || c.is_whitespace())
        .filter(move |word| *word != interface)
}

/// The numbered lines; the named ones (`NMI`, `LOC`, ...) belong to no device.
pub fn interrupt_lines(table: &str) -> Vec<InterruptLine> {
    let mut lines = table.lines();
    let cpus = lines
        .next()
        .map_or(0, |header| header.split_whitespace().count());
    lines.filter_map(|line| interrupt(line, cpus)).collect()
}

/// After the counts come the controller, the number within it (with `-edge` or `-fasteoi`), and the actions.
fn interrupt(line: &str, cpus: usize) -> Option<InterruptLine> {
    let (number, rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let words: Vec<&str> = rest.split_whitespace().skip(cpus).collect();
    let many_actions = words.iter().position(|word| word.ends_with(','));
    let actions = match many_actions {
        Some(first) => &words[first..],
        None => &words[words.len().saturating_sub(1)..],
    };
    Some(InterruptLine {
        number,
        action: actions.join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(action: &str) -> InterruptLine {
        InterruptLine {
            number: 40,
            action: action.to_owned(),
        }
    }

    #[test]
    fn interrupts_are_read_by_number_and_action() {
        let table = "           CPU0       CPU1       \n\
                     \x2038:          0       4442 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
                     \x2016:         12          0 IR-IO-APIC  16-fasteoi   i801_smbus, eth1\n\
                     \x20 9:          0          0 IO-APIC   9-fasteoi\n\
                     LOC:      37191      40321   Local timer interrupts\n";
        let read = interrupt_lines(table);
        let actions: Vec<(u32, &str)> =
            read.iter().map(|l| (l.number, l.action.as_str())).collect();
        assert_eq!(actions[0], (38, "virtio2-input.0"));
        assert_eq!(actions[1], (16, "i801_smbus, eth1"));
        assert_eq!(actions.len(), 3);
        assert!(read[1].is_named("eth1") && !read[0].is_named("eth1"));
        assert!(interrupt_lines("").is_empty());
    }

    #[test]
    fn interrupts_without_packets_are_excluded() {
        let carries = |action, interface| line(action).carries_packets(interface);
        for action in [
            "virtio2-input.0",
            "eth0-TxRx-0",
            "mlx5_comp0@pci:0000:01:00.0",
        ] {
            assert!(carries(action, "eth0"), "{action}");
        }
        let others = ["virtio2-config", "mlx5_async0@pci:0000:01:00.0", "eth0"];
        for action in others {
            assert!(!carries(action, "eth0"), "{action}");
        }
        assert!(carries("i40e-misc0-TxRx-0", "misc0"));
    }

    #[test]
    fn names_give_queue_and_direction() {
        for (action, queue, receives) in [
            ("eth0-TxRx-3", Some(3), true),
            ("eth0-rx-12", Some(12), true),
            ("eth0-tx-1", Some(1), false),
            ("virtio0-input.3", Some(3), true),
            ("virtio0-output.3", Some(3), false),
            ("mlx5_comp7@pci:0000:01:00.0", Some(7), true),
            ("i801_smbus, eth0", None, true),
            ("eth0", None, true),
        ] {
            let line = line(action);
            let read = (line.queue("eth0"), line.receives("eth0"));
            assert_eq!(read, (queue, receives), "{action}");
        }
        assert!(line("mlx5_comp0").receives("tx"));
    }
}
