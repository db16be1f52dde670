//! The plan of one run of `cargo xtask test`, decided before any of it runs.

use super::changes::{self, Packages, Reason, Since};
use super::logs::Logs;
use super::process::Order;
use super::schedule::Job;
use super::shard::{self, Part, Shard};
use super::table::{Class, Covers, Scenario, Suite, Table};
use crate::build::{Built, Executable};
use crate::vm::{self, Which};
use crate::{build, run};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// These run in every run on the floor kernel.
const ALWAYS_ON_FLOOR: [&str; 2] = ["features", "load-all"];
/// Files that every guest is made of.
const OF_GUESTS: [&str; 10] = [
    "tests/src",
    "tests/vm/debian",
    "tests/vm/fairpath-guest.service",
    "tests/vm/harness.sh",
    "tests/vm/init",
    "tests/vm/qdisc.sh",
    "tests/vm/run.sh",
    "tests/vm/text.sh",
    "xtask/src/vm",
    "xtask/src/vm.rs",
];
/// Variables of cargo about xtask and of the build's lints, which tests do not get.
const NOT_FOR_TESTS: [&str; 3] = [
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CARGO_MANIFEST_PATH",
];

/// The job that builds the binary for arm64.
pub const CROSS: &str = "cross";

/// The account of a job.
#[derive(Clone, Debug)]
pub struct Work {
    pub order: Order,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// A test executable: of this crate, with these tests in libtest's order.
    Tests {
        package: String,
        suite: Suite,
        tests: Vec<String>,
        /// Of this number of tests; the others do not run this time.
        of: usize,
    },
    /// This number of scenarios on one guest kernel.
    Guest { scenarios: usize },
    /// Something else of ours, or of cargo's.
    Other,
}

/// The options of the run.
pub struct Wanted<'a> {
    pub full: bool,
    pub shard: Option<Shard>,
    pub filter: Option<&'a str>,
    pub guests: bool,
}

impl Wanted<'_> {
    /// The filter is part of `EXECUTABLE::TEST`: it may name a test, an executable, or both.
    fn selects(&self, executable: &str, test: &str) -> bool {
        self.filter
            .is_none_or(|filter| format!("{executable}::{test}").contains(filter))
    }
}

/// Files and settings that every test gets.
pub struct Setting {
    pub binaries: PathBuf,
    pub logs: Logs,
    pub seed: u64,
    /// [`FULL`] or [`FIFTH`]: how many of their operations oracles do.
    pub share: String,
}

/// Variables that a caller may set for tests; the runner sets the others.
const SEED: &str = "FAIRPATH_TEST_SEED";
const SHARE: &str = "FAIRPATH_TEST_SHARE";
pub const FULL: &str = "full";
pub const FIFTH: &str = "fifth";

/// The jobs by phase.
pub struct Plan {
    pub cpu: Vec<Job<Work>>,
    pub waiting: Vec<Job<Work>>,
    pub alone: Vec<Job<Work>>,
    /// Why the binary for arm64 is built, or why not.
    pub cross: std::result::Result<String, String>,
    /// Tests of live suites that are other commits' turn.
    pub left: usize,
}

/// The conditions for the amount of work.
struct Turn {
    packages: Packages,
    since: Since,
    shard: Option<Shard>,
    full: bool,
}

impl Turn {
    /// The amount, and the reason if it is more than a share.
    fn part(&self, name: &str, covers: &Covers, table: &Table) -> (Part, Option<String>) {
        // Why nothing is known is said once.
        if self.full || matches!(self.since, Since::Unknown(_)) {
            return (Part::Whole, None);
        }
        let entry = self.since.entry(name, table).map(Reason::Near);
        let reason = entry.or_else(|| self.since.reason(covers, &self.packages, &table.apart));
        match (reason, self.shard) {
            (Some(Reason::Near(reason)), Some(shard)) if self.since.is_much() => {
                (Part::Share(shard.doubled()), Some(reason))
            }
            (Some(Reason::Near(reason)), _) => (Part::Whole, Some(reason)),
            (Some(Reason::Below(_)), Some(shard)) if self.since.is_much() => {
                (Part::Share(shard), None)
            }
            (Some(Reason::Below(reason)), Some(shard)) => {
                (Part::Share(shard.doubled()), Some(reason))
            }
            (None, Some(shard)) => (Part::Share(shard), None),
            (_, None) => (Part::Whole, Some("no commit names a shard".to_owned())),
        }
    }
}

pub fn plan(wanted: &Wanted, built: &Built, table: &Table, setting: &Setting) -> Result<Plan> {
    let commit = changes::head();
    let turn = Turn {
        packages: Packages::of_workspace()?,
        since: Since::read(),
        shard: wanted
            .shard
            .or_else(|| commit.as_deref().and_then(Shard::of_commit)),
        full: wanted.full || wanted.filter.is_some(),
    };
    let scenarios = vm::scenarios()?;
    check(table, built, &turn.packages, &scenarios)?;
    introduce(&turn, commit.as_deref(), setting);
    let mut plan = Plan {
        cpu: Vec::new(),
        waiting: Vec::new(),
        alone: Vec::new(),
        cross: cross(&turn),
        left: 0,
    };
    for executable in &built.tests {
        plan.add_suite(executable, wanted, table, &turn, setting)?;
    }
    plan.cpu.push(doc_tests(wanted, setting));
    if wanted.filter.is_none() {
        plan.cpu.push(own(built, "sanitize", &[], 90.0, setting));
    }
    if wanted.guests && wanted.filter.is_none() {
        plan.add_guests(&scenarios, built, table, &turn, setting);
        if let Ok(why) = &plan.cross {
            println!("cross: the binary for arm64 is built: {why}");
            plan.cpu.push(own(built, CROSS, &[], 200.0, setting));
        }
    }
    println!("plan: {} tests are other shards' turn", plan.left);
    Ok(plan)
}

fn check(
    table: &Table,
    built: &Built,
    packages: &Packages,
    scenarios: &BTreeMap<String, Vec<Which>>,
) -> Result<()> {
    let executables = built.tests.iter().map(|test| test.name.as_str()).collect();
    for name in ALWAYS_ON_FLOOR {
        let kernels = scenarios.get(name).map(Vec::as_slice).unwrap_or_default();
        ensure!(
            kernels.contains(&Which::Floor),
            "the guest scenario {name} runs in every run on the floor kernel, and is not there"
        );
    }
    let scenarios: BTreeSet<&str> = scenarios.keys().map(String::as_str).collect();
    table.check(&executables, &packages.names(), &scenarios, Path::exists)
}

fn introduce(turn: &Turn, commit: Option<&str>, setting: &Setting) {
    let commit = commit.unwrap_or("unknown");
    println!(
        "plan: commit {commit}, seed {}, share {}, {}",
        setting.seed,
        setting.share,
        match (turn.full, turn.shard) {
            (true, _) | (false, None) => "everything".to_owned(),
            (false, Some(shard)) => format!("shard {shard}"),
        }
    );
    match &turn.since {
        Since::Unknown(why) => println!("plan: no commit is known to have passed in full: {why}"),
        Since::Commit(passed, files) => {
            let much = match turn.since.is_much() {
                true => ": more than suites run whole for",
                false => "",
            };
            println!(
                "plan: {} files differ from {passed}, which passed in full{much}",
                files.len()
            );
        }
    }
}

/// The reason for building for arm64, by changes that affect only that binary.
fn cross(turn: &Turn) -> std::result::Result<String, String> {
    if turn.full {
        return Ok("a full run was requested".to_owned());
    }
    let matters = |file: &str| {
        ["Cargo.lock", ".cargo/config.toml"].contains(&file)
            || ["bpf/", "xtask/src/cross", "setup/"]
                .iter()
                .any(|dir| file.starts_with(dir))
            || file.ends_with("Cargo.toml")
            || file.ends_with("build.rs") && !file.starts_with("xtask/")
    };
    match (turn.since.find(matters), turn.shard) {
        (Some(reason), _) => Ok(reason),
        (None, Some(shard)) if !shard.is_first() => Err(format!(
            "nothing of it changed, and it is built in shard 1, not in {shard}"
        )),
        (None, _) => Ok("it is this commit's turn".to_owned()),
    }
}

impl Plan {
    /// No test executable is to run, whatever else is.
    pub fn is_empty(&self) -> bool {
        let all = [&self.cpu, &self.waiting, &self.alone];
        let mut kinds = all.into_iter().flatten().map(|job| &job.what.kind);
        !kinds.any(|kind| matches!(kind, Kind::Tests { .. }))
    }

    /// Drops the other classes.
    pub fn keep(&mut self, class: Class) {
        let others = [
            (Class::Cpu, &mut self.cpu),
            (Class::Waiting, &mut self.waiting),
            (Class::Alone, &mut self.alone),
        ];
        for (_, jobs) in others.into_iter().filter(|(of, _)| *of != class) {
            jobs.clear();
        }
    }

    fn add_suite(
        &mut self,
        executable: &Executable,
        wanted: &Wanted,
        table: &Table,
        turn: &Turn,
        setting: &Setting,
    ) -> Result<()> {
        let suite = table.suite(&executable.name);
        let all = list(executable)?;
        ensure!(
            !(suite.rotates && all.is_empty()),
            "{}: tests/budget.toml has an entry for it, and it has no test",
            executable.name
        );
        let matching: Vec<String> = all
            .iter()
            .filter(|test| wanted.selects(&executable.name, test))
            .cloned()
            .collect();
        let chosen = if suite.rotates {
            let covers = covers(executable, &suite);
            let part = turn.part(&executable.name, &covers, table);
            self.of_turn(&executable.name, part, &matching)
        } else {
            matching
        };
        if chosen.is_empty() {
            return Ok(());
        }
        let job = suite_job(executable, &suite, table, (&all, chosen), setting);
        match suite.class {
            Class::Cpu => self.cpu.push(job),
            Class::Waiting => self.waiting.push(job),
            Class::Alone => self.alone.push(job),
        }
        Ok(())
    }

    /// Those of a list that run in this run.
    fn of_turn<T: Clone>(
        &mut self,
        name: &str,
        (part, reason): (Part, Option<String>),
        all: &[T],
    ) -> Vec<T> {
        let chosen = part.choose(all);
        let reason = reason.map(|reason| format!(": {reason}"));
        if chosen.len() < all.len() || reason.is_some() {
            let reason = reason.unwrap_or_default();
            println!("plan: {name}: {} of {}{reason}", chosen.len(), all.len());
        }
        self.left += all.len() - chosen.len();
        chosen
    }

    fn add_guests(
        &mut self,
        scenarios: &BTreeMap<String, Vec<Which>>,
        built: &Built,
        table: &Table,
        turn: &Turn,
        setting: &Setting,
    ) {
        // One list for both kernels: a shard then has a share of each.
        let pairs = Which::ALL.into_iter().flat_map(|which| {
            let here = scenarios.iter().filter(move |(_, on)| on.contains(&which));
            here.map(move |(name, _)| (which, name.clone()))
        });
        let (always, others): (Vec<_>, Vec<_>) = pairs.partition(|(which, name)| {
            *which == Which::Floor && ALWAYS_ON_FLOOR.contains(&name.as_str())
        });
        let mut chosen = always;
        // By part: those of a share are counted together, so that each kernel has some.
        let mut parts: Vec<(Part, Vec<(Which, String)>)> = Vec::new();
        let mut reasons = BTreeSet::new();
        for (which, name) in others {
            let covers = covers_of_guest(&name, table);
            let (part, reason) = turn.part(&name, &covers, table);
            reasons.extend(reason.map(|reason| format!("{name}: {reason}")));
            match parts.iter_mut().find(|(other, _)| *other == part) {
                Some((_, pairs)) => pairs.push((which, name)),
                None => parts.push((part, vec![(which, name)])),
            }
        }
        for reason in reasons {
            println!("plan: guests: {reason}");
        }
        for (part, pairs) in parts {
            // Without the first of a share: two are in every run already.
            let held = pairs.iter().enumerate().filter(|(at, _)| match part {
                Part::Whole => true,
                Part::Share(shard) => shard.holds(*at),
            });
            let held: Vec<_> = held.map(|(_, pair)| pair.clone()).collect();
            if let Part::Share(shard) = part {
                let (some, all) = (held.len(), pairs.len());
                println!("plan: guests: {some} of {all} scenarios: {shard}");
            }
            self.left += pairs.len() - held.len();
            chosen.extend(held);
        }
        for which in Which::ALL {
            let here = chosen.iter().filter(|(on, _)| *on == which);
            let names: Vec<&str> = here.map(|(_, name)| name.as_str()).collect();
            if !names.is_empty() {
                self.cpu.push(guest(which, &names, built, table, setting));
            }
        }
    }
}

/// The changes that run more than a share of a suite: what its table says, or its own crate.
fn covers(executable: &Executable, suite: &Suite) -> Covers {
    let mut covers = suite.covers();
    if covers.crates.is_empty() {
        covers.crates.push(executable.package.clone());
    } else {
        // Scenarios of one package: what they share is that of each.
        let dir = executable.dir.strip_prefix(run::root());
        let dir = dir.unwrap_or(&executable.dir).to_string_lossy();
        covers.shared = vec![format!("{dir}/src"), format!("{dir}/Cargo.toml")];
    }
    // Every live suite runs in its namespaces; it is a dependency of tests, which no arrow shows.
    covers.crates.push("fairpath-testbed".to_owned());
    covers
}

fn covers_of_guest(name: &str, table: &Table) -> Covers {
    let scenario = table.guest.get(name);
    let mut covers = scenario.map(Scenario::covers).unwrap_or_default();
    covers.paths.push(format!("tests/vm/scenarios/{name}.sh"));
    covers.shared = OF_GUESTS.map(str::to_owned).to_vec();
    covers
}

fn guest(
    which: Which,
    names: &[&str],
    built: &Built,
    table: &Table,
    setting: &Setting,
) -> Job<Work> {
    let only = names.join(",");
    let args = ["vm", "--kernel", which.name(), "--scenario", &only];
    let mut job = own(built, "guest", &[], 0.0, setting);
    job.name = format!("guest {}", which.name());
    // Before all else: nothing takes longer than a guest.
    job.cost = 1000.0 + names.len() as f64;
    job.what.kind = Kind::Guest {
        scenarios: names.len(),
    };
    job.what.order.args = args.map(OsString::from).to_vec();
    job.what.order.deadline = Duration::from_secs(table.limits.guest_deadline_s);
    job
}

/// A subcommand of ours, by the program that was just built.
fn own(built: &Built, name: &str, args: &[&str], cost: f64, setting: &Setting) -> Job<Work> {
    let mut all = vec![OsString::from(name)];
    all.extend(args.iter().map(OsString::from));
    let mut env = environment(setting);
    // One of several jobs at a time.
    env.push(("CARGO_BUILD_JOBS".to_owned(), "1".into()));
    Job {
        name: name.to_owned(),
        width: 1,
        cost,
        what: Work {
            order: Order {
                program: built.program("xtask"),
                args: all,
                dir: run::root().to_owned(),
                env,
                without: NOT_FOR_TESTS.map(str::to_owned).to_vec(),
                // A guest may run at the same time.
                deadline: Duration::from_secs(1500),
            },
            kind: Kind::Other,
        },
    }
}

/// The examples in documentation, which rustdoc compiles against what is built.
fn doc_tests(wanted: &Wanted, setting: &Setting) -> Job<Work> {
    let cargo = build::cargo();
    let mut args = ["test", "--doc", "--workspace", "--locked", "--quiet"]
        .map(OsString::from)
        .to_vec();
    args.push("--no-fail-fast".into());
    args.extend(wanted.filter.map(OsString::from));
    let mut env = environment(setting);
    let own = cargo.get_envs();
    env.extend(own.filter_map(|(name, value)| {
        Some((name.to_string_lossy().into_owned(), value?.to_owned()))
    }));
    Job {
        name: "documentation examples".to_owned(),
        width: 1,
        cost: 100.0,
        what: Work {
            order: Order {
                program: cargo.get_program().into(),
                args,
                dir: run::root().to_owned(),
                env,
                without: Vec::new(),
                deadline: Duration::from_secs(600),
            },
            kind: Kind::Other,
        },
    }
}

fn suite_job(
    executable: &Executable,
    suite: &Suite,
    table: &Table,
    (all, tests): (&[String], Vec<String>),
    setting: &Setting,
) -> Job<Work> {
    let mut args: Vec<OsString> = vec![format!("--test-threads={}", suite.threads()).into()];
    if tests.len() < all.len() {
        args.push("--exact".into());
        args.extend(tests.iter().map(OsString::from));
    }
    let mut env = environment(setting);
    let dir = executable.dir.clone();
    env.push(("CARGO_MANIFEST_DIR".to_owned(), dir.clone().into()));
    env.push((
        "CARGO_PKG_NAME".to_owned(),
        executable.package.clone().into(),
    ));
    Job {
        name: executable.name.clone(),
        width: suite.threads(),
        cost: suite.wall_s.unwrap_or(0.0),
        what: Work {
            order: Order {
                program: executable.path.clone(),
                args,
                dir,
                env,
                without: NOT_FOR_TESTS.map(str::to_owned).to_vec(),
                deadline: table.deadline(suite),
            },
            kind: Kind::Tests {
                package: executable.package.clone(),
                suite: suite.clone(),
                tests,
                of: all.len(),
            },
        },
    }
}

fn environment(setting: &Setting) -> Vec<(String, OsString)> {
    let own = [
        ("FAIRPATH_BIN_DIR", setting.binaries.clone().into()),
        (SEED, setting.seed.to_string().into()),
        (SHARE, setting.share.clone().into()),
    ];
    let logs = setting.logs.variables();
    let logs = logs.map(|(name, path)| (name, OsString::from(path)));
    let all = own.into_iter().chain(logs);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The seed that tests get for what they draw: the caller's, or else the commit's.
pub fn seed() -> Result<u64> {
    match env::var(SEED) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{SEED}={text} is no number of 64 bits")),
        Err(_) => Ok(shard::seed(changes::head().as_deref())),
    }
}

/// The share of the oracles' work: what the caller says, or else all of it where everything runs.
pub fn share(full: bool) -> Result<String> {
    let usual = if full { FULL } else { FIFTH };
    let share = env::var(SHARE).unwrap_or_else(|_| usual.to_owned());
    ensure!(
        [FULL, FIFTH].contains(&share.as_str()),
        "{SHARE}={share}: write {FULL} or {FIFTH}"
    );
    Ok(share)
}

/// The tests of an executable, in the order in which libtest runs them.
fn list(executable: &Executable) -> Result<Vec<String>> {
    let output = run::output(
        Command::new(&executable.path)
            .args(["--list", "--format", "terse"])
            .current_dir(&executable.dir),
    )
    .with_context(|| format!("list the tests of {}", executable.name))?;
    let tests = output
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(files: &[&str], shard: &str) -> Turn {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Turn {
            packages: Packages::default(),
            since: Since::Commit("c".to_owned(), files),
            shard: Some(shard.parse().unwrap()),
            full: false,
        }
    }

    #[test]
    fn arm64_is_built_after_changes_or_in_turn() {
        for file in [
            "Cargo.lock",
            "bpf/core/abi.h",
            "crates/edge/bpf/build.rs",
            "crates/edge/bpf/Cargo.toml",
            "xtask/src/cross.rs",
        ] {
            assert!(cross(&turn(&[file], "2/4")).is_ok(), "{file}");
        }
        for file in [
            "README.md",
            "crates/edge/bpf/src/lib.rs",
            "xtask/src/build.rs",
        ] {
            assert!(cross(&turn(&[file], "2/4")).is_err(), "{file}");
        }
        assert!(cross(&turn(&[], "1/4")).is_ok());
        let full = Turn {
            full: true,
            ..turn(&[], "2/4")
        };
        assert!(cross(&full).is_ok());
    }

    #[test]
    fn much_is_run_by_halves() {
        let shard = "2/4".parse::<Shard>().unwrap();
        let covers = Covers {
            paths: vec!["tests/own".to_owned()],
            ..Covers::default()
        };
        let other: Vec<String> = (0..200).map(|file| format!("docs/{file}")).collect();
        let part = |files: &[&str]| turn(files, "2/4").part("own", &covers, &Table::default()).0;
        assert_eq!(part(&["tests/own"]), Part::Whole);
        let mut files: Vec<&str> = other.iter().map(String::as_str).collect();
        assert_eq!(part(&files), Part::Share(shard));
        files.push("tests/own");
        assert_eq!(part(&files), Part::Share(shard.doubled()));
    }

    #[test]
    fn a_share_runs_only_where_nothing_changed() {
        let covers = Covers {
            crates: Vec::new(),
            paths: vec!["tests/top".to_owned()],
            ..Covers::default()
        };
        let share = Part::Share("2/4".parse().unwrap());
        let table = Table::default();
        let part = |turn: Turn| turn.part("fairpath-tests/top", &covers, &table);
        assert_eq!(part(turn(&["README.md"], "2/4")), (share, None));
        let (whole, reason) = part(turn(&["tests/top/keys.rs"], "2/4"));
        assert_eq!(whole, Part::Whole);
        assert!(reason.is_some());
        for whole in [
            Turn {
                full: true,
                ..turn(&[], "2/4")
            },
            Turn {
                since: Since::Unknown("no history".to_owned()),
                ..turn(&[], "2/4")
            },
            Turn {
                shard: None,
                ..turn(&[], "2/4")
            },
        ] {
            assert_eq!(part(whole).0, Part::Whole);
        }
    }
}
