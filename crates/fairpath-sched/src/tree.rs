//! A scheduler's tree: TOML or classes in, a plan out.
