//! Sets up the terminal for the live table and restores it.
//!
//! Dropping the guard restores it. A panic hook restores it before the message of a panic.

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

/// Large enough for a whole screen of a large terminal in one write.
const WRITE_BYTES: usize = 1 << 16;

/// True if the terminal must be restored.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Width of the terminal in columns, `None` without terminal.
pub fn terminal_columns() -> Option<u16> {
    size().ok().map(|(columns, _)| columns).filter(|n| *n > 0)
}

/// The terminal, set up for the live table until dropped.
#[derive(Debug)]
pub struct TerminalGuard {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl TerminalGuard {
    /// True if standard input and output are a terminal.
    pub fn is_terminal() -> bool {
        stdin().is_terminal() && stdout().is_terminal()
    }

    /// Sets it up: no echo, no line editing, the alternate screen, no cursor.
    ///
    /// # Errors
    /// It is not a terminal, or was closed.
    pub fn enter() -> io::Result<TerminalGuard> {
        static HOOK: Once = Once::new();
        HOOK.call_once(restore_on_panic);
        let out = BufWriter::with_capacity(WRITE_BYTES, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out))?;
        enter()?;
        Ok(TerminalGuard { terminal })
    }

    /// Draws the cells that changed.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn draw(&mut self, state: &mut State) -> io::Result<()> {
        // A panic of another thread restored it. Drawing now would hide the message.
        if !ACTIVE.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.terminal
            .draw(|frame| crate::screen::draw(frame, state))?;
        Ok(())
    }

    /// Makes the next call of `draw` write every cell.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: it queries the cursor position, and a slow terminal answers late.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Restores the terminal and stops this process until the shell continues it.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        raise(Signal::SIGTSTP)?;
        enter()?;
        self.forget()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<()> {
    ACTIVE.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Restores the terminal once. A failure cannot be reported, because the terminal itself failed.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}
