//! `tests/budget.toml`: how each test executable is run, what it proves, and how long it may take.
//!
//! An executable without a table is pure: class `cpu`, run whole every time. Those of `tests/` must each
//! have one. An entry that names nothing that exists is an error, or it would outlive what it was for.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

pub const FILE: &str = "tests/budget.toml";
/// The package whose executables are scenarios.
const SCENARIOS: &str = "fairpath-tests";
/// The factor of a budget at which a run fails.
const TOLERANCE: f64 = 1.5;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub limits: Limits,
    /// Parts of the product by name, files and directories each: they count only for entries that
    /// name the part.
    #[serde(default)]
    pub apart: BTreeMap<String, Vec<String>>,
    /// CPU seconds of the tests of class `cpu`, by crate.
    pub cpu_s: BTreeMap<String, f64>,
    #[serde(default)]
    pub suite: BTreeMap<String, Suite>,
    #[serde(default)]
    pub guest: BTreeMap<String, Scenario>,
    /// CPU seconds of what is no test executable: the runner's own jobs.
    #[serde(default)]
    pub job_cpu_s: BTreeMap<String, f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Measurements that tests repeat, in one run.
    pub retries: usize,
    /// CPU seconds of a crate that has no entry.
    pub cpu_s: f64,
    /// Of an executable that names none.
    pub deadline_s: u64,
    /// Of a guest kernel with all its scenarios.
    pub guest_deadline_s: u64,
    /// Elapsed seconds of a guest's scenario without an entry.
    pub scenario_s: f64,
}

/// The kind of a suite, which determines its neighbours in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Uses a processor from begin to end.
    #[default]
    Cpu,
    /// Waits for packets and timers most of the time.
    Waiting,
    /// Measures times or rates: nothing runs next to it.
    Alone,
}

/// An executable that is not simply pure.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    #[serde(default)]
    pub class: Class,
    /// Tests of it that run at the same time.
    pub threads: Option<usize>,
    pub deadline_s: Option<u64>,
    /// Elapsed seconds, of those that wait.
    pub wall_s: Option<f64>,
    /// True if commits take turns with its tests.
    #[serde(default)]
    pub rotates: bool,
    /// The crates that it proves: a change in it, or below it, has all of it run.
    #[serde(default)]
    pub crates: Vec<String>,
    /// Files and directories outside of crates, of the same kind.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Parts of [`Table::apart`].
    #[serde(default)]
    pub apart: Vec<String>,
}

/// A guest's scenario.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Elapsed seconds, on either kernel.
    pub wall_s: Option<f64>,
    /// The crates that it proves, as for a suite.
    #[serde(default)]
    pub crates: Vec<String>,
    #[serde(default)]
    pub paths: Vec<String>,
    #[serde(default)]
    pub apart: Vec<String>,
}

impl Scenario {
    pub fn covers(&self) -> Covers {
        Covers {
            crates: self.crates.clone(),
            paths: self.paths.clone(),
            apart: self.apart.clone(),
            shared: Vec::new(),
        }
    }
}

/// The changes that run more than a share of a suite or a guest's scenario.
#[derive(Clone, Debug, Default)]
pub struct Covers {
    pub crates: Vec<String>,
    pub paths: Vec<String>,
    pub apart: Vec<String>,
    /// Files and directories that others of its kind are made of as well.
    pub shared: Vec<String>,
}

impl Suite {
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or(1)
    }

    pub fn covers(&self) -> Covers {
        Covers {
            crates: self.crates.clone(),
            paths: self.paths.clone(),
            apart: self.apart.clone(),
            shared: Vec::new(),
        }
    }
}

impl Table {
    pub fn read() -> Result<Table> {
        let text = fs::read_to_string(FILE).with_context(|| format!("read {FILE}"))?;
        Table::parse(&text).with_context(|| FILE)
    }

    pub fn parse(text: &str) -> Result<Table> {
        let table: Table = toml::from_str(text)?;
        for (name, suite) in &table.suite {
            ensure!(
                suite.class == Class::Cpu || suite.wall_s.is_some(),
                "{name} is of class {:?} and has no wall_s",
                suite.class
            );
            ensure!(suite.threads() > 0, "{name}: threads is 0");
        }
        Ok(table)
    }

    fn covers(&self) -> impl Iterator<Item = Covers> {
        let suites = self.suite.values().map(Suite::covers);
        suites.chain(self.guest.values().map(Scenario::covers))
    }

    /// Every entry names something, and everything that must have an entry has one.
    pub fn check(
        &self,
        executables: &BTreeSet<&str>,
        packages: &BTreeSet<&str>,
        scenarios: &BTreeSet<&str>,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        let unknown = |what: &str, name: &str| bail!("{FILE}: there is no {what} {name}");
        for name in self.suite.keys() {
            if !executables.contains(name.as_str()) {
                return unknown("test executable", name);
            }
        }
        for name in self.guest.keys() {
            if !scenarios.contains(name.as_str()) {
                return unknown("guest scenario", name);
            }
        }
        for covers in self.covers() {
            for name in &covers.crates {
                if !packages.contains(name.as_str()) {
                    return unknown("crate", name);
                }
            }
            for name in &covers.apart {
                if !self.apart.contains_key(name) {
                    return unknown("part in [apart]", name);
                }
            }
            for path in &covers.paths {
                if !exists(Path::new(path)) {
                    return unknown("file or directory", path);
                }
            }
        }
        for (name, paths) in &self.apart {
            if !self.covers().any(|covers| covers.apart.contains(name)) {
                bail!("{FILE}: no entry has apart = [\"{name}\"]");
            }
            if let Some(path) = paths.iter().find(|path| !exists(Path::new(path))) {
                return unknown("file or directory", path);
            }
        }
        for name in self.cpu_s.keys() {
            if !packages.contains(name.as_str()) {
                return unknown("crate", name);
            }
        }
        for name in executables {
            let is_scenario = name
                .strip_prefix(SCENARIOS)
                .is_some_and(|rest| rest.starts_with('/') && !rest.starts_with("/lib"));
            if is_scenario && !rest_is_program(name) && !self.suite.contains_key(*name) {
                bail!("{FILE}: {name} has no table [suite.{name:?}]");
            }
        }
        for name in scenarios {
            if !self.guest.contains_key(*name) {
                bail!("{FILE}: the guest scenario {name} has no table [guest.{name}]");
            }
        }
        Ok(())
    }

    /// Elapsed seconds of a scenario, by its name with or without its kernel's (`floor/shape`).
    pub fn budget_of_scenario(&self, name: &str) -> f64 {
        let name = name.rsplit('/').next().unwrap_or(name);
        let own = self.guest.get(name).and_then(|scenario| scenario.wall_s);
        own.unwrap_or(self.limits.scenario_s)
    }

    /// True if both tables run the suite or scenario alike: all but the seconds that it may take.
    pub fn runs_alike(&self, other: &Table, name: &str) -> bool {
        let untimed = |table: &Table| {
            let suite = table.suite.get(name).cloned().map(|suite| Suite {
                wall_s: None,
                deadline_s: None,
                ..suite
            });
            let scenario = table.guest.get(name).cloned().map(|scenario| Scenario {
                wall_s: None,
                ..scenario
            });
            (suite, scenario)
        };
        untimed(self) == untimed(other)
    }

    /// The suite of an executable.
    pub fn suite(&self, name: &str) -> Suite {
        self.suite.get(name).cloned().unwrap_or_default()
    }

    /// CPU seconds of a crate. One without an entry has the few that no entry is worth.
    pub fn budget_of(&self, package: &str) -> Option<f64> {
        Some(*self.cpu_s.get(package).unwrap_or(&self.limits.cpu_s))
    }

    pub fn deadline(&self, suite: &Suite) -> Duration {
        Duration::from_secs(suite.deadline_s.unwrap_or(self.limits.deadline_s))
    }
}

fn rest_is_program(name: &str) -> bool {
    name.contains("/bin-")
}

/// Of a suite's budget, what `ran` of its `of` tests may take: twice their part, for tests differ.
pub fn part_of(budget: f64, ran: usize, of: usize) -> f64 {
    budget * (2.0 * ran as f64 / of.max(1) as f64).min(1.0)
}

/// Complains about what took more than it may.
pub fn over(what: &str, took: f64, budget: Option<f64>, unit: &str) -> Option<String> {
    match budget {
        None => Some(format!(
            "{what} took {took:.1} {unit} and has no budget; remedy: {FILE}"
        )),
        Some(budget) if took > budget * TOLERANCE => Some(format!(
            "{what} took {took:.1} {unit}, more than {TOLERANCE} times its budget of {budget:.0} {unit}; remedy: make it faster, or change {FILE}"
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [limits]
        retries = 3
        cpu_s = 5
        deadline_s = 60
        guest_deadline_s = 600
        scenario_s = 30

        [apart]
        quotas = ["examples"]

        [cpu_s]
        fairpath-core = 20

        [suite."fairpath-tests/shape"]
        class = "waiting"
        threads = 2
        wall_s = 40
        rotates = true
        crates = ["fairpath-shape"]
        paths = ["examples"]
        apart = ["quotas"]

        [guest.shape]
        wall_s = 90
        crates = ["fairpath-shape"]

        [job_cpu_s]
        cross = 200
    "#;

    fn check(text: &str, executables: &[&str], scenarios: &[&str]) -> Result<()> {
        Table::parse(text)?.check(
            &executables.iter().copied().collect(),
            &BTreeSet::from(["fairpath-core", "fairpath-shape"]),
            &scenarios.iter().copied().collect(),
            |path| path == Path::new("examples"),
        )
    }

    #[test]
    fn suites_have_classes_and_unnamed_ones_are_pure() {
        let table = Table::parse(TEXT).unwrap();
        let shape = table.suite("fairpath-tests/shape");
        assert_eq!(
            (shape.class, shape.threads(), shape.rotates),
            (Class::Waiting, 2, true)
        );
        let pure = table.suite("fairpath-core/lib");
        assert_eq!(
            (pure.class, pure.threads(), pure.rotates),
            (Class::Cpu, 1, false)
        );
        assert_eq!(table.deadline(&pure), Duration::from_secs(60));
    }

    #[test]
    fn entries_name_what_exists_and_scenarios_have_one() {
        let shape = "fairpath-tests/shape";
        check(
            TEXT,
            &[shape, "fairpath-core/lib", "fairpath-tests/lib"],
            &["shape"],
        )
        .unwrap();
        for (executables, scenarios) in [
            (&["fairpath-core/lib"][..], &["shape"][..]),
            (&[shape, "fairpath-tests/new"], &["shape"]),
            (&[shape], &[]),
            (&[shape], &["shape", "new"]),
        ] {
            let checked = check(TEXT, executables, scenarios);
            assert!(checked.is_err(), "{executables:?}, {scenarios:?}");
        }
        for (name, other) in [
            ("paths = [\"examples", "paths = [\"gone"),
            ("quotas = [\"examples", "quotas = [\"gone"),
            ("apart = [\"quotas", "apart = [\"gone"),
            ("apart = [\"quotas\"]", ""),
            ("fairpath-core = 20", "gone = 20"),
            ("\"fairpath-shape\"", "\"gone\""),
        ] {
            let text = TEXT.replace(name, other);
            assert!(check(&text, &[shape], &["shape"]).is_err(), "{text}");
        }
    }

    #[test]
    fn waiting_needs_a_budget() {
        assert!(Table::parse(&TEXT.replace("wall_s = 40\n", "")).is_err());
        assert!(Table::parse(&TEXT.replace("\"waiting\"", "\"sleeping\"")).is_err());
        assert!(Table::parse(&TEXT.replace("retries = 3", "retries = 3\nother = 1")).is_err());
        assert!(Table::parse(&TEXT.replace("threads = 2", "threads = 0")).is_err());
    }

    #[test]
    fn the_budget_fails_beyond_half_as_much_again() {
        assert_eq!(over("x", 15.0, Some(10.0), "s"), None);
        assert!(
            over("x", 15.1, Some(10.0), "s")
                .unwrap()
                .contains("x took 15.1 s")
        );
        assert!(over("x", 0.1, None, "s").unwrap().contains("no budget"));
    }

    #[test]
    fn a_suites_part_gets_twice_its_budget_share() {
        let parts = [1, 2, 3, 4].map(|ran| part_of(100.0, ran, 4));
        assert_eq!(parts, [50.0, 100.0, 100.0, 100.0]);
    }

    #[test]
    fn scenarios_have_their_own_budget_or_the_default() {
        let table = Table::parse(TEXT).unwrap();
        let budgets = ["floor/shape", "newest/shape", "floor/other"];
        let budgets = budgets.map(|name| table.budget_of_scenario(name));
        assert_eq!(budgets, [90.0, 90.0, 30.0]);
    }

    #[test]
    fn other_times_are_no_change() {
        let table = Table::parse(TEXT).unwrap();
        let alike = |from: &str, to: &str, name: &str| {
            let other = Table::parse(&TEXT.replace(from, to)).unwrap();
            table.runs_alike(&other, name)
        };
        let shape = "fairpath-tests/shape";
        assert!(alike("wall_s = 40", "wall_s = 50", shape));
        assert!(alike("wall_s = 90", "wall_s = 95", "shape"));
        assert!(alike("threads = 2", "threads = 3", "shape"));
        assert!(!alike("threads = 2", "threads = 3", shape));
        assert!(!alike("paths = [\"examples", "paths = [\"docs", shape));
    }

    #[test]
    fn the_table_of_this_repository_is_read() {
        let text = fs::read_to_string(crate::run::root().join(FILE)).unwrap();
        let table = Table::parse(&text).unwrap();
        assert!(
            table
                .suite
                .values()
                .any(|suite| suite.class == Class::Alone)
        );
    }
}
