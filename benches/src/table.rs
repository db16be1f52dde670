//! Aligned columns.

/// Lays rows out under their heads: the first column to the left, the others to the right.
pub fn build(heads: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |row: &[String]| row.iter().map(|c| c.chars().count()).collect::<Vec<_>>();
    let heads: Vec<String> = heads.iter().map(|&h| h.to_owned()).collect();
    let mut widths = cells(&heads);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(cells(row)) {
            *width = (*width).max(cell);
        }
    }
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &w))| {
            if i == 0 {
                format!("{cell:<w$}")
            } else {
                format!("{cell:>w$}")
            }
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    std::iter::once(&heads[..])
        .chain(rows.iter().map(Vec::as_slice))
        .map(line)
        .collect()
}

/// 1234567 as 1,234,567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "1"], ["long", "1000"]];
        let rows: Vec<Vec<String>> = rows.map(|r| r.map(str::to_owned).to_vec()).to_vec();
        assert_eq!(
            build(&["x", "n"], &rows),
            "  x        n\n  a        1\n  long  1000\n"
        );
    }
}
