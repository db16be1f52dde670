//! Pages for operators: every command that a page shows is run, and its example output is compared.
//!
//! ```text
//! page --> blocks: sh (commands), text beginning with "example:" (expected lines, N is a number)
//! commands --> one shell, in separate namespaces: mounts, processes, network
//! output --> each expected line, in order
//! ```
//!
//! The shell sees an empty `/run` and `/tmp`, so that names of namespaces and files are its own. All of
//! it ends with the test.

mod page;
mod shell;

use std::path::Path;

use fairpath_testbed::{Need, requires};

use page::{Block, blocks};
use shell::Shell;

/// Text of a page below docs/.
fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {path:?}: {error}"))
}

/// The blocks of a page whose commands contain one of `words`.
fn selected(name: &str, words: &[&str]) -> Vec<Block> {
    let all = blocks(&text(name));
    let of = |word: &&str| {
        let found = all.iter().find(|block| block.commands.contains(*word));
        found
            .cloned()
            .unwrap_or_else(|| panic!("{name}: no command with {word:?}"))
    };
    words.iter().map(of).collect()
}

#[test]
fn the_tutorial_measures_alerts_and_shapes() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ping"),
        Need::Tool("nft"),
    );
    let blocks = blocks(&text("tutorial.md"));
    assert!(blocks.len() > 20, "{} blocks", blocks.len());
    let outputs = Shell::new("").run(&blocks);
    let output_of = |word: &str| {
        let at = blocks.iter().position(|b| b.commands.contains(word));
        &outputs[at.unwrap_or_else(|| panic!("no command with {word:?}"))]
    };
    // One row per host, the slowest first.
    let csv = output_of("--by host");
    assert!(csv.contains("host_address,"), "{csv}");
    assert!(csv.contains("10.10.1.2,"), "{csv}");
}

#[test]
fn scheduler_of_the_tutorial_shapes_live_packets() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ping"),
        Need::Tool("nft"),
    );
    let blocks = blocks(&text("tutorial-scheduler.md"));
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    let outputs = Shell::new("").run(&blocks);
    let output_of = |word: &str| {
        let at = blocks.iter().position(|b| b.commands.contains(word));
        &outputs[at.unwrap_or_else(|| panic!("no command with {word:?}"))]
    };
    let shaped = output_of("--policy scfq.o");
    assert!(shaped.contains("scfq (compiled)"), "{shaped}");
    let mean_ms = |output: &str| -> f64 {
        let times = output.split("mdev = ").nth(1).expect("a summary of ping");
        times
            .split('/')
            .nth(1)
            .expect("a mean")
            .parse()
            .expect("a number")
    };
    let (fifo, scfq) = (mean_ms(output_of("--policy fifo")), mean_ms(shaped));
    assert!(
        scfq < fifo / 1.5,
        "ping: {fifo} ms by FIFO, {scfq} ms by SCFQ"
    );
}

/// Three hosts behind `lan0`, a server behind `wan0`; the shell itself is on the router.
const THREE_HOSTS: &str = "
ip link set lo up
for ns in hosts server; do ip netns add $ns; ip -n $ns link set lo up; done
ip link add lan0 type veth peer name eth0 netns hosts
ip link add wan0 type veth peer name eth0 netns server
ip addr add 192.0.2.1/24 dev lan0
ip addr add 203.0.113.1/24 dev wan0
for host in 10 20 30; do ip -n hosts addr add 192.0.2.$host/24 dev eth0; done
ip -n server addr add 203.0.113.2/24 dev eth0
ip link set lan0 up
ip link set wan0 up
ip -n hosts link set eth0 up
ip -n server link set eth0 up
ip -n hosts route add default via 192.0.2.1
ip -n server route add default via 203.0.113.1
sysctl -qw net.ipv4.ip_forward=1
";

/// A download of each host for as long as the test lasts.
const DOWNLOADS: &str = "
for host in 10 20 30; do
	ip netns exec server iperf3 -s -D -p 52$host
	until ip netns exec server ss -Hltn sport = :52$host | grep -q .; do sleep 0.1; done
	ip netns exec hosts iperf3 -c 203.0.113.2 -p 52$host -B 192.0.2.$host -R -t 60 > /dev/null 2>&1 &
done
sleep 14
";

#[test]
fn three_customers_get_their_configured_rates() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("jq"));
    const PAGE: &str = "howto/three-customers.md";
    let mut blocks = selected(
        PAGE,
        &["cat > customers.csv", "class check", "shape start", "jq -r"],
    );
    // The page leaves it in the foreground of another terminal.
    let start = &mut blocks[2].commands;
    *start = format!(
        "{} > shape.log 2>&1 &\nuntil fairpath shape status > /dev/null 2>&1; do sleep 0.2; done\n",
        start.trim_end()
    );
    blocks.insert(3, Block::new(DOWNLOADS));
    let outputs = Shell::new(THREE_HOSTS).run(&blocks);
    let rates = &outputs[4];
    println!("{rates}");
    let mut seen = 0;
    for line in rates.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        let [name, configured, achieved] = cells[..] else {
            continue;
        };
        let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        let (configured, achieved) = (number(configured), number(achieved));
        // IP bytes of full frames are 98.9 % of the frames that the rate counts.
        let share = achieved / configured;
        assert!((0.85..=1.0).contains(&share), "{name}: {line}");
        seen += 1;
    }
    assert_eq!(seen, 3, "{rates}");
}

#[test]
fn slow_hosts_of_capture_are_a_csv_file() {
    const PAGE: &str = "howto/csv-by-host.md";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/loss.pcap.gz");
    let set_up = format!("cp {} trace.pcapng.gz\n", golden.display());
    let mut blocks = selected(PAGE, &["> hosts.csv", "--limit 10", "--only", "--by flow"]);
    blocks[0].commands += "cat hosts.csv\n";
    let outputs = Shell::without_root(&set_up).run(&blocks);
    let mut lines = outputs[0].lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        at.unwrap_or_else(|| panic!("no column {name} in {header:?}"))
    };
    let (host, p95) = (column("host_address"), column("p95_rtt_ns"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.len() >= 2, "{rows:?}");
    let times: Vec<u64> = rows.iter().map(|row| row[p95].parse().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(rows.iter().all(|row| row[host].contains(['.', ':'])));
    assert!(
        outputs[3].starts_with("protocol,src_address,"),
        "{}",
        outputs[3]
    );
}
