//! The roles of a replica, and what makes it change its role.

use super::Replica;
use crate::REPLICAS_MAX;
use crate::config::Config;
use crate::direct::{self, Prefix};
use crate::lead::{Lead, LeadStart};
use crate::log::Record;
use crate::position::{Index, Term};
use crate::preset::{Detector, Guard, Known, Work};
use crate::service::Service;
use crate::takeover::{Adopted, Progress, Takeover, config_of};
use obol_fabric::{Address, Fabric, Instant};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Following,
    TakingOver {
        takeover: Takeover,
        /// It lacks the log up to here.
        behind: Option<Index>,
    },
    Leading(Box<Lead>),
    Waiting,
    Yields,
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// Looks who leads, if views do not say that.
    pub(super) fn detect<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if D::OF_VIEWS {
            return;
        }
        if let Some(own) = self.own.filter(|_| self.replicated.state.log == 0) {
            self.bootstrap_or_wait(own, fabric);
        }
        let pending = match &self.role {
            // Another leader may write here, so this one was excluded.
            Role::Leading(lead) if self.guard.election().term > lead.term() => {
                self.lost = lead.term();
                self.step_down(fabric);
                None
            }
            Role::Leading(lead) => lead.pending(&self.replicated.log),
            Role::TakingOver { takeover, .. } => Some(takeover.progress() + self.loader.progress()),
            Role::Following | Role::Waiting | Role::Yields => None,
        };
        let known = Known {
            area: self.area,
            every: self.look_every(),
            own: self.own,
            config: &self.replicated.state.config,
            log: self.replicated.state.log,
            granted: self.guard.granted(),
            lost: self.lost,
            work: Work { turns: self.turns, pending },
            leads: matches!(self.role, Role::Leading(_)),
            stands: self.may_stand(fabric),
            election: self.guard.election(),
        };
        if self.detector.poll(now, &known, fabric) {
            self.elect(fabric);
        }
    }

    /// Whether it may become a candidate (DARE, 3.2.2): by the newest configuration in its log.
    fn may_stand<F: Fabric>(&self, fabric: &F) -> bool {
        let own = fabric.address();
        let votes = |config: &Config| config.voter(own).is_some();
        let is_whole = G::DIRECT && self.is_whole();
        is_whole && (votes(&self.replicated.state.config) || votes(&self.own_log(fabric).1))
    }

    /// The part of its log that is not in its state, and the configuration in force at its end.
    fn own_log<F: Fabric>(&self, fabric: &F) -> (Vec<Record>, Config, Index) {
        let records = direct::rest(self.area, &Prefix::of(&self.replicated), fabric);
        let (config, index) = config_of(records.iter(), &self.replicated.state.config);
        (records, config, index)
    }

    /// Leads, or not, as the detector says.
    pub(super) fn elect<F: Fabric>(&mut self, fabric: &mut F) {
        let leadership = self.detector.leadership();
        let is_to_lead = self.own.is_some() && leadership.map(|leadership| leadership.leader) == self.own;
        let leads = is_to_lead && !self.follow.misfit;
        let is_of_reign = match &self.role {
            Role::TakingOver { .. } | Role::Leading(_) => {
                leadership.map(|leadership| leadership.term) == Some(self.term())
            }
            Role::Following | Role::Waiting | Role::Yields => true,
        };
        let waits = !D::OF_VIEWS && matches!(self.role, Role::Waiting);
        if (!leads || !is_of_reign) && !waits {
            self.step_down(fabric);
        }
        if leads {
            match &mut self.role {
                Role::Leading(lead) => lead.install(&self.replicas, &self.clients),
                Role::TakingOver { takeover, .. } => takeover.touch(),
                Role::Yields => {}
                Role::Following | Role::Waiting => {
                    self.take_over(leadership.map_or(Term(0), |leadership| leadership.term), fabric);
                }
            }
        }
    }

    /// Follows: what it has not applied may not be in the log of the next leader.
    pub(super) fn step_down<F: Fabric>(&mut self, fabric: &mut F) {
        self.guard.release();
        match &mut self.role {
            Role::Leading(lead) => {
                lead.end(fabric);
                self.ids = lead.ids();
                self.replicated.drop_tail();
                self.role = Role::Following;
            }
            Role::TakingOver { .. } => {
                self.replicated.drop_tail();
                self.role = Role::Following;
            }
            Role::Waiting => self.role = Role::Following,
            Role::Following | Role::Yields => {}
        }
    }

    /// It is the oldest replica.
    fn take_over<F: Fabric>(&mut self, term: Term, fabric: &mut F) {
        if term <= self.lost {
            return;
        }
        if self.replicated.state.log == 0
            && let Some((id, voters)) = self.may_bootstrap.take()
        {
            self.found(id, voters, fabric);
        }
        if self.replicated.state.log != 0 {
            self.replicated.drop_tail();
            let takeover = Takeover::begin(term, &mut self.guard, fabric);
            self.role = Role::TakingOver { takeover, behind: None };
        } else {
            self.role = Role::Waiting;
        }
    }

    pub(super) fn poll_takeover<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        if G::DIRECT {
            return self.poll_election(now, fabric);
        }
        let Role::TakingOver { takeover, behind } = &mut self.role else { return false };
        let term = takeover.term;
        if self.alone.is_some() {
            // Nobody has what it lacks.
            *behind = None;
        }
        takeover.set_alone(self.alone.is_some());
        if let (Some(least), Some(own)) = (*behind, self.own) {
            if self.at < REPLICAS_MAX {
                self.load(now, own, least, fabric);
            }
            return false;
        }
        let replicas: Vec<Address> = self.replicas.iter().map(|(_, at)| *at).collect();
        match takeover.poll(now, self.area, &self.replicated, &replicas, &self.guard, fabric) {
            Progress::Waits => false,
            Progress::Behind(least) => {
                *behind = Some(least);
                true
            }
            Progress::Done(adopted) if self.is_replaced_in(&adopted.memories) => {
                self.give_way(fabric);
                false
            }
            Progress::Done(adopted) => {
                let adopted = match self.alone.take() {
                    Some(id) => self.begin_anew(id, *adopted, fabric.address()),
                    None => *adopted,
                };
                self.lead(now, term, adopted, fabric);
                true
            }
        }
    }

    /// Leads if a majority of the voters has voted for it (DARE, 3.2.2). Nobody else can write to its log
    /// any more, and a majority has found that it is recent enough.
    fn poll_election<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let Role::TakingOver { takeover, .. } = &self.role else { return false };
        let (term, own) = (takeover.term, fabric.address());
        if !self.guard.seized(own, fabric) {
            return false;
        }
        let (records, config, config_index) = self.own_log(fabric);
        let votes = config.voters.iter().filter(|voter| self.guard.seized(voter.address, fabric)).count();
        if votes < config.majority() {
            return false;
        }
        self.guard.elected();
        let (low, memories) = (self.replicated.log.base().index, Vec::new());
        self.lead(now, term, Adopted { records, low, config, config_index, memories }, fabric);
        true
    }

    pub(super) fn lead<F: Fabric>(&mut self, now: Instant, term: Term, adopted: Adopted, fabric: &mut F) {
        let own = fabric.address();
        let place = adopted.config.voter(own).map(|voter| voter.place).or(self.place);
        let Some((place, incarnation)) = place.zip(self.own) else {
            self.role = Role::Yields;
            return;
        };
        self.place = Some(place);
        let start = LeadStart { area: self.area, term, place, is_direct: G::DIRECT, ids: self.ids };
        let lead = Lead::begin((incarnation, own), start, adopted, &mut self.replicated);
        let mut lead = lead.with_time(now, &mut self.time).with_reads(G::READS);
        if self.unreplicated {
            lead = lead.without_copies();
        }
        if G::DIRECT {
            lead.feed_itself(&self.replicated, fabric);
        }
        lead.install(&self.replicas, &self.clients);
        if self.retires {
            lead.retire();
        }
        self.role = Role::Leading(Box::new(lead));
    }
}
