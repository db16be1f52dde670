//! `fairpath rules trace`: the paths of packets through the loaded rules, as they come.
//!
//! A filter in the arena selects packets. Each program that evaluates one reports its facts and verdict. The
//! reference walks the same table with these facts, and its path is printed.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::bail;
use fairpath_bpf::{Event, FILTER_WORDS, IP_FAMILIES, Occurrence, TraceFilter, Traced};
use fairpath_core::rules::{l4, meta, word};
use fairpath_rules::image::name_words;
use fairpath_rules::{
    Connection, Facts, Family, Hook, Outcome, Owner, Packet, Policy, Reference, RuleAt, RuleResult,
    Ruleset, Step, Verdict, unknown_text, verdict_of,
};
use fairpath_units::text::lines;
use serde_json::json;

use super::super::Format;
use super::super::capture::describe;
use super::super::diff::verdict;
use super::super::files::names;
use super::super::path::{self, PathLine};
use super::PinArgs;
use super::given::list;
use super::reader::{Known, Next, Reader, Rules, wall};
use crate::run::Signals;

/// Tables by the number of their program.
const TABLES: [&str; 4] = ["raw", "mangle", "filter", "security"];
/// Time between two movements of the filter's end.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Bits of `--ctstate`.
const INVALID: u8 = 1;
const NEW: u8 = 2;
/// The number of a user or group that is none.
const NO_ID: u32 = u32::MAX;

/// Print the paths of packets through the loaded rules, until it is interrupted.
///
/// Each table that evaluates a packet of the filter at a hook gives one path, with file and line of the rules.
/// Verdicts are those of the kernel. Limits, recent lists and counters of statistic may have decided
/// otherwise than in the path; then a line says so.
///
/// One command traces at a time. Its filter ends with it, at most 3 s later if it is killed. While it runs,
/// each packet takes about 250 ns longer in each table. If packets come faster than they are read, the lost ones are counted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules trace --src 192.0.2.7 --protocol tcp --dport 22 --both\n  \
    fairpath rules trace --rule rules.v4:12 --count 10 --format json")]
pub struct TraceArgs {
    /// Source address or prefix
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    src: Option<(IpAddr, u8)>,
    /// Destination address or prefix
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    dst: Option<(IpAddr, u8)>,
    /// Protocol, by name or number
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// Source port
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Destination port
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// Input interface; + at its end stands for any rest
    #[arg(short, long, value_name = "NAME", value_parser = interface)]
    in_interface: Option<String>,
    /// Output interface: of packets at FORWARD, OUTPUT and POSTROUTING
    #[arg(short, long, value_name = "NAME", value_parser = interface)]
    out_interface: Option<String>,
    /// Trace packets of the other direction, too
    #[arg(long)]
    both: bool,
    /// Print only packets that match this rule: FILE:LINE, or TABLE/CHAIN/NUMBER from 1
    #[arg(long, value_name = "RULE", value_parser = choice)]
    rule: Option<Choice>,
    /// Trace all packets
    #[arg(long, conflicts_with_all = ["src", "dst", "protocol", "sport", "dport", "in_interface", "out_interface", "both"])]
    all: bool,
    /// End after this number of paths [default: no end]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A rule of the loaded ones.
#[derive(Clone, Debug)]
enum Choice {
    Line {
        file: String,
        line: u32,
    },
    Number {
        table: String,
        chain: String,
        number: usize,
    },
}

fn prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let wrong = "write an address, or a prefix such as 192.0.2.0/24 or 2001:db8::/32".to_owned();
    let address: IpAddr = address.parse().map_err(|_| wrong.clone())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits
        .map_or(Ok(most), str::parse)
        .map_err(|_| wrong.clone())?;
    if bits > most {
        return Err(wrong);
    }
    Ok((address, bits))
}

fn protocol(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().or_else(|| names().protocol(text));
    number.ok_or_else(|| "it is no protocol: write a name or a number".to_owned())
}

fn interface(text: &str) -> Result<String, String> {
    match text.len() {
        1..=15 => Ok(text.to_owned()),
        _ => Err("a name of an interface has 1 to 15 bytes".to_owned()),
    }
}

fn choice(text: &str) -> Result<Choice, String> {
    let parts: Vec<&str> = text.split('/').collect();
    if let [table, chain, number] = parts[..]
        && TABLES.contains(&table)
        && let Ok(number @ 1..) = number.parse()
    {
        let (table, chain) = (table.to_owned(), chain.to_owned());
        return Ok(Choice::Number {
            table,
            chain,
            number,
        });
    }
    match text
        .rsplit_once(':')
        .map(|(file, line)| (file, line.parse()))
    {
        Some((file, Ok(line @ 1..))) if !file.is_empty() => Ok(Choice::Line {
            file: file.to_owned(),
            line,
        }),
        _ => Err(
            "write FILE:LINE such as rules.v4:12, or TABLE/CHAIN/NUMBER such as filter/INPUT/3"
                .to_owned(),
        ),
    }
}

impl Choice {
    fn is(&self, rules: &Rules, at: RuleAt) -> bool {
        let table = &rules.ruleset.tables[at.table];
        let chain = table.get(at.chain);
        match self {
            Choice::Line { file, line } => {
                let same = rules.name.strip_suffix(&file[..]);
                let same = same.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
                same && chain.rules[at.rule].line == *line
            }
            Choice::Number {
                table: name,
                chain: of,
                number,
            } => *table.name == **name && *chain.name == *of.as_bytes() && at.rule + 1 == *number,
        }
    }
}

impl TraceArgs {
    /// Masks and values of packets in one direction, by family and word.
    fn direction(&self, back: bool) -> [[(u64, u64); FILTER_WORDS]; IP_FAMILIES] {
        let (mut addresses, mut ports) = ([self.src, self.dst], [self.sport, self.dport]);
        let mut interfaces = [&self.in_interface, &self.out_interface];
        if back {
            addresses.reverse();
            ports.reverse();
            interfaces.reverse();
        }
        let mut out = [[(0, 0); FILTER_WORDS]; IP_FAMILIES];
        for (family, words) in out.iter_mut().enumerate() {
            let mut is_other = false;
            let mut add = |word: usize, mask: u64, value: u64| {
                words[word].0 |= mask;
                words[word].1 |= value & mask;
            };
            if let Some(protocol) = self.protocol {
                add(word::L4, 0xff, protocol.into());
            }
            for (port, at) in ports.into_iter().zip([16, 32]) {
                if let Some(port) = port {
                    add(
                        word::L4,
                        l4::PORTS | 0xffff << at,
                        l4::PORTS | u64::from(port) << at,
                    );
                }
            }
            for (name, at) in interfaces.into_iter().zip([word::IN, word::OUT]) {
                let pairs = name.as_ref().map(|name| name_words(name.as_bytes()));
                for (number, (mask, value)) in pairs.iter().flatten().enumerate() {
                    add(at + number, *mask, *value);
                }
            }
            for (side, address) in addresses.into_iter().enumerate() {
                match (address, family) {
                    (Some((IpAddr::V4(address), bits)), 0) => {
                        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                        let raw = |number: u32| u64::from(number.to_be()) << (32 * side);
                        add(word::ADDR, raw(mask), raw(address.into()));
                    }
                    (Some((IpAddr::V6(address), bits)), 1) => {
                        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                        let raw =
                            |number: u128| [(number >> 64) as u64, number as u64].map(u64::to_be);
                        let pairs = raw(mask).into_iter().zip(raw(address.into()));
                        for (half, (mask, value)) in pairs.enumerate() {
                            add(word::ADDR + 2 * side + half, mask, value);
                        }
                    }
                    (Some(_), _) => is_other = true,
                    (None, _) => {}
                }
            }
            if is_other {
                // No packet has this value.
                words[word::L4] = (0, 1);
            }
        }
        out
    }

    fn filter(&self) -> anyhow::Result<TraceFilter> {
        let families =
            [self.src, self.dst].map(|prefix| prefix.map(|(address, _)| address.is_ipv4()));
        if let [Some(source), Some(destination)] = families
            && source != destination
        {
            bail!("--src and --dst are of different families");
        }
        let ports = self.sport.is_some() || self.dport.is_some();
        if ports
            && self
                .protocol
                .is_some_and(|number| !matches!(number, 6 | 17 | 33 | 132 | 136))
        {
            bail!("--sport and --dport need a protocol with ports, such as tcp");
        }
        let forward = self.direction(false);
        let is_empty = forward.iter().flatten().all(|word| *word == (0, 0));
        if is_empty && !self.all && self.rule.is_none() {
            bail!("give a filter such as --src 192.0.2.7 or --dport 22, or --all");
        }
        let back = self.both.then(|| self.direction(true));
        Ok(TraceFilter { forward, back })
    }
}

/// Runs `fairpath rules trace`.
///
/// # Errors
/// No rules are loaded, the rule is not one of them, or another command traces.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let filter = args.filter()?;
    let mut reader = Reader::new(&args.place)?;
    if let Some(choice) = &args.rule
        && !reader.has_rule(|rules, at| choice.is(rules, at))
    {
        let with_iptables = match reader.deferred() {
            [] => String::new(),
            names => format!("; iptables has these tables: {}", list(names)),
        };
        bail!(
            "--rule: no loaded rule is there: `fairpath rules counters` prints them in order{with_iptables}"
        );
    }
    if args.rule.is_none() && !reader.deferred().is_empty() {
        fairpath_cli::note(format!(
            "paths have no rules of tables that iptables has: {}",
            list(reader.deferred())
        ));
    }
    if reader.rules.is_shadow() {
        fairpath_cli::note("the rules are in the shadow: their verdicts decide nothing");
    }
    let signals = Signals::take()?;
    let mut trace = reader.rules.trace(&filter)?;
    let mut kept = Instant::now();
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut ended = Ok(true);
    while !signals.stop() && left > 0 {
        if kept.elapsed() > KEEP_EVERY {
            if !reader.rules.keep_trace(&mut trace)? {
                fairpath_cli::note("packets were not traced for a while: the output was blocked");
            }
            kept = Instant::now();
        }
        let event = match reader.next(&signals)? {
            Next::Event(event) => event,
            Next::None => continue,
            Next::Unloaded => break,
        };
        let Occurrence::Traced(traced) = event.occurrence else {
            continue;
        };
        let rules = reader
            .known(&event)
            .and_then(|known| Some((known, known.family(&event)?)));
        ended = match rules.map(|(known, rules)| Evaluated::new(known, rules, &event, &traced)) {
            Some(evaluated)
                if args
                    .rule
                    .as_ref()
                    .is_some_and(|rule| !evaluated.matched(rule)) =>
            {
                continue;
            }
            Some(evaluated) => fairpath_cli::print_to_reader(evaluated.print(args.format)),
            None if args.rule.is_some() => continue,
            None => {
                fairpath_cli::note("a packet met rules that are not known any more");
                continue;
            }
        };
        if !matches!(ended, Ok(true)) {
            break;
        }
        left -= 1;
    }
    reader.rules.end_trace(&trace);
    // False: the reader is gone.
    if ended? {
        reader.report_lost();
    }
    Ok(())
}

/// A packet in a table: the kernel's verdict, and the path of the reference.
struct Evaluated<'a> {
    known: &'a Known,
    rules: &'a Rules,
    event: &'a Event,
    traced: &'a Traced,
    table: &'static str,
    hook: Hook,
    /// Bytes with those of the link layer.
    bytes: Vec<u8>,
    facts: Facts,
    outcome: Outcome,
}

impl<'a> Evaluated<'a> {
    fn new(known: &'a Known, rules: &'a Rules, event: &'a Event, traced: &'a Traced) -> Self {
        let link = event
            .link
            .filter(|_| event.is_ethernet && event.hook <= Hook::Forward as usize);
        let mut bytes = Vec::new();
        if let Some([source, destination]) = link {
            bytes.extend([destination, source].concat());
            bytes.extend(if event.is_ipv4 { [8, 0] } else { [0x86, 0xdd] });
        }
        let header = bytes.len();
        bytes.extend_from_slice(&event.bytes);
        write_length(event, &mut bytes[header..]);
        let facts = facts(event, traced, link.is_none());
        let (family, hook) = (rules.ruleset.family, Hook::ALL[event.hook]);
        let mut packet = packet(family, event, &bytes, facts.clone());
        // Table raw at OUTPUT hides the connection, if the one behind it is a usual one.
        if let Some(connection) = &mut packet.facts.connection
            && (traced.program, hook, connection.state) == (0, Hook::Output, INVALID)
        {
            connection.state = NEW;
        }
        let table = TABLES[traced.program.min(TABLES.len() - 1)];
        let mut reference = Reference::new(&rules.ruleset, known.sets.as_ref());
        reference.trace(true);
        let outcome = reference.evaluate_table(table, hook, &packet);
        // Without connection tracking, and before it, there is no state.
        let has_state = known.tracks(event) && traced.program != 0;
        let connection = facts.connection;
        let connection = connection.filter(|known| has_state || known.state != INVALID);
        let facts = Facts {
            connection,
            ..facts
        };
        Evaluated {
            known,
            rules,
            event,
            traced,
            table,
            hook,
            bytes,
            facts,
            outcome,
        }
    }

    /// True if the packet matched the rule, in the kernel or in the path.
    fn matched(&self, choice: &Choice) -> bool {
        let decided = self.rules.of_counter(self.traced.id);
        let matched = self.outcome.path.iter().filter_map(|step| match step {
            Step::Rule { at, result } if !matches!(result, RuleResult::Failed { .. }) => Some(*at),
            _ => None,
        });
        matched.chain(decided).any(|at| choice.is(self.rules, at))
    }

    /// The rule or policy that decided.
    fn decided(&self, verdict: &Verdict, at: Option<RuleAt>) -> String {
        let ruleset: &Ruleset = &self.rules.ruleset;
        if let Some(at) = at {
            return path::rule_text(&self.rules.name, ruleset, at);
        }
        let table = ruleset
            .tables
            .iter()
            .position(|table| *table.name == *self.table);
        let base = table.and_then(|at| {
            let chain = ruleset.tables[at].find(self.hook.chain().as_bytes())?;
            Some((at, chain))
        });
        match (verdict, base) {
            (Verdict::Accept, Some((table, chain))) => path::policy_text(ruleset, table, chain),
            (Verdict::Drop, Some((table, chain)))
                if ruleset.tables[table].get(chain).policy == Policy::Drop =>
            {
                path::policy_text(ruleset, table, chain)
            }
            (Verdict::Drop, _) => "a broken header, which netfilter drops".to_owned(),
            _ => "no rule".to_owned(),
        }
    }

    /// The sentence about another answer of the reference.
    fn difference(&self, kernel: &Verdict, at: Option<RuleAt>) -> Option<String> {
        let ours = &self.outcome;
        match &ours.verdict {
            Verdict::Unknown(reason) => Some(format!(
                "the path ends where the answer depends on {}",
                unknown_text(*reason)
            )),
            same if same == kernel && ours.at == at => None,
            other => Some(format!(
                "the path has another answer, {} by {}: limits, lists or counters of the kernel decided",
                verdict(other),
                self.decided(other, ours.at)
            )),
        }
    }

    fn print(&self, format: Format) -> String {
        let (event, traced) = (self.event, self.traced);
        let kernel = verdict_of(traced.verdict, traced.argument);
        let at = self.rules.of_counter(traced.id);
        let (decided, differs) = (self.decided(&kernel, at), self.difference(&kernel, at));
        let family = self.rules.ruleset.family;
        let packet = packet(family, event, &self.bytes, self.facts.clone());
        let time = wall(event.time);
        let steps: Vec<PathLine> = path::lines(
            &self.rules.ruleset,
            self.known.sets.as_ref(),
            &self.outcome.path,
            None,
        );
        let (user, group) = traced.owner.filter(|ids| ids.0 != NO_ID).unzip();
        let sender = (packet.network > 0).then(|| address(&self.bytes[6..12]));
        if format == Format::Json {
            let file_line = at.map(|at| {
                let table = &self.rules.ruleset.tables[at.table];
                table.get(at.chain).rules[at.rule].line
            });
            let object = json!({"time": time.to_string(), "family": family.to_string(),
                "table": self.table, "hook": self.hook.chain(), "packet": describe(&packet),
                "length": event.length, "mark": event.mark, "connection_mark": traced.connection_mark,
                "user": user, "group": group, "link_source": sender, "file": self.rules.name,
                "verdict": verdict(&kernel), "decided_by": decided, "line": file_line,
                "path": path::to_json(&steps), "difference": differs});
            return format!("{object}\n");
        }
        let mut out = String::new();
        let text = describe(&packet);
        let _ = write!(
            out,
            "{time:.3} {} {}: {text}",
            self.table,
            self.hook.chain()
        );
        if let Some(sender) = sender {
            let _ = write!(out, ", from {sender}");
        }
        if traced.connection_mark != 0 {
            let _ = write!(out, ", connection mark 0x{:x}", traced.connection_mark);
        }
        if let (Some(user), Some(group)) = (user, group) {
            let _ = write!(out, ", user {user}, group {group}");
        }
        out.push('\n');
        path::to_text(&self.rules.name, &steps, &mut out);
        let _ = writeln!(out, "{} by {decided}", verdict(&kernel));
        let _ = differs.map(|text| writeln!(out, "{text}"));
        // Names and texts of rules come from files.
        lines(&out).into_owned()
    }
}

/// The packet of an event, whose bytes may begin with a link-layer header.
fn packet<'a>(family: Family, event: &Event, bytes: &'a [u8], facts: Facts) -> Packet<'a> {
    Packet {
        family,
        bytes,
        network: bytes.len() - event.bytes.len(),
        length: event.length as usize,
        facts,
    }
}

/// Writes the length of the packet into its header, where a raw socket may have sent another one: rules in the
/// kernel do not read it.
fn write_length(event: &Event, header: &mut [u8]) {
    let (at, length) = match event.is_ipv4 {
        true => (2, Some(event.length)),
        false => (4, event.length.checked_sub(40)),
    };
    // None of the numbers is that of more segments than fit.
    let length = length.and_then(|length| u16::try_from(length).ok());
    if let (Some(length), Some(field)) = (length, header.get_mut(at..at + 2)) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// A link-layer address.
fn address(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

/// The facts of an evaluation in the kernel.
fn facts(event: &Event, traced: &Traced, no_link: bool) -> Facts {
    let field = |shift: u32| (traced.connection >> shift) as u8;
    let connection = Connection {
        state: field(meta::STATE),
        status: Some(field(meta::STATUS)),
        mark: Some(traced.connection_mark),
        reply: Some(field(meta::REPLY) & 1 != 0),
    };
    let name = |name: &[u8]| Some(name.into());
    Facts {
        input: name(&event.input),
        output: name(&event.output),
        mark: event.mark,
        connection: Some(connection),
        packet_type: Some(traced.packet_type),
        owner: Some(traced.owner.map(|(user, group)| Owner { user, group })),
        no_link,
        now: event.time,
        date: Some(traced.date),
        random: Some(traced.random),
        path_mtu: traced.path_mtu,
        destination_type: traced.destination_type,
        ..Facts::default()
    }
}
