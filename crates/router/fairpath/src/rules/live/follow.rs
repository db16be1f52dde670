//! `fairpath rules follow`: rules at interfaces that appear after the load.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_bpf::{FrameFamily, HookRules};
use fairpath_netlink::{LinkEvent, LinkWatch};
use fairpath_units::IfIndex;
use fairpath_units::text::line;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frames::{self, Interfaces};
use super::loaded::Parts;
use super::{PinArgs, lock};
use crate::run::Signals;

/// Time between two changes of interfaces, in which other commands get the lock. They try it each 20 ms.
const PAUSE: Duration = Duration::from_millis(50);

/// Put loaded rules to interfaces that appear, until it is interrupted.
///
/// Rules of arptables and ebtables, and those of mangle that change packets in POSTROUTING, are at interfaces. A load puts
/// them to all that are there. A new one has none until this process detects it. Other rules need no process.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules follow\n  \
    fairpath rules follow --once")]
pub struct FollowArgs {
    /// End after the interfaces that are there now
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    place: PinArgs,
}

/// Runs `fairpath rules follow`.
///
/// # Errors
/// An interface refuses the programs, or interfaces cannot be watched.
pub fn run(args: &FollowArgs) -> anyhow::Result<()> {
    let signals = Signals::take()?;
    let mut watch = LinkWatch::open().context("watch interfaces")?;
    // The end of a load that waits for its confirmation: the rules before may need other programs.
    let mut end: Option<Instant> = None;
    loop {
        // The first call has all that are there.
        let events = watch.events().context("watch interfaces")?;
        let concerns =
            |event: &LinkEvent| matches!(event, LinkEvent::Appeared(_) | LinkEvent::Removed(_));
        let is_over = end.is_some_and(|end| end <= Instant::now());
        if is_over || events.iter().any(concerns) {
            let attached = attach(&args.place)?;
            end = attached
                .waiting
                .map(|left| Instant::now() + left + Duration::from_secs(1));
            for (name, rules) in attached.new {
                fairpath_cli::print(format!("{}: {rules}\n", line(&name)))?;
            }
            if !args.once {
                std::thread::sleep(PAUSE);
            }
        }
        if args.once {
            return Ok(());
        }
        let wanted = [signals.fd(), watch.as_fd()];
        let mut wake = wanted.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // Interrupted: the flags have the reason.
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let patience = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let _ = poll(&mut wake, patience);
        signals.rest();
        if signals.stop() || signals.take_reload() {
            return Ok(());
        }
    }
}

/// The outcome of an attachment.
#[derive(Default)]
struct Attached {
    /// Names of interfaces, with what runs there now.
    new: Vec<(String, String)>,
    /// The time that a load waits for its confirmation.
    waiting: Option<Duration>,
}

/// Puts the programs to interfaces that have none, and removes the pins of those that were removed. Without
/// such rules there is nothing to do: a load attaches them itself.
fn attach(place: &PinArgs) -> anyhow::Result<Attached> {
    let _lock = lock()?;
    let Some(pins) = place.mounted()? else {
        return Ok(Attached::default());
    };
    let Some(mut rules) = HookRules::open_to_edit(&pins)? else {
        return Ok(Attached::default());
    };
    let waiting = rules.waiting();
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    let mut families = FrameFamily::ALL.to_vec();
    families.retain(|family| frames::are_in(*family, &parts.families));
    let mut new = Vec::new();
    for family in families {
        let before = HookRules::frame_interfaces(&pins, family)?;
        let interfaces = frames::all()?;
        rules.attach_frames(&pins, family, &interfaces.named())?;
        HookRules::keep_frames(&pins, family, &interfaces.indexes())?;
        let after = HookRules::frame_interfaces(&pins, family)?;
        let what = format!("rules of {}", frames::tool(family));
        new.extend(names(&interfaces, &before, &after, &what));
    }
    if rules.runs_at_egress() {
        let before = HookRules::egress_interfaces(&pins)?;
        let interfaces = Interfaces::of_namespace()?;
        rules.attach_egress(&pins, &interfaces.named())?;
        HookRules::keep_egress(&pins, &interfaces.indexes())?;
        let after = HookRules::egress_interfaces(&pins)?;
        new.extend(names(&interfaces, &before, &after, "rules of mangle"));
    }
    Ok(Attached { new, waiting })
}

/// Names of interfaces that are in `after` only.
fn names(
    interfaces: &Interfaces,
    before: &[IfIndex],
    after: &[IfIndex],
    what: &str,
) -> Vec<(String, String)> {
    let named = interfaces.named().into_iter();
    let new = named.filter(|(at, _)| after.contains(at) && !before.contains(at));
    let mut names: Vec<_> = new
        .map(|(_, name)| (name.to_owned(), what.to_owned()))
        .collect();
    names.sort_unstable();
    names
}
