//! The output of `fairpath rtt -r` for a capture.

use std::path::Path;

use fairpath_tests::binary;
use serde_json::Value;

use crate::Samples;

/// One sample record.
#[derive(Clone, Debug)]
pub struct Sample {
    pub frame: u64,
    pub rtt: u64,
    pub proto: String,
    pub method: String,
}

/// All sample records of a capture.
pub struct Measured {
    pub all: Vec<Sample>,
}

impl Measured {
    /// TCP's.
    pub fn tcp(&self) -> Samples {
        self.of(|proto| proto == "tcp")
    }

    /// ICMP's and ICMPv6's.
    pub fn icmp(&self) -> Samples {
        self.of(|proto| proto != "tcp")
    }

    fn of(&self, wanted: impl Fn(&str) -> bool) -> Samples {
        let wanted = self.all.iter().filter(|sample| wanted(&sample.proto));
        wanted.map(|sample| (sample.frame, sample.rtt)).collect()
    }
}

/// Runs the binary on a capture.
pub fn samples(capture: &Path, how: &[&str]) -> Measured {
    let mut command = binary::command(binary::fairpath());
    command.args(["rtt", "--format", "json", "--samples-only", "-r"]);
    let output = command
        .arg(capture)
        .args(how)
        .output()
        .expect("run fairpath");
    assert!(output.status.success(), "{capture:?}: {output:?}");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let records = lines
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).expect("a line is a JSON object"));
    Measured {
        all: records
            .filter(|record| record["type"] == "sample")
            .map(|record| sample(&record))
            .collect(),
    }
}

fn sample(record: &Value) -> Sample {
    let number = |key: &str| {
        record[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {record}"))
    };
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
    Sample {
        frame: number("frame"),
        rtt: number("rtt_ns"),
        proto: text("protocol"),
        method: text("method"),
    }
}
