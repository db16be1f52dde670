//! Commands of Docker and fail2ban on loaded rules, through wrappers as the guide has them.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use fairpath_testbed::{Need, Testbed, requires};

use super::commands::fairpath;
use super::live::Router;

/// Wrappers of the tools in front of the path.
struct Host {
    router: Router,
    path: String,
}

impl Host {
    fn new(testbed: &Testbed, name: &str) -> Host {
        let router = Router::new(testbed.netns(name).unwrap());
        for tool in ["iptables", "ipset"] {
            let pins = router.place.path("pins");
            let text = format!(
                "#!/bin/sh\nexec {} rules apply --loaded --pins {} -- /usr/sbin/{tool} \"$@\"\n",
                fairpath().display(),
                pins.display()
            );
            let wrapper = router.file(tool, &text);
            std::fs::set_permissions(wrapper, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let wrappers = router.place.path("iptables");
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", wrappers.parent().unwrap().display());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rules/docker.v4");
        router.done(&["load", file]);
        Host { router, path }
    }

    /// Runs a command through its wrapper.
    fn run(&self, words: &str) -> Output {
        let words: Vec<&str> = words.split(' ').collect();
        let wrapper = self.router.place.path(words[0]);
        let mut command = self.router.netns.command_without_sysfs(&wrapper);
        let command = command.args(&words[1..]).env("PATH", &self.path);
        command.output().unwrap()
    }

    /// Runs commands that succeed and print nothing.
    #[track_caller]
    fn silent(&self, commands: &[&str]) {
        for words in commands {
            let output = self.run(words);
            let is_silent = output.stdout.is_empty() && output.stderr.is_empty();
            assert!(output.status.success() && is_silent, "{words}: {output:?}");
        }
    }

    #[track_caller]
    fn printed(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &str, text: &str) {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words}: {output:?}");
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(printed.contains(text), "{words}: {printed}");
    }
}

const NO_RULE: &str = "Bad rule (does a matching rule exist in that chain?).";
const NO_CHAIN: &str = "No chain/target/match by that name.";

#[test]
fn docker_publishes_a_port() {
    requires!(
        Need::Root,
        Need::Tool("iptables"),
        Need::Tool("iptables-restore")
    );
    let testbed = Testbed::new();
    let host = Host::new(&testbed, "docker");
    assert!(host.printed("iptables --version").starts_with("iptables v"));
    for words in ["iptables --wait -L -n", "iptables --wait -t nat -L -n"] {
        assert!(host.printed(words).contains("Chain DOCKER ("), "{words}");
    }
    host.fails("iptables --wait -t filter -n -L NONE", NO_CHAIN);
    let nat =
        "DOCKER -p tcp -d 0/0 --dport 8080 -j DNAT --to-destination 172.17.0.2:80 ! -i docker0";
    let accept = "DOCKER ! -i docker0 -o docker0 -p tcp -d 172.17.0.2 --dport 80 -j ACCEPT";
    for (table, rule) in [("nat", nat), ("filter", accept)] {
        let command = |verb: &str| format!("iptables --wait -t {table} {verb} {rule}");
        host.fails(&command("-C"), NO_RULE);
        host.silent(&[&command("-A"), &command("-C")]);
    }
    assert_eq!(
        host.printed("iptables --wait -S DOCKER"),
        "-N DOCKER\n-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT\n"
    );
    assert!(
        host.printed("iptables -t nat -S DOCKER")
            .contains("--to-destination 172.17.0.2:80")
    );
    // Another network.
    host.silent(&[
        "iptables --wait -I DOCKER-ISOLATION-STAGE-1 -i br-1 ! -o br-1 -j DOCKER-ISOLATION-STAGE-2",
        "iptables --wait -I DOCKER-ISOLATION-STAGE-2 -o br-1 -j DROP",
        "iptables --wait -D DOCKER-ISOLATION-STAGE-2 -o br-1 -j DROP",
        "iptables --wait -N DOCKER-CT",
        "iptables --wait -I DOCKER-USER -s 198.51.100.0/24 -j DROP",
        "iptables --wait -t filter -F DOCKER-CT",
        "iptables --wait -t filter -X DOCKER-CT",
    ]);
}

#[test]
fn fail2ban_bans_by_rules_and_sets() {
    requires!(
        Need::Root,
        Need::Tool("iptables"),
        Need::Tool("iptables-restore")
    );
    let testbed = Testbed::new();
    let host = Host::new(&testbed, "fail2ban");
    let jump = "INPUT -p tcp -m multiport --dports ssh -j f2b-sshd";
    let reject = "-j REJECT --reject-with icmp-port-unreachable";
    host.fails("iptables -w -C f2b-sshd -j RETURN", NO_CHAIN);
    host.silent(&[
        "iptables -w -N f2b-sshd",
        "iptables -w -A f2b-sshd -j RETURN",
    ]);
    host.fails(&format!("iptables -w -C {jump}"), NO_RULE);
    host.silent(&[
        &format!("iptables -w -I {jump}"),
        &format!("iptables -w -C {jump}"),
        &format!("iptables -w -I f2b-sshd 1 -s 203.0.113.9 {reject}"),
    ]);
    let listed = host.printed("iptables -n -L INPUT");
    assert!(listed.contains("f2b-sshd "), "{listed}");
    host.silent(&[
        &format!("iptables -w -D f2b-sshd -s 203.0.113.9 {reject}"),
        &format!("iptables -w -D {jump}"),
        "iptables -w -F f2b-sshd",
        "iptables -w -X f2b-sshd",
    ]);
    let rule =
        format!("INPUT -p tcp -m multiport --dports ssh -m set --match-set f2b-sshd src {reject}");
    host.silent(&[
        "ipset -exist create f2b-sshd hash:ip timeout 0 maxelem 65536",
        &format!("iptables -w -I {rule}"),
        "ipset -exist add f2b-sshd 203.0.113.9 timeout 600",
        "ipset -exist add f2b-sshd 203.0.113.9 timeout 600",
    ]);
    assert!(host.run("ipset test f2b-sshd 203.0.113.9").status.success());
    let saved = host.printed("ipset save f2b-sshd");
    assert!(
        saved.contains("add f2b-sshd 203.0.113.9 timeout 59"),
        "{saved}"
    );
    host.silent(&["ipset -exist del f2b-sshd 203.0.113.9"]);
    host.fails("ipset destroy f2b-sshd", "in use by a rule of filter INPUT");
    host.silent(&[
        &format!("iptables -w -D {rule}"),
        "ipset flush f2b-sshd",
        "ipset destroy f2b-sshd",
    ]);
}
