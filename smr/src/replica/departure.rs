//! How a replica leaves: the leader takes it out of the voters first.

use super::{Replica, Role};
use crate::departure::Departure;
use crate::preset::{Detector, Guard};
use crate::service::Service;
use crate::takeover::config_of;
use obol_fabric::{Address, Incarnation, Instant, Nanos};

/// A replica that does not vote leaves when it has reported that to the leader for this long.
const LEAVE_AFTER: Nanos = Nanos::from_millis(5);

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// It is to leave: the leader first takes it out of the voters, so that the others can go on without
    /// it, also if several leave at once. [`Replica::departure`] says when that is done.
    pub fn retire(&mut self) {
        if !core::mem::replace(&mut self.retires, true) {
            self.follow.report_again();
            self.poll_at = Instant::ZERO;
        }
        if let Role::Leading(lead) = &mut self.role {
            lead.retire();
        }
    }

    /// What becomes of the store if it leaves now.
    pub fn departure(&self) -> Departure {
        let (Some(own), true) = (self.address, self.replicated.state.log != 0) else {
            return Departure::Left;
        };
        if let Role::Leading(lead) = &self.role {
            return lead.departure();
        }
        // It may vote by an entry that it has not applied.
        let unapplied = self.replicated.log.after(self.replicated.state.applied.index);
        let (config, _) = config_of(unapplied, &self.replicated.state.config);
        let Some(rest) = config.voter(own).map(|_| config.without(own)) else {
            // If it has never been one, the leader may be about to make it a voter, and then to rely on it.
            let is_known = self.is_known || self.own.is_none() || self.place.is_some();
            return if is_known { Departure::Left } else { Departure::Pending };
        };
        let is_there = |at: Address| self.replicas.iter().any(|(_, replica)| *replica == at);
        let Some(rest) = rest else {
            let is_alone = !self.replicas.iter().any(|(_, at)| *at != own);
            return if is_alone { Departure::Last } else { Departure::Pending };
        };
        // A member waits until it has stopped voting. An excluded one can say nothing to the leader.
        let count = rest.voters.iter().filter(|voter| is_there(voter.address)).count();
        let is_left = self.own.is_none() && count >= rest.majority();
        if is_left { Departure::Left } else { Departure::Pending }
    }

    /// Notes since when it tells this leader that it is to leave.
    pub(super) fn note_told(&mut self, now: Instant, leader: Incarnation) {
        if self.retires {
            let told = self.told.filter(|(to, _)| *to == leader).unwrap_or((leader, now));
            (self.told, self.is_known) = (Some(told), now.since(told.1) >= LEAVE_AFTER);
        }
    }
}
