//! The incidents that samples show, with the alerts that belong to them.

use super::incident::Incident;
use crate::sampling::data::Data;
use crate::sampling::sample::{Life, ProcessRow};
use obol_fabric::Name;
use obol_membership::Kind;

impl Data {
    /// The incidents that are not over, the newest first. An alert about one of those that an incident is about
    /// belongs to it.
    pub fn incidents(&self) -> Vec<Incident> {
        let mut all = self.incidents.open.clone();
        for alert in self.alerting.raised() {
            let own = Incident::of_alert(alert, false);
            // One about coordinators names none: its count is that of those that do not run.
            let is_down = |name: &Name| {
                let of_them = |row: &&ProcessRow| row.kind == Kind::Coordinator && row.life != Life::Runs;
                let rows = self.sample.iter().flat_map(|sample| &sample.processes);
                rows.filter(of_them).any(|row| row.name == *name)
            };
            let of_majority = |one: &Incident| alert.who.is_empty() && one.names.iter().any(is_down);
            match all.iter_mut().find(|one| !one.names.is_disjoint(&own.names) || of_majority(one)) {
                Some(one) => one.caused.push(own.fact),
                None => all.push(own),
            }
        }
        for one in &mut all {
            one.acknowledged = self.incidents.who_knows(one);
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.since));
        all
    }

    /// Those that are over, the newest first.
    pub fn ended_incidents(&self) -> Vec<Incident> {
        let alerts = self.alerting.history.iter().map(|alert| Incident::of_alert(alert, true));
        let mut all: Vec<Incident> = self.incidents.ended.iter().cloned().chain(alerts).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.since));
        all
    }

    /// How many incidents before these were dropped.
    pub const fn dropped_incidents(&self) -> u64 {
        self.incidents.dropped
    }

    /// Drops the acknowledgements of alerts that have ended, so that they are raised anew.
    pub(crate) fn drop_acknowledged(&mut self) {
        if !self.incidents.acknowledged.is_empty() {
            let open = self.incidents();
            let is_open = |(at, known): &_| open.iter().any(|one| one.is_known_by(*at, known));
            self.incidents.acknowledged.retain(is_open);
        }
    }
}
