//! `fairpath features`: what this kernel, this user and these interfaces can do, found out by trying.
//!
//! ```text
//!   table --> probes --> findings --.
//!               | (scratch)          >-- text | JSON        table --> docs/kernel-support.md
//!   sysfs, netlink --> interfaces --'
//!                          '--> advice
//! ```
//!
//! Nothing is tried on an interface of the operator: hooks, qdiscs and sockets are tried in a network namespace
//! that vanishes with its thread. Interfaces are only asked. The kernel may load modules for what is tried.

mod advice;
mod docs;
mod host;
mod interface;
mod json;
mod parse;
mod probes;
mod scratch;
mod table;
mod text;

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, bail};

use self::advice::Situation;
use self::host::Host;
use self::interface::Interface;
use self::probes::Finding;

/// Arguments of `fairpath features`.
#[derive(clap::Args)]
pub struct Args {
    /// Report only this interface (may be repeated); without it, all
    #[arg(short, long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Text for people, or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print docs/kernel-support.md and try nothing
    #[arg(long)]
    docs: bool,
    /// Load every BPF object of this binary, attach nothing, and say what the verifier made of it
    #[arg(long, hide = true)]
    load_all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Everything found out in one run.
struct Report {
    host: Host,
    findings: Vec<Finding>,
    interfaces: Vec<Interface>,
}

/// Runs the subcommand. A feature that is missing is an answer, not a failure.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.load_all {
        return load_all();
    }
    let output = if args.docs {
        docs::kernel_support()
    } else {
        let report = find_out(&args.interfaces)?;
        match args.format {
            Format::Text => text::render(&report, text::Style::for_terminal(colour_wanted())),
            Format::Json => json::render(&report).context("write the report as JSON")?,
        }
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}

/// One line an object; fails where one was refused.
fn load_all() -> anyhow::Result<()> {
    let mut refused = 0;
    for object in fairpath_bpf::load_all() {
        match object.result {
            Ok(()) => println!("object {} ok", object.name),
            Err(error) => {
                refused += 1;
                println!("object {} error {error:#}", object.name);
            }
        }
    }
    if refused > 0 {
        bail!(
            "load every BPF object: the kernel refused {refused}; `fairpath features` tells what it lacks"
        );
    }
    Ok(())
}

/// Interfaces first: without privilege the probes' last step takes the process into namespaces of its own.
fn find_out(names: &[String]) -> anyhow::Result<Report> {
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
    Ok(Report {
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

fn colour_wanted() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
