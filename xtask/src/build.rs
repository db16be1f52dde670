//! The one build: every native crate, test and program of the workspace, compiled and linted once.
//!
//! clippy's driver is rustc with lints. As the wrapper of the workspace's own crates it lints and generates
//! code in the same call, so lints need no separate compilation. What comes out is run, queried and
//! packed directly: no other command of the test run builds anything native with other features.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Artifact, Message, MetadataCommand, TargetKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The compiler that lints. The Makefile builds xtask with the same two settings.
const WRAPPER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
/// Its arguments, in its own notation: `-D warnings`.
const LINTS: (&str, &str) = (
    "CLIPPY_ARGS",
    "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
);

/// A program that libtest made of a crate, or of a file of its tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executable {
    /// `PACKAGE/TARGET`: `fairpath-core/lib`, `fairpath-core/sched`, `fairpath/bin-fairpath`.
    pub name: String,
    pub package: String,
    pub path: PathBuf,
    /// The package's directory, which its tests run in.
    pub dir: PathBuf,
}

/// The output of the build.
pub struct Built {
    pub tests: Vec<Executable>,
    /// The directory of the programs.
    pub binaries: PathBuf,
    /// Seconds of it are of no use if most was there already.
    pub compiled: usize,
    pub fresh: usize,
    pub took: Duration,
}

impl Built {
    pub fn program(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }
}

/// cargo with the lints of the one build; another command with other flags would build all again.
pub fn cargo() -> Command {
    let mut cargo = run::cargo();
    cargo.env(WRAPPER.0, WRAPPER.1).env(LINTS.0, LINTS.1);
    cargo
}

/// Builds and lints everything native.
pub fn all() -> Result<Built> {
    let began = Instant::now();
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
    ]);
    cargo.arg("--message-format=json-render-diagnostics");
    println!("$ {}", run::line_of(&cargo));
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("run cargo")?;
    let stdout = child.stdout.take().context("cargo's output")?;
    let packages = packages()?;
    let mut tests = Vec::new();
    let mut units = (0, 0);
    for message in Message::parse_stream(BufReader::new(stdout)) {
        if let Message::CompilerArtifact(artifact) = message.context("cargo's messages")? {
            *(if artifact.fresh {
                &mut units.1
            } else {
                &mut units.0
            }) += 1;
            tests.extend(executable(&artifact, &packages));
        }
    }
    let status = child.wait().context("run cargo")?;
    ensure!(
        status.success(),
        "the build or its lints failed: {status}; remedy: what is named above"
    );
    tests.sort();
    let built = Built {
        tests,
        binaries: fs::canonicalize(run::target_dir().join("debug"))?,
        compiled: units.0,
        fresh: units.1,
        took: began.elapsed(),
    };
    let names: BTreeSet<&str> = built.tests.iter().map(|test| test.name.as_str()).collect();
    if names.len() != built.tests.len() {
        bail!("two test executables have the same name; remedy: rename one of their targets");
    }
    println!(
        "build: {} units compiled, {} were current, {} test executables, {:.0} s",
        built.compiled,
        built.fresh,
        built.tests.len(),
        built.took.as_secs_f64()
    );
    Ok(built)
}

/// Names of our packages by their manifest.
fn packages() -> Result<BTreeMap<PathBuf, String>> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let named = metadata.packages.iter();
    Ok(named
        .map(|package| {
            (
                package.manifest_path.clone().into_std_path_buf(),
                package.name.to_string(),
            )
        })
        .collect())
}

/// The test executable that an artefact is, if it is one.
fn executable(artifact: &Artifact, packages: &BTreeMap<PathBuf, String>) -> Option<Executable> {
    let path = artifact
        .executable
        .as_ref()
        .filter(|_| artifact.profile.test)?;
    let manifest = artifact.manifest_path.as_std_path();
    let package = packages.get(manifest)?.clone();
    let target = match artifact.target.kind.first()? {
        TargetKind::Lib | TargetKind::RLib => "lib".to_owned(),
        TargetKind::Test => artifact.target.name.clone(),
        kind => format!("{kind}-{}", artifact.target.name),
    };
    Some(Executable {
        name: format!("{package}/{target}"),
        package,
        path: path.clone().into_std_path_buf(),
        dir: manifest.parent().unwrap_or(Path::new(".")).to_owned(),
    })
}
