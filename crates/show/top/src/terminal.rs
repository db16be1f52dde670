//! The terminal while the table has it, and as it was before once it has not.
//!
//! It is given back however this ends: by dropping, and in the panic hook before the message.

use std::io::{self, BufWriter, IsTerminal, Stdout, stdin, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::{Position, Rect};

use crate::state::State;

/// A whole picture of a large terminal is written at once.
const WRITE_BYTES: usize = 1 << 16;

/// Whether the terminal has to be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Columns of the terminal; `None` where there is none.
pub fn terminal_columns() -> Option<u16> {
    size().ok().map(|(columns, _)| columns).filter(|n| *n > 0)
}

/// The terminal, taken.
#[derive(Debug)]
pub struct Taken {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Taken {
    /// Both ends are a terminal.
    pub fn is_there() -> bool {
        stdin().is_terminal() && stdout().is_terminal()
    }

    /// Takes it: no echo, no line editing, a screen of its own, no cursor.
    ///
    /// # Errors
    /// It is none, or went away.
    pub fn take() -> io::Result<Taken> {
        static HOOK: Once = Once::new();
        HOOK.call_once(give_back_on_panic);
        let out = BufWriter::with_capacity(WRITE_BYTES, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out))?;
        enter()?;
        Ok(Taken { terminal })
    }

    /// Draws what differs from what is there.
    ///
    /// # Errors
    /// The terminal went away.
    pub fn draw(&mut self, state: &mut State) -> io::Result<()> {
        // Given back by a panic of another thread: what comes now would hide its message.
        if !TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.terminal
            .draw(|frame| crate::screen::draw(frame, state))?;
        Ok(())
    }

    /// Forgets what is there: the next drawing draws everything.
    ///
    /// # Errors
    /// The terminal went away.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: that asks the terminal where its cursor is, and a slow one answers late.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Gives the terminal to the shell until that lets this process go on.
    ///
    /// # Errors
    /// The terminal went away.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        raise(Signal::SIGTSTP)?;
        enter()?;
        self.forget()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Once; there is nobody to tell of a failure, since it is the terminal that failed.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn give_back_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        before(panic);
    }));
}
