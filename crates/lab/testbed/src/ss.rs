//! The kernel's figures of TCP sockets, read from `ss -ti`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::netns::Netns;
use crate::process::RunError;

/// ss did not do its work.
#[derive(Debug, thiserror::Error)]
#[error("list sockets")]
pub struct SsError(#[from] RunError);

/// One TCP socket at one moment; what the kernel does not say is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketSample {
    /// State as ss prints it, `ESTAB`.
    pub state: String,
    /// Own address.
    pub local: SocketAddr,
    /// The other's address.
    pub peer: SocketAddr,
    /// Smoothed RTT.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub rtt_var: Option<Duration>,
    /// Smallest RTT.
    pub min_rtt: Option<Duration>,
    /// Congestion window, segments.
    pub cwnd: Option<u64>,
    /// Bytes sent, again or not.
    pub bytes_sent: Option<u64>,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
    /// Segments sent again since the connection began.
    pub retransmits: u64,
}

/// Samples the TCP sockets in `ns` that `filter` lets through (`dport = :5201`; empty means all).
pub fn sockets(ns: &Netns, filter: &str) -> Result<Vec<SocketSample>, SsError> {
    let mut argv = vec!["ss", "-H", "-t", "-i", "-n", "-O"];
    argv.extend(filter.split_whitespace());
    let output = ns.run(&argv)?;
    Ok(output.lines().filter_map(sample).collect())
}

fn sample(line: &str) -> Option<SocketSample> {
    let mut words = line.split_whitespace();
    let state = words.next()?.to_owned();
    let mut words = words.skip(2);
    let (local, peer) = (address(words.next()?)?, address(words.next()?)?);
    let rest: Vec<&str> = words.collect();
    let value = |key: &str| rest.iter().find_map(|word| word.strip_prefix(key));
    let number = |key: &str| value(key)?.parse().ok();
    let mut rtt = value("rtt:").unwrap_or_default().split('/').map(millis);
    Some(SocketSample {
        state,
        local,
        peer,
        rtt: rtt.next().flatten(),
        rtt_var: rtt.next().flatten(),
        min_rtt: value("minrtt:").and_then(millis),
        cwnd: number("cwnd:"),
        bytes_sent: number("bytes_sent:"),
        bytes_acked: number("bytes_acked:"),
        bytes_received: number("bytes_received:"),
        // `retrans:NOW/TOTAL`; omitted while there were none.
        retransmits: value("retrans:").and_then(total).unwrap_or(0),
    })
}

fn total(text: &str) -> Option<u64> {
    text.split_once('/')?.1.parse().ok()
}

fn millis(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / 1000.0).ok()
}

/// An address as ss prints it; `[::ffff:10.0.0.1]:80` is an IPv4 connection of an IPv6 socket.
fn address(text: &str) -> Option<SocketAddr> {
    let mut address: SocketAddr = text.parse().ok()?;
    address.set_ip(address.ip().to_canonical());
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ss_is_read() {
        let line = "ESTAB 0 0 10.0.0.1:4000 [::ffff:10.0.0.2]:80 cubic wscale:7,7 rto:204 \
            rtt:20.5/0.25 ato:40 cwnd:10 bytes_sent:99 bytes_acked:98 retrans:0/3 minrtt:20.125";
        let sample = sample(line).unwrap();
        assert_eq!(sample.peer, "10.0.0.2:80".parse().unwrap());
        assert_eq!(sample.rtt, Some(Duration::from_micros(20_500)));
        assert_eq!(sample.min_rtt, Some(Duration::from_micros(20_125)));
        assert_eq!((sample.cwnd, sample.bytes_sent), (Some(10), Some(99)));
        assert_eq!((sample.retransmits, sample.bytes_received), (3, None));
    }
}
