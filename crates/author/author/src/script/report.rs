//! What came of a script: test cases, and of each that failed, all that is known.

use std::fmt::Write;

use serde::Serialize;

use fairpath_sched::log::describe;

/// Of what kind a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Something else happened than the script expects.
    Expectation,
    /// The script is wrong: syntax, a verb's arguments, an error of its own.
    Script,
    /// The script used up its instructions or its memory.
    Limit,
    /// The homes gave different outcomes for the same operation.
    HomesDiffer,
    /// The scheduler contradicts itself: a packet that it does not have, an audit that fails.
    Broken,
    /// The home could not be made or run, or the log not be written.
    Home,
}

impl FailureKind {
    fn words(self) -> &'static str {
        match self {
            FailureKind::Expectation => "expectation",
            FailureKind::Script => "script error",
            FailureKind::Limit => "limit",
            FailureKind::HomesDiffer => "homes differ",
            FailureKind::Broken => "the scheduler contradicts itself",
            FailureKind::Home => "home",
        }
    }
}

/// A packet that was waiting when a case failed, as the script knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingPacket {
    /// Label and number: "a#2".
    pub packet: String,
    /// Its number at the scheduler.
    pub handle: u32,
    /// As its leaf ranked it when it came.
    pub rank: u64,
    /// How long it has waited.
    pub age_ns: u64,
    /// On the wire.
    pub bytes: u32,
    /// Name of its leaf.
    pub node: String,
    /// Its ends.
    pub flow: String,
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Of what kind.
    pub kind: FailureKind,
    /// Lines of the script, the innermost first; none if it could not be compiled.
    pub lines: Vec<usize>,
    /// What happened, one line.
    pub message: String,
    /// What the script expected.
    pub expected: Option<String>,
    /// What it got.
    pub got: Option<String>,
    /// Virtual time.
    pub now_ns: u64,
    /// Packets waiting, by rank; at most [`super::SHOWN_PACKETS`].
    pub waiting: Vec<WaitingPacket>,
    /// How many there are.
    pub waiting_packets: usize,
    /// The last operations and their outcomes, oldest first.
    pub operations: Vec<String>,
}

/// One `test` of a script, or what stands outside of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// As the script calls it; the script's own name for what stands outside.
    pub name: String,
    /// Expectations that held.
    pub checks: u64,
    /// Operations of the scheduler.
    pub operations: u64,
    /// None: it passed.
    pub failure: Option<Failure>,
}

/// What came of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The script's name.
    pub script: String,
    /// The homes that it ran in.
    pub homes: Vec<String>,
    /// In the order in which they ended.
    pub cases: Vec<Case>,
    /// What it printed, at most [`super::MAX_PRINTED_BYTES`].
    pub printed: String,
    /// Bytes printed beyond that.
    pub cut_bytes: u64,
    /// Instructions used.
    pub instructions: u64,
}

impl Report {
    /// Cases that passed.
    pub fn passed(&self) -> usize {
        self.cases
            .iter()
            .filter(|case| case.failure.is_none())
            .count()
    }

    /// Cases that failed.
    pub fn failed(&self) -> usize {
        self.cases.len() - self.passed()
    }

    /// Panics with the report's text unless all cases passed and something was checked: for tests.
    ///
    /// # Panics
    /// A case failed, or none checks anything.
    pub fn expect_pass(&self) {
        let checks: u64 = self.cases.iter().map(|case| case.checks).sum();
        assert!(self.failed() == 0, "{}", self.text(1));
        assert!(checks > 0, "{}: the script expects nothing", self.script);
    }

    /// Lines for people, in the form of the Test Anything Protocol: what was printed, then a line
    /// for each case, numbered from `first`, with diagnostics below those that failed.
    pub fn text(&self, first: usize) -> String {
        let mut text = String::new();
        for line in self.printed.lines() {
            let _ = writeln!(text, "# {line}");
        }
        if self.cut_bytes > 0 {
            let _ = writeln!(text, "# ({} more bytes printed)", self.cut_bytes);
        }
        for (number, case) in (first..).zip(&self.cases) {
            let ok = if case.failure.is_none() {
                "ok"
            } else {
                "not ok"
            };
            let Case {
                name,
                checks,
                operations,
                ..
            } = case;
            let _ = write!(text, "{ok} {number} - ");
            if *name != self.script {
                let _ = write!(text, "{}: ", self.script);
            }
            let _ = writeln!(text, "{name} ({checks} checks, {operations} operations)");
            if let Some(failure) = &case.failure {
                failure.write(&self.script, &mut text);
            }
        }
        text
    }
}

impl Failure {
    fn write(&self, script: &str, text: &mut String) {
        let _ = write!(text, "#   ");
        match self.lines.split_first() {
            Some((line, callers)) => {
                let _ = write!(text, "{script}:{line}: ");
                self.write_what(text);
                for caller in callers {
                    let _ = writeln!(text, "#     called from {script}:{caller}");
                }
            }
            None => self.write_what(text),
        }
        let sides = [("expected", &self.expected), ("got", &self.got)];
        for (name, side) in sides
            .into_iter()
            .filter_map(|(n, s)| Some((n, s.as_ref()?)))
        {
            let side = side.replace('\n', "\n#             ");
            let _ = writeln!(text, "#     {name:>8}: {side}");
        }
        if self.operations.is_empty() {
            return;
        }
        self.write_waiting(text);
        let _ = writeln!(text, "#   last operations:");
        for operation in &self.operations {
            let _ = writeln!(text, "#     {operation}");
        }
    }

    fn write_what(&self, text: &mut String) {
        let message = self.message.replace('\n', "\n#     ");
        let _ = match self.kind {
            FailureKind::Expectation => writeln!(text, "{message}"),
            kind => writeln!(text, "{}: {message}", kind.words()),
        };
    }

    fn write_waiting(&self, text: &mut String) {
        let now = self.now_ns;
        if self.waiting.is_empty() {
            let _ = writeln!(text, "#   at {now} ns nothing waits");
            return;
        }
        let _ = writeln!(
            text,
            "#   waiting at {now} ns: {}",
            packets(self.waiting_packets)
        );
        for line in table(&self.waiting).lines() {
            let _ = writeln!(text, "#     {line}");
        }
        let more = self.waiting_packets - self.waiting.len();
        if more > 0 {
            let _ = writeln!(text, "#     and {more} more");
        }
    }
}

/// "1 packet", "2 packets".
pub(super) fn packets(count: usize) -> String {
    match count {
        1 => "1 packet".into(),
        count => format!("{count} packets"),
    }
}

/// Waiting packets in columns, with a head.
pub(super) fn table(packets: &[WaitingPacket]) -> String {
    let row = |p: &WaitingPacket| {
        [
            p.packet.clone(),
            p.handle.to_string(),
            describe::rank(p.rank),
            p.age_ns.to_string(),
            p.bytes.to_string(),
            p.node.clone(),
            p.flow.clone(),
        ]
    };
    let head = [
        "packet", "handle", "rank", "age_ns", "bytes", "node", "flow",
    ]
    .map(String::from);
    let rows: Vec<[String; 7]> = std::iter::once(head)
        .chain(packets.iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                1..=4 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
