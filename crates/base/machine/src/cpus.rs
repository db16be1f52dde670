//! A set of CPUs, and the kernel's two text formats of one: lists and masks.

use std::collections::{BTreeSet, btree_set};
use std::fmt;
use std::iter::Copied;

use serde::Serialize;

/// The kernel is built for at most 8,192 CPUs (`NR_CPUS`). Higher numbers are no CPUs.
const CPU_LIMIT: u32 = 8192;

/// CPUs by number, in ascending order. [`Display`](fmt::Display) writes a list of the kernel: `0-2,5`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Cpus(BTreeSet<u32>);

impl Cpus {
    /// The CPUs of a list like `0-2,5`. Parts that are no numbers are skipped (`(null)` is empty).
    pub fn from_list(list: &str) -> Cpus {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (last < CPU_LIMIT).then_some(first..=last)
        };
        list.split(',').filter_map(range).flatten().collect()
    }

    /// The CPUs of a mask like `ff,ffffffff`: words of 32 bits, highest first. Absent if it is no mask.
    pub fn from_mask(mask: &str) -> Option<Cpus> {
        let mut cpus = BTreeSet::new();
        for (word, text) in mask.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(text, 16).ok()?;
            let first = u32::try_from(word).ok()?.checked_mul(32)?;
            cpus.extend(
                (0..32)
                    .filter(|bit| bits & 1 << bit != 0)
                    .map(|bit| first + bit),
            );
        }
        Some(Cpus(cpus))
    }

    /// The mask as the kernel reads it: words of 32 bits in hexadecimal, highest first.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |index: u32| {
            let of_word = self.0.iter().filter(|cpu| **cpu / 32 == index);
            of_word.fold(0u32, |mask, cpu| mask | 1 << (cpu % 32))
        };
        let mut text = format!("{:x}", word(words - 1));
        for index in (0..words - 1).rev() {
            text.push_str(&format!(",{:08x}", word(index)));
        }
        text
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> Copied<btree_set::Iter<'_, u32>> {
        self.0.iter().copied()
    }

    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without CPUs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `cpu` is one of them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPU, if there is exactly one.
    pub fn only(&self) -> Option<u32> {
        self.iter().next().filter(|_| self.len() == 1)
    }

    /// The CPUs that are in both.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 & &other.0)
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 - &other.0)
    }

    /// The CPUs that are in any of the two.
    #[must_use]
    pub fn or(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 | &other.0)
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl<const N: usize> From<[u32; N]> for Cpus {
    fn from(cpus: [u32; N]) -> Cpus {
        cpus.into_iter().collect()
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges_and_tolerate_nonsense() {
        assert_eq!(Cpus::from_list("0-2,5\n"), Cpus::from([0, 1, 2, 5]));
        assert_eq!(Cpus::from_list("7").only(), Some(7));
        assert_eq!(Cpus::from_list("x,3").to_string(), "3");
        for empty in ["", "(null)\n", "0-4294967295", "5-2"] {
            assert!(Cpus::from_list(empty).is_empty(), "{empty}");
        }
    }

    #[test]
    fn lists_are_written_with_ranges() {
        for list in ["0", "0-1", "0,2", "0-3,8,510-511", ""] {
            assert_eq!(Cpus::from_list(list).to_string(), list);
        }
    }

    #[test]
    fn masks_survive_a_round_trip() {
        for mask in ["3", "2,00000002", "ff,ffffffff", "0", "1,00000000,00000000"] {
            assert_eq!(Cpus::from_mask(mask).unwrap().mask(), mask);
        }
        let all = vec!["ffffffff"; 16].join(",");
        assert_eq!(Cpus::from_mask(&all).unwrap().to_string(), "0-511");
        assert_eq!(Cpus::from_mask("00000000,0000000f\n").unwrap().mask(), "f");
        assert_eq!(Cpus::from_mask(""), None);
        assert_eq!(Cpus::from_mask("f,x"), None);
    }

    #[test]
    fn sets_are_joined_and_reduced() {
        let (a, b) = (Cpus::from([0, 1, 2]), Cpus::from([2, 3]));
        assert_eq!(a.and(&b).only(), Some(2));
        assert_eq!(a.without(&b).to_string(), "0-1");
        assert_eq!(a.or(&b).to_string(), "0-3");
    }
}
