//! Which known word a misspelt one was meant to be.

/// The known word nearest to `word`, the first of equals, if one is near enough to be meant. Case
/// does not matter. O(known).
///
/// Near is a common beginning (Jaro and Winkler) or few edits (Damerau and Levenshtein): the first
/// finds what was cut short, the second what was swapped in a short word.
///
/// ```
/// let known = ["interface", "interval", "hook"];
/// assert_eq!(fairpath_units::nearest("intervl", known), Some("interval"));
/// assert_eq!(fairpath_units::nearest("zzzz", known), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .filter_map(|known| Some((likeness(&word, &known.to_lowercase())?, known)))
        // `min_by` keeps the first of equals.
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, known)| known)
}

/// The likeness of two words, 0 to 2; `None` if neither is a misspelling of the other.
fn likeness(word: &str, known: &str) -> Option<f64> {
    const BEGINNING: f64 = 0.75;
    const EDITS: f64 = 0.6;
    let beginning = strsim::jaro_winkler(word, known);
    let edits = strsim::normalized_damerau_levenshtein(word, known);
    (beginning >= BEGINNING || edits >= EDITS).then_some(beginning + edits)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_known_word_is_suggested() {
        let known = ["fq_codel", "fifo", "codel", "drr"];
        assert_eq!(nearest("fq-codel", known), Some("fq_codel"));
        assert_eq!(nearest("FIFO", known), Some("fifo"));
        assert_eq!(nearest("htb", known), None);
        assert_eq!(nearest("wna", ["lan", "wan"]), Some("wan"));
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest("ab", ["ac", "ad"]), None);
        assert_eq!(nearest("same", ["sama", "samb"]), Some("sama"));
    }
}
