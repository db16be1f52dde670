//! The report for people: the machine's CPUs, then each interface with its tables and collisions.

use fairpath_machine::{Cpus, Interrupt};
use fairpath_units::text::line;

use super::HostCpus;
use crate::interface::{ChannelCounts, Interface, Rss};
use crate::text::{Style, VALUE_COLUMN, advice, label, link, qdisc, title, xdp};

/// Of interfaces that sysfs does not show.
const HIDDEN: &str =
    "unknown: /sys shows another network namespace; enter this one with `ip netns exec`";
/// A value that the kernel does not show.
const ABSENT: &str = "-";

/// The whole report.
pub fn render(cpus: &HostCpus, interfaces: &[Interface], style: Style) -> String {
    let mut text = host(cpus, style);
    for one in interfaces {
        text.push('\n');
        text.push_str(&interface(one, style));
    }
    if interfaces.is_empty() {
        text.push_str("\nno physical interface or veth in this network namespace\n");
    }
    text
}

fn host(cpus: &HostCpus, style: Style) -> String {
    let irqbalance = if cpus.irqbalance {
        "running"
    } else {
        "not running"
    };
    let rows = [
        ("online", or_none(&cpus.online)),
        ("isolated", or_none(&cpus.isolated)),
        ("nohz_full", or_none(&cpus.nohz_full)),
        ("NUMA nodes", nodes(cpus)),
        ("irqbalance", irqbalance.to_owned()),
    ];
    let rows = rows.map(|(name, value)| label(name, &value));
    format!("{}\n{}", style.heading("CPUs"), rows.concat())
}

fn nodes(cpus: &HostCpus) -> String {
    let node = |node: &super::NumaNode| format!("{}: {}", node.node, or_none(&node.cpus));
    let nodes: Vec<String> = cpus.numa_nodes.iter().map(node).collect();
    match nodes.is_empty() {
        true => "unknown".to_owned(),
        false => nodes.join("; "),
    }
}

fn interface(i: &Interface, style: Style) -> String {
    let rows = [
        ("link", link(i)),
        ("queues", queues(i)),
        ("RSS", rss(i)),
        ("qdisc", qdisc(i)),
        ("XDP", xdp(i)),
    ];
    let mut text = title(i, style);
    text.extend(rows.map(|(name, value)| label(name, &value)));
    text.push_str(&interrupts(i));
    text.push_str(&queue_table(i));
    text.push_str(&advice(&i.advice, "collisions", style));
    text
}

fn queues(i: &Interface) -> String {
    let used = format!("rx {}, tx {}", i.queues.rx, i.queues.tx);
    let channels = i.channels.as_ref().map(channels).unwrap_or_default();
    match channels.is_empty() {
        true => format!("{used}; the driver does not report its channels"),
        false => format!("{used}; channels: {channels}"),
    }
}

fn channels(c: &ChannelCounts) -> String {
    let kinds = [
        ("combined", c.combined, c.combined_max),
        ("rx", c.rx, c.rx_max),
        ("tx", c.tx, c.tx_max),
    ];
    let possible = kinds.iter().filter(|(_, _, max)| *max > 0);
    let words: Vec<String> = possible
        .map(|(name, now, max)| format!("{name} {now} of at most {max}"))
        .collect();
    words.join(", ")
}

fn rss(i: &Interface) -> String {
    let Some(rss) = &i.rss else {
        return "unknown: the driver reports no table".to_owned();
    };
    let mut text = rss_table(rss);
    for (fields, kinds) in hash_fields(i) {
        text.push_str(&format!("; {} by {}", kinds.join(" "), fields));
    }
    text
}

fn rss_table(rss: &Rss) -> String {
    let all = rss.queues_used + rss.queues_unused.len();
    let share = if rss.equal { "equally" } else { "unequally" };
    format!(
        "{} entries over {} of {all} queues, {share}",
        rss.indirection_entries, rss.queues_used
    )
}

/// The hash fields with their kinds of flow: kinds with the same fields are one entry.
fn hash_fields(i: &Interface) -> Vec<(String, Vec<&'static str>)> {
    let mut entries: Vec<(String, Vec<&'static str>)> = Vec::new();
    for (kind, fields) in &i.hash_fields {
        let fields = match fields.is_empty() {
            true => "no field".to_owned(),
            false => fields.join(" "),
        };
        match entries.iter_mut().find(|(known, _)| *known == fields) {
            Some((_, kinds)) => kinds.push(kind),
            None => entries.push((fields, vec![kind])),
        }
    }
    entries
}

fn interrupts(i: &Interface) -> String {
    if !i.sysfs {
        return label("interrupts", HIDDEN);
    }
    if i.irqs.is_empty() {
        return label("interrupts", "none");
    }
    let row = |irq: &Interrupt| {
        let queue = irq
            .queue
            .map_or(ABSENT.to_owned(), |queue| queue.to_string());
        let name = line(&irq.action).into_owned();
        [irq.number.to_string(), queue, on(irq), name]
    };
    let rows = i.irqs.iter().map(row).collect();
    table("interrupts", ["number", "queue", "CPU", "name"], rows)
}

/// The CPUs on which an interrupt arrives.
fn on(irq: &Interrupt) -> String {
    match (irq.effective.is_empty(), irq.allowed.is_empty()) {
        (false, _) => irq.effective.to_string(),
        (true, false) => format!("any of {}", irq.allowed),
        (true, true) => ABSENT.to_owned(),
    }
}

fn queue_table(i: &Interface) -> String {
    if !i.sysfs {
        return label("by queue", HIDDEN);
    }
    let count = i.rx_queues.len().max(i.tx_queues.len());
    let rx = |at: usize| i.rx_queues.get(at);
    let tx = |at: usize| i.tx_queues.get(at);
    let row = |at: usize| {
        let qdisc = tx(at).and_then(|queue| queue.qdisc.as_deref());
        [
            at.to_string(),
            mask(rx(at).and_then(|queue| queue.rps_cpus.as_ref())),
            mask(tx(at).and_then(|queue| queue.xps_cpus.as_ref())),
            line(qdisc.unwrap_or(ABSENT)).into_owned(),
        ]
    };
    let rows = (0..count).map(row).collect();
    table("by queue", ["queue", "RPS", "XPS", "qdisc"], rows)
}

fn mask(cpus: Option<&Cpus>) -> String {
    match cpus {
        None => ABSENT.to_owned(),
        Some(cpus) if cpus.is_empty() => "off".to_owned(),
        Some(cpus) => cpus.to_string(),
    }
}

fn or_none(cpus: &Cpus) -> String {
    match cpus.is_empty() {
        true => "none".to_owned(),
        false => cpus.to_string(),
    }
}

/// Columns below a label. The last column is not padded.
fn table<const N: usize>(name: &str, head: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows);
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (at, row) in all.iter().enumerate() {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let cells = cells.collect::<Vec<String>>().join("  ");
        let label = if at == 0 { name } else { "" };
        let line = format!("  {label:<width$}{cells}", width = VALUE_COLUMN - 2);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{RxQueue, TxQueue};

    fn irq(number: u32, queue: u32, name: &str, cpus: &str) -> Interrupt {
        Interrupt {
            number,
            action: name.to_owned(),
            queue: Some(queue),
            receives: true,
            effective: Cpus::from_list(cpus),
            allowed: Cpus::from_list("0-511"),
        }
    }

    fn card() -> Interface {
        Interface {
            name: "eth\u{1b}[2J".to_owned(),
            ifindex: 2,
            kind: "physical".to_owned(),
            sysfs: true,
            irqs: vec![
                irq(40, 0, "a\u{9b}2J-TxRx-0", "7"),
                irq(141, 1, "b-TxRx-1", ""),
            ],
            rss: Some(Rss::of(&[0, 1, 0, 1], 2, true)),
            hash_fields: [
                ("tcp4", vec!["src_address", "src_port"]),
                ("tcp6", vec!["src_address", "src_port"]),
                ("udp4", vec![]),
            ]
            .into(),
            channels: Some(ChannelCounts {
                combined: 2,
                combined_max: 8,
                ..Default::default()
            }),
            rx_queues: vec![RxQueue {
                queue: 0,
                rps_cpus: Cpus::from_mask("ff,ffffffff"),
            }],
            tx_queues: (0..2)
                .map(|queue| TxQueue {
                    queue,
                    xps_cpus: Some(Cpus::default()),
                    qdisc: Some("fq_codel".to_owned()),
                })
                .collect(),
            ..Default::default()
        }
    }

    fn rendered(cpus: &HostCpus, interfaces: &[Interface]) -> String {
        render(cpus, interfaces, Style::for_terminal(false))
    }

    #[test]
    fn tables_are_aligned_below_their_label() {
        let text = rendered(&HostCpus::default(), &[card()]);
        let table = "  interrupts   number  queue  CPU           name\n\
             \x20              40      0      7             a?2J-TxRx-0\n\
             \x20              141     1      any of 0-511  b-TxRx-1\n\
             \x20 by queue     queue  RPS   XPS  qdisc\n\
             \x20              0      0-39  off  fq_codel\n\
             \x20              1      -     off  fq_codel\n";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        let text = rendered(&HostCpus::default(), &[card()]);
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text}"
        );
        assert!(text.contains("Interface eth?[2J (ifindex 2)"), "{text}");
    }

    #[test]
    fn rss_names_queues_and_hash_fields() {
        let text = rendered(&HostCpus::default(), &[card()]);
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        for expected in [
            "RSS 4 entries over 2 of 2 queues, equally; tcp4 tcp6 by src_address src_port; udp4 by no field",
            "channels: combined 2 of at most 8",
        ] {
            assert!(words.contains(expected), "{text}");
        }
    }

    #[test]
    fn unknown_values_are_called_so() {
        let hidden = Interface {
            name: "eth0".to_owned(),
            ..Default::default()
        };
        let text = rendered(&HostCpus::default(), &[hidden]);
        assert_eq!(text.matches("/sys shows another network").count(), 2);
        assert!(text.contains("NUMA nodes   unknown"), "{text}");
        let nothing = rendered(&HostCpus::default(), &[]);
        assert!(nothing.ends_with("no physical interface or veth in this network namespace\n"));
    }

    #[test]
    fn the_machines_cpus_are_lists() {
        let cpus = HostCpus {
            online: Cpus::from_list("0-511"),
            isolated: Cpus::from_list("8-15,511"),
            irqbalance: true,
            ..Default::default()
        };
        let text = rendered(&cpus, &[]);
        for row in [
            "online       0-511",
            "isolated     8-15,511",
            "irqbalance   running",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}
