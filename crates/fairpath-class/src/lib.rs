//! Classes: tree, match, TOML and CSV in, rules for the core out.
