//! The live table of classes in a terminal, and the same table printed once.
//!
//! | file | what it holds |
//! |---|---|
//! | `source`, `socket` | where pictures come from |
//! | `listing`, `picture` | which rows are shown, and what is derived of them |
//! | `figures`, `judge`, `glyphs`, `text` | numbers, thresholds, characters and colours, widths |
//! | `columns`, `table`, `header`, `closeup`, `grid`, `histogram`, `screen` | drawing |
//! | `state`, `keys` | what keys and answers change |
//! | `terminal`, `reader`, `live` | the terminal, the source's thread, the loop between them |
//! | `once` | the table for pipes and logs |
//!
//! The source is asked by a thread of its own, one question at a time, so that keys work while an
//! answer is under way. The screen is drawn only after a key, an answer or a change of its size,
//! and only cells that differ are written.

mod closeup;
mod columns;
mod figures;
mod glyphs;
mod grid;
mod header;
mod histogram;
mod judge;
mod keys;
mod listing;
mod live;
mod once;
mod picture;
mod reader;
#[cfg(test)]
mod sample;
mod screen;
mod socket;
mod source;
mod state;
mod table;
mod terminal;
mod text;

pub use fairpath_history::snapshot::DEFAULT_SOCKET;
pub use glyphs::Look;
pub use live::{Options, TopError, run};
pub use once::print_once;
pub use socket::{ANSWER_TIMEOUT, MAX_ANSWER_BYTES, SocketSource};
pub use source::{Source, SourceError};
pub use terminal::terminal_columns;
