//! The arguments of `fairpath impair`, against the configuration that it reports.
//!
//! ```text
//! said   rate 10000000bit delay 500000ns loss 1%
//! read   loss=1% delay=500us rate=10000000bit
//! ```
//!
//! Keys that the lab writes are compared both ways: one that is missing, one that is there unasked, and
//! one with another value. An experiment's own words (`impair = "..."`) may say more, by other keys.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::quantity::{Rate, Share, Time};

/// Keys that the lab writes.
const KEYS: [&str; 11] = [
    "rate",
    "delay",
    "delay_trace",
    "jitter",
    "distribution",
    "order",
    "correlation",
    "loss",
    "policy",
    "limit",
    "set",
];
/// The default, which the emulator does not repeat.
const USUAL: (&str, &str) = ("order", "kept");
/// Rates and shares lose digits on the way; more than this share of them is another value.
const DIGITS: f64 = 1e-6;

type Pair = (String, String);

/// Returns the words that the emulator read differently; `None` if all agree.
pub fn misread(stated: &str, read: &str) -> Option<String> {
    let (stated, read) = (pairs(stated), pairs(read));
    let keys: BTreeSet<&String> = stated.iter().chain(&read).map(|(key, _)| key).collect();
    let of = |pairs: &[Pair], key: &str| -> Vec<String> {
        let values = pairs.iter().filter(|(own, _)| own == key);
        values.map(|(_, value)| value.clone()).collect()
    };
    let differs = |key: &&&String| {
        let (stated, read) = (of(&stated, key), of(&read, key));
        stated.len() != read.len() || stated.iter().zip(&read).any(|(a, b)| !is_same(a, b))
    };
    let key = keys.iter().find(differs)?;
    let reported = |values: Vec<String>| match values.is_empty() {
        true => "no value".to_owned(),
        false => values.join(" and "),
    };
    Some(format!(
        "{}: configured {}, but the emulator reported {}",
        key.replace('_', "-"),
        reported(of(&stated, key)),
        reported(of(&read, key))
    ))
}

/// Keys that are compared, with their values: `loss 1%` and `loss=1%` alike.
fn pairs(text: &str) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut words = words_of(text).into_iter();
    while let Some(word) = words.next() {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (word, words.next().unwrap_or_default()),
        };
        let key = key.replace('-', "_");
        if KEYS.contains(&key.as_str()) && (key.as_str(), value.as_str()) != USUAL {
            pairs.push((key, value));
        }
    }
    pairs
}

/// Words between blanks; what is between double quotes is one.
fn words_of(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn is_same(a: &str, b: &str) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= DIGITS * a.abs().max(b.abs());
    let both = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| near(a, b));
    let time = |text| Time::from_str(text).ok().map(|time| time.ns() as f64);
    let rate = |text| Rate::from_str(text).ok().map(Rate::bps);
    let share = |text| Share::from_str(text).ok().map(Share::value);
    a == b || both(time(a), time(b)) || both(rate(a), rate(b)) || both(share(a), share(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATED: &str = "rate 850000000bit delay 500000ns jitter 100000ns distribution normal order kept loss 1% \
        policy codel set target=1ms limit 150";
    const READ: &str = "loss=1% delay=500us jitter=100us distribution=normal rate=850000000bit policy=codel limit=150 \
        set=target=1ms";

    #[test]
    fn the_same_in_other_words_is_the_same() {
        assert_eq!(misread(STATED, READ), None);
        assert_eq!(misread("none", "none"), None);
        let trace = "delay-trace \"0ms 1000ns,5ms 2000ns\" loss 1%";
        let read = "loss=1% delay_trace=\"0ms 1000ns,5ms 2000ns\"";
        assert_eq!(misread(trace, read), None);
        assert_eq!(
            misread("gemodel 1%,25%", "gilbert_elliott=p=1%,r=25%,h=100%,k=0%"),
            None
        );
    }

    #[test]
    fn every_lost_changed_or_added_word_is_named() {
        for part in READ.split_whitespace() {
            let read = READ.replace(part, "");
            let reported = misread(STATED, &read).unwrap_or_default();
            assert!(
                reported.ends_with("the emulator reported no value"),
                "{part}: {reported}"
            );
        }
        let reported = misread(STATED, &READ.replace("500us", "5ms")).unwrap();
        assert_eq!(
            reported,
            "delay: configured 500000ns, but the emulator reported 5ms"
        );
        let reported = misread("loss 1%", "loss=1% order=free").unwrap();
        assert_eq!(
            reported,
            "order: configured no value, but the emulator reported free"
        );
        let reported = misread("set a=1 policy x set b=2", "policy=x set=a=1").unwrap();
        assert!(reported.contains("a=1 and b=2"), "{reported}");
    }
}
