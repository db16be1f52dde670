//! A scheduler and a link in virtual time.
