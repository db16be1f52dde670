//! The final report: every number with its reference, in 100 columns.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::check::Check;
use crate::classes::Reported;
use crate::lab::Leg;
use crate::loss::{ConfiguredLoss, Estimate, Place};
use crate::outcome::{Block, Outcome};
use crate::parts::Part;
use crate::samples::Records;
use crate::schedule::Schedule;
use crate::spread::Spread;

const NOTES: &str = "  router – lan    from the router to the client and back; router – wan: to the server and back.
                  Measured where a packet leaves and where its answer arrives, including the
                  router's egress queue. Data up measures the server's leg, data down the client's.
  both legs       sums of the two lines above: the path from end to end.
  ping reports    the same echo requests, as ping timed them (resolution 0.1 ms).
  ss -ti reports  the senders' kernels: the minimum RTT, then the spread of the smoothed RTT.
  upstr, downstr  upstream: a hole in the arrivals at the router, filled later; downstream: passed
                  twice, because the first was lost. Shares of the packets with data.
  resent          retransmitted segments, as the senders' kernels counted.
  by class        the last minute of all this traffic as the daemon counted it: inside (IN) is the
                  client's side, outside (OUT) the server's; LOAD scores the delay under load.
  a call          simulated: `fairpath sched run` sends ten greedy transfers and one call through a
                  100 Mbit/s link. Total rate of the transfers, and sojourn times of the call's
                  packets.
  the dropper     XDP; dropped and eligible packets. The check is the 99 % interval of the share.
";

/// A line of the report; the check is next to its numbers.
struct CheckedLine {
    text: String,
    check: Option<Check>,
}

/// The results of all parts.
pub struct DemoReport {
    times: Vec<CheckedLine>,
    losses: Vec<CheckedLine>,
    others: Vec<CheckedLine>,
    /// A simulated link.
    schedule: Vec<CheckedLine>,
    /// `fairpath top --once` at the end.
    classes: String,
    samples: usize,
}

impl DemoReport {
    /// Looks every part up in the records.
    pub fn new(
        done: &[(Part, anyhow::Result<Outcome>)],
        records: &Records,
        reported: Reported,
        schedule: anyhow::Result<Schedule>,
        wire_drops: u64,
    ) -> DemoReport {
        let mut report = DemoReport {
            times: Vec::new(),
            losses: Vec::new(),
            others: Vec::new(),
            schedule: Vec::new(),
            classes: reported.table,
            samples: records.len(),
        };
        let pings = Pings::of(done);
        for (part, outcome) in done {
            match outcome {
                Ok(outcome) => report.part(outcome, records, &pings),
                Err(error) => {
                    let failed = Check::new(false, format!("{}: {error:#}", part.title));
                    report.other(failed);
                }
            }
        }
        for check in reported.checks {
            report.other(check);
        }
        match schedule {
            Ok(schedule) => report.schedule(schedule),
            Err(error) => report.other(Check::new(false, format!("{error:#}"))),
        }
        let lost = records.events_lost;
        let claim = format!("no sample was lost on its way to user space ({lost})");
        report.other(Check::new(lost == 0, claim));
        if wire_drops > 0 {
            report.others.push(CheckedLine {
                text: format!(
                    "  note: the wires themselves lost {wire_drops} frames; the machine is busy"
                ),
                check: None,
            });
        }
        report
    }

    /// Checks that do not hold.
    pub fn failed(&self) -> usize {
        self.checks().filter(|check| !check.holds).count()
    }

    fn checks(&self) -> impl Iterator<Item = &Check> {
        let lines = self.times.iter().chain(&self.losses);
        let lines = lines.chain(&self.schedule).chain(&self.others);
        lines.filter_map(|line| line.check.as_ref())
    }

    /// The report for people.
    pub fn text(&self, elapsed: Duration, samples: &Path) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out, elapsed, samples);
        out
    }

    fn write(&self, out: &mut String, elapsed: Duration, samples: &Path) -> std::fmt::Result {
        let [lan, wan] = Leg::ALL.map(|leg| leg.configured_ms() / 2.0);
        writeln!(
            out,
            "\nclient ──[{lan} ms each way]── lan, router, wan ──[{wan} ms each way]── server"
        )?;
        let heading = row(
            "Round-trip times, ms",
            ["samples", "min", "median", "p95", "max"],
        );
        writeln!(out, "\n{}", heading.trim_end())?;
        lines(out, &self.times)?;
        let heading = loss_row("Loss of data", ["passed", "upstr", "downstr", "resent"]);
        writeln!(out, "\n{}", heading.trim_end())?;
        lines(out, &self.losses)?;
        writeln!(out, "\nBy class, as `fairpath top --once` has it\n")?;
        for line in self.classes.lines() {
            writeln!(out, "  {line}")?;
        }
        let heading = schedule_row(
            "A call during ten transfers",
            ["Mbit/s", "median", "p99", "max"],
        );
        writeln!(out, "\n{}", heading.trim_end())?;
        lines(out, &self.schedule)?;
        writeln!(out, "\nOther checks")?;
        lines(out, &self.others)?;
        write!(out, "\nNotes\n{NOTES}\n")?;
        writeln!(out, "{} samples in {}", self.samples, samples.display())?;
        let (failed, all) = (self.failed(), self.checks().count());
        let seconds = elapsed.as_secs_f64();
        match failed {
            0 => writeln!(out, "✓ all {all} checks passed; {seconds:.0} s"),
            _ => writeln!(out, "✗ {failed} of {all} checks failed; {seconds:.0} s"),
        }
    }

    fn other(&mut self, check: Check) {
        self.others.push(CheckedLine {
            text: "  ".to_owned(),
            check: Some(check),
        });
    }

    fn schedule(&mut self, schedule: Schedule) {
        for line in schedule.rows {
            let [p50, p99, longest] = line.call_ms.map(|ms| format!("{ms:.2}"));
            let rate = format!("{:.1}", line.transfers_mbps);
            let label = format!("  {}", line.policy);
            self.schedule.push(CheckedLine {
                text: schedule_row(&label, [&rate, &p50, &p99, &longest]),
                check: line.check,
            });
        }
        for check in schedule.checks {
            self.other(check);
        }
    }

    fn part(&mut self, outcome: &Outcome, records: &Records, pings: &Pings) {
        for block in &outcome.blocks {
            self.block(block, records, pings);
            self.loss(block, outcome, records);
        }
        let Some((completed, made)) = outcome.connections else {
            return;
        };
        let seen: usize = outcome
            .blocks
            .iter()
            .map(|b| records.flows(b.traffic))
            .sum();
        let claim = format!("{completed} of {made} short connections answered");
        self.other(Check::new(completed == made, claim));
        let claim = format!("{seen} of {made} short connections measured by fairpath rtt");
        self.other(Check::new(seen as u64 == made, claim));
    }

    /// Round-trip times of one kind of traffic.
    fn block(&mut self, block: &Block, records: &Records, pings: &Pings) {
        let mut line = |text, check| self.times.push(CheckedLine { text, check });
        line(block.title.clone(), None);
        let legs = Leg::ALL.map(|leg| records.spread(block.traffic, leg));
        for (leg, rtt) in Leg::ALL.into_iter().zip(&legs) {
            let label = format!("  router – {}", leg.interface());
            let check = Check::leg(rtt.min(), leg.configured_ms());
            line(spread_row(&label, rtt, rtt.min()), Some(check));
        }
        let sum = |of: fn(&Spread) -> Option<f64>| Some(of(&legs[0])? + of(&legs[1])?);
        let (min, median) = (sum(Spread::min), sum(Spread::median));
        let check = match (&block.peer, block.is_ping()) {
            (Some(ping), true) => Check::at_most(median, ping.rtt.median(), "ping's"),
            _ => Check::agree(min, pings.min(block.v6), "ping's"),
        };
        let cells = row("  both legs", ["", &ms(min), &ms(median), "", ""]);
        line(cells, Some(check));
        if let Some(peer) = &block.peer {
            let label = format!("  {}", peer.name);
            let check = Check::agree(peer.min_ms, min, "both legs'");
            line(spread_row(&label, &peer.rtt, peer.min_ms), Some(check));
        }
    }

    /// Loss of one kind of traffic, a line a direction.
    fn loss(&mut self, block: &Block, outcome: &Outcome, records: &Records) {
        if block.is_ping() {
            return;
        }
        for (n, (from, direction)) in [(Leg::Lan, "up"), (Leg::Wan, "down")]
            .into_iter()
            .enumerate()
        {
            let estimate = Estimate::of(records, block.traffic, from);
            let label = format!("{}, {direction}", block.title);
            let text = estimate_row(&label, &estimate, outcome.retransmits.get(n).copied());
            match outcome.configured.filter(|_| from == Leg::Lan) {
                Some(configured) => self.configured_loss(text, &estimate, &configured),
                None => {
                    let worst = estimate.share_before().max(estimate.share_beyond());
                    let check = Some(Check::clean(worst, "each"));
                    self.losses.push(CheckedLine { text, check });
                }
            }
        }
    }

    /// The configured share, and the remaining loss where none is configured.
    fn configured_loss(&mut self, text: String, estimate: &Estimate, configured: &ConfiguredLoss) {
        let (before, beyond) = (estimate.share_before(), estimate.share_beyond());
        let (here, there, where_else) = match configured.place {
            Place::Before => (before, beyond, "downstream"),
            Place::Beyond => (beyond, before, "upstream"),
        };
        let check = Some(Check::within(here, configured.interval(), "configured"));
        self.losses.push(CheckedLine { text, check });
        let label = format!(
            "  the dropper: {} of {}, {}",
            configured.dropped,
            configured.eligible,
            percent(configured.dropped as f64 / configured.eligible.max(1) as f64)
        );
        let check = Some(Check::clean(there, where_else));
        let text = loss_row(&label, [""; 4]);
        self.losses.push(CheckedLine { text, check });
    }
}

/// The minimum RTT of ping, by family.
struct Pings([Option<f64>; 2]);

impl Pings {
    fn of(done: &[(Part, anyhow::Result<Outcome>)]) -> Pings {
        let outcomes = done.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        let blocks: Vec<&Block> = outcomes.flat_map(|outcome| &outcome.blocks).collect();
        Pings([false, true].map(|v6| {
            let mut pings = blocks.iter().filter(|b| b.is_ping() && b.v6 == v6);
            pings.next()?.peer.as_ref()?.min_ms
        }))
    }

    fn min(&self, v6: bool) -> Option<f64> {
        self.0[usize::from(v6)]
    }
}

fn lines(out: &mut String, lines: &[CheckedLine]) -> std::fmt::Result {
    for line in lines {
        match &line.check {
            Some(check) => writeln!(out, "{}{check}", line.text)?,
            None => writeln!(out, "{}", line.text.trim_end())?,
        }
    }
    Ok(())
}

/// 66 columns, then two spaces before the check.
fn row(label: &str, [samples, min, median, p95, max]: [&str; 5]) -> String {
    format!("{label:<22}{samples:>8}{min:>9}{median:>9}{p95:>9}{max:>9}  ")
}

fn spread_row(label: &str, rtt: &Spread, min_ms: Option<f64>) -> String {
    let samples = rtt.len().to_string();
    let [min, median, p95, max] = [min_ms, rtt.median(), rtt.quantile(0.95), rtt.max()].map(ms);
    row(label, [&samples, &min, &median, &p95, &max])
}

fn loss_row(label: &str, [passed, before, beyond, resent]: [&str; 4]) -> String {
    format!("{label:<40}{passed:>7}{before:>8}{beyond:>8}{resent:>7}  ")
}

fn schedule_row(label: &str, [transfers, median, p99, max]: [&str; 4]) -> String {
    format!("{label:<30}{transfers:>9}{median:>9}{p99:>9}{max:>9}  ")
}

fn estimate_row(label: &str, estimate: &Estimate, resent: Option<u64>) -> String {
    let passed = estimate.passed.to_string();
    let [before, beyond] = [estimate.share_before(), estimate.share_beyond()].map(percent);
    let resent = resent.map(|n| n.to_string()).unwrap_or_default();
    loss_row(label, [&passed, &before, &beyond, &resent])
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn ms(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::parts::Plan;

    #[test]
    fn a_part_that_failed_fails_the_report() {
        let part = Plan::QUICK.parts()[0];
        let failed = [(part, Err(anyhow!("no route to host")))];
        let report = DemoReport::new(
            &failed,
            &Records::default(),
            Reported::default(),
            Ok(Schedule::default()),
            0,
        );
        assert_eq!(report.failed(), 1);
        let text = report.text(Duration::ZERO, Path::new("samples.jsonl"));
        assert!(text.contains("✗ ping, IPv4 and IPv6, from both ends: no route to host"));
        assert!(text.ends_with("✗ 1 of 2 checks failed; 0 s\n"), "{text}");
    }

    #[test]
    fn samples_that_got_lost_fail_the_report() {
        let mut records = Records::default();
        records.events_lost = 1;
        assert_eq!(
            DemoReport::new(
                &[],
                &records,
                Reported::default(),
                Ok(Schedule::default()),
                0
            )
            .failed(),
            1
        );
    }

    #[test]
    fn rows_and_notes_fit_100_columns() {
        let spread = Spread::new([12.0, 1234.5]);
        let check = Check::at_most(spread.median(), spread.max(), "ping's");
        let row = format!(
            "{}{check}",
            spread_row("  ss -ti reports", &spread, spread.min())
        );
        for line in NOTES.lines().chain([row.as_str()]) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
