//! The project's automation.

mod vm;

use clap::Parser;

/// The project's automation
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    Vm(vm::Args),
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse() {
        Xtask::Vm(args) => vm::run(&args),
    }
}
