//! Takes rules away when this process is gone, however it went.
//!
//! A child of the same binary waits at a pipe whose other end only we hold. `kill -9` closes it, and
//! the child takes away the rules and ends. Ctrl-C is ours and not the child's.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::diversion;
use crate::spawn::spawn_spared;

/// The path of this binary, even after an upgrade replaced it. The child is then named "exe", so a signal to
/// our name does not reach it.
const THIS: &str = "/proc/self/exe";

/// The child, and our end of the pipe.
pub struct Watch {
    child: Child,
}

impl Watch {
    /// Begins to watch over the rules of `queue`, before they are there.
    ///
    /// # Errors
    /// Where no process can be started.
    pub fn start(queue: u16) -> anyhow::Result<Watch> {
        let mut command = Command::new(THIS);
        command
            .args(["impair", "--end-rules", &queue.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = spawn_spared(&mut command)
            .context("start the process that removes rules if this one is killed")?;
        Ok(Watch { child })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends without a signal and prints its own messages.
        let _ = self.child.wait();
    }
}

/// The child: waits for the end of its parent, and removes what remains.
///
/// # Errors
/// What the tools say.
pub fn end_rules(queue: u16) -> anyhow::Result<()> {
    let mut nothing = [0; 16];
    // Nothing is ever written: an end or a failure is the end.
    while std::io::stdin().read(&mut nothing).is_ok_and(|n| n > 0) {}
    diversion::sweep(queue)
}
