//! Interfaces and their settings, from rtnetlink, drivers, and fairpath-machine (sysfs and /proc).
//!
//! Settings are only read. A value that cannot be read is absent, never guessed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairpath_machine::{Cpus, Direction, Interrupt, InterruptLine, Machine, Nic, Queue};
use fairpath_netlink::{
    ArpType, Channels, Ethtool, FlowHash, FlowKind, Link, Links, Netdev, NetlinkError, Offloads,
    Qdisc, Tc, XdpMode,
};
use fairpath_units::IfIndex;
use fairpath_units::text::shell_word;
use serde::Serialize;

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
    pub numa_cpus: Cpus,
    /// True if sysfs shows this interface, and not those of another network namespace.
    pub sysfs: bool,
    pub queues: Queues,
    pub channels: Option<ChannelCounts>,
    pub rings: Option<Ring>,
    pub irqs: Vec<Interrupt>,
    pub rss: Option<Rss>,
    /// Fields of the receive hash by kind of flow, as far as the driver shows them.
    pub hash_fields: BTreeMap<&'static str, Vec<&'static str>>,
    pub rx_queues: Vec<RxQueue>,
    pub tx_queues: Vec<TxQueue>,
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

/// Channels of each kind, now and at most.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ChannelCounts {
    pub combined: u32,
    pub combined_max: u32,
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// A receive queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RxQueue {
    pub queue: u32,
    /// CPUs that process its packets in software; empty: off, `None`: not shown.
    pub rps_cpus: Option<Cpus>,
}

/// A transmit queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TxQueue {
    pub queue: u32,
    /// CPUs that use it; empty: not set, `None`: not shown.
    pub xps_cpus: Option<Cpus>,
    /// The kind of its qdisc below `mq` and its relatives.
    pub qdisc: Option<String>,
}

/// The distribution of received packets to queues by the RSS table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rss {
    pub indirection_entries: usize,
    pub queues_used: usize,
    pub queues_unused: Vec<u32>,
    /// True if the used queues have equally many entries, or one more.
    pub equal: bool,
    pub has_key: bool,
}

impl Rss {
    /// Of a table that is not empty, for `queues` receive queues.
    pub fn of(indirection: &[u32], queues: u32, has_key: bool) -> Rss {
        let mut entries: BTreeMap<u32, usize> = BTreeMap::new();
        for queue in indirection {
            *entries.entry(*queue).or_default() += 1;
        }
        let (min, max) = (entries.values().min(), entries.values().max());
        Rss {
            indirection_entries: indirection.len(),
            queues_used: entries.len(),
            queues_unused: (0..queues).filter(|q| !entries.contains_key(q)).collect(),
            equal: min.zip(max).is_some_and(|(min, max)| max - min <= 1),
            has_key,
        }
    }
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

    /// Its name as a shell reads it.
    pub fn shell_name(&self) -> Cow<'_, str> {
        shell_word(&self.name)
    }

    pub fn offload(&self, name: &str) -> Offload {
        self.offloads.get(name).copied().unwrap_or_default()
    }
}

/// All interfaces of this namespace, by index.
pub fn collect(machine: &Machine) -> Result<Vec<Interface>, NetlinkError> {
    let mut query = Query {
        machine,
        ethtool: Ethtool::open().ok(),
        flow_hash: FlowHash::open().ok(),
        netdev: Netdev::open().ok(),
        qdiscs: Tc::open()?.qdiscs()?,
        interrupts: machine.interrupt_lines(),
    };
    let links = Links::dump()?;
    Ok(links.iter().map(|link| query.describe(link)).collect())
}

/// The queries of each link.
struct Query<'a> {
    machine: &'a Machine,
    ethtool: Option<Ethtool>,
    flow_hash: Option<FlowHash>,
    netdev: Option<Netdev>,
    qdiscs: Vec<Qdisc>,
    interrupts: Vec<InterruptLine>,
}

impl Query<'_> {
    fn describe(&mut self, link: &Link) -> Interface {
        let machine = self.machine;
        // Sysfs may show another namespace, where the name may be another interface's.
        let nic = Some(machine.nic(&link.name)).filter(|nic| nic.ifindex() == Some(link.ifindex.0));
        let nic = nic.as_ref();
        let (rx, tx) = (queues(nic, Direction::Rx), queues(nic, Direction::Tx));
        let channels = self.channels(link.ifindex);
        let queues = queue_counts(link, (rx.len(), tx.len()), channels);
        let numa_node = nic.and_then(Nic::node);
        Interface {
            name: link.name.clone(),
            ifindex: link.ifindex.0,
            kind: kind(link, nic.is_some_and(Nic::has_device)),
            driver: nic.and_then(Nic::driver),
            link_type: link_type(link.arp_type),
            up: link.up,
            running: link.running,
            mtu_bytes: link.mtu_bytes,
            txqueuelen_packets: link.txqueuelen_packets,
            master_ifindex: link.master.map(|index| index.0),
            lower_ifindex: link.lower.map(|index| index.0),
            vlan_id: link.vlan_id.map(|id| id.0),
            numa_node,
            numa_cpus: numa_node.map_or_else(Cpus::default, |node| machine.cpus_of_node(node)),
            sysfs: nic.is_some(),
            rss: self.rss(link.ifindex, rx_channels(&queues, channels)),
            hash_fields: self.hash_fields(&link.name),
            queues,
            channels: channels.map(counts),
            rings: self.rings(link.ifindex),
            irqs: nic.map_or_else(Vec::new, |nic| nic.interrupts(&self.interrupts)),
            rps_masks: masks_that_are_set(&rx),
            xps_masks: masks_that_are_set(&tx),
            rx_queues: rx.into_iter().map(rx_queue).collect(),
            tx_queues: self.tx_queues(link.ifindex, tx),
            offloads: self.offloads(link.ifindex),
            qdisc: self.qdisc(link),
            xdp: self.xdp(link),
            advice: Vec::new(),
        }
    }

    fn channels(&mut self, ifindex: IfIndex) -> Option<Channels> {
        self.ethtool.as_mut()?.channels(ifindex).ok()?
    }

    fn tx_queues(&self, ifindex: IfIndex, queues: Vec<Queue>) -> Vec<TxQueue> {
        let kinds = qdiscs_of_queues(&self.qdiscs, ifindex);
        let queue = |queue: Queue| TxQueue {
            queue: queue.number,
            xps_cpus: queue.cpus,
            qdisc: kinds.get(&queue.number).cloned(),
        };
        queues.into_iter().map(queue).collect()
    }

    fn hash_fields(&self, name: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
        let fields = |kind: FlowKind| {
            let fields = self.flow_hash.as_ref()?.fields(name, kind).ok()?;
            Some((kind.name(), fields))
        };
        FlowKind::ALL.into_iter().filter_map(fields).collect()
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

    fn rss(&mut self, ifindex: IfIndex, queues: u32) -> Option<Rss> {
        let rss = self.ethtool.as_mut()?.rss(ifindex).ok()??;
        (!rss.indirection.is_empty()).then(|| Rss::of(&rss.indirection, queues, rss.has_key))
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
}

fn queues(nic: Option<&Nic<'_>>, direction: Direction) -> Vec<Queue> {
    nic.map_or_else(Vec::new, |nic| nic.queues(direction))
}

/// Queues in use: those in sysfs, otherwise those that the kernel allocated.
fn queue_counts(link: &Link, shown: (usize, usize), channels: Option<Channels>) -> Queues {
    let shown_or = |shown: usize, allocated| if shown > 0 { shown as u32 } else { allocated };
    let channels = channels.unwrap_or_default();
    let combined = channels.combined_max > 0;
    let (now, max) = match combined {
        true => (channels.combined, channels.combined_max),
        false => (channels.rx, channels.rx_max),
    };
    Queues {
        rx: shown_or(shown.0, link.rx_queues),
        tx: shown_or(shown.1, link.tx_queues),
        channels: now,
        channels_max: max,
        channels_combined: combined,
    }
}

/// Receive queues that a driver can choose by RSS.
fn rx_channels(queues: &Queues, channels: Option<Channels>) -> u32 {
    let counted = channels.map_or(0, |channels| channels.combined + channels.rx);
    if counted > 0 { counted } else { queues.rx }
}

fn counts(channels: Channels) -> ChannelCounts {
    ChannelCounts {
        combined: channels.combined,
        combined_max: channels.combined_max,
        rx: channels.rx,
        rx_max: channels.rx_max,
        tx: channels.tx,
        tx_max: channels.tx_max,
    }
}

fn rx_queue(queue: Queue) -> RxQueue {
    RxQueue {
        queue: queue.number,
        rps_cpus: queue.cpus,
    }
}

fn masks_that_are_set(queues: &[Queue]) -> Vec<String> {
    let cpus = queues.iter().filter_map(|queue| queue.cpus.as_ref());
    cpus.filter(|cpus| !cpus.is_empty())
        .map(Cpus::mask)
        .collect()
}

/// The kinds by transmit queue, where the root has a class for each queue: number 1 is queue 0.
fn qdiscs_of_queues(qdiscs: &[Qdisc], ifindex: IfIndex) -> BTreeMap<u32, String> {
    let major = |handle: u32| handle & 0xffff_0000;
    let of_link = || qdiscs.iter().filter(|qdisc| qdisc.ifindex == ifindex);
    let root = of_link()
        .find(|qdisc| qdisc.is_root() && ["mq", "mqprio", "taprio"].contains(&&*qdisc.kind));
    let Some(root) = root else {
        return BTreeMap::new();
    };
    of_link()
        .filter(|qdisc| !qdisc.is_root() && major(qdisc.parent) == major(root.handle))
        .filter_map(|qdisc| {
            let queue = (qdisc.parent & 0xffff).checked_sub(1)?;
            Some((queue, qdisc.kind.clone()))
        })
        .collect()
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
    fn rss_tables_show_unused_and_unequal_queues() {
        let rss = |table: &[u32]| Rss::of(table, 4, true);
        assert!(rss(&[0, 1, 2, 3, 0]).equal && rss(&[0, 1, 2, 3]).queues_unused.is_empty());
        let uneven = rss(&[0, 0, 0, 3]);
        assert_eq!(uneven.queues_unused, [1, 2]);
        assert!(!uneven.equal && uneven.queues_used == 2);
    }

    #[test]
    fn qdiscs_below_mq_belong_to_queues() {
        let qdisc = |kind: &str, index, handle, parent| Qdisc {
            ifindex: IfIndex(index),
            kind: kind.to_owned(),
            handle,
            parent,
        };
        let root = u32::MAX;
        let all = [
            qdisc("mq", 2, 0x8001_0000, root),
            qdisc("fq", 2, 0, 0x8001_0001),
            qdisc("cake", 2, 0, 0x8001_0010),
            qdisc("netem", 2, 0, 0x9000_0001),
            qdisc("clsact", 2, 0xffff_0000, 0xffff_fff1),
            qdisc("htb", 3, 0x1_0000, root),
            qdisc("fq", 3, 0, 0x1_0001),
        ];
        let kinds = |index| qdiscs_of_queues(&all, IfIndex(index));
        let expected = [(0, "fq".to_owned()), (15, "cake".to_owned())];
        assert_eq!(kinds(2), BTreeMap::from(expected));
        assert!(kinds(3).is_empty());
    }

    #[test]
    fn this_machines_loopback_is_described() {
        let all = collect(&Machine::real()).unwrap();
        let lo = all.iter().find(|i| i.name == "lo").unwrap();
        assert_eq!((lo.kind.as_str(), lo.driver.as_deref()), ("loopback", None));
        assert!(lo.irqs.is_empty());
    }
}
