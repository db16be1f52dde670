//! Links of installed documents lead to installed documents.
//!
//! In the repository, documents also link to sources and to pages that the package does not contain.
//! Such a link becomes text.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Documents by their path in the repository, with their path in the package's directory of documents.
#[derive(Default)]
pub struct Documents(BTreeMap<PathBuf, PathBuf>);

impl Documents {
    /// Adds a document.
    pub fn add(&mut self, repository: &Path, installed: &str) {
        self.0.insert(repository.to_owned(), installed.into());
    }

    /// The text of `page`, a path in the repository, with its links as in the package.
    pub fn relink(&self, page: &Path, text: &str) -> String {
        let mut in_block = false;
        let lines = text.split_inclusive('\n').map(|line| {
            let fence = line.trim_start().starts_with("```");
            in_block ^= fence;
            match in_block || fence {
                true => line.to_owned(),
                false => self.relink_line(page, line),
            }
        });
        lines.collect()
    }

    fn relink_line(&self, page: &Path, line: &str) -> String {
        // Every second piece is between backticks.
        let pieces = line.split('`').enumerate();
        let pieces = pieces.map(|(at, piece)| match at % 2 {
            0 => self.relink_prose(page, piece),
            _ => piece.to_owned(),
        });
        pieces.collect::<Vec<_>>().join("`")
    }

    fn relink_prose(&self, page: &Path, prose: &str) -> String {
        let mut pieces = prose.split("](");
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let Some((target, rest)) = piece.split_once(')') else {
                out += &format!("]({piece}");
                continue;
            };
            let (path, part) = match target.split_once('#') {
                Some((path, part)) => (path, format!("#{part}")),
                None => (target, String::new()),
            };
            out += &match path {
                "" => format!("]({target}){rest}"),
                _ if path.contains(':') => format!("]({target}){rest}"),
                path => match self.target(page, path) {
                    Some(path) => format!("]({path}{part}){rest}"),
                    None => format!("] (in the sources){rest}"),
                },
            };
        }
        out
    }

    /// The path of a link's target, relative to the installed page.
    fn target(&self, page: &Path, target: &str) -> Option<String> {
        let directory = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let wanted = plain(&directory(page).join(target));
        let to = match self.0.get(&wanted) {
            Some(to) => to.clone(),
            // A directory: its documents keep their places in it.
            None => {
                let inside = self.0.iter().find(|(path, _)| path.starts_with(&wanted));
                let (path, to) = inside?;
                let below = path.strip_prefix(&wanted).ok()?.components().count();
                to.ancestors().nth(below)?.to_owned()
            }
        };
        let from = directory(self.0.get(page)?);
        Some(relative(&from, &to))
    }
}

/// The path to `to` from the directory `from`.
fn relative(from: &Path, to: &Path) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, from.len() - common);
    let path: PathBuf = up.chain(to[common..].iter().copied()).collect();
    path.display().to_string()
}

/// The path without `..` and `.`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relinked(page: &str, text: &str) -> String {
        let mut documents = Documents::default();
        for (repository, installed) in [
            ("README.md", "overview.md"),
            ("SECURITY.md", "SECURITY.md"),
            ("docs/README.md", "README.md"),
            ("docs/guide/run.md", "guide/run.md"),
            ("docs/guide/lab/a.md", "guide/lab/a.md"),
        ] {
            documents.add(Path::new(repository), installed);
        }
        documents.relink(Path::new(page), text)
    }

    #[test]
    fn links_lead_to_the_installed_document() {
        assert_eq!(
            relinked(
                "README.md",
                "[a](docs/guide/run.md#x), [b](docs/guide), [c](SECURITY.md)\n"
            ),
            "[a](guide/run.md#x), [b](guide), [c](SECURITY.md)\n"
        );
        assert_eq!(
            relinked(
                "docs/guide/lab/a.md",
                "[`a`](../../../README.md) [b](../run.md)"
            ),
            "[`a`](../../overview.md) [b](../run.md)"
        );
    }

    #[test]
    fn link_to_the_sources_becomes_text() {
        assert_eq!(
            relinked(
                "docs/README.md",
                "See [C](../CONTRIBUTING.md), [d](results/README.md#a)."
            ),
            "See [C] (in the sources), [d] (in the sources)."
        );
    }

    #[test]
    fn code_parts_and_addresses_stay() {
        let text = "[a](https://x.org/y) [b](#part) `[c](gone.md)`\n```\n[d](gone.md)\n```\n";
        assert_eq!(relinked("README.md", text), text);
    }
}
