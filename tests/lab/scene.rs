//! An experiment in a separate directory, run by the binary.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fairpath_tests::binary::{self, fairpath, fairpath_lab};
use serde_json::Value;
use tempfile::TempDir;

/// Four runs with and without loss by XDP.
pub const LOSSY: &str = include_str!("lossy.toml");
/// One run with everything.
pub const QUEUE: &str = include_str!("queue.toml");

/// Tests that only want to run share the machine; one that fills it deliberately has it alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// A place for files, gone with the value.
pub struct Scene {
    pub place: TempDir,
    _machine: Share,
}

/// Of the machine: with others, or alone.
enum Share {
    Some(#[expect(dead_code, reason = "held while the value lives")] RwLockReadGuard<'static, ()>),
    All(#[expect(dead_code, reason = "held while the value lives")] RwLockWriteGuard<'static, ()>),
}

impl Scene {
    /// With `text` as its experiment.
    pub fn new(text: &str) -> Scene {
        // A test that failed left nothing here that another could trip over.
        let machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Scene::with(text, Share::Some(machine))
    }

    /// The same, while no other test of this program runs an experiment.
    pub fn alone(text: &str) -> Scene {
        let machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Scene::with(text, Share::All(machine))
    }

    fn with(text: &str, machine: Share) -> Scene {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("x.toml"), text).unwrap();
        Scene {
            place,
            _machine: machine,
        }
    }

    /// Results.
    pub fn out(&self) -> PathBuf {
        self.place.path().join("out")
    }

    /// `fairpath lab run`, not started.
    pub fn command(&self) -> Command {
        self.command_with(fairpath())
    }

    /// The same, with this router's binary.
    pub fn command_with(&self, fairpath: &Path) -> Command {
        let mut command = binary::command(fairpath_lab());
        command.arg("run").arg(self.place.path().join("x.toml"));
        command.arg("--output").arg(self.out());
        command.arg("--fairpath").arg(fairpath);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    /// Asserts that a finished grid has the status of its runs: 0 if each setting has a valid one, otherwise 3.
    pub fn assert_finished(&self, output: &Output) {
        let records = self.records();
        let all: BTreeSet<String> = records.iter().map(setting).collect();
        let valid = records.iter().filter(|run| faults(run).is_empty());
        let valid: BTreeSet<String> = valid.map(setting).collect();
        let status = if all == valid { 0 } else { 3 };
        assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    }

    /// A program called `name` that is found before the real one.
    pub fn instead_of(&self, name: &str, script: &str) -> OsString {
        let folder = self.place.path().join("bin");
        fs::create_dir_all(&folder).unwrap();
        write_script(&folder.join(name), script);
        let mut path = folder.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }

    /// Records by place.
    pub fn records(&self) -> Vec<Value> {
        let entries = fs::read_dir(self.out().join("runs")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = |path: &PathBuf| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        paths.iter().map(read).collect()
    }

    /// The manifest of the directory.
    pub fn manifest(&self) -> Value {
        serde_json::from_slice(&fs::read(self.out().join("manifest.json")).unwrap()).unwrap()
    }
}

/// An executable script.
pub fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn setting(record: &Value) -> String {
    record["setting"].to_string()
}

/// The output of a command to stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Kinds of a record's faults.
pub fn faults(record: &Value) -> Vec<&str> {
    let faults = record["faults"].as_array().unwrap();
    faults
        .iter()
        .map(|fault| fault["kind"].as_str().unwrap())
        .collect()
}
