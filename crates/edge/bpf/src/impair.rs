//! Loss without user space: an XDP program that drops incoming frames by their number.
//!
//! The outcomes are those of the scheduler (bpf/core/sched/loss.h): with the same seed, the n-th
//! packet has the same outcome here as with AF_XDP or NFQUEUE.

use std::mem::MaybeUninit;

use fairpath_core::sched::{LossConfig, LossModel, LossState};
use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};

use crate::attach::{AttachError, Attached};
use crate::skel::impair::{ImpairSkel, ImpairSkelBuilder};
use crate::stage::{self, Stage};

/// An Ethernet header and two tags, which the MTU does not count.
const LINK_BYTES: u32 = 14 + 2 * 4;
/// Of `struct loss`: a lock and a word, then the state and the configuration.
const LOCK_BYTES: usize = 8;
const VALUE_BYTES: usize = LOCK_BYTES + size_of::<LossState>() + size_of::<LossConfig>();

/// The program could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// The kernel refused it.
    #[error("load the loss program: {0}; needs CAP_BPF and CAP_NET_ADMIN")]
    Refused(#[from] libbpf_rs::Error),
    /// It could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The configuration of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossOptions {
    /// Which packets are lost.
    pub loss: LossConfig,
    /// Also frames that are not IP, to groups, and of neighbour discovery.
    pub all: bool,
    /// MTU of the interface: longer frames were not on the wire like that.
    pub mtu_bytes: u32,
}

/// Frames since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Frames with a number.
    pub arrived: u64,
    /// Of them, lost.
    pub lost: u64,
    /// Of them, longer than a frame on the wire: several packets with one outcome.
    pub gso_packets: u64,
    /// Frames without a number, which passed.
    pub exempt: u64,
}

/// The program on one interface of the current network namespace, removed on drop.
pub struct Loss {
    skel: ImpairSkel<'static>,
    attached: Option<Attached>,
}

impl Loss {
    /// Loads the program without attaching it.
    ///
    /// # Errors
    /// [`LossError::Refused`].
    pub fn load(options: &LossOptions) -> Result<Loss, LossError> {
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ImpairSkelBuilder::default().open(place)?;
        let model = options.loss.model;
        let is = |known: LossModel| model == known as u32;
        if let Some(set) = open.maps.rodata_data.as_deref_mut() {
            set.impair_all = options.all.into();
            set.impair_loses = u32::from(!is(LossModel::None));
            set.impair_moves = u32::from(is(LossModel::Two) || is(LossModel::Four));
            set.impair_longest = options.mtu_bytes.saturating_add(LINK_BYTES);
        }
        let skel = open.load()?;
        let value = value_of(&options.loss);
        skel.maps
            .loss
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)?;
        Ok(Loss {
            skel,
            attached: None,
        })
    }

    /// Attaches it. An error names another XDP program, which is not replaced.
    ///
    /// # Errors
    /// [`LossError::Attach`].
    pub fn attach(&mut self, ifindex: IfIndex, name: &str) -> Result<(), LossError> {
        let program = &mut self.skel.progs.impair;
        self.attached = Some(stage::attach(program, Stage::Impair, ifindex, name)?);
        Ok(())
    }

    /// Detaches it; its counters remain.
    pub fn detach(&mut self) {
        self.attached = None;
    }

    /// Its counters so far.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn counts(&self) -> Result<LossCounts, LossError> {
        let key = 0u32.to_ne_bytes();
        let values = self.skel.maps.counts.lookup_percpu(&key, MapFlags::ANY)?;
        let mut sum = LossCounts::default();
        for value in values.unwrap_or_default() {
            let mut words = value.chunks_exact(8).map(|word| {
                let word = word.try_into().expect("chunks of eight");
                u64::from_ne_bytes(word)
            });
            let columns = [
                &mut sum.arrived,
                &mut sum.lost,
                &mut sum.gso_packets,
                &mut sum.exempt,
            ];
            for column in columns {
                *column += words.next().unwrap_or(0);
            }
        }
        Ok(sum)
    }
}

impl std::fmt::Debug for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loss")
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

/// `struct loss`: a free lock, a state before the first packet, the model.
fn value_of(loss: &LossConfig) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let words = [
        loss.seed,
        u64::from(loss.model) | u64::from(loss.bits) << 32,
    ];
    let words = words.iter().chain(&loss.chances).chain(&loss.pattern);
    let begin = LOCK_BYTES + size_of::<LossState>();
    for (to, word) in value[begin..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_model_matches_the_c_layout() {
        let mut loss = LossConfig {
            seed: 0x0102_0304,
            model: 2,
            bits: 7,
            ..LossConfig::default()
        };
        (loss.chances[0], loss.pattern[15]) = (5, 9);
        let value = value_of(&loss);
        let word = |at: usize| u32::from_ne_bytes(value[at..at + 4].try_into().unwrap());
        assert_eq!(
            (word(24), word(32), word(36), word(40)),
            (0x0102_0304, 2, 7, 5)
        );
        assert_eq!(
            (value.len(), word(value.len() - 8)),
            (24 + 16 + 64 + 128, 9)
        );
    }
}
