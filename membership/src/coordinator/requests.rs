//! What members and operators have asked the coordinators for and is not decided yet. Every coordinator keeps it, so
//! that a new leader knows at once; the decided view settles it everywhere.

use crate::Config;
use crate::log::Entry;
use crate::mutants::Mutant;
use crate::view::{Change, Edit, JOIN_WINDOW, Newcomer, View};
use crate::wire::{Message, Refusal};
use obol_fabric::{Address, Fabric, Incarnation, Nanos, ViewId};

/// Joins that wait at once; more are dropped and come again by their retry.
pub(super) const JOINS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Join {
    newcomer: Newcomer,
    as_of: ViewId,
    from: Address,
}

/// Undecided requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Requests {
    joins: Vec<Join>,
    leaves: Vec<Incarnation>,
    lease: Option<Nanos>,
    /// The next slot holds something that somebody can not get past.
    settle: bool,
}

impl Requests {
    /// Takes a join; answers at once if it is decided or refused.
    pub(super) fn join(
        &mut self,
        newcomer: Newcomer,
        as_of: ViewId,
        from: Address,
        newest: &Entry,
        config: &Config,
    ) -> Option<Result<(Incarnation, ViewId), Refusal>> {
        let view = &newest.view;
        let dedupe = !config.plant.has(Mutant::ForgetJoins);
        if let Some(member) = view.by_token(newcomer.token).filter(|_| dedupe) {
            return Some(Ok((member.incarnation, view.id)));
        }
        if view.departed.iter().any(|d| d.token == newcomer.token) && dedupe {
            return Some(Err(Refusal::Departed));
        }
        if as_of.0 + JOIN_WINDOW < view.id.0 && dedupe {
            return Some(Err(Refusal::Stale));
        }
        if newcomer.host != Incarnation::NONE && !view.is_host(newcomer.host) {
            return Some(Err(Refusal::NoHost));
        }
        let edit = Edit { admit: vec![newcomer], ..Edit::default() };
        let bytes = view.successor(&edit, view.cleared, config.plant).seal().len();
        if bytes > config.layout.limits().value_bytes as usize {
            return Some(Err(Refusal::Full));
        }
        let known = self.joins.iter().any(|j| j.newcomer.token == newcomer.token);
        // One seat has one occupant: a view that admitted two, or one of an earlier life, would name a member that no
        // process is, and that no detector can tell from the one that sits there.
        let seat = |address: Address| Address { generation: 0, ..address };
        let earlier = |other: Address| {
            seat(other) == seat(newcomer.address) && other.generation > newcomer.address.generation
        };
        let outlived = self.joins.iter().any(|j| earlier(j.newcomer.address))
            || view.members.iter().any(|m| earlier(m.address));
        if known || outlived {
            return None;
        }
        self.joins.retain(|j| seat(j.newcomer.address) != seat(newcomer.address) || !dedupe);
        if self.joins.len() < JOINS_MAX {
            self.joins.push(Join { newcomer, as_of, from });
        }
        None
    }

    /// Takes a leave.
    pub(super) fn leave(&mut self, who: Incarnation, view: &View) {
        if view.member(who).is_some() && !self.leaves.contains(&who) {
            self.leaves.push(who);
        }
    }

    /// Takes an operator's wish for another lease duration.
    pub(super) const fn set_lease(&mut self, lease: Nanos) {
        self.lease = Some(lease);
    }

    /// The next slot must be decided, even if nothing changes.
    pub(super) const fn settle_slot(&mut self) {
        self.settle = true;
    }

    /// Whether there is something to decide.
    pub(super) fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.leaves.is_empty() && self.lease.is_none() && !self.settle
    }

    /// What the next view should change, as far as it fits; `failed` are the suspects.
    pub(super) fn edit(&self, failed: Vec<Change>, view: &View, config: &Config) -> Edit {
        // Whoever asked to leave and then died has left.
        let left = self.leaves.iter().map(|&who| Change::Left(who));
        let remove = left.chain(failed).collect();
        let mut edit = Edit { remove, admit: Vec::new(), lease: self.lease };
        for join in &self.joins {
            edit.admit.push(join.newcomer);
            let bytes = view.successor(&edit, view.cleared, config.plant).seal().len();
            if bytes > config.layout.limits().value_bytes as usize {
                edit.admit.pop();
                break;
            }
        }
        edit
    }

    /// Drops what a decided view has settled, and answers the joins among it.
    pub(super) fn settle<F: Fabric>(&mut self, view: &View, fabric: &mut F) {
        self.joins.retain(|join| {
            let token = join.newcomer.token;
            let outcome = if let Some(member) = view.by_token(token) {
                Ok((member.incarnation, view.id))
            } else if view.departed.iter().any(|d| d.token == token) {
                Err(Refusal::Departed)
            } else if join.as_of.0 + JOIN_WINDOW < view.id.0 {
                Err(Refusal::Stale)
            } else if join.newcomer.host != Incarnation::NONE && !view.is_host(join.newcomer.host) {
                Err(Refusal::NoHost)
            } else {
                return true;
            };
            // A joiner reads the view; only a refusal tells it something new.
            if outcome.is_err() {
                fabric.send(join.from, &Message::JoinReply { token, outcome }.encode());
            }
            false
        });
        self.leaves.retain(|who| view.member(*who).is_some());
        self.lease = self.lease.filter(|lease| *lease != view.lease);
        self.settle = false;
    }
}
