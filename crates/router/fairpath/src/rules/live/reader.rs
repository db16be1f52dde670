//! Events of the loaded rules, with the rules that their packets met.

use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_backend::Tracked;
use fairpath_bpf::{Event, EventCursor, HookRules, IP_FAMILIES, Occurrence};
use fairpath_rules::image::Chains;
use fairpath_rules::{RuleAt, Ruleset, Sets};
use fairpath_units::counted;
use jiff::{SignedDuration, Timestamp};

use super::given::Name;
use super::{Loaded, PinArgs, must_open};
use crate::run::Signals;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two remarks about lost packets.
const LOST_EVERY: Duration = Duration::from_secs(1);
/// Rules that are kept for packets that met earlier ones.
const GENERATIONS: usize = 4;

/// The rules of one generation.
pub struct Known {
    pub generation: u64,
    families: [Option<Rules>; IP_FAMILIES],
    pub sets: Option<Sets>,
    /// Rules of the family read connections, so these are tracked.
    tracks: Tracked,
    /// Tables that iptables has.
    deferred: Vec<Name>,
}

/// Of one family.
pub struct Rules {
    /// The name of the file.
    pub name: String,
    pub ruleset: Ruleset,
    /// Bytes of a rule in the image, the rule, and the id of its counter; in the order of bytes.
    places: Vec<(std::ops::Range<usize>, RuleAt, u32)>,
}

impl Known {
    fn read(rules: &HookRules) -> anyhow::Result<Known> {
        let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
        let families = [0, 1].map(|family| {
            let (ruleset, image) = (loaded.ruleset(family)?.clone(), rules.image(family)?);
            let places = Chains::new(&ruleset, &image).rules(&ruleset);
            Some(Rules {
                name: loaded.name(family)?.to_owned(),
                ruleset,
                places,
            })
        });
        Ok(Known {
            generation: rules.generation(),
            families,
            sets: loaded.members()?,
            tracks: loaded.reads_connections(),
            deferred: loaded.options().deferred.clone(),
        })
    }

    /// True if the connections of the family of an event are tracked.
    pub fn tracks(&self, event: &Event) -> bool {
        self.tracks[usize::from(!event.is_ipv4)]
    }

    /// The rules of the family of an event.
    pub fn family(&self, event: &Event) -> Option<&Rules> {
        self.families[usize::from(!event.is_ipv4)].as_ref()
    }
}

impl Rules {
    fn at(&self, offset: usize) -> Option<&(std::ops::Range<usize>, RuleAt, u32)> {
        let behind = self
            .places
            .partition_point(|(place, ..)| place.start <= offset);
        let found = self.places.get(behind.checked_sub(1)?)?;
        found.0.contains(&offset).then_some(found)
    }

    /// The rule with a counter.
    pub fn of_counter(&self, id: u32) -> Option<RuleAt> {
        let found = self.places.iter().find(|place| place.2 == id)?;
        Some(found.1)
    }
}

/// Reads events as they come.
pub struct Reader {
    pub rules: HookRules,
    cursor: EventCursor,
    known: Vec<Known>,
    lost: u64,
    reported: Instant,
}

pub enum Next {
    Event(Box<Event>),
    /// There was none for a while.
    None,
    /// The rules were unloaded.
    Unloaded,
}

impl Reader {
    /// Begins with the events from now on.
    ///
    /// # Errors
    /// No rules are loaded.
    pub fn new(place: &PinArgs) -> anyhow::Result<Reader> {
        let (_, rules) = must_open(place)?;
        Ok(Reader {
            cursor: rules.events(),
            // Packets of the rules before come until all programs have ended.
            known: vec![Known::read(&rules)?],
            lost: 0,
            reported: Instant::now(),
            rules,
        })
    }

    /// The next event. Prints how many were lost.
    ///
    /// # Errors
    /// New rules cannot be read.
    pub fn next(&mut self, signals: &Signals) -> anyhow::Result<Next> {
        let Some(event) = self.rules.next_event(&mut self.cursor) else {
            signals.wait(LOOK)?;
            if !self.rules.is_current() {
                self.learn()?;
            }
            self.report_lost();
            if self.rules.text().is_empty() {
                fairpath_cli::note("the rules were unloaded");
                return Ok(Next::Unloaded);
            }
            return Ok(Next::None);
        };
        self.lost += self.cursor.take_lost();
        if self.reported.elapsed() > LOST_EVERY {
            self.report_lost();
        }
        if self.known(&event).is_none() {
            self.learn()?;
        }
        Ok(Next::Event(Box::new(event)))
    }

    /// The rules that the packet of an event met. `None`: they are not known any more.
    pub fn known(&self, event: &Event) -> Option<&Known> {
        let mut known = self.known.iter();
        known.find(|known| known.generation == event.generation)
    }

    /// True if one of the loaded rules is so.
    pub fn has_rule(&self, is: impl Fn(&Rules, RuleAt) -> bool) -> bool {
        let families = self.known[0].families.iter().flatten();
        let mut all = families.flat_map(|rules| rules.places.iter().map(move |at| (rules, at.1)));
        all.any(|(rules, at)| is(rules, at))
    }

    /// Tables that iptables has, at the beginning.
    pub fn deferred(&self) -> &[Name] {
        &self.known[0].deferred
    }

    /// The rule of an event.
    pub fn rule(&self, event: &Event) -> Option<(&Ruleset, RuleAt)> {
        let rules = self.known(event)?.family(event)?;
        let at = match event.occurrence {
            Occurrence::Logged { place } => rules.at(place as usize).map(|found| found.1),
            Occurrence::Rejected { id, .. } => rules.of_counter(id),
            Occurrence::Traced(traced) => rules.of_counter(traced.id),
        };
        Some((&rules.ruleset, at?))
    }

    /// Reads the rules that are loaded now, if they are new.
    fn learn(&mut self) -> anyhow::Result<()> {
        self.rules.look()?;
        let generation = self.rules.generation();
        let is_new = self
            .known
            .iter()
            .all(|known| known.generation != generation);
        if is_new && !self.rules.text().is_empty() {
            self.known.insert(0, Known::read(&self.rules)?);
            self.known.truncate(GENERATIONS);
        }
        Ok(())
    }

    /// Prints how many events were lost.
    pub fn report_lost(&mut self) {
        self.lost += self.cursor.take_lost();
        if self.lost > 0 {
            let packets = counted(self.lost as usize, "packet", "packets");
            fairpath_cli::note(format!("{packets} lost: they came too fast"));
        }
        (self.lost, self.reported) = (0, Instant::now());
    }
}

/// The time of day of a time of `CLOCK_MONOTONIC`.
pub fn wall(time: u64) -> Timestamp {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let now = now.map_or(0, |now| {
        i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec())
    });
    let ago =
        SignedDuration::from_nanos((now - i128::from(time)).clamp(0, i128::from(i64::MAX)) as i64);
    Timestamp::now()
        .checked_sub(ago)
        .unwrap_or_else(|_| Timestamp::now())
}
