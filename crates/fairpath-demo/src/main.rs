//! fairpath demo: client, router and server on one machine.

fn main() {}
