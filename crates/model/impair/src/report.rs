//! What is told of a run: a line a direction each second, and JSON for programs.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::counts::Counts;
use crate::own_drops::OwnDrops;
use crate::truth::{self, Asked, Truth, percent};

/// A direction as it is told.
#[derive(Clone, Debug)]
pub struct Direction {
    /// "to-peer", "from-peer", "out" or "in".
    pub name: &'static str,
    /// What was asked for, in words.
    pub text: String,
    /// Likewise, in numbers.
    pub asked: Asked,
    /// There is a rate, and so a queue before it.
    pub has_queue: bool,
}

/// Of all directions, at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The form of this object; it grows, and changes its number where a field changes its meaning.
    schema: u32,
    /// Seconds since packets were first impaired.
    elapsed_s: f64,
    engine: &'static str,
    seed: u64,
    /// Whether all was as asked for.
    #[serde(rename = "true")]
    is_true: bool,
    /// What was not.
    why: Vec<String>,
    /// Directions that no packet came by: what was asked of them is not shown to be.
    unseen: Vec<&'static str>,
    #[serde(rename = "final")]
    is_final: bool,
    directions: Vec<Told>,
}

/// A direction; what a port does not have is null.
#[derive(Clone, Debug, Serialize)]
struct Told {
    name: &'static str,
    engine: &'static str,
    asked: String,
    packets: u64,
    lost: u64,
    loss: Option<f64>,
    loss_asked: f64,
    loss_interval: [f64; 2],
    queue_lost: u64,
    marked: u64,
    sojourn_ns: Option<[u64; 3]>,
    passed: u64,
    sent: u64,
    sent_bytes: u64,
    duplicated: u64,
    corrupted: u64,
    held: u64,
    own_dropped: u64,
    own_drops: OwnDrops,
    queue_dropped: u64,
    stopped: u64,
    super_packets: u64,
    delay_asked_ns: Option<f64>,
    delay_mean_ns: Option<f64>,
    delay_planned_ns: Option<f64>,
    delay_deviation_ns: Option<f64>,
    lateness_ns: Option<[u64; 4]>,
    reordered: u64,
    #[serde(rename = "true")]
    is_true: bool,
}

impl Report {
    /// Of these counts, by direction.
    pub fn new(
        directions: &[Direction],
        counts: &[Counts],
        engine: &'static str,
        seed: u64,
        elapsed: Duration,
    ) -> Report {
        let mut report = Report {
            schema: 1,
            elapsed_s: elapsed.as_secs_f64(),
            engine,
            seed,
            is_true: true,
            why: Vec::new(),
            unseen: Vec::new(),
            is_final: false,
            directions: Vec::new(),
        };
        for (direction, counts) in directions.iter().zip(counts) {
            let truth = truth::judge(&direction.asked, counts);
            let of = |why: &String| format!("{}: {why}", direction.name);
            report.why.extend(truth.why.iter().map(of));
            if counts.came == 0 && direction.text != "none" {
                report.unseen.push(direction.name);
            }
            report
                .directions
                .push(told(direction, counts, &truth, engine));
        }
        report.is_true = report.why.is_empty();
        report
    }

    /// The last one.
    #[must_use]
    pub fn at_the_end(mut self) -> Report {
        self.is_final = true;
        self
    }

    /// Why it is not true what it could not see itself.
    pub fn add_why(&mut self, why: String) {
        self.why.push(why);
        self.is_true = false;
    }

    /// Whether all was as asked for.
    pub fn is_true(&self) -> bool {
        self.is_true
    }

    /// A line a direction; at the end a verdict, too.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for told in &self.directions {
            text += &line(told);
            text.push('\n');
        }
        if self.is_final {
            let waiting = self.directions.iter().filter(|told| told.held > 0);
            waiting.for_each(|told| text += &rest(told));
        }
        if self.is_final && self.is_true {
            text += &self.verdict_of_a_true_run();
        }
        if self.is_final && !self.is_true {
            text += &format!("not true: {}\n", self.why.join("; "));
        }
        text
    }
}

impl Report {
    fn verdict_of_a_true_run(&self) -> String {
        let unseen = self.unseen.join(" and ");
        if self.unseen.is_empty() {
            "true: the network was as asked for\n".to_owned()
        } else if self.unseen.len() == self.directions.len() {
            format!("nothing came: no packet met the impairment ({unseen}), so nothing is shown\n")
        } else {
            format!("true as far as it was seen: no packet came {unseen}\n")
        }
    }
}

fn told(direction: &Direction, counts: &Counts, truth: &Truth, engine: &'static str) -> Told {
    let delays = counts.mean_delays_ns();
    Told {
        name: direction.name,
        engine,
        asked: direction.text.clone(),
        packets: counts.came,
        lost: counts.lost,
        loss: truth.loss,
        loss_asked: direction.asked.loss,
        loss_interval: truth.loss_interval,
        queue_lost: counts.dropped,
        marked: counts.marked,
        // Without a rate nothing queues.
        sojourn_ns: counts.sojourn_ns.filter(|_| direction.has_queue),
        passed: counts.passed,
        sent: counts.sent,
        sent_bytes: counts.sent_bytes,
        duplicated: counts.copies,
        corrupted: counts.corrupted,
        held: counts.held,
        own_dropped: counts.own.sum(),
        own_drops: counts.own,
        queue_dropped: counts.queue_dropped,
        stopped: counts.stopped,
        super_packets: counts.super_packets,
        delay_asked_ns: direction.asked.delay_ns,
        delay_mean_ns: delays.map(|(added, _)| added),
        delay_planned_ns: delays.map(|(_, planned)| planned),
        delay_deviation_ns: counts.delay_deviation_ns(),
        lateness_ns: counts.lateness_ns(),
        reordered: counts.reordered,
        is_true: truth.why.is_empty(),
    }
}

fn line(told: &Told) -> String {
    let mut line = format!("{:<9} {:>9} packets", told.name, told.packets);
    if let Some(loss) = told.loss {
        let [low, high] = told.loss_interval;
        line += &format!(
            ", lost {} ({} of {} to {})",
            percent(loss),
            percent(told.loss_asked),
            percent(low),
            percent(high)
        );
    }
    if told.queue_lost > 0 {
        line += &format!(", {} dropped by the queue", told.queue_lost);
    }
    if told.marked > 0 {
        line += &format!(", {} marked by it", told.marked);
    }
    if told.passed > 0 {
        line += &format!(", {} passed by it", told.passed);
    }
    match (told.delay_mean_ns, told.delay_asked_ns) {
        (Some(mean), Some(asked)) => {
            line += &format!(", delay {:.3} ms ({:.3})", mean / 1e6, asked / 1e6);
        }
        (Some(mean), None) => line += &format!(", delay {:.3} ms", mean / 1e6),
        _ => {}
    }
    if let Some([p50, p99, p999, most]) = told.lateness_ns {
        let us = |ns: u64| ns as f64 / 1e3;
        line += &format!(
            ", late p50 {:.0} p99 {:.0} p99.9 {:.0} max {:.0} us",
            us(p50),
            us(p99),
            us(p999),
            us(most)
        );
    }
    let own = told.own_dropped + told.queue_dropped;
    if own > 0 {
        line += &format!(", {own} dropped against the plan");
    }
    if told.stopped > 0 {
        line += &format!(", {} or more stopped behind it", told.stopped);
    }
    line
}

/// What becomes of packets that wait at the end: the stack knows of those that netfilter handed over.
fn rest(told: &Told) -> String {
    let what = match told.engine {
        "nfqueue" => "went on at once",
        _ => "were dropped",
    };
    let Told { name, held, .. } = told;
    format!("{name:<9} {held:>9} waited when it ended, and {what}\n")
}

/// Where JSON goes.
pub struct Json(Box<dyn Write>);

impl Json {
    /// A file, or "-" for standard output.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Json> {
        if path == Path::new("-") {
            return Ok(Json(Box::new(io::stdout())));
        }
        let file = File::create(path);
        let file = file.with_context(|| format!("write {}", path.display()))?;
        Ok(Json(Box::new(file)))
    }

    /// A line.
    ///
    /// # Errors
    /// Where it cannot be written: nobody would know what became of the run.
    pub fn write(&mut self, report: &Report) -> anyhow::Result<()> {
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
            asked: Asked {
                loss: 0.01,
                inflation: 1.0,
                ..Asked::default()
            },
            has_queue: false,
        }
    }

    fn report(lost: u64) -> Report {
        let counts = Counts {
            came: 10_000,
            lost,
            ..Counts::default()
        };
        let time = Duration::from_secs(1);
        Report::new(&[direction()], &[counts], "xdp", 7, time)
    }

    #[test]
    fn json_has_the_fields_that_programs_read() {
        let value = serde_json::to_value(report(104).at_the_end()).unwrap();
        assert_eq!(
            (&value["true"], &value["final"]),
            (&true.into(), &true.into())
        );
        let way = &value["directions"][0];
        assert_eq!(way["lost"], 104);
        assert_eq!(way["loss_asked"], 0.01);
        assert!(way["loss_interval"][0].as_f64().unwrap() < 0.01);
        assert!(way["lateness_ns"].is_null() && way["delay_mean_ns"].is_null());
    }

    #[test]
    fn sojourns_are_told_where_there_is_a_queue_and_drops_by_cause() {
        let counts = Counts {
            came: 10,
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
            let report = Report::new(&[direction], counts, "afxdp", 7, time);
            serde_json::to_value(report).unwrap()["directions"][0].clone()
        };
        let way = of(true);
        assert_eq!(way["sojourn_ns"], serde_json::json!([1_000, 2_000, 3_000]));
        assert_eq!(
            (&way["marked"], &way["own_dropped"]),
            (&3.into(), &3.into())
        );
        assert_eq!(way["own_drops"]["no_link"], 2);
        assert!(of(false)["sojourn_ns"].is_null());
    }

    #[test]
    fn a_direction_without_a_packet_is_named_where_something_was_asked_of_it() {
        let none = Direction {
            name: "from-peer",
            text: "none".into(),
            asked: Asked::default(),
            has_queue: false,
        };
        let of = |directions: &[Direction], came: [u64; 2]| {
            let counts = came.map(|came| Counts {
                came,
                lost: came / 100,
                ..Counts::default()
            });
            let report = Report::new(directions, &counts, "xdp", 7, Duration::from_secs(1));
            report.at_the_end().text()
        };
        let both = [direction(), direction()];
        assert!(
            of(&both, [1_000, 0]).contains("true as far as it was seen: no packet came to-peer")
        );
        let one = [direction(), none];
        assert!(of(&one, [1_000, 0]).contains("true: the network"));
        assert!(of(&both, [0, 0]).contains("nothing came"));
    }

    #[test]
    fn a_run_that_is_not_true_says_so_and_why() {
        let text = report(200).at_the_end().text();
        assert!(text.contains("not true: to-peer: 200 of 10000"), "{text}");
        let text = report(104).at_the_end().text();
        assert!(
            text.ends_with("true: the network was as asked for\n"),
            "{text}"
        );
        let mut report = report(104);
        report.unseen = vec!["to-peer"];
        let text = report.clone().at_the_end().text();
        assert!(text.contains("nothing came: no packet"), "{text}");
        assert!(!text.contains("true:"), "{text}");
        report.add_why("the interface went".into());
        assert!(!report.is_true());
    }
}
