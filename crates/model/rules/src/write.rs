//! Writing of save files in the canonical form: equal to the original tool's, comment lines aside.

use std::io::Write;

use crate::spec::{Kind, Type, type_in};
use crate::tree::{
    Chain, ChainId, Counters, Family, Hook, Item, Rule, Ruleset, Table, Target, Value,
};
use crate::value;

/// Counters of rules in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithCounters {
    /// Only of rules that have them.
    AsRead,
    /// None.
    Never,
    /// Always.
    Always,
}

/// Writes a set.
///
/// # Errors
///
/// The output failed.
pub fn write(
    ruleset: &Ruleset,
    counters: WithCounters,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for table in &ruleset.tables {
        write_table(ruleset.family, table, counters, out)?;
    }
    Ok(())
}

/// The set as the bytes of a file: names and text need not be UTF-8.
pub fn to_bytes(ruleset: &Ruleset, counters: WithCounters) -> Vec<u8> {
    let mut out = Vec::new();
    write(ruleset, counters, &mut out).expect("memory accepts all bytes");
    out
}

/// The set as text for people: bytes that are not UTF-8 are replaced.
pub fn to_text(ruleset: &Ruleset, counters: WithCounters) -> String {
    String::from_utf8_lossy(&to_bytes(ruleset, counters)).into_owned()
}

/// Chains in the order of the tool.
fn ordered(family: Family, table: &Table) -> Vec<(ChainId, &Chain)> {
    let mut chains = table.sorted();
    if family == Family::Arp {
        let rank = |chain: &Chain| match chain.hook {
            Some(Hook::Input) => 0,
            Some(Hook::Output) => 1,
            Some(_) => 2,
            None => 3,
        };
        chains.sort_by_key(|(_, chain)| rank(chain));
    }
    chains
}

fn write_table(
    family: Family,
    table: &Table,
    counters: WithCounters,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    writeln!(out, "*{}", table.name)?;
    let chains = ordered(family, table);
    for (_, chain) in &chains {
        out.write_all(b":")?;
        out.write_all(&chain.name)?;
        let policy = match chain.hook {
            None if family != Family::Bridge => "-",
            _ => chain.policy.name(),
        };
        // arptables-save writes no counters.
        if family.is_ip() || family == Family::Arp && counters == WithCounters::Always {
            let counters = match counters {
                WithCounters::Never => Counters::default(),
                _ => chain.counters,
            };
            writeln!(out, " {policy} [{}:{}]", counters.packets, counters.bytes)?;
        } else {
            writeln!(out, " {policy}")?;
        }
    }
    let mut line = Vec::with_capacity(256);
    for (_, chain) in &chains {
        for rule in &chain.rules {
            line.clear();
            rule_line(family, table, chain, rule, counters, &mut line);
            line.push(b'\n');
            out.write_all(&line)?;
        }
    }
    match family {
        Family::Ipv4 | Family::Ipv6 => writeln!(out, "COMMIT"),
        Family::Arp | Family::Bridge => writeln!(out),
    }
}

/// A rule with its chain: `-A INPUT ...`, with counters in front.
pub fn rule_line(
    family: Family,
    table: &Table,
    chain: &Chain,
    rule: &Rule,
    counters: WithCounters,
    out: &mut Vec<u8>,
) {
    let counted = match counters {
        WithCounters::Never => None,
        WithCounters::AsRead => rule.counters.as_deref().copied(),
        WithCounters::Always => Some(rule.counters.as_deref().copied().unwrap_or_default()),
    };
    if let Some(Counters { packets, bytes }) = counted
        && (family != Family::Arp || counters == WithCounters::Always)
    {
        let _ = write!(out, "[{packets}:{bytes}] ");
    }
    out.extend_from_slice(b"-A ");
    out.extend_from_slice(&chain.name);
    rule_text(family, table, rule, out);
}

/// The words of a rule after its chain, with a blank before each.
pub fn rule_text(family: Family, table: &Table, rule: &Rule, out: &mut Vec<u8>) {
    if family == Family::Arp {
        // The legacy tool writes the target first, and a blank after each word but a mark.
        target(table, rule, out);
        matches(family, rule, out);
        target_options(family, rule, out);
        if rule.target != Target::Extension(Kind::TargetMark) {
            out.push(b' ');
        }
        return;
    }
    matches(family, rule, out);
    target_and_options(family, table, rule, out);
}

pub(crate) fn target_and_options(family: Family, table: &Table, rule: &Rule, out: &mut Vec<u8>) {
    target(table, rule, out);
    target_options(family, rule, out);
}

pub(crate) fn matches(family: Family, rule: &Rule, out: &mut Vec<u8>) {
    for item in rule.items.iter().filter(|item| !item.kind.is_target()) {
        write_item(family, item, out);
    }
}

fn target_options(family: Family, rule: &Rule, out: &mut Vec<u8>) {
    for item in rule.items.iter().filter(|item| item.kind.is_target()) {
        if item.kind != Kind::OpaqueTarget {
            write_item(family, item, out);
        }
    }
}

fn target(table: &Table, rule: &Rule, out: &mut Vec<u8>) {
    let word: &[u8] = match rule.target {
        Target::None => return,
        Target::Accept => b"ACCEPT",
        Target::Drop => b"DROP",
        Target::Return => b"RETURN",
        Target::Queue => b"QUEUE",
        Target::Continue => b"CONTINUE",
        Target::Jump(id) => &table.get(id).name,
        Target::Goto(id) => {
            out.extend_from_slice(b" -g ");
            out.extend_from_slice(&table.get(id).name);
            return;
        }
        Target::Extension(Kind::OpaqueTarget) => {
            out.extend_from_slice(b" -j ");
            for item in rule
                .items
                .iter()
                .filter(|item| item.kind == Kind::OpaqueTarget)
            {
                value::write(Type::Words, &item.value, Family::Ipv4, out);
            }
            return;
        }
        Target::Extension(kind) => kind.spec().name.as_bytes(),
    };
    out.extend_from_slice(b" -j ");
    out.extend_from_slice(word);
}

/// An item with a blank before it.
pub fn write_item(family: Family, item: &Item, out: &mut Vec<u8>) {
    let spec = item.kind.spec();
    if item.is_head() {
        if family == Family::Bridge && item.kind != Kind::Opaque {
            // ebtables knows matches by their options.
            return;
        }
        out.extend_from_slice(b" -m ");
        match &item.value {
            Value::Words(_) => value::write(Type::Words, &item.value, family, out),
            _ => out.extend_from_slice(spec.name.as_bytes()),
        }
        return;
    }
    let option = &spec.options[usize::from(item.option)];
    let ty = type_in(item.kind, item.option, family);
    if family == Family::Arp && item.kind == Kind::TargetMark {
        write_arp_mark(&item.value, out);
        return;
    }
    let flag = matches!(ty, Type::Flag);
    // ebtables writes the negation after the option.
    let after = family == Family::Bridge && !flag;
    if item.not && !after {
        out.extend_from_slice(b" !");
    }
    out.push(b' ');
    out.extend_from_slice(option.names[0].as_bytes());
    if item.not && after {
        out.extend_from_slice(b" !");
    }
    if !flag {
        out.push(b' ');
        value::write(ty, &item.value, family, out);
    }
}

/// The mark of arptables: it has no mask, but words for the operations that leave bits alone.
fn write_arp_mark(value: &Value, out: &mut Vec<u8>) {
    let Value::Pair(value, mask) = *value else {
        return;
    };
    let (word, number) = match (value, mask) {
        (value, u32::MAX) => ("--set-mark", value),
        (0, mask) => ("--and-mark", !mask),
        (value, _) => ("--or-mark", value),
    };
    // The original tool reads and writes hexadecimal without 0x.
    let _ = write!(out, " {word} {number:x}");
}

/// An item as text, for messages.
pub fn item_text(family: Family, item: &Item) -> String {
    let mut out = Vec::new();
    write_item(family, item, &mut out);
    String::from_utf8_lossy(out.trim_ascii_start()).into_owned()
}

/// A rule as text with its chain and without counters.
pub fn rule_string(family: Family, table: &Table, chain: &Chain, rule: &Rule) -> String {
    let mut out = Vec::new();
    rule_line(family, table, chain, rule, WithCounters::Never, &mut out);
    String::from_utf8_lossy(out.trim_ascii_end()).into_owned()
}
