//! The number of CPUs that is enough.

use super::MAX_CPUS;

/// The lowest number of CPUs for which `holds` returns true; `None`: not even [`MAX_CPUS`].
///
/// The number is doubled from `from` on, and then halved between the last that does not hold and the first that
/// does. It takes at most 20 calls, and relies on this: more CPUs never hold less.
///
/// # Errors
/// Those of `holds`.
pub fn enough<E>(
    from: u32,
    mut holds: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    let (mut fails, mut upper) = (0, from.clamp(1, MAX_CPUS));
    while !holds(upper)? {
        if upper == MAX_CPUS {
            return Ok(None);
        }
        (fails, upper) = (upper, (upper * 2).min(MAX_CPUS));
    }
    while upper - fails > 1 {
        let middle = fails.midpoint(upper);
        match holds(middle)? {
            true => upper = middle,
            false => fails = middle,
        }
    }
    Ok(Some(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_sufficient_number_is_found() {
        for (needed, from) in [1, 2, 3, 100, 511, 512]
            .into_iter()
            .flat_map(|needed| [1, 4, 512].map(|from| (needed, from)))
        {
            let mut calls = 0;
            let found = enough(from, |cpus| {
                calls += 1;
                Ok::<bool, ()>(cpus >= needed)
            });
            assert_eq!(found, Ok(Some(needed)), "from {from}");
            assert!(calls <= 20, "{calls} calls for {needed} from {from}");
        }
        assert_eq!(enough(4, |_| Ok::<bool, ()>(false)), Ok(None));
    }
}
