//! A plan as text: its rates, its CPUs, and sentences.

use std::cmp::Ordering;
use std::fmt::Write;

use fairpath_shape::Side;
use fairpath_sim::plan::{Cause, CpuFindings, MAX_CPUS, RSS_ENTRIES, RateFindings, Verdict};
use fairpath_sim::report::{clean, grouped, rate, time};
use fairpath_units::counted;

use super::PlanResult;

/// Maximum number of sentences about rates that do not hold.
const MAX_SENTENCES: usize = 5;
/// Maximum number of CPUs that a sentence names.
const MAX_NAMED_CPUS: usize = 4;
/// Columns of a name.
const NAME: usize = 22;

/// Tables and sentences.
pub fn text(result: &PlanResult<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, result);
    let _ = table(&mut out, result);
    let _ = cpus(&mut out, &result.findings.cpus);
    for sentence in sentences(result) {
        let _ = writeln!(out, "{sentence}");
    }
    out
}

fn head(out: &mut String, result: &PlanResult<'_>) -> std::fmt::Result {
    let settings = &result.settings;
    let measured = time(result.findings.measured_ns);
    writeln!(
        out,
        "plan for {}: {}, {measured} of virtual time after {}, seed {}",
        counted(settings.cpus as usize, "virtual CPU", "virtual CPUs"),
        clean(&result.offered(), 60),
        time(settings.warm_up_ns),
        settings.seed
    )?;
    writeln!(out, "cost: {}\n", result.cost_origin)
}

/// The rates in the order of the table: the line, then those of the lowest share first.
pub fn sorted<'a>(result: &'a PlanResult<'_>) -> Vec<(&'a RateFindings, &'a Verdict)> {
    let rates = result.findings.rates.iter();
    let mut sorted: Vec<_> = rates.zip(&result.verdicts).collect();
    let key = |(rate, verdict): &(&RateFindings, &Verdict)| (rate.above.is_some(), verdict.holds());
    sorted.sort_by(|a, b| match key(a).cmp(&key(b)) {
        Ordering::Equal => a.1.ratio().total_cmp(&b.1.ratio()),
        order => order,
    });
    sorted
}

fn table(out: &mut String, result: &PlanResult<'_>) -> std::fmt::Result {
    if result.args.limit == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "{:NAME$} {:4} {:>12} {:>12} {:>7} {:>9} {:>8} {:>8} {:>12} {:>5}",
        "rate", "", "configured", "achieved", "share", "packets/s", "p50", "p99", "burst", "bound"
    )?;
    let sorted = sorted(result);
    let seconds = result.findings.measured_ns.max(1) as f64 / 1e9;
    for (of, verdict) in sorted.iter().take(result.args.limit) {
        let packets = (of.sent.packets as f64 / seconds).round() as u64;
        writeln!(
            out,
            "{:NAME$} {:4} {:>12} {:>12} {:>7} {:>9} {:>8} {:>8} {:>12} {:>5}",
            clean(&of.name, NAME),
            of.side.name(),
            configured(of),
            rate(verdict.achieved_bps),
            percent(verdict.ratio()),
            grouped(packets),
            time(of.sojourn.quantile(0.5)),
            time(of.sojourn.quantile(0.99)),
            burst(of),
            of.bound_bytes.map_or_else(
                || "-".to_owned(),
                |bound| { format!("{:.0} %", share(of.burst_bytes, bound) * 100.0) }
            ),
        )?;
    }
    if let Some(more @ 1..) = sorted.len().checked_sub(result.args.limit) {
        writeln!(out, "{more} more rates; --limit N prints more")?;
    }
    writeln!(out)
}

fn configured(of: &RateFindings) -> String {
    match (of.ceil_bps, of.floor_bps) {
        (Some(ceiling), _) => rate(ceiling as f64),
        (None, Some(floor)) => format!(">{}", rate(floor as f64)),
        (None, None) => "-".to_owned(),
    }
}

fn burst(of: &RateFindings) -> String {
    match of.ceil_bps {
        Some(_) => format!("{} B", grouped(of.burst_bytes)),
        None => "-".to_owned(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// The lowest, mean and highest use.
pub fn uses(cpus: &[CpuFindings]) -> [f64; 3] {
    let uses = || cpus.iter().map(|cpu| cpu.use_ratio);
    let mean = uses().sum::<f64>() / cpus.len().max(1) as f64;
    let lowest = uses().fold(f64::INFINITY, f64::min);
    [lowest, mean, uses().fold(0.0, f64::max)]
}

/// Operations on shared words for each packet.
pub fn operations(cpus: &[CpuFindings]) -> f64 {
    let sum = |of: fn(&CpuFindings) -> u64| cpus.iter().map(of).sum::<u64>();
    sum(|cpu| cpu.operations) as f64 / sum(|cpu| cpu.packets).max(1) as f64
}

fn cpus(out: &mut String, cpus: &[CpuFindings]) -> std::fmt::Result {
    let [lowest, mean, highest] = uses(cpus).map(percent);
    let busiest = (0..cpus.len()).max_by(|a, b| {
        let order = cpus[*a].use_ratio.total_cmp(&cpus[*b].use_ratio);
        order.then(b.cmp(a))
    });
    writeln!(
        out,
        "CPUs: used {lowest} to {highest} (CPU {}), {mean} on average; {:.3} shared operations a packet",
        busiest.unwrap_or(0),
        operations(cpus)
    )
}

/// Which rates hold, why others do not, and what else matters.
pub fn sentences(result: &PlanResult<'_>) -> Vec<String> {
    let mut sentences = vec![summary(result)];
    let missed: Vec<_> = sorted(result)
        .into_iter()
        .filter(|(_, verdict)| !verdict.holds())
        .collect();
    let shown = missed.iter().take(MAX_SENTENCES);
    sentences.extend(shown.map(|(of, verdict)| about(result, of, verdict)));
    if let Some(more @ 1..) = missed.len().checked_sub(MAX_SENTENCES) {
        sentences.push(format!(
            "{} do not hold, either.",
            counted(more, "more rate", "more rates")
        ));
    }
    if let Some(found) = result.enough {
        sentences.push(match found {
            Some(cpus) => format!("{} enough.", counted(cpus as usize, "CPU is", "CPUs are")),
            None => format!("Not even {MAX_CPUS} CPUs are enough: spread the flows."),
        });
    }
    let excluded = result.findings.excluded.iter();
    sentences.extend(excluded.map(|(reason, count)| {
        format!(
            "Excluded: {} {}.",
            grouped(*count),
            reason.replace('_', " ")
        )
    }));
    if result.args.read.is_some() && result.settings.cpus > RSS_ENTRIES {
        sentences.push(format!(
            "The table of the network card has {RSS_ENTRIES} entries, so {} get no packets.",
            counted((result.settings.cpus - RSS_ENTRIES) as usize, "CPU", "CPUs")
        ));
    }
    sentences
}

fn summary(result: &PlanResult<'_>) -> String {
    let all = counted(result.verdicts.len(), "rate", "rates");
    let full = result.verdicts.iter();
    let full = full.filter(|verdict| matches!(verdict.cause, Cause::Full { .. }));
    let waiting = match full.count() {
        0 => String::new(),
        1 => {
            " 1 rate has less than its ceiling, because a rate around it is used fully.".to_owned()
        }
        count => format!(
            " {count} rates have less than their ceilings, because a rate around them is used fully."
        ),
    };
    match result.missed() {
        0 if result.verdicts.len() == 1 => format!("The rate holds.{waiting}"),
        0 => format!("All {all} hold.{waiting}"),
        missed => format!("{}.{waiting}", not_held(missed, result.verdicts.len())),
    }
}

/// "2 of 5 rates do not hold".
pub fn not_held(missed: usize, of: usize) -> String {
    let verb = if missed == 1 { "does" } else { "do" };
    format!(
        "{missed} of {} {verb} not hold",
        counted(of, "rate", "rates")
    )
}

/// Why one rate does not hold.
pub fn about(result: &PlanResult<'_>, of: &RateFindings, verdict: &Verdict) -> String {
    let name = clean(&of.name, NAME);
    let direction = match of.side {
        Side::Down => "down",
        Side::Up => "up",
    };
    let begin = format!(
        "{name} {direction}: {} of its rate, ",
        percent(verdict.ratio())
    );
    begin + &match &verdict.cause {
        Cause::Holds | Cause::Full { .. } => "as configured.".to_owned(),
        Cause::Floor => {
            "less than its floor: its packets come in short bursts, or the rates around it have less: \
                simulate a longer time, or use fewer CPUs."
                .to_owned()
        }
        Cause::Word { at } => format!(
            "bound by the word that CPUs share for {}: use fewer CPUs, so that they share it less often.",
            clean(&result.findings.rates[*at].name, NAME)
        ),
        Cause::Other if of.dropped > 0 => format!(
            "and no CPU is full: {} dropped.",
            counted(of.dropped as usize, "packet was", "packets were")
        ),
        Cause::Other => "and no CPU is full: simulate a longer time.".to_owned(),
        Cause::Cpus { cpus, needed } => format!(
            "bound by {}: {}.",
            named(cpus, result.settings.cpus),
            remedy(*needed, result.settings.cpus)
        ),
    }
}

fn named(cpus: &[u32], of: u32) -> String {
    let list = |cpus: &[u32]| {
        let numbers: Vec<String> = cpus.iter().map(u32::to_string).collect();
        numbers.join(", ")
    };
    match cpus.len() {
        1 => format!("CPU {}", cpus[0]),
        all if all == of as usize => format!("all {all} CPUs"),
        count @ ..=MAX_NAMED_CPUS => format!("{count} CPUs ({})", list(cpus)),
        count => format!("{count} CPUs ({} ...)", list(&cpus[..MAX_NAMED_CPUS])),
    }
}

fn remedy(needed: u32, cpus: u32) -> String {
    match needed {
        needed if needed > cpus => format!("use {needed} CPUs"),
        0 | 1 => "move some of its flows to other CPUs".to_owned(),
        needed => format!("spread its flows over {needed} CPUs"),
    }
}
