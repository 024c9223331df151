//! What happens in a cluster, as events for hooks: what the console derives from its samples, compared
//! from one sample to the next. Nothing is derived here that a screen does not show.

mod current;
pub mod event;
pub mod incident;

use crate::annotations::RolloutStep;
use crate::calendar::{iso, unix_now};
use crate::failovers::{Failover, PHASES};
use crate::names::{hostname, phrase};
use crate::sampling::Update;
use crate::sampling::alerting::Raised;
use crate::sampling::data::Data;
use crate::sampling::live::Live;
use crate::sampling::sample::{MarkRow, Sample};
use crate::{Health, failovers};
use event::{Event, Kind, Severity, State};
use incident::Incident;
use obol_fabric::{Instant, Name, Nanos, ViewId};
use obol_node::ClusterLocation;
use obol_node::network::print_id;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Delay from a failover's first notice to its report: by then its stamps are there, and the view that
/// says who failed.
const SETTLE: Nanos = Nanos::from_secs(1);
/// A worse health is reported when it was not better for this long, and a better one when it was not worse for
/// that long: a cluster that changes between two is reported once.
const WORSE_AFTER: Nanos = Nanos::from_secs(1);
/// A health is reported as worse if it was so in this share of the time after which a better one is reported.
const OFTEN_PERCENT: usize = 60;
const BETTER_AFTER: Nanos = Nanos::from_secs(10);
/// Reported failovers that are kept.
const REPORTED_MAX: usize = 4096;

/// Polls a cluster for events.
pub struct Incidents {
    live: Live,
    derive: Derive,
}

impl Incidents {
    /// Of a cluster, which may come later.
    pub fn new(place: &ClusterLocation) -> Self {
        Self { live: Live::new(place.clone()), derive: Derive::new(place.cluster, hostname()) }
    }

    /// Reads the cluster once. The first reading reports only what is wrong at that time.
    pub fn poll(&mut self) -> Vec<Event> {
        match self.live.poll(true) {
            Update::Sample(sample) => self.derive.take(&Arc::new(*sample)),
            Update::Lost { why } => self.derive.lost(&why, unix_now()),
        }
    }
}

/// How bad a health is. One that is not known may be an outage, and may be none.
const fn badness(health: Health) -> u8 {
    match health {
        Health::Healthy => 0,
        Health::Degraded => 1,
        Health::Unknown => 2,
        Health::Unavailable => 3,
        Health::Unreachable => 4,
    }
}

/// The health at one moment, with its reasons.
struct HealthAt {
    at: Instant,
    health: Health,
    reasons: Vec<String>,
}

/// The health lately, to see what of it lasts.
#[derive(Default)]
struct Lately(VecDeque<HealthAt>);

impl Lately {
    /// Adds a sample. Returns what is to be reported after `reported`, with its reasons.
    fn take(&mut self, sample: &Sample, reported: Health) -> Option<(Health, Vec<String>)> {
        let Self(all) = self;
        all.push_back(HealthAt { at: sample.at, health: sample.health, reasons: sample.reasons.clone() });
        // The oldest one is what it was when the time began.
        while all.get(1).is_some_and(|one| sample.at.since(one.at) >= BETTER_AFTER) {
            all.pop_front();
        }
        let lasts = |span: Nanos| {
            let begin = all.iter().rposition(|one| sample.at.since(one.at) >= span)?;
            Some(all.range(begin..))
        };
        let rank = |one: &&HealthAt| badness(one.health);
        let known = badness(reported);
        let worse = lasts(WORSE_AFTER).and_then(|all| all.rev().min_by_key(rank));
        let better = lasts(BETTER_AFTER).and_then(|all| all.rev().max_by_key(rank));
        // One that comes and goes, such as that of a crash loop, is reported if it was so most of the time.
        let often = lasts(BETTER_AFTER).and_then(|all| {
            let is_worse = |one: &&HealthAt| rank(one) > known;
            let (times, of) = (all.clone().filter(is_worse).count(), all.len());
            all.rev().find(is_worse).filter(|_| times * 100 >= of * OFTEN_PERCENT)
        });
        let worse = worse.filter(|one| rank(one) > known).or(often);
        // By now it may be better than the worst of that time, which is then not reported any more.
        let newest = all.back()?;
        let better = better.filter(|one| rank(one) < known && rank(one) == rank(&newest)).map(|_| newest);
        let last = worse.or(better)?;
        Some((last.health, last.reasons.clone()))
    }
}

/// An alert by its name, and whom it is about.
type AlertKey = (&'static str, String);

/// Derives events from samples.
struct Derive {
    cluster: Name,
    host: String,
    data: Data,
    /// What was reported of the cluster that is there now.
    known: Option<Known>,
    /// Whether it was reported that the cluster cannot be read.
    lost: bool,
}

/// What was reported.
struct Known {
    /// Annotations and failovers of before are not reported.
    began: Instant,
    health: Health,
    lately: Lately,
    view: ViewId,
    alerts: BTreeMap<AlertKey, Raised>,
    failovers: BTreeSet<ViewId>,
    /// Until when flight recorders may complete a failover.
    unsettled: Instant,
}

impl Derive {
    fn new(cluster: Name, host: String) -> Self {
        Self { cluster, host, data: Data::default(), known: None, lost: false }
    }

    fn event(&self, kind: Kind, unix: u64, id: &str, title: String) -> Event {
        let identity = self.data.sample.as_ref().and_then(|sample| sample.cluster_id);
        let identity = identity.map_or("unknown".to_owned(), print_id);
        Event {
            id: format!("{identity}-{}-{id}", kind.name()),
            kind,
            unix,
            cluster: self.cluster.to_string(),
            identity,
            host: self.host.clone(),
            severity: Severity::Info,
            state: State::Event,
            subject: String::new(),
            title,
            details: Map::new(),
        }
    }

    /// The cluster cannot be read.
    fn lost(&mut self, why: &str, unix: u64) -> Vec<Event> {
        // One that was never there is awaited.
        if self.lost || self.known.is_none() {
            return Vec::new();
        }
        self.lost = true;
        let event =
            self.event(Kind::Health, unix, &format!("{unix}"), format!("the cluster cannot be read: {why}"));
        vec![Event {
            severity: Severity::Critical,
            state: State::Firing,
            subject: "unreachable".to_owned(),
            ..event
        }]
    }

    fn take(&mut self, sample: &Arc<Sample>) -> Vec<Event> {
        if self.data.is_of_another_cluster(sample) {
            self.known = None;
        }
        self.data.take(Arc::clone(sample));
        let was_lost = std::mem::take(&mut self.lost);
        let is_first = self.known.is_none();
        let view = sample.view.as_ref().map_or(ViewId::GENESIS, |view| view.id);
        let mut known = self.known.take().unwrap_or_else(|| Known {
            began: sample.at,
            health: Health::Healthy,
            lately: Lately::default(),
            view,
            alerts: BTreeMap::new(),
            failovers: BTreeSet::new(),
            unsettled: Instant::ZERO,
        });
        if was_lost {
            // It is reported how it is now, also if it is healthy.
            known.lately = Lately::default();
        }
        let mut events: Vec<Event> = self.views(&mut known, sample).into_iter().collect();
        events.extend(self.failovers(&mut known, sample, is_first));
        events.extend(self.health(&mut known, sample, was_lost));
        events.extend(self.alerts(&mut known, sample));
        let is_event = |mark: &&MarkRow| mark.at >= known.began && !mark.is_progress();
        let marks = sample.marks.iter().filter(is_event);
        events.extend(marks.map(|mark| self.mark(mark, sample)));
        self.known = Some(known);
        events
    }

    fn health(&self, known: &mut Known, sample: &Sample, is_back: bool) -> Option<Event> {
        let lasting = known.lately.take(sample, known.health);
        let (health, reasons) =
            if is_back { Some((sample.health, sample.reasons.clone())) } else { lasting }?;
        known.health = health;
        let (name, is_healthy) = (health.name(), health == Health::Healthy);
        let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        let event = self.event(
            Kind::Health,
            sample.unix,
            &sample.unix.to_string(),
            format!("the cluster is {name}{why}"),
        );
        Some(Event {
            severity: match health {
                Health::Healthy => Severity::Info,
                Health::Degraded | Health::Unknown => Severity::Warning,
                Health::Unavailable | Health::Unreachable => Severity::Critical,
            },
            state: if is_healthy { State::Resolved } else { State::Firing },
            subject: name.to_owned(),
            details: details([
                ("health", json!(name)),
                ("reasons", json!(reasons)),
                ("incidents", json!(self.incidents(sample))),
            ]),
            ..event
        })
    }

    /// What is wrong, for receivers.
    fn incidents(&self, sample: &Sample) -> Vec<Value> {
        let all = self.data.incidents().into_iter();
        all.map(|one| incident_json(&one, sample)).collect()
    }

    fn alerts(&self, known: &mut Known, sample: &Sample) -> Vec<Event> {
        let key = |one: &Raised| (one.rule.name, one.who.clone());
        let now: BTreeMap<AlertKey, Raised> =
            self.data.alerting.raised().map(|one| (key(one), one.clone())).collect();
        let event = |one: &Raised, state: State| {
            let (rule, about, clause) = (one.rule, &one.who, &one.clause);
            let (name, since) = (rule.name, sample.unix_at(one.since));
            let subject = about.replace(' ', "-");
            let id = format!("{}-{subject}-{}-{}", name.replace(' ', "-"), sample.unix, state.name());
            let title = match state {
                State::Resolved => format!("{name}: no longer: {clause}"),
                _ => format!("{name}: {clause}"),
            };
            let event = self.event(Kind::Alert, sample.unix, &id, title);
            let severity = match (state, name) {
                (State::Resolved, _) => Severity::Info,
                (_, "clock drift") => Severity::Critical,
                _ => Severity::Warning,
            };
            let details = details([
                ("alert", json!(name)),
                ("process", json!(about)),
                ("clause", json!(clause)),
                ("since", json!(iso(since))),
                ("remedy", json!(rule.remedy)),
                ("runbook", json!(incident::runbook(rule.section))),
            ]);
            Event { severity, state, subject: name.to_owned(), details, ..event }
        };
        let before = std::mem::replace(&mut known.alerts, now);
        let begun = known.alerts.iter().filter(|(key, _)| !before.contains_key(*key));
        let over = before.iter().filter(|(key, _)| !known.alerts.contains_key(*key));
        let begun = begun.map(|(_, one)| event(one, State::Firing));
        begun.chain(over.map(|(_, one)| event(one, State::Resolved))).collect()
    }

    fn views(&self, known: &mut Known, sample: &Sample) -> Option<Event> {
        let view = sample.view.as_ref().filter(|view| view.id > known.view)?;
        let skipped = view.id.0 - known.view.0 - 1;
        known.view = view.id;
        let causes: Vec<String> = view
            .changes
            .iter()
            .map(|change| phrase(&change.change(), view.lease, |who| self.data.who(who)))
            .collect();
        let more = if skipped > 0 { format!(" (after {skipped} more)") } else { String::new() };
        let title = format!("view {}{more}: {}", view.id, causes.join("; "));
        let event = self.event(Kind::View, sample.unix, &view.id.to_string(), title);
        let details = details([
            ("view", json!(view.id)),
            ("base", json!(view.base)),
            ("members", json!(view.members)),
            ("skipped", json!(skipped)),
            ("leader", json!(sample.leader)),
            ("causes", json!(causes)),
        ]);
        Some(Event { details, ..event })
    }

    fn failovers(&self, known: &mut Known, sample: &Sample, is_first: bool) -> Vec<Event> {
        if !sample.events.is_empty() {
            known.unsettled = sample.at + SETTLE + SETTLE;
        }
        if sample.at > known.unsettled && !is_first {
            return Vec::new();
        }
        let mut events = Vec::new();
        for failover in self.data.failovers() {
            let is_over = sample.at.since(failover.began) >= SETTLE;
            if failover.began < known.began || !is_over || !known.failovers.insert(failover.view) {
                continue;
            }
            events.push(self.failover(&failover, sample));
        }
        while known.failovers.len() > REPORTED_MAX {
            known.failovers.pop_first();
        }
        events
    }

    fn failover(&self, failover: &Failover, sample: &Sample) -> Event {
        let dead = |dead: &failovers::Dead| {
            let reason = dead.reason.map_or(String::new(), |reason| format!(" ({})", reason.name()));
            format!("{}{reason}", self.data.who(dead.who))
        };
        let names: Vec<String> = failover.dead.iter().map(dead).collect();
        let total = failover.total();
        let took = total.map_or("some stamps are missing".to_owned(), |total| {
            format!("survivors were active after {total}")
        });
        let title = format!("{} failed; view {} without it: {took}", names.join(", "), failover.view);
        let unix = sample.unix_at(failover.began);
        let event = self.event(Kind::Failover, unix, &failover.view.to_string(), title);
        let phases = PHASES.iter().zip(failover.phases());
        let phases: Map<String, Value> =
            phases.filter_map(|(name, span)| Some(((*name).to_owned(), json!(span?)))).collect();
        let dead: Vec<Value> = failover
            .dead
            .iter()
            .map(|dead| {
                json!({
                    "who": self.data.who(dead.who),
                    "incarnation": dead.who,
                    "reported_by": self.data.accuser(dead),
                    "detector": dead.reason.map(|reason| reason.name()),
                })
            })
            .collect();
        let mut details = details([
            ("view", json!(failover.view)),
            ("decider", json!(failover.decider)),
            ("dead", json!(dead)),
            ("phases_ns", json!(phases)),
        ]);
        if let Some(total) = total {
            details.insert("total_ns".to_owned(), json!(total));
        }
        let subject = names.first().cloned().unwrap_or_default();
        Event { severity: Severity::Warning, subject, details, ..event }
    }

    fn mark(&self, mark: &MarkRow, sample: &Sample) -> Event {
        let (unix, id) = (sample.unix_at(mark.at), mark.at.0.to_string());
        let verdict = |verdict: Option<&str>| match verdict {
            None => (Severity::Info, State::Firing),
            Some("passed") => (Severity::Info, State::Resolved),
            Some(_) => (Severity::Warning, State::Resolved),
        };
        if let Some(drill) = &mark.drill {
            let event = self.event(Kind::Drill, unix, &id, mark.text.clone());
            let (severity, state) = verdict(drill.verdict.as_deref());
            let details = details([("drill", json!(drill.name)), ("verdict", json!(drill.verdict))]);
            return Event { severity, state, subject: drill.name.clone(), details, ..event };
        }
        let Some(rollout) = &mark.rollout else {
            return self.event(Kind::Mark, unix, &id, mark.text.clone());
        };
        let ended = (rollout.step == RolloutStep::Over).then_some(rollout.phase.as_str());
        let why =
            if rollout.wrong.is_empty() { String::new() } else { format!(": {}", rollout.wrong.join("; ")) };
        let title = match ended {
            None => format!("{} begins", mark.text),
            Some(_) => format!("{}{why}", mark.text),
        };
        let event = self.event(Kind::Rollout, unix, &id, title);
        let (severity, state) = verdict(ended);
        let details = details([
            ("rollout", json!(rollout.name)),
            ("verdict", json!(ended)),
            ("reasons", json!(rollout.wrong)),
            ("figures", json!(rollout.compared)),
        ]);
        Event { severity, state, subject: rollout.name.clone(), details, ..event }
    }
}

/// An incident for scripts.
pub fn incident_json(one: &Incident, sample: &Sample) -> Value {
    json!({
        "id": one.id,
        "sentence": one.sentence(sample),
        "since": iso(sample.unix_at(one.since)),
        "over": one.is_over.then(|| iso(sample.unix_at(one.last))),
        "names": one.names,
        "remedy": one.remedy,
        "runbook": one.runbook(),
        "acknowledged_by": one.acknowledged,
    })
}

fn details<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{DrillMark, Mark, RolloutMark};
    use crate::samples;
    use crate::sampling::sample::{ChangeRow, EventRow, NameRow};
    use obol_fabric::Incarnation;
    use obol_membership::Reason;
    use obol_membership::metrics::Counter;
    use obol_membership::recorder::EventKind;

    const START: u64 = 3_600_000_000_000;
    const STEP: u64 = 250_000_000;

    /// The events of samples that were changed like this.
    fn events(samples: u64, change: impl Fn(u64, &mut Sample)) -> Vec<Event> {
        let mut derive = Derive::new(samples::name("default"), "web-1".to_owned());
        let each = |n| {
            let mut sample = samples::healthy(Instant(START + n * STEP));
            sample.events.clear();
            change(n, &mut sample);
            derive.take(&Arc::new(sample))
        };
        (0..samples).flat_map(each).collect()
    }

    fn titles(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.title.as_str()).collect()
    }

    #[test]
    fn a_healthy_cluster_has_no_events() {
        assert_eq!(titles(&events(40, |_, _| ())), [""; 0]);
    }

    #[test]
    fn an_alert_begins_and_ends_once() {
        let found = events(560, |n, sample| {
            sample.processes[3].counters[Counter::RenewalsLate as usize] += n.min(20);
        });
        let states: Vec<State> = found.iter().map(|event| event.state).collect();
        assert_eq!(states, [State::Firing, State::Resolved], "{:?}", titles(&found));
        assert!(found.iter().all(|event| event.kind == Kind::Alert && event.subject == "late renewals"));
        assert_ne!(found[0].id, found[1].id);
        // As `obol status` has it beside a reason.
        let since = found[0].details["since"].as_str().expect("a text");
        assert!(since.len() == "2026-11-25T02:14:07.120394Z".len() && since.ends_with('Z'), "{since}");
    }

    #[test]
    fn health_is_reported_when_it_changes() {
        let found = events(90, |n, sample| {
            if (3..10).contains(&n) {
                sample.health = Health::Unavailable;
                sample.reasons = vec!["no majority".to_owned()];
            }
        });
        assert_eq!(titles(&found), ["the cluster is unavailable: no majority", "the cluster is healthy"]);
        assert_eq!((found[0].severity, found[1].state), (Severity::Critical, State::Resolved));
    }

    #[test]
    fn a_health_that_changes_to_and_fro_is_reported_once() {
        let flaps = |every: u64| {
            events(400, |n, sample| {
                if n < 200 && n % every < every / 2 {
                    sample.health = Health::Unavailable;
                    sample.reasons = vec!["every lease has ended".to_owned()];
                } else if n < 200 {
                    sample.health = Health::Degraded;
                    sample.reasons = vec!["app-1 has no active lease".to_owned()];
                }
            })
        };
        // Each lasts for half a second: it was never better than degraded.
        let short = flaps(4);
        let degraded = "the cluster is degraded: app-1 has no active lease";
        assert_eq!(titles(&short), [degraded, "the cluster is healthy"]);
        // Two seconds of an outage are one, and it is over once.
        let long = flaps(16);
        let ended = "the cluster is unavailable: every lease has ended";
        assert_eq!(titles(&long), [ended, "the cluster is healthy"]);
        assert_eq!(
            titles(&events(90, |n, sample| {
                if n % 20 == 0 {
                    sample.health = Health::Degraded;
                    sample.reasons = vec!["app-1 has no active lease".to_owned()];
                }
            })),
            [""; 0],
            "moments are not reported"
        );
    }

    #[test]
    fn a_health_that_comes_and_goes_is_reported_if_it_is_bad_most_of_the_time() {
        // Never for a second, as while a pod crashes and starts again.
        let loops = |bad: u64| {
            events(200, |n, sample| {
                if n < 120 && n % 4 < bad {
                    sample.health = Health::Degraded;
                    sample.reasons = vec!["shop-7d9f-bbbbb failed".to_owned()];
                }
            })
        };
        let degraded = "the cluster is degraded: shop-7d9f-bbbbb failed";
        assert_eq!(titles(&loops(3)), [degraded, "the cluster is healthy"]);
        assert_eq!(titles(&loops(1)), [""; 0]);
    }

    #[test]
    fn a_cluster_that_is_healthy_again_is_not_called_degraded_for_what_was() {
        let found = events(120, |n, sample| match n {
            3..23 => {
                sample.health = Health::Unavailable;
                sample.reasons = vec!["no majority".to_owned()];
            }
            23..28 => {
                sample.health = Health::Degraded;
                sample.reasons = vec!["coord-2 not a member".to_owned()];
            }
            _ => {}
        });
        assert_eq!(titles(&found), ["the cluster is unavailable: no majority", "the cluster is healthy"]);
        // One that stays degraded is so for what is the reason now.
        let found = events(100, |n, sample| match n {
            3..23 => sample.health = Health::Unavailable,
            23.. => {
                sample.health = Health::Degraded;
                sample.reasons = vec![if n < 40 { "coord-2 down" } else { "coord-3 down" }.to_owned()];
            }
            _ => {}
        });
        assert_eq!(titles(&found), ["the cluster is unavailable", "the cluster is degraded: coord-3 down"]);
    }

    #[test]
    fn who_joins_has_a_name_also_without_a_row() {
        let found = events(4, |n, sample| {
            let view = sample.view.as_mut().expect("a view");
            if n >= 2 {
                view.id = ViewId(view.id.0 + 1);
                view.changes = vec![ChangeRow::Joined { who: Incarnation(99) }];
                sample.names = vec![NameRow { who: Incarnation(99), name: samples::name("web-9") }];
            }
        });
        assert!(found[0].title.ends_with(": web-9 (99) joined"), "{}", found[0].title);
    }

    #[test]
    fn a_rollout_begins_and_has_a_verdict_with_reasons() {
        let mark = |n: u64, step, phase: &str, wrong: &[&str]| {
            let rollout = RolloutMark {
                name: "shop 1.4".to_owned(),
                phase: phase.to_owned(),
                compared: vec!["members failed 1 (before 0, limit 0)".to_owned()],
                wrong: wrong.iter().map(|why| (*why).to_owned()).collect(),
                step,
            };
            MarkRow::from(Mark::rollout(Instant(START + n * STEP), rollout))
        };
        let found = events(8, |n, sample| {
            sample.marks.extend(match n {
                2 => Some(mark(n, RolloutStep::Begins, "running", &[])),
                3 | 4 => Some(mark(n, RolloutStep::Goes, "settling", &[])),
                5 => Some(mark(n, RolloutStep::Over, "failed", &["web-2 did not come back"])),
                7 => Some(mark(n, RolloutStep::Over, "passed", &[])),
                _ => None,
            });
        });
        assert_eq!(
            titles(&found),
            [
                "rollout shop 1.4 begins",
                "rollout shop 1.4: failed: web-2 did not come back",
                "rollout shop 1.4: passed"
            ]
        );
        let of = |event: &Event| (event.kind, event.severity, event.state);
        assert_eq!(of(&found[0]), (Kind::Rollout, Severity::Info, State::Firing));
        assert_eq!(of(&found[1]), (Kind::Rollout, Severity::Warning, State::Resolved));
        assert_eq!(of(&found[2]), (Kind::Rollout, Severity::Info, State::Resolved));
        assert_eq!(found[1].details["verdict"], json!("failed"));
        assert_eq!(found[1].details["reasons"], json!(["web-2 did not come back"]));
    }

    #[test]
    fn a_lost_cluster_is_reported_once_and_its_return() {
        let mut derive = Derive::new(samples::name("default"), "web-1".to_owned());
        assert_eq!(derive.lost("not there yet", 1), []);
        derive.take(&Arc::new(samples::healthy(Instant(START))));
        assert_eq!(titles(&derive.lost("gone", 2)), ["the cluster cannot be read: gone"]);
        assert_eq!(derive.lost("gone", 3), []);
        let back = derive.take(&Arc::new(samples::healthy(Instant(START + STEP))));
        assert_eq!(titles(&back), ["the cluster is healthy"]);
    }

    #[test]
    fn marks_and_verdicts_are_events_unless_they_are_of_before() {
        let mark = |n: u64, text: &str, drill: Option<DrillMark>| MarkRow {
            at: Instant(START + n * STEP),
            text: text.to_owned(),
            drill,
            rollout: None,
            acknowledged: None,
        };
        let drill = |verdict: Option<&str>| DrillMark {
            name: "freeze".to_owned(),
            verdict: verdict.map(str::to_owned),
        };
        let found = events(6, |n, sample| match n {
            0 => sample.marks.push(MarkRow { at: Instant(START - 1), ..mark(0, "long ago", None) }),
            2 => sample.marks.push(mark(2, "deploy 1.4", None)),
            3 => sample.marks.push(mark(3, "drill freeze begins", Some(drill(None)))),
            4 => sample.marks.push(mark(4, "drill freeze: failed", Some(drill(Some("failed"))))),
            _ => {}
        });
        assert_eq!(titles(&found), ["deploy 1.4", "drill freeze begins", "drill freeze: failed"]);
        let kinds: Vec<(Kind, Severity)> = found.iter().map(|event| (event.kind, event.severity)).collect();
        let info = Severity::Info;
        assert_eq!(kinds, [(Kind::Mark, info), (Kind::Drill, info), (Kind::Drill, Severity::Warning)]);
    }

    #[test]
    fn a_failover_is_reported_once_with_who_failed_and_how_long_it_took() {
        let stamp = |event, us: u64, a| EventRow {
            event,
            a,
            b: 1,
            reason: (event == EventKind::Notice).then_some(Reason::Deadbeat),
            ..samples::event(Instant(START + 5 * STEP + us * 1000), us)
        };
        let found = events(20, |n, sample| {
            let view = sample.view.as_mut().expect("a view");
            if n >= 5 {
                view.id = ViewId(view.id.0 + 1);
                let (who, accuser) = (Incarnation(7), Incarnation(1));
                view.changes = vec![ChangeRow::Failed { who, accuser, reason: Reason::Deadbeat }];
            }
            let id = view.id.0;
            if n == 5 {
                sample.events = vec![
                    stamp(EventKind::Notice, 0, 7),
                    stamp(EventKind::Propose, 5, id),
                    stamp(EventKind::Decide, 18, id),
                    stamp(EventKind::Active, 156, id),
                ];
            }
        });
        let kinds: Vec<Kind> = found.iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [Kind::View, Kind::Failover], "{:?}", titles(&found));
        assert!(found[0].title.contains("failed: deadbeat"), "{}", found[0].title);
        assert_eq!(found[1].details["total_ns"], json!(156_000));
        assert!(found[1].title.contains("after 156us"), "{}", found[1].title);
        assert_eq!(found[1].details["dead"][0]["incarnation"], json!(7));
    }
}
