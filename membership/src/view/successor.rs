//! What follows a view: the next one as its leader proposes it, or the one of an operator's
//! recovery after a disaster.

use super::{Acceptor, Change, Departed, JOIN_WINDOW, Kind, Member, Newcomer, Reason, View};
use crate::consensus::LAG_MAX;
use crate::mutants::{ActiveMutant, Mutant};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Address, Incarnation, Nanos, Release, ViewId};

/// A recovery skips this many views, and incarnations, after the newest one found: more than can
/// have been decided without the knowledge of any survivor, and more than a set that was given up
/// decides before it is found (46 minutes at 6,000 views a second, half a year at one). CLEARs and
/// proofs of death name only a number, so those of the two sides must not meet.
pub const RECOVERY_SKIP: u64 = 1 << 24;

/// Each recovery retires a number, so there are at most as many recoveries as numbers. Even a reader
/// that missed them all recognises the words of the newest slots as later ones.
const _: () = assert!(RECOVERY_SKIP * (PROPOSERS_MAX as u64) < LAG_MAX / 2);

/// A leader's changes for the next view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Edit {
    /// Members to remove, and why: [`Change::Left`] or [`Change::Failed`]. Unknown ones are
    /// ignored.
    pub remove: Vec<Change>,
    /// Newcomers, in the order of their incarnations.
    pub admit: Vec<Newcomer>,
    /// A new lease duration.
    pub lease: Option<Nanos>,
    /// [`Change::AcceptorAdded`] or [`Change::AcceptorRemoved`]; one at a time, so that the
    /// majorities before and after always intersect.
    pub acceptor: Option<Change>,
}

impl View {
    /// Whether a lease on one is as good as a lease on the other: the same apps with the same lease
    /// pages. Coordinators, caches and lease durations may differ. (uKharon 6.3.)
    pub fn is_compatible(&self, other: &Self) -> bool {
        let protected = |view: &Self| {
            view.members.iter().filter(|m| m.kind.acts()).map(|m| m.incarnation).collect::<Vec<_>>()
        };
        protected(self) == protected(other)
    }

    /// The same, with a planted bug.
    fn is_compatible_for(&self, other: &Self, mutant: ActiveMutant) -> bool {
        let kinds = |view: &Self, kind| view.of_kind(kind).map(|m| m.incarnation).collect::<Vec<_>>();
        if mutant.has(Mutant::CompatibleByCount) {
            return [Kind::Agent, Kind::App]
                .iter()
                .all(|kind| kinds(self, *kind).len() == kinds(other, *kind).len());
        }
        if mutant.has(Mutant::CompatibleByApps) {
            return kinds(self, Kind::App) == kinds(other, Kind::App);
        }
        self.is_compatible(other)
    }

    /// The view after this one. `cleared` is the latest base with a CLEAR known to the proposer.
    ///
    /// The apps of a removed agent are removed with it. An older member in a newcomer's seat is
    /// removed as well. A newcomer whose name a member keeps is not admitted.
    pub fn successor(&self, edit: &Edit, cleared: ViewId, mutant: ActiveMutant) -> Self {
        let id = self.id.next();
        let mut next = Self {
            id,
            cleared: self.cleared.max(cleared.min(self.base)),
            lease: edit.lease.unwrap_or(self.lease),
            changes: Vec::new(),
            departed: Vec::new(),
            ..self.clone()
        };
        next.remove_members(edit);
        next.admit(&edit.admit, self.release(), mutant);
        if next.lease != self.lease {
            next.changes.push(Change::Lease);
        }
        next.change_acceptors(edit.acceptor);
        if next.changes.is_empty() {
            next.changes.push(Change::Settled);
        }
        next.departed = self.departed_after(id, &next.members, &next.changes);
        if mutant.has(Mutant::ForgetDeparted) {
            next.departed.retain(|d| d.at.0 + JOIN_WINDOW / 2 >= id.0);
        }
        next.set_wait(self, mutant);
        next.assert_follows(self, mutant);
        next
    }

    /// What holds between a view and the one that a leader proposes after it. Views of other processes
    /// are checked when they are decoded.
    fn assert_follows(&self, before: &Self, mutant: ActiveMutant) {
        assert_eq!(self.id, before.id.next());
        assert!(self.base == before.base || self.base == self.id, "a run goes on, or a new one begins");
        assert!(before.cleared <= self.cleared && self.cleared <= before.base.max(before.cleared));
        assert!(before.next_incarnation <= self.next_incarnation);
        assert!(!self.changes.is_empty(), "a view says why it was made");
        assert!(
            self.acceptors.len().abs_diff(before.acceptors.len()) <= 1,
            "majorities of neighbours intersect"
        );
        assert_eq!(self.acceptors.is_empty(), before.acceptors.is_empty(), "somebody decides");
        assert!(self.acceptors.iter().all(|acceptor| !before.retired.contains(acceptor.proposer)));
        assert!(self.departed.iter().all(|departed| departed.at <= self.id));
        let joined = self.changes.iter().filter(|change| matches!(change, Change::Joined(_))).count() as u64;
        assert!(
            self.next_incarnation.0 - before.next_incarnation.0 <= joined,
            "only newcomers use incarnations up"
        );
        assert!(
            self.base != self.id || self.wait >= before.run_reach || mutant != ActiveMutant::NONE,
            "a new run waits for every lease of the run before"
        );
        assert!(self.run_reach >= self.reach() || mutant != ActiveMutant::NONE);
    }

    fn remove_members(&mut self, edit: &Edit) {
        for &change in &edit.remove {
            if let Change::Left(who) | Change::Failed { accused: who, .. } = change {
                self.remove(change, who);
            }
        }
        for new in &edit.admit {
            let same_seat = |m: &&Member| {
                Address { generation: 0, ..m.address } == Address { generation: 0, ..new.address }
            };
            if let Some(old) = self.members.iter().find(same_seat).map(|m| m.incarnation) {
                self.remove(Change::Failed { accused: old, accuser: old, reason: Reason::Replaced }, old);
            }
        }
    }

    /// Removes a member, and the apps that are attached to it.
    fn remove(&mut self, change: Change, who: Incarnation) {
        let Some(at) = self.members.iter().position(|m| m.incarnation == who) else { return };
        self.members.remove(at);
        self.changes.push(change);
        let changes = &mut self.changes;
        self.members.retain(|m| {
            if m.host != who {
                return true;
            }
            changes.push(match change {
                Change::Failed { accuser, .. } => {
                    Change::Failed { accused: m.incarnation, accuser, reason: Reason::Host }
                }
                _ => Change::Left(m.incarnation),
            });
            false
        });
    }

    /// `spoken`: the release of the view before.
    fn admit(&mut self, newcomers: &[Newcomer], spoken: Option<Release>, mutant: ActiveMutant) {
        for newcomer in newcomers {
            // An attached app needs its agent: the page of any other member is not fenced for it.
            let hosts = |m: &Member| m.incarnation == newcomer.host && m.kind == Kind::Agent;
            if newcomer.host != Incarnation::NONE && !self.members.iter().any(hosts) {
                continue;
            }
            if !spoken.is_none_or(|spoken| spoken.admits(newcomer.release)) {
                continue;
            }
            // Commands, logs and metrics go by names: of two processes, one is admitted.
            let is_taken = self.members.iter().any(|m| m.name == newcomer.name);
            if is_taken && !mutant.has(Mutant::AdmitNamesakes) {
                continue;
            }
            let incarnation = self.next_incarnation;
            if !(mutant.has(Mutant::ReuseIncarnation) && newcomer.kind == Kind::App) {
                self.next_incarnation.0 = self.next_incarnation.0.saturating_add(1);
            }
            self.members.push(newcomer.admitted(incarnation));
            self.changes.push(Change::Joined(incarnation));
        }
        self.members.sort_by_key(|m| m.incarnation);
    }

    fn change_acceptors(&mut self, change: Option<Change>) {
        match change {
            Some(change @ Change::AcceptorAdded(new))
                if self.acceptor(new.proposer).is_none() && !self.retired.contains(new.proposer) =>
            {
                self.acceptors.push(new);
                self.acceptors.sort_by_key(|a| a.proposer);
                self.changes.push(change);
            }
            Some(change @ Change::AcceptorRemoved(old))
                if self.acceptors.len() > 1 && self.acceptors.contains(&old) =>
            {
                self.acceptors.retain(|a| *a != old);
                self.changes.push(change);
            }
            _ => {}
        }
    }

    /// Begins a new run if leases on the previous view are not as good as leases on this one. The
    /// wait covers every view whose leases may still run, not just the last: a compatible view may
    /// have shortened the lease in between.
    fn set_wait(&mut self, before: &Self, mutant: ActiveMutant) {
        let reach = if mutant.has(Mutant::WaitWithoutCaches) { self.lease } else { self.reach() };
        self.run_reach = before.run_reach.max(reach);
        if !before.is_compatible_for(self, mutant) {
            self.base = self.id;
            self.run_reach = reach;
            let run_only = self.cleared == before.base || mutant.has(Mutant::WaitOverNeighbours);
            self.wait = if run_only { before.run_reach } else { before.wait.max(before.run_reach) };
            if mutant.has(Mutant::WaitOverNeighbours) {
                self.wait = before.lease.max(self.lease);
            }
            if mutant.has(Mutant::WaitOfNewView) {
                self.wait = self.lease;
            }
        }
        if mutant.has(Mutant::AllCompatible) {
            self.base = before.base;
        }
    }

    /// The view of an operator's recovery after the memory of a majority of acceptors was lost:
    /// this one's members without its coordinators, and new acceptors, whose memory must never have
    /// been used.
    ///
    /// The previous deciders are retired: one that comes back with its old memory must not vote in
    /// this cluster again. The view starts a new run, and waits for every lease that a view after
    /// this one may have granted: `lease_max` is the longest that the cluster grants, or that an
    /// operator has set. No acceptor decides this view: see the operator's command.
    pub fn recovered(&self, acceptors: Vec<Acceptor>, lease_max: Nanos) -> Self {
        let id = ViewId(self.id.0.saturating_add(RECOVERY_SKIP));
        let gone = self.of_kind(Kind::Coordinator);
        let departed = gone.map(|m| Departed::of(m, id, false));
        // A lost view may have had a longer lease than this one, and a cache not named here.
        let reach_max = self.lease.max(lease_max).saturating_add(self.cache_lease);
        let longest = reach_max.max(self.wait).max(self.run_reach);
        let mut next = Self {
            id,
            base: id,
            wait: longest,
            next_incarnation: Incarnation(self.next_incarnation.0.saturating_add(RECOVERY_SKIP)),
            retired: self.acceptors.iter().fold(self.retired, |all, a| all.with(a.proposer)),
            acceptors,
            members: self.members.iter().filter(|m| m.kind != Kind::Coordinator).copied().collect(),
            departed: departed.collect(),
            changes: vec![Change::Recovered(self.id)],
            ..self.clone()
        };
        next.run_reach = next.reach();
        assert!(next.id > self.id && next.wait >= self.wait);
        assert!(next.retired.includes(self.retired), "who was retired once never decides again");
        next
    }

    /// The departed members remembered by the next view, which has these members and changes.
    pub(crate) fn departed_after(&self, id: ViewId, members: &[Member], changes: &[Change]) -> Vec<Departed> {
        let mut departed: Vec<Departed> =
            self.departed.iter().filter(|d| d.at.0.saturating_add(JOIN_WINDOW) >= id.0).copied().collect();
        let goes = |m: &&Member| members.binary_search_by_key(&m.incarnation, |n| n.incarnation).is_err();
        let left = |m: &Member| changes.contains(&Change::Left(m.incarnation));
        departed.extend(self.members.iter().filter(goes).map(|m| Departed::of(m, id, left(m))));
        departed
    }
}
