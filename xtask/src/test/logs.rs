//! The skips and repetitions of tests, and the verdict on them.

use crate::run;
use crate::skips::{self, Present, Skip};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The files that tests append to.
pub struct Logs {
    pub skips: PathBuf,
    pub retries: PathBuf,
}

/// The results of the logs.
pub struct Audit {
    pub skipped: usize,
    /// Those among them that libtest does not count: guests' scenarios, and the binary for arm64.
    pub elsewhere: usize,
    /// The faults that fail the run.
    pub faults: Vec<String>,
}

impl Logs {
    /// Both, with nothing in them.
    pub fn empty() -> Result<Logs> {
        let target = run::target_dir();
        let empty = |name: &str| -> Result<PathBuf> {
            let path = fs::canonicalize(&target)?.join(name);
            fs::write(&path, "").with_context(|| format!("empty {}", path.display()))?;
            Ok(path)
        };
        Ok(Logs {
            skips: empty("skipped-tests.tsv")?,
            retries: empty("repeated-tests.tsv")?,
        })
    }

    /// The variables that name them to tests.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [
            ("FAIRPATH_SKIP_LOG", &self.skips),
            ("FAIRPATH_TEST_RETRIES_LOG", &self.retries),
        ]
    }

    /// Prints each repetition and each skip; `binaries` holds the `fairpath` that knows the features.
    pub fn audit(&self, most_repeated: usize, binaries: &Path) -> Result<Audit> {
        let mut faults = Vec::from_iter(repeated(&read(&self.retries)?, most_repeated));
        let skips = skips::parse(&read(&self.skips)?).map_err(anyhow::Error::msg)?;
        for skip in &skips {
            println!("{skip}");
        }
        let present = present(&skips, binaries)?;
        faults.extend(skips.iter().filter_map(|skip| unjustified(skip, &present)));
        let elsewhere = skips.iter().filter(|skip| {
            ["vm/", "cross/"]
                .iter()
                .any(|place| skip.test.starts_with(place))
        });
        Ok(Audit {
            skipped: skips.len(),
            elsewhere: elsewhere.count(),
            faults,
        })
    }
}

fn read(log: &Path) -> Result<String> {
    fs::read_to_string(log).with_context(|| format!("read {}", log.display()))
}

/// Prints each measurement that a test repeated; complains when there are too many.
fn repeated(log: &str, limit: usize) -> Option<String> {
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    for line in &lines {
        println!("repeated {}", line.replace('\t', ": "));
    }
    let count = lines.len();
    println!("{count} repeated (at most {limit})");
    (count > limit).then(|| format!("{count} measurements were repeated, more than {limit}"))
}

fn unjustified(skip: &Skip, present: &Present) -> Option<String> {
    let why = present.contradicts(skip, on_path)?;
    Some(format!(
        "{} was skipped for lack of {}, but {why}",
        skip.test, skip.need
    ))
}

/// The features of this machine, detected only if a skip depends on them.
fn present(skips: &[Skip], binaries: &Path) -> Result<Present> {
    let mut present = Present {
        root: is_root(),
        ..Present::default()
    };
    if skips.iter().any(|s| s.need.starts_with("feature:")) {
        let mut features = Command::new(binaries.join("fairpath"));
        let output = run::output(features.args(["features", "--format", "json"]))?;
        present.features = skips::features(&output);
        ensure!(
            !present.features.is_empty(),
            "`fairpath features` named no feature: no skip can be judged"
        );
    }
    Ok(present)
}

fn is_root() -> bool {
    run::output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs in a new directory, with these texts.
    fn logs(skips: &str, retries: &str) -> (tempfile::TempDir, Logs) {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let logs = Logs {
            skips: write("skips", skips),
            retries: write("retries", retries),
        };
        (dir, logs)
    }

    #[test]
    fn too_many_skips_or_repetitions_fail() {
        let skips = "a\twords\twhy\nvm/floor/b\twords\twhy\ncross/arm64\twords\twhy\n";
        let (dir, logs) = logs(skips, "t\t1\tnoise\nt\t2\tnoise\n");
        let audit = logs.audit(2, dir.path()).unwrap();
        assert_eq!((audit.skipped, audit.elsewhere), (3, 2));
        assert_eq!(audit.faults, Vec::<String>::new());
        assert_eq!(logs.audit(1, dir.path()).unwrap().faults.len(), 1);
    }

    #[test]
    fn skip_is_judged_by_output_of_fairpath_features() {
        use std::os::unix::fs::PermissionsExt;
        let skips = "a\tfeature:fq\twhy\nb\tfeature:tcx\twhy\nc\tfeature:no_such\twhy\n";
        let (dir, logs) = logs(skips, "");
        assert!(logs.audit(0, dir.path()).is_err(), "no binary");
        let fairpath = dir.path().join("fairpath");
        let script = |body: &str| {
            fs::write(&fairpath, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&fairpath, fs::Permissions::from_mode(0o755)).unwrap();
        };
        for silent in ["true", "false"] {
            script(silent);
            assert!(logs.audit(0, dir.path()).is_err(), "{silent}");
        }
        script(
            "echo '{\"feature\":\"fq\",\"available\":false}{\"feature\":\"tcx\",\"available\":true}'",
        );
        let faults = logs.audit(0, dir.path()).unwrap().faults;
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
