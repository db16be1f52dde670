//! The report for people, and the parts that reports share: the summary first, features by group, then each interface with what to improve.

use fairpath_machine::Interrupt;
use fairpath_units::text::line;

use super::FeaturesReport;
use super::advice::Advice;
use super::host::Host;
use super::interface::Interface;
use super::probes::{Finding, is_available};
use super::table::{Group, USES, Use};

/// Lines wrap here.
const COLUMNS: usize = 96;
/// Where an interface's values begin.
pub const VALUE_COLUMN: usize = 15;
/// Where a feature's text begins.
const TEXT_COLUMN: usize = 32;

/// The emphasis of words.
#[derive(Clone, Copy)]
pub struct Style {
    colour: bool,
}

impl Style {
    pub fn for_terminal(colour: bool) -> Style {
        Style { colour }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            return format!("\x1b[{code}m{text}\x1b[0m");
        }
        text.to_owned()
    }

    pub fn heading(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Three columns wide, whatever the answer.
    fn answer(self, available: Option<bool>) -> String {
        match available {
            Some(true) => self.paint("32", "yes"),
            Some(false) => self.paint("31", "no "),
            None => self.paint("33", " ? "),
        }
    }
}

/// The whole report.
pub fn render(report: &FeaturesReport, style: Style) -> String {
    let mut text = host(&report.host);
    text.push('\n');
    for part in &USES {
        text.push_str(&summary_line(part, &report.findings, style));
    }
    for group in Group::ALL {
        text.push_str(&format!("\n{}\n", style.heading(group.title())));
        for finding in report.findings.iter().filter(|f| f.feature.group == group) {
            text.push_str(&feature(finding, style));
        }
    }
    for one in &report.interfaces {
        text.push('\n');
        text.push_str(&interface(one, style));
    }
    text
}

fn host(host: &Host) -> String {
    let capabilities = match host.capabilities.len() {
        0 => "none of the capabilities that Fairpath uses".to_owned(),
        _ => host.capabilities.join(" "),
    };
    let first = format!(
        "Linux {}, {}, {} CPUs; user {}\n",
        host.kernel, host.arch, host.cpus, host.user
    );
    first + &wrapped(0, &format!("capabilities: {capabilities}"))
}

/// "all features are available", or the missing ones.
fn summary_line(part: &Use, findings: &[Finding], style: Style) -> String {
    let with = |answer: Option<bool>| -> Vec<&str> {
        let answered = |id: &&&str| is_available(findings, id) == answer;
        part.needs.iter().filter(answered).copied().collect()
    };
    let (missing, unknown) = (with(Some(false)), with(None));
    let (available, words) = match (missing.is_empty(), unknown.is_empty()) {
        (true, true) => (Some(true), "all features are available".to_owned()),
        (false, _) => (Some(false), format!("lacks {}", missing.join(", "))),
        (true, false) => (
            None,
            format!("unknown without a test of {}", unknown.join(", ")),
        ),
    };
    let line = format!("{} ({}): {words}", part.name, part.what);
    format!("  {}  {}", style.answer(available), hanging(7, &line))
}

/// There: what for. Missing: why, and what happens instead. Not known: what for, and what stood in the way.
fn feature(finding: &Finding, style: Style) -> String {
    let f = finding.feature;
    let detail = finding.detail.as_str();
    let remedy = finding.remedy.as_deref().unwrap_or_default();
    let parts = match finding.available {
        Some(true) if detail.is_empty() => vec![f.used_for.to_owned()],
        Some(true) => vec![format!("{} ({detail})", f.used_for)],
        Some(false) => vec![
            detail.to_owned(),
            format!("for: {}", f.used_for),
            format!("instead: {}", f.instead),
            format!("remedy: {remedy}"),
        ],
        None => vec![f.used_for.to_owned(), format!("{detail}; {remedy}")],
    };
    let mut text = format!(
        "  {}  {:<width$}",
        style.answer(finding.available),
        f.id,
        width = TEXT_COLUMN - 7
    );
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            text.push_str(&" ".repeat(TEXT_COLUMN));
        }
        text.push_str(&hanging(TEXT_COLUMN, part));
    }
    text
}

fn interface(i: &Interface, style: Style) -> String {
    let rows = [
        ("link", Some(link(i))),
        ("queues", Some(queues(i))),
        ("rings", rings(i)),
        ("interrupts", interrupts(i)),
        ("steering", steering(i)),
        ("offloads", offloads(i)),
        ("qdisc", Some(qdisc(i))),
        ("XDP", Some(xdp(i))),
    ];
    let mut text = title(i, style);
    for (name, value) in rows {
        text.extend(value.map(|value| label(name, &value)));
    }
    text + &advice(&i.advice, "improvements", style)
}

/// The first line of an interface.
pub fn title(i: &Interface, style: Style) -> String {
    let title = style.heading(&format!("Interface {}", line(&i.name)));
    format!("{title} (ifindex {})\n", i.ifindex)
}

/// A row: its name, and its value in the column of values.
pub fn label(name: &str, value: &str) -> String {
    let value = hanging(VALUE_COLUMN, &line(value));
    format!("  {name:<width$}{value}", width = VALUE_COLUMN - 2)
}

/// The list of `kind`: improvements, or collisions.
pub fn advice(all: &[Advice], kind: &str, style: Style) -> String {
    if all.is_empty() {
        return format!("  no {kind}\n");
    }
    let mut text = format!("  {}\n", style.paint("33", kind));
    for one in all {
        let sentence = format!("{}: {}", one.what, one.why);
        text.push_str(&format!("    - {}", hanging(6, &line(&sentence))));
        text.push_str(&format!("      # {}\n", line(&one.command))); // never wrapped: to be copied
    }
    text
}

pub fn link(i: &Interface) -> String {
    let mut words = vec![i.kind.clone()];
    words.extend(i.driver.iter().map(|driver| format!("driver {driver}")));
    words.push(i.link_type.clone());
    words.push(
        match (i.up, i.running) {
            (true, true) => "up",
            (true, false) => "up without carrier",
            (false, _) => "down",
        }
        .to_owned(),
    );
    words.push(format!("MTU {}", i.mtu_bytes));
    words.extend(i.vlan_id.map(|id| format!("VLAN {id}")));
    words.extend(i.lower_ifindex.map(|index| format!("on ifindex {index}")));
    words.extend(
        i.master_ifindex
            .map(|index| format!("part of ifindex {index}")),
    );
    words.extend(i.numa_node.map(|node| format!("NUMA node {node}")));
    words.dedup(); // the loopback's kind and link type are one word
    words.join(", ")
}

fn queues(i: &Interface) -> String {
    let queues = format!("rx {}, tx {}", i.queues.rx, i.queues.tx);
    match i.queues.channels_max {
        0 => queues,
        max => format!("{queues}; channels {} of at most {max}", i.queues.channels),
    }
}

fn rings(i: &Interface) -> Option<String> {
    let rings = i.rings.as_ref().filter(|r| r.rx_max > 0)?;
    Some(format!(
        "rx {} of at most {}, tx {} of at most {}",
        rings.rx, rings.rx_max, rings.tx, rings.tx_max
    ))
}

fn interrupts(i: &Interface) -> Option<String> {
    let one = |irq: &Interrupt| format!("{} {} on CPU {}", irq.number, irq.action, irq.effective);
    let all: Vec<String> = i.irqs.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn steering(i: &Interface) -> Option<String> {
    let set = |masks: &[String]| match masks.len() {
        0 => "off".to_owned(),
        _ => masks.join(" "),
    };
    if !i.is_physical() && i.rps_masks.is_empty() && i.xps_masks.is_empty() {
        return None;
    }
    let rss = match &i.rss {
        Some(rss) => format!(
            "RSS {} entries over {} queues{}",
            rss.indirection_entries,
            rss.queues_used,
            if rss.has_key { "" } else { ", no key shown" }
        ),
        None => "RSS none".to_owned(),
    };
    Some(format!(
        "{rss}; RPS {}; XPS {}",
        set(&i.rps_masks),
        set(&i.xps_masks)
    ))
}

fn offloads(i: &Interface) -> Option<String> {
    let with = |on: bool| -> Vec<&str> {
        let wanted = i.offloads.iter().filter(|(_, offload)| offload.on == on);
        wanted.map(|(name, _)| *name).collect()
    };
    let or_none = |names: Vec<&str>| match names.len() {
        0 => "none".to_owned(),
        _ => names.join(" "),
    };
    (!i.offloads.is_empty())
        .then(|| format!("on: {}; off: {}", or_none(with(true)), or_none(with(false))))
}

pub fn qdisc(i: &Interface) -> String {
    let kind = i.qdisc.kind.as_deref().unwrap_or("none");
    match i.qdisc.children {
        0 => format!("{kind}, txqueuelen {}", i.txqueuelen_packets),
        children => format!(
            "{kind} over {children} ({}), txqueuelen {}",
            i.qdisc.child_kinds.join(", "),
            i.txqueuelen_packets
        ),
    }
}

pub fn xdp(i: &Interface) -> String {
    let program = match (i.xdp.program_id, i.xdp.program_mode) {
        (Some(id), Some(mode)) => format!("program {id} in {mode} mode"),
        _ => "no program".to_owned(),
    };
    let Some(driver) = i.xdp.driver else {
        return format!("{program}; the driver does not report its features");
    };
    let Some(mtu) = i.xdp.single_buffer_mtu_max_bytes.filter(|_| driver.native) else {
        return format!("{program}; generic only");
    };
    let able = [
        (driver.redirect, "redirect"),
        (driver.redirect_target, "redirect target"),
        (driver.zero_copy, "AF_XDP zero copy"),
        (driver.multi_buffer, "multi-buffer"),
    ];
    let names = able.iter().filter(|(able, _)| *able).map(|(_, name)| *name);
    let all: Vec<&str> = std::iter::once("native").chain(names).collect();
    format!(
        "{program}; {}; single buffer up to an MTU of about {mtu}",
        all.join(", ")
    )
}

/// `text` broken at blanks before the last column; every line begins at `indent`.
fn wrapped(indent: usize, text: &str) -> String {
    format!("{}{}", " ".repeat(indent), hanging(indent, text))
}

/// As [`wrapped`], for text whose first line is already indented.
fn hanging(indent: usize, text: &str) -> String {
    let mut lines = String::new();
    let mut column = indent;
    for (number, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if number > 0 && column + 1 + width > COLUMNS {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_page_and_are_indented() {
        let text = wrapped(10, &"word ".repeat(60));
        assert!(text.lines().count() > 1);
        for line in text.lines() {
            assert!(line.len() <= COLUMNS && line.starts_with(&" ".repeat(10)));
        }
    }

    #[test]
    fn colour_is_only_in_coloured_text() {
        let plain = Style::for_terminal(false);
        assert_eq!(plain.answer(Some(false)), "no ");
        let coloured = Style::for_terminal(true);
        assert!(coloured.answer(Some(false)).contains('\x1b'));
    }
}
