//! `fairpath features`: the features that this kernel, user and hardware support.

use anyhow::{Context, bail};
use fairpath_features::{find_out, kernel_support, read_cpus};

/// List the features that this kernel, this user and these interfaces support.
///
/// Each feature is tried, so run it as the user that will run Fairpath.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    sudo fairpath features\n  \
    fairpath features -i eth0 --format json\n  \
    fairpath features --cpus eth0 eth1")]
pub struct Args {
    /// Interface to report; may be repeated [default: all]
    #[arg(short, long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Print how queues and interrupts use the CPUs, and where they collide, without trying anything
    #[arg(long)]
    cpus: bool,
    /// Interface to report with --cpus [default: all physical ones and veth]
    #[arg(
        value_name = "INTERFACE",
        requires = "cpus",
        conflicts_with = "interfaces"
    )]
    named: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the table of docs/kernel-support.md, without trying anything
    #[arg(long, conflicts_with = "cpus")]
    docs: bool,
    /// Load every BPF object of this binary without attaching it, and print the result of the verifier
    #[arg(long, hide = true)]
    load_all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables
    Text,
    /// One JSON object per line
    Json,
}

/// Runs `fairpath features`. A missing feature is a result, not a failure.
///
/// # Errors
/// An interface does not exist, or with `--load-all` an object is refused.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.load_all {
        return load_all();
    }
    let output = if args.docs {
        kernel_support()
    } else {
        report(args)?
    };
    fairpath_cli::print_colored(&output)
}

fn report(args: &Args) -> anyhow::Result<String> {
    let colour = fairpath_cli::color_stdout();
    let names = [&args.interfaces[..], &args.named].concat();
    let json = match (args.cpus, args.format) {
        (true, Format::Text) => return Ok(read_cpus(&names)?.text(colour)),
        (true, Format::Json) => read_cpus(&names)?.json(),
        (false, Format::Text) => return Ok(find_out(&names)?.text(colour)),
        (false, Format::Json) => find_out(&names)?.json(),
    };
    json.context("write the report as JSON")
}

/// Prints one line per object. Fails if one was refused.
fn load_all() -> anyhow::Result<()> {
    let mut refused = 0;
    for object in fairpath_bpf::load_all() {
        match object.result {
            Ok(()) => fairpath_cli::print(format!("object {} ok\n", object.name))?,
            Err(error) => {
                refused += 1;
                fairpath_cli::print(format!("object {} error {error:#}\n", object.name))?;
            }
        }
    }
    if refused > 0 {
        bail!(
            "load all BPF objects: the kernel refused {refused}: `fairpath features` lists what it lacks"
        );
    }
    Ok(())
}
