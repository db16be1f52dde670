//! Loss events of TCP congestion control, by socket (bpf/prog/recoveries.bpf.c).

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};

use crate::skel::recoveries::{RecoveriesSkel, RecoveriesSkelBuilder};

/// Recoveries cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum RecoveriesError {
    /// The kernel refused the program.
    #[error(
        "load the recovery counter: {0}; needs CAP_BPF, CAP_PERFMON and a kernel with BTF and the tracepoint tcp_cong_state_set (Linux 5.17)"
    )]
    Load(#[source] libbpf_rs::Error),
    /// It could not be attached.
    #[error("attach the recovery counter to tcp_cong_state_set: {0}; needs CAP_PERFMON")]
    Attach(#[source] libbpf_rs::Error),
    /// The counts could not be read.
    #[error("read the recoveries of socket {cookie}: {source}")]
    Read {
        /// The socket.
        cookie: u64,
        /// The error of the kernel.
        source: libbpf_rs::Error,
    },
}

/// Events of one socket since counting started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Fast recoveries.
    pub recoveries: u32,
    /// Other reductions of the window: ECN, a full local queue, a loss repaired by a probe.
    pub reductions: u32,
    /// Retransmission timeouts. Consecutive ones without progress count once.
    pub timeouts: u32,
}

impl RecoveryCounts {
    /// The sum of all three.
    pub fn events(&self) -> u64 {
        u64::from(self.recoveries) + u64::from(self.reductions) + u64::from(self.timeouts)
    }
}

/// Counts on the whole machine while the value lives. A socket without loss costs nothing.
pub struct Recoveries {
    skel: RecoveriesSkel<'static>,
    _link: Link,
}

impl Recoveries {
    /// Starts counting. A socket in recovery at this moment counts its present one when it
    /// continues.
    ///
    /// # Errors
    /// [`RecoveriesError`].
    pub fn count() -> Result<Recoveries, RecoveriesError> {
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = RecoveriesSkelBuilder::default()
            .open(place)
            .map_err(RecoveriesError::Load)?;
        let skel = open.load().map_err(RecoveriesError::Load)?;
        let link = skel
            .progs
            .state_set
            .attach()
            .map_err(RecoveriesError::Attach)?;
        Ok(Recoveries { skel, _link: link })
    }

    /// The events of the socket with this cookie (see `sock_diag`); zeros if there are none.
    ///
    /// One system call.
    ///
    /// # Errors
    /// [`RecoveriesError::Read`].
    pub fn of(&self, cookie: u64) -> Result<RecoveryCounts, RecoveriesError> {
        let found = (self.skel.maps.sockets).lookup(&cookie.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|source| RecoveriesError::Read { cookie, source })?;
        Ok(found.as_deref().map_or_else(Default::default, counts))
    }
}

/// `struct fp_recoveries`, without its last word.
fn counts(bytes: &[u8]) -> RecoveryCounts {
    let word = |at: usize| {
        let word = bytes.get(4 * at..4 * at + 4);
        word.map_or(0, |w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))
    };
    RecoveryCounts {
        recoveries: word(0),
        reductions: word(1),
        timeouts: word(2),
    }
}

impl std::fmt::Debug for Recoveries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recoveries").finish_non_exhaustive()
    }
}
