//! The installed `fairpath rtt` during a flow: its results agree with those of the sender's kernel.
//!
//! `FAIRPATH_BIN_DIR` names the binary's directory (`cargo xtask test` sets it); without it cargo builds it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fairpath_bpf::Dropper;
use fairpath_lab::measure::passive::PassivePlan;
use fairpath_lab::measure::sampler::{SAMPLE_EVERY, Sampler, Watched};
use fairpath_lab::measure::traffic::Traffic;
use fairpath_lab::measure::{Origin, Window};
use fairpath_netlink::Links;
use fairpath_testbed::{Need, Router, Testbed, requires};

use crate::path::{LEAD, Ran, bulk};
use crate::steady::{steady, timed};

fn fairpath() -> PathBuf {
    if let Some(directory) = std::env::var_os("FAIRPATH_BIN_DIR") {
        return PathBuf::from(directory).join("fairpath");
    }
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "fairpath",
            "--bin",
            "fairpath",
        ])
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(
        status.is_ok_and(|s| s.success()),
        "build the binary, or name its directory in FAIRPATH_BIN_DIR"
    );
    // PROFILE/deps/passive-HASH -> PROFILE/fairpath
    let test = std::env::current_exe().unwrap();
    test.parent()
        .and_then(Path::parent)
        .unwrap()
        .join("fairpath")
}

#[test]
fn passive_rtts_and_losses_match_the_sender() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let testbed = Testbed::new();
        let net = Router::new(&testbed).unwrap();
        // Behind the watched interface: the router sees what is sent again.
        let dropper = net.server.enter(|| {
            let eth0 = Links::open().unwrap().by_name("eth0").unwrap().unwrap();
            Dropper::attach(eth0.ifindex, "eth0", 0.01, 1000).unwrap()
        });
        let dropper = dropper.unwrap();
        let passive = PassivePlan {
            fairpath: fairpath(),
            ns: net.router.clone(),
            interface: "wan".to_owned(),
        };
        let watching = passive.start().unwrap();
        let plans = vec![bulk(&net, "bulk", 5201, "reno", 2)];
        let watched = plans.iter().map(Watched::from).collect();
        let traffic = Traffic::listen(plans).unwrap();
        let origin = Origin::ahead(LEAD);
        let sampler = Sampler::start(watched, origin, SAMPLE_EVERY, None).unwrap();
        let transfers = traffic.begin(origin).unwrap().finish().unwrap();
        let sampled = sampler.finish().unwrap();
        let window = Window { from: 0.5, to: 2.0 };
        let passive = watching.finish(origin, window).unwrap();
        let ran = Ran { transfers, sampled };

        let (_, dropped) = dropper.counts();
        timed!(dropped > 20, "{dropped}");
        // `fairpath rtt` sees each loss by its repair; a few are under way at the end.
        let reported = passive.retransmitted;
        timed!(
            reported * 10 > dropped * 8 && reported * 8 < dropped * 10,
            "{passive:?}, {dropped} dropped"
        );
        timed!(passive.segments > dropped * 50, "{passive:?}");
        timed!(passive.samples > 30, "{passive:?}");
        let [p5, p50, p95, p99] = passive.rtt_ns.unwrap();
        assert!(p5 <= p50 && p50 <= p95 && p95 <= p99, "{passive:?}");
        // From the router to the server and back is a part of the sender's round trip.
        let record = ran.record(0, window);
        let longest = record.samples.iter().map(|s| s.rtt_us).max().unwrap();
        timed!(p5 < u64::from(longest) * 1000, "{passive:?}, {longest} us");
        Ok(())
    });
}
