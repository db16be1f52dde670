//! Threads that act at absolute times, and kernel time stamps of what arrives.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
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

/// One packet of a socket that has `SO_TIMESTAMPNS`: its bytes in `buffer`, and when the kernel got it, ns since
/// 1970; `None` where the kernel gives no time.
pub(super) fn receive_stamped(
    socket: &impl AsFd,
    buffer: &mut [u8],
) -> nix::Result<(usize, Option<u64>)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_fd().as_raw_fd();
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut control), MsgFlags::empty())?;
    let stamp = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(time) => Some(nanoseconds(time)),
        _ => None,
    });
    Ok((message.bytes, stamp))
}

/// A time stamp as ns since 1970.
fn nanoseconds(time: TimeSpec) -> u64 {
    u64::try_from(time.num_nanoseconds()).unwrap_or(0)
}

/// Processor time of the calling thread since it began.
pub(super) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, |time| {
        Duration::from_nanos(nanoseconds(time))
    })
}
