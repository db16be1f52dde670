//! The criteria of a valid run as text, with the limits of the code.

use super::{
    MAX_DELAY_OFF, MAX_DELAY_OFF_NS, MAX_KERNEL_WAITED, MAX_OF_RATE, MAX_OTHERS, MAX_STOLEN,
    MAX_WAITED, MAX_WINDOW_LIMITED, MIN_KNOWN, measured,
};

/// The criteria of [`faults`](super::faults), a sentence each, for readers of pages.
pub fn criteria() -> Vec<String> {
    let percent = |share: f64| format!("{:.0}\u{a0}%", share * 100.0);
    vec![
        format!(
            "Links: the loss of each direction is within the 99.9\u{a0}% interval of the configured loss. The mean added \
             delay is within {} or {:.0}\u{a0}us of the configured delay, whichever is more (within {} of the round-trip time if no \
             delay is configured), and jitter has the configured standard deviation. The minimum RTT of sockets and pings is at \
             least {} of the delays of its path, and at most these delays plus full queues. The emulator applied its \
             configuration, dropped nothing else, kept the configured order, and reported a valid run. No rate is exceeded \
             by {}. No GSO packets form at the interfaces.",
            percent(MAX_DELAY_OFF),
            MAX_DELAY_OFF_NS / 1e3,
            percent(MAX_DELAY_OFF),
            percent(1.0 - measured::MAX_SHORT),
            percent(MAX_OF_RATE - 1.0),
        ),
        format!(
            "Flows: sockets use the configured congestion control. Windows limit a sender for at most {} of its time. Goodput is \
             measured for at least {} of its time. All other configured measurements exist.",
            percent(MAX_WINDOW_LIMITED),
            percent(MIN_KNOWN),
        ),
        format!(
            "Processors: senders, receivers and emulators wait for a processor for at most {} of the time, the kernel's packet \
             threads for at most {}. Other programs use at most {} of all processors, and the host steals at most {}.",
            percent(MAX_WAITED),
            percent(MAX_KERNEL_WAITED),
            percent(MAX_OTHERS),
            percent(MAX_STOLEN),
        ),
        "If the experiment measures the machine itself, windows and processors are not checked."
            .to_owned(),
    ]
}
