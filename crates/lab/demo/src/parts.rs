//! The parts of the demo: which traffic passes the router.
//!
//! Each part has separate ports, which identify its flows in the samples.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use fairpath_testbed::{
    EchoServer, Iperf3, Iperf3Report, Iperf3Server, Netns, Ping, PingReport, Router,
    ShortConnections, ShortReport,
};

use crate::kernel::while_sampling;
use crate::lab::Lab;
use crate::loss::{ConfiguredLoss, Place};
use crate::outcome::{Block, Outcome, Peer};
use crate::samples::{BULK_BYTES, Traffic};
use crate::spread::Spread;

/// Rate of a transfer: far from what keeps two CPUs busy.
const BITRATE_BPS: u64 = 16_000_000;
/// Streams of a transfer with loss; each is slow, and many packets make the interval narrow.
const LOSSY_STREAMS: u32 = 4;
/// The configured loss.
const LOSS: f64 = 0.01;
const PING_EVERY: Duration = Duration::from_millis(40);
/// Short connections: at once, and what each asks and gets.
const AT_ONCE: usize = 8;
const REQUEST_BYTES: u32 = 2_000;
const RESPONSE_BYTES: u32 = 20_000;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pings: u32,
    seconds: u32,
    connections: u64,
}

/// A part of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The title.
    pub title: &'static str,
    kind: Kind,
    port: u16,
    plan: Plan,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ping,
    Transfer { v6: bool, timestamps: bool },
    Lossy(Place),
    Short,
}

impl Plan {
    /// About 35 seconds.
    pub const FULL: Plan = Plan {
        pings: 50,
        seconds: 5,
        connections: 200,
    };
    /// About 20 seconds.
    pub const QUICK: Plan = Plan {
        pings: 20,
        seconds: 2,
        connections: 80,
    };

    /// All parts, in order.
    pub fn parts(self) -> Vec<Part> {
        let transfer = |v6, timestamps| Kind::Transfer { v6, timestamps };
        let kinds = [
            (Kind::Ping, "ping, IPv4 and IPv6, from both ends"),
            (transfer(false, true), "iperf3 over IPv4, both ways"),
            (transfer(true, true), "iperf3 over IPv6, both ways"),
            (
                transfer(false, false),
                "iperf3 over IPv4 without TCP timestamps, both ways",
            ),
            (Kind::Short, "short connections, IPv4 and IPv6"),
            (
                Kind::Lossy(Place::Before),
                "iperf3 with 1 % upstream loss (XDP dropper on lan)",
            ),
            (
                Kind::Lossy(Place::Beyond),
                "iperf3 with 1 % downstream loss (XDP dropper on the server)",
            ),
        ];
        (0..)
            .zip(kinds)
            .map(|(n, (kind, title))| Part {
                title,
                kind,
                port: 5300 + 10 * n,
                plan: self,
            })
            .collect()
    }
}

impl Part {
    /// Makes the traffic and waits for its end.
    pub fn run(&self, lab: &Lab) -> anyhow::Result<Outcome> {
        match self.kind {
            Kind::Ping => self.ping(lab),
            Kind::Transfer { v6, timestamps } => self.transfer(lab, v6, timestamps),
            Kind::Lossy(place) => self.lossy(lab, place),
            Kind::Short => self.short(lab),
        }
    }

    /// From both ends at once: each leg answers only what comes from the other side.
    fn ping(&self, lab: &Lab) -> anyhow::Result<Outcome> {
        let ping = |ip: IpAddr, ns: &Netns| {
            let ping = Ping::to(ip).count(self.plan.pings).interval(PING_EVERY);
            ping.run(ns)
        };
        let (to_server, to_client) = (Router::SERVER.both(), Router::CLIENT.both());
        let reports: Result<Vec<PingReport>, _> = thread::scope(|scope| {
            let there = to_server.map(|ip| scope.spawn(move || ping(ip, &lab.net.client)));
            let back = to_client.map(|ip| scope.spawn(move || ping(ip, &lab.net.server)));
            let all = there.into_iter().chain(back);
            all.map(|thread| thread.join().expect("reading a report does not panic"))
                .collect()
        });
        let reports = reports?;
        let sent: u32 = reports.iter().map(|report| report.sent).sum();
        let received: u32 = reports.iter().map(|report| report.received).sum();
        ensure!(
            sent == received,
            "{received} of {sent} echo requests answered"
        );
        let block = |v6: bool| {
            let mine = reports.iter().skip(usize::from(v6)).step_by(2);
            let times = mine.flat_map(|report| &report.times);
            let rtt = Spread::new(times.map(|time| time.as_secs_f64() * 1e3));
            Block {
                title: format!("ping over IPv{}", family(v6)),
                traffic: Traffic::Echo { v6 },
                v6,
                peer: Some(Peer {
                    name: "ping reports",
                    min_ms: rtt.min(),
                    rtt,
                }),
            }
        };
        Ok(Outcome {
            blocks: vec![block(false), block(true)],
            ..Outcome::headline(format!("{received} of {sent} answered"))
        })
    }

    fn transfer(&self, lab: &Lab, v6: bool, timestamps: bool) -> anyhow::Result<Outcome> {
        set_timestamps(lab, timestamps)?;
        let done = self.both_directions(lab, v6, 1);
        set_timestamps(lab, true)?;
        let seen = if timestamps {
            ""
        } else {
            " without timestamps"
        };
        let title = format!("iperf3 over IPv{}{seen}", family(v6));
        Ok(self.transferred(title, v6, done?))
    }

    fn lossy(&self, lab: &Lab, place: Place) -> anyhow::Result<Outcome> {
        let dropper = place.attach(lab, LOSS)?;
        let done = self.both_directions(lab, false, LOSSY_STREAMS)?;
        let configured = ConfiguredLoss::new(place, dropper.counts());
        let title = format!("iperf3, {} % lost {place}", LOSS * 100.0);
        let mut outcome = self.transferred(title, false, done);
        let (dropped, eligible) = (configured.dropped, configured.eligible);
        outcome.headline += &format!("; {dropped} of {eligible} packets up dropped");
        outcome.configured = Some(configured);
        Ok(outcome)
    }

    /// Up and down at once, so that data passes towards both sides.
    fn both_directions(
        &self,
        lab: &Lab,
        v6: bool,
        streams_up: u32,
    ) -> anyhow::Result<([Iperf3Report; 2], Peer)> {
        let ports = self.ports();
        let servers = ports.map(|port| Iperf3Server::start(&lab.net.server, port));
        let _servers = servers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let [up, down] = ports.map(|port| {
            let transfer = Iperf3::to(Router::SERVER.both()[usize::from(v6)], port);
            transfer
                .seconds(self.plan.seconds)
                .bitrate_bps(BITRATE_BPS)
                .congestion("cubic")
        });
        let both = [up.parallel(streams_up), down.reverse()];
        let [up, down] = both.map(|transfer| transfer.start(&lab.net.client));
        let (up, down) = (up?, down?);
        while_sampling(lab, ports, || Ok([up.finish()?, down.finish()?]))
    }

    fn transferred(
        &self,
        title: String,
        v6: bool,
        ([up, down], peer): ([Iperf3Report; 2], Peer),
    ) -> Outcome {
        let traffic = Traffic::Tcp {
            ports: self.ports(),
            min_bytes: BULK_BYTES,
        };
        let [up_mbps, down_mbps] = [&up, &down].map(|report| report.goodput_bps / 1e6);
        Outcome {
            blocks: vec![Block {
                title,
                traffic,
                v6,
                peer: Some(peer),
            }],
            retransmits: vec![up.retransmits, down.retransmits],
            ..Outcome::headline(format!(
                "{up_mbps:.1} Mbit/s up, {down_mbps:.1} Mbit/s down"
            ))
        }
    }

    /// Of the servers: for what goes up, for what comes down.
    fn ports(&self) -> [u16; 2] {
        [self.port, self.port + 1]
    }

    fn short(&self, lab: &Lab) -> anyhow::Result<Outcome> {
        let _server = EchoServer::start(&lab.net.server, self.port)?;
        let wanted = ShortConnections {
            connections: self.plan.connections / 2,
            at_once: AT_ONCE,
            request_bytes: REQUEST_BYTES,
            response_bytes: RESPONSE_BYTES,
        };
        let mut reports: Vec<ShortReport> = Vec::new();
        for ip in Router::SERVER.both() {
            reports.push(wanted.run(&lab.net.client, ip, self.port)?);
        }
        let completed: u64 = reports.iter().map(|report| report.completed).sum();
        let elapsed: Duration = reports.iter().map(|report| report.elapsed).sum();
        let made = 2 * wanted.connections;
        let block = Block {
            title: "short connections".to_owned(),
            traffic: Traffic::Tcp {
                ports: self.ports(),
                min_bytes: 0,
            },
            v6: false,
            peer: None,
        };
        Ok(Outcome {
            blocks: vec![block],
            connections: Some((completed, made)),
            ..Outcome::headline(format!(
                "{completed} of {made} answered in {:.1} s",
                elapsed.as_secs_f64()
            ))
        })
    }
}

fn family(v6: bool) -> u8 {
    if v6 { 6 } else { 4 }
}

fn set_timestamps(lab: &Lab, on: bool) -> anyhow::Result<()> {
    for ns in [&lab.net.client, &lab.net.server] {
        ns.set_tcp_timestamps(on)?;
    }
    Ok(())
}
