//! Manual pages: the description of the command line, joined with the prose of the guide.
//!
//! `fairpath generate man`, and that of [`OTHERS`], write a page for every subcommand from what they parse; a page
//! of the guide that begins with `# fairpath NAME: about` is about that subcommand. Options
//! that are copied by hand become outdated, and a list of options explains nothing.
//!
//! ```text
//! NAME              guide        OPTIONS, SUBCOMMANDS    command line, then the guide's options as notes
//! SYNOPSIS          command line the guide's sections    in their order
//! DESCRIPTION       guide        SEE ALSO                all other pages
//! ```

use crate::{manual, run, tidy};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Package and name of the binaries that `fairpath NAME` runs; their pages replace the router's.
pub const OTHERS: [(&str, &str); 2] = [
    ("fairpath-lab", "fairpath-lab"),
    ("fairpath-author", "fairpath-sched"),
];
const GUIDE: &str = "docs/guide";
/// Sections that come from the command line and keep their name.
const OF_THE_COMMAND: [&str; 2] = ["OPTIONS", "SUBCOMMANDS"];

/// Writes all pages into `dir`, which afterwards holds nothing else; returns how many.
///
/// `binary` is a built `fairpath` for this machine; without one, cargo builds and runs it.
pub fn write(dir: &Path, binary: Option<&Path>) -> Result<usize> {
    let generated = of_command_lines(dir, binary)?;
    let guide = guide()?;
    let names: BTreeSet<&String> = generated.keys().chain(guide.keys()).collect();
    for name in &names {
        let page = Page {
            name,
            command: generated.get(*name).map(String::as_str),
            guide: guide.get(*name).map(String::as_str),
        };
        let to = dir.join(format!("{name}.1"));
        fs::write(&to, page.join(&names)).with_context(|| format!("write {}", to.display()))?;
    }
    Ok(names.len())
}

/// The pages that the command lines of all binaries describe, by name; `dir` afterwards has only these.
pub fn of_command_lines(dir: &Path, binary: Option<&Path>) -> Result<BTreeMap<String, String>> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    generate("man", dir, binary)?;
    for (package, name) in OTHERS {
        let other = binary.map(|binary| next_to(binary, name));
        generate_by(package, "man", dir, other.as_deref())?;
    }
    generated(dir)
}

/// Runs `fairpath generate WHAT DIR`.
pub fn generate(what: &str, dir: &Path, binary: Option<&Path>) -> Result<()> {
    generate_by("fairpath", what, dir, binary)
}

/// Another binary, built into the directory of the router's.
pub fn next_to(binary: &Path, name: &str) -> PathBuf {
    binary.with_file_name(name)
}

fn generate_by(package: &str, what: &str, dir: &Path, binary: Option<&Path>) -> Result<()> {
    let mut command = match binary {
        Some(binary) => std::process::Command::new(binary),
        None => {
            let mut cargo = run::cargo();
            cargo.args(["run", "--locked", "--quiet", "--package", package, "--"]);
            cargo
        }
    };
    run::output(command.args(["generate", what]).arg(dir)).map(drop)
}

/// Pages of the guide that are about a command, by the name of their manual page.
fn guide() -> Result<BTreeMap<String, String>> {
    let mut pages = BTreeMap::new();
    for path in tidy::walk(Path::new(GUIDE), &["md"])? {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if let Some(name) = subject(&text) {
            let page = manual::from_markdown(&name, env!("CARGO_PKG_VERSION"), &text);
            pages.insert(name, page);
        }
    }
    Ok(pages)
}

/// `fairpath-rtt` of a page that begins with `# fairpath rtt: `; `None` of one about something else.
fn subject(text: &str) -> Option<String> {
    let (command, _) = text.lines().next()?.strip_prefix("# ")?.split_once(": ")?;
    let mut words = command.split(' ');
    (words.next() == Some("fairpath")).then(|| command.replace(' ', "-"))
}

fn generated(dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        pages.insert(name.into_owned(), text);
    }
    Ok(pages)
}

/// One manual page in the making; at least one of its two sources exists.
struct Page<'a> {
    name: &'a str,
    command: Option<&'a str>,
    guide: Option<&'a str>,
}

impl Page<'_> {
    fn join(&self, all: &BTreeSet<&String>) -> String {
        let (command, guide) = (
            sections(self.command.unwrap_or_default()),
            sections(self.guide.unwrap_or_default()),
        );
        let mut out = format!(
            ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH {} 1 \"\" \"fairpath {}\" \"Fairpath\"\n",
            self.name.to_uppercase(),
            env!("CARGO_PKG_VERSION")
        );
        let mut put = |title: &str, text: Option<&str>| {
            if let Some(text) = text {
                out.push_str(&format!(".SH {title}\n{}\n", text.trim_end()));
            }
        };
        let prose = |title| text_of(&guide, title).or_else(|| text_of(&command, title));
        put("NAME", prose("NAME"));
        put("SYNOPSIS", text_of(&command, "SYNOPSIS"));
        put("DESCRIPTION", prose("DESCRIPTION"));
        for title in OF_THE_COMMAND {
            put(title, text_of(&command, title));
        }
        put("OPTIONS IN DETAIL", text_of(&guide, "OPTIONS"));
        for (title, text) in &guide {
            if !["NAME", "DESCRIPTION", "OPTIONS"].contains(title) {
                put(title, Some(text));
            }
        }
        put("NOTES", text_of(&command, "EXTRA"));
        put("SEE ALSO", see_also(self.name, all).as_deref());
        out
    }
}

/// The other pages, in man's own notation.
fn see_also(name: &str, all: &BTreeSet<&String>) -> Option<String> {
    let others: Vec<String> = all
        .iter()
        .filter(|other| **other != name)
        .map(|other| format!(".BR {} (1)", other.replace('-', "\\-")))
        .collect();
    (!others.is_empty()).then(|| others.join(",\n"))
}

/// The titles of a page and what is below them.
fn sections(page: &str) -> Vec<(&str, &str)> {
    let body = page.split_once("\n.SH ").map_or("", |(_, body)| body);
    body.split("\n.SH ")
        .filter_map(|section| section.split_once('\n'))
        .collect()
}

fn text_of<'a>(sections: &[(&str, &'a str)], title: &str) -> Option<&'a str> {
    sections
        .iter()
        .find(|(t, _)| t.trim_matches('"') == title)
        .map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = ".TH fairpath-rtt 1\n.SH NAME\nfairpath\\-rtt \\- short\n.SH SYNOPSIS\nfairpath rtt\n.SH DESCRIPTION\nshort\n.SH OPTIONS\n.TP\n\\-\\-new\n.SH VERSION\nv1\n";

    fn joined(command: Option<&str>, guide: Option<&str>) -> String {
        let names = ["fairpath".to_owned(), "fairpath-rtt".to_owned()];
        let page = Page {
            name: "fairpath-rtt",
            command,
            guide,
        };
        page.join(&names.iter().collect())
    }

    fn titles(page: &str) -> Vec<&str> {
        page.lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect()
    }

    #[test]
    fn a_page_has_prose_and_the_options() {
        let text =
            "# fairpath rtt: round trips\n\nProse.\n\n## Options\n\nWords.\n\n## JSON\n\nKeys.\n";
        let guide = manual::from_markdown("fairpath-rtt", "1", text);
        let page = joined(Some(COMMAND), Some(&guide));
        assert_eq!(
            titles(&page),
            [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "OPTIONS IN DETAIL",
                "JSON",
                "SEE ALSO"
            ]
        );
        assert!(page.contains("round trips") && !page.contains("short"));
        assert!(page.contains("\\-\\-new") && page.contains("Words."));
        assert!(page.ends_with(".SH SEE ALSO\n.BR fairpath (1)\n"));
    }

    #[test]
    fn a_page_with_one_source_is_that_source() {
        let alone = joined(Some(COMMAND), None);
        assert_eq!(
            titles(&alone),
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"]
        );
        let guide = manual::from_markdown("fairpath-rtt", "1", "# fairpath rtt: x\n\nProse.\n");
        assert_eq!(
            titles(&joined(None, Some(&guide))),
            ["NAME", "DESCRIPTION", "SEE ALSO"]
        );
    }

    #[test]
    fn only_pages_about_a_command_become_manual_pages() {
        assert_eq!(
            subject("# fairpath rtt: x\n").as_deref(),
            Some("fairpath-rtt")
        );
        assert_eq!(
            subject("# fairpath class check: x").as_deref(),
            Some("fairpath-class-check")
        );
        assert_eq!(subject("# fairpath: x").as_deref(), Some("fairpath"));
        assert_eq!(subject("# Installing: from the package"), None);
        assert_eq!(subject("text"), None);
    }
}
