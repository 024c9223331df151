//! What a replica says about itself, to its process and in its memory.

use super::{Replica, Role};
use crate::config::Config;
use crate::follow::{Activity, Header};
use crate::position::{Index, Term};
use crate::preset::{Detector, Guard};
use crate::service::Service;
use crate::state::{self, State};
use obol_fabric::{Address, Fabric, Incarnation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// It is not a member. Its log remains, and its memory may still count.
    Out,
    /// It follows the leader.
    Following {
        /// It has all of the log: it could lead.
        whole: bool,
    },
    /// It is to lead, and collects what may have been committed.
    TakingOver,
    Leading {
        /// It serves.
        ready: bool,
        /// Voters that have all of the log in memory.
        redundancy: usize,
    },
    /// It is the oldest replica and has no log: it waits for one that has.
    Waiting,
    /// It is the oldest replica and cannot lead, because another one has the log, or it has no place in
    /// the configuration. It has to end and to start again, so that another one becomes the oldest.
    /// Nothing is lost.
    Yields,
    /// A replica has a newer log, which has replaced the log of this one; or the leader has one of another
    /// service or preset. It takes part no more, and has to end.
    Misfit,
    /// The fabric cannot change permissions, which the preset needs.
    Unsupported,
    /// Its service refuses the state of the other replicas. Without it, it cannot follow.
    Refuses,
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    pub fn state(&self) -> ReplicaState {
        match &self.role {
            Role::Yields => ReplicaState::Yields,
            _ if self.follow.misfit => ReplicaState::Misfit,
            _ if !self.guard.is_supported() => ReplicaState::Unsupported,
            _ if self.refuses => ReplicaState::Refuses,
            _ if self.own.is_none() => ReplicaState::Out,
            Role::Following => ReplicaState::Following { whole: self.is_whole() },
            Role::Waiting => ReplicaState::Waiting,
            Role::TakingOver { .. } => ReplicaState::TakingOver,
            Role::Leading(lead) => {
                ReplicaState::Leading { ready: lead.is_ready(), redundancy: lead.redundancy() }
            }
        }
    }

    /// Whether it has a log without a hole.
    pub fn is_whole(&self) -> bool {
        self.replicated.state.log != 0 && !self.replicated.is_behind()
    }

    /// Its incarnation in the newest view; `None` if it is not a member.
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.own
    }

    /// The service's state.
    pub const fn service(&self) -> &S {
        &self.replicated.state.service
    }

    /// The identity of its log; 0 for none.
    pub const fn log(&self) -> u64 {
        self.replicated.state.log
    }

    /// The newest entry that it has applied.
    pub const fn applied(&self) -> Index {
        self.replicated.state.applied.index
    }

    /// The newest entry that it has.
    pub fn last(&self) -> Index {
        self.replicated.log.end().index
    }

    /// A digest of all that it has applied: equal for replicas that have applied the same.
    pub const fn digest(&self) -> u64 {
        self.replicated.state.digest
    }

    /// The digest of its log up to an entry that it has and may not have applied.
    pub fn digest_at(&self, index: Index) -> Option<u64> {
        if index < self.applied() || index > self.last() || self.replicated.gap {
            return None;
        }
        let rest = self.replicated.log.after(self.applied()).take_while(|record| record.index <= index);
        Some(rest.fold(self.digest(), state::mix))
    }

    /// Sessions in its state.
    pub fn sessions(&self) -> usize {
        self.replicated.state.sessions.len()
    }

    /// The term that it leads or follows.
    pub fn term(&self) -> Term {
        match &self.role {
            Role::TakingOver { takeover, .. } => takeover.term,
            Role::Leading(lead) => lead.term(),
            _ => self.follow.term(),
        }
    }

    /// The newest configuration: a leader's may not be committed yet.
    pub fn config(&self) -> &Config {
        match &self.role {
            Role::Leading(lead) => lead.config(),
            _ => &self.replicated.state.config,
        }
    }

    /// As a leader, the entry of its newest configuration; 0 for one of before its log.
    pub fn config_index(&self) -> Option<Index> {
        match &self.role {
            Role::Leading(lead) => Some(lead.config_index()),
            _ => None,
        }
    }

    /// The newest term whose leader may write to it; 0 if its guard restricts no one.
    pub fn granted(&self) -> Term {
        self.guard.granted()
    }

    /// As a leader, the newest committed entry.
    pub fn commit(&self) -> Option<Index> {
        match &self.role {
            Role::Leading(lead) => Some(lead.commit()),
            _ => None,
        }
    }

    /// As a leader, the replicas that count towards a majority, each with the offset in the log up
    /// to which places in its ring have been used again.
    pub fn overwritten(&self) -> Vec<(Address, u64)> {
        match &self.role {
            Role::Leading(lead) => lead.overwritten(),
            _ => Vec::new(),
        }
    }

    /// The offset in the log, in bytes, up to which it has applied it.
    pub const fn applied_bytes(&self) -> u64 {
        self.replicated.state.applied.at.0
    }

    /// Requests that it has answered as the present leader.
    pub fn answered(&self) -> u64 {
        match &self.role {
            Role::Leading(lead) => lead.answered(),
            _ => 0,
        }
    }

    /// Publishes how far it is, and notes its place.
    pub(super) fn publish<F: Fabric>(&mut self, fabric: &F) {
        let State { log, applied, config, sessions, .. } = &self.replicated.state;
        let sessions = sessions.len() as u64;
        let activity = match &self.role {
            Role::Following | Role::Yields => Activity::Follows,
            Role::TakingOver { .. } | Role::Leading(_) if self.is_stalled() => Activity::Stalls,
            Role::TakingOver { .. } => Activity::TakesOver,
            Role::Leading(lead) if lead.is_ready() => Activity::Leads,
            Role::Leading(_) => Activity::TakesOver,
            Role::Waiting => Activity::Waits,
        };
        let granted = self.guard.granted();
        let (log, applied, gap) = (*log, *applied, self.replicated.is_behind());
        let may_bootstrap = log == 0 && self.may_bootstrap.is_some();
        let failed = self.detector.failed();
        let target = if log == 0 { 0 } else { u8::try_from(config.target).unwrap_or(u8::MAX) };
        let header = Header { log, applied, gap, may_bootstrap, sessions, activity, granted, failed, target };
        if self.published != Some(header) {
            self.published = Some(header);
            header.publish(self.area, fabric);
            self.place = config.voter(fabric.address()).map(|voter| voter.place).or(self.place);
        }
    }
}
