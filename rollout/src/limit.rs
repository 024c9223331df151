//! Limits on the figures of a rollout: absolute, such as `500us` or `0.01%`, or relative to the
//! baseline, such as `+20%`.

use obol_config::duration;
use obol_fabric::Nanos;
use obol_observe::Percentile;
use std::fmt;

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A percentile of the failovers, from the notice to the last process that became active.
    Failover(Percentile),
    /// A percentile of the durations of lease renewals.
    Renewal(Percentile),
    /// The share of renewals that were late, or found no majority.
    LateRenewals,
    /// For how long no program could act, or that was not known.
    Unavailable,
    /// For how long not all expected members could act.
    Degraded,
    /// Members that were removed as failed; those that left on request do not count.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// A value, in the unit of the subject: nanoseconds, a share, or a number.
    Absolute(f64),
    /// By how much the value may differ from that of the baseline: 0.2 is 20 % more.
    Relative(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub subject: Subject,
    /// The largest value that passes.
    pub bound: Bound,
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a limit on {of}: use {wanted}")]
pub struct LimitError {
    text: String,
    of: String,
    wanted: &'static str,
}

impl Subject {
    /// Reads a limit on it.
    pub fn limit(self, text: &str) -> Result<Limit, LimitError> {
        let (bound, wanted) = match self {
            Self::Failover(_) | Self::Renewal(_) => (
                relative(text).or_else(|| span(text)),
                "a duration such as 500us, or a change from the baseline such as +20%",
            ),
            Self::LateRenewals => (
                relative(text).or_else(|| share(text)),
                "a share such as 0.01%, or a change from the baseline such as +20%",
            ),
            Self::Unavailable | Self::Degraded => (
                span(text),
                "a duration such as 2s; baseline and rollout are not equally long, so it is never relative",
            ),
            Self::Failed => (
                text.parse().ok().map(|n: u32| Bound::Absolute(n.into())),
                "a number; baseline and rollout are not equally long, so it is never relative",
            ),
        };
        let wrong = || LimitError { text: text.to_owned(), of: self.to_string(), wanted };
        bound.map(|bound| Limit { subject: self, bound }).ok_or_else(wrong)
    }

    /// A value in its unit.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::Failover(_) | Self::Renewal(_) | Self::Unavailable | Self::Degraded => {
                Nanos(value as u64).to_string()
            }
            Self::LateRenewals => percent(value),
            Self::Failed => value.to_string(),
        }
    }

    /// The unit of its values in JSON.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Failover(_) | Self::Renewal(_) | Self::Unavailable | Self::Degraded => "ns",
            Self::LateRenewals => "share",
            Self::Failed => "count",
        }
    }
}

/// A share in percent, without digits that say nothing.
fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failover(percentile) => write!(f, "failover {}", percentile.name()),
            Self::Renewal(percentile) => write!(f, "renewal {}", percentile.name()),
            Self::LateRenewals => f.write_str("late renewals"),
            Self::Unavailable => f.write_str("unavailable"),
            Self::Degraded => f.write_str("degraded"),
            Self::Failed => f.write_str("members failed"),
        }
    }
}

impl Limit {
    /// The limit as it was given.
    pub fn shown(&self) -> String {
        match self.bound {
            Bound::Absolute(value) => self.subject.shown(value),
            Bound::Relative(change) => format!("{}{}", if change < 0.0 { "" } else { "+" }, percent(change)),
        }
    }
}

/// `+20%` or `-5%`.
fn relative(text: &str) -> Option<Bound> {
    if !text.starts_with(['+', '-']) {
        return None;
    }
    let change: f64 = text.strip_suffix('%')?.parse().ok()?;
    (change.is_finite() && change > -100.0).then_some(Bound::Relative(change / 100.0))
}

/// `0.01%`.
fn share(text: &str) -> Option<Bound> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(Bound::Absolute(percent / 100.0))
}

fn span(text: &str) -> Option<Bound> {
    duration::parse(text).ok().map(|span| Bound::Absolute(span.as_nanos() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P99: Subject = Subject::Failover(Percentile::P99);

    #[test]
    fn limits_are_absolute_or_relative_where_that_makes_sense() {
        for (subject, text, bound, shown) in [
            (P99, "500us", Bound::Absolute(500_000.0), "500us"),
            (P99, "+20%", Bound::Relative(0.2), "+20 %"),
            (P99, "-5%", Bound::Relative(-0.05), "-5 %"),
            (P99, "+0%", Bound::Relative(0.0), "+0 %"),
            (Subject::LateRenewals, "0.01%", Bound::Absolute(0.0001), "0.01 %"),
            (Subject::LateRenewals, "+12.5%", Bound::Relative(0.125), "+12.5 %"),
            (Subject::Unavailable, "2s", Bound::Absolute(2e9), "2.00s"),
            (Subject::Failed, "0", Bound::Absolute(0.0), "0"),
        ] {
            let limit = subject.limit(text).unwrap_or_else(|error| panic!("{error}"));
            let close = match (limit.bound, bound) {
                (Bound::Absolute(a), Bound::Absolute(b)) | (Bound::Relative(a), Bound::Relative(b)) => {
                    (a - b).abs() < 1e-12
                }
                _ => false,
            };
            assert!(close, "{text}: {:?}", limit.bound);
            assert_eq!(limit.shown(), shown);
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_with_what_would_be_one() {
        for (subject, text) in [
            (P99, "20%"),
            (P99, "500"),
            (P99, "+20"),
            (P99, "+x%"),
            (P99, "-100%"),
            (P99, "+inf%"),
            (Subject::LateRenewals, "0%"),
            (Subject::LateRenewals, "101%"),
            (Subject::LateRenewals, "5"),
            (Subject::Unavailable, "+20%"),
            (Subject::Failed, "-1"),
            (Subject::Failed, "1.5"),
        ] {
            let error = subject.limit(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?} is not a limit on {subject}: use a ")), "{error}");
        }
    }
}
