//! The path of a packet through tables and chains, from the rules that matched.
//!
//! The core returns the ids of rules and policies that matched, in order. Between two of them, the
//! packet was compared with every rule of the chain, so these ids determine the whole path.

use crate::evaluate::CoreOutcome;
use crate::image::{Built, Counted};
use crate::packet::Verdict;
use crate::tree::{ChainId, Hook, Ruleset, Target, tables_of};

/// A part of a path: rules of a chain that were compared in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The table in the set.
    pub table: usize,
    /// Name of the chain.
    pub chain: ChainId,
    /// Rules that were compared: first, and one after the last.
    pub rules: (usize, usize),
    /// True if the last of them matched.
    pub matched: bool,
    /// True if the policy of the base chain ended it.
    pub policy: bool,
    /// Nested jumps.
    pub depth: usize,
}

/// The path of a packet at a hook, from the outcome of a core that traced it.
pub fn path(ruleset: &Ruleset, built: &Built, hook: Hook, outcome: &CoreOutcome) -> Vec<Stretch> {
    let verdict = &outcome.verdict;
    let unknown = matches!(verdict, Verdict::Unknown(_));
    // A rule that matched, but whose target is not known, is there already.
    let there = unknown && outcome.matched.last() == outcome.rule.as_ref();
    let mut walk = Walk {
        ruleset,
        // The rule whose answer is unknown ends the path.
        unknown: unknown.then_some(outcome.matched.len() - usize::from(there)),
        places: outcome
            .matched
            .iter()
            .copied()
            .chain(outcome.rule.filter(|_| unknown && !there))
            .filter_map(|id| built.place(ruleset, id))
            .collect(),
        next: 0,
        out: Vec::new(),
    };
    for (name, hooks) in tables_of(ruleset.family) {
        if !hooks.contains(&hook) {
            continue;
        }
        let Some(table) = ruleset
            .tables
            .iter()
            .position(|table| *table.name == **name)
        else {
            continue;
        };
        let Some(base) = ruleset.tables[table].find(hook.chain().as_bytes()) else {
            continue;
        };
        // Packets of known connections do not enter table nat.
        let enters = walk.peek().is_some_and(|(at, _)| at == table);
        let last = walk.next == walk.places.len() && !matches!(verdict, Verdict::Accept);
        if enters || last {
            walk.table(table, base);
        }
        if last {
            break;
        }
    }
    walk.out
}

struct Walk<'a> {
    ruleset: &'a Ruleset,
    places: Vec<Counted>,
    unknown: Option<usize>,
    next: usize,
    out: Vec<Stretch>,
}

impl Walk<'_> {
    /// The table and chain of the next rule or policy that matched.
    fn peek(&self) -> Option<(usize, ChainId)> {
        self.places.get(self.next).map(|place| match place {
            Counted::Rule(table, chain, _) | Counted::Policy(table, chain) => (*table, *chain),
        })
    }

    fn table(&mut self, table: usize, base: ChainId) {
        // Chain, next rule, nested jumps.
        let mut stack: Vec<(ChainId, usize)> = Vec::new();
        let (mut chain, mut at) = (base, 0);
        loop {
            let rules = self.ruleset.tables[table].get(chain).rules.len();
            let depth = stack.len();
            let mut stretch = Stretch {
                table,
                chain,
                rules: (at, rules),
                matched: false,
                policy: false,
                depth,
            };
            match self.places.get(self.next) {
                Some(Counted::Rule(of, in_chain, rule))
                    if *of == table && *in_chain == chain && *rule >= at =>
                {
                    let rule = *rule;
                    let unknown = self.unknown == Some(self.next);
                    self.next += 1;
                    stretch.rules.1 = if unknown { rule } else { rule + 1 };
                    stretch.matched = !unknown;
                    self.out.push(stretch);
                    if unknown {
                        return;
                    }
                    let target = self.ruleset.tables[table].get(chain).rules[rule].target;
                    match target {
                        Target::Jump(to) => {
                            stack.push((chain, rule + 1));
                            (chain, at) = (to, 0);
                        }
                        Target::Goto(to) => (chain, at) = (to, 0),
                        Target::Return => match stack.pop() {
                            Some(back) => (chain, at) = back,
                            None => return self.policy(table, base, chain),
                        },
                        Target::None | Target::Continue | Target::Extension(_) => at = rule + 1,
                        Target::Accept | Target::Drop | Target::Queue => return,
                    }
                    if matches!(target, Target::Extension(crate::spec::Kind::TargetReject)) {
                        return;
                    }
                }
                Some(_) | None => {
                    let more = self.next < self.places.len();
                    self.out.push(stretch);
                    if !more {
                        return;
                    }
                    match stack.pop() {
                        Some(back) => (chain, at) = back,
                        None => return self.policy(table, base, chain),
                    }
                }
            }
        }
    }

    /// The policy that the ids have next.
    fn policy(&mut self, table: usize, base: ChainId, _: ChainId) {
        if matches!(self.places.get(self.next), Some(Counted::Policy(of, chain)) if *of == table && *chain == base)
        {
            self.next += 1;
            if let Some(last) = self.out.last_mut() {
                last.policy = true;
            }
        }
    }
}
