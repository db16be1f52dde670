//! Requirements of the demo, with the remedy for each.

use anyhow::bail;
use fairpath_testbed::{Feature, Need, missing};

/// Requirements in the order of their checks, with remedies.
const NEEDS: &[(Need, &str)] = &[
    (Need::Tool("ip"), "install it: apt install iproute2"),
    (
        Need::Root,
        "it creates network namespaces; run it with sudo, or in a container with CAP_SYS_ADMIN, \
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

/// Fails with the first missing requirement and its remedy.
pub fn check() -> anyhow::Result<()> {
    for (need, remedy) in NEEDS {
        if missing(&[*need]).is_some() {
            bail!("the demo needs {need}: {remedy}");
        }
    }
    Ok(())
}
