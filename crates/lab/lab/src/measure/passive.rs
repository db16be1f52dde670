//! Round trips and loss from the traffic itself, by the installed `fairpath rtt` on a router's interface.
//!
//! Samples go to a file, at most one in 10 ms per flow: a line for each ACK of a fast flow would be an
//! additional load. The measured part is selected by the samples' times. Losses are those of the summary,
//! of the flow's whole life.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use fairpath_analysis::record::{CommandRecord, PassiveRecord};
use fairpath_testbed::{Netns, Process, RunError};
use jiff::Timestamp;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::clock::{Origin, Window};
use super::precise::real_time_ns;

/// Time to load and attach its programs.
const READY_DEADLINE: Duration = Duration::from_secs(10);
/// Time to close its flows and print the summary.
const END_DEADLINE: Duration = Duration::from_secs(10);
/// At most one sample of a flow in this time is written.
const SAMPLE_LIMIT: &str = "10ms";

/// `fairpath rtt` did not measure.
#[derive(Debug, thiserror::Error)]
pub enum PassiveError {
    /// No file for its samples.
    #[error("create a file for the samples of \"{interface}\"")]
    File {
        /// The interface.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// It could not be run.
    #[error("watch \"{interface}\" by `fairpath rtt`")]
    Run {
        /// The interface.
        interface: String,
        /// Why not.
        source: RunError,
    },
    /// The printed output is invalid.
    #[error(
        "read the records of `fairpath rtt` for \"{interface}\": check that it has the version of this program"
    )]
    Report {
        /// The interface.
        interface: String,
        /// The cause.
        source: serde_json::Error,
    },
}

/// The interface to watch.
#[derive(Clone, Debug)]
pub struct PassivePlan {
    /// The installed binary.
    pub fairpath: PathBuf,
    /// The router.
    pub ns: Netns,
    /// Its interface, towards the receivers.
    pub interface: String,
}

/// `fairpath rtt` under way; it ends when the value goes.
#[derive(Debug)]
pub struct Watching {
    plan: PassivePlan,
    process: Process,
    /// In memory and without a name: nothing is left of it however we end.
    samples: File,
    command: CommandRecord,
}

impl PassivePlan {
    /// Starts it; returns when it watches.
    ///
    /// # Errors
    /// [`PassiveError`].
    pub fn start(&self) -> Result<Watching, PassiveError> {
        let samples = in_memory().map_err(|source| PassiveError::File {
            interface: self.interface.clone(),
            source,
        })?;
        let mut argv = vec![self.fairpath.to_string_lossy().into_owned()];
        let arguments = [
            "rtt",
            "-i",
            &self.interface,
            "--format",
            "json",
            "--samples-only",
        ];
        argv.extend(arguments.map(str::to_owned));
        let limited = ["--rate-limit", SAMPLE_LIMIT, "--no-icmp", "--write"];
        argv.extend(limited.map(str::to_owned));
        argv.push(path_of(&samples));
        let mut command = self.ns.command(&argv[0]);
        command.args(&argv[1..]);
        let process = self.ns.spawn(command).map_err(|e| self.failed(e))?;
        let watching = Watching {
            plan: self.clone(),
            process,
            samples,
            command: CommandRecord {
                host: self.ns.name().to_owned(),
                argv,
            },
        };
        let ready = watching.process.wait_stderr("watching", READY_DEADLINE);
        ready.map_err(|e| self.failed(e))?;
        Ok(watching)
    }

    fn failed(&self, source: RunError) -> PassiveError {
        PassiveError::Run {
            interface: self.interface.clone(),
            source,
        }
    }
}

impl Watching {
    /// Its process, for the measurement of processor time.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The command that runs.
    pub fn command(&self) -> &CommandRecord {
        &self.command
    }

    /// Ends it and reads its records.
    ///
    /// # Errors
    /// [`PassiveError`].
    pub fn finish(self, origin: Origin, window: Window) -> Result<PassiveRecord, PassiveError> {
        self.process.signal(Signal::SIGINT);
        let interface = self.plan.interface.clone();
        self.process
            .finish(END_DEADLINE)
            .map_err(|e| self.plan.failed(e))?;
        let lines = text_of(&self.samples);
        let lines = lines.map_err(|source| PassiveError::File {
            interface: interface.clone(),
            source,
        })?;
        let real_now = real_time_ns().map_err(|source| PassiveError::File {
            interface: interface.clone(),
            source,
        })?;
        let now = origin.now();
        let seconds = |real_ns: i128| now - (i128::from(real_now) - real_ns) as f64 / 1e9;
        read(&interface, &lines, |real| window.contains(seconds(real)))
            .map_err(|source| PassiveError::Report { interface, source })
    }
}

/// A file that others open by its descriptor here.
fn in_memory() -> io::Result<File> {
    Ok(memfd_create("samples", MFdFlags::MFD_CLOEXEC)?.into())
}

fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn text_of(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[derive(Deserialize)]
struct RttRecord {
    #[serde(rename = "type")]
    kind: String,
    time: Option<String>,
    #[serde(default)]
    towards: serde_json::Value,
    rtt_ns: Option<u64>,
}

#[derive(Deserialize)]
struct Summary {
    towards: Vec<Leg>,
}

#[derive(Deserialize)]
struct Leg {
    towards: Option<String>,
    loss: Loss,
}

#[derive(Deserialize)]
struct Loss {
    data_packets: u64,
    downstream_lost_packets: u64,
}

/// The counts of samples and summary for data towards `interface`; `measured` receives ns since 1970.
fn read(
    interface: &str,
    lines: &str,
    measured: impl Fn(i128) -> bool,
) -> Result<PassiveRecord, serde_json::Error> {
    let mut rtts = Vec::new();
    for line in lines.lines() {
        let line: RttRecord = serde_json::from_str(line)?;
        let here = line.kind == "sample" && line.towards.as_str() == Some(interface);
        // A time that cannot be read is in no window.
        let time = line.time.and_then(|time| time.parse::<Timestamp>().ok());
        if let (true, Some(time), Some(rtt)) = (here, time, line.rtt_ns)
            && measured(time.as_nanosecond())
        {
            rtts.push(rtt);
        }
    }
    rtts.sort_unstable();
    let mut record = PassiveRecord {
        samples: rtts.len() as u64,
        rtt_ns: quantiles(&rtts),
        ..PassiveRecord::default()
    };
    let summary: Summary = serde_json::from_str(lines.lines().last().unwrap_or_default())?;
    for leg in summary
        .towards
        .iter()
        .filter(|leg| leg.towards.as_deref() == Some(interface))
    {
        record.retransmitted += leg.loss.downstream_lost_packets;
        record.segments += leg.loss.data_packets;
    }
    Ok(record)
}

/// p5, p50, p95, p99 of sorted values, by nearest rank.
fn quantiles(sorted: &[u64]) -> Option<[u64; 4]> {
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    };
    Some([at(0.05)?, at(0.5)?, at(0.95)?, at(0.99)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = r#"{"type":"summary","towards":[{"towards":"wan","loss":{"data_packets":900,"downstream_lost_packets":9,"upstream_lost_packets":0}},{"towards":"lan","loss":{"data_packets":5,"downstream_lost_packets":1}}],"schema":1}"#;

    fn sample(seconds: u32, towards: &str, rtt: u64) -> String {
        format!(
            r#"{{"type":"sample","time":"2026-01-01T00:00:{seconds:02}.000000000Z","towards":"{towards}","rtt_ns":{rtt},"schema":1}}"#
        )
    }

    #[test]
    fn only_measured_samples_of_the_side_count() {
        let mut lines: Vec<String> = (1..=100).map(|n| sample(30, "wan", n)).collect();
        lines.push(sample(10, "wan", 5000));
        lines.push(sample(30, "lan", 6000));
        let from: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let measured = |at: i128| at >= from.as_nanosecond();
        lines.push(SUMMARY.to_owned());
        let record = read("wan", &lines.join("\n"), measured).unwrap();
        assert_eq!(
            (record.samples, record.rtt_ns),
            (100, Some([5, 50, 95, 99]))
        );
        assert_eq!((record.retransmitted, record.segments), (9, 900));
    }

    #[test]
    fn a_file_in_memory_is_written_by_path() {
        let file = in_memory().unwrap();
        for word in ["one ", "two"] {
            let mut other = File::options().append(true).open(path_of(&file)).unwrap();
            io::Write::write_all(&mut other, word.as_bytes()).unwrap();
        }
        assert_eq!(text_of(&file).unwrap(), "one two");
    }

    #[test]
    fn a_summary_without_samples_has_no_quantiles() {
        let record = read("wan", SUMMARY, |_| true).unwrap();
        assert_eq!((record.samples, record.rtt_ns), (0, None));
        assert!(read("wan", "nonsense", |_| true).is_err());
        assert!(read("wan", &sample(30, "wan", 1), |_| true).is_err());
    }
}
