//! Captures with `tcpdump`, from the first packet after `start` to the last before `stop`.
//!
//! `start` returns when the socket is open. `stop` requests the live counts (SIGUSR1) until tcpdump has
//! read all packets of its filter, and then ends it: no captured packet is lost in the ring.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::netns::Netns;
use crate::process::{Process, RunError};
use crate::wait::wait_for;

/// tcpdump opens its socket in milliseconds; a loaded machine may need longer.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Time to read what is left in the ring, and again to end.
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// Pause between two questions for the live counts.
const QUERY_EVERY: Duration = Duration::from_millis(20);
/// Equal answers in a row that mean rest, where the kernel counts more than tcpdump keeps.
const ANSWERS_AT_REST: u32 = 4;
/// Ring in the kernel, KiB: 0.2 s of 30,000 full frames a second.
const RING_KIB: &str = "16384";

/// A capture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file refused.
    #[error("write the capture file")]
    File(#[source] io::Error),
    /// tcpdump refused.
    #[error("capture on \"{ifname}\"")]
    Tool {
        /// The interface.
        ifname: String,
        /// The cause.
        source: RunError,
    },
    /// tcpdump ended without its counters.
    #[error("read tcpdump's counters from {stderr:?}")]
    Counters {
        /// The output instead.
        stderr: String,
    },
}

/// Frames of which direction are captured, as the interface sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Both.
    #[default]
    Both,
    /// Received by the interface.
    In,
    /// Sent by the interface.
    Out,
}

/// Unit of the time stamps in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Classic pcap.
    #[default]
    Micro,
    /// Nanosecond pcap (magic a1b23c4d).
    Nano,
}

/// The options of a capture; the default is every frame whole, both directions, microseconds.
#[derive(Clone, Debug, Default)]
pub struct CaptureOptions {
    /// Bytes kept of each frame.
    pub snaplen: Option<u32>,
    /// Unit of the time stamps.
    pub precision: Precision,
    /// Directions.
    pub direction: Direction,
    /// Link type as `tcpdump -L` names it, where the interface `any` shall not give its default.
    pub link_type: Option<String>,
    /// A filter in tcpdump's language; empty means everything.
    pub filter: String,
}

impl CaptureOptions {
    /// The arguments that ask tcpdump for it.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: &str| {
            arguments.extend([option.to_owned(), value.to_owned()]);
        };
        add("-s", &self.snaplen.unwrap_or(0).to_string());
        match self.direction {
            Direction::Both => {}
            Direction::In => add("-Q", "in"),
            Direction::Out => add("-Q", "out"),
        }
        if self.precision == Precision::Nano {
            add("--time-stamp-precision", "nano");
        }
        if let Some(name) = &self.link_type {
            add("-y", name);
        }
        if !self.filter.is_empty() {
            arguments.extend(["--".to_owned(), self.filter.clone()]);
        }
        arguments
    }
}

/// A running capture; dropping it ends it without counters.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Process,
    file: File,
    ifname: String,
}

/// The results of a capture.
#[derive(Debug)]
pub struct Captured {
    /// Frames in the file.
    pub captured: u64,
    /// Frames that passed the filter in the kernel; with a direction, those of the other one too.
    pub received: u64,
    /// Frames the kernel dropped for lack of room.
    pub dropped: u64,
    file: File,
}

impl Capture {
    /// Captures into `path`, which is created or emptied; returns when the capture is running.
    pub fn start(
        ns: &Netns,
        ifname: &str,
        path: &Path,
        options: &CaptureOptions,
    ) -> Result<Capture, CaptureError> {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(true);
        let file = how.open(path).map_err(CaptureError::File)?;
        Capture::start_into(ns, ifname, file, options)
    }

    /// Captures into a nameless temporary file, read back with [`Captured::bytes`].
    pub fn start_anonymous(
        ns: &Netns,
        ifname: &str,
        options: &CaptureOptions,
    ) -> Result<Capture, CaptureError> {
        let file = tempfile::tempfile().map_err(CaptureError::File)?;
        Capture::start_into(ns, ifname, file, options)
    }

    fn start_into(
        ns: &Netns,
        ifname: &str,
        file: File,
        options: &CaptureOptions,
    ) -> Result<Capture, CaptureError> {
        let mut command = ns.command("tcpdump");
        // `-Z root`: dropping root would also clear the parent-end signal (PR_SET_PDEATHSIG) (prctl(2)).
        command.args([
            "-i",
            ifname,
            "-w",
            "-",
            "-U",
            "--immediate-mode",
            "-n",
            "-Z",
            "root",
        ]);
        command.args(["-B", RING_KIB]).args(options.arguments());
        let output = file.try_clone().map_err(CaptureError::File)?;
        let failed = |source| CaptureError::Tool {
            ifname: ifname.to_owned(),
            source,
        };
        let tcpdump = Process::spawn_to(command, ns.name(), Stdio::from(output)).map_err(failed)?;
        tcpdump
            .wait_stderr("listening on", START_DEADLINE)
            .map_err(failed)?;
        Ok(Capture {
            tcpdump,
            file,
            ifname: ifname.to_owned(),
        })
    }

    /// Waits until everything captured so far is in the file, then ends the capture.
    pub fn stop(self) -> Result<Captured, CaptureError> {
        self.settle();
        self.stop_now()
    }

    /// Ends the capture while packets still come: the last ones may be missing.
    pub fn stop_now(mut self) -> Result<Captured, CaptureError> {
        self.tcpdump.signal(Signal::SIGINT);
        self.tcpdump
            .wait(STOP_DEADLINE)
            .map_err(|source| CaptureError::Tool {
                ifname: self.ifname.clone(),
                source,
            })?;
        self.tcpdump.close_tails();
        let stderr = self.tcpdump.stderr();
        let [captured, received, dropped] =
            final_counts(&stderr).ok_or(CaptureError::Counters { stderr })?;
        Ok(Captured {
            captured,
            received,
            dropped,
            file: self.file,
        })
    }

    /// Waits until tcpdump has read what the kernel has for it.
    ///
    /// Frames of an unwanted direction count as received only, so equal answers must do as well.
    fn settle(&self) {
        let (mut before, mut equal) = (None, 0);
        wait_for(STOP_DEADLINE, || {
            let answers = self.live_counts().len();
            self.tcpdump.signal(Signal::SIGUSR1);
            let answer = wait_for(QUERY_EVERY * 10, || {
                self.live_counts()
                    .get(answers..)
                    .and_then(|new| new.last().copied())
            })?;
            equal = if before == Some(answer) { equal + 1 } else { 0 };
            before = Some(answer);
            let rest = answer[0] == answer[1] && equal > 0 || equal >= ANSWERS_AT_REST;
            if !rest {
                std::thread::sleep(QUERY_EVERY);
            }
            rest.then_some(())
        });
    }

    /// All live counts printed so far: captured, received, dropped.
    fn live_counts(&self) -> Vec<[u64; 3]> {
        self.tcpdump
            .stderr()
            .lines()
            .filter_map(live_count)
            .collect()
    }
}

impl Captured {
    /// The whole file.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// `tcpdump: 3 packets captured, 3 packets received by filter, 0 packets dropped by kernel`.
fn live_count(line: &str) -> Option<[u64; 3]> {
    let mut parts = line.strip_prefix("tcpdump: ").unwrap_or(line).split(", ");
    let captured = number_before(parts.next()?, "captured")?;
    let received = number_before(parts.next()?, "received by filter")?;
    let dropped = number_before(parts.next()?, "dropped by kernel")?;
    Some([captured, received, dropped])
}

/// The same on three separate lines, at the end.
fn final_counts(stderr: &str) -> Option<[u64; 3]> {
    let last = |what| {
        stderr
            .lines()
            .rev()
            .find_map(|line| number_before(line, what))
    };
    Some([
        last("captured")?,
        last("received by filter")?,
        last("dropped by kernel")?,
    ])
}

/// N in `N packets WHAT` or `N packet WHAT`.
fn number_before(text: &str, what: &str) -> Option<u64> {
    let (number, rest) = text.trim().split_once(' ')?;
    let rest = rest
        .strip_prefix("packets ")
        .or_else(|| rest.strip_prefix("packet "))?;
    if rest == what {
        number.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, Ping, Router, Testbed, requires};

    #[test]
    fn a_stopped_tcpdump_writes_its_whole_ring() {
        requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ping"));
        let router = Router::new(&Testbed::new()).unwrap();
        let options = CaptureOptions {
            filter: "icmp".to_owned(),
            ..CaptureOptions::default()
        };
        let capture = Capture::start_anonymous(&router.router, "wan", &options).unwrap();
        capture.tcpdump.signal(Signal::SIGSTOP);
        let ping = Ping::to(Router::SERVER.v4)
            .count(200)
            .interval(Duration::from_millis(2));
        assert_eq!(ping.run(&router.client).unwrap().received, 200);
        capture.tcpdump.signal(Signal::SIGCONT);
        assert_eq!(capture.stop().unwrap().captured, 400);
    }

    #[test]
    fn live_and_final_counts_are_read() {
        let live = "tcpdump: 1 packet captured, 2 packets received by filter, \
                    0 packets dropped by kernel";
        assert_eq!(live_count(live), Some([1, 2, 0]));
        let end = format!(
            "listening on eth0\n{live}\n4 packets captured\n5 packets received by filter\n6 packets dropped by kernel\n"
        );
        assert_eq!(final_counts(&end), Some([4, 5, 6]));
        assert_eq!(final_counts(live), None);
    }
}
