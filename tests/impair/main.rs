//! `fairpath impair` on real packets, by every port.
//!
//! ```text
//! client ── lan [router: fairpath impair lan --peer wan ...] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test impair`. Each test has namespaces of its own. What is
//! said of time here has a wide margin: this machine is shared. Lateness is told by the command itself.

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
