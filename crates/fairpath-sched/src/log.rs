//! Operation logs: recorded in one home, replayed in any.
