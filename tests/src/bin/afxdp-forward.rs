//! `afxdp-forward LAN WAN`: carries packets between two interfaces, first in, first out, for ever.
//!
//! A process of its own, for tests that kill it and benches that give it a CPU.

use anyhow::{Result, bail};
use fairpath_afxdp::{Fifo, Forwarder, Stop};
use fairpath_tests::carrier::Opening;

/// Packets held for each interface.
const LIMIT: usize = 1024;

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [lan, wan] = &names[..] else {
        bail!("usage: afxdp-forward LAN WAN");
    };
    fairpath_bpf::quiet_libbpf();
    let opening = Opening::between(lan, wan);
    let carrier = opening.open()?;
    let fifo = Fifo::new(carrier.port.len(), LIMIT);
    let mut forwarder = Forwarder::new(carrier.port, &opening.pairs(), fifo)?;
    println!("forwarding");
    forwarder.run(&Stop::new()?, |_| ());
    Ok(())
}
