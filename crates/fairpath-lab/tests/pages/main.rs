//! Pages of computed experiments: what they say, what they must not say, and how fast they are made.

mod large;
mod said;
mod synthetic;
