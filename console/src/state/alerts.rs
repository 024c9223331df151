//! Alerts for operators, beside the reasons of bad health. A new alert is a function and a row in
//! [`ALERTS`].

use crate::poll::sample::{Life, PathRow, ProcessRow};
use crate::state::data::Data;
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_profiles::Alert;

/// Returns a clause for each current problem, without a full stop. It begins with the subject and
/// has the value and its limit: "node-7 had 0.4us of 20ms left at a renewal of the last minute,
/// limit 10 %".
type Check = fn(&Data, &Alert) -> Vec<String>;

/// All of them, the worst first. A name is a noun phrase in lower case, without an article.
const ALERTS: [(&str, Check); 8] = [
    ("coordinator majority", majority_at_risk),
    ("clock drift", drift),
    ("lease margin", lease_margin),
    ("late renewals", late_renewals),
    ("pulse margin", pulse_margin),
    ("stale node", stale_node),
    ("false suspicions", false_suspicions),
    ("void drill", void_drill),
];

/// All active alerts: name and clause.
pub(crate) fn all(data: &Data) -> Vec<(&'static str, String)> {
    let Some(thresholds) = data.sample.as_ref().and_then(|sample| sample.thresholds) else {
        return Vec::new();
    };
    let each = |(name, check): (&'static str, Check)| {
        check(data, &thresholds).into_iter().map(move |clause| (name, clause))
    };
    ALERTS.into_iter().flat_map(each).collect()
}

/// One more failed coordinator may end every lease.
fn majority_at_risk(data: &Data, thresholds: &Alert) -> Vec<String> {
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let Some(view) = sample.view.as_ref() else { return Vec::new() };
    let acceptors = view.acceptors;
    let lives = |life| matches!(life, Life::Runs | Life::Frozen);
    // An old recording does not name those who decide; there, every coordinator counts.
    let decides = |name: &Name| view.deciders.is_empty() || view.deciders.contains(name);
    let of_them = |p: &&ProcessRow| p.kind == Kind::Coordinator && lives(p.life) && decides(&p.name);
    let run = sample.processes.iter().filter(of_them).count();
    // A lost majority is reported by the cluster's health already.
    let Some(spare) = obol_observe::spare(acceptors, run) else { return Vec::new() };
    if run >= acceptors || spare >= thresholds.spare_coordinators as usize {
        return Vec::new();
    }
    let tolerance = match spare {
        0 => "one more failure ends every lease".to_owned(),
        n => format!("{n} more may fail"),
    };
    vec![format!("{run} of {acceptors} coordinators run: {tolerance}")]
}

/// A clock exceeds the drift bound of the leases.
fn drift(data: &Data, _: &Alert) -> Vec<String> {
    let alarms = data.tracks.iter().filter_map(|(name, track)| {
        let n = track.in_minute(Counter::DriftAlarms)?;
        (n > 0)
            .then(|| format!("{name} has proved that a clock exceeds the drift bound: leases are not safe"))
    });
    alarms.collect()
}

/// Leases are renewed so late that a short delay ends them.
fn lease_margin(data: &Data, thresholds: &Alert) -> Vec<String> {
    // The margin of an earlier, shorter lease is not compared with a later, longer one.
    let Some(lease) = data.shortest_lease() else { return Vec::new() };
    let percent = u64::from(thresholds.margin_percent);
    let limit = Nanos(lease.0.saturating_mul(percent) / 100);
    let thin = data.tracks.iter().filter_map(|(name, track)| {
        let least = track.least().filter(|least| *least < limit && track.life != Life::Left)?;
        Some(format!("{name} had {least} of {lease} left at a renewal of the last minute, limit {percent} %"))
    });
    thin.collect()
}

/// Leases end before they are renewed.
fn late_renewals(data: &Data, thresholds: &Alert) -> Vec<String> {
    let limit = u64::from(thresholds.late_renewals);
    let late = data.tracks.iter().filter_map(|(name, track)| {
        let failed = track.in_minute(Counter::RenewalsFailed)?;
        let n = track.in_minute(Counter::RenewalsLate)?.saturating_add(failed);
        (n >= limit)
            .then(|| format!("{name} renewed late or not at all {n} times in a minute, limit {limit}"))
    });
    late.collect()
}

/// A host is nearly suspected. (A lost path, and a silent host, are reported by the cluster's health.)
fn pulse_margin(data: &Data, thresholds: &Alert) -> Vec<String> {
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let limit = u64::from(thresholds.margin_percent);
    let is_thin = |row: &&PathRow| !row.silent && row.margin_percent().is_some_and(|left| left < limit);
    let mut thin: Vec<&PathRow> = sample.paths.iter().filter(is_thin).collect();
    // The gap is the host's, whichever path.
    thin.dedup_by_key(|row| row.host);
    let clause = |row: &PathRow| {
        let gap = row.gap.unwrap_or(Nanos::ZERO);
        format!(
            "host {} sent no pulse for {gap} of {} in the last second, limit {limit} %",
            row.host, row.timeout
        )
    };
    thin.into_iter().map(clause).collect()
}

/// A running process has memory that cannot be read consistently.
fn stale_node(data: &Data, thresholds: &Alert) -> Vec<String> {
    let now = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
    let old = data.tracks.iter().filter(|(_, track)| track.life == Life::Runs).filter_map(|(name, track)| {
        let age = track.age(now);
        let limit = thresholds.stale_after;
        (age > limit).then(|| format!("{name} was last read consistently {age} ago, limit {limit}"))
    });
    old.collect()
}

/// A detector suspects live processes.
fn false_suspicions(data: &Data, thresholds: &Alert) -> Vec<String> {
    let limit = u64::from(thresholds.false_suspicions);
    let wrong = data.tracks.iter().filter_map(|(name, track)| {
        let n = track.in_minute(Counter::FalseSuspicions)?;
        (n >= limit)
            .then(|| format!("{name} suspected living processes {n} times in a minute, limit {limit}"))
    });
    wrong.collect()
}

/// A drill has measured nothing.
fn void_drill(data: &Data, _: &Alert) -> Vec<String> {
    let last = data.marks.iter().rev().find_map(|mark| mark.drill.as_ref());
    let void = last.filter(|drill| drill.verdict.as_deref() == Some("void"));
    void.map(|drill| format!("drill {} was void: too little was measured", drill.name)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::sample::{MarkRow, Sample};
    use crate::samples;
    use obol_membership::view::coordinator_name;
    use obol_observe::annotations::DrillMark;
    use std::sync::Arc;

    const START: u64 = 3_600_000_000_000;

    /// The active alerts after ten seconds in which every sample was changed like this.
    fn alerted(change: impl Fn(u64, &mut Sample)) -> Vec<&'static str> {
        let mut data = Data::default();
        for n in 0..40 {
            let mut sample = samples::healthy(Instant(START + n * 250_000_000));
            change(n, &mut sample);
            data.take(Arc::new(sample));
        }
        all(&data).into_iter().map(|(name, _)| name).collect()
    }

    fn count(counter: Counter, by: u64) -> impl Fn(u64, &mut Sample) {
        move |n, sample| sample.processes[3].counters[counter as usize] += n * by
    }

    #[test]
    fn a_healthy_cluster_has_no_alerts() {
        assert_eq!(alerted(|_, _| ()), [""; 0]);
    }

    #[test]
    fn each_alert_is_raised_by_its_cause_and_by_no_other() {
        let first_coordinator_down = |_: u64, sample: &mut Sample| sample.processes[0].life = Life::Down;
        assert_eq!(alerted(first_coordinator_down), ["coordinator majority"]);
        // A spare does not decide.
        let spare_instead = |_: u64, sample: &mut Sample| {
            let spare = ProcessRow { name: coordinator_name(4), ..sample.processes[0].clone() };
            sample.processes[0].life = Life::Down;
            sample.processes.push(spare);
        };
        assert_eq!(alerted(spare_instead), ["coordinator majority"]);
        assert_eq!(alerted(count(Counter::DriftAlarms, 1)), ["clock drift"]);
        assert_eq!(alerted(count(Counter::RenewalsLate, 1)), ["late renewals"]);
        assert_eq!(alerted(count(Counter::RenewalsFailed, 1)), ["late renewals"]);
        assert_eq!(alerted(count(Counter::FalseSuspicions, 1)), ["false suspicions"]);
        assert_eq!(
            alerted(|n, sample| sample.processes[3].least = (n == 9).then_some(Nanos(1_900_000))),
            ["lease margin"]
        );
        assert_eq!(
            alerted(|n, sample| if n > 30 {
                sample.processes[3].lease = None;
            }),
            ["stale node"]
        );
        assert_eq!(alerted(|_, sample| sample.paths = samples::paths()), ["pulse margin"], "once for a host");
        let drill = |verdict: Option<&str>| {
            let drill = DrillMark { name: "freeze".to_owned(), verdict: verdict.map(str::to_owned) };
            MarkRow { at: Instant(START), text: String::new(), drill: Some(drill), rollout: None }
        };
        let (void, passed) = (drill(Some("void")), drill(Some("passed")));
        assert_eq!(
            alerted(|n, sample| if n == 5 {
                sample.marks.push(void.clone());
            }),
            ["void drill"]
        );
        let recovered = |n, sample: &mut Sample| match n {
            5 => sample.marks.push(void.clone()),
            6 => sample.marks.push(passed.clone()),
            _ => {}
        };
        assert_eq!(alerted(recovered), [""; 0]);
    }

    #[test]
    fn a_margin_of_shorter_leases_is_no_alert_after_they_were_lengthened() {
        let lengthened = |least: u64| {
            move |n: u64, sample: &mut Sample| {
                sample.processes[3].least = (n == 9).then_some(Nanos(least));
                if n >= 10 {
                    sample.view.as_mut().expect("a view").lease = Nanos::from_millis(160);
                }
            }
        };
        assert_eq!(alerted(lengthened(11_500_000)), [""; 0]);
        assert_eq!(alerted(lengthened(1_900_000)), ["lease margin"]);
    }

    #[test]
    fn problems_older_than_a_minute_raise_no_alert() {
        let mut data = Data::default();
        let mut seen = Vec::new();
        for n in 0..400 {
            let mut sample = samples::healthy(Instant(START + n * 250_000_000));
            sample.processes[3].counters[Counter::RenewalsLate as usize] += n.min(20);
            data.take(Arc::new(sample));
            seen.push(!all(&data).is_empty());
        }
        assert!(seen[25] && seen[200] && !seen[399], "{seen:?}");
    }
}
