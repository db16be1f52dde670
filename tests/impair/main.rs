//! `fairpath impair` on real packets, by every port.
//!
//! ```text
//! client ── lan [router: fairpath impair lan --peer wan ...] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test impair`. Each test has separate namespaces.
//! Times have wide margins here: this machine is shared. The command itself reports lateness.

mod changes;
mod classes;
mod delay;
mod drops;
mod ends;
mod held;
mod layouts;
mod life;
mod line;
mod loss;
mod outcomes;
mod refused;
mod scene;
mod split;
mod stages;
mod stream;
mod tracked;
mod twin;

/// A test for each of these ports.
macro_rules! by {
    ($test:ident: $($port:ident),+) => {
        mod $test {
            $(#[test]
            fn $port() {
                super::$test(stringify!($port));
            })+
        }
    };
}
pub(crate) use by;
