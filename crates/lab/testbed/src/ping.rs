//! Echo requests with `ping`, its report read.

use std::net::IpAddr;
use std::time::Duration;

use crate::netns::Netns;
use crate::process::RunError;

/// Time after the last request in which answers still count.
const LINGER: Duration = Duration::from_secs(2);
/// Additional time; a loaded machine starts processes slowly.
const SPARE_TIME: Duration = Duration::from_secs(20);

/// ping did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// It could not be run to its end.
    #[error("run ping")]
    Tool(#[from] RunError),
    /// Its report was not understood.
    #[error("read ping's report from {output:?}")]
    Report {
        /// The output.
        output: String,
    },
}

/// Echo requests to be sent; by default five, 20 ms apart, 56 bytes.
#[derive(Clone, Debug)]
pub struct Ping {
    to: IpAddr,
    count: u32,
    interval: Duration,
    size: u32,
    cpu: Option<usize>,
}

impl Ping {
    /// Requests to `ip`.
    pub fn to(ip: impl Into<IpAddr>) -> Ping {
        Ping {
            to: ip.into(),
            count: 5,
            interval: Duration::from_millis(20),
            size: 56,
            cpu: None,
        }
    }

    /// Sends this number of requests.
    #[must_use]
    pub fn count(mut self, count: u32) -> Ping {
        self.count = count;
        self
    }

    /// Time between two requests.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Ping {
        self.interval = interval;
        self
    }

    /// Payload bytes of each.
    #[must_use]
    pub fn size(mut self, size: u32) -> Ping {
        self.size = size;
        self
    }

    /// Runs it on this CPU only; needs `taskset`.
    #[must_use]
    pub fn on_cpu(mut self, cpu: usize) -> Ping {
        self.cpu = Some(cpu);
        self
    }

    /// Sends them from `ns` and waits for the answers. No answer is a report, not an error.
    pub fn run(&self, ns: &Netns) -> Result<PingReport, PingError> {
        let mut command = match self.cpu {
            None => ns.command("ping"),
            Some(cpu) => {
                let mut command = ns.command("taskset");
                command.args(["-c", &cpu.to_string(), "ping"]);
                command
            }
        };
        command.args([
            "-n",
            "-c",
            &self.count.to_string(),
            "-s",
            &self.size.to_string(),
        ]);
        command.args(["-i", &self.interval.as_secs_f64().to_string()]);
        command.args(["-W", &LINGER.as_secs().to_string(), &self.to.to_string()]);
        let mut process = ns.spawn(command)?;
        process.wait(self.interval * self.count + LINGER + SPARE_TIME)?;
        process.close_tails();
        let output = process.stdout();
        let read = PingReport::read(&output);
        read.ok_or_else(|| PingError::Report {
            output: output + &process.stderr(),
        })
    }
}

/// The results.
#[derive(Clone, Debug, PartialEq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u32,
    /// Requests answered.
    pub received: u32,
    /// Answers beyond the first to a request.
    pub duplicates: u32,
    /// Smallest round-trip time; zero if there was none, like the others.
    pub min: Duration,
    /// Mean round-trip time.
    pub avg: Duration,
    /// Largest round-trip time.
    pub max: Duration,
    /// Each round-trip time, in order of arrival.
    pub times: Vec<Duration>,
}

impl PingReport {
    /// The round-trip time that a share `q` of the answers do not exceed, of nearest rank; zero without answers.
    pub fn quantile(&self, q: f64) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as f64 * q).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    fn read(output: &str) -> Option<PingReport> {
        let summary = output
            .lines()
            .find(|line| line.contains(" packets transmitted"))?;
        let before = |what: &str| {
            let part = summary.split(", ").find(|part| part.ends_with(what))?;
            part.trim_start_matches('+')
                .split(' ')
                .next()?
                .parse::<u32>()
                .ok()
        };
        let rtt = output
            .lines()
            .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
        let mut values = rtt.unwrap_or("0/0/0").split(['/', ' ']).map(millis);
        Some(PingReport {
            sent: before("transmitted")?,
            received: before("received")?,
            duplicates: before("duplicates").unwrap_or(0),
            min: values.next()??,
            avg: values.next()??,
            max: values.next()??,
            times: output.lines().filter_map(time_of).collect(),
        })
    }
}

/// T in `… time=T ms`.
fn time_of(line: &str) -> Option<Duration> {
    millis(line.split_once("time=")?.1.split(' ').next()?)
}

fn millis(text: &str) -> Option<Duration> {
    let value: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(value / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_with_answers_is_read() {
        let output = "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=20.1 ms\n\
            64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=20.3 ms (DUP!)\n\n\
            3 packets transmitted, 1 received, +1 duplicates, 66% packet loss, time 5ms\n\
            rtt min/avg/max/mdev = 20.100/20.200/20.300/0.5 ms\n";
        let report = PingReport::read(output).unwrap();
        assert_eq!((report.sent, report.received, report.duplicates), (3, 1, 1));
        assert_eq!(report.min, Duration::from_micros(20_100));
        assert_eq!(report.max, Duration::from_micros(20_300));
        assert_eq!(report.times.len(), 2);
    }

    #[test]
    fn a_report_without_answers_is_read() {
        let output = "2 packets transmitted, 0 received, 100% packet loss, time 1ms\n\n";
        let report = PingReport::read(output).unwrap();
        assert_eq!(
            (report.sent, report.received, report.min),
            (2, 0, Duration::ZERO)
        );
    }
}
