//! Lines of logged packets are those of the kernel's LOG.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use fairpath_bpf::{Event, HookRules};
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Logged, Ruleset, log_level, log_line};
use fairpath_testbed::requires;
use fairpath_tests::oracle::packets::{Toward, frames};
use fairpath_units::test_seeds;
use nix::fcntl::{Flock, FlockArg};

use super::hooks::{assert_all_whole, one};
use super::legacy::{Legacy, Tool};
use super::{family, parse};

/// Frames of a rule: the kernel's buffer has their lines.
const FRAMES: usize = 200;
/// LOG works in other namespaces than the first one with it only.
const ALL: &str = "/proc/sys/net/netfilter/nf_log_all_netns";

/// LOG works in all namespaces while it lives; others wait for it.
struct AllNamespaces {
    _lock: Flock<File>,
    before: String,
}

impl AllNamespaces {
    fn new() -> AllNamespaces {
        let lock = Flock::lock(File::open(ALL).unwrap(), FlockArg::LockExclusive);
        let before = std::fs::read_to_string(ALL).unwrap();
        std::fs::write(ALL, "1").unwrap();
        AllNamespaces {
            _lock: lock.map_err(|(_, error)| error).unwrap(),
            before,
        }
    }
}

impl Drop for AllNamespaces {
    fn drop(&mut self) {
        let _ = std::fs::write(ALL, &self.before);
    }
}

/// Messages of the kernel from now on.
struct Messages(File);

impl Messages {
    fn new() -> Messages {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc_nonblock())
            .open("/dev/kmsg");
        let mut file = file.unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        Messages(file)
    }

    /// Level and text of the next ones with this word, until there are `count` or none comes any more.
    fn read(&mut self, word: &str, count: usize) -> Vec<(u8, String)> {
        let mut out = Vec::new();
        let mut buffer = [0; 8192];
        let end = Instant::now() + Duration::from_secs(5);
        while out.len() < count && Instant::now() < end {
            let bytes = match self.0.read(&mut buffer) {
                Ok(bytes) => &buffer[..bytes],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(error) => panic!("messages were lost: {error}"),
            };
            let record = String::from_utf8_lossy(bytes);
            let (head, text) = record.split_once(';').unwrap();
            let text = text.lines().next().unwrap_or_default();
            if text.starts_with(word) {
                let priority: u8 = head.split(',').next().unwrap().parse().unwrap();
                out.push((priority & 7, text.trim_end().to_owned()));
            }
        }
        out
    }
}

fn libc_nonblock() -> i32 {
    nix::fcntl::OFlag::O_NONBLOCK.bits()
}

fn line(ruleset: &Ruleset, event: &Event) -> (u8, String) {
    let chain = ruleset.tables[0].find(b"PREROUTING").unwrap();
    let options = ruleset.tables[0].get(chain).rules[0].target_options();
    let packet = Logged {
        input: &event.input,
        output: &event.output,
        link: event.link,
        is_ethernet: event.is_ethernet,
        mark: event.mark,
        bytes: &event.bytes,
        length: event.length,
    };
    let text = log_line(options, &packet);
    (log_level(options), text.trim_end().to_owned())
}

fn agree(tool: Tool, rules: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let legacy = Legacy::new(tool);
    let mut hooks = HookRules::load().unwrap();
    legacy.enter(|| hooks.attach().unwrap());
    let _all = AllNamespaces::new();
    let mut lines = 0;
    for seed in test_seeds(rules) {
        let word = format!("t{}s{seed} ", std::process::id() % 10_000);
        let options = [
            (1, "--log-tcp-sequence"),
            (2, "--log-tcp-options"),
            (4, "--log-ip-options"),
            (8, "--log-macdecode"),
        ];
        let chosen = options.iter().filter(|(bit, _)| seed & bit != 0);
        let chosen: String = chosen.map(|(_, option)| format!(" {option}")).collect();
        let level = seed % 8;
        let itself = seed % 3 == 0 && tool == Tool::V4;
        let interface = if itself { "" } else { "-i in0 " };
        let text = format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
             -A PREROUTING {interface}-j LOG --log-prefix \"{word}\" --log-level {level}{chosen}\nCOMMIT\n"
        );
        // Packets with a mark.
        let marks = match seed / 2 % 2 {
            0 => "add table inet marks\ndelete table inet marks\n",
            _ => {
                "table inet marks {\n  chain first {\n    type filter hook prerouting \
                 priority -310;\n    meta mark set 0x7f\n  }\n}\n"
            }
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, marks).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        legacy.enter(|| {
            let status = std::process::Command::new("nft")
                .args(["-f", &path])
                .status();
            assert!(status.unwrap().success());
        });
        legacy.load(&text).unwrap();
        let ruleset = parse(tool, &text);
        let built = build(&ruleset, None, Lookups::default()).unwrap();
        one(&ruleset, &built, &mut hooks);
        let mut cursor = hooks.events();
        let mut messages = Messages::new();
        legacy.inject(&frames(family(tool), Toward::Ingress, seed, FRAMES));
        if itself {
            legacy.ping_itself();
        }
        let events: Vec<Event> = std::iter::from_fn(|| hooks.next_event(&mut cursor)).collect();
        assert_eq!(cursor.take_lost(), 0);
        let of_kernel = messages.read(&word, events.len());
        assert_eq!(of_kernel.len(), events.len(), "{text}");
        for (event, of_kernel) in events.iter().zip(of_kernel) {
            let ours = line(&ruleset, event);
            // An event has the first bytes, after which the lines of long packets end.
            let is_cut = event.bytes.len() < event.length as usize;
            if is_cut && ours.0 == of_kernel.0 && of_kernel.1.starts_with(&ours.1) {
                continue;
            }
            assert_eq!(ours, of_kernel, "seed {seed}, {text}{event:?}");
            lines += 1;
        }
    }
    assert_all_whole(&hooks);
    println!("{tool:?}: {lines} lines");
    assert!(lines > 0);
}

#[test]
fn lines_of_ipv4_are_the_kernels() {
    agree(Tool::V4, 40);
}

#[test]
fn lines_of_ipv6_are_the_kernels() {
    agree(Tool::V6, 40);
}
