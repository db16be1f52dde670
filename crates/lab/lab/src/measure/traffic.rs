//! Bulk traffic by real iperf3: a server and a client a flow, congestion control by process.
//!
//! The result is the receiver's goodput, by its own intervals. The warm-up is removed here and not by iperf3,
//! whose `--omit` discards it. One flow is one pair of processes: iperf3 (3.12) serves all streams of a
//! process in turn, which would be a second scheduler in addition to the tested one.
//!
//! Deliberately absent: iperf3's own TCP figures (sampled once an interval, and none of the receiver's side);
//! [`super::sampler`] asks the kernel.

mod drive;
mod error;
mod report;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_analysis::record::CommandRecord;
use fairpath_testbed::Netns;

use super::clock::Origin;
use drive::{Servers, drive};

pub use drive::Pids;
pub use error::TrafficError;
pub use report::Transfer;

/// The load of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// TCP.
    Tcp {
        /// Its congestion control, which the sender's kernel must have.
        congestion: String,
        /// At most so fast; none: as fast as it goes.
        bitrate_bps: Option<u64>,
        /// Socket buffers, which bound the window; none: the kernel's own tuning.
        window_bytes: Option<u64>,
    },
    /// UDP at a constant rate.
    Udp {
        /// Payload bits a second.
        bitrate_bps: u64,
        /// Payload of a packet.
        payload_bytes: u32,
    },
}

/// A flow to be made.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// As the experiment calls it.
    pub name: String,
    /// Where iperf3's client runs.
    pub client: Netns,
    /// Where its server runs.
    pub server: Netns,
    /// The server's address.
    pub server_ip: IpAddr,
    /// The server's port; no two flows of a namespace share one.
    pub port: u16,
    /// Data goes from the server to the client.
    pub reverse: bool,
    /// The load.
    pub load: Load,
    /// When it begins.
    pub start_seconds: f64,
    /// The duration; iperf3 supports whole seconds.
    pub seconds: u32,
    /// The receiver's intervals, 0.1 to 1 s.
    pub interval: Duration,
    /// CPUs of client and server; none: the scheduler's choice.
    pub cpus: Option<[usize; 2]>,
}

impl FlowPlan {
    /// Where data comes from.
    pub fn sender(&self) -> &Netns {
        if self.reverse {
            &self.server
        } else {
            &self.client
        }
    }

    /// The server's command line.
    pub fn server_command(&self) -> CommandRecord {
        let mut argv = self.iperf3();
        argv.extend(["--server".to_owned(), "--one-off".to_owned()]);
        argv.extend(self.cpus.map(|cpus| format!("--affinity={}", cpus[1])));
        CommandRecord {
            host: self.server.name().to_owned(),
            argv,
        }
    }

    /// The client's command line.
    pub fn client_command(&self) -> CommandRecord {
        let mut argv = self.iperf3();
        argv.push(format!("--client={}", self.server_ip));
        argv.push(format!("--time={}", self.seconds));
        argv.extend(self.cpus.map(|cpus| format!("--affinity={}", cpus[0])));
        argv.extend(self.reverse.then(|| "--reverse".to_owned()));
        argv.extend(self.load_arguments());
        CommandRecord {
            host: self.client.name().to_owned(),
            argv,
        }
    }

    fn iperf3(&self) -> Vec<String> {
        let interval = format!("--interval={}", self.interval.as_secs_f64());
        let port = format!("--port={}", self.port);
        vec!["iperf3".to_owned(), "--json".to_owned(), port, interval]
    }

    fn load_arguments(&self) -> Vec<String> {
        match &self.load {
            Load::Tcp {
                congestion,
                bitrate_bps,
                window_bytes,
            } => {
                let mut argv = vec![format!("--congestion={congestion}")];
                argv.extend(bitrate_bps.map(|rate| format!("--bitrate={rate}")));
                argv.extend(window_bytes.map(|bytes| format!("--window={bytes}")));
                argv
            }
            Load::Udp {
                bitrate_bps,
                payload_bytes,
            } => vec![
                "--udp".to_owned(),
                format!("--bitrate={bitrate_bps}"),
                format!("--length={payload_bytes}"),
            ],
        }
    }
}

/// Servers that listen, for flows that have not begun.
#[derive(Debug)]
pub struct Traffic {
    plans: Vec<FlowPlan>,
    servers: Servers,
}

impl Traffic {
    /// Checks that iperf3 and every congestion control exist, and starts the servers. About 10 ms per flow.
    ///
    /// # Errors
    /// [`TrafficError`], which names the flow.
    pub fn listen(plans: Vec<FlowPlan>) -> Result<Traffic, TrafficError> {
        let servers = Servers::start(&plans)?;
        Ok(Traffic { plans, servers })
    }

    /// Every command that is or will be run, in order.
    pub fn commands(&self) -> Vec<CommandRecord> {
        let servers = self.plans.iter().map(FlowPlan::server_command);
        let clients = self.plans.iter().map(FlowPlan::client_command);
        servers.chain(clients).collect()
    }

    /// Starts each flow at its time after `origin`, on a separate thread.
    ///
    /// # Errors
    /// [`TrafficError::Thread`].
    pub fn begin(self, origin: Origin) -> Result<Running, TrafficError> {
        let stop = Arc::new(AtomicBool::new(false));
        let pids = Pids::of(&self.servers);
        let (stopped, known) = (Arc::clone(&stop), pids.clone());
        let thread = std::thread::Builder::new()
            .name("lab-traffic".to_owned())
            .spawn(move || drive(&self.plans, self.servers, origin, &stopped, &known))
            .map_err(TrafficError::Thread)?;
        Ok(Running {
            thread: Some(thread),
            stop,
            pids,
        })
    }
}

/// The result of the driving thread: each flow in order of the plans.
type Driven = Result<Vec<Transfer>, TrafficError>;

/// Flows under way; all of them end when the value goes.
#[derive(Debug)]
pub struct Running {
    thread: Option<JoinHandle<Driven>>,
    stop: Arc<AtomicBool>,
    pids: Pids,
}

impl Running {
    /// Process ids of iperf3, for the measurement of processor time and for changes mid-run.
    pub fn pids(&self) -> Pids {
        self.pids.clone()
    }

    /// True if all flows have ended (or one has failed): [`Running::finish`] will not wait.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends all flows early; [`Running::finish`] then gives [`TrafficError::Stopped`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of all flows: in order of the plans.
    ///
    /// # Errors
    /// [`TrafficError`] of the first flow that failed; the others are ended then.
    pub fn finish(mut self) -> Result<Vec<Transfer>, TrafficError> {
        let thread = self.thread.take().expect("taken here and on drop only");
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; what it held is gone with it.
            let _ = thread.join();
        }
    }
}
