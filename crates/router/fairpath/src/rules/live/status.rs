//! The state of the loaded rules: `fairpath rules show` without files.

use std::fmt::Write as _;

use anyhow::Context;
use fairpath_backend::{TRACKING_TABLES, tracked};
use fairpath_bpf::{AnswerLock, FrameFamily, HOOK_FAMILIES, HookRules, Pins};
use fairpath_core::rules::Store;
use fairpath_units::counted;
use nix::net::if_::if_indextoname;
use serde_json::json;

use super::super::Format;
use super::loaded::Loaded;
use super::{PinArgs, daemon, early, egress, frames, given, kept, must_open, record};

const SHADOW: &str = "in the shadow: they decide nothing, `fairpath rules shadow` compares them\n";
const WENT_BACK: &str = "the last load was not confirmed: these are the rules before it\n";
const ANSWERED: &str = "rejected packets are answered by a process\n";
const NOT_ANSWERED: &str = "rejected packets get no answer: run `fairpath rules answer`\n";

/// Packets that tables dropped: full, and in use. `None`: there are no tables.
pub fn dropped_by(stores: impl Iterator<Item = Store>) -> Option<(u64, u64)> {
    let all = stores.map(|store| (store.refused, store.contended));
    all.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Prints the state as the daemon knows it: without priorities, and without tables of iptables.
fn status_of_daemon(place: &PinArgs, format: Format) -> anyhow::Result<()> {
    let (loaded, state) = daemon::request(place, None)?;
    if format == Format::Json {
        return fairpath_cli::print(serde_json::to_string(&state)? + "\n");
    }
    let mut out = format!("{}\n", loaded.summary());
    for file in &state.files {
        let rules = counted(file.rules as usize, "rule", "rules");
        let name = fairpath_units::text::line(&file.file);
        let _ = writeln!(out, "  {}: {rules} of {name}", file.family);
    }
    if !state.deciding {
        out += SHADOW;
    }
    if let Some(left) = state.confirm_ns {
        let seconds = left / 1_000_000_000 + 1;
        let _ = writeln!(
            out,
            "waiting for `fairpath rules confirm`: the rules before come back in {seconds} s"
        );
    }
    if state.went_back {
        out += WENT_BACK;
    }
    match state.rejected_are_answered {
        Some(true) => out += ANSWERED,
        Some(false) => out += NOT_ANSWERED,
        None => {}
    }
    for (name, count) in state.counters.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(out, "{name}: {count}");
    }
    out += "the daemon reports this: run it with sudo for priorities and tables of iptables\n";
    fairpath_cli::print(out)
}

/// Programs of others that come before rules at interfaces, a sentence each.
fn programs_before(pins: &Pins) -> anyhow::Result<Vec<String>> {
    let mut interfaces = HookRules::egress_interfaces(pins)?;
    for family in FrameFamily::ALL {
        interfaces.extend(HookRules::frame_interfaces(pins, family)?);
    }
    interfaces.sort_unstable();
    interfaces.dedup();
    let found = HookRules::programs_before(&interfaces).into_iter();
    let sentences = found.map(|(interface, program)| {
        let name = if_indextoname(interface.0).ok();
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| interface.0.to_string());
        let text =
            format!("{program} comes before rules at {name}: they do not see packets that it ends");
        fairpath_units::text::line(&text).into_owned()
    });
    Ok(sentences.collect())
}

/// Prints the state of the loaded rules: `fairpath rules show` without files.
///
/// # Errors
/// No rules are loaded.
pub fn status(place: &PinArgs, format: Format) -> anyhow::Result<()> {
    if daemon::is_needed() {
        return status_of_daemon(place, format);
    }
    let pending = record::pending()?;
    let opened = must_open(place);
    let (pins, rules) = match &pending {
        Some(pending) => opened.with_context(|| pending.clone())?,
        None => opened?,
    };
    let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    let (counts, left) = (rules.counts(), rules.waiting());
    let kept = kept::state(&loaded, rules.text());
    let reads = loaded.reads_connections();
    let tracked = match tracked() {
        Err(error) if reads.contains(&true) => return Err(error),
        // Rules that read no connection need no nft.
        found => found.unwrap_or_default(),
    };
    let tracking = reads
        .contains(&true)
        .then(|| (0..reads.len()).all(|family| tracked[family] || !reads[family]));
    let memories: [_; HOOK_FAMILIES] = std::array::from_fn(|family| rules.memory(family));
    let stores = memories.iter().flatten().flat_map(|memory| {
        let numbers = 0..memory.tables();
        numbers.map(|number| memory.table(number))
    });
    let tables = dropped_by(stores);
    let early = early::names(&pins)?;
    let mut frames = [const { None }; FrameFamily::ALL.len()];
    for (family, coverage) in FrameFamily::ALL.into_iter().zip(&mut frames) {
        *coverage = frames::Coverage::of(family, &pins, &loaded)?;
    }
    let without = egress::missing(&pins, &loaded)?;
    let before = programs_before(&pins)?;
    let rejects = loaded.rejects() && !loaded.options().shadow;
    let answered = rejects.then(AnswerLock::is_taken).transpose()?;
    if format == Format::Json {
        let [arp, bridge] = &frames;
        let places: Vec<_> = rules
            .places()
            .map(|place| {
                json!({"table": place.table, "hook": place.chain(), "priority": place.priority,
                    "family": if place.is_ipv4() { "IPv4" } else { "IPv6" }})
            })
            .collect();
        let nat = given::running_rules(&given::nat());
        let deferred = given::running_rules(&loaded.options().deferred);
        let deferred = loaded.options().deferred.iter().zip(deferred).map(|(name, rules)| {
            json!({"family": name.family.to_string(), "table": name.table, "rules": rules})
        });
        let deferred: Vec<_> = deferred.collect();
        let object = json!({"loaded": loaded.describe(), "places": places,
            "nat_rules": {"ipv4": nat[0], "ipv6": nat[1]}, "deferred": deferred, "tables_pending": pending,
            "confirm_seconds": left.map(|left| left.as_secs()), "went_back": rules.went_back(),
            "kept": kept.as_ref().map(|kept| json!({"file": kept.file, "current": kept.is_current})),
            "edits": rules.edits(), "changes_at_tcx_egress": without.is_some(), "interfaces_without_changes": without, "arp_interfaces": arp.as_ref().map(|arp| &arp.with),
            "arp_interfaces_without": arp.as_ref().map(|arp| &arp.without), "bridge_interfaces": bridge.as_ref().map(|bridge| &bridge.with),
            "bridge_interfaces_without": bridge.as_ref().map(|bridge| &bridge.without), "programs_before_rules": before, "early_drop": early, "packets_dropped_early": rules.dropped_early(), "connection_tracking": tracking, "rejected_are_answered": answered, "packets_parked": counts.parked,
            "packets_dropped_without_scratch": counts.pressed,
            "packets_dropped_unknown": counts.unknown, "logs_without_place": counts.unlogged,
            "syns_without_limit": counts.strays,
            "connections_without_mark": counts.unsaved,
            "packets_dropped_table_full": tables.map(|(refused, _)| refused),
            "packets_dropped_table_in_use": tables.map(|(_, contended)| contended)});
        fairpath_cli::print(format!("{object}\n"))?;
        return Ok(());
    }
    let mut out = format!("{}\n", loaded.summary());
    for (name, ruleset) in loaded.rulesets() {
        let rules = counted(ruleset.rules(), "rule", "rules");
        let name = fairpath_units::text::line(name);
        let _ = writeln!(out, "  {}: {rules} of {name}", ruleset.family);
    }
    for (_, line) in given::describe(&loaded.options().deferred) {
        let _ = writeln!(out, "{line}");
    }
    if loaded.options().shadow {
        out += SHADOW;
    }
    if rules.places().next().is_some() {
        out += "priorities:\n";
    }
    let mut shown: Vec<(&str, i32)> = Vec::new();
    for place in rules.places() {
        if shown.contains(&(place.table, place.priority)) {
            continue;
        }
        shown.push((place.table, place.priority));
        let at = rules.places().filter(|other| {
            (other.table, other.priority) == (place.table, place.priority)
                && other.family == place.family
        });
        let hooks: Vec<&str> = at.map(|place| place.chain()).collect();
        let _ = writeln!(
            out,
            "  {} {}: {}",
            place.table,
            place.priority,
            hooks.join(" ")
        );
    }
    if let Some(without) = &without {
        let mut rulesets = loaded.rulesets().map(|(_, ruleset)| ruleset);
        let runs = rulesets.any(egress::runs);
        let mut rulesets = loaded.rulesets().map(|(_, ruleset)| ruleset);
        let limits = rulesets.any(egress::limits);
        let parts = [(runs, "POSTROUTING"), (limits, "TCPMSS of FORWARD")];
        let parts = parts.into_iter().filter(|(there, _)| *there);
        let parts: Vec<&str> = parts.map(|(_, part)| part).collect();
        let _ = writeln!(out, "  mangle at tcx egress: {}", parts.join(", "));
        if !without.is_empty() {
            let names = fairpath_units::text::line(&without.join(", ")).into_owned();
            let _ = writeln!(
                out,
                "  interfaces without these rules of mangle: {names}: `fairpath rules follow --once` puts them to new ones"
            );
        }
    }
    for coverage in frames.iter().flatten() {
        let _ = writeln!(out, "{}", coverage.chains());
        if let Some(line) = coverage.line() {
            let _ = writeln!(out, "  {line}");
        }
    }
    for line in &before {
        let _ = writeln!(out, "  {line}");
    }
    if !early.is_empty() {
        let _ = writeln!(
            out,
            "early drop at {}: {} packets dropped in drivers",
            fairpath_units::text::line(&early.join(", ")),
            rules.dropped_early()
        );
    }
    if let Some(left) = left {
        let _ = writeln!(
            out,
            "waiting for `fairpath rules confirm`: the rules before come back in {} s",
            left.as_secs() + 1
        );
    }
    if let Some(pending) = pending {
        let _ = writeln!(out, "{pending}");
    }
    if rules.went_back() {
        out += WENT_BACK;
    }
    if let Some(kept) = kept {
        let file = fairpath_units::text::line(&kept.file);
        let _ = match (kept.is_current, left, kept.obstacle) {
            (true, ..) => writeln!(out, "kept for the next start of the machine in {file}"),
            (false, _, Some(why)) => {
                writeln!(
                    out,
                    "not kept for the next start of the machine: {file}: {why}"
                )
            }
            (false, Some(_), None) => writeln!(
                out,
                "not kept for the next start of the machine until they are confirmed"
            ),
            (false, None, None) => writeln!(
                out,
                "not kept for the next start of the machine: {file} has others, or none; the next load or edit keeps them"
            ),
        };
    }
    if let Some(note) = kept::note_of_others(&loaded) {
        let _ = writeln!(out, "{note}");
    }
    match answered {
        Some(true) => out += ANSWERED,
        Some(false) => out += NOT_ANSWERED,
        None => {}
    }
    for (family, table) in TRACKING_TABLES.into_iter().enumerate() {
        let _ = match (reads[family], tracked[family]) {
            (true, false) => writeln!(
                out,
                "connection tracking may be off, because table {table} is missing: load the rules again"
            ),
            // Those of before may come back.
            (false, true) if left.is_none() => writeln!(
                out,
                "connections are tracked for table {table}, which no rule needs: load the rules again"
            ),
            _ => Ok(()),
        };
    }
    let dropped = match loaded.options().shadow {
        true => "not evaluated",
        false => "dropped",
    };
    let _ = writeln!(
        out,
        "packets: {} dropped with an unknown answer, {} {dropped} for lack of a scratch, {} waited elsewhere while rules were replaced",
        counts.unknown, counts.pressed, counts.parked
    );
    if counts.unlogged > 0 {
        let logs = counted(counts.unlogged as usize, "log", "logs");
        let _ = writeln!(
            out,
            "{logs} missing: more than 8 rules of a table logged one packet"
        );
    }
    if counts.strays > 0 {
        let _ = writeln!(
            out,
            "{} SYNs left without a limit of TCPMSS in FORWARD: rules did not see them at both places",
            counts.strays
        );
    }
    if counts.unsaved > 0 {
        let marks = counted(counts.unsaved as usize, "mark", "marks");
        let _ = writeln!(
            out,
            "{marks} of CONNMARK missing: the connection of the packet was not found"
        );
    }
    if let Some((refused, contended)) = tables {
        let _ = writeln!(
            out,
            "recent lists and hashlimit tables: {refused} packets dropped because one was full, {contended} because one was in use"
        );
    }
    fairpath_cli::print(out)?;
    Ok(())
}
