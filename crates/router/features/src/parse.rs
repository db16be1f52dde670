//! The kernel's small text formats: CPU lists, CPU masks, `/proc/interrupts`.

/// The CPUs of a list like `0-2,5`; what cannot be read is passed over.
pub fn cpu_list(list: &str) -> Vec<u32> {
    /// More CPUs than any kernel is built for; a list that names more is not a CPU list.
    const CPU_LIMIT: u32 = 1 << 16;
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (last < CPU_LIMIT).then_some(first..=last)
        })
        .flatten()
        .collect()
}

/// True if a CPU mask like `00000000,0000000f` has any bit set.
pub fn mask_is_set(mask: &str) -> bool {
    mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
}

/// The mask of `cpus` as sysfs takes it: hexadecimal words of 32 bits, highest first.
pub fn cpu_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |max| max / 32 + 1);
    let word = |index: u32| {
        cpus.iter()
            .filter(|cpu| **cpu / 32 == index)
            .fold(0u32, |mask, cpu| mask | 1 << (cpu % 32))
    };
    let mut text = format!("{:x}", word(words - 1));
    for index in (0..words - 1).rev() {
        text.push_str(&format!(",{:08x}", word(index)));
    }
    text
}

/// One numbered line of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptLine {
    pub irq: u32,
    /// The purpose: the last column, for example `eth0-TxRx-0`; several are separated by `, `.
    pub action: String,
}

/// The numbered lines; the named ones (`NMI`, `LOC`, ...) are no device's.
pub fn interrupts(table: &str) -> Vec<InterruptLine> {
    let cpus = table
        .lines()
        .next()
        .map_or(0, |header| header.split_whitespace().count());
    table
        .lines()
        .skip(1)
        .filter_map(|line| interrupt(line, cpus))
        .collect()
}

/// After the counts come the controller, the number within it (with `-edge` or `-fasteoi`), and the actions.
fn interrupt(line: &str, cpus: usize) -> Option<InterruptLine> {
    let (irq, rest) = line.split_once(':')?;
    let irq = irq.trim().parse().ok()?;
    let words: Vec<&str> = rest.split_whitespace().skip(cpus).collect();
    let many_actions = words.iter().position(|word| word.ends_with(','));
    let actions = match many_actions {
        Some(first) => &words[first..],
        None => &words[words.len().saturating_sub(1)..],
    };
    Some(InterruptLine {
        irq,
        action: actions.join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_have_ranges_and_tolerate_nonsense() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("7"), [7]);
        assert!(cpu_list("").is_empty());
        assert!(cpu_list("0-4294967295").is_empty());
        assert_eq!(cpu_list("x,3"), [3]);
    }

    #[test]
    fn masks_are_written_as_sysfs_takes_them() {
        assert_eq!(cpu_mask(&[0, 1]), "3");
        assert_eq!(cpu_mask(&[1, 33]), "2,00000002");
        assert_eq!(cpu_mask(&[]), "0");
        assert!(mask_is_set("00000000,00000002") && !mask_is_set("00000000,00000000\n"));
    }

    #[test]
    fn interrupts_are_read_by_number_and_action() {
        let table = "           CPU0       CPU1       \n\
                     \x2038:          0       4442 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
                     \x2016:         12          0 IR-IO-APIC  16-fasteoi   i801_smbus, eth1\n\
                     \x20 9:          0          0 IO-APIC   9-fasteoi\n\
                     LOC:      37191      40321   Local timer interrupts\n";
        let read = interrupts(table);
        let actions: Vec<(u32, &str)> = read.iter().map(|l| (l.irq, l.action.as_str())).collect();
        assert_eq!(actions[0], (38, "virtio2-input.0"));
        assert_eq!(actions[1], (16, "i801_smbus, eth1"));
        assert_eq!(actions.len(), 3);
        assert!(interrupts("").is_empty());
    }
}
