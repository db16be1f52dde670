//! The rule tables of a namespace, through iptables-legacy and its relatives.
//!
//! Frames come from the other end of a veth. Nothing answers and nothing else arrives: the other end has no address, and
//! nftables drops all output inside. So counters of the input side count injected frames only.
//!
//! Deliberately absent: VLAN devices (the development kernel has none), tables other than raw, mangle and filter.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{FrameSocket, LinkEnd, Need, Netns, Testbed, Veth, wait_for};
use fairpath_tests::oracle::compare::RuleCount;
use fairpath_tests::oracle::pools::{IN, IN_MAC, OUT_MAC, OWN4, OWN4_PREFIX, OWN6, OWN6_PREFIX};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use nix::unistd::Pid;
use tempfile::{NamedTempFile, TempDir};

/// Configuration takes milliseconds, and injected frames less.
const DEADLINE: Duration = Duration::from_secs(30);

/// Frames that the receiving socket certainly keeps.
const INBOX: usize = 64;

/// Drops all output, and counts input that passed the legacy tables of a hook.
const AROUND: &str = "
table FAMILY oracle {
    counter PREROUTING { }
    counter INPUT { }
    CHAINS
    chain output {
        type filter hook output priority -400; policy drop;
    }
}
";

/// A family of rule tables, and its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    V4,
    V6,
    Arp,
}

impl Tool {
    pub const ALL: [Tool; 3] = [Tool::V4, Tool::V6, Tool::Arp];

    fn program(self) -> &'static str {
        match self {
            Tool::V4 => "iptables-legacy",
            Tool::V6 => "ip6tables-legacy",
            Tool::Arp => "arptables-legacy",
        }
    }

    /// As nftables names it.
    fn family(self) -> &'static str {
        match self {
            Tool::V4 => "ip",
            Tool::V6 => "ip6",
            Tool::Arp => "arp",
        }
    }

    /// The requirements of a test with this tool.
    pub fn needs(self) -> [Need; 3] {
        [Need::Root, Need::Tool(self.program()), Need::Tool("nft")]
    }

    /// The hooks that input passes.
    fn hooks(self) -> &'static [&'static str] {
        match self {
            Tool::V4 | Tool::V6 => &["PREROUTING", "INPUT"],
            Tool::Arp => &["INPUT"],
        }
    }

    /// The tables that a load replaces, with the chains whose policies it resets.
    fn tables(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Tool::V4 | Tool::V6 => &[
                ("raw", &["PREROUTING", "OUTPUT"]),
                (
                    "mangle",
                    &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
                ),
                ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
            ],
            Tool::Arp => &[("filter", &["INPUT", "OUTPUT", "FORWARD"])],
        }
    }
}

/// Tables of one family in a namespace.
pub struct Legacy {
    tool: Tool,
    inside: Netns,
    _outside: Netns,
    sender: FrameSocket,
    receiver: Mutex<FrameSocket>,
    directory: TempDir,
}

impl Legacy {
    pub fn new(tool: Tool) -> Legacy {
        let testbed = Testbed::new();
        let inside = testbed.netns("inside").unwrap();
        let outside = testbed.netns("outside").unwrap();
        let muted = ("net.ipv6.conf.default.disable_ipv6", "1");
        outside.set_sysctls(&[muted]).unwrap();
        let end = LinkEnd::new(&inside, IN).with_mac(IN_MAC);
        Veth::between(
            end.with_address(OWN4, OWN4_PREFIX)
                .with_address(OWN6, OWN6_PREFIX),
            LinkEnd::new(&outside, "out0").with_mac(OUT_MAC),
        )
        .build()
        .unwrap();
        let legacy = Legacy {
            tool,
            sender: FrameSocket::open(&outside, "out0").unwrap(),
            receiver: Mutex::new(FrameSocket::open(&inside, IN).unwrap()),
            inside,
            _outside: outside,
            directory: TempDir::new().unwrap(),
        };
        legacy.surround();
        legacy.load("").unwrap();
        legacy
    }

    /// Runs `f` in the namespace.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.inside.enter(f).unwrap()
    }

    pub fn tool(&self) -> Tool {
        self.tool
    }

    /// Adds the tables of nftables, also the mute ones of the other families.
    fn surround(&self) {
        let chain = |hook: &&str| {
            let name = hook.to_lowercase();
            format!(
                "chain {name} {{\n type filter hook {name} priority 300;\n counter name {hook}\n }}\n"
            )
        };
        let table = |tool: Tool| {
            let chains: String = tool.hooks().iter().map(chain).collect();
            AROUND
                .replace("FAMILY", tool.family())
                .replace("CHAINS", &chains)
        };
        let file = self.file(&Tool::ALL.map(table).concat());
        self.run(&["nft".as_ref(), "-f".as_ref(), file.path().as_ref()])
            .unwrap();
    }

    /// Has connections tracked, also while no rule reads them. Checksums are not read.
    pub fn track_connections(&self) {
        let file = self.file(
            "add table inet keep\nadd chain inet keep never\n\
             add rule inet keep never ct state new\n",
        );
        self.run(&["nft".as_ref(), "-f".as_ref(), file.path().as_ref()])
            .unwrap();
        let checksums = ("net.netfilter.nf_conntrack_checksum", "0");
        self.inside.set_sysctls(&[checksums]).unwrap();
    }

    /// Replaces all tables by those of `save_text`, with counters of 0 and rules without memory.
    ///
    /// # Errors
    /// The tool's message.
    pub fn load(&self, save_text: &str) -> Result<(), String> {
        let script = match self.tool {
            Tool::V4 | Tool::V6 => emptied(self.tool) + save_text,
            Tool::Arp => arp_script(save_text),
        };
        let file = self.file(&script);
        let path = file.path().as_os_str();
        match self.tool {
            Tool::V4 | Tool::V6 => {
                let program = format!("{}-restore", self.tool.program());
                self.run(&[program.as_ref(), path])
            }
            Tool::Arp => self.run(&["sh".as_ref(), "-e".as_ref(), path]),
        }
        .map(drop)
    }

    /// Sends `frames` from the other end, and returns after the kernel has processed the last one.
    ///
    /// Softirqs of a CPU do not interrupt each other, and the frames stay on the sender's CPU. Thus the work on a frame is
    /// done once this thread, on the same CPU, sees the copy that the kernel made before that work.
    pub fn inject(&self, frames: &[Vec<u8>]) {
        self.inject_groups(frames, INBOX, || {});
    }

    /// The same, in groups that each begin right after a tick of the kernel's clock.
    pub fn inject_after_ticks(&self, frames: &[Vec<u8>], group: usize) {
        assert!(group <= INBOX);
        self.inject_groups(frames, group, wait_for_tick);
    }

    fn inject_groups(&self, frames: &[Vec<u8>], group: usize, begin: fn()) {
        let mut locked = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = &mut *locked;
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    stay_on(allowed_cpus()[0]);
                    while receiver.receive().is_some() {}
                    for frames in frames.chunks(group) {
                        begin();
                        self.inject_now(frames, receiver);
                    }
                })
                .join()
                .unwrap();
        });
    }

    fn inject_now(&self, frames: &[Vec<u8>], receiver: &mut FrameSocket) {
        for frame in frames {
            self.sender.send(frame).unwrap();
        }
        let mut waiting = frames.len();
        let arrived = wait_for(DEADLINE, || {
            while waiting > 0 && receiver.receive().is_some() {
                waiting -= 1;
            }
            (waiting == 0).then_some(())
        });
        assert!(arrived.is_some(), "{waiting} frames did not arrive");
    }

    /// Sends an ICMP echo request to the namespace itself, which answers.
    pub fn ping_itself(&self) {
        let allow = "nft add rule ip oracle output ip saddr 127.0.0.1 accept";
        let allow: Vec<&OsStr> = allow.split(' ').map(OsStr::new).collect();
        self.run(&allow).unwrap();
        let ping = ["ping", "-c", "1", "-W", "5", "127.0.0.1"];
        self.run(&ping.map(OsStr::new)).unwrap();
    }

    /// The ticks (jiffies) at which the only address of a `recent` list was added or updated.
    pub fn recent_ticks(&self, list: &str) -> Vec<u64> {
        let file = format!("/proc/net/xt_recent/{list}");
        let text = self.run(&["cat", &file].map(OsStr::new)).unwrap();
        let (_, stamps) = text.split_once("oldest_pkt: ").unwrap();
        let (_, stamps) = stamps.trim_end().split_once(' ').unwrap();
        let numbers = stamps.split(", ").map(|stamp| stamp.parse().unwrap());
        numbers.collect()
    }

    /// The counters of every rule and policy, in the order of the tool.
    pub fn counters(&self) -> Vec<RuleCount> {
        match self.tool {
            Tool::V4 | Tool::V6 => {
                let program = format!("{}-save", self.tool.program());
                read_save(&self.run(&[program.as_ref(), "-c".as_ref()]).unwrap())
            }
            Tool::Arp => {
                let list = [self.tool.program(), "-L", "-n", "-v", "-x"];
                read_arp_list(&self.run(&list.map(OsStr::new)).unwrap())
            }
        }
    }

    /// Sets all counters to 0. The memory of rules (limits, quotas) stays.
    pub fn zero(&self) {
        for (table, _) in self.tool.tables() {
            let zero = [self.tool.program(), "-t", table, "-Z"];
            self.run(&zero.map(OsStr::new)).unwrap();
        }
    }

    /// Frames that have passed the legacy tables of `hook`, of all loads together.
    pub fn passed(&self, hook: &str) -> u64 {
        let list = ["nft", "list", "counter", self.tool.family(), "oracle", hook];
        let text = self.run(&list.map(OsStr::new)).unwrap();
        let mut words = text.split_whitespace();
        words.find(|word| *word == "packets").unwrap();
        words.next().unwrap().parse().unwrap()
    }

    fn file(&self, text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new_in(&self.directory).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// Runs a tool inside, with a lock that other namespaces do not share.
    fn run(&self, argv: &[&OsStr]) -> Result<String, String> {
        let mut command = self.inside.command_without_sysfs(argv[0]);
        command
            .args(&argv[1..])
            .env("XTABLES_LOCKFILE", self.directory.path().join("lock"));
        let process = self.inside.spawn(command).map_err(|e| e.to_string())?;
        process.finish(DEADLINE).map_err(|e| e.to_string())
    }
}

/// The clock that advances with ticks only; its resolution is a tick.
const TICKS: ClockId = ClockId::CLOCK_MONOTONIC_COARSE;

/// Nanoseconds of a tick.
pub fn tick() -> u64 {
    TICKS.res().unwrap().num_nanoseconds() as u64
}

fn wait_for_tick() {
    let start = TICKS.now().unwrap();
    while TICKS.now().unwrap() == start {
        std::hint::spin_loop();
    }
}

/// The CPUs of this process.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpus = 0..CpuSet::count();
    cpus.filter(|cpu| allowed.is_set(*cpu).unwrap()).collect()
}

/// Keeps the calling thread on a CPU.
pub(crate) fn stay_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// Keeps idle CPUs from stopping their ticks for long, which delays work that the kernel defers.
/// Returns also the longest time that a CPU was busy with other work.
pub fn with_ticks<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    const PAUSE: Duration = Duration::from_millis(10);
    let done = AtomicBool::new(false);
    let keep_awake = |cpu| {
        stay_on(cpu);
        let mut longest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            let start = Instant::now();
            thread::sleep(PAUSE);
            wait_for_tick();
            longest = longest.max(start.elapsed() - PAUSE);
        }
        longest
    };
    thread::scope(|scope| {
        let keep_awake = &keep_awake;
        let cpus = allowed_cpus().into_iter();
        let awake: Vec<_> = cpus
            .map(|cpu| scope.spawn(move || keep_awake(cpu)))
            .collect();
        let result = run();
        done.store(true, Ordering::Relaxed);
        let busy = awake.into_iter().map(|thread| thread.join().unwrap());
        (result, busy.max().unwrap_or_default())
    })
}

/// Empty tables. A table of the same name may follow in the same text, and replaces the empty one.
///
/// Without them, lists of the match `recent` survive a load.
fn emptied(tool: Tool) -> String {
    let table = |(name, chains): &(&str, &[&str])| {
        let chains: String = chains
            .iter()
            .map(|chain| format!(":{chain} ACCEPT [0:0]\n"))
            .collect();
        format!("*{name}\n{chains}COMMIT\n")
    };
    tool.tables().iter().map(table).collect()
}

/// One command for each line, because arptables-legacy-restore calls another tool.
pub(crate) fn arp_script(save_text: &str) -> String {
    let program = Tool::Arp.program();
    let policies = ["INPUT", "OUTPUT", "FORWARD"].map(|chain| format!("-P {chain} ACCEPT"));
    let empty = ["-F", "-X", "-Z"].map(str::to_owned);
    let lines = save_text.lines().filter_map(|line| {
        let Some(declared) = line.strip_prefix(':') else {
            return line.starts_with('-').then(|| line.to_owned());
        };
        let mut words = declared.split_whitespace();
        let chain = words.next()?;
        Some(match words.next()? {
            "-" => format!("-N {chain}"),
            policy => format!("-P {chain} {policy}"),
        })
    });
    let commands = empty.into_iter().chain(policies).chain(lines);
    commands
        .map(|arguments| format!("{program} {arguments}\n"))
        .collect()
}

/// Numbers the rules of each chain in their order.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn next(&mut self, chain: &str) -> usize {
        let next = self.0.entry(chain.to_owned()).or_default();
        *next += 1;
        *next - 1
    }
}

/// Reads `iptables-save -c`; chains of the user have no counters.
pub(crate) fn read_save(text: &str) -> Vec<RuleCount> {
    let (mut table, mut numbers, mut counts) = ("", Numbers::default(), Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            (table, numbers) = (name, Numbers::default());
            continue;
        }
        let Some((before, (packets, bytes), after)) = counted(line) else {
            continue;
        };
        let (chain, rule) = match before.strip_prefix(':') {
            Some(declared) if declared.trim_end().ends_with(" -") => continue,
            Some(declared) => (declared.split(' ').next().unwrap(), None),
            None => {
                let rule = after.trim_start().strip_prefix("-A ").unwrap();
                let chain = rule.split(' ').next().unwrap();
                (chain, Some(numbers.next(chain)))
            }
        };
        counts.push(RuleCount {
            table: table.to_owned(),
            chain: chain.to_owned(),
            rule,
            packets,
            bytes,
        });
    }
    counts
}

/// Splits a line at its `[packets:bytes]`.
fn counted(line: &str) -> Option<(&str, (u64, u64), &str)> {
    if !line.starts_with([':', '[']) {
        return None;
    }
    let (before, rest) = line.split_once('[')?;
    let (counts, after) = rest.split_once(']')?;
    let (packets, bytes) = counts.split_once(':')?;
    Some((
        before,
        (packets.parse().unwrap(), bytes.parse().unwrap()),
        after,
    ))
}

/// Reads `arptables-legacy -L -n -v -x`.
pub(crate) fn read_arp_list(text: &str) -> Vec<RuleCount> {
    let (mut chain, mut numbers, mut counts) = ("", Numbers::default(), Vec::new());
    let number = |text: &str, mark: &str| -> Option<u64> {
        let (_, rest) = text.split_once(mark)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    for line in text.lines() {
        let (rule, packets, bytes) = if let Some(head) = line.strip_prefix("Chain ") {
            chain = head.split(' ').next().unwrap();
            let Some((_, policy)) = head.split_once("(policy ") else {
                continue;
            };
            let mut words = policy.split(' ').skip(1).step_by(2);
            let mut next = || words.next().unwrap().parse().unwrap();
            (None, next(), next())
        } else if let Some(packets) = number(line, "pcnt=") {
            let bytes = number(line, "bcnt=").unwrap();
            (Some(numbers.next(chain)), packets, bytes)
        } else {
            continue;
        };
        counts.push(RuleCount {
            table: "filter".to_owned(),
            chain: chain.to_owned(),
            rule,
            packets,
            bytes,
        });
    }
    counts
}
