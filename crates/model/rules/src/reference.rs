//! The reference evaluator: rules as Linux 6.18 applies those of iptables-legacy, ip6tables-legacy,
//! arptables-legacy and ebtables-legacy.
//!
//! ```text
//!   Packet, Facts ──> table ──> chain ──> rule: header items, matches ──> counters ──> target
//!                       │                    │ one fails: next rule       a verdict, a jump, a change
//!                       └ next table         └ a broken header: drop
//! ```
//!
//! It walks the tree, and is slow and simple, because faster evaluators are compared with it. Facts
//! that are not known stop it with a reason; they are never guessed. Pure: time and random numbers
//! come with the packet. Deliberately absent: address translation, user space queues, and matches
//! and targets that the tree keeps as words.

mod bridge;
mod context;
mod extension;
mod facts;
mod frame;
mod lookup;
mod matches;
mod state;
mod targets;
mod transport;
mod view;

use crate::packet::{Changes, Connection, Packet, Unknown, Verdict};
use crate::sets::Sets;
use crate::tree::{
    Chain, ChainId, Counters, Family, Group, Hook, Item, Policy, Rule, Ruleset, Table, tables_of,
};
use context::{CONFIRMED, Context, DESTINATION_NAT, NEW, RELATED, SOURCE_NAT};
use state::State;
use std::collections::BTreeMap;
use targets::Action;
use view::{HOT_DROP, Stop, Transport};

/// Deepest nesting of jumps. The kernel's is the number of user chains.
pub const MAX_DEPTH: usize = 512;
/// Most rules of one packet in a table: the kernel refuses loops, and a tree may have one of `-g`.
pub const MAX_VISITS: usize = 1 << 23;
/// Most steps of a path that is traced: a packet may pass a chain many times.
pub const MAX_PATH: usize = 1 << 20;
/// Length of an ARP packet of Ethernet, which arptables counts for each packet.
const ARP_LENGTH: usize = 28;

/// A rule: table of the rule set, chain, and index in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleAt {
    /// Index into [`Ruleset::tables`].
    pub table: usize,
    /// The chain.
    pub chain: ChainId,
    /// Index into the rules of the chain.
    pub rule: usize,
}

/// The outcome of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule that decided; `None` for a policy, and for a packet with a broken header.
    pub at: Option<RuleAt>,
    /// Changes by targets, also if the packet is dropped.
    pub changes: Changes,
    /// The path, if [`Reference::trace`] requested it.
    pub path: Vec<Step>,
}

/// A step of a packet's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A rule was tested.
    Rule {
        /// The rule.
        at: RuleAt,
        /// Its result.
        result: RuleResult,
    },
    /// A policy decided.
    Policy {
        /// Index into [`Ruleset::tables`].
        table: usize,
        /// The chain with the policy.
        chain: ChainId,
    },
    /// The packet went back to the rule after a jump.
    Return {
        /// Index into [`Ruleset::tables`].
        table: usize,
        /// The chain that the packet left.
        chain: ChainId,
    },
    /// Table `nat` was not consulted: only the first packet of a connection meets it.
    Skipped {
        /// Index into [`Ruleset::tables`].
        table: usize,
    },
}

/// The result of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleResult {
    /// All matches matched: the rule counted the packet.
    Matched,
    /// A match failed.
    Failed {
        /// Index into [`Rule::items`] of the first item that failed.
        item: usize,
    },
    /// A broken header: the packet is dropped, and no counter moves.
    HotDrop,
    /// The result depends on something that is not known.
    Unknown(Unknown),
}

/// A verdict and the rule that gave it.
struct Decision {
    verdict: Verdict,
    at: Option<RuleAt>,
}

impl Decision {
    fn dropped() -> Self {
        Self {
            verdict: Verdict::Drop,
            at: None,
        }
    }

    fn by(at: RuleAt, verdict: Verdict) -> Option<Self> {
        Some(Self {
            verdict,
            at: Some(at),
        })
    }
}

/// The place of a packet in a table: the next rule, and the rules after the jumps to here.
struct Cursor {
    table: usize,
    base: ChainId,
    chain: ChainId,
    next: usize,
    stack: Vec<(ChainId, usize)>,
}

impl Cursor {
    fn rule(&self) -> RuleAt {
        RuleAt {
            table: self.table,
            chain: self.chain,
            rule: self.next,
        }
    }
}

/// The result of a rule with what its target needs.
struct Tested {
    result: RuleResult,
    /// The packet is dropped after the rule, though it matched.
    hot_drop: bool,
    place: Result<Transport, Stop>,
}

/// The reference evaluator of a rule set, with the state of its matches.
#[derive(Debug)]
pub struct Reference<'a> {
    ruleset: &'a Ruleset,
    sets: Option<&'a Sets>,
    state: State,
    rules: BTreeMap<RuleAt, Counters>,
    policies: BTreeMap<(usize, ChainId), Counters>,
    traces: bool,
}

impl<'a> Reference<'a> {
    /// An evaluator whose limits are full, whose lists are empty, and whose counters are 0.
    ///
    /// Without `sets`, a match of a set is [`Unknown::Set`].
    pub fn new(ruleset: &'a Ruleset, sets: Option<&'a Sets>) -> Self {
        Self {
            ruleset,
            sets,
            state: State::new(ruleset),
            rules: BTreeMap::new(),
            policies: BTreeMap::new(),
            traces: false,
        }
    }

    /// True if outcomes have the path of their packet.
    pub fn trace(&mut self, on: bool) -> &mut Self {
        self.traces = on;
        self
    }

    /// Runs all tables at `hook`, in the kernel's order. ACCEPT ends one table.
    ///
    /// The order is that of [`tables_of`], except that `nat` is the last at INPUT. A table or chain
    /// that the rule set does not have accepts.
    pub fn evaluate(&mut self, hook: Hook, packet: &Packet) -> Outcome {
        let mut context = Context::new(packet, hook);
        let mut path = Vec::new();
        let mut last = Decision {
            verdict: Verdict::Accept,
            at: None,
        };
        for name in order(self.ruleset.family, hook) {
            if let Some(decision) = self.table(name, hook, &mut context, &mut path) {
                last = decision;
            }
            if last.verdict != Verdict::Accept {
                break;
            }
        }
        outcome(last, context, path)
    }

    /// Runs the base chain of one table. `nat` is consulted for new connections only.
    pub fn evaluate_table(&mut self, table: &str, hook: Hook, packet: &Packet) -> Outcome {
        let mut context = Context::new(packet, hook);
        let mut path = Vec::new();
        let decision = self
            .table(table, hook, &mut context, &mut path)
            .unwrap_or(Decision {
                verdict: Verdict::Accept,
                at: None,
            });
        outcome(decision, context, path)
    }

    /// Packets and bytes that a rule matched since [`Reference::new`].
    pub fn counters(&self, table: &str, chain: ChainId, rule: usize) -> Counters {
        self.index(table)
            .and_then(|table| self.rules.get(&RuleAt { table, chain, rule }))
            .copied()
            .unwrap_or_default()
    }

    /// Packets and bytes of the policy of a base chain. ebtables does not count them.
    pub fn policy_counters(&self, table: &str, chain: ChainId) -> Counters {
        self.index(table)
            .and_then(|table| self.policies.get(&(table, chain)))
            .copied()
            .unwrap_or_default()
    }

    fn index(&self, name: &str) -> Option<usize> {
        let mut tables = self.ruleset.tables.iter();
        tables.position(|table| &*table.name == name)
    }

    /// Runs a table; `None` if it has no chain here, or if the packet does not meet it.
    fn table(
        &mut self,
        name: &str,
        hook: Hook,
        context: &mut Context,
        path: &mut Vec<Step>,
    ) -> Option<Decision> {
        let is_ip = self.ruleset.family.is_ip();
        let is_nat = is_ip && name == "nat";
        if let Some(unknown) = is_translated(context).filter(|_| is_nat) {
            return Some(Decision {
                verdict: Verdict::Unknown(unknown),
                at: None,
            });
        }
        let index = self.index(name)?;
        let table = &self.ruleset.tables[index];
        let (id, chain) = base_chain(table, hook)?;
        if is_nat {
            match meets_nat(chain, context) {
                Ok(true) => {}
                Ok(false) => {
                    self.step(path, Step::Skipped { table: index });
                    return None;
                }
                Err(unknown) => {
                    let at = (!chain.rules.is_empty()).then_some(RuleAt {
                        table: index,
                        chain: id,
                        rule: 0,
                    });
                    let verdict = Verdict::Unknown(unknown);
                    return Some(Decision { verdict, at });
                }
            }
        }
        // The kernel drops an ARP packet that is shorter than its addresses.
        if self.ruleset.family == Family::Arp && context.view.length < ARP_LENGTH {
            return Some(Decision::dropped());
        }
        context.in_raw = is_ip && name == "raw";
        let is_empty = is_nat && is_empty(chain);
        let decision = self.walk(index, id, context, path);
        context.in_raw = false;
        // The verdict stays that of the rule before.
        (!is_empty).then_some(decision)
    }

    fn step(&self, path: &mut Vec<Step>, step: Step) {
        if self.traces {
            path.push(step);
        }
    }

    /// Walks from a base chain to a verdict.
    fn walk(
        &mut self,
        table: usize,
        base: ChainId,
        context: &mut Context,
        path: &mut Vec<Step>,
    ) -> Decision {
        let mut cursor = Cursor {
            table,
            base,
            chain: base,
            next: 0,
            stack: Vec::new(),
        };
        for _ in 0..MAX_VISITS {
            if path.len() >= MAX_PATH {
                break;
            }
            let chain = self.ruleset.tables[table].get(cursor.chain);
            let decision = match chain.rules.get(cursor.next) {
                Some(rule) => self.visit(rule, &mut cursor, context, path),
                None => self.end(chain, &mut cursor, context, path),
            };
            if let Some(decision) = decision {
                return decision;
            }
        }
        Decision {
            verdict: Verdict::Unknown(Unknown::Steps),
            at: None,
        }
    }

    /// Tests a rule, counts the packet and applies the target.
    fn visit(
        &mut self,
        rule: &Rule,
        cursor: &mut Cursor,
        context: &mut Context,
        path: &mut Vec<Step>,
    ) -> Option<Decision> {
        let at = cursor.rule();
        cursor.next += 1;
        let tested = self.test(at, rule, context);
        let result = tested.result;
        self.step(path, Step::Rule { at, result });
        match result {
            RuleResult::Matched => {}
            RuleResult::Failed { .. } => return None,
            RuleResult::HotDrop => return Some(Decision::dropped()),
            RuleResult::Unknown(unknown) => return Decision::by(at, Verdict::Unknown(unknown)),
        }
        count(self.rules.entry(at).or_default(), context);
        let action = targets::apply(rule, at, context, tested.place, &mut self.state);
        if tested.hot_drop {
            return match action {
                Action::Verdict(verdict @ (Verdict::Reject(_) | Verdict::Unknown(_))) => {
                    Decision::by(at, verdict)
                }
                _ => Some(Decision::dropped()),
            };
        }
        match action {
            Action::Verdict(verdict) => return Decision::by(at, verdict),
            Action::Jump(_) if cursor.stack.len() == MAX_DEPTH => {
                return Decision::by(at, Verdict::Unknown(Unknown::Depth));
            }
            Action::Jump(to) => {
                cursor.stack.push((cursor.chain, cursor.next));
                (cursor.chain, cursor.next) = (to, 0);
            }
            Action::Goto(to) => (cursor.chain, cursor.next) = (to, 0),
            // In a base chain of ebtables, the kernel continues with the next rule.
            Action::Return if context.family == Family::Bridge && cursor.stack.is_empty() => {}
            Action::Return => return self.back(cursor, context, path),
            Action::Next => {}
        }
        None
    }

    /// The end of a chain: back to the caller, or the policy. ebtables: the chain's own policy.
    fn end(
        &mut self,
        chain: &Chain,
        cursor: &mut Cursor,
        context: &Context,
        path: &mut Vec<Step>,
    ) -> Option<Decision> {
        if context.family != Family::Bridge || chain.policy == Policy::Return {
            return self.back(cursor, context, path);
        }
        let (table, chain_id) = (cursor.table, cursor.chain);
        self.step(
            path,
            Step::Policy {
                table,
                chain: chain_id,
            },
        );
        Some(policy_decision(chain.policy))
    }

    /// Back to the rule after the jump, or to the policy of the base chain, which counts.
    fn back(
        &mut self,
        cursor: &mut Cursor,
        context: &Context,
        path: &mut Vec<Step>,
    ) -> Option<Decision> {
        let table = cursor.table;
        if let Some((chain, next)) = cursor.stack.pop() {
            let left = std::mem::replace(&mut cursor.chain, chain);
            cursor.next = next;
            self.step(path, Step::Return { table, chain: left });
            return None;
        }
        let base = cursor.base;
        self.step(path, Step::Policy { table, chain: base });
        if context.family != Family::Bridge {
            count(self.policies.entry((table, base)).or_default(), context);
        }
        let policy = self.ruleset.tables[table].get(base).policy;
        Some(policy_decision(policy))
    }

    /// Tests a rule: the header's items, then each match in written order.
    ///
    /// After an unknown result, a later match may still show that the rule fails; stateful matches
    /// and those that would drop the packet end the search.
    fn test(&mut self, at: RuleAt, rule: &Rule, context: &Context) -> Tested {
        let place = frame::transport(&rule.items, context);
        let mut hot_drop = false;
        let mut unknown = None;
        let mut start = 0;
        let mut result = None;
        for (number, group) in rule.matches().enumerate() {
            let first = start;
            start += group.items.len();
            if unknown.is_some() && matches::is_stateful(&group) {
                break;
            }
            let id = (at.table, at.chain, at.rule, number);
            let failed = match self.group(&group, context, place, id) {
                Ok(failed) => failed,
                Err(Stop::HotDrop { .. }) if unknown.is_some() => break,
                Err(Stop::HotDrop { matched: true }) => {
                    hot_drop = true;
                    None
                }
                Err(Stop::HotDrop { matched: false }) => {
                    result = Some(RuleResult::HotDrop);
                    break;
                }
                Err(Stop::Unknown(reason)) => {
                    unknown = unknown.or(Some(reason));
                    let is_cut = reason == Unknown::CutBytes || group.kind.is_header();
                    if is_cut && (place.is_err() || matches::may_drop(&group, context)) {
                        break;
                    }
                    None
                }
            };
            if let Some(item) = failed {
                let item = first + item;
                result = Some(match hot_drop {
                    true => RuleResult::HotDrop,
                    false => RuleResult::Failed { item },
                });
                break;
            }
        }
        let unknown = unknown.map_or(RuleResult::Matched, RuleResult::Unknown);
        Tested {
            result: result.unwrap_or(unknown),
            hot_drop,
            place,
        }
    }

    /// Tests the header's items or a match; the index of the item that fails.
    fn group(
        &mut self,
        group: &Group,
        context: &Context,
        place: Result<Transport, Stop>,
        id: state::MatchId,
    ) -> Result<Option<usize>, Stop> {
        if group.kind.is_header() {
            return header(group, context);
        }
        match matches::test(group, context, place, self.sets, &mut self.state, id)? {
            true => Ok(None),
            false => Ok(Some(self.failed_item(group, context, place, id))),
        }
    }

    /// The first item of a match that fails alone; the head if only the match as a whole does.
    fn failed_item(
        &mut self,
        group: &Group,
        context: &Context,
        place: Result<Transport, Stop>,
        id: state::MatchId,
    ) -> usize {
        if !self.traces || matches::is_stateful(group) {
            return 0;
        }
        let alone = |item: &Item, state: &mut State| {
            let group = Group {
                kind: group.kind,
                items: std::slice::from_ref(item),
            };
            let answer = matches::test(&group, context, place, self.sets, state, id);
            !item.is_head() && answer == Ok(false)
        };
        let mut items = group.items.iter();
        items
            .position(|item| alone(item, &mut self.state))
            .unwrap_or(0)
    }
}

fn outcome(decision: Decision, context: Context, path: Vec<Step>) -> Outcome {
    Outcome {
        verdict: decision.verdict,
        at: decision.at,
        changes: context.changes,
        path,
    }
}

/// The tables at a hook in the kernel's order: by priority, and source NAT of INPUT is the last.
fn order(family: Family, hook: Hook) -> Vec<&'static str> {
    let here = tables_of(family)
        .iter()
        .filter(|(_, hooks)| hooks.contains(&hook));
    let mut names: Vec<&str> = here.map(|(name, _)| *name).collect();
    if family.is_ip() && hook == Hook::Input {
        names.sort_by_key(|name| *name == "nat");
    }
    names
}

fn base_chain(table: &Table, hook: Hook) -> Option<(ChainId, &Chain)> {
    table.chains().find(|(_, chain)| chain.hook == Some(hook))
}

fn policy_decision(policy: Policy) -> Decision {
    let verdict = match policy {
        Policy::Drop => Verdict::Drop,
        Policy::Accept | Policy::Return => Verdict::Accept,
    };
    Decision { verdict, at: None }
}

fn count(counters: &mut Counters, context: &Context) {
    let length = match context.family {
        Family::Arp => ARP_LENGTH,
        _ => context.view.length,
    };
    counters.packets += 1;
    counters.bytes += length as u64;
}

/// Tests the items of the header; the index of the first that fails.
///
/// A failure is stronger than an unknown item, and both are stronger than a broken header, which
/// the kernel reads after the other items.
fn header(group: &Group, context: &Context) -> Result<Option<usize>, Stop> {
    let mut stop: Option<Stop> = None;
    for (at, item) in group.items.iter().enumerate() {
        match (frame::item(item, context), stop) {
            (Ok(true), _) => {}
            (Ok(false), _) => return Ok(Some(at)),
            (Err(unknown @ Stop::Unknown(_)), None | Some(HOT_DROP)) => stop = Some(unknown),
            (Err(other), None) => stop = Some(other),
            (Err(_), Some(_)) => {}
        }
    }
    stop.map_or(Ok(None), Err)
}

fn is_empty(chain: &Chain) -> bool {
    chain.rules.is_empty() && chain.policy == Policy::Accept
}

/// True if a packet meets table nat here.
fn meets_nat(chain: &Chain, context: &Context) -> Result<bool, Unknown> {
    let is_empty = is_empty(chain);
    match needs_translation(context) {
        // Only the counter of an empty chain is not known then. But other tables of OUTPUT meet what
        // an unknown or expected connection translates.
        Err(_) if is_empty && (context.hook != Hook::Output || !may_be_expected(context)) => {
            Ok(false)
        }
        needs => needs,
    }
}

/// True if a packet may be of an expected connection, by its state.
fn may_be_expected(context: &Context) -> bool {
    let connection = context.connection();
    connection.map_or(true, |connection| connection.state & RELATED != 0)
}

/// True if the connection has no translation of this side yet, also no null one (`nf_nat_inet_fn`).
fn needs_translation(context: &Context) -> Result<bool, Unknown> {
    let connection = known_connection(context)?;
    let done = match context.hook {
        Hook::Prerouting | Hook::Output => DESTINATION_NAT,
        _ => SOURCE_NAT,
    };
    if connection.state & (NEW | RELATED) == 0 || connection.state & done != 0 {
        return Ok(false);
    }
    let mut is_expected = false;
    if connection.state & RELATED != 0 {
        // An ICMP error has the translation of the connection of the packet in it.
        if is_icmp(context)? {
            return Ok(false);
        }
        // An expected connection may have the translations of its master.
        if connection.state & (SOURCE_NAT | DESTINATION_NAT) != 0 {
            return Err(Unknown::Translation);
        }
        let is_answer = connection.reply.ok_or(Unknown::Connection)?;
        // The kernel's answer to a rejected packet meets table nat only as it leaves.
        if is_answer && context.hook != Hook::Postrouting {
            return Ok(false);
        }
        // The translation of a port shows in no state (`nf_nat_follow_master`).
        is_expected = !is_answer;
    }
    let status = connection.status.ok_or(Unknown::Connection)?;
    match status & CONFIRMED == 0 {
        true if is_expected => Err(Unknown::Translation),
        is_new => Ok(is_new),
    }
}

fn known_connection(context: &Context) -> Result<Connection, Unknown> {
    context.connection().map_err(|stop| match stop {
        Stop::Unknown(unknown) => unknown,
        Stop::HotDrop { .. } => Unknown::Connection,
    })
}

fn is_icmp(context: &Context) -> Result<bool, Unknown> {
    let protocol = match context.family {
        Family::Ipv6 => context
            .view
            .skip_extensions()
            .map(|found| found.is_some_and(|(protocol, ..)| protocol == 58)),
        _ => context.view.byte(9).map(|protocol| protocol == 1),
    };
    protocol.map_err(|_| Unknown::CutBytes)
}

/// OUTPUT: the destination of a packet in a translated connection changes after table nat. Known
/// bits count also without a table nat in this set.
fn is_translated(context: &Context) -> Option<Unknown> {
    let connection = context.connection().ok()?;
    let bits = connection.state & (SOURCE_NAT | DESTINATION_NAT);
    if bits == 0 || context.hook != Hook::Output {
        return None;
    }
    match connection.reply {
        None => Some(Unknown::Connection),
        Some(true) if bits & SOURCE_NAT != 0 => Some(Unknown::Translation),
        Some(false) if bits & DESTINATION_NAT != 0 => Some(Unknown::Translation),
        Some(_) => None,
    }
}
