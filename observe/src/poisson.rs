//! Exact bounds on the mean of a Poisson variable, by one value of it: rare events are counted, and
//! their true rate is unknown.

/// Above this count, the normal approximation is used.
const EXACT_MAX: u64 = 500;

/// The probability of at most `seen` events.
fn at_most(seen: u64, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for i in 1..=seen {
        term *= mean / i as f64;
        sum += term;
    }
    sum
}

fn bisect(mut low: f64, mut high: f64, is_low: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if is_low(middle) { low = middle } else { high = middle }
    }
    (low, high)
}

/// The largest mean of a Poisson variable that is at most `seen` with a probability of 5 %: the
/// exact one-sided bound, and its normal approximation for large values.
pub fn above(seen: u64) -> f64 {
    let n = seen as f64;
    if seen > EXACT_MAX {
        return n + 1.645 * n.sqrt() + 2.0;
    }
    bisect(n, n + 4.0 * n.sqrt() + 10.0, |mean| at_most(seen, mean) > 0.05).1
}

/// As [`above`], with another confidence than 95 %. `None` for more than 500 events.
pub fn above_at(seen: u64, confidence: f64) -> Option<f64> {
    let n = seen as f64;
    let high = n + 12.0 * n.sqrt() + 50.0;
    (seen <= EXACT_MAX).then(|| bisect(n, high, |mean| at_most(seen, mean) > 1.0 - confidence).1)
}

/// The smallest mean of a Poisson variable that is at least `seen` with a probability of 0.1 %: if
/// the true mean were smaller, that many events would be nearly impossible.
pub fn below(seen: u64) -> f64 {
    let n = seen as f64;
    if seen == 0 {
        return 0.0;
    }
    if seen > EXACT_MAX {
        return (n - 3.09 * n.sqrt() - 2.0).max(0.0);
    }
    bisect(0.0, n, |mean| 1.0 - at_most(seen - 1, mean) < 0.001).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_other_confidences_are_those_of_tables() {
        for (seen, confidence, bound) in
            [(0, 0.95, 2.996), (0, 0.99, 4.605), (3, 0.99, 10.045), (0, 0.5, 0.693)]
        {
            let found = above_at(seen, confidence).expect("few");
            assert!((found - bound).abs() < 0.01, "{seen} {confidence}: {found}");
        }
        assert_eq!(above_at(501, 0.9), None);
    }

    #[test]
    fn bounds_are_those_of_tables() {
        for (seen, bound) in [(0, 2.996), (1, 4.744), (10, 16.962), (100, 118.079)] {
            assert!((above(seen) - bound).abs() < 0.01, "{seen}: {}", above(seen));
        }
        for (seen, bound) in [(0, 0.0), (1, 0.001), (2, 0.0454), (5, 0.7394), (10, 2.9605), (100, 71.9)] {
            assert!(
                (below(seen) - bound).abs() < 0.1 * bound.clamp(0.001, 1.0) + 1e-9,
                "{seen}: {}",
                below(seen)
            );
        }
        assert!((above(501) - above(500)).abs() < 3.0 && (below(501) - below(500)).abs() < 4.0);
    }
}
