//! The guard: a shell that kills process groups when this process is gone, in whatever way.
//!
//! PR_SET_PDEATHSIG reaches a child but not its children. So one shell per process of ours reads
//! which groups live; when its input ends, this process has ended, and it kills the groups of the list. A descendant
//! that leaves its group (a daemon's `setsid`) escapes it, and nothing else.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// `+ID` puts a group on the list, `-ID` takes it off; the end of input kills all on it.
const SCRIPT: &str = r#"
groups=' '
while read -r sign id; do
    case $sign in
    +) groups="$groups$id " ;;
    -) groups="${groups%%" $id "*} ${groups#*" $id "}" ;;
    esac
done
for id in $groups; do kill -s KILL -- "-$id"; done
"#;

/// The running guard.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn start() -> io::Result<Guard> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SCRIPT, "fairpath-testbed-guard"])
            .current_dir("/");
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A separate group: Ctrl-C must not reach it.
        shell.process_group(0).spawn().map(Guard)
    }

    /// Puts a process group on the list.
    pub(crate) fn add(&mut self, group: u32) -> io::Result<()> {
        self.report(format_args!("+ {group}\n"))
    }

    /// Takes a group off; to be done before its leader is reaped and the number is free for others.
    pub(crate) fn remove(&mut self, group: u32) -> io::Result<()> {
        self.report(format_args!("- {group}\n"))
    }

    fn report(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        let input = self.0.stdin.as_mut().expect("the guard's input is piped");
        input.write_all(line.to_string().as_bytes())
    }
}
