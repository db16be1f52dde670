//! The programmable packet path for Linux routers: the router's binary.

fn main() {}
