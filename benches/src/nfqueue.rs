//! Cost of a packet's visit to user space through NFQUEUE, compared with the C library in the same run.
//!
//! ```text
//! client ── lan [router: -j NFQUEUE, an answerer that accepts all] wan ── server
//! ```
//!
//! - one TCP flow with GSO, what it sends queued: its rate as a share of the rate without a queue. Both
//!   ends are on one CPU, the answerer on the other; ends on two CPUs reorder their own packets;
//! - ping, both ways queued: what two visits add. It runs on the answerer's CPU: waking another one that
//!   is idle takes longer, in a virtual machine, than all that is measured;
//! - UDP of 64 bytes at IP, more than can be answered (64 a system call, segmented where they leave the
//!   client), the answerer on another CPU: its CPU time a packet. It includes the packet's further way
//!   through the router, which runs inside the verdict's system call.
//!
//! Answerers take turns within each round; ratios are of the same round. They go before other processes,
//! and so does all of this session, as long as it lasts.

mod answerer;
mod report;

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_testbed::{Iperf3, Iperf3Server, Offloads, Ping, Router, Testbed};
use nix::sys::socket::{setsockopt, sockopt};

use answerer::{Answerer, Answerers};
pub use answerer::{Args as AnswerArgs, answer};
use report::Lists;
pub use report::NfqueueReport;

use crate::cpus::{Ahead, settle};
use crate::measure::Measured;

/// Payload that makes 64 bytes with the headers of UDP and IPv4.
const UDP_PAYLOAD: usize = 36;
/// Datagrams of one system call.
const UDP_AT_ONCE: usize = 64;
const DATA_RULE: &str = "FORWARD -i lan -j NFQUEUE --queue-num 0";
const BOTH_RULE: &str = "FORWARD -j NFQUEUE --queue-num 0";

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds of all answerers
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Seconds of each TCP flow and each UDP flood
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// Echo requests of each ping
    #[arg(long, default_value_t = 500)]
    pings: u32,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            rounds: 9,
            seconds: 1,
            pings: 500,
        }
    }
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails; it needs root, `iptables`, `iperf3`, `ping` and the C library.
pub fn run(args: &Args) -> anyhow::Result<NfqueueReport> {
    if args.rounds == 0 || args.seconds == 0 || args.pings == 0 {
        bail!("nothing to measure: give at least one round, one second and one ping");
    }
    let bench = Bench::build(args)?;
    let mut without = Lists::default();
    let mut with: [Lists; Answerer::ALL.len()] = Default::default();
    for _ in 0..args.rounds {
        without.tcp.push(bench.tcp(None)?);
        without.ping.push(bench.ping(None)?);
        for (who, lists) in Answerer::ALL.into_iter().zip(&mut with) {
            lists.tcp.push(bench.tcp(Some(who))?);
            lists.ping.push(bench.ping(Some(who))?);
            let (cpu, pps) = bench.udp(who)?;
            lists.cpu.push(cpu);
            lists.pps.push(pps);
        }
    }
    Ok(NfqueueReport::of(without, with))
}

struct Bench {
    net: Router,
    server: Iperf3Server,
    answerers: Answerers,
    args: Args,
    _ahead: Ahead,
}

/// The CPU of sender and receiver.
const ENDS_CPU: usize = 0;
/// The CPU of the answerer.
const ANSWERER_CPU: usize = 1;

impl Bench {
    fn build(args: &Args) -> anyhow::Result<Bench> {
        let answerers = Answerers::prepare()?;
        let net = Router::builder()
            .offloads(Offloads::On)
            .build(&Testbed::new())?;
        let server = Iperf3Server::start(&net.server, 5201)?;
        // The flood ends before a socket would be looked for.
        let drop = [
            "iptables",
            "-w",
            "-t",
            "raw",
            "-A",
            "PREROUTING",
            "-p",
            "udp",
            "-j",
            "DROP",
        ];
        net.server.run(&drop)?;
        // Datagrams are segmented before they leave; each is then a separate packet.
        let segment = ["ethtool", "-K", "eth0", "tx-udp-segmentation", "off"];
        net.client.run(&segment)?;
        Ok(Bench {
            net,
            server,
            answerers,
            args: args.clone(),
            _ahead: Ahead::of_others(),
        })
    }

    fn rule(&self, operation: &str, rule: &str) -> anyhow::Result<()> {
        let argv = ["iptables", "-w", operation]
            .into_iter()
            .chain(rule.split(' '));
        self.net.router.run(&argv.collect::<Vec<_>>())?;
        Ok(())
    }

    /// With the answerer running and the rule in place, if there is one.
    fn queued<T>(
        &self,
        who: Option<Answerer>,
        rule: &str,
        f: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Some(who) = who else { return f() };
        let _answering = self.answerers.start(who, &self.net.router, ANSWERER_CPU)?;
        self.rule("-A", rule)?;
        let result = f();
        self.rule("-D", rule)?;
        result.with_context(|| format!("with {}", who.name()))
    }

    /// Bit/s of one flow.
    fn tcp(&self, who: Option<Answerer>) -> anyhow::Result<f64> {
        self.queued(who, DATA_RULE, || {
            let flow = Iperf3::to(Router::SERVER.v4, self.server.port()).congestion("cubic");
            let flow = flow.one_cpu().seconds(self.args.seconds);
            // The one CPU is one that its starter may use.
            let run = || -> anyhow::Result<f64> {
                settle(ENDS_CPU)?;
                Ok(flow.run(&self.net.client)?.goodput_bps)
            };
            thread::scope(|scope| scope.spawn(run).join())
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Median microseconds of a round trip.
    fn ping(&self, who: Option<Answerer>) -> anyhow::Result<f64> {
        self.queued(who, BOTH_RULE, || {
            let ping = Ping::to(Router::SERVER.v4).on_cpu(ANSWERER_CPU);
            let ping = ping.count(self.args.pings);
            let report = ping
                .interval(Duration::from_millis(2))
                .run(&self.net.client)?;
            if report.received < report.sent {
                bail!("of {} pings {} came back", report.sent, report.received);
            }
            let times = report.times.iter().map(|time| time.as_secs_f64() * 1e6);
            Ok(Measured::of(times.collect()).median)
        })
    }

    /// CPU nanoseconds of a packet, and packets a second.
    fn udp(&self, who: Answerer) -> anyhow::Result<(f64, f64)> {
        let answering = self.answerers.start(who, &self.net.router, ANSWERER_CPU)?;
        self.rule("-A", DATA_RULE)?;
        let flood = || -> anyhow::Result<(f64, f64)> {
            settle(ENDS_CPU)?;
            let socket = UdpSocket::bind((Router::CLIENT.v4, 0)).context("make a sender")?;
            socket
                .connect((Router::SERVER.v4, 9))
                .context("aim the sender")?;
            setsockopt(&socket, sockopt::UdpGsoSegment, &(UDP_PAYLOAD as i32))?;
            send_for(&socket, Duration::from_millis(300));
            let before = (answering.cpu_ns()?, self.forwarded()?);
            let begun = Instant::now();
            send_for(&socket, Duration::from_secs(self.args.seconds.into()));
            let (cpu, packets) = (answering.cpu_ns()? - before.0, self.forwarded()? - before.1);
            if packets == 0 {
                bail!("nothing came through with {}", who.name());
            }
            let packets = packets as f64;
            Ok((
                cpu as f64 / packets,
                packets / begun.elapsed().as_secs_f64(),
            ))
        };
        let measured = self.net.client.enter(flood)?;
        self.rule("-D", DATA_RULE)?;
        measured
    }

    /// Packets that left the router towards the server.
    fn forwarded(&self) -> anyhow::Result<u64> {
        Ok(self.net.wan_end.counters()?.tx_packets)
    }
}

/// Sends for this time. The router's queue drops packets that it cannot take: sending never fails.
fn send_for(socket: &UdpSocket, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        // A full device queue answers with an error now and then; the count is made at the end.
        let _ = socket.send(&[0; UDP_PAYLOAD * UDP_AT_ONCE]);
    }
}
