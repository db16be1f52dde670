//! Recent lists and limits in real time: rules with a memory by address, compared with the kernel at
//! the kernel's own times.
//!
//! ```text
//!   step ── 500 ms to 2 s ── step ── ...          groups of frames, each right after a tick
//!     frames ──► list `clock`: the tick of each ──► `now` of the evaluators
//! ```
//!
//! The kernel counts time in ticks. Each frame first passes a recent list with one entry, which keeps
//! the ticks of all frames. So evaluators get the kernel's time exactly, and windows and rates are
//! compared at their boundaries. Steps keep away from one boundary only: an idle entry of `hashlimit`
//! leaves up to an interval of its collector after its time, and that of the core at its time. The
//! collector is deferred as long as its CPU is idle, so no CPU is idle for long here.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_testbed::{Need, requires};
use fairpath_units::{Disturbed, repeat_disturbed, test_seed};

use super::compare::counters;
use super::legacy::{Legacy, Tool, tick, with_ticks};
use super::{Evaluators, family, parse};
use fairpath_tests::oracle::compare::{Answer, Difference, differing};
use fairpath_tests::oracle::packets::{
    self, ETH_IPV4, ETH_IPV6, Ipv4, TCP, Toward, UDP, plain, v6_with,
};
use fairpath_tests::oracle::pools::{HOSTS4, OWN4, OWN6};

/// Frames after one tick: the kernel processes them before the next one.
const GROUP: usize = 48;
/// Groups of a step.
const GROUPS: usize = 2;
/// Hosts that send: more than a list has addresses.
const HOSTS: u64 = 160;
/// Lists, and tables of limits of packets; half as many limit bytes, and as many compare rates.
const NAMES: u64 = 4;
/// Ticks of the list `clock`.
const CLOCK: usize = 4096;
/// Milliseconds until idle entries of a limit leave, and until the kernel has removed them. No two
/// steps have such a distance.
const EXPIRIES: [u64; 2] = [710, 1210];
const COLLECTED: u64 = 250;
/// The kernel may not have removed them if a CPU was busy for longer.
const BUSY: Duration = Duration::from_millis(100);
/// A step begins if it cannot reach such a distance within this time.
const MARGIN: u64 = 150;
/// The smallest distance of steps.
const GRID: Duration = Duration::from_millis(500);
/// The same for limits of bytes by default; all steps together take less.
const BYTES_EXPIRY: u64 = 15_000;
const LONGEST: Duration = Duration::from_millis(14_500);
/// Frames whose tick is not certain that are tried with each of two.
const UNCERTAIN: usize = 5;

const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Rules, and the frames of each step.
struct Case {
    seed: u64,
    text: String,
    steps: Vec<Vec<Vec<u8>>>,
}

/// The distances of steps, in units of [`GRID`].
fn distances(steps: usize, random: &mut Random) -> Vec<u32> {
    let mut distances = vec![0];
    distances.extend((1..steps).map(|_| random.pick(&[1, 1, 1, 1, 2, 2, 3, 4])));
    let all = |distances: &[u32]| GRID * distances.iter().sum();
    while all(&distances) > LONGEST {
        distances
            .iter_mut()
            .skip(1)
            .for_each(|distance| *distance = 1.max(*distance - 1));
    }
    distances
}

impl Case {
    fn new(tool: Tool, seed: u64, steps: usize) -> Case {
        let mut random = Random::new(seed);
        let mut generator = Generator {
            tool,
            random: &mut random,
        };
        let text = generator.text();
        let mut steps: Vec<_> = (1..steps)
            .map(|_| generator.frames(GROUP * GROUPS))
            .collect();
        steps.push(generator.sweep());
        Case { seed, text, steps }
    }
}

struct Generator<'a> {
    tool: Tool,
    random: &'a mut Random,
}

impl Generator<'_> {
    fn text(&mut self) -> String {
        let users = self.random.pick(&[["a", "z"], ["z", "a"]]);
        let mut text = format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n:{} - [0:0]\n:{} - [0:0]\n\
             -A PREROUTING -m recent --set --name clock --mask {zero}\n\
             -A PREROUTING -m recent --rcheck --hitcount {CLOCK} --name clock --mask {zero}\n",
            users[0],
            users[1],
            zero = self.of_family("0.0.0.0", "::"),
        );
        // The kernel sorts chains of users by name, whatever their order here; the first rule decides
        // about a table.
        for (chain, rules) in [("z", 17), ("PREROUTING", 6), ("a", 17)] {
            for _ in 0..rules {
                let rule = self.rule();
                writeln!(text, "-A {chain}{rule}").unwrap();
            }
        }
        for chain in ["z", "a"] {
            writeln!(text, "-A PREROUTING -j {chain}").unwrap();
        }
        // The final contents of lists.
        for list in 0..NAMES {
            for side in ["--rsource", "--rdest"] {
                let icmp = self.of_family("icmp", "ipv6-icmp");
                writeln!(
                    text,
                    "-A PREROUTING -p {icmp} -m recent --rcheck --name l{list} {side}"
                )
                .unwrap();
            }
        }
        text + "COMMIT\n"
    }

    fn of_family<T>(&self, v4: T, v6: T) -> T {
        match self.tool {
            Tool::V6 => v6,
            _ => v4,
        }
    }

    fn rule(&mut self) -> String {
        let icmp = self.of_family("! -p icmp", "! -p ipv6-icmp");
        let limits = self.random.one_in(2);
        let mut rule = match (limits, self.random.below(4)) {
            // A condition would drop packets whose protocol is not found.
            (true, 0) => String::new(),
            (_, 0 | 1) => format!(" {icmp}"),
            (_, 2) => " -p udp".to_owned(),
            _ => " -p tcp".to_owned(),
        };
        if self.random.one_in(4) {
            let networks = self.of_family(
                ["198.51.100.0/26", "198.51.100.64/27"],
                ["2001:db8::/122", "2001:db8::40/123"],
            );
            write!(rule, " -s {}", self.random.pick(&networks)).unwrap();
        }
        for _ in 0..1 + self.random.below(8) / 7 {
            rule += &match (limits, self.random.below(8)) {
                (false, _) => self.recent(),
                (true, 0) => self.limit(),
                (true, _) => self.hashlimit(),
            };
        }
        match self.random.below(16) {
            0 => rule + " -j DROP",
            1 => rule + " -j RETURN",
            _ => rule,
        }
    }

    fn recent(&mut self) -> String {
        let random = &mut *self.random;
        let actions = [
            "--set", "--set", "--set", "--rcheck", "--rcheck", "--update", "--update", "--remove",
        ];
        let action = random.pick(&actions);
        let not = if random.one_in(5) { "! " } else { "" };
        let mut text = format!(" -m recent {not}{action}");
        if matches!(action, "--rcheck" | "--update") {
            if random.below(3) > 0 {
                write!(text, " --seconds {}", 1 + random.below(2)).unwrap();
                if random.one_in(2) {
                    text += " --reap";
                }
            }
            if random.one_in(2) {
                // Also more than the 32 stamps of a list without this option.
                let count = random.pick(&[1, 2, 3, 5, 8, 9, 31, 32, 33]);
                write!(text, " --hitcount {count}").unwrap();
            }
            if random.one_in(5) {
                text += " --rttl";
            }
        }
        let side = random.pick(&["--rsource", "--rsource", "--rdest"]);
        write!(text, " --name l{} {side}", random.below(NAMES)).unwrap();
        if random.one_in(4) {
            let mask = random.below(3) as usize;
            let mask = self.of_family(
                ["255.255.255.240", "255.255.255.0", "0.0.0.127"][mask],
                [
                    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0",
                    "ffff:ffff::",
                    "::7f",
                ][mask],
            );
            write!(text, " --mask {mask}").unwrap();
        }
        text
    }

    fn hashlimit(&mut self) -> String {
        let random = &mut *self.random;
        let above = random.pick(&["upto", "above"]);
        let mut text = format!(" -m hashlimit --hashlimit-{above}");
        let bytes = random.one_in(3);
        let windows = random.one_in(3);
        let mut name = if bytes {
            // A burst is at least the rate.
            text += random.pick(&[
                " 200b/s",
                " 200b/s --hashlimit-burst 700b",
                " 1kb/s",
                " 1kb/s --hashlimit-burst 3kb",
                " 4kb/s --hashlimit-burst 4kb",
                " 16kb/s",
                " 512kb/s",
            ]);
            format!("b{}", random.below(NAMES / 2))
        } else {
            // With units above a second an entry lives longer than a case.
            let rates = [
                "1/min",
                "60/min",
                "120/min",
                "240/min",
                "300/min",
                "600/min",
                "7200/hour",
                "1/day",
            ];
            let (rate, burst) = (random.pick(&rates), random.pick(&[1, 2, 3, 5, 12]));
            // The kernel's credits have at most 37 hours.
            let burst = if rate == "1/day" { 1 } else { burst };
            write!(text, " {rate} --hashlimit-burst {burst}").unwrap();
            format!("p{}", random.below(NAMES))
        };
        if windows {
            text += " --hashlimit-rate-match";
            name.insert(0, 'w');
            if random.one_in(2) {
                write!(text, " --hashlimit-rate-interval {}", 2 + random.below(3)).unwrap();
            }
        }
        let mut modes = Vec::new();
        for mode in ["srcip", "dstip", "srcport", "dstport"] {
            if random.one_in(3) {
                modes.push(mode);
            }
        }
        if !modes.is_empty() {
            write!(text, " --hashlimit-mode {}", modes.join(",")).unwrap();
        }
        write!(
            text,
            " --hashlimit-name {name} --hashlimit-htable-gcinterval 20"
        )
        .unwrap();
        if random.below(4) > 0 {
            let expiry = random.pick(&EXPIRIES);
            write!(text, " --hashlimit-htable-expire {expiry}").unwrap();
        }
        if random.one_in(3) {
            let most = random.pick(&[1, 4, 20, 60]);
            let size = random.pick(&[1, 2, 16]);
            write!(
                text,
                " --hashlimit-htable-size {size} --hashlimit-htable-max {most}"
            )
            .unwrap();
        }
        for option in ["srcmask", "dstmask"] {
            if random.one_in(4) {
                let v6 = self.tool == Tool::V6;
                let length = random.pick(&[0, 24, 28, 31, 32]);
                let length = if v6 { 4 * length } else { length };
                write!(text, " --hashlimit-{option} {length}").unwrap();
            }
        }
        text
    }

    /// One bucket for a rule, of rates that are whole numbers of the kernel's credits.
    fn limit(&mut self) -> String {
        let rate = self.random.pick(&["2/sec", "4/sec", "5/sec", "10/sec"]);
        let burst = 1 + self.random.below(8);
        format!(" -m limit --limit {rate} --limit-burst {burst}")
    }

    /// Frames from few hosts more often than from others; some are of any kind.
    fn frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        let odd = packets::frames(
            family(self.tool),
            Toward::Ingress,
            self.random.draw(),
            count,
        );
        let mut one = |odd: Vec<u8>| {
            if self.random.one_in(6) {
                return odd;
            }
            let most = self.random.pick(&[3, 12, HOSTS]);
            let (from, to) = (self.random.below(most), self.random.below(3));
            let ports = [0, 1].map(|_| self.random.pick(&[22u16, 53, 80]));
            let payload = self.random.pick(&[0usize, 0, 15, 16, 100, 700]);
            let ttl = self.random.pick(&[64, 64, 64, 63, 0]);
            let tcp = self.random.one_in(3);
            let ports = ports.map(u16::to_be_bytes).concat();
            let (protocol, mut data) = match tcp {
                true => (
                    TCP,
                    [
                        &ports[..],
                        &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0],
                    ]
                    .concat(),
                ),
                false => {
                    let length = (8 + payload as u16).to_be_bytes();
                    (UDP, [&ports[..], &length, &[0, 0]].concat())
                }
            };
            data.resize(data.len() + payload, 0);
            self.frame(from, to, ttl, protocol, &data)
        };
        odd.into_iter().map(&mut one).collect()
    }

    fn frame(&self, from: u64, to: u64, ttl: u8, protocol: u8, data: &[u8]) -> Vec<u8> {
        if self.tool == Tool::V6 {
            let from = [0x2001, 0xdb8, 0, 0, 0, 0, 0, from as u16];
            let mut destination = OWN6;
            destination[7] += to as u16;
            let packet = v6_with((from, destination), (0, ttl), protocol, data);
            return plain(ETH_IPV6, &packet);
        }
        let packet = Ipv4 {
            from: [198, 51, 100, from as u8],
            to: [OWN4, HOSTS4[0], HOSTS4[1]][to as usize],
            ttl,
            ..Ipv4::new(protocol)
        };
        plain(ETH_IPV4, &packet.packet(data))
    }

    /// ICMP from each host, to each destination: no list changes.
    fn sweep(&mut self) -> Vec<Vec<u8>> {
        let icmp = self.of_family(ICMP, ICMP6);
        let frames = (0..HOSTS)
            .map(|host| self.frame(host, host % 3, 64, icmp, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]));
        frames.collect()
    }
}

/// Runs all cases at once, a step of each in turn. Returns for each the kernel's answer, and the
/// ticks of its frames.
fn run(hosts: &[(Legacy, Case)], distances: &[u32]) -> Vec<(Answer, Vec<u64>)> {
    let mut before = Vec::new();
    for (legacy, case) in hosts {
        let loaded = legacy.load(&case.text);
        loaded.unwrap_or_else(|error| panic!("seed {}: {error}\n{}", case.seed, case.text));
        before.push(legacy.passed("PREROUTING"));
    }
    let start = Instant::now();
    let mut at = 0;
    let mut spans = vec![Vec::new(); hosts.len()];
    for (step, distance) in distances.iter().enumerate() {
        at += distance;
        thread::sleep((GRID * at).saturating_sub(start.elapsed()));
        for ((legacy, case), spans) in hosts.iter().zip(&mut spans) {
            leave_expiries(spans);
            let from = Instant::now();
            legacy.inject_after_ticks(&case.steps[step], GROUP);
            spans.push((from, Instant::now()));
        }
    }
    let hosts = hosts.iter().zip(before);
    hosts
        .map(|((legacy, case), before)| {
            let answer = Answer {
                counts: counters(legacy, &case.text),
                accepted: legacy.passed("PREROUTING") - before,
            };
            (answer, legacy.recent_ticks("clock"))
        })
        .collect()
}

/// Waits while a step would be near an expiry after one of these, which were late.
fn leave_expiries(spans: &[(Instant, Instant)]) {
    let near = || {
        let expiries = spans
            .iter()
            .flat_map(|span| EXPIRIES.map(|expiry| (span, expiry)));
        expiries.into_iter().find_map(|((from, to), expiry)| {
            let begins = Duration::from_millis(expiry - MARGIN);
            let ends = Duration::from_millis(expiry + COLLECTED);
            let left = (ends + Duration::from_millis(1)).checked_sub(to.elapsed())?;
            (from.elapsed() >= begins).then_some(left)
        })
    };
    while let Some(left) = near() {
        thread::sleep(left);
    }
}

/// True if a pair of steps has a distance at which the kernel may have removed an idle entry or not.
fn is_near_an_expiry(case: &Case, ticks: &[u64]) -> bool {
    let milliseconds = |ticks: u64| ticks * tick() / 1_000_000;
    let mut rest = ticks;
    let mut spans = Vec::new();
    for step in &case.steps {
        let (of_step, others) = rest.split_at(step.len());
        spans.push((of_step[0], of_step[step.len() - 1]));
        rest = others;
    }
    let near = |(first, (from, to)): (usize, &(u64, u64))| {
        spans[first + 1..].iter().any(|(later_from, later_to)| {
            let shortest = milliseconds(later_from - to);
            let longest = milliseconds(later_to - from);
            let mut expiries = EXPIRIES.iter().chain([&BYTES_EXPIRY]);
            expiries.any(|expiry| shortest <= expiry + COLLECTED && longest >= *expiry)
        })
    };
    spans.iter().enumerate().any(near)
}

/// Compares a case at the ticks of its frames.
///
/// The tick of a frame is that of its first rule. If the next frame has another one, the tick may have
/// changed while the rules of this frame ran; either must agree.
fn check(
    tool: Tool,
    case: &Case,
    kernel: Answer,
    ticks: &[u64],
    busy: Duration,
) -> Result<(), Disturbed> {
    let frames: Vec<&[u8]> = case
        .steps
        .iter()
        .flatten()
        .map(|frame| &frame[..])
        .collect();
    assert_eq!(
        frames.len(),
        ticks.len(),
        "the clock has the tick of each frame"
    );
    let ruleset = parse(tool, &case.text);
    let evaluators = Evaluators::new(tool, Toward::Ingress, &ruleset);
    let differing_at = |ticks: &[u64]| {
        let times = ticks.iter().map(|ticks| ticks * tick());
        let answers = evaluators.answers(frames.iter().copied().zip(times));
        let answers = answers.expect("no rule is refused");
        differing(&kernel, answers)
    };
    let Some(evaluator) = differing_at(ticks) else {
        return Ok(());
    };
    if is_near_an_expiry(case, ticks) {
        return Err(Disturbed("a step was late".to_owned()));
    }
    if busy > BUSY {
        return Err(Disturbed(format!("a CPU was busy for {busy:?}")));
    }
    let is_end = |frame: usize| (frame + 1).is_multiple_of(GROUP);
    let uncertain: Vec<usize> = (0..frames.len() - 1)
        .filter(|frame| ticks[*frame] != ticks[frame + 1] && !is_end(*frame))
        .collect();
    if uncertain.len() > UNCERTAIN {
        return Err(Disturbed(format!(
            "{} groups were not processed within a tick",
            uncertain.len()
        )));
    }
    for choice in 1..1usize << uncertain.len() {
        let mut ticks = ticks.to_vec();
        for (at, frame) in uncertain.iter().enumerate() {
            ticks[*frame] += (choice >> at & 1) as u64;
        }
        if differing_at(&ticks).is_none() {
            return Ok(());
        }
    }
    let difference = Difference {
        ruleset: case.text.clone(),
        frames: Vec::new(),
        kernel,
        evaluator,
    };
    panic!(
        "seed {}, a CPU was busy for {busy:?}, {} uncertain ticks of {ticks:?}: {difference}",
        case.seed,
        uncertain.len()
    );
}

/// Compares `cases` rulesets of each family at once.
fn compare(test: &str, seed: u64, cases: u64, steps: usize) {
    let tools = [Tool::V4, Tool::V6];
    let hosts: Vec<(Legacy, Case)> = tools
        .into_iter()
        .flat_map(|tool| (0..cases).map(move |case| (tool, seed.wrapping_add(case))))
        .map(|(tool, seed)| (Legacy::new(tool), Case::new(tool, seed, steps)))
        .collect();
    repeat_disturbed(test, 4, |attempt| {
        let mut random = Random::new(seed.wrapping_add(u64::from(attempt)));
        let (answers, busy) = with_ticks(|| run(&hosts, &distances(steps, &mut random)));
        for ((legacy, case), (answer, ticks)) in hosts.iter().zip(answers) {
            check(legacy.tool(), case, answer, &ticks, busy)?;
        }
        Ok(())
    });
}

#[test]
fn memory_by_key_is_the_kernels() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    compare(
        "rules::keys::memory_by_key_is_the_kernels",
        test_seed(),
        2,
        8,
    );
}

#[cfg(feature = "soak")]
#[test]
fn soak_memory_by_key_is_the_kernels() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let test = "rules::keys::soak_memory_by_key_is_the_kernels";
    let seed = test_seed();
    for round in 0..40 {
        let seed = seed.wrapping_add(3 * round);
        compare(test, seed, 3, 14);
        println!("seeds {seed} to {}: 6 rulesets agree", seed.wrapping_add(2));
    }
}
