//! The congestion control `fp_bbr3like`: BBR version 3 (draft-ietf-ccwg-bbr) as far as a BPF
//! program can implement it, for the lab.
//!
//! It is registered for the whole machine while the value lives: every namespace has the name, and
//! its use needs `CAP_NET_ADMIN`. Existing connections keep it until they close. New ones get "no
//! such file" after the value is dropped. `docs/design/0013-bbr3like.md` lists what is missing.
//!
//! Deliberately absent: pinning. It ends with the process that measures.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

pub use fairpath_core::cc::Bbr3Phase;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::probe::kernel_struct;
use crate::skel::cc_bbr3::{CcBbr3Skel, CcBbr3SkelBuilder, OpenCcBbr3Skel};

/// The name for sockets (`TCP_CONGESTION`, `iperf3 -C`).
pub const BBR3LIKE: &str = "fp_bbr3like";

/// The kernel's structure of a congestion control.
const OPS: &str = "tcp_congestion_ops";
/// A separate event since Linux 7.1.
const TX_START: &str = "cwnd_event_tx_start";

/// The congestion control could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum Bbr3Error {
    /// Names are global to the machine.
    #[error(
        "register the congestion control {BBR3LIKE}: the name is in use; another Fairpath experiment runs: wait until it ends"
    )]
    Taken,
    /// The kernel refused object or registration.
    #[error(
        "register the congestion control {BBR3LIKE}: {0}; needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and a kernel with CONFIG_BPF_JIT and BTF (/sys/kernel/btf/vmlinux)"
    )]
    Refused(#[source] libbpf_rs::Error),
}

/// Sums over all connections since the registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bbr3Counts {
    /// Connections that chose it.
    pub connections: u64,
    /// Starts of each phase, by [`Bbr3Phase::ALL`].
    pub entered: [u64; Bbr3Phase::ALL.len()],
    /// Packets that TCP found lost.
    pub losses: u64,
    /// Probes for bandwidth with more than 2 % loss, which lowered the safe volume.
    pub over_threshold: u64,
    /// Loss episodes that TCP undid.
    pub undone: u64,
    /// Connections without memory for the state: they keep their window.
    pub without_memory: u64,
}

impl Bbr3Counts {
    /// The number of starts of `phase`.
    pub fn entered(&self, phase: Bbr3Phase) -> u64 {
        self.entered[phase as usize]
    }
}

/// The registration, which ends with the value and with the process.
pub struct Bbr3Like {
    // Before the object: it must end before the maps do.
    _link: Link,
    skel: CcBbr3Skel<'static>,
}

impl Bbr3Like {
    /// Registers [`BBR3LIKE`]. Takes about 100 ms in the verifier.
    ///
    /// # Errors
    /// [`Bbr3Error`]: the name is in use, or the kernel lacks support.
    pub fn register() -> Result<Bbr3Like, Bbr3Error> {
        // Lives while the skeleton, and so while the value: a few hundred bytes.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = open(place).map_err(Bbr3Error::Refused)?;
        let mut skel = open.load().map_err(Bbr3Error::Refused)?;
        let link = skel.maps.fp_bbr3like.attach_struct_ops();
        let link = link.map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => Bbr3Error::Taken,
            _ => Bbr3Error::Refused(error),
        })?;
        Ok(Bbr3Like { _link: link, skel })
    }

    /// Counters of connections so far, read one after another.
    pub fn counts(&self) -> Bbr3Counts {
        let Some(bss) = self.skel.maps.bss_data.as_deref() else {
            return Bbr3Counts::default();
        };
        let read = |counter: *const u64| {
            // SAFETY: a counter in the mapped section, which programs add to; one aligned load.
            unsafe { counter.read_volatile() }
        };
        Bbr3Counts {
            connections: read(&raw const bss.connections),
            entered: std::array::from_fn(|phase| read(&raw const bss.phases_entered[phase])),
            losses: read(&raw const bss.losses_recorded),
            over_threshold: read(&raw const bss.losses_over_threshold),
            undone: read(&raw const bss.undone),
            without_memory: read(&raw const bss.without_storage),
        }
    }
}

impl fmt::Debug for Bbr3Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bbr3Like")
            .field("counts", &self.counts())
            .finish()
    }
}

/// The object, without the one of two programs that this kernel does not support.
fn open(place: &mut MaybeUninit<OpenObject>) -> Result<OpenCcBbr3Skel<'_>, libbpf_rs::Error> {
    let mut open = CcBbr3SkelBuilder::default().open(place)?;
    let ops = kernel_struct(OPS, "").map_err(libbpf_rs::Error::from)?;
    let restarts_apart = ops.is_some_and(|ops| ops.has(TX_START));
    let ops = open.struct_ops.fp_bbr3like;
    // SAFETY: the skeleton points to the map's initial value, which is open and not loaded.
    let ops = unsafe { &mut *ops };
    if restarts_apart {
        ops.cwnd_event = ptr::null_mut();
    } else {
        ops.cwnd_event_tx_start = ptr::null_mut();
    }
    open.progs.cc_event.set_autoload(!restarts_apart);
    open.progs.cc_tx_start.set_autoload(restarts_apart);
    Ok(open)
}

/// Loads the programs without registration, to test whether this kernel accepts them.
pub(crate) fn load_object() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    open(&mut place)?.load().map(drop)
}
