//! The requirements of a grid on this machine and on the router's binary, checked before anything is
//! created or written.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use fairpath_analysis::experiment::document::{nearest, words};
use fairpath_analysis::experiment::{EngineName, FlowSpec, LinkSpec};
use fairpath_bpf::BBR3LIKE;
use fairpath_testbed::{Need, missing};
use serde::Deserialize;

use crate::grid::Cell;

/// Refuses what this machine cannot run at all, before anything is written.
///
/// # Errors
/// The first thing that is missing, with its remedy.
pub fn check(cells: &[Cell], fairpath: &Path) -> anyhow::Result<()> {
    let needs = [
        (
            Need::Root,
            "it makes network namespaces: run it as root (sudo)",
        ),
        (Need::Tool("ip"), "install it: apt install iproute2"),
        (Need::Tool("ethtool"), "install it: apt install ethtool"),
        (Need::Tool("iperf3"), "install it: apt install iperf3"),
    ];
    for (need, remedy) in needs {
        if missing(&[need]).is_some() {
            bail!("needs {need}: {remedy}");
        }
    }
    let mut known = crate::machine::congestion_controls();
    known.push(BBR3LIKE.to_owned());
    for cell in cells {
        for (flow, spec) in &cell.experiment.flows {
            if let Some(name) = congestion_of(spec).find(|name| !known.contains(name)) {
                bail!(
                    "flow {flow} at {}: this kernel has no congestion control {name} (it has {}): load it (modprobe \
                     tcp_{name}), or exclude it (--select AXIS=VALUE,...)",
                    words(&cell.setting),
                    known.join(", ")
                );
            }
        }
    }
    policies(cells, fairpath)
}

/// Every congestion control that a flow uses.
pub fn congestion_of(flow: &FlowSpec) -> impl Iterator<Item = &String> {
    let switched = flow.switch.iter().map(|switch| &switch.to);
    flow.congestion.iter().chain(switched)
}

/// `fairpath sched list --format json`; what is not here is not needed.
#[derive(Deserialize)]
struct Listed {
    policies: Vec<Policy>,
}

#[derive(Deserialize)]
struct Policy {
    name: String,
    /// The order of the values.
    ranks: Vec<String>,
}

impl Policy {
    /// True if it may be a link's queue: that has packets, and no nodes below it.
    fn is_of_queues(&self) -> bool {
        let ranks = |what: &str| self.ranks.iter().any(|ranked| ranked == what);
        ranks("packets") || ranks("flows")
    }
}

/// Refuses a policy that the router's binary does not have, or that cannot be a link's queue.
fn policies(cells: &[Cell], fairpath: &Path) -> anyhow::Result<()> {
    let wanted: BTreeSet<(&String, &String)> = cells.iter().flat_map(policies_of).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let known = known_policies(fairpath)?;
    let fits = |name: &String| known.iter().any(|p| p.name == *name && p.is_of_queues());
    match wanted.iter().find(|(_, policy)| !fits(policy)) {
        Some((link, policy)) => bail!(no_policy(link, policy, &known)),
        None => Ok(()),
    }
}

/// Links and policies of a cell; netem has none, and says so itself.
fn policies_of(cell: &Cell) -> Vec<(&String, &String)> {
    if cell.experiment.engine == EngineName::Netem {
        return Vec::new();
    }
    let links = cell.experiment.links.iter();
    links.flat_map(|(name, spec)| of_link(name, spec)).collect()
}

fn of_link<'a>(
    name: &'a String,
    spec: &'a LinkSpec,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let own = spec.to.values().filter_map(|own| own.policy.as_ref());
    own.chain(&spec.policy).map(move |policy| (name, policy))
}

fn known_policies(fairpath: &Path) -> anyhow::Result<Vec<Policy>> {
    let requested = "list its policies (fairpath sched list --format json)";
    let output = Command::new(fairpath)
        .args(["sched", "list", "--format", "json"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| {
            format!(
                "run {}: {requested}; name the binary (--fairpath)",
                fairpath.display()
            )
        })?;
    let listed: Listed = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "{}: {requested}; does it belong to this version?",
            fairpath.display()
        )
    })?;
    Ok(listed.policies)
}

fn no_policy(link: &str, policy: &str, known: &[Policy]) -> String {
    let names = || known.iter().filter(|known| known.is_of_queues());
    let names: Vec<String> = names().map(|known| known.name.clone()).collect();
    if known.iter().any(|known| known.name == policy) {
        return format!(
            "link {link}: policy \"{policy}\" puts nodes in order, and a link's queue has packets; take one of {}",
            names.join(", ")
        );
    }
    let near = nearest(policy, names.iter().cloned());
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!(
        "link {link}: no policy \"{policy}\" among those of `fairpath sched list` ({}){near}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::{Document, FormName};

    fn cells(engine: &str) -> Vec<Cell> {
        let text = format!(
            "name = 'x'\ntitle = 'X'\nquestion = '?'\ntopology = 'router'\nengine = '{engine}'\n\
            [links.wan]\nrate = '10mbit'\npolicy = 'codel'\n[links.wan.to.server]\npolicy = 'fq_codle'\n\
            [flows.bulk]\ncongestion = 'cubic'\n"
        );
        let document = Document::parse("x.toml", &text).unwrap();
        crate::grid::plan(&document, FormName::Quick, 1).unwrap()
    }

    #[test]
    fn policies_of_both_directions_are_required() {
        let found = cells("impair");
        let names: Vec<&str> = policies_of(&found[0])
            .iter()
            .map(|(_, p)| p.as_str())
            .collect();
        assert_eq!(names, ["fq_codle", "codel"]);
        assert!(policies_of(&cells("netem")[0]).is_empty());
    }

    #[test]
    fn unknown_policies_have_a_suggestion() {
        let policy = |(name, ranks): (&str, &str)| Policy {
            name: name.to_owned(),
            ranks: vec![ranks.to_owned()],
        };
        let known = [
            ("fifo", "packets"),
            ("fq_codel", "flows"),
            ("qfq", "children"),
        ];
        let known = known.map(policy);
        let reported = no_policy("wan", "fq_codle", &known);
        assert!(
            reported.contains("link wan: no policy \"fq_codle\""),
            "{reported}"
        );
        assert!(reported.ends_with("did you mean fq_codel?"), "{reported}");
        let reported = no_policy("wan", "qfq", &known);
        assert!(
            reported.ends_with("take one of fifo, fq_codel"),
            "{reported}"
        );
        let cells = cells("impair");
        let error = policies(&cells, Path::new("/bin/true")).unwrap_err();
        assert!(error.to_string().contains("/bin/true"), "{error:#}");
    }
}
