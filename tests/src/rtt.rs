//! A running `fairpath rtt`.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use fairpath_testbed::{Netns, Process};
use nix::sys::signal::Signal;

use crate::binary;
use crate::records::Records;

/// The maximum time of any operation on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// `fairpath rtt` in a namespace; killed when dropped.
#[derive(Debug)]
pub struct Rtt {
    /// The process.
    pub process: Process,
}

impl Rtt {
    /// Starts it with JSON output and these arguments; does not wait.
    pub fn spawn(ns: &Netns, args: &[&str]) -> Rtt {
        let mut command = ns.command_without_sysfs(binary::fairpath());
        command.args(["rtt", "--format", "json"]).args(args);
        let process = ns.spawn(command).expect("start fairpath rtt");
        Rtt { process }
    }

    /// Starts it on `interfaces` and waits until it watches them all.
    pub fn watch(ns: &Netns, interfaces: &[&str], args: &[&str]) -> Rtt {
        let mut all = Vec::new();
        for interface in interfaces {
            all.extend(["-i", interface]);
        }
        all.extend(args);
        let rtt = Rtt::spawn(ns, &all);
        for interface in interfaces {
            rtt.logs(&format!("watching {interface}\n"));
        }
        rtt
    }

    /// Waits until it has said so on standard error.
    pub fn logs(&self, text: &str) {
        self.process
            .wait_stderr(text, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}; {}", self.process.stderr()));
    }

    /// Ends it by SIGINT and reads what it printed.
    pub fn stop(self) -> Records {
        self.process.signal(Signal::SIGINT);
        self.finish()
    }

    /// Waits for its successful end, and reads its output.
    pub fn finish(self) -> Records {
        let text = self.process.finish(PATIENCE);
        Records::parse(&text.unwrap_or_else(|error| panic!("{error}")))
    }
}

/// Runs `fairpath` with these words to its end, in a namespace.
///
/// # Panics
/// If it cannot be started.
pub fn run(ns: &Netns, words: &[&str]) -> Output {
    let mut command = ns.command_without_sysfs(binary::fairpath());
    command.args(words).output().expect("start fairpath")
}

/// Reads a capture with `fairpath rtt -r`.
///
/// # Panics
/// If it does not end well.
pub fn read_capture(path: &Path, args: &[&str]) -> Records {
    let output = binary::command(binary::fairpath())
        .args(["rtt", "--format", "json", "-r"])
        .arg(path)
        .args(args)
        .output()
        .expect("start fairpath");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    Records::parse(&String::from_utf8_lossy(&output.stdout))
}
