//! Operation logs, as `sched replay` reads them and repeats them natively.
//!
//! Checksums refuse nearly every changed log. So each input is read twice: as it is, and with the
//! checksums of its blocks corrected.

#![no_main]

use fairpath_core::sched::{SchedLayout, SchedRuntime, Scheduler, policies};
use fairpath_sched::log::{self, LogError, MAGIC, Part, Reader, Run, describe};
use libfuzzer_sys::fuzz_target;

/// Memory of a scheduler that is built. Larger plans are only checked.
const MAX_BYTES: u64 = 16 << 20;
/// Operations of a log that are repeated.
const MAX_OPS: usize = 1024;

fuzz_target!(|input: &[u8]| {
    read(input);
    if let Some(sealed) = seal(input) {
        read(&sealed);
    }
});

fn read(input: &[u8]) {
    let valid = log::check(input).is_ok();
    match repeat(input) {
        Ok(()) => assert!(valid, "a log with a complete end is valid"),
        Err(error) => assert!(!valid, "a valid log is read to its end: {error}"),
    }
}

fn repeat(input: &[u8]) -> Result<(), LogError> {
    let mut reader = Reader::new(input)?;
    let (mut scheduler, mut left) = (None, MAX_OPS);
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Run(run) => {
                again(&run);
                scheduler = build(&run);
            }
            Part::Ops(batch) => {
                let ops = &batch.ops[..batch.ops.len().min(left)];
                left -= ops.len();
                for op in ops {
                    let _ = describe::op(op);
                }
                let _ = describe::outcomes(&batch.outcomes);
                let Some(scheduler) = &mut scheduler else {
                    continue;
                };
                let mut outcomes = Vec::new();
                if scheduler.run(ops, &mut outcomes).is_ok() {
                    scheduler.audit().expect("the scheduler is consistent");
                }
            }
        }
    }
    Ok(())
}

/// A run that was read is the same after it is written and read.
fn again(run: &Run) {
    let mut bytes = Vec::new();
    let mut writer = log::Writer::new(&mut bytes).expect("memory can be written");
    writer
        .begin(run)
        .expect("a run that was read can be written");
    writer.finish().expect("memory can be written");
    let mut reader = Reader::new(&bytes[..]).expect("a written log can be read");
    let part = reader.next_part().expect("a written run can be read");
    assert_eq!(part, Some(Part::Run(Box::new(run.clone()))));
}

fn build(run: &Run) -> Option<Scheduler> {
    let plan = run.resolve(policies()).ok()?;
    let bytes = SchedLayout::new(&plan, &[]).ok()?.bytes();
    (bytes <= MAX_BYTES).then(|| Scheduler::new(&plan).ok())?
}

/// The log with the checksum of each complete block corrected.
fn seal(input: &[u8]) -> Option<Vec<u8>> {
    let mut log = input.to_vec();
    let mut at = MAGIC.len() + 4;
    while let Some(head) = log.get(at..at + 12) {
        let length = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
        let payload = at + 12..(at + 12).checked_add(length)?;
        let Some(bytes) = log.get(payload.clone()) else {
            break;
        };
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[..8]);
        sum.update(bytes);
        let sum = sum.finalize();
        log[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        at = payload.end;
    }
    (log != input).then_some(log)
}
