//! Ends AF_XDP when the stack gets a stage that packets would bypass: a rule, a filter, a qdisc; or when an interface
//! gets receive queues, whose packets would bypass AF_XDP.
//!
//! ```text
//!   notification (nftables, tc, rules, links, IPsec) ----------+
//!   every LOOK_EVERY (iptables, conntrack, sysctls, queues) ---+--> Skipped::look --> detach, end the worker
//! ```
//!
//! A separate thread does it, so the time from a rule to its effect does not depend on the daemon's
//! loop. The subscription begins before the first check, and the thread before the first wait
//! looks again after the programs are attached. So no rule falls between both.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_afxdp::Stop;
use fairpath_bpf::Attached;
use fairpath_netlink::StageWatch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::skipped::{Bypassed, Skipped};
use crate::privileges::keep_of_worker;

/// For stages without a notification.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The least time between two looks, and at least as long as a look took: many notifications use at
/// most half of a processor.
const REST: Duration = Duration::from_millis(1);
/// A table can change while it is read. The look is repeated before the back end ends.
const ATTEMPTS: usize = 5;

/// The programs that lead packets past the stack. They are detached when this list is empty.
pub type Programs = Arc<Mutex<Vec<Attached>>>;

/// A subscription, and a first check of the stages: nothing is bypassed yet.
pub struct Begun {
    skipped: Skipped,
    changes: StageWatch,
}

/// Why it ended the back end.
#[derive(Clone)]
enum Why {
    /// Packets would bypass stages.
    Bypass(String),
    /// An interface has other receive queues.
    Queues(String),
}

/// The running watch. Drop ends it.
pub struct Watch {
    why: Arc<Mutex<Option<Why>>>,
    /// The thread has the other end, and closes it at its end.
    over: PipeReader,
    /// Closed to end the thread.
    until: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Begun {
    /// Subscribes, then looks.
    ///
    /// # Errors
    /// Packets would bypass a stage, or the stages are unknown.
    pub fn new(skipped: Skipped) -> anyhow::Result<Begun> {
        let changes = StageWatch::open().context("watch what packets would bypass")?;
        skipped.refuse()?;
        Ok(Begun { skipped, changes })
    }

    /// Watches over `programs` that are attached now; `stops` end the workers.
    ///
    /// # Errors
    /// A stage appeared during the start, or no thread or descriptor is left.
    pub fn watch(self, programs: Programs, stops: Vec<Stop>) -> anyhow::Result<Watch> {
        self.skipped.refuse()?;
        let (over, alive) = pipe().context("create the pipe of the watch")?;
        let (ends, until) = pipe().context("create the pipe of the watch")?;
        let why = Arc::<Mutex<Option<Why>>>::default();
        let theirs = Arc::clone(&why);
        let run = move || {
            keep_of_worker();
            if let Some(why) = self.run(&ends) {
                detach(&programs);
                stops.iter().for_each(Stop::request);
                *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
            drop(alive);
        };
        let thread = thread::Builder::new()
            .name("bypass watch".to_owned())
            .spawn(run)
            .context("start the thread that watches what packets would bypass")?;
        Ok(Watch {
            why,
            over,
            until: Some(until),
            thread: Some(thread),
        })
    }

    /// Until a stage or a queue appears, or until the end.
    fn run(mut self, ends: &PipeReader) -> Option<Why> {
        loop {
            if self.wait(ends) {
                return None;
            }
            self.changes.take();
            let begin = Instant::now();
            if let Some(stages) = self.look() {
                return Some(Why::Bypass(self.skipped.end(&stages)));
            }
            if let Some(text) = self.skipped.other_queues() {
                return Some(Why::Queues(text));
            }
            if wait_for([ends.as_fd()], begin.elapsed().max(REST)) {
                return None;
            }
        }
    }

    /// Stages that cannot be read are stages.
    fn look(&self) -> Option<String> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.skipped.look() {
                Ok(found) => return found,
                Err(error) => last = Some(format!("unknown stages ({error:#})")),
            }
            thread::sleep(REST);
        }
        last
    }

    /// Waits for a notification or the next look; true at the end.
    fn wait(&self, ends: &PipeReader) -> bool {
        let fds = std::iter::once(ends.as_fd()).chain(self.changes.fds());
        wait_for(fds, LOOK_EVERY)
    }
}

/// Waits until one of `fds` is ready; true if the first is.
fn wait_for<'f>(fds: impl IntoIterator<Item = BorrowedFd<'f>>, time: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> = fds
        .into_iter()
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    // An interrupted wait is a short one.
    let ready = poll(&mut fds, timeout).is_ok_and(|ready| ready > 0);
    ready && fds[0].any().unwrap_or(false)
}

impl Watch {
    /// Checks that it runs.
    ///
    /// # Errors
    /// It ended the back end: why.
    pub fn check(&self) -> anyhow::Result<()> {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        match why.clone() {
            Some(Why::Bypass(text)) => return Err(Bypassed(text).into()),
            Some(Why::Queues(text)) => bail!(text),
            None => {}
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            bail!("the thread that watches what packets would bypass has ended");
        }
        Ok(())
    }

    /// Readable when it has ended the back end.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.until.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// Detaches programs.
pub fn detach(programs: &Programs) {
    programs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}
