//! Differences of two sets: rules that were added, removed or moved, and packets that meet another
//! verdict.
//!
//! Packets are made from the conditions of both sets: for each address, port, protocol, interface
//! and state, values inside and just outside. They are evaluated by the core with both sets. So each
//! difference that is reported is one, and equal trees are equal; different trees without a
//! differing packet are reported as such, with the number of packets.

use std::collections::{BTreeSet, HashMap};

use fairpath_core::rules::CounterMode;

use crate::evaluate::{Core, CoreOutcome};
use crate::image::{BuildOptions, Counted, build};
use crate::packet::{Connection, Facts, Packet, Verdict};
use crate::sets::Sets;
use crate::spec::{Kind, Type, type_in};
use crate::tree::{Family, Hook, Ruleset, Table, Value, tables_of};
use crate::write::rule_string;

/// Packets that are made for a comparison.
pub const MAX_PACKETS: usize = 200_000;
/// Packets with another verdict that are kept.
pub const MAX_EXAMPLES: usize = 20;
/// Values of a field that packets take.
const MAX_VALUES: usize = 512;

/// A change of the rules of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// Only in the second set.
    Added,
    /// Only in the first set.
    Removed,
    /// At another place among the rules that both have.
    Moved,
    /// The policy of a base chain, or the chain as a whole.
    Chain,
}

/// A line of the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The change.
    pub change: RuleChange,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Lines in the first and the second file, 0 none.
    pub lines: (u32, u32),
    /// In words.
    pub text: String,
}

/// A packet that meets another verdict.
#[derive(Debug, Clone)]
pub struct Example {
    /// The hook.
    pub hook: Hook,
    /// The packet from its network header on.
    pub bytes: Vec<u8>,
    /// Input interface.
    pub input: String,
    /// Output interface.
    pub output: String,
    /// Bits of `--ctstate`.
    pub state: u8,
    /// Verdict of the first set.
    pub first: Verdict,
    /// Verdict of the second set.
    pub second: Verdict,
    /// The rule or policy that decided, as text.
    pub by: (String, String),
}

/// The difference of two sets.
#[derive(Debug, Default)]
pub struct Difference {
    /// Changes of the packet.
    pub changes: Vec<Change>,
    /// Packets with another verdict.
    pub examples: Vec<Example>,
    /// Packets that were evaluated, and those with another verdict.
    pub packets: u64,
    /// Packets with another verdict.
    pub differing: u64,
    /// Packets whose verdict is not known in one set.
    pub unknown: u64,
}

impl Difference {
    /// True if both sets have the same rules in the same order.
    pub fn same_rules(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Compares two sets of one family.
///
/// # Errors
///
/// A set is too large for an image.
pub fn diff(
    first: &Ruleset,
    second: &Ruleset,
    sets: (Option<&Sets>, Option<&Sets>),
) -> Result<Difference, crate::image::BuildError> {
    let mut difference = Difference {
        changes: changes(first, second),
        ..Difference::default()
    };
    if difference.same_rules() {
        return Ok(difference);
    }
    packets(first, second, sets, &mut difference)?;
    Ok(difference)
}

fn changes(first: &Ruleset, second: &Ruleset) -> Vec<Change> {
    let mut out = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for table in first.tables.iter().chain(&second.tables) {
        if !names.contains(&table.name.to_string()) {
            names.push(table.name.to_string());
        }
    }
    for name in names {
        table_changes(
            first.family,
            first.table(&name),
            second.table(&name),
            &name,
            &mut out,
        );
    }
    out
}

/// A rule as text, whose jumps are names: numbers of chains differ between sets.
fn texts(family: Family, table: &Table, chain: &[u8]) -> Vec<(String, u32)> {
    table.find(chain).map_or_else(Vec::new, |id| {
        let chain = table.get(id);
        chain
            .rules
            .iter()
            .map(|rule| (rule_string(family, table, chain, rule), rule.line))
            .collect()
    })
}

fn table_changes(
    family: Family,
    first: Option<&Table>,
    second: Option<&Table>,
    name: &str,
    out: &mut Vec<Change>,
) {
    let empty = Table::new(name, 0);
    let (a, b) = (first.unwrap_or(&empty), second.unwrap_or(&empty));
    let mut chains: BTreeSet<Box<[u8]>> = BTreeSet::new();
    for table in [a, b] {
        chains.extend(table.chains().map(|(_, chain)| chain.name.clone()));
    }
    for chain in chains {
        let shown = String::from_utf8_lossy(&chain).into_owned();
        let get = |table: &Table| {
            table
                .find(&chain)
                .map(|id| (table.get(id).policy, table.get(id).line))
        };
        let change = |change, lines, text| Change {
            change,
            table: name.to_owned(),
            chain: shown.clone(),
            lines,
            text,
        };
        match (get(a), get(b)) {
            (Some((_, line)), None) if first.is_some() && second.is_some() => {
                out.push(change(
                    RuleChange::Chain,
                    (line, 0),
                    "the chain was removed".into(),
                ));
            }
            (None, Some((_, line))) if first.is_some() && second.is_some() => {
                out.push(change(
                    RuleChange::Chain,
                    (0, line),
                    "the chain was added".into(),
                ));
            }
            (Some((from, line)), Some((to, other))) if from != to => out.push(change(
                RuleChange::Chain,
                (line, other),
                format!("the policy changed from {} to {}", from.name(), to.name()),
            )),
            _ => {}
        }
        rule_changes(
            &texts(family, a, &chain),
            &texts(family, b, &chain),
            &change,
            out,
        );
    }
}

fn rule_changes(
    first: &[(String, u32)],
    second: &[(String, u32)],
    change: &dyn Fn(RuleChange, (u32, u32), String) -> Change,
    out: &mut Vec<Change>,
) {
    // Rules that both have, by text and number of occurrence.
    let number = |rules: &[(String, u32)]| {
        let mut seen: HashMap<String, usize> = HashMap::new();
        rules
            .iter()
            .map(|(text, line)| {
                let count = seen.entry(text.clone()).or_default();
                *count += 1;
                ((text.clone(), *count), *line)
            })
            .collect::<Vec<_>>()
    };
    let (first, second) = (number(first), number(second));
    let places: HashMap<_, usize> = second
        .iter()
        .enumerate()
        .map(|(at, (key, _))| (key, at))
        .collect();
    let known: std::collections::HashSet<_> = first.iter().map(|(key, _)| key).collect();
    let common: Vec<(usize, usize)> = first
        .iter()
        .enumerate()
        .filter_map(|(at, (key, _))| Some((at, *places.get(key)?)))
        .collect();
    let kept = increasing(&common.iter().map(|(_, to)| *to).collect::<Vec<_>>());
    let mut stays = vec![false; common.len()];
    for at in kept {
        stays[at] = true;
    }
    for ((key, line), _) in first
        .iter()
        .zip(0..)
        .filter(|((key, _), _)| !places.contains_key(key))
    {
        out.push(change(RuleChange::Removed, (*line, 0), key.0.clone()));
    }
    for ((from, to), _) in common.iter().zip(&stays).filter(|(_, stays)| !**stays) {
        out.push(change(
            RuleChange::Moved,
            (first[*from].1, second[*to].1),
            first[*from].0.0.clone(),
        ));
    }
    for (key, line) in second.iter().filter(|(key, _)| !known.contains(key)) {
        out.push(change(RuleChange::Added, (0, *line), key.0.clone()));
    }
}

/// Places of a longest increasing subsequence: what stays if the least moves.
fn increasing(numbers: &[usize]) -> Vec<usize> {
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (at, number) in numbers.iter().enumerate() {
        let place = tails.partition_point(|tail| numbers[*tail] < *number);
        before.push(place.checked_sub(1).map(|place| tails[place]));
        if place == tails.len() {
            tails.push(at);
        } else {
            tails[place] = at;
        }
    }
    let mut out = Vec::new();
    let mut at = tails.last().copied();
    while let Some(place) = at {
        out.push(place);
        at = before[place];
    }
    out.reverse();
    out
}

/// Values of fields that the rules of both sets distinguish.
#[derive(Debug, Default)]
struct Values {
    sources: BTreeSet<u128>,
    destinations: BTreeSet<u128>,
    protocols: BTreeSet<u8>,
    source_ports: BTreeSet<u16>,
    destination_ports: BTreeSet<u16>,
    inputs: BTreeSet<Vec<u8>>,
    outputs: BTreeSet<Vec<u8>>,
    states: BTreeSet<u8>,
}

fn put<T: Ord>(set: &mut BTreeSet<T>, value: T) {
    if set.len() < MAX_VALUES {
        set.insert(value);
    }
}

impl Values {
    fn new() -> Self {
        let mut values = Values::default();
        values.protocols.extend([6, 17, 1]);
        values.states.extend([2, 8]);
        values.source_ports.insert(40_000);
        values.destination_ports.insert(9);
        values
    }

    fn address(&mut self, family: Family, value: &Value, source: bool, range: bool) {
        let width = if family == Family::Ipv6 {
            u128::MAX
        } else {
            u128::from(u32::MAX)
        };
        let (low, high) = match value {
            Value::Pair(a, b) if range => (u128::from(*a), u128::from(*b)),
            Value::Pair(a, mask) => (u128::from(*a), u128::from(*a | !mask)),
            Value::Ipv6(pair) if range => (pair[0], pair[1]),
            Value::Ipv6(pair) => (pair[0], pair[0] | !pair[1]),
            _ => return,
        };
        let set = if source {
            &mut self.sources
        } else {
            &mut self.destinations
        };
        for address in [
            low,
            high,
            low.wrapping_sub(1) & width,
            high.wrapping_add(1) & width,
        ] {
            put(set, address);
        }
    }

    fn ports(&mut self, first: u32, last: u32, source: bool) {
        let set = if source {
            &mut self.source_ports
        } else {
            &mut self.destination_ports
        };
        for port in [first, last, first.wrapping_sub(1), last + 1] {
            if let Ok(port) = u16::try_from(port) {
                put(set, port);
            }
        }
    }

    fn collect(&mut self, ruleset: &Ruleset) {
        for table in &ruleset.tables {
            for (_, chain) in table.chains() {
                for item in chain.rules.iter().flat_map(|rule| rule.items.iter()) {
                    self.item(ruleset.family, item);
                }
            }
        }
    }

    fn item(&mut self, family: Family, item: &crate::tree::Item) {
        if item.is_head() {
            return;
        }
        let name = item.name();
        let ty = type_in(item.kind, item.option, family);
        let source = matches!(name, "-s" | "--src-range" | "--sport" | "--sports");
        match (ty, &item.value) {
            (Type::Net, value) if matches!(name, "-s" | "-d") => {
                self.address(family, value, source, false);
            }
            (Type::AddressRange, value) => self.address(family, value, source, true),
            (Type::Ports, Value::Pair(first, last)) => self.ports(*first, *last, source),
            (Type::PortList, Value::Ranges(ranges)) => {
                for (first, last) in ranges.iter() {
                    self.ports(u32::from(*first), u32::from(*last), source);
                    if name == "--ports" {
                        self.ports(u32::from(*first), u32::from(*last), true);
                    }
                }
            }
            (Type::Protocol, Value::Number(number)) => put(&mut self.protocols, *number as u8),
            (Type::Interface, Value::Text(interface)) => {
                let mut name_bytes = interface.to_vec();
                if name_bytes.last() == Some(&b'+') {
                    name_bytes.pop();
                    name_bytes.push(b'0');
                }
                match name {
                    "-i" => put(&mut self.inputs, name_bytes),
                    "-o" => put(&mut self.outputs, name_bytes),
                    _ => {}
                }
            }
            (Type::Bits(_), Value::Number(bits))
                if matches!(item.kind, Kind::State | Kind::Conntrack)
                    && name.ends_with("state") =>
            {
                for bit in 0..5 {
                    if bits & (1 << bit) != 0 {
                        put(&mut self.states, 1 << bit);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A packet of these values.
fn bytes(
    family: Family,
    source: u128,
    destination: u128,
    protocol: u8,
    ports: (u16, u16),
) -> Vec<u8> {
    let mut transport = vec![0u8; 20];
    transport[0..2].copy_from_slice(&ports.0.to_be_bytes());
    transport[2..4].copy_from_slice(&ports.1.to_be_bytes());
    match protocol {
        6 => (transport[12], transport[13]) = (0x50, 2),
        1 => transport[0..4].copy_from_slice(&[8, 0, 0, 0]),
        58 => transport[0..4].copy_from_slice(&[128, 0, 0, 0]),
        _ => {}
    }
    if family == Family::Ipv6 {
        let mut out = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        out.extend_from_slice(&source.to_be_bytes());
        out.extend_from_slice(&destination.to_be_bytes());
        out.extend_from_slice(&transport);
        return out;
    }
    let mut out = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
    out.extend_from_slice(&(source as u32).to_be_bytes());
    out.extend_from_slice(&(destination as u32).to_be_bytes());
    out.extend_from_slice(&transport);
    out
}

/// A generator for choices among values: the same for the same sets (Steele et al., SplitMix64).
struct Choice(u64);

impl Choice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (crate::image::mix(self.0) % count.max(1) as u64) as usize
    }
}

fn packets(
    first: &Ruleset,
    second: &Ruleset,
    sets: (Option<&Sets>, Option<&Sets>),
    difference: &mut Difference,
) -> Result<(), crate::image::BuildError> {
    let family = first.family;
    if !family.is_ip() {
        return Ok(());
    }
    let mut values = Values::new();
    values.collect(first);
    values.collect(second);
    if family == Family::Ipv6 {
        values.protocols.insert(58);
    }
    let vec = |set: &BTreeSet<u128>| {
        let mut list: Vec<u128> = set.iter().copied().collect();
        list.push(if family == Family::Ipv6 {
            0x2001_0db8 << 96 | 9
        } else {
            0x0909_0909
        });
        list
    };
    let (sources, destinations) = (vec(&values.sources), vec(&values.destinations));
    let list = |set: &BTreeSet<Vec<u8>>| {
        let mut list: Vec<Vec<u8>> = set.iter().cloned().collect();
        list.push(b"other0".to_vec());
        list
    };
    let (inputs, outputs) = (list(&values.inputs), list(&values.outputs));
    let protocols: Vec<u8> = values.protocols.iter().copied().collect();
    let source_ports: Vec<u16> = values.source_ports.iter().copied().collect();
    let destination_ports: Vec<u16> = values.destination_ports.iter().copied().collect();
    let states: Vec<u8> = values.states.iter().copied().collect();
    let built = [
        build(first, sets.0, BuildOptions::default())?,
        build(second, sets.1, BuildOptions::default())?,
    ];
    let mut cores = Vec::new();
    for built in &built {
        cores.push(
            Core::new(built, CounterMode::None).expect("an image that was just built is valid"),
        );
    }
    let hooks: Vec<Hook> = Hook::ALL
        .into_iter()
        .filter(|hook| {
            tables_of(family)
                .iter()
                .any(|(_, hooks)| hooks.contains(hook))
        })
        .collect();
    let mut choice = Choice(1);
    for turn in 0..MAX_PACKETS {
        let hook = hooks[turn % hooks.len()];
        let packet_bytes = bytes(
            family,
            sources[choice.below(sources.len())],
            destinations[choice.below(destinations.len())],
            protocols[choice.below(protocols.len())],
            (
                source_ports[choice.below(source_ports.len())],
                destination_ports[choice.below(destination_ports.len())],
            ),
        );
        let name = |has: bool, names: &[Vec<u8>], choice: &mut Choice| -> Vec<u8> {
            if has {
                names[choice.below(names.len())].clone()
            } else {
                Vec::new()
            }
        };
        let input = name(hook.has_input(), &inputs, &mut choice);
        let output = name(hook.has_output(), &outputs, &mut choice);
        let state = states[choice.below(states.len())];
        let packet = Packet {
            family,
            bytes: &packet_bytes,
            network: 0,
            length: packet_bytes.len(),
            facts: Facts {
                input: Some(input.clone().into()),
                output: Some(output.clone().into()),
                connection: Some(Connection {
                    state,
                    ..Connection::default()
                }),
                ..Facts::default()
            },
        };
        let outcomes: Vec<CoreOutcome> = cores
            .iter_mut()
            .filter_map(|core| core.evaluate(hook, &packet))
            .collect();
        let [a, b] = &outcomes[..] else { continue };
        difference.packets += 1;
        if matches!(a.verdict, Verdict::Unknown(_)) || matches!(b.verdict, Verdict::Unknown(_)) {
            difference.unknown += 1;
            continue;
        }
        if a.verdict == b.verdict {
            continue;
        }
        difference.differing += 1;
        if difference.examples.len() < MAX_EXAMPLES {
            let by = (
                decided(first, &built[0], a, hook),
                decided(second, &built[1], b, hook),
            );
            if difference.examples.iter().any(|example| example.by == by) {
                continue;
            }
            difference.examples.push(Example {
                hook,
                by,
                first: a.verdict.clone(),
                second: b.verdict.clone(),
                input: String::from_utf8_lossy(&input).into_owned(),
                output: String::from_utf8_lossy(&output).into_owned(),
                state,
                bytes: packet_bytes,
            });
        }
    }
    Ok(())
}

/// The rule that decided, as text.
fn decided(
    ruleset: &Ruleset,
    built: &crate::image::Built,
    outcome: &CoreOutcome,
    hook: Hook,
) -> String {
    match outcome.rule.and_then(|id| built.place(ruleset, id)) {
        Some(Counted::Rule(table, chain, rule)) => {
            let table = &ruleset.tables[table];
            let chain = table.get(chain);
            let rule = &chain.rules[rule];
            let text = rule_string(ruleset.family, table, chain, rule);
            match rule.line {
                0 => text,
                line => format!("line {line}: {text}"),
            }
        }
        _ => format!("policy of {}", hook.chain()),
    }
}
