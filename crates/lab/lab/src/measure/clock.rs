//! Second 0 of a run, and which part of it is measured.

use std::time::{Duration, Instant};

/// The moment at which traffic is to begin: second 0 of all records of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    began: Instant,
}

impl Origin {
    /// Second 0 is `lead` from now: time for the measurement to settle, and for idle pings.
    pub fn ahead(lead: Duration) -> Origin {
        Origin {
            began: Instant::now() + lead,
        }
    }

    /// Seconds since second 0; negative before it.
    pub fn seconds(&self, moment: Instant) -> f64 {
        match moment.checked_duration_since(self.began) {
            Some(since) => since.as_secs_f64(),
            None => -(self.began - moment).as_secs_f64(),
        }
    }

    /// Seconds since second 0, now.
    pub fn now(&self) -> f64 {
        self.seconds(Instant::now())
    }

    /// The moment of a second; those before second 0 are second 0.
    pub fn moment(&self, seconds: f64) -> Instant {
        self.began + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }
}

/// The measured part of a run, in seconds since its [`Origin`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its beginning: the end of the warm-up.
    pub from: f64,
    /// Its end: that of the traffic.
    pub to: f64,
}

impl Window {
    /// True if a time is in it.
    pub fn contains(&self, at: f64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// Its length, seconds.
    pub fn seconds(&self) -> f64 {
        (self.to - self.from).max(0.0)
    }

    /// The share of an interval that is in it, 0 to 1.
    pub fn share_of(&self, from: f64, to: f64) -> f64 {
        let inside = to.min(self.to) - from.max(self.from);
        if to <= from {
            0.0
        } else {
            (inside / (to - from)).clamp(0.0, 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_seconds_are_inverse() {
        let origin = Origin::ahead(Duration::from_secs(10));
        assert!(origin.now() < -9.0);
        let at = origin.seconds(origin.moment(2.5));
        assert!((at - 2.5).abs() < 1e-6, "{at}");
        assert_eq!(origin.moment(-1.0), origin.moment(0.0));
    }

    #[test]
    fn an_interval_counts_by_its_share() {
        let window = Window { from: 1.0, to: 5.0 };
        assert_eq!(window.share_of(0.0, 1.0), 0.0);
        assert_eq!(window.share_of(0.5, 1.5), 0.5);
        assert_eq!(window.share_of(2.0, 2.5), 1.0);
        assert_eq!(window.share_of(4.0, 8.0), 0.25);
        assert_eq!(window.share_of(4.0, 4.0), 0.0);
        assert!(window.contains(5.0) && !window.contains(0.999));
    }
}
