//! The commands that tests need.

use std::env;
use std::path::PathBuf;

/// The path of `name`. Skips `test` if it is not installed.
pub fn command(test: &str, name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        let reason = format!("{name} is not on the PATH (setup/packages.txt names its package)");
        fairpath_units::skip_test(test, &format!("command:{name}"), &reason);
    }
    found
}
