//! Debian package versions and their order (deb-version(7)).
//!
//! The order is the package manager's: digits compare as numbers, `~` sorts before the end of the text, letters before
//! everything else. Versions that differ only in leading zeros are equal.

use std::cmp::Ordering;
use std::fmt;

/// A package version, `[epoch:]upstream[-revision]`.
#[derive(Debug, Clone)]
pub struct DebVersion(String);

impl DebVersion {
    /// Takes the text of a package index.
    pub fn new(text: &str) -> Self {
        DebVersion(text.to_string())
    }

    /// The text in the index.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first two numbers of the upstream version: `(6, 12)` of `6.12.95-1~bpo12+1`.
    pub fn series(&self) -> Option<(u32, u32)> {
        let mut numbers = self.parts().1.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    fn parts(&self) -> (u32, &str, &str) {
        let (epoch, rest) = match self.0.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
            None => (0, self.0.as_str()),
        };
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
        (epoch, upstream, revision)
    }
}

impl Ord for DebVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let (epoch, upstream, revision) = self.parts();
        let (other_epoch, other_upstream, other_revision) = other.parts();
        epoch
            .cmp(&other_epoch)
            .then_with(|| compare(upstream, other_upstream))
            .then_with(|| compare(revision, other_revision))
    }
}

impl PartialOrd for DebVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DebVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DebVersion {}

impl fmt::Display for DebVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares one part: runs of text and runs of digits in turn, until one differs.
fn compare(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, text_b) = (
            take(&mut a, |c| !c.is_ascii_digit()),
            take(&mut b, |c| !c.is_ascii_digit()),
        );
        let (digits_a, digits_b) = (
            take(&mut a, |c| c.is_ascii_digit()),
            take(&mut b, |c| c.is_ascii_digit()),
        );
        let order = compare_text(text_a, text_b).then_with(|| compare_digits(digits_a, digits_b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

fn take<'a>(rest: &mut &'a str, belongs: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
    let (run, left) = rest.split_at(end);
    *rest = left;
    run
}

fn compare_text(a: &str, b: &str) -> Ordering {
    let weights = |text: &str| text.bytes().map(weight).chain([0]).collect::<Vec<_>>();
    weights(a).cmp(&weights(b))
}

/// The end of a run weighs 0, so `~` sorts before it and all else after.
fn weight(byte: u8) -> i32 {
    match byte {
        b'~' => -1,
        b'a'..=b'z' | b'A'..=b'Z' => i32::from(byte),
        _ => i32::from(byte) + 256,
    }
}

fn compare_digits(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is ascending by `dpkg --compare-versions`.
    const ASCENDING: &[&[&str]] = &[
        &[
            "6.12.9-1",
            "6.12.69-1~bpo12+1",
            "6.12.69-1",
            "6.12.95-1~bpo12+1",
            "7.0.4-1~bpo13+1",
        ],
        &[
            "7.2.12-1~bpo13+1",
            "7.3~rc1-1~exp1",
            "7.3~rc2-1~exp1",
            "7.3.4-1~bpo13+1",
            "7.3.4-1",
            "7.10-1",
        ],
        &["1.0~~", "1.0~~a", "1.0~", "1.0", "1.0a", "1.0+b", "1.0.1"],
        &["9.9-9", "1:0.1-1", "2:0.1-1"],
    ];

    #[test]
    fn order_is_that_of_deb_version() {
        for row in ASCENDING {
            for pair in row.windows(2) {
                assert!(
                    DebVersion::new(pair[0]) < DebVersion::new(pair[1]),
                    "{} < {}",
                    pair[0],
                    pair[1]
                );
            }
        }
    }

    #[test]
    fn leading_zeros_do_not_matter() {
        assert_eq!(DebVersion::new("1.02-1"), DebVersion::new("1.2-01"));
    }

    #[test]
    fn series_is_first_two_numbers_after_the_epoch() {
        assert_eq!(DebVersion::new("6.12.95-1~bpo12+1").series(), Some((6, 12)));
        assert_eq!(DebVersion::new("1:7.3~rc1-1").series(), Some((7, 3)));
        assert_eq!(DebVersion::new("next").series(), None);
    }
}
