//! Reading slots: whether the newest view that a process knows is still the newest, and if not,
//! which comes next.
//!
//! uKharon, Algorithm 6, with one difference. Where the paper's reader proposes what it found (line
//! 8), this one asks the coordinators to settle the slot: so members need no right to CAS a slot,
//! and proposal numbers stay the coordinators'. A value counts as decided when a majority of
//! acceptors accepted it under the same number.

use crate::consensus::{SlotState, SlotWord};
use crate::mutants::Mutant;
use crate::tokens::{self, Labelled, Part};
use crate::view::{Acceptor, View};
use crate::wire::NUMBER_MAX;
use crate::{Config, frame};

use obol_fabric::layout::ViewHead;
use obol_fabric::{Completion, Fabric, Instant, Nanos, Remote, ViewId};
use std::sync::Arc;

/// The timeout for reading a view, in timeouts for reading a word.
const VIEW_TIMEOUT_FACTOR: u64 = 8;
/// The view timeout doubles each time it expires, at most this often.
const DOUBLINGS_MAX: u32 = 3;
/// Doublings of the time for words, once they have proved to be slow.
const WORD_DOUBLINGS_MAX: u32 = 5;

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A majority has accepted nothing in the next slot: the view was the newest when the READs
    /// were posted.
    Empty {
        view: ViewId,
        /// When the READs were posted.
        posted: Instant,
    },
    Next(Arc<View>),
    /// A later view: the ones in between are unreachable, or were not requested. Also the latest
    /// base with a CLEAR that any of the coordinators knows.
    Newer(Arc<View>, ViewId),
    /// A snapshot found no later view at a majority, with the latest CLEAR.
    NothingNewer(ViewId),
    /// The next slot holds a value that is not decided yet.
    Undecided(ViewId),
    /// No majority answered.
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    /// Reading slot words, one from each acceptor.
    Words(Vec<Option<Option<SlotWord>>>),
    /// Reading the value of a decided slot. If these acceptors were found to have decided it, the
    /// value must confirm that.
    Value(ViewId, Option<Vec<Acceptor>>),
    /// Reading the coordinators' newest views: the number of answers so far, and the newest view.
    Views { answered: u16, failed: u16, newest: Option<Arc<View>>, cleared: ViewId },
    /// Reading whole rings: slots have moved on, and no remaining coordinator knows how far.
    Rings { answers: Vec<Option<Option<Vec<SlotWord>>>>, cleared: ViewId },
    /// Reading any value proposed for the slot of the first of these candidates: it names the
    /// deciders of that slot.
    Deciders(Vec<Candidate>),
    /// Reading the words of that slot, one from each of its deciders.
    Slot { left: Vec<Candidate>, deciders: Vec<Acceptor>, words: Vec<Option<Option<SlotWord>>> },
}

/// A slot with an accepted value, found in whole rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    slot: ViewId,
    /// Whether a later slot was written, so that this one is known to be decided.
    settled: bool,
    /// The acceptors with a value, and the proposer whose value area it is in.
    acceptor: Acceptor,
    proposer: u16,
}

/// One reader; at most one round of READs is pending at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Poll {
    stage: Stage,
    round: u32,
    posted: Instant,
    /// The view whose successor is wanted, and its acceptors.
    view: Option<Arc<View>>,
    /// A slot of a later lap was seen: a later view exists, though its holder is unknown.
    behind: bool,
    /// Consecutive timeouts of reading a view.
    expired: u32,
    /// As `expired`, for words. A reader that gives up before any answer can arrive renews no
    /// lease, and does not even learn that leases are too short.
    slow: u32,
}

impl Poll {
    /// Whether READs are pending.
    pub fn is_busy(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Replaces the polled view by an equal copy, if it is this one.
    pub(crate) fn share_view(&mut self, own: &Arc<View>, same: &Arc<View>) {
        if self.view.as_ref().is_some_and(|view| Arc::ptr_eq(view, own)) {
            self.view = Some(Arc::clone(same));
        }
    }

    /// Whether whole rings are being read, because no remaining coordinator has published the
    /// newest view.
    pub const fn reads_rings(&self) -> bool {
        matches!(self.stage, Stage::Rings { .. } | Stage::Deciders(_) | Stage::Slot { .. })
    }

    /// The timeout of the pending READs. A view that thousands of members fetch at once takes long,
    /// and an early retry only lengthens the queue, so each consecutive failure doubles the time.
    pub fn deadline(&self, config: &Config) -> Instant {
        match self.stage {
            Stage::Idle => Instant::NEVER,
            Stage::Words(_) => self.posted + self.word_patience(config),
            // The last of these stages follows views and rings, with the timeout counted from the
            // same start.
            Stage::Value(..)
            | Stage::Views { .. }
            | Stage::Rings { .. }
            | Stage::Deciders(_)
            | Stage::Slot { .. } => {
                self.posted + config.timing.renew_timeout.saturating_mul(VIEW_TIMEOUT_FACTOR << self.expired)
            }
        }
    }

    fn word_patience(&self, config: &Config) -> Nanos {
        assert!(self.slow <= WORD_DOUBLINGS_MAX);
        config.timing.renew_timeout.saturating_mul(1 << self.slow)
    }

    /// Words took this long. A much shorter time than allowed reduces the timeout again.
    pub fn answered(&mut self, took: Nanos, config: &Config) {
        if took.0 < self.word_patience(config).0 / 4 {
            self.slow = self.slow.saturating_sub(1);
        }
    }

    /// Polls whether `view` is the newest. Drops pending READs.
    pub fn check<F: Fabric>(&mut self, view: &Arc<View>, config: &Config, now: Instant, fabric: &mut F) {
        self.start(view, now);
        self.stage = Stage::Words(vec![None; view.acceptors.len()]);
        let offset = config.layout.slot(view.id.next().0);
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollWord, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset }, 8, token);
        }
    }

    /// Reads the newest view that the coordinators of `view` know. Drops pending READs.
    pub fn snapshot<F: Fabric>(&mut self, view: &Arc<View>, config: &Config, now: Instant, fabric: &mut F) {
        self.start(view, now);
        self.stage = Stage::Views { answered: 0, failed: 0, newest: None, cleared: ViewId::GENESIS };
        let from = config.layout.view();
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollView, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset: from }, config.layout.view_bytes(), token);
        }
    }

    /// As [`Poll::snapshot`], of other acceptors: those that reportedly decide after a later view
    /// than `view`.
    pub fn snapshot_of<F: Fabric>(
        &mut self,
        acceptors: Vec<Acceptor>,
        view: &View,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        let view = View { acceptors, ..view.clone() };
        self.snapshot(&Arc::new(view), config, now, fabric);
    }

    fn start(&mut self, view: &Arc<View>, now: Instant) {
        self.round = self.round.wrapping_add(1);
        self.posted = now;
        self.view = Some(Arc::clone(view));
        self.behind = false;
    }

    /// Drops pending READs.
    pub fn cancel(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.stage = Stage::Idle;
    }

    /// Judges by the answers so far. A majority that holds a value under several numbers does not
    /// wait for a silent acceptor.
    pub fn expire(&mut self) -> Found {
        if !matches!(self.stage, Stage::Idle | Stage::Words(_) | Stage::Slot { .. }) {
            self.expired = (self.expired + 1).min(DOUBLINGS_MAX);
        }
        let found = match (&self.stage, &self.view) {
            (Stage::Words(words), Some(view)) => {
                let slot = view.id.next();
                let good = || words.iter().filter_map(|word| (*word)?);
                let accepted = |word: SlotWord| word.state(slot).is_some_and(|s| s.accepted_proposal != 0);
                let known = good().count() >= view.majority() && good().any(accepted);
                if known { Found::Undecided(slot) } else { Found::Failed }
            }
            (Stage::Rings { answers, cleared }, Some(view)) => {
                let good = answers.iter().filter(|answer| matches!(answer, Some(Some(_)))).count();
                if good >= view.majority() { Found::NothingNewer(*cleared) } else { Found::Failed }
            }
            _ => Found::Failed,
        };
        if matches!(self.stage, Stage::Words(_)) && found == Found::Failed {
            self.slow = (self.slow + 1).min(WORD_DOUBLINGS_MAX);
        }
        self.cancel();
        found
    }

    /// Handles the completion of one of the poll's READs.
    pub fn complete<F: Fabric>(
        &mut self,
        done: Labelled<'_>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        let Labelled { part, peer, round, result } = done;
        if round != self.round {
            return None;
        }
        let bytes = match result {
            Ok(Completion::Read(bytes)) => Some(bytes),
            _ => None,
        };
        let found = match (part, &mut self.stage) {
            (Part::PollWord, Stage::Words(words)) => {
                let word = bytes.and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
                let near = self.view.as_ref().map_or(ViewId::GENESIS, |view| view.id.next());
                let word = word.map(|word| SlotWord::read(word, near, config.mutant));
                *words.get_mut(usize::from(peer))? = Some(word);
                self.judge_words(config, fabric)?
            }
            (Part::PollWord, Stage::Slot { words, .. }) => {
                let word =
                    bytes.and_then(|b| b.try_into().ok()).map(|b| SlotWord::from_raw(u64::from_le_bytes(b)));
                *words.get_mut(usize::from(peer))? = Some(word);
                self.judge_slot(config, fabric)?
            }
            (Part::PollValue, Stage::Deciders(candidates)) => {
                let candidates = core::mem::take(candidates);
                self.learn_deciders(candidates, bytes, config, fabric)?
            }
            (Part::PollValue, Stage::Value(slot, deciders)) => {
                Self::value(*slot, self.view.as_ref()?, deciders.as_deref(), bytes, config)
            }
            (Part::PollView, Stage::Views { .. }) => self.judge_views(bytes, config, fabric)?,
            (Part::PollView, Stage::Rings { answers, .. }) => {
                let words = |bytes: &[u8]| {
                    let words = bytes.as_chunks::<8>().0.iter();
                    words.map(|word| SlotWord::from_raw(u64::from_le_bytes(*word))).collect()
                };
                let words = bytes.map(words);
                *answers.get_mut(usize::from(peer))? = Some(words);
                self.judge_rings(config, fabric)?
            }
            _ => return None,
        };
        self.cancel();
        self.expired = 0;
        assert!(!self.is_busy(), "a poll that was answered is over");
        Some(found)
    }

    /// Judges the views received so far; one acceptor has just answered or failed.
    fn judge_views<F: Fabric>(
        &mut self,
        bytes: Option<&[u8]>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        let Stage::Views { answered, failed, newest, cleared } = &mut self.stage else { return None };
        let asked = self.view.as_ref()?;
        *answered += 1;
        assert!(usize::from(*answered) <= asked.acceptors.len(), "each acceptor answers once");
        match bytes {
            None => *failed += 1,
            Some(bytes) => {
                let view = decode_view_area(bytes).filter(|view| view.fits(&config.layout)).map(Arc::new);
                if view.as_ref().is_some_and(|view| !view.can_follow(asked)) {
                    // Of a set that a recovery gave up: neither its view nor its CLEAR counts.
                    *failed += 1;
                } else {
                    *cleared = (*cleared).max(cleared_beside(bytes));
                    if view.as_ref().map(|v| v.rank()) > newest.as_ref().map(|v| v.rank()) {
                        *newest = view;
                    }
                }
            }
        }
        assert!(failed <= answered);
        let cleared = *cleared;
        let (acceptors, good) = (asked.acceptors.len(), usize::from(*answered - *failed));
        if good < asked.majority() {
            return (acceptors - usize::from(*failed) < asked.majority()).then_some(Found::Failed);
        }
        match newest.take() {
            Some(view) if view.id > asked.id => Some(Found::Newer(view, cleared)),
            _ if self.behind => {
                self.read_rings(cleared, config, fabric);
                None
            }
            _ => Some(Found::NothingNewer(cleared)),
        }
    }

    /// Judges the slot words received so far.
    fn judge_words<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Words(words) = &self.stage else { return None };
        let view = Arc::clone(self.view.as_ref()?);
        assert_eq!(words.len(), view.acceptors.len(), "one word of each acceptor");
        let slot = view.id.next();
        let majority = if config.mutant.has(Mutant::MinorityRenewal) { 1 } else { view.majority() };
        let answered = words.iter().flatten().count();
        let good: Vec<(usize, SlotWord)> =
            words.iter().enumerate().filter_map(|(at, w)| Some((at, (*w)??))).collect();
        if good.iter().any(|(_, word)| word.is_later(slot, config.mutant)) {
            self.snapshot(&view, config, self.posted, fabric);
            self.behind = true;
            return None;
        }
        let accepted: Vec<(usize, SlotState)> = good
            .iter()
            .filter_map(|&(at, word)| Some((at, word.state(slot)?)))
            .filter(|(_, state)| state.accepted_proposal != 0)
            .collect();
        if accepted.is_empty() {
            if good.len() >= majority {
                return Some(Found::Empty { view: view.id, posted: self.posted });
            }
            return (answered == words.len()).then_some(Found::Failed);
        }
        // Any acceptor with the value will do: readers spread over them, so that no single port
        // carries all reads.
        let turn = fabric.address().region as usize % accepted.len();
        for &(at, state) in accepted[turn..].iter().chain(&accepted[..turn]) {
            let same = accepted.iter().filter(|(_, s)| {
                (s.accepted_proposal, s.accepted_value) == (state.accepted_proposal, state.accepted_value)
            });
            let proposers = config.layout.limits().proposers;
            if same.count() >= view.majority() && (1..=proposers).contains(&u32::from(state.accepted_value)) {
                let area = if config.mutant.has(Mutant::ReuseValueArea) { ViewId(0) } else { slot };
                let home = Remote {
                    at: view.acceptors[at].address,
                    offset: config.layout.value(area.0, state.accepted_value),
                };
                self.stage = Stage::Value(slot, None);
                let token = tokens::pack(Part::PollValue, at as u16, self.round);
                fabric.read(home, config.layout.limits().value_bytes, token);
                return None;
            }
        }
        let found = if good.len() >= view.majority() { Found::Undecided(slot) } else { Found::Failed };
        (answered == words.len()).then_some(found)
    }

    fn read_rings<F: Fabric>(&mut self, cleared: ViewId, config: &Config, fabric: &mut F) {
        let Some(view) = &self.view else { return };
        self.stage = Stage::Rings { answers: vec![None; view.acceptors.len()], cleared };
        self.round = self.round.wrapping_add(1);
        let (offset, bytes) = (config.layout.slot(0), config.layout.limits().slots * 8);
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollView, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset }, bytes, token);
        }
    }

    /// The slots in the rings that may hold a later view, newest first. Its deciders are gone and
    /// informed no remaining process.
    ///
    /// The reader knows the deciders of the slot after its own view, but not those of later slots:
    /// the acceptors may have changed any number of times. So its knowledge says where to look, and
    /// each slot names its own deciders.
    fn judge_rings<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Rings { answers, cleared } = &self.stage else { return None };
        let view = self.view.as_ref()?;
        assert_eq!(answers.len(), view.acceptors.len(), "one ring of each acceptor");
        let rings: Vec<(Acceptor, &Vec<SlotWord>)> = answers
            .iter()
            .zip(&view.acceptors)
            .filter_map(|(ring, acceptor)| Some((*acceptor, ring.as_ref()?.as_ref()?)))
            .collect();
        let all = answers.iter().all(Option::is_some);
        if rings.len() < view.majority() {
            return all.then_some(Found::NothingNewer(*cleared));
        }
        let words = || rings.iter().flat_map(|(at, ring)| ring.iter().map(move |word| (*at, *word)));
        let touched = words().filter_map(|(_, word)| slot_after(view.id, word)).max();
        let accepted = words().filter_map(|(acceptor, word)| {
            let slot = slot_after(view.id, word)?;
            let state = word.state(slot).filter(|state| state.accepted_proposal != 0)?;
            let settled = Some(slot) < touched;
            let candidate = Candidate { slot, settled, acceptor, proposer: state.accepted_value };
            Some((slot, state.accepted_proposal, candidate))
        });
        let mut accepted: Vec<(ViewId, u16, Candidate)> = accepted.collect();
        accepted.sort_by_key(|&(slot, proposal, _)| (slot, proposal));
        let candidates: Vec<Candidate> = accepted.into_iter().map(|(.., candidate)| candidate).collect();
        if candidates.is_empty() {
            return all.then_some(Found::NothingNewer(*cleared));
        }
        self.try_next(candidates, config, fabric)
    }

    /// Tries the last of these candidates. All values proposed for its slot follow the same view,
    /// so any of them names the deciders.
    fn try_next<F: Fabric>(
        &mut self,
        mut candidates: Vec<Candidate>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        let proposers = 1..=config.layout.limits().proposers;
        while candidates.last().is_some_and(|last| !proposers.contains(&u32::from(last.proposer))) {
            candidates.pop();
        }
        let Some(&Candidate { slot, acceptor, proposer, .. }) = candidates.last() else {
            // None of the known acceptors was part of a decision that is still readable.
            return Some(Found::Failed);
        };
        self.stage = Stage::Deciders(candidates);
        self.read_value(slot, acceptor, proposer, config, fabric);
        None
    }

    fn learn_deciders<F: Fabric>(
        &mut self,
        mut candidates: Vec<Candidate>,
        bytes: Option<&[u8]>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        let slot = candidates.last()?.slot;
        let known = self.view.as_ref()?;
        let Some(proposed) = bytes.and_then(|bytes| open_view(slot, known, bytes, config)) else {
            // Overwritten, or lost with its region: another acceptor may still hold one.
            candidates.pop();
            return self.try_next(candidates, config, fabric);
        };
        let known = config.mutant.has(Mutant::RingsByKnownAcceptors);
        let deciders = if known { self.view.as_ref()?.acceptors.clone() } else { proposed.deciders() };
        self.round = self.round.wrapping_add(1);
        let offset = config.layout.slot(slot.0);
        for (at, acceptor) in deciders.iter().enumerate() {
            let token = tokens::pack(Part::PollWord, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset }, 8, token);
        }
        let words = vec![None; deciders.len()];
        self.stage = Stage::Slot { left: candidates, deciders, words };
        None
    }

    /// Judges a slot by the words of its deciders. These are read after it is known whether the
    /// slot is settled; words that came with the rings may predate the decision.
    ///
    /// A value accepted by a majority under one number is decided. If the slot is known to be
    /// decided, the value with the highest number at any majority is the decided one: that majority
    /// shares an acceptor with the deciding one, and any value accepted under a later number is the
    /// same.
    fn judge_slot<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Slot { left, deciders, words } = &mut self.stage else { return None };
        let Candidate { slot, settled, .. } = *left.last()?;
        let majority = deciders.len() / 2 + 1;
        let good: Vec<(Acceptor, SlotState)> = words
            .iter()
            .zip(&*deciders)
            .filter_map(|(word, acceptor)| Some((*acceptor, (*word)??.state(slot)?)))
            .collect();
        let all = words.iter().all(Option::is_some);
        if good.len() < majority && !all {
            return None;
        }
        let highest = good.iter().filter(|(_, state)| state.accepted_proposal != 0);
        let highest = highest.max_by_key(|(_, state)| state.accepted_proposal).copied();
        let same = |of: SlotState| {
            let ballot = |state: SlotState| (state.accepted_proposal, state.accepted_value);
            good.iter().filter(|(_, state)| ballot(*state) == ballot(of)).count()
        };
        let decided =
            highest.filter(|(_, state)| good.len() >= majority && (settled || same(*state) >= majority));
        let Some((acceptor, state)) = decided else {
            if !settled && !all {
                return None;
            }
            // Too few are reachable, the place was reused meanwhile, or nothing is decided in the
            // latest slot yet. A slot below it may still be newer than the reader's view.
            let mut left = core::mem::take(left);
            left.retain(|candidate| candidate.slot < slot);
            return self.try_next(left, config, fabric);
        };
        if !(1..=config.layout.limits().proposers).contains(&u32::from(state.accepted_value)) {
            return Some(Found::Failed);
        }
        let known = config.mutant.has(Mutant::RingsByKnownAcceptors);
        self.stage = Stage::Value(slot, (!known).then(|| core::mem::take(deciders)));
        self.read_value(slot, acceptor, state.accepted_value, config, fabric);
        None
    }

    fn read_value<F: Fabric>(
        &mut self,
        slot: ViewId,
        from: Acceptor,
        proposer: u16,
        config: &Config,
        fabric: &mut F,
    ) {
        self.round = self.round.wrapping_add(1);
        let offset = config.layout.value(slot.0, proposer);
        let token = tokens::pack(Part::PollValue, 0, self.round);
        fabric.read(Remote { at: from.address, offset }, config.layout.limits().value_bytes, token);
    }

    /// `known` is the reader's newest view.
    fn value(
        slot: ViewId,
        known: &View,
        deciders: Option<&[Acceptor]>,
        bytes: Option<&[u8]>,
        config: &Config,
    ) -> Found {
        match bytes.and_then(|bytes| open_view(slot, known, bytes, config)) {
            // Cannot happen: all proposals for a slot follow the same view.
            Some(view) if deciders.is_some_and(|deciders| view.deciders() != deciders) => Found::Failed,
            Some(view) if slot == known.id.next() => Found::Next(Arc::new(view)),
            Some(view) => {
                let cleared = view.cleared;
                Found::Newer(Arc::new(view), cleared)
            }
            // A value that cannot be read whole is being recycled or rewritten: read again.
            None => Found::Undecided(known.id.next()),
        }
    }
}

/// The view in a value area, if it is whole, of this slot, and can follow the reader's view.
fn open_view(slot: ViewId, known: &View, bytes: &[u8], config: &Config) -> Option<View> {
    let view = frame::decode_frame_for(slot, bytes).ok().and_then(View::from_frame)?;
    (view.id == slot && view.fits(&config.layout) && view.can_follow(known)).then_some(view)
}

/// The slot of a word, if it is later than `known`.
fn slot_after(known: ViewId, word: SlotWord) -> Option<ViewId> {
    word.slot(known).filter(|slot| *slot > known)
}

/// The CLEAR known to a region's owner: a single word, so never torn, and valid for ever.
fn cleared_beside(bytes: &[u8]) -> ViewId {
    let at = core::mem::offset_of!(ViewHead, cleared);
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    let base = word.map_or(0, u64::from_le_bytes);
    ViewId(if base > NUMBER_MAX { 0 } else { base })
}

/// The view in a region's view area, or `None` if it is empty or torn.
pub fn decode_view_area(bytes: &[u8]) -> Option<View> {
    View::from_frame(bytes.get(size_of::<ViewHead>()..)?)
}
