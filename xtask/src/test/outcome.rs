//! The output of runners: how many tests passed, and how long each took.
//!
//! libtest does not print times. It runs tests in the order of its list, and as many at once as it has
//! threads: test number k begins when test k minus threads, in the order of completion, has ended.

use super::process::TimedLine;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
    pub filtered: usize,
    /// Scenarios of guests; libtest knows no skips.
    pub skipped: usize,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.filtered += other.filtered;
        self.skipped += other.skipped;
    }
}

/// The sum of libtest's closing lines, and of those of the guests' runner.
pub fn counts(lines: &[TimedLine]) -> Counts {
    let mut sum = Counts::default();
    for (_, line) in lines {
        let result = line.strip_prefix("test result: ");
        let result = result.and_then(|rest| rest.split_once(". "));
        if let Some((_, rest)) = result {
            sum.add(numbers(rest));
        } else if line.starts_with(|c: char| c.is_ascii_digit()) && line.ends_with(" skipped") {
            sum.add(numbers(line));
        }
    }
    sum
}

/// `38 passed; 0 failed; ...`, separated by semicolons or commas.
fn numbers(text: &str) -> Counts {
    let mut counts = Counts::default();
    for part in text.split([';', ',']) {
        let Some((number, what)) = part.trim().split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        match what {
            "passed" => counts.passed = number,
            "failed" => counts.failed = number,
            "ignored" => counts.ignored = number,
            "filtered out" => counts.filtered = number,
            "skipped" => counts.skipped = number,
            _ => {}
        }
    }
    counts
}

/// The time of each test, in the order of completion. `order` is libtest's list.
pub fn times(order: &[String], threads: usize, lines: &[TimedLine]) -> Vec<(String, Duration)> {
    let ends = ends(lines);
    let begins = |place: usize| match place.checked_sub(threads) {
        Some(before) => ends.get(before).map_or(Duration::ZERO, |(at, _)| *at),
        None => Duration::ZERO,
    };
    ends.iter()
        .map(|(at, name)| {
            let place = order.iter().position(|known| known == name);
            let began = place.map_or(*at, begins);
            ((*name).to_owned(), at.saturating_sub(began))
        })
        .collect()
}

/// When each test ended. Where one thread runs tests, libtest prints the name first; what the test's own
/// programs print may then stand between the name and the end.
fn ends(lines: &[TimedLine]) -> Vec<(Duration, &str)> {
    let mut ends = Vec::new();
    let mut begun = None;
    for (at, line) in lines {
        let named = line.strip_prefix("test ");
        let named = named.and_then(|rest| rest.split_once(" ... "));
        if let Some((name, _)) = named {
            begun = Some(name.trim_end_matches(" - should panic"));
        }
        let is_end = ["ok", "FAILED", "ignored"].iter().any(|end| {
            let before = line.strip_suffix(end);
            before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
        });
        if is_end && let Some(name) = begun.take() {
            ends.push((*at, name));
        }
    }
    ends
}

/// The time of each scenario of a guest: `test floor/shape ... ok (7 checks, 31.4 s)`.
pub fn guest_times(lines: &[TimedLine]) -> Vec<(String, Duration)> {
    lines
        .iter()
        .filter_map(|(_, line)| {
            let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
            let (_, rest) = rest.split_once('(')?;
            let (inside, _) = rest.split_once(" s)")?;
            let seconds = inside.rsplit([' ', '(']).next()?.parse().ok()?;
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, line: &str) -> TimedLine {
        (Duration::from_millis(ms), line.to_owned())
    }

    #[test]
    fn closing_lines_are_added_up() {
        let lines = [
            at(
                1,
                "test result: ok. 38 passed; 0 failed; 1 ignored; 0 measured; 12 filtered out; finished in 0.41s",
            ),
            at(
                2,
                "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.41s",
            ),
            at(3, "7 passed, 1 failed, 2 skipped"),
            at(4, "a test result: ok. 9 passed"),
        ];
        assert_eq!(
            counts(&lines),
            Counts {
                passed: 47,
                failed: 4,
                ignored: 1,
                filtered: 12,
                skipped: 2
            }
        );
    }

    #[test]
    fn a_test_begins_when_a_thread_is_free() {
        let order = ["a", "b", "c", "d"].map(str::to_owned);
        let lines = [
            at(0, "running 4 tests"),
            at(10, "test b ... ok"),
            at(30, "test c ... FAILED"),
            at(40, "some test's words"),
            at(50, "test a ... ok"),
            at(90, "test d ... ok"),
        ];
        let ms = |threads| -> Vec<(String, u128)> {
            let times = times(&order, threads, &lines);
            times.into_iter().map(|(n, t)| (n, t.as_millis())).collect()
        };
        let named = |pairs: [(&str, u128); 4]| pairs.map(|(n, t)| (n.to_owned(), t)).to_vec();
        assert_eq!(ms(2), named([("b", 10), ("c", 20), ("a", 50), ("d", 60)]));
        assert_eq!(ms(4), named([("b", 10), ("c", 30), ("a", 50), ("d", 90)]));
    }

    #[test]
    fn test_output_does_not_hide_the_result() {
        let order = ["a", "b"].map(str::to_owned);
        let lines = [
            at(10, "test a ... words of a program"),
            at(20, "more of them"),
            at(30, "ok"),
            at(35, "test b ... ok"),
        ];
        let times = times(&order, 1, &lines);
        let ms: Vec<u128> = times.iter().map(|(_, time)| time.as_millis()).collect();
        assert_eq!(ms, [30, 5]);
    }

    #[test]
    fn scenarios_of_guests_report_their_results() {
        let lines = [
            at(1, "test floor/shape ... ok (7 checks, 31.4 s)"),
            at(2, "test floor/sched ... FAILED (2.5 s): no (9 s) reason"),
            at(3, "test floor/x ... skipped: no tc"),
        ];
        let times = guest_times(&lines);
        assert_eq!(
            times[0],
            ("floor/shape".to_owned(), Duration::from_secs_f64(31.4))
        );
        assert_eq!(
            times[1],
            ("floor/sched".to_owned(), Duration::from_secs_f64(2.5))
        );
        assert_eq!(times.len(), 2);
    }
}
