//! A throw-away namespace for this crate's tests; it disappears with its thread.

use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;

/// Runs `test` in a fresh network namespace, or prints `SKIP name: reason`.
pub(crate) fn in_scratch_namespace(name: &str, test: impl FnOnce() + Send) {
    if !Uid::effective().is_root() {
        fairpath_units::skip_test(name, "root", "needs root");
        return;
    }
    thread::scope(|scope| {
        let ran = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
            test();
        });
        ran.join().expect("the test in the namespace failed");
    });
}
