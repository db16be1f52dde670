//! Counters of loaded rules over time: rates, sums by target, and the rules with metrics.
//!
//! ```text
//!   RuleList of each load ─┐
//!   counters by id ────────┴─> RuleCounts ──> LoadedRules
//! ```
//!
//! The counter of a rule is the kernel's, so that it continues over restarts of this process. Sums by target
//! are made of differences, and begin at 0: a sum of counters would decrease when a rule is removed.
//! A rule keeps its metrics until others have an eighth more packets, so that their names rarely change.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use fairpath_units::text::line;

use crate::loaded_rules::{
    LoadedRules, MAX_EXPORTED_RULES, MAX_LISTED_RULES, MAX_RULE_CHARS, PolicyCount, RuleCount,
    RuleFile, TargetCount,
};

/// Packets and bytes.
pub type Pair = [u64; 2];

/// A chain: its family, table and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Chain {
    file: usize,
    table: String,
    name: String,
}

#[derive(Clone, Debug)]
struct Policy {
    chain: usize,
    policy: &'static str,
    id: u32,
}

/// A rule, in few bytes: there may be a million.
#[derive(Clone, Copy, Debug)]
struct Rule {
    id: u32,
    chain: u32,
    line: u32,
    copy: u32,
    target: u32,
    /// End of its text in [`RuleList::texts`].
    end: u32,
    /// Of family, table, chain, text and copy: the same after another load.
    identity: u64,
}

/// The rules of one load with the ids of their counters.
#[derive(Clone, Debug, Default)]
pub struct RuleList {
    files: Vec<RuleFile>,
    chains: Vec<Chain>,
    policies: Vec<Policy>,
    targets: Vec<(usize, String, String)>,
    rules: Vec<Rule>,
    texts: String,
    copies: HashMap<u64, u32>,
}

impl RuleList {
    /// Begins a family with this number of rules. Those without counters are not added.
    pub fn begin_file(&mut self, family: &str, file: &str, rules: u64) {
        self.files.push(RuleFile {
            family: family.to_owned(),
            file: line(file).into_owned(),
            rules,
        });
    }

    /// Begins a chain of the last family.
    pub fn begin_chain(&mut self, table: &str, chain: &str) {
        self.chains.push(Chain {
            file: self.files.len().saturating_sub(1),
            table: line(table).into_owned(),
            name: line(chain).into_owned(),
        });
    }

    /// The policy of the last chain, which is a base chain.
    pub fn policy(&mut self, policy: &'static str, id: u32) {
        let chain = self.chains.len() - 1;
        self.policies.push(Policy { chain, policy, id });
    }

    /// Adds a rule to the last chain.
    pub fn rule(&mut self, text: &str, target: &str, number: u32, id: u32) {
        let chain = self.chains.len() - 1;
        let of = &self.chains[chain];
        let begin = self.texts.len();
        push_cut(&mut self.texts, text.trim());
        let hash = |copy: u32| {
            let mut hasher = DefaultHasher::new();
            (&self.files[of.file].family, &of.table, &of.name).hash(&mut hasher);
            (&self.texts[begin..], copy).hash(&mut hasher);
            hasher.finish()
        };
        let before = self.copies.entry(hash(0)).or_default();
        let copy = *before;
        *before += 1;
        let identity = hash(copy);
        let is_it = |known: &(usize, String, String)| {
            (known.0, &known.1[..], &known.2[..]) == (of.file, &of.table, target)
        };
        let target = self.targets.iter().position(is_it).unwrap_or_else(|| {
            self.targets
                .push((of.file, of.table.clone(), target.to_owned()));
            self.targets.len() - 1
        });
        self.rules.push(Rule {
            id,
            chain: chain as u32,
            line: number,
            copy,
            target: target as u32,
            end: self.texts.len() as u32,
            identity,
        });
    }

    /// Releases what only additions need.
    fn finish(&mut self) {
        self.copies = HashMap::new();
        self.rules.shrink_to_fit();
        self.texts.shrink_to_fit();
    }

    fn text(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.rules[before].end);
        &self.texts[begin as usize..self.rules[at].end as usize]
    }
}

/// Appends a text without unsafe characters, cut to [`MAX_RULE_CHARS`].
fn push_cut(out: &mut String, text: &str) {
    let text = line(text);
    match text.char_indices().nth(MAX_RULE_CHARS) {
        None => out.push_str(&text),
        Some(_) => {
            out.extend(text.chars().take(MAX_RULE_CHARS - 3));
            out.push_str("...");
        }
    }
}

/// The last counts of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    counted: Pair,
    /// It was read before.
    is_known: bool,
    /// It has metrics.
    is_exported: bool,
}

/// Counts of the loaded rules over time.
#[derive(Debug, Default)]
pub struct RuleCounts {
    list: RuleList,
    last: Vec<Last>,
    policies: Vec<Pair>,
    /// By family, table and target, since the start.
    targets: BTreeMap<(String, String, String), Pair>,
    /// Monotonic time of the last reading.
    read_ns: Option<u64>,
    interval_ns: Option<u64>,
    /// Numbers of rules with their packets and bytes in the interval.
    listed: Vec<(usize, Pair)>,
}

impl RuleCounts {
    /// Continues with the rules of another load. Rules that stay keep their counts. O(rules of both).
    pub fn replace(&mut self, mut list: RuleList) {
        list.finish();
        let old = std::mem::take(&mut self.list);
        let before = old.rules.iter().zip(&self.last);
        let known: HashMap<(u64, u32), Last> = before
            .clone()
            .map(|(rule, last)| ((rule.identity, rule.id), *last))
            .collect();
        let exported: HashSet<u64> = before
            .filter(|(_, last)| last.is_exported)
            .map(|(rule, _)| rule.identity)
            .collect();
        let last = list.rules.iter().map(|rule| Last {
            is_exported: exported.contains(&rule.identity),
            // A rule that came back may have another counter.
            ..known
                .get(&(rule.identity, rule.id))
                .copied()
                .unwrap_or_default()
        });
        self.last = last.collect();
        self.list = list;
        self.listed.clear();
    }

    /// Takes the counters at a monotonic time. O(rules).
    pub fn take(&mut self, now_ns: u64, mut counter: impl FnMut(u32) -> Pair) {
        self.interval_ns = self.read_ns.map(|before| now_ns.saturating_sub(before));
        self.read_ns = Some(now_ns);
        let mut sums = vec![[0; 2]; self.list.targets.len()];
        let mut fastest = Most::new(MAX_LISTED_RULES);
        let mut most = Most::new(MAX_EXPORTED_RULES);
        let are_all_exported = self.list.rules.len() <= MAX_EXPORTED_RULES;
        for (at, (rule, last)) in self.list.rules.iter().zip(&mut self.last).enumerate() {
            let counted = counter(rule.id);
            let more = match last.is_known {
                true => since(last.counted, counted),
                false => [0; 2],
            };
            let sum: &mut Pair = &mut sums[rule.target as usize];
            *sum = [0, 1].map(|unit| sum[unit].saturating_add(more[unit]));
            fastest.offer((more[0], counted[0]), at, more);
            if !are_all_exported && (counted[0] > 0 || last.is_exported) {
                let packets = counted[0];
                let bonus = if last.is_exported { packets / 8 } else { 0 };
                let weight = packets.saturating_add(bonus);
                most.offer((weight, last.is_exported.into()), at, [0; 2]);
            }
            *last = Last {
                counted,
                is_known: true,
                is_exported: are_all_exported,
            };
        }
        for (at, _) in most.into_sorted() {
            self.last[at].is_exported = true;
        }
        self.listed = fastest.into_sorted();
        for ((file, table, target), more) in self.list.targets.iter().zip(sums) {
            let family = self.list.files[*file].family.clone();
            let key = (family, table.clone(), target.clone());
            let sum = self.targets.entry(key).or_default();
            *sum = [0, 1].map(|unit| sum[unit].saturating_add(more[unit]));
        }
        let policies = self.list.policies.iter();
        self.policies = policies.map(|policy| counter(policy.id)).collect();
    }

    /// Writes the counts of the last reading.
    pub fn show(&self, out: &mut LoadedRules) {
        let list = &self.list;
        out.interval_ns = self.interval_ns;
        out.rules_total = list.files.iter().map(|file| file.rules).sum();
        out.files.clone_from(&list.files);
        let policies = list.policies.iter().zip(&self.policies);
        let policy = |(policy, counted): (&Policy, &Pair)| {
            let chain = &list.chains[policy.chain];
            PolicyCount {
                family: list.files[chain.file].family.clone(),
                table: chain.table.clone(),
                chain: chain.name.clone(),
                policy: policy.policy.to_owned(),
                packets: counted[0],
                bytes: counted[1],
            }
        };
        out.policies = policies.map(policy).collect();
        let target = |((family, table, target), sum): (&(String, String, String), &Pair)| {
            let [family, table, target] = [family, table, target].map(Clone::clone);
            let [packets, bytes] = *sum;
            TargetCount {
                family,
                table,
                target,
                packets,
                bytes,
            }
        };
        out.targets = self.targets.iter().map(target).collect();
        let listed = self.listed.iter();
        out.rules = listed.map(|(at, more)| self.rule(*at, *more)).collect();
        let exported = self.last.iter().enumerate();
        let exported = exported.filter(|(_, last)| last.is_exported);
        out.exported = exported.map(|(at, _)| self.rule(at, [0; 2])).collect();
    }

    fn rule(&self, at: usize, more: Pair) -> RuleCount {
        let rule = &self.list.rules[at];
        let chain = &self.list.chains[rule.chain as usize];
        let file = &self.list.files[chain.file];
        let [packets, bytes] = self.last[at].counted;
        let seconds = self.interval_ns.map_or(0.0, |ns| ns as f64 / 1e9);
        let rate = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        RuleCount {
            family: file.family.clone(),
            table: chain.table.clone(),
            chain: chain.name.clone(),
            rule: self.list.text(at).to_owned(),
            copy: rule.copy,
            file: file.file.clone(),
            line: rule.line,
            packets,
            bytes,
            rate_pps: rate(more[0]),
            rate_bps: rate(more[1]) * 8.0,
        }
    }
}

/// The difference of two readings. A counter that was set to 0 counts from there.
fn since(before: Pair, now: Pair) -> Pair {
    match now[0] < before[0] || now[1] < before[1] {
        true => now,
        false => [now[0] - before[0], now[1] - before[1]],
    }
}

/// The weight of a rule, its number, and what it counted.
type Offer = ((u64, u64), Reverse<usize>, Pair);

/// The largest of many. Of equal ones, the first.
struct Most {
    limit: usize,
    heap: BinaryHeap<Reverse<Offer>>,
}

impl Most {
    fn new(limit: usize) -> Most {
        let heap = BinaryHeap::with_capacity(limit + 1);
        Most { limit, heap }
    }

    fn offer(&mut self, weight: (u64, u64), at: usize, counted: Pair) {
        let is_full = self.heap.len() == self.limit;
        // Later ones have no precedence over equal ones.
        if is_full && self.heap.peek().is_some_and(|least| weight <= least.0.0) {
            return;
        }
        self.heap.push(Reverse((weight, Reverse(at), counted)));
        if is_full {
            self.heap.pop();
        }
    }

    /// The numbers, largest first.
    fn into_sorted(self) -> Vec<(usize, Pair)> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse((_, Reverse(at), counted))| (at, counted))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Rules of filter INPUT by text; their ids are their numbers from 1 on. The policy has 0.
    fn list(rules: &[&str]) -> RuleList {
        let mut list = RuleList::default();
        list.begin_file("IPv4", "rules.v4", rules.len() as u64);
        list.begin_chain("filter", "INPUT");
        list.policy("DROP", 0);
        for (at, rule) in (1..).zip(rules) {
            let target = rule.rsplit(' ').next().unwrap();
            list.rule(rule, target, 10 + at, at);
        }
        list
    }

    fn shown(counts: &RuleCounts) -> LoadedRules {
        let mut out = LoadedRules::default();
        counts.show(&mut out);
        out
    }

    fn names(rules: &[RuleCount]) -> Vec<&str> {
        rules.iter().map(|rule| &rule.rule[..]).collect()
    }

    #[test]
    fn rates_cover_the_time_between_readings() {
        let mut counts = RuleCounts::default();
        counts.replace(list(&["-s 10.0.0.1 -j ACCEPT", "-j DROP"]));
        counts.take(SECOND, |id| [u64::from(id) * 100, u64::from(id) * 1000]);
        let first = shown(&counts);
        assert_eq!(first.interval_ns, None);
        assert!(first.rules.iter().all(|rule| rule.rate_pps == 0.0));
        counts.take(3 * SECOND, |id| match id {
            1 => [140, 2000],
            2 => [220, 2000],
            _ => [7, 70],
        });
        let second = shown(&counts);
        assert_eq!(second.interval_ns, Some(2 * SECOND));
        let busiest = &second.rules[0];
        assert_eq!(
            (busiest.rate_pps, busiest.rate_bps, busiest.packets),
            (20.0, 4000.0, 140)
        );
        assert_eq!((busiest.line, &busiest.file[..]), (11, "rules.v4"));
        assert_eq!((second.rules_total, second.files[0].rules), (2, 2));
        let policy = &second.policies[0];
        assert_eq!(
            (&policy.chain[..], &policy.policy[..], policy.packets),
            ("INPUT", "DROP", 7)
        );
    }

    #[test]
    fn sums_by_target_never_decrease() {
        let mut counts = RuleCounts::default();
        counts.replace(list(&["-s 10.0.0.1 -j DROP", "-s 10.0.0.2 -j DROP"]));
        counts.take(SECOND, |_| [1000, 1000]);
        let sum = |counts: &RuleCounts| shown(counts).targets[0].packets;
        assert_eq!(sum(&counts), 0, "it begins with this process");
        counts.take(2 * SECOND, |_| [1010, 1010]);
        assert_eq!(sum(&counts), 20);
        // A rule was removed, the other one keeps its id.
        let mut fewer = RuleList::default();
        fewer.begin_file("IPv4", "rules.v4", 1);
        fewer.begin_chain("filter", "INPUT");
        fewer.rule("-s 10.0.0.2 -j DROP", "DROP", 3, 2);
        counts.replace(fewer);
        counts.take(3 * SECOND, |_| [1015, 1015]);
        assert_eq!(sum(&counts), 25);
        // Set to 0, and counted again.
        counts.take(4 * SECOND, |_| [3, 3]);
        assert_eq!(sum(&counts), 28);
        counts.replace(RuleList::default());
        assert_eq!(sum(&counts), 28);
    }

    #[test]
    fn another_rule_with_its_id_has_no_rate() {
        let mut counts = RuleCounts::default();
        counts.replace(list(&["-s 10.0.0.1 -j DROP"]));
        counts.take(SECOND, |_| [10, 10]);
        counts.replace(list(&["-s 10.9.9.9 -j DROP"]));
        counts.take(2 * SECOND, |_| [5000, 5000]);
        let rule = &shown(&counts).rules[0];
        assert_eq!((rule.packets, rule.rate_pps), (5000, 0.0));
    }

    #[test]
    fn exported_rules_stay_until_clearly_passed() {
        let texts: Vec<String> = (0..300).map(|i| format!("-s 10.0.0.{i} -j DROP")).collect();
        let texts: Vec<&str> = texts.iter().map(|text| &text[..]).collect();
        let mut counts = RuleCounts::default();
        counts.replace(list(&texts));
        let by_id = |id: u32| if id > 0 { u64::from(id) * 1000 } else { 0 };
        counts.take(SECOND, |id| [by_id(id), 1]);
        let exported = |counts: &RuleCounts| -> Vec<u32> {
            let shown = shown(counts);
            shown.exported.iter().map(|rule| rule.line - 10).collect()
        };
        let first: Vec<u32> = (201..=300).collect();
        assert_eq!(exported(&counts), first);
        // The next one passes the last one, but not by an eighth.
        let close = |id: u32| if id == 200 { 210_000 } else { by_id(id) };
        counts.take(2 * SECOND, |id| [close(id), 1]);
        assert_eq!(exported(&counts), first);
        let far = |id: u32| if id == 200 { 240_000 } else { by_id(id) };
        counts.take(3 * SECOND, |id| [far(id), 1]);
        assert_eq!(exported(&counts)[..2], [200, 202]);
        // After another load too, with other ids; nothing was counted yet.
        let mut again = RuleList::default();
        again.begin_file("IPv4", "rules.v4", 300);
        again.begin_chain("filter", "INPUT");
        for (at, text) in (1..).zip(&texts) {
            again.rule(text, "DROP", 10 + at, 1000 + at);
        }
        counts.replace(again);
        counts.take(4 * SECOND, |_| [0, 0]);
        assert_eq!(exported(&counts).len(), 100);
        assert_eq!(exported(&counts)[..2], [200, 202]);
    }

    #[test]
    fn a_short_set_is_exported_with_zeros() {
        let mut counts = RuleCounts::default();
        counts.replace(list(&["-j LOG", "-j DROP"]));
        counts.take(SECOND, |_| [0, 0]);
        assert_eq!(names(&shown(&counts).exported), ["-j LOG", "-j DROP"]);
    }

    #[test]
    fn equal_texts_have_different_copies() {
        let long = |end: &str| format!("-m comment --comment {}{end} -j DROP", "é".repeat(200));
        let mut counts = RuleCounts::default();
        counts.replace(list(&[
            "-j LOG",
            &long("a"),
            "-j LOG",
            &long("b"),
            "-m comment --comment \"a\u{1b}[2J\u{202e}\" -j DROP",
        ]));
        counts.take(SECOND, |_| [0, 0]);
        let exported = shown(&counts).exported;
        let copies: Vec<u32> = exported.iter().map(|rule| rule.copy).collect();
        assert_eq!(copies, [0, 0, 1, 1, 0]);
        assert_eq!(exported[1].rule.chars().count(), MAX_RULE_CHARS);
        assert!(exported[1].rule.ends_with("é..."));
        assert!(exported[4].rule.contains("\"a?[2J?\""), "{exported:?}");
    }

    #[test]
    fn the_fastest_are_those_of_a_sort() {
        let texts: Vec<String> = (0..3000).map(|i| format!("-s 10.0.{i} -j DROP")).collect();
        let texts: Vec<&str> = texts.iter().map(|text| &text[..]).collect();
        let mut counts = RuleCounts::default();
        counts.replace(list(&texts));
        let packets = |id: u32, time: u64| u64::from(id) * 7 % 997 * time;
        counts.take(SECOND, |id| [packets(id, 1), 0]);
        counts.take(2 * SECOND, |id| [packets(id, 2), 0]);
        let mut all: Vec<u32> = (1..=3000).collect();
        all.sort_by_key(|id| Reverse(packets(*id, 1)));
        let lines: Vec<u32> = shown(&counts).rules.iter().map(|r| r.line - 10).collect();
        assert_eq!(lines, all[..MAX_LISTED_RULES]);
    }
}
