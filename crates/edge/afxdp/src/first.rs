//! Threads that must run on time under load.
//!
//! [`precede`] is for a run of some minutes: `SCHED_FIFO` at its lowest priority, before every
//! normal thread and after every other real-time one. The kernel's throttling leaves a part of each
//! second to others even if such a thread never sleeps. [`prefer`] is for permanent packet
//! processing: more CPU time than others, without starvation. Both should use [`exact_timers`].

use std::io;

use fairpath_units::Nanos;

/// The lowest real-time priority.
const PRIORITY: i32 = 1;
/// Permitted delay of timers in ns; the default is 50,000.
const SLACK_NS: u64 = 1;
/// The nice value of a thread that carries packets.
pub const PREFERENCE: i32 = -10;

/// The priority of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// `SCHED_FIFO`.
    RealTime,
    /// Normal: the limit `RLIMIT_RTPRIO` or a missing CAP_SYS_NICE forbids more.
    Usual,
}

/// Sets exact timers for the calling thread.
///
/// # Errors
/// The error of the kernel.
pub fn exact_timers() -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the nice value of the calling thread to [`PREFERENCE`].
///
/// # Errors
/// The error of the kernel: `RLIMIT_NICE` or a missing CAP_SYS_NICE.
pub fn prefer() -> io::Result<()> {
    // SAFETY: takes numbers only; on Linux 0 is the calling thread, despite the name.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PREFERENCE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread real-time priority if permitted, and sets exact timers.
///
/// # Errors
/// If the timers cannot be set. A refused priority is a result, not an error.
pub fn precede() -> io::Result<Precedence> {
    exact_timers()?;
    let priority = libc::sched_param {
        sched_priority: PRIORITY,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: reads a structure of that size; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const priority) } {
        0 => Ok(Precedence::RealTime),
        _ => Ok(Precedence::Usual),
    }
}

/// Decides when a thread waits awake. Waking takes time, so a thread should be awake before its
/// next event. But a thread of highest priority that never sleeps starves all others. So it stays
/// awake for a part of the time only, and wakes up late in the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake {
    before: Nanos,
    /// Maximum of time awake in an accounting period.
    limit: u64,
    /// The current accounting period: its start, and the time spent awake in it.
    begin: u64,
    spent: u64,
    /// When it last started to stay awake, without a sleep since.
    since: Option<u64>,
}

/// Accounting period for time awake.
const ACCOUNTED_NS: u64 = 10_000_000;
/// Maximum of time awake in it: 20 %.
const SPENT_NS: u64 = ACCOUNTED_NS / 5;
/// The same for precise times: 80 %. The kernel gives others 5 % of real-time threads.
const PRECISE_SPENT_NS: u64 = ACCOUNTED_NS / 5 * 4;

impl Awake {
    /// Maximum of time awake before an event; 0 never.
    pub fn before(before: Nanos) -> Awake {
        Awake {
            before,
            limit: SPENT_NS,
            ..Awake::default()
        }
    }

    /// The same, awake for up to 80 % of the time.
    pub fn precise(before: Nanos) -> Awake {
        Awake {
            limit: PRECISE_SPENT_NS,
            ..Awake::before(before)
        }
    }

    /// The time to sleep if nothing is due `now`, and something is due after `left`. `None`: not at
    /// all.
    pub fn until(&mut self, now: Nanos, left: Nanos) -> Option<Nanos> {
        self.spent += self
            .since
            .take()
            .map_or(0, |since| now.0.saturating_sub(since));
        if now.0.saturating_sub(self.begin) >= ACCOUNTED_NS {
            (self.begin, self.spent) = (now.0, 0);
        }
        if self.before == Nanos(0) || self.spent >= self.limit {
            return Some(left);
        }
        if left > self.before {
            return Some(Nanos(left.0 - self.before.0));
        }
        self.since = Some(now.0);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time awake in ns, during a second with an event every `every` ns and a check every `step`.
    fn awake_ns(mut awake: Awake, every: u64, step: u64) -> u64 {
        let (mut now, mut spent) = (0, 0);
        while now < 1_000_000_000 {
            let left = every - now % every;
            match awake.until(Nanos(now), Nanos(left)) {
                Some(sleep) => now += sleep.0.max(1),
                None => {
                    now += step;
                    spent += step;
                }
            }
        }
        spent
    }

    /// The calling thread's nice value, and the slack of its timers in ns.
    fn standing() -> (i32, i32) {
        // SAFETY: takes numbers only.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        (nice, slack)
    }

    #[test]
    fn prefer_changes_only_the_calling_thread() {
        let before = standing();
        let thread = std::thread::spawn(|| {
            exact_timers().unwrap();
            (prefer(), standing())
        });
        let (preferred, (nice, slack)) = thread.join().unwrap();
        assert_eq!(slack, SLACK_NS as i32);
        match preferred {
            Ok(()) => assert_eq!(nice, PREFERENCE),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert_eq!(standing(), before);
    }

    #[test]
    fn a_thread_stays_awake_shortly_before_its_time() {
        // 60 us of each 20 ms.
        let spent = awake_ns(Awake::before(Nanos(60_000)), 20_000_000, 500);
        assert!((2_900_000..3_200_000).contains(&spent), "{spent}");
        assert_eq!(awake_ns(Awake::before(Nanos(0)), 20_000_000, 500), 0);
    }

    #[test]
    fn a_thread_stays_awake_at_most_20_percent() {
        for every in [1_000_000, 100_000, 50_000, 5_000] {
            let spent = awake_ns(Awake::before(Nanos(60_000)), every, 500);
            assert!(spent <= 202_000_000, "{every}: {spent}");
        }
    }

    #[test]
    fn precise_times_cost_at_most_80_percent() {
        // A flow of ten a second, awake for a millisecond each.
        let spent = awake_ns(Awake::precise(Nanos(1_000_000)), 100_000_000, 500);
        assert!((9_900_000..10_200_000).contains(&spent), "{spent}");
        for every in [1_000_000, 100_000, 5_000] {
            let spent = awake_ns(Awake::precise(Nanos(1_000_000)), every, 500);
            assert!(
                (700_000_000..=802_000_000).contains(&spent),
                "{every}: {spent}"
            );
        }
    }
}
