//! `overhead`, `mpu` and `atm` of `[shape]`: the bytes that packets take on the link.

use std::fmt::Display;

use fairpath_core::sched::Framing;
use fairpath_shape::framing::{Cells, LINK_KINDS, LinkKind, MPUS, OVERHEADS, framing};
use fairpath_units::nearest;
use serde::Deserialize;

use super::file::Given;
use super::values::Check;

/// Bytes, or the keyword of a kind of link.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected bytes, such as 44, or a link, such as \"pppoe-ptm\""
)]
pub enum Overhead {
    /// Bytes in addition to an IP packet.
    Bytes(i64),
    /// One of [`LINK_KINDS`].
    Link(String),
}

/// The names of a list, for messages.
fn listed(names: impl IntoIterator<Item = impl Display>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    names.join(", ")
}

/// The kind of link with this keyword.
fn kind_of(name: &str) -> Result<LinkKind, String> {
    let names = || LINK_KINDS.iter().map(|kind| kind.name);
    let found = LINK_KINDS.iter().find(|kind| kind.name == name);
    found.copied().ok_or_else(|| match nearest(name, names()) {
        Some(near) => format!("link {name:?} is unknown: did you mean {near:?}?"),
        None => format!(
            "link {name:?} is unknown: write bytes, or one of {}",
            listed(names())
        ),
    })
}

impl Check<'_, '_> {
    /// The framing of the link. A keyword sets all three keys, and `mpu` and `atm` replace its values.
    pub(super) fn framing(
        &mut self,
        overhead: Given<Overhead>,
        mpu: Given<i64>,
        atm: Given<String>,
    ) -> Framing {
        let none = (None, 0, Cells::None);
        let (bytes, usual_mpu, usual) =
            self.read("[shape] overhead", overhead, none, |given| match given {
                Overhead::Bytes(bytes) if OVERHEADS.contains(&bytes) => {
                    Ok((Some(bytes as i16), 0, Cells::None))
                }
                Overhead::Bytes(bytes) => Err(format!(
                    "{bytes} is out of range: {} to {}",
                    OVERHEADS.start(),
                    OVERHEADS.end()
                )),
                Overhead::Link(name) => {
                    kind_of(&name).map(|kind| (Some(kind.overhead), kind.mpu, kind.cells))
                }
            });
        let mpu = self.number("[shape] mpu", mpu, usual_mpu.into(), MPUS) as u16;
        let cells = self.named("[shape] atm", atm, usual, &Cells::NAMES);
        framing(bytes, mpu, cells)
    }

    /// One of the values with these names.
    pub(super) fn named<T: Copy>(
        &mut self,
        key: &str,
        given: Given<String>,
        usual: T,
        known: &[(&str, T)],
    ) -> T {
        self.read(key, given, usual, |word| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let names = known.iter().map(|(name, _)| name);
                format!("{word:?} is invalid: write {}", listed(names))
            })
        })
    }
}
