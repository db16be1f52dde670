//! The report of a script: its test cases, and the details of each failure.

use std::fmt::Write;

use serde::Serialize;

use fairpath_sched::log::describe;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An expectation of the script failed.
    Expectation,
    /// The script has an error: its syntax, the arguments of a verb, or an error that it raised.
    Script,
    /// The script used up its instructions or its memory.
    Limit,
    /// The runtimes returned different outcomes for the same operation.
    RuntimesDiffer,
    /// The scheduler is inconsistent: it returned an unknown packet, or its audit failed.
    Broken,
    /// The runtime could not be created or run, or the log could not be written.
    Runtime,
}

impl FailureKind {
    fn words(self) -> &'static str {
        match self {
            FailureKind::Expectation => "expectation",
            FailureKind::Script => "script error",
            FailureKind::Limit => "limit",
            FailureKind::RuntimesDiffer => "runtimes differ",
            FailureKind::Broken => "inconsistent scheduler",
            FailureKind::Runtime => "runtime",
        }
    }
}

/// A packet that waited when a test case failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingPacket {
    /// Label and number: "a#2".
    pub packet: String,
    /// The number of the packet in the scheduler.
    pub handle: u32,
    /// The rank that its leaf computed at enqueue.
    pub rank: u64,
    /// The time since enqueue.
    pub age_ns: u64,
    /// The length on the link.
    pub bytes: u32,
    /// The name of its leaf.
    pub node: String,
    /// The addresses and ports.
    pub flow: String,
}

/// The reason and the circumstances of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// Lines of the script, innermost first. Empty if the script did not compile.
    pub lines: Vec<usize>,
    /// The message, one line.
    pub message: String,
    /// The expected value.
    pub expected: Option<String>,
    /// The actual value.
    pub got: Option<String>,
    /// The virtual time.
    pub now_ns: u64,
    /// Waiting packets by rank, at most [`super::SHOWN_PACKETS`].
    pub waiting: Vec<WaitingPacket>,
    /// The number of all waiting packets.
    pub waiting_packets: usize,
    /// The last operations and their outcomes, oldest first.
    pub operations: Vec<String>,
}

/// One `test` of a script, or the code outside of tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The name of the test, or of the script for code outside of tests.
    pub name: String,
    /// Expectations that were met.
    pub checks: u64,
    /// Operations of the scheduler.
    pub operations: u64,
    /// The failure, or `None` if the case passed.
    pub failure: Option<Failure>,
}

/// The results of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScriptReport {
    /// The script's name.
    pub script: String,
    /// The runtimes of the script.
    pub runtimes: Vec<String>,
    /// The test cases in the order in which they ended.
    pub cases: Vec<Case>,
    /// The output of the script, at most [`super::MAX_PRINTED_BYTES`].
    pub printed: String,
    /// Bytes of output that were discarded.
    pub cut_bytes: u64,
    /// Instructions used.
    pub instructions: u64,
}

impl ScriptReport {
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

    /// Panics with the text of the report unless all cases passed, for tests.
    ///
    /// # Panics
    /// A case failed, or no case checked anything.
    pub fn expect_pass(&self) {
        let checks: u64 = self.cases.iter().map(|case| case.checks).sum();
        assert!(self.failed() == 0, "{}", self.text(1));
        assert!(checks > 0, "{}: the script expects nothing", self.script);
    }

    /// The report in the format of the Test Anything Protocol. It has the output of the script, then
    /// a line for each case, numbered from `first`, with diagnostics below failed cases.
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
            let _ = writeln!(text, "#   no packet waits at {now} ns");
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

/// Waiting packets in columns with a header.
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
