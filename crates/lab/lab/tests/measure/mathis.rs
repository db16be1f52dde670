//! Loss events, round trips and goodput of one flow fit together as the Mathis formula says (CCR 27(3), 1997).

use std::sync::Arc;
use std::time::Duration;

use fairpath_bpf::Recoveries;
use fairpath_lab::measure::Window;
use fairpath_testbed::{Impairment, Need, Router, Testbed, requires};

use crate::path::{bulk, run};
use crate::steady::{steady, timed};

#[test]
fn renos_goodput_follows_its_measured_loss_and_rtt() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let delay = Impairment::delay(Duration::from_millis(10));
        let there = delay.clone().with_loss(0.01, 11);
        let net = Router::builder()
            .wan_wire(there, delay)
            .build(&Testbed::new())
            .unwrap();
        let recoveries = Arc::new(Recoveries::count().unwrap());
        let ran = run(
            vec![bulk(&net, "bulk", 5201, "reno", 10)],
            Some(recoveries),
            |_| {},
        );
        let record = ran.record(
            0,
            Window {
                from: 1.0,
                to: 10.0,
            },
        );

        let events = record.loss_events.clone().unwrap();
        timed!(events.events > 10, "{events:?}");
        let share = events.events as f64 / events.segments as f64;
        let measured = record.samples.iter().filter(|s| s.at >= 1.0);
        let rtts: Vec<f64> = measured.map(|s| f64::from(s.rtt_us) / 1e6).collect();
        let rtt = rtts.iter().sum::<f64>() / rtts.len() as f64;
        let mathis = f64::from(record.mss_bytes) * 8.0 / rtt * (1.5 / share).sqrt();
        let ratio = record.goodput_bps / mathis;
        println!(
            "{:.2} Mbit/s, Mathis {:.2} at {share:.4} and {:.1} ms: {ratio:.2}; {events:?}",
            record.goodput_bps / 1e6,
            mathis / 1e6,
            rtt * 1e3
        );
        // About 60 events: the formula's constant is that of periodic losses, and random ones vary around it.
        timed!((0.6..1.5).contains(&ratio), "{ratio}");
        Ok(())
    });
}
