//! The report of a run: one line per direction each second, and JSON.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use fairpath_files::Existing;
use serde::Serialize;

use crate::counts::Counts;
use crate::own_drops::OwnDrops;
use crate::validation::{self, Configured, Validation, percent};

/// A direction in reports.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The name, such as "to-peer" or "from-peer".
    pub name: &'static str,
    /// The configuration as text.
    pub text: String,
    /// The configuration as numbers.
    pub configured: Configured,
    /// There is a rate, and so a queue before it.
    pub has_queue: bool,
}

/// The report of all directions at one time.
#[derive(Clone, Debug, Serialize)]
pub struct ImpairmentReport {
    /// The schema number, which changes when a key changes its meaning or is removed.
    schema: u32,
    /// Seconds since packets were first impaired.
    elapsed_s: f64,
    backend: &'static str,
    seed: u64,
    /// True if the run was as configured.
    #[serde(rename = "valid")]
    is_valid: bool,
    /// The reasons why the run is invalid.
    reasons: Vec<String>,
    /// Directions without packets, which are not validated.
    directions_without_packets: Vec<&'static str>,
    #[serde(rename = "final")]
    is_final: bool,
    directions: Vec<DirectionReport>,
}

/// The report of a direction. Values that a back end does not have are null.
#[derive(Clone, Debug, Serialize)]
struct DirectionReport {
    name: &'static str,
    backend: &'static str,
    configuration: String,
    enqueued_packets: u64,
    lost_packets: u64,
    loss_ratio: Option<f64>,
    configured_loss_ratio: f64,
    loss_interval_ratio: [f64; 2],
    /// Dropped by the queue before the rate.
    queue_dropped_packets: u64,
    marked_packets: u64,
    /// p50, p95, p99.
    sojourn_ns: Option<[u64; 3]>,
    bypassed_packets: u64,
    sent_packets: u64,
    sent_bytes: u64,
    duplicated_packets: u64,
    corrupted_packets: u64,
    backlog_packets: u64,
    /// Unplanned drops of the back end.
    backend_dropped_packets: u64,
    backend_drops: OwnDrops,
    /// Dropped in the kernel before the impairment.
    kernel_dropped_packets: u64,
    stopped_packets: u64,
    gso_packets: u64,
    configured_delay_ns: Option<f64>,
    mean_delay_ns: Option<f64>,
    planned_delay_ns: Option<f64>,
    delay_deviation_ns: Option<f64>,
    planned_deviation_ns: Option<f64>,
    lateness_deviation_ns: Option<f64>,
    /// p50, p99, p99.9, maximum.
    lateness_ns: Option<[u64; 4]>,
    reordered_packets: u64,
    #[serde(rename = "valid")]
    is_valid: bool,
}

impl ImpairmentReport {
    /// The report of these counts, by direction.
    pub fn new(
        directions: &[Direction],
        counts: &[Counts],
        engine: &'static str,
        seed: u64,
        elapsed: Duration,
    ) -> ImpairmentReport {
        let mut report = ImpairmentReport {
            schema: 1,
            elapsed_s: elapsed.as_secs_f64(),
            backend: engine,
            seed,
            is_valid: true,
            reasons: Vec::new(),
            directions_without_packets: Vec::new(),
            is_final: false,
            directions: Vec::new(),
        };
        for (direction, counts) in directions.iter().zip(counts) {
            let validation = validation::validate(&direction.configured, counts);
            let of = |why: &String| format!("{}: {why}", direction.name);
            report.reasons.extend(validation.why.iter().map(of));
            if counts.arrived == 0 && direction.text != "none" {
                report.directions_without_packets.push(direction.name);
            }
            report
                .directions
                .push(report_of(direction, counts, &validation, engine));
        }
        report.is_valid = report.reasons.is_empty();
        report
    }

    /// Marks the last report of a run.
    #[must_use]
    pub fn at_the_end(mut self) -> ImpairmentReport {
        self.is_final = true;
        self
    }

    /// Adds a reason, found by the caller, why the run is invalid.
    pub fn add_why(&mut self, why: String) {
        self.reasons.push(why);
        self.is_valid = false;
    }

    /// True if the run was as configured.
    pub fn is_true(&self) -> bool {
        self.is_valid
    }

    /// One line per direction, and the validation in the last report.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for direction in &self.directions {
            text += &line(direction);
            text.push('\n');
        }
        if self.is_final {
            let waiting = self.directions.iter().filter(|one| one.backlog_packets > 0);
            waiting.for_each(|one| text += &rest(one));
        }
        if self.is_final && self.is_valid {
            text += &self.summary_of_a_valid_run();
        }
        if self.is_final && !self.is_valid {
            text += &format!("invalid: {}\n", self.reasons.join("; "));
        }
        text
    }
}

impl ImpairmentReport {
    fn summary_of_a_valid_run(&self) -> String {
        let names = self.directions_without_packets.join(" and ");
        if names.is_empty() {
            "valid: the network was as configured\n".to_owned()
        } else if self.directions_without_packets.len() == self.directions.len() {
            format!("not validated: no packets in direction {names}\n")
        } else {
            format!("valid, but no packets in direction {names}\n")
        }
    }
}

fn report_of(
    direction: &Direction,
    counts: &Counts,
    validation: &Validation,
    backend: &'static str,
) -> DirectionReport {
    let delays = counts.mean_delays_ns();
    DirectionReport {
        name: direction.name,
        backend,
        configuration: direction.text.clone(),
        enqueued_packets: counts.arrived,
        lost_packets: counts.lost,
        loss_ratio: validation.loss,
        configured_loss_ratio: direction.configured.loss,
        loss_interval_ratio: validation.loss_interval,
        queue_dropped_packets: counts.dropped,
        marked_packets: counts.marked,
        // There is no queue without a rate.
        sojourn_ns: counts.sojourn_ns.filter(|_| direction.has_queue),
        bypassed_packets: counts.passed,
        sent_packets: counts.sent,
        sent_bytes: counts.sent_bytes,
        duplicated_packets: counts.copies,
        corrupted_packets: counts.corrupted,
        backlog_packets: counts.held,
        backend_dropped_packets: counts.own.sum(),
        backend_drops: counts.own,
        kernel_dropped_packets: counts.queue_dropped,
        stopped_packets: counts.stopped,
        gso_packets: counts.gso_packets,
        configured_delay_ns: direction.configured.delay_ns,
        mean_delay_ns: delays.map(|(added, _)| added),
        planned_delay_ns: delays.map(|(_, planned)| planned),
        delay_deviation_ns: counts.delay_deviation_ns(),
        planned_deviation_ns: counts.planned_deviation_ns(),
        lateness_deviation_ns: counts.lateness_deviation_ns(),
        lateness_ns: counts.lateness_ns(),
        reordered_packets: counts.reordered,
        is_valid: validation.why.is_empty(),
    }
}

fn line(of: &DirectionReport) -> String {
    let mut line = format!("{:<9} {:>9} packets", of.name, of.enqueued_packets);
    if let Some(loss) = of.loss_ratio {
        let [low, high] = of.loss_interval_ratio;
        line += &format!(
            ", loss {} (configured {}, interval {} to {})",
            percent(loss),
            percent(of.configured_loss_ratio),
            percent(low),
            percent(high)
        );
    }
    if of.queue_dropped_packets > 0 {
        line += &format!(", {} dropped by the queue", of.queue_dropped_packets);
    }
    if of.marked_packets > 0 {
        line += &format!(", {} marked", of.marked_packets);
    }
    if of.bypassed_packets > 0 {
        line += &format!(", {} bypassed", of.bypassed_packets);
    }
    match (of.mean_delay_ns, of.configured_delay_ns) {
        (Some(mean), Some(configured)) => {
            line += &format!(
                ", delay {:.3} ms (configured {:.3})",
                mean / 1e6,
                configured / 1e6
            );
        }
        (Some(mean), None) => line += &format!(", delay {:.3} ms", mean / 1e6),
        _ => {}
    }
    if let Some([p50, p99, p999, max]) = of.lateness_ns {
        let us = |ns: u64| ns as f64 / 1e3;
        line += &format!(
            ", lateness p50 {:.0} p99 {:.0} p99.9 {:.0} max {:.0} us",
            us(p50),
            us(p99),
            us(p999),
            us(max)
        );
    }
    let unplanned = of.backend_dropped_packets + of.kernel_dropped_packets;
    if unplanned > 0 {
        line += &format!(", {unplanned} unplanned drops");
    }
    if of.stopped_packets > 0 {
        line += &format!(", at least {} dropped after it", of.stopped_packets);
    }
    line
}

/// The outcome of packets that wait at the end. With NFQUEUE the kernel accepts them.
fn rest(of: &DirectionReport) -> String {
    let outcome = match of.backend {
        "nfqueue" => "sent without delay",
        _ => "dropped",
    };
    let (name, packets) = (of.name, of.backlog_packets);
    format!("{name:<9} {packets:>9} packets in the backlog at the end were {outcome}\n")
}

/// The destination of JSON lines.
pub struct Json(Box<dyn Write>);

impl Json {
    /// Opens a file, or standard output for "-".
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Json> {
        if path == Path::new("-") {
            return Ok(Json(Box::new(io::stdout())));
        }
        let file = fairpath_files::output(path, Existing::Truncate);
        let file = file.with_context(|| format!("write {}", path.display()))?;
        Ok(Json(Box::new(file)))
    }

    /// Writes a report as one line.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn write(&mut self, report: &ImpairmentReport) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(report).context("write the report")?;
        line.push('\n');
        let to = &mut self.0;
        to.write_all(line.as_bytes())
            .and_then(|()| to.flush())
            .context("write the report")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction() -> Direction {
        Direction {
            name: "to-peer",
            text: "loss 1%".into(),
            configured: Configured {
                loss: 0.01,
                inflation: 1.0,
                ..Configured::default()
            },
            has_queue: false,
        }
    }

    fn report(lost: u64) -> ImpairmentReport {
        let counts = Counts {
            arrived: 10_000,
            lost,
            ..Counts::default()
        };
        let time = Duration::from_secs(1);
        ImpairmentReport::new(&[direction()], &[counts], "xdp", 7, time)
    }

    #[test]
    fn json_has_its_documented_keys() {
        let value = serde_json::to_value(report(104).at_the_end()).unwrap();
        assert_eq!(
            (&value["valid"], &value["final"]),
            (&true.into(), &true.into())
        );
        let direction = &value["directions"][0];
        assert_eq!(direction["lost_packets"], 104);
        assert_eq!(direction["configured_loss_ratio"], 0.01);
        assert!(direction["loss_interval_ratio"][0].as_f64().unwrap() < 0.01);
        assert!(direction["lateness_ns"].is_null() && direction["mean_delay_ns"].is_null());
    }

    #[test]
    fn json_has_sojourn_times_and_drops_by_cause() {
        let counts = Counts {
            arrived: 10,
            marked: 3,
            sojourn_ns: Some([1_000, 2_000, 3_000]),
            own: OwnDrops {
                no_link: 2,
                no_copy: 1,
                ..OwnDrops::default()
            },
            ..Counts::default()
        };
        let of = |has_queue| {
            let direction = Direction {
                has_queue,
                ..direction()
            };
            let time = Duration::from_secs(1);
            let counts = std::slice::from_ref(&counts);
            let report = ImpairmentReport::new(&[direction], counts, "afxdp", 7, time);
            serde_json::to_value(report).unwrap()["directions"][0].clone()
        };
        let queued = of(true);
        assert_eq!(
            queued["sojourn_ns"],
            serde_json::json!([1_000, 2_000, 3_000])
        );
        assert_eq!(
            (
                &queued["marked_packets"],
                &queued["backend_dropped_packets"]
            ),
            (&3.into(), &3.into())
        );
        assert_eq!(queued["backend_drops"]["link_down_packets"], 2);
        assert!(of(false)["sojourn_ns"].is_null());
    }

    #[test]
    fn impaired_direction_without_packets_is_named() {
        let none = Direction {
            name: "from-peer",
            text: "none".into(),
            configured: Configured::default(),
            has_queue: false,
        };
        let of = |directions: &[Direction], arrived: [u64; 2]| {
            let counts = arrived.map(|arrived| Counts {
                arrived,
                lost: arrived / 100,
                ..Counts::default()
            });
            let report =
                ImpairmentReport::new(directions, &counts, "xdp", 7, Duration::from_secs(1));
            report.at_the_end().text()
        };
        let both = [direction(), direction()];
        assert!(of(&both, [1_000, 0]).contains("valid, but no packets in direction to-peer"));
        let one = [direction(), none];
        assert!(of(&one, [1_000, 0]).contains("valid: the network"));
        assert!(of(&both, [0, 0]).contains("not validated"));
    }

    #[test]
    fn invalid_run_has_its_reasons() {
        let text = report(200).at_the_end().text();
        assert!(text.contains("invalid: to-peer: 200 of 10000"), "{text}");
        let text = report(104).at_the_end().text();
        assert!(
            text.ends_with("\nvalid: the network was as configured\n"),
            "{text}"
        );
        let mut report = report(104);
        report.directions_without_packets = vec!["to-peer"];
        let text = report.clone().at_the_end().text();
        assert!(text.contains("not validated: no packets"), "{text}");
        assert!(!text.contains("valid:"), "{text}");
        report.add_why("the interface went".into());
        assert!(!report.is_true());
    }
}
