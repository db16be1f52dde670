//! However it ends, nothing stays in the kernel.

use std::collections::BTreeSet;
use std::fs;

use fairpath_bpf::has_map;
use fairpath_testbed::{Need, Ping, Router, Testbed, requires, wait_for};
use fairpath_tests::{PATIENCE, Rtt};
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use nix::sys::signal::Signal;

/// BPF objects by the kernel's numbers, which are assigned in order and not reused soon.
#[derive(Debug, Default, PartialEq, Eq)]
struct Objects {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl Objects {
    /// The BPF objects that a process holds by descriptors.
    fn of_process(pid: u32) -> Objects {
        let mut objects = Objects::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let number = |key: &str| {
                let value = text.lines().find_map(|line| line.strip_prefix(key))?;
                value.trim().parse::<u32>().ok()
            };
            // A link has its program as well.
            objects.links.extend(number("link_id:"));
            objects.programs.extend(number("prog_id:"));
            objects.maps.extend(number("map_id:"));
        }
        objects
    }

    /// Those of them that the kernel still has.
    fn alive(&self) -> Objects {
        let programs = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default());
        let among = |ids: &BTreeSet<u32>, id| ids.contains(&id).then_some(id);
        Objects {
            programs: programs
                .filter_map(|p| among(&self.programs, p.id))
                .collect(),
            maps: self
                .maps
                .iter()
                .copied()
                .filter(|id| has_map(*id))
                .collect(),
            links: LinkInfoIter::default()
                .filter_map(|l| among(&self.links, l.id))
                .collect(),
        }
    }
}

fn nothing_stays_after(signal: Signal, hook: &str) {
    let router = Router::new(&Testbed::new()).unwrap();
    let mut rtt = Rtt::watch(&router.router, &["lan", "wan"], &["--hook", hook]);
    Ping::to(Router::SERVER.v4)
        .count(2)
        .run(&router.client)
        .unwrap();
    let objects = Objects::of_process(rtt.process.id());
    // Ingress and egress of both interfaces; the programs of both; arena, ring and globals.
    assert_eq!(objects.links.len(), 4, "{objects:?}");
    assert!(
        objects.programs.len() >= 2 && objects.maps.len() >= 2,
        "{objects:?}"
    );
    assert_eq!(objects.alive(), objects);

    rtt.process.signal(signal);
    rtt.process.wait(PATIENCE).unwrap();
    // The kernel frees maps after a grace period.
    let removed = wait_for(PATIENCE, || {
        (objects.alive() == Objects::default()).then_some(())
    });
    assert!(removed.is_some(), "after {signal}: {:?}", objects.alive());
    let shown = router
        .router
        .run(&["ip", "-details", "link", "show"])
        .unwrap();
    assert!(!shown.contains("prog/xdp"), "{shown}");
    let ping = Ping::to(Router::SERVER.v6)
        .count(2)
        .run(&router.client)
        .unwrap();
    assert_eq!(ping.received, 2);
}

#[test]
fn nothing_stays_attached_after_sigkill() {
    requires!(Need::Root, Need::Tool("ping"));
    for hook in ["tcx", "xdp"] {
        nothing_stays_after(Signal::SIGKILL, hook);
    }
}

#[test]
fn nothing_stays_attached_after_sigterm() {
    requires!(Need::Root, Need::Tool("ping"));
    for hook in ["tcx", "xdp"] {
        nothing_stays_after(Signal::SIGTERM, hook);
    }
}
