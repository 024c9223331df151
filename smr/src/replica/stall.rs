//! A replica that is to lead, or leads, and lacks a majority of the voters: how it notices that, and how it
//! continues alone if an operator says so.

use super::{Replica, Role};
use crate::config::{Config, Voter};
use crate::entry::Kind;
use crate::identity;
use crate::mutants::Mutant;
use crate::position::Index;
use crate::preset::{Detector, Guard};
use crate::service::Service;
use crate::takeover::Adopted;
use obol_fabric::{Address, Fabric, Instant, Nanos};

/// Since when a replica that is to lead lacks a majority of the voters, and does not get on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stall {
    /// How far it is, and since when.
    since: Option<(u64, Instant)>,
    /// For longer than any progress takes: it does not get on by itself.
    is_lasting: bool,
}

impl Stall {
    /// `progress` changes while it gets on; `None` if it lacks nothing.
    pub(super) fn look(&mut self, now: Instant, progress: Option<u64>, patience: Nanos) {
        let since = |progress| match self.since {
            Some((before, since)) if before == progress => (progress, since),
            _ => (progress, now),
        };
        self.since = progress.map(since);
        self.is_lasting = self.since.is_some_and(|(_, since)| now.since(since) >= patience);
    }
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// Continues with what it has, as the only voter of a log of a new identity: an operator says that no
    /// majority of its voters comes back. `number` is of [`crate::identity::of_newer_log`]. Does so if it is to
    /// lead or leads, and ignores that word if a majority of the voters is there after all.
    pub fn continue_alone(&mut self, number: u64) {
        self.alone = Some(self.replicated.state.identity(number));
        self.poll_at = Instant::ZERO;
    }

    /// Whether it is to lead, or leads, and commits nothing, because fewer than a majority of the voters are
    /// in its view: it does not get on unless others come back, or it continues alone.
    pub const fn is_stalled(&self) -> bool {
        self.stall.is_lasting
    }

    /// How far it is, if it is to lead or leads, and lacks a majority of the voters to get on.
    pub(super) fn lacks_voters(&self) -> Option<u64> {
        let (config, progress) = match &self.role {
            Role::TakingOver { takeover, .. } => {
                (takeover.config()?, takeover.progress() + self.loader.progress())
            }
            Role::Leading(lead) => (lead.config(), lead.pending(&self.replicated.log)?),
            Role::Following | Role::Waiting | Role::Yields => return None,
        };
        (!self.has_majority(config)).then_some(progress)
    }

    /// Whether a majority of the voters is in its view.
    fn has_majority(&self, config: &Config) -> bool {
        let is_here = |voter: &&Voter| self.replicas.iter().any(|(_, at)| *at == voter.address);
        config.voters.iter().filter(is_here).count() >= config.majority()
    }

    /// An operator may have said that it is to continue alone.
    pub(super) fn heed_operator<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(id) = self.alone else { return };
        // Without views, one that gets nowhere leads and follows by turns.
        let follows = !D::OF_VIEWS && matches!(self.role, Role::Following);
        let lacks =
            self.lacks_voters().is_some() || follows && !self.has_majority(&self.replicated.state.config);
        let may = lacks || self.replicated.state.mutant.has(Mutant::ContinuesBesideOthers);
        if !may || G::DIRECT {
            // A log that others continue, or can read, is not replaced.
            self.alone = None;
        } else if let Role::Leading(lead) = &mut self.role {
            let (term, own) = (lead.term(), fabric.address());
            lead.end(fabric);
            self.ids = lead.ids();
            let mut adopted = Adopted::of_leader(&self.replicated, lead.config().clone(), own);
            if self.replicated.state.mutant.has(Mutant::ContinuesFromApplied) {
                adopted.records.clear();
            }
            self.replicated.drop_tail();
            self.alone = None;
            let adopted = self.begin_anew(id, adopted, own);
            self.lead(now, term, adopted, fabric);
        }
    }

    /// Gives the log another identity, with this replica as the only voter. Others of the log before do not
    /// mix with it.
    pub(super) fn begin_anew(&mut self, id: u64, mut adopted: Adopted, own: Address) -> Adopted {
        let place = self.place.unwrap_or_default();
        let voters = vec![Voter { address: own, place }];
        let config = Config { target: self.replicated.state.config.target, voters, newest_place: place };
        // Voters of the log before that come back have to find it newer.
        let id = identity::above(id, self.replicated.state.log);
        (self.replicated.state.log, self.replicated.state.config) = (id, config.clone());
        // What changed the voters of the log before has no effect here. Its bytes keep their places.
        for record in adopted.records.iter_mut().filter(|record| record.kind == Kind::Config) {
            record.kind = Kind::Read;
        }
        adopted.memories.retain(|memory| memory.at == own);
        for memory in &mut adopted.memories {
            memory.header = memory.header.map(|header| crate::follow::Header { log: id, ..header });
        }
        (adopted.config, adopted.config_index) = (config, Index(0));
        adopted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_stalls_that_gets_nowhere_for_long_and_not_one_that_gets_on_slowly() {
        let (mut stall, patience) = (Stall::default(), Nanos::from_millis(20));
        let at = |ms: u64| Instant(1 + Nanos::from_millis(ms).0);
        for ms in 0..100 {
            stall.look(at(ms), Some(ms / 15), patience);
            assert!(!stall.is_lasting, "{ms} ms");
        }
        stall.look(at(100), Some(7), patience);
        stall.look(at(119), Some(7), patience);
        assert!(!stall.is_lasting);
        stall.look(at(120), Some(7), patience);
        assert!(stall.is_lasting);
        stall.look(at(121), None, patience);
        assert!(!stall.is_lasting, "a majority is there");
    }
}
