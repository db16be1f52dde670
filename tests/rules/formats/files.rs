//! Whole files: quirks of lines that are not rules.

/// The outcome of both.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// Both accept the last input, and print the same.
    Same,
    /// Both refuse the last input.
    Refused,
    /// Only one accepts it, for this reason.
    OnlyTheirs(&'static str),
    OnlyOurs(&'static str),
}

/// Inputs in order, true for `--noflush`.
pub struct Case {
    pub inputs: &'static [(&'static str, bool)],
    pub expected: Expected,
}

/// Resets the table filter.
pub const EMPTY: &str = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n";

/// Options that the canonical form never has, because they are short for others.
pub const EXCLUDED: &[&str] = &[
    "log --log",
    "nflog --nflog",
    "time --utc",
    "time --localtz",
    "CONNMARK --mask",
    // Written as their opposites.
    "connlimit --connlimit-above with !",
    "hashlimit --hashlimit-upto with !",
    "hashlimit --hashlimit-above with !",
    "time --monthdays with !",
    "time --weekdays with !",
    // These need a set.
    "SET --add-set",
    "SET --del-set",
    "SET --timeout",
    "SET --exist",
    "set --return-nomatch",
    "set --update-counters",
    "set --update-subcounters",
];

const fn one(text: &'static [(&'static str, bool)], expected: Expected) -> Case {
    Case {
        inputs: text,
        expected,
    }
}

use Expected::{OnlyOurs, OnlyTheirs, Refused, Same};

/// Files of iptables-legacy.
pub const IPV4: &[Case] = &[
    one(
        &[(
            "*filter\n:INPUT DROP\n:a -\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[
            (
                "*filter\n:INPUT DROP\n:a -\n-A INPUT -j DROP\nCOMMIT\n",
                false,
            ),
            ("*filter\n:OUTPUT DROP\nCOMMIT\n", false),
        ],
        Same,
    ),
    one(
        &[("*filter\n  \t\nCOMMIT\n", false)],
        OnlyOurs("a line of blanks has no effect"),
    ),
    one(
        &[("*filter\n:a - [0:0]\n:a - [0:0]\nCOMMIT\n", false)],
        Refused,
    ),
    one(&[("*filter\n-A INPUT -j DROP\n", false)], Refused),
    one(
        &[("*filter\n-A INPUT -j DROP\n*nat\nCOMMIT\n", false)],
        Refused,
    ),
    one(
        &[("*filter\n-A INPUT -j DROP\r\nCOMMIT\r\n", false)],
        Refused,
    ),
    one(&[("*filter\r\nCOMMIT\r\n", false)], Refused),
    one(&[("*nosuch\nCOMMIT\n", false)], Refused),
    one(&[("-A INPUT -j DROP\n", false)], Refused),
    one(&[("COMMIT\n", false)], Refused),
    one(
        &[(
            "# a\n\n*filter\n# b\n\n:INPUT DROP [5:6]\n\nCOMMIT\n# c\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n   -A INPUT -j DROP\n\t-A INPUT -j ACCEPT\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n:b - [0:0]\n:a -\n:c - [3:4]\n-A INPUT -j b\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n:INPUT -\n:FORWARD DROP\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(&[("*filter\n:INPUT RETURN\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n:INPUT\nCOMMIT\n", false)], Refused),
    one(
        &[("*filter\n:INPUT ACCEPT [5]\nCOMMIT\n", false)],
        OnlyTheirs("the tool reads the missing number as 0"),
    ),
    one(&[("*filter\n:a ACCEPT\nCOMMIT\n", false)], Refused),
    one(
        &[(
            "*filter\n-N a\n-A a -j DROP\n-I a -j ACCEPT\n-I a 2 -p tcp\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\n-R INPUT 1 -j ACCEPT\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\n-A INPUT -p tcp\n-D INPUT 1\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\n-D INPUT -j DROP\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(&[("*filter\n-D INPUT -j DROP\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-D INPUT 1\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-R INPUT 1 -j DROP\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-I INPUT 3 -j DROP\nCOMMIT\n", false)], Refused),
    one(
        &[("*filter\n-P INPUT DROP\n-P FORWARD ACCEPT\nCOMMIT\n", false)],
        Same,
    ),
    one(&[("*filter\n:a -\n-P a DROP\nCOMMIT\n", false)], Refused),
    one(
        &[("*filter\n:a -\n-E a b\n-A INPUT -j b\nCOMMIT\n", false)],
        Same,
    ),
    one(&[("*filter\n:a -\n:b -\n-E a b\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n:a -\n:b -\n-X a\nCOMMIT\n", false)], Same),
    one(
        &[("*filter\n:a -\n-A INPUT -j a\n-X a\nCOMMIT\n", false)],
        Refused,
    ),
    one(
        &[("*filter\n:a -\n-A a -j DROP\n-X a\nCOMMIT\n", false)],
        Refused,
    ),
    one(&[("*filter\n-X INPUT\nCOMMIT\n", false)], Refused),
    one(
        &[("*filter\n:a -\n-A a -j DROP\n-F a\n-Z a\nCOMMIT\n", false)],
        Same,
    ),
    one(&[("*filter\n-A INPUT -j DROP\n-F\nCOMMIT\n", false)], Same),
    one(&[("*filter\n:a -\n-X\nCOMMIT\n", false)], Same),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[("*filter\n-A INPUT -t filter -j DROP\nCOMMIT\n", false)],
        Refused,
    ),
    one(
        &[(
            "*filter\n-4 -A INPUT -j DROP\n-6 -A INPUT -j ACCEPT\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n[5:6] -A INPUT -j DROP\n-A INPUT -c 7 8 -j DROP\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[("*filter\n[5:6 -A INPUT -j DROP\nCOMMIT\n", false)],
        Refused,
    ),
    one(
        &[(
            "*filter\n:abcdefghijklmnopqrstuvwxyzab - [0:0]\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(
        &[(
            "*filter\n:abcdefghijklmnopqrstuvwxyzabc - [0:0]\nCOMMIT\n",
            false,
        )],
        Refused,
    ),
    one(&[("*filter\n:ACCEPT - [0:0]\nCOMMIT\n", false)], Refused),
    one(
        &[("*filter\n:LOG - [0:0]\nCOMMIT\n", false)],
        OnlyTheirs("-N refuses the name"),
    ),
    one(
        &[("*filter\n:-a - [0:0]\nCOMMIT\n", false)],
        OnlyTheirs("-N refuses the name"),
    ),
    one(
        &[("*filter\n:!a - [0:0]\nCOMMIT\n", false)],
        OnlyTheirs("-N refuses the name"),
    ),
    one(&[("*filter\n:a.b_c+ä - [0:0]\nCOMMIT\n", false)], Same),
    one(&[("*filter\n-A INPUT -j nosuch\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-A INPUT -g nosuch\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-A nosuch -j DROP\nCOMMIT\n", false)], Refused),
    one(&[("*filter\n-A INPUT -j OUTPUT\nCOMMIT\n", false)], Refused),
    one(
        &[
            (
                "*filter\n:a -\n-A a -j DROP\n-A INPUT -j a\nCOMMIT\n",
                false,
            ),
            ("*filter\n:a -\n-A a -j ACCEPT\nCOMMIT\n", true),
        ],
        Same,
    ),
    one(
        &[
            ("*filter\n:INPUT DROP\n-A INPUT -j DROP\nCOMMIT\n", false),
            ("*filter\n-A INPUT -j ACCEPT\n:b -\nCOMMIT\n", true),
        ],
        Same,
    ),
    one(
        &[
            ("*filter\n:INPUT DROP\n-A INPUT -j DROP\nCOMMIT\n", false),
            ("*filter\n:INPUT ACCEPT\n:FORWARD -\nCOMMIT\n", true),
        ],
        Same,
    ),
    one(
        &[
            ("*filter\n:a -\nCOMMIT\n", false),
            ("*filter\n-N a\nCOMMIT\n", true),
        ],
        Refused,
    ),
];

/// Files of arptables-nft; the legacy tool has a script that starts it for each line.
pub const ARP: &[Case] = &[
    one(
        &[("*filter\n:zz -\n:aa -\n-A INPUT -j aa\n\n", false)],
        Same,
    ),
    one(&[("*filter\n:zz -\nCOMMIT\n# end\n", false)], Same),
    one(
        &[("*filter\n:INPUT DROP [4:5]\n:zz - [0:0]\n", false)],
        Same,
    ),
    one(&[("*filter\n[3:4] -A INPUT -j DROP -c 5 6\n", false)], Same),
    one(
        &[("*filter\n-A INPUT -j DROP\n\n*filter\n-A INPUT\n", false)],
        Same,
    ),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\n-A INPUT -j ACCEPT\n-D INPUT 1\n",
            false,
        )],
        Same,
    ),
    one(
        &[("*filter\n:a -\n-A a -j DROP\n-F a\n-P OUTPUT DROP\n", false)],
        Same,
    ),
    one(&[("*filter\n-A INPUT -j DROP\r\n", false)], Refused),
    one(&[("*raw\n-A INPUT -j DROP\n", false)], Refused),
    one(&[("*filter\n-A INPUT -j aa\n:aa -\n", false)], Refused),
    one(&[(":zz -\n", false)], Refused),
    one(&[("*filter\n-R INPUT 1 -j DROP\n", false)], Refused),
    one(&[("*filter\n-A INPUT -j OUTPUT\n", false)], Refused),
    one(
        &[("*filter\n:zz -\n:zz -\n", false)],
        OnlyTheirs("the legacy tool refuses the second line"),
    ),
    one(
        &[("*filter\n:zz ACCEPT\n", false)],
        OnlyTheirs("the legacy tool refuses the policy"),
    ),
];

/// Files of ebtables-nft.
pub const BRIDGE: &[Case] = &[
    one(
        &[("*filter\n:zz ACCEPT\n:aa ACCEPT\n-A INPUT -j aa\n\n", false)],
        Same,
    ),
    one(&[("*filter\n:zz -\n", false)], Refused),
    one(
        &[(
            "*filter\n:zz ACCEPT\n-A INPUT -j zz -c 7 8\nCOMMIT\n",
            false,
        )],
        Same,
    ),
    one(&[("*filter\n[3:4] -A INPUT -j DROP\n", false)], Same),
    one(
        &[("*filter\n-A INPUT -j DROP\n\n*filter\n-A INPUT\n", false)],
        Same,
    ),
    one(&[("*filter\n:INPUT DROP\n:FORWARD -\n", false)], Same),
    one(
        &[(
            "*filter\n-A INPUT -j DROP\n-A INPUT -j ACCEPT\n-D INPUT 1\n",
            false,
        )],
        Same,
    ),
    one(&[("*filter\n-A INPUT -j DROP\r\n", false)], Refused),
    one(&[("*nosuch\n", false)], Refused),
    one(&[("*filter\n:INPUT FOO\n", false)], Refused),
    one(&[("*filter\n:INPUT RETURN\n", false)], Refused),
    one(&[("*filter\n-A INPUT -j nosuch\n", false)], Refused),
    one(&[("*filter\n-A INPUT -t filter -j DROP\n", false)], Refused),
    one(&[("*filter\n:aa DROP\n:bb RETURN\n", false)], Same),
    one(
        &[("*broute\n-A BROUTING -p ARP -j DROP\n", false)],
        OnlyOurs("the nft variant has no broute table, the legacy tool has"),
    ),
    one(
        &[("*filter\n:zz ACCEPT\n:zz ACCEPT\n", false)],
        OnlyTheirs("the legacy tool refuses the second line"),
    ),
];
