//! `afxdp-forward LAN WAN HELD [OWN-MAC]`: a monitored bridge's inside, first in, first out, without limit.
//!
//! A process separate, for tests that kill, stop and starve it. SIGTERM ends it in order, and it then
//! prints what it did, as one line of JSON.

use anyhow::{Context, Result, bail};
use fairpath_afxdp::{QueueId, RingStatistics, Stop};
use fairpath_bpf::{ForwardOutcome, Forwarding};
use fairpath_tests::through::{Named, Setup, Through};
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lan, wan, held, own @ ..] = &arguments[..] else {
        bail!("usage: afxdp-forward LAN WAN HELD [OWN-MAC]");
    };
    fairpath_bpf::quiet_libbpf();
    let stop = Stop::new()?;
    end_by_signal(&stop)?;
    let exits = [lan, wan].map(|name| Named::new(name, [0; 6]));
    let setup = Setup {
        own: own.iter().map(|mac| parse(mac)).collect::<Result<_>>()?,
        tcx: true,
        held: held.parse().context("read HELD, a number of frames")?,
        ..Setup::new(Forwarding::Bridge, exits)
    };
    let Through {
        mut forwarder,
        monitor,
        attached,
        ..
    } = setup.open()?;
    println!("forwarding");
    forwarder.run(&stop, |_| ());
    drop(attached);
    // What was redirected before the programs went is still taken.
    while forwarder.turn() || forwarder.port().frames().sending > 0 {}
    let lost = (0..2).map(|queue| forwarder.port().statistics(QueueId(queue)));
    let lost = lost.collect::<Result<Vec<RingStatistics>, _>>()?;
    let counts = forwarder.counts();
    println!(
        "{}",
        json!({
            "redirected": monitor.outcomes().map(|outcomes| outcomes.of(ForwardOutcome::ToSocket)),
            "lost": lost.iter().map(RingStatistics::lost).collect::<Vec<_>>(),
            "received": counts.received,
            "sent": counts.sent,
            "dropped": counts.dropped + counts.no_link + counts.no_capacity,
            "held": counts.held(),
            "frames_held": forwarder.port().frames().held,
            "strays": forwarder.port().strays(),
        })
    );
    Ok(())
}

fn end_by_signal(stop: &Stop) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let stop = stop.clone();
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            stop.request();
        }
    });
    Ok(())
}

fn parse(mac: &str) -> Result<[u8; 6]> {
    let bytes: Result<Vec<u8>, _> = mac.split(':').map(|b| u8::from_str_radix(b, 16)).collect();
    let bytes = bytes.with_context(|| format!("read MAC address {mac}"))?;
    bytes
        .try_into()
        .ok()
        .with_context(|| format!("read MAC address {mac}"))
}
