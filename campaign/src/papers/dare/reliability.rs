//! DARE, 5: the probability that no more memories fail at once than the protocol survives.

use super::loggp::Group;

/// Hours of an epoch (5, Table 2).
pub(super) const EPOCH_HOURS: f64 = 24.0;
/// Mean hours until a DRAM fails (5, Table 2).
pub(super) const DRAM_MTTF_HOURS: f64 = 22_177.0;
/// Epochs until the probabilities of two in a row are the same to more than the digits shown.
const EPOCHS: u32 = 4;

fn binomial(n: u32, k: u32) -> f64 {
    (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product()
}

/// Exactly `k` of `n` fail.
fn exactly(n: u32, k: u32, h: f64) -> f64 {
    binomial(n, k) * h.powi(k as i32) * (1.0 - h).powi((n - k) as i32)
}

/// `h`: the probability to fail within an epoch, which with an exponential lifetime is the same in
/// each.
fn hazard() -> f64 {
    -(-EPOCH_HOURS / DRAM_MTTF_HOURS).exp_m1()
}

/// The reliability of a group over an epoch in nines: `-log10` of the probability that more than
/// `q - 1` of its memories are unavailable, which failed in this epoch or in the one before.
pub(super) fn nines(group: Group) -> f64 {
    let (all, h) = (group.servers, hazard());
    // Pr(X_j = x) by x, from epoch to epoch: what failed in the one before is back in the next.
    let mut failed: Vec<f64> = (0..=all).map(|x| exactly(all, x, h)).collect();
    for _ in 2..EPOCHS {
        let of = |x: u32| (x..=all).map(|k| failed[(all - k) as usize] * exactly(k, x, h)).sum();
        failed = (0..=all).map(of).collect();
    }
    let unavailable =
        |u: u32| -> f64 { (0..=u).map(|x| failed[x as usize] * exactly(all - x, u - x, h)).sum() };
    // The terms of the tail, not 1 less the others: these are all but 1.
    let lost: f64 = (group.quorum()..=all).map(unavailable).sum();
    -lost.log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_7_is_exact_to_the_digits_with_which_it_is_given() {
        for (servers, known) in [(3, "4.9"), (4, "7.4"), (5, "7.0"), (7, "9.1"), (11, "13.3")] {
            assert_eq!(format!("{:.1}", nines(Group { servers })), known, "{servers} servers");
        }
    }

    /// Section 5, in words.
    #[test]
    fn an_odd_group_is_less_reliable_than_the_even_one_before() {
        let of = |servers| nines(Group { servers });
        for odd in [5, 7, 9, 11, 13] {
            assert!(of(odd) < of(odd - 1), "{odd}");
            assert!(of(odd) > of(odd - 2), "{odd}");
        }
    }

    #[test]
    fn probabilities_add_up_to_one() {
        let sum: f64 = (0..=9).map(|k| exactly(9, k, 0.3)).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!((binomial(11, 6) - 462.0).abs() < 1e-9);
    }
}
