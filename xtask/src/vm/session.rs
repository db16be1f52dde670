//! One boot as a state machine over console lines; the clock and the lines are arguments.
//!
//! ```text
//! booting --ready--> idle <--end/start--> running        every state has a deadline
//!     \________________\______________________\--> over  done, panic, silence or a closed console
//! running --restart--> restarting --closed--> down --(QEMU starts again)--> restarting --start--> running
//! ```
//!
//! A scenario that restarts its guest is one scenario until it reports its end.
//!
//! Invariant: every requested scenario ends up in [`Session::finished`] or in [`Session::remaining`], and a boot that
//! got nowhere finishes at least one, so that booting again for the rest terminates.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::scenario::Scenario;

/// From the start of QEMU to `/init`; 3 s on an idle machine.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(90);
/// The guest ends a scenario at its timeout; this much later the host ends the guest.
pub const SCENARIO_GRACE: Duration = Duration::from_secs(20);
/// From the report of a restart to the second start of the scenario: a shutdown and a boot, whose units load programs.
pub const RESTART_TIMEOUT: Duration = Duration::from_secs(400);
/// Cleaning up between scenarios and powering off.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of the console kept per scenario to be shown when it fails.
const CONSOLE_TAIL_LINES: usize = 80;
/// Begins each line that the guest's harness reports with.
const MARKER: &str = "FAIRPATH-VM ";
/// The output of a kernel that fails. `oops=panic` is on the command line.
const PANIC: &str = "Kernel panic - not syncing";

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A scenario that ended.
#[derive(Debug, Clone)]
pub struct Finished {
    pub scenario: String,
    pub outcome: Outcome,
    /// Checks that passed.
    pub checks: Vec<String>,
    /// Repeated measurements, with their reasons.
    pub repeats: Vec<String>,
    pub took: Duration,
    /// The last output of the console during that time.
    pub console: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Booting,
    Idle,
    Running,
    Restarting,
    Down,
    Over,
}

/// The output of one boot so far.
pub struct Session {
    state: State,
    remaining: VecDeque<Scenario>,
    finished: Vec<Finished>,
    checks: Vec<String>,
    repeats: Vec<String>,
    console: VecDeque<String>,
    began: Instant,
    since: Instant,
    /// Time that the scenario took before its last restart.
    before: Duration,
    /// Of this boot's scenarios.
    restarts: u32,
    boot_time: Option<Duration>,
}

impl Session {
    /// A guest started at `now` that is to run `scenarios` in order.
    pub fn new(scenarios: &[Scenario], now: Instant) -> Self {
        Session {
            state: State::Booting,
            remaining: scenarios.iter().cloned().collect(),
            finished: Vec::new(),
            checks: Vec::new(),
            repeats: Vec::new(),
            console: VecDeque::new(),
            began: now,
            since: now,
            before: Duration::ZERO,
            restarts: 0,
            boot_time: None,
        }
    }

    /// The guest may be silent until then.
    pub fn deadline(&self) -> Instant {
        let scenario = self
            .remaining
            .front()
            .map_or(Duration::ZERO, |scenario| scenario.timeout);
        self.since
            + match self.state {
                State::Booting => BOOT_TIMEOUT,
                State::Running => scenario + SCENARIO_GRACE,
                State::Restarting | State::Down => RESTART_TIMEOUT,
                State::Idle | State::Over => IDLE_TIMEOUT,
            }
    }

    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// True if the guest ended to be started again: with its disk, for the first of [`Session::remaining`].
    pub fn is_down(&self) -> bool {
        self.state == State::Down
    }

    /// Restarts of the guest so far.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// QEMU runs again.
    pub fn restarted(&mut self) {
        self.restarts += 1;
        self.state = State::Restarting;
    }

    /// From the start of QEMU until `/init` was ready.
    pub fn boot_time(&self) -> Option<Duration> {
        self.boot_time
    }

    /// Scenarios that ended, in order.
    pub fn finished(&self) -> &[Finished] {
        &self.finished
    }

    /// Scenarios that have not begun; what another boot is for.
    pub fn remaining(&self) -> Vec<Scenario> {
        self.remaining.iter().cloned().collect()
    }

    /// Takes one line of the console.
    pub fn line(&mut self, line: &str, now: Instant) {
        if self.console.len() == CONSOLE_TAIL_LINES {
            self.console.pop_front();
        }
        if self.state == State::Over {
            return;
        }
        if line.contains(PANIC) {
            return self.lost(
                &format!("the guest's kernel panicked: {}", line.trim()),
                now,
            );
        }
        match report(line) {
            Some(report) => self.report(&report, now),
            None => self.console.push_back(line.to_string()),
        }
    }

    /// The deadline passed without the line that was due.
    pub fn silent(&mut self, now: Instant) {
        let waited = now.duration_since(self.since).as_secs();
        self.lost(&format!("the guest hung: nothing for {waited} s"), now);
    }

    /// The guest's console closed.
    pub fn closed(&mut self, now: Instant) {
        match self.state {
            State::Over | State::Down => {}
            State::Restarting => self.state = State::Down,
            _ => self.lost("the guest ended early", now),
        }
    }

    fn report(&mut self, report: &Value, now: Instant) {
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_string();
        match text("event").as_str() {
            "ready" if self.state == State::Restarting => {}
            "ready" => {
                self.boot_time = Some(now.duration_since(self.began));
                self.enter(State::Idle, now);
            }
            "start" if self.state == State::Restarting => {
                self.before += now.duration_since(self.since);
                (self.state, self.since) = (State::Running, now);
            }
            "start" => self.enter(State::Running, now),
            "restart" if self.state == State::Running => {
                self.before += now.duration_since(self.since);
                (self.state, self.since) = (State::Restarting, now);
            }
            "check" => self.checks.push(text("text")),
            "repeat" => self.repeats.push(text("text")),
            "end" if self.state == State::Running => {
                let outcome = match text("result").as_str() {
                    "pass" => Outcome::Passed,
                    "skip" => Outcome::Skipped(text("reason")),
                    _ => Outcome::Failed(text("reason")),
                };
                self.finish(outcome, now);
                self.enter(State::Idle, now);
            }
            // After a restart, the guest has another root: the others need another boot.
            "done" if self.remaining.is_empty() || self.restarts > 0 => self.state = State::Over,
            "done" => self.lost("the guest reports that it is done", now),
            _ => {}
        }
    }

    /// A new state begins with an empty console.
    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
        self.before = Duration::ZERO;
        self.console.clear();
        self.checks.clear();
        self.repeats.clear();
    }

    fn finish(&mut self, outcome: Outcome, now: Instant) {
        if let Some(scenario) = self.remaining.pop_front() {
            self.finished.push(Finished {
                scenario: scenario.name,
                outcome,
                checks: std::mem::take(&mut self.checks),
                repeats: std::mem::take(&mut self.repeats),
                took: self.before + now.duration_since(self.since),
                console: std::mem::take(&mut self.console).into(),
            });
        }
    }

    /// The guest is gone: the scenario at hand failed; if it never came up, all did, as another boot would not either.
    fn lost(&mut self, why: &str, now: Instant) {
        match self.state {
            State::Booting => {
                let console = self.console.clone();
                while !self.remaining.is_empty() {
                    self.finish(Outcome::Failed(format!("no boot: {why}")), now);
                }
                if let Some(first) = self.finished.first_mut() {
                    first.console = console.into();
                }
            }
            // Nothing is left to begin: it is the last one's doing.
            State::Idle if self.remaining.is_empty() => {
                if let Some(last) = self.finished.last_mut() {
                    last.outcome = Outcome::Failed(format!("after it ended, {why}"));
                }
            }
            State::Idle => self.finish(Outcome::Failed(format!("before it began, {why}")), now),
            State::Running | State::Restarting | State::Down => {
                self.finish(Outcome::Failed(why.to_string()), now);
            }
            State::Over => {}
        }
        self.state = State::Over;
    }
}

/// The harness's report in a line; kernel messages may stand before it.
fn report(line: &str) -> Option<Value> {
    let (_, json) = line.split_once(MARKER)?;
    serde_json::from_str(json.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Which;

    fn scenario(name: &str) -> Scenario {
        Scenario {
            name: name.to_string(),
            kernels: vec![Which::Floor],
            needs: Vec::new(),
            policies: Vec::new(),
            examples: Vec::new(),
            user_space: Default::default(),
            timeout: Duration::from_secs(10),
            script: String::new(),
        }
    }

    fn session(lines: &[&str]) -> Session {
        let now = Instant::now();
        let mut session = Session::new(&[scenario("a"), scenario("b"), scenario("c")], now);
        lines.iter().for_each(|line| session.line(line, now));
        session
    }

    fn outcomes(session: &Session) -> Vec<(&str, Outcome)> {
        session
            .finished()
            .iter()
            .map(|f| (f.scenario.as_str(), f.outcome.clone()))
            .collect()
    }

    const READY: &str = "FAIRPATH-VM {\"event\":\"ready\"}";
    const START: &str = "[ 1.0] noise FAIRPATH-VM {\"event\":\"start\"}\r";
    const PASS: &str = "FAIRPATH-VM {\"event\":\"end\",\"result\":\"pass\"}";
    const FAIL: &str = "FAIRPATH-VM {\"event\":\"end\",\"result\":\"fail\",\"reason\":\"1 != 2\"}";
    const SKIP: &str = "FAIRPATH-VM {\"event\":\"end\",\"result\":\"skip\",\"reason\":\"no tc\"}";
    const DONE: &str = "FAIRPATH-VM {\"event\":\"done\"}";

    #[test]
    fn results_are_distinguished_in_order() {
        let session = session(&[READY, START, PASS, START, FAIL, START, SKIP, DONE]);
        let failed = Outcome::Failed("1 != 2".to_string());
        let skipped = Outcome::Skipped("no tc".to_string());
        assert_eq!(
            outcomes(&session),
            [("a", Outcome::Passed), ("b", failed), ("c", skipped)]
        );
        assert!(session.is_over());
        assert!(session.remaining().is_empty());
    }

    #[test]
    fn repeats_belong_to_their_scenario() {
        const REPEAT: &str = "FAIRPATH-VM {\"event\":\"repeat\",\"text\":\"too slow\"}";
        let session = session(&[
            READY, START, REPEAT, REPEAT, PASS, START, PASS, START, REPEAT, FAIL, DONE,
        ]);
        let repeats: Vec<usize> = session
            .finished()
            .iter()
            .map(|finished| finished.repeats.len())
            .collect();
        assert_eq!(repeats, [2, 0, 1]);
        assert_eq!(session.finished()[2].repeats, ["too slow"]);
    }

    #[test]
    fn panic_fails_one_scenario_and_reboots_for_others() {
        let session = session(&[
            READY,
            START,
            "before",
            "[ 5.1] Kernel panic - not syncing: Fatal exception",
        ]);
        assert!(
            matches!(&outcomes(&session)[..], [("a", Outcome::Failed(why))] if why.contains("panicked"))
        );
        assert_eq!(session.finished()[0].console, ["before"]);
        assert_eq!(
            session
                .remaining()
                .iter()
                .map(|s| s.name.as_str())
                .collect::<Vec<_>>(),
            ["b", "c"]
        );
    }

    #[test]
    fn silence_past_the_timeout_fails_the_running_scenario() {
        let mut session = session(&[READY, START]);
        let deadline = session.deadline();
        assert!(deadline.duration_since(session.since) == Duration::from_secs(10) + SCENARIO_GRACE);
        session.silent(deadline);
        assert!(
            matches!(&outcomes(&session)[..], [("a", Outcome::Failed(why))] if why.contains("hung"))
        );
    }

    #[test]
    fn guest_that_never_boots_fails_everything() {
        let mut session = session(&["Decompressing"]);
        session.closed(Instant::now());
        assert_eq!(session.finished().len(), 3);
        assert!(session.remaining().is_empty());
    }

    #[test]
    fn guest_that_dies_between_scenarios_still_makes_progress() {
        let mut session = session(&[READY, START, PASS]);
        session.closed(Instant::now());
        assert_eq!(session.finished().len(), 2);
        assert_eq!(session.remaining().len(), 1);
    }

    const RESTART: &str = "FAIRPATH-VM {\"event\":\"restart\"}";
    const CHECK: &str = "FAIRPATH-VM {\"event\":\"check\",\"text\":\"kept\"}";

    #[test]
    fn a_restarted_guest_continues_its_scenario() {
        let mut session = session(&[READY, START, CHECK, RESTART, FAIL]);
        assert!(!session.is_down() && !session.is_over());
        let now = Instant::now();
        session.closed(now);
        assert!(session.is_down());
        session.restarted();
        for line in [READY, START, CHECK, PASS, DONE] {
            session.line(line, now);
        }
        assert_eq!(outcomes(&session), [("a", Outcome::Passed)]);
        assert_eq!(session.finished()[0].checks, ["kept", "kept"]);
        assert!(session.is_over());
        assert_eq!(session.remaining().len(), 2);
    }

    #[test]
    fn a_guest_that_stays_down_fails_one_scenario() {
        let mut session = session(&[READY, START, RESTART]);
        session.closed(Instant::now());
        session.restarted();
        session.silent(session.deadline());
        assert!(
            matches!(&outcomes(&session)[..], [("a", Outcome::Failed(why))] if why.contains("hung"))
        );
        assert_eq!(session.remaining().len(), 2);
    }

    #[test]
    fn text_like_a_report_is_console_output() {
        assert!(report("FAIRPATH-VM {\"event\":").is_none());
        assert!(report("hello").is_none());
    }
}
