//! The seeds of `fuzz/` are what the generator makes: `FAIRPATH_WRITE_SEEDS=1 cargo test -p fairpath-core --test fuzz_seeds`
//! writes them again.

mod traffic;

use std::fs;
use std::path::Path;

use fairpath_core::Frame;
use fairpath_wire::capture::{LinkType, Packet, Writer};
use traffic::{Options, generate};

/// Packets of each seed: enough for handshake, loss and end of one flow.
const PACKETS: usize = 60;

#[test]
fn fuzz_seeds_are_what_the_generator_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds");
    for kind in ["packets", "captures"] {
        fs::create_dir_all(root.join(kind)).expect("fuzz/ exists");
    }
    for seed in 0..6 {
        let options = Options {
            flows: 2,
            bytes: 3000,
            ..Options::default()
        };
        let frames: Vec<(Frame, Vec<u8>)> =
            generate(seed, &options).frames().take(PACKETS).collect();
        let name = format!("traffic-{seed}");
        hold(&root.join("packets").join(&name), &records(&frames));
        hold(
            &root.join("captures").join(name + ".pcapng"),
            &capture(&frames),
        );
    }
}

/// Writes the file if requested; compares it otherwise.
fn hold(path: &Path, bytes: &[u8]) {
    if std::env::var_os("FAIRPATH_WRITE_SEEDS").is_some() {
        fs::write(path, bytes).expect("fuzz/ exists");
    }
    let held = fs::read(path).unwrap_or_default();
    assert!(
        held == bytes,
        "{} is old; remedy: FAIRPATH_WRITE_SEEDS=1",
        path.display()
    );
}

/// As fuzz/fuzz_targets/packets.rs reads them.
fn records(frames: &[(Frame, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = frames[0].0.now;
    for (frame, data) in frames {
        let ms = ((frame.now - last) / traffic::MS).min(u64::from(u16::MAX)) as u16;
        last = frame.now;
        out.extend([frame.link as u8, 0]);
        out.extend(ms.to_le_bytes());
        out.extend((data.len() as u16).to_le_bytes());
        out.extend(data);
    }
    out
}

fn capture(frames: &[(Frame, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::pcapng(Vec::new()).expect("memory");
    writer
        .interface("eth0", LinkType::ETHERNET)
        .expect("memory");
    for (frame, data) in frames {
        let packet = Packet {
            number: 0,
            time_ns: frame.now,
            wire_len: frame.wire_len,
            data,
            link: LinkType::ETHERNET,
            interface: 0,
            direction: None,
        };
        writer.write(&packet).expect("memory");
    }
    writer.finish().expect("memory")
}
