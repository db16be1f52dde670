//! `htb-shape INTERFACE PINS PREFIX BPS [LEAF]`: shapes what is sent to a prefix by HTB, and waits to be killed.

use anyhow::{Context, Result, bail};
use fairpath_bpf::Pins;
use fairpath_core::sched::End;
use fairpath_core::{Prefix, Rules};
use fairpath_netlink::{LeafKind, Leaves};
use fairpath_tests::htb::{self, OTHER, Shaped};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, pins, prefix, bps, leaf @ ..] = &words[..] else {
        bail!("usage: htb-shape INTERFACE PINS PREFIX BPS [LEAF]");
    };
    fairpath_bpf::quiet_libbpf();
    let (address, bits) = prefix.split_once('/').context("no prefix")?;
    let bps = bps.parse()?;
    let rules = Rules {
        prefixes: vec![(Prefix::new(address.parse()?, bits.parse()?), 1)],
        ..Rules::default()
    };
    let mut shaped = Shaped::open(interface, 1, End::Receiver)?;
    let mut tree = htb::tree(1_000_000_000, &[htb::class(5, htb::LINE, bps, bps)]);
    tree.leaves = match leaf.first().map(String::as_str) {
        None => Leaves::Best,
        Some("cake") => Leaves::Only(LeafKind::Cake),
        Some("fq_codel") => Leaves::Only(LeafKind::FqCodel),
        Some("pfifo") => Leaves::Only(LeafKind::Fifo),
        Some(other) => bail!("no leaf \"{other}\": cake, fq_codel or pfifo"),
    };
    let applied = shaped.apply(&tree)?;
    let took = shaped.mark(&rules, &[OTHER, 5], &Pins::at(pins)?)?;
    let leaves = applied.leaves.map(|leaves| leaves.to_string());
    println!(
        "shaping: handed over {}, program {took:?}, leaves {leaves:?}",
        applied.handed_over
    );
    loop {
        std::thread::park();
    }
}
