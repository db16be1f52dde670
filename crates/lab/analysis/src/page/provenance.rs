//! Where every number comes from: machine, offloads, commands, and each run.

use fairpath_report::{Block, Cell as TableCell, Column, Fact, Section, Table, Unit};
use fairpath_units::text::shell_word;

use super::processors;
use super::setting_table::SettingTable;
use super::validation::fault_words;
use crate::grid::Grid;
use crate::metrics;
use crate::record::{NO_SELF_TEST, RunRecord};
use crate::results::Results;

/// Runs that the page lists; all of them are in the directory.
const MAX_LISTED_RUNS: usize = 2_000;

/// "Provenance".
pub fn section(grid: &Grid, results: &Results) -> Section {
    let mut blocks = vec![Block::Facts(machine(grid))];
    if !grid.manifest.command.is_empty() {
        blocks.push(Block::Text(
            "This command repeats the experiment:".to_owned(),
        ));
        blocks.push(Block::Code(command_line(&grid.manifest.command)));
    }
    blocks.extend(checked(results).map(Block::Text));
    let example = results.runs.iter().find(|run| run.is_true());
    if let Some(run) = example {
        blocks.extend(offloads(run));
        blocks.push(Block::Details(
            format!(
                "Commands of run {} ({})",
                run.place,
                grid.words(&run.setting)
            ),
            vec![Block::Code(commands(run))],
        ));
    }
    blocks.extend(processors::table(grid).map(Block::Table));
    blocks.extend(runs(grid, results).map(Block::Table));
    Section::new("Provenance", blocks)
}

fn machine(grid: &Grid) -> Vec<Fact> {
    let manifest = grid.manifest;
    let machine = &manifest.machine;
    let memory = Unit::bytes().show(machine.memory_bytes as f64);
    let ended = manifest.ended.as_deref().unwrap_or("not ended");
    let all = [
        ("Kernel", machine.kernel.clone()),
        (
            "Processor",
            format!("{} ({} processors)", machine.cpu_model, machine.cpus),
        ),
        ("Memory", memory),
        ("Virtualisation", machine.virtualisation.clone()),
        ("iperf3", machine.iperf3.clone()),
        ("fairpath", machine.fairpath.clone()),
        (
            "Congestion controls",
            machine.congestion_controls.join(", "),
        ),
        (
            "Default congestion control (no flow relies on it)",
            machine.default_congestion.clone(),
        ),
        ("BBR", machine.bbr.clone()),
        ("Started", manifest.started.clone()),
        ("Ended", ended.to_owned()),
        ("Seed", manifest.seed.to_string()),
    ];
    let reported =
        |(name, value): (&str, String)| (!value.is_empty()).then(|| Fact::new(name, value));
    all.into_iter().filter_map(reported).collect()
}

/// Runs whose emulator checked itself before it began.
fn checked(results: &Results) -> Option<String> {
    let is_checked = |run: &&RunRecord| {
        run.commands.iter().any(|command| {
            let words = &command.argv;
            words.get(1).is_some_and(|word| word == "impair")
                && !words.iter().any(|word| word == NO_SELF_TEST)
        })
    };
    let count = results.runs.iter().filter(is_checked).count();
    (count > 0).then(|| {
        format!(
            "Before the first run with each impairment ({count} runs), the emulator passed its self-test of loss, delay, order \
             and rate in virtual time. The commands of the other runs have {NO_SELF_TEST}."
        )
    })
}

fn offloads(run: &RunRecord) -> Option<Block> {
    let columns = vec![Column::text("Interface"), Column::text("Offloads")];
    let mut table = Table::new(
        "offloads",
        "Offloads of the interfaces of the path, as the kernel reports them",
        columns,
    );
    for (interface, offloads) in &run.offloads {
        table.push(vec![interface.as_str().into(), offloads.as_str().into()]);
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

/// Every command of a run, where it ran, ready to be typed.
fn commands(run: &RunRecord) -> String {
    let mut text = String::new();
    for command in &run.commands {
        let host = if command.host.is_empty() {
            "this machine"
        } else {
            &command.host
        };
        text.push_str(&format!("[{host}] {}\n", command_line(&command.argv)));
    }
    text
}

fn runs(grid: &Grid, results: &Results) -> Option<Table> {
    let columns = vec![
        Column::text("Run"),
        Column::text("Repeat"),
        Column::text("Started"),
        Column::text("Seed"),
        Column::number("Goodput", Unit::bits_per_second()),
        Column::number("Achieved loss", Unit::share()),
        Column::number("Processors busy", Unit::plain("cores")),
        Column::text("Valid"),
    ];
    let title = "All runs in order of their execution";
    let mut table = SettingTable::new(grid, "runs", title, columns);
    let value = |name: &str, run: &RunRecord| {
        TableCell::from(
            metrics::find(name)
                .ok()
                .and_then(|requested| requested.value(run)),
        )
    };
    for run in results.runs.iter().take(MAX_LISTED_RUNS) {
        let cells = vec![
            run.place.to_string().into(),
            run.repeat.to_string().into(),
            run.started.as_str().into(),
            format!("{:#x}", run.seed).into(),
            value("goodput", run),
            value("loss", run),
            value("cpu", run),
            verdict(run).into(),
        ];
        table.push(&run.setting, cells, !run.is_true());
    }
    let caption = match results.runs.len() > MAX_LISTED_RUNS {
        true => format!(
            "The first {MAX_LISTED_RUNS} of {} runs.",
            results.runs.len()
        ),
        false => String::new(),
    };
    table.finish(&caption, None)
}

fn verdict(run: &RunRecord) -> String {
    let words: Vec<&str> = run.faults.iter().map(|f| fault_words(f.kind)).collect();
    match words.is_empty() {
        true if !run.remarks.is_empty() => "yes, few loss events".to_owned(),
        true => "yes".to_owned(),
        false => format!("no: {}", words.join(", ")),
    }
}

/// Words as a shell takes them.
pub fn command_line(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| shell_word(word)).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_after_a_self_check_are_counted() {
        let run = |words: &[&str]| RunRecord {
            commands: vec![crate::record::CommandRecord {
                argv: words.iter().map(|word| (*word).to_owned()).collect(),
                ..Default::default()
            }],
            ..RunRecord::default()
        };
        let results = Results {
            runs: vec![
                run(&["fairpath", "impair", "lan"]),
                run(&["fairpath", "impair", "lan", NO_SELF_TEST]),
                run(&["fairpath", "rtt"]),
            ],
            ..Results::default()
        };
        assert!(checked(&results).unwrap().contains("(1 runs)"));
    }

    #[test]
    fn commands_can_be_typed_again() {
        let words = ["fairpath", "lab", "it's", "", "a b", "--out=x"].map(str::to_owned);
        assert_eq!(
            command_line(&words),
            "fairpath lab 'it'\\''s' '' 'a b' --out=x"
        );
    }
}
