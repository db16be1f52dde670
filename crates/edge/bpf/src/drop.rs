//! Configured loss: an XDP program that drops incoming frames with a given probability.

use std::mem::MaybeUninit;

use fairpath_units::IfIndex;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{self, AttachError, Attached, Hook};
use crate::skel::drop::{DropSkel, DropSkelBuilder};

/// The dropper could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    /// The kernel refused the program.
    #[error("load the drop program: {0}; needs CAP_BPF and CAP_NET_ADMIN")]
    Refused(#[from] libbpf_rs::Error),
    /// It could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// A drop program on one interface of the current network namespace, removed on drop.
pub struct Dropper {
    skel: DropSkel<'static>,
    _attached: Attached,
}

impl Dropper {
    /// Drops frames of at least `min_bytes` (Ethernet header included) with probability `share`.
    ///
    /// # Errors
    /// [`DropError`].
    pub fn attach(
        ifindex: IfIndex,
        name: &str,
        share: f64,
        min_bytes: u32,
    ) -> Result<Dropper, DropError> {
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = DropSkelBuilder::default().open(place)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.drop_chance = (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
            rodata.drop_bytes = min_bytes;
        }
        let mut skel = open.load()?;
        let attached = attach::attach(&mut skel.progs.drop, Hook::Xdp, ifindex, name)?;
        Ok(Dropper {
            skel,
            _attached: attached,
        })
    }

    /// Frames of at least the minimum size, and those of them that were dropped.
    pub fn counts(&self) -> (u64, u64) {
        self.skel.maps.bss_data.as_deref().map_or((0, 0), |bss| {
            // SAFETY: mapped memory that the program adds to; each read is one aligned load.
            let eligible = unsafe { (&raw const bss.frames_eligible).read_volatile() };
            // SAFETY: as above.
            let dropped = unsafe { (&raw const bss.frames_dropped).read_volatile() };
            (eligible, dropped)
        })
    }
}

impl std::fmt::Debug for Dropper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dropper")
            .field("counts", &self.counts())
            .finish()
    }
}
