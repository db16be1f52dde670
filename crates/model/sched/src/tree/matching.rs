//! The path of a packet to its leaf: classes select nodes, and DSCPs select children.
//!
//! ```text
//! class number --table--> node --DSCP (if its children match DSCPs)--> child --DSCP ...--> leaf
//! ```
//!
//! Every packet begins at the root if no node matches a class. If the children of a node match DSCPs,
//! each DSCP leads to one of them.

use std::collections::HashMap;

use fairpath_core::sched::{Meta, Plan, SPLIT};
use toml::Spanned;

use super::draft::{Draft, Match};
use super::problem::Problems;
use super::shape::Shape;

/// Maximum class number.
pub const MAX_CLASS: u32 = 131_071;

/// Fills the tables of the plan. `classes` has the names of the classes 1, 2 and so on.
/// O(nodes + classes).
pub(super) fn fill(
    draft: &Draft,
    shape: &Shape,
    classes: &[String],
    plan: &mut Plan,
    problems: &mut Problems,
) {
    for (place, at) in shape.order.iter().enumerate() {
        if let Some(split) = split(draft, *at, shape, problems) {
            plan.nodes[place].split = plan.splits.len() as u32 + 1;
            plan.splits.extend(split);
        }
    }
    plan.class_table = class_table(draft, shape, classes, problems);
    plan.config.splits = plan.splits.len() as u32;
    plan.config.classes = plan.class_table.len() as u32;
    if !problems.has_errors() {
        reached(draft, shape, plan, problems);
    }
}

/// The children of a node by DSCP, if they match DSCPs.
fn split(draft: &Draft, at: usize, shape: &Shape, problems: &mut Problems) -> Option<[u32; SPLIT]> {
    let children = &shape.children[at];
    if children
        .iter()
        .all(|child| draft.nodes[*child].dscps.is_empty())
    {
        return None;
    }
    let (mut table, mut rest) = ([0; SPLIT], 0);
    for child in children {
        let id = shape.ids[*child];
        for dscp in &draft.nodes[*child].dscps {
            let slot = match dscp.get_ref() {
                Match::Number(number) => &mut table[*number as usize % SPLIT],
                _ => &mut rest,
            };
            if *slot != 0 {
                let text = format!(
                    "node \"{}\": match: a sibling already matches this DSCP: write it once",
                    draft.nodes[*child].name
                );
                problems.error(dscp.span(), text);
            }
            *slot = id;
        }
    }
    let open: Vec<String> = (0..SPLIT)
        .filter(|dscp| table[*dscp] == 0)
        .map(|dscp| dscp.to_string())
        .collect();
    if rest == 0 && !open.is_empty() {
        let node = &draft.nodes[at];
        let text = format!(
            "node \"{}\": no child matches DSCP {}: write match = {{ dscp = [\"*\"] }} at the child for all others",
            node.name, open[0]
        );
        problems.error(node.place.clone(), text);
    }
    Some(table.map(|child| if child == 0 { rest } else { child }))
}

fn class_table(
    draft: &Draft,
    shape: &Shape,
    classes: &[String],
    problems: &mut Problems,
) -> Vec<u32> {
    let numbers = classes.iter().zip(1..);
    let by_name: HashMap<&str, u32> = numbers
        .map(|(name, number)| (name.as_str(), number))
        .collect();
    let (mut led, mut rest, mut last) = (HashMap::new(), None, 0);
    for (place, at) in shape.order.iter().enumerate() {
        for class in &draft.nodes[*at].classes {
            let found = number_of(class, &by_name);
            let wrong = match found {
                Ok(Some(number)) => {
                    last = last.max(number);
                    led.insert(number, place as u32 + 1).map(|_| {
                        "another node already matches this class: write it once".to_owned()
                    })
                }
                Ok(None) => rest
                    .replace(place as u32 + 1)
                    .map(|_| "another node already matches all other classes".to_owned()),
                Err(wrong) => Some(wrong),
            };
            if let Some(wrong) = wrong {
                problems.error(
                    class.span(),
                    format!("node \"{}\": match: {wrong}", draft.nodes[*at].name),
                );
            }
        }
    }
    let rest = rest.or(led.is_empty().then_some(1)).unwrap_or(0);
    (0..=last)
        .map(|number| led.get(&number).copied().unwrap_or(rest))
        .collect()
}

/// The number of a class, or `None` for all other classes.
fn number_of(class: &Spanned<Match>, by_name: &HashMap<&str, u32>) -> Result<Option<u32>, String> {
    match class.get_ref() {
        Match::Rest => Ok(None),
        Match::Number(number) if *number <= MAX_CLASS => Ok(Some(*number)),
        Match::Number(_) => Err(format!(
            "the class number is too large: the maximum is {MAX_CLASS}"
        )),
        Match::Name(name) => match by_name.get(name.as_str()) {
            Some(number) => Ok(Some(*number)),
            None if by_name.is_empty() => Err(format!(
                "class \"{name}\" is a name, and no class file was given: write its number, or add the class file"
            )),
            None => Err(format!("class \"{name}\" is not in the class files")),
        },
    }
}

/// Checks that packets reach every leaf and end at leaves only.
fn reached(draft: &Draft, shape: &Shape, plan: &Plan, problems: &mut Problems) {
    let mut led = vec![false; plan.nodes.len() + 1];
    for target in plan.class_table.iter().filter(|target| **target != 0) {
        led[*target as usize] = true;
    }
    for (place, at) in shape.order.iter().enumerate() {
        if led[place + 1] && plan.nodes[place].split > 0 {
            let first = plan.nodes[place].split as usize - 1;
            for child in &plan.splits[first..first + SPLIT] {
                led[*child as usize] = true;
            }
        }
        let node = &draft.nodes[*at];
        let is_leaf = shape.children[*at].is_empty();
        let ends = is_leaf || plan.nodes[place].split > 0;
        if led[place + 1] && !ends {
            let text = format!(
                "node \"{}\": it has children, so packets cannot end here: let the children match by class or DSCP",
                node.name
            );
            problems.error(node.place.clone(), text);
        } else if is_leaf && !led[place + 1] {
            let text = format!(
                "node \"{}\": no packet reaches it: write match = {{ class = [...] }}, or \"*\" for all others",
                node.name
            );
            problems.error(node.place.clone(), text);
        }
    }
    if plan.class_table.first() == Some(&0) && !problems.has_errors() {
        let text = "packets of unmatched classes are dropped: write match = { class = [\"*\"] } at a leaf to send them".to_owned();
        problems.warning(super::problem::NOWHERE..super::problem::NOWHERE, text);
    }
}

/// The leaf of a packet, or `None`. O(levels).
pub fn leaf(plan: &Plan, meta: &Meta) -> Option<u32> {
    let class = meta.class_id as usize;
    let entry = plan.class_table.get(class).or(plan.class_table.first());
    let mut node = *entry?;
    loop {
        let config = plan.nodes.get((node as usize).checked_sub(1)?)?;
        let Some(split) = (config.split as usize).checked_sub(1) else {
            return Some(node);
        };
        node = *plan.splits.get(split + usize::from(meta.dscp) % SPLIT)?;
    }
}
