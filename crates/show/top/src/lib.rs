//! The live table of classes in a terminal, and the same table for pipes.
//!
//! | file | content |
//! |---|---|
//! | `source`, `socket` | the source of snapshots |
//! | `listing`, `view` | visible rows, totals |
//! | `figures`, `judge`, `glyphs`, `text` | numbers, thresholds, characters and colours, widths |
//! | `rules` | the view of loaded rules |
//! | `columns`, `table`, `header`, `details`, `grid`, `histogram`, `screen` | drawing |
//! | `state`, `keys` | the state of the screen, its changes by keys and answers |
//! | `terminal`, `reader`, `live` | the terminal, the thread of the source, the main loop |
//! | `once` | the table for pipes and logs |
//!
//! A separate thread queries the source, one query at a time, so that keys work while an answer is
//! pending. The screen is drawn only after a key, an answer or a change of its size, and only changed
//! cells are written.

mod columns;
mod details;
pub mod figures;
mod glyphs;
mod grid;
mod header;
mod histogram;
mod keys;
mod listing;
mod live;
mod once;
mod reader;
mod rules;
#[cfg(test)]
mod sample;
mod screen;
mod socket;
mod source;
mod state;
mod table;
mod terminal;
mod text;
mod view;

pub use fairpath_history::snapshot::DEFAULT_SOCKET;
pub use glyphs::Look;
pub use live::{Options, TopError, run};
pub use once::{print_once, print_rules_once};
pub use rules::LISTED as RULES_LISTED;
pub use socket::{ANSWER_TIMEOUT, MAX_ANSWER_BYTES, SocketSource};
pub use source::{Source, SourceError};
pub use terminal::terminal_columns;
