//! `fairpath sched show`: one policy in full.

use anyhow::Context;

/// Arguments of `fairpath sched show`.
#[derive(clap::Args)]
pub struct Args {
    /// Its name, as `fairpath sched list` gives it
    policy: String,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut policies = fairpath_core::sched::policies().iter();
    let policy = policies.find(|policy| policy.name == args.policy);
    let policy = policy.with_context(|| {
        let name = &args.policy;
        format!("show policy \"{name}\": there is none; `fairpath sched list` has their names")
    })?;
    println!("{}: {}", policy.name, policy.about);
    Ok(())
}
