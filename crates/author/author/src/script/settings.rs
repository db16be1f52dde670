//! The verbs that set the tree, and the weights, rates and parameters of a running scheduler.

use fairpath_core::sched::{Op, OutcomeKind, Setting, encode_rate};
use mlua::{Table, Value};

use super::packet::{item_of, number, packet_of, shown};
use super::session::{Halt, Session};
use super::verbs::{Verbs, node};
use fairpath_sched::tree::{Known, Tree, exact_cost};
use fairpath_units::nearest;
use fairpath_units::quantity;

/// The cost of a byte at this weight, relative to the weight `one`.
fn cost(weight: &Value, one: u64) -> Result<u32, Halt> {
    let number = match weight {
        Value::Integer(weight) => *weight as f64,
        Value::Number(weight) => *weight,
        other => {
            return Err(Halt::usage(format!(
                "weight: expected a number, not {}",
                shown(other)
            )));
        }
    };
    exact_cost(number, one).map_err(Halt::usage)
}

pub(super) fn install(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "set_flow_weight",
        |session, _, (of, weight, node): (Value, Value, Value)| {
            let meta = item_of(&of)
                .map(|item| item.meta)
                .or_else(|| Some(packet_of(&of)?.meta));
            let meta = meta.ok_or_else(|| {
                Halt::usage(format!("expected a packet of the flow, not {}", shown(&of)))
            })?;
            let tree = session.tree()?;
            let node = match &node {
                Value::Nil => tree.leaf(&meta).ok_or_else(|| {
                    Halt::usage("no leaf matches packets of this class: name a node")
                })?,
                named => self::node(&tree, named)?,
            };
            let op = Op::weight(session.bed.now, node, meta.flow_hash, cost(&weight, 1)?);
            done(session, op, "the node has no such flow")
        },
    )?;
    verbs.add("set_node", |session, _, (at, settings): (Value, Table)| {
        set_node(session, &at, &settings)
    })?;
    verbs.add(
        "param",
        |session, _, (at, name, value): (Value, String, Value)| {
            let tree = session.tree()?;
            let node = node(&tree, &at)?;
            let node_name = tree.names.node(node).to_owned();
            let (index, value) = match &value {
                Value::String(text) => {
                    let text = text.to_string_lossy();
                    let settings = tree.settings(&format!("{node_name}.{name}={text}"));
                    let settings = settings.map_err(|error| Halt::usage(error.to_string()))?;
                    let (_, index, value) = settings[0];
                    (index, value)
                }
                value => {
                    let (index, param) = tree
                        .names
                        .param(node, &name)
                        .ok_or_else(|| no_param(&tree, node, &name))?;
                    (
                        index,
                        param.encode(number(value, &name, param.min, param.most)?),
                    )
                }
            };
            let op = Op::param(session.bed.now, node, index as u32, value);
            done(session, op, "the node has no such parameter")
        },
    )?;
    verbs.add(
        "policy",
        |session, _, (name, params): (String, Option<Table>)| {
            let known = Known {
                policies: &session.bench.policies,
                classes: &[],
            };
            let policy = known.policies.iter().find(|policy| policy.name == name);
            let policy = policy.ok_or_else(|| no_policy(known, &name))?;
            let mut tree =
                Tree::of_policy(policy, known).map_err(|error| Halt::usage(error.to_string()))?;
            for pair in params.iter().flat_map(Table::pairs::<String, Value>) {
                let (name, value) = pair.map_err(|error| Halt::usage(error.to_string()))?;
                set(&mut tree, &name, &value)?;
            }
            session.set_tree(tree)
        },
    )?;
    verbs.add("is_chosen", |session, _, ()| Ok(session.bed.tree.is_some()))?;
    verbs.add("is_fixed", |session, _, ()| {
        Ok(session.bench.tree.is_some())
    })?;
    verbs.add("tree", |session, _, text: String| {
        let known = Known {
            policies: &session.bench.policies,
            classes: &[],
        };
        let tree =
            Tree::read("tree", &text, known).map_err(|error| Halt::usage(error.to_string()))?;
        session.set_tree(tree)
    })
}

/// A rate in bits per second or a time in ns. "none" is 0, which means no limit.
fn quantity_of(name: &str, unit: &str, value: &Value) -> Result<u64, Halt> {
    match value {
        Value::String(text) if text.as_bytes() == b"none".as_slice() => Ok(0),
        Value::String(text) => quantity::read(&text.to_string_lossy(), unit)
            .map_err(|bad| Halt::usage(format!("{name}: {bad}"))),
        value => number(value, name, 0, MAX_SETTING),
    }
}

/// Maximum rate in bits per second and maximum burst in ns: 1 Tbit/s, 1,000 s.
const MAX_SETTING: u64 = 1_000_000_000_000;

/// The keys of `set_node`.
const SETTINGS: [&str; 4] = ["weight", "floor", "ceil", "burst"];

/// Changes the settings of a running node. All of them are checked before the first is set.
fn set_node(session: &mut Session, at: &Value, settings: &Table) -> Result<(), Halt> {
    let node = node(&*session.tree()?, at)?;
    let mut ops = Vec::new();
    for pair in settings.pairs::<Value, Value>() {
        let (name, value) = pair.map_err(|error| Halt::usage(error.to_string()))?;
        let name = match &name {
            Value::String(name) => name.to_string_lossy(),
            other => shown(other),
        };
        let (setting, value) = match name.as_str() {
            "weight" => {
                let heaviest = session.tree()?.names.heaviest(node);
                (Setting::Cost, cost(&value, heaviest)?.into())
            }
            "floor" | "ceil" => {
                let bps = quantity_of(&name, "bps", &value)?;
                if bps > MAX_SETTING {
                    return Err(Halt::usage(format!("{name}: the maximum is 1000gbit")));
                }
                let setting = if name == "floor" {
                    Setting::Floor
                } else {
                    Setting::Ceil
                };
                (setting, if bps == 0 { 0 } else { encode_rate(bps) })
            }
            "burst" => (Setting::Burst, quantity_of(&name, "ns", &value)?),
            _ => {
                let near = nearest(&name, SETTINGS.iter().copied())
                    .map_or(String::new(), |near| format!("did you mean {near}? "));
                return Err(Halt::usage(format!(
                    "setting \"{name}\" does not exist: {near}write {}, or set a parameter with param",
                    SETTINGS.join(", ")
                )));
            }
        };
        ops.push(Op::node(session.bed.now, node, setting, value));
    }
    let rates = session.bed.rates_with(node, &ops);
    if rates.is_some_and(|[floor, ceil]| floor > 0 && ceil > floor) {
        return Err(Halt::usage(format!(
            "node {}: the floor would exceed the ceiling: set both in one call",
            session.node_name(node)
        )));
    }
    for op in ops {
        done(session, op, "the scheduler has no such node")?;
    }
    if let Some(rates) = rates {
        session.bed.rates.insert(node, rates);
    }
    Ok(())
}

fn done(session: &mut Session, op: Op, otherwise: &str) -> Result<(), Halt> {
    let outcomes = session.step(op, None)?;
    match outcomes
        .iter()
        .any(|outcome| outcome.kind == OutcomeKind::Failed)
    {
        true => Err(Halt::usage(otherwise)),
        false => Ok(()),
    }
}

fn set(tree: &mut Tree, name: &str, value: &Value) -> Result<(), Halt> {
    let text = match value {
        Value::String(text) => text.to_string_lossy(),
        value => {
            let param = tree
                .names
                .param(1, name)
                .ok_or_else(|| no_param(tree, 1, name))?
                .1;
            quantity::written(number(value, name, param.min, param.most)?, &param.unit)
        }
    };
    tree.set(&format!("{name}={text}"))
        .map_err(|error| Halt::usage(error.to_string()))
}

fn no_param(tree: &Tree, node: u32, name: &str) -> Halt {
    let params = tree
        .names
        .policy(node)
        .map_or(&[][..], |policy| &policy.params);
    let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let has = if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    };
    Halt::usage(format!(
        "node {} has no parameter {name}: it has {has}",
        tree.names.node(node)
    ))
}

fn no_policy(known: Known<'_>, name: &str) -> Halt {
    let names = known.policies.iter().map(|policy| policy.name.as_str());
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean {near}?"),
        None => "list all policies with `fairpath sched list`".into(),
    };
    Halt::usage(format!("policy {name} does not exist: {hint}"))
}
