//! The lateness of a timer in the kernel, for benchmarks.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use fairpath_units::Nanos;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput, RingBuffer, RingBufferBuilder};

use crate::skel::wake_bench::{WakeBenchSkel, WakeBenchSkelBuilder};

/// The timer could not be loaded or set.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The kernel refused a map or the program.
    #[error("load a BPF timer: {0}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer")]
    Refused(#[source] libbpf_rs::Error),
    /// The test run failed, or the timer was refused (an error number, negative).
    #[error("set a BPF timer: {0}")]
    Set(String),
    /// It did not end in time.
    #[error("wait for a BPF timer: it did not end within {0:?}")]
    Missing(Duration),
}

/// One timer and the ring that it writes to.
pub struct KernelTimer {
    ring: RingBuffer<'static>,
    late: Rc<Cell<Option<u64>>>,
    skel: WakeBenchSkel<'static>,
}

impl KernelTimer {
    /// Loads program and maps.
    ///
    /// # Errors
    /// [`WakeError::Refused`].
    pub fn load() -> Result<KernelTimer, WakeError> {
        // Borrowed permanently: a few bytes, freed with the process.
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = WakeBenchSkelBuilder::default().open(place);
        let skel = open.and_then(OpenSkel::load).map_err(WakeError::Refused)?;
        let late = Rc::new(Cell::new(None));
        let of_callback = late.clone();
        let mut builder = RingBufferBuilder::new();
        let note = move |bytes: &[u8]| {
            of_callback.set(bytes.try_into().ok().map(u64::from_ne_bytes));
            0
        };
        builder
            .add(&skel.maps.ring, note)
            .map_err(WakeError::Refused)?;
        let ring = builder.build().map_err(WakeError::Refused)?;
        Ok(KernelTimer { ring, late, skel })
    }

    /// Sleeps until the timer has ended at `due` (monotonic clock). Returns the lateness of its callback. The caller
    /// reads the clock for that of the thread.
    ///
    /// # Errors
    /// [`WakeError::Set`], [`WakeError::Missing`] after `patience`.
    pub fn wait(&mut self, due: Nanos, patience: Duration) -> Result<Nanos, WakeError> {
        let mut context = due.0.to_ne_bytes();
        let input = ProgramInput {
            context_in: Some(&mut context),
            ..ProgramInput::default()
        };
        let run = self.skel.progs.set_wake.test_run(input);
        let run = run.map_err(|error| WakeError::Set(error.to_string()))?;
        let status = run.return_value.cast_signed();
        if status != 0 {
            return Err(WakeError::Set(format!("error {status}")));
        }
        self.late.set(None);
        let polled = self.ring.poll(patience);
        polled.map_err(|error| WakeError::Set(error.to_string()))?;
        let late = self.late.get().ok_or(WakeError::Missing(patience))?;
        Ok(Nanos(late))
    }
}

impl std::fmt::Debug for KernelTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KernelTimer")
    }
}
