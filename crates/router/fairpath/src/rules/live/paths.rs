//! Paths of packets on which rules differ from iptables. TCPMSS at tcx egress: IPsec encrypts packets before, a
//! route adds labels before, and a route back has an MTU that programs cannot read. Types of addresses: a
//! route to this host is not in table local, where iptables looks.

use std::cell::OnceCell;

use fairpath_netlink::{LimitingRoute, Link, Links, ipsec_policies, limiting_routes, local_routes};
use fairpath_rules::Family;
use fairpath_units::{IfIndex, text};

/// `LWTUNNEL_ENCAP_IP`, `LWTUNNEL_ENCAP_IP6`: a device adds these headers, and has the program.
const BY_DEVICE: [u16; 2] = [2, 4];

/// A list, or why there is none.
type List<T> = OnceCell<Result<Vec<T>, String>>;

/// Policies and routes of this network namespace, listed when a rule depends on them.
#[derive(Default)]
pub struct Paths {
    is_read: bool,
    policies: List<String>,
    links: List<Link>,
    routes: [List<LimitingRoute>; 2],
    local: List<String>,
}

impl Paths {
    /// Those of now. The default has none.
    pub fn of_namespace() -> Paths {
        Paths {
            is_read: true,
            ..Paths::default()
        }
    }

    /// The reason if TCPMSS is not exact at tcx egress. `reads_mtu`: its limit is that of the path.
    pub fn obstacle(&self, family: Family, reads_mtu: bool) -> Option<String> {
        if !self.is_read {
            return None;
        }
        let found = self
            .find(family, reads_mtu)
            .map_err(|error| error.to_owned());
        found.unwrap_or_else(Some)
    }

    /// The reason if the route of a packet to this host may have another type than its destination: IPv4.
    pub fn local_elsewhere(&self) -> Option<String> {
        if !self.is_read {
            return None;
        }
        match listed(&self.local, || {
            local_routes().map_err(|error| error.to_string())
        }) {
            Ok(routes) => routes.first().map(|name| {
                format!(
                    "the route {name} leads to this host, and iptables looks in table local only"
                )
            }),
            Err(error) => Some(error.to_owned()),
        }
    }

    /// `Err`: something cannot be listed.
    fn find(&self, family: Family, reads_mtu: bool) -> Result<Option<String>, &str> {
        let policies = listed(&self.policies, || {
            ipsec_policies().map_err(|error| error.to_string())
        })?;
        if let Some(policy) = policies.iter().find(|name| name.ends_with("dir out")) {
            let policy = text::line(policy);
            return Ok(Some(format!(
                "IPsec encrypts packets before tcx egress: {policy}"
            )));
        }
        let is_ipv4 = family == Family::Ipv4;
        let routes = listed(&self.routes[usize::from(is_ipv4)], || {
            limiting_routes(is_ipv4).map_err(|error| error.to_string())
        })?;
        for route in routes {
            let name = &route.name;
            if route.tunnel.is_some_and(|kind| !BY_DEVICE.contains(&kind)) {
                return Ok(Some(format!(
                    "the route {name} adds headers before tcx egress"
                )));
            }
            let Some(mtu) = route.mtu.filter(|_| reads_mtu) else {
                continue;
            };
            if self.mtu_of(route.link, is_ipv4)? != Some(mtu) {
                let family = if is_ipv4 { "" } else { "-6 " };
                return Ok(Some(format!(
                    "programs cannot read the MTU of the route {name}: change it with `ip {family}route` to `mtu lock {mtu}`, or write --set-mss"
                )));
            }
        }
        Ok(None)
    }

    /// The MTU of an interface. A route with the same one differs from no other.
    fn mtu_of(&self, link: Option<IfIndex>, is_ipv4: bool) -> Result<Option<u32>, &str> {
        let links = listed(&self.links, || {
            Links::dump().map_err(|error| error.to_string())
        })?;
        let link = links.iter().find(|other| Some(other.ifindex) == link);
        Ok(link.and_then(|link| match is_ipv4 {
            true => Some(link.mtu_bytes),
            false => mtu_of_ipv6(&link.name),
        }))
    }
}

/// The MTU of IPv6 at an interface, which a router may have announced.
fn mtu_of_ipv6(name: &str) -> Option<u32> {
    let path = format!("/proc/sys/net/ipv6/conf/{name}/mtu");
    let text = std::fs::read_to_string(path).ok()?;
    text.trim().parse().ok()
}

fn listed<T>(list: &List<T>, read: impl FnOnce() -> Result<Vec<T>, String>) -> Result<&[T], &str> {
    match list.get_or_init(read) {
        Ok(found) => Ok(found),
        Err(error) => Err(error),
    }
}
