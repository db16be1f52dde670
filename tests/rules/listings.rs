//! `iptables -S` and `-L` of loaded rules, errors and exit codes: those of iptables-legacy in another
//! namespace.

use std::process::Output;

use fairpath_testbed::{Need, Netns, Testbed, requires};

use super::commands::fairpath;
use super::live::Router;

const SETS: &str = "create f2b hash:ip timeout 600\ncreate six hash:ip family inet6\n";

const RULES: &str = r#"*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:f2b-sshd-name-which-is-long - [0:0]
-A INPUT -p tcp -m multiport --dports 22,80:90 -j f2b-sshd-name-which-is-long
-A INPUT -p tcp -m multiport --sports 22 -m comment --comment "a b" -j DOCKER
-A INPUT -p tcp -m multiport ! --ports 22 -g DOCKER
-A INPUT -i lo -j ACCEPT
-A FORWARD ! -i eth0 -o eth+ -s 10.0.0.0/8 ! -d 10.1.2.3/255.255.0.255 -j DROP
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -m state --state NEW -j ACCEPT
-A INPUT -m state ! --state NEW,INVALID -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 --sport 1:5 -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT
-A INPUT -p tcp -m tcp --syn -j ACCEPT
-A INPUT -p tcp -m tcp ! --syn -j ACCEPT
-A INPUT -p tcp -m tcp ! --tcp-flags ALL NONE -j ACCEPT
-A INPUT -p tcp -m tcp ! --dport 22 --tcp-option 5 -j ACCEPT
-A INPUT -p tcp -m tcp ! --tcp-option 5 -j ACCEPT
-A INPUT -p udp -m udp --dport 53 ! --sport 5:6 -j ACCEPT
-A INPUT -p udp -m udp --dport 1024: --sport :5 -j ACCEPT
-A INPUT -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A INPUT -p icmp -m icmp ! --icmp-type 8 -j ACCEPT
-A INPUT -p icmp -m icmp --icmp-type 3/1 -j ACCEPT
-A INPUT -p icmp -m icmp --icmp-type any -j ACCEPT
-A INPUT -p 47 -f -j RETURN
-A INPUT ! -p 17 ! -f -j RETURN
-A INPUT -m set --match-set f2b src -j REJECT --reject-with icmp-port-unreachable
-A INPUT -p tcp -m set ! --match-set f2b dst -j REJECT --reject-with tcp-reset
-A INPUT -m limit --limit 3/min -j LOG --log-prefix "x y " --log-level 4
-A INPUT -m limit --limit 10/sec --limit-burst 7 -j LOG --log-level debug --log-uid --log-ip-options
-A INPUT -m limit --limit 1/hour -j LOG --log-prefix x --log-tcp-options --log-tcp-sequence
-A INPUT -m mark --mark 0x1 -j ACCEPT
-A INPUT -m mark ! --mark 0x1/0xff -j ACCEPT
-A INPUT -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT
-A INPUT -m mac ! --mac-source 00:11:22:33:44:55 -j ACCEPT
-A INPUT -m pkttype --pkt-type broadcast -j ACCEPT
-A INPUT -m pkttype ! --pkt-type host -j ACCEPT
-A INPUT -m conntrack --ctstate NEW --ctstatus ASSURED -j ACCEPT
-A INPUT -m conntrack ! --ctstate INVALID -j ACCEPT
-A INPUT -m length --length 10:20 -j NFLOG --nflog-prefix a --nflog-group 3
-A INPUT -m length ! --length 10 -j NFLOG --nflog-group 3
-A INPUT -s 1.2.3.4 -d 1.2.3.4
-A DOCKER-USER -j RETURN
-A FORWARD -j DOCKER-USER
-A FORWARD -i br-1234567890ab -o br-1234567890ab -j ACCEPT
COMMIT
"#;

const RULES6: &str = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
    -A INPUT -s 2001:db8::/32 -p tcp -m tcp --dport 22 -j REJECT --reject-with icmp6-adm-prohibited\n\
    -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT\n\
    -A INPUT -p ipv6-icmp -m icmp6 ! --icmpv6-type 1/3 -j ACCEPT\n\
    -A INPUT -m set --match-set six src -j REJECT --reject-with icmp6-port-unreachable\n\
    -A INPUT ! -s ::1/128 -i lo -j DROP\nCOMMIT\n";

/// Two namespaces with the same rules.
struct Twins {
    router: Router,
    legacy: Netns,
}

impl Twins {
    fn new(testbed: &Testbed) -> Twins {
        let router = Router::new(testbed.netns("loaded").unwrap());
        let legacy = testbed.netns("legacy").unwrap();
        let files = [("rules.v4", RULES), ("rules.v6", RULES6), ("sets", SETS)];
        let [v4, v6, sets] = files.map(|(name, text)| router.file(name, text));
        router.done(&["load", &v4, &v6, &sets]);
        legacy.run(&["ipset", "restore", "-file", &sets]).unwrap();
        legacy.run(&["iptables-legacy-restore", &v4]).unwrap();
        legacy.run(&["ip6tables-legacy-restore", &v6]).unwrap();
        Twins { router, legacy }
    }

    /// The same words for both: Fairpath, iptables.
    fn run(&self, words: &str) -> [Output; 2] {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = self.router.netns.command_without_sysfs(fairpath());
        command.args(["rules", "apply", "--loaded", "--pins"]);
        command.arg(self.router.place.path("pins")).arg("--");
        let ours = command.args(&words).output().unwrap();
        let tool = match words[0] {
            "iptables" => "iptables-legacy",
            "ip6tables" => "ip6tables-legacy",
            other => other,
        };
        let mut command = self.legacy.command(tool);
        let theirs = command.args(&words[1..]).output().unwrap();
        [ours, theirs]
    }
}

#[test]
fn listings_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed);
    for words in [
        "iptables -A DOCKER -c 123456789 98765432100 -j DROP",
        "iptables -A DOCKER -c 99999 100000 -j ACCEPT",
        "iptables -w 5 -S",
        "iptables -S -v",
        "iptables -t filter -S DOCKER",
        "iptables -S INPUT 3",
        "iptables -S INPUT 99",
        "iptables --list-rules INPUT",
        "iptables -t raw -S",
        "iptables -nL",
        "iptables --wait -n -L",
        "iptables -nvL",
        "iptables -L -n -v -x --line-numbers",
        "iptables -L INPUT -n --line-numbers",
        "iptables -vnL DOCKER",
        "iptables -nL INPUT 3",
        "iptables -nL INPUT 99",
        "ip6tables -S",
        "ip6tables -nvL",
        "ip6tables -L INPUT -n -x",
    ] {
        let [ours, theirs] = twins.run(words).map(|output| {
            let text = String::from_utf8(output.stdout).unwrap();
            (text, output.status.code())
        });
        for (our, their) in ours.0.lines().zip(theirs.0.lines()) {
            assert_eq!(our, their, "{words}");
        }
        assert_eq!(ours, theirs, "{words}");
    }
    let form = "iptables -A INPUT -m ttl --ttl-gt 3";
    assert!(twins.run(form).iter().all(|output| output.status.success()));
    let [refused, _] = twins.run("iptables -nL INPUT");
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.contains("the form of ttl in -L is not known"),
        "{refused}"
    );
}

#[test]
fn errors_have_the_texts_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed);
    for words in [
        "iptables -nL nope",
        "iptables -S nope",
        "iptables -C INPUT -j DROP",
        "iptables -D INPUT -j DROP",
        "iptables -N DOCKER",
        "iptables -X DOCKER",
        "iptables -X nope",
        "iptables -F nope",
        "iptables -A nope -j DROP",
        "iptables -D INPUT 99",
        "iptables -I INPUT 99 -j DROP",
        "iptables -E DOCKER INPUT",
        "iptables -P DOCKER DROP",
        "iptables -E nope x",
        "iptables -C INPUT -i lo -j ACCEPT",
        "iptables -D INPUT -i lo -j ACCEPT",
        "iptables -N new",
        "iptables -I INPUT -j new",
        "iptables -D INPUT -j new",
        "iptables -X new",
        "ipset -exist add f2b 1.2.3.4 timeout 60",
        "ipset test f2b 1.2.3.4",
        "ipset test f2b 1.2.3.5",
        "ipset -exist test f2b 1.2.3.5",
        "ipset -q test f2b 1.2.3.5",
        "ipset add f2b 1.2.3.4",
        "ipset -! add f2b 1.2.3.4",
        "ipset del f2b 1.2.3.9",
        "ipset -exist del f2b 1.2.3.9",
        "ipset destroy f2b",
        "ipset create f2b hash:ip",
        "ipset -exist create f2b hash:ip timeout 600",
        "ipset test nope 1.2.3.4",
        "ipset flush nope",
        "ipset flush f2b",
        "ipset test f2b 1.2.3.4",
        "ipset -exist destroy nope",
    ] {
        let [ours, theirs] = twins.run(words);
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{words}: {ours:?} {theirs:?}"
        );
        assert_eq!(ours.stdout, theirs.stdout, "{words}");
        let [our, their] =
            [&ours, &theirs].map(|output| String::from_utf8(output.stderr.clone()).unwrap());
        match words.starts_with("iptables") || words.contains("test f2b") {
            true => {
                let their = their.trim_end().trim_start_matches("Warning: ");
                assert!(our.contains(their), "{words}: {our} {their}");
            }
            false => assert_eq!(our.is_empty(), their.is_empty(), "{words}: {our}"),
        }
    }
}
