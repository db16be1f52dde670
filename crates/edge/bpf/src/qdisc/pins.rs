//! Names: those of qdiscs in the kernel, and the pins under which name and memory outlive a
//! process: `qdisc-NAME` (the registration), `arena-NAME`, `scratches-NAME`, `PROGRAM-NAME` of those with slots, and
//! `slotN-PROGRAM-NAME` of the policies in them, in a separate bpffs ([`Pins`]).

use std::path::PathBuf;

use super::slots;
use crate::pin::{PinError, Pins, remove};

/// Bytes of a qdisc's name (`IFNAMSIZ`), with its trailing zero.
pub(super) const NAME_BYTES: usize = 16;
/// Names that one place uses alternately.
const TURNS: u8 = 26;
const LINK: &str = "qdisc-";
const ARENA: &str = "arena-";

pub(super) fn link(pins: &Pins, name: &str) -> PathBuf {
    pins.join(&format!("{LINK}{name}"))
}

pub(super) fn arena(pins: &Pins, name: &str) -> PathBuf {
    pins.join(&format!("{ARENA}{name}"))
}

/// Another part: a program or its scratch, or a policy in a slot.
pub(super) fn part(pins: &Pins, part: &str, name: &str) -> PathBuf {
    pins.join(&format!("{part}-{name}"))
}

impl Pins {
    /// The names of the qdiscs that are pinned, in no order.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn qdiscs(&self) -> Result<Vec<String>, PinError> {
        let names = self.names()?;
        let names = names.iter().filter_map(|name| name.strip_prefix(LINK));
        Ok(names.map(str::to_owned).collect())
    }

    /// Unpins all of a qdisc. False if there was none. A qdisc on a device continues, but no other device can use it, and its
    /// custom policies become first in, first out.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn remove_qdisc(&self, name: &str) -> Result<bool, PinError> {
        let was = remove(&link(self, name))?;
        let was = remove(&arena(self, name))? || was;
        for part in slots::parts() {
            remove(&self::part(self, &part, name))?;
        }
        Ok(was)
    }
}

/// 32-bit FNV-1a, which spreads names of interfaces well enough.
fn hash(text: &str) -> u32 {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, fold)
}

/// The names that the qdisc of one place may have, in order: `fairpath`, six digits of a hash over
/// `place`, and a letter. Names are global to the machine, so `place` names daemon, namespace,
/// interface and queue. A successor next to its predecessor uses the next letter.
pub fn qdisc_names(place: &str) -> impl Iterator<Item = String> {
    let hash = hash(place);
    let digits = (hash >> 24 ^ hash) & 0xff_ffff;
    (0..TURNS).map(move |turn| format!("fairpath{digits:06x}{}", (b'a' + turn) as char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qdisc_names_fit_and_differ_by_place() {
        let layout = ["a near0 0", "a near0 1", "b near0 0", "a near1 0"];
        let mut names: Vec<String> = layout.iter().flat_map(|place| qdisc_names(place)).collect();
        assert!(
            names.iter().all(|name| name.len() < NAME_BYTES),
            "{names:?}"
        );
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
