//! `-S` and `-L` of loaded rules, as iptables prints them.

use anyhow::{Context, bail};
use fairpath_rules::{ListError, Listing, Ruleset};

/// Prints what the words of a command of iptables name.
///
/// # Errors
/// The words have a problem, or there is no such chain.
pub fn print(table: &str, words: &[String], ruleset: &Ruleset) -> anyhow::Result<()> {
    let (mut listing, mut is_list, mut is_numeric) = (Listing::default(), false, false);
    listing.table = table;
    let mut places = Vec::new();
    for word in words {
        match &word[..] {
            "--list" => is_list = true,
            "--list-rules" => {}
            "--numeric" => is_numeric = true,
            "--verbose" => listing.verbose = true,
            "--exact" => listing.exact = true,
            "--line-numbers" | "--line-number" => listing.numbers = true,
            long if long.starts_with("--") => match long.split_once('=') {
                Some(("--list", chain)) => {
                    is_list = true;
                    places.push(chain);
                }
                Some(("--list-rules", chain)) => places.push(chain),
                _ => bail!("{long} has no place in a listing: remove it"),
            },
            short => match short.strip_prefix('-') {
                None => places.push(short),
                Some(letters) => {
                    for letter in letters.chars() {
                        match letter {
                            'L' => is_list = true,
                            'S' => {}
                            'n' => is_numeric = true,
                            'v' => listing.verbose = true,
                            'x' => listing.exact = true,
                            _ => bail!("{short} has no place in a listing: remove it"),
                        }
                    }
                }
            },
        }
    }
    let mut places = places.into_iter();
    listing.chain = places.next();
    if let Some(rule) = places.next() {
        let number = rule.parse().ok().filter(|number| *number > 0);
        listing.rule = Some(number.with_context(|| format!("{rule} is not the number of a rule"))?);
    }
    if let Some(extra) = places.next() {
        bail!("{extra} has no place in a listing: remove it");
    }
    if is_list && !is_numeric {
        bail!("-L looks up names of hosts, which Fairpath does not: add -n");
    }
    let with_name = |error| match error {
        ListError::Chain => anyhow::anyhow!("iptables: {error}"),
        _ => anyhow::Error::from(error),
    };
    if is_list {
        let text = listing.chains_with_rules(ruleset).map_err(with_name)?;
        fairpath_cli::print(fairpath_units::text::lines(&text).into_owned())?;
        return Ok(());
    }
    fairpath_cli::print_bytes(&listing.rules(ruleset).map_err(with_name)?)
}
