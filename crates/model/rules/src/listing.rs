//! Rules as `iptables -S` and `iptables -n -L` of Debian 12 (1.8.9, legacy) print them.
//!
//! Each match and target has its own form in `-L`. Those of which the form is not known are refused by
//! name. Deliberately absent: `-L` without `-n`, which looks up names of hosts.

use std::fmt::Write as _;

use crate::read::new_table;
use crate::spec::Kind;
use crate::tree::{Chain, Counters, Family, Group, Rule, Ruleset, Table, Target, Value};
use crate::write::{item_text, matches, target_and_options};

/// The chains and rules that are printed, and their form.
#[derive(Debug, Clone, Default)]
pub struct Listing<'a> {
    /// The table.
    pub table: &'a str,
    /// Only this chain.
    pub chain: Option<&'a str>,
    /// Only this rule of it, from 1.
    pub rule: Option<u32>,
    /// Counters and interfaces: `-v`.
    pub verbose: bool,
    /// Counters in full: `-x`.
    pub exact: bool,
    /// `--line-numbers`.
    pub numbers: bool,
}

/// Rules cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// As iptables prints it.
    #[error("No chain/target/match by that name.")]
    Chain,
    /// No such table.
    #[error("table \"{0}\" does not exist")]
    Table(String),
    /// A match or target without a known form.
    #[error("chain {chain}, rule {number}: the form of {name} in -L is not known: use -S")]
    Form {
        /// The chain.
        chain: String,
        /// The rule, from 1.
        number: usize,
        /// The match or target.
        name: String,
    },
}

impl Listing<'_> {
    /// Prints as `-S`.
    ///
    /// # Errors
    /// [`ListError::Chain`], [`ListError::Table`].
    pub fn rules(&self, ruleset: &Ruleset) -> Result<Vec<u8>, ListError> {
        let empty = self.empty(ruleset)?;
        let table = ruleset.table(self.table).unwrap_or(&empty);
        let chains = self.chains(table)?;
        let mut out = Vec::new();
        for chain in chains.iter().filter(|_| self.rule.is_none()) {
            let kind = if chain.hook.is_some() { "-P " } else { "-N " };
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(&chain.name);
            if chain.hook.is_some() {
                out.extend_from_slice(format!(" {}", chain.policy.name()).as_bytes());
                if self.verbose {
                    let Counters { packets, bytes } = chain.counters;
                    out.extend_from_slice(format!(" -c {packets} {bytes}").as_bytes());
                }
            }
            out.push(b'\n');
        }
        for chain in chains {
            for (_, rule) in self.rules_of(chain) {
                out.extend_from_slice(b"-A ");
                out.extend_from_slice(&chain.name);
                matches(ruleset.family, rule, &mut out);
                if self.verbose {
                    let Counters { packets, bytes } = counters(rule);
                    out.extend_from_slice(format!(" -c {packets} {bytes}").as_bytes());
                }
                target_and_options(ruleset.family, table, rule, &mut out);
                out.push(b'\n');
            }
        }
        Ok(out)
    }

    /// Prints as `-n -L`.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn chains_with_rules(&self, ruleset: &Ruleset) -> Result<String, ListError> {
        let empty = self.empty(ruleset)?;
        let table = ruleset.table(self.table).unwrap_or(&empty);
        let mut out = String::new();
        for (at, chain) in self.chains(table)?.into_iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            if self.rule.is_none() {
                self.heading(table, chain, &mut out);
            }
            for (number, rule) in self.rules_of(chain) {
                let row = self.row(ruleset.family, table, number, rule, &mut out);
                row.map_err(|name| ListError::Form {
                    chain: chain.name().into_owned(),
                    number,
                    name,
                })?;
            }
        }
        Ok(out)
    }

    /// A table of the family that has no rules.
    fn empty(&self, ruleset: &Ruleset) -> Result<Table, ListError> {
        let empty = new_table(ruleset.family, self.table, 0);
        empty.ok_or_else(|| ListError::Table(self.table.to_owned()))
    }

    fn chains<'t>(&self, table: &'t Table) -> Result<Vec<&'t Chain>, ListError> {
        let is_wanted = |chain: &&Chain| {
            self.chain
                .is_none_or(|name| *chain.name == *name.as_bytes())
        };
        let chains = table.sorted().into_iter().map(|(_, chain)| chain);
        let chains: Vec<_> = chains.filter(is_wanted).collect();
        match chains.is_empty() {
            true => Err(ListError::Chain),
            false => Ok(chains),
        }
    }

    fn rules_of<'c>(&self, chain: &'c Chain) -> impl Iterator<Item = (usize, &'c Rule)> {
        let only = self.rule;
        let numbered = (1..).zip(&chain.rules);
        numbered.filter(move |(number, _)| only.is_none_or(|only| only as usize == *number))
    }

    fn heading(&self, table: &Table, chain: &Chain, out: &mut String) {
        let _ = write!(out, "Chain {} (", chain.name());
        if chain.hook.is_some() {
            let _ = write!(out, "policy {}", chain.policy.name());
            if self.verbose {
                let Counters { packets, bytes } = chain.counters;
                let (packets, bytes) = (self.count(packets), self.count(bytes));
                let _ = write!(out, " {packets} packets, {bytes} bytes");
            }
        } else {
            let chains = table.chains();
            let targets = chains.flat_map(|(_, chain)| chain.rules.iter().map(|rule| rule.target));
            let references = targets.filter(|target| match target {
                Target::Jump(to) | Target::Goto(to) => table.get(*to).name == chain.name,
                _ => false,
            });
            let _ = write!(out, "{} references", references.count());
        }
        out.push_str(")\n");
        if self.numbers {
            out.push_str("num  ");
        }
        if self.verbose {
            out.push_str(match self.exact {
                true => "    pkts      bytes ",
                false => " pkts bytes ",
            });
        }
        out.push_str("target     prot opt");
        if self.verbose {
            out.push_str(" in     out    ");
        }
        let _ = writeln!(out, " {:<19}  {:<19} ", "source", "destination");
    }

    /// A number as `xtables_print_num` shortens it.
    fn count(&self, number: u64) -> String {
        if self.exact || number <= 99_999 {
            return number.to_string();
        }
        let mut rest = number;
        for unit in ["K", "M", "G"] {
            rest = (rest + 500) / 1000;
            if rest <= 9999 {
                return format!("{rest}{unit}");
            }
        }
        format!("{}T", (rest + 500) / 1000)
    }

    /// The error is the name of a match or target without a known form.
    fn row(
        &self,
        family: Family,
        table: &Table,
        number: usize,
        rule: &Rule,
        out: &mut String,
    ) -> Result<(), String> {
        if self.numbers {
            let _ = write!(out, "{number:<4} ");
        }
        if self.verbose {
            let Counters { packets, bytes } = counters(rule);
            for number in [packets, bytes].map(|number| self.count(number)) {
                let _ = match self.exact {
                    true => write!(out, "{number:>8} "),
                    false => write!(out, "{number:>5} "),
                };
            }
        }
        let (name, is_goto) = target(table, rule);
        let _ = write!(out, "{name:<9} ");
        let mut header = Header::default();
        let items = rule.items.iter().filter(|item| item.kind == Kind::Ip);
        for item in items {
            header.take(&item_text(family, item), item.not, &item.value);
        }
        let not = if header.not_protocol { '!' } else { ' ' };
        let _ = write!(out, "{not}{:<5}", header.protocol);
        let fragment = match header.fragment {
            None => "--",
            Some(false) => "-f",
            Some(true) => "!f",
        };
        let _ = write!(out, "{fragment} ");
        if self.verbose {
            let [input, output] = header.interfaces.map(|name| match name.is_empty() {
                true => "*".to_owned(),
                false => name,
            });
            let _ = write!(out, " {input:<6} {output:<6} ");
        }
        let any = if family == Family::Ipv6 {
            "::/0"
        } else {
            "0.0.0.0/0"
        };
        for (not, address) in header.addresses {
            let shown = match address.is_empty() {
                true => any,
                false => &address,
            };
            let _ = write!(out, "{}{shown:<19} ", if not { '!' } else { ' ' });
        }
        if is_goto {
            out.push_str("[goto] ");
        }
        for group in rule.matches().filter(|group| group.kind != Kind::Ip) {
            let form = of_match(family, &group).ok_or_else(|| group.spec().name.to_owned())?;
            out.push(' ');
            out.push_str(&form);
        }
        if let Target::Extension(kind) = rule.target {
            let form = of_target(family, &rule.target_options());
            let form = form.ok_or_else(|| kind.spec().name.to_owned())?;
            out.push(' ');
            out.push_str(&form);
        }
        out.push('\n');
        Ok(())
    }
}

fn counters(rule: &Rule) -> Counters {
    rule.counters.as_deref().copied().unwrap_or_default()
}

/// The name of a target; true for `-g`.
fn target(table: &Table, rule: &Rule) -> (String, bool) {
    let name = match rule.target {
        Target::None => "",
        Target::Accept => "ACCEPT",
        Target::Drop => "DROP",
        Target::Return => "RETURN",
        Target::Queue => "QUEUE",
        Target::Continue => "CONTINUE",
        Target::Extension(kind) => kind.spec().name,
        Target::Jump(to) => return (table.get(to).name().into_owned(), false),
        Target::Goto(to) => return (table.get(to).name().into_owned(), true),
    };
    (name.to_owned(), false)
}

/// The fields of a rule's header.
#[derive(Default)]
struct Header {
    not_protocol: bool,
    protocol: u64,
    /// True: negated.
    fragment: Option<bool>,
    interfaces: [String; 2],
    addresses: [(bool, String); 2],
}

impl Header {
    fn take(&mut self, text: &str, not: bool, value: &Value) {
        let text = text.strip_prefix("! ").unwrap_or(text);
        let (option, rest) = text.split_once(' ').unwrap_or((text, ""));
        match (option, value) {
            ("-p", Value::Number(number)) => {
                self.protocol = *number;
                self.not_protocol = not;
            }
            ("-f", _) => self.fragment = Some(not),
            ("-i" | "-o", _) => {
                let not = if not { "!" } else { "" };
                self.interfaces[usize::from(option == "-o")] = format!("{not}{rest}");
            }
            ("-s" | "-d", _) => {
                let host = rest.strip_suffix("/32").filter(|host| !host.contains(':'));
                let host = host.or_else(|| rest.strip_suffix("/128"));
                let address = host.unwrap_or(rest).to_owned();
                self.addresses[usize::from(option == "-d")] = (not, address);
            }
            _ => {}
        }
    }
}

/// An option of a match as words: its name without dashes, whether it is negated, its value.
struct Words {
    name: String,
    not: bool,
    value: String,
}

fn words_of(family: Family, group: &Group) -> Vec<Words> {
    let items = group.items.iter().filter(|item| !item.is_head());
    let words = items.map(|item| {
        let text = item_text(family, item);
        let text = text.strip_prefix("! ").unwrap_or(&text);
        let (name, value) = text.split_once(' ').unwrap_or((text, ""));
        Words {
            name: name.trim_start_matches('-').to_owned(),
            not: item.not,
            value: value.to_owned(),
        }
    });
    words.collect()
}

fn value_of<'w>(words: &'w [Words], name: &str) -> Option<&'w Words> {
    words.iter().find(|word| word.name == name)
}

/// `!` for a negated option, with what follows.
fn not(word: &Words, text: &'static str) -> &'static str {
    if word.not { text } else { "" }
}

/// Options as in a file, without dashes.
fn plain(words: &[Words]) -> String {
    let one = |word: &Words| {
        let blank = if word.value.is_empty() { "" } else { " " };
        format!("{}{}{blank}{}", not(word, "! "), word.name, word.value)
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// `None`: the form is not known.
fn of_match(family: Family, group: &Group) -> Option<String> {
    let words = words_of(family, group);
    let known = |names: &[&str]| words.iter().all(|word| names.contains(&&word.name[..]));
    let form = match group.kind {
        Kind::Conntrack | Kind::State | Kind::Set => plain(&words),
        Kind::Tcp if known(&["sport", "dport", "tcp-flags", "tcp-option"]) => {
            let mut out = "tcp".to_owned() + &ports(&words);
            if let Some(option) = value_of(&words, "tcp-option") {
                let _ = write!(out, " option={}{}", not(option, "!"), option.value);
            }
            if let Some(flags) = value_of(&words, "tcp-flags") {
                let (mask, value) = flags.value.split_once(' ')?;
                let (mask, value) = (tcp_flags(mask)?, tcp_flags(value)?);
                let _ = write!(out, " flags:{}0x{mask:02X}/0x{value:02X}", not(flags, "!"));
            }
            out
        }
        Kind::Udp if known(&["sport", "dport"]) => "udp".to_owned() + &ports(&words),
        Kind::Multiport => {
            let [word] = &words[..] else { return None };
            format!("multiport {} {}{}", word.name, not(word, " !"), word.value)
        }
        Kind::Comment => {
            let text = group.get("--comment").and_then(|item| match &item.value {
                Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
            format!("/* {} */", text?)
        }
        Kind::Icmp | Kind::Icmp6 => {
            let [word] = &words[..] else { return None };
            let name = if group.kind == Kind::Icmp {
                "icmp"
            } else {
                "ipv6-icmp"
            };
            let value = if word.value == "any" {
                "255"
            } else {
                &word.value
            };
            let value = match value.split_once('/') {
                Some((kind, code)) => format!("{kind} code {code}"),
                None => value.to_owned(),
            };
            format!("{name}{}type {value}", not(word, " !"))
        }
        Kind::Addrtype => {
            let mut out = "ADDRTYPE match".to_owned();
            for word in &words {
                let _ = match &word.name[..] {
                    "limit-iface-in" => write!(out, " limit-in"),
                    "limit-iface-out" => write!(out, " limit-out"),
                    name => write!(out, " {name} {}{}", not(word, "!"), word.value),
                };
            }
            out
        }
        Kind::Limit => {
            let rate = value_of(&words, "limit").map_or("3/hour", |word| &word.value[..]);
            let burst = value_of(&words, "limit-burst").map_or("5", |word| &word.value[..]);
            format!("limit: avg {rate} burst {burst}")
        }
        Kind::Mark => {
            let [word] = &words[..] else { return None };
            format!("mark match {}{}", not(word, "! "), word.value)
        }
        Kind::Mac => {
            let [word] = &words[..] else { return None };
            format!("MAC {}{}", not(word, "! "), word.value)
        }
        Kind::Pkttype => {
            let [word] = &words[..] else { return None };
            format!(
                "PKTTYPE {} {}",
                if word.not { "!=" } else { "=" },
                word.value
            )
        }
        Kind::Length => {
            let [word] = &words[..] else { return None };
            format!("length {}{}", not(word, "!"), word.value)
        }
        _ => return None,
    };
    Some(form)
}

fn ports(words: &[Words]) -> String {
    let mut out = String::new();
    for (name, short) in [("sport", "spt"), ("dport", "dpt")] {
        if let Some(word) = value_of(words, name) {
            let many = if word.value.contains(':') { "s" } else { "" };
            let _ = write!(out, " {short}{many}:{}{}", not(word, "!"), word.value);
        }
    }
    out
}

fn tcp_flags(names: &str) -> Option<u8> {
    const FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    match names {
        "NONE" => return Some(0),
        "ALL" => return Some(0x3f),
        _ => {}
    }
    names.split(',').try_fold(0, |bits, name| {
        let at = FLAGS.iter().position(|flag| *flag == name)?;
        Some(bits | 1 << at)
    })
}

/// Bits of the flags of LOG.
const LOG_FLAGS: [(&str, u32); 5] = [
    ("log-tcp-sequence", 1),
    ("log-tcp-options", 2),
    ("log-ip-options", 4),
    ("log-uid", 8),
    ("log-macdecode", 32),
];

/// `None`: the form is not known.
fn of_target(family: Family, group: &Group) -> Option<String> {
    let words = words_of(family, group);
    match group.kind {
        Kind::TargetReject | Kind::TargetNflog => Some(plain(&words)),
        Kind::TargetLog => {
            let flags = LOG_FLAGS
                .iter()
                .filter(|(name, _)| value_of(&words, name).is_some());
            let flags: u32 = flags.map(|(_, bit)| bit).sum();
            let level = value_of(&words, "log-level").map_or("4", |word| &word.value[..]);
            let mut out = format!("LOG flags {flags} level {level}");
            if let Some(item) = group.get("--log-prefix")
                && let Value::Text(prefix) = &item.value
            {
                let _ = write!(out, " prefix \"{}\"", String::from_utf8_lossy(prefix));
            }
            Some(out)
        }
        _ => None,
    }
}
