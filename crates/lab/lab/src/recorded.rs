//! Round trips of this network, as `fairpath rtt --format json` recorded them, for `--rtt-from FILE`.
//!
//! The cost of loss depends on the round trip, so the values of the axis are quantiles of the observed
//! paths: each host that a flow measured counts once, by the least round trip towards it (the path
//! without a queue, which the experiment's own queue is added to). An elephant with a million samples
//! is one path.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

/// The schema of `fairpath rtt`'s records that is understood here (docs/guide/rtt.md).
const SCHEMA: u32 = 1;
/// Flows and hosts that are kept apart; what is seen for the first time after that is counted only.
pub const MAX_PATHS: usize = 1_000_000;
/// A record is a few hundred bytes, a summary some megabytes; a longer line is no record.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// Quantiles of paths that become values of the axis.
pub const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// No link is emulated with less; the least round trip of the lab's own namespaces is near it.
const MIN_NS: u64 = 100_000;

/// The contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Least round trips of all paths, ns, ascending; never empty.
    pub rtts_ns: Vec<u64>,
    /// Paths beyond [`MAX_PATHS`].
    pub not_kept: u64,
}

/// A file without round-trip times.
#[derive(Debug, Error)]
pub enum RecordedError {
    /// It cannot be read.
    #[error("cannot read {path}; give a file that `fairpath rtt --format json --write FILE` wrote")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not a record.
    #[error("line {line} of {path} is not a record of `fairpath rtt`: record with --format json")]
    NotARecord {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// Another version wrote it.
    #[error(
        "line {line} of {path} has schema {found}, this program reads {SCHEMA}; use the fairpath that wrote it"
    )]
    OtherSchema {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// There.
        found: u32,
    },
    /// It is longer than any record.
    #[error(
        "line {line} of {path} is longer than any record of `fairpath rtt`; record with --format json"
    )]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: u64,
    },
    /// There are records, but no round trip in them.
    #[error("{path} has no round-trip times: record for longer, while traffic passes")]
    Nothing {
        /// Which file.
        path: PathBuf,
    },
}

/// The part of a record that is read.
#[derive(Deserialize)]
struct RttRecord {
    schema: u32,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    flow: u32,
    #[serde(default)]
    dst_address: String,
    #[serde(default)]
    dst_port: u16,
    rtt_ns: Option<u64>,
    min_rtt_ns: Option<u64>,
    #[serde(default)]
    sides: Vec<Side>,
}

#[derive(Deserialize)]
struct Side {
    address: String,
    port: u16,
    min_rtt_ns: Option<u64>,
}

/// A host that a flow measured.
type PathKey = (u32, String, u16);

/// Reads a file of records, line by line.
///
/// # Errors
/// [`RecordedError`] names the file, and the line where there is one. A truncated last line (the recording
/// was killed) is not an error.
pub fn read(path: &Path) -> Result<Recorded, RecordedError> {
    let unreadable = |source| RecordedError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut paths: HashMap<PathKey, u64> = HashMap::new();
    let mut not_kept = 0;
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = reader.by_ref().take(MAX_LINE_BYTES);
        limited.read_until(b'\n', &mut bytes).map_err(unreadable)?;
        if bytes.is_empty() {
            break;
        }
        if bytes.len() as u64 == MAX_LINE_BYTES {
            let path = path.to_owned();
            return Err(RecordedError::TooLong { path, line });
        }
        let is_whole = bytes.ends_with(b"\n");
        match serde_json::from_slice::<RttRecord>(&bytes) {
            Ok(record) if record.schema != SCHEMA => {
                return Err(RecordedError::OtherSchema {
                    path: path.to_owned(),
                    line,
                    found: record.schema,
                });
            }
            Ok(record) => not_kept += keep(&mut paths, record),
            Err(_) if !is_whole || bytes.trim_ascii().is_empty() => {}
            Err(source) => {
                return Err(RecordedError::NotARecord {
                    path: path.to_owned(),
                    line,
                    source,
                });
            }
        }
    }
    let mut rtts_ns: Vec<u64> = paths.into_values().collect();
    rtts_ns.sort_unstable();
    match rtts_ns.is_empty() {
        true => Err(RecordedError::Nothing {
            path: path.to_owned(),
        }),
        false => Ok(Recorded { rtts_ns, not_kept }),
    }
}

/// Takes the minimum RTTs of a record; returns the number of excluded paths.
fn keep(paths: &mut HashMap<PathKey, u64>, record: RttRecord) -> u64 {
    let reported: Vec<(PathKey, Option<u64>)> = match record.kind.as_str() {
        "sample" => {
            let key = (record.flow, record.dst_address, record.dst_port);
            vec![(key, record.min_rtt_ns.or(record.rtt_ns))]
        }
        "flow" => record
            .sides
            .into_iter()
            .map(|side| ((record.flow, side.address, side.port), side.min_rtt_ns))
            .collect(),
        _ => Vec::new(),
    };
    let mut not_kept = 0;
    for (key, rtt_ns) in reported {
        let Some(rtt_ns) = rtt_ns.filter(|ns| *ns > 0) else {
            continue;
        };
        if paths.len() >= MAX_PATHS && !paths.contains_key(&key) {
            not_kept += 1;
            continue;
        }
        let min = paths.entry(key).or_insert(rtt_ns);
        *min = rtt_ns.min(*min);
    }
    not_kept
}

impl Recorded {
    /// The quantile (nearest rank) of least round trips, ns.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = (q.clamp(0.0, 1.0) * self.rtts_ns.len() as f64).ceil() as usize;
        self.rtts_ns[rank.saturating_sub(1)]
    }

    /// Values for an axis of round trips at [`QUANTILES`], ascending, with two significant digits so
    /// that a reader can remember them; equal ones once. "0.84ms".
    pub fn axis_values(&self) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for q in QUANTILES {
            let value = milliseconds(self.quantile_ns(q).max(MIN_NS));
            if values.last() != Some(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Where the values come from, for the page.
    pub fn words(&self) -> String {
        let shown: Vec<String> = QUANTILES
            .iter()
            .map(|q| format!("p{:.0} {}", q * 100.0, milliseconds(self.quantile_ns(*q))))
            .collect();
        let more = match self.not_kept {
            0 => String::new(),
            n => format!(" ({n} records of further paths are excluded)"),
        };
        format!(
            "Round-trip times are quantiles of the minimum RTTs of {} recorded paths (fairpath rtt): {}{more}.",
            self.rtts_ns.len(),
            shown.join(", "),
        )
    }
}

/// Two significant digits, in ms.
fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 * 1e-6;
    let digits = (1 - ms.log10().floor() as i32).max(0) as usize;
    let text = format!("{ms:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    format!("{text}ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(lines: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.as_bytes()).unwrap();
        file
    }

    fn sample(flow: u32, rtt_ns: u64, min_rtt_ns: u64) -> String {
        format!(
            "{{\"schema\":1,\"type\":\"sample\",\"time\":\"2026-01-05T10:00:00Z\",\"flow\":{flow},\"protocol\":\"tcp\",\
             \"src_address\":\"10.0.0.1\",\"dst_address\":\"10.0.0.{flow}\",\"src_port\":1,\"dst_port\":443,\"rtt_ns\":{rtt_ns},\
             \"min_rtt_ns\":{min_rtt_ns},\"method\":\"ts\"}}\n"
        )
    }

    #[test]
    fn a_path_counts_once_by_its_minimum_rtt() {
        let mut lines = String::new();
        for i in 0..1000 {
            lines.push_str(&sample(1, 9_000_000 + i, 8_000_000 - i));
        }
        lines.push_str(&sample(2, 30_000_000, 20_000_000));
        let recorded = read(file(&lines).path()).unwrap();
        assert_eq!(recorded.rtts_ns, [7_999_001, 20_000_000]);
        assert_eq!(recorded.axis_values(), ["8ms", "20ms"]);
    }

    #[test]
    fn flow_records_have_both_sides() {
        let flow = "{\"schema\":1,\"type\":\"flow\",\"event\":\"closed\",\"flow\":7,\"protocol\":\"tcp\",\"sides\":[\
             {\"address\":\"10.0.0.1\",\"port\":5000,\"min_rtt_ns\":840000},\
             {\"address\":\"192.0.2.1\",\"port\":443,\"min_rtt_ns\":null}]}\n\
             {\"schema\":1,\"type\":\"summary\",\"flows\":[]}\n\n";
        let recorded = read(file(flow).path()).unwrap();
        assert_eq!(recorded.rtts_ns, [840_000]);
        assert_eq!(recorded.axis_values(), ["0.84ms"]);
        assert!(
            recorded.words().contains("1 recorded paths"),
            "{}",
            recorded.words()
        );
    }

    #[test]
    fn quantiles_are_of_paths() {
        let lines: String = (1..=100)
            .map(|i| sample(i, 1, u64::from(i) * 1_000_000))
            .collect();
        let recorded = read(file(&lines).path()).unwrap();
        assert_eq!(recorded.quantile_ns(0.5), 50_000_000);
        assert_eq!(recorded.quantile_ns(0.0), 1_000_000);
        assert_eq!(recorded.quantile_ns(1.0), 100_000_000);
        assert_eq!(
            recorded.axis_values(),
            ["5ms", "25ms", "50ms", "75ms", "95ms"]
        );
    }

    #[test]
    fn a_truncated_last_line_is_ignored() {
        let whole = sample(1, 5_000_000, 5_000_000);
        let cut = format!("{whole}{}", &whole[..40]);
        assert_eq!(read(file(&cut).path()).unwrap().rtts_ns, [5_000_000]);
    }

    #[test]
    fn files_without_records_are_refused_with_their_line() {
        let error = read(file("time rtt\n1 2\n").path()).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        let error = read(file("{\"schema\":2,\"type\":\"sample\"}\n").path()).unwrap_err();
        assert!(error.to_string().contains("schema 2"), "{error}");
        let error = read(file("{\"schema\":1,\"type\":\"summary\"}\n").path()).unwrap_err();
        assert!(error.to_string().contains("no round-trip times"), "{error}");
        let error = read(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("--write FILE"), "{error}");
    }

    #[test]
    fn two_significant_digits() {
        let shown: Vec<String> = [104_000, 1_234_567, 98_765_432, 123_456_789]
            .map(milliseconds)
            .into();
        assert_eq!(shown, ["0.1ms", "1.2ms", "99ms", "123ms"]);
    }
}
