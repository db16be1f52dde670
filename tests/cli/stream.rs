//! Captures of any length through a pipe: constant memory, and the progress.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_tests::binary;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

/// Maximum of resident memory at any length of a capture, with at most the default flow table.
const PEAK_BYTES: u64 = 128 << 20;
/// The peak may grow by this much between a third of a capture and its end.
const GROWTH_BYTES: u64 = 2 << 20;
const TEST_BYTES: u64 = 300_000_000;
#[cfg(feature = "soak")]
const SOAK_BYTES: u64 = 20_000_000_000;

/// TCP flows that come and go, on 1,040 interfaces, as a Linux cooked capture (version 2).
struct Traffic<W> {
    out: W,
    bytes: u64,
    packets: u64,
    now: u64,
    flows: u32,
    random: Random,
}

const NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINUX_SLL2: u32 = 276;
/// Flows at a time.
const CONCURRENT: u32 = 200;
/// Data segments of a flow, each with its ACK.
const SEGMENTS: u32 = 10;
const PAYLOAD: usize = 1400;
const HEADERS: usize = 20 + 20 + 20;
const INTERFACES: u32 = 520;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

impl<W: Write> Traffic<W> {
    fn begin(mut out: W) -> io::Result<Traffic<W>> {
        let mut header = Vec::new();
        header.extend(NANOSECONDS.to_le_bytes());
        header.extend([2, 0, 4, 0]);
        header.extend([0; 8]);
        header.extend(65_535_u32.to_le_bytes());
        header.extend(LINUX_SLL2.to_le_bytes());
        out.write_all(&header)?;
        Ok(Traffic {
            out,
            bytes: header.len() as u64,
            packets: 0,
            now: 1_700_000_000_000_000_000,
            flows: 0,
            random: Random::new(16),
        })
    }

    /// Complete connections, one step of each after the other.
    fn batch(&mut self) -> io::Result<()> {
        // Round trips of 0.2 to 200 ms.
        let gap = 1_000 << (3 * self.random.below(4));
        let first = self.flows;
        self.flows += CONCURRENT;
        let steps = 3 + 2 * SEGMENTS + 3;
        for step in 0..steps {
            for flow in first..first + CONCURRENT {
                self.now += gap;
                self.step(flow, step, steps)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, flow: u32, step: u32, steps: u32) -> io::Result<()> {
        let sent = |segments: u32| 1 + segments * PAYLOAD as u32;
        let segment = step.saturating_sub(3) / 2;
        let from_server = step % 2 == 1;
        let (flags, seq, ack, payload) = match (step, steps - step) {
            (0, _) => (SYN, 0, 0, 0),
            (1, _) => (SYN | ACK, 0, 1, 0),
            (2, _) => (ACK, 1, 1, 0),
            (_, 3) => (FIN | ACK, sent(SEGMENTS), 1, 0),
            (_, 2) => (FIN | ACK, 1, sent(SEGMENTS) + 1, 0),
            (_, 1) => (ACK, sent(SEGMENTS) + 1, 2, 0),
            _ if from_server => (ACK, sent(segment), 1, PAYLOAD),
            _ => (ACK, 1, sent(segment), 0),
        };
        self.packet(flow, from_server, flags, [seq, ack], payload)
    }

    fn packet(
        &mut self,
        flow: u32,
        from_server: bool,
        flags: u8,
        numbers: [u32; 2],
        payload: usize,
    ) -> io::Result<()> {
        let len = HEADERS + payload;
        let mut record = [0; 16 + HEADERS + PAYLOAD];
        let client = (0x0a00_0000 | (flow & 0x00ff_ffff)).to_be_bytes();
        let server = [192, 0, 2, (flow >> 24) as u8];
        let interface = 1 + flow % INTERFACES + if from_server { INTERFACES } else { 0 };
        let port = (10_000 + flow % 50_000) as u16;
        let (from, to, ports) = if from_server {
            (server, client, [443, port])
        } else {
            (client, server, [port, 443])
        };
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            record[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&((self.now / 1_000_000_000) as u32).to_le_bytes());
        put(&((self.now % 1_000_000_000) as u32).to_le_bytes());
        put(&(len as u32).to_le_bytes());
        put(&(len as u32).to_le_bytes());
        // Cooked header: IPv4, interface, Ethernet, incoming.
        put(&[8, 0, 0, 0]);
        put(&interface.to_be_bytes());
        put(&[0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        put(&[0x45, 0]);
        put(&((len - 20) as u16).to_be_bytes());
        put(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        put(&from);
        put(&to);
        put(&ports[0].to_be_bytes());
        put(&ports[1].to_be_bytes());
        put(&numbers[0].to_be_bytes());
        put(&numbers[1].to_be_bytes());
        put(&[0x50, flags, 255, 255, 0, 0, 0, 0]);
        self.out.write_all(&record[..16 + len])?;
        self.bytes += 16 + len as u64;
        self.packets += 1;
        Ok(())
    }
}

fn rtt(words: &[&str]) -> Child {
    binary::command(binary::fairpath())
        .args(["rtt", "-r", "-", "--quiet"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The maximum of resident bytes so far.
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    1024 * kilobytes.unwrap().parse::<u64>().unwrap()
}

fn assert_constant_memory(bytes: u64, max_flows: &str) {
    let mut child = rtt(&["--format", "json", "--max-flows", max_flows]);
    let pipe = BufWriter::with_capacity(1 << 16, child.stdin.take().unwrap());
    let mut traffic = Traffic::begin(pipe).unwrap();
    let mut third = None;
    while traffic.bytes < bytes {
        traffic.batch().unwrap();
        if third.is_none() && traffic.bytes >= bytes / 3 {
            third = Some(peak(&child));
        }
    }
    traffic.out.flush().unwrap();
    let (third, end) = (third.unwrap(), peak(&child));
    let (packets, flows) = (traffic.packets, traffic.flows);
    drop(traffic);
    let output = child.wait_with_output().unwrap();
    println!("{flows} flows, {packets} packets: {third} bytes at a third, {end} at the end");
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["packets"], packets);
    assert_eq!(summary["flows_closed"], flows);
    assert!(summary["flow_rows_excluded"].as_u64() > Some(0));
    assert!(summary["towards_samples_excluded"].as_u64() > Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(
        end <= PEAK_BYTES,
        "{end} bytes resident, at most {PEAK_BYTES}"
    );
    assert!(
        end <= third + GROWTH_BYTES,
        "{third} bytes at a third, {end} at the end"
    );
}

#[test]
fn long_captures_need_constant_memory() {
    // The flow table is resident where a flow has been: a third of the capture has to fill it.
    assert_constant_memory(TEST_BYTES, "4096");
}

#[cfg(feature = "soak")]
#[test]
fn soak_captures_of_20_gigabytes_need_constant_memory() {
    assert_constant_memory(SOAK_BYTES, "65536");
}

/// Writes a capture for some seconds.
fn write_slowly(out: impl Write) -> io::Result<()> {
    let mut traffic = Traffic::begin(out)?;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        traffic.batch()?;
    }
    traffic.out.flush()
}

#[test]
fn requested_progress_is_lines_without_a_terminal() {
    for (words, begins) in [(&["--progress"][..], "read "), (&[], "")] {
        let mut child = rtt(words);
        write_slowly(child.stdin.take().unwrap()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        assert!(errors.starts_with(begins), "{errors:?}");
        assert_eq!(errors.is_empty(), begins.is_empty(), "{errors:?}");
        assert!(errors.lines().all(|line| line.ends_with("/s")), "{errors}");
        assert!(!errors.contains('\r'), "{errors:?}");
    }
}

#[test]
fn progress_on_terminals_is_cleared_before_the_summary() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("capture");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pty = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new(binary::fairpath());
    command.args(["rtt", "--quiet", "-r"]);
    command.arg(&path);
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut terminal = pty.master.try_clone_reader().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // The end of a terminal is an error.
        let _ = terminal.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    write_slowly(fs::File::create(&path).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    drop(pty.master);
    let text = reader.join().unwrap();
    let (progress, summary) = text
        .split_once("\r\x1b[K")
        .unwrap_or_else(|| panic!("{text:?}"));
    assert!(
        progress.is_empty() || progress.starts_with("\rread "),
        "{text:?}"
    );
    let last = summary.rsplit("\x1b[K").next().unwrap();
    assert!(
        text.contains("\rread ") && text.contains("/s\x1b[K"),
        "{text:?}"
    );
    assert!(last.trim_start().starts_with("Summary of"), "{text:?}");
}
