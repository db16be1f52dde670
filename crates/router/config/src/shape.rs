//! `[shape]`: shaping. The monitor measures on the same interfaces.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use fairpath_backend::choose::shaper::takes;
use fairpath_backend::{Mode, OnBypass, OnFailure, ShapeConfig as Shape, ShapeVia, Via, is_own};
use fairpath_bpf::author;
use fairpath_class::ClassSet;
use fairpath_core::sched::Policy;
use fairpath_sched::impair::{BadSpec, Spec};
use fairpath_sched::tree::Diffserv;
use fairpath_shape::{Both, Impairments, LineError, Lines, Own, Settings};
use fairpath_units::quantity::read_rate;
use toml::Spanned;

use super::file::{self, Given};
use super::problem::Problems;
use super::values::Check;

/// Range of the maximum time in a queue, seconds; 0: none.
const MAX_SOJOURN_S: RangeInclusive<f64> = 0.0..=60.0;
/// Range of the maximum number of queued packets of a direction.
const PACKETS: std::ops::RangeInclusive<i64> = 64..=1 << 20;
/// Range of the number of threads that shape.
const WORKERS: RangeInclusive<i64> = 1..=512;
/// The kernel's limit of a name, without the terminating zero.
const MAX_INTERFACE_NAME: usize = 15;

impl Check<'_, '_> {
    /// The section, and that of the monitor, which gets the interfaces of the shaper if it has none.
    pub(super) fn shape(
        &mut self,
        given: Option<Spanned<file::Shape>>,
        mut monitor: file::Monitor,
    ) -> (Option<Shape>, file::Monitor) {
        let Some(given) = given else {
            return (None, monitor);
        };
        let (span, given) = (given.span(), given.into_inner());
        let inside = self.interface("[shape] inside", &given.inside);
        let outside = self.interface("[shape] outside", &given.outside);
        let Some(inside) = inside else {
            if given.inside.is_none() {
                let text = "is missing: name the interface towards subscribers";
                self.wrong("[shape] inside", span, text);
            }
            return (None, monitor);
        };
        let sides: Vec<String> = [Some(&inside), outside.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        self.watched(&given, &sides, &mut monitor, &span);
        let vlans = self.vlans(&given, &inside, outside.as_deref());
        let (policy, customs) = self.policy(&given);
        let up_at = given.up.as_ref().map(Spanned::span);
        let via_at = given.via.as_ref().map_or(0..0, Spanned::span);
        let diffserv = self.diffserv(given.diffserv, given.tree.is_some());
        let impair = self.impairments(given.impair, given.impair_class);
        let shape = Shape {
            vlans,
            via: self.via(given.via),
            mode: given.mode.map(|mode| {
                let key = "[shape] mode";
                self.choice(key, Some(mode), Mode::Router)
            }),
            workers: given
                .workers
                .map(|workers| self.number("[shape] workers", Some(workers), 1, WORKERS) as u32),
            lines: Settings {
                bps: Both {
                    down: self.rate("[shape] down", given.down),
                    up: self.rate("[shape] up", given.up),
                },
                tree: self.tree(given.tree),
                policy,
                customs,
                set: given.set.into_iter().map(Spanned::into_inner).collect(),
                limit_packets: given.packets.map(|packets| {
                    self.number("[shape] packets", Some(packets), 10_240, PACKETS) as u32
                }),
                diffserv,
                ack_filter: given.ack_filter.is_some_and(Spanned::into_inner),
                framing: self.framing(given.overhead, given.mpu, given.atm),
                max_sojourn_ns: given.max_sojourn.map(|time| {
                    let time = self.time("[shape] max_sojourn", Some(time), 0.0, MAX_SOJOURN_S);
                    time.as_nanos() as u64
                }),
                impair,
                ..Settings::default()
            },
            queue: self.number("[shape] queue", given.queue, 40, 0..=65_530) as u16,
            on_failure: self.choice("[shape] on_failure", given.on_failure, OnFailure::Pass),
            on_bypass: self.choice("[shape] on_bypass", given.on_bypass, OnBypass::End),
            record: self.path("[shape] record", given.record),
            start: given.start.is_none_or(Spanned::into_inner),
            inside,
            outside,
        };
        self.refuse_unsupported(&shape, &monitor, via_at, up_at);
        (Some(shape), monitor)
    }

    /// The tins of each class. A tree splits its nodes itself.
    fn diffserv(&mut self, given: Given<String>, has_tree: bool) -> Diffserv {
        const KEY: &str = "[shape] diffserv";
        let span = given.as_ref().map_or(0..0, Spanned::span);
        let diffserv = self.named(KEY, given, Diffserv::default(), &Diffserv::NAMES);
        if has_tree && diffserv != Diffserv::BestEffort {
            let text = "the nodes of a tree define their tins: remove this key, and write match = { dscp = [...] } at the nodes";
            self.wrong(KEY, span, text);
            return Diffserv::BestEffort;
        }
        diffserv
    }

    /// The name of the policy, and the custom policies.
    fn policy(&mut self, given: &file::Shape) -> (String, Vec<Own>) {
        const KEY: &str = "[shape] policy";
        let mut name = self.word(KEY, given.policy.clone(), "fq_codel");
        let span = given.policy.as_ref().map_or(0..0, Spanned::span);
        let mut customs = Vec::new();
        if is_own(&name) {
            let own = self.custom(KEY, &name, span);
            // A valid policy, since the error must not be reported twice.
            let of_it = own.as_ref().map(|own| own.author.policy.name.clone());
            name = of_it.unwrap_or_else(|| "fq_codel".to_owned());
            customs.extend(own);
        } else if given.policy.is_some() && given.tree.is_some() {
            let text = "nodes of a tree name their policies: remove this key, or name the object (.o) of a custom policy that the tree uses";
            self.wrong(KEY, span, text);
        }
        for file in &given.policies {
            const KEY: &str = "[shape] policies";
            let own = self.custom(KEY, file.get_ref(), file.span());
            let Some(own) = own else { continue };
            let same = |other: &&Own| other.author.policy.name == own.author.policy.name;
            if let Some(other) = customs.iter().find(same) {
                let text = format!(
                    "{} and {} have the same name {:?}: rename one in its POLICY block, or remove one",
                    other.file, own.file, own.author.policy.name
                );
                self.wrong(KEY, file.span(), text);
            } else if customs.len() == Policy::CUSTOMS {
                let text = format!("more than {} custom policies: use fewer", Policy::CUSTOMS);
                self.wrong(KEY, file.span(), text);
                break;
            } else {
                customs.push(own);
            }
        }
        (name, customs)
    }

    /// The custom policy in an object. The daemon runs no compiler.
    fn custom(&mut self, key: &str, file: &str, span: Range<usize>) -> Option<Own> {
        let path = self.path(key, Some(Spanned::new(span.clone(), file.to_owned())))?;
        let is_object = path.extension().is_some_and(|extension| extension == "o");
        if !is_object {
            let object = path.with_extension("o");
            let (file, object) = (path.display(), object.display());
            let text = format!(
                "{file} is no object: run `fairpath sched build {file}`, and name {object}"
            );
            self.wrong(key, span, text);
            return None;
        }
        match author::read_object(&path) {
            Ok(author) => Some(Own {
                file: file.to_owned(),
                author: Arc::new(author),
            }),
            Err(error) => {
                self.wrong(key, span, format!("{:#}", anyhow::Error::new(error)));
                None
            }
        }
    }

    fn refuse_unsupported(
        &mut self,
        shape: &Shape,
        monitor: &file::Monitor,
        via_at: Range<usize>,
        up_at: Option<Range<usize>>,
    ) {
        if let Some(via) = shape.via
            && let Err(text) = takes(via, shape, shape.lines.impair.impaired())
        {
            self.wrong("[shape] via", via_at.clone(), text);
        }
        let hook = monitor.hook.as_ref().map(Spanned::get_ref);
        let shapes = shape.via.and_then(|via| via.description().shapes.as_ref());
        let forwards = shapes.is_some_and(|shapes| shapes.forwards);
        if forwards && hook.is_some_and(|hook| hook == "xdp") {
            let text = "with afxdp, one XDP program forwards and measures: remove [monitor] hook, or set it to \"tcx\"";
            self.wrong("[shape] via", via_at.clone(), text);
        }
        if shape.vlans.is_some() && !shapes.is_some_and(|shapes| shapes.vlans) {
            let text = "only afxdp distinguishes sides by VLAN: set via = \"afxdp\", or shape the interfaces of the VLANs";
            self.wrong("[shape] via", via_at, text);
        }
        if let (Some(at), None) = (up_at, &shape.outside) {
            let text = "is the rate at the outside interface: name [shape] outside";
            self.wrong("[shape] up", at, text);
        }
    }

    fn interface(&mut self, key: &str, given: &Given<String>) -> Option<String> {
        let given = given.as_ref()?;
        let name = given.get_ref();
        if name.is_empty()
            || name.len() > MAX_INTERFACE_NAME
            || name.contains(['/', ' ', '*', '?', '[', '{'])
        {
            let text =
                format!("{name:?} is not a valid interface name; patterns are not supported here");
            self.wrong(key, given.span(), text);
            return None;
        }
        Some(name.clone())
    }

    /// The monitor must measure on shaped interfaces; without a list, they are added to it.
    fn watched(
        &mut self,
        given: &file::Shape,
        sides: &[String],
        monitor: &mut file::Monitor,
        span: &Range<usize>,
    ) {
        let here = |name: &String| Spanned::new(span.clone(), name.clone());
        let unique = |names: &[String]| {
            let mut names: Vec<_> = names.iter().map(here).collect();
            names.dedup_by(|a, b| a.get_ref() == b.get_ref());
            names
        };
        match &monitor.interfaces {
            None => monitor.interfaces = Some(Spanned::new(span.clone(), unique(sides))),
            Some(list) => {
                let fits = |name: &String| {
                    list.get_ref().iter().any(|pattern| {
                        globset::Glob::new(pattern.get_ref())
                            .is_ok_and(|glob| glob.compile_matcher().is_match(name))
                    })
                };
                for (key, name) in ["inside", "outside"].iter().zip(sides) {
                    if !fits(name) {
                        let text = format!(
                            "{name:?} is not in [monitor] interfaces: add it there, because shaped interfaces are measured"
                        );
                        let at = match *key {
                            "inside" => given.inside.as_ref(),
                            _ => given.outside.as_ref(),
                        };
                        let at = at.map_or(span.clone(), Spanned::span);
                        self.wrong(&format!("[shape] {key}"), at, text);
                    }
                }
            }
        }
        if let (true, [_, outside]) = (monitor.uplinks.is_empty(), sides)
            && sides[0] != *outside
        {
            monitor.uplinks = unique(std::slice::from_ref(outside));
        }
    }

    fn vlans(
        &mut self,
        given: &file::Shape,
        inside: &str,
        outside: Option<&str>,
    ) -> Option<[u16; 2]> {
        let number = |check: &mut Self, key: &str, given: &Given<i64>| {
            let given = given.clone()?;
            Some(check.number(key, Some(given), 1, 1..=4094) as u16)
        };
        let vlans = [
            number(self, "[shape] inside_vlan", &given.inside_vlan),
            number(self, "[shape] outside_vlan", &given.outside_vlan),
        ];
        let span = |vlan: &Given<i64>| vlan.as_ref().map(Spanned::span);
        let [inside_at, outside_at] = [&given.inside_vlan, &given.outside_vlan].map(span);
        let at = given.outside.as_ref().map_or(0..0, Spanned::span);
        match (outside == Some(inside), vlans) {
            (true, [Some(a), Some(b)]) if a != b => Some([a, b]),
            (true, _) => {
                let text = "is also the interface of inside: set two different VLANs, [shape] inside_vlan and [shape] outside_vlan";
                self.wrong("[shape] outside", at, text);
                None
            }
            (false, [None, None]) => None,
            (false, _) => {
                let (key, at) = match (inside_at, outside_at) {
                    (Some(at), _) => ("[shape] inside_vlan", at),
                    (None, outside_at) => ("[shape] outside_vlan", outside_at.unwrap_or(at)),
                };
                let text = "is for sides that share one interface: remove [shape] inside_vlan and [shape] outside_vlan";
                self.wrong(key, at, text);
                None
            }
        }
    }

    fn via(&mut self, given: Given<String>) -> Option<Via> {
        let given = given.filter(|word| word.get_ref() != "auto")?;
        let ShapeVia(via) = self.choice("[shape] via", Some(given), ShapeVia(Via::Kernel));
        Some(via)
    }

    fn rate(&mut self, key: &str, given: Given<String>) -> u64 {
        self.read(key, given, 0, |text| {
            read_rate(&text).map_err(|error| error.to_string())
        })
    }

    fn impairments(
        &mut self,
        all: file::Impaired,
        classes: BTreeMap<String, file::Impaired>,
    ) -> Impairments {
        let all = self.impaired("[shape.impair]", all);
        let classes = classes.into_iter().map(|(name, given)| {
            let key = format!("[shape.impair_class.{name:?}]");
            let both = self.impaired(&key, given);
            (name, both)
        });
        Impairments {
            classes: classes.collect(),
            all,
        }
    }

    fn impaired(&mut self, key: &str, given: file::Impaired) -> Both<Option<Spec>> {
        let mut one = |side: &str, given: Given<String>| {
            self.read(&format!("{key} {side}"), given, None, |text| {
                text.parse()
                    .map(Some)
                    .map_err(|bad: BadSpec| bad.to_string())
            })
        };
        Both {
            down: one("down", given.down),
            up: one("up", given.up),
        }
    }

    fn tree(&mut self, given: Given<String>) -> Option<(String, String)> {
        let span = given.as_ref().map(Spanned::span)?;
        let path = self.path("[shape] tree", given)?;
        match std::fs::read_to_string(&path) {
            Ok(text) => Some((path.display().to_string(), text)),
            Err(error) => {
                self.wrong(
                    "[shape] tree",
                    span,
                    format!("read {}: {error}", path.display()),
                );
                None
            }
        }
    }
}

/// The places of the keys that problems of links are about.
pub(super) struct Places {
    section: Range<usize>,
    set: Vec<Spanned<String>>,
    policy: Option<Range<usize>>,
    tree: Option<Range<usize>>,
    ack_filter: Option<Range<usize>>,
}

impl Places {
    /// Those of a section.
    pub(super) fn of(given: Option<&Spanned<file::Shape>>) -> Option<Places> {
        let (section, given) = (given?.span(), given?.get_ref());
        Some(Places {
            section,
            set: given.set.clone(),
            policy: given.policy.as_ref().map(Spanned::span),
            tree: given.tree.as_ref().map(Spanned::span),
            ack_filter: given.ack_filter.as_ref().map(Spanned::span),
        })
    }

    /// The section, if no key is the cause.
    fn of_error(&self, error: &LineError) -> Range<usize> {
        let key = match error {
            LineError::Set(error) => {
                let mut set = self.set.iter();
                let wrong = set.find(|set| *set.get_ref() == error.assignment);
                wrong.map(Spanned::span)
            }
            LineError::NoFlows => self.ack_filter.clone(),
            LineError::Policy { .. } | LineError::Children { .. } | LineError::Unused { .. } => {
                self.policy.clone()
            }
            LineError::Tree(_) | LineError::Deep(_) => self.tree.clone(),
            LineError::Reserved | LineError::Impaired { .. } | LineError::TraceOfClass => None,
        };
        key.unwrap_or_else(|| self.section.clone())
    }
}

/// Reports problems of the links of these classes.
pub(super) fn check_lines(
    shape: Option<&Shape>,
    places: Option<&Places>,
    set: &ClassSet,
    problems: &mut Problems<'_>,
) {
    let (Some(shape), Some(places)) = (shape, places) else {
        return;
    };
    match Lines::new(set, &shape.lines) {
        Err(error) => problems.note(places.of_error(&error), format!("[shape] {error}")),
        Ok(lines) => {
            let at = places.tree.as_ref().unwrap_or(&places.section);
            check_nodes(shape, &lines, at, problems);
        }
    }
}

/// Reports impairments of a configured tree that the back end does not support.
fn check_nodes(shape: &Shape, lines: &Lines, at: &Range<usize>, problems: &mut Problems<'_>) {
    let Some(via) = shape.via else {
        return;
    };
    if takes(via, shape, shape.lines.impair.impaired()).is_ok()
        && let Err(text) = takes(via, shape, lines.impaired())
    {
        let text = format!("[shape] tree: {text}, or remove impair");
        problems.note(at.clone(), text);
    }
}
