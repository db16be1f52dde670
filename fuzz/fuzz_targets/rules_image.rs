//! Images of rules: each is refused, or every packet ends with a verdict.
//!
//! An input that begins as an image is one. Any other is a number of changes, these (place and value,
//! 32 bits each), and a file of iptables-save: its image is built and changed. So the seeds stay valid
//! when the format changes.

#![no_main]

use fairpath_core::rules::{CounterMode, Evaluator, MAGIC, Work, check};
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Facts, Family, Names, Packet, Sets, fill, read};
use libfuzzer_sys::fuzz_target;

const SETS: &[u8] = include_bytes!("../seeds/rules_ipset/all");
const CHANGES: usize = 8;
/// Chains that are run apart from those of hooks.
const CHAINS: u32 = 4;
const HOOKS: u32 = 6;
/// Slots and counters of an image that is run: memory of an input.
const MAX_STATE: u32 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    if input.starts_with(&MAGIC.to_le_bytes()) {
        run(input);
        run(&sealed(input.to_vec()));
    } else if let Some(image) = changed(input) {
        run(&sealed(image));
    }
});

/// The image with its number of bytes.
fn sealed(mut image: Vec<u8>) -> Vec<u8> {
    image.truncate(image.len() & !15);
    let bytes = (image.len() as u32).to_le_bytes();
    if let Some(place) = image.get_mut(8..12) {
        place.copy_from_slice(&bytes);
    }
    image
}

/// An image that is built from the text of the input, after the changes of the input.
fn changed(input: &[u8]) -> Option<Vec<u8>> {
    let (count, rest) = input.split_first()?;
    let count = usize::from(*count) % (CHANGES + 1);
    let (changes, mut text) = rest.split_at_checked(8 * count)?;
    let sets = Sets::read("sets", SETS).expect("the sets are valid");
    let lookups = Lookups::ALL[count % 3];
    let ruleset = read(&mut text, "input", Family::Ipv4, &Names::default())
        .expect("memory can be read")
        .complete()
        .ok()?;
    let mut image = build(&ruleset, Some(&sets), lookups).ok()?.image;
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    for change in changes.chunks_exact(8) {
        let at = number(&change[..4]) as usize;
        // The highest bit selects a byte, otherwise it is a word.
        let bytes = if at >> 31 == 1 { 1 } else { 4 };
        let at = (at & 0x7fff_ffff) % (image.len() / bytes) * bytes;
        image[at..at + bytes].copy_from_slice(&change[4..4 + bytes]);
    }
    Some(image)
}

fn run(image: &[u8]) {
    let Ok(header) = check(image) else { return };
    if header.slots > MAX_STATE || header.rules > MAX_STATE {
        return;
    }
    let mut evaluator = Evaluator::new(image, &[], CounterMode::Exact).expect("it was accepted");
    let mut work = Work::new();
    work.tracing = 1;
    for family in [Family::Ipv4, Family::Ipv6] {
        let frame = frame(family);
        for known in [true, false] {
            for at in 0..HOOKS + header.chains.min(CHAINS) {
                fill(&mut work, &packet(family, &frame, known));
                evaluator.read(&mut work);
                match at.checked_sub(HOOKS) {
                    None => evaluator.evaluate(at, &mut work),
                    Some(chain) => evaluator.evaluate_chain(chain, &mut work),
                }
            }
        }
    }
}

const IPV4: &[u8] = b"\x45\0\0\x34\0\0\0\0\x40\x06\0\0\x0a\x01\x02\x03\xc0\0\x02\x01\
    \0\x50\0\x50\0\0\0\0\0\0\0\0\x80\x02\0\0\0\0\0\0\x02\x04\x05\xb4\0\0\0\0\0\0\0\0";
const IPV6: &[u8] = b"\x60\0\0\0\0\x10\0\x40\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
    \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\x11\0\x05\x02\0\0\x01\0\0\x35\0\x35\0\x08\0\0";

/// Bytes of a link-layer header: packets without one do not use lookups.
const LINK: usize = 14;

fn frame(family: Family) -> Vec<u8> {
    let bytes = if family == Family::Ipv4 { IPV4 } else { IPV6 };
    [&[2; LINK], bytes].concat()
}

fn packet(family: Family, frame: &[u8], known: bool) -> Packet<'_> {
    Packet {
        family,
        bytes: frame,
        network: LINK,
        length: frame.len() - LINK,
        facts: if known {
            Facts::usual()
        } else {
            Facts::default()
        },
    }
}
