//! Conversion of a set to the other IP family, and of rules that only classify to classes.

use std::collections::{HashMap, HashSet};

use crate::check::check_loops;
use crate::spec::{Kind, Type};
use crate::tree::{ChainId, Family, Item, Policy, Rule, Ruleset, Table, Target, Value};
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

/// Numbers of headers that IPv6 does not take for the protocol: hop-by-hop options, routing, fragment,
/// AH, none, destination options.
const EXTENSION_HEADERS: &[u64] = &[0, 43, 44, 51, 59, 60];
/// Bits of addrtype that both families have: unspecified, unicast, local, anycast, multicast,
/// unreachable.
const ADDRESS_TYPES: u64 = 0b1011_0111;

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
    if matches!(kind, Kind::Opaque | Kind::OpaqueTarget) {
        return Err(
            "the meaning of an extension that Fairpath does not support is not known".into(),
        );
    }
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

/// The number of a protocol in the other family.
fn protocol(number: u64, v6: bool) -> Result<u64, String> {
    match (number, v6) {
        (1, true) => Ok(58),
        (58, false) => Ok(1),
        (1 | 58, _) => Err(format!("protocol {number} is ICMP in the other family")),
        _ if EXTENSION_HEADERS.contains(&number) => Err(format!(
            "protocol {number} is a header in front of the protocol in IPv6"
        )),
        _ => Ok(number),
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
        (Type::Protocol | Type::ProtocolNumber, Value::Number(number)) => {
            out.value = Value::Number(protocol(*number, v6)?);
            Ok(out)
        }
        (_, Value::Number(types)) if item.kind == Kind::Addrtype && types & !ADDRESS_TYPES != 0 => {
            Err(format!(
                "{name} names a type of address that IPv6 does not have"
            ))
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
        (Type::Begun(_), Value::Number(kind)) if item.kind == Kind::TargetReject => {
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
    /// Prefixes.
    pub prefixes: Vec<String>,
    /// The line of the first rule.
    pub line: u32,
}

/// A rule that classifies by one prefix.
struct Classifier<'a> {
    /// MARK or CLASSIFY.
    kind: Kind,
    name: String,
    /// -s or -d.
    side: &'static str,
    address: u128,
    length: u32,
    prefix: String,
    table: &'a Table,
    chain: ChainId,
    line: u32,
}

/// Converts rules that only classify (CLASSIFY or MARK by one prefix) to classes with the longest
/// prefix. Rules that no packet reaches have no class.
///
/// # Errors
///
/// All rules that do something else, or that classify otherwise than by the longest prefix.
pub fn to_classes(ruleset: &Ruleset) -> Result<Vec<ClassLine>, Vec<Refusal>> {
    let mut refusals: Vec<Refusal> = check_loops(ruleset)
        .into_iter()
        .map(|found| Refusal {
            table: found.table,
            chain: found.chain,
            line: found.line,
            text: found.text,
        })
        .collect();
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut found: Vec<Classifier> = Vec::new();
    for table in &ruleset.tables {
        let mut other_hook = None;
        for (base, chain) in table.chains().filter(|(_, chain)| chain.hook.is_some()) {
            if chain.policy != Policy::Accept {
                let text = "the policy drops packets, which a class does not".to_owned();
                refusals.push(refusal(table, base, chain.line, text));
            }
            let (start, rules) = (found.len(), in_order(table, base));
            for (chain, rule) in rules {
                match classifier(table, chain, rule) {
                    Ok(one) => found.push(one),
                    Err(text) => refusals.push(refusal(table, chain, rule.line, text)),
                }
            }
            if start > 0 && start < found.len() {
                other_hook = other_hook.or(Some(start));
            }
        }
        if let Some(one) = other_hook.map(|at| &found[at]) {
            let text = format!(
                "rules of another base chain classify, too (line {}): a class is not of a chain",
                found[0].line
            );
            refusals.push(refusal(one.table, one.chain, one.line, text));
        }
    }
    if let Some(first) = found.first() {
        for one in &found[1..] {
            if (one.kind, one.side) != (first.kind, first.side) {
                let text = format!(
                    "{} by {} and {} by {} (line {}) are in one list",
                    one.kind.spec().name,
                    one.side,
                    first.kind.spec().name,
                    first.side,
                    first.line
                );
                refusals.push(refusal(one.table, one.chain, one.line, text));
            }
        }
    }
    overridden(&found, &mut refusals);
    if !refusals.is_empty() {
        refusals.sort_by_key(|refusal| refusal.line);
        return Err(refusals);
    }
    let mut lines: Vec<ClassLine> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut seen = HashSet::new();
    for one in found {
        if !seen.insert((one.address, one.length)) {
            continue;
        }
        match places.get(&one.name) {
            Some(at) => lines[*at].prefixes.push(one.prefix),
            None => {
                places.insert(one.name.clone(), lines.len());
                lines.push(ClassLine {
                    name: one.name,
                    prefixes: vec![one.prefix],
                    line: one.line,
                });
            }
        }
    }
    Ok(lines)
}

fn refusal(table: &Table, chain: ChainId, line: u32, text: String) -> Refusal {
    Refusal {
        table: table.name.to_string(),
        chain: table.get(chain).name().into_owned(),
        line,
        text,
    }
}

/// The last rule that matches decides, but of classes the longest prefix: rules after which a shorter
/// or equal prefix gives another class.
fn overridden(found: &[Classifier], refusals: &mut Vec<Refusal>) {
    let mut later: HashMap<(u128, u32), &Classifier> = HashMap::new();
    let mut refused = HashSet::new();
    for one in found.iter().rev() {
        for length in 0..=one.length {
            let mask = !u128::MAX.checked_shr(length).unwrap_or(0);
            let Some(other) = later.get(&(one.address & mask, length)) else {
                continue;
            };
            if other.name != one.name && refused.insert((other.address, other.length)) {
                let text = format!(
                    "it overrides {} of line {}, but of classes the longest prefix wins: write it before",
                    one.prefix, one.line
                );
                refusals.push(refusal(other.table, other.chain, other.line, text));
            }
        }
        later.insert((one.address, one.length), one);
    }
}

/// The rules that a packet meets from a base chain, each chain at its last place: no earlier one
/// changes the result.
fn in_order(table: &Table, base: ChainId) -> Vec<(ChainId, &Rule)> {
    // A rule that goes to a chain without condition is the last one.
    let length = |id: ChainId| {
        let rules = &table.get(id).rules;
        let last = rules
            .iter()
            .position(|rule| leads_to(rule).is_some() && matches!(rule.target, Target::Goto(_)));
        last.map_or(rules.len(), |at| at + 1)
    };
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    let mut stack = vec![(base, length(base))];
    while let Some((id, left)) = stack.last_mut() {
        let Some(at) = left.checked_sub(1) else {
            stack.pop();
            continue;
        };
        *left = at;
        let (id, rule) = (*id, &table.get(*id).rules[at]);
        match leads_to(rule) {
            Some(to) if seen.insert(to) => stack.push((to, length(to))),
            Some(_) => {}
            None => out.push((id, rule)),
        }
    }
    out.reverse();
    out
}

/// The chain to which a rule without conditions leads.
fn leads_to(rule: &Rule) -> Option<ChainId> {
    let plain = rule.items.iter().all(|item| item.kind == Kind::Comment);
    match rule.target {
        Target::Jump(to) | Target::Goto(to) if plain => Some(to),
        _ => None,
    }
}

fn classifier<'a>(table: &'a Table, chain: ChainId, rule: &Rule) -> Result<Classifier<'a>, String> {
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
    let mut found = None;
    for item in rule.items.iter().filter(|item| !item.kind.is_target()) {
        let side = match item.name() {
            _ if item.kind == Kind::Comment => continue,
            "-s" => "-s",
            "-d" => "-d",
            _ => return Err("a class has prefixes only".into()),
        };
        // Addresses of both families from the first bit.
        let net = match &item.value {
            Value::Pair(address, mask) => length4(*mask).map(|length| {
                let prefix = format!("{}/{length}", std::net::Ipv4Addr::from(*address));
                (u128::from(*address) << 96, length, prefix)
            }),
            Value::Ipv6(net) => length6(net[1]).map(|length| {
                let prefix = format!("{}/{length}", std::net::Ipv6Addr::from(net[0]));
                (net[0], length, prefix)
            }),
            _ => return Err("a class has prefixes only".into()),
        };
        let net = net.filter(|_| !item.not && found.is_none());
        let (address, length, prefix) = net.ok_or("a class has one prefix that is not negated")?;
        found = Some((side, address, length, prefix));
    }
    let (side, address, length, prefix) = found.ok_or("the rule has no prefix")?;
    Ok(Classifier {
        kind: options.kind,
        name,
        side,
        address,
        length,
        prefix,
        table,
        chain,
        line: rule.line,
    })
}
