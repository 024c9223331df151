//! What `obol status` says of coordinators that are replaced without an operator: who is missing,
//! who could take its seat, what was done, and when the next replacement may follow.

use crate::calendar::age_of_seconds;
use crate::figures::total;
use crate::reason::Fault;
use crate::{Deciders, ObservedEvent, Observer, Process, Snapshot};
use obol_fabric::Nanos;
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_membership::recorder::EventKind;
use obol_membership::replace::{spares, vacant};
use obol_membership::view::coordinator_name;
use serde::Serialize;

/// The last coordinator that was replaced, as scripts read it.
#[derive(Serialize)]
struct LastReplaced {
    coordinator: String,
    view: u64,
    ago_s: f64,
}

/// Replacing coordinators, as scripts read it.
#[derive(Serialize)]
pub struct Replacement {
    /// Whether the profile asks for it.
    on: bool,
    after_s: f64,
    pause_s: f64,
    deciders: Vec<String>,
    /// Whether enough of them live to decide anything.
    majority: bool,
    /// Those of them who are not members.
    missing: Vec<String>,
    /// Those of them who are not seen alive.
    #[serde(skip)]
    unseen: Vec<String>,
    /// Whether too few are left of the others and of those that may be frozen or cut off on other hosts.
    #[serde(skip)]
    lost: bool,
    /// Those who are members and do not decide.
    spares: Vec<String>,
    /// How many were replaced, as far as the coordinators that run have counted.
    replaced: u64,
    last: Option<LastReplaced>,
    /// How long the pause still lasts; zero if it does not.
    pause_left_s: f64,
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

impl Replacement {
    /// The state now. `events` are those of [`Observer::events`].
    pub fn of(observer: &Observer, snapshot: &Snapshot, events: &[ObservedEvent]) -> Self {
        let timing = observer.deployment().profile.timing;
        let view = snapshot.view.as_deref();
        let is = |seen: &&ObservedEvent, kinds: &[EventKind]| kinds.contains(&seen.event.record.kind);
        let last = |kinds: &[EventKind]| events.iter().rev().find(|seen| is(seen, kinds));
        let changed = last(&[EventKind::Replacing, EventKind::Replaced]).map(|seen| seen.event.at);
        let left = changed.map_or(Nanos::ZERO, |at| (at + timing.replace_pause).since(snapshot.at));
        let deciders = Deciders::newest(snapshot);
        let lives = |name: &str| {
            let is = |p: &Process| p.alive && p.kind == Kind::Coordinator && p.name.as_str() == name;
            snapshot.all_processes().any(is)
        };
        let (alive, unseen): (Vec<String>, Vec<String>) =
            deciders.iter().flat_map(|all| all.names().iter().cloned()).partition(|name| lives(name));
        let majority = deciders.as_ref().is_some_and(|all| all.spare(alive.len()).is_some());
        Self {
            on: timing.replace,
            after_s: seconds(timing.replace_after),
            pause_s: seconds(timing.replace_pause),
            deciders: deciders.map_or_else(Vec::new, |all| all.names().to_vec()),
            majority,
            missing: view.into_iter().flat_map(vacant).map(|n| coordinator_name(n).to_string()).collect(),
            unseen,
            lost: observer.judged().iter().any(|reason| matches!(reason.fault, Fault::Majority { .. })),
            spares: view.into_iter().flat_map(spares).map(|m| m.name.to_string()).collect(),
            replaced: total(snapshot.all_processes().map(|p| p.counter(Counter::Replacements))),
            last: last(&[EventKind::Replaced]).map(|seen| LastReplaced {
                coordinator: format!("coord-{}", seen.event.record.a),
                view: seen.event.record.b,
                ago_s: seconds(snapshot.at.since(seen.event.at)),
            }),
            pause_left_s: seconds(left),
        }
    }

    /// The same in a line, if there is anything to say.
    pub fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.majority && !self.unseen.is_empty() {
            let unseen = self.unseen.join(", ");
            let (it, it_is, its_host) = match self.unseen.len() {
                1 => ("it", "it is", "its host"),
                _ => ("them", "they are", "their hosts"),
            };
            parts.push(match self.lost {
                true => format!("{unseen} not seen; without a majority nothing can replace {it}"),
                // The memory of those that are frozen decides, so that there may be a majority.
                false => format!(
                    "{unseen} not seen; if {it_is} frozen, `kill -CONT PID` on {its_host} lets {it} continue; if {it_is} \
                     down, nothing can replace {it} without a majority"
                ),
            });
        } else if !self.missing.is_empty() {
            let missing = self.missing.join(", ");
            parts.push(match self.on {
                true => format!("{missing} missing, to be replaced after {} s", self.after_s),
                false => format!("{missing} missing; the profile leaves it to `obol coordinator replace`"),
            });
        }
        if !self.spares.is_empty() {
            parts.push(format!("spare {}", self.spares.join(", ")));
        } else if self.on && !self.missing.is_empty() {
            parts.push("no spare runs".to_owned());
        }
        if let Some(last) = &self.last {
            let LastReplaced { coordinator, ago_s, .. } = last;
            parts.push(format!(
                "{coordinator} replaced {} ago ({} in all)",
                age_of_seconds(*ago_s),
                self.replaced
            ));
        }
        if self.on && self.pause_left_s > 0.0 {
            parts.push(format!("the next not before {}", age_of_seconds(self.pause_left_s)));
        }
        (!parts.is_empty()).then(|| format!("coordinators: {}", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinators_that_may_be_frozen_are_not_said_to_be_gone() {
        let line = |unseen: &[&str], lost| {
            let unseen = unseen.iter().map(|name| (*name).to_owned()).collect();
            let replacement = Replacement {
                on: true,
                after_s: 60.0,
                pause_s: 60.0,
                deciders: Vec::new(),
                majority: false,
                missing: Vec::new(),
                unseen,
                lost,
                spares: Vec::new(),
                replaced: 0,
                last: None,
                pause_left_s: 0.0,
            };
            replacement.line().expect("something to say")
        };
        let (one, two) = (["coord-2"], ["coord-2", "coord-3"]);
        assert_eq!(
            line(&two, true),
            "coordinators: coord-2, coord-3 not seen; without a majority nothing can replace them"
        );
        assert!(line(&one, true).ends_with("nothing can replace it"));
        assert_eq!(
            line(&two, false),
            "coordinators: coord-2, coord-3 not seen; if they are frozen, `kill -CONT PID` on their hosts lets them \
             continue; if they are down, nothing can replace them without a majority"
        );
        assert_eq!(
            line(&one, false),
            "coordinators: coord-2 not seen; if it is frozen, `kill -CONT PID` on its host lets it continue; if it is \
             down, nothing can replace it without a majority"
        );
    }
}
