//! `fairpath features`: the features of this kernel, user and hardware, by trying each.
//!
//! ```text
//!   table --> probes --> findings --.
//!               | (scratch)          >-- text | JSON        table --> docs/kernel-support.md
//!   sysfs, netlink --> interfaces --'
//!                          '--> advice
//! ```
//!
//! Hooks, qdiscs and sockets are tried in a temporary network namespace, never on an interface of the
//! host; those are only queried. The kernel may load modules for a test.

mod advice;
mod docs;
mod forwarding;
mod host;
mod interface;
mod json;
mod parse;
mod probes;
mod scratch;
mod table;
mod text;

use anyhow::{Context, bail};

pub use self::docs::kernel_support;

use self::advice::Situation;
use self::host::Host;
use self::interface::Interface;
use self::probes::Finding;

/// The results of one run.
pub struct FeaturesReport {
    host: Host,
    findings: Vec<Finding>,
    interfaces: Vec<Interface>,
}

impl FeaturesReport {
    /// As text, with or without colors.
    pub fn text(&self, colour: bool) -> String {
        text::render(self, text::Style::for_terminal(colour))
    }

    /// One JSON object per line.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        json::render(self)
    }
}

/// Tries all features, and queries the interfaces `names`, or all.
///
/// Interfaces come first: without privileges, the last step of the probes enters separate namespaces.
///
/// # Errors
/// An interface does not exist, or the host or its interfaces cannot be read.
pub fn find_out(names: &[String]) -> anyhow::Result<FeaturesReport> {
    let host = Host::read().context("read what this host is")?;
    let mut interfaces = interface::collect().context("list interfaces")?;
    let findings = probes::run(&host, &interfaces);
    refuse_unknown(names, &interfaces)?;
    if !names.is_empty() {
        interfaces.retain(|interface| names.contains(&interface.name));
    }
    let situation = Situation {
        online_cpus: host.online_cpus.clone(),
        fq_codel: probes::is_available(&findings, "fq_codel"),
    };
    for interface in &mut interfaces {
        interface.advice = advice::advise(interface, &situation);
    }
    Ok(FeaturesReport {
        host,
        findings,
        interfaces,
    })
}

fn refuse_unknown(names: &[String], interfaces: &[Interface]) -> anyhow::Result<()> {
    let known: Vec<&str> = interfaces.iter().map(|i| i.name.as_str()).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => bail!(
            "interface \"{name}\": not in this network namespace; there are {}",
            known.join(", ")
        ),
        None => Ok(()),
    }
}
