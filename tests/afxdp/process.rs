//! A forwarder's process that is killed, stopped, overloaded: what passes on, and what adds up.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Offloads, Process, requires};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bridge::{Bridge, PATIENCE, SERVER, learn};

const PORT: u16 = 7777;
/// Frames that are usually held at most.
const HELD: u32 = 8192;
/// Between numbered packets.
const PACE: Duration = Duration::from_millis(1);
/// The longest row of packets that a failure may cost: 100 ms.
const LONGEST: usize = 100;

fn start(bridge: &Bridge, held: u32) -> Process {
    let own = bridge
        .mac("br0")
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    let mut command = bridge.bridge.command(env!("CARGO_BIN_EXE_afxdp-forward"));
    command.args(["lan", "wan", &held.to_string(), &own]);
    let process = bridge.bridge.spawn(command).unwrap();
    process
        .wait_stdout("forwarding", PATIENCE)
        .unwrap_or_else(|_| panic!("{}", process.stderr()));
    process
}

fn listener(bridge: &Bridge) -> UdpSocket {
    let socket = bridge
        .server
        .enter(|| UdpSocket::bind((SERVER, PORT)).unwrap())
        .unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    socket
}

/// Sends numbered packets, one a millisecond or later, and calls `at` with each number before.
fn send_numbered(bridge: &Bridge, packets: u32, mut at: impl FnMut(u32) + Send) {
    let send = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.connect((SERVER, PORT)).unwrap();
        let mut due = Instant::now();
        for number in 0..packets {
            at(number);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            due = Instant::now() + PACE;
            socket.send(&number.to_be_bytes()).unwrap();
        }
    };
    bridge.client.enter(send).unwrap();
}

/// Numbers received, in their order.
fn numbers(socket: &UdpSocket) -> Vec<u32> {
    let mut bytes = [0; 4];
    let receive = || {
        socket
            .recv(&mut bytes)
            .ok()
            .map(|_| u32::from_be_bytes(bytes))
    };
    std::iter::from_fn(receive).collect()
}

/// The longest row of numbers that never came.
fn longest_gap(numbers: &[u32], packets: u32) -> usize {
    let mut arrived = vec![false; packets as usize];
    numbers
        .iter()
        .for_each(|number| arrived[*number as usize] = true);
    arrived
        .split(|arrived| *arrived)
        .map(<[bool]>::len)
        .max()
        .unwrap_or(0)
}

#[test]
fn a_killed_process_loses_under_100_ms() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    learn(&bridge);
    // Half a gigabyte of frames goes with the last.
    for (signal, held) in [
        (Signal::SIGTERM, HELD),
        (Signal::SIGKILL, HELD),
        (Signal::SIGKILL, 250_000),
    ] {
        let mut process = start(&bridge, held);
        let socket = listener(&bridge);
        let packets = 1500;
        send_numbered(&bridge, packets, |number| {
            if number == 500 {
                process.signal(signal);
            }
        });
        process.wait(PATIENCE).unwrap();
        let numbers = numbers(&socket);
        let gap = longest_gap(&numbers, packets);
        println!(
            "{signal}, {held} frames: {} of {packets} arrived, longest gap {gap} ms",
            numbers.len()
        );
        assert!(gap <= LONGEST, "{gap}");
        if signal == Signal::SIGTERM {
            assert_eq!(
                numbers.len(),
                packets as usize,
                "ended in order, it loses none"
            );
        }
        assert!(numbers.contains(&(packets - 1)));
        let links = bridge.bridge.run(&["ip", "-d", "link", "show"]).unwrap();
        assert!(!links.contains("xdp"), "{links}");
    }
}

#[test]
fn a_clean_restart_loses_under_50_ms() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    learn(&bridge);
    let socket = listener(&bridge);
    let packets = 8000;
    let mut first = start(&bridge, HELD);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_numbered(&bridge, packets, |_| ()));
        first.signal(Signal::SIGTERM);
        first.wait(PATIENCE).unwrap();
        let second = start(&bridge, HELD);
        assert!(!sending.is_finished(), "begun while packets pass");
        let reported = end(second);
        assert!(sum(&reported, "sent") > 0, "{reported}");
    });
    let numbers = numbers(&socket);
    let gap = longest_gap(&numbers, packets);
    println!(
        "{} of {packets} arrived, longest gap {gap} ms",
        numbers.len()
    );
    assert!(gap <= 50, "{gap}");
}

/// Ends it in order and reads what it says.
fn end(process: Process) -> Value {
    process.signal(Signal::SIGTERM);
    let printed = process.finish(PATIENCE).unwrap();
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

fn sum(reported: &Value, name: &str) -> u64 {
    match &reported[name] {
        Value::Array(rows) => rows.iter().map(|row| row.as_u64().unwrap()).sum(),
        number => number.as_u64().unwrap(),
    }
}

/// Packets in = out + held + dropped by name, the kernel's own drops included.
fn assert_adds_up(reported: &Value) {
    let of = |name| sum(reported, name);
    assert_eq!(of("redirected"), of("received") + of("lost"), "{reported}");
    assert_eq!(
        of("received"),
        of("sent") + of("dropped") + of("held"),
        "{reported}"
    );
    assert_eq!(
        (of("held"), of("strays")),
        (of("frames_held"), 0),
        "{reported}"
    );
}

#[test]
fn counts_stay_consistent_after_cpu_starvation() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    learn(&bridge);
    let process = start(&bridge, HELD);
    let socket = listener(&bridge);
    let packets = 6000;
    send_numbered(&bridge, packets, |number| match number {
        // More than the capacity of its RX ring while it is stopped.
        1000 => process.signal(Signal::SIGSTOP),
        2000 => bridge.send(SERVER, 5000, 100),
        4000 => process.signal(Signal::SIGCONT),
        _ => (),
    });
    let numbers: Vec<u32> = numbers(&socket)
        .into_iter()
        .filter(|n| *n < packets)
        .collect();
    assert!(numbers.contains(&0) && numbers.contains(&(packets - 1)));
    let late = numbers.iter().filter(|n| **n >= 4000).count();
    assert!(late > 1500, "after the stop, {late} of 2000 arrived");
    let reported = end(process);
    assert_adds_up(&reported);
    assert!(
        sum(&reported, "lost") > 1000,
        "the ring overflowed: {reported}"
    );
    assert_eq!(sum(&reported, "held"), 0);
}

#[test]
fn overload_in_both_directions_is_reported() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    learn(&bridge);
    let process = start(&bridge, HELD);
    let flood = |ns: &fairpath_testbed::Netns, to: Ipv4Addr| {
        let send = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            for i in 0..60_000u32 {
                let _ = socket.send_to(&[i as u8; 64], (to, 9));
            }
        };
        ns.enter(send).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&bridge.client, SERVER));
        scope.spawn(|| flood(&bridge.server, crate::bridge::CLIENT));
    });
    let reported = end(process);
    println!("{reported}");
    assert!(sum(&reported, "redirected") > 100_000, "{reported}");
    assert_adds_up(&reported);
}
