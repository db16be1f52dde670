//! A policy from its author's own file.
