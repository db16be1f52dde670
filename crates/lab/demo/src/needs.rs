//! What the demo cannot do without, and the remedy where it is missing.

use anyhow::bail;
use fairpath_testbed::{Feature, Need, missing};

/// Every need, in the order in which they are tried, with its remedy.
const NEEDS: &[(Need, &str)] = &[
    (Need::Tool("ip"), "install it: apt install iproute2"),
    (
        Need::Root,
        "it makes network namespaces; run it as root (sudo), in a container with CAP_SYS_ADMIN, \
         CAP_NET_ADMIN and CAP_BPF",
    ),
    (Need::Tool("ss"), "install it: apt install iproute2"),
    (Need::Tool("ping"), "install it: apt install iputils-ping"),
    (Need::Tool("iperf3"), "install it: apt install iperf3"),
    (Need::Tool("ethtool"), "install it: apt install ethtool"),
    (
        Need::Kernel(Feature::Link("veth")),
        "modprobe veth, or a kernel with CONFIG_VETH",
    ),
];

/// The first need that is not met, with its remedy, as an error.
pub fn check() -> anyhow::Result<()> {
    for (need, remedy) in NEEDS {
        if missing(&[*need]).is_some() {
            bail!("needs {need}: {remedy}");
        }
    }
    Ok(())
}
