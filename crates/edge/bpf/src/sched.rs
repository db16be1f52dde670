//! The kernel runtime of the scheduler without attaching: operations run by `BPF_PROG_TEST_RUN`.

use std::fmt;
use std::ptr::NonNull;

use fairpath_core::limit::{LimitError, Limits};
use fairpath_core::sched::{
    ImpairStats, NodeStats, Op, Outcome, Plan, Policy, SchedLayout, SchedMemory, SchedRuntime,
    SchedRuntimeError, SchedStats, Share,
};
use libbpf_rs::{MapCore, Object, ObjectBuilder, ProgramInput};

use crate::arena::{self, PAGE, START, STRIDE};

/// Operations of one run.
const OPS: usize = 1024;
/// The object with the shipped policies.
const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sched.bpf.o"));

/// A scheduler in the kernel, without attaching.
pub struct SchedRun {
    memory: SchedMemory,
    bytes: usize,
    capacity: NonNull<u8>,
    limits: Option<Limits>,
    object: Object,
}

// SAFETY: the arena belongs to this value, and one caller at a time uses it.
unsafe impl Send for SchedRun {}

impl fmt::Debug for SchedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedRun")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

fn wrong(error: LimitError) -> SchedRuntimeError {
    SchedRuntimeError::Plan(error.to_string())
}

fn refused(error: &libbpf_rs::Error) -> SchedRuntimeError {
    SchedRuntimeError::Kernel(format!(
        "{error}; needs CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer (`fairpath features` shows what is missing)"
    ))
}

impl SchedRun {
    /// Loads the shipped policies into the kernel and builds a plan.
    ///
    /// # Errors
    /// [`SchedRuntimeError`]: the plan cannot be built, or the kernel lacks support.
    pub fn load(plan: &Plan) -> Result<SchedRun, SchedRuntimeError> {
        SchedRun::load_object(SHIPPED, plan, None)
    }

    /// The same, with an object that includes a custom policy as [`Policy::CUSTOM`].
    ///
    /// # Errors
    /// [`SchedRuntimeError`]: the plan cannot be built, or the error of the kernel.
    pub fn load_object(
        object: &[u8],
        plan: &Plan,
        custom: Option<&Policy>,
    ) -> Result<SchedRun, SchedRuntimeError> {
        let mut layout = SchedLayout::new(plan, custom.map_or(&[], std::slice::from_ref))?;
        let share = match plan.config.limited {
            0 => None,
            _ => Some(Share::of(plan, custom.map_or(&[], std::slice::from_ref))?),
        };
        let limits = share.as_ref().map_or(0, |share| share.limits.len());
        let limit_bytes = Limits::bytes(1, limits).map_err(wrong)? as u64;
        let scheduler = layout.bytes().next_multiple_of(64);
        let bytes = START + scheduler + limit_bytes + SchedMemory::capacity_bytes(OPS) as u64;
        let pages = bytes.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(SchedRuntimeError::Plan(format!(
                "{bytes} bytes exceed the arena's 4 GiB; use fewer packets or flows"
            )));
        }
        let object = load(object, pages).map_err(|error| refused(&error))?;
        let mapped = object.maps().find(|map| map.name() == "arena");
        let start = mapped
            .and_then(|map| arena::mapped_at(&map))
            .ok_or_else(|| {
                SchedRuntimeError::Kernel(
                    "the arena is not mapped; the kernel or libbpf is too old".into(),
                )
            })?;
        // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
        unsafe { arena::touch(start, pages) };
        // SAFETY: the arena is mapped from `start` on, `pages` pages long.
        let at = unsafe { start.add(START as usize) };
        // SAFETY: fresh arena pages are zero and aligned; the mapping lives while the object.
        let mut memory = unsafe { layout.format(at) }?;
        // SAFETY: the memory of limits follows the scheduler, within the pages.
        let limits_at = unsafe { at.add(scheduler as usize) };
        let limits = match share {
            None => None,
            Some(share) => {
                // SAFETY: as above, zero and aligned; the program writes to it by the core's code only.
                let limits = unsafe { Limits::format(limits_at, 1, &share.limits) };
                let limits = limits.map_err(wrong)?;
                memory.draw_from(&limits, 0, &share.nodes);
                Some(limits)
            }
        };
        // SAFETY: the memory of operations follows that of limits, within the pages.
        let capacity = unsafe { limits_at.add(limit_bytes as usize) };
        Ok(SchedRun {
            memory,
            bytes: scheduler as usize,
            capacity,
            limits,
            object,
        })
    }

    /// The limits that it draws from as their only CPU, if the plan has any.
    pub fn limits(&mut self) -> Option<&mut Limits> {
        self.limits.as_mut()
    }

    /// The scheduler's memory in the arena, for tests that corrupt it.
    #[doc(hidden)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes of the scheduler in the arena, which is mapped while the value lives; no program
        // runs now.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.bytes) }
    }

    fn run_once(&mut self) -> Result<(), SchedRuntimeError> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == "sched_run");
        let program = program.ok_or_else(|| {
            SchedRuntimeError::Kernel("the object has no program sched_run".into())
        })?;
        program
            .test_run(ProgramInput::default())
            .map(drop)
            .map_err(|error| refused(&error))
    }
}

impl SchedRuntime for SchedRun {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        for (part, chunk) in ops.chunks(OPS).enumerate() {
            // SAFETY: reserved for OPS operations; nothing runs now.
            let count = unsafe { self.memory.begin(chunk, self.capacity, OPS) };
            let mut done = 0;
            while done < count {
                let new = outcomes.len();
                self.run_once()?;
                // SAFETY: as above; the run has ended.
                let now_done = unsafe { self.memory.progress(self.capacity, OPS, outcomes) };
                outcomes[new..]
                    .iter_mut()
                    .for_each(|outcome| outcome.op += (part * OPS) as u32);
                if now_done == done {
                    return Err(SchedRuntimeError::Kernel(format!(
                        "operation {} does not terminate",
                        part * OPS + done
                    )));
                }
                done = now_done;
            }
        }
        Ok(())
    }

    fn stats(&self) -> SchedStats {
        self.memory.stats()
    }

    fn node_stats(&self, node: u32) -> NodeStats {
        self.memory.node_stats(node)
    }

    fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.memory.impair_stats(impairment)
    }

    fn audit(&self) -> Result<(), String> {
        self.memory.audit()
    }
}

pub(crate) fn load_shipped() -> Result<(), libbpf_rs::Error> {
    load(SHIPPED, 16).map(drop)
}

fn load(object: &[u8], pages: u64) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut map in open.maps_mut() {
        if map.name() == "arena" {
            map.set_max_entries(pages as u32)?;
            map.set_map_extra(arena::next_address())?;
        }
    }
    open.load()
}
