//! Bulk traffic with `iperf3`, its JSON report read.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::netns::Netns;
use crate::process::{Process, RunError};

/// Time for the server to listen.
const LISTEN_DEADLINE: Duration = Duration::from_secs(10);
/// Time for a server to listen again after a test: it opens its port again for each.
const AGAIN_DEADLINE: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const AGAIN_EVERY: Duration = Duration::from_millis(50);
/// Additional time of a run after its requested length: connecting, draining, a loaded machine.
const SPARE_TIME: Duration = Duration::from_secs(60);

/// iperf3 did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    /// It could not be run to its end.
    #[error("run iperf3")]
    Tool(#[from] RunError),
    /// It reported an error.
    #[error("iperf3 to {server}: {message}")]
    Refused {
        /// Where it went.
        server: SocketAddr,
        /// The message.
        message: String,
    },
    /// The CPUs that this process may use could not be read.
    #[error("choose a CPU for both ends of iperf3")]
    Cpus(#[source] Errno),
    /// Its report was not understood.
    #[error("read iperf3's report")]
    Report(#[from] serde_json::Error),
}

/// A running iperf3 server; ends on drop. It serves one client at a time.
#[derive(Debug)]
pub struct Iperf3Server {
    process: Process,
    port: u16,
}

impl Iperf3Server {
    /// Listens on `port` for both families; returns when it does.
    pub fn start(ns: &Netns, port: u16) -> Result<Iperf3Server, Iperf3Error> {
        let mut command = ns.command("iperf3");
        command.args(["--server", "--forceflush", "--port", &port.to_string()]);
        let process = ns.spawn(command)?;
        process.wait_stdout("Server listening", LISTEN_DEADLINE)?;
        Ok(Iperf3Server { process, port })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the output of the server.
    pub fn log(&self) -> String {
        self.process.stdout()
    }
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Bytes(u64),
    Seconds(u32),
}

/// One TCP transfer to be made; by default one stream for one second, as fast as it goes.
#[derive(Clone, Debug)]
pub struct Iperf3 {
    server: SocketAddr,
    amount: Amount,
    bitrate_bps: Option<u64>,
    congestion: Option<String>,
    parallel: u32,
    reverse: bool,
    mss: Option<u32>,
    one_cpu: bool,
}

impl Iperf3 {
    /// A transfer to a server at `ip`, `port`.
    pub fn to(ip: impl Into<IpAddr>, port: u16) -> Iperf3 {
        Iperf3 {
            server: SocketAddr::new(ip.into(), port),
            amount: Amount::Seconds(1),
            bitrate_bps: None,
            congestion: None,
            parallel: 1,
            reverse: false,
            mss: None,
            one_cpu: false,
        }
    }

    /// Ends after this number of bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Iperf3 {
        self.amount = Amount::Bytes(bytes);
        self
    }

    /// Ends after this number of seconds.
    #[must_use]
    pub fn seconds(mut self, seconds: u32) -> Iperf3 {
        self.amount = Amount::Seconds(seconds);
        self
    }

    /// Sends at most this fast, each stream.
    #[must_use]
    pub fn bitrate_bps(mut self, bitrate_bps: u64) -> Iperf3 {
        self.bitrate_bps = Some(bitrate_bps);
        self
    }

    /// Uses this congestion control.
    #[must_use]
    pub fn congestion(mut self, name: &str) -> Iperf3 {
        self.congestion = Some(name.to_owned());
        self
    }

    /// Uses this number of streams at once.
    #[must_use]
    pub fn parallel(mut self, streams: u32) -> Iperf3 {
        self.parallel = streams;
        self
    }

    /// The server sends and the client receives.
    #[must_use]
    pub fn reverse(mut self) -> Iperf3 {
        self.reverse = true;
        self
    }

    /// Sets the maximum segment size.
    #[must_use]
    pub fn mss(mut self, mss: u32) -> Iperf3 {
        self.mss = Some(mss);
        self
    }

    /// Client and server stay on one CPU, another one for each transfer in turn.
    ///
    /// A packet over veth waits in the queue of the CPU that sent it. A connection that sends from
    /// two CPUs, for example for data and for acknowledgements, reorders its packets
    /// if the first CPU is busy: real reordering without a configured one.
    #[must_use]
    pub fn one_cpu(mut self) -> Iperf3 {
        self.one_cpu = true;
        self
    }

    /// Starts the transfer in `ns`.
    pub fn start(&self, ns: &Netns) -> Result<Iperf3Run, Iperf3Error> {
        let mut command = ns.command("iperf3");
        command.arg("--json").args(self.arguments());
        if self.one_cpu {
            // iperf3 takes the server along: both settle before the data's connection is made.
            let cpu = next_cpu().map_err(Iperf3Error::Cpus)?;
            command.arg(format!("--affinity={cpu},{cpu}"));
        }
        let seconds = match self.amount {
            Amount::Bytes(_) => 0,
            Amount::Seconds(seconds) => seconds,
        };
        let deadline = SPARE_TIME + Duration::from_secs(seconds.into());
        Ok(Iperf3Run {
            process: ns.spawn(command)?,
            server: self.server,
            deadline,
        })
    }

    /// Makes the transfer in `ns` and waits for its end.
    ///
    /// A server that just ended a test has its port closed for some milliseconds. A client that comes
    /// then is refused or reset before its test begins: it comes again.
    pub fn run(&self, ns: &Netns) -> Result<Iperf3Report, Iperf3Error> {
        let end = Instant::now() + AGAIN_DEADLINE;
        loop {
            match self.start(ns)?.finish() {
                Err(Iperf3Error::Refused { message, .. })
                    if has_not_begun(&message) && Instant::now() < end =>
                {
                    thread::sleep(AGAIN_EVERY);
                }
                ended => return ended,
            }
        }
    }

    fn arguments(&self) -> Vec<String> {
        let (ip, port) = (self.server.ip(), self.server.port());
        let mut arguments = vec![format!("--client={ip}"), format!("--port={port}")];
        arguments.push(match self.amount {
            Amount::Bytes(bytes) => format!("--bytes={bytes}"),
            Amount::Seconds(seconds) => format!("--time={seconds}"),
        });
        arguments.push(format!("--parallel={}", self.parallel));
        arguments.extend(self.bitrate_bps.map(|rate| format!("--bitrate={rate}")));
        arguments.extend(
            self.congestion
                .as_ref()
                .map(|name| format!("--congestion={name}")),
        );
        arguments.extend(self.mss.map(|mss| format!("--set-mss={mss}")));
        arguments.extend(self.reverse.then(|| "--reverse".to_owned()));
        arguments
    }
}

/// True if iperf3 says by this error that the server took no test: its port was closed, or closing.
fn has_not_begun(message: &str) -> bool {
    message.contains("unable to connect to server: Connection refused")
        || message.contains("unable to receive control message: Connection reset by peer")
}

/// The CPUs that this process may use, in turn: transfers at once do not all crowd on the first.
fn next_cpu() -> Result<usize, Errno> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let cpus: Vec<usize> = cpus.collect();
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    // A running thread may use some CPU.
    let cpu = turn.checked_rem(cpus.len()).map(|at| cpus[at]);
    cpu.ok_or(Errno::EINVAL)
}

/// A transfer under way; ends on drop.
#[derive(Debug)]
pub struct Iperf3Run {
    process: Process,
    server: SocketAddr,
    deadline: Duration,
}

impl Iperf3Run {
    /// The client's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end; longer than its time and a minute is an error.
    pub fn finish(mut self) -> Result<Iperf3Report, Iperf3Error> {
        self.process.wait(self.deadline)?;
        self.process.close_tails();
        let report: Json = serde_json::from_str(&self.process.stdout())?;
        match report {
            Json {
                error: Some(message),
                ..
            } => Err(Iperf3Error::Refused {
                server: self.server,
                message,
            }),
            Json { end, .. } => Ok(Iperf3Report::from(end)),
        }
    }
}

/// The results of a transfer; sums over all streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Iperf3Report {
    /// Bytes the sender gave to its kernel.
    pub bytes_sent: u64,
    /// Bytes the receiver got; less than sent by what was under way when the sender had written all.
    pub bytes_received: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Length by the receiver's clock.
    pub seconds: f64,
    /// Goodput at the receiver.
    pub goodput_bps: f64,
    /// Smallest RTT of any stream as the sender's kernel saw it; absent in reverse.
    pub min_rtt_us: Option<u64>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Goodput of each stream at the receiver.
    pub streams_bps: Vec<f64>,
}

impl From<End> for Iperf3Report {
    fn from(end: End) -> Iperf3Report {
        let rtts = end
            .streams
            .iter()
            .filter_map(|stream| stream.sender.as_ref()?.min_rtt);
        Iperf3Report {
            bytes_sent: end.sum_sent.bytes,
            bytes_received: end.sum_received.bytes,
            retransmits: end.sum_sent.retransmits.unwrap_or(0),
            seconds: end.sum_received.seconds,
            goodput_bps: end.sum_received.bits_per_second,
            min_rtt_us: rtts.filter(|rtt| *rtt > 0).min(),
            congestion: end.sender_tcp_congestion,
            streams_bps: (end.streams.iter())
                .filter_map(|stream| Some(stream.receiver.as_ref()?.bits_per_second))
                .collect(),
        }
    }
}

#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    streams: Vec<Stream>,
    sum_sent: Sum,
    sum_received: Sum,
    sender_tcp_congestion: Option<String>,
}

#[derive(Deserialize)]
struct Stream {
    sender: Option<StreamSender>,
    receiver: Option<StreamReceiver>,
}

#[derive(Deserialize)]
struct StreamReceiver {
    bits_per_second: f64,
}

#[derive(Deserialize)]
struct StreamSender {
    min_rtt: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
    bits_per_second: f64,
    retransmits: Option<u64>,
}
