//! A dropper on an interface of another namespace, held by a thread there.

use std::sync::mpsc;
use std::thread;

use fairpath_bpf::Dropper;
use fairpath_testbed::{LinkEnd, Netns, Offloads};
use fairpath_units::IfIndex;

/// Drops packets until its counts are requested, or the value is dropped.
pub struct ConfiguredLoss {
    over: mpsc::Sender<()>,
    thread: thread::JoinHandle<(u64, u64)>,
}

impl ConfiguredLoss {
    /// Drops frames of at least `min_bytes` that arrive at `end`; GRO stays off.
    pub fn at(end: &LinkEnd, share: f64, min_bytes: u32) -> ConfiguredLoss {
        let (over, wait) = mpsc::channel::<()>();
        let (ready, attached) = mpsc::channel();
        let (ns, name) = (end.ns().clone(), end.ifname().to_owned());
        let ifindex = index_of(&ns, &name);
        let hold = move || {
            let dropper = Dropper::attach(ifindex, &name, share, min_bytes).unwrap();
            ready.send(()).unwrap();
            // An error means that the test is over, by a panic.
            let _ = wait.recv();
            dropper.counts()
        };
        let thread = thread::spawn(move || ns.enter(hold).unwrap());
        attached.recv().expect("the dropper is attached");
        end.set_offloads(Offloads::Off).unwrap();
        ConfiguredLoss { over, thread }
    }

    /// Ends it: frames that were large enough, and those of them that were dropped.
    pub fn counts(self) -> (u64, u64) {
        drop(self.over);
        self.thread.join().unwrap()
    }
}

fn index_of(ns: &Netns, name: &str) -> IfIndex {
    let line = ns
        .run(&["ip", "-oneline", "link", "show", "dev", name])
        .unwrap();
    IfIndex(line.split(':').next().unwrap().parse().unwrap())
}
