//! XDP features of a driver (the `netdev` family, Linux 6.3 and newer). Read only; needs no
//! privilege.

use fairpath_units::IfIndex;

use crate::connection::NetlinkError;
use crate::genl::Family;
use crate::message::{attr, attr_u32, u64_at};

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_REDIRECT: u64 = 2;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
const NETDEV_XDP_ACT_RX_SG: u64 = 32;

/// XDP features of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Runs programs in the driver (drop, pass, send back).
    pub native: bool,
    /// Redirects to other devices, CPUs and AF_XDP sockets.
    pub redirect: bool,
    /// Accepts frames redirected to it.
    pub redirect_target: bool,
    /// Passes frames to AF_XDP sockets without copying.
    pub zero_copy: bool,
    /// Accepts frames larger than one buffer.
    pub multi_buffer: bool,
    /// Maximum of buffers per frame in zero-copy mode.
    pub zero_copy_segments: u32,
}

/// The netdev family of the calling thread's namespace.
#[derive(Debug)]
pub struct Netdev {
    family: Family,
}

impl Netdev {
    /// Opens a socket and finds the family; `ENOENT` means that the kernel has none.
    pub fn open() -> Result<Netdev, NetlinkError> {
        Ok(Netdev {
            family: Family::open("netdev")?,
        })
    }

    /// The features of the link's driver.
    pub fn xdp(&mut self, ifindex: IfIndex) -> Result<Option<XdpFeatures>, NetlinkError> {
        let request = self
            .family
            .request(NETDEV_CMD_DEV_GET)
            .attr_u32(NETDEV_A_DEV_IFINDEX, ifindex.0);
        self.family.query("read XDP features", request, |a| {
            let flags = attr(a, NETDEV_A_DEV_XDP_FEATURES).and_then(|v| u64_at(v, 0));
            let has = |bit| flags.unwrap_or(0) & bit != 0;
            XdpFeatures {
                native: has(NETDEV_XDP_ACT_BASIC),
                redirect: has(NETDEV_XDP_ACT_REDIRECT),
                redirect_target: has(NETDEV_XDP_ACT_NDO_XMIT),
                zero_copy: has(NETDEV_XDP_ACT_XSK_ZEROCOPY),
                multi_buffer: has(NETDEV_XDP_ACT_RX_SG),
                zero_copy_segments: attr_u32(a, NETDEV_A_DEV_XDP_ZC_MAX_SEGS).unwrap_or(0),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Links;

    #[test]
    fn the_loopback_has_no_native_xdp() {
        let Ok(mut netdev) = Netdev::open() else {
            fairpath_units::skip_test(
                "the_loopback_has_no_native_xdp",
                "netdev family",
                "kernel has no netdev family",
            );
            return;
        };
        let lo = Links::open().unwrap().by_name("lo").unwrap().unwrap();
        assert!(!netdev.xdp(lo.ifindex).unwrap().unwrap().native);
    }
}
