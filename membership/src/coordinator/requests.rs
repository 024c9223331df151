//! Undecided requests of members and operators. Every coordinator keeps them, so that a new leader
//! has them at once; the decided view settles them everywhere.

use crate::Config;
use crate::log::{Entry, Log};
use crate::mutants::Mutant;
use crate::view::{Acceptor, Change, Edit, JOIN_WINDOW, Kind, Member, Newcomer, View};
use crate::wire::{self, Message, Refusal};
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, ViewId};

/// Pending joins. More are dropped and arrive again with the next retry.
pub(super) const JOINS_MAX: usize = 64;

/// Whether the memory of a newcomer has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reach {
    Unread,
    /// The READ with this number is posted.
    Reading(u32),
    /// This process has read it. Who had it excluded, if that is another member, is to do so.
    Read,
    /// That member was asked.
    Asked,
    Reached,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Join {
    newcomer: Newcomer,
    as_of: ViewId,
    from: Address,
    reach: Reach,
}

impl Join {
    fn refused(&self, refusal: Refusal) -> (Address, Message<'static>) {
        (self.from, Message::JoinReply { token: self.newcomer.token, outcome: Err(refusal) })
    }
}

/// An operator's request to change the set of acceptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AcceptorRequest {
    number: u16,
    decides: bool,
    /// When it expires. An operator that still waits repeats it; one that does not has given up.
    until: Instant,
}

/// A request for a new lease duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LeaseRequest {
    lease: Nanos,
    /// When it expires: an operator's as that of [`AcceptorRequest`], one of adaptation because its
    /// cause is over.
    until: Instant,
    /// Of adaptation: the lease that it is to replace. It has no effect on any other.
    replaces: Option<Nanos>,
}

/// Whether the view after this one fits into a slot, and every later view that removes some of its
/// members as well. No member has to stay for lack of room to record its removal.
fn fits(view: &View, edit: &Edit, config: &Config) -> bool {
    let next = view.successor(edit, view.cleared, config.mutant);
    let bytes = next.to_frame().len() + wire::removal_reserve(&next);
    bytes <= config.layout.limits().value_bytes as usize || config.mutant.has(Mutant::IgnoreFull)
}

/// Whether a view with this change of acceptors fits into a slot.
pub(super) fn has_room(view: &View, change: Change, config: &Config) -> bool {
    fits(view, &Edit { acceptor: Some(change), ..Edit::default() }, config)
}

/// Undecided requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Requests {
    joins: Vec<Join>,
    /// The number of the last READ of a newcomer.
    reads: u32,
    leaves: Vec<Incarnation>,
    lease: Option<LeaseRequest>,
    /// A change of the set of acceptors.
    acceptor: Option<AcceptorRequest>,
    /// The next slot holds a value that blocks another process.
    settle: bool,
}

impl Requests {
    /// Records a join, unless there is an `obstacle`; answers at once if it is decided or refused.
    pub(super) fn join(
        &mut self,
        newcomer: Newcomer,
        as_of: ViewId,
        from: Address,
        obstacle: Option<Refusal>,
        newest: &Entry,
        config: &Config,
    ) -> Option<Result<(Incarnation, ViewId), Refusal>> {
        let view = &newest.view;
        let dedupe = !config.mutant.has(Mutant::ForgetJoins);
        if let Some(member) = view.by_token(newcomer.token).filter(|_| dedupe) {
            return Some(Ok((member.incarnation, view.id)));
        }
        if view.departed.iter().any(|d| d.token == newcomer.token) && dedupe {
            return Some(Err(Refusal::Departed));
        }
        if as_of.0.saturating_add(JOIN_WINDOW) < view.id.0 && dedupe {
            return Some(Err(Refusal::Stale));
        }
        if newcomer.host != Incarnation::NONE && !view.is_host(newcomer.host) {
            return Some(Err(Refusal::NoHost));
        }
        if let Some(spoken) = view.release().filter(|spoken| !spoken.admits(newcomer.release)) {
            return Some(Err(Refusal::Release(spoken)));
        }
        if let Some(refusal) = obstacle {
            // Not kept: joins that wait, or whose programs crash at once, would pile up and keep others
            // out.
            self.joins.retain(|join| join.newcomer.token != newcomer.token);
            return Some(Err(refusal));
        }
        let edit = Edit { admit: vec![newcomer], ..Edit::default() };
        if !fits(view, &edit, config) {
            return Some(Err(Refusal::Full));
        }
        let known = self.joins.iter().any(|j| j.newcomer.token == newcomer.token);
        // One seat has one occupant. A view that admitted two, or one of an earlier life, would
        // name a member without a process, which no detector could distinguish from the occupant.
        let seat = |address: Address| Address { generation: 0, ..address };
        let earlier = |other: Address| {
            seat(other) == seat(newcomer.address) && other.generation > newcomer.address.generation
        };
        let outlived = self.joins.iter().any(|j| earlier(j.newcomer.address))
            || view.members.iter().any(|m| earlier(m.address));
        if known || outlived {
            // The question, or its answer, may be lost.
            let asked =
                |join: &&mut Join| join.newcomer.token == newcomer.token && join.reach == Reach::Asked;
            self.joins.iter_mut().filter(asked).for_each(|join| join.reach = Reach::Read);
            return None;
        }
        self.joins.retain(|j| seat(j.newcomer.address) != seat(newcomer.address) || !dedupe);
        if self.joins.len() < JOINS_MAX {
            // A program in a seat shares the region of its agent, which is a member.
            let reach = if newcomer.host == Incarnation::NONE { Reach::Unread } else { Reach::Reached };
            self.joins.push(Join { newcomer, as_of, from, reach });
        }
        None
    }

    /// Whether a newcomer's name belongs to a member that stays. `is_suspected` says who does not,
    /// besides members that leave. Of two pending joins of one name the next view admits the first that
    /// can be read.
    pub(super) fn is_name_taken(
        &self,
        newcomer: &Newcomer,
        view: &View,
        is_suspected: impl Fn(Incarnation) -> bool,
    ) -> bool {
        let stays = |m: &Member| !is_suspected(m.incarnation) && !self.leaves.contains(&m.incarnation);
        view.namesakes(*newcomer).any(stays)
    }

    /// Records a leave.
    pub(super) fn leave(&mut self, who: Incarnation, view: &View) {
        if view.member(who).is_some() && !self.leaves.contains(&who) {
            self.leaves.push(who);
        }
    }

    /// Records an operator's request for a new lease duration, which expires at `until`.
    pub(super) const fn set_lease(&mut self, lease: Nanos, until: Instant) {
        self.lease = Some(LeaseRequest { lease, until, replaces: None });
    }

    /// Records that the lease of `view` should be another, until `until`. An operator's request comes
    /// first.
    pub(super) fn adapt_lease(&mut self, lease: Nanos, view: &View, until: Instant) {
        if self.lease.is_none_or(|request| request.replaces.is_some()) {
            self.lease = Some(LeaseRequest { lease, until, replaces: Some(view.lease) });
        }
    }

    /// Records an operator's request to change the set of acceptors, which refers to the set as of
    /// view `as_of`. It is ignored if the set has changed since, or may have.
    pub(super) fn set_acceptor(
        &mut self,
        number: u16,
        decides: bool,
        as_of: ViewId,
        log: &Log,
        until: Instant,
    ) {
        let newest = &log.newest().view;
        let same = |id| log.get(ViewId(id)).is_some_and(|entry| entry.view.acceptors == newest.acceptors);
        if as_of <= newest.id && (as_of.0..=newest.id.0).all(same) {
            self.acceptor = Some(AcceptorRequest { number, decides, until });
        }
    }

    /// Whether an operator has requested a change of the set of acceptors.
    pub(super) const fn has_acceptor_request(&self) -> bool {
        self.acceptor.is_some()
    }

    /// Whether an operator has requested that this coordinator decides, or stops deciding.
    pub(super) fn has_requested(&self, number: u16, decides: bool) -> bool {
        self.acceptor.is_some_and(|request| (request.number, request.decides) == (number, decides))
    }

    /// Drops expired requests.
    pub(super) fn expire(&mut self, now: Instant) {
        self.acceptor = self.acceptor.filter(|request| now < request.until);
        self.lease = self.lease.filter(|request| now < request.until);
    }

    /// The requested change of acceptors, if it can be made now. `lives` says whether a coordinator
    /// that is a member seems to be alive.
    ///
    /// A newcomer decides only once it is a member: to become one it has read the newest view from
    /// a majority. None is removed unless a majority of the remaining deciders is alive, as
    /// otherwise nothing could be decided any more.
    pub(super) fn acceptor(
        &self,
        view: &View,
        config: &Config,
        lives: impl Fn(&Member) -> bool,
    ) -> Option<Change> {
        let AcceptorRequest { number, decides, .. } = self.acceptor?;
        let member = |number| view.of_kind(Kind::Coordinator).find(|m| m.proposer == number);
        let present = view.acceptor(number);
        if decides {
            let address = match member(number).filter(|m| lives(m)) {
                Some(member) => member.address.owner(),
                None if config.mutant.has(Mutant::AddUnseen) => Address::region(u32::from(number)),
                None => return None,
            };
            let new = Acceptor { proposer: number, address };
            return present.is_none().then_some(Change::AcceptorAdded(new));
        }
        let left = view.acceptors.iter().filter(|a| a.proposer != number);
        let alive = left.clone().filter(|a| member(a.proposer).is_some_and(&lives)).count();
        let majority = left.count() / 2 + 1;
        (alive >= majority).then(|| present.copied().map(Change::AcceptorRemoved)).flatten()
    }

    /// Marks the next slot to be decided, even without a change.
    pub(super) const fn settle_slot(&mut self) {
        self.settle = true;
    }

    /// Whether nothing is pending except joins and changes of the set of acceptors.
    pub(super) const fn is_empty(&self) -> bool {
        self.leaves.is_empty() && self.lease.is_none() && !self.settle
    }

    /// Whether a join can be decided. One that waits for the end of a member of its name cannot.
    pub(super) fn has_joins(&self, view: &View) -> bool {
        let is_free = |join: &Join| view.namesakes(join.newcomer).next().is_none();
        self.joins.iter().any(|join| join.reach == Reach::Reached && is_free(join))
    }

    /// Whether some newcomer still has to be read.
    pub(super) fn has_unreached(&self) -> bool {
        self.joins.iter().any(|join| join.reach != Reach::Reached)
    }

    /// The newcomers that this process has to READ, each with the number of its READ.
    pub(super) fn unread(&mut self) -> impl Iterator<Item = (Address, u32)> {
        let reads = &mut self.reads;
        self.joins.iter_mut().filter(|join| join.reach == Reach::Unread).map(|join| {
            *reads = reads.wrapping_add(1);
            join.reach = Reach::Reading(*reads);
            (join.newcomer.address, *reads)
        })
    }

    /// Takes the result of a READ. A newcomer that could not be read is not kept, and this is the
    /// answer to it: it asks again.
    pub(super) fn read(&mut self, number: u32, reached: bool) -> Option<(Address, Message<'static>)> {
        let place = self.joins.iter().position(|join| join.reach == Reach::Reading(number))?;
        self.take_read(place, reached, Reach::Read)
    }

    /// The newcomers that this process has read. `asks`: whom it has to ask to read one as well, if
    /// anybody. Returns whom to ask, and for which address.
    pub(super) fn read_by_others(
        &mut self,
        asks: impl Fn(&Newcomer) -> Option<Address>,
    ) -> Vec<(Address, Address)> {
        let mut ask = Vec::new();
        for join in self.joins.iter_mut().filter(|join| matches!(join.reach, Reach::Read | Reach::Asked)) {
            match asks(&join.newcomer) {
                None => join.reach = Reach::Reached,
                Some(by) if join.reach == Reach::Read => {
                    join.reach = Reach::Asked;
                    ask.push((by, join.newcomer.address));
                }
                Some(_) => {}
            }
        }
        ask
    }

    /// Takes the answer of who was asked to read a newcomer; as [`Requests::read`].
    pub(super) fn read_by_other(
        &mut self,
        at: Address,
        reached: bool,
    ) -> Option<(Address, Message<'static>)> {
        let asked = |join: &Join| join.newcomer.address == at && join.reach == Reach::Asked;
        let place = self.joins.iter().position(asked)?;
        self.take_read(place, reached, Reach::Reached)
    }

    fn take_read(&mut self, place: usize, reached: bool, next: Reach) -> Option<(Address, Message<'static>)> {
        if reached {
            self.joins[place].reach = next;
            return None;
        }
        Some(self.joins.remove(place).refused(Refusal::Unreachable))
    }

    /// The planted bug: no newcomer needs a READ.
    pub(super) fn reach_all(&mut self) {
        self.joins.iter_mut().for_each(|join| join.reach = Reach::Reached);
    }

    /// The newcomer at this address needs no READ.
    pub(super) fn is_reached(&mut self, at: Address) {
        for join in self.joins.iter_mut().filter(|join| join.newcomer.address == at) {
            join.reach = Reach::Reached;
        }
    }

    /// Removes joins that are on hold and returns the answers to them; `left` gives the remaining
    /// time for a newcomer. Their senders ask again.
    pub(super) fn refuse_on_hold(
        &mut self,
        left: impl Fn(&Newcomer) -> Nanos,
    ) -> Vec<(Address, Message<'static>)> {
        let mut held = Vec::new();
        self.joins.retain(|join| {
            let left = left(&join.newcomer);
            if left > Nanos::ZERO {
                held.push(join.refused(Refusal::OnHold(left)));
            }
            left == Nanos::ZERO
        });
        held
    }

    /// The changes for the next view, as far as they fit; `failed` are the suspects.
    pub(super) fn edit(
        &self,
        failed: Vec<Change>,
        acceptor: Option<Change>,
        view: &View,
        config: &Config,
    ) -> Edit {
        // A member that asked to leave and then died has left.
        let left = self.leaves.iter().map(|&who| Change::Left(who));
        let remove = left.chain(failed).collect();
        let mut edit =
            Edit { remove, admit: Vec::new(), lease: self.lease.map(|request| request.lease), acceptor };
        if acceptor.is_some() && !fits(view, &edit, config) {
            edit.acceptor = None;
        }
        for join in self.joins.iter().filter(|join| join.reach == Reach::Reached) {
            edit.admit.push(join.newcomer);
            if !fits(view, &edit, config) {
                edit.admit.pop();
                break;
            }
        }
        edit
    }

    /// Drops what a decided view has settled, and answers the joins among it. `jump`: there are views
    /// between it and the last one, which may have changed the lease to and fro. `is_suspected`: see
    /// [`Requests::is_name_taken`].
    pub(super) fn settle<F: Fabric>(
        &mut self,
        view: &View,
        jump: bool,
        is_suspected: impl Fn(Incarnation) -> bool,
        fabric: &mut F,
    ) {
        let stays = |m: &Member| !is_suspected(m.incarnation) && !self.leaves.contains(&m.incarnation);
        self.joins.retain(|join| {
            let token = join.newcomer.token;
            let outcome = if let Some(member) = view.by_token(token) {
                Ok((member.incarnation, view.id))
            } else if view.departed.iter().any(|d| d.token == token) {
                Err(Refusal::Departed)
            } else if join.as_of.0.saturating_add(JOIN_WINDOW) < view.id.0 {
                Err(Refusal::Stale)
            } else if join.newcomer.host != Incarnation::NONE && !view.is_host(join.newcomer.host) {
                Err(Refusal::NoHost)
            } else if view.namesakes(join.newcomer).any(&stays) {
                Err(Refusal::NameTaken)
            } else {
                return true;
            };
            // A joiner reads the view, so only a refusal needs an answer.
            if outcome.is_err() {
                fabric.send(join.from, &Message::JoinReply { token, outcome }.encode());
            }
            false
        });
        self.leaves.retain(|who| view.member(*who).is_some());
        self.lease = self.lease.filter(|request| {
            request.lease != view.lease && request.replaces.is_none_or(|old| !jump && old == view.lease)
        });
        self.acceptor =
            self.acceptor.filter(|request| view.acceptor(request.number).is_some() != request.decides);
        self.settle = false;
    }
}
