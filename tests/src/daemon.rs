//! A running `fairpath run`, its files in a separate directory, asked over its control socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use fairpath_testbed::{Netns, Process, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::binary;
use crate::rtt::PATIENCE;

/// The maximum time of one answer.
const ANSWER: Duration = Duration::from_secs(60);

/// A directory with the daemon's configuration, socket and state; removed when dropped.
#[derive(Debug)]
pub struct Place {
    directory: tempfile::TempDir,
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where the daemon kept what outlives it; nothing is mounted there otherwise.
        let _ = nix::mount::umount2(&self.path("pins"), nix::mount::MntFlags::MNT_DETACH);
    }
}

impl Place {
    /// An empty one.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new() -> Place {
        let directory = tempfile::tempdir().expect("make a directory");
        Place { directory }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.path("control.sock")
    }

    /// The state file.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Writes the configuration: what every daemon of a test needs, and `rest`, which may begin
    /// with keys of `[monitor]` after its interfaces.
    pub fn configure(&self, interfaces: &[&str], rest: &str) {
        let place = self.directory.path().display();
        let text = format!(
            "[control]\nsocket = \"{place}/control.sock\"\n[state]\nfile = \"{place}/state\"\n\
             [metrics]\nlisten = \"off\"\n[monitor]\nflows = 4096\ninterval = \"200ms\"\n\
             interfaces = {interfaces:?}\n{rest}\n"
        );
        self.write("fairpath.toml", &text);
    }

    /// Writes a file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write a file of the test");
    }

    /// Queries the daemon here; `None` without an answer.
    pub fn try_query(&self, request: &Value) -> Option<Value> {
        query(&self.socket(), request)
    }
}

/// One request and its answer over a control socket.
pub fn query(socket: &Path, request: &Value) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    writeln!(stream, "{request}").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// The daemon in a namespace; killed when dropped.
#[derive(Debug)]
pub struct Daemon<'p> {
    /// The process.
    pub process: Process,
    place: &'p Place,
}

impl<'p> Daemon<'p> {
    /// Starts it with the configuration of `place`; does not wait.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(ns: &Netns, place: &'p Place) -> Daemon<'p> {
        Daemon::spawn_with(ns, place, |_| {})
    }

    /// The same, with the command changed, such as its environment.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn_with(
        ns: &Netns,
        place: &'p Place,
        change: impl FnOnce(&mut Command),
    ) -> Daemon<'p> {
        let mut command = ns.command_without_sysfs(binary::fairpath());
        command
            .arg("run")
            .arg("--config")
            .arg(place.path("fairpath.toml"));
        change(&mut command);
        let process = ns.spawn(command).expect("start fairpath run");
        Daemon { process, place }
    }

    /// Starts it and waits until it is ready.
    pub fn start(ns: &Netns, place: &'p Place) -> Daemon<'p> {
        let daemon = Daemon::spawn(ns, place);
        daemon.logs("ready after");
        daemon
    }

    /// Waits until it has said so on standard error.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn logs(&self, text: &str) {
        self.process
            .wait_stderr(text, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}; {}", self.process.stderr()));
    }

    /// The number of times that it has logged the text so far.
    pub fn count_in_log(&self, text: &str) -> usize {
        self.process.stderr().matches(text).count()
    }

    /// Asks over the control socket.
    ///
    /// # Panics
    /// There is no answer.
    pub fn query(&self, request: &Value) -> Value {
        let answer = self.place.try_query(request);
        answer.unwrap_or_else(|| panic!("no answer to {request}; {}", self.process.stderr()))
    }

    /// The status: a snapshot without rows.
    pub fn status(&self) -> Value {
        self.query(&json!({"verb": "status"}))["snapshot"].take()
    }

    /// The row of this name, as the snapshot has it now; null if there is none.
    pub fn row(&self, name: &str) -> Value {
        let mut answer = self.query(&json!({"verb": "snapshot"}));
        let rows = answer["snapshot"]["rows"].as_array_mut();
        let row = rows.and_then(|rows| rows.iter_mut().find(|row| row["name"] == name));
        row.map(Value::take).unwrap_or_default()
    }

    /// Waits until a row fulfils a condition, and returns it.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn row_when(&self, name: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let row = wait_for(PATIENCE, || Some(self.row(name)).filter(&condition));
        row.unwrap_or_else(|| {
            panic!(
                "{name}: not {what}: {:#}; {}",
                self.row(name),
                self.process.stderr()
            )
        })
    }

    /// Waits until the status fulfils a condition, and returns it.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn status_when(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let status = wait_for(PATIENCE, || Some(self.status()).filter(&condition));
        status
            .unwrap_or_else(|| panic!("not {what}: {:#}; {}", self.status(), self.process.stderr()))
    }

    /// Reloads as root does; returns the answer.
    pub fn reload(&self) -> Value {
        self.query(&json!({"verb": "reload"}))
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::SIGTERM);
        let status = self.process.wait(PATIENCE);
        status.unwrap_or_else(|error| panic!("{error}; {}", self.process.stderr()))
    }

    /// Sends SIGINT to it and what it starts, as a terminal does while Ctrl-C is held, until it ends.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn interrupt(mut self) -> ExitStatus {
        let ended = || (!self.process.signal_group(Signal::SIGINT)).then_some(());
        wait_for(PATIENCE, ended)
            .unwrap_or_else(|| panic!("still runs: {}", self.process.stderr()));
        self.process.wait(PATIENCE).expect("it has ended")
    }

    /// Sends SIGKILL and waits for the end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn kill(mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.wait(PATIENCE).expect("SIGKILL ends it");
    }
}

/// Runs `fairpath WORDS --socket SOCKET` to its end.
///
/// # Panics
/// If it cannot be started.
pub fn client(place: &Place, words: &[&str]) -> Output {
    let mut command = binary::command(binary::fairpath());
    command.args(words).arg("--socket").arg(place.socket());
    command.output().expect("start fairpath")
}

/// The answer to one GET, from inside the namespace.
///
/// # Panics
/// There is none.
pub fn get(ns: &Netns, port: u16, path: &str) -> String {
    let fetch = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ns.enter(fetch).unwrap().unwrap()
}

/// The samples of metrics by series, after promtool accepted their text.
///
/// # Panics
/// It did not, or the text has no samples.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    if let Ok(mut promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        let written = promtool.stdin.take().unwrap().write_all(body.as_bytes());
        let output = promtool.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            written.is_ok() && output.status.success() && printed.is_empty(),
            "{printed}"
        );
    }
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}
