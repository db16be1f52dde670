//! `fairpath rules log`: packets that loaded rules logged or rejected, as they come.

use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_bpf::{Event, HOOK_FAMILIES, HookRules, Occurrence};
use fairpath_rules::image::Chains;
use fairpath_rules::spec::Kind;
use fairpath_rules::{Group, Hook, Logged, RuleAt, Ruleset, log_level, log_line, rule_string};
use fairpath_units::counted;
use fairpath_units::text::line;
use jiff::{SignedDuration, Timestamp};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

use super::super::Format;
use super::{Loaded, PinArgs, must_open};
use crate::run::Signals;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two remarks about lost packets.
const LOST_EVERY: Duration = Duration::from_secs(1);
/// Rules that are kept for packets that met earlier ones.
const GENERATIONS: usize = 4;

/// Print the packets that loaded rules log, until it is interrupted.
///
/// A line is that of the kernel for LOG, with the prefix of the rule. Each reader gets all packets from
/// now on. If packets come faster than they are read, the lost ones are counted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules log\n  \
    fairpath rules log --rejects --format json\n  \
    fairpath rules log --journal")]
pub struct LogArgs {
    /// Print rejected packets, too
    #[arg(long)]
    rejects: bool,
    /// Begin each line with its level, as journald reads it
    #[arg(long, conflicts_with = "format")]
    journal: bool,
    /// End after this number of packets
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Of a rule that is not known any more.
const NO_OPTIONS: Group = Group {
    kind: Kind::OpaqueTarget,
    items: &[],
};

/// The rules of one generation.
struct Known {
    generation: u64,
    families: [Option<Rules>; HOOK_FAMILIES],
}

struct Rules {
    ruleset: Ruleset,
    /// Bytes of a rule in the image, the rule, and the id of its counter; in the order of bytes.
    places: Vec<(std::ops::Range<usize>, RuleAt, u32)>,
}

impl Known {
    fn read(rules: &HookRules) -> anyhow::Result<Known> {
        let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
        let families = [0, 1].map(|family| {
            let (ruleset, image) = (loaded.ruleset(family)?.clone(), rules.image(family)?);
            let places = Chains::new(&ruleset, &image).rules(&ruleset);
            Some(Rules { ruleset, places })
        });
        Ok(Known {
            generation: rules.generation(),
            families,
        })
    }

    /// The rule of an event. `None`: it is of other rules.
    fn rule(&self, event: &Event) -> Option<(&Ruleset, RuleAt)> {
        if event.generation != self.generation {
            return None;
        }
        let rules = self.families[usize::from(!event.is_ipv4)].as_ref()?;
        let found = match event.occurrence {
            Occurrence::Logged { place } => rules.at(place as usize),
            Occurrence::Rejected { id, .. } => rules.places.iter().find(|place| place.2 == id),
        };
        found.map(|(_, at, _)| (&rules.ruleset, *at))
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
}

/// Runs `fairpath rules log`.
///
/// # Errors
/// No rules are loaded.
pub fn run(args: &LogArgs) -> anyhow::Result<()> {
    let (_, mut rules) = must_open(&args.place)?;
    let mut cursor = rules.events();
    // Packets of the rules before come until all programs have ended.
    let mut known = vec![Known::read(&rules)?];
    let (mut lost, mut reported) = (0, Instant::now());
    let signals = Signals::take()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while !signals.stop() && left > 0 {
        let Some(event) = rules.next_event(&mut cursor) else {
            let mut wake = [PollFd::new(signals.fd(), PollFlags::POLLIN)];
            let time = PollTimeout::try_from(LOOK).context("wait")?;
            let _ = poll(&mut wake, time); // interrupted: looks again
            if !rules.is_current() {
                learn(&mut rules, &mut known)?;
            }
            report_lost(&mut lost, &mut reported);
            if rules.text().is_empty() {
                fairpath_cli::note("the rules were unloaded");
                break;
            }
            continue;
        };
        lost += cursor.take_lost();
        if reported.elapsed() > LOST_EVERY {
            report_lost(&mut lost, &mut reported);
        }
        if known
            .iter()
            .all(|known| known.generation != event.generation)
        {
            learn(&mut rules, &mut known)?;
        }
        if matches!(event.occurrence, Occurrence::Rejected { .. }) && !args.rejects {
            continue;
        }
        let rule = known.iter().find_map(|known| known.rule(&event));
        if !print(args, &event, rule)? {
            // The reader is gone.
            return Ok(());
        }
        left -= 1;
    }
    lost += cursor.take_lost();
    report_lost(&mut lost, &mut reported);
    Ok(())
}

/// Reads the rules that are loaded now, if they are new.
fn learn(rules: &mut HookRules, known: &mut Vec<Known>) -> anyhow::Result<()> {
    rules.look()?;
    let generation = rules.generation();
    let is_new = known.iter().all(|known| known.generation != generation);
    if is_new && !rules.text().is_empty() {
        known.insert(0, Known::read(rules)?);
        known.truncate(GENERATIONS);
    }
    Ok(())
}

fn report_lost(lost: &mut u64, reported: &mut Instant) {
    if *lost > 0 {
        let packets = counted(*lost as usize, "packet", "packets");
        fairpath_cli::note(format!("{packets} lost: they came too fast"));
    }
    (*lost, *reported) = (0, Instant::now());
}

/// False: the reader has closed the pipe.
fn print(args: &LogArgs, event: &Event, rule: Option<(&Ruleset, RuleAt)>) -> anyhow::Result<bool> {
    let found = rule.map(|(ruleset, at)| {
        let table = &ruleset.tables[at.table];
        let chain = table.get(at.chain);
        (ruleset.family, table, chain, &chain.rules[at.rule])
    });
    let options = found.map_or(NO_OPTIONS, |(.., rule)| rule.target_options());
    let packet = Logged {
        input: &event.input,
        output: &event.output,
        link: event.link,
        is_ethernet: event.is_ethernet,
        mark: event.mark,
        bytes: &event.bytes,
        length: event.length,
    };
    let text = log_line(options, &packet);
    let rejected = matches!(event.occurrence, Occurrence::Rejected { .. });
    let time = wall(event.time);
    let out = match args.format {
        Format::Json => {
            let rule = found.map(|(family, table, chain, rule)| {
                json!({"table": table.name, "chain": chain.name(),
                    "rule": rule_string(family, table, chain, rule)})
            });
            json!({"time": time.to_string(), "event": if rejected { "reject" } else { "log" },
                "level": log_level(options), "family": if event.is_ipv4 { "IPv4" } else { "IPv6" },
                "hook": Hook::ALL[event.hook].chain(), "length": event.length, "line": text.trim_end(),
                "rule": rule})
            .to_string()
        }
        Format::Text => {
            let text = line(text.trim_end());
            let text = match rejected {
                true => format!("rejected: {text}"),
                false => text.into_owned(),
            };
            match args.journal {
                true => format!("<{}>{text}", log_level(options)),
                false => format!("{time:.3} {text}"),
            }
        }
    };
    fairpath_cli::print_to_reader(format!("{out}\n"))
}

/// The time of day of a time of `CLOCK_MONOTONIC`.
fn wall(time: u64) -> Timestamp {
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
