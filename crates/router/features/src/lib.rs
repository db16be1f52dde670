//! `fairpath features`: the features of this kernel, user and hardware, by trying each.
//!
//! ```text
//!   table --> probes --> findings --.
//!               | (scratch)          >-- text | JSON        table --> docs/kernel-support.md
//!   sysfs, netlink --> interfaces --'
//!                          '--> advice
//!   CPUs, interfaces --> collisions --> text | JSON    (cpus)
//! ```
//!
//! Hooks, qdiscs and sockets are tried in a temporary network namespace, never on an interface of the
//! host; those are only queried. The kernel may load modules for a test.

mod advice;
mod cpus;
mod docs;
mod forwarding;
mod host;
mod interface;
mod json;
mod probes;
mod scratch;
mod table;
mod text;

use anyhow::{Context, bail};
use fairpath_machine::Machine;

pub use self::docs::kernel_support;

use self::advice::Situation;
use self::cpus::HostCpus;
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

/// Queues, interrupts and CPUs of one run.
pub struct CpusReport {
    cpus: HostCpus,
    interfaces: Vec<Interface>,
}

impl CpusReport {
    /// As text, with or without colors.
    pub fn text(&self, colour: bool) -> String {
        cpus::render(
            &self.cpus,
            &self.interfaces,
            text::Style::for_terminal(colour),
        )
    }

    /// One JSON object per line.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        json::render_cpus(&self.cpus, &self.interfaces)
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
    let (cpus, mut interfaces) = collect()?;
    let findings = probes::run(&host, &interfaces);
    select(names, &mut interfaces, |_| true)?;
    let situation = Situation {
        cpus,
        fq_codel: probes::is_available(&findings, "fq_codel"),
    };
    for interface in &mut interfaces {
        if !interface.is_physical() {
            interface.advice.clear();
        }
        let other = advice::advise(interface, &situation);
        interface.advice.extend(other);
    }
    Ok(FeaturesReport {
        host,
        findings,
        interfaces,
    })
}

/// Reads how the queues of the interfaces `names` use the CPUs, or of all that have a card's queues.
///
/// # Errors
/// An interface does not exist, or the interfaces cannot be read.
pub fn read_cpus(names: &[String]) -> anyhow::Result<CpusReport> {
    let (cpus, mut interfaces) = collect()?;
    select(names, &mut interfaces, has_queues)?;
    Ok(CpusReport { cpus, interfaces })
}

/// The CPUs, and all interfaces with their collisions.
fn collect() -> anyhow::Result<(HostCpus, Vec<Interface>)> {
    let machine = Machine::real();
    let cpus = HostCpus::read(&machine);
    let mut interfaces = interface::collect(&machine).context("list interfaces")?;
    let collisions = cpus::find(&interfaces, &cpus);
    for (interface, found) in interfaces.iter_mut().zip(collisions) {
        interface.advice = found;
    }
    Ok((cpus, interfaces))
}

/// Physical or veth. Without its sysfs, a physical interface looks like another virtual one.
fn has_queues(i: &Interface) -> bool {
    let may_be_physical = i.kind == "virtual" && !i.sysfs;
    i.queues.rx > 0 && (i.is_physical() || i.kind == "veth" || may_be_physical)
}

/// Keeps the interfaces `names`, or without names those of `default`.
fn select(
    names: &[String],
    interfaces: &mut Vec<Interface>,
    default: impl Fn(&Interface) -> bool,
) -> anyhow::Result<()> {
    let known: Vec<&str> = interfaces.iter().map(|i| i.name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(
            "interface \"{name}\": not in this network namespace; there are {}",
            known.join(", ")
        );
    }
    interfaces.retain(|i| match names.is_empty() {
        true => default(i),
        false => names.contains(&i.name),
    });
    Ok(())
}
