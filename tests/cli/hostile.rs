//! Text from files, captures and scripts that would move the cursor, hide or reorder text, or add lines.

use std::fs;
use std::path::Path;

use fairpath_tests::binary;
use fairpath_units::text::is_unsafe;
use fairpath_wire::capture::{LinkType, Packet, Reader, Writer};

use super::{run, stderr, stdout};

/// Clear the screen, as ESC and as one C1 character; set the title; reorder; begin a line.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2Jb\u{1b}]0;t\u{7}\u{202e}\u{2066}c\rd";

/// Runs a command, and checks both of its outputs. Returns them.
fn outputs(program: &Path, words: &[&str]) -> String {
    let output = run(program, words);
    let text = stdout(&output) + &stderr(&output);
    let bad = text.chars().find(|c| is_unsafe(*c) && !"\n\t".contains(*c));
    assert_eq!(bad, None, "{words:?}: {text:?}");
    text
}

#[test]
fn interface_names_of_captures_are_cleaned() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.pcapng");
    let file = fs::File::create(&path).unwrap();
    let mut writer = Writer::pcapng(file).unwrap();
    let name = format!("{HOSTILE}\nfairpath: error: forged");
    let interface = writer.interface(&name, LinkType::ETHERNET).unwrap();
    let mut packets = Reader::new(fs::File::open("golden/plain.pcap").unwrap()).unwrap();
    while let Some(packet) = packets.next().unwrap() {
        let packet = Packet {
            interface,
            ..packet
        };
        writer.write(&packet).unwrap();
    }
    writer.finish().unwrap();
    let path = path.to_str().unwrap();
    for format in ["text", "json"] {
        let text = outputs(binary::fairpath(), &["rtt", "-r", path, "--format", format]);
        let shown = text.contains("a?[2J?2Jb?]0;t???c?d?fairpath");
        assert_eq!(shown, format == "json", "{text}");
    }
}

#[test]
fn names_in_class_files_are_cleaned() {
    let place = tempfile::tempdir().unwrap();
    let escaped: String = HOSTILE
        .chars()
        .map(|c| format!("\\u{:04X}", c as u32))
        .collect();
    let toml = place.path().join("classes.toml");
    let text = format!(
        "[[class]]\nname = \"{escaped}\"\nprefix = \"{escaped}\"\n\"{escaped}\" = 1\n\
         [[class]]\nname = \"ok\"\nparent = \"{escaped}\"\ninterface = \"{escaped}\"\n"
    );
    fs::write(&toml, text).unwrap();
    let csv = place.path().join("classes.csv");
    let text = format!("name,prefix,{HOSTILE}\n{HOSTILE},192.0.2.1,x\nok,{HOSTILE},x\n");
    fs::write(&csv, text).unwrap();
    for path in [toml, csv] {
        for format in ["text", "json"] {
            let path = path.to_str().unwrap();
            let words = ["class", "check", path, "--format", format];
            let text = outputs(binary::fairpath(), &words);
            assert!(text.contains("?[2J"), "{text}");
        }
    }
}

#[test]
fn arguments_in_messages_are_cleaned() {
    for words in [
        &["rtt", "-r", HOSTILE][..],
        &["class", "check", HOSTILE],
        &["status", "--socket", HOSTILE],
        &["check", "--socket", HOSTILE, "--class", HOSTILE],
        &["run", "--config", HOSTILE],
        &["features", HOSTILE],
        &["rtt", HOSTILE],
        &[HOSTILE],
    ] {
        let text = outputs(binary::fairpath(), words);
        assert!(!text.is_empty(), "{words:?}");
    }
}

#[test]
fn trees_policies_and_scripts_are_cleaned() {
    let place = tempfile::tempdir().unwrap();
    let sched = binary::fairpath().with_file_name("fairpath-sched");
    if !sched.exists() {
        return;
    }
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let escaped: String = HOSTILE
        .chars()
        .map(|c| format!("\\u{:04X}", c as u32))
        .collect();
    let tree = write(
        "tree.toml",
        &format!("[tree]\nname = \"{escaped}\"\npolicy = \"{escaped}\"\n"),
    );
    let script = write("a.lua", &format!("print('{HOSTILE}') error('{HOSTILE}')"));
    let policy = write("a.c", &format!("#error \"{HOSTILE}\"\nint {HOSTILE};\n"));
    for words in [
        &["run", &tree, "--rate", "10mbit", "--duration", "1s"][..],
        &["test", "drr", &script],
        &["check", &policy],
        &["check", &policy, "--format", "json"],
        &["show", HOSTILE],
        &["replay", HOSTILE],
    ] {
        let text = outputs(&sched, words);
        assert!(!text.is_empty(), "{words:?}");
    }
}
