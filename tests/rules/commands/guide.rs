//! The page of the guide, and `rules import`.

use std::path::Path;
use std::process::Command;

use fairpath_testbed::{Need, Testbed, requires};

use super::{example, fairpath, stdout};
use crate::live::{Router, arrives, filter};

#[test]
fn guide_has_the_generated_table() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!(
        guide.ends_with(&stdout(&["check", "--matches"])),
        "run check --matches"
    );
    let lines = stdout(&["check", "--matches", "--format", "json"]);
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mac = lines.iter().find(|line| line["name"] == "-m mac").unwrap();
    assert_eq!(mac["points"]["tcx egress"]["answer"], "refused");
    assert_eq!(mac["hooks"]["OUTPUT"]["answer"], "refused");
}

#[test]
fn guide_shows_real_output() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(example("home.v4")).unwrap();
    let new = text.replace(
        "INPUT -i lan -p tcp -m tcp --dport 22",
        "INPUT -p tcp -m tcp --dport 22",
    );
    std::fs::write(dir.path().join("rules.v4"), &text).unwrap();
    std::fs::write(dir.path().join("new.v4"), new).unwrap();
    std::fs::copy(example("blocklist.v4"), dir.path().join("blocklist.v4")).unwrap();
    let mut shown = 0;
    for block in guide.split("```text\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let (command, expected) = block.split_once('\n').unwrap_or_default();
        let Some(words) = command.strip_prefix("$ fairpath ") else {
            continue;
        };
        let output = Command::new(fairpath())
            .args(words.split(' '))
            .current_dir(dir.path())
            .output()
            .unwrap();
        let real = [&output.stdout[..], &output.stderr].concat();
        assert_eq!(String::from_utf8_lossy(&real), expected, "{command}");
        shown += 1;
    }
    assert!(shown >= 6, "{shown} commands of the guide were run");
}

#[test]
fn import_reads_what_runs() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let netns = testbed.netns("import").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rules");
    let home = example("home.v4");
    netns.run(&["iptables-legacy-restore", &home]).unwrap();
    netns.run(&["ipset", "create", "bad", "hash:net"]).unwrap();
    netns
        .run(&["ipset", "add", "bad", "203.0.113.0/24"])
        .unwrap();
    let binary = fairpath();
    let words = [
        binary.to_str().unwrap(),
        "rules",
        "import",
        out.to_str().unwrap(),
    ];
    let report = netns.run(&words).unwrap();
    assert!(report.contains("rules.v4: 17 rules"), "{report}");
    let imported = out.join("rules.v4");
    let equal = stdout(&["diff", &home, imported.to_str().unwrap()]);
    assert!(equal.contains("equal"), "{equal}");
    let sets = std::fs::read_to_string(out.join("sets.ipset")).unwrap();
    assert!(sets.contains("add bad 203.0.113.0/24"), "{sets}");
}

/// Debian's default variant of ebtables is the other one than that of the import.
#[test]
fn import_names_what_the_other_variant_runs() {
    requires!(
        Need::Root,
        Need::Tool("iptables-nft"),
        Need::Tool("ebtables-nft"),
        Need::Tool("arptables-nft"),
        Need::Tool("arptables-legacy")
    );
    let testbed = Testbed::new();
    let netns = testbed.netns("other").unwrap();
    let run = |command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        netns.run(&words).unwrap();
    };
    run("ebtables-nft -A FORWARD -j DROP");
    run("ebtables-nft -N unused -P DROP");
    run("iptables-nft -P FORWARD DROP");
    run("arptables-nft -A INPUT -s 10.0.0.8 -j DROP");
    let dir = tempfile::tempdir().unwrap();
    let import = |more: &[&str]| {
        let mut command = netns.command_without_sysfs(fairpath());
        command.args(["rules", "import"]).arg(dir.path()).args(more);
        command.output().unwrap()
    };
    let output = import(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(!dir.path().join("rules.arp").exists());
    // A look makes no table, which all packets of ARP would meet.
    let tables = ["cat", "/proc/thread-self/net/arp_tables_names"];
    assert_eq!(netns.run(&tables).unwrap(), "");
    let notes = String::from_utf8_lossy(&output.stderr);
    for note in [
        "1 rule runs by ebtables-nft-save, not imported",
        "1 policy DROP runs by iptables-nft-save, not imported",
        "1 rule runs by arptables-nft-save, not imported",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    // The script arptables-legacy-save prints those of nftables.
    run("arptables-legacy -A INPUT -s 10.0.0.9 -j DROP");
    run("arptables-legacy -P FORWARD DROP");
    let output = import(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    let refusal =
        "1 rule and 1 policy DROP run by arptables-legacy, but arptables-legacy-save prints";
    assert!(error.contains(refusal), "{error}");
    let output = import(&["--nft"]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr);
    let note = "1 rule and 1 policy DROP run by arptables-legacy, not imported";
    assert!(notes.contains(note), "{notes}");
    let imported = std::fs::read_to_string(dir.path().join("rules.arp")).unwrap();
    assert!(
        imported.contains("10.0.0.8") && !imported.contains("10.0.0.9"),
        "{imported}"
    );
}

/// The five commands of the guide, and the way back.
#[test]
fn five_commands_move_a_running_firewall() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ping")
    );
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("moved").unwrap());
    let text = filter(&[
        "INPUT -i lo -p icmp -j ACCEPT",
        "INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "INPUT -p udp -m udp --dport 53 -j ACCEPT",
        "INPUT -j DROP",
    ]);
    let running = router.file("running.v4", &text);
    let restore = |file: &str| {
        router
            .netns
            .run(&["iptables-legacy-restore", file])
            .unwrap()
    };
    let flush = || router.netns.run(&["iptables-legacy", "-F"]).unwrap();
    restore(&running);
    let ping = || {
        let words = ["ping", "-c", "3", "-i", "0.01", "-q", "127.0.0.1"];
        router.netns.run(&words).unwrap()
    };
    let directory = router.place.path("firewall");
    let directory = directory.to_str().unwrap();
    let binary = fairpath();
    let import = [binary.to_str().unwrap(), "rules", "import", directory];
    let report = router.netns.run(&import).unwrap();
    assert!(
        report.contains("rules.v4: 4 rules of iptables-legacy-save"),
        "{report}"
    );
    let rules = format!("{directory}/rules.v4");
    assert!(stdout(&["check", &rules]).contains("at netfilter: 4 exact"));
    router.done(&["load", "--shadow", &rules]);
    ping();
    let compared = router.done(&["shadow"]);
    assert!(
        compared.contains("12 packets compared, no verdict differs"),
        "{compared}"
    );
    router.done(&["load", "--confirm", "60s", &rules]);
    router.done(&["confirm"]);
    flush();
    ping();
    assert!(!arrives(&router.netns, 9), "rules of Fairpath drop alone");
    assert_eq!(router.packets("-i lo -p icmp -j ACCEPT"), 12);
    // The way back.
    restore(&rules);
    router.done(&["unload"]);
    assert!(!arrives(&router.netns, 9), "rules of iptables are back");
    ping();
}

/// Both variants of iptables may have rules, and only one is imported.
#[test]
fn import_names_rules_of_the_other_variant() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("iptables-nft")
    );
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("variants").unwrap());
    let rules = router.file(
        "rules",
        &filter(&["INPUT -p udp -j DROP", "INPUT -p tcp -j DROP"]),
    );
    router.netns.run(&["iptables-nft-restore", &rules]).unwrap();
    let directory = router.place.path("firewall");
    let import = |more: &[&str]| {
        let mut command = router.netns.command(fairpath());
        command.args(["rules", "import"]).arg(&directory).args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let note = "2 rules run by iptables-nft-save, not imported: `--nft` imports these instead";
    assert!(import(&[]).contains(note));
    assert!(!import(&["--nft"]).contains("not imported"));
    router
        .netns
        .run(&["iptables-legacy-restore", &rules])
        .unwrap();
    assert!(import(&["--nft"]).contains("2 rules run by iptables-legacy-save, not imported"));
}
