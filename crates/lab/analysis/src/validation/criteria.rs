//! What a run is held against, in words made of the very limits.

use super::{
    MAX_DELAY_OFF, MAX_DELAY_OFF_NS, MAX_KERNEL_WAITED, MAX_OF_RATE, MAX_OTHERS, MAX_STOLEN,
    MAX_WAITED, MAX_WINDOW_LIMITED, MIN_KNOWN, measured,
};

/// What [`faults`](super::faults) holds a run against, a sentence each, for readers of pages.
pub fn criteria() -> Vec<String> {
    let percent = |share: f64| format!("{:.0}\u{a0}%", share * 100.0);
    vec![
        format!(
            "Links: of each direction's wire packets as many are lost as 99.9\u{a0}% of draws would lose; the mean delay \
             added is what was asked for to {} or {:.0}\u{a0}us, whichever is more (to {} of the round trip where none was \
             asked for), and jitter has the standard deviation that was; the least round trip of sockets and pings is at \
             least {} of the delays on its way, and at most these and full queues; the emulator read what it was told, drops \
             nothing by itself, keeps the order that it was to keep, and calls itself true; \
             nothing passes {} above the rate; no super-packets form at the interfaces.",
            percent(MAX_DELAY_OFF),
            MAX_DELAY_OFF_NS / 1e3,
            percent(MAX_DELAY_OFF),
            percent(1.0 - measured::MAX_SHORT),
            percent(MAX_OF_RATE - 1.0),
        ),
        format!(
            "Flows: sockets use the congestion control that was asked for; windows hold a sender back for {} of its time \
             at most; goodput is known for {} of it at least; everything that was to be measured beside them was.",
            percent(MAX_WINDOW_LIMITED),
            percent(MIN_KNOWN),
        ),
        format!(
            "Processors: whoever sends, receives or emulates waits for one {} of the time at most, the kernel's packet \
             threads {}; what is no part of the run uses {} of all at most, and the host takes {} at most.",
            percent(MAX_WAITED),
            percent(MAX_KERNEL_WAITED),
            percent(MAX_OTHERS),
            percent(MAX_STOLEN),
        ),
        "Where the machine itself is what is measured, windows and processors are not held against anything.".to_owned(),
    ]
}
