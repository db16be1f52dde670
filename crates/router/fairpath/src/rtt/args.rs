//! The arguments of `fairpath rtt`, and the core's configuration that follows from them.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use fairpath_cli::wrong_usage;
use fairpath_config::duration::{nanos, parse_duration};
use fairpath_config::filter::read_filter;
use fairpath_config::{Hook, Method};
use fairpath_core::{Config, Filter, MAX_FILTERS, MAX_FLOWS, Mode};

use super::by::{Key, Sort};

/// Measure round-trip times, loss and reordering of passing TCP and ICMP echo.
///
/// No packet is sent. Live (-i), BPF programs are attached to interfaces, which needs root, or
/// CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. With -r, a capture is read, which needs no privileges.
///
/// Each sample is printed when it is complete, and a summary at the end. With --by, one table is
/// printed at the end instead.
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true).args(["interfaces", "read"]),
    after_help = "Examples:\n  \
        fairpath rtt -i wan --duration 1m\n  \
        fairpath rtt -r capture.pcapng --by host --sort p95 --format csv"
)]
pub struct Args {
    /// Measure on this interface, or on all that match a pattern such as 'ppp*'; may be repeated
    #[arg(short, long = "interface", value_name = "IF")]
    pub interfaces: Vec<String>,
    /// Read a capture (pcap or pcapng, also gzipped); - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Hook for ingress; egress is always tcx
    #[arg(long, value_enum, default_value_t = Hook::Tcx)]
    pub hook: Hook,
    /// Method for TCP; handshakes and ICMP echo are always measured
    #[arg(long, value_enum, default_value_t = Method::Hybrid)]
    pub method: Method,
    /// Pair packets as tshark does, without Karn's rule (for comparison with tshark; needs -r)
    #[arg(long = "match", value_enum, default_value_t = Match::Karn, hide = true)]
    pub pairing: Match,
    /// Take no samples from ICMP and ICMPv6 echo
    #[arg(long)]
    pub no_icmp: bool,
    /// Output format; csv needs --by
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Print the summary only, no records
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the progress of reading to standard error, also if it is no terminal
    #[arg(long, requires = "read")]
    pub progress: bool,
    /// Print no records of flows that open and close
    #[arg(long)]
    pub samples_only: bool,
    /// Print one table at the end, with one row per host, flow or class
    #[arg(
        long,
        value_enum,
        value_name = "KEY",
        conflicts_with_all = ["quiet", "samples_only", "rate_limit", "cost"]
    )]
    pub by: Option<Key>,
    /// Sort the rows of --by, highest value first
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::P95, requires = "by")]
    pub sort: Sort,
    /// Rows to print [default: 20 flows in the summary, all rows with --by]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Configuration of the daemon, for --by class: its classes and uplinks
    #[arg(short, long, value_name = "FILE", requires = "by")]
    pub config: Option<PathBuf>,
    /// File with classes for --by class, as of `fairpath class check`; may be repeated
    #[arg(long, value_name = "FILE", requires = "by", conflicts_with = "config")]
    pub class_file: Vec<PathBuf>,
    /// With --class-file, an interface whose hosts are remote, or a pattern; may be repeated. Classes
    /// by mark or DSCP need it
    #[arg(short, long = "uplink", value_name = "IF", requires = "class_file")]
    pub uplinks: Vec<String>,
    /// Print at most one sample per flow and leg in this time (100ms) or number of its round trips
    /// (2x); all samples are counted
    #[arg(long, value_name = "TIME|Nx", value_parser = parse_rate_limit)]
    pub rate_limit: Option<RateLimit>,
    /// Stop after this time, for example 10s or 5m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Stop after this number of samples [default: no limit]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Append the output to this file instead of printing it
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Measure only packets from or to this prefix, this port, or both ("10.0.0.0/8 port 443");
    /// may be repeated, one match suffices
    #[arg(long, value_name = "FILTER", value_parser = |text: &str| read_filter(text, false))]
    pub only: Vec<Filter>,
    /// Exclude such packets; may be repeated, has precedence over --only
    #[arg(long, value_name = "FILTER", value_parser = |text: &str| read_filter(text, true))]
    pub exclude: Vec<Filter>,
    /// Capacity of the flow table, 1 to 4194304 flows; that of half-open flows is a quarter
    #[arg(
        long,
        value_name = "N",
        default_value_t = 65_536,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FLOWS))
    )]
    pub max_flows: u32,
    /// Close a TCP flow without packets for this time
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub flow_timeout: Duration,
    /// Print the cost per packet, less that of an empty program (live only). The kernel's
    /// statistics slow each BPF program of this host by about 70 ns a run during this time
    #[arg(long, conflicts_with = "read")]
    pub cost: bool,
}

/// The pairing of data and acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Match {
    /// Karn's rule.
    Karn,
    /// As tshark 4.0 does.
    Tshark,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text
    Text,
    /// One JSON object per line
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// Minimum distance of two printed samples of one leg.
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
            "number of round trips {text:?} is invalid: write 2x or 0.5x"
        )),
    }
}

impl Args {
    /// The filters of --only and --exclude.
    ///
    /// # Errors
    /// There are more than the core supports.
    pub fn filters(&self) -> anyhow::Result<Vec<Filter>> {
        let filters = [&self.only[..], &self.exclude].concat();
        if filters.len() > MAX_FILTERS {
            return Err(wrong_usage(format!(
                "--only and --exclude: {} filters, the maximum is {MAX_FILTERS}",
                filters.len()
            )));
        }
        Ok(filters)
    }

    /// The core's configuration.
    ///
    /// # Errors
    /// Options contradict each other.
    pub fn config(&self) -> anyhow::Result<Config> {
        let mode = match (self.pairing, self.method) {
            (Match::Tshark, Method::Seq) if self.read.is_some() => Mode::Tshark,
            (Match::Tshark, _) => {
                return Err(wrong_usage("--match tshark needs --method seq and -r FILE"));
            }
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
            ..Config::default().with_flows(self.max_flows)
        };
        Ok(match mode {
            Mode::Tshark => with_limits_of_tshark(config),
            _ => config,
        })
    }
}

/// tshark stores conversations without limit, and 10000 unacknowledged segments per direction.
fn with_limits_of_tshark(config: Config) -> Config {
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
    fn a_rate_limit_is_time_or_round_trips() {
        assert_eq!(
            parse_rate_limit("100ms"),
            Ok(RateLimit::Time(Duration::from_millis(100)))
        );
        assert_eq!(parse_rate_limit("0.5x"), Ok(RateLimit::RoundTrips(128)));
        assert!(parse_rate_limit("x").is_err());
        assert!(parse_rate_limit("-1x").is_err());
    }
}
