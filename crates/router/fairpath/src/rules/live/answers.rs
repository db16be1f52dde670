//! `fairpath rules answer`: answers to packets that loaded rules reject.
//!
//! ```text
//!   programs ── rejected packets ──> events ──> answer ──> limits ──> raw sockets ──> OUTPUT
//! ```
//!
//! Netfilter programs cannot send, so a process does. Its sockets are known to the programs: rules meet
//! their packets as related to what was rejected, as they meet those of the kernel.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_backend::{RawSockets, privileges};
use fairpath_bpf::{
    AnswerLock, Event, EventCursor, HookRules, IP_FAMILIES, Occurrence, RejectedFacts,
};
use fairpath_rules::{Rejected, Silence};
use fairpath_units::counted;
use nix::net::if_::if_nametoindex;

use super::PinArgs;
use crate::run::Signals;

/// Time between two looks for rejected packets.
const LOOK: Duration = Duration::from_millis(2);
/// Between two looks for loaded rules.
const LOOK_FOR_RULES: Duration = Duration::from_millis(500);
/// Answers that may be sent at once.
const BURST: f64 = 50.0;
/// ICMP errors to an address: at once, and a second (`net.ipv4.icmp_ratelimit`).
const BURST_TO_ONE: f64 = 6.0;
const RATE_TO_ONE: f64 = 1.0;
/// Addresses whose rate is known.
const ADDRESSES: usize = 4096;

/// Answer the packets that loaded rules reject, until it is interrupted.
///
/// Without it, REJECT drops silently. ICMP errors and TCP resets are those of the kernel. Rules in
/// OUTPUT meet them as RELATED. It waits for rules, and follows each load. The rate of answers is limited
/// for all, and for ICMP errors to each address.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules answer\n  \
    fairpath rules answer --limit 200")]
pub struct AnswerArgs {
    /// Maximum number of answers a second, 1 to 100000
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    place: PinArgs,
}

/// Runs `fairpath rules answer`.
///
/// # Errors
/// Raw sockets or the loaded rules are refused.
pub fn answer(args: &AnswerArgs) -> anyhow::Result<()> {
    let signals = Signals::take()?;
    let Some(_lock) = AnswerLock::try_new()? else {
        bail!(
            "answer rejected packets: another process does so in this network namespace: stop it first"
        );
    };
    let mut answers = Answers::new(args.limit)?;
    privileges::keep_to_answer()?;
    let mut waits = false;
    while !signals.stop() {
        let found = match args.place.mounted()? {
            Some(pins) => HookRules::open(&pins)?,
            None => None,
        };
        match found {
            Some(rules) => {
                waits = false;
                answers.follow(rules, &signals)?;
            }
            None => {
                if !std::mem::replace(&mut waits, true) {
                    fairpath_cli::note("no rules are loaded: waiting for them");
                }
                signals.wait(LOOK_FOR_RULES)?;
            }
        }
    }
    fairpath_cli::print(format!("{}\n", answers.counts.summary()))
}

/// Sends answers, and limits them.
struct Answers {
    /// Of connections that are tracked, and of others, which the kernel tracks as invalid.
    related: RawSockets,
    plain: RawSockets,
    all: Bucket,
    rate: f64,
    to_one: HashMap<IpAddr, Bucket>,
    counts: Counts,
}

/// Rejected packets.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    answered: u64,
    limited: u64,
    /// Packets that get no answer.
    silent: u64,
    /// The kernel did not send the answer.
    failed: u64,
    lost: u64,
}

impl Counts {
    fn summary(&self) -> String {
        format!(
            "{}, {} over the limit, {} without an answer, {} not sent, {} came too fast",
            counted(
                self.answered as usize,
                "packet answered",
                "packets answered"
            ),
            self.limited,
            self.silent,
            self.failed,
            self.lost
        )
    }
}

/// A token bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(tokens: f64) -> Bucket {
        Bucket {
            tokens,
            at: Instant::now(),
        }
    }

    fn fill(&mut self, now: Instant, rate: f64, burst: f64) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(burst);
        self.at = now;
    }

    fn take(&mut self) -> bool {
        let may = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(may));
        may
    }
}

impl Answers {
    fn new(limit: u32) -> anyhow::Result<Answers> {
        let open = || RawSockets::open(None).context("answer rejected packets");
        Ok(Answers {
            related: open()?,
            plain: open()?,
            all: Bucket::full(BURST),
            rate: f64::from(limit),
            to_one: HashMap::new(),
            counts: Counts::default(),
        })
    }

    /// Answers for these rules and those that replace them, until they are unloaded.
    fn follow(&mut self, rules: HookRules, signals: &Signals) -> anyhow::Result<()> {
        let cookies = self.related.cookies().context("number the sockets")?;
        let mut cursor = rules.events();
        rules.set_answers(cookies);
        fairpath_cli::note("answering the packets that rules reject");
        while !signals.stop() {
            self.answer_all(&rules, &mut cursor);
            if !rules.is_loaded() {
                break;
            }
            signals.wait(LOOK)?;
        }
        rules.set_answers([0; IP_FAMILIES]);
        Ok(())
    }

    fn answer_all(&mut self, rules: &HookRules, cursor: &mut EventCursor) {
        while let Some(event) = rules.next_event(cursor) {
            if let Occurrence::Rejected { kind, facts, .. } = event.occurrence {
                self.answer(&event, kind as u8, &facts);
            }
        }
        self.counts.lost += cursor.take_lost();
    }

    fn answer(&mut self, event: &Event, kind: u8, facts: &RejectedFacts) {
        let original = facts.original.map(|(address, port)| {
            let [a, b, c, d, ..] = address;
            let address = match event.is_ipv4 {
                true => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
                false => IpAddr::from(Ipv6Addr::from(address)),
            };
            (address, port)
        });
        let packet = Rejected {
            kind,
            bytes: &event.bytes,
            length: event.length,
            is_for_host: facts.is_for_host,
            is_to_many: facts.is_to_many,
            is_local: facts.is_local,
            is_checked: facts.is_checked,
            original,
        };
        // A flood beyond the limit costs no routes.
        self.all.fill(Instant::now(), self.rate, BURST);
        if self.all.tokens < 1.0 {
            return self.counts.limited += 1;
        }
        let input = std::str::from_utf8(&event.input).unwrap_or_default();
        let interface = if_nametoindex(input).unwrap_or(0);
        let route = |to, from| self.plain.route(to, from, (input, interface));
        let answer = match packet.answer(route) {
            Ok(answer) => answer,
            Err(Silence::Route) => return self.counts.failed += 1,
            Err(_) => return self.counts.silent += 1,
        };
        // The kernel does not limit errors to this host.
        let is_own = event.input == b"lo" || event.output == b"lo";
        let to = (kind != RESET && !is_own).then(|| destination(&answer));
        if !self.may_send(to.flatten()) {
            return self.counts.limited += 1;
        }
        let sockets = match facts.is_tracked {
            true => &self.related,
            false => &self.plain,
        };
        match sockets.send(&answer, interface) {
            Ok(()) => self.counts.answered += 1,
            Err(_) => self.counts.failed += 1,
        }
    }

    /// Takes from the limits.
    fn may_send(&mut self, to: Option<IpAddr>) -> bool {
        let now = Instant::now();
        if let Some(to) = to {
            if self.to_one.len() >= ADDRESSES {
                self.to_one.retain(|_, bucket| {
                    bucket.fill(now, RATE_TO_ONE, BURST_TO_ONE);
                    bucket.tokens < BURST_TO_ONE
                });
            }
            if self.to_one.len() >= ADDRESSES && !self.to_one.contains_key(&to) {
                return false;
            }
            let bucket = self.to_one.entry(to);
            let bucket = bucket.or_insert_with(|| Bucket::full(BURST_TO_ONE));
            bucket.fill(now, RATE_TO_ONE, BURST_TO_ONE);
            if bucket.tokens < 1.0 {
                return false;
            }
        }
        self.all.fill(now, self.rate, BURST);
        if !self.all.take() {
            return false;
        }
        to.and_then(|to| self.to_one.get_mut(&to))
            .is_none_or(Bucket::take)
    }
}

/// `--reject-with tcp-reset`.
const RESET: u8 = 6;

/// The destination of a packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        _ => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
    }
}
