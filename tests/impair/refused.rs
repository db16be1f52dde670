//! Refused arguments, and their messages.

use std::process::Command;

use fairpath_testbed::{Need, Router, requires};
use fairpath_tests::PATIENCE;

use crate::scene::{Impaired, Scene, command, router};

/// Status and complaint.
fn refusal(net: &Scene, mut command: Command) -> (i32, String) {
    command.arg("--no-self-test");
    let mut process = net.router.spawn(command).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    // What was printed before the end has been read by then.
    let output = fairpath_testbed::wait_for(PATIENCE, || {
        let output = process.stderr();
        output.ends_with('\n').then_some(output)
    });
    (status.code().unwrap_or(-1), output.unwrap_or_default())
}

#[test]
fn invalid_options_are_refused_with_a_remedy() {
    requires!(Need::Root);
    let net = router();
    let cases: [(&[&str], i32, &str); 17] = [
        (&["wan"], 2, "no impairment is configured"),
        (&[], 2, "<IF>"),
        (&["nowan", "--loss", "1%"], 1, "no such interface"),
        (
            &["wan", "--peer", "wan", "--loss", "1%"],
            2,
            "one interface",
        ),
        (&["wan", "--loss", "120%"], 2, "120%"),
        (&["wan", "--delay", "20"], 2, "write 5ms"),
        (&["wan", "--rate", "fast"], 2, "fast"),
        (&["wan", "--egress", "los 1%"], 2, "--los"),
        (
            &["wan", "--ingress", "loss 1%", "--peer", "lan"],
            2,
            "--peer",
        ),
        (
            &["wan", "--delay", "1ms", "--via", "xdp"],
            2,
            "supports loss only",
        ),
        (
            &["wan", "--loss", "1%", "--via", "xdp"],
            2,
            "--ingress only",
        ),
        (&["wan", "--delay", "1ms", "--via", "afxdp"], 2, "--peer"),
        (
            &["wan", "--rate", "1mbit", "--policy", "fq_codl"],
            2,
            "fq_codel",
        ),
        (&["wan", "--delay", "1ms", "--all"], 2, "--all"),
        (
            &["wan", "--ingress", "duplicate 1%"],
            2,
            "cannot be duplicated",
        ),
        (
            &["lan", "--peer", "wan", "--loss", "1%", "--mode", "bridge"],
            2,
            "--mode",
        ),
        (&["wan", "--loss", "1%", "--write", "x"], 2, "--format json"),
    ];
    for (words, status, part) in cases {
        let (code, output) = refusal(&net, command(&net.router, words));
        assert!(
            code == status && output.contains(part),
            "{words:?}: {code} {output}"
        );
    }
}

#[test]
fn the_callers_login_is_protected_by_default() {
    requires!(Need::Root);
    let net = router();
    let (client, here) = (Router::CLIENT.v4, Router::LAN.v4);
    let login = format!("{client} 40000 {here} 22");
    let over = |name: &str, words: &[&str]| {
        let mut command = command(
            &net.router,
            &[&[name, "--delay", "20ms", "--duration", "200ms"], words].concat(),
        );
        command.env("SSH_CONNECTION", &login);
        refusal(&net, command)
    };
    let (code, output) = over("lan", &[]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("remote login") && output.contains("--yes"),
        "{output}"
    );
    assert!(output.contains(&client.to_string()), "{output}");
    // Not by the other one, and not where it is meant.
    for (name, words) in [("wan", &[][..]), ("lan", &["--yes"])] {
        let (code, output) = over(name, words);
        assert_eq!(code, 0, "{name} {words:?}: {output}");
    }
    // sudo takes the variable away; a process above has it.
    let mut shell = net.router.command_without_sysfs("sh");
    let run = format!(
        "env -u SSH_CONNECTION {} impair lan --delay 20ms --duration 200ms --no-self-test; exit $?",
        fairpath_tests::binary::fairpath().display()
    );
    shell.env("SSH_CONNECTION", &login).args(["-c", &run]);
    let mut process = net.router.spawn(shell).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    process.wait_stderr("remote login", PATIENCE).unwrap();
    let output = process.stderr();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains(&client.to_string()), "{output}");
}

#[test]
fn lower_interfaces_carry_the_login() {
    requires!(Need::Root);
    let net = router();
    let ip = |words: &str| {
        let words: Vec<&str> = std::iter::once("ip").chain(words.split(' ')).collect();
        net.router.run(&words).unwrap();
    };
    // The address is on a bridge whose port is eth7; another is on lo, and the route decides.
    ip("link add br7 type bridge");
    ip("link add eth7 type veth peer name peer7");
    ip("link set eth7 master br7");
    ip("address add 192.0.2.1/24 dev br7");
    ip("address add 198.51.100.1/32 dev lo");
    for link in ["lo", "br7", "eth7", "peer7"] {
        ip(&format!("link set {link} up"));
    }
    for here in ["192.0.2.1", "198.51.100.1"] {
        for (name, is_cut) in [("br7", true), ("eth7", true), ("wan", false)] {
            let words = [name, "--delay", "20ms", "--duration", "200ms"];
            let mut command = command(&net.router, &words);
            command.env("SSH_CONNECTION", format!("192.0.2.2 40000 {here} 22"));
            let (code, output) = refusal(&net, command);
            assert_eq!(code, i32::from(is_cut), "{name} {here}: {output}");
            assert_eq!(
                output.contains("remote login from 192.0.2.2"),
                is_cut,
                "{output}"
            );
        }
    }
}

#[test]
fn a_rule_loaded_later_ends_afxdp() {
    requires!(Need::Root, Need::Tool("nft"));
    let net = router();
    let impaired = Impaired::between(&net, "afxdp", &["--delay", "1ms"]);
    let rule = "add table inet late; add chain inet late f { type filter hook forward priority 0; policy drop; }";
    net.router.run(&["nft", rule]).unwrap();
    let ended = impaired.ended();
    assert_eq!(ended.status.code(), Some(1));
    let report = ended.report.to_string();
    assert!(report.contains("netfilter (nft inet late f)"), "{report}");
}
