//! Configured interfaces and uplinks that are not monitored: not there yet, or misspelt.

use fairpath_history::snapshot::WaitingFor;
use globset::Glob;

/// The names and patterns of `[monitor]` without a monitored interface among `links`.
///
/// Each value is reported once. The nearest name is one that is not configured under the same key,
/// so that `eth1` which appears later is not taken for `eth0`. O(configured * links).
pub fn waiting_for(interfaces: &[String], uplinks: &[String], links: &[&str]) -> Vec<WaitingFor> {
    let report = |key: &str, name: &String, configured: &[String], exists: bool| {
        let unused = links.iter().copied();
        let unused = unused.filter(|link| !configured.iter().any(|name| name == link));
        WaitingFor {
            key: key.to_owned(),
            name: name.clone(),
            exists,
            nearest: match exists || is_pattern(name) {
                true => None,
                false => fairpath_units::nearest(name, unused).map(str::to_owned),
            },
        }
    };
    let absent = |name: &&String| !links.iter().any(|link| matches(name, link));
    let missing = interfaces.iter().filter(absent);
    let missing = missing.map(|name| report("interfaces", name, interfaces, false));
    let is_monitored = |link: &str| interfaces.iter().any(|name| matches(name, link));
    let idle = uplinks.iter().filter(|uplink| {
        let monitored = |link: &&str| matches(uplink, link) && is_monitored(link);
        !interfaces.contains(uplink) && !links.iter().any(monitored)
    });
    let idle = idle.map(|name| report("uplinks", name, uplinks, !absent(&name)));
    missing.chain(idle).collect()
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

/// True if the configured name or pattern means this interface. The configuration is valid.
fn matches(name: &str, link: &str) -> bool {
    match is_pattern(name) {
        true => Glob::new(name).is_ok_and(|glob| glob.compile_matcher().is_match(link)),
        false => name == link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(interfaces: &[&str], uplinks: &[&str], links: &[&str]) -> Vec<String> {
        let owned =
            |names: &[&str]| -> Vec<String> { names.iter().map(|n| n.to_string()).collect() };
        let waiting = waiting_for(&owned(interfaces), &owned(uplinks), links);
        waiting.iter().map(ToString::to_string).collect()
    }

    const LINKS: [&str; 4] = ["lo", "lan0", "wan0", "ppp7"];

    #[test]
    fn present_interfaces_and_uplinks_are_not_reported() {
        let none: [&str; 0] = [];
        assert_eq!(texts(&["lan0", "wan0", "ppp*"], &["wan0"], &LINKS), none);
        assert_eq!(texts(&["lan0", "w*"], &["wan0"], &LINKS), none);
        assert_eq!(texts(&["*"], &["wan?", "ppp*"], &LINKS), none);
    }

    #[test]
    fn misspelt_uplink_names_the_nearest_interface() {
        assert_eq!(
            texts(&["lan0", "wan0"], &["wna0"], &LINKS),
            ["wna0 ([monitor] uplinks): no interface has this name yet: did you mean \"wan0\"?"]
        );
    }

    #[test]
    fn an_uplink_that_is_not_monitored_is_reported() {
        assert_eq!(
            texts(&["lan0"], &["wan0", "ppp*"], &LINKS),
            [
                "wan0 ([monitor] uplinks): it is not monitored: add it to [monitor] interfaces",
                "ppp* ([monitor] uplinks): it is not monitored: add it to [monitor] interfaces",
            ]
        );
    }

    #[test]
    fn a_missing_interface_is_reported_once() {
        assert_eq!(
            texts(&["lna0", "wg*", "xyz"], &["xyz", "wg*"], &LINKS),
            [
                "lna0 ([monitor] interfaces): no interface has this name yet: did you mean \"lan0\"?",
                "wg* ([monitor] interfaces): no interface matches this pattern yet",
                "xyz ([monitor] interfaces): no interface has this name yet",
            ]
        );
    }

    /// `eth1` comes later: `eth0` is configured already, and not meant.
    #[test]
    fn a_configured_name_is_not_the_nearest() {
        assert_eq!(
            texts(&["eth0", "eth1"], &[], &["eth0"]),
            ["eth1 ([monitor] interfaces): no interface has this name yet"]
        );
    }

    #[test]
    fn control_characters_are_replaced() {
        let text = texts(&["a\u{1b}[2J"], &[], &["a\u{1b}[2K"]).concat();
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
