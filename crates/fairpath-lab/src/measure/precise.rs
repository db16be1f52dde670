//! Threads that act at absolute times, and kernel time stamps of what arrives.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};

/// Timer slack of our threads: the kernel's standard of 50 us would be in every packet's delay.
const TIMER_SLACK_NS: u64 = 1;

/// Has the calling thread woken as exactly as the kernel can.
pub(super) fn wake_exactly() {
    // Refused only by a kernel without timer slack; then waking is as late as it was.
    let _ = prctl::set_timerslack(TIMER_SLACK_NS);
}

/// Waits until `moment`; returns at once if it is past.
pub(super) fn sleep_until(moment: Instant) {
    if let Some(left) = moment.checked_duration_since(Instant::now()) {
        thread::sleep(left);
    }
}

/// The machine's real time, ns since 1970: the clock of the kernel's time stamps.
pub(super) fn real_time_ns() -> io::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    Ok(nanoseconds(now))
}

/// A time stamp as ns since 1970.
pub(super) fn nanoseconds(time: TimeSpec) -> u64 {
    u64::try_from(time.num_nanoseconds()).unwrap_or(0)
}

/// Processor time of the calling thread since it began.
pub(super) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, |time| {
        Duration::from_nanos(nanoseconds(time))
    })
}
