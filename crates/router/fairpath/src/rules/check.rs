//! `fairpath rules check`: problems and findings of files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::bail;
use fairpath_rules::image::RuleWords;
use fairpath_rules::{
    AnswerRow, Finding, Findings, HOOKS, Hook, Point, Ruleset, Sets, Table, answers, check_rules,
    markdown, not_evaluated_set, rule_answer,
};
use serde_json::json;

use super::Format;
use super::files::{FileArgs, ReadArgs, RuleFile, load};

/// Check files of rules: syntax, dead rules, loops, and where each rule can be evaluated.
///
/// Errors are syntax, undefined chains and sets, and loops. Warnings are rules without effect and
/// extensions that Fairpath does not know. JSON is one object per line.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules check /etc/iptables/rules.v4 /etc/iptables/rules.v6\n  \
    fairpath rules check --strict --format json rules.v4 sets.ipset\n  \
    fairpath rules check --points rules.v4")]
pub struct Args {
    /// Files of rules and of sets; - is standard input
    #[arg(required_unless_present = "matches", value_name = "FILE")]
    files: Vec<std::path::PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
    /// Fail on warnings as well
    #[arg(long)]
    strict: bool,
    /// List each rule that is not exact at every point, with the reason
    #[arg(long)]
    points: bool,
    /// Print the tables of matches and targets by hook and by point: Markdown, or JSON
    #[arg(long)]
    matches: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Rules by point and answer.
type Answers = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

/// A rule that is not exact at some point.
struct Limited {
    table: String,
    chain: String,
    line: u32,
    reasons: Vec<(&'static str, &'static str, String)>,
}

/// Runs `fairpath rules check`.
///
/// # Errors
/// The files have errors or, with `--strict`, warnings.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.matches {
        fairpath_cli::print(match args.format {
            Format::Text => markdown(),
            Format::Json => matches_json(),
        })?;
        return Ok(());
    }
    let FileArgs { files, reading } = FileArgs {
        files: args.files.clone(),
        reading: args.reading.clone(),
    };
    let loaded = load(&files, &reading)?;
    let mut text = String::new();
    let mut objects = Vec::new();
    let (mut errors, mut warnings) = (loaded.set_problems.len() as u64, 0);
    for problem in &loaded.set_problems {
        let _ = writeln!(text, "{problem}");
        objects.push(json!({"file": problem.file, "line": problem.place.line,
            "column": problem.place.column, "severity": "error", "kind": "syntax", "text": problem.text}));
    }
    for file in &loaded.rules {
        let findings = check_rules(&file.reading.ruleset, loaded.sets.as_ref());
        let problems = file.reading.problems.len() as u64 + file.reading.more_problems;
        errors += problems + findings.errors();
        warnings += findings.warnings();
        let (answers, limited) = points(&file.reading.ruleset, loaded.sets.as_ref());
        file_text(file, &findings, &answers, &mut text);
        if args.points {
            points_text(file, &limited, &mut text);
        }
        objects.extend(file_json(
            file,
            &findings,
            &answers,
            args.points.then_some(&limited),
        ));
    }
    match args.format {
        Format::Text => fairpath_cli::print(text)?,
        Format::Json => {
            let mut out = String::new();
            for object in objects {
                let _ = writeln!(out, "{object}");
            }
            fairpath_cli::print(out)?;
        }
    }
    let failing = errors + if args.strict { warnings } else { 0 };
    if failing > 0 {
        bail!("check rules: {errors} errors, {warnings} warnings");
    }
    Ok(())
}

/// Matches and targets with the answer of each point and hook, one in a line.
fn matches_json() -> String {
    let mut out = String::new();
    for AnswerRow {
        name,
        family,
        points,
        hooks,
    } in answers()
    {
        let points: serde_json::Map<_, _> = Point::ALL
            .iter()
            .zip(points)
            .map(|(point, answer)| {
                let value = json!({"answer": answer.word(), "reason": answer.reason()});
                (point.name().to_owned(), value)
            })
            .collect();
        let hooks: serde_json::Map<_, _> = HOOKS
            .iter()
            .zip(hooks)
            .map(|(hook, answer)| {
                let value = json!({"answer": answer.word(), "reason": answer.reason()});
                (hook.chain().to_owned(), value)
            })
            .collect();
        let _ = writeln!(
            out,
            "{}",
            json!({"name": name, "family": family.map(|family| family.to_string()),
                "points": points, "hooks": hooks})
        );
    }
    out
}

/// The hooks from which a chain can be reached.
pub fn hooks_of(table: &Table) -> Vec<Vec<Hook>> {
    let mut hooks = vec![Vec::new(); table.bound() as usize];
    for (id, hook) in table
        .chains()
        .filter_map(|(id, chain)| Some((id, chain.hook?)))
    {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let known = &mut hooks[id.0 as usize];
            if known.contains(&hook) {
                continue;
            }
            known.push(hook);
            open.extend(
                table
                    .get(id)
                    .rules
                    .iter()
                    .filter_map(|rule| match rule.target {
                        fairpath_rules::Target::Jump(to) | fairpath_rules::Target::Goto(to) => {
                            Some(to)
                        }
                        _ => None,
                    }),
            );
        }
    }
    hooks
}

fn points(ruleset: &Ruleset, sets: Option<&Sets>) -> (Answers, Vec<Limited>) {
    let mut answers = Answers::new();
    let mut limited = Vec::new();
    let mut words = RuleWords::new(ruleset.family);
    for table in &ruleset.tables {
        let hooks = hooks_of(table);
        for (id, chain) in table.chains() {
            for rule in &chain.rules {
                let mut reasons = Vec::new();
                let not_evaluated = words
                    .not_evaluated(rule)
                    .map(|names| names[0].to_owned())
                    .or_else(|| not_evaluated_set(rule, sets));
                for point in Point::ALL {
                    let answer = rule_answer(rule, ruleset.family, &hooks[id.0 as usize], point);
                    let (word, reason) = match (answer.word(), &not_evaluated) {
                        ("exact" | "elsewhere", Some(name)) => {
                            ("refused", Some(format!("{name} is not evaluated")))
                        }
                        (word, _) => (word, answer.reason()),
                    };
                    let counts = answers.entry(point.name()).or_default();
                    *counts.entry(word).or_default() += 1;
                    if let Some(reason) = reason {
                        reasons.push((point.name(), word, reason));
                    }
                }
                if !reasons.is_empty() {
                    limited.push(Limited {
                        table: table.name.to_string(),
                        chain: chain.name().into_owned(),
                        line: rule.line,
                        reasons,
                    });
                }
            }
        }
    }
    (answers, limited)
}

fn severity(finding: &Finding) -> &'static str {
    if finding.kind.is_error() {
        "error"
    } else {
        "warning"
    }
}

fn file_text(file: &RuleFile, findings: &Findings, answers: &Answers, out: &mut String) {
    for problem in &file.reading.problems {
        let _ = writeln!(
            out,
            "{}:{}: error: {}",
            problem.file, problem.place, problem.text
        );
    }
    if file.reading.more_problems > 0 {
        let _ = writeln!(
            out,
            "{}: {} more errors",
            file.name, file.reading.more_problems
        );
    }
    for (finding, place) in findings.list.iter().zip(file.places(&findings.list)) {
        let _ = writeln!(
            out,
            "{}:{place}: {}: {} ({} {}): {}",
            file.name,
            severity(finding),
            finding.kind.name(),
            finding.table,
            finding.chain,
            finding.text
        );
    }
    for (kind, count) in &findings.counts {
        let listed = findings
            .list
            .iter()
            .filter(|finding| finding.kind == *kind)
            .count() as u64;
        if *count > listed {
            let _ = writeln!(
                out,
                "{}: {} more: {}",
                file.name,
                kind.name(),
                count - listed
            );
        }
    }
    let ruleset = &file.reading.ruleset;
    let _ = writeln!(
        out,
        "{}: {}, {} rules in {} chains: {} errors, {} warnings",
        file.name,
        ruleset.family,
        ruleset.rules(),
        ruleset.chains(),
        file.reading.problems.len() as u64 + file.reading.more_problems + findings.errors(),
        findings.warnings()
    );
    for (point, counts) in answers {
        let counts: Vec<String> = counts
            .iter()
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        let _ = writeln!(out, "  at {point}: {}", counts.join(", "));
    }
}

fn points_text(file: &RuleFile, limited: &[Limited], out: &mut String) {
    for rule in limited {
        for (point, word, reason) in &rule.reasons {
            let _ = writeln!(
                out,
                "{}:{}: {} {}: {word} at {point}: {reason}",
                file.name, rule.line, rule.table, rule.chain
            );
        }
    }
}

fn file_json(
    file: &RuleFile,
    findings: &Findings,
    answers: &Answers,
    limited: Option<&Vec<Limited>>,
) -> Vec<serde_json::Value> {
    let mut out: Vec<serde_json::Value> = file
        .reading
        .problems
        .iter()
        .map(|problem| {
            json!({"file": problem.file, "line": problem.place.line, "column": problem.place.column,
                "severity": "error", "kind": "syntax", "text": problem.text})
        })
        .collect();
    let places = file.places(&findings.list);
    out.extend(findings.list.iter().zip(places).map(|(finding, place)| {
        json!({"file": file.name, "line": place.line, "column": place.column,
            "severity": severity(finding),
            "kind": finding.kind.name(), "table": finding.table, "chain": finding.chain,
            "text": finding.text})
    }));
    for rule in limited.into_iter().flatten() {
        for (point, word, reason) in &rule.reasons {
            out.push(
                json!({"file": file.name, "line": rule.line, "table": rule.table,
                "chain": rule.chain, "kind": "point", "point": point, "answer": word,
                "text": reason}),
            );
        }
    }
    let counts: BTreeMap<&str, u64> = findings
        .counts
        .iter()
        .map(|(kind, count)| (kind.name(), *count))
        .collect();
    out.push(json!({"file": file.name, "kind": "summary",
        "family": file.reading.ruleset.family.to_string(),
        "rules": file.reading.ruleset.rules(), "chains": file.reading.ruleset.chains(),
        "errors": file.reading.problems.len() as u64 + file.reading.more_problems + findings.errors(),
        "warnings": findings.warnings(), "findings": counts, "points": answers}));
    out
}
