//! Errors of a flow, each with its name.

use std::io;
use std::time::Duration;

use fairpath_testbed::{NetnsError, RunError};

/// A flow could not be made or measured.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// No iperf3.
    #[error("flow \"{flow}\": iperf3 is not in PATH; install it (apt install iperf3)")]
    NoIperf3 {
        /// Which flow.
        flow: String,
    },
    /// The namespace could not be entered to look.
    #[error("flow \"{flow}\": read its namespace")]
    Netns {
        /// Which flow.
        flow: String,
        /// Why not.
        source: NetnsError,
    },
    /// The sender's kernel lacks it.
    #[error(
        "flow \"{flow}\": this kernel has no congestion control \"{wanted}\" (it has: {has}); load its module (modprobe tcp_{wanted}) or choose another"
    )]
    NoCongestion {
        /// Which flow.
        flow: String,
        /// As configured.
        wanted: String,
        /// As `tcp_available_congestion_control` has it.
        has: String,
    },
    /// iperf3 could not be started or waited for.
    #[error("flow \"{flow}\": run iperf3's {side}")]
    Run {
        /// Which flow.
        flow: String,
        /// "client" or "server".
        side: &'static str,
        /// Why not.
        source: RunError,
    },
    /// iperf3 ended without having measured.
    #[error("flow \"{flow}\": the {side} of iperf3 reports: {message}")]
    Refused {
        /// Which flow.
        flow: String,
        /// "client" or "server".
        side: &'static str,
        /// In its words.
        message: String,
    },
    /// iperf3 died.
    #[error("flow \"{flow}\": iperf3's {side} ended early ({status}){}", stated(.stderr))]
    Died {
        /// Which flow.
        flow: String,
        /// "client" or "server".
        side: &'static str,
        /// The exit status.
        status: String,
        /// The output.
        stderr: String,
    },
    /// It did not end.
    #[error(
        "flow \"{flow}\": iperf3's {side} has not ended {late:?} after its time; check whether the path forwards packets"
    )]
    Late {
        /// Which flow.
        flow: String,
        /// "client" or "server".
        side: &'static str,
        /// Time waited beyond its own.
        late: Duration,
    },
    /// Its report was not understood.
    #[error("flow \"{flow}\": read the JSON of iperf3's {side}")]
    Report {
        /// Which flow.
        flow: String,
        /// "client" or "server".
        side: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// The caller ended it.
    #[error("the flows were ended early")]
    Stopped,
    /// No thread.
    #[error("start the thread that drives iperf3")]
    Thread(#[source] io::Error),
}

fn stated(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
