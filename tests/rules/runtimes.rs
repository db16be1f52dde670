//! The kernel runtime of rules gives the answers of the native one, on random packets and times.

use fairpath_bpf::{KernelRules, RUN_PACKETS};
use fairpath_core::rules::{CounterMode, Evaluator, Work};
use fairpath_rules::image::{Applied, Built, Live, Lookups, build};
use fairpath_rules::{Facts, Family, Hook, Names, Packet, Sets, fill, read};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seed;

/// Packets of each comparison.
const PACKETS: usize = 40 * RUN_PACKETS;
const SECOND: u64 = 1_000_000_000;

fn image(text: &str, family: Family) -> Built {
    let set = read(&mut text.as_bytes(), "test", family, &Names::default())
        .expect("memory")
        .complete()
        .expect("valid rules");
    build(&set, None, Lookups::default()).expect("small")
}

/// Both runtimes get the same packets in the same order. Returns how many packets were dropped.
fn compare(
    built: &Built,
    hook: Hook,
    mut next: impl FnMut(&mut Work, &mut Random),
    tables: u32,
) -> usize {
    let mut random = Random::new(test_seed());
    let mode = CounterMode::Exact;
    let mut native = Evaluator::new(&built.image, &built.states, mode).expect("valid image");
    let mut kernel = KernelRules::load(&built.image, &built.states, mode).expect("loads");
    let mut dropped = 0;
    let mut works = vec![*Work::new(); RUN_PACKETS];
    for _ in 0..PACKETS / RUN_PACKETS {
        for work in &mut works {
            next(work, &mut random);
        }
        let mut answers = works.clone();
        for work in &mut answers {
            work.verdict = 0;
            if native.read(work) {
                native.evaluate(hook as u32, work);
            }
        }
        kernel
            .run(hook as u32, 1, &mut works)
            .expect("kernel evaluates");
        for (native, kernel) in answers.iter().zip(&works) {
            let facts = |work: &Work| {
                (
                    work.verdict,
                    work.argument,
                    work.rule,
                    work.word,
                    work.logged,
                    work.evaluated,
                )
            };
            assert_eq!(facts(native), facts(kernel));
            assert_eq!((native.error, kernel.error), (0, 0));
            dropped += usize::from(native.verdict == 2);
        }
    }
    for id in 0..built.ids {
        assert_eq!(native.memory().counter(id), kernel.memory().counter(id));
    }
    for number in 0..tables {
        let store = native.memory().table(number);
        assert_eq!(store, kernel.memory().table(number));
        println!("table {number}: {store:?}");
    }
    dropped
}

/// A packet of 20 to 59 bytes or a cut one, from one of `hosts` addresses; the clock continues.
fn ipv4(work: &mut Work, random: &mut Random, now: &mut u64, hosts: u64) {
    let protocols = [6, 17, 1, 50, 51, 132, 47];
    let mut bytes = vec![
        0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 192, 0, 2, 1,
    ];
    bytes[8] = 63 + random.below(2) as u8;
    bytes[9] = protocols[random.index(protocols.len())];
    bytes[14..16].copy_from_slice(&(random.below(hosts) as u16).to_be_bytes());
    bytes[19] = random.below(3) as u8;
    if random.below(30) == 0 {
        bytes[7] = 1;
    }
    let rest = if random.below(30) == 0 { 3 } else { 40 };
    for _ in 0..rest {
        bytes.push(random.below(4) as u8);
    }
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    *now += match random.below(400) {
        0 => random.below(30 * SECOND),
        _ => random.below(SECOND / 40),
    };
    // Clocks of two CPUs differ a little.
    let now = *now - random.below(1000);
    let facts = Facts {
        now,
        ..Facts::usual()
    };
    let frame = [&[2; 14][..], &bytes].concat();
    fill(
        work,
        &Packet {
            family: Family::Ipv4,
            bytes: &frame,
            network: 14,
            length: bytes.len(),
            facts,
        },
    );
}

#[test]
fn counter_modes_agree_in_the_kernel() {
    requires!(Need::Root);
    let built = image(
        "*filter\n:FORWARD ACCEPT [0:0]\n\
         -A FORWARD -d 192.0.2.0\n-A FORWARD -d 192.0.2.1\n-A FORWARD -d 192.0.2.2\nCOMMIT\n",
        Family::Ipv4,
    );
    let modes = [
        (CounterMode::None, 64),
        (CounterMode::Sampled, 1),
        (CounterMode::Sampled, 3),
        (CounterMode::Exact, 64),
    ];
    let mut of_modes = Vec::new();
    for (mode, every) in modes {
        let mut native = Evaluator::new(&built.image, &built.states, mode).expect("valid image");
        let mut kernel = KernelRules::load(&built.image, &built.states, mode).expect("loads");
        native.memory_mut().set_sampling(every);
        kernel.memory_mut().set_sampling(every);
        let mut random = Random::new(test_seed());
        let (mut now, mut passed) = (SECOND, 0u64);
        let mut works = vec![*Work::new(); RUN_PACKETS];
        works
            .iter_mut()
            .for_each(|work| work.sampler = random.draw());
        for _ in 0..PACKETS / RUN_PACKETS {
            for work in &mut works {
                ipv4(work, &mut random, &mut now, 9);
            }
            for work in &mut works.clone() {
                assert!(native.read(work));
                native.evaluate(Hook::Forward as u32, work);
                passed += 1;
            }
            kernel
                .run(Hook::Forward as u32, 1, &mut works)
                .expect("kernel evaluates");
        }
        let [of_native, of_kernel] = [native.memory(), kernel.memory()].map(|memory| {
            (0..built.ids)
                .map(|id| memory.counter(id))
                .collect::<Vec<_>>()
        });
        assert_eq!(of_native, of_kernel, "{mode:?}, one of {every}");
        of_modes.push((of_native, passed));
    }
    let [none, all, third, exact] = &of_modes[..] else {
        panic!("four modes");
    };
    assert!(none.0.iter().all(|counter| counter.packets == 0));
    assert_eq!(all, exact);
    // Each packet matches one rule; the policy follows the rules. Three times a binomial.
    for (third, exact) in third.0.iter().zip(&exact.0) {
        let margin = 6.0 * (2.0 * exact.packets as f64).sqrt();
        assert!((third.packets as f64 - exact.packets as f64).abs() <= margin);
        assert_eq!(third.packets % 3, 0);
    }
    let sum: u64 = exact.0.iter().map(|counter| counter.packets).sum();
    assert_eq!(sum, 2 * exact.1);
}

#[test]
fn recent_lists_agree_in_the_kernel() {
    requires!(Need::Root);
    let built = image(
        "*mangle\n:FORWARD ACCEPT [0:0]\n\
         -A FORWARD -p udp -m recent --set --name a\n\
         -A FORWARD -d 192.0.2.2 -m recent --remove --name c --rdest\n\
         -A FORWARD -d 192.0.2.1 -m recent --set --name c --mask 255.255.255.192\nCOMMIT\n\
         *filter\n:FORWARD ACCEPT [0:0]\n\
         -A FORWARD -p tcp -m recent --update --seconds 3 --hitcount 2 --name a -j DROP\n\
         -A FORWARD -p icmp -m recent --rcheck --seconds 9 --reap --rttl --name a -j DROP\n\
         -A FORWARD -p sctp -m recent --update --seconds 1 --reap --name a -j DROP\n\
         -A FORWARD -p esp -m recent ! --rcheck --hitcount 40 --name b -j DROP\n\
         -A FORWARD -m recent ! --update --seconds 1 --name b\n\
         -A FORWARD -m recent --set --name b\n\
         -A FORWARD -m recent --rcheck --name c --hitcount 3 -j DROP\nCOMMIT\n",
        Family::Ipv4,
    );
    let mut now = 1000 * SECOND;
    let dropped = compare(
        &built,
        Hook::Forward,
        |work, random| ipv4(work, random, &mut now, 130),
        3,
    );
    assert!(
        (PACKETS / 20..PACKETS / 20 * 19).contains(&dropped),
        "{dropped} drops"
    );
}

#[test]
fn hashlimits_agree_in_the_kernel() {
    requires!(Need::Root);
    let built = image(
        "*filter\n:FORWARD ACCEPT [0:0]\n\
         -A FORWARD -p tcp -m hashlimit --hashlimit-above 2/sec --hashlimit-burst 3 \
         --hashlimit-mode srcip --hashlimit-name a -j DROP\n\
         -A FORWARD -p udp -m hashlimit --hashlimit-upto 10/min --hashlimit-mode srcip,srcport,dstip \
         --hashlimit-name b --hashlimit-htable-size 32 --hashlimit-htable-max 32 \
         --hashlimit-htable-expire 2000 -j DROP\n\
         -A FORWARD -m hashlimit --hashlimit-upto 160b/s --hashlimit-burst 1000b \
         --hashlimit-mode dstip,dstport --hashlimit-name c -j DROP\nCOMMIT\n",
        Family::Ipv4,
    );
    let mut now = 1000 * SECOND;
    let dropped = compare(
        &built,
        Hook::Forward,
        |work, random| ipv4(work, random, &mut now, 50),
        3,
    );
    assert!(
        (PACKETS / 20..PACKETS / 20 * 19).contains(&dropped),
        "{dropped} drops"
    );
}

/// Edits of a chain with lookups, of several chains, and of a chain with state.
#[test]
fn edits_agree_in_the_kernel() {
    requires!(Need::Root);
    let mut text = String::from("*filter\n:FORWARD ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n");
    text.push_str("-A FORWARD -j a\n-A FORWARD -j b\n");
    for last in 0..200 {
        text.push_str(&format!("-A a -s 10.0.0.{last} -j DROP\n"));
    }
    text.push_str("-A b -s 10.0.0.250 -m quota --quota 9000 -j DROP\nCOMMIT\n");
    let names = Names::default();
    let set = read(&mut text.as_bytes(), "test", Family::Ipv4, &names);
    let set = set.expect("memory").complete().expect("valid rules");
    let mut live = Live::new(set, None, Lookups::Estimated).expect("small");
    let (image, mode) = (live.image().bytes(), CounterMode::Exact);
    let mut native = Evaluator::new(image, live.states(), mode).expect("valid image");
    let mut kernel = KernelRules::load(image, live.states(), mode).expect("loads");
    native.memory_mut().follow(live.image());
    kernel.memory_mut().follow(live.image());
    let mut random = Random::new(test_seed());
    let mut now = SECOND;
    let mut works = vec![*Work::new(); RUN_PACKETS];
    let mut verdicts = [0; 3];
    for turn in 0..60 {
        let last = 200 + turn % 40;
        let lines = match turn % 4 {
            0 => format!("-I a 1 -s 10.0.0.{last} -p udp -j DROP"),
            1 => format!("-A b -s 10.0.0.{last} -j DROP\n-D a 2"),
            2 => format!("-N c{turn}\n-A c{turn} -s 10.0.0.{last} -j DROP\n-I b 1 -j c{turn}"),
            _ if turn % 8 == 3 => "-P FORWARD DROP\n-D a 1".to_owned(),
            _ => "-P FORWARD ACCEPT\n-D a 1".to_owned(),
        };
        let lines = format!("*filter\n{lines}\nCOMMIT\n");
        let applied = live.apply(lines.as_bytes(), "edit", &names).expect(&lines);
        let Applied::Patch(patch) = applied else {
            panic!("{lines} needs a whole build");
        };
        native.memory_mut().apply(live.image(), &patch);
        kernel.memory_mut().apply(live.image(), &patch);
        live.reclaim();
        for work in &mut works {
            ipv4(work, &mut random, &mut now, 256);
        }
        let mut answers = works.clone();
        for work in &mut answers {
            work.verdict = 0;
            if native.read(work) {
                native.evaluate(Hook::Forward as u32, work);
            }
        }
        let run = kernel.run(Hook::Forward as u32, 1, &mut works);
        run.expect("kernel evaluates");
        for (native, kernel) in answers.iter().zip(&works) {
            let facts = |work: &Work| (work.verdict, work.rule, work.evaluated, work.error);
            assert_eq!(facts(native), facts(kernel), "after edit {turn}");
            verdicts[native.verdict.min(2) as usize] += 1;
        }
    }
    for id in 0..live.image().header().rules {
        assert_eq!(native.memory().counter(id), kernel.memory().counter(id));
    }
    assert!(verdicts[1] > 100 && verdicts[2] > 100, "{verdicts:?}");
}

#[test]
fn ends_of_elements_agree_in_the_kernel() {
    requires!(Need::Root);
    let mut random = Random::new(test_seed());
    let mut text = "create a hash:net timeout 20\ncreate p hash:ip,port timeout 9\n\
         create l list:set timeout 30\nadd l a\nadd l p timeout 0\n"
        .to_owned();
    for host in 0..9 {
        let seconds = random.below(40);
        text += &format!(
            "add a 10.0.0.{host}/{} timeout {seconds} -exist\n",
            28 + host % 5
        );
        text += &format!("add p 10.0.0.{},tcp:0-300 timeout {seconds}\n", host + 1);
    }
    text += "add a 10.0.0.4 nomatch -exist\n";
    let mut sets = Sets::read("sets", text.as_bytes()).expect("valid sets");
    sets.set_time(SECOND);
    let rules = read(
        &mut &b"*filter\n-A FORWARD -m set --match-set a src\n\
            -A FORWARD -m set --match-set p src,dst\n\
            -A FORWARD -m set --match-set l src,src -j DROP\nCOMMIT\n"[..],
        "test",
        Family::Ipv4,
        &Names::default(),
    );
    let rules = rules.expect("memory").complete().expect("valid rules");
    let built = build(&rules, Some(&sets), Lookups::default()).expect("small");
    let mut now = SECOND;
    let next = |work: &mut Work, random: &mut Random| ipv4(work, random, &mut now, 12);
    let dropped = compare(&built, Hook::Forward, next, 0);
    assert!(dropped > 0 && dropped < PACKETS, "{dropped}");
}
