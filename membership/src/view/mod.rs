//! Views: who belongs to the cluster, under which leases, and what a successor inherits.
//!
//! A view is immutable once decided. Everything else that safety needs (`base`, `cleared`, `wait`)
//! is computed by the proposer and is part of the view, so that all processes use the same values.

mod member;
mod numbers;
mod successor;

pub use member::{Departed, Kind, Member, Newcomer, Reason};
pub use numbers::Numbers;
pub use successor::{Edit, RECOVERY_SKIP};

use obol_fabric::{Address, Incarnation, Layout, Name, Nanos, Release, ViewId};

/// An acceptor: the location of one coordinator's slots. It outlives the process where its memory
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acceptor {
    /// The coordinator's number, from 1.
    pub proposer: u16,
    /// Its region, independent of the process that runs it.
    pub address: Address,
}

/// Who decides after a view, as far as its announcement says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deciders {
    pub id: ViewId,
    /// Those who decide the next one.
    pub acceptors: Vec<Acceptor>,
    /// The coordinators that recoveries have retired.
    pub retired: Numbers,
}

impl Deciders {
    pub fn of(view: &View) -> Self {
        Self { id: view.id, acceptors: view.acceptors.clone(), retired: view.retired }
    }

    /// Whether the view may follow `known`: see [`View::can_follow`].
    pub const fn can_follow(&self, known: &View) -> bool {
        self.retired.includes(known.retired)
    }
}

/// Why a view differs from its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A new member.
    Joined(Incarnation),
    /// A member left at its own request.
    Left(Incarnation),
    /// A member was removed.
    Failed {
        accused: Incarnation,
        /// The process that reported it.
        accuser: Incarnation,
        /// The detector.
        reason: Reason,
    },
    /// The lease duration changed.
    Lease,
    /// From the next slot on, this acceptor is a decider.
    AcceptorAdded(Acceptor),
    /// From the next slot on, this acceptor is not a decider.
    AcceptorRemoved(Acceptor),
    /// Nothing: the slot was decided so that readers find it settled.
    Settled,
    /// An operator's recovery continued from this view after the memory of a majority of acceptors
    /// was lost. Views decided between the two are lost.
    Recovered(ViewId),
}

/// A join with an `as_of` that is more views old than this is refused, and departed members are
/// remembered for as long: so every late copy of a join is recognised.
pub const JOIN_WINDOW: u64 = 32;

/// A cluster membership: the decided value of slot `id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Its number, which is that of its slot.
    pub id: ViewId,
    /// The first view of its run of compatible views.
    pub base: ViewId,
    /// No lease on any view below this one exists any more.
    pub cleared: ViewId,
    /// The longest reach of all views in `[cleared, base)`: how long a newcomer to this run waits,
    /// not counting clock drift.
    pub wait: Nanos,
    /// The longest [`View::reach`] of the views in `[base, id]`.
    pub run_reach: Nanos,
    /// How long a lease on this view lasts.
    pub lease: Nanos,
    /// How long a lease cache's own lease on this view lasts. (uKharon 6.3, Delta.)
    pub cache_lease: Nanos,
    /// The next incarnation to assign.
    pub next_incarnation: Incarnation,
    /// The deciders of the next slot.
    pub acceptors: Vec<Acceptor>,
    /// Coordinators retired by a recovery. They never decide again, whatever happens to their
    /// memory.
    pub retired: Numbers,
    /// The members, by incarnation.
    pub members: Vec<Member>,
    /// Members that departed within the last [`JOIN_WINDOW`] views.
    pub departed: Vec<Departed>,
    pub changes: Vec<Change>,
}

/// The name of coordinator `number`.
pub fn coordinator_name(number: u16) -> Name {
    // At most five digits, so it always is a valid name.
    Name::new(&format!("coord-{number}")).unwrap_or_default()
}

impl View {
    /// Whether an operator made it, because no majority was left that could decide.
    pub fn is_recovered(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Recovered(_)))
    }

    /// Whether this view can follow `known`, at once or much later. All views after a recovery keep
    /// the coordinators that it retired. One that lacks any of them was decided by the set that the
    /// recovery gave up, whatever its number.
    pub const fn can_follow(&self, known: &Self) -> bool {
        self.retired.includes(known.retired)
    }

    /// Of views that several processes know, the newest one has the highest rank. A view after a
    /// recovery is newer than all views of the set that the recovery gave up: the number decides
    /// only between views after the same recoveries.
    pub const fn rank(&self) -> (u32, ViewId) {
        (self.retired.count(), self.id)
    }

    /// View 0: the coordinators, with incarnations 1 to n, and no lease before it.
    pub fn genesis(coordinators: &[(Name, Address)], lease: Nanos, cache_lease: Nanos) -> Self {
        let members: Vec<Member> = (1..)
            .zip(coordinators)
            .map(|(n, &(name, address))| Member {
                incarnation: Incarnation(u64::from(n)),
                kind: Kind::Coordinator,
                name,
                address,
                host: Incarnation::NONE,
                token: u64::from(n),
                proposer: n,
                release: Release::THIS,
            })
            .collect();
        Self {
            id: ViewId::GENESIS,
            base: ViewId::GENESIS,
            cleared: ViewId::GENESIS,
            wait: Nanos::ZERO,
            run_reach: lease,
            lease,
            cache_lease,
            next_incarnation: Incarnation(members.len() as u64 + 1),
            acceptors: members
                .iter()
                .map(|m| Acceptor { proposer: m.proposer, address: m.address.owner() })
                .collect(),
            retired: Numbers::NONE,
            members,
            departed: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The same view 0 of a cluster whose coordinators are of this release.
    #[must_use]
    pub fn of_release(mut self, release: Release) -> Self {
        self.members.iter_mut().for_each(|m| m.release = release);
        self
    }

    /// The release whose formats and behaviour all members understand, which is the oldest of
    /// theirs: what a later one has added is used only once this reaches it. It never falls, because
    /// a view admits members of its own release and of the next one only. `None` if there are no
    /// members.
    pub fn release(&self) -> Option<Release> {
        self.members.iter().map(|m| m.release).min()
    }

    /// The member with this incarnation.
    pub fn member(&self, incarnation: Incarnation) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&incarnation, |m| m.incarnation).ok()?;
        self.members.get(at)
    }

    /// Whether this is a member of this view, or may be one of a later view. Former members are
    /// not, and neither is a process that has no incarnation.
    pub fn may_have(&self, incarnation: Incarnation) -> bool {
        incarnation >= self.next_incarnation || self.member(incarnation).is_some()
    }

    /// The member that joined with this token.
    pub fn by_token(&self, token: u64) -> Option<&Member> {
        self.members.iter().find(|m| m.token == token)
    }

    /// The member that is an earlier life of the process at this address.
    pub fn earlier_life(&self, of: Address) -> Option<&Member> {
        let seat = |address: Address| Address { generation: 0, ..address };
        let earlier =
            |m: &&Member| seat(m.address) == seat(of) && (1..of.generation).contains(&m.address.generation);
        self.members.iter().find(earlier)
    }

    /// Members that have this newcomer's name, other than the one whose seat it has taken.
    pub fn namesakes(&self, of: Newcomer) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |m| m.name == of.name && !m.newcomer().is_same(&of))
    }

    /// Whether programs can be attached to this member.
    pub fn is_host(&self, who: Incarnation) -> bool {
        self.member(who).is_some_and(|m| m.kind == Kind::Agent)
    }

    /// The members of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |m| m.kind == kind)
    }

    /// The acceptor with this number.
    pub fn acceptor(&self, proposer: u16) -> Option<&Acceptor> {
        self.acceptors.iter().find(|a| a.proposer == proposer)
    }

    /// The acceptors that decided this view: those of its predecessor.
    pub fn deciders(&self) -> Vec<Acceptor> {
        let mut deciders = self.acceptors.clone();
        for change in &self.changes {
            match *change {
                Change::AcceptorAdded(acceptor) => deciders.retain(|a| *a != acceptor),
                Change::AcceptorRemoved(acceptor) => deciders.push(acceptor),
                _ => {}
            }
        }
        deciders
    }

    /// The leader among the coordinators for which `lives` holds: the one with the lowest number
    /// that is a decider.
    pub fn leader(&self, lives: impl Fn(&Member) -> bool) -> Option<&Member> {
        let candidates = self.of_kind(Kind::Coordinator).filter(|m| self.acceptor(m.proposer).is_some());
        candidates.filter(|m| lives(m)).min_by_key(|m| m.proposer)
    }

    /// More than half of the acceptors.
    pub fn majority(&self) -> usize {
        self.acceptors.len() / 2 + 1
    }

    /// How long the leases of a kind last.
    pub const fn lease_of(&self, kind: Kind) -> Nanos {
        match kind {
            Kind::LeaseCache => self.cache_lease,
            Kind::Coordinator | Kind::Agent | Kind::App => self.lease,
        }
    }

    /// How long after the decision of its successor a holder may still have a lease on this view. A
    /// cache named in it may vouch as long as its own lease lasts, and each renewal lasts one
    /// lease.
    pub fn reach(&self) -> Nanos {
        let cached = self.of_kind(Kind::LeaseCache).next().is_some();
        if cached { self.lease.saturating_add(self.cache_lease) } else { self.lease }
    }

    /// Whether this layout can have this view, that is, has every seat and number. All views from
    /// peers and regions must pass this check before a machine uses them.
    pub fn fits(&self, layout: &Layout) -> bool {
        let proposers = 1..=layout.limits().proposers;
        let sits = |address: Address| u32::from(address.seat) < layout.limits().seats;
        self.members.iter().all(|m| sits(m.address) && u32::from(m.proposer) <= *proposers.end())
            && self
                .acceptors
                .iter()
                .all(|a| proposers.contains(&u32::from(a.proposer)) && a.address.seat == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::ActiveMutant;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn genesis() -> View {
        let c = |n| (name(&format!("coord-{n}")), Address::region(n));
        View::genesis(&[c(1), c(2), c(3)], Nanos(100), Nanos(120))
    }

    fn agent(n: u32) -> Newcomer {
        let address = Address { region: 7 + n, generation: 1, ..Address::default() };
        Newcomer::new(Kind::Agent, name(&format!("node-{n}")), address, 1000 + u64::from(n))
    }

    fn app(host: &Member, token: u64) -> Newcomer {
        let address = Address { seat: 1, ..host.address };
        Newcomer {
            host: host.incarnation,
            ..Newcomer::new(Kind::App, name(&format!("app-{token}")), address, token)
        }
    }

    fn admit(view: &View, admit: Vec<Newcomer>) -> View {
        view.successor(&Edit { admit, ..Edit::default() }, view.cleared, ActiveMutant::NONE)
    }

    fn fail(view: &View, accused: Incarnation) -> View {
        let change = Change::Failed { accused, accuser: Incarnation(1), reason: Reason::Deadbeat };
        view.successor(&Edit { remove: vec![change], ..Edit::default() }, view.cleared, ActiveMutant::NONE)
    }

    #[test]
    fn incarnations_are_never_reused() {
        let one = admit(&genesis(), vec![agent(1)]);
        assert_eq!(one.members.last().map(|m| m.incarnation), Some(Incarnation(4)));
        let two = fail(&one, Incarnation(4));
        let three = admit(&two, vec![agent(1)]);
        assert_eq!(three.members.last().map(|m| m.incarnation), Some(Incarnation(5)));
    }

    #[test]
    fn apps_go_with_the_agent_that_they_are_attached_to() {
        let one = admit(&genesis(), vec![agent(1)]);
        let host = *one.members.last().expect("the agent");
        let two = admit(&one, vec![app(&host, 7)]);
        let three = fail(&two, host.incarnation);
        assert_eq!(three.members.len(), 3);
        assert_eq!(three.changes.len(), 2);
        let gone: Vec<_> =
            three.departed.iter().map(|gone| (gone.name.as_str(), gone.kind, gone.left)).collect();
        assert_eq!(
            gone,
            [("node-1", Kind::Agent, false), ("app-7", Kind::App, false)],
            "it says who they were"
        );
        assert!(admit(&three, vec![app(&host, 8)]).by_token(8).is_none(), "its agent is gone");
    }

    #[test]
    fn a_later_process_takes_the_place_of_an_earlier_one() {
        let one = admit(&genesis(), vec![agent(1)]);
        let mut again = agent(1);
        again.address.generation = 2;
        again.token = 77;
        let two = admit(&one, vec![again]);
        assert!(two.by_token(1001).is_none() && two.by_token(77).is_some());
    }

    #[test]
    fn a_newcomer_is_not_admitted_beside_a_member_of_its_name_and_is_in_its_place() {
        let twin = |region| Newcomer { address: Address::region(region), token: region.into(), ..agent(1) };
        let one = admit(&genesis(), vec![agent(1), twin(20)]);
        assert!(one.by_token(1001).is_some() && one.by_token(20).is_none(), "the first of two is admitted");
        let first = one.by_token(1001).expect("admitted").incarnation;
        assert!(admit(&one, vec![twin(21)]).by_token(21).is_none());
        let edit = Edit { remove: vec![Change::Left(first)], admit: vec![twin(21)], ..Edit::default() };
        let two = one.successor(&edit, one.cleared, ActiveMutant::NONE);
        assert!(two.by_token(1001).is_none() && two.by_token(21).is_some());
        // As earlier releases decided it.
        let mut both = one.clone();
        both.members.push(twin(22).admitted(Incarnation(9)));
        let three = admit(&both, vec![twin(23)]);
        assert!(three.by_token(22).is_some() && three.by_token(23).is_none(), "no member goes for its name");
    }

    #[test]
    fn a_view_without_other_apps_is_compatible() {
        let one = admit(&genesis(), vec![agent(1)]);
        assert_eq!(one.base, ViewId(1));
        let two = fail(&one, Incarnation(2));
        assert_eq!((two.id, two.base), (ViewId(2), ViewId(1)), "a coordinator's death disturbs no lease");
        let three = fail(&two, Incarnation(4));
        assert_eq!(three.base, ViewId(3));
    }

    #[test]
    fn the_wait_covers_every_view_that_is_not_cleared() {
        let lease = |view: &View, ns| {
            view.successor(
                &Edit { lease: Some(Nanos(ns)), ..Edit::default() },
                view.cleared,
                ActiveMutant::NONE,
            )
        };
        let one = admit(&genesis(), vec![agent(1)]);
        let long = lease(&one, 500);
        let short = lease(&long, 50);
        assert_eq!((short.base, short.lease, short.run_reach), (ViewId(1), Nanos(50), Nanos(500)));
        let next = admit(&short, vec![agent(2)]);
        assert_eq!((next.base, next.wait), (ViewId(4), Nanos(500)), "the long lease may still run");
        let later = admit(&next, vec![agent(3)]);
        assert_eq!(later.wait, Nanos(500), "nothing was cleared in between");
        let change = Edit { admit: vec![agent(3)], ..Edit::default() };
        let cleared = next.successor(&change, ViewId(4), ActiveMutant::NONE);
        assert_eq!((cleared.wait, cleared.cleared), (Nanos(50), ViewId(4)));
    }

    #[test]
    fn acceptors_change_one_at_a_time_and_a_view_has_its_deciders() {
        let new = Acceptor { proposer: 5, address: Address::region(5) };
        let with = |view: &View, change| {
            let edit = Edit { acceptor: Some(change), ..Edit::default() };
            view.successor(&edit, view.cleared, ActiveMutant::NONE)
        };
        let one = with(&genesis(), Change::AcceptorAdded(new));
        assert_eq!(
            (one.acceptors.len(), one.majority(), one.base),
            (4, 3, ViewId(0)),
            "no lease is disturbed"
        );
        assert_eq!(one.deciders(), genesis().acceptors);
        let first = one.acceptors[0];
        let two = with(&one, Change::AcceptorRemoved(first));
        assert_eq!(two.acceptors.iter().map(|a| a.proposer).collect::<Vec<_>>(), [2, 3, 5]);
        let deciders: Vec<u16> = two.deciders().iter().map(|a| a.proposer).collect();
        assert_eq!(deciders, [2, 3, 5, 1]);
        assert_eq!(
            with(&two, Change::AcceptorRemoved(first)).changes,
            [Change::Settled],
            "it is gone already"
        );
        assert_eq!(
            two.leader(|_| true).map(|m| m.proposer),
            Some(2),
            "1 still is a member, but decides nothing"
        );
    }

    #[test]
    fn a_recovered_view_keeps_the_apps_and_waits_for_every_lease_that_may_run() {
        let one = admit(&genesis(), vec![agent(1)]);
        let new = Acceptor { proposer: 4, address: Address::region(4) };
        let next = one.recovered(vec![new], Nanos::ZERO);
        assert_eq!((next.id, next.base, next.wait), (ViewId(1 + RECOVERY_SKIP), next.id, Nanos(220)));
        assert_eq!(
            one.recovered(vec![new], Nanos(700)).wait,
            Nanos(820),
            "leases were longer in a lost view"
        );
        assert_eq!(next.members, one.of_kind(Kind::Agent).copied().collect::<Vec<_>>());
        assert_eq!(next.retired.iter().collect::<Vec<_>>(), [1, 2, 3]);
        let old = Acceptor { proposer: 2, address: Address::region(2) };
        let again = Edit { acceptor: Some(Change::AcceptorAdded(old)), ..Edit::default() };
        let later = next.successor(&again, next.cleared, ActiveMutant::NONE);
        assert_eq!((later.acceptors, later.retired), (vec![new], next.retired), "it decides no more");
        let twice = next.recovered(vec![Acceptor { proposer: 5, address: Address::region(5) }], Nanos::ZERO);
        assert_eq!(twice.retired.iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(next.next_incarnation > one.next_incarnation && next.departed.len() == 3);
        assert_eq!(View::from_frame(&next.to_frame()), Some(next));
    }

    #[test]
    fn departed_members_are_remembered_for_the_window() {
        let mut view = fail(&admit(&genesis(), vec![agent(1)]), Incarnation(4));
        for _ in 0..JOIN_WINDOW {
            assert_eq!(view.departed.len(), 1);
            view = view.successor(&Edit::default(), view.cleared, ActiveMutant::NONE);
        }
        assert_eq!(view.changes, [Change::Settled]);
        let view = view.successor(&Edit::default(), view.cleared, ActiveMutant::NONE);
        assert!(view.departed.is_empty());
    }

    #[test]
    fn a_sealed_view_opens_to_the_same() {
        let view = admit(&genesis(), vec![agent(1), agent(2)]);
        assert_eq!(View::from_frame(&view.to_frame()), Some(view));
    }
}
