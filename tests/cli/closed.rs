//! Every command with a closed standard output or error: no panic, no signal, and its usual exit status.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fairpath_tests::binary;
use nix::fcntl::{FcntlArg, fcntl};

use crate::binaries;
use crate::help::all;

/// The smallest pipe: longer output fails in the middle.
const PIPE_BYTES: i32 = 4096;
/// Commands that change the machine or the directory. Their own suites close the output of some.
const LIVE: [&str; 8] = [
    "impair",
    "rules answer",
    "rules follow",
    "shape start",
    "shape set",
    "lab run",
    "demo",
    "sched new",
];
const FULL: &str = "/dev/full";

/// One command line.
struct CommandLine<'a> {
    program: &'a Path,
    words: Vec<String>,
}

impl CommandLine<'_> {
    fn command(&self) -> Command {
        let mut command = binary::command(self.program);
        command
            .args(&self.words)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Without these descriptors, as in a shell.
    fn without(&self, closed: &str) -> Command {
        let mut command = binary::command(Path::new("sh"));
        let script = format!("exec \"$0\" \"$@\" {closed}");
        command
            .args(["-c", &script])
            .arg(self.program)
            .args(&self.words)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The exit status; fails after a panic or a signal.
    fn status(&self, how: &str, child: Child) -> i32 {
        let output = child.wait_with_output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("panicked"), "{:?} {how}: {text}", self.words);
        let code = output.status.code();
        code.unwrap_or_else(|| panic!("{:?} {how}: {}", self.words, output.status))
    }

    /// Lost results are a failure.
    fn check_full_output(&self) {
        let full = std::fs::File::options().write(true).open(FULL).unwrap();
        let open = self.status("open", self.command().spawn().unwrap());
        assert_ne!(open, 2, "{:?}: wrong usage", self.words);
        let status = self.status("full", self.command().stdout(full).spawn().unwrap());
        assert_eq!(status, open.max(1), "{:?} on a full disk", self.words);
    }

    fn check(&self) {
        let usual = self.status("open", self.command().spawn().unwrap());
        assert!(usual <= 3, "{:?}: status {usual}", self.words);
        let closed = |how: &str, child: Child| {
            let status = self.status(how, child);
            assert_eq!(status, usual, "{:?} {how}", self.words);
        };
        for read in [0, 1] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).unwrap();
            let mut command = self.command();
            command.stdout(writer);
            let child = match read {
                0 => {
                    drop(reader);
                    command.spawn().unwrap()
                }
                read => {
                    let child = command.spawn().unwrap();
                    // The command keeps the only writer.
                    drop(command);
                    let mut begin = vec![0; read];
                    let _ = reader.read(&mut begin).unwrap();
                    drop(reader);
                    child
                }
            };
            closed("closed output", child);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        closed(
            "closed error",
            self.command().stderr(writer).spawn().unwrap(),
        );
        for descriptors in [">&-", "2>&-", ">&- 2>&-"] {
            closed(descriptors, self.without(descriptors).spawn().unwrap());
        }
        let full = std::fs::File::options().write(true).open(FULL).unwrap();
        closed("full error", self.command().stderr(full).spawn().unwrap());
    }
}

fn check_all(lines: Vec<CommandLine<'_>>) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let at = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                while let Some(line) = lines.get(at()) {
                    line.check();
                }
            });
        }
    });
}

#[test]
fn help_pages_survive_closed_outputs() {
    let all = all();
    let page = |help: &crate::help::Help, option: &str| {
        let words = help.words.iter().cloned().chain([option.to_owned()]);
        words.collect::<Vec<String>>()
    };
    let mut lines = Vec::new();
    for help in &all {
        for option in ["--help", "-h", "--no-such-option"] {
            lines.push(CommandLine {
                program: &help.path,
                words: page(help, option),
            });
        }
    }
    check_all(lines);
}

#[test]
fn commands_survive_closed_outputs() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(
        path("bad.csv"),
        "name,prefix\n".to_owned() + &"a,x\n".repeat(2000),
    )
    .unwrap();
    let classes: String = (0..2000).map(|at| format!("c{at},\n")).collect();
    std::fs::write(path("ok.csv"), "name,prefix\n".to_owned() + &classes).unwrap();
    let binaries = binaries();
    let sched = binaries.iter().find(|b| b.words.last() == Some(&"sched"));
    let run = "run fifo --rate 10mbit --duration 100ms --traffic bulk";
    if let Some(sched) = sched {
        let words = format!("{run} --record {}", path("ops.log"));
        crate::run(&sched.path, &words.split(' ').collect::<Vec<_>>());
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/author/author/scripts/fifo.lua"
    );
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rules/home.v4");
    let (none, good, bad, log) = (
        path("none"),
        path("ok.csv"),
        path("bad.csv"),
        path("ops.log"),
    );
    let table = format!(
        "\
fairpath --version
fairpath help rtt
fairpath completions bash
fairpath completions zsh
fairpath features
fairpath features --format json
fairpath features --cpus
fairpath features --cpus --format json
fairpath features --docs
fairpath status --socket {none}
fairpath alerts --socket {none}
fairpath history anna --socket {none}
fairpath reload --socket {none}
fairpath top --once --socket {none}
fairpath check --class a --socket {none}
fairpath shape status --socket {none}
fairpath shape stop --socket {none}
fairpath shape plan -c plan/plan.toml --with-cpus 2 --duration 9ms --cost-local 1us --cost-shared 1us
fairpath shape plan -c plan/plan.toml --with-cpus 2 --duration 9ms --cost-local 1us --cost-shared 1us --format json
fairpath run --config {none}
fairpath class check {good}
fairpath class check {bad}
fairpath class check --format json {bad}
fairpath rules check {rules}
fairpath rules check --format json {rules}
fairpath rules check --matches
fairpath rules check {none}
fairpath rules show {rules}
fairpath rules show --plan {rules}
fairpath rules explain {rules} --src 192.0.2.1 --dst 192.0.2.2 --dport 22 -i lan --ctstate NEW
fairpath rules explain {rules} -r golden/two-way.pcap.gz -i lan --ctstate NEW
fairpath rules stats {rules}
fairpath rules profile {rules} -r golden/two-way.pcap.gz -i lan --ctstate NEW
fairpath rules diff {rules} {rules}
fairpath rules diff {rules} {none}
fairpath rules apply {rules} -- -F INPUT
fairpath rules apply {rules} -- -F nowhere
fairpath rules convert --to classes {rules}
fairpath rules import /proc/none/rules
fairpath rules load {none}
fairpath rules boot --fail open --kept {none} --pins {none}
fairpath rules shadow --pins {none}
fairpath rules confirm --pins {none}
fairpath rules counters --pins {none}
fairpath rules replace-chain INPUT {rules} --pins {none}
fairpath rules set add blocked 192.0.2.1 --pins {none}
fairpath rules set del blocked 192.0.2.1 --pins {none}
fairpath rules set test blocked 192.0.2.1 --pins {none}
fairpath rules set list --pins {none}
fairpath rules set restore --pins {none}
fairpath rules log --pins {none}
fairpath rules trace --all --pins {none}
fairpath rules unload --pins {none}
fairpath rtt -r golden/two-way.pcap.gz
fairpath rtt -r golden/two-way.pcap.gz --quiet
fairpath rtt -r golden/two-way.pcap.gz --format json
fairpath rtt -r golden/two-way.pcap.gz --by flow
fairpath rtt -r golden/two-way.pcap.gz --by host --format csv
fairpath rtt -r golden/two-way.pcap.gz --by host --format json
fairpath rtt -r golden/README.md
sched list
sched list --format json
sched show drr
sched show drr --format json
sched {run}
sched {run} --format json
sched {run} --format csv
sched test fifo {script}
sched test fifo --format json {script}
sched replay {log}
sched replay --format json {log}
sched check {none}.c
sched build {none}.c
sched generate outline
lab list
lab list --format json
lab show bufferbloat
lab show bufferbloat --toml
lab report {none}
lab compare {none} {none}"
    );
    for help in all().iter().filter(|help| help.subcommands.is_empty()) {
        let words = help.command.trim_start_matches("fairpath ");
        let mut lines = table
            .lines()
            .map(|line| line.trim_start_matches("fairpath "));
        let is_tried = lines.any(|line| line.starts_with(words));
        assert!(is_tried || LIVE.contains(&words), "{words}: add a line");
    }
    let lines = table.lines().filter_map(|line| {
        let (name, words) = line.split_once(' ')?;
        let binary = binaries.iter().find(|b| b.words.last() == Some(&name))?;
        Some(CommandLine {
            program: &binary.path,
            words: words.split(' ').map(str::to_owned).collect(),
        })
    });
    let lines: Vec<CommandLine<'_>> = lines.collect();
    let by_parser = ["--version", "help"];
    for line in &lines {
        if !by_parser.contains(&line.words[0].as_str()) {
            line.check_full_output();
        }
    }
    check_all(lines);
}
