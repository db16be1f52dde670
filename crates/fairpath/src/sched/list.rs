//! `fairpath sched list`: the policies that are compiled in.

/// Arguments of `fairpath sched list`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: &Args) -> anyhow::Result<()> {
    for policy in fairpath_core::sched::policies() {
        println!("{:<16} {}", policy.name, policy.about);
    }
    Ok(())
}
