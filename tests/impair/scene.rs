//! A router that impairs, and numbered datagrams through it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::IpAddr;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fairpath_testbed::{Netns, Offloads, Process, Router, Testbed, wait_for};
use fairpath_tests::PATIENCE;
use fairpath_tests::binary::fairpath;
use fairpath_units::report_retry;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::stream::{CPU, Course, Stream};

/// Of everything that is drawn, where a test does not say: chance makes no test fail.
const SEED: &str = "5";

/// Runs that may be late, in all tests of this suite together: of some forty.
const LATE_LIMIT: u32 = 8;
static LATE: AtomicU32 = AtomicU32::new(0);

/// A router that no other test impairs at the same time: threads with real-time priority would compete for
/// the processors.
pub struct Scene {
    net: Router,
    #[expect(dead_code, reason = "held while the network is there")]
    alone: Flock<File>,
}

impl Deref for Scene {
    type Target = Router;

    fn deref(&self) -> &Router {
        &self.net
    }
}

/// Client, router, server; frames are what a wire would carry. Waits for the one before to go.
pub fn router() -> Scene {
    let alone = alone();
    let net = Router::new(&Testbed::new()).unwrap();
    Scene::new(net, alone)
}

/// The same, with GSO packets of the stack.
pub fn router_with_offloads() -> Scene {
    let alone = alone();
    let builder = Router::builder().offloads(Offloads::On);
    let net = builder.build(&Testbed::new()).unwrap();
    Scene::new(net, alone)
}

/// Lets one processor handle the packets of these namespaces' interfaces.
pub fn steer(all: [&Netns; 3]) {
    for ns in all {
        ns.receive_on(CPU).unwrap();
    }
}

/// A lock on this program: for its threads, and for other processes of it.
pub fn alone() -> Flock<File> {
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    Flock::lock(program, FlockArg::LockExclusive).unwrap()
}

impl Scene {
    /// A thread that sends moves from processor to processor, each of which has a queue of what comes
    /// by a veth: here all of it goes by one.
    fn new(net: Router, alone: Flock<File>) -> Scene {
        steer([&net.client, &net.router, &net.server]);
        Scene { net, alone }
    }
}

/// True if a program with these words runs in this namespace, and in no other.
pub fn runs(ns: &Netns, words: &[&str]) -> bool {
    let line: String = words.iter().map(|word| format!("{word}\0")).collect();
    let is_it = |process: &Path| {
        let net = fs::metadata(process.join("ns/net"));
        let reported = fs::read(process.join("cmdline")).unwrap_or_default();
        reported == line.as_bytes() && net.is_ok_and(|net| net.ino() == ns.inode())
    };
    let mut all = fs::read_dir("/proc").unwrap().flatten();
    all.any(|entry| is_it(&entry.path()))
}

/// A running `fairpath impair`.
pub struct Impaired {
    pub process: Process,
}

/// The end.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// The last report.
    pub report: Value,
    pub stderr: String,
}

/// The command in a namespace, its words behind `impair`.
pub fn command(ns: &Netns, words: &[&str]) -> Command {
    let mut command = ns.command_without_sysfs(fairpath());
    command.arg("impair").args(words);
    // A remote login of the tests does not use these interfaces.
    command.env_remove("SSH_CONNECTION");
    command
}

impl Impaired {
    /// Impairs in a namespace, and is ready.
    pub fn start(ns: &Netns, words: &[&str]) -> Impaired {
        let seeded = words.contains(&"--seed");
        let seed: &[&str] = if seeded { &[] } else { &["--seed", SEED] };
        let words = [&["--no-self-test", "--format", "json"], seed, words].concat();
        let impaired = Impaired {
            process: ns.spawn(command(ns, &words)).unwrap(),
        };
        impaired.logs("ready: impairing");
        impaired.logs("back end ");
        impaired
    }

    /// Between both interfaces of a router, by a port.
    pub fn between(net: &Router, port: &str, words: &[&str]) -> Impaired {
        let words = [&["lan", "--peer", "wan", "--via", port], words].concat();
        Impaired::start(&net.router, &words)
    }

    fn logs(&self, text: &str) {
        if let Err(error) = self.process.wait_stderr(text, PATIENCE) {
            panic!("{error}");
        }
    }

    /// Ctrl-C, and the last report.
    pub fn end(self) -> Ended {
        self.process.signal(Signal::SIGINT);
        self.ended()
    }

    /// Waits for it to end.
    pub fn ended(mut self) -> Ended {
        let status = self.process.wait(PATIENCE).unwrap();
        // What a killed program printed has been read when its pipes are closed.
        let out = wait_for(Duration::from_secs(5), || {
            let out = self.process.stdout();
            out.contains("\"final\":true").then_some(out)
        });
        let stderr = self.process.stderr();
        let out = out.unwrap_or_else(|| panic!("no last report: {stderr}"));
        let last = out.lines().find(|line| line.contains("\"final\":true"));
        Ended {
            status,
            report: serde_json::from_str(last.unwrap()).unwrap(),
            stderr,
        }
    }
}

impl Ended {
    /// The report of a direction.
    pub fn direction(&self, name: &str) -> &Value {
        let directions = self.report["directions"].as_array().unwrap();
        let direction = directions
            .iter()
            .find(|direction| direction["name"] == name);
        direction.unwrap_or_else(|| panic!("no {name}: {:#}", self.report))
    }

    /// A number of a direction.
    pub fn number(&self, direction: &str, key: &str) -> u64 {
        let value = &self.direction(direction)[key];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {:#}", self.report))
    }

    /// The planned mean delay of a direction, ns.
    pub fn planned_ns(&self, direction: &str) -> f64 {
        self.direction(direction)["planned_delay_ns"]
            .as_f64()
            .unwrap()
    }

    /// The run was valid, as its exit status reports.
    pub fn assert_valid(&self) {
        assert_eq!(
            self.report["valid"], true,
            "{:#}\n{}",
            self.report, self.stderr
        );
        assert!(self.status.success(), "{:?}", self.status);
    }

    /// The same, unless other load made packets late or prevented their reception, which the report
    /// states. What a test asserts of order and of times that are not too early holds
    /// then, too; such runs are counted, and few.
    pub fn assert_true_or_late(&self) {
        let why = self.report["reasons"].as_array().unwrap();
        let is_late = |why: &Value| {
            let why = why.as_str().unwrap();
            why.contains("mean lateness")
                || why.contains("the lateness had a standard deviation")
                || why.contains("dropped in the kernel before")
        };
        if why.is_empty() || !why.iter().all(is_late) {
            return self.assert_valid();
        }
        let late = LATE.fetch_add(1, Ordering::Relaxed) + 1;
        report_retry("impair::late", late, &format!("{why:?}"));
        assert!(late <= LATE_LIMIT, "{late} runs of this suite were late");
    }
}

/// Datagrams as they came, by number.
#[derive(Debug, Default)]
pub struct Arrived {
    /// The number of arrivals of each packet.
    pub times: BTreeMap<u32, u32>,
    /// Numbers that came after a greater one.
    pub inversions: u32,
}

impl Arrived {
    /// Counts the arrivals of a stream.
    pub fn of(stream: &Stream) -> Arrived {
        let mut arrived = Arrived {
            inversions: stream.inversions() as u32,
            ..Arrived::default()
        };
        for (number, _) in &stream.arrived {
            *arrived.times.entry(*number).or_default() += 1;
        }
        arrived
    }
}

/// Sends datagrams 0 to `count` from one namespace to an address of another, and returns the received
/// ones.
pub fn datagrams(from: &Netns, to: &Netns, address: impl Into<IpAddr>, count: u32) -> Arrived {
    Arrived::of(&Course::new(from, to, address, count).run(count as usize))
}
