//! Alerts over time: those whose cause has not lasted long enough, those that are raised, and those
//! that ended.

use crate::Health;
use obol_fabric::{Instant, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// Alerts that ended and are kept.
pub(super) const HISTORY_MAX: usize = 100;

/// An alert that there may be.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// A noun phrase in lower case, without an article.
    pub name: &'static str,
    /// It is raised when its cause has lasted for this long.
    pub(super) hold: Nanos,
    /// It ends when its cause has been gone for this long.
    pub(super) linger: Nanos,
    /// What to do.
    pub remedy: &'static str,
    /// Its section in docs/alerts.md.
    pub section: &'static str,
}

/// An alert that is or was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    pub rule: &'static Rule,
    /// The place of its rule among all.
    place: usize,
    /// Whom it is about; empty if about the cluster.
    pub who: String,
    /// What was seen last.
    pub clause: String,
    /// When its cause began.
    pub since: Instant,
    /// When its cause was seen last.
    pub last: Instant,
}

/// An alert by its rule and its subject.
pub type Key = (usize, String);

impl Raised {
    pub fn key(&self) -> Key {
        (self.place, self.who.clone())
    }
}

/// The section of docs/alerts.md about a health.
pub(crate) const fn section(health: Health) -> &'static str {
    match health {
        Health::Degraded => "ObolDegraded",
        Health::Unknown => "ObolUnknown",
        Health::Unreachable => "ObolUnreadable",
        Health::Unavailable | Health::Healthy => "ObolUnavailable",
    }
}

/// A cause of an alert that holds now.
pub(super) struct Cause {
    pub(super) rule: &'static Rule,
    /// The place of its rule among all.
    pub(super) place: usize,
    pub(super) who: String,
    pub(super) clause: String,
}

/// All alerts: those whose cause has not lasted long enough, those that are raised, and those that ended.
#[derive(Clone, Debug, Default)]
pub struct Alerting {
    /// By rule and subject; whether it is raised.
    seen: BTreeMap<Key, (bool, Raised)>,
    /// Those that ended, the newest first.
    pub history: VecDeque<Raised>,
}

impl Alerting {
    /// Learns what causes there are at a moment. `holds` if causes that have begun just now may pass.
    pub(super) fn take(&mut self, causes: Vec<Cause>, at: Instant, holds: bool) {
        for Cause { rule, place, who, clause } in causes {
            let new = || {
                (false, Raised { rule, place, who: who.clone(), clause: String::new(), since: at, last: at })
            };
            let (is_raised, one) = self.seen.entry((place, who.clone())).or_insert_with(new);
            (one.clause, one.last) = (clause, at);
            *is_raised |= !holds || at.since(one.since) >= rule.hold;
        }
        let history = &mut self.history;
        self.seen.retain(|_, (is_raised, one)| {
            let stays = one.last == at || *is_raised && at.since(one.last) < one.rule.linger;
            if !stays && *is_raised {
                history.push_front(one.clone());
            }
            stays
        });
        history.truncate(HISTORY_MAX);
    }

    /// Those that are raised, the worst first.
    pub fn raised(&self) -> impl Iterator<Item = &Raised> {
        self.seen.values().filter(|(is_raised, _)| *is_raised).map(|(_, one)| one)
    }
}
