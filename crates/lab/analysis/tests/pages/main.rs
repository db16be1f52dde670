//! Pages of computed experiments: what they say, what they must not say, and how fast they are made.
//! How they look in a browser: `tests/view` of the lab, whose binary makes them.

mod large;
mod stated;
mod synthetic;
