//! Sets of rules that grow like those of large operators: a tree of chains by destination, long
//! chains, prefixes, flows.

use std::fmt::Write as _;

use fairpath_statistics::Random;

/// A generated set, as text of a save file.
pub struct Made {
    pub text: String,
    pub rules: usize,
    pub chains: usize,
}

/// 100 chains of 1,000 rules `-s ::1 -d ::1`, all reachable from INPUT: the measurement with which
/// Xtables2 was proposed.
pub fn flat(chains: usize, rules: usize) -> Made {
    let mut text =
        String::from("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    for chain in 0..chains {
        let _ = writeln!(text, ":chain{chain:03} - [0:0]");
    }
    for chain in 0..chains {
        let _ = writeln!(text, "-A INPUT -j chain{chain:03}");
    }
    for chain in 0..chains {
        for _ in 0..rules {
            let _ = writeln!(text, "-A chain{chain:03} -s ::1/128 -d ::1/128");
        }
    }
    text.push_str("COMMIT\n");
    Made {
        text,
        rules: chains * rules + chains,
        chains: chains + 3,
    }
}

/// A tree of chains by destination: /8, /16, /24, and rules for hosts. Every level is walked in
/// order, so a packet meets about 80 rules.
pub fn fanned(rules: usize, chains: usize) -> Made {
    // Chains: a + a * b + leaves; the first two levels have about the same fan as the third.
    let fan = (chains as f64).cbrt().round() as usize;
    let (first, second) = (fan, fan);
    let leaves = chains - first - first * second;
    let host_rules = rules - chains;
    let mut text = String::with_capacity(rules * 48);
    text.push_str("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    let mut names = Vec::with_capacity(chains);
    let mut body = String::with_capacity(rules * 48);
    for a in 0..first {
        names.push(format!("net{a}"));
        let _ = writeln!(body, "-A FORWARD -d {}.0.0.0/8 -j net{a}", 16 + a);
    }
    let mut leaf = 0;
    let mut host = 0;
    for a in 0..first {
        for b in 0..second {
            names.push(format!("net{a}.{b}"));
            let _ = writeln!(body, "-A net{a} -d {}.{b}.0.0/16 -j net{a}.{b}", 16 + a);
        }
    }
    for a in 0..first {
        for b in 0..second {
            let until = leaves * (a * second + b + 1) / (first * second);
            let mut c = 0;
            while leaf < until {
                names.push(format!("net{a}.{b}.{c}"));
                let _ = writeln!(
                    body,
                    "-A net{a}.{b} -d {}.{b}.{c}.0/24 -j net{a}.{b}.{c}",
                    16 + a
                );
                leaf += 1;
                c += 1;
            }
        }
    }
    leaf = 0;
    for a in 0..first {
        for b in 0..second {
            let until = leaves * (a * second + b + 1) / (first * second);
            let mut c = 0;
            while leaf < until {
                leaf += 1;
                let hosts = host_rules * leaf / leaves;
                let mut d = 0;
                while host < hosts {
                    let _ = writeln!(
                        body,
                        "-A net{a}.{b}.{c} -d {}.{b}.{c}.{}/32 -j ACCEPT",
                        16 + a,
                        d * 16 + 1
                    );
                    host += 1;
                    d += 1;
                }
                c += 1;
            }
        }
    }
    for name in &names {
        let _ = writeln!(text, ":{name} - [0:0]");
    }
    text.push_str(&body);
    text.push_str("COMMIT\n");
    Made {
        text,
        rules,
        chains: chains + 3,
    }
}

/// Chains of each level of [`fanned`] below one of the level above, and rules for hosts of a leaf: those
/// that all of them have.
pub fn fans(rules: usize, chains: usize) -> [u32; 4] {
    let fan = (chains as f64).cbrt().round() as usize;
    let leaves = chains - fan - fan * fan;
    let each = [fan, fan, leaves / (fan * fan), (rules - chains) / leaves];
    each.map(|each| each.max(1) as u32)
}

/// A random destination of [`fanned`].
pub fn fanned_destination(chains: usize, random: &mut Random) -> u32 {
    let fan = (chains as f64).cbrt().round() as u64;
    let per = (chains as u64 - fan - fan * fan) / (fan * fan);
    let part = |random: &mut Random, below: u64| (random.draw() % below) as u32;
    let (a, b, c) = (
        part(random, fan),
        part(random, fan),
        part(random, per.max(1)),
    );
    (16 + a) << 24 | b << 16 | c << 8 | (part(random, 3) * 16 + 1)
}

/// Distinct prefixes of lengths that routing tables have, far from each other.
pub fn prefixes(count: usize, seed: u64) -> (Made, Vec<u32>) {
    let mut random = Random::new(seed);
    distinct(count, || {
        let length = match random.draw() % 100 {
            0..=55 => 24,
            56..=65 => 22,
            66..=72 => 23,
            73..=78 => 20,
            79..=82 => 21,
            83..=86 => 19,
            87..=90 => 16,
            91..=95 => 32,
            _ => 17 + (random.draw() % 2) as u32,
        };
        (random.draw() as u32, length)
    })
}

/// Distinct prefixes of all lengths from 8 to 32 in few areas, so that many are nested.
pub fn nested(count: usize, seed: u64) -> (Made, Vec<u32>) {
    let mut random = Random::new(seed);
    let areas: Vec<u32> = (0..256).map(|_| random.draw() as u32).collect();
    distinct(count, || {
        let area = areas[random.draw() as usize % areas.len()];
        let own = random.draw() as u32 & 0x3_ffff;
        // A part of longer prefixes than others, as there are more of them.
        let length = 32 - (random.draw() % 25).min(random.draw() % 25) as u32;
        (area & !0x3_ffff | own, length)
    })
}

/// Rules that drop distinct prefixes: in the order in which `next` makes them.
fn distinct(count: usize, mut next: impl FnMut() -> (u32, u32)) -> (Made, Vec<u32>) {
    let mut seen = std::collections::HashSet::new();
    let mut text =
        String::from("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    let mut addresses = Vec::with_capacity(count);
    while addresses.len() < count {
        let (address, length) = next();
        let address = address & u32::MAX << (32 - length);
        if seen.insert((address, length)) {
            let _ = writeln!(
                text,
                "-A FORWARD -s {}/{length} -j DROP",
                std::net::Ipv4Addr::from(address)
            );
            addresses.push(address);
        }
    }
    text.push_str("COMMIT\n");
    (
        Made {
            text,
            rules: count,
            chains: 3,
        },
        addresses,
    )
}

/// A flow: source, destination, ports.
pub type Flow = (u32, u32, u16, u16);

/// Distinct flows of TCP.
pub fn flows(count: usize, seed: u64) -> (Made, Vec<Flow>) {
    let mut random = Random::new(seed);
    let mut text =
        String::from("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    let mut flows = Vec::with_capacity(count);
    for _ in 0..count {
        let (source, destination) = (random.draw() as u32, random.draw() as u32);
        let ports = random.draw();
        let (from, to) = (ports as u16, (ports >> 16) as u16);
        let _ = writeln!(
            text,
            "-A FORWARD -s {}/32 -d {}/32 -p tcp -m tcp --sport {from} --dport {to} -j DROP",
            std::net::Ipv4Addr::from(source),
            std::net::Ipv4Addr::from(destination)
        );
        flows.push((source, destination, from, to));
    }
    text.push_str("COMMIT\n");
    (
        Made {
            text,
            rules: count,
            chains: 3,
        },
        flows,
    )
}
