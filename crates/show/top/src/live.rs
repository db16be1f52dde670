//! The loop: waits for keys, replies, signals and the time to ask again; draws after each.

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
use crate::source::Source;
use crate::state::State;
use crate::terminal::Taken;

/// How the live table is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is asked for at first. Sort, filter, zoom and depth change by keys; the limit does not.
    pub query: Query,
    /// Time between two pictures; never less than the source's own interval.
    pub interval: Duration,
    /// Characters and colours.
    pub look: Look,
}

/// Why the live table ended.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Nobody could read it.
    #[error(
        "draw the live table: standard input or output is no terminal; use --once for a table, \
         --format json for a snapshot"
    )]
    NoTerminal,
    /// The terminal failed.
    #[error("{operation} the terminal")]
    Terminal {
        /// What was tried.
        operation: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The source panicked.
    #[error("ask for a picture: the thread that asks ended; its message is above")]
    Reader,
}

/// Least time between two questions after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Shows the live table until somebody quits, or SIGTERM, SIGINT or SIGHUP comes.
///
/// A source that fails leaves the last picture and its message on the screen, and is asked again.
///
/// # Errors
/// There is no terminal, or it fails. The terminal is given back before this returns.
pub fn run(source: Box<dyn Source>, options: &Options) -> Result<(), TopError> {
    if !Taken::is_there() {
        return Err(TopError::NoTerminal);
    }
    let failed = |operation| move |source| TopError::Terminal { operation, source };
    let signals = Signals::watch().map_err(failed("watch the signals of"))?;
    let reader = Reader::start(source).map_err(failed("start reading for"))?;
    let terminal = Taken::take().map_err(failed("take"))?;
    let mut live = Live {
        state: State::new(options.query.clone(), options.look),
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
    // The first to be dropped: the terminal is given back before the reader is waited for.
    terminal: Taken,
    state: State,
    signals: Signals,
    reader: Reader,
    interval: Duration,
    /// When to ask again.
    next: Instant,
    /// Something changed while a question was under way: ask when its reply is here.
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
                self.ask();
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
                Step::Ask => {
                    must_draw = true;
                    self.ask();
                }
                Step::Redraw => {
                    self.terminal.forget().map_err(failed("clear"))?;
                    must_draw = true;
                }
                Step::Suspend => {
                    self.terminal.suspend().map_err(failed("take again"))?;
                    must_draw = true;
                }
            }
        }
    }

    fn ask(&mut self) {
        let class = self.state.closeup.as_ref().map(|c| c.class.clone());
        let query = Query {
            history: self.state.has_trend,
            ..self.state.query.clone()
        };
        self.is_late = !self.reader.ask(Question { query, class });
        self.next = Instant::now() + self.pace();
    }

    /// Asking more often than the source counts would bring the same again.
    fn pace(&self) -> Duration {
        if self.state.failure.is_some() {
            return self.interval.max(RETRY);
        }
        let picture = self.state.picture.as_ref();
        let theirs = picture.map_or(0, |p| p.snapshot.interval_ns);
        self.interval.max(Duration::from_nanos(theirs))
    }

    /// Until a key, a reply, a signal, or the time to ask again.
    fn wait(&mut self) -> io::Result<()> {
        let left = self.next.saturating_duration_since(Instant::now());
        // While a question is under way, its reply wakes us.
        let timeout = if self.reader.is_busy {
            PollTimeout::NONE
        } else {
            // Rounded up: waking early would only mean waiting again.
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
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let told = fds[0].revents().unwrap_or(PollFlags::empty());
        if told.intersects(gone) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it was closed"));
        }
        Ok(())
    }

    /// Takes in a reply; true if one was there.
    fn replies(&mut self) -> Result<bool, TopError> {
        drain(&mut self.reader.wake);
        let Some(reply) = self.reader.reply().map_err(|_| TopError::Reader)? else {
            return Ok(false);
        };
        self.take_in(reply);
        if self.is_late {
            self.ask();
        }
        Ok(true)
    }

    fn take_in(&mut self, reply: Reply) {
        match reply.snapshot {
            Ok(snapshot) => self.state.show(snapshot),
            Err(error) => {
                self.state.failure = Some(format!("{error}; asking again"));
                self.next = Instant::now() + self.pace();
            }
        }
        match reply.detail {
            Some((class, Ok(detail))) => self.state.show_detail(&class, detail),
            Some((_, Err(error))) => self.state.failure = Some(error.to_string()),
            None => {}
        }
    }

    /// Does what the keys that are there say; the last that asks for more than drawing counts.
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
                Step::Draw | Step::Ask => step = now,
                Step::Redraw | Step::Suspend | Step::Quit => return Ok(now),
            }
        }
        Ok(step)
    }
}

/// Signals that end us, and the one that says that the terminal has another size.
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
        // The flag first, so that it is up when we wake.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            ids.push(flag::register(signal, Arc::clone(&over))?);
        }
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGWINCH] {
            ids.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(Signals { wake, over, ids })
    }

    /// Whether any came since the last call.
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

/// Reads away what wakes us; true if there was anything.
fn drain(wake: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while wake.read(&mut bytes).is_ok_and(|n| n > 0) {
        any = true;
    }
    any
}
