//! Rules of other programs that send packets to our queues: such packets would be scheduled as ours, and a
//! packet that passes both rules twice.

use super::diversion::output;
use std::ops::RangeInclusive;

/// All rules of nftables, without the contents of sets, which can be large.
const NFT: [&str; 3] = ["--terse", "list", "ruleset"];
/// All rules of iptables; the newer form of its commands is in the list of nftables.
const SAVES: [&str; 2] = ["iptables-legacy-save", "ip6tables-legacy-save"];

/// The first rule of another program that sends packets to one of `queues`, with its table and chain. `own` begins the
/// names of Fairpath's table or chains. A host without a tool has no rules by it.
pub fn rule_to(queues: &RangeInclusive<u16>, own: &str) -> Option<String> {
    let listing = |command, words: &[&str]| output(command, words, "").ok();
    let nft = listing("nft", &NFT).and_then(|text| in_nftables(&text, queues, own));
    let legacy = || {
        SAVES.iter().find_map(|save| {
            let found = in_iptables(&listing(save, &[])?, queues, own)?;
            Some(format!("{}: {found}", save.trim_end_matches("-save")))
        })
    };
    nft.map(|rule| format!("nft: {rule}")).or_else(legacy)
}

fn overlaps(queues: &RangeInclusive<u16>, first: u16, last: u16) -> bool {
    first <= *queues.end() && last >= *queues.start()
}

/// The words of a rule without its quoted texts, such as comments, which may read like a rule. With `escapes`, a
/// backslash precedes a quotation mark that belongs to the text.
fn words_of(line: &str, escapes: bool) -> Vec<&str> {
    let (mut is_text, mut is_escaped) = (false, false);
    let parts = line.split(move |c: char| {
        let is_mark = c == '"' && !is_escaped;
        is_escaped = escapes && is_text && c == '\\' && !is_escaped;
        is_text ^= is_mark;
        is_mark
    });
    // Every second part is a text.
    parts
        .step_by(2)
        .flat_map(|part| part.split_whitespace())
        .collect()
}

/// `text` is that of `nft list ruleset`: `queue [flags bypass,fanout] to 40` or `num 40-43`.
fn in_nftables(text: &str, queues: &RangeInclusive<u16>, own: &str) -> Option<String> {
    let (mut table, mut chain) = ("", "");
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches(" {");
            continue;
        }
        if table.rsplit(' ').next() == Some(own) {
            continue;
        }
        let words = words_of(line, false);
        // Only the last statement of a rule is a verdict.
        let Some(at) = words.iter().rposition(|word| *word == "queue") else {
            continue;
        };
        let mut words = words[at..]
            .iter()
            .skip_while(|word| !matches!(**word, "to" | "num"));
        let numbers = *words.nth(1).unwrap_or(&"0");
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse())
            && overlaps(queues, first, last)
        {
            return Some(format!("table {table}, chain {chain}: {line}"));
        }
    }
    None
}

/// `text` is that of `iptables-save`: `-j NFQUEUE --queue-num 40` or `--queue-balance 40:43`.
fn in_iptables(text: &str, queues: &RangeInclusive<u16>, own: &str) -> Option<String> {
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        let words = words_of(line, true);
        let ["-A", chain, ..] = words[..] else {
            continue;
        };
        // The options of the target are the last of a rule.
        let target = words.iter().rposition(|word| *word == "-j");
        let target = &words[target.unwrap_or(words.len())..];
        let suffix = chain.strip_prefix(own);
        let is_own = suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('_'));
        if target.get(1) != Some(&"NFQUEUE") || is_own {
            continue;
        }
        let value = |option: &str| {
            let at = target.iter().position(|word| *word == option)?;
            target.get(at + 1).copied()
        };
        let balance = value("--queue-balance").and_then(|range| range.split_once(':'));
        let number = value("--queue-num").unwrap_or("0");
        let (first, last) = balance.unwrap_or((number, number));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse())
            && overlaps(queues, first, last)
        {
            return Some(format!("table {table}: {line}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "fairpath_40";

    #[test]
    fn rules_of_nftables_to_our_queues_are_found() {
        let rule = |verdict: &str, table: &str| {
            let text = format!(
                "table {table} {{\n\tchain c {{\n\t\ttype filter hook forward priority filter; policy accept;\n\
                 \t\tudp dport 5 counter packets 0 bytes 0 {verdict}\n\t}}\n}}\n"
            );
            in_nftables(&text, &(40..=45), OWN)
        };
        let found = rule("queue num 42", "ip filter").unwrap();
        assert!(
            found.starts_with("table ip filter, chain c: udp dport 5"),
            "{found}"
        );
        for verdict in [
            "queue flags bypass to 40",
            "queue to 30-40",
            "queue flags bypass,fanout num 45-46",
            "queue to 41 comment \"or queue to 39\"",
            "log prefix \"backslash\\\" queue to 41",
        ] {
            assert!(rule(verdict, "inet x").is_some(), "{verdict}");
            assert!(rule(verdict, "inet fairpath_40").is_none(), "{verdict}");
        }
        for verdict in [
            "queue",
            "queue to 39",
            "queue num 46-50",
            "accept comment \"queue\"",
            "accept comment \"was queue to 41 before\"",
            "log prefix \"queue to 41 \" accept",
            "queue to 39 comment \"or queue to 41\"",
        ] {
            assert!(rule(verdict, "inet x").is_none(), "{verdict}");
        }
    }

    #[test]
    fn rules_of_iptables_to_our_queues_are_found() {
        let rule = |chain: &str, target: &str| {
            let text =
                format!("*mangle\n:FORWARD ACCEPT [0:0]\n-A {chain} -p udp -j {target}\nCOMMIT\n");
            in_iptables(&text, &(40..=45), OWN)
        };
        let found = rule("FORWARD", "NFQUEUE --queue-num 41 --queue-bypass").unwrap();
        assert!(found.starts_with("table mangle: -A FORWARD"), "{found}");
        assert!(rule("FORWARD", "NFQUEUE --queue-balance 45:48").is_some());
        assert!(rule("FORWARD", "NFQUEUE --queue-num 46").is_none());
        assert!(rule("FORWARD", "ACCEPT").is_none());
        let comment = |text: &str, target: &str| {
            let rule_of = format!("NONE\n-A FORWARD -m comment --comment {text} -j {target}");
            rule("FORWARD", &rule_of)
        };
        for text in [
            r#""was -j NFQUEUE --queue-num 41 before""#,
            r#""a \" -j NFQUEUE --queue-num 41 \" b""#,
            "-j",
        ] {
            assert!(comment(text, "ACCEPT").is_none(), "{text}");
        }
        for text in [r#""a --queue-num 9 b""#, r#""a\\""#, "-j"] {
            let found = comment(text, "NFQUEUE --queue-num 41");
            assert!(found.is_some(), "{text}");
        }
        for chain in ["fairpath_40", "fairpath_40_in"] {
            assert!(rule(chain, "NFQUEUE --queue-num 40").is_none());
        }
    }
}
