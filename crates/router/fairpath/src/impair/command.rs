//! A run of `fairpath impair`, from the command line to the last report.
//!
//! ```text
//!   arguments -> directions -> back end -> ready --(each second, signal, end of the command)--> report
//! ```

use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use fairpath_backend::choose::{Choice, impairment::Wish};
use fairpath_backend::{Engine, How, Login, Via, choose};
use fairpath_cli::{Capability, Global, require, wrong_usage};
use fairpath_impair::{
    Counts, ImpairmentReport, Json, Ready, check, directions, round_trip_remark,
};
use fairpath_netlink::{ArpType, Link, Links};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::args::{self, Args};
use crate::run::Signals;

/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the end of a command is checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// The maximum time until a command ends after SIGTERM.
const TERMINATION: Duration = Duration::from_secs(5);
/// The exit status of an invalid run.
const INVALID: u8 = 1;

/// Runs `fairpath impair`. The status is 0 if the run was valid, otherwise 1. With a command, a valid
/// run returns the status of the command.
///
/// # Errors
/// The impairment is invalid or unsupported, or the back end failed.
pub fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    if let Some(queue) = args.end_rules {
        fairpath_backend::end_rules(queue)?;
        return Ok(ExitCode::SUCCESS);
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().context("draw a seed")?),
    };
    let json = args.json()?;
    let configured = args::configured(args)?;
    let directions = directions::of(configured, args.peer.is_some(), args.max_packets, seed)
        .map_err(|error| wrong_usage(fairpath_cli::line(&error)))?;
    if args.self_test {
        fairpath_cli::print(check::all(&directions, true)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    require("impair packets", &[Capability::NetAdmin])?;
    if !args.no_self_test {
        check::all(&directions, false)?;
    }
    let (interface, peer) = links(args)?;
    let used: Vec<Link> = [Some(&interface), peer.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    with_links(refuse_own_login(args), &used)?;
    let wish = Wish {
        via: args.via.0,
        peer: args.peer.is_some(),
        all: args.all,
        has_mode: args.mode.is_some(),
        precise: args.precise,
    };
    let chosen = choose::impairment::choose(wish, &directions)
        .map_err(|error| wrong_usage(fairpath_cli::line(&error)))?;
    // Before anything is attached, so that a signal ends the run cleanly.
    let signals = Signals::take()?;
    let json = json.as_deref().map(Json::open).transpose()?;
    let how = How {
        all: args.all,
        mode: args.mode,
        queue: args.queue_num,
        precise: args.precise,
    };
    // A command inherits the privileges of the user.
    let keep = || match args.command.is_empty() {
        true => crate::privileges::keep(true).map(drop),
        false => Ok(()),
    };
    // NFQUEUE starts other programs. The others attach next to XDP programs of other processes, which
    // are found with CAP_SYS_ADMIN only.
    let starts_programs = chosen.via == Via::Nfqueue;
    if starts_programs {
        keep()?;
    }
    let engine = fairpath_backend::start(chosen.via, &how, interface, peer, &directions);
    let engine = with_links(engine, &used)?;
    if !starts_programs {
        keep()?;
    }
    let is_loopback = used[0].arp_type == ArpType::Loopback;
    let remark = round_trip_remark(is_loopback, &directions);
    print_ready(args, &chosen, engine.as_ref(), seed, &directions, remark);
    let child = begin(args)?;
    let running = Running {
        args,
        quiet: global.quiet,
        seed,
        engine_name: chosen.via.name(),
        directions: &directions,
        began: Instant::now(),
        json,
        signals,
    };
    running.run_to_end(engine, child)
}

fn links(args: &Args) -> anyhow::Result<(Link, Option<Link>)> {
    let mut links = Links::open()?;
    let mut find = |name: &str| {
        let link = links.by_name(name)?;
        link.with_context(|| format!("impair {name:?}: no such interface"))
    };
    let interface = find(args.interface.as_deref().unwrap_or_default())?;
    let peer = args.peer.as_deref().map(&mut find).transpose()?;
    if peer
        .as_ref()
        .is_some_and(|peer| peer.ifindex == interface.ifindex)
    {
        return Err(wrong_usage(format!(
            "impair {:?} --peer {:?}: both are one interface: name another one, or omit --peer",
            interface.name, interface.name
        )));
    }
    Ok((interface, peer))
}

/// The result of a part of the start. If one of its interfaces was removed then, that is the error: a
/// rule with the name of an interface needs no interface.
fn with_links<T>(result: anyhow::Result<T>, used: &[Link]) -> anyhow::Result<T> {
    let mut links = Links::open()?;
    let is_removed = |link: &&Link| {
        let found = links.by_name(&link.name);
        found.is_ok_and(|found| found.is_none_or(|found| found.ifindex != link.ifindex))
    };
    let Some(link) = used.iter().find(is_removed) else {
        return result;
    };
    let text = format!(
        "impair {:?}: the interface was removed during the start: repeat the command when it is there again",
        link.name
    );
    match result {
        Ok(_) => Err(anyhow!(text)),
        Err(error) => Err(error.context(text)),
    }
}

fn refuse_own_login(args: &Args) -> anyhow::Result<()> {
    if args.yes {
        return Ok(());
    }
    const UNKNOWN: &str = "check whether your remote login uses it (--yes skips this check)";
    let Some(login) = Login::find().context(UNKNOWN)? else {
        return Ok(());
    };
    for name in [&args.interface, &args.peer].into_iter().flatten() {
        let goes = login.goes_by(name);
        if goes.with_context(|| format!("impair {name:?}: {UNKNOWN}"))? {
            bail!(
                "impair {name:?}: your remote login from {} uses it and may be closed: add --yes to impair it, and --duration 60s so that it ends",
                login.peer
            );
        }
    }
    Ok(())
}

/// Prints the line that other programs wait for: packets are impaired from now on.
fn print_ready(
    args: &Args,
    chosen: &Choice,
    engine: &dyn Engine,
    seed: u64,
    directions: &[Ready],
    remark: Option<String>,
) {
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
    text += &format!("back end  {}\n", engine.about());
    text.extend(remark.map(|remark| format!("delays    {remark}\n")));
    fairpath_cli::print_stderr(text);
}

fn begin(args: &Args) -> anyhow::Result<Option<Child>> {
    let Some((program, words)) = args.command.split_first() else {
        return Ok(None);
    };
    let child = Command::new(program).args(words).spawn();
    let child = child.with_context(|| format!("run {}", program.display()))?;
    Ok(Some(child))
}

/// A run in progress.
struct Running<'a> {
    args: &'a Args,
    quiet: bool,
    seed: u64,
    engine_name: &'static str,
    directions: &'a [Ready],
    began: Instant,
    json: Option<Json>,
    signals: Signals,
}

impl Running<'_> {
    fn run_to_end(
        mut self,
        mut engine: Box<dyn Engine>,
        mut child: Option<Child>,
    ) -> anyhow::Result<ExitCode> {
        let mut last = Vec::new();
        let run = self.wait_for_end(engine.as_mut(), &mut child, &mut last);
        // The command must not continue without the impairment.
        let terminated = match (&run, &mut child) {
            (Ok(None) | Err(_), Some(child)) => terminate(child).map(Some),
            _ => Ok(None),
        };
        let mut why = Vec::new();
        let mut note = |error: anyhow::Error| why.push(format!("{error:#}"));
        let ended = run.unwrap_or_else(|error| {
            note(error);
            None
        });
        let terminated = terminated.unwrap_or_else(|error| {
            note(error);
            None
        });
        match engine.stop() {
            Ok(counts) => last = counts,
            Err(error) => note(error),
        }
        // A back end that failed fails to stop for the same reason.
        why.dedup();
        let mut report = self.report(&last);
        why.into_iter().for_each(|why| report.add_why(why));
        let report = report.at_the_end();
        let is_valid = report.is_true();
        self.print(&report, true)?;
        Ok(code(is_valid, ended.or(terminated)))
    }

    /// Waits for a signal, the end of the time or of the command, and returns the status of the
    /// command. `last` has the last counts that could be read.
    fn wait_for_end(
        &mut self,
        engine: &mut dyn Engine,
        child: &mut Option<Child>,
        last: &mut Vec<Counts>,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let mut next = self.began + REPORT_EVERY;
        let end = self.args.duration.map(|time| self.began + time);
        // SIGHUP ends the run as well, since it comes from a terminal that closes.
        while !self.signals.stop() && !self.signals.take_reload() {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                break;
            }
            if now >= next {
                next += REPORT_EVERY;
                *last = engine.read()?;
                self.print(&self.report(last), false)?;
            }
            if let Some(status) = status_of(child.as_mut())? {
                return Ok(Some(status));
            }
            let wake = end.map_or(next, |end| end.min(next));
            let maximum = match child {
                Some(_) => CHECK_EVERY,
                None => REPORT_EVERY,
            };
            let rest = wake.saturating_duration_since(Instant::now()).min(maximum);
            self.sleep(rest, engine.ended())?;
            if engine.ended().is_some_and(is_readable) {
                *last = engine.read()?;
            }
        }
        Ok(None)
    }

    fn report(&self, counts: &[Counts]) -> ImpairmentReport {
        let directions: Vec<_> = self
            .directions
            .iter()
            .map(|r| r.direction.clone())
            .collect();
        let elapsed = self.began.elapsed();
        ImpairmentReport::new(&directions, counts, self.engine_name, self.seed, elapsed)
    }

    fn print(&mut self, report: &ImpairmentReport, is_last: bool) -> anyhow::Result<()> {
        if is_last || !self.quiet {
            fairpath_cli::print_stderr(report.text());
        }
        match &mut self.json {
            Some(json) => json.write(report),
            None => Ok(()),
        }
    }

    fn sleep(&self, time: Duration, ended: Option<BorrowedFd<'_>>) -> anyhow::Result<()> {
        let timeout = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        let fds = std::iter::once(self.signals.fd()).chain(ended);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::from(timeout.max(1))) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for a signal"),
        }
        self.signals.rest();
        Ok(())
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The status of the command, if it has ended.
fn status_of(child: Option<&mut Child>) -> anyhow::Result<Option<ExitStatus>> {
    match child {
        Some(child) => child.try_wait().context("check the command"),
        None => Ok(None),
    }
}

/// Terminates the command, and kills it if it does not end in time.
fn terminate(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let id = Pid::from_raw(child.id().try_into().context("a process id")?);
    // After Ctrl-C the command may have ended already.
    let _ = kill(id, Signal::SIGTERM);
    let begin = Instant::now();
    while begin.elapsed() < TERMINATION {
        if let Some(status) = child.try_wait().context("check the command")? {
            return Ok(status);
        }
        std::thread::sleep(CHECK_EVERY);
    }
    child.kill().context("kill the command")?;
    child.wait().context("wait for the command")
}

/// The exit status as a shell returns it: 128 plus the number of a signal.
fn code(is_valid: bool, status: Option<ExitStatus>) -> ExitCode {
    if !is_valid {
        return ExitCode::from(INVALID);
    }
    let Some(status) = status else {
        return ExitCode::SUCCESS;
    };
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(i32::from(INVALID));
    ExitCode::from(u8::try_from(code).unwrap_or(INVALID))
}

#[cfg(test)]
mod tests {
    use fairpath_units::IfIndex;

    use super::*;

    #[test]
    fn a_removed_interface_is_the_reason() {
        let loopback = Links::open().unwrap().by_name("lo").unwrap().unwrap();
        let failed = || Err::<(), _>(anyhow!("attach: no such device"));
        let there = std::slice::from_ref(&loopback);
        assert!(with_links(Ok(()), there).is_ok());
        let error = with_links(failed(), there).unwrap_err();
        assert_eq!(fairpath_cli::line(&error), "attach: no such device");
        let removed = Link {
            name: "wan-that-left".to_owned(),
            ..loopback.clone()
        };
        let replaced = Link {
            ifindex: IfIndex(loopback.ifindex.0.checked_add(1).unwrap()),
            ..loopback.clone()
        };
        for link in [removed, replaced] {
            let used = [loopback.clone(), link.clone()];
            let start = format!(
                "impair {:?}: the interface was removed during the start",
                link.name
            );
            for (result, end) in [
                (Ok(()), "there again"),
                (failed(), ": attach: no such device"),
            ] {
                let text = fairpath_cli::line(&with_links(result, &used).unwrap_err());
                assert!(text.starts_with(&start) && text.ends_with(end), "{text}");
            }
        }
    }
}
