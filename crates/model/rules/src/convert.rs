//! Conversion of a set to the other IP family, and of rules that only classify to classes.

use crate::spec::{Kind, Type};
use crate::tree::{ChainId, Family, Item, Rule, Ruleset, Target, Value};
use crate::value::{length4, length6};

/// A rule that has no equal in the other family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Line in the file, 0 if it has none.
    pub line: u32,
    /// In words.
    pub text: String,
}

/// ICMP types with the same meaning: IPv4, IPv6.
const ICMP: &[(u32, u32)] = &[(8, 128), (0, 129)];
/// Kinds of REJECT with the same meaning.
const REJECTS: &[(u64, u64)] = &[(0, 16), (1, 18), (3, 19), (7, 17), (6, 6)];

/// Converts between IPv4 and IPv6. Every rule whose meaning would change is refused.
///
/// # Errors
///
/// All rules that have no equal.
pub fn to_family(ruleset: &Ruleset, to: Family) -> Result<Ruleset, Vec<Refusal>> {
    let mut out = Ruleset::new(to);
    let mut refusals = Vec::new();
    for table in &ruleset.tables {
        let mut copy = table.clone();
        for (_, chain) in copy.chains_mut() {
            let name = chain.name().into_owned();
            for rule in &mut chain.rules {
                match convert(rule, to) {
                    Ok(converted) => *rule = converted,
                    Err(text) => refusals.push(Refusal {
                        table: table.name.to_string(),
                        chain: name.clone(),
                        line: rule.line,
                        text,
                    }),
                }
            }
        }
        out.tables.push(copy);
    }
    if refusals.is_empty() {
        Ok(out)
    } else {
        Err(refusals)
    }
}

fn convert(rule: &Rule, to: Family) -> Result<Rule, String> {
    let v6 = to == Family::Ipv6;
    let mut items = Vec::with_capacity(rule.items.len());
    for item in rule.items.iter() {
        items.push(convert_item(item, v6)?);
    }
    let target = match rule.target {
        Target::Extension(kind) => Target::Extension(convert_kind(kind, v6)?),
        other => other,
    };
    Ok(Rule {
        items: items.into(),
        target,
        ..rule.clone()
    })
}

fn convert_kind(kind: Kind, v6: bool) -> Result<Kind, String> {
    let pairs = [
        (Kind::Ttl, Kind::Hl),
        (Kind::Icmp, Kind::Icmp6),
        (Kind::TargetTtl, Kind::TargetHl),
    ];
    for (four, six) in pairs {
        if kind == four && v6 {
            return Ok(six);
        }
        if kind == six && !v6 {
            return Ok(four);
        }
    }
    let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
    if kind.spec().is_in(family) {
        Ok(kind)
    } else {
        Err(format!("{} does not exist in {family}", kind.spec().name))
    }
}

fn convert_item(item: &Item, v6: bool) -> Result<Item, String> {
    let mut out = item.clone();
    out.kind = convert_kind(item.kind, v6)?;
    if item.is_head() {
        return Ok(out);
    }
    let name = item.name();
    let ty = item.kind.spec().options[usize::from(item.option)].ty;
    match (ty, &item.value) {
        (Type::Net | Type::PlainNet | Type::AddressRange | Type::AddressList, _) => Err(format!(
            "{name} has an address, which the other family does not have"
        )),
        (Type::Mask, value) => {
            out.value = match (value, v6) {
                (Value::Pair(u32::MAX, _), true) => Value::Ipv6(Box::new([u128::MAX; 2])),
                (Value::Ipv6(pair), false) if pair[0] == u128::MAX => {
                    Value::Pair(u32::MAX, u32::MAX)
                }
                _ => return Err(format!("{name} has a mask of part of an address")),
            };
            Ok(out)
        }
        (Type::SetMatch, _) => Err(format!("{name} names a set, which is of one family")),
        (Type::Word, _) if name.starts_with("--to") || name == "--on-ip" => {
            Err(format!("{name} may have an address of one family"))
        }
        (Type::Protocol, Value::Number(number)) => {
            out.value = match (number, v6) {
                (1, true) => Value::Number(58),
                (58, false) => Value::Number(1),
                _ => item.value.clone(),
            };
            Ok(out)
        }
        (Type::IcmpType(_), Value::Pair(ty, codes)) => {
            let found = ICMP
                .iter()
                .find(|(four, six)| ty == if v6 { four } else { six });
            let (four, six) = found
                .filter(|_| *codes == 0xff00)
                .ok_or("the ICMP type has no equal in the other family")?;
            out.value = Value::Pair(if v6 { *six } else { *four }, *codes);
            Ok(out)
        }
        (Type::Choice(_), Value::Number(kind)) if item.kind == Kind::TargetReject => {
            let found = REJECTS
                .iter()
                .find(|(four, six)| kind == if v6 { four } else { six });
            let (four, six) =
                found.ok_or("the answer of REJECT has no equal in the other family")?;
            out.value = Value::Number(if v6 { *six } else { *four });
            Ok(out)
        }
        (Type::Dec(128), Value::Number(bits)) => {
            let (from, to) = if v6 { (32, 128) } else { (128, 32) };
            if *bits != from {
                return Err(format!("{name} has a part of an address"));
            }
            out.value = Value::Number(to);
            Ok(out)
        }
        (Type::Flag, _) if name == "-f" => Err("-f does not exist in IPv6".into()),
        (Type::U32, _) => Err("u32 reads bytes of one family's header".into()),
        (Type::Range(_), _) if item.kind == Kind::Length => {
            Err("the length includes a header of another size".into())
        }
        _ => Ok(out),
    }
}

/// A class of a list: a name and prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassLine {
    /// Name.
    pub name: String,
    /// Prefix.
    pub prefix: String,
    /// The line of the rule.
    pub line: u32,
}

/// Converts rules that only classify (CLASSIFY or MARK by one prefix) to lines of classes.
///
/// # Errors
///
/// All rules that do something else.
pub fn to_classes(ruleset: &Ruleset) -> Result<Vec<ClassLine>, Vec<Refusal>> {
    let mut lines = Vec::new();
    let mut refusals = Vec::new();
    for table in &ruleset.tables {
        for (id, chain) in table.chains() {
            for rule in &chain.rules {
                if jumps_only(rule) {
                    continue;
                }
                match class_line(rule) {
                    Ok(line) => {
                        if !lines.iter().any(|other: &ClassLine| {
                            other.name == line.name && other.prefix == line.prefix
                        }) {
                            lines.push(line);
                        }
                    }
                    Err(text) => refusals.push(Refusal {
                        table: table.name.to_string(),
                        chain: table.get(id).name().into_owned(),
                        line: rule.line,
                        text,
                    }),
                }
            }
        }
    }
    if refusals.is_empty() {
        Ok(lines)
    } else {
        Err(refusals)
    }
}

/// A rule without conditions that only leads to a chain.
fn jumps_only(rule: &Rule) -> bool {
    rule.items.is_empty() && matches!(rule.target, Target::Jump(ChainId(_)) | Target::Goto(_))
}

fn class_line(rule: &Rule) -> Result<ClassLine, String> {
    let options = rule.target_options();
    let name = match rule.target {
        Target::Extension(Kind::TargetClassify) => match options.pair("--set-class") {
            Some((major, minor, _)) => format!("class-{major:x}-{minor:x}"),
            None => return Err("CLASSIFY has no class".into()),
        },
        Target::Extension(Kind::TargetMark) => match options.pair("--set-xmark") {
            Some((value, u32::MAX, _)) => format!("mark-{value:x}"),
            _ => return Err("MARK changes a part of the mark".into()),
        },
        _ => return Err("the rule does not only classify".into()),
    };
    let mut prefix = None;
    for item in rule.items.iter().filter(|item| !item.kind.is_target()) {
        let text = match (item.name(), &item.value) {
            ("-s" | "-d", Value::Pair(address, mask)) => length4(*mask)
                .map(|length| format!("{}/{length}", std::net::Ipv4Addr::from(*address))),
            ("-s" | "-d", Value::Ipv6(net)) => length6(net[1])
                .map(|length| format!("{}/{length}", std::net::Ipv6Addr::from(net[0]))),
            _ if item.kind == Kind::Comment => continue,
            _ => return Err("a class has prefixes only".into()),
        };
        let text = text.filter(|_| !item.not && prefix.is_none());
        prefix = Some(text.ok_or("a class has one prefix that is not negated")?);
    }
    Ok(ClassLine {
        name,
        prefix: prefix.ok_or("the rule has no prefix")?,
        line: rule.line,
    })
}
