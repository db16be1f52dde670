//! Reads a save file from standard input and writes it in its canonical form.
//! Usage: `canonical ipv4|ipv6|arp|bridge < FILE`

use fairpath_rules::{Family, Names, WithCounters, read, write};
use std::io::{stdin, stdout};

fn main() {
    let family = match std::env::args().nth(1).as_deref() {
        Some("ipv6") => Family::Ipv6,
        Some("arp") => Family::Arp,
        Some("bridge") => Family::Bridge,
        _ => Family::Ipv4,
    };
    let mut names = Names::default();
    names.add_services(&std::fs::read_to_string("/etc/services").unwrap_or_default());
    names.add_users(&std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let reading = read(&mut stdin().lock(), "-", family, &names).expect("standard input");
    for problem in &reading.problems {
        eprintln!("{problem}");
    }
    if !reading.problems.is_empty() {
        std::process::exit(1);
    }
    write(&reading.ruleset, WithCounters::AsRead, &mut stdout().lock()).expect("standard output");
}
