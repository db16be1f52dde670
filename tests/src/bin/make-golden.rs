//! Makes the captures of tests/golden with real kernel TCP.
//!
//! `cargo run -p fairpath-tests --bin make-golden -- [--out DIR] [NAME…]`, as root. Each recipe builds
//! its own namespaces, captures with tcpdump and lets the wires lose, delay, reorder and wrap. Two
//! runs never give the same bytes: what the tests expect of a capture is asked of tshark, not stored.
//!
//! Without names all captures are made and README.md, the list of them, is written again.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fairpath_testbed::{
    Capture, CaptureOptions, Direction, EchoServer, Encap, Impairment, Iperf3, Iperf3Server,
    LinkEnd, Netns, Offloads, Ping, Precision, Router, ShortConnections, TcpPair, Testbed, Tpid,
    Tun, Veth, Wire, WireDirection,
};
use nix::sys::socket::{setsockopt, sockopt};

/// Time for the last packets of a scenario to arrive.
const DRAIN: Duration = Duration::from_millis(400);
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
/// An Ethernet header, four tags, PPPoE and IPv6 and TCP headers at their longest.
const HEADERS: u32 = 160;
const PORT: u16 = 5201;

/// One capture.
struct Recipe {
    /// Its file's name.
    file: &'static str,
    /// The traffic.
    about: &'static str,
    make: fn(&Shot) -> Result<Taken>,
}

/// Where a recipe's capture goes before it is packed.
struct Shot {
    raw: PathBuf,
}

/// The description of a capture in the README.
struct Taken {
    frames: u64,
    tcpdump: String,
}

fn recipes() -> Vec<Recipe> {
    let recipe = |file, about, make| Recipe { file, about, make };
    vec![
        recipe(
            "plain.pcap",
            "one transfer, timestamps on, 4 ms each way",
            plain,
        ),
        recipe(
            "no-timestamps.pcap",
            "the same without timestamps",
            no_timestamps,
        ),
        recipe("loss.pcap.gz", "1 % loss on both sides and both ways", loss),
        recipe(
            "loss-no-timestamps.pcap.gz",
            "the same without timestamps",
            loss_no_timestamps,
        ),
        recipe(
            "reorder.pcap.gz",
            "every 15th frame is 3 ms late, on both sides",
            reorder,
        ),
        recipe(
            "duplicates.pcap.gz",
            "5 % of the frames arrive twice",
            duplicates,
        ),
        recipe("ipv6.pcap.gz", "a transfer over IPv6 with 1 % loss", ipv6),
        recipe(
            "vlan.pcap.gz",
            "a transfer in 802.1ad and 802.1Q tags, 1 % loss",
            vlan,
        ),
        recipe(
            "pppoe.pcap.gz",
            "a transfer in a PPPoE session, 1 % loss",
            pppoe,
        ),
        recipe(
            "vlan-pppoe.pcap.gz",
            "a transfer in PPPoE in a VLAN",
            vlan_pppoe,
        ),
        recipe(
            "half-open.pcap",
            "SYNs and SYN-ACKs that are lost, refused, never answered",
            half_open,
        ),
        recipe(
            "one-direction.pcap",
            "only what the router receives from the server",
            one_direction,
        ),
        recipe(
            "snap80.pcap",
            "80 bytes of each frame: options of IPv6 are cut",
            snap80,
        ),
        recipe(
            "sll.pcap.gz",
            "all interfaces of the router at once, cooked",
            sll,
        ),
        recipe("sll2.pcap.gz", "the same, cooked version 2", sll2),
        recipe(
            "icmp.pcap",
            "echo over both families; losses, duplicates, delays",
            icmp,
        ),
        recipe(
            "icmp-errors.pcap",
            "ICMP errors that quote TCP",
            icmp_errors,
        ),
        recipe("short.pcapng", "80 short connections, four at once", short),
        recipe(
            "short-packed.pcapng.gz",
            "20 short connections with whole frames",
            short_packed,
        ),
        recipe(
            "reuse.pcap",
            "one pair of ports in eight connections",
            reuse,
        ),
        recipe(
            "probes.pcap.gz",
            "keep-alives, a closed window and its probes",
            probes,
        ),
        recipe(
            "two-way.pcap.gz",
            "data both ways at once: ACKs ride on data",
            two_way,
        ),
        recipe("gso.pcap.gz", "offloads on: segments of up to 64 KiB", gso),
    ]
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn delay() -> Impairment {
    Impairment::delay(ms(4))
}

/// Nanoseconds, headers only.
fn options() -> CaptureOptions {
    CaptureOptions {
        snaplen: Some(HEADERS),
        precision: Precision::Nano,
        ..CaptureOptions::default()
    }
}

fn wired(lan: [Impairment; 2], wan: [Impairment; 2]) -> Result<Router> {
    let ([a, b], [c, d]) = (lan, wan);
    Ok(Router::builder()
        .lan_wire(a, b)
        .wan_wire(c, d)
        .build(&Testbed::new())?)
}

/// 1 ms on the client's side, 4 ms on the server's.
fn delayed() -> Result<Router> {
    let near = || Impairment::delay(ms(1));
    wired([near(), near()], [delay(), delay()])
}

impl Shot {
    /// Captures what `traffic` makes.
    fn take(
        &self,
        ns: &Netns,
        ifname: &str,
        options: &CaptureOptions,
        traffic: impl FnOnce() -> Result<()>,
    ) -> Result<Taken> {
        let capture = Capture::start(ns, ifname, &self.raw, options)?;
        traffic()?;
        thread::sleep(DRAIN);
        let captured = capture.stop()?;
        ensure!(captured.dropped == 0, "{} frames dropped", captured.dropped);
        let arguments = options.arguments().join(" ");
        Ok(Taken {
            frames: captured.captured,
            tcpdump: format!("tcpdump -i {ifname} {arguments}"),
        })
    }

    fn at_wan(&self, router: &Router, traffic: impl FnOnce() -> Result<()>) -> Result<Taken> {
        self.take(&router.router, "wan", &options(), traffic)
    }
}

fn transfer(from: &Netns, to: &Netns, ip: impl Into<IpAddr>, bytes: u64) -> Result<()> {
    let server = Iperf3Server::start(to, PORT)?;
    let iperf3 = Iperf3::to(ip, server.port()).bytes(bytes).mss(536);
    iperf3.congestion("cubic").run(from)?;
    Ok(())
}

fn across(router: &Router, ip: impl Into<IpAddr>, bytes: u64) -> Result<()> {
    transfer(&router.client, &router.server, ip, bytes)
}

fn without_timestamps(router: &Router) -> Result<()> {
    for ns in [&router.client, &router.server] {
        ns.set_tcp_timestamps(false)?;
    }
    Ok(())
}

fn plain(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 250_000))
}

fn no_timestamps(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    without_timestamps(&router)?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 250_000))
}

fn lossy() -> Result<Router> {
    let lossy = |seed| delay().with_loss(0.01, seed);
    wired([lossy(1), lossy(2)], [lossy(3), lossy(4)])
}

fn loss(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 900_000))
}

fn loss_no_timestamps(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    without_timestamps(&router)?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 900_000))
}

fn reorder(shot: &Shot) -> Result<Taken> {
    let late = || delay().with_reorder(15, ms(3));
    let router = wired([late(), late()], [late(), late()])?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 700_000))
}

fn duplicates(shot: &Shot) -> Result<Taken> {
    let twice = || delay().with_duplicates(0.05);
    let router = wired([twice(), twice()], [twice(), twice()])?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v4, 500_000))
}

fn ipv6(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    shot.at_wan(&router, || across(&router, Router::SERVER.v6, 600_000))
}

/// A transfer through a tunnel, seen on its carrier.
fn tunnelled(shot: &Shot, encap: &Encap, mtu: u32, impairment: &Impairment) -> Result<Taken> {
    let testbed = Testbed::new();
    let (left, right) = (testbed.netns("left")?, testbed.netns("right")?);
    let [near, far] = [&left, &right].map(|ns| LinkEnd::new(ns, "carrier"));
    let carrier = Veth::between(near, far).build()?;
    let tun = |ns, ip| Tun::new(ns, "ip0").with_mtu(mtu).with_address(ip, 30);
    let tuns = [tun(&left, LEFT), tun(&right, RIGHT)];
    let [near, far] = &tuns;
    let (there, back) = (impairment.clone(), impairment.clone());
    let _wires = Wire::tunnel_pair([near, far], &carrier, encap, there, back)?;
    shot.take(&right, "carrier", &options(), || {
        transfer(&left, &right, RIGHT, 500_000)
    })
}

fn vlan(shot: &Shot) -> Result<Taken> {
    let tags = Encap::plain().vlan(Tpid::Dot1ad, 100).vlan(Tpid::Dot1q, 7);
    tunnelled(shot, &tags, 1500, &delay().with_loss(0.01, 5))
}

fn pppoe(shot: &Shot) -> Result<Taken> {
    let session = Encap::plain().pppoe(0x42);
    tunnelled(shot, &session, 1492, &delay().with_loss(0.01, 6))
}

fn vlan_pppoe(shot: &Shot) -> Result<Taken> {
    let both = Encap::plain().vlan(Tpid::Dot1q, 7).pppoe(1);
    tunnelled(shot, &both, 1492, &delay())
}

/// Connects in a namespace; what comes of it does not matter.
fn attempt(ns: &Netns, to: SocketAddr, patience: Duration) -> Result<()> {
    let _ = ns.enter(|| TcpStream::connect_timeout(&to, patience))?;
    Ok(())
}

fn half_open(shot: &Shot) -> Result<Taken> {
    let router = wired([delay(), delay()], [delay(), delay()])?;
    let wire = router.wan_wire.as_ref().context("the wire is configured")?;
    let server = EchoServer::start(&router.server, PORT)?;
    let at = |port| SocketAddr::new(Router::SERVER.v4.into(), port);
    let removed = || Impairment::default().with_loss(1.0, 1);
    shot.at_wan(&router, || {
        // Refused.
        attempt(&router.client, at(9), ms(500))?;
        // SYNs lost, given up, tried again.
        wire.set_impairment(WireDirection::LeftToRight, removed());
        attempt(&router.client, at(server.port()), ms(1500))?;
        let late = thread::scope(|scope| {
            let connecting = scope.spawn(|| attempt(&router.client, at(server.port()), ms(4000)));
            thread::sleep(ms(500));
            wire.set_impairment(WireDirection::LeftToRight, delay());
            connecting.join().expect("attempt() does not panic")
        });
        late?;
        // SYN-ACKs lost.
        wire.set_impairment(WireDirection::RightToLeft, removed());
        attempt(&router.client, at(server.port()), ms(1500))?;
        wire.set_impairment(WireDirection::RightToLeft, delay());
        TcpPair::connect(&router.client, &router.server, Router::SERVER.v4)?.client_sends(b"x")?;
        Ok(())
    })
}

fn one_direction(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    let options = CaptureOptions {
        direction: Direction::In,
        ..options()
    };
    shot.take(&router.router, "wan", &options, || {
        across(&router, Router::SERVER.v4, 250_000)?;
        let echo = EchoServer::start(&router.server, 7)?;
        exchange(&router, Router::SERVER.v4, &echo, 5)
    })
}

/// Short connections, one after the other.
fn exchange(router: &Router, ip: impl Into<IpAddr>, to: &EchoServer, count: u64) -> Result<()> {
    let connections = ShortConnections {
        connections: count,
        at_once: 1,
        request_bytes: 100,
        response_bytes: 3000,
    };
    let report = connections.run(&router.client, ip, to.port())?;
    ensure!(report.failed == 0, "{report:?}");
    Ok(())
}

fn snap80(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    let options = CaptureOptions {
        snaplen: Some(80),
        ..options()
    };
    shot.take(&router.router, "wan", &options, || {
        across(&router, Router::SERVER.v4, 200_000)?;
        across(&router, Router::SERVER.v6, 100_000)?;
        without_timestamps(&router)?;
        across(&router, Router::SERVER.v6, 100_000)?;
        Ping::to(Router::SERVER.v6)
            .count(5)
            .interval(ms(10))
            .run(&router.client)?;
        Ok(())
    })
}

fn cooked(shot: &Shot, link_type: &str) -> Result<Taken> {
    let router = lossy()?;
    let options = CaptureOptions {
        link_type: Some(link_type.to_owned()),
        ..options()
    };
    shot.take(&router.router, "any", &options, || {
        across(&router, Router::SERVER.v4, 250_000)?;
        for ip in Router::SERVER.both() {
            Ping::to(ip).count(5).interval(ms(10)).run(&router.client)?;
        }
        Ok(())
    })
}

fn sll(shot: &Shot) -> Result<Taken> {
    cooked(shot, "LINUX_SLL")
}

fn sll2(shot: &Shot) -> Result<Taken> {
    cooked(shot, "LINUX_SLL2")
}

fn icmp(shot: &Shot) -> Result<Taken> {
    let bad = |seed| delay().with_loss(0.05, seed).with_duplicates(0.1);
    let router = wired([bad(1), bad(2)], [bad(3).with_reorder(7, ms(15)), bad(4)])?;
    shot.at_wan(&router, || {
        for ip in Router::SERVER.both() {
            Ping::to(ip).count(60).interval(ms(5)).run(&router.client)?;
            Ping::to(ip)
                .count(5)
                .interval(ms(5))
                .size(1200)
                .run(&router.client)?;
        }
        Ok(())
    })
}

fn icmp_errors(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    let echo = EchoServer::start(&router.server, 7)?;
    let nowhere = [
        ("10.99.0.1", "10.99.0.0/16"),
        ("fd00:99::1", "fd00:99::/32"),
    ];
    shot.take(&router.client, "eth0", &options(), || {
        for (ip, net) in nowhere {
            router
                .router
                .run(&["ip", "route", "add", "unreachable", net])?;
            for port in [80, 443] {
                attempt(&router.client, SocketAddr::new(ip.parse()?, port), ms(300))?;
            }
        }
        exchange(&router, Router::SERVER.v4, &echo, 3)?;
        // A smaller MTU behind the router: "fragmentation needed" quotes data.
        router.wan_end.set_mtu(1400)?;
        for ip in Router::SERVER.both() {
            let mut pair = TcpPair::connect(&router.client, &router.server, ip)?;
            pair.client_sends(&[0x55; 6000])?;
        }
        Ok(())
    })
}

fn connections(router: &Router, count: u64, at_once: usize) -> Result<()> {
    let server = EchoServer::start(&router.server, PORT)?;
    let short = ShortConnections {
        connections: count,
        at_once,
        request_bytes: 300,
        response_bytes: 2000,
    };
    for ip in Router::SERVER.both() {
        let report = short.run(&router.client, ip, server.port())?;
        ensure!(report.completed > 0, "{report:?}");
    }
    Ok(())
}

fn short(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    shot.at_wan(&router, || connections(&router, 40, 4))
}

fn short_packed(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    let whole = CaptureOptions {
        precision: Precision::Micro,
        ..CaptureOptions::default()
    };
    shot.take(&router.router, "wan", &whole, || {
        connections(&router, 10, 2)
    })
}

fn reuse(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    router
        .client
        .set_sysctl("net.ipv4.ip_local_port_range", "40000 40000")?;
    let bind = || TcpListener::bind((Router::SERVER.v4, PORT));
    let listener = router.server.enter(bind)??;
    let to = listener.local_addr()?;
    shot.at_wan(&router, || {
        for turn in 0..8_u8 {
            let mut client = router.client.enter(|| TcpStream::connect(to))??;
            let (mut server, _) = listener.accept()?;
            client.write_all(&[turn; 500])?;
            server.read_exact(&mut [0; 500])?;
            server.write_all(&[turn; 900])?;
            // The server closes first, so TIME_WAIT does not keep the client's only port.
            drop(server);
            client.read_to_end(&mut Vec::new())?;
            drop(client);
            // The last ACK frees the port.
            thread::sleep(ms(50));
        }
        Ok(())
    })
}

fn probes(shot: &Shot) -> Result<Taken> {
    let router = delayed()?;
    let pair = TcpPair::connect(&router.client, &router.server, Router::SERVER.v4)?;
    for end in [&pair.client, &pair.server] {
        setsockopt(end, sockopt::KeepAlive, &true)?;
        setsockopt(end, sockopt::TcpKeepIdle, &1)?;
        setsockopt(end, sockopt::TcpKeepInterval, &1)?;
    }
    shot.at_wan(&router, || {
        let (mut from, mut to) = (&pair.client, &pair.server);
        from.write_all(&[1; 1000])?;
        to.read_exact(&mut [0; 1000])?;
        to.write_all(&[2; 1000])?;
        from.read_exact(&mut [0; 1000])?;
        thread::sleep(ms(2500));
        // The receiver does not read: the window closes, the sender probes it.
        from.set_nonblocking(true)?;
        let mut sent = 0;
        let until = Instant::now() + ms(2500);
        while Instant::now() < until {
            match from.write(&[3; 4000]) {
                Ok(bytes) => sent += bytes,
                Err(_) => thread::sleep(ms(100)),
            }
        }
        to.read_exact(&mut vec![0; sent])?;
        Ok(())
    })
}

fn two_way(shot: &Shot) -> Result<Taken> {
    let router = lossy()?;
    let pair = TcpPair::connect(&router.client, &router.server, Router::SERVER.v4)?;
    let send = |mut end: &TcpStream| -> Result<()> {
        for piece in 0..150_u8 {
            end.write_all(&[piece; 900])?;
            thread::sleep(ms(1));
        }
        Ok(())
    };
    let receive = |mut end: &TcpStream| -> Result<()> { Ok(end.read_exact(&mut [0; 135_000])?) };
    shot.at_wan(&router, || {
        thread::scope(|scope| {
            let ends = [&pair.client, &pair.server];
            let sending = ends.map(|end| scope.spawn(move || send(end)));
            let receiving = ends.map(|end| scope.spawn(move || receive(end)));
            for work in sending.into_iter().chain(receiving) {
                work.join().expect("reading and writing do not panic")?;
            }
            Ok(())
        })
    })
}

fn gso(shot: &Shot) -> Result<Taken> {
    let router = Router::builder()
        .offloads(Offloads::On)
        .build(&Testbed::new())?;
    let server = Iperf3Server::start(&router.server, PORT)?;
    shot.at_wan(&router, || {
        let iperf3 = Iperf3::to(Router::SERVER.v4, server.port()).bytes(8_000_000);
        iperf3.bitrate_bps(200_000_000).run(&router.client)?;
        Ok(())
    })
}

/// The finished file of a raw capture: another format, packed, or as it is.
fn finish(raw: &Path, file: &Path) -> Result<()> {
    let name = file
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let mut at = raw.to_owned();
    if name.contains(".pcapng") {
        at = raw.with_extension("pcapng");
        run(Command::new("editcap")
            .args(["-F", "pcapng"])
            .args([raw, at.as_path()]))?;
    }
    if name.ends_with(".gz") {
        let packed = run(Command::new("gzip").args(["-9", "-n", "-c"]).arg(&at))?;
        return fs::write(file, packed).with_context(|| format!("write {file:?}"));
    }
    fs::copy(&at, file).with_context(|| format!("write {file:?}"))?;
    Ok(())
}

fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok(output.stdout)
}

/// The first line that a program says of its version.
fn version(program: &str) -> Result<String> {
    let output = run(Command::new(program).arg("--version"))?;
    let text = String::from_utf8_lossy(&output);
    Ok(text.lines().next().unwrap_or(program).to_owned())
}

fn readme(rows: &[(Recipe, Taken, u64)]) -> Result<String> {
    let kernel = String::from_utf8_lossy(&run(Command::new("uname").arg("-sr"))?)
        .trim()
        .to_owned();
    let mut text = String::from(
        "# Golden captures\n\nReal kernel TCP between namespaces of the testbed, written by\n\n    \
         cargo run -p fairpath-tests --bin make-golden\n\n(root; a name behind `--` makes only that capture). \
         `tests/src/bin/make-golden.rs` has the traffic of each\nas code. `cargo test -p fairpath-tests \
         --test golden` holds `fairpath rtt` against tshark on every one of\nthem; \
         docs/design/0004-tshark-as-oracle.md describes the comparison.\n\n",
    );
    writeln!(
        text,
        "{kernel}; {}; {}.\n",
        version("tcpdump")?,
        version("iperf3")?
    )?;
    text.push_str("| file | frames | bytes | what passes | capture |\n|---|---|---|---|---|\n");
    for (recipe, taken, bytes) in rows {
        let Recipe { file, about, .. } = recipe;
        let Taken { frames, tcpdump } = taken;
        writeln!(
            text,
            "| {file} | {frames} | {bytes} | {about} | `{tcpdump}` |"
        )?;
    }
    Ok(text)
}

fn main() -> Result<()> {
    let mut out = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"));
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().context("--out needs a directory")?.into(),
            option if option.starts_with('-') => bail!("unknown option {option}; known is --out"),
            _ => names.push(argument),
        }
    }
    let scratch = std::env::temp_dir().join(format!("make-golden-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let mut rows = Vec::new();
    for recipe in recipes() {
        let name = recipe.file.split('.').next().unwrap_or_default();
        if !names.is_empty() && !names.iter().any(|n| n == name || n == recipe.file) {
            continue;
        }
        let raw = scratch.join(format!("{name}.pcap"));
        let shot = Shot { raw: raw.clone() };
        let taken = (recipe.make)(&shot).with_context(|| format!("make {name}"))?;
        let file = out.join(recipe.file);
        finish(&raw, &file)?;
        let bytes = fs::metadata(&file)?.len();
        println!("{}: {} frames, {bytes} bytes", recipe.file, taken.frames);
        rows.push((recipe, taken, bytes));
    }
    fs::remove_dir_all(&scratch)?;
    if names.is_empty() {
        fs::write(out.join("README.md"), readme(&rows)?)?;
    }
    Ok(())
}
