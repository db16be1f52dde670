//! The live table of classes in a terminal.
