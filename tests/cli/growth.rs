//! Readers of files from others: sixteen times the file takes at most about sixteen times the work.
//!
//! Each file has a shape that a search in a list, once for each entry, would make quadratic. Work is
//! the processor time of the command, which does not depend on other processes as the real time does.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use fairpath_core::sched::{NodeConfig, Plan, policies};
use fairpath_sched::log::{PolicyName, Run, Writer};
use fairpath_tests::binary;
use fairpath_wire::capture::{LinkType, Packet, Writer as CaptureWriter};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::binaries;

/// The larger file has this many times the entries of the smaller one.
const LARGER: usize = 16;
/// Linear is 1, quadratic 16. Sorted tables, caches and noise take a part of it.
const TOLERANCE: u64 = 3;
/// Ticks of 10 ms that a smaller file may take without being measured.
const START: u64 = 3;
/// Repetitions, of which the one with the least work counts.
const REPEATS: usize = 3;

/// A kind of file: its name, and its text for a number of entries.
type Shape = (&'static str, fn(usize) -> String);

/// Ticks of processor time that a command takes.
fn ticks(program: &Path, words: &[&str]) -> u64 {
    let mut command = binary::command(program);
    let command = command.args(words).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = child.stderr.take().unwrap();
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut errors, &mut text).unwrap();
    let id = Id::Pid(Pid::from_raw(child.id().cast_signed()));
    waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let status = child.wait().unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(
        status.code().is_some_and(|code| code < 2),
        "{words:?}: {text}"
    );
    // After the name: state, ten fields, utime, stime.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

/// Compares the work for `entries` with that for [`LARGER`] times as many.
fn assert_linear(name: &str, entries: usize, mut work: impl FnMut(usize) -> u64) {
    let small = work(entries);
    let limit = small.max(START) * LARGER as u64 * TOLERANCE;
    let larger = || work(entries * LARGER);
    let large = std::iter::repeat_with(larger)
        .take(REPEATS)
        .find(|large| *large <= limit);
    assert!(large.is_some(), "{name}: {small} ticks, more than {limit}");
}

fn each(count: usize, entry: impl Fn(usize) -> String) -> String {
    (0..count).map(entry).collect()
}

/// Measures a command for each shape; `FILE` in its words is the file.
fn assert_shapes(binary: &str, words: &[&str], entries: usize, shapes: &[Shape]) {
    let mut found = binaries().into_iter();
    let Some(binary) = found.find(|found| found.words.last() == Some(&binary)) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    for (name, text) in shapes {
        let path = place.path().join(name);
        let words: Vec<&str> = words
            .iter()
            .map(|word| match *word {
                "FILE" => path.to_str().unwrap(),
                word => word,
            })
            .collect();
        assert_linear(name, entries, |count| {
            fs::write(&path, text(count)).unwrap();
            ticks(&binary.path, &words)
        });
    }
}

fn address(at: usize) -> String {
    format!("10.{}.{}.{}", at >> 16, at >> 8 & 255, at & 255)
}

fn class(at: usize, keys: &str) -> String {
    format!("[[class]]\nname = \"c{at}\"\n{keys}\n")
}

#[test]
fn work_for_class_files_grows_linearly() {
    let shapes: [Shape; 13] = [
        ("valid.toml", |n| {
            each(n, |at| class(at, &format!("prefix = \"{}\"", address(at))))
        }),
        ("one-name.toml", |n| each(n, |_| class(0, ""))),
        ("one-prefix.toml", |n| {
            each(n, |at| class(at, "prefix = \"10.0.0.1\""))
        }),
        ("no-parents.toml", |n| {
            each(n, |at| class(at, &format!("parent = \"x{at}\"")))
        }),
        ("chain.toml", |n| {
            each(n, |at| class(at, &format!("parent = \"c{}\"", at + 1)))
        }),
        ("keys.toml", |n| {
            class(0, &each(n, |at| format!("k{at} = 1\n")))
        }),
        ("prefixes.toml", |n| {
            class(
                0,
                &format!(
                    "prefix = [{}]",
                    each(n, |at| format!("\"{}\",", address(at)))
                ),
            )
        }),
        ("invalid.toml", |n| {
            each(n, |at| format!("[[class]]\nname = c{at}\n"))
        }),
        ("valid.csv", |n| {
            format!(
                "name,prefix\n{}",
                each(n, |at| format!("c{at},{}\n", address(at)))
            )
        }),
        ("no-parents.csv", |n| {
            format!("name,parent\n{}", each(n, |at| format!("c{at},x{at}\n")))
        }),
        ("wide.csv", |n| {
            format!("name{}\na\n", each(n, |at| format!(",k{at}")))
        }),
        ("quotes.csv", |n| {
            format!("name\n\"{}", "a\"\",b\n".repeat(n))
        }),
        ("network.json", |n| {
            let site = |at| format!("\"s{at}\":{{\"downloadBandwidthMbps\":10}},");
            format!("{{{}\"s\":{{}}}}", each(n, site))
        }),
    ];
    assert_shapes("fairpath", &["class", "check", "FILE"], 2000, &shapes);
}

fn node(at: usize, keys: &str) -> String {
    format!("[[node]]\nname = \"n{at}\"\nparent = \"r\"\npolicy = \"fifo\"\n{keys}\n")
}

/// A root with these nodes.
fn tree(nodes: &str) -> String {
    format!("[[node]]\nname = \"r\"\npolicy = \"drr\"\n{nodes}")
}

#[test]
fn work_for_trees_grows_linearly() {
    let shapes: [Shape; 8] = [
        ("star.toml", |n| {
            tree(&each(n, |at| {
                node(
                    at,
                    &format!("weight = {}\nmatch = {{ class = {at} }}", at + 1),
                )
            }))
        }),
        ("one-name.toml", |n| tree(&each(n, |_| node(0, "")))),
        ("one-class.toml", |n| {
            tree(&each(n, |at| node(at, "match = { class = 1 }")))
        }),
        ("classes.toml", |n| {
            let classes = each(n, |at| format!("{at},"));
            tree(&node(0, &format!("match = {{ class = [{classes}] }}")))
        }),
        ("no-parents.toml", |n| {
            let lost = |at| format!("[[node]]\nname = \"n{at}\"\nparent = \"x{at}\"\n");
            tree(&each(n, lost))
        }),
        ("chain.toml", |n| {
            let next = |at| format!("[[node]]\nname = \"n{at}\"\nparent = \"n{}\"\n", at + 1);
            each(n, next)
        }),
        ("params.toml", |n| {
            let params = each(n, |at| format!("k{at} = 1,"));
            tree(&node(0, &format!("params = {{ {params} }}")))
        }),
        ("trace.toml", |n| {
            let points = each(n, |at| format!("{at}ms 5ms, "));
            format!(
                "[[node]]\nname = \"r\"\npolicy = \"fifo\"\n\
                 impair = {{ delay_trace = \"{points}{n}ms\" }}\n"
            )
        }),
    ];
    let run = ["run", "FILE", "--rate", "10mbit", "--duration", "1us"];
    let words = [&run[..], &["--traffic", "bulk"]].concat();
    assert_shapes("sched", &words, 2000, &shapes);
}

/// Each node has another policy of the log.
#[test]
fn work_for_operation_logs_grows_linearly() {
    let sched = binary::fairpath().with_file_name("fairpath-sched");
    if !sched.exists() {
        return;
    }
    let fifo = policies().iter().find(|policy| policy.name == "fifo");
    let fifo = PolicyName::from(fifo.unwrap());
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("ops.log");
    assert_linear("nodes and policies", 4000, |count| {
        let count = count as u32;
        let named = (0..count).map(|id| PolicyName { id, ..fifo.clone() });
        let nodes = (0..count).map(|at| NodeConfig {
            parent: u32::from(at > 0),
            policy: count - 1 - at,
            ..NodeConfig::default()
        });
        let run = Run {
            runtime: "native".into(),
            program: "test".into(),
            outcomes: false,
            nodes: (0..count).map(|at| format!("n{at}")).collect(),
            policies: named.collect(),
            plan: Plan {
                nodes: nodes.collect(),
                ..Plan::default()
            },
        };
        let mut writer = Writer::new(fs::File::create(&path).unwrap()).unwrap();
        writer.begin(&run).unwrap();
        writer.finish().unwrap();
        ticks(&sched, &["replay", path.to_str().unwrap()])
    });
}

#[test]
fn work_for_captures_grows_linearly() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.pcapng");
    let section = |names: usize| {
        let mut bytes = Vec::new();
        let mut writer = CaptureWriter::pcapng(&mut bytes).unwrap();
        for at in 0..names {
            let name = format!("port{}", at / 2);
            let interface = writer.interface(&name, LinkType::ETHERNET).unwrap();
            let packet = Packet {
                number: 0,
                time_ns: 1_000_000_000,
                interface,
                link: LinkType::ETHERNET,
                wire_len: 60,
                direction: None,
                data: &[0; 60],
            };
            writer.write(&packet).unwrap();
        }
        writer.finish().unwrap();
        bytes
    };
    for by in [&[][..], &["--by", "host"]] {
        let words = [&["rtt", "-r", path.to_str().unwrap()][..], by].concat();
        let work = || ticks(binary::fairpath(), &words);
        assert_linear("interfaces", 4000, |count| {
            fs::write(&path, section(count)).unwrap();
            work()
        });
        let one = section(2);
        assert_linear("sections", 4000, |count| {
            fs::write(&path, one.repeat(count)).unwrap();
            work()
        });
    }
}
