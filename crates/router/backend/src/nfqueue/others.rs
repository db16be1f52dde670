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

/// `text` is that of `nft list ruleset`: `queue [flags bypass,fanout] to 40` or `num 40-43`.
fn in_nftables(text: &str, queues: &RangeInclusive<u16>, own: &str) -> Option<String> {
    let (mut table, mut chain) = ("", "");
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches(" {");
        }
        if table.rsplit(' ').next() == Some(own) {
            continue;
        }
        // Only the last statement of a rule is a verdict.
        let Some((_, verdict)) = line.rsplit_once("queue ") else {
            continue;
        };
        let mut words = verdict
            .split(' ')
            .skip_while(|word| !matches!(*word, "to" | "num"));
        let numbers = words.nth(1).unwrap_or("0");
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
        let words: Vec<&str> = line.split(' ').collect();
        let ["-A", chain, ..] = words[..] else {
            continue;
        };
        let suffix = chain.strip_prefix(own);
        let is_own = suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('_'));
        if !line.contains("-j NFQUEUE") || is_own {
            continue;
        }
        let value = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
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
        ] {
            assert!(rule(verdict, "inet x").is_some(), "{verdict}");
            assert!(rule(verdict, "inet fairpath_40").is_none(), "{verdict}");
        }
        for verdict in [
            "queue",
            "queue to 39",
            "queue num 46-50",
            "accept comment \"queue\"",
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
        for chain in ["fairpath_40", "fairpath_40_in"] {
            assert!(rule(chain, "NFQUEUE --queue-num 40").is_none());
        }
    }
}
