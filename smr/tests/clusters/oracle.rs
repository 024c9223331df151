//! What must hold after every step of a cluster, whatever fails: the invariants of
//! `docs/design/smr.md`, by their numbers. It sees all replicas at once and true time.

use crate::history::Watched;
use obol_fabric_sim::State;
use obol_smr::{Config, Detector, Guard, Index, Replica, ReplicaState};
use std::collections::BTreeMap;

/// A replica as the oracle sees it.
pub(crate) struct Seen<'a, D, G> {
    pub(crate) node: u32,
    pub(crate) state: State,
    /// Its address's generation.
    pub(crate) generation: u32,
    pub(crate) replica: &'a Replica<Watched, D, G>,
}

/// What is known of a node.
#[derive(Clone, Default)]
struct Known {
    generation: u32,
    applied: u64,
    granted: u64,
    leads: bool,
    /// The identity of its log.
    log: u64,
    /// As a leader: its configurations with their entries, from the newest that is committed on. A
    /// majority of each may count.
    configs: Vec<(u64, Config)>,
}

/// A leader's newest configuration and its entry.
fn of_leader<D: Detector, G: Guard>(replica: &Replica<Watched, D, G>) -> (u64, Config) {
    (replica.config_index().map_or(0, |index| index.0), replica.config().clone())
}

/// The state of all checks.
#[derive(Default)]
pub(crate) struct Oracle {
    /// The digest of the prefix that ends with an entry.
    digests: BTreeMap<u64, u64>,
    /// The service's state after it.
    states: BTreeMap<u64, u64>,
    /// The newest entry that a leader has committed, and its term.
    committed: u64,
    committed_in: u64,
    /// Who led in which term.
    leaders: BTreeMap<u64, (u32, u32)>,
    nodes: BTreeMap<u32, Known>,
    /// Changes of leaders.
    pub(crate) failovers: u64,
    /// Configurations that leaders appended.
    pub(crate) configs: u64,
    /// Bytes of entries whose places were used again.
    pub(crate) recycled: u64,
    /// The newest index that was applied.
    pub(crate) applied: u64,
    /// A log that another one has replaced, and the newest entry that was committed in it.
    replaced: Option<(u64, u64)>,
}

impl Oracle {
    /// Checks the replica that has just stepped, among all.
    pub(crate) fn check<D: Detector, G: Guard>(
        &mut self,
        stepped: u32,
        all: &[Seen<'_, D, G>],
    ) -> Result<(), String> {
        let Some(one) = all.iter().find(|one| one.node == stepped) else { return Ok(()) };
        let mut known = self.nodes.remove(&stepped).unwrap_or_default();
        if known.generation != one.generation {
            known = Known { generation: one.generation, ..Known::default() };
        }
        match self.replaced.filter(|(log, _)| *log == one.replica.log()) {
            Some((_, last)) => Self::check_replaced(one, last)?,
            None => {
                self.check_applied(one, &mut known)?;
                self.check_leader(one, &mut known, all)?;
            }
        }
        self.nodes.insert(stepped, known);
        Ok(())
    }

    /// A replica is to continue alone, as another log.
    pub(crate) fn begin_anew(&mut self, node: u32) {
        let applied = self.nodes.get(&node).map_or(0, |known| known.applied);
        self.digests.split_off(&(applied + 1));
        self.states.split_off(&(applied + 1));
        self.committed = self.committed.min(applied);
    }

    /// Another log replaces this one.
    pub(crate) const fn replace(&mut self, log: u64) {
        self.replaced = Some((log, self.committed));
    }

    /// Another log replaces this one, and begins with nothing.
    pub(crate) fn begin_store_anew(&mut self, log: u64) {
        self.replace(log);
        (self.committed, self.committed_in) = (0, 0);
        self.leaders.clear();
        self.digests.clear();
        self.states.clear();
    }

    /// Nothing is added to a log that was replaced.
    fn check_replaced<D: Detector, G: Guard>(one: &Seen<'_, D, G>, last: u64) -> Result<(), String> {
        let (node, applied) = (one.node, one.replica.applied().0);
        if applied > last {
            return Err(format!(
                "invariant 2: replica {node} goes on with a log that was replaced, up to {applied} after {last}"
            ));
        }
        Ok(())
    }

    fn check_applied<D: Detector, G: Guard>(
        &mut self,
        one: &Seen<'_, D, G>,
        known: &mut Known,
    ) -> Result<(), String> {
        let (node, replica) = (one.node, one.replica);
        if let Some(value) = replica.service().twice {
            return Err(format!("invariant 6: replica {node} applied the PUT of {value} twice"));
        }
        if let Some((time, before)) = replica.service().wrong_time {
            return Err(format!(
                "invariant 13: replica {node} applied a command of time {time} after {before}"
            ));
        }
        let applied = replica.applied().0;
        if applied < known.applied {
            return Err(format!("invariant 3: replica {node} went back from {} to {applied}", known.applied));
        }
        if applied > known.applied {
            known.applied = applied;
            self.applied = self.applied.max(applied);
            let digest = replica.digest();
            let first = *self.digests.entry(applied).or_insert(digest);
            if first != digest {
                return Err(format!(
                    "invariant 1: replica {node} has other entries up to {applied} than others"
                ));
            }
            let state = replica.service().state();
            let first = *self.states.entry(applied).or_insert(state);
            if first != state {
                return Err(format!(
                    "invariant 14: replica {node} has another state after {applied} than others"
                ));
            }
        }
        let granted = replica.granted().0;
        if granted < known.granted {
            return Err(format!(
                "invariant 4: replica {node} lets the leader of term {granted} write again after that of {}",
                known.granted
            ));
        }
        known.granted = granted;
        // Its leader has committed it in this step, or earlier.
        let committed = self.committed.max(replica.commit().map_or(0, |commit| commit.0));
        if applied > committed {
            return Err(format!("invariant 3: replica {node} applied {applied}, committed is {committed}"));
        }
        Ok(())
    }

    fn check_leader<D: Detector, G: Guard>(
        &mut self,
        one: &Seen<'_, D, G>,
        known: &mut Known,
        all: &[Seen<'_, D, G>],
    ) -> Result<(), String> {
        let (node, replica) = (one.node, one.replica);
        let leads = matches!(replica.state(), ReplicaState::Leading { .. });
        if !leads {
            known.leads = false;
            return Ok(());
        }
        let is_anew = std::mem::replace(&mut known.log, replica.log()) != replica.log();
        if !std::mem::replace(&mut known.leads, true) || is_anew {
            self.failovers += u64::from(!self.leaders.is_empty());
            known.configs = vec![of_leader(replica)];
            let who = (node, one.generation);
            if *self.leaders.entry(replica.term().0).or_insert(who) != who {
                return Err(format!(
                    "invariant 9: replica {node} leads in the term {} of another",
                    replica.term()
                ));
            }
            let committed = Index(self.committed);
            let has = replica.digest_at(committed);
            // One that is deposed already may begin from too little: it commits nothing.
            let is_later = replica.term().0 > self.committed_in;
            if self.committed > 0 && is_later && has != self.digests.get(&self.committed).copied() {
                let last = replica.last();
                return Err(format!(
                    "invariant 2: replica {node} leads with a log up to {last} that lacks what was committed up to {committed}"
                ));
            }
        }
        if let Some(commit) = replica.commit().filter(|commit| commit.0 > self.committed) {
            (self.committed, self.committed_in) = (commit.0, replica.term().0);
        }
        for (holder, overwritten) in replica.overwritten() {
            self.recycled = self.recycled.max(overwritten);
            let lags = |seen: &&Seen<'_, D, G>| {
                (seen.node, seen.generation) == (holder.region, holder.generation)
                    && seen.state != State::Dead
                    && seen.replica.applied_bytes() < overwritten
            };
            if let Some(lags) = all.iter().find(lags) {
                return Err(format!(
                    "invariant 5: places up to {overwritten} are used again, but replica {} has applied up to {} only",
                    lags.node,
                    lags.replica.applied_bytes()
                ));
            }
        }
        let next = of_leader(replica);
        if known.configs.last().is_some_and(|(_, newest)| *newest != next.1) {
            self.check_config(&next.1, &known.configs, all)?;
            known.configs.push(next);
        }
        let is_committed = |(index, _): &(u64, Config)| *index <= self.committed;
        let newest_committed = known.configs.iter().rposition(is_committed);
        known.configs.drain(..newest_committed.unwrap_or(0));
        Ok(())
    }

    fn check_config<D: Detector, G: Guard>(
        &mut self,
        next: &Config,
        known: &[(u64, Config)],
        all: &[Seen<'_, D, G>],
    ) -> Result<(), String> {
        self.configs += 1;
        let Some((_, before)) = known.last() else { return Ok(()) };
        if !next.follows(before) {
            return Err(format!("invariant 8: {next:?} does not follow {before:?}"));
        }
        if let Some((_, other)) = known.iter().find(|(_, other)| !next.intersects(other)) {
            return Err(format!("invariant 8: a majority of {next:?} has no voter of one of {other:?}"));
        }
        for voter in next.voters.iter().filter(|voter| before.voter(voter.address).is_none()) {
            let is_it = |seen: &&Seen<'_, D, G>| {
                (seen.node, seen.generation) == (voter.address.region, voter.address.generation)
            };
            if let Some(seen) = all.iter().find(is_it).filter(|seen| !seen.replica.is_whole()) {
                return Err(format!("invariant 8: replica {} votes before it is whole", seen.node));
            }
        }
        Ok(())
    }
}
