//! A program in a pseudo-terminal, and its screen.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fairpath_tests::PATIENCE;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

/// The output of the program so far.
struct Output {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    is_over: bool,
}

/// A program in a terminal; killed when dropped.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    seen: Arc<(Mutex<Output>, Condvar)>,
}

fn size(columns: u16, lines: u16) -> PtySize {
    PtySize {
        rows: lines,
        cols: columns,
        ..PtySize::default()
    }
}

/// A command with the environment of a terminal, without variables that change colours or language.
pub fn command(program: &Path, args: &[&str]) -> CommandBuilder {
    let mut command = CommandBuilder::new(program);
    command.args(args);
    for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color");
    command.env("LANG", "C.UTF-8");
    command
}

impl Terminal {
    /// Runs it in a terminal of this size.
    pub fn run(command: CommandBuilder, columns: u16, lines: u16) -> Terminal {
        let pair = native_pty_system()
            .openpty(size(columns, lines))
            .expect("open a pseudo-terminal");
        let child = pair.slave.spawn_command(command).expect("start it");
        // Only the program may hold that end, so that its exit ends the output.
        drop(pair.slave);
        let mut from = pair.master.try_clone_reader().expect("read the terminal");
        let seen = Arc::new((
            Mutex::new(Output {
                parser: vt100::Parser::new(lines, columns, 0),
                bytes: Vec::new(),
                is_over: false,
            }),
            Condvar::new(),
        ));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            loop {
                // Linux returns EIO after the other end was closed.
                let read = from.read(&mut piece).unwrap_or(0);
                let mut seen = shared.0.lock().unwrap();
                seen.parser.process(&piece[..read]);
                seen.bytes.extend_from_slice(&piece[..read]);
                seen.is_over = read == 0;
                shared.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Terminal {
            child,
            keyboard: pair.master.take_writer().expect("write to the terminal"),
            master: pair.master,
            seen,
        }
    }

    /// Types this.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
        self.keyboard.flush().expect("type");
    }

    /// Writes on its screen, as another program may.
    pub fn scribble(&self, text: &str) {
        let mut seen = self.seen.0.lock().unwrap();
        seen.parser.process(text.as_bytes());
    }

    /// Gives the window another size.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        // The screen first: output after the signal is for the new size.
        let mut seen = self.seen.0.lock().unwrap();
        seen.parser.screen_mut().set_size(lines, columns);
        self.master.resize(size(columns, lines)).expect("resize");
    }

    /// Waits until the lines of the screen meet a condition.
    ///
    /// # Panics
    /// If they never do.
    pub fn wait(&self, what: &str, condition: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.wait_for(what, |seen| {
            let lines = lines(&seen.parser);
            condition(&lines).then_some(lines)
        })
    }

    /// Waits until a line of the screen contains this.
    pub fn shows(&self, text: &str) -> Vec<String> {
        self.wait(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// Waits until no line of the screen contains this.
    pub fn hides(&self, text: &str) -> Vec<String> {
        let what = format!("no {text}");
        self.wait(&what, |lines| !lines.iter().any(|line| line.contains(text)))
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.0.lock().unwrap().bytes.clone()
    }

    /// True if the terminal edits lines and echoes, as in a shell.
    pub fn is_cooked(&self) -> bool {
        let termios = self.master.get_termios().expect("the terminal's modes");
        let flags = termios.local_flags.bits();
        flags & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.child.process_id().expect("it runs");
        kill(Pid::from_raw(id as i32), signal).expect("signal it");
    }

    /// Waits until it ends and all its output was read.
    pub fn ends(&mut self) -> ExitStatus {
        self.wait_for("the end", |seen| seen.is_over.then_some(()));
        self.child.wait().expect("wait for it")
    }

    fn wait_for<T>(&self, what: &str, done: impl Fn(&Output) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            if let Some(found) = done(&seen) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let screen = lines(&seen.parser).join("\n");
            assert!(left > Duration::ZERO, "no {what:?} on\n{screen}");
            assert!(!seen.is_over, "it ended without {what:?} on\n{screen}");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(parser: &vt100::Parser) -> Vec<String> {
    let (_, columns) = parser.screen().size();
    parser.screen().rows(0, columns).collect()
}
