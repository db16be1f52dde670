//! `fairpath impair` between the two interfaces of a link's seat.
//!
//! ```text
//! near ── peer [router: fairpath impair PEER --peer LINK] link ── far
//!               --to-peer: towards far    --from-peer: towards near
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use fairpath_analysis::experiment::Direction;
use fairpath_analysis::record::{CommandRecord, LinkRecord, NO_SELF_TEST, QueueRecord};
use fairpath_testbed::Process;
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::{Emulated, Emulator, EngineError, Task};

/// Time to load programs and for the self-test, on a busy machine.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Time to send queued packets and to print the final report.
const END_DEADLINE: Duration = Duration::from_secs(15);
/// Its line on standard error after it started to impair packets.
const READY: &str = "ready:";
/// The default of `--max-packets`.
const PACKETS: f64 = 16_384.0;
/// The upper limit of `--max-packets`.
const MOST_PACKETS: u32 = 1_000_000;
/// The delay precedes the rate, so it stores what senders send. BBR starts with 2.9 times its estimate of
/// the rate, and can overestimate it.
const SURGE: f64 = 4.0;
/// A direction without impairment.
const PLAIN: &str = "none";
/// Time at which a trace restarts, ms: later than any run.
const UNLIMITED_MS: f64 = 1e8;

/// Starts `fairpath impair`, and returns when it impairs packets. The first run of each configuration
/// includes the self-test, in virtual time, of the code that will process the packets.
///
/// # Errors
/// It does not start: its own message.
pub fn start(
    task: &Task<'_>,
    checked: &mut BTreeSet<String>,
) -> Result<Box<dyn Emulator>, EngineError> {
    let failed = |operation: &str, source: Box<dyn std::error::Error + Send + Sync>| EngineError {
        link: task.seat.interface.to_owned(),
        operation: operation.to_owned(),
        source,
    };
    let directions = [task.seat.far, task.seat.host].map(|end| task.spec.towards(end));
    let words = directions
        .each_ref()
        .map(|direction| words(direction, &task.spec.set, task.lead));
    let is_new = checked.insert(words.join("; "));
    let argv = arguments(task, &directions, &words, is_new);
    let router = task.network.host(task.seat.host);
    let mut command = router.command(&argv[0]);
    command.args(&argv[1..]);
    let started = "start `fairpath impair`; does this fairpath have it (fairpath impair --help)?";
    let process = router
        .spawn(command)
        .map_err(|error| failed(started, error.into()))?;
    let ready = process.wait_stderr(READY, READY_DEADLINE);
    ready.map_err(|error| failed("wait for `fairpath impair`", error.into()))?;
    let both = directions.each_ref().map(|direction| !direction.is_plain());
    Ok(Box::new(Impairing {
        process,
        argv,
        link: task.seat.interface.to_owned(),
        host: task.seat.host.to_owned(),
        names: [true, false].map(|far| task.direction_name(far)),
        requested: both,
        directions,
        words,
    }))
}

/// Program and arguments.
fn arguments(
    task: &Task<'_>,
    directions: &[Direction; 2],
    words: &[String; 2],
    check: bool,
) -> Vec<String> {
    let mut argv = vec![task.fairpath.to_string_lossy().into_owned()];
    let fixed = [
        "impair",
        task.seat.peer,
        "--peer",
        task.seat.interface,
        "--format=json",
        // No remote login can use interfaces of our namespaces.
        "--yes",
    ];
    argv.extend(fixed.map(str::to_owned));
    argv.extend((!check).then(|| NO_SELF_TEST.to_owned()));
    argv.extend(["--seed".to_owned(), task.seed.to_string()]);
    if let Some(via) = task.spec.via {
        argv.extend(["--via".to_owned(), via.name().to_owned()]);
    }
    argv.extend(packets(directions).map(|packets| format!("--max-packets={packets}")));
    for (option, words) in ["--to-peer", "--from-peer"].iter().zip(words) {
        if words != PLAIN {
            argv.extend([(*option).to_owned(), words.clone()]);
        }
    }
    argv
}

/// The maximum number of packets in each direction, where it exceeds the default.
fn packets(directions: &[Direction; 2]) -> Option<u32> {
    let held = |direction: &Direction| {
        SURGE * direction.pipe_packets() + f64::from(direction.limit_packets().unwrap_or(0))
    };
    let most = directions.iter().map(held).fold(0.0, f64::max);
    (most > PACKETS).then(|| {
        let packets = most.min(f64::from(MOST_PACKETS)) as u32;
        packets.next_power_of_two().min(MOST_PACKETS)
    })
}

/// A direction as an argument of `fairpath impair`.
fn words(direction: &Direction, set: &[String], lead: Duration) -> String {
    let mut words = Vec::new();
    words.extend(
        direction
            .rate
            .map(|rate| format!("rate {}bit", rate.bps().round())),
    );
    if !direction.delay_steps.is_empty() {
        words.push(format!("delay-trace \"{}\"", trace(direction, lead)));
    } else if direction.delay.ns() > 0 {
        words.push(format!("delay {}ns", direction.delay.ns()));
    }
    if direction.jitter.ns() > 0 {
        words.push(format!("jitter {}ns", direction.jitter.ns()));
        // The jitter is a standard deviation, as in netem. The default is a uniform distribution.
        words.push("distribution normal".to_owned());
        let order = if direction.reordering { "free" } else { "kept" };
        words.push(format!("order {order}"));
    }
    words.extend(
        direction
            .correlation
            .map(|share| format!("correlation {share}")),
    );
    if direction.loss.value() > 0.0 {
        words.push(format!("loss {}", direction.loss));
    }
    words.extend(
        direction
            .policy
            .as_ref()
            .map(|policy| format!("policy {policy}")),
    );
    if direction.policy.is_some() {
        words.extend(set.iter().map(|parameter| format!("set {parameter}")));
    }
    let limit = direction.limit_packets();
    words.extend(limit.map(|limit| format!("queue-limit {limit}")));
    words.extend(direction.impair.clone());
    if words.is_empty() {
        PLAIN.to_owned()
    } else {
        words.join(" ")
    }
}

/// The delays as an inline `delay-trace`, so that the command needs no file. Times count from the first
/// packet, which is sent `lead` before second 0 of the traffic.
fn trace(direction: &Direction, lead: Duration) -> String {
    let lead = lead.as_secs_f64();
    let mut text = format!("0ms {}ns", direction.delay.ns());
    for step in &direction.delay_steps {
        let at = (step.at + lead) * 1e3;
        text += &format!(",{at}ms {}ns", step.delay.ns());
    }
    text + &format!(",{UNLIMITED_MS}ms")
}

/// A running `fairpath impair`.
struct Impairing {
    process: Process,
    argv: Vec<String>,
    link: String,
    host: String,
    names: [String; 2],
    requested: [bool; 2],
    directions: [Direction; 2],
    words: [String; 2],
}

impl Emulator for Impairing {
    fn process(&self) -> Option<(String, u32)> {
        Some((format!("fairpath impair {}", self.link), self.process.id()))
    }

    fn commands(&self) -> Vec<CommandRecord> {
        vec![CommandRecord {
            host: self.host.clone(),
            argv: self.argv.clone(),
        }]
    }

    fn finish(mut self: Box<Self>) -> Result<Emulated, EngineError> {
        self.process.signal(Signal::SIGINT);
        let ended = self.process.wait(END_DEADLINE);
        self.process.close_tails();
        ended.map_err(|error| self.failed("end `fairpath impair`", error.into()))?;
        let stated = self.process.stdout();
        let last = stated
            .lines()
            .rev()
            .find(|line| line.starts_with('{'))
            .unwrap_or_default();
        let reported: Reported = serde_json::from_str(last).map_err(|error| {
            let operation = format!(
                "read the report of `fairpath impair` ({})",
                self.process.stderr().trim()
            );
            self.failed(&operation, error.into())
        })?;
        Ok(self.emulated(&reported))
    }
}

impl Impairing {
    fn failed(
        &self,
        operation: &str,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> EngineError {
        EngineError {
            link: self.link.clone(),
            operation: operation.to_owned(),
            source,
        }
    }

    fn emulated(&self, reported: &Reported) -> Emulated {
        let mut emulated = Emulated::default();
        let mut remaining: Vec<&String> = reported.reasons.iter().collect();
        for (number, name) in ["to-peer", "from-peer"].iter().enumerate() {
            let Some(measured) = reported
                .directions
                .iter()
                .find(|measured| measured.name == *name)
            else {
                continue;
            };
            let (own, others): (Vec<&String>, Vec<&String>) = remaining
                .into_iter()
                .partition(|why| why.starts_with(&format!("{name}: ")));
            remaining = others;
            if !self.requested[number] {
                continue;
            }
            let direction = &self.directions[number];
            let mut link = measured.link(&self.names[number], direction);
            link.invalid = joined(&own);
            link.stated.clone_from(&self.words[number]);
            emulated.links.push(link);
            emulated
                .queues
                .extend(measured.queue(&self.names[number], direction));
        }
        if !reported.is_final {
            let text = "no final report: `fairpath impair` ended early".to_owned();
            emulated
                .links
                .iter_mut()
                .for_each(|link| link.invalid = Some(text.clone()));
        }
        if let (Some(link), Some(why)) = (emulated.links.first_mut(), joined(&remaining)) {
            link.invalid.get_or_insert(why);
        }
        emulated
    }
}

fn joined(why: &[&String]) -> Option<String> {
    let texts: Vec<&str> = why.iter().map(|text| text.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The keys that are used of the last report of `fairpath impair --format json`.
#[derive(Debug, Deserialize)]
struct Reported {
    #[serde(default)]
    reasons: Vec<String>,
    #[serde(rename = "final", default)]
    is_final: bool,
    directions: Vec<LinkDirection>,
}

/// One direction of the report.
#[derive(Debug, Deserialize)]
struct LinkDirection {
    name: String,
    backend: String,
    configuration: String,
    enqueued_packets: u64,
    lost_packets: u64,
    configured_loss_ratio: f64,
    loss_interval_ratio: [f64; 2],
    queue_dropped_packets: u64,
    marked_packets: u64,
    /// p50, p95, p99.
    sojourn_ns: Option<[u64; 3]>,
    sent_packets: u64,
    backend_dropped_packets: u64,
    kernel_dropped_packets: u64,
    gso_packets: u64,
    mean_delay_ns: Option<f64>,
    planned_delay_ns: Option<f64>,
    delay_deviation_ns: Option<f64>,
    lateness_ns: Option<[u64; 4]>,
    reordered_packets: u64,
}

impl LinkDirection {
    fn link(&self, name: &str, direction: &Direction) -> LinkRecord {
        // Only the emulator can read the free text of `impair`.
        let requested = if direction.impair.is_none() {
            direction.loss.value()
        } else {
            self.configured_loss_ratio
        };
        let wanted = self.delay_wanted(direction);
        LinkRecord {
            name: name.to_owned(),
            engine: self.backend.clone(),
            requested: self.configuration.clone(),
            stated: String::new(),
            packets: self.enqueued_packets,
            lost: self.lost_packets,
            loss_requested: Some(requested),
            loss_interval: Some((self.loss_interval_ratio[0], self.loss_interval_ratio[1])),
            own_dropped: self.backend_dropped_packets + self.kernel_dropped_packets,
            queue_dropped: self.queue_dropped_packets,
            gso_packets: self.gso_packets,
            delay_requested_ns: wanted.map(|ns| ns.round() as u64),
            delay_mean_ns: wanted.and(self.mean_delay_ns).map(|ns| ns.round() as u64),
            delay_deviation_ns: self.delay_deviation_ns.map(|ns| ns.round() as u64),
            lateness_ns: self.lateness_ns,
            reordered: self.reordered_packets,
            invalid: None,
        }
    }

    /// The mean delay to compare with. A rate or a kept order adds delay by design: the plan of the
    /// emulator includes it, and is never shorter than the configured delay.
    fn delay_wanted(&self, direction: &Direction) -> Option<f64> {
        if !direction.delay_steps.is_empty() || direction.impair.is_some() {
            return self.planned_delay_ns;
        }
        let min = direction.delay.ns() as f64;
        let kept = direction.jitter.ns() > 0;
        if direction.rate.is_some() || kept {
            return Some(
                self.planned_delay_ns
                    .unwrap_or(0.0)
                    .max(if kept { 0.0 } else { min }),
            );
        }
        Some(min).filter(|min| *min > 0.0)
    }

    /// The queue before the rate, if there is a rate.
    fn queue(&self, name: &str, direction: &Direction) -> Option<QueueRecord> {
        direction.rate?;
        Some(QueueRecord {
            name: name.to_owned(),
            policy: direction
                .policy
                .clone()
                .unwrap_or_else(|| "fifo".to_owned()),
            arrived: self.enqueued_packets.saturating_sub(self.lost_packets),
            sent: self.sent_packets,
            dropped: self.queue_dropped_packets,
            marked: self.marked_packets,
            sojourn_ns: self.sojourn_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::LinkSpec;

    fn direction(text: &str) -> Direction {
        toml::from_str::<LinkSpec>(text).unwrap().towards("server")
    }

    #[test]
    fn direction_is_written_in_words_of_fairpath_impair() {
        let all = direction(
            "rate = '850mbit'\nrtt = '1ms'\njitter = '100us'\nloss = '1%'\nlimit = 150\npolicy = 'codel'\n",
        );
        assert_eq!(
            words(&all, &["target=1ms".to_owned()], Duration::ZERO),
            "rate 850000000bit delay 500000ns jitter 100000ns distribution normal order kept loss 1% policy codel set target=1ms queue-limit 150"
        );
        assert_eq!(words(&Direction::default(), &[], Duration::ZERO), "none");
        assert_eq!(
            words(&direction("impair = 'gemodel 1%,25%'"), &[], Duration::ZERO),
            "gemodel 1%,25%"
        );
    }

    #[test]
    fn long_fast_paths_have_buffer_for_a_surge() {
        let long = direction("rate = '450mbit'\nrtt = '400ms'\nlimit = 7431\n");
        assert_eq!(packets(&[long, Direction::default()]), Some(65_536));
        let short = direction("rate = '450mbit'\nrtt = '40ms'\nlimit = 1486\n");
        assert_eq!(packets(&[Direction::default(), short]), None);
        let later = "rate = '450mbit'\ndelay-steps = [{ at = 1.0, delay = '200ms' }]\n";
        let steps = direction(later);
        assert_eq!(packets(&[steps.clone(), steps]), Some(32_768));
        let endless = direction("rate = '100gbit'\ndelay = '1s'\n");
        assert_eq!(packets(&[endless, Direction::default()]), Some(1_000_000));
    }

    #[test]
    fn steps_are_a_trace_without_restart() {
        let steps = direction("rtt = '20ms'\ndelay-steps = [{ at = 8.0, delay = '40ms' }]\n");
        assert_eq!(
            words(&steps, &[], Duration::from_millis(1500)),
            "delay-trace \"0ms 10000000ns,9500ms 40000000ns,100000000ms\""
        );
    }

    #[test]
    fn reports_become_records_with_reasons() {
        let measured = |name: &str| {
            format!(
                r#"{{"name":"{name}","backend":"afxdp","configuration":"loss 1%","enqueued_packets":1000,
                "lost_packets":9,"loss_ratio":0.009,"configured_loss_ratio":0.01,"loss_interval_ratio":[0.002,0.02],
                "queue_dropped_packets":5,"marked_packets":4,"sojourn_ns":[10,20,30],"sent_packets":986,
                "backend_dropped_packets":1,"kernel_dropped_packets":2,"gso_packets":0,"configured_delay_ns":1e6,
                "mean_delay_ns":1.4e6,"planned_delay_ns":1.39e6,"lateness_ns":[1,2,3,4],"reordered_packets":0,
                "valid":false}}"#
            )
        };
        let text = format!(
            r#"{{"schema":1,"valid":false,"reasons":["to-peer: late","the interface went"],"final":true,"directions":[{},{}]}}"#,
            measured("to-peer"),
            measured("from-peer")
        );
        let reported: Reported = serde_json::from_str(&text).unwrap();
        let rated = direction("rate = '1mbit'\ndelay = '1ms'\n");
        let link = reported.directions[0].link("x", &rated);
        assert_eq!((link.own_dropped, link.queue_dropped), (3, 5));
        assert_eq!(
            (link.delay_requested_ns, link.delay_mean_ns),
            (Some(1_390_000), Some(1_400_000))
        );
        let plain = reported.directions[0].link("x", &direction("delay = '1ms'"));
        assert_eq!(plain.delay_requested_ns, Some(1_000_000));
        let queue = reported.directions[0].queue("x", &rated).unwrap();
        assert_eq!((queue.arrived, queue.dropped, queue.marked), (991, 5, 4));
        assert_eq!(queue.sojourn_ns, Some([10, 20, 30]));
    }
}
