//! Reads files of any format, which name and header determine.

use std::path::Path;

use crate::config::References;
use crate::draft::Drafts;
use crate::problem::{ProblemKind, Problems};
use crate::source::Place;
use crate::table::Rows;
use crate::{labels, shaped};

/// Maximum size of a file. Longer files are refused.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

impl Drafts {
    /// Reads a file of any format, named `name` in messages. TOML and JSON (`network.json`) are
    /// detected by their extension, CSV by its header (ShapedDevices.csv, labels, or classes).
    ///
    /// Returns the files that a TOML file refers to, which are not read.
    pub fn read_file(&mut self, name: &str, content: &[u8]) -> References {
        let text = match std::str::from_utf8(content) {
            Ok(text) if content.len() as u64 <= MAX_FILE_BYTES => text,
            Ok(_) => {
                let text = format!("file is too long: the maximum is {MAX_FILE_BYTES} bytes");
                self.refuse_file(name, text);
                return References::default();
            }
            Err(error) => {
                let valid = String::from_utf8_lossy(&content[..error.valid_up_to()]);
                let place = self.sources.add(name, &valid).at(error.valid_up_to());
                let text = "not UTF-8: save the file as UTF-8".to_owned();
                self.problems.error(ProblemKind::Syntax, place, "", text);
                return References::default();
            }
        };
        let extension = Path::new(name).extension().unwrap_or_default();
        match extension.to_ascii_lowercase().to_str() {
            Some("toml") => return self.read_toml(name, text),
            Some("json") => self.read_network(name, text),
            _ => match header(text) {
                cells if shaped::is_header(&cells) => self.read_shaped_devices((name, text), None),
                cells if labels::is_header(&cells) => self.read_labels(name, text),
                _ => self.read_csv(name, text),
            },
        }
        References::default()
    }
}

/// The cells of the first row, in lower case.
fn header(text: &str) -> Vec<String> {
    let mut rows = Rows::new(text, Place::default());
    if !rows.advance(&mut Problems::default()) {
        return Vec::new();
    }
    rows.cells()
        .map(|cell| cell.text.to_ascii_lowercase())
        .collect()
}
