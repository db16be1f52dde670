//! Configured interfaces and uplinks that are not monitored: not there yet, or misspelt.

use std::collections::HashSet;

use anyhow::Context;
use fairpath_history::snapshot::WaitingFor;
use globset::{Glob, GlobSet, GlobSetBuilder};

/// The names and patterns of `[monitor]`, compiled once for each configuration.
pub struct Configured {
    interfaces: Names,
    uplinks: Names,
}

/// The values of one key.
struct Names {
    key: &'static str,
    names: Vec<String>,
    globs: GlobSet,
}

impl Names {
    fn new(key: &'static str, names: &[String]) -> anyhow::Result<Names> {
        Ok(Names {
            key,
            names: names.to_vec(),
            globs: globs(names).with_context(|| format!("[monitor] {key}"))?,
        })
    }

    /// The report of a value. The nearest name is one that is not configured under the same key, so
    /// that `eth1` which appears later is not taken for `eth0`.
    fn report(&self, at: usize, exists: bool, links: &[&str]) -> WaitingFor {
        let name = &self.names[at];
        let near = || {
            let configured: HashSet<&str> = self.names.iter().map(String::as_str).collect();
            let unused = links.iter().copied();
            let unused = unused.filter(|link| !configured.contains(link));
            fairpath_units::nearest(name, unused).map(str::to_owned)
        };
        WaitingFor {
            key: self.key.to_owned(),
            name: name.clone(),
            exists,
            nearest: match exists || is_pattern(name) {
                true => None,
                false => near(),
            },
        }
    }
}

impl Configured {
    /// Compiles the values of `[monitor] interfaces` and `uplinks`.
    ///
    /// # Errors
    /// A pattern is invalid.
    pub fn new(interfaces: &[String], uplinks: &[String]) -> anyhow::Result<Configured> {
        Ok(Configured {
            interfaces: Names::new("interfaces", interfaces)?,
            uplinks: Names::new("uplinks", uplinks)?,
        })
    }

    /// True if an uplink of the configuration means this interface.
    pub fn is_uplink(&self, link: &str) -> bool {
        self.uplinks.globs.is_match(link)
    }

    /// The values without a monitored interface among `links`, each reported once.
    ///
    /// One match per link and key, and for each missing name its distance to each link.
    pub fn waiting_for(&self, links: &[&str]) -> Vec<WaitingFor> {
        let (interfaces, uplinks) = (&self.interfaces, &self.uplinks);
        let mut watched = vec![false; interfaces.names.len()];
        let mut exists = vec![false; uplinks.names.len()];
        let mut monitored = exists.clone();
        let (mut watching, mut leading) = (Vec::new(), Vec::new());
        for link in links {
            interfaces.globs.matches_into(link, &mut watching);
            uplinks.globs.matches_into(link, &mut leading);
            watching.iter().for_each(|at: &usize| watched[*at] = true);
            for at in &leading {
                exists[*at] = true;
                monitored[*at] |= !watching.is_empty();
            }
        }
        let missing = (0..watched.len()).filter(|at| !watched[*at]);
        let missing = missing.map(|at| interfaces.report(at, false, links));
        let idle = (0..exists.len())
            .filter(|at| !monitored[*at] && !interfaces.names.contains(&uplinks.names[*at]));
        let idle = idle.map(|at| uplinks.report(at, exists[at], links));
        missing.chain(idle).collect()
    }
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

/// A set of interface names and patterns, with the numbers of their places.
///
/// # Errors
/// A pattern is invalid.
pub fn globs(names: &[String]) -> anyhow::Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for name in names {
        let glob = match is_pattern(name) {
            true => Glob::new(name),
            false => Glob::new(&globset::escape(name)),
        };
        set.add(glob.with_context(|| {
            format!("interface pattern {name:?} is invalid: write 'ppp*' or 'eth[0-3]'")
        })?);
    }
    set.build().context("interface patterns")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(interfaces: &[&str], uplinks: &[&str], links: &[&str]) -> Vec<String> {
        let owned =
            |names: &[&str]| -> Vec<String> { names.iter().map(|n| n.to_string()).collect() };
        let configured = Configured::new(&owned(interfaces), &owned(uplinks)).unwrap();
        let waiting = configured.waiting_for(links);
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
    fn a_wrong_pattern_is_refused_by_name() {
        let wrong = Configured::new(&["lan0".to_owned()], &["ppp[".to_owned()]);
        let text = format!("{:#}", wrong.err().unwrap());
        assert!(
            text.starts_with("[monitor] uplinks: interface pattern \"ppp[\" is invalid"),
            "{text}"
        );
    }

    /// A broadband gateway, at the start and while subscribers come and go. Patterns that are compiled
    /// for each link take minutes here.
    #[test]
    fn patterns_are_compiled_once_for_5000_links() {
        let patterns = |name: &str| -> Vec<String> {
            let numbers = (0..32).map(|n| format!("{name}{n}-*"));
            numbers.chain([format!("{name}[0-9]*")]).collect()
        };
        let configured = Configured::new(&patterns("ppp"), &patterns("wan")).unwrap();
        let all: Vec<String> = (0..5_000).map(|n| format!("ppp{n}")).collect();
        let mut links: Vec<&str> = all.iter().map(String::as_str).collect();
        for change in 0..10 {
            let waiting = configured.waiting_for(&links);
            // `ppp[0-9]*` is found, and no uplink is.
            assert_eq!(waiting.len(), 32 + 33, "change {change}");
            assert_eq!(waiting.iter().filter(|one| one.exists).count(), 0);
            links.pop();
        }
        links.extend(["ppp7-a", "wan0"]);
        let waiting = configured.waiting_for(&links);
        let exists: Vec<&WaitingFor> = waiting.iter().filter(|one| one.exists).collect();
        assert_eq!(waiting.len(), 31 + 33);
        assert_eq!((exists.len(), exists[0].name.as_str()), (1, "wan[0-9]*"));
        assert!(configured.is_uplink("wan0") && !configured.is_uplink("ppp1"));
    }

    #[test]
    fn control_characters_are_replaced() {
        let text = texts(&["a\u{1b}]2J"], &[], &["a\u{1b}]2K"]).concat();
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
