//! The words of a rule after its chain.

use std::borrow::Cow;

use crate::canonical::{check_match, complete, needs_syn};
use crate::names::Names;
use crate::place::LineError;
use crate::spec::{Alias, HexForm, Kind, Type, find_match, find_target, type_in};
use crate::tree::{Counters, Family, Hook, Item, Rule, Table, Target, Value};
use crate::value::{self, Context, show};
use crate::words::Word;

/// Most matches of a rule.
const MAX_MATCHES: usize = 64;

/// Marks of arptables are hexadecimal, with or without `0x`.
const ARP_MARK: Type = Type::Hex16 {
    max: u32::MAX as u64,
    digits: 1,
    form: HexForm::Lower,
};

/// Targets of the original tools and of xtables-addons that Fairpath keeps without knowing them.
const KNOWN_TARGETS: &[&str] = &[
    "ACCOUNT",
    "AUDIT",
    "CHAOS",
    "CHECKSUM",
    "CLUSTERIP",
    "CONNSECMARK",
    "DELUDE",
    "DHCPMAC",
    "DNETMAP",
    "DNPT",
    "ECHO",
    "ECN",
    "FLOWOFFLOAD",
    "HMARK",
    "IDLETIMER",
    "IPMARK",
    "LED",
    "LOGMARK",
    "MIRROR",
    "NFQUEUE",
    "PROTO",
    "RATEEST",
    "RAWDNAT",
    "RAWSNAT",
    "SAME",
    "SECMARK",
    "SNPT",
    "SYNPROXY",
    "SYSRQ",
    "TARPIT",
    "TCPOPTSTRIP",
    "TEE",
    "ULOG",
];

pub(super) fn is_known_target(name: &[u8], family: Family) -> bool {
    family.is_ip() && KNOWN_TARGETS.iter().any(|known| known.as_bytes() == name)
}

pub(super) fn standard_target(name: &[u8], family: Family) -> Option<Target> {
    match name {
        b"ACCEPT" => Some(Target::Accept),
        b"DROP" => Some(Target::Drop),
        b"RETURN" => Some(Target::Return),
        b"QUEUE" if family.is_ip() || family == Family::Arp => Some(Target::Queue),
        b"CONTINUE" if family == Family::Bridge => Some(Target::Continue),
        _ => None,
    }
}

/// A match or target with the options read so far.
#[derive(Debug)]
struct Open {
    kind: Kind,
    column: u32,
    items: Vec<Item>,
    /// Words of an extension that is not known.
    words: Vec<Box<[u8]>>,
}

impl Open {
    fn new(kind: Kind, column: u32) -> Self {
        Self {
            kind,
            column,
            items: Vec::new(),
            words: Vec::new(),
        }
    }

    fn is_opaque(&self) -> bool {
        matches!(self.kind, Kind::Opaque | Kind::OpaqueTarget)
    }
}

/// Reads rules of one family. It keeps its buffers between rules.
#[derive(Debug)]
pub struct Parser<'a> {
    /// The protocol family.
    pub family: Family,
    names: &'a Names,
    header: Vec<Item>,
    open: Vec<Open>,
    target: Option<Open>,
    plain_target: Option<Target>,
    sources: Vec<Value>,
    destinations: Vec<Value>,
    counters: Option<Counters>,
}

/// An option that was found: where, and which.
#[derive(Clone, Copy)]
enum Found {
    Header(u8),
    Match(usize, u8, Option<Alias>),
    Target(u8, Option<Alias>),
}

impl<'a> Parser<'a> {
    /// A reader of rules of a family.
    pub fn new(family: Family, names: &'a Names) -> Self {
        Self {
            family,
            names,
            header: Vec::new(),
            open: Vec::new(),
            target: None,
            plain_target: None,
            sources: Vec::new(),
            destinations: Vec::new(),
            counters: None,
        }
    }

    fn context(&self) -> Context<'a> {
        Context {
            family: self.family,
            names: self.names,
        }
    }

    fn header_kind(&self) -> Kind {
        match self.family {
            Family::Ipv4 | Family::Ipv6 => Kind::Ip,
            Family::Arp => Kind::ArpHeader,
            Family::Bridge => Kind::BridgeHeader,
        }
    }

    /// Reads a rule. A list of addresses gives a rule for each.
    ///
    /// # Errors
    ///
    /// The column of the word, the problem and a remedy.
    pub fn rule(
        &mut self,
        table: &Table,
        hook: Option<Hook>,
        words: &[Word],
        counters: Option<Counters>,
        line: u32,
    ) -> Result<Vec<Rule>, LineError> {
        self.header.clear();
        self.open.clear();
        self.target = None;
        self.plain_target = None;
        self.sources.clear();
        self.destinations.clear();
        self.counters = counters;
        let mut at = 0;
        let mut not: Option<u32> = None;
        while at < words.len() {
            let word = &words[at];
            if *word.text == *b"!" {
                // An extension that is not known keeps the word.
                if not.is_some() {
                    return Err(LineError::new(word.column, "more than one ! in a row"));
                }
                not = Some(word.column);
                at += 1;
                continue;
            }
            let only = match &word.text[..] {
                b"-4" | b"--ipv4" if self.family.is_ip() => Some(Family::Ipv4),
                b"-6" | b"--ipv6" if self.family.is_ip() => Some(Family::Ipv6),
                _ => None,
            };
            if let Some(only) = only {
                if only != self.family {
                    return Ok(Vec::new());
                }
                at += 1;
                continue;
            }
            at = self.option(table, words, at, not.take())?;
        }
        if let Some(column) = not {
            return Err(LineError::new(column, "nothing follows this !"));
        }
        self.finish(table, hook, line)
    }

    /// Reads the option at `words[at]`; returns the place after it.
    fn option(
        &mut self,
        table: &Table,
        words: &[Word],
        at: usize,
        not: Option<u32>,
    ) -> Result<usize, LineError> {
        let word = &words[at];
        let column = word.column;
        let text: &[u8] = &word.text;
        let (name, attached) = split_option(text);
        let argument = |what: &str| -> Result<(Cow<[u8]>, u32, usize), LineError> {
            match attached {
                Some(value) => Ok((
                    Cow::Borrowed(value),
                    column + (text.len() - value.len()) as u32,
                    at + 1,
                )),
                None => words
                    .get(at + 1)
                    .map(|word| (Cow::Borrowed(&word.text[..]), word.column, at + 2))
                    .ok_or_else(|| LineError::new(column, format!("{} needs {what}", show(name)))),
            }
        };
        let no_not = || match not {
            Some(column) => Err(LineError::new(
                column,
                format!("! is not permitted before {}", show(name)),
            )),
            None => Ok(()),
        };
        match name {
            b"-m" | b"--match" if self.family.is_ip() => {
                no_not()?;
                let (value, column, next) = argument("the name of a match")?;
                self.load(&value, column)?;
                return Ok(next);
            }
            b"-j" | b"--jump" | b"-g" | b"--goto" => {
                no_not()?;
                if self.target.is_some() || self.plain_target.is_some() {
                    return Err(LineError::new(column, "a rule has one -j or -g"));
                }
                let (value, column, next) = argument("a target or chain")?;
                let goto = matches!(name, b"-g" | b"--goto");
                if goto && !self.family.is_ip() {
                    return Err(LineError::new(
                        word.column,
                        format!("{} has no -g: write -j", self.family.tool()),
                    ));
                }
                self.set_target(table, &value, goto, column)?;
                return Ok(next);
            }
            b"-c" | b"--set-counters" => {
                no_not()?;
                return self.set_counters(words, at);
            }
            b"-t" | b"--table" => {
                return Err(LineError::new(
                    column,
                    "-t is not permitted in a file: a line such as *filter selects the table",
                ));
            }
            b"-n" | b"-v" | b"--numeric" | b"--verbose" if name.len() == 2 || !name.is_empty() => {
                no_not()?;
                return Ok(at + 1);
            }
            _ => {}
        }
        let found = self.find(name, column)?;
        let Some(found) = found else {
            return self.unknown(words, at, not);
        };
        self.take(found, words, at, not, attached)
    }

    fn load(&mut self, name: &[u8], column: u32) -> Result<(), LineError> {
        if self.open.len() == MAX_MATCHES {
            return Err(LineError::new(
                column,
                format!("more than {MAX_MATCHES} matches in a rule"),
            ));
        }
        let mut open = Open::new(
            find_match(name, self.family).unwrap_or(Kind::Opaque),
            column,
        );
        if open.is_opaque() {
            let other = [Family::Ipv4, Family::Ipv6]
                .into_iter()
                .find(|family| find_match(name, *family).is_some());
            if let Some(other) = other {
                return Err(LineError::new(
                    column,
                    format!("match {} is for {other} only", show(name)),
                ));
            }
            if name.is_empty()
                || !name
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(b))
            {
                return Err(LineError::new(
                    column,
                    format!("\"{}\" is not the name of a match", show(name)),
                ));
            }
            open.words.push(name.into());
        }
        self.open.push(open);
        Ok(())
    }

    fn set_target(
        &mut self,
        table: &Table,
        name: &[u8],
        goto: bool,
        column: u32,
    ) -> Result<(), LineError> {
        if !goto && let Some(target) = standard_target(name, self.family) {
            self.plain_target = Some(target);
            return Ok(());
        }
        if let Some(id) = table.find(name) {
            if let Some(hook) = table.get(id).hook {
                return Err(LineError::new(
                    column,
                    format!(
                        "{} is a base chain: move its rules to a chain that both can use",
                        hook.chain()
                    ),
                ));
            }
            self.plain_target = Some(if goto {
                Target::Goto(id)
            } else {
                Target::Jump(id)
            });
            return Ok(());
        }
        if goto {
            return Err(LineError::new(
                column,
                format!(
                    "\"{0}\" is not a chain: add the line :{0} - before",
                    show(name)
                ),
            ));
        }
        // ebtables-nft accepts the names of watchers as targets.
        if let Some(kind) = find_match(name, self.family).filter(|kind| kind.is_watcher()) {
            if !self.open.iter().any(|open| open.kind == kind) {
                self.open.push(Open::new(kind, column));
            }
            self.plain_target = Some(Target::Continue);
            return Ok(());
        }
        if let Some(kind) = find_target(name, self.family) {
            self.target = Some(Open::new(kind, column));
            return Ok(());
        }
        if is_known_target(name, self.family) {
            let mut open = Open::new(Kind::OpaqueTarget, column);
            open.words.push(name.into());
            self.target = Some(open);
            return Ok(());
        }
        Err(LineError::new(
            column,
            format!(
                "\"{0}\" is neither a chain nor a known target: add the line :{0} - before",
                show(name)
            ),
        ))
    }

    fn set_counters(&mut self, words: &[Word], at: usize) -> Result<usize, LineError> {
        let number = |word: &Word| std::str::from_utf8(&word.text).ok()?.parse::<u64>().ok();
        let bad = || LineError::new(words[at].column, "-c needs packets and bytes");
        let packets = words.get(at + 1).ok_or_else(bad)?;
        let (packets, bytes, next) = match packets.text.iter().position(|byte| *byte == b',') {
            Some(_) if self.family == Family::Bridge => return Err(bad()),
            Some(comma) => {
                let text = std::str::from_utf8(&packets.text).unwrap_or_default();
                let (a, b) = text.split_at(comma.min(text.len()));
                (
                    a.parse().ok(),
                    b.get(1..).and_then(|b| b.parse().ok()),
                    at + 2,
                )
            }
            None => (number(packets), words.get(at + 2).and_then(number), at + 3),
        };
        match (packets, bytes) {
            (Some(packets), Some(bytes)) => {
                self.counters = Some(Counters { packets, bytes });
                Ok(next)
            }
            _ => Err(bad()),
        }
    }

    /// The option with this name: of the header, the target, or a match. Of several kinds of matches
    /// with it, the one that the rule named for the first time last has it, as in the tools.
    fn find(&mut self, name: &[u8], column: u32) -> Result<Option<Found>, LineError> {
        if name.len() < 2 || name[0] != b'-' {
            return Ok(None);
        }
        let header = self.header_kind();
        if let Some((option, _)) = exact(header, name) {
            return Ok(Some(Found::Header(option)));
        }
        if !name.starts_with(b"--") {
            return Ok(None);
        }
        if let Some(target) = &self.target
            && let Some((option, alias)) = exact(target.kind, name)
        {
            return Ok(Some(Found::Target(option, alias)));
        }
        let first = |kind| self.open.iter().position(|open| open.kind == kind);
        let matches = self.open.iter().enumerate().filter_map(|(at, open)| {
            let (option, alias) = exact(open.kind, name)?;
            Some(((first(open.kind), at), Found::Match(at, option, alias)))
        });
        if let Some((_, found)) = matches.max_by_key(|(place, _)| *place) {
            return Ok(Some(found));
        }
        if self.load_for_option(name, column)? {
            let at = self.open.len() - 1;
            let (option, alias) =
                exact(self.open[at].kind, name).expect("the match was loaded for this option");
            return Ok(Some(Found::Match(at, option, alias)));
        }
        if self.opaque_takes() {
            return Ok(None);
        }
        self.abbreviated(name, column)
    }

    /// True if the last extension is not known, so that it takes options that no other has.
    fn opaque_takes(&self) -> bool {
        match &self.target {
            Some(target) if target.is_opaque() => true,
            _ => self.open.last().is_some_and(Open::is_opaque),
        }
    }

    /// Loads the match that has this option: that of the protocol, or of a bridge's protocol.
    fn load_for_option(&mut self, name: &[u8], column: u32) -> Result<bool, LineError> {
        let kind = match self.family {
            Family::Ipv4 | Family::Ipv6 => self.protocol_match(),
            Family::Bridge => crate::bridge::match_of_option(name),
            Family::Arp => None,
        };
        let Some(kind) = kind.filter(|kind| exact(*kind, name).is_some()) else {
            return Ok(false);
        };
        if self.open.iter().any(|open| open.kind == kind) {
            return Ok(false);
        }
        self.open.push(Open::new(kind, column));
        Ok(true)
    }

    /// The number after `-p`, and whether it is negated.
    fn protocol(&self) -> Option<(u8, bool)> {
        let index = Kind::Ip.spec().option_index("-p")?;
        self.header
            .iter()
            .find(|item| item.kind == Kind::Ip && item.option == index)
            .and_then(|item| match item.value {
                Value::Number(number) => Some((number as u8, item.not)),
                _ => None,
            })
    }

    fn protocol_match(&self) -> Option<Kind> {
        let (protocol, _) = self.protocol()?;
        let v6 = self.family == Family::Ipv6;
        Some(match protocol {
            6 => Kind::Tcp,
            17 => Kind::Udp,
            33 => Kind::Dccp,
            132 => Kind::Sctp,
            1 if !v6 => Kind::Icmp,
            58 if v6 => Kind::Icmp6,
            50 => Kind::Esp,
            51 => {
                if v6 {
                    Kind::Ah6
                } else {
                    Kind::Ah
                }
            }
            _ => return None,
        })
    }

    /// An option by the beginning of its name, if only one begins so.
    fn abbreviated(&mut self, name: &[u8], column: u32) -> Result<Option<Found>, LineError> {
        if name.len() < 4 {
            return Ok(None);
        }
        let mut found: Option<(Found, Kind, u8, Option<Alias>)> = None;
        let mut ambiguous = false;
        let mut add = |place: Found, kind: Kind, option: u8, alias: Option<Alias>| {
            if let Some((_, other_kind, other, _)) = found
                && (other_kind, other) != (kind, option)
            {
                ambiguous = true;
            }
            found = found.or(Some((place, kind, option, alias)));
        };
        let header = self.header_kind();
        for (option, _) in beginning(header, name) {
            add(Found::Header(option), header, option, None);
        }
        if let Some(target) = &self.target {
            for (option, alias) in beginning(target.kind, name) {
                add(Found::Target(option, alias), target.kind, option, alias);
            }
        }
        for (at, open) in self.open.iter().enumerate().rev() {
            for (option, alias) in beginning(open.kind, name) {
                add(Found::Match(at, option, alias), open.kind, option, alias);
            }
        }
        if ambiguous {
            return Err(LineError::new(
                column,
                format!("option \"{}\" is ambiguous: write it in full", show(name)),
            ));
        }
        if let Some((found, ..)) = found {
            return Ok(Some(found));
        }
        // The match of the protocol may have it.
        let Some(kind) = self.protocol_match().filter(|_| self.family.is_ip()) else {
            return Ok(None);
        };
        if self.open.iter().any(|open| open.kind == kind) {
            return Ok(None);
        }
        let mut options: Vec<_> = beginning(kind, name).collect();
        options.dedup_by_key(|(option, _)| *option);
        let [(option, alias)] = options[..] else {
            return Ok(None);
        };
        self.open.push(Open::new(kind, column));
        Ok(Some(Found::Match(self.open.len() - 1, option, alias)))
    }

    fn unknown(&mut self, words: &[Word], at: usize, not: Option<u32>) -> Result<usize, LineError> {
        let word = &words[at];
        if self.opaque_takes() {
            let open = match &mut self.target {
                Some(target) if target.is_opaque() => target,
                _ => self
                    .open
                    .last_mut()
                    .expect("an unknown match takes the word"),
            };
            if not.is_some() {
                open.words.push(b"!"[..].into());
            }
            open.words.push(word.text[..].into());
            return Ok(at + 1);
        }
        if word.text.first() != Some(&b'-') {
            return Err(LineError::new(
                word.column,
                format!(
                    "\"{}\" is not an option: text with blanks needs double quotes",
                    show(&word.text)
                ),
            ));
        }
        let name = show(&word.text);
        let (option, _) = split_option(&word.text);
        if let Some(remedy) =
            crate::bridge::refused_option(option).filter(|_| self.family == Family::Bridge)
        {
            return Err(LineError::new(
                word.column,
                format!("option \"{name}\" is not supported: {remedy}"),
            ));
        }
        let hint = match owner_of(option, self.family) {
            Some(kind) => {
                let spec = kind.spec();
                if spec.protocols.is_empty() {
                    format!("add -m {} before it", spec.name)
                } else {
                    format!("write -p {} before it", spec.name)
                }
            }
            None if self.family.is_ip() => "see the manual of iptables-extensions".to_owned(),
            None => format!("see the manual of {}", self.family.tool()),
        };
        Err(LineError::new(
            word.column,
            format!("option \"{name}\" is not known here: {hint}"),
        ))
    }

    /// Takes an option with its arguments.
    fn take(
        &mut self,
        found: Found,
        words: &[Word],
        at: usize,
        not: Option<u32>,
        attached: Option<&[u8]>,
    ) -> Result<usize, LineError> {
        let column = words[at].column;
        let (kind, option, alias) = match found {
            Found::Header(option) => (self.header_kind(), option, None),
            Found::Match(at, option, alias) => (self.open[at].kind, option, alias),
            Found::Target(option, alias) => {
                let target = self
                    .target
                    .as_ref()
                    .expect("the option was found in the target");
                (target.kind, option, alias)
            }
        };
        let spec = &kind.spec().options[usize::from(option)];
        let ty = type_in(kind, option, self.family);
        let mut not = not;
        let mut next = at + 1;
        let mut arguments: Vec<&[u8]> = Vec::with_capacity(2);
        if self.family == Family::Arp
            && kind == Kind::TargetMark
            && matches!(alias, None | Some(Alias::Xor))
        {
            return Err(LineError::new(
                column,
                "MARK of arptables needs --set-mark, --and-mark or --or-mark",
            ));
        }
        let value = if let Some(Alias::Value(text)) = alias {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            value::parse(ty, &words, self.context()).expect("values of the table are valid")
        } else {
            let count = value::arguments(ty);
            let mut value_column = column;
            if let Some(value) = attached {
                arguments.push(value);
            }
            // arptables and ebtables accept the negation after the option.
            if !self.family.is_ip()
                && arguments.is_empty()
                && count > 0
                && words.get(next).is_some_and(|word| *word.text == *b"!")
            {
                if not.is_some() {
                    return Err(LineError::new(
                        words[next].column,
                        "more than one ! in a row",
                    ));
                }
                not = Some(words[next].column);
                next += 1;
            }
            while arguments.len() < count {
                let word = words.get(next).ok_or_else(|| {
                    LineError::new(column, format!("{} needs a value", spec.names[0]))
                })?;
                if arguments.is_empty() {
                    value_column = word.column;
                }
                arguments.push(&word.text);
                next += 1;
            }
            self.value(found, kind, option, alias, &arguments)
                .map_err(|text| {
                    LineError::new(value_column, format!("{}: {text}", spec.names[0]))
                })?
        };
        if let Some(column) = not
            && !spec.not
        {
            return Err(LineError::new(
                column,
                format!("! is not permitted before {}", spec.names[0]),
            ));
        }
        let item = Item {
            kind,
            option,
            not: not.is_some(),
            value,
        };
        let items = match found {
            Found::Header(_) => &mut self.header,
            Found::Match(at, ..) => &mut self.open[at].items,
            Found::Target(..) => {
                &mut self
                    .target
                    .as_mut()
                    .expect("the option was found in the target")
                    .items
            }
        };
        if items.iter().any(|other| other.option == option) {
            return Err(LineError::new(
                column,
                format!("{} may occur once in a rule", spec.names[0]),
            ));
        }
        items.push(item);
        Ok(next)
    }

    fn value(
        &mut self,
        found: Found,
        kind: Kind,
        option: u8,
        alias: Option<Alias>,
        words: &[&[u8]],
    ) -> Result<Value, String> {
        let ty = type_in(kind, option, self.family);
        let context = self.context();
        if matches!(found, Found::Header(_)) && matches!(ty, Type::Net) {
            let mut list = value::net_list(words[0], context)?;
            let first = list.swap_remove(0);
            let rest = if option == kind.spec().option_index("-s").unwrap_or(0) {
                &mut self.sources
            } else {
                &mut self.destinations
            };
            if !list.is_empty() {
                // swap_remove moved the last value to the front.
                list.rotate_left(1);
                rest.push(first.clone());
                rest.extend(list);
            }
            return Ok(first);
        }
        match alias {
            Some(Alias::Named(names)) => value::parse(Type::Choice(names), words, context),
            Some(Alias::Set) if self.family == Family::Arp => {
                let Value::Number(mark) = value::parse(ARP_MARK, words, context)? else {
                    return Err("a number is needed".into());
                };
                Ok(Value::Pair(mark as u32, u32::MAX))
            }
            Some(Alias::Set) => {
                let value = value::parse(Type::Mark, words, context)?;
                Ok(match value {
                    // Bits of the value outside of the mask are changed, too.
                    Value::Pair(value, mask) => Value::Pair(value, mask | value),
                    other => other,
                })
            }
            Some(alias @ (Alias::And | Alias::Or | Alias::Xor)) => {
                let full = if matches!(ty, Type::Tos) {
                    0xff
                } else {
                    u32::MAX
                };
                let number = match self.family {
                    Family::Arp => ARP_MARK,
                    _ => Type::Dec(u64::from(full)),
                };
                let Value::Number(bits) = value::parse(number, words, context)? else {
                    return Err("a number is needed".into());
                };
                let bits = bits as u32;
                Ok(match alias {
                    Alias::And => Value::Pair(0, !bits & full),
                    Alias::Or => Value::Pair(bits, bits),
                    _ => Value::Pair(bits, 0),
                })
            }
            _ => value::parse(ty, words, context),
        }
    }

    fn finish(
        &mut self,
        table: &Table,
        hook: Option<Hook>,
        line: u32,
    ) -> Result<Vec<Rule>, LineError> {
        let family = self.family;
        let mut items: Vec<Item> = Vec::with_capacity(self.header.len() + 4 * self.open.len());
        let protocol = if family.is_ip() {
            self.protocol()
        } else {
            None
        };
        self.check_header(hook)?;
        if family == Family::Bridge {
            let kinds = self.open.iter().chain(self.target.as_ref());
            for open in kinds {
                crate::bridge::check_protocol(open.kind, &self.header)
                    .map_err(|text| LineError::new(open.column, text))?;
            }
        }
        items.append(&mut self.header);
        items.sort_by_key(|item| item.option);
        for mut open in self.open.drain(..) {
            let spec = open.kind.spec();
            if family.is_ip() && !spec.protocols.is_empty() {
                let fits =
                    protocol.is_some_and(|(number, not)| !not && spec.protocols.contains(&number));
                if !fits {
                    let names: Vec<String> = spec
                        .protocols
                        .iter()
                        .map(|number| {
                            crate::names::protocol_name(*number)
                                .map_or_else(|| number.to_string(), str::to_owned)
                        })
                        .collect();
                    return Err(LineError::new(
                        open.column,
                        format!("match {} needs -p {}", spec.name, names.join(" or -p ")),
                    ));
                }
            }
            complete(open.kind, family, &mut open.items)
                .and_then(|()| check_match(open.kind, protocol, &open.items))
                .map_err(|text| LineError::new(open.column, text))?;
            let mut head = Item::head(open.kind);
            if open.is_opaque() {
                head.value = Value::Words(Box::new(open.words.into()));
            }
            items.push(head);
            items.append(&mut open.items);
        }
        let mut target = self.plain_target.unwrap_or(match family {
            Family::Bridge => Target::Continue,
            _ => Target::None,
        });
        if family.is_ip() && target == Target::Drop && *table.name == *"nat" {
            return Err(LineError::new(
                0,
                "DROP is not permitted in table nat: write the rule in table filter",
            ));
        }
        if let Some(mut open) = self.target.take() {
            if open.kind == Kind::TargetTcpmss && !items.iter().any(needs_syn) {
                return Err(LineError::new(
                    open.column,
                    "target TCPMSS needs SYN: write --tcp-flags SYN,RST SYN before it",
                ));
            }
            complete(open.kind, family, &mut open.items)
                .map_err(|text| LineError::new(open.column, text))?;
            crate::canonical::check_target(open.kind, &table.name, hook, protocol, &open.items)
                .map_err(|text| LineError::new(open.column, text))?;
            if open.is_opaque() {
                items.push(Item {
                    kind: open.kind,
                    option: 0,
                    not: false,
                    value: Value::Words(Box::new(open.words.into())),
                });
            }
            items.append(&mut open.items);
            target = Target::Extension(open.kind);
        }
        let counters = self.counters.map(Box::new);
        let rule = |items: Vec<Item>| Rule {
            items: items.into(),
            target,
            line,
            counters: counters.clone(),
        };
        if self.sources.is_empty() && self.destinations.is_empty() {
            items.retain(|item| !is_any(item, self.family));
            return Ok(vec![rule(items)]);
        }
        self.expand(&items, rule)
    }

    /// One rule for each pair of a source and a destination, in order.
    fn expand(
        &self,
        items: &[Item],
        rule: impl Fn(Vec<Item>) -> Rule,
    ) -> Result<Vec<Rule>, LineError> {
        if items.iter().any(|item| {
            item.kind.is_header()
                && item.not
                && (item.name() == "-s" && !self.sources.is_empty()
                    || item.name() == "-d" && !self.destinations.is_empty())
        }) {
            return Err(LineError::new(
                0,
                "! is not permitted before a list of addresses",
            ));
        }
        let count = self.sources.len().max(1) * self.destinations.len().max(1);
        if count > value::MAX_ADDRESSES * 64 {
            return Err(LineError::new(
                0,
                format!("the lists of addresses make {count} rules: use a set"),
            ));
        }
        let mut rules = Vec::with_capacity(count);
        let replace = |items: &mut [Item], name: &str, value: &Value| {
            for item in items.iter_mut() {
                if item.kind.is_header() && item.name() == name {
                    item.value = value.clone();
                }
            }
        };
        let sources: Vec<Option<&Value>> = options(&self.sources);
        let destinations: Vec<Option<&Value>> = options(&self.destinations);
        for source in &sources {
            for destination in &destinations {
                let mut items = items.to_vec();
                if let Some(value) = source {
                    replace(&mut items, "-s", value);
                }
                if let Some(value) = destination {
                    replace(&mut items, "-d", value);
                }
                items.retain(|item| !is_any(item, self.family));
                rules.push(rule(items));
            }
        }
        Ok(rules)
    }

    fn check_header(&self, hook: Option<Hook>) -> Result<(), LineError> {
        for item in &self.header {
            let name = item.name();
            if let (Type::Protocol, Value::Number(0), true) = (
                type_in(item.kind, item.option, self.family),
                &item.value,
                item.not && self.family.is_ip(),
            ) {
                return Err(LineError::new(
                    0,
                    "! -p all matches no packet: remove the rule",
                ));
            }
            let Some(hook) = hook else { continue };
            let input = matches!(name, "-i" | "--logical-in");
            let output = matches!(name, "-o" | "--logical-out");
            if input && !hook.has_input() || output && !hook.has_output() {
                return Err(LineError::new(
                    0,
                    format!("{name} is not permitted in {}", hook.chain()),
                ));
            }
            if self.family == Family::Ipv6 && name == "-f" {
                return Err(LineError::new(
                    0,
                    "-f is not permitted in IPv6: use -m frag",
                ));
            }
        }
        if self.family == Family::Ipv6 && self.header.iter().any(|item| item.name() == "-f") {
            return Err(LineError::new(
                0,
                "-f is not permitted in IPv6: use -m frag",
            ));
        }
        Ok(())
    }
}

fn options(values: &[Value]) -> Vec<Option<&Value>> {
    if values.is_empty() {
        vec![None]
    } else {
        values.iter().map(Some).collect()
    }
}

/// True for an item that every packet matches, which is not written. `-p all` of IPv6 drops a packet
/// whose headers do not lead to a protocol.
fn is_any(item: &Item, family: Family) -> bool {
    if item.not || !item.kind.is_header() || item.is_head() {
        return false;
    }
    match (
        item.kind.spec().options[usize::from(item.option)].ty,
        &item.value,
    ) {
        (Type::Net, Value::Pair(_, mask)) => *mask == 0,
        (Type::Net, Value::Ipv6(net)) => net[1] == 0,
        (Type::Protocol, Value::Number(number)) => {
            *number == 0 && item.kind == Kind::Ip && family != Family::Ipv6
        }
        // The legacy arptables keeps it.
        (Type::Interface, Value::Text(name)) => ***name == *b"+" && item.kind != Kind::ArpHeader,
        (Type::MacMask | Type::MacName, Value::Wide(pair)) => pair[1] == 0,
        (Type::ArpField(_), Value::Pair(_, mask)) => *mask == 0,
        _ => false,
    }
}

/// Splits `--name=value` and `-xVALUE`.
fn split_option(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    if text.starts_with(b"--") {
        return match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
    }
    if text.len() > 2 && text[0] == b'-' && b"sdiopmjgc".contains(&text[1]) {
        return (&text[..2], Some(&text[2..]));
    }
    (text, None)
}

/// The option of a kind with exactly this name.
fn exact(kind: Kind, name: &[u8]) -> Option<(u8, Option<Alias>)> {
    for (at, option) in kind.spec().options.iter().enumerate() {
        if option.names.iter().any(|known| known.as_bytes() == name) {
            return Some((at as u8, None));
        }
        if let Some((_, alias)) = option
            .alias
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
        {
            return Some((at as u8, Some(*alias)));
        }
    }
    None
}

/// The options of a kind whose names begin with `name`.
fn beginning(kind: Kind, name: &[u8]) -> impl Iterator<Item = (u8, Option<Alias>)> {
    kind.spec()
        .options
        .iter()
        .enumerate()
        .flat_map(move |(at, option)| {
            let names = option.names.iter().map(|known| (*known, None)).chain(
                option
                    .alias
                    .iter()
                    .map(|(known, alias)| (*known, Some(*alias))),
            );
            names
                .filter(move |(known, _)| {
                    known.starts_with("--") && known.as_bytes().starts_with(name)
                })
                .map(move |(_, alias)| (at as u8, alias))
        })
}

/// A match or target that has this option.
fn owner_of(name: &[u8], family: Family) -> Option<Kind> {
    crate::spec::SPECS
        .iter()
        .filter(|spec| spec.is_in(family) && !spec.name.is_empty())
        .find(|spec| exact(spec.kind, name).is_some())
        .map(|spec| spec.kind)
}
