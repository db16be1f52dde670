//! Delays of a round trip of this host itself, and the part of it that `ping` shows.
//!
//! ```text
//! ping --> egress --> other host --> receive time --> ingress --> ping      another host: 1 of 2 is seen
//! ping --> egress --> receive time --> ingress --> reply
//!                                                    '--> egress --> receive time --> ingress --> ping
//!                                                                            lo: 3 of 4 are seen
//! ```
//!
//! The kernel takes the receive time of a packet before netfilter queues it, and `ping` uses that time.
//! No verdict changes it. TCP and `ping -U` use the time at which a process receives the packet.

use crate::directions::Ready;

const NS_PER_MS: f64 = 1e6;

/// A sentence about the delays of this host's round trips by an interface; `None` if `ping` shows all of
/// them, and for packets between two interfaces.
pub fn remark(is_loopback: bool, directions: &[Ready]) -> Option<String> {
    let delay = |name: &str| {
        let ready = directions.iter().find(|one| one.direction.name == name);
        ready.and_then(|one| one.direction.configured.delay_ns)
    };
    let (egress, ingress) = (delay("egress"), delay("ingress"));
    let (leaves, arrives) = (egress.unwrap_or_default(), ingress.unwrap_or_default());
    // A reply over lo leaves and arrives here, too.
    let (trips, place) = match is_loopback {
        true => (2.0, "over lo, where both packets leave and arrive"),
        false => (1.0, "between this host and another"),
    };
    let all = trips * (leaves + arrives);
    let seen = all - arrives;
    let directions = [egress, ingress].iter().flatten().count();
    let delays = directions * trips as usize;
    let pings = delays - usize::from(ingress.is_some());
    (delays > pings || (is_loopback && delays > 0)).then(|| {
        format!(
            "{} in a round trip {place} ({}); `ping` shows {} of it ({pings}), because the kernel takes the receive time before the last delay: `ping -U` and TCP measure all",
            ms(all),
            times(delays),
            ms(seen),
        )
    })
}

fn times(delays: usize) -> String {
    match delays {
        1 => "1 delay".to_owned(),
        n => format!("{n} delays"),
    }
}

/// "80 ms", "0.25 ms".
fn ms(ns: f64) -> String {
    let text = format!("{:.3}", ns / NS_PER_MS);
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(is_loopback: bool, egress: &str, ingress: &str) -> Option<String> {
        let ready = |(name, words)| Ready::of_words(name, words, 100, 7).unwrap();
        let all = [("egress", egress), ("ingress", ingress)];
        let directions: Vec<Ready> = all.into_iter().map(ready).collect();
        remark(is_loopback, &directions)
    }

    #[test]
    fn ping_misses_the_last_delay_of_arriving_packets() {
        for (is_loopback, egress, ingress, start) in [
            (
                false,
                "delay 20ms",
                "delay 20ms",
                "40 ms in a round trip between this host and another (2 delays); `ping` shows 20 ms of it (1)",
            ),
            (
                true,
                "delay 20ms",
                "delay 20ms",
                "80 ms in a round trip over lo, where both packets leave and arrive (4 delays); `ping` shows 60 ms of it (3)",
            ),
            (
                false,
                "none",
                "delay 250us",
                "0.25 ms in a round trip between this host and another (1 delay); `ping` shows 0 ms of it (0)",
            ),
            (
                true,
                "delay 5ms",
                "loss 1%",
                "10 ms in a round trip over lo, where both packets leave and arrive (2 delays); `ping` shows 10 ms of it (2)",
            ),
        ] {
            let text = of(is_loopback, egress, ingress).unwrap();
            assert!(text.starts_with(start), "{text}");
        }
        assert_eq!(of(false, "delay 20ms", "loss 1%"), None);
        assert_eq!(of(true, "loss 1%", "rate 1mbit"), None);
    }

    #[test]
    fn packets_between_two_interfaces_need_no_remark() {
        let between = Ready::of_words("to-peer", "delay 20ms", 100, 7).unwrap();
        assert_eq!(remark(false, &[between]), None);
    }
}
