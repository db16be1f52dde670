//! The result of a run: blocks of output as programs end, then counts, times and budgets.

use super::outcome::{self, Counts};
use super::plan::{Kind, Work};
use super::process::{End, Ended};
use super::schedule::Job;
use super::table::{self, Class, Table};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The slowest tests that are named.
const SLOWEST: usize = 20;

pub struct TestReport {
    began: Instant,
    pub counts: Counts,
    pub failed: Vec<String>,
    times: Vec<(Duration, String)>,
    steps: Vec<(String, Duration)>,
    cpu_s: BTreeMap<String, f64>,
    programs: Vec<Account>,
    /// Guests' scenarios, with their kernels' names.
    scenarios: Vec<(String, Duration)>,
}

/// The resources that a program used.
struct Account {
    name: String,
    wall_s: f64,
    cpu_s: f64,
    held: Held,
}

/// Its limit.
enum Held {
    /// Of its crate, or of each of its scenarios.
    Elsewhere,
    /// A suite that waits or is alone: its budget of elapsed time, and how many of its tests ran.
    Wall {
        budget: Option<f64>,
        ran: usize,
        of: usize,
    },
    /// A job of the runner's own: its CPU time.
    Cpu,
}

impl TestReport {
    pub fn new() -> TestReport {
        TestReport {
            began: Instant::now(),
            counts: Counts::default(),
            failed: Vec::new(),
            times: Vec::new(),
            steps: Vec::new(),
            cpu_s: BTreeMap::new(),
            programs: Vec::new(),
            scenarios: Vec::new(),
        }
    }

    /// Does a step and notes how long it took.
    pub fn step<T>(&mut self, name: &str, step: impl FnOnce(&mut TestReport) -> T) -> T {
        println!("== {} s: {name}", self.seconds());
        let began = Instant::now();
        let done = step(self);
        self.steps.push((name.to_owned(), began.elapsed()));
        done
    }

    pub fn fail(&mut self, why: String) {
        println!("FAILED: {why}");
        self.failed.push(why);
    }

    /// Nothing has ended for a while.
    pub fn still_running(&self, names: &[&str]) {
        println!("== {} s: running: {}", self.seconds(), names.join(", "));
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// Prints what a job printed, and counts it.
    pub fn ended(&mut self, job: &Job<Work>, ended: &Ended) {
        let took = ended.took.as_secs_f64();
        println!(
            "== {} s: {}: {took:.1} s, {:.1} s of CPU time",
            self.seconds(),
            job.name,
            ended.cpu_s
        );
        for (_, line) in &ended.lines {
            println!("{line}");
        }
        self.account(job, ended);
        let counts = outcome::counts(&ended.lines);
        self.counts.add(counts);
        if let End::Failed(why) = &ended.end {
            if counts.failed == 0 {
                // It ended before it could say so itself.
                self.counts.failed += 1;
            }
            self.fail(format!("{}: {why}", job.name));
        } else if let Some(why) = incomplete(&job.what.kind, counts) {
            self.counts.failed += 1;
            self.fail(format!("{}: {why}", job.name));
        }
    }

    fn account(&mut self, job: &Job<Work>, ended: &Ended) {
        let held = match &job.what.kind {
            Kind::Tests {
                package,
                suite,
                tests,
                of,
            } => {
                let times = outcome::times(tests, suite.threads(), &ended.lines);
                let named = times
                    .into_iter()
                    .map(|(test, time)| (time, format!("{}: {test}", job.name)));
                self.times.extend(named);
                if suite.class == Class::Cpu {
                    *self.cpu_s.entry(package.clone()).or_default() += ended.cpu_s;
                    Held::Elsewhere
                } else {
                    Held::Wall {
                        budget: suite.wall_s,
                        ran: tests.len(),
                        of: *of,
                    }
                }
            }
            Kind::Guest { .. } => {
                let scenarios = outcome::guest_times(&ended.lines);
                let named = scenarios.iter().map(|(name, time)| (*time, name.clone()));
                self.times.extend(named);
                self.scenarios.extend(scenarios);
                Held::Elsewhere
            }
            Kind::Other => Held::Cpu,
        };
        self.programs.push(Account {
            name: job.name.clone(),
            wall_s: ended.took.as_secs_f64(),
            cpu_s: ended.cpu_s,
            held,
        });
    }

    /// Prints where the time went.
    pub fn times(&mut self) {
        println!("\nseconds by step:");
        for (name, time) in &self.steps {
            println!("{:8.1}  {name}", time.as_secs_f64());
        }
        self.programs.sort_by(|a, b| b.wall_s.total_cmp(&a.wall_s));
        println!("\nthe {SLOWEST} slowest programs (wall, CPU seconds):");
        for account in self.programs.iter().take(SLOWEST) {
            println!(
                "{:8.1} {:8.1}  {}",
                account.wall_s, account.cpu_s, account.name
            );
        }
        self.times.sort_by(|a, b| b.cmp(a));
        println!("\nthe {SLOWEST} slowest tests (seconds):");
        for (time, name) in self.times.iter().take(SLOWEST) {
            println!("{:8.1}  {name}", time.as_secs_f64());
        }
        println!("\nCPU seconds by crate, of class cpu:");
        for (package, cpu_s) in &self.cpu_s {
            println!("{cpu_s:8.1}  {package}");
        }
        println!();
    }

    /// Everything that took too long.
    pub fn over_budget(&self, table: &Table) -> Vec<String> {
        let crates = self.cpu_s.iter().filter_map(|(package, took)| {
            let what = format!("crate {package}");
            table::over(&what, *took, table.budget_of(package), "CPU s")
        });
        let programs = self.programs.iter().filter_map(|account| {
            let Account { name, .. } = account;
            match account.held {
                Held::Elsewhere => None,
                Held::Wall { budget, ran, of } => {
                    let budget = budget.map(|budget| table::part_of(budget, ran, of));
                    table::over(name, account.wall_s, budget, "s")
                }
                Held::Cpu => {
                    let budget = table.job_cpu_s.get(name).copied();
                    table::over(name, account.cpu_s, budget, "CPU s")
                }
            }
        });
        let scenarios = self.scenarios.iter().filter_map(|(name, took)| {
            let budget = table.budget_of_scenario(name);
            table::over(name, took.as_secs_f64(), Some(budget), "s")
        });
        crates.chain(programs).chain(scenarios).collect()
    }
}

/// Requested tests that did not end.
fn incomplete(kind: &Kind, counts: Counts) -> Option<String> {
    // An ignored test has not run. A guest says which scenarios it skipped.
    let (requested, ran) = match kind {
        Kind::Tests { tests, .. } => (tests.len(), counts.passed + counts.failed),
        Kind::Guest { scenarios } => (*scenarios, counts.passed + counts.failed + counts.skipped),
        Kind::Other => return None,
    };
    (ran != requested).then(|| format!("{requested} tests were requested, {ran} ran"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_too_few_tests_fails() {
        let kind = Kind::Tests {
            package: String::new(),
            suite: table::Suite::default(),
            tests: vec!["a".to_owned(), "b".to_owned()],
            of: 2,
        };
        let counts = |passed, failed, ignored| Counts {
            passed,
            failed,
            ignored,
            filtered: 7,
            skipped: 0,
        };
        assert_eq!(incomplete(&kind, counts(1, 1, 0)), None);
        assert_eq!(incomplete(&kind, counts(2, 0, 0)), None);
        assert!(incomplete(&kind, counts(1, 0, 1)).is_some());
        assert!(incomplete(&kind, counts(1, 0, 0)).is_some());
        let guest = Kind::Guest { scenarios: 3 };
        let skipped = |skipped| Counts {
            skipped,
            ..counts(1, 1, 0)
        };
        assert_eq!(incomplete(&guest, skipped(1)), None);
        assert!(incomplete(&guest, skipped(0)).is_some());
        assert!(incomplete(&guest, Counts::default()).is_some());
        assert_eq!(incomplete(&Kind::Other, counts(0, 0, 0)), None);
    }
}
