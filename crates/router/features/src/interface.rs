//! Interfaces and their settings, from rtnetlink, drivers, sysfs and /proc.
//!
//! Settings are only read. A value that cannot be read is absent, never guessed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fairpath_netlink::{
    ArpType, Ethtool, Link, Links, Netdev, NetlinkError, Offloads, Qdisc, Tc, XdpMode,
};
use fairpath_units::IfIndex;
use serde::Serialize;

use super::parse::{self, InterruptLine};

/// The offloads that matter to a router: the kernel's name and the common name.
const OFFLOADS: [(&str, &str); 10] = [
    ("rx-gro", "gro"),
    ("rx-lro", "lro"),
    ("tx-generic-segmentation", "gso"),
    ("tx-tcp-segmentation", "tso"),
    ("rx-checksum", "rx-checksum"),
    ("tx-checksum-ip-generic", "tx-checksum"),
    ("rx-vlan-hw-parse", "rx-vlan"),
    ("tx-vlan-hw-insert", "tx-vlan"),
    ("rx-hashing", "rxhash"),
    ("rx-ntuple-filter", "ntuple"),
];
/// Bytes of a page that a driver reserves before a frame (`XDP_PACKET_HEADROOM`) ...
const XDP_HEADROOM_BYTES: u32 = 256;
/// ... and after it (`struct skb_shared_info`, on 64-bit), in addition to the Ethernet header.
const XDP_TAILROOM_BYTES: u32 = 320;
const PAGE_BYTES: u32 = 4096;
const ETHERNET_HEADER_BYTES: u32 = 14;
/// The largest MTU whose frames fit one 4 KiB buffer; drivers may reserve slightly more.
pub const XDP_SINGLE_BUFFER_MTU_BYTES: u32 =
    PAGE_BYTES - XDP_HEADROOM_BYTES - XDP_TAILROOM_BYTES - ETHERNET_HEADER_BYTES;

/// One interface.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interface {
    pub name: String,
    pub ifindex: u32,
    /// `physical`, `loopback`, or the kernel's kind of virtual link.
    pub kind: String,
    pub driver: Option<String>,
    /// Link-layer header: `ethernet`, `ppp`, `none`, ...
    pub link_type: String,
    pub up: bool,
    pub running: bool,
    pub mtu_bytes: u32,
    pub txqueuelen_packets: u32,
    pub master_ifindex: Option<u32>,
    pub lower_ifindex: Option<u32>,
    pub vlan_id: Option<u16>,
    pub numa_node: Option<u32>,
    pub numa_cpus: Vec<u32>,
    pub queues: Queues,
    pub rings: Option<Ring>,
    pub irqs: Vec<Irq>,
    pub rss: Option<Rss>,
    /// The CPU masks that are set, by receive queue.
    pub rps_masks: Vec<String>,
    /// The CPU masks that are set, by transmit queue.
    pub xps_masks: Vec<String>,
    pub offloads: BTreeMap<&'static str, Offload>,
    pub qdisc: RootQdisc,
    pub xdp: Xdp,
    pub advice: Vec<super::advice::Advice>,
}

/// Queues in use, and channels (queues with a separate interrupt) now and at most.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Queues {
    pub rx: u32,
    pub tx: u32,
    pub channels: u32,
    pub channels_max: u32,
    /// True if a channel serves both directions; if not, these are the receive channels.
    pub channels_combined: bool,
}

/// Descriptors, now and at most.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ring {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// One interrupt of the device's queues.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Irq {
    pub irq: u32,
    pub action: String,
    /// CPUs on which it may arrive.
    pub allowed_cpus: Vec<u32>,
    /// CPUs on which it arrives.
    pub effective_cpus: Vec<u32>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Rss {
    pub indirection_entries: usize,
    pub queues_used: usize,
    pub has_key: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Offload {
    pub on: bool,
    pub changeable: bool,
}

/// The root qdisc and its children.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RootQdisc {
    pub kind: Option<String>,
    pub children: usize,
    pub child_kinds: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Xdp {
    pub program_id: Option<u32>,
    pub program_mode: Option<&'static str>,
    /// Features that the driver reports; `None` if it reports none.
    pub driver: Option<XdpDriver>,
    /// About the largest MTU for native XDP with single buffers; `None` without native XDP.
    pub single_buffer_mtu_max_bytes: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct XdpDriver {
    pub native: bool,
    pub redirect: bool,
    pub redirect_target: bool,
    pub zero_copy: bool,
    pub multi_buffer: bool,
}

impl Interface {
    /// True if it is a device with a driver, real or of a virtual machine.
    pub fn is_physical(&self) -> bool {
        self.kind == "physical"
    }

    pub fn offload(&self, name: &str) -> Offload {
        self.offloads.get(name).copied().unwrap_or_default()
    }
}

/// All interfaces of this namespace, by index.
pub fn collect() -> Result<Vec<Interface>, NetlinkError> {
    let mut query = Query {
        ethtool: Ethtool::open().ok(),
        netdev: Netdev::open().ok(),
        qdiscs: Tc::open()?.qdiscs()?,
        interrupts: fs::read_to_string("/proc/interrupts")
            .map(|table| parse::interrupts(&table))
            .unwrap_or_default(),
    };
    let links = Links::dump()?;
    Ok(links.iter().map(|link| query.describe(link)).collect())
}

/// The queries of each link.
struct Query {
    ethtool: Option<Ethtool>,
    netdev: Option<Netdev>,
    qdiscs: Vec<Qdisc>,
    interrupts: Vec<InterruptLine>,
}

impl Query {
    fn describe(&mut self, link: &Link) -> Interface {
        let sysfs = Sysfs::of(link);
        let device = sysfs.as_ref().and_then(Sysfs::device);
        let numa_node = sysfs.as_ref().and_then(Sysfs::numa_node);
        Interface {
            name: link.name.clone(),
            ifindex: link.ifindex.0,
            kind: kind(link, device.is_some()),
            driver: device.as_deref().and_then(driver),
            link_type: link_type(link.arp_type),
            up: link.up,
            running: link.running,
            mtu_bytes: link.mtu_bytes,
            txqueuelen_packets: link.txqueuelen_packets,
            master_ifindex: link.master.map(|index| index.0),
            lower_ifindex: link.lower.map(|index| index.0),
            vlan_id: link.vlan_id.map(|id| id.0),
            numa_node,
            numa_cpus: numa_node.map(numa_cpus).unwrap_or_default(),
            queues: self.queues(link, sysfs.as_ref()),
            rings: self.rings(link.ifindex),
            irqs: device.map_or_else(Vec::new, |device| self.irqs(&device, &link.name)),
            rss: self.rss(link.ifindex),
            rps_masks: sysfs
                .as_ref()
                .map_or_else(Vec::new, |s| s.masks("rx-", "rps_cpus")),
            xps_masks: sysfs
                .as_ref()
                .map_or_else(Vec::new, |s| s.masks("tx-", "xps_cpus")),
            offloads: self.offloads(link.ifindex),
            qdisc: self.qdisc(link),
            xdp: self.xdp(link),
            advice: Vec::new(),
        }
    }

    fn queues(&mut self, link: &Link, sysfs: Option<&Sysfs>) -> Queues {
        let count = |prefix| sysfs.map_or(0, |s| s.queues(prefix).len() as u32);
        let channels = self
            .ethtool
            .as_mut()
            .and_then(|e| e.channels(link.ifindex).ok().flatten())
            .unwrap_or_default();
        let combined = channels.combined_max > 0;
        Queues {
            rx: Some(count("rx-"))
                .filter(|n| *n > 0)
                .unwrap_or(link.rx_queues),
            tx: Some(count("tx-"))
                .filter(|n| *n > 0)
                .unwrap_or(link.tx_queues),
            channels: if combined {
                channels.combined
            } else {
                channels.rx
            },
            channels_max: if combined {
                channels.combined_max
            } else {
                channels.rx_max
            },
            channels_combined: combined,
        }
    }

    fn rings(&mut self, ifindex: IfIndex) -> Option<Ring> {
        let rings = self.ethtool.as_mut()?.rings(ifindex).ok()??;
        Some(Ring {
            rx: rings.rx,
            rx_max: rings.rx_max,
            tx: rings.tx,
            tx_max: rings.tx_max,
        })
    }

    fn rss(&mut self, ifindex: IfIndex) -> Option<Rss> {
        let rss = self.ethtool.as_mut()?.rss(ifindex).ok()??;
        let mut queues = rss.indirection.clone();
        queues.sort_unstable();
        queues.dedup();
        (!rss.indirection.is_empty()).then_some(Rss {
            indirection_entries: rss.indirection.len(),
            queues_used: queues.len(),
            has_key: rss.has_key,
        })
    }

    fn offloads(&mut self, ifindex: IfIndex) -> BTreeMap<&'static str, Offload> {
        let requested: Option<Offloads> = self
            .ethtool
            .as_mut()
            .and_then(|e| e.offloads(ifindex).ok().flatten());
        let Some(requested) = requested else {
            return BTreeMap::new();
        };
        let state = |name: &str| Offload {
            on: requested.is_on(name),
            changeable: requested.can_change(name),
        };
        let mut offloads: BTreeMap<&'static str, Offload> = OFFLOADS
            .iter()
            .map(|(kernel, name)| (*name, state(kernel)))
            .collect();
        // Older drivers split the checksum by protocol.
        if !requested.is_on("tx-checksum-ip-generic") && requested.is_on("tx-checksum-ipv4") {
            offloads.insert("tx-checksum", state("tx-checksum-ipv4"));
        }
        offloads
    }

    fn qdisc(&self, link: &Link) -> RootQdisc {
        let mut child_kinds: Vec<String> = self
            .qdiscs
            .iter()
            .filter(|q| q.ifindex == link.ifindex && !q.is_root())
            .filter(|q| q.kind != "clsact" && q.kind != "ingress")
            .map(|q| q.kind.clone())
            .collect();
        let children = child_kinds.len();
        child_kinds.sort_unstable();
        child_kinds.dedup();
        RootQdisc {
            kind: link.qdisc.clone(),
            children,
            child_kinds,
        }
    }

    fn xdp(&mut self, link: &Link) -> Xdp {
        let requested = self
            .netdev
            .as_mut()
            .and_then(|n| n.xdp(link.ifindex).ok().flatten());
        let driver = requested.map(|x| XdpDriver {
            native: x.native,
            redirect: x.redirect,
            redirect_target: x.redirect_target,
            zero_copy: x.zero_copy,
            multi_buffer: x.multi_buffer,
        });
        let native = driver.is_some_and(|d| d.native);
        Xdp {
            program_id: link.xdp.map(|x| x.program_id),
            program_mode: link.xdp.map(|x| mode(x.mode)),
            driver,
            single_buffer_mtu_max_bytes: native.then_some(XDP_SINGLE_BUFFER_MTU_BYTES),
        }
    }

    /// The device's interrupts by its bus; those that carry no packets are excluded.
    fn irqs(&self, device: &Path, name: &str) -> Vec<Irq> {
        let bus = device.parent().map(|parent| parent.join("msi_irqs"));
        let numbers = directory_numbers(&device.join("msi_irqs"));
        let numbers = if numbers.is_empty() {
            bus.map(|bus| directory_numbers(&bus)).unwrap_or_default()
        } else {
            numbers
        };
        self.interrupts
            .iter()
            .filter(|line| numbers.contains(&line.irq) && carries_packets(&line.action, name))
            .map(|line| Irq {
                irq: line.irq,
                action: line.action.clone(),
                allowed_cpus: irq_cpus(line.irq, "smp_affinity_list"),
                effective_cpus: irq_cpus(line.irq, "effective_affinity_list"),
            })
            .collect()
    }
}

/// Configuration, errors and mailboxes have interrupts too; drivers name them so.
fn carries_packets(action: &str, interface: &str) -> bool {
    let other = [
        "config", "async", "misc", "mailbox", "mbx", "aux", "control",
    ];
    action != interface && !other.iter().any(|word| action.contains(word))
}

fn irq_cpus(irq: u32, file: &str) -> Vec<u32> {
    fs::read_to_string(format!("/proc/irq/{irq}/{file}"))
        .map(|list| parse::cpu_list(&list))
        .unwrap_or_default()
}

/// The entries of a directory that are numbers.
fn directory_numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// An interface's directory in sysfs.
struct Sysfs {
    directory: PathBuf,
}

impl Sysfs {
    /// `None` if sysfs shows another namespace, where the name may be another interface's.
    fn of(link: &Link) -> Option<Sysfs> {
        let directory = Path::new("/sys/class/net").join(&link.name);
        let ifindex = fs::read_to_string(directory.join("ifindex")).ok()?;
        (ifindex.trim() == link.ifindex.to_string()).then_some(Sysfs { directory })
    }

    /// The device's directory, without symbolic links on the way.
    fn device(&self) -> Option<PathBuf> {
        fs::canonicalize(self.directory.join("device")).ok()
    }

    fn numa_node(&self) -> Option<u32> {
        let node = fs::read_to_string(self.directory.join("device/numa_node")).ok()?;
        node.trim().parse().ok() // -1: none
    }

    fn queues(&self, prefix: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.directory.join("queues")) else {
            return Vec::new();
        };
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.strip_prefix(prefix)?.parse::<u32>().ok()
        };
        let mut queues: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| number(path).is_some())
            .collect();
        queues.sort_by_key(number);
        queues
    }

    /// The masks that are set.
    fn masks(&self, prefix: &str, file: &str) -> Vec<String> {
        self.queues(prefix)
            .iter()
            .filter_map(|queue| fs::read_to_string(queue.join(file)).ok())
            .map(|mask| mask.trim().to_owned())
            .filter(|mask| parse::mask_is_set(mask))
            .collect()
    }
}

fn driver(device: &Path) -> Option<String> {
    let target = fs::read_link(device.join("driver")).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

fn numa_cpus(node: u32) -> Vec<u32> {
    fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))
        .map(|list| parse::cpu_list(&list))
        .unwrap_or_default()
}

fn kind(link: &Link, has_device: bool) -> String {
    match (&link.kind, link.arp_type) {
        (Some(kind), _) => kind.0.clone(),
        (None, ArpType::Loopback) => "loopback".to_owned(),
        (None, _) if has_device => "physical".to_owned(),
        (None, ArpType::Ppp) => "ppp".to_owned(),
        (None, _) => "virtual".to_owned(),
    }
}

fn link_type(arp_type: ArpType) -> String {
    match arp_type {
        ArpType::Ethernet => "ethernet".to_owned(),
        ArpType::Loopback => "loopback".to_owned(),
        ArpType::Ppp => "ppp".to_owned(),
        ArpType::None => "none".to_owned(),
        ArpType::Other(number) => format!("arphrd {number}"),
    }
}

fn mode(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Native => "native",
        XdpMode::Generic => "generic",
        XdpMode::Offloaded => "offloaded",
        XdpMode::Several => "several",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_without_packets_are_excluded() {
        assert!(carries_packets("virtio2-input.0", "eth0"));
        assert!(carries_packets("eth0-TxRx-0", "eth0"));
        assert!(carries_packets("mlx5_comp0@pci:0000:01:00.0", "eth0"));
        assert!(!carries_packets("virtio2-config", "eth0"));
        assert!(!carries_packets("mlx5_async0@pci:0000:01:00.0", "eth0"));
        assert!(!carries_packets("eth0", "eth0"));
    }

    #[test]
    fn this_machines_loopback_is_described() {
        let all = collect().unwrap();
        let lo = all.iter().find(|i| i.name == "lo").unwrap();
        assert_eq!((lo.kind.as_str(), lo.driver.as_deref()), ("loopback", None));
        assert!(lo.irqs.is_empty());
    }
}
