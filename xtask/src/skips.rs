//! The tests that did not run, and the verdict on their reasons.
//!
//! A test that lacks something it needs appends one line to the file that `FAIRPATH_SKIP_LOG`
//! names and returns:
//!
//! ```text
//! test TAB need TAB reason
//! ```
//!
//! `need` says what is missing so that a machine can check it: `feature:ID` (an id of
//! `fairpath features`), `root`, `command:NAME`, or free words. A skip for lack of something that is
//! there is a failure; so is one of a feature that `fairpath features` does not know. A test whose name begins with `vm/` ran in a guest: what this machine has
//! says nothing about it, so only the guest's own runner can judge it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// One test that did not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    pub test: String,
    pub need: String,
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "skipped {}: needs {}: {}",
            self.test, self.need, self.reason
        )
    }
}

/// The features of this machine; a skip for lack of a present one is a failure.
#[derive(Debug, Default)]
pub struct Present {
    /// The features according to `fairpath features`.
    pub features: BTreeMap<String, bool>,
    pub root: bool,
}

impl Present {
    /// Why the skip was unjustified, if it was. `command` returns whether a command exists.
    pub fn contradicts(&self, skip: &Skip, command: impl Fn(&str) -> bool) -> Option<String> {
        if skip.test.starts_with("vm/") {
            return None;
        }
        match skip.need.split_once(':').unwrap_or((&skip.need, "")) {
            ("feature", id) => match self.features.get(id) {
                Some(true) => Some(format!("`fairpath features` reports {id} as available")),
                Some(false) => None,
                None => Some(format!("`fairpath features` has no {id}")),
            },
            ("root", "") if self.root => Some("this is root".to_owned()),
            ("command", name) if command(name) => Some(format!("{name} is on the PATH")),
            _ => None,
        }
    }
}

/// The skips in a log, sorted; a line of another form is an error, or it would hide a skip.
pub fn parse(log: &str) -> Result<Vec<Skip>, String> {
    let mut skips = Vec::new();
    for (i, line) in log.lines().enumerate().filter(|(_, l)| !l.is_empty()) {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let &[test, need, reason] = fields.as_slice() else {
            return Err(format!(
                "skip log:{}: not `test TAB need TAB reason`: {line:?}",
                i + 1
            ));
        };
        skips.push(Skip {
            test: test.into(),
            need: need.into(),
            reason: reason.into(),
        });
    }
    skips.sort();
    skips.dedup();
    Ok(skips)
}

/// The ids of features in what `fairpath features --format json` printed: objects with
/// `"feature"` and `"available"`, one per line or nested in others; whether each is available.
pub fn features(output: &str) -> BTreeMap<String, bool> {
    let mut ids = BTreeMap::new();
    for value in serde_json::Deserializer::from_str(output)
        .into_iter::<Value>()
        .map_while(Result::ok)
    {
        collect(&value, &mut ids);
    }
    ids
}

fn collect(value: &Value, ids: &mut BTreeMap<String, bool>) {
    match value {
        Value::Array(items) => items.iter().for_each(|v| collect(v, ids)),
        Value::Object(map) => {
            if let (Some(Value::String(id)), Some(Value::Bool(available))) =
                (map.get("feature"), map.get("available"))
            {
                ids.insert(id.clone(), *available);
            }
            map.values().for_each(|v| collect(v, ids));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(test: &str, need: &str) -> Skip {
        Skip {
            test: test.into(),
            need: need.into(),
            reason: "r".into(),
        }
    }

    #[test]
    fn each_skip_of_a_log_is_counted_once() {
        let log = "b\troot\tneeds a namespace\n\na\tfeature:tcx\tno tcx\there\nb\troot\tneeds a namespace\n";
        let skips = parse(log).unwrap();
        assert_eq!(skips.len(), 2);
        assert_eq!(
            skips[0].to_string(),
            "skipped a: needs feature:tcx: no tcx\there"
        );
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        let error = parse("a\troot\tx\nhalf a line").unwrap_err();
        assert!(error.starts_with("skip log:2:"), "{error}");
    }

    #[test]
    fn a_skip_despite_an_available_need_fails() {
        let have = Present {
            features: BTreeMap::from([("tcx".to_owned(), true), ("fq".to_owned(), false)]),
            root: true,
        };
        let command = |name: &str| name == "tshark";
        for need in [
            "feature:tcx",
            "feature:no_such",
            "feature:",
            "root",
            "command:tshark",
        ] {
            assert!(
                have.contradicts(&skip("t", need), command).is_some(),
                "{need}"
            );
            assert!(
                have.contradicts(&skip("vm/6.12/t", need), command)
                    .is_none(),
                "{need}"
            );
        }
        for need in ["feature:fq", "command:tcptrace", "a network"] {
            assert!(
                have.contradicts(&skip("t", need), command).is_none(),
                "{need}"
            );
        }
        assert!(
            Present::default()
                .contradicts(&skip("t", "root"), command)
                .is_none()
        );
    }

    #[test]
    fn features_are_read_from_lines_and_objects() {
        let lines = "{\"schema\":1}\n{\"feature\":\"tcx\",\"available\":true}\n{\"feature\":\"fq\",\"available\":false}\n";
        let (tcx, fq) = (("tcx".to_owned(), true), ("fq".to_owned(), false));
        assert_eq!(features(lines), BTreeMap::from([tcx, fq]));
        let nested = r#"{"features":[{"feature":"arena","available":true}]}"#;
        let arena = ("arena".to_owned(), true);
        assert_eq!(features(nested), BTreeMap::from([arena]));
        assert!(features("error: unrecognized subcommand").is_empty());
    }
}
