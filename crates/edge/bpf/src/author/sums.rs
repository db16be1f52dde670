//! Sums of `p->bytes` in 32 bits, found by compiling the policy with wider variables.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{CompileError, Compiler, absolute, trapped_lines};

/// A value that passes more variables than this before the sum is not followed.
const VARIABLES: usize = 8;

impl Compiler {
    /// Lines of the policy file where a sum with `p->bytes` is kept in 32 bits or fewer, with their
    /// text. Values with a cast are deliberate.
    ///
    /// clang compiles the file with 64 bits for the field, and marks each narrowing. A variable that takes
    /// the value is widened too, and the file is compiled again. Values that pass a parameter or a
    /// structure first are not found.
    ///
    /// # Errors
    /// The messages of clang.
    pub fn narrow_sums(&self, file: &Path) -> Result<Vec<(usize, String)>, CompileError> {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| CompileError::Read(file.to_owned(), error))?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut names = vec!["bytes".to_owned()];
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let wide = self.dir.path().join("wide.c");
        for _ in 0..=VARIABLES {
            fs::write(&wide, lines.join("\n"))?;
            let narrowed = match self.narrowed(file, &wide) {
                // A pointer to a widened variable has another type.
                Err(CompileError::Errors(..)) if names.len() > 1 => break,
                narrowed => narrowed?,
            };
            let narrowed: Vec<usize> = narrowed
                .into_iter()
                .filter(|&at| lines.get(at - 1).is_some_and(|line| uses(line, &names)))
                .collect();
            found.extend(narrowed.iter().filter(|&&at| is_sum(&lines[at - 1])));
            let before = names.len();
            for at in narrowed.into_iter().filter(|at| !found.contains(at)) {
                if let Some(name) = variable(&lines[at - 1]).map(str::to_owned) {
                    names.extend(widen(&mut lines[..at], name));
                }
            }
            if names.len() == before {
                break;
            }
        }
        let original: Vec<&str> = text.lines().map(str::trim).collect();
        let with_text = |at: usize| (at, original[at - 1].to_owned());
        Ok(found.into_iter().map(with_text).collect())
    }

    /// Lines where a value is narrowed, if `p->bytes` has 64 bits. `wide` is the text of `file` to compile.
    fn narrowed(&self, file: &Path, wide: &Path) -> Result<BTreeSet<usize>, CompileError> {
        let file = absolute(file)?;
        let headers = format!("-iquote{}", file.parent().unwrap_or(&file).display());
        let arguments = [
            "-O0",
            "-S",
            "-emit-llvm",
            "-Wno-everything",
            "-Xclang",
            "-fsanitize=implicit-unsigned-integer-truncation,implicit-signed-integer-truncation,implicit-bitfield-conversion",
            "-Xclang",
            "-fsanitize-minimal-runtime",
            "-DFP_META_BYTES=u64",
            &headers,
        ];
        let code = self.compile(wide, "narrow", "", &arguments)?;
        Ok(trapped_lines(&String::from_utf8_lossy(&code)))
    }
}

/// The words of a line of C: identifiers and numbers.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|word| !word.is_empty())
}

fn uses(line: &str, names: &[String]) -> bool {
    words(line).any(|word| names.iter().any(|name| name == word))
}

/// True if the line adds to a value of earlier packets: to the assigned object, or to a member of the
/// policy's state. A line without an assignment is part of a longer statement, and may be one.
fn is_sum(line: &str) -> bool {
    let adds = |value: &str| value.contains('+') || value.contains("add(");
    let Some((object, value)) = line.split_once('=') else {
        return adds(line);
    };
    if object.trim_end().ends_with('+') {
        return true;
    }
    let (object, value_words): (Vec<_>, Vec<_>) = (words(object).collect(), words(value).collect());
    let to_itself = value_words
        .windows(object.len().max(1))
        .any(|part| part == object);
    let mut members = value.match_indices("->");
    let to_state = members.any(|(at, _)| words(&value[..at]).last() != Some("p"));
    adds(value) && (to_itself || to_state)
}

/// The variable that `TYPE NAME = ...` or `NAME = ...` assigns. Members of structures are none.
fn variable(line: &str) -> Option<&str> {
    let (object, _) = line.split_once('=')?;
    let member = object.contains("->") || object.contains(['.', '[', '*', '+']);
    words(object).last().filter(|_| !member)
}

/// Gives 64 bits to the nearest declaration of a variable. Returns the names that it declares, none if no
/// line is one.
fn widen(lines: &mut [String], name: String) -> Vec<String> {
    const TYPES: [&str; 8] = [
        "unsigned int",
        "__u32",
        "u32",
        "u16",
        "unsigned",
        "__s32",
        "s32",
        "int",
    ];
    let narrow = |line: &str| {
        let line = line.trim_start().trim_start_matches("const ");
        TYPES.into_iter().find(|of| {
            let rest = line.strip_prefix(of);
            rest.is_some_and(|rest| rest.starts_with(' ') && words(rest).any(|word| word == name))
        })
    };
    let declaration = lines
        .iter_mut()
        .rev()
        .find_map(|line| narrow(line).map(|of| (line, of)));
    let Some((line, of)) = declaration else {
        return Vec::new();
    };
    *line = line.replacen(of, "u64", 1);
    let declared = line.split('=').next().unwrap_or_default();
    let declared = words(declared).filter(|word| !["const", "u64"].contains(word));
    declared.map(str::to_owned).chain([name.clone()]).collect()
}
