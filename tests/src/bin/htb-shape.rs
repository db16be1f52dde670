//! `htb-shape INTERFACE PINS PREFIX BPS`: shapes what is sent to a prefix by HTB, and waits to be killed.

use anyhow::{Context, Result, bail};
use fairpath_bpf::Pins;
use fairpath_core::sched::End;
use fairpath_core::{Prefix, Rules};
use fairpath_tests::htb::{self, OTHER, Shaped};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, pins, prefix, bps] = &words[..] else {
        bail!("usage: htb-shape INTERFACE PINS PREFIX BPS");
    };
    fairpath_bpf::quiet_libbpf();
    let (address, bits) = prefix.split_once('/').context("no prefix")?;
    let bps = bps.parse()?;
    let rules = Rules {
        prefixes: vec![(Prefix::new(address.parse()?, bits.parse()?), 1)],
        ..Rules::default()
    };
    let mut shaped = Shaped::open(interface, 1, End::Receiver)?;
    let tree = htb::tree(1_000_000_000, &[htb::class(5, htb::LINE, bps, bps)]);
    let applied = shaped.apply(&tree)?;
    let took = shaped.mark(&rules, &[OTHER, 5], &Pins::at(pins)?)?;
    println!("shaping: took over {} {took:?}", applied.took_over);
    loop {
        std::thread::park();
    }
}
