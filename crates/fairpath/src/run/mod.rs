//! `fairpath run`: the daemon.

mod ask;
mod config;
mod control;
mod hooks;
mod log;
mod notify;
mod privileges;
mod state;
