//! Rules as they are loaded: their text next to the images, and the trees of it.
//!
//! The text is one line of JSON, then the rules of each family as iptables-save prints them, the sets, and
//! the tables that iptables got. The images have the numbers of counters.

use std::collections::HashMap;

use anyhow::{Context, bail};
use fairpath_backend::Tracked;
use fairpath_bpf::HOOK_FAMILIES;
use fairpath_core::rules::{Counter, CounterMode};
use fairpath_rules::image::{Built, Chains, Lookups, build, identify, identity};
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    Counters, Family, Names, Ruleset, Sets, Target, WithCounters, read, to_bytes,
};
use fairpath_units::counted;
use jiff::Timestamp;
use memchr::memchr;
use serde::{Deserialize, Serialize};

use super::journal;
use super::options::Options;

/// The rules of one family.
#[derive(Clone)]
pub struct Source {
    name: String,
    family: Family,
    text: Vec<u8>,
    lines: Lines,
}

impl Source {
    pub fn new(name: &str, ruleset: &Ruleset) -> Source {
        Source::with_lines(name, ruleset, |line| line)
    }

    /// Of tables that iptables gets, with their counters.
    pub fn given(name: &str, ruleset: &Ruleset) -> Source {
        Source {
            text: to_bytes(ruleset, WithCounters::AsRead),
            ..Source::new(name, ruleset)
        }
    }

    /// With the counters of the tree.
    fn counted(name: &str, ruleset: &Ruleset) -> Source {
        Source {
            text: to_bytes(ruleset, WithCounters::Always),
            ..Source::new(name, ruleset)
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the text. Its lines are those of the file.
    ///
    /// # Errors
    /// It is corrupt.
    pub fn read(&self) -> anyhow::Result<Ruleset> {
        let mut text = &self.text[..];
        let reading = read(&mut text, &self.name, self.family, &Names::default());
        let mut ruleset = reading.context("read memory")?.complete()?;
        self.lines.restore(&mut ruleset);
        Ok(ruleset)
    }

    /// With lines of the file by those of the tree.
    fn with_lines(name: &str, ruleset: &Ruleset, line: impl Fn(u32) -> u32) -> Source {
        let mut lines = Lines::default();
        for table in &ruleset.tables {
            lines.push(0);
            let chains = table.sorted();
            chains.iter().for_each(|(_, chain)| lines.push(chain.line));
            let rules = chains.iter().flat_map(|(_, chain)| &chain.rules);
            rules.for_each(|rule| lines.push(line(rule.line)));
            lines.push(0);
        }
        Source {
            name: name.to_owned(),
            family: ruleset.family,
            text: to_bytes(ruleset, WithCounters::Never),
            lines,
        }
    }
}

/// Lines of a file by those of the text, as runs: the first one and their number. Lines of a run follow each
/// other, or all are 0, of no file.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Lines(Vec<(u32, u32)>);

impl Lines {
    fn push(&mut self, line: u32) {
        match self.0.last_mut() {
            Some((first, count)) if line == *first + *count && *first > 0 => *count += 1,
            Some((0, count)) if line == 0 => *count += 1,
            _ => self.0.push((line, 1)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let run = |(first, count): &(u32, u32)| {
            let step = u32::from(*first > 0);
            let first = *first;
            (0..*count).map(move |at| first + at * step)
        };
        self.0.iter().flat_map(run)
    }

    /// Puts the lines of the file into the tree that was read from the text.
    fn restore(&self, ruleset: &mut Ruleset) {
        let lines: Vec<u32> = self.iter().collect();
        let of = |line: u32| {
            let at = (line as usize).wrapping_sub(1);
            lines.get(at).copied().unwrap_or(0)
        };
        for table in &mut ruleset.tables {
            for (_, chain) in table.chains_mut() {
                chain.line = of(chain.line);
                chain
                    .rules
                    .iter_mut()
                    .for_each(|rule| rule.line = of(rule.line));
            }
        }
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Heading {
    /// When the rules were loaded, in seconds since 1970.
    time: i64,
    files: Vec<Part>,
    /// Bytes of the sets; none: no sets.
    sets: Option<usize>,
    /// Names of the sets in the images, by family and number.
    in_images: [Vec<String>; HOOK_FAMILIES],
    /// Tables that iptables got.
    #[serde(default)]
    given: Vec<Part>,
    /// A random number of this text; 0: it has none.
    #[serde(default)]
    number: u64,
    optimised: bool,
    counters: u32,
    options: Options,
}

#[derive(Serialize, Deserialize)]
struct Part {
    name: String,
    /// Its number.
    family: usize,
    bytes: usize,
    lines: Lines,
}

impl Part {
    fn of(source: &Source) -> Part {
        Part {
            name: source.name.clone(),
            family: source.family as usize,
            bytes: source.text.len(),
            lines: source.lines.clone(),
        }
    }

    /// The source with the text that `take` returns.
    fn read(
        self,
        take: &mut impl FnMut(usize) -> anyhow::Result<Vec<u8>>,
    ) -> anyhow::Result<Source> {
        let family = Family::ALL[..HOOK_FAMILIES].get(self.family);
        Ok(Source {
            name: self.name,
            family: *family.context("the text of the rules has another family")?,
            text: take(self.bytes)?,
            lines: self.lines,
        })
    }
}

struct Set {
    ruleset: Ruleset,
    name: String,
}

/// Loaded rules, or those that will be.
pub struct Loaded {
    sources: Vec<Source>,
    sets: Option<String>,
    /// Edits of sets after the load: lines, and their time.
    set_edits: Vec<(u64, Vec<u8>)>,
    optimised: bool,
    mode: CounterMode,
    time: Timestamp,
    /// Tables that iptables got.
    given: Vec<Source>,
    /// Of the text that was read.
    number: u64,
    options: Options,
    by_family: [Option<Set>; HOOK_FAMILIES],
    /// Lines of the rules of a family before [`Loaded::identify`], in their order.
    lines: [Vec<u32>; HOOK_FAMILIES],
}

impl Loaded {
    /// Reads the rules of all sources.
    ///
    /// # Errors
    /// A text is corrupt.
    pub fn new(
        sources: Vec<Source>,
        sets: Option<String>,
        optimised: bool,
        mode: CounterMode,
        options: Options,
    ) -> anyhow::Result<Loaded> {
        let mut new = Loaded::of(sources, sets, optimised, mode, Timestamp::now())?;
        let load = getrandom::u64().context("draw the number of the load")?;
        new.options = Options { load, ..options };
        Ok(new)
    }

    fn of(
        sources: Vec<Source>,
        sets: Option<String>,
        optimised: bool,
        mode: CounterMode,
        time: Timestamp,
    ) -> anyhow::Result<Loaded> {
        let mut by_family = [const { None }; HOOK_FAMILIES];
        for source in &sources {
            let (ruleset, name) = (source.read()?, source.name.clone());
            by_family[source.family as usize] = Some(Set { ruleset, name });
        }
        Ok(Loaded {
            sources,
            sets,
            set_edits: Vec::new(),
            optimised,
            mode,
            time,
            given: Vec::new(),
            number: 0,
            options: Options::default(),
            by_family,
            lines: Default::default(),
        })
    }

    /// Builds the images of all families.
    ///
    /// # Errors
    /// A set is too large.
    pub fn build(&self) -> anyhow::Result<[Option<Built>; HOOK_FAMILIES]> {
        let lookups = match self.optimised {
            true => Lookups::Estimated,
            false => Lookups::Never,
        };
        let members = self.members()?;
        let mut built = [const { None }; HOOK_FAMILIES];
        for (built, set) in built.iter_mut().zip(&self.by_family) {
            if let Some(set) = set {
                *built = Some(build(&set.ruleset, members.as_ref(), lookups)?);
            }
        }
        Ok(built)
    }

    /// Reads the text of loaded rules.
    ///
    /// # Errors
    /// It is corrupt.
    pub fn read(text: &[u8]) -> anyhow::Result<Loaded> {
        let end = text.iter().position(|byte| *byte == b'\n');
        let end = end.context("the text of the rules has no heading")?;
        let heading: Heading = serde_json::from_slice(&text[..end])?;
        let mut rest = &text[end + 1..];
        let mut take = |bytes: usize| match rest.split_at_checked(bytes) {
            Some((part, behind)) => {
                rest = behind;
                Ok(part.to_vec())
            }
            None => bail!("the text of the rules is cut"),
        };
        let sources = heading.files.into_iter();
        let sources = sources.map(|part| part.read(&mut take));
        let sources = sources.collect::<anyhow::Result<_>>()?;
        let sets = heading.sets.map(&mut take).transpose()?;
        let sets = sets.map(String::from_utf8).transpose()?;
        let given = heading.given.into_iter();
        let given = given.map(|part| part.read(&mut take));
        let given = given.collect::<anyhow::Result<_>>()?;
        let mode = match heading.counters {
            0 => CounterMode::None,
            1 => CounterMode::Sampled,
            _ => CounterMode::Exact,
        };
        let time = Timestamp::from_second(heading.time)?;
        let mut read = Loaded::of(sources, sets, heading.optimised, mode, time)?;
        read.replay(rest)?;
        (read.given, read.number) = (given, heading.number);
        read.options = heading.options;
        Ok(read)
    }

    /// Applies edits that came after the load.
    fn replay(&mut self, journal: &[u8]) -> anyhow::Result<()> {
        let edits = journal::of_sets(journal)?.into_iter();
        self.set_edits = edits.map(|edit| (edit.now, edit.lines.to_vec())).collect();
        for source in &mut self.sources {
            let set = &mut self.by_family[source.family as usize];
            if let Some(Set { ruleset, name }) = set
                && journal::replay(journal, ruleset)?
            {
                *source = Source::new(name, ruleset);
            }
        }
        Ok(())
    }

    /// The text for [`Loaded::read`], of rules with these images. Its sets have no edits.
    ///
    /// # Errors
    /// There is no random number.
    pub fn text(&self, built: &[Option<Built>; HOOK_FAMILIES]) -> anyhow::Result<Vec<u8>> {
        let names = |built: &Option<Built>| {
            let built = built.as_ref();
            built.map_or_else(Vec::new, |built| built.sets.clone())
        };
        let in_images = built.each_ref().map(names);
        let number = getrandom::u64().context("draw the number of the text")?;
        Ok(self.write(
            &self.sources,
            self.sets.as_deref(),
            &self.given,
            in_images,
            number,
        ))
    }

    /// The same with the counters of the trees, without sets and tables of iptables, for [`super::daemon`].
    pub fn counted_text(&self) -> Vec<u8> {
        let sources = self.rulesets();
        let sources = sources.map(|(name, ruleset)| Source::counted(name, ruleset));
        let sources: Vec<Source> = sources.collect();
        self.write(
            &sources,
            None,
            &[],
            [const { Vec::new() }; HOOK_FAMILIES],
            0,
        )
    }

    fn write(
        &self,
        sources: &[Source],
        sets: Option<&str>,
        given: &[Source],
        in_images: [Vec<String>; HOOK_FAMILIES],
        number: u64,
    ) -> Vec<u8> {
        let heading = Heading {
            time: self.time.as_second(),
            files: sources.iter().map(Part::of).collect(),
            sets: sets.map(str::len),
            in_images,
            given: given.iter().map(Part::of).collect(),
            number,
            optimised: self.optimised,
            counters: self.mode as u32,
            options: self.options.clone(),
        };
        let mut out = serde_json::to_vec(&heading).expect("plain fields become JSON");
        out.push(b'\n');
        for source in sources {
            out.extend_from_slice(&source.text);
        }
        out.extend_from_slice(sets.unwrap_or_default().as_bytes());
        for source in given {
            out.extend_from_slice(&source.text);
        }
        out
    }

    /// The sets.
    ///
    /// # Errors
    /// Their text is corrupt.
    pub fn members(&self) -> anyhow::Result<Option<Sets>> {
        let Some(text) = self.sets.as_deref() else {
            return Ok(None);
        };
        let mut sets = Sets::read_loaded("loaded sets", text.as_bytes(), 0)?;
        for (now, lines) in &self.set_edits {
            sets.set_time(*now);
            sets.read_lines("edited sets", &lines[..])?;
        }
        Ok(Some(sets))
    }

    /// The text of the sets with their edits.
    fn sets_text(&self) -> anyhow::Result<Option<String>> {
        if self.set_edits.is_empty() {
            return Ok(self.sets.clone());
        }
        let mut text = String::new();
        if let Some(mut sets) = self.members()? {
            sets.forget_ended();
            sets.write_loaded(&mut text)?;
        }
        Ok(Some(text))
    }

    /// The same rules with other sets.
    ///
    /// # Errors
    /// A set is too large.
    pub fn with_sets(&self, sets: &Sets) -> anyhow::Result<Loaded> {
        let mut text = String::new();
        sets.write_loaded(&mut text)?;
        self.with_other(self.sources.clone(), Some(text))
    }

    /// The same rules for another load, with these sets.
    ///
    /// # Errors
    /// A set is too large.
    pub fn again(&self, sets: Option<String>, kept: String) -> anyhow::Result<Loaded> {
        let mut new = self.with_other(self.sources.clone(), sets)?;
        new.options = Options {
            load: getrandom::u64().context("draw the number of the load")?,
            kept: Some(kept),
            ..new.options
        };
        Ok(new)
    }

    fn with_other(&self, sources: Vec<Source>, sets: Option<String>) -> anyhow::Result<Loaded> {
        let now = Timestamp::now();
        let new = Loaded::of(sources, sets, self.optimised, self.mode, now)?;
        Ok(Loaded {
            given: self.given.clone(),
            options: self.options.clone(),
            ..new
        })
    }

    /// The same with other rules of one family, of the same name.
    ///
    /// # Errors
    /// A set is too large.
    pub fn with(&self, ruleset: &Ruleset) -> anyhow::Result<Loaded> {
        let mut name = "edit";
        let mut sources = Vec::new();
        for source in &self.sources {
            if source.family == ruleset.family {
                name = &source.name;
                continue;
            }
            sources.push(source.clone());
        }
        // Rules of the edit are in no file.
        let lines = &self.lines[ruleset.family as usize];
        let line = |line: u32| identity(line).and_then(|at| lines.get(at).copied());
        sources.push(Source::with_lines(name, ruleset, |at| {
            line(at).unwrap_or(0)
        }));
        self.with_other(sources, self.sets_text()?)
    }

    /// Adds tables that iptables gets.
    pub fn give(&mut self, given: Vec<Source>) {
        self.given = given;
    }

    /// Tables that iptables got.
    pub fn given(&self) -> &[Source] {
        &self.given
    }

    /// The number of the text that was read.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn mode(&self) -> CounterMode {
        self.mode
    }

    /// The time of the load.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// The tree of a family.
    pub fn ruleset(&self, family: usize) -> Option<&Ruleset> {
        Some(&self.by_family.get(family)?.as_ref()?.ruleset)
    }

    /// The name of a family's file.
    pub fn name(&self, family: usize) -> Option<&str> {
        Some(&self.by_family[family].as_ref()?.name)
    }

    /// Gives each rule of a family an identity, which it keeps through an edit.
    pub fn identify(&mut self, family: usize) {
        if let Some(set) = &mut self.by_family[family] {
            let tables = set.ruleset.tables.iter();
            let chains = tables.flat_map(|table| table.chains());
            let rules = chains.flat_map(|(_, chain)| &chain.rules);
            self.lines[family] = rules.map(|rule| rule.line).collect();
            identify(&mut set.ruleset);
        }
    }

    /// Names of the files, and their trees.
    pub fn rulesets(&self) -> impl Iterator<Item = (&str, &Ruleset)> {
        let sets = self.by_family.iter().flatten();
        sets.map(|set| (&set.name[..], &set.ruleset))
    }

    /// Leaves a family out.
    pub fn forget(&mut self, family: usize) {
        self.by_family[family] = None;
    }

    /// Puts counters into the tree of a family, whose image is given.
    pub fn count(&mut self, family: usize, image: &[u8], counter: impl FnMut(u32) -> Counter) {
        if let Some(set) = &mut self.by_family[family] {
            count(&mut set.ruleset, image, counter);
        }
    }

    /// The families of which a rule reads the connection of a packet.
    pub fn reads_connections(&self) -> Tracked {
        let reads = |ruleset: &Ruleset| {
            let chains = ruleset.tables.iter().flat_map(|table| table.chains());
            let mut rules = chains.flat_map(|(_, chain)| &chain.rules);
            rules.any(|rule| {
                let of = |kind| matches!(kind, Kind::State | Kind::Conntrack | Kind::Connmark);
                let target = matches!(rule.target, Target::Extension(Kind::TargetConnmark));
                target || rule.matches().any(|group| of(group.kind))
            })
        };
        [Family::Ipv4, Family::Ipv6].map(|family| self.ruleset(family as usize).is_some_and(reads))
    }

    /// True if a rule rejects packets.
    pub fn rejects(&self) -> bool {
        let rulesets = self.rulesets();
        let tables = rulesets.flat_map(|(_, ruleset)| &ruleset.tables);
        let mut chains = tables.flat_map(|table| table.chains());
        let reject = Target::Extension(Kind::TargetReject);
        chains.any(|(_, chain)| chain.rules.iter().any(|rule| rule.target == reject))
    }

    /// Rules of all families.
    pub fn rules(&self) -> usize {
        self.rulesets().map(|(_, ruleset)| ruleset.rules()).sum()
    }

    /// One sentence.
    pub fn summary(&self) -> String {
        let rules = counted(self.rules(), "rule", "rules");
        format!("{rules}, loaded at {:.0}", self.time)
    }

    /// The same as JSON.
    pub fn describe(&self) -> serde_json::Value {
        let files = self.rulesets().map(|(name, ruleset)| {
            serde_json::json!({"file": name, "family": ruleset.family.to_string(),
                "rules": ruleset.rules()})
        });
        serde_json::json!({"time": self.time.to_string(), "files": files.collect::<Vec<_>>(),
            "optimised": self.optimised, "shadow": self.options.shadow})
    }
}

/// A loaded text that is not read: its parts, and options.
pub struct Parts<'t> {
    /// Text by family.
    pub families: [Option<&'t [u8]>; HOOK_FAMILIES],
    /// Sets at the load.
    pub sets: &'t [u8],
    /// Names of the sets in the images, by family and number.
    pub in_images: [Vec<String>; HOOK_FAMILIES],
    /// Edits after the load.
    pub journal: &'t [u8],
    pub lookups: Lookups,
    /// The number of the text.
    pub number: u64,
    pub options: Options,
}

impl<'t> Parts<'t> {
    /// # Errors
    /// The text is corrupt.
    pub fn of(text: &'t [u8]) -> anyhow::Result<Parts<'t>> {
        let end = memchr(b'\n', text).context("the text of the rules has no heading")?;
        let heading: Heading = serde_json::from_slice(&text[..end])?;
        let mut rest = &text[end + 1..];
        let mut families = [None; HOOK_FAMILIES];
        let mut take = |bytes: usize| {
            let (part, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            Some(part)
        };
        let cut = "the text of the rules is cut";
        for Part { family, bytes, .. } in heading.files {
            let place = families.get_mut(family).context(cut)?;
            *place = Some(take(bytes).context(cut)?);
        }
        let sets = take(heading.sets.unwrap_or(0)).context(cut)?;
        for Part { bytes, .. } in heading.given {
            take(bytes).context(cut)?;
        }
        Ok(Parts {
            families,
            sets,
            in_images: heading.in_images,
            journal: rest,
            lookups: match heading.optimised {
                true => Lookups::Estimated,
                false => Lookups::Never,
            },
            number: heading.number,
            options: heading.options,
        })
    }
}

/// Puts counters into a tree, whose image is given.
fn count(ruleset: &mut Ruleset, image: &[u8], mut counter: impl FnMut(u32) -> Counter) {
    let chains = Chains::new(ruleset, image);
    let mut counters = |id| {
        let Counter { packets, bytes } = counter(id);
        Counters { packets, bytes }
    };
    for (at, table) in ruleset.tables.iter_mut().enumerate() {
        for (id, chain) in table.chains_mut() {
            if let Some(policy) = chains.policy_id(at, id) {
                chain.counters = counters(policy);
            }
            for (rule, id) in chain.rules.iter_mut().zip(chains.rule_ids(at, id)) {
                rule.counters = Some(Box::new(counters(id)));
            }
        }
    }
}

/// The counters of a tree by their ids in the image of a tree with the same chains.
pub fn counters(counted: &Ruleset, built: &Ruleset, image: &[u8]) -> HashMap<u32, Counter> {
    let chains = Chains::new(built, image);
    let of = |counters: Counters| Counter {
        packets: counters.packets,
        bytes: counters.bytes,
    };
    let mut out = HashMap::new();
    for (at, table) in built.tables.iter().enumerate() {
        let same = counted.tables.iter().find(|other| other.name == table.name);
        let Some(same) = same else { continue };
        for (id, chain) in table.chains() {
            let Some(chain) = same.find(&chain.name).map(|id| same.get(id)) else {
                continue;
            };
            let policy = chains.policy_id(at, id);
            out.extend(policy.map(|policy| (policy, of(chain.counters))));
            for (rule, id) in chain.rules.iter().zip(chains.rule_ids(at, id)) {
                let counters = rule.counters.as_deref().copied().unwrap_or_default();
                out.insert(id, of(counters));
            }
        }
    }
    out
}
