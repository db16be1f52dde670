//! `stages INTERFACE`: what packets of an interface pass in the stack, a line each.

use anyhow::{Context, Result};
use fairpath_netlink::{Device, Links, stages};

fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: stages INTERFACE")?;
    let link = Links::open()?.by_name(&name)?;
    let ifindex = link.context("no such interface")?.ifindex;
    for stage in stages(&[Device {
        ifindex,
        name: &name,
    }])? {
        println!("{stage}");
    }
    Ok(())
}
