//! Edits of sets of an image: they give the answers and errors of the sets as text, and packets meet the
//! elements that have not ended.

mod ruleset;

use fairpath_core::rules::{CounterMode, Header, check};
use fairpath_rules::image::{Built, Lookups, NotEdited, SetBytes, SetEdit, build};
use fairpath_rules::sets::{Sets, Verb};
use fairpath_rules::{Core, Facts, Family, Hook, LineError, Packet, Reference, Verdict};
use fairpath_statistics::Random;
use fairpath_units::test_seeds;
use ruleset::ruleset;

const SECOND: u64 = 1_000_000_000;
const LINK_BYTES: usize = 14;

/// Types of sets, and whether elements have ports, prefixes.
const TYPES: [(&str, bool, bool); 6] = [
    ("hash:ip maxelem 60", false, false),
    ("hash:ip timeout 4 maxelem 40", false, false),
    ("hash:net maxelem 1000", false, true),
    ("hash:net timeout 3", false, true),
    ("hash:ip,port timeout 0", true, false),
    ("hash:net,port timeout 2 maxelem 30", true, true),
];

fn address(random: &mut Random, family: Family) -> String {
    let host = random.below(90);
    match family {
        Family::Ipv6 => format!("2001:db8::{:x}", host + 1),
        _ => format!("10.0.{}.{}", host / 45, 1 + host % 45),
    }
}

fn element(random: &mut Random, family: Family, ports: bool, networks: bool) -> String {
    let mut out = address(random, family);
    let width = if family == Family::Ipv6 { 128 } else { 32 };
    if networks && random.below(3) > 0 {
        out += &format!("/{}", width - random.below(9));
    }
    if ports {
        out += [",tcp:80", ",udp:53", ",udp:54"][random.index(3)];
    }
    out
}

fn line(random: &mut Random, family: Family, kind: (&str, bool, bool)) -> String {
    let (text, ports, networks) = kind;
    let element = element(random, family, ports, networks);
    let exist = if random.below(2) == 0 { " -exist" } else { "" };
    if random.below(3) == 0 {
        return format!("del a {element}{exist}");
    }
    let mut out = format!("add a {element}");
    if text.contains("timeout") && random.below(3) > 0 {
        out += &format!(" timeout {}", random.below(6));
    }
    if networks && random.below(4) == 0 {
        out += " nomatch";
    }
    out + exist
}

/// Applies a line to the set with number 0 of an image, as a loader does.
fn edit(image: &mut Vec<u8>, sets: &Sets, text: &str) -> Result<(), LineError> {
    let line = sets.element_line(text)?.expect("a line of elements");
    let mut set = SetEdit::new(image, 0, sets.time()).expect("a set");
    for element in line.elements() {
        let done = match line.verb {
            Verb::Add => set.add(&element, line.exist, line.most()),
            _ => set.del(&element, line.exist),
        };
        done.map_err(|why| match why {
            NotEdited::Exists => line.exists(&element),
            NotEdited::Missing => line.missing(&element),
            NotEdited::Full => line.full(),
            NotEdited::Collides => panic!("{text}"),
        })?;
    }
    match set.finish() {
        SetBytes::Parts(parts) => {
            for (at, bytes) in parts {
                image[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        SetBytes::Whole(bytes) => {
            let mut header = Header::of(image).unwrap();
            let (at, table) = (image.len() as u32, header.set_at as usize);
            image.extend(bytes);
            header.bytes = image.len() as u32;
            header.write_to(image);
            image[table..table + 4].copy_from_slice(&at.to_le_bytes());
        }
    }
    Ok(())
}

fn frame(random: &mut Random, family: Family) -> Vec<u8> {
    let mut bytes = vec![2; LINK_BYTES];
    let source = address(random, family);
    match source.parse().unwrap() {
        std::net::IpAddr::V6(source) => {
            bytes.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
            bytes.extend(source.octets());
            bytes.extend([9; 16]);
        }
        std::net::IpAddr::V4(source) => {
            bytes.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend([9; 4]);
        }
    }
    bytes.extend(1000u16.to_be_bytes());
    bytes.extend((53 + random.below(2) as u16).to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

/// Random packets get the verdict of the reference, at random times around that of the sets.
fn compare(built: &Built, set: &fairpath_rules::Ruleset, sets: &Sets, random: &mut Random) -> u32 {
    let mut core = Core::new(built, CounterMode::Exact).unwrap();
    let mut reference = Reference::new(set, Some(sets));
    let mut dropped = 0;
    for _ in 0..30 {
        let bytes = frame(random, set.family);
        let ahead = random.below(7) * SECOND / 2 + random.below(2);
        let packet = Packet {
            family: set.family,
            bytes: &bytes,
            network: LINK_BYTES,
            length: bytes.len() - LINK_BYTES,
            facts: Facts {
                output: Some(b""[..].into()),
                now: sets.time() + ahead,
                ..Facts::usual()
            },
        };
        let wanted = reference.evaluate(Hook::Input, &packet).verdict;
        let found = core.evaluate(Hook::Input, &packet).unwrap().verdict;
        assert_eq!(found, wanted, "{sets}");
        dropped += u32::from(found == Verdict::Drop);
    }
    dropped
}

#[test]
fn edited_sets_are_those_of_their_lines() {
    let (mut dropped, mut all, mut refused) = (0, 0, 0);
    for seed in test_seeds(6) {
        let mut random = Random::new(seed);
        for (family, kind) in [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .flat_map(|family| TYPES.map(|kind| (family, kind)))
        {
            let inet6 = if family == Family::Ipv6 {
                " family inet6"
            } else {
                ""
            };
            let mut sets = Sets::default();
            sets.apply_line(&format!("create a {}{inet6}", kind.0))
                .unwrap();
            for _ in 0..random.below(30) {
                let _ = sets.apply_line(&line(&mut random, family, kind));
            }
            let mut now = SECOND + random.below(SECOND);
            sets.set_time(now);
            let rules = ruleset(
                family,
                "*filter\n-A INPUT -m set --match-set a src,dst -j DROP\nCOMMIT\n",
            );
            let mut built = build(&rules, Some(&sets), Lookups::default()).unwrap();
            for step in 0..300 {
                now += random.below(SECOND / 4);
                sets.set_time(now);
                let line = line(&mut random, family, kind);
                let mut image = built.image.clone();
                let found = edit(&mut image, &sets, &line);
                let mut after = sets.clone();
                let wanted = after.apply_line(&line);
                let text = |done: &Result<(), LineError>| {
                    done.as_ref().err().map(|error| error.text.clone())
                };
                assert_eq!(text(&found), text(&wanted), "seed {seed}: {line}\n{sets}");
                // A refused line changes nothing.
                if found.is_err() {
                    refused += 1;
                    continue;
                }
                (built.image, sets) = (image, after);
                check(&built.image).unwrap_or_else(|error| panic!("seed {seed}: {line}: {error}"));
                if step % 10 == 0 {
                    dropped += compare(&built, &rules, &sets, &mut random);
                    all += 30;
                }
                let wanted_line = element(&mut random, family, kind.1, kind.2);
                let test = format!("test a {wanted_line}");
                let wanted_line = sets.element_line(&test).unwrap().unwrap();
                let edit = SetEdit::new(&built.image, 0, now).unwrap();
                let set = sets.get("a").unwrap();
                for element in wanted_line.elements() {
                    for around in [false, true] {
                        let wanted = set.find(&element, around, now);
                        assert_eq!(edit.find(&element, around), wanted, "{test}");
                    }
                }
            }
        }
    }
    println!("{dropped} of {all} dropped, {refused} lines refused");
    assert!(dropped > all / 20 && dropped < all * 19 / 20 && refused > 0);
}

/// Edits that free and use again as many elements do not make the image larger each time.
#[test]
fn tables_of_sets_grow_by_halves() {
    let mut sets = Sets::read("t", &b"create a hash:ip timeout 1\n"[..]).unwrap();
    sets.set_time(1);
    let rules = ruleset(
        Family::Ipv4,
        "*filter\n-A INPUT -m set --match-set a src -j DROP\nCOMMIT\n",
    );
    let mut image = build(&rules, Some(&sets), Lookups::default())
        .unwrap()
        .image;
    let mut sizes = Vec::new();
    for number in 0..4000u64 {
        // 0.1 s each: eleven are there.
        sets.set_time(1 + number * SECOND / 10);
        let line = format!("add a 10.0.{}.{}", number / 250, 1 + number % 250);
        let before = image.len();
        edit(&mut image, &sets, &line).unwrap();
        if image.len() > before {
            sizes.push(image.len() - before);
        }
    }
    assert!(sizes.len() < 200, "{} tables", sizes.len());
    assert!(sizes.iter().all(|bytes| *bytes < 5000), "{sizes:?}");
    let edit = SetEdit::new(&image, 0, sets.time()).unwrap();
    let line = sets.element_line("test a 10.0.15.250").unwrap().unwrap();
    let element = line.elements().next().unwrap();
    assert_eq!(edit.find(&element, true), Some(false));
}
