//! Compares a period with the baseline and the limits.

use super::limit::{Bound, Limit, Subject};
use super::period::{Failed, Period, Samples};
use obol_fabric::Nanos;
use obol_observe::{Percentile, poisson};
use serde::Serialize;

/// A share relative to that of the baseline needs this many late renewals in it: with fewer, the
/// share is hardly known.
const LATE_MIN: u64 = 5;
/// At most this many members that failed are named in one line.
const NAMES_MAX: usize = 3;
/// Rule of three: no event in `n` samples bounds the rate by 2.996 / `n` with 95 % confidence.
const RULE_OF_THREE: f64 = 2.996;

/// A limit, and both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What is limited.
    pub what: String,
    /// The unit of the values: nanoseconds, a share of 1, or a count.
    pub unit: &'static str,
    /// The value before; null with too few samples.
    pub before: Option<f64>,
    /// Samples before.
    pub samples_before: u64,
    /// The value since; null with too few samples.
    pub after: Option<f64>,
    /// Samples since.
    pub samples_after: u64,
    /// The limit as it was given.
    pub limit: String,
    /// The largest value that passes; null where the baseline has too few samples.
    pub bound: Option<f64>,
    /// Whether it holds so far; null with too few samples.
    pub holds: Option<bool>,
    /// Whether it cannot hold any more, whatever comes.
    pub is_lost: bool,
    /// Samples that are missing for a judgement, before and since.
    pub lacks: (u64, u64),
    /// Of failed members: who.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<Failed>,
    #[serde(skip)]
    subject: Option<Subject>,
}

/// What may still come: it dilutes the figures so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The longest time until the end; `Nanos::ZERO` at the end.
    pub longest: Nanos,
}

impl Compared {
    pub fn shown(&self, value: f64) -> String {
        self.subject.map_or_else(|| value.to_string(), |subject| subject.shown(value))
    }

    /// By how much it has changed, as `+12 %`.
    pub fn change(&self) -> Option<String> {
        let (before, after) = (self.before.filter(|before| *before > 0.0)?, self.after?);
        let percent = (after / before - 1.0) * 100.0;
        Some(format!("{percent:+.0} %"))
    }

    /// Both sides and the limit, on one line: `failover p99 512us (before 480us, limit 576us)`.
    pub fn line(&self) -> String {
        let value = |value: Option<f64>| value.map_or("--".to_owned(), |value| self.shown(value));
        let bound = match self.bound {
            Some(bound) if self.limit != self.shown(bound) => {
                format!("{} = {}", self.limit, self.shown(bound))
            }
            _ => self.limit.clone(),
        };
        format!("{} {} (before {}, limit {bound})", self.what, value(self.after), value(self.before))
    }

    /// Who failed, the first few by name.
    fn names(&self) -> String {
        let mut names: Vec<String> = self.who.iter().take(NAMES_MAX).map(Failed::to_string).collect();
        let more = (self.after.unwrap_or_default() as usize).saturating_sub(names.len());
        if more > 0 {
            names.push(format!("{more} more"));
        }
        names.join(", ")
    }

    /// Why it does not hold, or cannot be judged; `None` if it holds.
    pub fn complaint(&self) -> Option<String> {
        let missing = |n: u64, what: &str| (n > 0).then(|| format!("{n} more samples {what}"));
        match self.holds {
            Some(true) => None,
            Some(false) if self.who.is_empty() => Some(self.line()),
            Some(false) => Some(format!("{}: {}", self.line(), self.names())),
            None => {
                let (before, after) = self.lacks;
                let needs: Vec<String> =
                    [missing(before, "before"), missing(after, "since")].into_iter().flatten().collect();
                let needs =
                    if needs.is_empty() { "a baseline above zero".to_owned() } else { needs.join(", ") };
                Some(format!("{} was not judged: it needs {needs}", self.what))
            }
        }
    }
}

/// The periods that a rollout is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Periods<'a> {
    /// Before the command.
    pub before: &'a Period,
    /// Since the command began.
    pub since: &'a Period,
    /// Since it has ended.
    pub settling: Option<&'a Period>,
}

/// Judges all limits. `ahead` is what may still come.
pub fn judge(limits: &[Limit], periods: Periods<'_>, ahead: Ahead) -> Vec<Compared> {
    limits.iter().map(|limit| one(*limit, periods, ahead)).collect()
}

fn one(limit: Limit, periods: Periods<'_>, ahead: Ahead) -> Compared {
    let Periods { before, since: after, .. } = periods;
    match limit.subject {
        Subject::Failover(percentile) => {
            let of = |period: &Period, bound| period.failover(percentile, bound);
            // Each failover is an event of its own, so their number has a distribution.
            let is_lost = |samples: &Samples| match percentile {
                Percentile::Max => samples.above > 0,
                _ => poisson::below(samples.above) > samples.n as f64 * (1.0 - percentile.quantile()),
            };
            distribution(limit, percentile, periods, of, is_lost)
        }
        Subject::Renewal(percentile) => {
            let of = |period: &Period, bound| period.renewal(percentile, bound);
            let is_lost = |samples: &Samples| match percentile {
                Percentile::Max => samples.above > 0,
                _ => {
                    let all = samples.n as f64 + to_come(samples.n, before.renewals.len(), periods, ahead);
                    samples.above as f64 > all * (1.0 - percentile.quantile())
                }
            };
            distribution(limit, percentile, periods, of, is_lost)
        }
        Subject::LateRenewals => late_renewals(limit, periods, ahead),
        Subject::Unavailable => {
            let value = |period: &Period| period.unavailable.0 as f64;
            total(limit, value(before), value(after))
        }
        Subject::Degraded => total(limit, before.degraded.0 as f64, after.degraded.0 as f64),
        Subject::Failed => {
            let compared = total(limit, before.failed as f64, after.failed as f64);
            Compared { who: after.who_failed.clone(), ..compared }
        }
    }
}

/// Renewals that may still come: at the faster of both rates.
fn to_come(since: u64, earlier: u64, periods: Periods<'_>, ahead: Ahead) -> f64 {
    let rate = |n: u64, span: Nanos| if span == Nanos::ZERO { 0.0 } else { n as f64 / span.0 as f64 };
    rate(since, periods.since.span).max(rate(earlier, periods.before.span)) * ahead.longest.0 as f64
}

fn distribution(
    limit: Limit,
    percentile: Percentile,
    periods: Periods<'_>,
    of: impl Fn(&Period, f64) -> Samples,
    is_lost: impl Fn(&Samples) -> bool,
) -> Compared {
    let least = u64::from(percentile.samples_min());
    let earlier = of(periods.before, f64::INFINITY);
    let known = earlier.value.map(|value| value.0 as f64);
    let bound = match limit.bound {
        Bound::Absolute(bound) => Some(bound),
        Bound::Relative(change) => known.map(|value| value * (1.0 + change)),
    };
    let since = of(periods.since, bound.unwrap_or(f64::INFINITY));
    let found = since.value.map(|value| value.0 as f64);
    // No sample is longer than a maximum, if there is none.
    let nothing = percentile == Percentile::Max && since.n == 0;
    let holds = match (bound, found) {
        (Some(bound), Some(found)) => Some(found <= bound),
        (Some(_), None) if nothing => Some(true),
        _ => None,
    };
    let is_relative = matches!(limit.bound, Bound::Relative(_));
    Compared {
        what: limit.subject.to_string(),
        unit: limit.subject.unit(),
        before: known,
        samples_before: earlier.n,
        after: found,
        samples_after: since.n,
        limit: limit.shown(),
        bound,
        holds,
        is_lost: bound.is_some() && is_lost(&since),
        lacks: (
            if is_relative { least.saturating_sub(earlier.n) } else { 0 },
            if nothing { 0 } else { least.saturating_sub(since.n) },
        ),
        who: Vec::new(),
        subject: Some(limit.subject),
    }
}

/// The share of late renewals since the command began; since it has ended, if that is above the limit beyond
/// chance: what goes on getting worse is diluted by what was before.
fn late_renewals(limit: Limit, periods: Periods<'_>, ahead: Ahead) -> Compared {
    let Periods { before, since: after, settling } = periods;
    let (known, found) = (before.late_share(), after.late_share());
    let (bound, lacks_before) = match limit.bound {
        Bound::Absolute(bound) => (Some(bound), 0),
        Bound::Relative(change) if before.late >= LATE_MIN => (known.map(|share| share * (1.0 + change)), 0),
        Bound::Relative(_) => (None, LATE_MIN - before.late),
    };
    let all = after.renewed();
    let least = bound.map_or(0, |bound| (RULE_OF_THREE / bound).ceil() as u64);
    let lacks_after = least.saturating_sub(all);
    let holds = bound.zip(found).and_then(|(bound, found)| match lacks_after {
        0 => Some(found <= bound),
        _ => None,
    });
    // They come in groups, so only the largest possible number of further ones counts.
    let most = all as f64 + to_come(all, before.renewed(), periods, ahead);
    let is_lost = bound.is_some_and(|bound| lacks_after == 0 && after.late as f64 > bound * most);
    let is_leak = |settling: &&Period| {
        bound.is_some_and(|bound| poisson::below(settling.late) > bound * settling.renewed() as f64)
    };
    let leak = settling.filter(|_| ahead.longest == Nanos::ZERO).filter(is_leak);
    let (what, found, all, holds) = match leak {
        Some(leak) if holds != Some(false) => {
            (format!("{} while settling", limit.subject), leak.late_share(), leak.renewed(), Some(false))
        }
        _ => (limit.subject.to_string(), found, all, holds),
    };
    Compared {
        what,
        unit: limit.subject.unit(),
        before: known,
        samples_before: before.renewed(),
        after: found,
        samples_after: all,
        limit: limit.shown(),
        bound,
        holds,
        is_lost,
        lacks: (lacks_before, lacks_after),
        who: Vec::new(),
        subject: Some(limit.subject),
    }
}

/// Something that only grows.
fn total(limit: Limit, before: f64, after: f64) -> Compared {
    let bound = match limit.bound {
        Bound::Absolute(bound) => bound,
        Bound::Relative(change) => before * (1.0 + change),
    };
    Compared {
        what: limit.subject.to_string(),
        unit: limit.subject.unit(),
        before: Some(before),
        samples_before: 1,
        after: Some(after),
        samples_after: 1,
        limit: limit.shown(),
        bound: Some(bound),
        holds: Some(after <= bound),
        is_lost: after > bound,
        lacks: (0, 0),
        who: Vec::new(),
        subject: Some(limit.subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::ViewId;

    const END: Ahead = Ahead { longest: Nanos::ZERO };

    /// A minute with failovers of these durations.
    fn failovers(us: impl IntoIterator<Item = u64>) -> Period {
        let failovers =
            us.into_iter().zip(1..).map(|(us, n)| (ViewId(n), Some(Nanos::from_micros(us)))).collect();
        Period { failovers, span: Nanos::from_secs(60), ..Period::default() }
    }

    /// A minute with these numbers of renewals.
    fn renewals(timely: u64, late: u64) -> Period {
        Period { timely, late, span: Nanos::from_secs(60), ..Period::default() }
    }

    fn judged(subject: Subject, limit: &str, before: &Period, after: &Period, ahead: Ahead) -> Compared {
        let limit = subject.limit(limit).unwrap_or_else(|error| panic!("{error}"));
        judge(&[limit], Periods { before, since: after, settling: None }, ahead).remove(0)
    }

    #[test]
    fn a_relative_limit_needs_samples_on_both_sides() {
        let p90 = Subject::Failover(Percentile::P90);
        let (few, many) = (failovers(vec![100; 28]), failovers(vec![100; 29]));
        let slower = failovers(vec![130; 29]);
        let found = judged(p90, "+20%", &many, &slower, END);
        assert_eq!((found.holds, found.change().as_deref()), (Some(false), Some("+30 %")));
        assert_eq!(found.line(), "failover p90 130us (before 100us, limit +20 % = 120us)");
        assert_eq!(judged(p90, "+40%", &many, &slower, END).complaint(), None);
        let unknown = judged(p90, "+40%", &few, &slower, END);
        assert_eq!((unknown.holds, unknown.bound, unknown.is_lost), (None, None, false));
        assert!(unknown.complaint().is_some_and(|why| why.contains("1 more samples before")), "{unknown:?}");
        assert_eq!(judged(p90, "140us", &few, &slower, END).holds, Some(true), "it needs no baseline");
        assert_eq!(judged(p90, "140us", &many, &few, END).holds, None);
    }

    #[test]
    fn a_maximum_holds_without_a_failover_and_is_lost_by_one() {
        let max = Subject::Failover(Percentile::Max);
        let none = failovers([]);
        assert_eq!(judged(max, "500us", &none, &none, END).holds, Some(true));
        let found = judged(max, "500us", &none, &failovers([100, 501]), END);
        assert_eq!((found.holds, found.is_lost), (Some(false), true));
        assert_eq!(judged(max, "+10%", &none, &none, END).holds, None);
    }

    #[test]
    fn a_percentile_is_lost_only_when_chance_is_ruled_out() {
        let p99 = Subject::Failover(Percentile::P99);
        let (before, ahead) = (failovers(vec![100; 299]), Ahead { longest: Nanos::from_secs(60) });
        let lost = |us: Vec<u64>| judged(p99, "+20%", &before, &failovers(us), ahead).is_lost;
        assert!(!lost(vec![900]), "one of one may be the one in a hundred");
        assert!(lost(vec![900; 3]), "three of three are not");
        let mut mostly = vec![100; 250];
        mostly.extend([900; 4]);
        assert!(!lost(mostly.clone()));
        mostly.extend([900; 12]);
        assert!(lost(mostly));
        // Without a baseline nothing is lost.
        assert!(!judged(p99, "+20%", &failovers([]), &failovers(vec![900; 9]), ahead).is_lost);
    }

    #[test]
    fn a_share_needs_as_many_renewals_as_would_prove_it() {
        let late = Subject::LateRenewals;
        let none = renewals(0, 0);
        assert_eq!(judged(late, "0.01%", &none, &renewals(29_959, 0), END).holds, None);
        assert_eq!(judged(late, "0.01%", &none, &renewals(29_960, 0), END).holds, Some(true));
        assert_eq!(judged(late, "0.01%", &none, &renewals(39_996, 4), END).holds, Some(true));
        assert_eq!(judged(late, "0.01%", &none, &renewals(39_995, 5), END).holds, Some(false));
        let before = renewals(99_990, 10);
        assert_eq!(judged(late, "+20%", &before, &renewals(99_989, 11), END).holds, Some(true));
        assert_eq!(judged(late, "+20%", &before, &renewals(99_987, 13), END).holds, Some(false));
        let unknown = judged(late, "+20%", &renewals(99_996, 4), &renewals(99_000, 1000), END);
        assert_eq!((unknown.holds, unknown.lacks), (None, (1, 0)));
    }

    #[test]
    fn a_share_is_lost_if_all_that_can_come_does_not_dilute_it() {
        let late = Subject::LateRenewals;
        let (before, after) = (renewals(60_000, 0), renewals(59_990, 10));
        let lost =
            |secs| judged(late, "0.01%", &before, &after, Ahead { longest: Nanos::from_secs(secs) }).is_lost;
        assert!(lost(0) && lost(30));
        assert!(!lost(60), "another minute in time would do");
    }

    #[test]
    fn late_renewals_that_increase_are_found_though_the_time_before_dilutes_them() {
        let limit = Subject::LateRenewals.limit("0.01%").expect("a limit");
        let judged = |settling: &Period, ahead| {
            let since = renewals(1_000_000, settling.late);
            let before = renewals(60_000, 0);
            let periods = Periods { before: &before, since: &since, settling: Some(settling) };
            judge(&[limit], periods, ahead).remove(0)
        };
        let leak = renewals(9_960, 40);
        let found = judged(&leak, END);
        assert_eq!(found.holds, Some(false));
        assert_eq!(found.line(), "late renewals while settling 0.4 % (before 0 %, limit 0.01 %)");
        assert_eq!(judged(&leak, Ahead { longest: Nanos(1) }).holds, Some(true), "it is judged at the end");
        assert_eq!(judged(&renewals(9_998, 2), END).holds, Some(true), "two of them may be chance");
    }

    #[test]
    fn what_only_grows_is_lost_as_soon_as_it_is_too_much() {
        let period =
            |secs, failed| Period { unavailable: Nanos::from_secs(secs), failed, ..Period::default() };
        let ahead = Ahead { longest: Nanos::from_secs(60) };
        let (before, after) = (period(9, 9), period(2, 1));
        assert!(!judged(Subject::Unavailable, "2s", &before, &after, ahead).is_lost);
        assert!(judged(Subject::Unavailable, "1s", &before, &after, ahead).is_lost);
        assert!(!judged(Subject::Failed, "1", &before, &after, ahead).is_lost);
        let found = judged(Subject::Failed, "0", &before, &after, ahead);
        assert_eq!((found.is_lost, found.line().as_str()), (true, "members failed 1 (before 9, limit 0)"));
    }

    #[test]
    fn members_that_failed_are_named_with_host_and_view() {
        let failed = |n: u64| Failed {
            name: format!("app-{n}"),
            incarnation: 10 + n,
            host: (n != 2).then_some(3),
            view: 20 + n,
            detector: (n == 1).then_some("deadbeat"),
        };
        let mut after = Period::default();
        after.count(0, 1, vec![failed(1), failed(2)]);
        let found = judged(Subject::Failed, "0", &Period::default(), &after, END);
        let names = "app-1 (11) on host 3 by view 21 (deadbeat), app-2 (12) by view 22";
        let line = "members failed 2 (before 0, limit 0)";
        assert_eq!(found.complaint(), Some(format!("{line}: {names}")));
        assert_eq!(found.line(), line, "consoles have room for the figures only");
        after.count(0, 0, (3..=90).map(failed).collect());
        let found = judged(Subject::Failed, "0", &Period::default(), &after, END);
        assert!(found.complaint().is_some_and(|why| why.ends_with(" by view 23, 87 more")), "{found:?}");
        assert_eq!(judged(Subject::Failed, "90", &Period::default(), &after, END).complaint(), None);
    }
}
