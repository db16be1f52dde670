//! NFQUEUE: netfilter hands packets to threads of this process, and takes them back.

mod again;
mod beyond;
pub mod diversion;
pub mod impairment;
mod instance;
mod packet;
mod path;
pub mod shaper;
pub mod watch;
mod worker;
