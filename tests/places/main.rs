//! CONTRIBUTING.md's table "Places of new things", checked against the sources.
//!
//! ```text
//! row ──► paths ─────────────────────────► they exist, with the example's name in them
//!    └──► identifiers of the example ────► they stand in these paths, and nowhere else
//! a copy of bpf/ ──► a policy, a method, a match, as the page says ──► clang, natively, and run
//! ```
//!
//! Tests may name anything: files of tests and what follows `#[cfg(test)]` are not searched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairpath_analysis::experiment::Document;

include!("../../bpf/matches.rs");
include!("../../bpf/methods.rs");
include!("../../bpf/policy_files.rs");

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("below the root").to_owned()
}

/// A row of the table.
struct PlaceRow {
    thing: String,
    /// The paths of its file and of its registration, with NAME in them.
    places: Vec<String>,
    /// The example's NAME, where one exists.
    name: Option<String>,
    /// The identifiers of the example in code.
    identifiers: Vec<String>,
}

/// The text between backticks.
fn quoted(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

fn rows() -> Vec<PlaceRow> {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the page");
    let section = page.split("## Places of new things").nth(1);
    let section = section.expect("the section").split("\n## ").next();
    let lines = section.unwrap_or_default().lines();
    let rows = lines.filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [thing, file, registration, example] = cells[..] else {
            panic!("{line}: not four cells");
        };
        let mut example = quoted(example).into_iter();
        let places = quoted(file).into_iter().chain(quoted(registration));
        PlaceRow {
            thing: thing.to_owned(),
            places: places.filter(|place| place.contains('/')).collect(),
            name: example.next(),
            identifiers: example.collect(),
        }
    })
    .collect()
}

impl PlaceRow {
    /// Its paths with the example's name.
    fn paths(&self) -> Vec<String> {
        let name = self.name.as_deref().unwrap_or("NAME");
        let paths = self.places.iter();
        paths.map(|place| place.replace("NAME", name)).collect()
    }

    /// True if `file` is one of its paths, below one, or in the folder of a module's file.
    fn covers(&self, file: &str) -> bool {
        self.paths().iter().any(|path| {
            let folder = path.strip_suffix(".rs").unwrap_or(path);
            let below = file.strip_prefix(folder.trim_end_matches('/'));
            file == path || below.is_some_and(|below| below.starts_with('/'))
        })
    }
}

#[test]
fn every_place_on_the_page_exists() {
    let rows = rows();
    assert!(rows.len() >= 10, "the table was not found");
    for row in rows {
        for path in row.paths() {
            let is_form = path.contains("NAME") || path.contains("PLANE");
            assert!(
                is_form || root().join(&path).exists(),
                "{}: {path} is not there",
                row.thing
            );
        }
    }
}

/// Files below `folder` with these endings that are no tests, by their paths from the root.
fn files_below(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = folder.join(entry.file_name());
        let is_test = ["tests", "tests.rs", "target"].map(Path::new);
        if is_test.iter().any(|test| path.ends_with(test)) {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            files_below(&path, endings, found);
        } else if endings
            .iter()
            .any(|known| path.extension() == Some(known.as_ref()))
        {
            found.push(path);
        }
    }
}

/// True if `word` is a separate word in `line`.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !part(before.chars().next_back()) && !part(after.chars().next())
    })
}

#[test]
fn examples_are_named_in_their_places_only() {
    let mut files = Vec::new();
    for folder in ["bpf", "crates", "xtask"] {
        files_below(Path::new(folder), &["rs", "c", "h"], &mut files);
    }
    let rows = rows();
    let mut named = vec![0; rows.len()];
    for file in files {
        let text = fs::read_to_string(root().join(&file)).expect("a text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let comment = |line: &&str| {
            !["//", "/*", " *"]
                .iter()
                .any(|c| line.trim_end().starts_with(c))
        };
        let lines: Vec<&str> = code.lines().filter(comment).collect();
        let file = file.to_string_lossy();
        for (row, named) in rows.iter().zip(&mut named) {
            let is_here = |word: &&String| lines.iter().any(|line| has_word(line, word));
            if let Some(word) = row.identifiers.iter().find(is_here) {
                assert!(row.covers(&file), "{}: {file} names {word}, too", row.thing);
                *named += 1;
            }
        }
    }
    for (row, named) in rows.iter().zip(named) {
        let thing = &row.thing;
        assert!(
            row.identifiers.is_empty() || named > 0,
            "{thing}: its example is nowhere"
        );
    }
}

/// The three that are decisions of the core, and the other kinds, have examples.
/// Words for the numbers from ten.
const NUMBERS: [&str; 21] = [
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "twenty-one",
    "twenty-two",
    "twenty-three",
    "twenty-four",
    "twenty-five",
    "twenty-six",
    "twenty-seven",
    "twenty-eight",
    "twenty-nine",
    "thirty",
];

/// Smaller numbers count a selection.
#[test]
fn pages_count_every_policy_and_experiment() {
    let experiments = fs::read_dir(root().join("crates/lab/analysis/experiments")).unwrap();
    let counts = [
        ("policies", fairpath_core::sched::policies().len()),
        ("experiments", experiments.count()),
    ];
    let mut pages = vec!["README.md".into(), "CHANGELOG.md".into()];
    for folder in ["docs", "crates"] {
        files_below(Path::new(folder), &["md", "rs"], &mut pages);
    }
    let mut found = 0;
    for page in &pages {
        let text = fs::read_to_string(root().join(page))
            .unwrap()
            .to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let number = NUMBERS.iter().position(|word| *word == pair[0]);
            let noun = pair[1].trim_matches(|c: char| !c.is_alphabetic());
            let count = counts.iter().find(|(name, _)| *name == noun);
            let (Some(number), Some((name, count))) = (number, count) else {
                continue;
            };
            found += 1;
            assert_eq!(
                number + 10,
                *count,
                "{}: {} {name}",
                page.display(),
                pair[0]
            );
        }
    }
    assert!(found >= 4, "{found} counts");
}

#[test]
fn extensible_parts_have_an_example_row() {
    let rows = rows();
    for thing in [
        "shipped policy",
        "RTT method",
        "match of classes",
        "back end",
        "experiment",
        "metric of the lab",
    ] {
        let row = rows.iter().find(|row| row.thing == thing);
        let row = row.unwrap_or_else(|| panic!("no row has the place of a {thing}"));
        assert!(!row.identifiers.is_empty(), "{thing} has no example");
    }
}

/// A copy of bpf/ that things are added to.
struct Copy {
    dir: tempfile::TempDir,
}

impl Copy {
    fn new() -> Copy {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let status = Command::new("cp")
            .arg("-r")
            .arg(root().join("bpf"))
            .arg(dir.path())
            .status();
        assert!(status.expect("cp").success());
        Copy { dir }
    }

    fn path(&self, place: &str) -> PathBuf {
        self.dir.path().join(place)
    }

    /// Puts `line` behind the last line that begins with `X(` of the file `place`.
    fn register(&self, place: &str, line: &str) {
        let text = fs::read_to_string(self.path(place)).expect("the list");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let last = lines
            .iter()
            .rposition(|known| known.trim().starts_with("X("));
        let last = last.expect("a line of the list");
        let known = lines[last].trim_end_matches(['\\', ' ', '\t']).to_owned();
        lines[last] = known + " \\";
        lines.insert(last + 1, format!("\t{line}"));
        fs::write(self.path(place), lines.join("\n") + "\n").expect("written");
    }

    fn append(&self, place: &str, text: &str) {
        let known = fs::read_to_string(self.path(place)).expect("the file");
        let end = known.rfind("#endif").expect("the guard's end");
        let text = format!("{}{text}\n{}", &known[..end], &known[end..]);
        fs::write(self.path(place), text).expect("written");
    }

    /// Compiles `text` against the copy; the program's path.
    fn compile(&self, text: &str, arguments: &[&str]) -> PathBuf {
        fs::write(self.path("policy_files.h"), policy_files(self.dir.path())).expect("written");
        let (source, program) = (self.path("example.c"), self.path("example.out"));
        fs::write(&source, text).expect("written");
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
        let output = Command::new(clang)
            .args([
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-function",
            ])
            .args(arguments)
            .arg("-I")
            .arg(self.path("bpf/core"))
            .arg("-I")
            .arg(self.path("bpf/include"))
            .arg("-I")
            .arg(self.path("bpf"))
            .arg("-I")
            .arg(self.dir.path())
            .arg("-o")
            .args([&program, &source])
            .output()
            .expect("clang");
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{reported}");
        program
    }

    /// Compiles and runs a program.
    fn run(&self, text: &str) -> String {
        let output = Command::new(self.compile(text, &[]))
            .output()
            .expect("runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// The monitor, and a runtime that takes no events.
const MONITOR: &str = r#"#include "rtt/layout.h"
#include <stdio.h>

FP_FUNC int fp_emit(struct fp_work FP_MEM *w FP_ARG, u32 bytes)
{
	(void)w;
	return !bytes;
}
"#;

/// A sample of the new method is counted as its own.
const METHOD: &str = r#"
int main(void)
{
	static struct fp_work w;

	fp_count_sample(&w, FP_METHOD_EXAMPLE);
	printf("%d %d %d", FP_METHOD_EXAMPLE, (int)w.stats.samples_example,
	       (int)w.stats.samples_icmp);
}
"#;

/// The new match's key, behind its line.
const KEY: &str = r#"FP_INLINE u64 fp_key_protocol(const struct fp_work FP_MEM *w, int sender)
{
	(void)sender;
	return w->packet.key.proto;
}
#define FP_MIX_protocol(a, b) (a ^= (u64)w->packet.key.proto << 24)
"#;

/// One rule, TCP leads to slot 7: the class of a TCP packet's end, and of a UDP packet's.
const MATCH: &str = r#"
static struct {
	struct fp_rtt r;
	struct fp_image image;
	struct fp_rule rule[64];
} m;

static u32 class_of(u8 proto)
{
	static struct fp_work w;

	w.packet.key.proto = proto;
	w.packet.key.family = 4;
	return fp_class_of(&m.r, &w, 0, 1);
}

int main(void)
{
	u32 tag = FP_RULE_PROTOCOL + 1;
	struct fp_rule *rule = &m.rule[fp_hash_rule(6, 0, tag, 0) & 63];

	m.r.images[0] = (u64)((char *)&m.image - (char *)&m.r);
	m.image.mask = 63;
	m.image.uses = FP_USES(FP_RULE_PROTOCOL);
	m.image.rules = (u64)((char *)m.rule - (char *)&m.image);
	rule->key[0] = 6;
	rule->tag = tag;
	rule->value = 7;
	printf("%u %u %d", class_of(6), class_of(17), (FP_USES_FACTS & m.image.uses) != 0);
}
"#;

/// As `bpf/policy/fifo.c`, by another name, and large packets first.
const POLICY: &str = r#"/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <fairpath/policy.h>

struct flow {
};

struct class
{
	PARAMS;
};

struct global {
};

POLICY{
	STATE,
	.name = "example",
	.about = "large packets first",
	.source = "CONTRIBUTING.md",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_HEAP },
};

RANK_ENQUEUE
{
	return 65535 - p->bytes;
}
"#;

/// The new policy is found by its number, and ranks two packets.
const RUNS: &str = r#"
#include <stdio.h>

void (*fp_native_before_shared)(void);

u64 fp_native_custom(u64 custom, u32 function, const struct fp_meta *packet, u64 *flow, u64 *class,
		     u64 *global, struct fp_call *call)
{
	return !custom && !function && !packet && !flow && !class && !global && !call;
}

int main(void)
{
	static struct example_flow f;
	static struct example_class c;
	static struct example_global g;
	struct fp_meta large = { .bytes = 1500 }, small = { .bytes = 1000 };
	struct fp_call r = {};

	printf("%s %u: %u before %u", fp_native_policy(29)->name, fp_native_policy_functions(29),
	       (u32)example_rank_enqueue(&large, &f, &c, &g, &r),
	       (u32)example_rank_enqueue(&small, &f, &c, &g, &r));
}
"#;

#[test]
fn a_policy_is_a_file_and_a_line() {
    let copy = Copy::new();
    fs::write(copy.path("bpf/policy/example.c"), POLICY).expect("written");
    copy.register("bpf/core/sched/policies.h", "X(29, example, E, N, N, N)");
    let native = root().join("crates/model/core/src/sched/native.c");
    let native = format!("#include \"{}\"\n", native.display());
    let reported = copy.run(&(native + RUNS));
    assert_eq!(reported, "example 1: 64035 before 64535");
}

#[test]
fn a_method_is_a_function_and_a_line() {
    let copy = Copy::new();
    copy.register(
        "bpf/core/rtt/methods.h",
        "X(5, example, EXAMPLE, \"An example.\")",
    );
    let reported = copy.run(&(MONITOR.to_owned() + METHOD));
    assert_eq!(reported, "5 1 0");
    let rust = methods(copy.dir.path());
    assert!(
        rust.contains("5 Example example samples_example \"An example.\";"),
        "{rust}"
    );
}

#[test]
fn a_match_is_a_line_with_its_key() {
    let copy = Copy::new();
    let list = "bpf/core/class/matches.h";
    copy.register(
        list,
        "X(10, protocol, PROTOCOL, FP_OF_ANY, 1, protocols, u8, \"Protocol of the packet.\")",
    );
    copy.append(list, KEY);
    let reported = copy.run(&(MONITOR.to_owned() + MATCH));
    assert_eq!(reported, "7 0 1");
    let rust = matches(copy.dir.path());
    assert!(
        rust.contains("10 protocols (u8) \"Protocol of the packet.\";"),
        "{rust}"
    );
}

#[test]
fn an_experiment_is_a_file_and_a_line() {
    let folder = root().join("crates/lab/analysis/experiments");
    let text = fs::read_to_string(folder.join("fairness.toml")).expect("an experiment");
    let example = text.replacen("name = \"fairness\"", "name = \"example\"", 1);
    let document = Document::parse("example.toml", &example);
    assert!(document.is_ok(), "{:?}", document.err());
    // The files and the lines are the same.
    let mut files: Vec<String> = fs::read_dir(folder)
        .expect("the folder")
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    let list = root().join("crates/lab/analysis/src/experiment/shipped.rs");
    let list = fs::read_to_string(list).expect("the list");
    let list = list
        .split("shipped![")
        .nth(1)
        .and_then(|list| list.split(']').next());
    let mut lines: Vec<String> = list
        .expect("SHIPPED")
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    files.sort();
    lines.sort();
    assert_eq!(files, lines);
}
