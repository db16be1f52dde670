//! Early drop: a program in the drivers of interfaces drops what table raw would drop in PREROUTING.
//!
//! It reads the rules that packets meet in the arena, as the programs at the hooks do, so a load needs no
//! step for it. A new interface of the same name has no program until the next load, and its packets
//! meet the hook only.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use fairpath_units::IfIndex;

use super::{HookError, HookRules, NESTED, SCRATCH_BYTES};
use crate::pin::Pins;
use crate::stage::{self, Stage};

/// The kind of its pins.
const KIND: &str = "rules-early";
/// Its name.
const PROGRAM: [&str; 1] = ["rules_early"];
/// `dropped` in `struct rules_scratch`.
const DROPPED: usize = 8;

impl HookRules {
    /// Puts the program into the drivers of interfaces of the calling thread's network namespace, and
    /// pins it there. Those that have it keep it. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Early`] names the interface, whose driver has another program or refuses it.
    pub fn drop_early(&self, pins: &Pins, cards: &[(IfIndex, &str)]) -> Result<(), HookError> {
        let present = HookRules::early_cards(pins)?;
        let is_new = |card: &&(IfIndex, &str)| !present.contains(&card.0);
        let new: Vec<_> = cards.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut place = MaybeUninit::uninit();
        let mut skel = self
            .load_more(&mut place, &PROGRAM)
            .map_err(HookError::Refused)?;
        for (card, name) in new {
            let program = &mut skel.progs.rules_early;
            let path = pins.of(KIND, *card)?;
            // A killed command may have left one of its two pins.
            stage::unpin(&path)?;
            let attached = stage::attach(program, Stage::Rules, *card, name)?;
            attached.pin(&path).map_err(HookError::Refused)?;
        }
        Ok(())
    }

    /// Packets that were dropped in drivers, which the counters of rules have as well.
    pub fn dropped_early(&self) -> u64 {
        let cpus = self.header().cpus as usize;
        let first = self.parts().scratches;
        let of = |number: usize| {
            // SAFETY: load() reserved the scratches there.
            let at: NonNull<u8> =
                unsafe { self.base.add(first + number * SCRATCH_BYTES + DROPPED) };
            // SAFETY: as above, aligned to 8; programs write it with one store.
            unsafe { at.cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
        };
        (0..cpus * NESTED).map(of).sum()
    }

    /// Removes the program from all interfaces except for these. Only with [`super::HookLock`].
    ///
    /// # Errors
    /// [`HookError::Pin`].
    pub fn keep_early(pins: &Pins, cards: &[IfIndex]) -> Result<(), HookError> {
        for card in pins.interfaces(KIND)? {
            if !cards.contains(&card) {
                stage::unpin(&pins.of(KIND, card)?)?;
            }
        }
        Ok(())
    }

    /// The interfaces whose drivers have the program.
    ///
    /// # Errors
    /// [`HookError::Pin`], [`HookError::Refused`].
    pub fn early_cards(pins: &Pins) -> Result<Vec<IfIndex>, HookError> {
        let mut cards = Vec::new();
        for card in pins.interfaces(KIND)? {
            // Another card may have the index of one that was removed, or that moved to another namespace.
            let path = pins.of(KIND, card)?;
            if stage::is_there(&path, card).map_err(HookError::Refused)? {
                cards.push(card);
            }
        }
        Ok(cards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_loads() {
        let rules = HookRules::load().unwrap();
        rules
            .load_more(&mut MaybeUninit::uninit(), &PROGRAM)
            .unwrap();
    }
}
