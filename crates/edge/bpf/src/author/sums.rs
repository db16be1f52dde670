//! Sums of `p->bytes` in 32 bits, found by compiling the policy with wider variables.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{CompileError, Compiler, absolute, trapped_lines};

/// A value that passes more variables than this before it is added is no longer followed.
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
            found.extend(narrowed.iter().filter(|&&at| accumulates(&lines[at - 1])));
            let before = names.len();
            for at in narrowed.into_iter().filter(|at| !found.contains(at)) {
                let name = variable(&lines[at - 1]).map(str::to_owned);
                names.extend(
                    name.and_then(|name| widen(&mut lines[..at], &name))
                        .into_iter()
                        .flatten(),
                );
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
            "-fsanitize=implicit-unsigned-integer-truncation",
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

/// True if the assigned object is also a part of its new value.
fn accumulates(line: &str) -> bool {
    let Some((object, value)) = line.split_once('=') else {
        return false;
    };
    let object = object.trim();
    object.ends_with('+') || (value.contains(object) && adds(value))
}

fn adds(value: &str) -> bool {
    value.contains('+') || value.contains("add(")
}

/// The variable that `TYPE NAME = ...` or `NAME = ...` assigns. Members of structures are none.
fn variable(line: &str) -> Option<&str> {
    let (object, _) = line.split_once('=')?;
    let member = object.contains("->") || object.contains(['.', '[', '*', '+']);
    words(object).last().filter(|_| !member)
}

/// Gives 64 bits to the nearest declaration of a variable. Returns the names that it declares, or None if no
/// line is one.
fn widen(lines: &mut [String], name: &str) -> Option<Vec<String>> {
    const TYPES: [&str; 6] = ["unsigned int", "__u32", "u32", "u16", "unsigned", "int"];
    let narrow = |line: &str| {
        let line = line.trim_start().trim_start_matches("const ");
        TYPES.into_iter().find(|of| {
            let rest = line.strip_prefix(of);
            rest.is_some_and(|rest| rest.starts_with(' ') && words(rest).any(|word| word == name))
        })
    };
    let (line, of) = lines
        .iter_mut()
        .rev()
        .find_map(|line| narrow(line).map(|of| (line, of)))?;
    *line = line.replacen(of, "u64", 1);
    let declared = line.split('=').next().unwrap_or_default();
    let declared = words(declared).filter(|word| !["const", "u64"].contains(word));
    Some(declared.chain([name]).map(str::to_owned).collect())
}
