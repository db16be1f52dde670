//! The arguments of `fairpath rtt`, and the core's configuration that they ask for.

use std::path::PathBuf;
use std::time::Duration;

use super::by::{Group, Sort};
use anyhow::bail;
use clap::ValueEnum;
use fairpath_config::duration::{nanos, parse_duration};
use fairpath_config::filter::read_filter;
use fairpath_config::{Hook, Method};
use fairpath_core::{Config, Filter, MAX_FILTERS, MAX_FLOWS, Mode};

/// Watches TCP and ICMP echo that crosses this host and tells the round-trip time of each leg,
/// without sending a packet.
///
/// Live, programs are attached to the interfaces given with -i (root, or CAP_BPF, CAP_PERFMON and
/// CAP_NET_ADMIN). With -r, a capture is read; that needs no privileges.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["interfaces", "read"]))]
pub struct Args {
    /// Watch this interface, or all that match a pattern such as 'ppp*'; may be repeated
    #[arg(short, long = "interface", value_name = "IF")]
    pub interfaces: Vec<String>,
    /// Read a capture (pcap or pcapng, gzipped or not); - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Where packets are seen on their way in; on their way out it is always tcx
    #[arg(long, value_enum, default_value_t = Hook::Tcx)]
    pub hook: Hook,
    /// How TCP is measured; handshakes and ICMP echo are in all of them
    #[arg(long, value_enum, default_value_t = Method::Hybrid)]
    pub method: Method,
    /// Pair as tshark does, without Karn's rule (to compare with tshark; needs -r)
    #[arg(long = "match", value_enum, default_value_t = Match::Karn, hide = true)]
    pub pairing: Match,
    /// Take no samples from ICMP and ICMPv6 echo
    #[arg(long)]
    pub no_icmp: bool,
    /// Output format; csv needs --by
    #[arg(long, value_enum, default_value_t = Format::Text, requires_if("csv", "by"))]
    pub format: Format,
    /// Print one table at the end instead of records: a row per host, flow or class
    #[arg(long, value_name = "GROUP", value_enum, conflicts_with_all = ["samples_only", "cost"])]
    pub by: Option<Group>,
    /// Value that orders the table, largest first
    #[arg(long, value_enum, default_value_t = Sort::Samples, requires = "by")]
    pub sort: Sort,
    /// File with classes for --by class, as `fairpath class check` reads it; repeatable
    #[arg(
        long = "class-file",
        value_name = "FILE",
        requires = "by",
        required_if_eq("by", "class")
    )]
    pub class_files: Vec<PathBuf>,
    /// Print the closing summary only
    #[arg(short, long)]
    pub quiet: bool,
    /// Leave out lines about flows that open and close
    #[arg(long)]
    pub samples_only: bool,
    /// Give out at most one sample per flow and leg in this time (100ms) or in as many of its own
    /// round trips (2x); all are still counted
    #[arg(long, value_name = "TIME|Nx", value_parser = parse_rate_limit)]
    pub rate_limit: Option<RateLimit>,
    /// Stop after this time (10s, 5min)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Stop after this many samples
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Append records to this file instead of printing them
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Look only at packets with an end in this prefix, with this port, or both ("10.0.0.0/8 port
    /// 443"); may be repeated, any suffices
    #[arg(long, value_name = "FILTER", value_parser = |text: &str| read_filter(text, false))]
    pub only: Vec<Filter>,
    /// Leave such packets out; may be repeated, and wins over --only
    #[arg(long, value_name = "FILTER", value_parser = |text: &str| read_filter(text, true))]
    pub except: Vec<Filter>,
    /// Flows that the table holds; half-open ones have a table of a quarter of this
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub flows: u32,
    /// Close a TCP flow that is silent for this long
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_duration)]
    pub flow_timeout: Duration,
    /// Rows of the table, or flows of the summary; 0 for all [default: 20; csv and json: all rows]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Tell what the monitor cost per packet, less an empty program (live; the statistics
    /// themselves slow every BPF program on this host by some 70 ns a run meanwhile)
    #[arg(long, conflicts_with = "read")]
    pub cost: bool,
}

/// How data and acknowledgements are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Match {
    /// Karn's rule.
    Karn,
    /// As tshark 4.0 does.
    Tshark,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
    /// Comma-separated values with a header line
    Csv,
}

/// The least distance of two samples of one leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimit {
    /// In time.
    Time(Duration),
    /// In round trips of the leg, times 256.
    RoundTrips(u32),
}

fn parse_rate_limit(text: &str) -> Result<RateLimit, String> {
    let Some(factor) = text.strip_suffix('x') else {
        return parse_duration(text).map(RateLimit::Time);
    };
    match factor.parse::<f64>() {
        Ok(n) if n > 0.0 && n <= 65_536.0 => Ok(RateLimit::RoundTrips((n * 256.0) as u32)),
        _ => Err(format!(
            "{text:?} is no number of round trips; say 2x or 0.5x"
        )),
    }
}

impl Args {
    /// Which packets are looked at.
    ///
    /// # Errors
    /// For more than there is room for.
    pub fn filters(&self) -> anyhow::Result<Vec<Filter>> {
        let filters = [&self.only[..], &self.except].concat();
        if filters.len() > MAX_FILTERS {
            bail!(
                "{} filters by --only and --except are more than {MAX_FILTERS}",
                filters.len()
            );
        }
        Ok(filters)
    }

    /// The core's configuration.
    ///
    /// # Errors
    /// Where options contradict each other.
    pub fn config(&self) -> anyhow::Result<Config> {
        if self.flows == 0 || self.flows > MAX_FLOWS {
            bail!(
                "--flows {}: a table holds 1 to {MAX_FLOWS} flows",
                self.flows
            );
        }
        let mode = match (self.pairing, self.method) {
            (Match::Tshark, Method::Seq) if self.read.is_some() => Mode::Tshark,
            (Match::Tshark, _) => bail!("--match tshark goes with --method seq and -r FILE"),
            (_, method) => method.mode(),
        };
        let (rate_limit, rate_limit_rtts) = match self.rate_limit {
            None => (0, 0),
            Some(RateLimit::Time(time)) => (nanos(time), 0),
            Some(RateLimit::RoundTrips(times)) => (0, times),
        };
        let config = Config {
            mode: mode as u32,
            icmp: u32::from(!self.no_icmp),
            flow_timeout: nanos(self.flow_timeout),
            rate_limit,
            rate_limit_rtts,
            ..Config::default().with_flows(self.flows)
        };
        Ok(match mode {
            Mode::Tshark => as_tshark_remembers(config),
            _ => config,
        })
    }
}

/// tshark keeps every conversation for ever, and so many unacknowledged segments of a direction.
fn as_tshark_remembers(config: Config) -> Config {
    Config {
        flow_timeout: u64::MAX,
        echo_timeout: u64::MAX,
        max_rtt: u64::MAX,
        max_segments: 10_000,
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_a_time_or_a_number_of_round_trips() {
        assert_eq!(
            parse_rate_limit("100ms"),
            Ok(RateLimit::Time(Duration::from_millis(100)))
        );
        assert_eq!(parse_rate_limit("0.5x"), Ok(RateLimit::RoundTrips(128)));
        assert!(parse_rate_limit("x").is_err());
        assert!(parse_rate_limit("-1x").is_err());
    }
}
