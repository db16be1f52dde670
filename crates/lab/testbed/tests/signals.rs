//! Programs end by Ctrl-C, although this process was started as a background job of a script.
//!
//! One test to the file: what a process ignores holds for all of its threads.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use fairpath_testbed::{Need, Testbed, requires, wait_for, with_default_signals};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal, sigprocmask};
use nix::unistd::Pid;

const DEADLINE: Duration = Duration::from_secs(10);
const SIGNALS: [Signal; 5] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGPIPE,
    Signal::SIGQUIT,
    Signal::SIGHUP,
];

/// Sends a signal and waits for the end; none: it continued, and is killed.
fn end_by(child: &mut Child, sent: Signal) -> Option<ExitStatus> {
    kill(Pid::from_raw(child.id().cast_signed()), sent).unwrap();
    let ended = wait_for(DEADLINE, || child.try_wait().unwrap());
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    ended
}

#[test]
fn children_end_by_signals_this_process_blocks() {
    for ignored in SIGNALS {
        // SAFETY: ignoring runs no handler.
        unsafe { signal(ignored, SigHandler::SigIgn) }.unwrap();
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None).unwrap();
    for sent in SIGNALS {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let mut child = with_default_signals(&mut sleep).spawn().unwrap();
        let ended = end_by(&mut child, sent);
        assert_eq!(
            ended.and_then(|status| status.signal()),
            Some(sent as i32),
            "{sent}: {ended:?}"
        );
    }
    requires!(Need::Root);
    let place = Testbed::new().netns("here").unwrap();
    let mut sleep = place.command("sleep");
    sleep.arg("600");
    let mut child = place.spawn(sleep).unwrap();
    child.signal(Signal::SIGINT);
    let ended = child.wait(DEADLINE).unwrap();
    assert_eq!(ended.signal(), Some(Signal::SIGINT as i32), "{ended}");
}
