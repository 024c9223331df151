//! Ending leases early: the leader raises the fence of every page that may still hold a lease on an
//! older view, and sends CLEAR once every holder is clear.
//!
//! A holder is clear when (1) a CAS raised its fence to the new base or above, or found it there (if
//! the holder is dead and its page outlives it, through the seat of a program that reads the page);
//! (2) every process that can read its page is proved dead; or (3) the wait has elapsed on the
//! leader's clock since it learned that the successor of the holder's last view was decided.
//! Anything unknown is waited for. `docs/design/leases.md` has the arguments.

use crate::Config;
use crate::cache::FENCES_MAX;
use crate::lease::lengthened;
use crate::log::Log;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::tokens::{self, Labelled, Part};
use crate::view::{Kind, View};
use crate::wire::{self, Addresses, Message};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Remote, ViewId};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of [`Message::Raise`] before its addresses.
const RAISE_HEAD: usize = 32;

/// Why a holder is clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Not clear yet; its fence is expected at this view.
    Outstanding(ViewId),
    /// Its fence cannot be reached; only a proof or the wait clears it.
    Unreachable,
    Fenced,
    Proved,
    Waited,
}

/// A page that may hold a lease on a view below the base.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    incarnation: Incarnation,
    page: Address,
    /// Its number in the tokens of its fences.
    label: u16,
    /// All processes that can read the page, including the holder, and their addresses.
    readers: BTreeMap<Incarnation, Address>,
    /// The program whose seat the fence is raised through, if the holder is dead.
    through: Option<Incarnation>,
    /// Its fence is raised with the next tick: what is posted before all failures of a link were taken
    /// may fail, too.
    postponed: bool,
    state: State,
    /// When its wait has elapsed.
    over: Instant,
}

impl Holder {
    fn new(
        incarnation: Incarnation,
        page: Address,
        readers: BTreeMap<Incarnation, Address>,
        label: u16,
        state: State,
        over: Instant,
    ) -> Self {
        Self { incarnation, page, label, readers, through: None, postponed: false, state, over }
    }

    const fn is_clear(&self) -> bool {
        matches!(self.state, State::Fenced | State::Proved | State::Waited)
    }

    /// Where its fence is raised.
    fn place(&self) -> Address {
        self.through.and_then(|reader| self.readers.get(&reader)).copied().unwrap_or(self.page)
    }

    /// The holder, or the program that the fence was raised through, is dead: goes on to the next
    /// program. False if there is none.
    fn raise_through_next(&mut self) -> bool {
        let after = |reader: Incarnation| self.through.is_none_or(|last| reader > last);
        let next = self.readers.keys().copied().find(|reader| *reader != self.incarnation && after(*reader));
        assert!(
            next.is_none_or(|next| self.through.is_none_or(|last| last < next)),
            "each reader is tried once"
        );
        self.through = next.or(self.through);
        self.postponed = next.is_some();
        self.postponed
    }
}

/// A request to caches to raise fences.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FanOut {
    /// Unique to this attempt, so that a late answer to another attempt, or to another leader, is
    /// not mistaken for one to this.
    nonce: u64,
    /// The indices in [`Clearing::holders`] that each request named; emptied by its answer.
    chunks: Vec<Vec<u16>>,
    /// When the leader raises the remaining fences itself.
    until: Instant,
}

/// The leader's knowledge that determines what must be cleared.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The recent views.
    pub log: &'a Log,
    /// The latest base with a known or recorded CLEAR.
    pub cleared: ViewId,
    /// Members that are proved dead.
    pub proofs: &'a BTreeSet<Incarnation>,
    /// Whether a member is suspected.
    pub suspected: &'a dyn Fn(Incarnation) -> bool,
}

impl Known<'_> {
    /// The fence that is probably on a member's page: the leader before, or this one, has raised
    /// those of all holders of views below `cleared`.
    fn fence_of(&self, holder: Incarnation) -> ViewId {
        let before = self.cleared.0.checked_sub(1).and_then(|id| self.log.get(ViewId(id)));
        let was_raised = before.is_some_and(|entry| entry.view.member(holder).is_some());
        if was_raised { self.cleared } else { ViewId::GENESIS }
    }

    fn lives(&self, who: Incarnation) -> bool {
        self.log.newest().view.member(who).is_some() && !(self.suspected)(who)
    }

    fn caches(&self) -> Vec<Address> {
        let caches = self.log.newest().view.of_kind(Kind::LeaseCache);
        caches.filter(|m| self.lives(m.incarnation)).map(|m| m.address).collect()
    }

    /// Whether enough holders live for the caches to raise their fences.
    fn caches_raise(&self, holders: &[Holder], config: &Config) -> bool {
        let living = holders.iter().filter(|holder| self.lives(holder.incarnation)).count();
        living >= config.timing.fan_out_from as usize && !self.caches().is_empty()
    }
}

/// The clearing of all views below one base. It begins when the view of that base is decided, or,
/// as far as the fences go, when it is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clearing {
    base: ViewId,
    began: Instant,
    holders: Vec<Holder>,
    /// When even holders that the log does not name are clear; set if the log has a gap.
    blind_until: Option<Instant>,
    round: u32,
    /// The labels of the fences that are posted: one CAS of each at a time, because a CAS is judged by
    /// its own prediction.
    in_flight: BTreeSet<u16>,
    fan_out: Option<FanOut>,
}

impl Clearing {
    const fn new(base: ViewId, round: u32, now: Instant) -> Self {
        Self {
            base,
            began: now,
            holders: Vec::new(),
            blind_until: None,
            round,
            in_flight: BTreeSet::new(),
            fan_out: None,
        }
    }

    /// The fences for a view that is being proposed: `base` is its slot, the one after the newest
    /// view. [`Self::raise_all`] posts them. A fence only revokes, so it may precede the decision;
    /// see `docs/design/leases.md` for who makes sure that the slot is decided. `None` if the
    /// caches raise the fences, after the decision, or if the holders are not known.
    pub fn prepare(
        known: &Known<'_>,
        base: ViewId,
        round: u32,
        config: &Config,
        now: Instant,
    ) -> Option<Self> {
        let mut holders = BTreeMap::new();
        known.log.range(known.cleared, base)?.for_each(|entry| collect(&entry.view, &mut holders));
        let mut early = Self::new(base, round, now);
        for (label, (incarnation, collected)) in (0..).zip(holders) {
            let Collected { page, readers, .. } = collected;
            let state = State::Outstanding(known.fence_of(incarnation));
            let over = Instant::NEVER;
            early.holders.push(Holder::new(incarnation, page, readers, label, state, over));
        }
        (config.timing.fencing && !known.caches_raise(&early.holders, config)).then_some(early)
    }

    /// Posts all fences, once.
    pub fn raise_all<F: Fabric>(&mut self, config: &Config, fabric: &mut F) {
        (0..self.holders.len()).for_each(|at| self.raise(at, config, fabric));
    }

    /// Starts to clear all views in `[cleared, base)`, where `base` is the newest view's. `round`
    /// and `nonce` must differ from those of all earlier attempts. Fences that were raised for this
    /// base while it was proposed count.
    pub fn begin<F: Fabric>(
        known: &Known<'_>,
        early: Option<Self>,
        round: u32,
        nonce: u64,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) -> Self {
        let &Known { log, cleared, proofs, .. } = known;
        let newest = log.newest();
        let (base, view) = (newest.view.base, &newest.view);
        let undrifted = config.mutant.has(Mutant::UndriftedClear);
        let wait = lengthened(view.wait, if undrifted { 0 } else { config.timing.drift_ppm });
        let learned_base = log.get(base).map_or(newest.learned, |entry| entry.learned);
        let from = if config.mutant.has(Mutant::ForgetOlderHolders) { ViewId(base.0 - 1) } else { cleared };
        let mut clearing = Self::new(base, round, now);
        match log.range(from, base) {
            None => clearing.blind_until = Some(learned_base + wait),
            Some(entries) => {
                let mut holders = BTreeMap::new();
                for entry in entries {
                    collect(&entry.view, &mut holders);
                }
                for (incarnation, Collected { page, readers, last }) in holders {
                    let since = log.get(last.next()).map_or(learned_base, |entry| entry.learned);
                    let since =
                        if config.mutant.has(Mutant::TimerFromProposal) { since - view.lease } else { since };
                    let state = State::Outstanding(known.fence_of(incarnation));
                    let (label, over) = (clearing.holders.len() as u16, since + wait);
                    clearing.holders.push(Holder::new(incarnation, page, readers, label, state, over));
                }
            }
        }
        if config.mutant.has(Mutant::FenceOnlyCaches) && view.of_kind(Kind::LeaseCache).next().is_some() {
            clearing.holders.clear();
            clearing.blind_until = None;
        }
        if let Some(early) = early.filter(|early| early.base == base) {
            clearing.continue_with(early, config, fabric);
        } else if config.timing.fencing {
            let delegated = clearing.delegate(known, nonce, config, now, fabric);
            for at in (0..clearing.holders.len()).filter(|at| !delegated.contains(&(*at as u16))) {
                clearing.raise(at, config, fabric);
            }
        }
        clearing.proved(proofs, config, fabric);
        clearing
    }

    /// Takes over the fences that were raised while the view was proposed, and raises those that
    /// are missing.
    fn continue_with<F: Fabric>(&mut self, early: Self, config: &Config, fabric: &mut F) {
        assert_eq!(early.base, self.base, "only fences for this base count");
        (self.round, self.in_flight) = (early.round, early.in_flight);
        let mut labels = early.holders.len() as u16;
        let raised: BTreeMap<Address, Holder> =
            early.holders.into_iter().map(|holder| (holder.page, holder)).collect();
        for at in 0..self.holders.len() {
            let holder = &mut self.holders[at];
            if let Some(early) = raised.get(&holder.page) {
                (holder.label, holder.state) = (early.label, early.state);
                // Of several holders of the page, the one that posted the next fence.
                if holder.incarnation == early.incarnation {
                    (holder.through, holder.postponed) = (early.through, early.postponed);
                }
            } else {
                holder.label = labels;
                labels += 1;
                self.raise(at, config, fabric);
            }
        }
    }

    /// Asks the caches to raise the fences of holders that are probably alive, if there are many.
    /// The other fences fail only after a link timeout, which would delay a cache's answer for the
    /// rest.
    fn delegate<F: Fabric>(
        &mut self,
        known: &Known<'_>,
        nonce: u64,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) -> BTreeSet<u16> {
        if !known.caches_raise(&self.holders, config) {
            return BTreeSet::new();
        }
        let caches = known.caches();
        let living: Vec<u16> = (0..self.holders.len() as u16)
            .filter(|at| known.lives(self.holders[usize::from(*at)].incarnation))
            .collect();
        let room = (config.layout.limits().datagram_bytes as usize - RAISE_HEAD) / wire::ADDRESS_BYTES_MAX;
        let size = living.len().div_ceil(caches.len()).min(room).min(FENCES_MAX);
        assert!(size > 0, "caches raise fences of living holders only");
        let chunks: Vec<Vec<u16>> = living.chunks(size).map(<[u16]>::to_vec).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() <= FENCES_MAX));
        for ((number, chunk), cache) in (0..).zip(&chunks).zip(caches.iter().cycle()) {
            let pages: Vec<Address> = chunk.iter().map(|at| self.holders[usize::from(*at)].page).collect();
            let bytes = wire::encode_addresses(&pages);
            if let Ok(pages) = Addresses::new(&bytes) {
                let base = self.base;
                fabric.send(*cache, &Message::Raise { nonce, chunk: number, base, pages }.encode());
            }
        }
        self.fan_out = Some(FanOut { nonce, chunks, until: now + config.timing.cache_timeout });
        living.into_iter().collect()
    }

    /// Takes a cache's report about fences. The leader tries those that the cache could not raise.
    pub fn raised<F: Fabric>(
        &mut self,
        nonce: u64,
        chunk: u16,
        raised: &[u8],
        config: &Config,
        fabric: &mut F,
    ) {
        let any = config.mutant.has(Mutant::FanOutAnyRound);
        let Some(fan_out) = self.fan_out.as_mut().filter(|f| f.nonce == nonce || any) else { return };
        // One CAS per page at a time: the result of a second one would say nothing about the guess
        // of the first.
        let ours = fan_out.until == Instant::NEVER;
        let Some(places) = fan_out.chunks.get_mut(usize::from(chunk)).map(core::mem::take) else { return };
        for (nth, at) in places.into_iter().enumerate() {
            let holder = &mut self.holders[usize::from(at)];
            let is_raised = raised.get(nth / 8).is_some_and(|bits| bits >> (nth % 8) & 1 == 1);
            if holder.is_clear() {
                continue;
            }
            if is_raised {
                holder.state = State::Fenced;
                fabric.count(Counter::FencesFannedOut, 1);
            } else if !ours {
                self.raise(usize::from(at), config, fabric);
            }
        }
    }

    /// The planted bug: all waits start at a time that may precede the decision.
    pub(crate) fn backdate(&mut self, since: Instant, log: &Log, config: &Config) {
        let over = since + lengthened(log.newest().view.wait, config.timing.drift_ppm);
        for holder in &mut self.holders {
            holder.over = holder.over.min(over);
        }
        self.blind_until = self.blind_until.map(|until| until.min(over));
    }

    /// The base below which views are being cleared.
    pub const fn base(&self) -> ViewId {
        self.base
    }

    /// Whether caches have failed to raise the requested fences in time.
    pub fn caches_timed_out(&self) -> bool {
        self.fan_out.as_ref().is_some_and(|f| f.until == Instant::NEVER)
    }

    pub const fn began(&self) -> Instant {
        self.began
    }

    /// Holders cleared by a fence.
    #[must_use]
    pub fn fenced(&self) -> usize {
        self.holders.iter().filter(|h| h.state == State::Fenced).count()
    }

    /// Whether a fence is still pending.
    pub fn awaits_fences(&self, config: &Config) -> bool {
        config.timing.fencing && self.holders.iter().any(|h| matches!(h.state, State::Outstanding(_)))
    }

    /// Whether CLEAR may be sent.
    pub fn is_done(&self, now: Instant, config: &Config) -> bool {
        if config.mutant.has(Mutant::ClearOnMajority) && self.holders.len() > 1 {
            return self.holders.iter().filter(|h| h.is_clear()).count() * 2 > self.holders.len();
        }
        let in_time = |holder: &Holder| holder.state != State::Waited || holder.over <= now;
        assert!(self.holders.iter().all(in_time), "no wait is over before its time");
        self.blind_until.is_none_or(|until| until <= now) && self.holders.iter().all(Holder::is_clear)
    }

    /// When the next wait elapses.
    pub fn deadline(&self) -> Instant {
        if self.holders.iter().any(|holder| holder.postponed) {
            return Instant::ZERO;
        }
        let outstanding = self.holders.iter().filter(|h| !h.is_clear()).map(|h| h.over);
        let delegated = self.fan_out.as_ref().map(|f| f.until);
        outstanding.chain(self.blind_until).chain(delegated).min().unwrap_or(Instant::NEVER)
    }

    /// Posts the fence of a holder that is not clear.
    fn raise<F: Fabric>(&mut self, at: usize, config: &Config, fabric: &mut F) {
        let holder = &self.holders[at];
        let State::Outstanding(guess) = holder.state else { return };
        let fence = Remote { at: holder.place(), offset: config.layout.fence() };
        let lowers = guess >= self.base && !config.mutant.has(Mutant::ForgetOlderHolders);
        assert!(!lowers, "a fence at {guess:?} is raised to {:?} only", self.base);
        let token = tokens::pack(Part::Fence, holder.label, self.round);
        assert!(self.in_flight.insert(holder.label), "one fence of a label is posted at a time");
        if config.mutant.has(Mutant::FenceByWrite) {
            fabric.write(fence, &self.base.0.to_le_bytes(), token);
        } else {
            fabric.cas(fence, guess.0, self.base.0, token);
        }
    }

    /// Takes the completion of a fence.
    pub fn complete<F: Fabric>(&mut self, done: Labelled<'_>, config: &Config, fabric: &mut F) {
        if done.round != self.round || !self.in_flight.remove(&done.peer) {
            return;
        }
        let waits = |holder: &Holder| match holder.state {
            State::Outstanding(guess) if holder.label == done.peer => Some(guess),
            _ => None,
        };
        let outstanding = self.holders.iter().enumerate().find_map(|(at, holder)| Some((at, waits(holder)?)));
        let Some((at, guess)) = outstanding else { return };
        let state = match done.result {
            Ok(Completion::Swapped(found)) if found == guess.0 || found >= self.base.0 => {
                fabric.count(Counter::FencesRaised, 1);
                State::Fenced
            }
            Ok(Completion::Swapped(_)) if config.mutant.has(Mutant::FailedFenceIsAck) => State::Fenced,
            Ok(Completion::Swapped(found)) => State::Outstanding(ViewId(found)),
            Ok(Completion::Written) => State::Fenced,
            Err(LinkError::PeerDead) if self.holders[at].raise_through_next() => State::Outstanding(guess),
            Ok(Completion::Read(_) | Completion::Permitted) | Err(_) => State::Unreachable,
        };
        assert!(
            !matches!(state, State::Outstanding(found) if found >= self.base && guess < self.base),
            "a fence at the base or above is raised"
        );
        // A member that was excluded and admitted again is two holders of one page.
        for holder in self.holders.iter_mut().filter(|holder| waits(holder).is_some()) {
            holder.state = state;
        }
        if !self.holders[at].postponed {
            self.raise(at, config, fabric);
        }
    }

    /// Takes new proofs of death.
    pub fn proved<F: Fabric>(&mut self, proofs: &BTreeSet<Incarnation>, config: &Config, fabric: &mut F) {
        for at in 0..self.holders.len() {
            self.prove(at, proofs, config, fabric);
        }
    }

    fn prove<F: Fabric>(
        &mut self,
        at: usize,
        proofs: &BTreeSet<Incarnation>,
        config: &Config,
        fabric: &mut F,
    ) {
        let holder = &mut self.holders[at];
        if holder.is_clear() {
            return;
        }
        let dead = if config.mutant.has(Mutant::ForgetReaders) {
            proofs.contains(&holder.incarnation)
        } else {
            holder.readers.keys().all(|reader| proofs.contains(reader))
        };
        if dead {
            assert!(proofs.contains(&holder.incarnation), "who is proved dead includes the holder");
            holder.state = State::Proved;
            fabric.count(Counter::ClearedByProof, 1);
        }
    }

    /// Handles elapsed waits and the timeout of the caches.
    pub fn tick<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) {
        if let Some(fan_out) = self.fan_out.as_mut().filter(|f| f.until <= now) {
            // A late answer still counts.
            fan_out.until = Instant::NEVER;
            let left: Vec<u16> = fan_out.chunks.iter().flatten().copied().collect();
            for at in left {
                self.raise(usize::from(at), config, fabric);
            }
        }
        for at in 0..self.holders.len() {
            if std::mem::take(&mut self.holders[at].postponed) {
                self.raise(at, config, fabric);
            }
        }
        for holder in &mut self.holders {
            if !holder.is_clear() && holder.over <= now {
                holder.state = State::Waited;
                fabric.count(Counter::ClearedByWait, 1);
            }
        }
    }
}

/// What the views of a range say of a holder.
struct Collected {
    page: Address,
    /// Those that read the page.
    readers: BTreeMap<Incarnation, Address>,
    /// The last view that names the holder.
    last: ViewId,
}

/// Adds a view's holders: their pages, the readers of each so far, and the last view that names
/// them.
fn collect(view: &View, holders: &mut BTreeMap<Incarnation, Collected>) {
    for member in view.members.iter().filter(|m| m.is_holder()) {
        let new = || Collected { page: member.address, readers: BTreeMap::new(), last: view.id };
        let holder = holders.entry(member.incarnation).or_insert_with(new);
        holder.readers.insert(member.incarnation, member.address);
        holder.last = view.id;
    }
    for app in view.of_kind(Kind::App) {
        if let Some(holder) = holders.get_mut(&app.host) {
            holder.readers.insert(app.incarnation, app.address);
        }
    }
}
