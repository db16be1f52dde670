//! A thread that runs when its time has come, whatever else the machine does.
//!
//! [`precede`] is for a run of some minutes: `SCHED_FIFO` at its lowest priority, before every usual
//! thread, behind every other real-time one. The kernel's throttling leaves others a part of each
//! second even where such a thread never sleeps. [`prefer`] is for what carries packets day and night:
//! more of the processor than others, and nobody starves. Both want [`exact_timers`].

use std::io;

use fairpath_units::Nanos;

/// The lowest real-time priority.
const PRIORITY: i32 = 1;
/// How late the kernel may be deliberately, ns; it is 50,000 by default.
const SLACK_NS: u64 = 1;
/// How much a thread that carries packets is preferred to others (nice).
pub const PREFERENCE: i32 = -10;

/// How the calling thread was put before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// `SCHED_FIFO`.
    RealTime,
    /// As others; the limit `RLIMIT_RTPRIO` or a missing CAP_SYS_NICE forbids more.
    Usual,
}

/// Asks for exact timers for the calling thread.
///
/// # Errors
/// As the kernel refuses it.
pub fn exact_timers() -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Prefers the calling thread to others by [`PREFERENCE`].
///
/// # Errors
/// As the kernel refuses it: `RLIMIT_NICE` or a missing CAP_SYS_NICE.
pub fn prefer() -> io::Result<()> {
    // SAFETY: takes numbers only; on Linux 0 is the calling thread, whatever the name says.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PREFERENCE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the calling thread before usual ones where that is allowed, and asks for exact timers.
///
/// # Errors
/// Where the timers cannot be set; a refused priority is an answer.
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

/// Waking takes time, so that a thread had better be awake before its time has come; but one that is
/// before all others, and does not sleep, leaves them nothing. So it stays awake for some of the time
/// only, and is a wake-up late in the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake {
    before: Nanos,
    /// Of the time that is accounted for: where it began, what of it was spent awake.
    begin: u64,
    spent: u64,
    /// When it was last told to stay awake, and has not slept since.
    since: Option<u64>,
}

/// Time that staying awake is accounted in.
const ACCOUNTED_NS: u64 = 10_000_000;
/// Of it, what may be spent so.
const SPENT_NS: u64 = ACCOUNTED_NS / 5;

impl Awake {
    /// Awake for so long before the time at most; 0 never.
    pub fn before(before: Nanos) -> Awake {
        Awake {
            before,
            ..Awake::default()
        }
    }

    /// How long to sleep when there is nothing to do `now` and there will be after `left`; `None`:
    /// not at all.
    pub fn until(&mut self, now: Nanos, left: Nanos) -> Option<Nanos> {
        self.spent += self
            .since
            .take()
            .map_or(0, |since| now.0.saturating_sub(since));
        if now.0.saturating_sub(self.begin) >= ACCOUNTED_NS {
            (self.begin, self.spent) = (now.0, 0);
        }
        if self.before == Nanos(0) || self.spent >= SPENT_NS {
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

    /// Of a second in which something is due every `every` ns and the thread looks every `step`, how
    /// many ns it was awake.
    fn awake_ns(before: u64, every: u64, step: u64) -> u64 {
        let mut awake = Awake::before(Nanos(before));
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
    fn a_preferred_thread_is_the_only_one_of_its_process() {
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
        let spent = awake_ns(60_000, 20_000_000, 500);
        assert!((2_900_000..3_200_000).contains(&spent), "{spent}");
        assert_eq!(awake_ns(0, 20_000_000, 500), 0);
    }

    #[test]
    fn and_never_longer_than_a_fifth_of_the_time() {
        for every in [1_000_000, 100_000, 50_000, 5_000] {
            let spent = awake_ns(60_000, every, 500);
            assert!(spent <= 202_000_000, "{every}: {spent}");
        }
    }
}
