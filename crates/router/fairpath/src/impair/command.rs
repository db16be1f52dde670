//! The life of `fairpath impair`: from the command line to the last report.
//!
//! ```text
//!   arguments -> directions -> port -> ready --(a second, a signal, the command's end)--> report
//! ```

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_backend::choose::{Choice, impairment::Wish};
use fairpath_backend::{Engine, How, Login, choose};
use fairpath_impair::{Counts, Json, Ready, Report, check, directions};
use fairpath_netlink::{Link, Links};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::args::{self, Args};
use crate::run::Signals;

/// How often what became of packets is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often a command is asked whether it has ended.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long a command has to end that was asked to.
const LEAVING: Duration = Duration::from_secs(5);
/// The status of a run that was not true.
const UNTRUE: u8 = 1;

/// Runs `fairpath impair`: 0 where the network was as asked for, else 1; with a command, its status
/// where the network was.
///
/// # Errors
/// What is asked for cannot be, or the port failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(queue) = args.end_rules {
        fairpath_backend::end_rules(queue)?;
        return Ok(ExitCode::SUCCESS);
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().context("draw a seed")?),
    };
    let directions = directions::of(args::wanted(args)?, args.peer.is_some(), args.packets, seed)?;
    if args.check || !args.no_check {
        let told = check::all(&directions, args.check)?;
        if args.check {
            let out = std::io::stdout().write_all(told.as_bytes());
            out.context("tell what the check found")?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let (interface, peer) = links(args)?;
    refuse_own_login(args)?;
    let wish = Wish {
        via: args.via.0,
        peer: args.peer.is_some(),
        all: args.all,
        has_mode: args.mode.is_some(),
    };
    let chosen = choose::impairment::choose(wish, &directions)?;
    // Before anything is attached: a signal from here on ends the run.
    let signals = Signals::take()?;
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let how = How {
        all: args.all,
        mode: args.mode,
        queue: args.queue,
    };
    let engine = fairpath_backend::start(chosen.via, &how, interface, peer, &directions)?;
    tell_ready(args, &chosen, engine.as_ref(), seed, &directions);
    let child = begin(args)?;
    let running = Running {
        args,
        seed,
        engine_name: chosen.via.name(),
        directions: &directions,
        began: Instant::now(),
        json,
        signals,
    };
    running.until_the_end(engine, child)
}

fn links(args: &Args) -> anyhow::Result<(Link, Option<Link>)> {
    let mut links = Links::open()?;
    let mut find = |name: &str| {
        let link = links.by_name(name)?;
        link.with_context(|| format!("impair {name:?}: there is no such interface"))
    };
    let interface = find(args.interface.as_deref().unwrap_or_default())?;
    let peer = args.peer.as_deref().map(&mut find).transpose()?;
    if peer
        .as_ref()
        .is_some_and(|peer| peer.ifindex == interface.ifindex)
    {
        bail!(
            "impair {:?} and --peer {:?}: these are one interface; name another, or no peer",
            interface.name,
            interface.name
        );
    }
    Ok((interface, peer))
}

fn refuse_own_login(args: &Args) -> anyhow::Result<()> {
    if args.yes {
        return Ok(());
    }
    const UNKNOWN: &str = "find out whether your own remote login goes by it; say --yes if it may";
    let Some(login) = Login::find().context(UNKNOWN)? else {
        return Ok(());
    };
    for name in [&args.interface, &args.peer].into_iter().flatten() {
        let goes = login.goes_by(name);
        if goes.with_context(|| format!("impair {name:?}: {UNKNOWN}"))? {
            bail!(
                "impair {name:?}: your own remote login from {} goes by it and may be cut off; say --yes if that is meant, and --for 60s so that it ends by itself",
                login.peer
            );
        }
    }
    Ok(())
}

/// The line that programs wait for: packets are impaired from now on.
fn tell_ready(args: &Args, chosen: &Choice, engine: &dyn Engine, seed: u64, directions: &[Ready]) {
    let names: Vec<&str> = [&args.interface, &args.peer]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let mut text = format!(
        "ready: impairing {} via {} ({}), seed {seed}\n",
        names.join(" and "),
        chosen.via.name(),
        chosen.reason
    );
    for ready in directions {
        text += &format!("{:<9} {}\n", ready.direction.name, ready.direction.text);
    }
    text += &format!("port      {}\n", engine.about());
    say(&text);
}

/// To standard error, which may be a terminal that is gone: whoever does not listen is told nothing,
/// and the run goes on to its end.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn begin(args: &Args) -> anyhow::Result<Option<Child>> {
    let Some((program, words)) = args.command.split_first() else {
        return Ok(None);
    };
    let child = Command::new(program).args(words).spawn();
    let child = child.with_context(|| format!("run {}", program.display()))?;
    Ok(Some(child))
}

/// A run under way.
struct Running<'a> {
    args: &'a Args,
    seed: u64,
    engine_name: &'static str,
    directions: &'a [Ready],
    began: Instant,
    json: Option<Json>,
    signals: Signals,
}

impl Running<'_> {
    fn until_the_end(
        mut self,
        mut engine: Box<dyn Engine>,
        mut child: Option<Child>,
    ) -> anyhow::Result<ExitCode> {
        let mut last = Vec::new();
        let run = self.until_something_ends(engine.as_mut(), &mut child, &mut last);
        // Whatever ended it, the command does not go on over a network that is good again.
        let left = match (&run, &mut child) {
            (Ok(None) | Err(_), Some(child)) => leave(child).map(Some),
            _ => Ok(None),
        };
        let mut why = Vec::new();
        let mut note = |error: anyhow::Error| why.push(format!("{error:#}"));
        let ended = run.unwrap_or_else(|error| {
            note(error);
            None
        });
        let left = left.unwrap_or_else(|error| {
            note(error);
            None
        });
        match engine.stop() {
            Ok(counts) => last = counts,
            Err(error) => note(error),
        }
        // A port that failed fails to stop for the same reason.
        why.dedup();
        let mut report = self.report(&last);
        why.into_iter().for_each(|why| report.add_why(why));
        let report = report.at_the_end();
        let is_true = report.is_true();
        self.tell(report)?;
        Ok(code(is_true, ended.or(left)))
    }

    /// Until a signal comes, its time is over or the command ends, whose status it is. `last` has the
    /// last counts that could be read.
    fn until_something_ends(
        &mut self,
        engine: &mut dyn Engine,
        child: &mut Option<Child>,
        last: &mut Vec<Counts>,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let mut next = self.began + TELL_EVERY;
        let end = self.args.time.map(|time| self.began + time);
        // A terminal that closes says SIGHUP: there is nothing to be read anew here.
        while !self.signals.stop() && !self.signals.take_reload() {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                break;
            }
            if now >= next {
                next += TELL_EVERY;
                *last = engine.read()?;
                self.tell(self.report(last))?;
            }
            if let Some(status) = asked(child.as_mut())? {
                return Ok(Some(status));
            }
            let wake = end.map_or(next, |end| end.min(next));
            let most = match child {
                Some(_) => ASK_EVERY,
                None => TELL_EVERY,
            };
            self.sleep(wake.saturating_duration_since(Instant::now()).min(most))?;
        }
        Ok(None)
    }

    fn report(&self, counts: &[Counts]) -> Report {
        let directions: Vec<_> = self
            .directions
            .iter()
            .map(|r| r.direction.clone())
            .collect();
        let elapsed = self.began.elapsed();
        Report::new(&directions, counts, self.engine_name, self.seed, elapsed)
    }

    fn tell(&mut self, report: Report) -> anyhow::Result<()> {
        say(&report.text());
        match &mut self.json {
            Some(json) => json.write(&report),
            None => Ok(()),
        }
    }

    fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        let most = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        let signals = self.signals.fd();
        let mut fds = [PollFd::new(signals, PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(most.max(1))) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for a signal"),
        }
        self.signals.rest();
        Ok(())
    }
}

/// The command's status, if it has ended.
fn asked(child: Option<&mut Child>) -> anyhow::Result<Option<ExitStatus>> {
    match child {
        Some(child) => child.try_wait().context("ask how the command is"),
        None => Ok(None),
    }
}

/// Asks the command to end, and ends it where it does not.
fn leave(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let id = Pid::from_raw(child.id().try_into().context("a process id")?);
    // Ctrl-C was its, too; what has ended already is not there to be asked.
    let _ = kill(id, Signal::SIGTERM);
    let begin = Instant::now();
    while begin.elapsed() < LEAVING {
        if let Some(status) = child.try_wait().context("ask how the command is")? {
            return Ok(status);
        }
        std::thread::sleep(ASK_EVERY);
    }
    child.kill().context("end the command")?;
    child.wait().context("wait for the command")
}

/// As a shell says it: 128 and the number of the signal that ended it.
fn code(is_true: bool, status: Option<ExitStatus>) -> ExitCode {
    if !is_true {
        return ExitCode::from(UNTRUE);
    }
    let Some(status) = status else {
        return ExitCode::SUCCESS;
    };
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(i32::from(UNTRUE));
    ExitCode::from(u8::try_from(code).unwrap_or(UNTRUE))
}
