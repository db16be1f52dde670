//! Code blocks of a page, and lines with numbers left open.

/// Commands, and lines that their output contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// As typed.
    pub commands: String,
    /// In this order; `N` stands for a number or a time.
    pub expected: Vec<String>,
}

impl Block {
    /// Commands whose output is not compared.
    pub fn new(commands: &str) -> Block {
        Block {
            commands: commands.to_owned(),
            expected: Vec::new(),
        }
    }
}

/// First line of a text block that shows output.
const EXAMPLE: &str = "example:";

/// All `sh` blocks of a page; a `text` block with an example belongs to the one before.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines
            .by_ref()
            .take_while(|line| !line.starts_with("```"))
            .collect();
        match (language, body.split_first()) {
            ("sh", _) => blocks.push(Block::new(&(body.join("\n") + "\n"))),
            ("text", Some((&EXAMPLE, expected))) => {
                let block = blocks.last_mut().expect("commands before an example");
                block.expected = expected.iter().map(|line| (*line).to_owned()).collect();
            }
            _ => {}
        }
    }
    blocks
}

/// True if `line` is `expected` with something in the place of each `N`; spaces count as one.
pub fn fits(expected: &str, line: &str) -> bool {
    let is_open = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()) == "N";
    let words = expected.split_whitespace().map(|word| match is_open(word) {
        true => word.replace('N', "\u{0}"),
        false => word.to_owned(),
    });
    let pattern = words.collect::<Vec<String>>().join(" ");
    let line = line.split_whitespace().collect::<Vec<&str>>().join(" ");
    let mut parts = pattern.split('\u{0}');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        // A number has one character at least.
        let from = rest.chars().next().map_or(0, char::len_utf8);
        let found = match parts.peek() {
            None => rest[from..]
                .ends_with(part)
                .then(|| rest.len() - part.len()),
            Some(_) => rest[from..].find(part).map(|at| at + from),
        };
        match found {
            Some(at) if from > 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty()
}

/// The first expected line that does not follow in `output`.
pub fn missing<'e>(expected: &'e [String], output: &str) -> Option<&'e str> {
    let mut lines = output.lines();
    expected
        .iter()
        .map(String::as_str)
        .find(|wanted| !lines.any(|line| fits(wanted, line)))
}

#[test]
fn an_open_number_fits_any_number() {
    for (expected, line, is_fit) in [
        ("3 received, time N", "3 received,  time 2003ms", true),
        ("3 received, time N", "3 received, time ", false),
        (
            "N WARN alert: p95 N, limit 60 ms",
            "12:00 WARN alert: p95 71.2 ms, limit 60 ms",
            true,
        ),
        (
            "N WARN alert: p95 N, limit 60 ms",
            "12:00 WARN alert: p95 71.2 ms, limit 50 ms",
            false,
        ),
        ("| N", "| rtt=5;60", true),
        ("exit status 2", "exit status 1", false),
        ("NAME N", "NAME 5", true),
    ] {
        assert_eq!(fits(expected, line), is_fit, "{expected} / {line}");
    }
}

#[test]
fn examples_belong_to_the_commands_before() {
    let page = "x\n```sh\na\nb\n```\n```text\nexample:\nc N\n```\n```toml\nd\n```\n```sh\ne\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].commands, "a\nb\n");
    assert_eq!(found[0].expected, ["c N"]);
    assert_eq!(missing(&found[0].expected, "z\nc 7"), None);
    assert_eq!(missing(&found[0].expected, "z"), Some("c N"));
}
