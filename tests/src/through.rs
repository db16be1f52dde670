//! Forwarding by the monitor's own XDP program: monitor, port and forwarder, assembled.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fairpath_afxdp::{Arrival, Fifo, Forwarder, LinkQueue, Order, Outcome, Plan, Port, QueueId};
use fairpath_bpf::{
    Attached, Exit, ForwardPlan, Forwarding, Hook, Options, RttMonitor, SenderCheck, StackSent,
};
use fairpath_core::sched::{Change, End};
use fairpath_core::{Config, Rules};
use fairpath_netlink::rp_filter;
use fairpath_units::{IfIndex, Nanos};
use nix::net::if_::if_nametoindex;

/// Packets held for each interface.
const LIMIT: usize = 512;
/// The usual Ethernet's.
const MTU: u32 = 1500;

/// First in, first out; remembers what came, and can set CE in all that leaves.
pub struct Recorder {
    fifo: Fifo,
    /// The arrivals with their bytes, if they are wanted.
    pub seen: Option<Vec<(Arrival, Vec<u8>)>>,
    /// Set CE.
    pub mark: bool,
    /// Stops the thread for this long when packets leave, which is a pause ([`Order::max_pause`]).
    pub pause: Option<Duration>,
}

impl Recorder {
    /// Of nothing.
    pub fn forgetful(queues: usize) -> Recorder {
        Recorder {
            fifo: Fifo::new(queues, LIMIT),
            seen: None,
            mark: false,
            pause: None,
        }
    }
}

impl Order for Recorder {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        if let Some(seen) = &mut self.seen {
            seen.push((*arrival, packet.to_vec()));
        }
        self.fifo.arrive(arrival, packet, out);
    }

    fn leave(&mut self, to: QueueId, now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        let before = out.len();
        self.fifo.leave(to, now, capacity, out);
        for outcome in &mut out[before..] {
            if let (true, Outcome::Send(_, change)) = (self.mark, outcome) {
                *change = Change::MARK;
            }
        }
        if let (Some(pause), true) = (self.pause, out.len() > before) {
            thread::sleep(pause);
        }
    }

    fn max_pause(&self) -> Option<Nanos> {
        self.pause.map(|pause| Nanos(pause.as_nanos() as u64 / 2))
    }

    fn limit(&self) -> u32 {
        self.fifo.limit()
    }
}

/// An exit as a test names it.
#[derive(Clone, Debug)]
pub struct Named {
    /// The interface.
    pub name: String,
    /// The interface of the routes, if it is another.
    pub route: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its tag, 0 none.
    pub vlan: u16,
}

impl Named {
    /// Without a tag.
    pub fn new(name: &str, mac: [u8; 6]) -> Named {
        Named {
            name: name.to_owned(),
            route: name.to_owned(),
            mac,
            vlan: 0,
        }
    }

    /// With one.
    pub fn tagged(self, vlan: u16) -> Named {
        Named { vlan, ..self }
    }
}

/// The parts to assemble.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Towards subscribers, towards the internet.
    pub exits: [Named; 2],
    /// The forwarding mode.
    pub forwarding: Forwarding,
    /// MAC addresses of this host.
    pub own: Vec<[u8; 6]>,
    /// Of classes.
    pub rules: Rules,
    /// True if tcx programs watch both interfaces, too.
    pub tcx: bool,
    /// Frames that can be held.
    pub held: u32,
}

impl Setup {
    /// Bridge or router, watched by XDP alone, without classes.
    pub fn new(forwarding: Forwarding, exits: [Named; 2]) -> Setup {
        Setup {
            exits,
            forwarding,
            own: Vec::new(),
            rules: Rules::default(),
            tcx: false,
            held: 8192,
        }
    }

    /// Loads, opens and attaches, in the thread's network namespace.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn open(&self) -> Result<Through> {
        let config = Config::default().with_flows(1024).with_classes(16);
        let mut monitor = RttMonitor::load(&Options::live(config).with_forwarding())?;
        monitor.set_rules(&self.rules, &[])?;
        let plan = self.plan()?;
        let mut links: Vec<(IfIndex, &str)> = Vec::new();
        for (exit, named) in plan.exits.iter().zip(&self.exits) {
            if !links.contains(&(exit.ifindex, &named.name)) {
                links.push((exit.ifindex, &named.name));
            }
        }
        let queue = |&(ifindex, name): &(IfIndex, &str)| LinkQueue {
            ifindex,
            name: name.to_owned(),
            queue: 0,
        };
        let plan_of_port = Plan::new(links.iter().map(queue).collect());
        let port = Port::open(&plan_of_port.sized(2048, self.held))?;
        monitor.set_forwarding(&plan)?;
        for (exit, one) in plan.exits.iter().enumerate() {
            for (link, fd) in port.sockets().filter(|(l, _)| l.ifindex == one.ifindex) {
                monitor.set_socket(exit, link.queue, fd)?;
            }
        }
        let mut attached = Vec::new();
        for (ifindex, name) in &links {
            for hook in [Hook::TcxIngress, Hook::TcxEgress] {
                if self.tcx || hook == Hook::TcxEgress {
                    attached.push(monitor.attach(hook, *ifindex, name, false)?);
                }
            }
            attached.push(monitor.attach_forward(*ifindex, name)?);
        }
        let last = QueueId(links.len() - 1);
        let order = Recorder::forgetful(port.len());
        let exits = plan.exits.map(|exit| exit.ifindex);
        let forwarder = Forwarder::with_exits(port, &[(QueueId(0), last)], &exits, order)?;
        let stack_sent = monitor.stack_sent()?;
        Ok(Through {
            forwarder,
            monitor,
            stack_sent,
            attached,
        })
    }

    fn plan(&self) -> Result<ForwardPlan> {
        let exit = |(named, end): (&Named, End)| -> Result<Exit> {
            Ok(Exit {
                ifindex: ifindex(&named.name)?,
                route: ifindex(&named.route)?,
                end,
                mtu: MTU,
                vlan: named.vlan,
                mac: named.mac,
                stack_seen: self.tcx,
                sender: SenderCheck::of_rp_filter(rp_filter(&named.route)?, true),
            })
        };
        let [inside, outside] = &self.exits;
        Ok(ForwardPlan {
            forwarding: self.forwarding,
            exits: [
                exit((inside, End::Receiver))?,
                exit((outside, End::Sender))?,
            ],
            own: self.own.clone(),
        })
    }
}

fn ifindex(name: &str) -> Result<IfIndex> {
    let index = if_nametoindex(name).with_context(|| format!("look up {name}"))?;
    Ok(IfIndex(index))
}

/// Everything, running as soon as the forwarder turns.
pub struct Through {
    /// To be turned, here or on a thread.
    pub forwarder: Forwarder<Recorder>,
    /// The monitor, which leads packets to the forwarder.
    pub monitor: RttMonitor,
    /// The packets that the stack sends alone.
    pub stack_sent: StackSent,
    /// The attachments.
    pub attached: Vec<Attached>,
}
