//! Figures of the loaded rules for other outputs: `top`, metrics, the page.
//!
//! The text is read after each change of the rules, the counters at any time.

use anyhow::{Context, bail};
use fairpath_backend::monotonic_ns;
use fairpath_bpf::{AnswerLock, HOOK_FAMILIES, HookRules, Pins};
use fairpath_core::rules::{CounterMode, Memory};
use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::rule_counts::{RuleCounts, RuleList};
use fairpath_rules::image::{Chains, table_places};
use fairpath_rules::{Ruleset, Target, rule_text};
use fairpath_watch::unix_ns;

use super::counters::count;
use super::loaded::Loaded;
use super::status::dropped_by;
use super::{PinArgs, READS, must_open_to_edit};

/// Rules that a reader follows.
pub struct Figures {
    place: PinArgs,
    opened: Option<Opened>,
    counts: RuleCounts,
}

/// The rules of one load.
struct Opened {
    pins: Pins,
    rules: HookRules,
    /// Of each family; no rule is known before.
    known: Option<Known>,
}

struct Known {
    memories: [Option<Memory>; HOOK_FAMILIES],
    /// Places of recent lists and hashlimit tables.
    tables: Vec<u64>,
    /// Facts that stay the same until the next load.
    heading: LoadedRules,
    rejects: bool,
}

/// The state of the loaded rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There are none.
    None,
    /// Those whose text was read.
    Same,
    /// Others.
    New,
}

impl Figures {
    pub fn new(place: PinArgs) -> Figures {
        Figures {
            place,
            opened: None,
            counts: RuleCounts::default(),
        }
    }

    /// Looks for loaded rules. O(1).
    ///
    /// # Errors
    /// They have another version, or the kernel refuses.
    pub fn look(&mut self) -> anyhow::Result<Found> {
        if let Some(opened) = &self.opened {
            if opened.rules.is_loaded() && HookRules::is_pinned(&opened.pins)? {
                return Ok(match opened.known.is_some() && opened.rules.is_active() {
                    true => Found::Same,
                    false => Found::New,
                });
            }
            self.opened = None;
            self.counts.replace(RuleList::default());
        }
        let Some(pins) = self.place.mounted()? else {
            return Ok(Found::None);
        };
        let Some(rules) = HookRules::open_to_edit(&pins)? else {
            return Ok(Found::None);
        };
        self.opened = Some(Opened {
            pins,
            rules,
            known: None,
        });
        Ok(Found::New)
    }

    /// Reads the text of new rules. O(rules). False: others took their place during this time.
    ///
    /// # Errors
    /// They are corrupt.
    pub fn learn(&mut self) -> anyhow::Result<bool> {
        let Some(Opened { rules, known, .. }) = &mut self.opened else {
            return Ok(false);
        };
        *known = None;
        rules.look()?;
        if rules.text().is_empty() {
            return Ok(false);
        }
        let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
        rules.forget_text();
        let is_counted = loaded.mode() != CounterMode::None;
        let (mut list, mut tables) = (RuleList::default(), Vec::new());
        for family in 0..HOOK_FAMILIES {
            let (Some(name), Some(ruleset)) = (loaded.name(family), loaded.ruleset(family)) else {
                continue;
            };
            list.begin_file(&ruleset.family.to_string(), name, ruleset.rules() as u64);
            let Some(image) = rules.image(family) else {
                continue;
            };
            tables.extend(table_places(&image));
            if is_counted {
                add_rules(&mut list, ruleset, &image);
            }
        }
        let memories: [_; HOOK_FAMILIES] = std::array::from_fn(|family| rules.memory(family));
        let heading = LoadedRules {
            loaded_unix_ns: u64::try_from(loaded.time().as_nanosecond()).unwrap_or(0),
            generation: rules.generation(),
            deciding: !loaded.options().shadow,
            counter_mode: match loaded.mode() {
                CounterMode::Exact => "exact",
                CounterMode::Sampled => "sampled",
                CounterMode::None => "none",
            }
            .to_owned(),
            ..LoadedRules::default()
        };
        let rejects = loaded.rejects() && !loaded.options().shadow;
        if !rules.is_active() {
            return Ok(false);
        }
        *known = Some(Known {
            memories,
            tables,
            heading,
            rejects,
        });
        self.counts.replace(list);
        Ok(true)
    }

    /// All rules with their counters, for [`super::daemon`]. O(rules).
    ///
    /// # Errors
    /// No rules are loaded.
    pub fn text(&self) -> anyhow::Result<Vec<u8>> {
        for _ in 0..READS {
            let mut rules = must_open_to_edit(&self.place)?;
            rules.look()?;
            if let Some((loaded, _)) = count(&rules, None)? {
                return Ok(loaded.counted_text());
            }
        }
        bail!("list rules: loads replace them faster than they can be read")
    }

    /// Reads the counters of the rules whose text was read. `None`: there are none.
    ///
    /// # Errors
    /// The clock cannot be read.
    pub fn count(&mut self) -> anyhow::Result<Option<LoadedRules>> {
        let Some(Opened { rules, known, .. }) = &mut self.opened else {
            return Ok(None);
        };
        let Some(known) = known else {
            return Ok(None);
        };
        // Counters and tables of both families are in the same memory.
        let memory = known.memories.iter().flatten().next();
        self.counts.take(monotonic_ns()?, |id| {
            let counter = memory.map_or_else(Default::default, |memory| memory.counter(id));
            [counter.packets, counter.bytes]
        });
        let mut out = known.heading.clone();
        self.counts.show(&mut out);
        out.unix_ns = unix_ns()?;
        out.confirm_ns = rules.waiting().map(|left| left.as_nanos() as u64);
        out.went_back = rules.went_back();
        // Not known if this process cannot open the lock.
        out.rejected_are_answered = known
            .rejects
            .then(AnswerLock::is_taken)
            .and_then(Result::ok);
        let counts = rules.counts();
        let mut counters = vec![
            ("packets_dropped_unknown", counts.unknown),
            ("packets_dropped_without_scratch", counts.pressed),
            ("packets_dropped_early", rules.dropped_early()),
            ("packets_parked", counts.parked),
            ("logs_without_place", counts.unlogged),
            ("syns_without_limit", counts.strays),
            ("connections_without_mark", counts.unsaved),
        ];
        let tables = known.tables.iter();
        let stores = tables.filter_map(|at| Some(memory?.store(*at)));
        if let Some((full, in_use)) = dropped_by(stores) {
            counters.push(("packets_dropped_table_full", full));
            counters.push(("packets_dropped_table_in_use", in_use));
        }
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        out.counters = counters.into_iter().map(named).collect();
        Ok(Some(out))
    }
}

/// The rules of a family, in the order of save files.
fn add_rules(list: &mut RuleList, ruleset: &Ruleset, image: &[u8]) {
    let chains = Chains::new(ruleset, image);
    let mut text = Vec::new();
    for (at, table) in ruleset.tables.iter().enumerate() {
        for (id, chain) in table.sorted() {
            list.begin_chain(&table.name, &chain.name());
            if let Some(policy) = chains.policy_id(at, id) {
                list.policy(chain.policy.name(), policy);
            }
            for (rule, counter) in chain.rules.iter().zip(chains.rule_ids(at, id)) {
                text.clear();
                rule_text(ruleset.family, table, rule, &mut text);
                let target = target(rule.target);
                list.rule(&String::from_utf8_lossy(&text), target, rule.line, counter);
            }
        }
    }
}

/// The name of a target.
fn target(target: Target) -> &'static str {
    match target {
        Target::None => "none",
        Target::Accept => "ACCEPT",
        Target::Drop => "DROP",
        Target::Return => "RETURN",
        Target::Queue => "QUEUE",
        Target::Continue => "CONTINUE",
        Target::Jump(_) | Target::Goto(_) => "chain",
        Target::Extension(kind) => kind.spec().name,
    }
}
