//! Numbers of things in sentences.

/// A number with its noun: `no classes`, `1 class`, `2 classes`.
///
/// ```
/// assert_eq!(fairpath_units::counted(1, "class", "classes"), "1 class");
/// ```
pub fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        0 => format!("no {several}"),
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_has_the_singular() {
        let of = |count| counted(count, "class", "classes");
        assert_eq!(
            [0, 1, 2, 21].map(of),
            ["no classes", "1 class", "2 classes", "21 classes"]
        );
    }
}
