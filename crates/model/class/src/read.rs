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
        let Some(text) = self.text(name, content) else {
            return References::default();
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

    /// Reads a table of labels in CSV, the content of the file `name`. O(bytes).
    pub fn read_labels_file(&mut self, name: &str, content: &[u8]) {
        if let Some(text) = self.text(name, content) {
            self.read_labels(name, text);
        }
    }

    /// The text of a file. A file that is too long or not UTF-8 is refused.
    fn text<'c>(&mut self, name: &str, content: &'c [u8]) -> Option<&'c str> {
        if content.len() as u64 > MAX_FILE_BYTES {
            let text = format!("file is too long: the maximum is {MAX_FILE_BYTES} bytes");
            self.refuse_file(name, text);
            return None;
        }
        let at = match std::str::from_utf8(content) {
            Ok(text) => return Some(text),
            Err(error) => error.valid_up_to(),
        };
        let valid = String::from_utf8_lossy(&content[..at]);
        let place = self.sources.add(name, &valid).at(at);
        let text = not_utf8(content, content[at]);
        self.problems.error(ProblemKind::Syntax, place, "", text);
        None
    }
}

/// The probable encoding of a file whose first byte outside of UTF-8 is `byte`, and the remedy.
fn not_utf8(content: &[u8], byte: u8) -> String {
    let (cause, encoding) = match byte {
        _ if content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") => {
            ("the file is UTF-16".to_owned(), "utf-16")
        }
        // Latin-1 has control characters here.
        0x80..0xa0 => {
            let cause = format!("byte {byte:#04x} is of another encoding, such as Windows-1252");
            (cause, "windows-1252")
        }
        _ => {
            let cause = format!("byte {byte:#04x} is \"{}\" in Latin-1", char::from(byte));
            (cause, "latin1")
        }
    };
    format!(
        "not UTF-8: {cause}; save the file as UTF-8, for example with iconv -f {encoding} -t utf-8"
    )
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
