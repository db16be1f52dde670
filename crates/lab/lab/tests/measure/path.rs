//! Flows from the client to the server of a [`Router`], with a sampler.

use std::sync::Arc;
use std::time::Duration;

use fairpath_analysis::record::FlowRecord;
use fairpath_bpf::Recoveries;
use fairpath_lab::measure::sampler::{SAMPLE_EVERY, Sampled, Sampler, Series, Watched};
use fairpath_lab::measure::traffic::{FlowPlan, Load, Running, Traffic, Transfer};
use fairpath_lab::measure::{Origin, Window};
use fairpath_testbed::Router;

/// From the first measurement to the traffic.
pub const LEAD: Duration = Duration::from_millis(400);

/// A flow as fast as it goes.
pub fn bulk(net: &Router, name: &str, port: u16, congestion: &str, seconds: u32) -> FlowPlan {
    FlowPlan {
        name: name.to_owned(),
        client: net.client.clone(),
        server: net.server.clone(),
        server_ip: Router::SERVER.v4.into(),
        port,
        reverse: false,
        load: Load::Tcp {
            congestion: congestion.to_owned(),
            bitrate_bps: None,
            window_bytes: None,
        },
        start_seconds: 0.0,
        seconds,
        interval: Duration::from_millis(100),
        cpus: None,
    }
}

/// The results of flows and sampler.
pub struct Ran {
    pub transfers: Vec<Transfer>,
    pub sampled: Sampled,
}

impl Ran {
    /// The record of a flow.
    pub fn record(&self, flow: usize, window: Window) -> FlowRecord {
        self.sampled.record(&self.transfers[flow], window)
    }

    /// A flow's samples as they are where the kernel's counter cannot run.
    pub fn without_recoveries(&self, flow: usize) -> Series {
        let transfer = &self.transfers[flow];
        let (local, peer) = transfer.socket.expect("iperf3 names its socket");
        let series = self.sampled.between(transfer.sender, local, peer);
        let mut series = series.expect("it was sampled").clone();
        series
            .moments
            .iter_mut()
            .for_each(|moment| moment.reported = None);
        series
    }
}

/// Runs flows to their end, `during` once they have begun.
pub fn run(
    plans: Vec<FlowPlan>,
    recoveries: Option<Arc<Recoveries>>,
    mut during: impl FnMut(&Running),
) -> Ran {
    let tcp = plans
        .iter()
        .filter(|plan| matches!(plan.load, Load::Tcp { .. }));
    let watched = tcp.map(Watched::from).collect();
    let traffic = Traffic::listen(plans).unwrap();
    let origin = Origin::ahead(LEAD);
    let sampler = Sampler::start(watched, origin, SAMPLE_EVERY, recoveries).unwrap();
    let running = traffic.begin(origin).unwrap();
    std::thread::sleep(LEAD + Duration::from_millis(500));
    during(&running);
    let transfers = running.finish().unwrap();
    Ran {
        transfers,
        sampled: sampler.finish().unwrap(),
    }
}
