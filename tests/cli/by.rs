//! `fairpath rtt --by` on golden captures, compared with all samples of the same captures.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fairpath_tests::binary;
use fairpath_wire::capture::{Direction, LinkType, Packet, Writer};
use fairpath_wire::icmp::Message;
use fairpath_wire::{Frame, MacAddr, ipv4, ipv6};
use serde_json::Value;

use crate::{binaries, run, stderr, stdout};

/// The middle of a bucket is at most this far from its samples.
const TOLERANCE: f64 = 0.0161;
/// The first bucket begins here.
const LOWEST_NS: f64 = 8_192.0;
const MS: u64 = 1_000_000;

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let names = [
        "two-way.pcap.gz",
        "icmp.pcap",
        "ipv6.pcap.gz",
        "loss.pcap.gz",
        "short.pcapng",
        "vlan-pppoe.pcap.gz",
    ];
    names.map(|name| directory.join(name)).into()
}

fn lines(words: &[&str]) -> Vec<Value> {
    let output = run(&binaries()[0].path, words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    let text = stdout(&output);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Sorted RTTs of the samples, by these keys of a sample.
fn samples(capture: &str, keys: &[&str]) -> BTreeMap<Vec<String>, Vec<u64>> {
    let mut rtts: BTreeMap<Vec<String>, Vec<u64>> = BTreeMap::new();
    for record in lines(&["rtt", "--format", "json", "--samples-only", "-r", capture]) {
        if record["type"] == "sample" {
            let key = keys.iter().map(|key| word(&record[*key])).collect();
            let rtt = record["rtt_ns"].as_u64().unwrap();
            rtts.entry(key).or_default().push(rtt);
        }
    }
    rtts.values_mut().for_each(|rtts| rtts.sort_unstable());
    rtts
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn percentile(sorted: &[u64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1] as f64
}

/// Compares a row with its sorted samples.
fn assert_row(row: &Value, rtts: &[u64], exact_extremes: bool) {
    assert_eq!(row["samples"], rtts.len(), "{row}");
    for (name, share) in [
        ("min_rtt_ns", 0.0),
        ("p50_rtt_ns", 0.5),
        ("p95_rtt_ns", 0.95),
        ("p99_rtt_ns", 0.99),
        ("max_rtt_ns", 1.0),
    ] {
        let (found, exact) = (row[name].as_f64().unwrap(), percentile(rtts, share));
        if exact_extremes && (share == 0.0 || share == 1.0) {
            assert_eq!(found, exact, "{name}: {row}");
        }
        let error = (found.max(LOWEST_NS) / exact.max(LOWEST_NS) - 1.0).abs();
        assert!(error <= TOLERANCE, "{name}: {error}: {row}");
    }
}

fn assert_sorted_by_p95(rows: &[Value]) {
    let p95: Vec<Option<u64>> = rows.iter().map(|row| row["p95_rtt_ns"].as_u64()).collect();
    assert!(p95.is_sorted_by(|a, b| a >= b), "{p95:?}");
}

#[test]
fn rows_by_host_and_flow_equal_the_samples() {
    let flow = ["src_address", "src_port", "dst_address", "dst_port"];
    for capture in captures() {
        let capture = capture.to_str().unwrap();
        for (by, sample_keys, row_keys) in [
            ("host", &["dst_address"][..], &["host_address"][..]),
            ("flow", &flow, &flow),
        ] {
            let expected = samples(capture, sample_keys);
            assert!(!expected.is_empty(), "{capture}");
            let rows = lines(&["rtt", "--by", by, "--format", "json", "-r", capture]);
            let measured = rows.iter().filter(|row| row["samples"] != 0);
            assert_eq!(measured.clone().count(), expected.len(), "{capture}");
            for row in measured {
                let key: Vec<String> = row_keys.iter().map(|key| word(&row[*key])).collect();
                assert_row(row, &expected[&key], true);
            }
            assert_sorted_by_p95(&rows);
        }
    }
}

#[test]
fn rows_by_class_equal_samples_of_its_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("classes.csv");
    for capture in captures() {
        let capture = capture.to_str().unwrap();
        let inside = samples(capture, &["dst_address"]);
        let outside = samples(capture, &["src_address"]);
        let mut hosts: Vec<&String> = inside.keys().chain(outside.keys()).flatten().collect();
        hosts.sort_unstable();
        hosts.dedup();
        // Each host is a class, below one class of all.
        let mut csv = String::from("name,parent,prefix\nall,,\n");
        for host in hosts {
            csv += &format!("{host},all,{host}\n");
        }
        fs::write(&file, csv).unwrap();
        let words = ["rtt", "--by", "class", "--format", "json", "-r", capture];
        let classes = ["--class-file", file.to_str().unwrap()];
        let rows = lines(&[&words[..], &classes].concat());
        let all: usize = inside.values().map(Vec::len).sum();
        let mut legs = 0;
        for row in rows.iter().filter(|row| row["samples"] != 0) {
            let of_leg = match word(&row["leg"]).as_str() {
                "inside" => &inside,
                _ => &outside,
            };
            match word(&row["class"]).as_str() {
                "all" => assert_eq!(row["samples"], all, "{row}"),
                host => {
                    assert_row(row, &of_leg[&vec![host.to_owned()]], false);
                    legs += 1;
                }
            }
        }
        assert_eq!(legs, inside.len() + outside.len(), "{capture}: {rows:?}");
        assert_sorted_by_p95(&rows);
    }
}

#[test]
fn csv_has_a_header_and_limited_rows() {
    let capture = captures()[0].clone();
    let words = [
        "rtt",
        "-r",
        capture.to_str().unwrap(),
        "--by",
        "flow",
        "--sort",
        "samples",
    ];
    let words = [&words[..], &["--limit", "1", "--format", "csv"]].concat();
    let output = run(&binaries()[0].path, &words);
    let text = stdout(&output);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!(rows[0].len(), rows[1].len(), "{text}");
    let begin = [
        "protocol",
        "src_address",
        "src_port",
        "dst_address",
        "dst_port",
        "samples",
    ];
    assert_eq!(rows[0][..6], begin);
}

#[test]
fn classes_have_a_row_for_each_leg() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("classes.toml");
    fs::write(
        &file,
        "[[class]]\nname = \"site\"\nprefix = \"10.10.1.0/24\"\n",
    )
    .unwrap();
    let capture = captures()[0].clone();
    let words = [
        "rtt",
        "-r",
        capture.to_str().unwrap(),
        "--by",
        "class",
        "--format",
        "json",
    ];
    let words = [&words[..], &["--class-file", file.to_str().unwrap()]].concat();
    let legs: Vec<(Value, Value)> = lines(&words)
        .into_iter()
        .map(|row| (row["class"].clone(), row["leg"].clone()))
        .collect();
    for leg in ["inside", "outside"] {
        assert!(legs.contains(&("site".into(), leg.into())), "{legs:?}");
    }
}

#[test]
fn contradicting_options_exit_2() {
    let capture = captures()[0].clone();
    let capture = capture.to_str().unwrap();
    for words in [
        &["--format", "csv"][..],
        &["--by", "class"],
        &["--by", "host", "--class-file", "x.toml"],
        &["--by", "host", "--config", "x.toml"],
        &[
            "--by",
            "class",
            "--class-file",
            "x.csv",
            "--config",
            "x.toml",
        ],
        &["--by", "host", "--quiet"],
        &["--by", "host", "--rate-limit", "1ms"],
        &["--sort", "p95"],
    ] {
        let output = run(
            &binaries()[0].path,
            &[&["rtt", "-r", capture], words].concat(),
        );
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
    }
}

/// Pings over the interface lan0 of a router, with the direction of each packet.
struct Pings {
    writer: Writer<Vec<u8>>,
    now: u64,
}

/// One end of a ping.
#[derive(Clone, Copy)]
struct Host {
    address: IpAddr,
    vlan: Option<u16>,
    dscp: u8,
}

impl Host {
    fn new(address: &str) -> Host {
        Host {
            address: address.parse().unwrap(),
            vlan: None,
            dscp: 0,
        }
    }
}

impl Pings {
    fn new() -> Pings {
        let mut writer = Writer::pcapng(Vec::new()).unwrap();
        writer.interface("lan0", LinkType::ETHERNET).unwrap();
        Pings {
            writer,
            now: 1_700_000_000_000 * MS,
        }
    }

    /// Packets between a host at lan0 and a remote host, both with the VLAN and the DSCP of the host.
    fn packet(&mut self, host: Host, remote: &str, direction: Direction, message: Message) {
        let remote: IpAddr = remote.parse().unwrap();
        let (src, dst) = match direction {
            Direction::Inbound => (host.address, remote),
            Direction::Outbound => (remote, host.address),
        };
        let mut frame = Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
        if let Some(vlan) = host.vlan {
            frame = frame.vlan(vlan);
        }
        let frame = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => frame.ipv4_header(ipv4::Header {
                dscp: host.dscp,
                ..ipv4::Header::new(src, dst)
            }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => frame.ipv6_header(ipv6::Header {
                dscp: host.dscp,
                ..ipv6::Header::new(src, dst)
            }),
            _ => panic!("{src} and {dst}"),
        };
        let bytes = frame.icmp(message).zeros(56).build();
        let packet = Packet {
            direction: Some(direction),
            ..Packet::new(self.now, &bytes)
        };
        self.writer.write(&packet).unwrap();
    }

    /// `count` pings to the host, which answers after `rtt_ns`.
    fn to(&mut self, host: Host, remote: &str, count: u16, rtt_ns: u64) {
        self.pings(host, remote, count, rtt_ns, 1, Direction::Outbound);
    }

    /// The same from the host.
    fn from(&mut self, host: Host, remote: &str, count: u16, rtt_ns: u64) {
        self.pings(host, remote, count, rtt_ns, 2, Direction::Inbound);
    }

    fn pings(
        &mut self,
        host: Host,
        remote: &str,
        n: u16,
        rtt_ns: u64,
        id: u16,
        request: Direction,
    ) {
        let reply = match request {
            Direction::Inbound => Direction::Outbound,
            Direction::Outbound => Direction::Inbound,
        };
        for seq in 0..n {
            self.packet(host, remote, request, Message::EchoRequest { id, seq });
            self.now += rtt_ns;
            self.packet(host, remote, reply, Message::EchoReply { id, seq });
            self.now += 100 * MS;
        }
    }

    fn save(self, directory: &Path) -> PathBuf {
        let path = directory.join("pings.pcapng");
        fs::write(&path, self.writer.finish().unwrap()).unwrap();
        path
    }
}

/// Class, leg, samples and p95 of the rows, and what was printed to standard error.
fn by_class(capture: &Path, directory: &Path, words: &[&str]) -> (Vec<String>, String) {
    let words = [
        &["rtt", "--by", "class", "--format", "csv", "-r"][..],
        &[capture.to_str().unwrap()],
        words,
    ]
    .concat();
    let output = binary::command(&binaries()[0].path)
        .args(&words)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        [cells[0], cells[1], cells[2], cells[5]].join(" ")
    };
    let rows = stdout(&output).lines().skip(1).map(row).collect();
    (rows, stderr(&output))
}

/// Middles of the buckets of 2, 8 and 30 ms.
const ROWS: [&str; 3] = [
    "a outside 3 30146560",
    "b inside 4 8060928",
    "a inside 5 2015232",
];

#[test]
fn classes_by_vlan_are_those_of_the_core() {
    for (a, b, remote) in [
        ("10.9.0.1", "10.9.0.2", "192.0.2.1"),
        ("2001:db8:9::1", "2001:db8:9::2", "2001:db8::1"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("classes.csv");
        fs::write(file, "name,vlan\na,10\nb,20\n").unwrap();
        let mut pings = Pings::new();
        let [a, b] = [(a, 10), (b, 20)].map(|(address, vlan)| Host {
            vlan: Some(vlan),
            ..Host::new(address)
        });
        pings.to(a, remote, 5, 2 * MS);
        pings.to(b, remote, 4, 8 * MS);
        pings.from(a, remote, 3, 30 * MS);
        let capture = pings.save(directory.path());
        let words = ["--class-file", "classes.csv"];
        let (rows, errors) = by_class(&capture, directory.path(), &words);
        assert_eq!(rows, ROWS);
        assert_eq!(errors, "");
    }
}

#[test]
fn classes_by_dscp_need_uplinks() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("classes.csv");
    fs::write(file, "name,dscp\na,AF11\nb,EF\n").unwrap();
    let config = "[monitor]\ninterfaces = [\"lan0\", \"wan0\"]\nuplinks = [\"wan0\"]\n";
    let config = format!("class_files = [\"classes.csv\"]\n{config}");
    fs::write(directory.path().join("fairpath.toml"), config).unwrap();
    let mut pings = Pings::new();
    let [a, b] = [("10.9.0.1", 10), ("10.9.0.2", 46)].map(|(address, dscp)| Host {
        dscp,
        ..Host::new(address)
    });
    pings.to(a, "192.0.2.1", 5, 2 * MS);
    pings.to(b, "192.0.2.1", 4, 8 * MS);
    pings.from(a, "192.0.2.1", 3, 30 * MS);
    let capture = pings.save(directory.path());
    for words in [
        &["--class-file", "classes.csv", "--uplink", "wan0"][..],
        &["--config", "fairpath.toml"],
    ] {
        let (rows, errors) = by_class(&capture, directory.path(), words);
        assert_eq!(rows, ROWS, "{words:?}");
        assert_eq!(errors, "");
    }
    let output = binary::command(&binaries()[0].path)
        .args(["rtt", "--by", "class", "--class-file", "classes.csv", "-r"])
        .arg(&capture)
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--uplink"), "{}", stderr(&output));
}

#[test]
fn packets_that_match_no_class_are_in_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("classes.csv");
    fs::write(file, "name,prefix\n\"a, \"\"first\"\"\",10.9.0.1/32\n").unwrap();
    let mut pings = Pings::new();
    pings.to(Host::new("10.9.0.1"), "192.0.2.1", 5, 2 * MS);
    pings.to(Host::new("10.9.0.2"), "192.0.2.1", 4, 8 * MS);
    let capture = pings.save(directory.path());
    let words = ["rtt", "--by", "class", "--format", "csv", "--class-file"];
    let output = binary::command(&binaries()[0].path)
        .args(words)
        .arg(directory.path().join("classes.csv"))
        .arg("-r")
        .arg(&capture)
        .output()
        .unwrap();
    let text = stdout(&output);
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert!(rows[0].starts_with("other,inside,4,"), "{text}");
    assert!(
        rows[1].starts_with("\"a, \"\"first\"\"\",inside,5,"),
        "{text}"
    );
    assert_eq!(rows.len(), 2, "{text}");
}

#[test]
fn an_empty_capture_gives_a_header_only() {
    let directory = tempfile::tempdir().unwrap();
    let capture = Pings::new().save(directory.path());
    let capture = capture.to_str().unwrap();
    fs::write(directory.path().join("classes.csv"), "name,vlan\na,10\n").unwrap();
    let file = directory.path().join("classes.csv");
    for (by, begin) in [
        (&["host"][..], "host_address,samples,"),
        (&["flow"], "protocol,src_address,"),
        (
            &["class", "--class-file", file.to_str().unwrap()],
            "class,leg,",
        ),
    ] {
        for (format, lines) in [("csv", 1), ("text", 1), ("json", 0)] {
            let words = [&["rtt", "-r", capture, "--format", format, "--by"], by].concat();
            let output = run(&binaries()[0].path, &words);
            assert!(output.status.success(), "{}", stderr(&output));
            let text = stdout(&output);
            assert_eq!(text.lines().count(), lines, "{words:?}: {text}");
            assert!(format != "csv" || text.starts_with(begin), "{text}");
            assert_eq!(stderr(&output), "");
        }
    }
}

#[test]
fn capture_cut_within_packet_gives_its_complete_packets() {
    let directory = tempfile::tempdir().unwrap();
    let mut pings = Pings::new();
    pings.to(Host::new("10.9.0.1"), "192.0.2.1", 3, 2 * MS);
    let whole = pings.save(directory.path());
    let bytes = fs::read(&whole).unwrap();
    let cut = directory.path().join("cut.pcapng");
    // Within the last reply.
    fs::write(&cut, &bytes[..bytes.len() - 60]).unwrap();
    let words = ["rtt", "--by", "host", "--format", "csv", "-r"];
    let rows = |capture: &Path| {
        let words = [&words[..], &[capture.to_str().unwrap()]].concat();
        let output = run(&binaries()[0].path, &words);
        assert!(output.status.success(), "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let (text, errors) = rows(&whole);
    assert!(text.contains("\n10.9.0.1,3,2000000,"), "{text}");
    assert_eq!(errors, "");
    let (text, errors) = rows(&cut);
    assert!(text.contains("\n10.9.0.1,2,2000000,"), "{text}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("ends in the middle of a packet"),
        "{errors}"
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    let capture = captures()[0].clone();
    let mut child = binary::command(&binaries()[0].path)
        .args(["rtt", "--by", "flow", "--format", "csv", "-r", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The reader is gone before the table is written, which is after the end of the capture.
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &fs::read(capture).unwrap()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

/// 60,000 interfaces, each described before one packet. A quadratic reader takes minutes.
#[test]
fn captures_of_60000_interfaces_are_measured() {
    const INTERFACES: u32 = 60_000;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.pcapng");
    let file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    let mut writer = Writer::pcapng(file).unwrap();
    for at in 0..INTERFACES {
        let name = format!("port{}", at % 50_000);
        let interface = writer.interface(&name, LinkType::ETHERNET).unwrap();
        let packet = Packet {
            number: 0,
            time_ns: 1_000_000_000 + u64::from(at) * 1000,
            interface,
            link: LinkType::ETHERNET,
            wire_len: 60,
            direction: None,
            data: &[0; 60],
        };
        writer.write(&packet).unwrap();
    }
    writer.finish().unwrap();
    let classes = place.path().join("classes.csv");
    fs::write(
        &classes,
        "name,prefix,interface\na,,port7\nb,192.0.2.0/24,\n",
    )
    .unwrap();
    let (path, classes) = (path.to_str().unwrap(), classes.to_str().unwrap());
    for by in [&[][..], &["--by", "class", "--class-file", classes]] {
        let words = [&["rtt", "-r", path, "--format", "json"][..], by].concat();
        let output = run(binary::fairpath(), &words);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    // Each of 60,000 changes of the rules would copy up to 60,000 entries.
    let all = [
        "--by",
        "class",
        "--class-file",
        classes,
        "--uplink",
        "port*",
    ];
    let words = [&["rtt", "-r", path][..], &all].concat();
    let output = run(binary::fairpath(), &words);
    assert!(
        stderr(&output).contains("more than 1024 times"),
        "{}",
        stderr(&output)
    );
}
