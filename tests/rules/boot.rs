//! Rules that a file keeps, and `fairpath rules boot`. A namespace whose rules were unloaded is as a machine
//! that starts, except for its clock.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_units::test_seeds;

use super::answers::AnswerLine;
use super::live::{Router, arrives, filter};

/// The file of the machine, which no test may write.
const OF_THE_MACHINE: &str = "/var/lib/fairpath/rules";
/// Random moments of each test that kills commands.
const KILLS: u64 = 24;

const SETS: &str = "create banned hash:ip timeout 3600\nadd banned 192.0.2.1 timeout 0\n\
     add banned 192.0.2.2 timeout 1000\ncreate list list:set\nadd list banned\n";
const RULES: &str = "# a comment, so that lines differ from those of the text\n\n*filter\n\
     :INPUT ACCEPT [0:0]\n:ssh - [0:0]\n:web - [0:0]\n\
     -A INPUT -p udp -m udp --dport 7001 -j DROP\n\
     -A INPUT -m set --match-set banned src -j DROP\n\
     -A INPUT -m conntrack --ctstate INVALID -j ssh\n\
     -A ssh -m limit --limit 5/min -j RETURN\nCOMMIT\n";

/// A router that keeps its rules in a file.
struct Keeping {
    router: Router,
    file: String,
}

impl Keeping {
    fn new(netns: Netns) -> Keeping {
        let router = Router::new(netns);
        let file = router.place.path("kept/rules");
        let file = file.to_str().unwrap().to_owned();
        Keeping { router, file }
    }

    #[track_caller]
    fn load(&self, files: &[&str]) -> String {
        let words = [&["load", "--kept", &self.file], files].concat();
        self.router.done(&words)
    }

    #[track_caller]
    fn boot(&self) -> String {
        self.router.done(&["boot", "--kept", &self.file])
    }

    /// Unloads the rules, and leaves their file.
    #[track_caller]
    fn stop(&self) {
        self.router.done(&["unload", "--keep-file"]);
    }

    /// Rules with zero counters, and sets without the seconds that are left.
    #[track_caller]
    fn loaded(&self) -> (String, String) {
        self.router.done(&["counters", "--zero"]);
        let rules = self.router.done(&["counters"]);
        let sets = self.router.done(&["set", "list"]);
        let sets = sets.lines().map(|line| match line.split_once(" timeout ") {
            Some((element, seconds)) if line.starts_with("add") && seconds != "0" => element,
            _ => line,
        });
        let sets: Vec<&str> = sets.collect();
        (rules, sets.join("\n"))
    }

    fn shown(&self) -> serde_json::Value {
        let shown = self.router.done(&["show", "--format", "json"]);
        serde_json::from_str(&shown).unwrap()
    }

    /// True if the file has the rules that are loaded.
    fn is_kept(&self) -> bool {
        let kept = self.shown()["kept"].clone();
        assert_eq!(kept["file"], self.file[..]);
        kept["current"].as_bool().unwrap()
    }

    fn inode(&self) -> u64 {
        fs::metadata(&self.file).unwrap().ino()
    }
}

/// Applies a command of iptables to the loaded rules.
#[track_caller]
fn apply(router: &Router, words: &[&str]) {
    let mut command = router.command(&["apply", "--loaded"]);
    let output = command
        .args(["--", "iptables"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|other| other.ends_with(line))
}

#[test]
fn kept_rules_come_back_with_their_edits() {
    requires!(
        Need::Root,
        Need::Tool("nft"),
        Need::Tool("iptables-restore")
    );
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("kept").unwrap());
    let router = &keeping.router;
    let nat = "*nat\n-A PREROUTING -p udp -m udp --dport 9 -j ACCEPT\nCOMMIT\n\
        *mangle\n-A OUTPUT -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\nCOMMIT\n";
    let v4 = router.file("rules.v4", &(nat.to_owned() + RULES));
    let v6 = router.file("rules.v6", "*filter\n-A FORWARD -j DROP\nCOMMIT\n");
    let sets = router.file("sets", SETS);
    let more = [
        "--defer",
        "--counters",
        "sampled",
        "--skip-table",
        "security",
    ];
    keeping.load(&[&[&v4[..], &v6, &sets], &more[..]].concat());
    assert_eq!(fs::metadata(&keeping.file).unwrap().mode() & 0o7777, 0o600);
    let inode = keeping.inode();
    // Short edits, also of sets, then whole ones, then a short one.
    let apply = |words: &[&str]| {
        apply(router, words);
        assert!(keeping.is_kept(), "{words:?}");
    };
    apply(&[
        "-A", "web", "-p", "tcp", "-m", "tcp", "--dport", "80", "-j", "DROP",
    ]);
    router.done(&[
        "set",
        "add",
        "banned",
        "192.0.2.3",
        "192.0.2.4",
        "timeout",
        "500",
    ]);
    router.done(&["set", "del", "banned", "192.0.2.4"]);
    assert!(keeping.is_kept());
    let chain = router.file(
        "ssh.v4",
        "-A ssh -s 192.0.2.9 -j DROP\n-A ssh -m limit --limit 5/min -j RETURN\n",
    );
    router.done(&["replace-chain", "ssh", &chain]);
    assert!(keeping.is_kept());
    assert_eq!(keeping.shown()["edits"], 4);
    assert_eq!(keeping.inode(), inode);
    apply(&["-N", "new"]);
    assert_ne!(keeping.inode(), inode);
    apply(&["-A", "new", "-j", "DROP"]);
    let (before, shown) = (keeping.loaded(), router.done(&["show"]));
    keeping.stop();
    assert!(arrives(&router.netns, 7001));
    router.netns.run(&["iptables", "-t", "nat", "-F"]).unwrap();
    router
        .netns
        .run(&["iptables", "-t", "mangle", "-F"])
        .unwrap();

    let report = keeping.boot();
    assert!(
        report.contains("1 rule of nat given to iptables-restore\n"),
        "{report}"
    );
    assert!(
        report.contains("1 rule of mangle given to iptables-restore\n"),
        "{report}"
    );
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(keeping.loaded(), before);
    assert!(keeping.is_kept());
    let without_time = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split(", loaded at").next().unwrap());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_time(&router.done(&["show"])), without_time(&shown));
    let left = router.done(&["set", "list", "banned"]);
    let of = |address: &str| -> u32 {
        let line = left.lines().find(|line| line.contains(address)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(of("192.0.2.1"), 0);
    assert!((900..1000).contains(&of("192.0.2.2")), "{left}");
    assert!((400..500).contains(&of("192.0.2.3")), "{left}");
    // A second start changes nothing.
    let again = router.rules(&["boot", "--kept", &keeping.file]);
    assert!(
        again.status.success() && again.stdout.is_empty(),
        "{again:?}"
    );
    assert_eq!(router.packets("--dport 7001 -j DROP"), 0);
}

/// Lines of rules are those of the file, also after edits and a start.
#[test]
fn kept_rules_have_the_lines_of_their_file() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("lines").unwrap());
    let (rules, sets) = (
        keeping.router.file("rules.v4", RULES),
        keeping.router.file("sets", SETS),
    );
    keeping.load(&[&rules, &sets]);
    keeping.stop();
    keeping.boot();
    let rule = format!("{rules}:7");
    let mut traced = keeping
        .router
        .command(&["trace", "--rule", &rule, "--count", "1"]);
    let mut child = traced.stdout(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(!arrives(&keeping.router.netns, 7001));
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "no packet was traced"
        );
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{rule}: -A INPUT -p udp")), "{text}");
}

#[test]
fn unconfirmed_and_shadow_rules_are_not_kept() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("unconfirmed").unwrap());
    let router = &keeping.router;
    let of = |port: u16| {
        let rule = format!("INPUT -p udp -m udp --dport {port} -j DROP");
        router.file(&format!("{port}.v4"), &filter(&[&rule]))
    };
    let (first, second) = (of(7001), of(7002));
    keeping.load(&["--shadow", &first]);
    assert!(!Path::new(&keeping.file).exists());
    assert!(keeping.shown()["kept"].is_null());
    router.done(&["unload"]);
    keeping.load(&[&first]);
    let kept = fs::read(&keeping.file).unwrap();
    keeping.load(&["--confirm", "1s", &second]);
    assert!(!keeping.is_kept());
    assert_eq!(fs::read(&keeping.file).unwrap(), kept);
    let begin = Instant::now();
    while arrives(&router.netns, 7001) {
        assert!(begin.elapsed() < Duration::from_secs(30), "the rules stay");
    }
    assert!(keeping.is_kept());
    keeping.load(&["--confirm", "60s", &second]);
    router.done(&["confirm"]);
    assert!(keeping.is_kept());
    keeping.stop();
    keeping.boot();
    assert!(arrives(&router.netns, 7001) && !arrives(&router.netns, 7002));
}

#[test]
fn unloaded_rules_do_not_come_back() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("unloaded").unwrap());
    let file = keeping.router.file(
        "rules.v4",
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]),
    );
    keeping.load(&[&file]);
    keeping.router.done(&["unload"]);
    assert!(!Path::new(&keeping.file).exists());
    let none = keeping.router.fails(&["boot", "--kept", &keeping.file]);
    assert!(
        none.contains("without rules") && none.contains("No such file"),
        "{none}"
    );
}

#[test]
fn rules_of_other_namespaces_are_not_kept() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("other").unwrap());
    let of_machine = || fs::read(OF_THE_MACHINE).ok();
    let before = of_machine();
    router.load(&filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]));
    apply(&router, &["-A", "INPUT", "-j", "ACCEPT"]);
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["kept"].is_null(), "{shown}");
    assert_eq!(of_machine(), before);
    router.done(&["unload"]);
    let refused = router.fails(&["boot"]);
    assert!(refused.contains("--kept"), "{refused}");
}

/// A file that is missing, changed or full of others' rules is replaced by the next edit.
#[test]
fn edits_replace_a_file_of_other_rules() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("others").unwrap());
    let router = &keeping.router;
    let text = filter(&["INPUT -j web"]).replace("*filter\n", "*filter\n:web - [0:0]\n");
    let file = router.file("rules.v4", &text);
    keeping.load(&[&file]);
    let other = fs::read(&keeping.file).unwrap();
    for fault in 0..4 {
        match fault {
            0 => fs::remove_file(&keeping.file).unwrap(),
            1 => fs::write(&keeping.file, &other[..other.len() - 1]).unwrap(),
            // Of an older state.
            2 => fs::write(&keeping.file, &other).unwrap(),
            _ => {
                keeping.load(&[&file]);
                fs::write(&keeping.file, &other).unwrap();
            }
        }
        let port = 7010 + fault;
        let chain = format!("-A web -p udp -m udp --dport {port} -j DROP\n");
        let chain = router.file("web.v4", &chain);
        router.done(&["replace-chain", "web", &chain]);
        assert!(keeping.is_kept(), "{fault}");
        keeping.stop();
        keeping.boot();
        assert!(!arrives(&router.netns, port), "{fault}");
    }
    // A directory that is a file cannot have one: the edit takes effect all the same.
    let directory = Path::new(&keeping.file).parent().unwrap();
    fs::remove_dir_all(directory).unwrap();
    fs::write(directory, "").unwrap();
    let chain = router.file("web.v4", "-A web -p udp -m udp --dport 7020 -j DROP\n");
    let output = router.rules(&["replace-chain", "web", &chain]);
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(
        note.contains("the next start of the machine has others"),
        "{note}"
    );
    assert!(!arrives(&router.netns, 7020));
}

#[test]
fn killed_commands_keep_whole_rules() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("killed").unwrap());
    let router = &keeping.router;
    let rules = |port: u16| {
        let many: Vec<String> = (0..500)
            .map(|rule| {
                format!("web -p udp -m udp --dport {port} -m comment --comment {rule} -j DROP")
            })
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let lines = filter(&many).replace("*filter\n", "*filter\n:web - [0:0]\n-A INPUT -j web\n");
        (router.file(&format!("{port}.v4"), &lines), lines)
    };
    let files = [rules(7001), rules(7002)];
    let chains = files.each_ref().map(|(_, text)| {
        let chain = text.lines().filter(|line| line.starts_with("-A web"));
        chain.map(|line| format!("{line}\n")).collect::<String>()
    });
    let chains = [
        router.file("a.v4", &chains[0]),
        router.file("b.v4", &chains[1]),
    ];
    keeping.load(&[&files[0].0]);
    // The first load also prepares the programs.
    let start = Instant::now();
    keeping.load(&[&files[1].0]);
    let whole = start.elapsed();
    let mut kills = 0;
    for seed in test_seeds(KILLS) {
        let at = (seed & 1) as usize;
        let words = match seed & 2 {
            0 => vec!["load", "--kept", &keeping.file, &files[at].0],
            _ => vec!["replace-chain", "web", &chains[at]],
        };
        kills += u64::from(router.kill_in(&words, whole, seed));
        keeping.stop();
        keeping.boot();
        let loaded = router.done(&["counters"]);
        let is = |text: &str| {
            let mut rules = text.lines().filter(|line| line.starts_with("-A"));
            rules.all(|rule| has(&loaded, rule)) && loaded.matches("-A web").count() == 500
        };
        assert!(is(&files[0].1) != is(&files[1].1), "{seed}: {words:?}");
    }
    assert!(kills > 0);
}

/// A datagram from one namespace to the other, and perhaps an answer.
fn crosses(from: &Netns, to: &Netns, address: &str, answered: bool) -> bool {
    let bind = |address: &str| {
        let socket = UdpSocket::bind(address).unwrap();
        let patience = Some(Duration::from_millis(300));
        socket.set_read_timeout(patience).unwrap();
        socket
    };
    let receiver = to.enter(|| bind(address)).unwrap();
    let sender = from
        .enter(|| {
            bind(if address.starts_with('[') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            })
        })
        .unwrap();
    sender.send_to(b"x", address).unwrap();
    match receiver.recv_from(&mut [0; 8]) {
        Ok((_, from)) if answered => {
            receiver.send_to(b"y", from).unwrap();
            sender.recv(&mut [0; 8]).is_ok()
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

#[test]
fn unloadable_rules_fail_open_or_closed() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    let keeping = Keeping::new(line.router.clone());
    let router = &keeping.router;
    let file = router.file(
        "rules.v4",
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]),
    );
    keeping.load(&[&file]);
    keeping.stop();
    let good = fs::read(&keeping.file).unwrap();
    let faults: [(&str, &dyn Fn()); 5] = [
        ("No such file", &|| fs::remove_file(&keeping.file).unwrap()),
        ("it is cut", &|| {
            fs::write(&keeping.file, &good[..good.len() - 20]).unwrap()
        }),
        ("no file of kept rules", &|| {
            fs::write(&keeping.file, b"*filter\nCOMMIT\n").unwrap()
        }),
        ("can be changed by other users", &|| {
            fs::write(&keeping.file, &good).unwrap();
            fs::set_permissions(&keeping.file, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("it is cut", &|| {
            let mut changed = good.clone();
            changed[200] ^= 1;
            fs::set_permissions(&keeping.file, fs::Permissions::from_mode(0o600)).unwrap();
            fs::write(&keeping.file, changed).unwrap();
        }),
    ];
    let (client, here) = (&line.client, &line.router);
    let open = router.file("open.toml", "[monitor]\n");
    // Another section has an error.
    let closed = router.file("closed.toml", "[monitor\n[rules]\nfail = \"closed\"\n");
    let boot = |config| router.fails(&["boot", "--kept", &keeping.file, "--config", config]);
    for (reason, fault) in faults {
        fault();
        let error = boot(&open);
        assert!(
            error.contains(reason) && error.contains("without rules"),
            "{error}"
        );
        assert!(router.fails(&["show"]).contains("no rules are loaded"));
        assert!(crosses(client, here, "10.1.0.1:7002", false));

        let error = boot(&closed);
        assert!(
            error.contains(reason) && error.contains("fairpath rules load FILE"),
            "{error}"
        );
        assert!(arrives(here, 7002), "{reason}");
        assert!(!crosses(client, here, "10.1.0.1:7002", false), "{reason}");
        // The router begins, and is answered.
        assert!(crosses(here, client, "10.1.0.100:7003", true), "{reason}");
        assert!(
            crosses(here, client, "[fd00:1::100]:7003", true),
            "{reason}"
        );
        // Not kept, so that the file can be repaired.
        let shown = router.done(&["show", "--format", "json"]);
        assert!(shown.contains("\"kept\":null"), "{shown}");
        router.done(&["unload"]);
    }
    // A file that is repaired takes the place of closed rules.
    boot(&closed);
    fs::write(&keeping.file, &good).unwrap();
    keeping.boot();
    assert!(!arrives(here, 7001));
    assert!(arrives(here, 7002));
    assert!(crosses(client, here, "10.1.0.1:7002", false));
}

/// A load replaces only files of kept rules, and `unload` removes only these.
#[test]
fn other_files_are_never_replaced() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("precious").unwrap());
    let router = &keeping.router;
    let file = router.file("rules.v4", &filter(&["INPUT -p udp -j DROP"]));
    let text = router.file("text", "precious\n");
    let [fifo, device] = ["fifo", "device"].map(|name| router.place.path(name));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    // As /dev/null.
    let (kind, mode) = (
        nix::sys::stat::SFlag::S_IFCHR,
        nix::sys::stat::Mode::S_IRUSR,
    );
    let number = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::mknod(&device, kind, mode, number).unwrap();
    let directory = router.place.path("");
    let paths = [&fifo, &device, &directory].map(|path| path.to_str().unwrap());
    // A load leaves no beginning of a file, and a link would be replaced.
    let [empty, begun] = ["", "fairpath ru"].map(|begin| router.file(&format!("{begin}-"), begin));
    let link = router.place.path("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let link = link.to_str().unwrap();
    let files = [&text[..], &empty, &begun, link];
    for path in files.into_iter().chain(paths) {
        let before = fs::symlink_metadata(path).unwrap();
        let refused = router.fails(&["load", "--kept", path, &file]);
        assert!(
            refused.contains("nothing was changed: it is") && refused.contains("another one"),
            "{refused}"
        );
        assert_eq!(fs::symlink_metadata(path).unwrap().ino(), before.ino());
    }
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
    assert_eq!(fs::read_to_string(&text).unwrap(), "precious\n");
    // One that takes its place later.
    keeping.load(&[&file]);
    fs::write(&keeping.file, "precious\n").unwrap();
    let mut command = router.command(&["apply", "--loaded"]);
    command.args(["--", "-A", "INPUT", "-p", "tcp", "-j", "DROP"]);
    let edited = command.output().unwrap();
    assert!(edited.status.success(), "{edited:?}");
    let note = String::from_utf8_lossy(&edited.stderr);
    assert!(note.contains("a file of something else"), "{note}");
    let shown = router.done(&["show"]);
    let line = format!("{}: it is a file of something else", keeping.file);
    assert!(shown.contains(&line), "{shown}");
    assert!(!shown.contains("the next load or edit"), "{shown}");
    router.done(&["unload"]);
    assert_eq!(fs::read_to_string(&keeping.file).unwrap(), "precious\n");
    // Edits read it, and a load does not.
    fs::remove_file(&keeping.file).unwrap();
    for fault in [
        &(|| {
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            fs::set_permissions(&keeping.file, all).unwrap();
        }) as &dyn Fn(),
        &|| {
            fs::remove_file(&keeping.file).unwrap();
            nix::unistd::mkfifo(&keeping.file[..], nix::sys::stat::Mode::S_IRUSR).unwrap();
        },
    ] {
        keeping.load(&[&file]);
        fault();
        let mut command = router.command(&["apply", "--loaded"]);
        command.args(["--", "-A", "INPUT", "-p", "tcp", "-j", "DROP"]);
        let edited = command.output().unwrap();
        assert!(edited.status.success(), "{edited:?}");
        let shown = router.done(&["show"]);
        let line = format!("next start of the machine: {}: ", keeping.file);
        assert!(shown.contains(&line), "{shown}");
        assert!(!shown.contains("the next load or edit"), "{shown}");
        router.done(&["unload"]);
        let _ = fs::remove_file(&keeping.file);
    }
    // A cut one is still one of kept rules.
    fs::write(&keeping.file, "fairpath rules 1\n#part 00").unwrap();
    keeping.load(&[&file]);
    assert!(keeping.is_kept());
    router.done(&["unload"]);
    assert!(!Path::new(&keeping.file).exists());
}

/// Rather than no rules, with a warning.
#[test]
fn rules_on_other_paths_are_loaded_at_boot() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let keeping = Keeping::new(testbed.netns("paths").unwrap());
    let router = &keeping.router;
    let rule = "INPUT -m addrtype --dst-type BROADCAST -j DROP";
    let file = router.file("rules.v4", &filter(&[rule]));
    keeping.load(&[&file]);
    keeping.stop();
    let booted = keeping.boot();
    assert!(!booted.contains("otherwise"), "{booted}");
    keeping.stop();
    let route = "route add local 10.8.0.0/16 dev lo table 100".to_owned();
    router.netns.ip_batch(&[route]).unwrap();
    let booted = keeping.boot();
    let warning = "1 rule acts otherwise than with iptables now:\n";
    assert!(booted.contains(warning), "{booted}");
    assert!(
        booted.contains("the route 10.8.0.0/16 table 100 leads to this host"),
        "{booted}"
    );
    assert_eq!(router.packets(rule), 0);
}
