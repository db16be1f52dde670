//! A router that impairs, and numbered datagrams through it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Netns, Offloads, Process, Router, Testbed, wait_for};
use fairpath_tests::PATIENCE;
use fairpath_tests::binary::fairpath;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;

/// Where datagrams go.
const PORT: u16 = 7777;
/// Between two datagrams: slow enough for a busy machine.
const EVERY: Duration = Duration::from_micros(200);

/// Of everything that is drawn, where a test does not say: chance makes no test fail.
const SEED: &str = "5";
/// What is under way comes within this, or not at all.
const SILENCE: Duration = Duration::from_millis(1500);
/// Where packets are handed on, and where they are sent: order is kept on one processor only.
const CPU: usize = 0;

/// A router that no other test impairs beside: threads that run before all others would take the
/// processors from each other.
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

/// Likewise, with the stack's super-packets.
pub fn router_with_offloads() -> Scene {
    let alone = alone();
    let builder = Router::builder().offloads(Offloads::On);
    let net = builder.build(&Testbed::new()).unwrap();
    Scene::new(net, alone)
}

/// A lock on this very program: of its threads, and of whoever else runs it.
fn alone() -> Flock<File> {
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    Flock::lock(program, FlockArg::LockExclusive).unwrap()
}

impl Scene {
    /// A thread that sends moves from processor to processor, each of which has a queue of what comes
    /// by a veth: here all of it goes by one.
    fn new(net: Router, alone: Flock<File>) -> Scene {
        let steer = format!(
            "for queue in /sys/class/net/*/queues/rx-0/rps_cpus; do echo {} >$queue; done",
            1 << CPU
        );
        for ns in [&net.client, &net.router, &net.server] {
            ns.run(&["sh", "-c", &steer]).unwrap();
        }
        Scene { net, alone }
    }
}

/// A running `fairpath impair`.
pub struct Impaired {
    pub process: Process,
}

/// How it ended.
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
    // Whoever runs the tests over SSH does not come by these interfaces.
    command.env_remove("SSH_CONNECTION");
    command
}

impl Impaired {
    /// Impairs in a namespace, and is ready.
    pub fn start(ns: &Netns, words: &[&str]) -> Impaired {
        let seeded = words.contains(&"--seed");
        let seed: &[&str] = if seeded { &[] } else { &["--seed", SEED] };
        let words = [&["--no-check", "--json"], seed, words].concat();
        let impaired = Impaired {
            process: ns.spawn(command(ns, &words)).unwrap(),
        };
        impaired.says("ready: impairing");
        impaired.says("port ");
        impaired
    }

    /// Between both interfaces of a router, by a port.
    pub fn between(net: &Router, port: &str, words: &[&str]) -> Impaired {
        let words = [&["lan", "--peer", "wan", "--via", port], words].concat();
        Impaired::start(&net.router, &words)
    }

    fn says(&self, text: &str) {
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
    /// What is told of a direction.
    pub fn way(&self, name: &str) -> &Value {
        let ways = self.report["directions"].as_array().unwrap();
        let way = ways.iter().find(|way| way["name"] == name);
        way.unwrap_or_else(|| panic!("no {name}: {:#}", self.report))
    }

    /// A number of a direction.
    pub fn number(&self, way: &str, key: &str) -> u64 {
        let value = &self.way(way)[key];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {:#}", self.report))
    }

    /// It was true, and its status says so.
    pub fn assert_true(&self) {
        assert_eq!(
            self.report["true"], true,
            "{:#}\n{}",
            self.report, self.stderr
        );
        assert!(self.status.success(), "{:?}", self.status);
    }
}

impl Ended {
    /// Likewise, unless others kept the machine so busy that packets left late or could not be taken
    /// in time, which it says.
    pub fn assert_true_or_late(&self) {
        let why = self.report["why"].as_array().unwrap();
        let is_late = |why: &Value| {
            let why = why.as_str().unwrap();
            why.contains("late on average") || why.contains("too slow for them")
        };
        match !why.is_empty() && why.iter().all(is_late) {
            true => println!("this machine was busy: {why:?}"),
            false => self.assert_true(),
        }
    }
}

/// Datagrams as they came, by number.
#[derive(Debug, Default)]
pub struct Came {
    /// How often each came.
    pub times: BTreeMap<u32, u32>,
    /// Numbers that came after a greater one.
    pub inversions: u32,
}

impl Came {
    pub fn numbers(&self) -> Vec<u32> {
        self.times.keys().copied().collect()
    }
}

/// Sends datagrams 0 to `count` from one namespace to an address of another, and tells which came.
pub fn datagrams(from: &Netns, to: &Netns, address: impl Into<IpAddr>, count: u32) -> Came {
    let address = SocketAddr::new(address.into(), PORT);
    let receiver = to.enter(|| UdpSocket::bind(address).unwrap()).unwrap();
    setsockopt(&receiver, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    let any = match address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let sender = from.enter(|| UdpSocket::bind(any).unwrap()).unwrap();
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut one = CpuSet::new();
    one.set(CPU).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    // The first may come before the kernel has its route; numbers are the impairment's, so all count.
    let begin = Instant::now();
    for number in 0..count {
        let mut payload = [0; 64];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        while let Err(error) = sender.send_to(&payload, address) {
            assert!(begin.elapsed() < PATIENCE, "send: {error}");
            thread::sleep(EVERY);
        }
        // Time that others took is not made up for: a burst would overflow the kernel's queues.
        thread::sleep(EVERY);
    }
    sched_setaffinity(Pid::from_raw(0), &before).unwrap();
    receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let (mut came, mut greatest, mut bytes) = (Came::default(), 0, [0; 256]);
    while let Ok(length) = receiver.recv(&mut bytes) {
        assert_eq!(length, 64);
        let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
        came.inversions += u32::from(number < greatest);
        greatest = greatest.max(number);
        *came.times.entry(number).or_default() += 1;
    }
    came
}
