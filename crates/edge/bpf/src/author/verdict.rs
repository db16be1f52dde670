//! The verifier's verdict on a policy, in a few lines.
//!
//! Each function is global, so the verifier checks each once and separately, and its verdict holds
//! for every caller. Its log is long and about registers. From it, this module takes the number of
//! instructions for each function, or the line of the policy file where it stopped, with its last
//! words.

use std::ffi::c_char;

use libbpf_rs::{AsRawLibbpf, ObjectBuilder};

/// Maximum bytes of the verifier's log.
const LOG_BYTES: usize = 64 << 20;
/// Every instruction, with the state before it.
const ALL: u32 = 2;
/// Only the path to the instruction where it stopped.
const LAST_WAY: u32 = 1;

/// The verifier could not be run.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No permission to load programs.
    #[error("run the verifier: not permitted; needs root, or CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// An error other than a refusal.
    #[error("run the verifier: {0}")]
    Other(libbpf_rs::Error),
}

/// The result of the verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Verified functions, with the number of instructions for each.
    pub functions: Vec<(String, u64)>,
    /// The refusal, if any.
    pub refusal: Option<Refusal>,
}

/// A refusal of the verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function.
    pub function: String,
    /// The line of the policy file, if known: "file.c:12: text".
    pub line: Option<String>,
    /// The last words of the log.
    pub reason: String,
}

/// Loads an object of [`super::Compiler::trial`] and closes it; nothing is attached or run.
///
/// # Errors
/// [`VerifyError`]; a refusal is not an error, but part of the verdict.
pub fn verify(object: &[u8]) -> Result<Verdict, VerifyError> {
    query(object, ALL)
}

/// The verifier's refusal of an object of [`super::Compiler::scheduler`], which is too large for
/// [`verify`]. `None` if it is accepted, or the verifier cannot be run.
pub fn refusal(object: &[u8]) -> Option<Refusal> {
    query(object, LAST_WAY).ok()?.refusal
}

/// A part of the verifier's last words, the reason in plain words, and the remedy.
const REASONS: [(&[&str], &str, &str); 7] = [
    (
        &["infinite loop", "back-edge"],
        "the loop may never end",
        "loop a constant number of times",
    ),
    (
        &["too large", "too complex", "too many states"],
        "it has too many instructions or branches to verify",
        "use shorter loops and fewer branches",
    ),
    (
        &["stack size", "stack depth", "call stack"],
        "it needs too much stack",
        "use fewer local variables, and no arrays",
    ),
    (
        &[
            "!read_ok",
            "invalid read from stack",
            "invalid indirect read",
        ],
        "it reads a variable without a value",
        "set the variable first",
    ),
    (
        &["unreachable insn"],
        "it has instructions that never run",
        "remove code behind an endless loop or a constant condition",
    ),
    (
        &[
            "invalid access",
            "outside of",
            "invalid mem access",
            "unbounded memory",
            "min value is negative",
        ],
        "it may access memory outside of packet, state and call",
        "limit an index to the size of its array, such as `table[p->dscp & 3]`",
    ),
    (
        &["division by zero", "div by zero", "invalid shift"],
        "it divides by zero or shifts too far",
        "use div, mod, shl and shr",
    ),
];

impl Refusal {
    /// The reason in plain words and the remedy, if the last words are known.
    pub fn explained(&self) -> Option<(&'static str, &'static str)> {
        let is_of = |words: &[&str]| words.iter().any(|part| self.reason.contains(part));
        let known = REASONS.iter().find(|(words, ..)| is_of(words));
        known.map(|(_, reason, remedy)| (*reason, *remedy))
    }
}

fn query(object: &[u8], level: u32) -> Result<Verdict, VerifyError> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut open = ObjectBuilder::default()
        .open_memory(object)
        .map_err(VerifyError::Other)?;
    for mut program in open.progs_mut() {
        program.set_log_level(level);
        let place = log.as_mut_ptr().cast::<c_char>();
        // SAFETY: the buffer outlives the load below, and libbpf writes at most its length.
        let rc = unsafe {
            libbpf_sys::bpf_program__set_log_buf(
                program.as_libbpf_object().as_ptr(),
                place,
                LOG_BYTES as libbpf_sys::size_t,
            )
        };
        debug_assert_eq!(rc, 0, "only unset or huge lengths are refused");
    }
    let result = open.load();
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]);
    match result {
        Ok(_) => Ok(read(&log, false)),
        Err(_) if log.contains("processed ") || log.contains("Validating ") => Ok(read(&log, true)),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            Err(VerifyError::NotPermitted)
        }
        Err(error) => Err(VerifyError::Other(error)),
    }
}

fn read(log: &str, refused: bool) -> Verdict {
    let mut functions: Vec<(String, u64)> = Vec::new();
    let (mut line, mut output) = (None, "");
    for text in log.lines() {
        if let Some(name) = text
            .strip_prefix("Validating ")
            .and_then(|rest| rest.split("()").next())
        {
            functions.push((name.to_owned(), 0));
            line = None;
        } else if is_instruction(text) {
            if let Some((_, count)) = functions.last_mut() {
                *count += 1;
            }
        } else if let Some(source) = text.strip_prefix("; ") {
            line = Some(to_line(source));
        } else if !is_chatter(text) {
            output = text;
        }
    }
    let refusal = refused.then(|| Refusal {
        function: functions
            .last()
            .map_or_else(String::new, |(name, _)| name.clone()),
        line: line.flatten(),
        reason: output.to_owned(),
    });
    Verdict { functions, refusal }
}

/// "12: (bf) r1 = r2 ..."
fn is_instruction(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && rest.starts_with(": (")
}

/// Lines of state, statistics and success.
fn is_chatter(text: &str) -> bool {
    const BEGINS: [&str; 14] = [
        "processed ",
        "verification time",
        "stack depth",
        "Func#",
        "func#",
        "from ",
        "mark_precise",
        "caller",
        "callee",
        "Live regs",
        "cur state:",
        "old state:",
        "arg#",
        "propagating",
    ];
    let is_state = text.split_once(':').is_some_and(|(number, _)| {
        !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
    });
    text.trim().is_empty() || is_state || BEGINS.iter().any(|begin| text.starts_with(begin))
}

/// Turns "text @ file.c:12" around.
fn to_line(source: &str) -> Option<String> {
    let (text, place) = source.rsplit_once(" @ ")?;
    Some(format!("{place}: {}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_dumps_are_no_reason() {
        let log = "Validating custom_rank_enqueue() func#1...\n; while (1) @ mine.c:8\n\
                   6: (05) goto pc-1\ninfinite loop detected at insn 6\n\
                   cur state: R1=mem(sz=80) R10=fp0\nold state: R1=mem(sz=80) R10=fp0\n\
                   processed 3 insns (limit 1000000)\n";
        let refusal = read(log, true).refusal.expect("it refused");
        assert_eq!(refusal.reason, "infinite loop detected at insn 6");
        let explained = refusal.explained().expect("known words");
        assert_eq!(explained.0, "the loop may never end");
    }

    #[test]
    fn refusals_name_function_line_and_last_words() {
        let log = "func#0 @0\n0: R1=ctx() R10=fp0\n; int check() @ trial.c:9\n0: (b7) r0 = 0\n\
                   Validating custom_rank_enqueue() func#1...\n9: R1=mem(sz=80) R10=fp0\n\
                   ; return table[p->dscp]; @ mine.c:31\n9: (71) r1 = *(u8 *)(r1 +69)\n\
                   10: (79) r0 = *(u64 *)(r2 +72)\ninvalid access to map value, value_size=64\n\
                   R2 max value is outside of the allowed memory range\nprocessed 3 insns (limit 1000000)\n";
        let verdict = read(log, true);
        assert_eq!(verdict.functions, [("custom_rank_enqueue".to_owned(), 2)]);
        let refusal = verdict.refusal.expect("it refused");
        assert_eq!(refusal.function, "custom_rank_enqueue");
        assert_eq!(
            refusal.line.as_deref(),
            Some("mine.c:31: return table[p->dscp];")
        );
        assert_eq!(
            refusal.reason,
            "R2 max value is outside of the allowed memory range"
        );
    }
}
