//! Time of one reading of the counters of loaded rules: `cargo run --release -p fairpath-history --example rule_counts`.
//!
//! Counters are read as in the arena: one row for each of eight CPUs, one for interrupts, one for user space.

use std::hint::black_box;
use std::time::Instant;

use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::rule_counts::{RuleCounts, RuleList};

const ROWS: usize = 10;
const READINGS: u32 = 9;

fn main() {
    println!("rules     list ms  reading ms  bytes a rule");
    for rules in [1_000, 100_000, 600_000] {
        let start = Instant::now();
        let mut counts = RuleCounts::default();
        let (list, bytes) = list(rules);
        counts.replace(list);
        let listed = start.elapsed();
        let mut rows = vec![[1_u64; 2]; ROWS * (rules + 1)];
        let mut times = Vec::new();
        for reading in 1..=READINGS {
            for (at, counter) in rows.iter_mut().enumerate() {
                counter[0] += at as u64 % 7 * u64::from(reading);
            }
            let start = Instant::now();
            counts.take(u64::from(reading) * 1_000_000_000, |id| {
                let of_rows = (0..ROWS).map(|row| rows[row * (rules + 1) + id as usize]);
                of_rows.fold([0, 0], |sum, row| [sum[0] + row[0], sum[1] + row[1]])
            });
            let mut shown = LoadedRules::default();
            counts.show(&mut shown);
            black_box(shown);
            times.push(start.elapsed());
        }
        times.sort();
        let median = times[times.len() / 2];
        println!(
            "{rules:<9} {:>7.1}  {:>10.2}  {bytes:>12}",
            listed.as_secs_f64() * 1e3,
            median.as_secs_f64() * 1e3
        );
    }
}

/// Rules of chains of 100 rules, and the mean size of their texts.
fn list(rules: usize) -> (RuleList, usize) {
    let mut list = RuleList::default();
    list.begin_file("IPv4", "rules.v4", rules as u64);
    let mut bytes = 0;
    for at in 0..rules {
        if at % 100 == 0 {
            list.begin_chain("filter", &format!("chain-{}", at / 100));
        }
        let [a, b, c] = [at >> 16, at >> 8 & 255, at & 255];
        let text = format!("-s 10.{a}.{b}.{c}/32 -p tcp -m tcp --dport 443 -j DROP");
        bytes += text.len();
        list.rule(&text, "DROP", at as u32 + 1, at as u32);
    }
    (list, bytes / rules)
}
