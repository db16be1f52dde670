//! Both interfaces, as they are when the port is opened: what is forwarded between them, and by which rings.

use anyhow::{Context, bail};
use fairpath_afxdp::{LinkQueue, MAX_FRAMES, Placement, Plan, Port, QueueId};
use fairpath_bpf::{Exit, ForwardPlan, Forwarding, SenderCheck};
use fairpath_netlink::{Ethtool, Link, Links};
use fairpath_shape::{Both, Side};

use crate::Mode;

/// Entries of each ring.
const RING: u32 = 2048;

/// Receive queues of a link now; 1 if its driver does not report them.
pub fn receive_queues(link: &Link) -> u32 {
    let channels = Ethtool::open().and_then(|mut ethtool| ethtool.channels(link.ifindex));
    let channels = channels.ok().flatten();
    channels.map_or(1, |channels| (channels.combined + channels.rx).max(1))
}

/// Of a one-armed bridge or router: inside, outside.
pub type Vlans = Option<[u16; 2]>;

/// Both interfaces as they are now.
pub struct Ends {
    /// The command that asks, for messages.
    who: &'static str,
    pub inside: Link,
    pub outside: Link,
    macs: Both<[u8; 6]>,
    /// Of their bridge.
    bridge: Option<[u8; 6]>,
    queues: Both<u32>,
    /// VLAN devices of the inside interface.
    vlans: Vec<Link>,
}

impl Ends {
    /// For the command `who`.
    pub fn look(who: &'static str, inside: Link, outside: Link) -> anyhow::Result<Ends> {
        let all = Links::open()?.list()?;
        let bridge = inside.master.and_then(|master| {
            let link = all.iter().find(|link| link.ifindex == master)?;
            mac_of(who, &link.name).ok()
        });
        Ok(Ends {
            macs: Both {
                down: mac_of(who, &inside.name)?,
                up: mac_of(who, &outside.name)?,
            },
            queues: Both {
                down: receive_queues(&inside),
                up: receive_queues(&outside),
            },
            bridge,
            who,
            vlans: all
                .into_iter()
                .filter(|link| link.is_kind("vlan") && link.lower == Some(inside.ifindex))
                .collect(),
            inside,
            outside,
        })
    }

    /// Bridge if both are ports of one bridge or distinguished by VLANs, router otherwise.
    pub fn mode(&self, wanted: Option<Mode>) -> anyhow::Result<Mode> {
        let (a, b) = (&self.inside, &self.outside);
        let bridged = a.master.is_some() && a.master == b.master && self.bridge.is_some();
        let one_armed = a.ifindex == b.ifindex;
        match wanted {
            None if bridged || one_armed => Ok(Mode::Bridge),
            None => Ok(Mode::Router),
            Some(Mode::Bridge) if !bridged && !one_armed => bail!(
                "{} via afxdp as a bridge: {:?} and {:?} are not ports of one bridge, which must forward broadcasts, and everything without this process: \
                 add both to a bridge (ip link set {} master br0)",
                self.who,
                a.name,
                b.name,
                a.name
            ),
            Some(mode) => Ok(mode),
        }
    }

    /// The interface that routes name for a VLAN: its device.
    fn vlan_device(&self, vlan: u16) -> anyhow::Result<&Link> {
        let is_its = |link: &&Link| link.vlan_id.is_some_and(|id| id.0 == vlan);
        self.vlans.iter().find(is_its).with_context(|| {
            let (who, name) = (self.who, &self.inside.name);
            format!(
                "{who} via afxdp as a router on {name:?}: it has no device for VLAN {vlan}, which routes need: \
                 add one (ip link add link {name} name {name}.{vlan} type vlan id {vlan}), or use mode = \"bridge\""
            )
        })
    }

    /// The devices whose stages packets pass by.
    pub fn passed(&self, mode: Mode, vlans: Vlans) -> anyhow::Result<Vec<[&Link; 2]>> {
        let mut passed = vec![[&self.inside, &self.outside]];
        if let (Mode::Router, Some([a, b])) = (mode, vlans) {
            passed.push([self.vlan_device(a)?, self.vlan_device(b)?]);
        }
        Ok(passed)
    }

    fn exit(&self, side: Side, mode: Mode, vlans: Vlans) -> anyhow::Result<Exit> {
        let (link, vlan) = match side {
            Side::Down => (&self.inside, vlans.unwrap_or_default()[0]),
            Side::Up => (&self.outside, vlans.unwrap_or_default()[1]),
        };
        let mut exit = Exit {
            ifindex: link.ifindex,
            route: link.ifindex,
            end: side.end(),
            mtu: link.mtu_bytes,
            vlan,
            mac: *self.macs.get(side),
            stack_seen: true,
            sender: SenderCheck::default(),
        };
        if mode == Mode::Router && vlan != 0 {
            let device = self.vlan_device(vlan)?;
            (exit.route, exit.mtu) = (device.ifindex, device.mtu_bytes);
            exit.mac = mac_of(self.who, &device.name)?;
            exit.sender = sender_check(self.who, &device.name)?;
        } else if mode == Mode::Router {
            exit.sender = sender_check(self.who, &link.name)?;
        }
        Ok(exit)
    }

    pub fn plan(&self, mode: Mode, vlans: Vlans) -> anyhow::Result<ForwardPlan> {
        let mut own = vec![self.macs.down, self.macs.up];
        own.extend(self.bridge);
        own.dedup();
        Ok(ForwardPlan {
            forwarding: match mode {
                Mode::Bridge => Forwarding::Bridge,
                Mode::Router => Forwarding::Router,
            },
            exits: [
                self.exit(Side::Down, mode, vlans)?,
                self.exit(Side::Up, mode, vlans)?,
            ],
            own: match mode {
                Mode::Bridge => own,
                Mode::Router => Vec::new(),
            },
        })
    }

    pub fn is_one_armed(&self) -> bool {
        self.inside.ifindex == self.outside.ifindex
    }
}

/// The check of senders that the kernel makes on an interface.
pub fn sender_check(who: &str, name: &str) -> anyhow::Result<SenderCheck> {
    let value = fairpath_netlink::rp_filter(name)
        .with_context(|| format!("{who} {name:?} via afxdp: read rp_filter"))?;
    let mut addresses = nix::ifaddrs::getifaddrs().context("list the addresses of interfaces")?;
    let has_address = addresses.any(|address| {
        let ip = address.address.and_then(|ip| ip.as_sockaddr_in().copied());
        address.interface_name == name && ip.is_some()
    });
    Ok(SenderCheck::of_rp_filter(value, has_address))
}

fn mac_of(who: &str, name: &str) -> anyhow::Result<[u8; 6]> {
    let addresses = nix::ifaddrs::getifaddrs().context("list the addresses of interfaces")?;
    addresses
        .filter(|address| address.interface_name == name)
        .find_map(|address| address.address?.as_link_addr()?.addr())
        .with_context(|| format!("{who} {name:?} via afxdp: it has no MAC address: use via = \"nfqueue\" or \"kernel\""))
}

/// The receive queues of a worker: inside, outside. An interface that is both has inside ones only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rings(Both<Vec<u32>>);

impl Rings {
    /// Those of worker `worker` of `workers`: each has the same numbers on both interfaces, and so both directions of
    /// a flow where the NICs choose alike.
    pub fn of(ends: &Ends, worker: u32, workers: u32) -> Rings {
        let mine = |side: Side| {
            let all = 0..*ends.queues.get(side);
            all.filter(|queue| queue % workers == worker).collect()
        };
        Rings(Both {
            down: mine(Side::Down),
            up: match ends.is_one_armed() {
                true => Vec::new(),
                false => mine(Side::Up),
            },
        })
    }

    fn count(&self, side: Side) -> usize {
        self.0.get(side).len()
    }
}

impl Ends {
    /// Workers that each have a queue of both interfaces, at most.
    pub fn most_workers(&self) -> u32 {
        match self.is_one_armed() {
            true => self.queues.down,
            false => self.queues.down.min(self.queues.up),
        }
    }
}

/// A port of these queues whose user may hold `held` packets at once, how many frames it has, and where it runs.
/// `taken`: CPUs of other workers.
pub fn open_port(
    ends: &Ends,
    rings: &Rings,
    held: u32,
    taken: &[u32],
) -> anyhow::Result<(Port, u32, Placement)> {
    let mut queues = Vec::new();
    for (link, side) in [(&ends.inside, Side::Down), (&ends.outside, Side::Up)] {
        queues.extend(rings.0.get(side).iter().map(|queue| LinkQueue {
            ifindex: link.ifindex,
            name: link.name.clone(),
            queue: *queue,
        }));
    }
    let placement = Placement::of(&queues, taken);
    let mtu = ends.inside.mtu_bytes.max(ends.outside.mtu_bytes);
    let mut plan = Plan::new(queues).sized(RING, held).for_mtu(mtu);
    plan.node = placement.node;
    if plan.frames > MAX_FRAMES {
        let rings = plan.frames - held.saturating_mul(plan.parts);
        let most = (MAX_FRAMES - rings.min(MAX_FRAMES)) / plan.parts;
        bail!(
            "hold {held} packets via afxdp: it has frames for {most}: lower [shape] packets or --max-packets, \
             which count in each direction, or use via = \"nfqueue\" or \"kernel\""
        );
    }
    let frames = plan.frames;
    Ok((Port::open(&plan)?, frames, placement))
}

/// Each queue of one interface with one of the other; of one interface, with itself.
pub fn pairs(ends: &Ends, rings: &Rings) -> Vec<(QueueId, QueueId)> {
    let (a, b) = (rings.count(Side::Down), rings.count(Side::Up));
    if ends.is_one_armed() {
        return (0..a)
            .map(|queue| (QueueId(queue), QueueId(queue)))
            .collect();
    }
    let paired = (0..a.min(b)).map(|queue| (QueueId(queue), QueueId(a + queue)));
    // What is left over receives; it leaves by the note's exit.
    let rest = (a.min(b)..a).map(|queue| (QueueId(queue), QueueId(queue)));
    let rest_b = (a.min(b)..b).map(|queue| (QueueId(a + queue), QueueId(a + queue)));
    paired.chain(rest).chain(rest_b).collect()
}

/// The queue by which each side's packets leave.
pub fn first_queues(ends: &Ends, rings: &Rings) -> Both<QueueId> {
    Both {
        down: QueueId(0),
        up: match ends.is_one_armed() {
            true => QueueId(0),
            false => QueueId(rings.count(Side::Down)),
        },
    }
}

/// The back end in words, with how each worker's port receives and sends.
pub fn about(ends: &Ends, mode: Mode, ports: &[&Port], workers: &str) -> String {
    let mode = match (mode, ends.is_one_armed()) {
        (Mode::Bridge, true) => "bridge between VLANs of",
        (Mode::Bridge, false) => "bridge between",
        (Mode::Router, _) => "router between",
    };
    let zero_copy = ports.iter().filter(|port| port.is_zero_copy()).count();
    let copy = match zero_copy {
        0 => "copied".to_owned(),
        n if n == ports.len() => "zero copy".to_owned(),
        n => format!("zero copy by {n} of {} workers", ports.len()),
    };
    let parts = match ports.iter().map(|port| port.parts()).max() {
        Some(parts @ 2..) => format!(", packets of up to {parts} frames"),
        _ => String::new(),
    };
    let [inside, outside] = [ends.queues.down, ends.queues.up]
        .map(|queues| fairpath_units::counted(queues as usize, "queue", "queues"));
    format!(
        "{mode} {} ({inside}) and {} ({outside}), {copy}{parts}; {workers}; the kernel forwards without this process",
        ends.inside.name, ends.outside.name
    )
}
