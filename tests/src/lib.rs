//! Scenarios through the installed binary: what they share.
//!
//! ```text
//! binary   where `fairpath` is
//! carrier  a bridge's interfaces, carried by AF_XDP
//! daemon   a running `fairpath run`, asked over its socket
//! rtt      a running `fairpath rtt` in a namespace
//! records  what it printed: samples, flows, the summary
//! flows    many established TCP flows that stay busy
//! flood    SYNs from everywhere
//! htb      an interface shaped by the kernel's HTB, and packets marked for it
//! oracle   frames and rulesets for the kernel's rule tables, and the comparison with them
//! new flows  new TCP flows at a rate
//! through  forwarding by the monitor's own XDP program
//! ```

pub mod binary;
pub mod carrier;
pub mod daemon;
pub mod flood;
pub mod flows;
pub mod htb;
pub mod new_flows;
pub mod oracle;
pub mod records;
pub mod rtt;
pub mod through;

pub use daemon::{Daemon, Place};
pub use records::{Records, Sample};
pub use rtt::{PATIENCE, Rtt};
