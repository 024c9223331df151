//! Alerts for operators, beside the reasons of bad health. A new alert is a function, a row in `ALERTS`
//! and a section in docs/alerts.md.

use crate::sampling::alerting::{Alerting, Cause, Rule};
use crate::sampling::data::Data;
use crate::sampling::sample::{Life, PathRow, ProcessRow, Sample};
use crate::sampling::trend::{CELL, CELLS};
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_profiles::Alert;
use std::sync::Arc;

/// Returns the subject and a clause for each current problem, without a full stop. The clause begins with
/// the subject and has the value and its limit: "node-7 had 0.4us of 20ms left at a renewal, limit 10 %".
type Check = fn(&Data, &Alert) -> Vec<(String, String)>;

/// For what a restart causes for a moment.
const HOLD: Nanos = Nanos::from_secs(5);
/// An alert lingers, so that a cause that comes and goes is one alert.
const LINGER: Nanos = Nanos::from_secs(5);
/// The same of one that counts over a minute, whose count goes about its limit while the cause lasts.
const LINGER_OF_COUNTS: Nanos = Nanos::from_secs(60);
/// A lease margin is thin if it was so in this many of the [`CELLS`] of the last minute: one delay is none.
const THIN_CELLS_MIN: usize = 3;
/// Margins of a process that was started less than this long before say nothing yet.
const STARTS_WITHIN: Nanos = Nanos::from_secs(10);

/// All of them, the worst first.
static ALERTS: [(Check, Rule); 8] = [
    (
        majority_at_risk,
        Rule {
            name: "coordinator majority",
            hold: HOLD,
            linger: LINGER,
            remedy: "start the coordinator again, or `obol coordinator replace` it",
            section: "ObolMajorityAtRisk",
        },
    ),
    (
        drift,
        Rule {
            name: "clock drift",
            hold: Nanos::ZERO,
            linger: LINGER,
            remedy: "repair or replace the clock of the member that `obol events` names",
            section: "ObolClockDrift",
        },
    ),
    (
        lease_margin,
        Rule {
            name: "lease margin",
            hold: Nanos::ZERO,
            linger: LINGER_OF_COUNTS,
            remedy: "give the processes cores and priority (`obol doctor`), or take the lease that `obol tune` finds",
            section: "ObolLeaseMarginThin",
        },
    ),
    (
        late_renewals,
        Rule {
            name: "late renewals",
            hold: Nanos::ZERO,
            linger: LINGER_OF_COUNTS,
            remedy: "`obol doctor` measures the pauses of the host, `obol tune` finds the lease that outlasts them",
            section: "ObolRenewalsLate",
        },
    ),
    (
        pulse_margin,
        Rule {
            name: "pulse margin",
            hold: HOLD,
            linger: LINGER,
            remedy: "see whether that host is overloaded or its network is, or lengthen pulse.timeout",
            section: "PulseMargin",
        },
    ),
    (
        stale_node,
        Rule {
            name: "stale node",
            hold: Nanos::ZERO,
            linger: LINGER,
            remedy: "`obol events` has its last steps; restart it if it does not continue",
            section: "ObolProcessStale",
        },
    ),
    (
        false_suspicions,
        Rule {
            name: "false suspicions",
            hold: Nanos::ZERO,
            linger: LINGER_OF_COUNTS,
            remedy: "lengthen heartbeat.period, or give the cluster cores and priority; `obol tune` finds the period",
            section: "ObolFalseSuspicions",
        },
    ),
    (
        void_drill,
        Rule {
            name: "void drill",
            hold: Nanos::ZERO,
            linger: LINGER,
            remedy: "run it again with more repetitions; its report says what is missing",
            section: "VoidDrill",
        },
    ),
];

impl Data {
    /// Adds the next sample.
    pub fn take(&mut self, sample: Arc<Sample>) {
        self.pass(&sample);
        self.sample = Some(sample);
        examine(self, true);
    }

    /// Ends a sequence of samples that were [passed](Self::pass) with the last of them, which is examined in full.
    pub fn end_with(&mut self, last: Arc<Sample>) {
        self.sample = Some(last);
        examine(self, false);
    }
}

/// Adds what the newest sample of the data shows. `holds` unless samples were skipped.
fn examine(data: &mut Data, holds: bool) {
    let Some((thresholds, at)) =
        data.sample.as_ref().and_then(|sample| Some((sample.thresholds?, sample.at)))
    else {
        data.alerting = Alerting::default();
        data.alerts.clear();
        return;
    };
    let each = |(place, (check, rule)): (usize, &'static (Check, Rule))| {
        let causes = check(data, &thresholds).into_iter();
        causes.map(move |(who, clause)| Cause { rule, place, who, clause })
    };
    let causes = ALERTS.iter().enumerate().flat_map(each).collect();
    data.alerting.take(causes, at, holds);
    data.alerts = data.alerting.raised().map(|one| (one.rule.name, one.clause.clone())).collect();
    data.drop_acknowledged();
}

/// One more failed coordinator may end every lease.
fn majority_at_risk(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let Some(view) = sample.view.as_ref() else { return Vec::new() };
    let acceptors = view.acceptors;
    let lives = |life| matches!(life, Life::Runs | Life::Frozen);
    // An old recording does not name those who decide; there, every coordinator counts.
    let decides = |name: &Name| view.deciders.is_empty() || view.deciders.contains(name);
    let of_them = |p: &&ProcessRow| p.kind == Kind::Coordinator && lives(p.life) && decides(&p.name);
    let run = sample.processes.iter().filter(of_them).count();
    // A lost majority is reported by the cluster's health already.
    let Some(spare) = crate::spare(acceptors, run) else { return Vec::new() };
    if run >= acceptors || spare >= thresholds.spare_coordinators as usize {
        return Vec::new();
    }
    let tolerance = match spare {
        0 => "one more failure ends every lease".to_owned(),
        n => format!("{n} more may fail"),
    };
    vec![(String::new(), format!("{run} of {acceptors} coordinators run: {tolerance}"))]
}

/// A clock exceeds the drift bound of the leases.
fn drift(data: &Data, _: &Alert) -> Vec<(String, String)> {
    let alarms = data.tracks.iter().filter_map(|(name, track)| {
        let n = track.in_minute(Counter::DriftAlarms)?;
        let clause =
            || format!("{name} has proved that a clock exceeds the drift bound: leases are not safe");
        (n > 0).then(|| (name.to_string(), clause()))
    });
    alarms.collect()
}

/// Leases are renewed so late that a short delay ends them.
fn lease_margin(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    // The margin of an earlier, shorter lease is not compared with a later, longer one.
    let Some(lease) = data.shortest_lease() else { return Vec::new() };
    let percent = u64::from(thresholds.margin_percent);
    let limit = Nanos(lease.0.saturating_mul(percent) / 100);
    let thin = data.tracks.iter().filter_map(|(name, track)| {
        let cells = track.thin_cells(limit, STARTS_WITHIN);
        let least = track.least().filter(|_| cells >= THIN_CELLS_MIN && track.life != Life::Left)?;
        let how = match least {
            Nanos::ZERO => format!("{name} renewed when its lease of {lease} had run out"),
            _ => format!("{name} had {least} of {lease} left at a renewal, limit {percent} %"),
        };
        Some((
            name.to_string(),
            format!("{how}, and as little in {cells} of the last {CELLS} spans of {CELL}"),
        ))
    });
    thin.collect()
}

/// Leases end before they are renewed.
fn late_renewals(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    let limit = u64::from(thresholds.late_renewals);
    let late = data.tracks.iter().filter_map(|(name, track)| {
        let failed = track.in_minute(Counter::RenewalsFailed)?;
        let n = track.in_minute(Counter::RenewalsLate)?.saturating_add(failed);
        let clause = || format!("{name} renewed late or not at all {n} times in a minute, limit {limit}");
        (n >= limit).then(|| (name.to_string(), clause()))
    });
    late.collect()
}

/// A host is nearly suspected. (A lost path, and a silent host, are reported by the cluster's health.)
fn pulse_margin(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let limit = u64::from(thresholds.margin_percent);
    let is_thin = |row: &&PathRow| !row.silent && row.margin_percent().is_some_and(|left| left < limit);
    let mut thin: Vec<&PathRow> = sample.paths.iter().filter(is_thin).collect();
    // The gap is the host's, whichever path.
    thin.dedup_by_key(|row| row.host);
    let clause = |row: &PathRow| {
        let gap = row.gap.unwrap_or(Nanos::ZERO);
        let host = format!("host {}", row.host);
        let clause =
            format!("{host} sent no pulse for {gap} of {} in the last second, limit {limit} %", row.timeout);
        (host, clause)
    };
    thin.into_iter().map(clause).collect()
}

/// A running process has memory that cannot be read consistently.
fn stale_node(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    let now = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
    let old = data.tracks.iter().filter(|(_, track)| track.life == Life::Runs).filter_map(|(name, track)| {
        let age = track.age(now);
        let limit = thresholds.stale_after;
        let clause = || format!("{name} was last read consistently {age} ago, limit {limit}");
        (age > limit).then(|| (name.to_string(), clause()))
    });
    old.collect()
}

/// A detector suspects live processes.
fn false_suspicions(data: &Data, thresholds: &Alert) -> Vec<(String, String)> {
    let limit = u64::from(thresholds.false_suspicions);
    let wrong = data.tracks.iter().filter_map(|(name, track)| {
        let n = track.in_minute(Counter::FalseSuspicions)?;
        let clause = || format!("{name} suspected living processes {n} times in a minute, limit {limit}");
        (n >= limit).then(|| (name.to_string(), clause()))
    });
    wrong.collect()
}

/// A drill has measured nothing.
fn void_drill(data: &Data, _: &Alert) -> Vec<(String, String)> {
    let last = data.marks.iter().rev().find_map(|mark| mark.drill.as_ref());
    let void = last.filter(|drill| drill.verdict.as_deref() == Some("void"));
    let clause = |name: &String| format!("drill {name} was void: too little was measured");
    void.map(|drill| (drill.name.clone(), clause(&drill.name))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use crate::annotations::DrillMark;
    use crate::reason::Fault;
    use crate::samples;
    use crate::sampling::alerting::{HISTORY_MAX, section};
    use crate::sampling::sample::MarkRow;
    use obol_membership::view::coordinator_name;

    const START: u64 = 3_600_000_000_000;

    /// The active alerts after twenty seconds in which every sample was changed like this.
    fn alerted(change: impl Fn(u64, &mut Sample)) -> Vec<&'static str> {
        let mut data = Data::default();
        for n in 0..80 {
            let mut sample = samples::healthy(Instant(START + n * 250_000_000));
            change(n, &mut sample);
            data.take(Arc::new(sample));
        }
        data.alerts.iter().map(|(name, _)| *name).collect()
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
            alerted(|n, sample| sample.processes[3].least = (n % 8 == 1).then_some(Nanos(1_900_000))),
            ["lease margin"]
        );
        assert_eq!(
            alerted(|n, sample| if n > 60 {
                sample.processes[3].lease = None;
            }),
            ["stale node"]
        );
        assert_eq!(alerted(|_, sample| sample.paths = samples::paths()), ["pulse margin"], "once for a host");
        let drill = |verdict: Option<&str>| {
            let drill = DrillMark { name: "freeze".to_owned(), verdict: verdict.map(str::to_owned) };
            MarkRow {
                at: Instant(START),
                text: String::new(),
                drill: Some(drill),
                rollout: None,
                acknowledged: None,
            }
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
                sample.processes[3].least = (n % 8 == 1 && n < 60).then_some(Nanos(least));
                if n >= 60 {
                    sample.view.as_mut().expect("a view").lease = Nanos::from_millis(160);
                }
            }
        };
        assert_eq!(alerted(lengthened(11_500_000)), [""; 0]);
        assert_eq!(alerted(lengthened(1_900_000)), ["lease margin"]);
    }

    #[test]
    fn what_is_counted_over_a_minute_is_an_alert_until_it_was_gone_for_another() {
        let mut data = Data::default();
        let mut seen = Vec::new();
        for n in 0..560 {
            let mut sample = samples::healthy(Instant(START + n * 250_000_000));
            sample.processes[3].counters[Counter::RenewalsLate as usize] += n.min(20);
            data.take(Arc::new(sample));
            seen.push(!data.alerts.is_empty());
        }
        // The last one comes after 5 s, and is counted for a minute.
        assert!(seen[25] && seen[200] && seen[490] && !seen[520], "{seen:?}");
        let ended = data.alerting.history.front().expect("it is kept");
        assert_eq!((ended.rule.name, ended.who.is_empty()), ("late renewals", false));
    }

    #[test]
    fn every_link_leads_to_a_section() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/alerts.md");
        let text = std::fs::read_to_string(path).expect("it is there");
        let all = [Health::Degraded, Health::Unknown, Health::Unreachable, Health::Unavailable].map(section);
        let of_faults = [Fault::Gateway(None), Fault::Pulses, Fault::Ended].map(|fault| fault.section());
        let of_faults = of_faults.into_iter().flatten().chain(["ObolProcessFrozen", "ObolFailover"]);
        for section in ALERTS.iter().map(|(_, rule)| rule.section).chain(all).chain(of_faults) {
            assert!(text.contains(&format!("\n## {section}\n")), "{section}");
        }
    }

    #[test]
    fn one_thin_margin_and_those_of_a_process_that_starts_are_no_alert() {
        let thin = |when: fn(u64) -> bool| {
            alerted(move |n, sample| {
                sample.processes[3].least = when(n).then_some(Nanos(0));
            })
        };
        assert_eq!(thin(|n| n == 60), [""; 0]);
        assert_eq!(thin(|n| n % 8 == 1), ["lease margin"]);
        let started = |n: u64, sample: &mut Sample| {
            // It is another process from then on.
            if n >= 30 {
                sample.processes[3].started += 1;
                sample.processes[3].least = (n < 65).then_some(Nanos(0));
            }
        };
        assert_eq!(alerted(started), [""; 0]);
    }

    #[test]
    fn a_cause_that_comes_and_goes_is_one_alert_and_a_short_one_is_none() {
        let mut alerting = Alerting::default();
        let at = |ms: u64| Instant(START + ms * 1_000_000);
        let cause = |place: usize| {
            let rule = &ALERTS[place].1;
            vec![Cause { rule, place, who: "node-1".to_owned(), clause: "why".to_owned() }]
        };
        let raised = |alerting: &Alerting| alerting.raised().count();
        // The first rule holds for 5 s.
        alerting.take(cause(0), at(0), true);
        alerting.take(cause(0), at(4900), true);
        assert_eq!(raised(&alerting), 0);
        alerting.take(Vec::new(), at(5000), true);
        alerting.take(cause(0), at(5100), true);
        assert_eq!((raised(&alerting), alerting.history.len()), (0, 0), "it was interrupted");
        alerting.take(cause(0), at(10_100), true);
        assert_eq!(alerting.raised().next().map(|one| one.since), Some(at(5100)));
        for n in 0..20 {
            alerting.take(if n % 2 == 0 { cause(0) } else { Vec::new() }, at(11_000 + n * 2000), true);
            assert_eq!((raised(&alerting), alerting.history.len()), (1, 0), "{n}");
        }
        alerting.take(Vec::new(), at(60_000), true);
        assert_eq!((raised(&alerting), alerting.history.len()), (0, 1));
        for n in 0..3 * HISTORY_MAX as u64 {
            alerting.take(cause(1), at(100_000 + n * 20_000), true);
            alerting.take(Vec::new(), at(110_000 + n * 20_000), true);
        }
        assert_eq!(alerting.history.len(), HISTORY_MAX);
    }

    #[test]
    fn every_alert_has_its_section() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/alerts.md");
        let page = std::fs::read_to_string(page).expect("it is there");
        for (_, rule) in &ALERTS {
            let head = format!("\n## {}\n", rule.section);
            assert!(page.contains(&head), "docs/alerts.md has no section {}", rule.section);
            let own =
                page.split(&head).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
            assert!(
                own.contains(&format!("*{}*", rule.name)),
                "{} is not called *{}*",
                rule.section,
                rule.name
            );
        }
    }
}
