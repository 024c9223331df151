//! Rows 1, 2, 12 and 13, from the acceptors' words alone: a view is decided when a majority of
//! acceptors has accepted it under one number.

use super::leases::Leases;
use super::seats::{Seats, majority};
use super::violation::{Cue, Verdict, broken};
use crate::marks::{Mark, Marks};
use crate::role::World;
use crate::scenario::Scenario;
use obol_fabric::{Incarnation, Layout, Nanos, ViewId, memory};
use obol_fabric_sim::State;
use obol_membership::consensus::{INSTANCES, SlotState, SlotWord};
use obol_membership::{Change, Kind, Reason, View, frame};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A decided view and derived values.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) view: Arc<View>,
    frame: Arc<[u8]>,
    /// True time of the decision.
    pub(crate) at: u64,
    /// The first view of its run, by comparing members.
    pub(crate) base: ViewId,
    /// The longest lease of its run so far: members', and caches'.
    pub(crate) run_lease: Nanos,
    pub(crate) run_cache_lease: Nanos,
    /// The longest time of its run so far that a holder may remain active after a successor: a
    /// lease, plus the lease of a cache if one may have granted it.
    pub(crate) run_reach: Nanos,
}

/// Acceptances of one value under one number.
#[derive(Clone, Copy, Debug)]
struct Tally {
    slot: u64,
    proposal: u16,
    value: u16,
    acceptors: u32,
    chosen: bool,
}

impl Tally {
    /// Whether an acceptor with this ring still holds its acceptance.
    fn is_named_by(&self, ring: &[SlotWord]) -> bool {
        let word = ring[(self.slot % ring.len() as u64) as usize].state(ViewId(self.slot));
        word.is_some_and(|state| {
            (state.accepted_proposal, state.accepted_value) == (self.proposal, self.value)
        })
    }
}

/// All decisions of a run.
#[derive(Debug)]
pub(crate) struct Decisions {
    layout: Layout,
    /// The acceptors' words as last read: `[acceptor][place in the ring]`.
    words: Vec<Vec<SlotWord>>,
    tallies: Vec<Tally>,
    views: Vec<Decided>,
    tokens: HashMap<u64, Incarnation>,
    used: HashSet<Incarnation>,
    first: ViewId,
    /// The acceptor that has used up its numbers in the first lap.
    exhausted: Option<u32>,
    /// The acceptor with outdated memory, and how many views it has missed.
    away: Option<(u32, u64)>,
    pub(crate) failovers: u64,
    /// Which leases may be decided.
    pub(crate) leases: Leases,
    seats: Seats,
    /// Whether a lease became longer, and shorter.
    pub(crate) lease_changes: (bool, bool),
    buffer: Vec<u8>,
}

impl Decisions {
    pub(super) fn new(scenario: &Scenario, genesis: &Arc<View>) -> Self {
        let layout = scenario.config.layout;
        let first = Decided {
            view: Arc::clone(genesis),
            frame: genesis.to_frame(),
            at: 0,
            base: genesis.id,
            run_lease: genesis.lease,
            run_cache_lease: genesis.cache_lease,
            run_reach: genesis.lease,
        };
        Self {
            layout,
            words: vec![
                vec![SlotWord::from_raw(0); layout.limits().slots as usize];
                scenario.coordinators as usize
            ],
            tallies: Vec::new(),
            views: vec![first],
            tokens: genesis.members.iter().map(|m| (m.token, m.incarnation)).collect(),
            used: genesis.members.iter().map(|m| m.incarnation).collect(),
            first: genesis.id,
            exhausted: scenario.exhausted.map(|(node, _)| node),
            away: scenario.away,
            failovers: 0,
            leases: Leases::new(scenario),
            seats: Seats::new(scenario),
            lease_changes: (false, false),
            buffer: vec![0; layout.limits().value_bytes as usize],
        }
    }

    /// Reads an acceptor's initial words.
    pub(crate) fn start(&mut self, world: &World, node: u32) {
        let first = self.layout.slot(0) as usize / 8;
        let region = &world.memory(node)[first..];
        for (known, word) in self.words[node as usize].iter_mut().zip(region) {
            *known = SlotWord::from_raw(word.load(Ordering::Relaxed));
        }
    }

    pub(crate) fn newest(&self) -> &Arc<View> {
        &self.views[self.views.len() - 1].view
    }

    pub(crate) fn get(&self, id: ViewId) -> Option<&Decided> {
        self.views.get(usize::try_from(id.0.checked_sub(self.first.0)?).ok()?)
    }

    /// Whether a view is older than the first of the run.
    pub(crate) fn is_before(&self, id: ViewId) -> bool {
        id < self.first
    }

    /// An operator requests another set of acceptors, as of the newest view.
    pub(crate) fn request_acceptor(&mut self, number: u16, decides: bool) {
        self.seats.request(number, decides);
    }

    /// Requests for other acceptors have expired.
    pub(crate) fn expire_requests(&mut self) {
        self.seats.expire();
    }

    /// Reads an acceptor's words; true if a view was decided.
    pub(super) fn check(
        &mut self,
        world: &World,
        node: u32,
        long: bool,
        cues: &mut Vec<Cue>,
        marks: &mut Marks,
    ) -> Result<bool, super::Violation> {
        let region = world.memory(node);
        let first = self.layout.slot(0) as usize / 8;
        let mut decided = false;
        for place in 0..self.words[node as usize].len() {
            let word = SlotWord::from_raw(region[first + place].load(Ordering::Relaxed));
            let old = std::mem::replace(&mut self.words[node as usize][place], word);
            if word == old {
                continue;
            }
            self.forward(world, node, old, word)?;
            let slot = self.slot(word);
            let accepted = |w: SlotWord| w.state(ViewId(slot)).filter(|s| s.accepted_proposal != 0);
            let Some(now) = accepted(word) else { continue };
            let before = accepted(old).filter(|_| self.slot(old) == slot);
            let same = |s: SlotState| {
                (s.accepted_proposal, s.accepted_value) == (now.accepted_proposal, now.accepted_value)
            };
            if before.is_some_and(same) {
                let proposer = (u32::from(now.min_proposal) - 1) % self.layout.limits().proposers;
                cues.push(Cue::Outbid(proposer));
            } else {
                decided |= self.accepted(world, node, slot, now, cues, marks)?;
            }
        }
        if long {
            self.reread(world, node)?;
        }
        Ok(decided)
    }

    /// The slot of a word, relative to the newest view; 0 if untouched.
    fn slot(&self, word: SlotWord) -> u64 {
        word.slot(self.newest().id).map_or(0, |slot| slot.0)
    }

    /// The number of decided views.
    pub(crate) const fn count(&self) -> u64 {
        self.views.len() as u64 - 1
    }

    /// Row 13: an acceptor's promise and acceptance only increase, and it accepts nothing above its
    /// promise.
    fn forward(&self, world: &World, node: u32, old: SlotWord, new: SlotWord) -> Verdict {
        let slot = ViewId(self.slot(new));
        let state = new.state(slot).unwrap_or_default();
        let fell = old.state(slot).is_none_or(|before| {
            state.min_proposal < before.min_proposal || state.accepted_proposal < before.accepted_proposal
        });
        if fell || state.accepted_proposal > state.min_proposal {
            return broken!(13, world.now(), "acceptor {node} went back from {old} to {new}");
        }
        Ok(())
    }

    /// Reads the value that an acceptor's word names.
    fn value(&mut self, world: &World, node: u32, slot: u64, proposer: u16) -> Option<Arc<[u8]>> {
        let offset = self.layout.value(slot, proposer);
        let span = memory::span(world.memory(node), offset, self.buffer.len())?;
        memory::copy_out(span, &mut self.buffer);
        frame::decode_frame_for(ViewId(slot), &self.buffer).ok().map(Arc::from)
    }

    /// An acceptor has accepted.
    fn accepted(
        &mut self,
        world: &World,
        node: u32,
        slot: u64,
        state: SlotState,
        cues: &mut Vec<Cue>,
        marks: &mut Marks,
    ) -> Result<bool, super::Violation> {
        let time = world.now();
        let (proposal, value) = (state.accepted_proposal, state.accepted_value);
        let at = match self
            .tallies
            .iter()
            .position(|t| (t.slot, t.proposal, t.value) == (slot, proposal, value))
        {
            Some(at) => at,
            None => {
                let newest = self.newest().id.0;
                let (words, lap) = (&self.words, self.words[0].len() as u64);
                let is_named = |t: &Tally| words.iter().any(|ring| t.is_named_by(ring));
                self.tallies.retain(|t| t.slot + lap > newest || t.chosen && is_named(t));
                if !self.tallies.iter().any(|t| t.slot == slot) {
                    cues.push(Cue::Accepted);
                }
                self.tallies.push(Tally { slot, proposal, value, acceptors: 0, chosen: false });
                self.tallies.len() - 1
            }
        };
        self.tallies[at].acceptors |= 1 << node;
        let Tally { acceptors, chosen, .. } = self.tallies[at];
        if value == 0 || u32::from(value) > self.layout.limits().proposers {
            broken!(2, time, "acceptor {node} accepted proposer {value} in slot {slot}")?;
        }
        let Some(bytes) = self.value(world, node, slot, value) else {
            return broken!(
                2,
                time,
                "acceptor {node} accepted {proposal} of proposer {value} in slot {slot} without a complete value"
            );
        };
        if chosen {
            if self.get(ViewId(slot)).is_none_or(|d| d.frame != bytes) {
                broken!(2, time, "acceptor {node} holds other bytes than were decided in slot {slot}")?;
            }
            return Ok(false);
        }
        // Row 16: only the acceptors of the view before decide.
        let Some(before) = slot.checked_sub(1).and_then(|slot| self.get(ViewId(slot))) else {
            return Ok(false);
        };
        let deciders = before.view.acceptors.iter().fold(0u32, |set, a| set | 1 << a.address.region);
        if ((acceptors & deciders).count_ones() as usize) < majority(&before.view) {
            return Ok(false);
        }
        self.tallies[at].chosen = true;
        if let Some((_, views)) = self.away.filter(|(away, _)| (acceptors & deciders) >> away & 1 == 1) {
            mark_return(views, marks);
        }
        self.acceptors_agree(world, node, self.tallies[at], &bytes)?;
        if let Some(before) = self.get(ViewId(slot)) {
            if before.frame != bytes {
                broken!(
                    1,
                    time,
                    "slot {slot} is decided twice, under {proposal} of proposer {value} with another value"
                )?;
            }
            return Ok(false);
        }
        if slot != self.newest().id.0 + 1 {
            broken!(4, time, "slot {slot} is decided after view {}", self.newest().id)?;
        }
        let Some(view) = View::from_frame(&bytes) else {
            return broken!(2, time, "slot {slot} is decided on bytes that are not a view");
        };
        self.decide(world, view, bytes, marks)?;
        cues.push(Cue::Chosen);
        Ok(true)
    }

    /// Acceptors of the same proposal hold the same bytes.
    fn acceptors_agree(&mut self, world: &World, node: u32, tally: Tally, bytes: &Arc<[u8]>) -> Verdict {
        let Tally { slot, proposal, value, acceptors, .. } = tally;
        for other in (0..self.words.len() as u32).filter(|o| *o != node && acceptors >> o & 1 == 1) {
            let place = (slot % self.words[0].len() as u64) as usize;
            let word = self.words[other as usize][place].state(ViewId(slot)).unwrap_or_default();
            if (word.accepted_proposal, word.accepted_value) == (proposal, value)
                && self.value(world, other, slot, value).is_none_or(|b| b != *bytes)
            {
                broken!(
                    2,
                    world.now(),
                    "slot {slot}: acceptors {node} and {other} accepted {proposal} of proposer {value} but hold different bytes"
                )?;
            }
        }
        Ok(())
    }

    fn decide(&mut self, world: &World, view: View, frame: Arc<[u8]>, marks: &mut Marks) -> Verdict {
        let time = world.now();
        let before = &self.views[self.views.len() - 1];
        let old = Arc::clone(&before.view);
        acceptors_follow(&old, &view, time)?;
        self.leases.follow(&old, &view, time)?;
        self.seats.follow(&old, &view, time, marks)?;
        let compatible = protected(&old) == protected(&view);
        let cached = view.members.iter().any(|m| m.kind == Kind::LeaseCache);
        let reach = Nanos(view.lease.0 + if cached { view.cache_lease.0 } else { 0 });
        let mut run = (view.id, view.lease, view.cache_lease, reach);
        if compatible {
            run.0 = before.base;
            run.1 = run.1.max(before.run_lease);
            run.2 = run.2.max(before.run_cache_lease);
            run.3 = run.3.max(before.run_reach);
        }
        let (base, run_lease, run_cache_lease, run_reach) = run;
        self.lease_changes.0 |= view.lease > old.lease;
        self.lease_changes.1 |= view.lease < old.lease;
        for member in &view.members {
            if old.member(member.incarnation).is_some_and(|m| m.token == member.token) {
                continue;
            }
            if !self.used.insert(member.incarnation) {
                broken!(12, time, "view {} gives incarnation {} out again", view.id, member.incarnation)?;
            }
            if let Some(other) = self.tokens.insert(member.token, member.incarnation) {
                let id = view.id;
                broken!(
                    12,
                    time,
                    "view {id}: one join made incarnations {other} and {}",
                    member.incarnation
                )?;
            }
        }
        if view.members.windows(2).any(|pair| pair[0].incarnation >= pair[1].incarnation) {
            broken!(12, time, "view {} holds an incarnation twice", view.id)?;
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = view.members.iter().find(|m| !names.insert(m.name)) {
            broken!(25, time, "view {} has two members of the name {}", view.id, twice.name)?;
        }
        mark_changes(world, &old, &view, marks);
        if !compatible && !cached && old.members.iter().any(|m| m.kind == Kind::LeaseCache) {
            marks.hit(Mark::LastCacheGone);
        }
        if self.exhausted.is_some_and(|node| {
            let lap = self.words[node as usize].len() as u64;
            view.id.0 - self.first.0 <= lap && view.acceptors.iter().any(|a| a.address.region == node)
        }) {
            marks.hit(Mark::NumbersUsedUp);
        }
        if view.id.0 / INSTANCES != old.id.0 / INSTANCES {
            marks.hit(Mark::InstanceWrapped);
        }
        self.failovers += u64::from(view.changes.iter().any(|c| matches!(c, Change::Failed { .. })));
        let view = Arc::new(view);
        self.views.push(Decided { view, frame, at: time, base, run_lease, run_cache_lease, run_reach });
        Ok(())
    }

    /// A long operation at an acceptor has completed: a decided value that its words name must
    /// still be complete, whatever their lap of the ring.
    fn reread(&mut self, world: &World, node: u32) -> Verdict {
        for at in 0..self.tallies.len() {
            let tally = &self.tallies[at];
            if !tally.chosen || !tally.is_named_by(&self.words[node as usize]) {
                continue;
            }
            let Tally { slot, value, .. } = *tally;
            let bytes = self.value(world, node, slot, value);
            if bytes.as_deref() != self.get(ViewId(slot)).map(|d| &*d.frame) {
                broken!(2, world.now(), "acceptor {node} lost the value that was decided in slot {slot}")?;
            }
        }
        Ok(())
    }

    /// Whether a holder existed in the views below `base`.
    pub(super) fn had_holders(&self, base: ViewId) -> bool {
        base > self.first && self.get(ViewId(base.0 - 1)).is_some_and(|d| !protected(&d.view).is_empty())
    }
}

/// The members that act, or under whose leases others do. A lease on one view is as good as one on
/// another only if they have the same.
fn protected(view: &View) -> BTreeSet<Incarnation> {
    let acts = |kind: Kind| matches!(kind, Kind::Agent | Kind::App);
    view.members.iter().filter(|m| acts(m.kind)).map(|m| m.incarnation).collect()
}

/// An acceptor that has missed this many views accepts again.
fn mark_return(views: u64, marks: &mut Marks) {
    marks.hit(Mark::AwayForLaps);
    if views > 1 << 15 {
        marks.hit(Mark::AwayFor15Bits);
    }
    if views > 1 << 16 {
        marks.hit(Mark::AwayFor16Bits);
    }
}

/// Marks what a view changes.
fn mark_changes(world: &World, old: &View, view: &View, marks: &mut Marks) {
    for change in &view.changes {
        match *change {
            Change::Failed { reason: Reason::Replaced, .. } => marks.hit(Mark::ReplacedSeat),
            Change::Failed { reason: Reason::Host, .. } => marks.hit(Mark::HostRemoved),
            Change::Failed { reason: Reason::Progress, .. } => marks.hit(Mark::Hung),
            Change::Failed { accused, .. } => {
                let lived = old.member(accused).is_some_and(|m| {
                    m.address.seat == 0
                        && world.address(m.address.region) == m.address
                        && world.state(m.address.region) == State::Running
                });
                if lived {
                    marks.hit(Mark::FalseRemoval);
                }
            }
            Change::Left(who) => {
                let coordinator = old.member(who).is_some_and(|m| m.kind == Kind::Coordinator);
                marks.hit(if coordinator { Mark::CoordinatorLeft } else { Mark::Left });
            }
            Change::Settled => marks.hit(Mark::Settled),
            Change::AcceptorAdded(_) => marks.hit(Mark::AcceptorAdded),
            Change::AcceptorRemoved(_) => marks.hit(Mark::AcceptorRemoved),
            Change::Joined(_) | Change::Lease | Change::Recovered(_) => {}
        }
    }
}

/// Row 16: one acceptor is added or removed at a time, so that old and new majorities intersect; and
/// a new acceptor is a member, which has read the newest view from a majority.
fn acceptors_follow(old: &View, view: &View, time: u64) -> Verdict {
    let change = |from: &View, to: &View| {
        from.acceptors
            .iter()
            .filter(|a| to.acceptor(a.proposer).is_none())
            .map(|a| a.proposer)
            .collect::<Vec<_>>()
    };
    let (gone, come) = (change(old, view), change(view, old));
    if gone.len() + come.len() > 1 {
        broken!(16, time, "view {}: acceptors {gone:?} are removed and {come:?} added at once", view.id)?;
    }
    let member = |number: &u16| old.of_kind(Kind::Coordinator).any(|m| m.proposer == *number);
    match come.iter().find(|number| !member(number)) {
        Some(number) => broken!(
            16,
            time,
            "view {}: acceptor {number} is added though it is not in view {}",
            view.id,
            old.id
        ),
        None => Ok(()),
    }
}
