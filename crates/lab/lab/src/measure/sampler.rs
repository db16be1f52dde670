//! The senders' sockets, ten times a second: TCP_INFO, congestion control, and its number of loss events.
//!
//! One thread for all flows, one netlink socket for each namespace. While a flow's data socket is unknown,
//! the connections of the namespace are listed; afterwards each is queried alone, because listing walks the
//! table of the whole machine. A data socket is distinguished from iperf3's control connection by its sent
//! bytes; the exact one is chosen afterwards, by the ports that iperf3 reports.
//!
//! Samples cannot count recoveries: over 0.5 ms one is over before the next sample. A BPF program does
//! ([`Recoveries`]); where it cannot run, changes between samples are counted, and the record says so.

mod series;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_bpf::Recoveries;
use fairpath_netlink::NetlinkError;
use fairpath_testbed::{Netns, NetnsError};

use super::clock::Origin;
use super::traffic::FlowPlan;
use work::Work;

pub use series::{Moment, Series};

/// Time between samples of the records.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Sockets cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The namespace of a flow's sender could not be entered.
    #[error("sample the sockets of flow \"{flow}\"")]
    Netns {
        /// Which flow.
        flow: String,
        /// Why not.
        source: NetnsError,
    },
    /// The kernel gave no answer.
    #[error(
        "sample the sockets of namespace \"{ns}\"; needs a kernel with INET_DIAG (modprobe tcp_diag)"
    )]
    Diag {
        /// Which namespace.
        ns: String,
        /// The cause.
        source: NetlinkError,
    },
    /// No thread.
    #[error("start the sampler's thread")]
    Thread(#[source] std::io::Error),
}

/// A flow whose sender is to be watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its name, for errors.
    pub flow: String,
    /// Where the sender is.
    pub sender: Netns,
    /// Where iperf3's server listens.
    pub server: SocketAddr,
    /// The server is the sender.
    pub reverse: bool,
    /// When it is to begin.
    pub start_seconds: f64,
}

impl From<&FlowPlan> for Watched {
    fn from(plan: &FlowPlan) -> Watched {
        Watched {
            flow: plan.name.clone(),
            sender: plan.sender().clone(),
            server: SocketAddr::new(plan.server_ip, plan.port),
            reverse: plan.reverse,
            start_seconds: plan.start_seconds,
        }
    }
}

/// Samples until it is finished; ends on drop.
#[derive(Debug)]
pub struct Sampler {
    thread: Option<JoinHandle<Result<Sampled, SamplerError>>>,
    stop: Arc<AtomicBool>,
}

impl Sampler {
    /// Begins; `flows` are those that send TCP.
    ///
    /// # Errors
    /// [`SamplerError`].
    pub fn start(
        flows: Vec<Watched>,
        origin: Origin,
        every: Duration,
        recoveries: Option<Arc<Recoveries>>,
    ) -> Result<Sampler, SamplerError> {
        let work = Work::new(flows, origin, every, recoveries)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("lab-sampler".to_owned())
            .spawn(move || work.run(&stopped))
            .map_err(SamplerError::Thread)?;
        Ok(Sampler {
            thread: Some(thread),
            stop,
        })
    }

    /// Ends it and gives what was seen.
    ///
    /// # Errors
    /// [`SamplerError`] of the first question that was not answered.
    pub fn finish(mut self) -> Result<Sampled, SamplerError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("taken here and on drop only");
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; nothing is left of it.
            let _ = thread.join();
        }
    }
}

/// The samples.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// Every connection of the watched flows, control connections among them.
    pub series: Vec<Series>,
    /// Processor time that the thread took.
    pub cpu: Duration,
    /// Length of the sampling.
    pub elapsed: Duration,
}

impl Sampled {
    /// The connection between these addresses (canonical) in the namespace with this inode.
    pub fn between(&self, ns: u64, local: SocketAddr, peer: SocketAddr) -> Option<&Series> {
        self.series.iter().find(|series| {
            series.ns == ns
                && canonical(series.id.local) == local
                && canonical(series.id.peer) == peer
        })
    }

    /// Share of one core that sampling took.
    pub fn cores(&self) -> f64 {
        let elapsed = self.elapsed.as_secs_f64();
        if elapsed > 0.0 {
            self.cpu.as_secs_f64() / elapsed
        } else {
            0.0
        }
    }
}

/// Without the mapping of an IPv4 address into IPv6's, which servers for both families show.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
