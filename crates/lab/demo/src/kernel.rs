//! The figures of the senders' kernels about their connections: `ss -ti`, sampled while data flows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fairpath_testbed::{SocketSample, sockets};

use crate::lab::Lab;
use crate::outcome::Peer;
use crate::samples::BULK_BYTES;
use crate::spread::Spread;

/// Time between two readings of the senders' sockets; each reading starts `ss`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Waits for `work`, and reads the senders' sockets during this time.
pub fn while_sampling<T: Send>(
    lab: &Lab,
    ports: [u16; 2],
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<(T, Peer)> {
    let over = AtomicBool::new(false);
    let mut seen: Vec<SocketSample> = Vec::new();
    let result = thread::scope(|scope| -> anyhow::Result<T> {
        let worker = scope.spawn(|| {
            let result = work();
            over.store(true, Ordering::Relaxed);
            result
        });
        let mut looked = Ok(());
        while !over.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            looked = looked.and_then(|()| look(lab, ports, &mut seen));
        }
        let result = worker.join().expect("waiting for a tool does not panic");
        looked.context("sample the senders' sockets")?;
        result
    })?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let min = seen.iter().filter_map(|sample| sample.min_rtt).min();
    let peer = Peer {
        name: "ss -ti reports",
        min_ms: min.map(millis),
        rtt: Spread::new(seen.iter().filter_map(|sample| sample.rtt.map(millis))),
    };
    Ok((result, peer))
}

/// Sockets of both ends that have sent data in bulk.
fn look(lab: &Lab, ports: [u16; 2], seen: &mut Vec<SocketSample>) -> anyhow::Result<()> {
    for (ns, which) in [(&lab.net.client, "dport"), (&lab.net.server, "sport")] {
        let [first, second] = ports;
        let all = sockets(ns, &format!("{which} = :{first} or {which} = :{second}"))?;
        let sent = |sample: &SocketSample| sample.bytes_sent.unwrap_or(0);
        seen.extend(all.into_iter().filter(|sample| sent(sample) >= BULK_BYTES));
    }
    Ok(())
}
