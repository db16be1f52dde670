//! The main loop: waits for keys, replies, signals and the next query, and draws after each.

use std::io::{self, Read, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_history::snapshot::Query;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::{flag, low_level};

use crate::glyphs::Look;
use crate::keys::{self, Step};
use crate::reader::{Question, Reader, Reply};
use crate::rules::LISTED;
use crate::source::Source;
use crate::state::State;
use crate::terminal::TerminalGuard;

/// The options of the live table.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first query. Keys change sort order, filter, zoom and depth, but not the limit.
    pub query: Query,
    /// Time between two snapshots, at least the interval of the source.
    pub interval: Duration,
    /// Begin with the view of loaded rules. The filter of the query is theirs then.
    pub rules: bool,
    /// Characters and colours.
    pub look: Look,
}

/// Why the live table ended.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard input or output is not a terminal.
    #[error(
        "draw the live table: standard input or output is not a terminal; use --once to print a table, \
         or --format json to print a snapshot"
    )]
    NoTerminal,
    /// The terminal failed.
    #[error("{operation} the terminal")]
    Terminal {
        /// The operation.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The source panicked.
    #[error("request a snapshot: the reader thread ended; see its message above")]
    Reader,
}

/// Minimum time between two queries after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Shows the live table until the user quits, or until SIGTERM, SIGINT or SIGHUP.
///
/// When the source fails, the screen keeps the last snapshot and shows the error. The source is
/// queried again.
///
/// # Errors
/// There is no terminal, or it fails. The terminal is restored before this returns.
pub fn run(source: Box<dyn Source>, options: &Options) -> Result<(), TopError> {
    if !TerminalGuard::is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let failed = |operation| move |source| TopError::Terminal { operation, source };
    let signals = Signals::watch().map_err(failed("watch the signals of"))?;
    let reader = Reader::start(source).map_err(failed("start reading for"))?;
    let terminal = TerminalGuard::enter().map_err(failed("set up"))?;
    let mut state = State::new(options.query.clone(), options.look);
    if options.rules {
        let filter = state.query.filter.take();
        state.switch_rules();
        state.filter(filter.as_deref().unwrap_or_default());
    }
    let mut live = Live {
        state,
        signals,
        reader,
        terminal,
        interval: options.interval,
        next: Instant::now(),
        is_late: false,
    };
    live.run()
}

struct Live {
    // Dropped first: the terminal is restored before the reader thread is joined.
    terminal: TerminalGuard,
    state: State,
    signals: Signals,
    reader: Reader,
    interval: Duration,
    /// Time of the next query.
    next: Instant,
    /// The query changed while another was pending: send it after the reply.
    is_late: bool,
}

impl Live {
    fn run(&mut self) -> Result<(), TopError> {
        let failed = |operation| move |source| TopError::Terminal { operation, source };
        let mut must_draw = true;
        loop {
            if must_draw {
                let drawn = self.terminal.draw(&mut self.state);
                drawn.map_err(failed("draw on"))?;
            }
            if !self.reader.is_busy && Instant::now() >= self.next {
                self.query();
            }
            self.wait().map_err(failed("wait for"))?;
            must_draw = self.signals.take();
            if self.signals.is_over() {
                return Ok(());
            }
            must_draw |= self.replies()?;
            match self.keys().map_err(failed("read keys from"))? {
                Step::Quit => return Ok(()),
                Step::Idle => {}
                Step::Draw => must_draw = true,
                Step::Query => {
                    must_draw = true;
                    self.query();
                }
                Step::Redraw => {
                    self.terminal.forget().map_err(failed("clear"))?;
                    must_draw = true;
                }
                Step::Suspend => {
                    self.terminal.suspend().map_err(failed("resume"))?;
                    must_draw = true;
                }
            }
        }
    }

    fn query(&mut self) {
        let class = self.state.details.as_ref().map(|c| c.class.clone());
        let query = Query {
            history: self.state.has_trend,
            rules: self.state.rules.as_ref().map_or(0, |_| LISTED),
            ..self.state.query.clone()
        };
        self.is_late = !self.reader.send(Question { query, class });
        self.next = Instant::now() + self.pace();
    }

    /// Time between queries. A query within the interval of the source would return the same.
    fn pace(&self) -> Duration {
        if self.state.failure.is_some() {
            return self.interval.max(RETRY);
        }
        let view = self.state.view.as_ref();
        let theirs = view.map_or(0, |p| p.snapshot.interval_ns);
        self.interval.max(Duration::from_nanos(theirs))
    }

    /// Waits for a key, a reply, a signal, or the time of the next query.
    fn wait(&mut self) -> io::Result<()> {
        let left = self.next.saturating_duration_since(Instant::now());
        // The reply to a pending query wakes this thread.
        let timeout = if self.reader.is_busy {
            PollTimeout::NONE
        } else {
            // Rounded up, because an early wake-up would only wait again.
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        };
        let input = stdin();
        let mut fds = [
            PollFd::new(input.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.reader.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let removed = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let events = fds[0].revents().unwrap_or(PollFlags::empty());
        if events.intersects(removed) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it was closed"));
        }
        Ok(())
    }

    /// Handles a reply. Returns whether there was one.
    fn replies(&mut self) -> Result<bool, TopError> {
        drain(&mut self.reader.wake);
        let Some(reply) = self.reader.reply().map_err(|_| TopError::Reader)? else {
            return Ok(false);
        };
        self.apply(reply);
        if self.is_late {
            self.query();
        }
        Ok(true)
    }

    fn apply(&mut self, reply: Reply) {
        self.state.has_requested_rules = reply.has_requested_rules;
        match reply.snapshot {
            Ok(snapshot) => self.state.show(snapshot),
            Err(error) => {
                self.state.failure = Some(format!("{error}; retrying"));
                self.next = Instant::now() + self.pace();
            }
        }
        match reply.detail {
            Some((class, Ok(detail))) => self.state.show_detail(&class, detail),
            Some((_, Err(error))) => self.state.failure = Some(error.to_string()),
            None => {}
        }
    }

    /// Handles all pending keys. Returns the last action that is more than drawing.
    fn keys(&mut self) -> io::Result<Step> {
        let mut step = Step::Idle;
        while event::poll(Duration::ZERO)? {
            let now = match event::read()? {
                Event::Key(key) => keys::press(&mut self.state, key),
                Event::Resize(..) => Step::Draw,
                _ => Step::Idle,
            };
            match now {
                Step::Idle => {}
                Step::Draw if step != Step::Idle => {}
                Step::Draw | Step::Query => step = now,
                Step::Redraw | Step::Suspend | Step::Quit => return Ok(now),
            }
        }
        Ok(step)
    }
}

/// The signals that end this process, and SIGWINCH, which reports a new terminal size.
struct Signals {
    wake: UnixStream,
    over: Arc<AtomicBool>,
    ids: Vec<signal_hook::SigId>,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let mut ids = Vec::new();
        // The flag first, so that it is set at the wake-up.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            ids.push(flag::register(signal, Arc::clone(&over))?);
        }
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGWINCH] {
            ids.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(Signals { wake, over, ids })
    }

    /// True if a signal arrived since the last call.
    fn take(&mut self) -> bool {
        drain(&mut self.wake)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Drains the wake-up socket. Returns whether it had data.
fn drain(wake: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while wake.read(&mut bytes).is_ok_and(|n| n > 0) {
        any = true;
    }
    any
}
