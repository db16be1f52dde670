//! Table nat of loaded rules, which the tools of iptables get in the same transaction.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fairpath_testbed::{Need, Testbed, requires, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::live::{Router, RouterLine, arrives, filter};

pub const PATIENCE: Duration = Duration::from_secs(30);
const DROP: &str = "INPUT -p udp -m udp --dport 7001 -j DROP";
/// Where the tools are, also for a user without /usr/sbin.
const TOOLS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
pub const SAVES: [&str; 2] = ["iptables-save", "ip6tables-save"];

fn nat(rules: &[&str]) -> String {
    filter(rules).replace("*filter", "*nat")
}

/// Rules of nat and of ours.
fn both(rules: &[&str]) -> String {
    nat(rules) + &filter(&[DROP])
}

/// Table nat of both families with counters, without comments.
fn running(router: &Router) -> String {
    let mut out = String::new();
    for save in SAVES {
        let text = router.netns.run(&[save, "-t", "nat", "-c"]).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        out.extend(lines.map(|line| format!("{line}\n")));
    }
    out
}

/// Files for both families whose tables nat accept packets to a port.
fn files(router: &Router, name: &str, port: u16) -> [String; 2] {
    ["v4", "v6"].map(|family| {
        let rule = format!("PREROUTING -p udp -m udp --dport {port} -j ACCEPT");
        router.file(&format!("{name}.{family}"), &both(&[&rule]))
    })
}

/// Loads files of both families.
fn load(router: &Router, files: &[String; 2], more: &[&str]) -> Output {
    router.rules(&[&["load", &files[0], &files[1]], more].concat())
}

/// The record of the namespace in a directory.
pub fn record_path(router: &Router, directory: &str) -> PathBuf {
    let cookie = router.netns.enter(|| {
        use nix::{getsockopt_impl, libc, sockopt_impl};
        sockopt_impl!(
            Cookie,
            GetOnly,
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            u64
        );
        nix::sys::socket::getsockopt(&UdpSocket::bind("0.0.0.0:0").unwrap(), Cookie).unwrap()
    });
    Path::new(directory).join(cookie.unwrap().to_string())
}

pub fn record(router: &Router) -> Option<fs::Metadata> {
    fs::metadata(record_path(router, "/run/fairpath-tables")).ok()
}

/// Processes in the namespace that wait to bring nat back.
pub fn watchers(router: &Router) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &i32| {
            let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let space = fs::metadata(format!("/proc/{number}/ns/net"));
            let is_here = space.is_ok_and(|space| space.ino() == router.netns.inode());
            is_here && String::from_utf8_lossy(&words).contains("watch-tables")
        })
        .map(Pid::from_raw)
        .collect()
}

/// A directory for PATH whose programs of these names are a script; `$real` is the program itself.
pub fn wrap(router: &Router, names: &[&str], script: &str) -> String {
    let dir = router.place.path("wrapped");
    fs::create_dir_all(&dir).unwrap();
    for name in names {
        let real = TOOLS.split(':').map(|dir| format!("{dir}/{name}"));
        let real = real.into_iter().find(|path| fs::exists(path).unwrap());
        let text = format!("#!/bin/sh\nreal={}\n{script}\n", real.unwrap());
        fs::write(dir.join(name), text).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{TOOLS}", dir.display())
}

/// Sends a datagram; returns the sender that the server sees, if it arrives.
fn through(line: &RouterLine, to: &str, port: u16) -> Option<String> {
    let server = line.server.enter(|| {
        let socket = UdpSocket::bind(("10.2.0.2", port)).unwrap();
        let patience = Some(Duration::from_millis(300));
        socket.set_read_timeout(patience).unwrap();
        socket
    });
    let send = || {
        let client = UdpSocket::bind("10.1.0.2:0").unwrap();
        client.send_to(b"x", to).unwrap();
    };
    line.client.enter(send).unwrap();
    let (_, from) = server.unwrap().recv_from(&mut [0; 8]).ok()?;
    Some(from.ip().to_string())
}

#[test]
fn packets_are_translated_and_filtered() {
    requires!(
        Need::Root,
        Need::Tool("iptables-restore"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    let router = Router::new(line.router.clone());
    assert_eq!(through(&line, "10.2.0.2:7001", 7001).unwrap(), "10.1.0.2");
    let text = nat(&[
        "PREROUTING -i lan -p udp -m udp --dport 5000 -j DNAT --to-destination 10.2.0.2:7001",
        "POSTROUTING -o wan -j MASQUERADE",
    ]) + &filter(&[
        "FORWARD -m conntrack --ctstate DNAT",
        "FORWARD -p udp -m udp --dport 7002 -j DROP",
    ]);
    let loaded = router.load(&text);
    assert!(
        loaded.contains("loaded 2 rules\n2 rules of nat given to iptables-restore\n"),
        "{loaded}"
    );
    assert_eq!(through(&line, "10.2.0.2:7003", 7003).unwrap(), "10.2.0.1");
    assert_eq!(through(&line, "10.1.0.1:5000", 7001).unwrap(), "10.2.0.1");
    assert_eq!(through(&line, "10.2.0.2:7002", 7002), None);
    assert_eq!(router.packets("--ctstate DNAT"), 1);
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("nat: 2 rules with iptables (IPv4)\n"),
        "{shown}"
    );
    let unloaded = router.rules(&["unload"]);
    let note = String::from_utf8(unloaded.stderr).unwrap();
    let removes = "nat: 2 rules with iptables (IPv4): `iptables -t nat -F && iptables -t nat -X`";
    assert!(note.contains(removes), "{note}");
    assert_eq!(through(&line, "10.2.0.2:7002", 7002).unwrap(), "10.2.0.1");
    assert!(record(&router).is_none());
}

#[test]
fn refused_nat_changes_no_family() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    for variant in ["iptables", "iptables-legacy"] {
        let router = Router::new(testbed.netns("refused").unwrap());
        let script = format!(
            "exec ${{real%tables*}}tables{}-${{0##*-}} \"$@\"",
            &variant[8..]
        );
        let names = SAVES.map(|save| save.replace("save", "restore"));
        let names: Vec<&str> = names.iter().map(String::as_str).chain(SAVES).collect();
        let path = wrap(&router, &names, &script);
        let rules = |words: &[&str]| {
            let mut command = router.command(words);
            command.env("PATH", &path).output().unwrap()
        };
        let old = files(&router, "old", 1);
        let loaded = rules(&["load", &old[0], &old[1]]);
        assert!(loaded.status.success(), "{loaded:?}");
        let saved = || {
            let tables = SAVES.map(|save| {
                let save = save.replace("-save", &format!("{}-save", &variant[8..]));
                let text = router.netns.run(&[&save, "-t", "nat", "-c"]).unwrap();
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                lines.map(|line| format!("{line}\n")).collect::<String>()
            });
            tables.concat()
        };
        let (before, counters) = (saved(), router.done(&["counters"]));
        assert_eq!(before.matches("--dport 1 -j ACCEPT").count(), 2, "{before}");
        for (rule, message) in [
            // Refused before anything is changed, and by the kernel after the first family.
            ("PREROUTING -p udp -m what --ever", "bad.v6:3: "),
            ("PREROUTING -m policy --dir out --pol none", "bad.v6"),
        ] {
            let good = router.file("new.v4", &both(&["OUTPUT -j ACCEPT"]));
            let bad = router.file("bad.v6", &both(&["OUTPUT", rule]));
            let refused = rules(&["load", &good, &bad]);
            let text = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(1), "{rule}: {text}");
            assert!(
                text.contains(message)
                    && text.contains("table nat is refused: ip6tables-restore: ")
                    && text.contains("nothing was changed"),
                "{text}"
            );
            assert_eq!(saved(), before);
            assert_eq!(router.done(&["counters"]), counters);
            assert!(record(&router).is_none());
        }
        assert!(!arrives(&router.netns, 7001));
    }
}

/// A tool that kills the command: before it starts, while it runs, after each family, and after the
/// switch of the rules.
#[test]
fn killed_loads_leave_no_mixture() {
    requires!(
        Need::Root,
        Need::Tool("iptables-restore"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let restores = ["iptables-restore", "ip6tables-restore"];
    let tested = "case \"$*\" in *--test*) exec $real \"$@\";; esac\n";
    for (at, (name, script)) in [
        (restores[0], "kill -9 $PPID"),
        (
            restores[0],
            "kill -9 $PPID; sleep 0.5; $real \"$@\"; touch $0.done",
        ),
        (restores[0], "$real \"$@\"; kill -9 $PPID"),
        (restores[1], "$real \"$@\"; kill -9 $PPID"),
        ("nft", "kill -9 $PPID"),
    ]
    .into_iter()
    .enumerate()
    {
        let router = Router::new(testbed.netns("killed").unwrap());
        let (old, new) = (files(&router, "old", 1), files(&router, "new", 2));
        let path = wrap(&router, &[name], &format!("{tested}{script}"));
        // Every command repairs, shown at one of the steps.
        let all = ["load", "unload", "confirm", "apply"];
        for next in &all[..if at == 2 { all.len() } else { 1 }] {
            assert!(load(&router, &old, &[]).status.success());
            let before = running(&router);
            let mut killed = router.command(&["load", &new[0], &new[1]]);
            let killed = killed.env("PATH", &path).stderr(Stdio::null()).output();
            assert_eq!(killed.unwrap().status.code(), None, "{script}");
            // Packets meet the new rules already.
            let is_switched = name == "nft";
            assert!(record(&router).is_some());
            let shown = router.done(&["show"]);
            assert_eq!(
                shown.contains("an interrupted load"),
                !is_switched,
                "{shown}"
            );
            let output = match *next {
                // This load has no nat, so what it finds stays.
                "load" => {
                    let file = router.file("plain", &filter(&[DROP]));
                    router.rules(&["load", &file])
                }
                "apply" => {
                    let mut apply = router.command(&["apply", "--loaded"]);
                    apply.args(["--", "-A", "INPUT", "-p", "tcp"]);
                    apply.output().unwrap()
                }
                other => router.rules(&[other]),
            };
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                output.status.success(),
                *next != "confirm",
                "{next}: {text}"
            );
            assert_eq!(
                text.contains("the tables of before are back"),
                !is_switched,
                "{next}: {text}"
            );
            // A tool that is still running is waited for.
            let done = router.place.path(&format!("wrapped/{name}.done"));
            let ended = || (!script.contains("done") || done.exists()).then_some(());
            assert!(wait_for(PATIENCE, ended).is_some());
            let after = running(&router);
            match is_switched {
                true => assert_eq!(after.matches("--dport 2 -j ACCEPT").count(), 2, "{after}"),
                false => assert_eq!(after, before, "step {at}, {next}"),
            }
            assert!(record(&router).is_none());
        }
    }
}

/// Ctrl-C or the end of a session while the tools run.
#[test]
fn stopped_loads_are_whole() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("stopped").unwrap());
    let new = files(&router, "new", 2);
    let script = "kill -INT $PPID; kill -HUP $PPID; exec $real \"$@\"";
    let script = format!("case \"$*\" in *--test*) exec $real \"$@\";; esac\n{script}");
    let path = wrap(&router, &["iptables-restore"], &script);
    let mut stopped = router.command(&["load", &new[0], &new[1]]);
    let stopped = stopped.env("PATH", &path).output().unwrap();
    assert_eq!(stopped.status.code(), None, "{stopped:?}");
    assert!(record(&router).is_none());
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(running(&router).matches("--dport 2 -j ACCEPT").count(), 2);
}

#[test]
fn killed_loads_are_undone_after_their_time() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("killed").unwrap());
    let (old, new) = (files(&router, "old", 1), files(&router, "new", 2));
    let script = "case \"$*\" in *--test*) exec $real \"$@\";; esac\n$real \"$@\"; mkdir $0.once 2>/dev/null && kill -9 $PPID; true";
    let path = wrap(&router, &["iptables-restore"], script);
    assert!(load(&router, &old, &[]).status.success());
    let before = running(&router);
    let mut killed = router.command(&["load", &new[0], &new[1], "--confirm", "1s"]);
    let killed = killed.env("PATH", &path).stderr(Stdio::null()).output();
    assert_eq!(killed.unwrap().status.code(), None);
    assert_ne!(running(&router), before);
    let back = wait_for(PATIENCE, || record(&router).is_none().then_some(()));
    assert!(back.is_some());
    assert_eq!(running(&router), before);
}

#[test]
fn unconfirmed_nat_goes_back_without_command() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("back").unwrap());
    let (old, new) = (files(&router, "old", 1), files(&router, "new", 2));
    // Also without rules before.
    let empty = running(&router);
    for files in [&old, &new] {
        let before = running(&router);
        let loaded = load(&router, files, &["--confirm", "2s"]);
        assert!(loaded.status.success(), "{loaded:?}");
        assert_ne!(running(&router), before);
        let [watcher] = watchers(&router)[..] else {
            panic!("one watcher");
        };
        let session = nix::unistd::getsid(Some(watcher)).unwrap();
        assert_ne!(session, nix::unistd::getsid(None).unwrap());
        let directory = fs::read_link(format!("/proc/{watcher}/cwd")).unwrap();
        assert_eq!(directory.to_str(), Some("/"));
        if let Ok(shown) = String::from_utf8(router.rules(&["show"]).stdout) {
            assert!(
                shown.contains("tables of before come back: nat (IPv4), nat (IPv6)"),
                "{shown}"
            );
        }
        let back = wait_for(PATIENCE, || record(&router).is_none().then_some(()));
        assert!(back.is_some());
        assert_eq!(running(&router), before);
        let ended = wait_for(PATIENCE, || watchers(&router).is_empty().then_some(()));
        assert!(ended.is_some());
        assert!(arrives(&router.netns, 7001) == (before == empty));
        assert!(load(&router, &old, &[]).status.success());
    }
    // Without confirmation and with unload, too.
    let before = running(&router);
    assert!(load(&router, &new, &["--confirm", "60s"]).status.success());
    router.done(&["unload"]);
    assert_eq!(running(&router), before);
    let ended = wait_for(PATIENCE, || watchers(&router).is_empty().then_some(()));
    assert!(ended.is_some());
}

#[test]
fn nat_of_killed_watcher_is_brought_back() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("watcher").unwrap());
    let (old, new) = (files(&router, "old", 1), files(&router, "new", 2));
    assert!(load(&router, &old, &[]).status.success());
    let before = running(&router);
    assert!(load(&router, &new, &["--confirm", "1s"]).status.success());
    for watcher in watchers(&router) {
        kill(watcher, Signal::SIGKILL).unwrap();
    }
    let shown = wait_for(PATIENCE, || {
        let shown = router.done(&["show"]);
        shown.contains("an interrupted load").then_some(shown)
    });
    let shown = shown.unwrap();
    let message = "an interrupted load changed tables of iptables: nat (IPv4), nat (IPv6); the next load, confirm";
    assert!(
        shown.contains(message) && shown.contains("was not confirmed"),
        "{shown}"
    );
    assert_ne!(running(&router), before);
    let late = router.fails(&["confirm"]);
    assert!(
        late.contains("the tables of before are back") && late.contains("too late"),
        "{late}"
    );
    assert_eq!(running(&router), before);
    assert!(record(&router).is_none());
}

#[test]
fn confirmed_nat_stays_and_its_watcher_ends() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("kept").unwrap());
    let new = files(&router, "new", 2);
    assert!(load(&router, &new, &["--confirm", "60s"]).status.success());
    let mode = record(&router).unwrap().mode();
    assert_eq!(mode & 0o007, 0);
    let directory = fs::metadata("/run/fairpath-tables").unwrap();
    assert_eq!((directory.mode() & 0o777, directory.uid()), (0o700, 0));
    let loaded = running(&router);
    let change = ["--", "iptables", "-t", "nat", "-F"];
    let refused = router.command(&["apply", "--loaded"]).args(change).output();
    let text = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(
        text.contains("waits for `fairpath rules confirm`"),
        "{text}"
    );
    router.done(&["confirm"]);
    assert!(record(&router).is_none());
    let ended = wait_for(PATIENCE, || watchers(&router).is_empty().then_some(()));
    assert!(ended.is_some());
    assert_eq!(running(&router), loaded);
}

#[test]
fn equal_nat_is_not_touched() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("equal").unwrap());
    let rule = "OUTPUT -p udp -m udp --dport 7002 -m comment --comment \"a \\\"b\\\"\" -j ACCEPT";
    // Only a rule that translates tracks connections.
    let rules = [rule, "POSTROUTING -o none -j MASQUERADE"];
    router.load(&both(&rules));
    assert!(arrives(&router.netns, 7002));
    let counted = running(&router);
    assert!(counted.contains("[1:29] -A OUTPUT"), "{counted}");
    let file = router.place.path("rules.v4");
    let again = router.done(&["load", file.to_str().unwrap(), "--confirm", "60s"]);
    let message = "nat with 2 rules ran already, and was not touched (IPv4)\n";
    assert!(again.contains(message), "{again}");
    assert_eq!(running(&router), counted);
    assert!(record(&router).is_none() && watchers(&router).is_empty());
    router.done(&["confirm"]);
    // Counters of the file begin with its values.
    let given = router.load(&both(&rules).replace("-A OUTPUT", "[7:500] -A OUTPUT"));
    assert!(given.contains(message), "{given}");
    router.load(&nat(&["INPUT -j ACCEPT"]).replace("-A", "[7:500] -A"));
    let counted = running(&router);
    assert!(counted.contains("[7:500] -A INPUT -j ACCEPT"), "{counted}");
    // An empty table replaces another one.
    router.load(&nat(&[]));
    assert!(!running(&router).contains("-A"));
}

/// Commands as Docker gives them.
#[test]
fn commands_about_nat_go_to_iptables() {
    requires!(Need::Root, Need::Tool("iptables"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("passed").unwrap());
    let file = router.file(
        "rules.v4",
        &(both(&[]) + "*raw\n-A OUTPUT -p sctp\nCOMMIT\n"),
    );
    router.done(&["load", &file, "--skip-table", "raw"]);
    let apply = |line: &str| {
        let mut command = router.command(&["apply", "--loaded"]);
        command.arg("--").args(line.split(' ')).output().unwrap()
    };
    for (line, status) in [
        ("iptables --wait -t nat -N DOCKER", 0),
        (
            "iptables --wait -t nat -C POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
            1,
        ),
        (
            "iptables --wait -t nat -I POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
            0,
        ),
        (
            "iptables --wait -t nat -C POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
            0,
        ),
        ("iptables -t nat -A DOCKER -j WHAT", 2),
        ("ip6tables -w 3 -t nat -A OUTPUT -d ::1 -j ACCEPT", 0),
        ("-t nat -A DOCKER -j RETURN", 0),
        ("iptables -t raw -A PREROUTING -p sctp", 0),
        (
            "iptables --wait -t filter -C INPUT -p udp --dport 7001 -j DROP",
            0,
        ),
        ("iptables --wait -C INPUT -p udp --dport 7002 -j DROP", 1),
        ("iptables -w -t filter -n -L INPUT", 0),
    ] {
        let output = apply(line);
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    }
    let listed = apply("iptables -t nat -S DOCKER");
    assert_eq!(listed.stdout, b"-N DOCKER\n-A DOCKER -j RETURN\n");
    let bad = apply("iptables -t nat -C DOCKER -j ACCEPT");
    assert!(bad.stderr.starts_with(b"iptables: "), "{bad:?}");
    let listed = String::from_utf8(apply("iptables -nL").stdout).unwrap();
    assert!(listed.contains("udp dpt:7001"), "{listed}");
    let raw = router.netns.run(&["iptables", "-t", "raw", "-S"]).unwrap();
    assert!(raw.contains("-A PREROUTING -p sctp"), "{raw}");
    let edits = router.file("edits", "*raw\n-A OUTPUT -p sctp\nCOMMIT\n");
    let refused = router.fails(&["apply", "--loaded", "--edits", &edits]);
    assert!(
        refused.contains("table raw was left to iptables"),
        "{refused}"
    );
    // A wrapper that calls Fairpath ends.
    let script = format!(
        "exec {} rules apply --loaded --pins {} -- iptables \"$@\"",
        super::commands::fairpath().display(),
        router.place.path("pins").display()
    );
    let path = wrap(&router, &["iptables"], &script);
    let mut command = Command::new(router.place.path("wrapped/iptables"));
    let command = command.args(["-t", "nat", "-S"]);
    let mut inside = router.netns.command_without_sysfs(command.get_program());
    let looped = inside.args(command.get_args()).env("PATH", &path).output();
    let text = String::from_utf8(looped.unwrap().stderr).unwrap();
    assert!(text.contains("give the path of the tool itself"), "{text}");
}

#[test]
fn nat_is_skipped_or_refused_on_request() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("variants").unwrap());
    let before = running(&router);
    let file = router.file("rules.v4", &both(&["POSTROUTING -j MASQUERADE"]));
    let refused = router.fails(&["load", &file, "--nat=refuse"]);
    assert!(
        refused.contains("rules.v4:2: nat POSTROUTING: nat stays with iptables"),
        "{refused}"
    );
    for skip in [&["--nat=skip"][..], &["--skip-table", "nat"]] {
        let loaded = router.done(&[&["load", &file], skip].concat());
        assert!(
            loaded.contains("1 rule of nat left to iptables"),
            "{loaded}"
        );
        assert_eq!(running(&router), before);
    }
    let without = |words: &[&str]| {
        let mut command = router.command(words);
        command.env("PATH", "/nowhere").output().unwrap()
    };
    let missing = without(&["load", &file]);
    let text = String::from_utf8(missing.stderr).unwrap();
    assert!(
        text.contains("iptables-restore is not on PATH: install package iptables")
            && text.contains("nothing was changed"),
        "{text}"
    );
    assert!(without(&["load", &file, "--nat=skip"]).status.success());
    assert!(without(&["show"]).status.success());
    assert!(without(&["unload"]).status.success());
    // Chains that iptables cannot save are not replaced.
    let nft = "add chain ip nat other { type nat hook prerouting priority -90; }";
    router.netns.run(&["nft", "add table ip nat"]).unwrap();
    router.netns.run(&["nft", nft]).unwrap();
    let other = router.fails(&["load", &file]);
    assert!(other.contains("cannot save table nat"), "{other}");
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
}

/// Text of files reaches neither the terminal as it is, nor another rule.
#[test]
fn hostile_comments_stay_in_their_rule() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("hostile").unwrap());
    let comment = "OUTPUT -m comment --comment \"\u{1b}[2J; $(reboot) \u{202e}\\\\\" -j ACCEPT";
    router.load(&both(&[comment, "OUTPUT -j RETURN"]));
    assert_eq!(running(&router).matches("-A OUTPUT").count(), 2);
    let bad = both(&[&comment.replace("-j ACCEPT", "-m what --is \u{1b}[2J")]);
    let file = router.file("bad.v4", &bad);
    let refused = router.fails(&["load", &file]);
    assert!(
        refused.contains("bad.v4:2: table nat is refused"),
        "{refused}"
    );
    assert!(!refused.contains(['\u{1b}', '\u{202e}']), "{refused:?}");
    assert_eq!(running(&router).matches("-A OUTPUT").count(), 2);
}

#[test]
fn loads_at_once_leave_nat_of_one() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("at-once").unwrap());
    let files = [1, 2, 3].map(|port| {
        let rule = format!("OUTPUT -p udp -m udp --dport {port}");
        let text = nat(&[&rule]) + &filter(&[&rule]);
        (router.file(&format!("{port}.v4"), &text), rule)
    });
    for _ in 0..3 {
        let loads = files.each_ref().map(|(file, _)| {
            let mut load = router.command(&["load", file]);
            load.stdout(Stdio::null()).spawn().unwrap()
        });
        for mut load in loads {
            assert!(load.wait().unwrap().success());
        }
        let (ours, nat) = (router.done(&["counters"]), running(&router));
        for (_, rule) in &files {
            assert_eq!(ours.contains(rule), nat.contains(rule), "{ours}{nat}");
        }
        assert!(record(&router).is_none());
    }
}
