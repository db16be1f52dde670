//! The commands of `fairpath rules`, through the binary.

mod apply;
mod check;
mod convert;
mod diff;
mod explain;
mod guide;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn fairpath() -> PathBuf {
    let dir = std::env::var_os("FAIRPATH_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug"),
        PathBuf::from,
    );
    dir.join("fairpath")
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/rules")
        .join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn rules(words: &[&str]) -> Output {
    Command::new(fairpath())
        .arg("rules")
        .args(words)
        .output()
        .expect("the binary was built")
}

fn stdout(words: &[&str]) -> String {
    let output = rules(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Writes a file, and returns its path.
fn file(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A capture of IPv4 packets.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for packet in packets {
        let length = (packet.len() + 14) as u32;
        out.extend([0; 8]);
        out.extend(length.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0]);
        out.extend(packet);
    }
    out
}

/// A ping from 10.9.0.1, with the checksum of its header.
fn ping() -> Vec<u8> {
    let mut out = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0x66, 0xd7];
    out.extend([10, 9, 0, 1, 10, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0]);
    out
}
