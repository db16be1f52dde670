//! The cost of programs as measured by the kernel, minus that of an empty program in the same run.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use fairpath_units::IfIndex;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::attach::{self, AttachError, Attached, Hook};
use crate::skel::empty::{EmptySkel, EmptySkelBuilder};

/// Minimum of runs of the empty program.
const EMPTY_RUNS: u32 = 200_000;

/// The kernel's statistics of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Number of runs.
    pub runs: u64,
    /// Total run time in nanoseconds.
    pub time_ns: u64,
}

impl RunTime {
    /// Nanoseconds per run; 0 without runs.
    pub fn per_run_ns(&self) -> f64 {
        if self.runs == 0 {
            0.0
        } else {
            self.time_ns as f64 / self.runs as f64
        }
    }

    /// The difference to `earlier`; nothing if a program was removed.
    #[must_use]
    pub fn since(&self, earlier: RunTime) -> RunTime {
        RunTime {
            runs: self.runs.saturating_sub(earlier.runs),
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
        }
    }
}

/// Enables the kernel's BPF statistics while it lives. They cost about 70 ns per run.
#[derive(Debug)]
pub struct Statistics {
    _fd: OwnedFd,
}

impl Statistics {
    /// Enables them. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enable() -> std::io::Result<Statistics> {
        // SAFETY: no pointers; returns a descriptor or a negative error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Statistics { _fd: fd })
    }
}

/// Reads a program's statistics.
///
/// # Errors
/// The kernel's refusal.
pub fn run_time(program: BorrowedFd<'_>) -> std::io::Result<RunTime> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: `info` has `bytes` bytes, without arrays.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    if error != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(RunTime {
        runs: info.run_cnt,
        time_ns: info.run_time_ns,
    })
}

/// A program loaded on this host, by any process, with its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its id in the kernel.
    pub id: u32,
    /// Its name, truncated to 15 bytes.
    pub name: String,
    /// Its cost since it was loaded.
    pub run_time: RunTime,
}

/// All visible programs on this host. Needs CAP_SYS_ADMIN.
pub fn loaded() -> Vec<Loaded> {
    ProgInfoIter::default()
        .map(|info| Loaded {
            id: info.id,
            name: info.name.to_string_lossy().into_owned(),
            run_time: RunTime {
                runs: info.run_cnt,
                time_ns: info.run_time_ns,
            },
        })
        .collect()
}

/// Programs without instructions.
pub struct Empty {
    skel: EmptySkel<'static>,
}

impl Empty {
    /// Loads them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load() -> Result<Empty, libbpf_rs::Error> {
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        Ok(Empty {
            skel: EmptySkelBuilder::default().open(place)?.load()?,
        })
    }

    /// Attaches an empty program to a hook, next to existing ones, to run with the same packets.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(
        &mut self,
        hook: Hook,
        ifindex: IfIndex,
        name: &str,
    ) -> Result<Attached, AttachError> {
        let programs = &mut self.skel.progs;
        let program = match hook {
            Hook::TcxIngress => &mut programs.empty_ingress,
            Hook::TcxEgress => &mut programs.empty_egress,
            Hook::Xdp => &mut programs.empty_xdp,
        };
        attach::attach(program, hook, ifindex, name)
    }

    /// The kernel receives copies of a frame at an interface of the thread's namespace, in lists of 64, as
    /// drivers give them. The interface needs an XDP program. O(packets).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn receive(&self, frame: &[u8], at: IfIndex, packets: u32) -> Result<(), libbpf_rs::Error> {
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let words = [0, frame.len() as u32, 0, at.0, 0, 0];
        let mut context: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat: packets,
            ..ProgramInput::default()
        };
        self.skel.progs.empty_xdp.test_run(input).map(drop)
    }

    /// The statistics of the empty program for a hook.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn run_time(&self, hook: Hook) -> std::io::Result<RunTime> {
        let programs = &self.skel.progs;
        run_time(match hook {
            Hook::TcxIngress => programs.empty_ingress.as_fd(),
            Hook::TcxEgress => programs.empty_egress.as_fd(),
            Hook::Xdp => programs.empty_xdp.as_fd(),
        })
    }

    /// The statistics of an empty program in test runs, while they are enabled.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn measure(&self) -> Result<RunTime, libbpf_rs::Error> {
        let program = &self.skel.progs.empty_ingress;
        let before = run_time(program.as_fd()).map_err(libbpf_rs::Error::from)?;
        let packet = [0; 64];
        let input = ProgramInput {
            data_in: Some(&packet),
            repeat: EMPTY_RUNS,
            ..ProgramInput::default()
        };
        program.test_run(input)?;
        let after = run_time(program.as_fd()).map_err(libbpf_rs::Error::from)?;
        Ok(after.since(before))
    }
}

impl std::fmt::Debug for Empty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Empty").finish_non_exhaustive()
    }
}
