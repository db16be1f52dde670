//! One shell for a page's commands, alone with its mounts, processes and network.

use std::env;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use fairpath_testbed::wait_for;
use fairpath_tests::binary;

use crate::page::{Block, missing};

/// For all commands of a page; the tutorial takes about three minutes.
const DEADLINE: Duration = Duration::from_secs(400);
/// Precedes the output of each block.
const MARK: &str = "@@ block ";

/// Where a page's commands run.
pub struct Shell {
    set_up: String,
    is_root: bool,
}

impl Shell {
    /// A shell of root; `set_up` runs first.
    pub fn new(set_up: &str) -> Shell {
        Shell {
            set_up: set_up.to_owned(),
            is_root: true,
        }
    }

    /// A shell for commands that need no privileges.
    pub fn without_root(set_up: &str) -> Shell {
        Shell {
            is_root: false,
            ..Shell::new(set_up)
        }
    }

    /// Runs all blocks; the first command that fails ends it. Returns what each block printed.
    ///
    /// # Panics
    /// Where a command fails, takes too long, or does not print what the page shows.
    pub fn run(&self, blocks: &[Block]) -> Vec<String> {
        let output = self.output(&self.script(blocks));
        println!("{output}");
        let outputs: Vec<String> = output
            .split(MARK)
            .skip(1)
            .map(|part| {
                part.split_once('\n')
                    .map_or("", |(_, rest)| rest)
                    .to_owned()
            })
            .collect();
        for (block, output) in blocks.iter().zip(&outputs) {
            if let Some(line) = missing(&block.expected, output) {
                panic!(
                    "{}printed\n{output}\nwithout the line\n{line}",
                    block.commands
                );
            }
        }
        assert!(
            output.trim_end().ends_with(&format!("{MARK}end")),
            "block {} of {} failed:\n{}",
            outputs.len(),
            blocks.len(),
            blocks
                .get(outputs.len().saturating_sub(1))
                .map_or("", |block| block.commands.as_str())
        );
        outputs
    }

    fn script(&self, blocks: &[Block]) -> String {
        let mut script = String::from("set -e\n");
        if self.is_root {
            // The binaries may be below /tmp.
            let programs = binary::fairpath().with_file_name("");
            script += "mount -t tmpfs tmpfs /run\nmkdir /run/netns /run/programs\n";
            script += &format!("mount --bind '{}' /run/programs\n", programs.display());
            script += "mount -t tmpfs tmpfs /tmp\nPATH=/run/programs:$PATH\n";
        }
        script += "cd \"$(mktemp -d)\"\n";
        script += &self.set_up;
        for (number, block) in blocks.iter().enumerate() {
            script += &format!("echo '{MARK}{number}'\n{}", block.commands);
        }
        script + &format!("echo '{MARK}end'\n")
    }

    fn output(&self, script: &str) -> String {
        let directory = binary::fairpath().parent().expect("a directory");
        let path = env::var("PATH").unwrap_or_default();
        let mut command = match self.is_root {
            true => {
                let mut command = binary::command("unshare".as_ref());
                command.args(["--mount", "--net", "--pid", "--fork"]);
                command.args(["--kill-child", "--mount-proc", "bash"]);
                command
            }
            false => Command::new("bash"),
        };
        let mut child = command
            .args(["-c", script])
            .env("PATH", format!("{}:{path}", directory.display()))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("start a shell");
        let mut stdout = child.stdout.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stdout.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let ended = wait_for(DEADLINE, || child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let output = reader.join().expect("the reader");
        assert!(ended.is_some(), "not done after {DEADLINE:?}:\n{output}");
        output
    }
}
