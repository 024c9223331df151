//! Arithmetic with figures that other processes wrote: counters in regions, reports of gateways, logs.
//! A process may be broken, and a host hostile, so any word may be there, and no sum may overflow.

/// The sum, or the largest number.
///
/// `Iterator::sum` panics where this does not; `observe/tests/it/figures.rs` finds it.
pub fn total(figures: impl IntoIterator<Item = u64>) -> u64 {
    figures.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_any_figures_is_one() {
        assert_eq!(total([1, 2, 3]), 6);
        assert_eq!(total([u64::MAX, 1, u64::MAX]), u64::MAX);
        assert_eq!(total([]), 0);
    }
}
