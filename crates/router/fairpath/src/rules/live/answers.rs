//! `fairpath rules answer`, and a thread of the daemon: answers to packets that loaded rules reject.
//!
//! ```text
//!   programs ── rejected packets ──> events ──> answer ──> limits ──> raw sockets ──> OUTPUT
//! ```
//!
//! Netfilter programs cannot send, so a process does. Its sockets are known to the programs: rules meet
//! their packets as related to what was rejected, as they meet those of the kernel. Only opening the
//! sockets needs a capability: the pinned rules belong to root.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
/// The same after [`IDLE`] without one.
const IDLE_LOOK: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(2);
/// Between two looks for loaded rules.
const LOOK_FOR_RULES: Duration = Duration::from_millis(500);
/// The report when rules are found.
pub const ANSWERING: &str = "answering the packets that rules reject";
/// Answers that may be sent at once.
const BURST: f64 = 50.0;
/// ICMP errors to an address: at once, and a second (`net.ipv4.icmp_ratelimit`).
const BURST_TO_ONE: f64 = 6.0;
const RATE_TO_ONE: f64 = 1.0;
/// Addresses whose rate is known.
const ADDRESSES: usize = 4096;

/// Answer the packets that loaded rules reject, until it is interrupted.
///
/// The daemon does the same (`[rules] answer`). Without both, REJECT drops silently. ICMP errors and TCP resets are those of the kernel. Rules in
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
    let counts = answers.counts();
    let wait = |time| {
        signals.wait(time)?;
        Ok(!signals.stop())
    };
    answers.run(&args.place, wait, |rules| {
        fairpath_cli::note(match rules {
            true => ANSWERING,
            false => "no rules are loaded: waiting for them",
        });
    })?;
    fairpath_cli::print(format!("{}\n", counts.summary()))
}

/// Sends answers, and limits them.
pub struct Answers {
    /// Of connections that are tracked, and of others, which the kernel tracks as invalid.
    related: RawSockets,
    plain: RawSockets,
    all: Bucket,
    rate: f64,
    to_one: HashMap<IpAddr, Bucket>,
    counts: Arc<AnswerCounts>,
    /// Time of the last rejected packet.
    last: Instant,
}

/// Rejected packets.
#[derive(Debug, Default)]
pub struct AnswerCounts {
    pub answered: AtomicU64,
    pub limited: AtomicU64,
    /// Packets that get no answer.
    pub silent: AtomicU64,
    /// The kernel did not send the answer.
    pub failed: AtomicU64,
    /// Packets that came too fast to be read.
    pub lost: AtomicU64,
}

/// Adds one.
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl AnswerCounts {
    fn summary(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answered = count(&self.answered) as usize;
        format!(
            "{}, {} over the limit, {} without an answer, {} not sent, {} came too fast",
            counted(answered, "packet answered", "packets answered"),
            count(&self.limited),
            count(&self.silent),
            count(&self.failed),
            count(&self.lost)
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
    /// Opens the sockets, for at most `limit` answers a second.
    ///
    /// # Errors
    /// Raw sockets are refused.
    pub fn new(limit: u32) -> anyhow::Result<Answers> {
        let open = || RawSockets::open(None).context("answer rejected packets");
        Ok(Answers {
            related: open()?,
            plain: open()?,
            all: Bucket::full(BURST),
            rate: f64::from(limit),
            to_one: HashMap::new(),
            counts: Arc::default(),
            last: Instant::now(),
        })
    }

    /// The counts, which others may read while it runs.
    pub fn counts(&self) -> Arc<AnswerCounts> {
        Arc::clone(&self.counts)
    }

    /// Answers for rules that are loaded at any time, until `wait` returns false. `note` gets whether there
    /// are rules, when that changes. Only with [`AnswerLock`].
    ///
    /// # Errors
    /// The loaded rules cannot be opened.
    pub fn run(
        &mut self,
        place: &PinArgs,
        mut wait: impl FnMut(Duration) -> anyhow::Result<bool>,
        note: impl Fn(bool),
    ) -> anyhow::Result<()> {
        let mut waits = false;
        loop {
            let found = match place.mounted()? {
                Some(pins) => HookRules::open_to_edit(&pins)?,
                None => None,
            };
            let continues = match found {
                Some(rules) => {
                    waits = false;
                    self.follow(&rules, &mut wait, || note(true))?
                }
                None => {
                    if !std::mem::replace(&mut waits, true) {
                        note(false);
                    }
                    wait(LOOK_FOR_RULES)?
                }
            };
            if !continues {
                return Ok(());
            }
        }
    }

    /// Answers for these rules and those that replace them, until they are unloaded. False: until the end.
    fn follow(
        &mut self,
        rules: &HookRules,
        wait: &mut impl FnMut(Duration) -> anyhow::Result<bool>,
        note: impl FnOnce(),
    ) -> anyhow::Result<bool> {
        let cookies = self.related.cookies().context("number the sockets")?;
        let mut cursor = rules.events();
        rules.set_answers(cookies);
        note();
        let mut continues = Ok(true);
        while matches!(continues, Ok(true)) {
            self.answer_all(rules, &mut cursor);
            if !rules.is_loaded() {
                break;
            }
            continues = wait(match self.last.elapsed() > IDLE {
                true => IDLE_LOOK,
                false => LOOK,
            });
        }
        rules.set_answers([0; IP_FAMILIES]);
        continues
    }

    fn answer_all(&mut self, rules: &HookRules, cursor: &mut EventCursor) {
        while let Some(event) = rules.next_event(cursor) {
            if let Occurrence::Rejected { kind, facts, .. } = event.occurrence {
                self.last = Instant::now();
                self.answer(&event, kind as u8, &facts);
            }
        }
        let lost = cursor.take_lost();
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
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
            return add(&self.counts.limited);
        }
        let input = std::str::from_utf8(&event.input).unwrap_or_default();
        // In OUTPUT, the scope of addresses is that of the output interface.
        let scope = match input {
            "" => std::str::from_utf8(&event.output).unwrap_or_default(),
            _ => input,
        };
        let interface = if_nametoindex(scope).unwrap_or(0);
        let route = |to, from| self.plain.route(to, from, (input, interface));
        let answer = match packet.answer(route) {
            Ok(answer) => answer,
            Err(Silence::Route) => return add(&self.counts.failed),
            Err(_) => return add(&self.counts.silent),
        };
        // The kernel does not limit errors to this host.
        let is_own = event.input == b"lo" || event.output == b"lo";
        let to = (kind != RESET && !is_own).then(|| destination(&answer));
        if !self.may_send(to.flatten()) {
            return add(&self.counts.limited);
        }
        let sockets = match facts.is_tracked {
            true => &self.related,
            false => &self.plain,
        };
        match sockets.send(&answer, interface) {
            Ok(()) => add(&self.counts.answered),
            Err(_) => add(&self.counts.failed),
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
