//! Sets the commit and the version of libbpf for `--version`.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FAIRPATH_COMMIT");
    println!("cargo::rustc-env=FAIRPATH_COMMIT={}", commit());
    println!("cargo::rustc-env=FAIRPATH_LIBBPF={}", libbpf());
}

/// `FAIRPATH_COMMIT` if it is set, for a build without a repository, otherwise what git reports.
fn commit() -> String {
    if let Ok(commit) = env::var("FAIRPATH_COMMIT") {
        return commit;
    }
    // The log of HEAD changes with each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && PathBuf::from(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// The version of the locked `libbpf-sys`, which builds the libbpf of the same number.
fn libbpf() -> String {
    let lock = "../../../Cargo.lock";
    println!("cargo::rerun-if-changed={lock}");
    let version = fs::read_to_string(lock).ok().and_then(|text| {
        let (_, package) = text.split_once("name = \"libbpf-sys\"")?;
        let (_, version) = package.split_once("version = \"")?;
        let (version, _) = version.split_once('"')?;
        Some(version.split('+').next()?.to_owned())
    });
    version.unwrap_or_else(|| "unknown".to_owned())
}
