//! Reading of save files: lines, tables, commands. The words of a rule are read by [`rule`].
//!
//! A file is a transaction for each table, as in iptables-restore: `*TABLE` begins with an empty
//! table, or with `noflush` with the present one, and `COMMIT` replaces it. Reading continues after a
//! problem, so that an operator sees all of them, but a table with a problem is not replaced.

mod rule;

use std::collections::HashSet;
use std::io::BufRead;

use crate::names::Names;
use crate::place::{LineError, Place, ReadError};
use crate::tree::{
    Chain, ChainId, Counters, Family, Hook, MAX_CHAIN_NAME, MAX_RULES, Policy, Rule, Ruleset,
    Table, TableError, Target, tables_of,
};
use crate::value::{any_number, show};
use crate::words::{Word, split};

pub use rule::Parser;

/// Longest line of a file, in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// Most problems that are reported of a file.
pub const MAX_PROBLEMS: usize = 100;

/// A set of rules, and the problems of its file.
#[derive(Debug)]
pub struct Reading {
    /// The rules.
    pub ruleset: Ruleset,
    /// Problems of the text.
    pub problems: Vec<ReadError>,
    /// Problems after the first [`MAX_PROBLEMS`].
    pub more_problems: u64,
    /// Lines that are for the other IP family: -4 or -6.
    pub other_family: u64,
}

impl Reading {
    /// The set, if the file had no problem.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn complete(mut self) -> Result<Ruleset, ReadError> {
        if self.problems.is_empty() {
            Ok(self.ruleset)
        } else {
            Err(self.problems.swap_remove(0))
        }
    }
}

/// Reads a file into an empty set.
///
/// # Errors
///
/// The input failed. Problems of the text are in the result.
pub fn read(
    input: &mut dyn BufRead,
    file: &str,
    family: Family,
    names: &Names,
) -> std::io::Result<Reading> {
    restore(Ruleset::new(family), input, file, names, false)
}

/// Applies a file to a set: each table of the file replaces that of the set, or with `noflush`
/// changes it. Policies that the file does not name stay.
///
/// # Errors
///
/// The input failed. Problems of the text are in the result.
pub fn restore(
    ruleset: Ruleset,
    input: &mut dyn BufRead,
    file: &str,
    names: &Names,
    noflush: bool,
) -> std::io::Result<Reading> {
    let mut reading = transact(ruleset, input, file, names, noflush)?;
    reading.ruleset.tables.iter_mut().for_each(Table::keep);
    Ok(reading)
}

/// The same, after which tables that `noflush` changed can be undone.
pub(crate) fn transact(
    ruleset: Ruleset,
    input: &mut dyn BufRead,
    file: &str,
    names: &Names,
    noflush: bool,
) -> std::io::Result<Reading> {
    let mut reader = Reader {
        parser: Parser::new(ruleset.family, names),
        reading: Reading {
            ruleset,
            problems: Vec::new(),
            more_problems: 0,
            other_family: 0,
        },
        file,
        noflush,
        table: None,
        line: 0,
        last_chain: None,
    };
    let mut line = Vec::new();
    while let Some(length) = next_line(input, &mut line)? {
        reader.line += 1;
        if length > MAX_LINE {
            reader.problem(LineError::new(
                0,
                format!("the line has more than {MAX_LINE} bytes"),
            ));
            continue;
        }
        if let Err(problem) = reader.line(&line) {
            if let Some(open) = &mut reader.table {
                open.broken = true;
            }
            reader.problem(problem);
        }
    }
    reader.end();
    Ok(reader.reading)
}

/// The next line without its end, up to a little more than [`MAX_LINE`]; its whole length.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    line.clear();
    let mut length = 0;
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok((length > 0).then_some(length));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = end.unwrap_or(buffer.len());
        if line.len() <= MAX_LINE {
            line.extend_from_slice(&buffer[..part.min(MAX_LINE + 1)]);
        }
        length += part;
        let consumed = part + usize::from(end.is_some());
        input.consume(consumed);
        if end.is_some() {
            return Ok(Some(length));
        }
    }
}

/// A table between `*TABLE` and `COMMIT`.
struct Open {
    table: Table,
    rules: usize,
    broken: bool,
}

struct Reader<'a> {
    parser: Parser<'a>,
    reading: Reading,
    file: &'a str,
    noflush: bool,
    table: Option<Open>,
    line: u32,
    last_chain: Option<ChainId>,
}

impl Reader<'_> {
    fn problem(&mut self, problem: LineError) {
        if self.reading.problems.len() == MAX_PROBLEMS {
            self.reading.more_problems += 1;
            return;
        }
        self.reading.problems.push(ReadError {
            file: self.file.to_owned(),
            place: Place {
                line: self.line,
                column: problem.column,
            },
            text: problem.text,
        });
    }

    fn family(&self) -> Family {
        self.parser.family
    }

    fn line(&mut self, line: &[u8]) -> Result<(), LineError> {
        if line.last() == Some(&b'\r') {
            return Err(LineError::new(
                line.len() as u32,
                "the line ends with a carriage return: convert the file with dos2unix",
            ));
        }
        if let Some(at) = line.iter().position(|byte| *byte == 0) {
            return Err(LineError::new(
                at as u32 + 1,
                "the line has a byte of zero, where the original tools end it: remove it",
            ));
        }
        match line.first() {
            None | Some(b'#') => Ok(()),
            Some(b'*') => self.begin_table(&line[1..]),
            Some(b':') if self.table.is_some() => self.chain_line(line),
            _ if line.starts_with(b"COMMIT") && line[6..].iter().all(u8::is_ascii_whitespace) => {
                self.commit(true)
            }
            _ if line.iter().all(u8::is_ascii_whitespace) => Ok(()),
            _ if self.table.is_none() => Err(LineError::new(
                1,
                format!(
                    "\"{}\" is outside of a table: a line such as *filter must come before",
                    show(line)
                ),
            )),
            _ => self.command(line),
        }
    }

    fn begin_table(&mut self, name: &[u8]) -> Result<(), LineError> {
        if self.table.is_some() {
            self.commit(!self.family().is_ip())?;
        }
        self.last_chain = None;
        let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
        let table = new_table(self.family(), &name, self.line).ok_or_else(|| {
            let known: Vec<&str> = tables_of(self.family())
                .iter()
                .map(|(name, _)| *name)
                .collect();
            LineError::new(
                2,
                format!(
                    "\"{}\" is not a table of {}: {}",
                    show(name.as_bytes()),
                    self.family().tool(),
                    known.join(", ")
                ),
            )
        });
        let (table, broken) = match table {
            Ok(table) => (table, false),
            // Lines up to COMMIT belong to it, and shall not be a problem each.
            Err(problem) => {
                self.problem(problem);
                (Table::new("", self.line), true)
            }
        };
        let table = match self.reading.ruleset.table_mut(&table.name) {
            Some(present) if self.noflush => {
                let mut present = std::mem::replace(present, Table::new(&name, 0));
                present.begin_edit();
                present
            }
            Some(present) => with_policies_of(table, present),
            None => table,
        };
        self.table = Some(Open {
            rules: table.rules(),
            table,
            broken,
        });
        Ok(())
    }

    fn commit(&mut self, complete: bool) -> Result<(), LineError> {
        let Some(mut open) = self.table.take() else {
            return Err(LineError::new(1, "COMMIT without a table"));
        };
        let problem = || {
            let name = &open.table.name;
            let text = format!("COMMIT expected before this line: table {name} has none");
            LineError::new(0, text)
        };
        let result = if complete { Ok(()) } else { Err(problem()) };
        let edited = open.table.journal().is_some();
        match open.broken || !complete {
            true if !edited => return result,
            true => open.table.undo(),
            false if edited => open.table.end_edit(open.rules),
            false => open.table.shrink(),
        }
        match self.reading.ruleset.table_mut(&open.table.name) {
            Some(present) => *present = open.table,
            None => self.reading.ruleset.tables.push(open.table),
        }
        result
    }

    fn end(&mut self) {
        if self.table.is_some()
            && let Err(problem) = self.commit(!self.family().is_ip())
        {
            self.line += 1;
            self.problem(LineError::new(
                0,
                problem
                    .text
                    .replace("before this line", "at the end of the file"),
            ));
        }
    }

    /// `:CHAIN POLICY [packets:bytes]`.
    fn chain_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        let mut words = Vec::new();
        split(line, &mut words)?;
        let name = &words[0].text[1..];
        let policy = words.get(1).map(|word| &word.text[..]);
        let counters = match words.get(2) {
            None => Counters::default(),
            Some(word) => counters(&word.text)
                .ok_or_else(|| LineError::new(word.column, "counters must be [packets:bytes]"))?,
        };
        let (family, noflush, at) = (self.family(), self.noflush, self.line);
        let Some(open) = &mut self.table else {
            return Ok(());
        };
        if open.broken && open.table.name.is_empty() {
            return Ok(());
        }
        let policy_column = words.get(1).map_or(0, |word| word.column);
        let policy = policy.ok_or_else(|| {
            LineError::new(
                0,
                "the policy is missing: write ACCEPT, DROP or - after the chain",
            )
        })?;
        let parsed = match policy {
            b"ACCEPT" => Some(Policy::Accept),
            b"DROP" => Some(Policy::Drop),
            b"RETURN" if family == Family::Bridge => Some(Policy::Return),
            b"-" => None,
            _ => {
                return Err(LineError::new(
                    policy_column,
                    format!(
                        "\"{}\" is not a policy: write ACCEPT, DROP or -",
                        show(policy)
                    ),
                ));
            }
        };
        let present = open.table.find(name);
        if let Some(id) = present {
            let chain = open.table.get_mut(id);
            if chain.hook.is_some() {
                if parsed == Some(Policy::Return) {
                    return Err(LineError::new(
                        policy_column,
                        "a base chain has no policy RETURN: write ACCEPT or DROP",
                    ));
                }
                chain.policy = parsed.unwrap_or(chain.policy);
                if parsed.is_some() {
                    chain.counters = counters;
                }
                chain.line = at;
                return Ok(());
            }
        }
        if parsed.is_some() && family != Family::Bridge {
            return Err(LineError::new(
                policy_column,
                format!(
                    "chain \"{}\" is not a base chain and has no policy: write -",
                    show(name)
                ),
            ));
        }
        if parsed.is_none() && family == Family::Bridge {
            return Err(LineError::new(
                policy_column,
                format!(
                    "chain \"{}\" of a bridge needs a policy: write ACCEPT, DROP or RETURN",
                    show(name)
                ),
            ));
        }
        let user = if family == Family::Bridge {
            parsed.unwrap_or(Policy::Accept)
        } else {
            Policy::Return
        };
        if let Some(id) = present {
            let chain = open.table.get_mut(id);
            if !noflush {
                return Err(LineError::new(
                    2,
                    format!(
                        "chain \"{}\" is defined twice (first in line {}): remove a line",
                        show(name),
                        chain.line
                    ),
                ));
            }
            open.rules -= chain.rules.len();
            chain.rules = Vec::new();
            chain.policy = user;
            chain.line = at;
            return Ok(());
        }
        check_chain_name(name, family).map_err(|text| LineError::new(2, text))?;
        open.table
            .add(new_chain(name, None, user, at))
            .map_err(|error| LineError::new(2, error.to_string()))?;
        Ok(())
    }

    /// A line with a command: `-A CHAIN ...` and so on.
    fn command(&mut self, line: &[u8]) -> Result<(), LineError> {
        let mut words = Vec::with_capacity(16);
        split(line, &mut words)?;
        let Some(open) = &mut self.table else {
            return Ok(());
        };
        if open.broken && open.table.name.is_empty() {
            return Ok(());
        }
        let mut edit = Edit {
            parser: &mut self.parser,
            table: &mut open.table,
            line: self.line,
            rules: &mut open.rules,
            last_chain: &mut self.last_chain,
            other_family: &mut self.reading.other_family,
        };
        edit.command(&words)
    }
}

/// A table with the policies of the table that it replaces: the original tools keep them, too.
fn with_policies_of(mut table: Table, present: &Table) -> Table {
    for (_, chain) in table.chains_mut() {
        if let Some(id) = present.find(&chain.name) {
            chain.policy = present.get(id).policy;
        }
    }
    table
}

/// Where a command ends that has its chain attached: `--append=INPUT` or `-AINPUT`.
fn chain_in(command: &[u8]) -> Option<usize> {
    match command {
        [b'-', b'-', ..] => command.iter().position(|byte| *byte == b'='),
        [b'-', letter, _, ..] if b"AIDCRNXPFZE".contains(letter) => Some(2),
        _ => None,
    }
}

/// `[packets:bytes]`.
fn counters(word: &[u8]) -> Option<Counters> {
    let text = std::str::from_utf8(word).ok()?;
    let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some(Counters {
        packets: packets.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

/// A table of a family with its base chains.
pub fn new_table(family: Family, name: &str, line: u32) -> Option<Table> {
    let (name, hooks) = tables_of(family).iter().find(|(known, _)| *known == name)?;
    let mut table = Table::new(name, line);
    for hook in *hooks {
        table
            .add(new_chain(
                hook.chain().as_bytes(),
                Some(*hook),
                Policy::Accept,
                0,
            ))
            .expect("base chains have different names");
    }
    Some(table)
}

fn new_chain(name: &[u8], hook: Option<Hook>, policy: Policy, line: u32) -> Chain {
    Chain {
        name: name.into(),
        hook,
        policy,
        counters: Counters::default(),
        rules: Vec::new(),
        line,
    }
}

fn check_chain_name(name: &[u8], family: Family) -> Result<(), String> {
    let shown = show(name);
    if name.is_empty() {
        return Err("the name of the chain is missing".into());
    }
    let longest = if family == Family::Bridge {
        31
    } else {
        MAX_CHAIN_NAME
    };
    if name.len() > longest {
        return Err(format!(
            "chain name \"{shown}\" is longer than {longest} bytes"
        ));
    }
    if matches!(name[0], b'-' | b'!') {
        return Err(format!("chain name \"{shown}\" must not begin with - or !"));
    }
    if name.iter().any(u8::is_ascii_whitespace) {
        return Err(format!("chain name \"{shown}\" must not have blanks"));
    }
    if name.iter().any(u8::is_ascii_control) {
        return Err(format!(
            "chain name \"{shown}\" must not have control characters"
        ));
    }
    if rule::standard_target(name, family).is_some()
        || crate::spec::find_target(name, family).is_some()
        || rule::is_known_target(name, family)
    {
        return Err(format!(
            "chain name \"{shown}\" is the name of a target: choose another name"
        ));
    }
    Ok(())
}

/// Commands on one table: lines of a file, or arguments of `apply`.
pub struct Edit<'a, 'n> {
    /// Reads rules.
    pub parser: &'a mut Parser<'n>,
    /// Name of the table.
    pub table: &'a mut Table,
    /// Line in the file, 0 if it has none.
    pub line: u32,
    /// Rules of the table.
    pub rules: &'a mut usize,
    /// The chain of the previous line.
    pub last_chain: &'a mut Option<ChainId>,
    /// Lines of the other IP family.
    pub other_family: &'a mut u64,
}

impl Edit<'_, '_> {
    /// Executes a command.
    ///
    /// # Errors
    ///
    /// The column of the word, the problem and a remedy. The table is unchanged then.
    pub fn command(&mut self, words: &[Word]) -> Result<(), LineError> {
        let mut words = words;
        let mut counted = None;
        if let Some(first) = words.first()
            && first.text.starts_with(b"[")
        {
            counted =
                Some(counters(&first.text).ok_or_else(|| {
                    LineError::new(first.column, "counters must be [packets:bytes]")
                })?);
            words = &words[1..];
        }
        // -4 and -6 select the lines of a family in a shared file.
        while let Some(first) = words.first() {
            let wanted = match &first.text[..] {
                b"-4" | b"--ipv4" => Family::Ipv4,
                b"-6" | b"--ipv6" => Family::Ipv6,
                b"-v" | b"--verbose" => {
                    words = &words[1..];
                    continue;
                }
                _ => break,
            };
            if wanted != self.parser.family {
                *self.other_family += 1;
                return Ok(());
            }
            words = &words[1..];
        }
        let joined: Vec<Word>;
        if let Some(first) = words.first()
            && let Some(at) = chain_in(&first.text)
        {
            let part = |text: &[u8], column| Word {
                text: text.to_vec().into(),
                column,
            };
            let skip = at + usize::from(first.text[at] == b'=');
            let both = [
                part(&first.text[..at], first.column),
                part(&first.text[skip..], first.column + skip as u32),
            ];
            joined = both.into_iter().chain(words[1..].iter().cloned()).collect();
            words = &joined;
        }
        let Some(command) = words.first() else {
            return Err(LineError::new(0, "a command such as -A is missing"));
        };
        let without_verbose: Vec<Word>;
        if let Some(most) = most_words(&command.text) {
            let others = words.iter().filter(|word| !is_verbose(word));
            without_verbose = others.cloned().collect();
            let before = std::mem::replace(&mut words, &without_verbose);
            // -v ends the command where a chain could follow.
            let most = match before.get(1).is_some_and(is_verbose) {
                true => 1,
                false => most,
            };
            let option = words.get(most).map(|word| &word.text[..]);
            let most = most + self.option_words(&command.text, option);
            if let Some(extra) = words.get(most) {
                return Err(LineError::new(
                    extra.column,
                    format!(
                        "{} takes no \"{}\": remove it",
                        show(&command.text),
                        show(&extra.text)
                    ),
                ));
            }
        }
        let name = words.get(1);
        let chain_name = || {
            name.ok_or_else(|| {
                LineError::new(
                    command.column,
                    format!("{} needs a chain", show(&command.text)),
                )
            })
        };
        match &command.text[..] {
            b"-A" | b"--append" => {
                let chain = self.find_chain(chain_name()?)?;
                let rules = self.parse(chain, &words[2..], counted)?;
                self.reserve(rules.len(), command)?;
                self.table.get_mut(chain).rules.extend(rules);
                Ok(())
            }
            b"-I" | b"--insert" => {
                let chain = self.find_chain(chain_name()?)?;
                let (at, rest) = position(&words[2..], 1)?;
                let limit = self.table.get(chain).rules.len() + 1;
                if at > limit {
                    return Err(LineError::new(
                        words[2].column,
                        format!(
                            "there is no rule {at} to insert before: the chain has {}",
                            limit - 1
                        ),
                    ));
                }
                let rules = self.parse(chain, rest, counted)?;
                self.reserve(rules.len(), command)?;
                let chain = self.table.get_mut(chain);
                // Each rule of a list goes to the same place, so the last one comes first.
                for rule in rules {
                    chain.rules.insert(at - 1, rule);
                }
                Ok(())
            }
            b"-D" | b"--delete" => {
                let id = self.find_chain(chain_name()?)?;
                if let Some(at) = words.get(2).and_then(number)
                    && words[3..].iter().all(is_verbose)
                {
                    let chain = self.table.get_mut(id);
                    if at == 0 || at > chain.rules.len() {
                        return Err(no_rule(&words[2], at, chain));
                    }
                    chain.rules.remove(at - 1);
                    *self.rules -= 1;
                    return Ok(());
                }
                let rules = self.parse(id, &words[2..], None)?;
                for rule in rules {
                    let chain = self.table.get_mut(id);
                    let at = chain
                        .rules
                        .iter()
                        .position(|other| same(other, &rule))
                        .ok_or_else(|| {
                            LineError::new(
                                words.get(2).map_or(0, |word| word.column),
                                format!("chain {} has no such rule", show(&chain.name)),
                            )
                        })?;
                    chain.rules.remove(at);
                    *self.rules -= 1;
                }
                Ok(())
            }
            b"-C" | b"--check" => {
                let id = self.find_chain(chain_name()?)?;
                let rules = self.parse(id, &words[2..], None)?;
                let chain = self.table.get(id);
                if rules
                    .iter()
                    .all(|rule| chain.rules.iter().any(|other| same(other, rule)))
                {
                    Ok(())
                } else {
                    Err(LineError::new(
                        words.get(2).map_or(0, |word| word.column),
                        format!("chain {} has no such rule", show(&chain.name)),
                    ))
                }
            }
            b"-R" | b"--replace" => {
                let id = self.find_chain(chain_name()?)?;
                let (at, rest) = position(&words[2..], 0)?;
                let chain = self.table.get(id);
                if at == 0 || at > chain.rules.len() {
                    return Err(no_rule(words.get(2).unwrap_or(command), at, chain));
                }
                let mut rules = self.parse(id, rest, counted)?;
                if rules.len() != 1 {
                    return Err(LineError::new(
                        words[2].column,
                        "-R takes one rule: write one source and one destination",
                    ));
                }
                self.table.get_mut(id).rules[at - 1] = rules.swap_remove(0);
                Ok(())
            }
            b"-N" | b"--new-chain" => {
                let name = chain_name()?;
                check_chain_name(&name.text, self.parser.family)
                    .map_err(|text| LineError::new(name.column, text))?;
                let policy = match self.parser.family {
                    Family::Bridge => Policy::Accept,
                    _ => Policy::Return,
                };
                match self
                    .table
                    .add(new_chain(&name.text, None, policy, self.line))
                {
                    Ok(_) if words.len() > 2 => self.policy(name, &words[3..]),
                    Ok(_) => Ok(()),
                    Err(error @ TableError::Exists) => Err(LineError::new(
                        name.column,
                        format!("{error}: {}", show(&name.text)),
                    )),
                    Err(error) => Err(LineError::new(name.column, error.to_string())),
                }
            }
            b"-X" | b"--delete-chain" => self.delete_chains(name),
            b"-P" | b"--policy" => self.policy(chain_name()?, &words[2..]),
            b"-F" | b"--flush" => {
                let ids = self.chains(name)?;
                for id in ids {
                    let chain = self.table.get_mut(id);
                    *self.rules -= chain.rules.len();
                    chain.rules = Vec::new();
                }
                Ok(())
            }
            b"-Z" | b"--zero" => self.zero(name, words.get(2)),
            b"-E" | b"--rename-chain" => {
                let id = self.find_chain(chain_name()?)?;
                let to = words.get(2).ok_or_else(|| {
                    LineError::new(command.column, "-E needs the present and the new name")
                })?;
                check_chain_name(&to.text, self.parser.family)
                    .map_err(|text| LineError::new(to.column, text))?;
                if self.table.get(id).hook.is_some() || self.table.find(&to.text).is_some() {
                    return Err(LineError::new(
                        to.column,
                        "a base chain cannot be renamed, and the new name must be free",
                    ));
                }
                // A removed number is the next one that is given, so jumps keep their target.
                let mut chain = self.table.remove(id);
                chain.name = to.text[..].into();
                self.table
                    .add(chain)
                    .map(|_| *self.last_chain = None)
                    .map_err(|error| LineError::new(to.column, error.to_string()))
            }
            other => Err(LineError::new(
                command.column,
                format!(
                    "\"{}\" is not a command: a rule begins with -A CHAIN",
                    show(other)
                ),
            )),
        }
    }

    fn reserve(&mut self, more: usize, at: &Word) -> Result<(), LineError> {
        if *self.rules + more > MAX_RULES {
            return Err(LineError::new(
                at.column,
                format!("too many rules: a table has at most {MAX_RULES}"),
            ));
        }
        *self.rules += more;
        Ok(())
    }

    fn find_chain(&mut self, word: &Word) -> Result<ChainId, LineError> {
        if let Some(last) = *self.last_chain
            && let Some(chain) = self.table.try_get(last)
            && *chain.name == *word.text
        {
            return Ok(last);
        }
        let id = self.table.find(&word.text).ok_or_else(|| {
            LineError::new(
                word.column,
                format!(
                    "chain \"{0}\" does not exist: add the line :{0} - before",
                    show(&word.text)
                ),
            )
        })?;
        // Files list rules by chain: the previous one is probably complete.
        if let Some(last) = self.last_chain.replace(id)
            && self.table.try_get(last).is_some()
        {
            self.table.get_mut(last).rules.shrink_to_fit();
        }
        Ok(id)
    }

    fn parse(
        &mut self,
        chain: ChainId,
        words: &[Word],
        counted: Option<Counters>,
    ) -> Result<Vec<Rule>, LineError> {
        let hook = self.table.get(chain).hook;
        self.parser
            .rule(self.table, hook, words, counted, self.line)
    }

    fn chains(&mut self, name: Option<&Word>) -> Result<Vec<ChainId>, LineError> {
        match name {
            Some(name) => Ok(vec![self.find_chain(name)?]),
            None => Ok(self.table.chains().map(|(id, _)| id).collect()),
        }
    }

    fn delete_chains(&mut self, name: Option<&Word>) -> Result<(), LineError> {
        let all = self.chains(name)?;
        let column = name.map_or(0, |name| name.column);
        let targets = self
            .table
            .chains()
            .flat_map(|(_, chain)| &chain.rules)
            .filter_map(|rule| match rule.target {
                Target::Jump(id) | Target::Goto(id) => Some(id),
                _ => None,
            });
        let used: HashSet<ChainId> = match &all[..] {
            [one] => targets.filter(|id| id == one).take(1).collect(),
            _ => targets.collect(),
        };
        for id in &all {
            let chain = self.table.get(*id);
            if chain.hook.is_some() {
                if name.is_none() {
                    continue;
                }
                return Err(LineError::new(
                    column,
                    format!("{} is a base chain and cannot be deleted", chain.name()),
                ));
            }
            if used.contains(id) || !chain.rules.is_empty() {
                return Err(LineError::new(
                    column,
                    format!(
                        "chain {} has rules or is the target of a rule: flush and delete them first",
                        chain.name()
                    ),
                ));
            }
        }
        for id in all {
            if self.table.get(id).hook.is_none() {
                self.table.remove(id);
            }
        }
        *self.last_chain = None;
        Ok(())
    }

    /// The words of an option that may end a command, with its values.
    fn option_words(&self, command: &[u8], option: Option<&[u8]>) -> usize {
        let bridge = self.parser.family == Family::Bridge;
        match (command, option) {
            (b"-P" | b"--policy", Some(b"-c" | b"--set-counters")) if !bridge => 3,
            (b"-N" | b"--new-chain", Some(b"-P" | b"--policy")) if bridge => 2,
            _ => 0,
        }
    }

    /// `POLICY [-c PACKETS BYTES]`.
    fn policy(&mut self, name: &Word, words: &[Word]) -> Result<(), LineError> {
        let policy = words.first();
        let set = match words.get(1) {
            None => None,
            Some(option) => {
                let count = |at: usize| any_number(std::str::from_utf8(&words.get(at)?.text).ok()?);
                let both = count(2).zip(count(3));
                let problem = || LineError::new(option.column, "-c needs packets and bytes");
                Some(both.ok_or_else(problem)?)
            }
        };
        let bridge = self.parser.family == Family::Bridge;
        let id = self.find_chain(name)?;
        let policy = policy
            .ok_or_else(|| LineError::new(name.column, "-P needs a policy: ACCEPT or DROP"))?;
        let value = match &policy.text[..] {
            b"ACCEPT" => Policy::Accept,
            b"DROP" => Policy::Drop,
            b"RETURN" if bridge => Policy::Return,
            _ => {
                return Err(LineError::new(
                    policy.column,
                    format!(
                        "\"{}\" is not a policy: write ACCEPT or DROP",
                        show(&policy.text)
                    ),
                ));
            }
        };
        let chain = self.table.get_mut(id);
        if chain.hook.is_some() && value == Policy::Return {
            return Err(LineError::new(
                policy.column,
                "a base chain has no policy RETURN: write ACCEPT or DROP",
            ));
        }
        if chain.hook.is_none() && !bridge {
            return Err(LineError::new(
                name.column,
                format!("{} is not a base chain and has no policy", chain.name()),
            ));
        }
        chain.policy = value;
        if let Some((packets, bytes)) = set {
            chain.counters = Counters { packets, bytes };
        }
        Ok(())
    }

    fn zero(&mut self, name: Option<&Word>, at: Option<&Word>) -> Result<(), LineError> {
        let ids = self.chains(name)?;
        if let (Some(word), [id]) = (at, &ids[..]) {
            let chain = self.table.get_mut(*id);
            let at = number(word).unwrap_or(0);
            if at == 0 || at > chain.rules.len() {
                return Err(no_rule(word, at, chain));
            }
            let (before, rest) = chain.rules.split_at_mut(at - 1);
            let rule = &mut rest[0];
            if let Some(counters) = &mut rule.counters {
                **counters = Counters::default();
            }
            let equal = before.iter().filter(|other| same(other, rule)).count();
            let nth = (rule.clone(), equal);
            self.table.note_zero(*id, Some(nth));
            return Ok(());
        }
        for id in ids {
            self.table.note_zero(id, None);
            let chain = self.table.get_mut(id);
            chain.counters = Counters::default();
            for counters in chain
                .rules
                .iter_mut()
                .filter_map(|rule| rule.counters.as_mut())
            {
                **counters = Counters::default();
            }
        }
        Ok(())
    }
}

fn no_rule(word: &Word, at: usize, chain: &Chain) -> LineError {
    LineError::new(
        word.column,
        format!(
            "chain {} has no rule {at}: it has {}",
            chain.name(),
            chain.rules.len()
        ),
    )
}

/// True if both rules have the same matches and target.
pub fn same(a: &Rule, b: &Rule) -> bool {
    a.target == b.target && a.items == b.items
}

fn number(word: &Word) -> Option<usize> {
    let text = std::str::from_utf8(&word.text).ok()?;
    any_number(text)?.try_into().ok()
}

fn is_verbose(word: &Word) -> bool {
    matches!(&word.text[..], b"-v" | b"--verbose")
}

/// The words of a command that takes no rule, itself included.
fn most_words(command: &[u8]) -> Option<usize> {
    match command {
        b"-N" | b"--new-chain" | b"-X" | b"--delete-chain" | b"-F" | b"--flush" => Some(2),
        b"-P" | b"--policy" | b"-E" | b"--rename-chain" | b"-Z" | b"--zero" => Some(3),
        _ => None,
    }
}

/// An optional number of a rule, and the words after it.
fn position<'w, 'a>(
    words: &'w [Word<'a>],
    default: usize,
) -> Result<(usize, &'w [Word<'a>]), LineError> {
    match words.first().and_then(|word| Some((word, number(word)?))) {
        Some((word, 0)) => Err(LineError::new(word.column, "rules are numbered from 1")),
        Some((_, at)) => Ok((at, &words[1..])),
        None => Ok((default, words)),
    }
}
