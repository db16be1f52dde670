//! Measures congestion controls under configured loss, one flow at a time: the figures of
//! docs/design/0013-bbr3like.md.
//!
//! ```text
//! bbr_loss MBIT RTT_MS SECONDS REPEATS [CC...]      as root; prints a table in Markdown
//! client --- [router: loss on arrival, tbf towards the server] --- wire of RTT/2 each way --- server
//! ```

use std::time::Duration;

use fairpath_bpf::{BBR3LIKE, Bbr3Like, Dropper};
use fairpath_testbed::{Impairment, Iperf3, Iperf3Server, Router, Testbed};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

const PORT: u16 = 5201;
/// Frames with data in bulk; ACKs always pass.
const MIN_BYTES: u32 = 1000;
const SHARES: [f64; 6] = [0.0, 0.01, 0.02, 0.03, 0.05, 0.1];

type Failure = Box<dyn std::error::Error>;

struct Setting {
    mbit: u32,
    rtt_ms: u64,
    seconds: u32,
    repeats: usize,
}

impl Setting {
    /// Buffer: one bandwidth-delay product, at least ten packets.
    fn net(&self, testbed: &Testbed) -> Result<Router, Failure> {
        let direction = Impairment::delay(Duration::from_micros(self.rtt_ms * 500));
        let net = Router::builder()
            .wan_wire(direction.clone(), direction)
            .build(testbed)?;
        let bdp = u64::from(self.mbit) * 125 * self.rtt_ms;
        let (mbit, limit) = (self.mbit, bdp.max(15_140));
        let shape =
            format!("tc qdisc add dev wan root tbf rate {mbit}mbit burst 16000 limit {limit}");
        net.router.run(&shape.split(' ').collect::<Vec<_>>())?;
        Ok(net)
    }

    /// Goodput in Mbit/s, and the share that was lost.
    fn run(&self, cc: &str, share: f64) -> Result<(f64, f64), Failure> {
        let testbed = Testbed::new();
        let net = self.net(&testbed)?;
        let dropper = net.router.enter(|| -> Result<Dropper, String> {
            let index = if_nametoindex("lan").map_err(|error| error.to_string())?;
            Dropper::attach(IfIndex(index), "lan", share, MIN_BYTES).map_err(|e| e.to_string())
        })??;
        let _server = Iperf3Server::start(&net.server, PORT)?;
        let flow = Iperf3::to(Router::SERVER.v4, PORT).congestion(cc);
        let report = flow.seconds(self.seconds).run(&net.client)?;
        let (eligible, dropped) = dropper.counts();
        Ok((
            report.goodput_bps / 1e6,
            dropped as f64 / eligible.max(1) as f64,
        ))
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(low) + at(high)) / 2.0
}

fn main() -> Result<(), Failure> {
    fairpath_bpf::quiet_libbpf();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: bbr_loss MBIT RTT_MS SECONDS REPEATS [CC...]";
    let [mbit, rtt_ms, seconds, repeats, names @ ..] = &words[..] else {
        return Err(usage.into());
    };
    let setting = Setting {
        mbit: mbit.parse()?,
        rtt_ms: rtt_ms.parse()?,
        seconds: seconds.parse()?,
        repeats: repeats.parse()?,
    };
    let shipped = [BBR3LIKE, "bbr", "cubic"].map(str::to_owned);
    let names = if names.is_empty() { &shipped } else { names };
    let registered = Bbr3Like::register()?;
    println!("| loss | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for share in SHARES {
        let mut row = format!("| {} %", share * 100.0);
        for cc in names {
            let runs = (0..setting.repeats).map(|_| setting.run(cc, share));
            let runs: Vec<(f64, f64)> = runs.collect::<Result<_, _>>()?;
            let mut rates: Vec<f64> = runs.iter().map(|run| run.0).collect();
            let middle = median(&mut rates);
            let (min, most) = (rates.first(), rates.last());
            row += &format!(
                " | {middle:.1} ({:.1} to {:.1})",
                min.unwrap_or(&0.0),
                most.unwrap_or(&0.0)
            );
        }
        println!("{row} |");
        eprintln!("{share}: {:?}", registered.counts());
    }
    Ok(())
}
