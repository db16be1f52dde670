//! What a grid needs of this machine and of the router's binary, asked before anything is made or written.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use fairpath_bpf::BBR3LIKE;
use fairpath_testbed::{Need, missing};
use serde::Deserialize;

use crate::experiment::document::{nearest, words};
use crate::experiment::{EngineName, FlowSpec, LinkSpec};
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
                     tcp_{name}), or leave it out (--only AXIS=VALUE,...)",
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
}

/// Refuses a policy that the router's binary does not have.
fn policies(cells: &[Cell], fairpath: &Path) -> anyhow::Result<()> {
    let wanted: BTreeSet<(&String, &String)> = cells.iter().flat_map(policies_of).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let known = known_policies(fairpath)?;
    match wanted.iter().find(|(_, policy)| !known.contains(policy)) {
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

fn known_policies(fairpath: &Path) -> anyhow::Result<Vec<String>> {
    let asked = "ask for its policies (fairpath sched list --format json)";
    let output = Command::new(fairpath)
        .args(["sched", "list", "--format", "json"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| {
            format!(
                "run {}: {asked}; name the binary (--fairpath)",
                fairpath.display()
            )
        })?;
    let listed: Listed = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "{}: {asked}; does it belong to this version?",
            fairpath.display()
        )
    })?;
    Ok(listed
        .policies
        .into_iter()
        .map(|policy| policy.name)
        .collect())
}

fn no_policy(link: &str, policy: &str, known: &[String]) -> String {
    let near = nearest(policy, known.iter().cloned());
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!(
        "link {link}: no policy \"{policy}\" among those of `fairpath sched list` ({}){near}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Document, FormName};

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
    fn policies_of_both_directions_are_asked_for_and_none_of_netem() {
        let found = cells("impair");
        let names: Vec<&str> = policies_of(&found[0])
            .iter()
            .map(|(_, p)| p.as_str())
            .collect();
        assert_eq!(names, ["fq_codle", "codel"]);
        assert!(policies_of(&cells("netem")[0]).is_empty());
    }

    #[test]
    fn a_policy_that_is_not_there_is_told_with_the_nearest_and_a_wrong_binary_is_named() {
        let known = ["fifo", "fq_codel"].map(str::to_owned);
        let told = no_policy("wan", "fq_codle", &known);
        assert!(told.contains("link wan: no policy \"fq_codle\""), "{told}");
        assert!(told.ends_with("did you mean fq_codel?"), "{told}");
        let cells = cells("impair");
        let error = policies(&cells, Path::new("/bin/true")).unwrap_err();
        assert!(error.to_string().contains("/bin/true"), "{error:#}");
    }
}
