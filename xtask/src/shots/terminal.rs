//! A program in a pseudo-terminal, and its screen.

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// For the program to end after its key.
const DEADLINE: Duration = Duration::from_secs(10);

pub struct Terminal {
    child: Child,
    keyboard: File,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Runs `setsid --ctty ...`, which makes the pseudo-terminal the controlling one.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .context("open a pseudo-terminal")?;
        grantpt(&master).context("grant the pseudo-terminal")?;
        unlockpt(&master).context("unlock the pseudo-terminal")?;
        let name = ptsname(&master, Vec::new()).context("name the pseudo-terminal")?;
        let mut options = File::options();
        // xtask runs in a session with a terminal or without; setsid makes another session.
        let slave = options
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(name.as_bytes()))
            .context("open the pseudo-terminal's other end")?;
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).context("set the size of the pseudo-terminal")?;
        for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.stdin(slave.try_clone()?);
        command.stdout(slave.try_clone()?).stderr(slave);
        let child = command.spawn().context("run setsid")?;
        // The command holds the other end: the master would never reach its end of file.
        drop(command);
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone()?;
        let parser = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let shared = Arc::clone(&parser);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Linux returns EIO after the other end was closed.
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                let mut parser = shared.lock().unwrap_or_else(PoisonError::into_inner);
                parser.process(&bytes[..len]);
            }
        });
        Ok(Terminal {
            child,
            keyboard,
            parser,
        })
    }

    /// Passes the present screen to `read`.
    pub fn read<T>(&self, read: impl FnOnce(&vt100::Screen) -> T) -> T {
        let parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
        read(parser.screen())
    }

    /// Presses keys that end the program, and waits for that.
    pub fn end(mut self, keys: &str) -> Result<()> {
        self.keyboard
            .write_all(keys.as_bytes())
            .context("press a key")?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() && start.elapsed() < DEADLINE {
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program itself gets SIGHUP when the pseudo-terminal is closed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_draws_at_the_terminal_size() {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "sh", "-c"]);
        command.arg("stty size; printf '\\033[31mred\\033[0m'; read key");
        let terminal = Terminal::start(command, 40, 5).unwrap();
        let start = Instant::now();
        let drawn = || terminal.read(|screen| screen.contents());
        while !drawn().contains("red") && start.elapsed() < DEADLINE {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(drawn(), "5 40\nred");
        let colour = terminal.read(|screen| screen.cell(1, 0).unwrap().fgcolor());
        assert_eq!(colour, vt100::Color::Idx(1));
        terminal.end("\n").unwrap();
    }
}
