//! Classes and labels of the configuration and of the files that it names.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fairpath_class::{ClassEntry, ClassSet, Drafts, Labels, MAX_FILE_BYTES, Severity, Uplinks};
use toml::Spanned;

use super::problem::Problems;

/// Maximum number of logged warnings.
const MAX_WARNINGS: usize = 20;

/// The validated classes and warnings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// The tree.
    pub set: Arc<ClassSet>,
    /// Labels of remote prefixes.
    pub labels: Arc<Labels>,
    /// The first warnings, each with its place.
    pub warnings: Vec<String>,
}

/// A file that the configuration names, with its place.
pub struct Named {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the configuration.
    pub span: std::ops::Range<usize>,
}

/// All sources of classes.
pub struct Sources<'a> {
    /// The configuration's name and content.
    pub configuration: (&'a str, &'a str),
    /// Its `[[class]]` tables.
    pub entries: Vec<Spanned<ClassEntry>>,
    /// `class_files`.
    pub files: Vec<Named>,
    /// `[labels] file`.
    pub labels: Option<Named>,
    /// True if uplinks are named.
    pub uplinks: bool,
}

/// Reads and validates all sources. Problems of files are added to those of the configuration.
///
/// # Errors
/// The errors of classes as text.
pub fn read(sources: Sources<'_>, problems: &mut Problems<'_>) -> Result<Classes, Vec<String>> {
    let mut drafts = Drafts::new();
    let (file, text) = sources.configuration;
    drafts.read_entries(file, text, sources.entries);
    for named in sources.files {
        if let Some(content) = content(&named, problems) {
            drafts.read_file(&named.path.display().to_string(), &content);
        }
    }
    if let Some(named) = sources.labels
        && let Some(content) = content(&named, problems)
    {
        drafts.read_labels_file(&named.path.display().to_string(), &content);
    }
    let uplinks = match sources.uplinks {
        true => Uplinks::Given,
        false => Uplinks::Missing,
    };
    let outcome = ClassSet::build(drafts, uplinks);
    let texts = |severity| {
        let problems = outcome.report.problems.iter();
        problems
            .filter(move |p| p.severity == severity)
            .map(ToString::to_string)
    };
    match outcome.set {
        Some(ref set) => Ok(Classes {
            set: Arc::new(set.clone()),
            warnings: texts(Severity::Warning).take(MAX_WARNINGS).collect(),
            labels: Arc::new(outcome.labels),
        }),
        None => Err(texts(Severity::Error).collect()),
    }
}

fn content(named: &Named, problems: &mut Problems<'_>) -> Option<Vec<u8>> {
    let shown = named.path.display();
    let result = fs::metadata(&named.path).and_then(|found| {
        if found.len() > MAX_FILE_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        fs::read(&named.path)
    });
    result
        .map_err(|error| problems.note(named.span.clone(), format!("read {shown}: {error}")))
        .ok()
}
