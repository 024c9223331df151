//! Reading slots: is the newest view that a process knows still the newest, and if not, what comes next?
//!
//! uKharon, Algorithm 6, with one difference. Where the paper's reader proposes what it found (line 8), ours asks the
//! coordinators to settle the slot: so members need no right to CAS a slot, and proposal numbers stay the
//! coordinators'. A value counts as decided when a majority of acceptors accepted it under the same number.

use crate::Config;
use crate::mutants::Mutant;
use crate::sealed;
use crate::tokens::{self, Part};
use crate::view::{Acceptor, View};
use crate::word::{Lap, State, Word};
use obol_fabric::layout::ViewHead;
use obol_fabric::{Address, Completion, Fabric, Instant, LinkError, Remote, ViewId};
use std::sync::Arc;

/// A view may take so many times as long to be read as a word, and that doubles at most so often.
const VIEW_PATIENCE: u64 = 8;
const DOUBLINGS_MAX: u32 = 3;

/// What a poll found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A majority holds nothing accepted in the next slot: the view was the newest when the READs were posted.
    Empty {
        /// The view.
        view: ViewId,
        /// When the READs were posted.
        posted: Instant,
    },
    /// The next view.
    Next(Arc<View>),
    /// A later view: the ones in between are out of reach, or nobody asked for them. And the latest base whose CLEAR
    /// any of the coordinators knows.
    Newer(Arc<View>, ViewId),
    /// A snapshot round found no later view at a majority; the latest CLEAR all the same.
    NothingNewer(ViewId),
    /// The next slot holds something that is not decided yet.
    Undecided(ViewId),
    /// No majority answered.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// Reading slot words; one answer for each acceptor.
    Words(Vec<Option<Option<Word>>>),
    /// Reading the value of a decided slot. If that it is the decided one rests on whose words were read, these are they.
    Value(ViewId, Option<Vec<Address>>),
    /// Reading the coordinators' newest views: answers so far, and the newest of them.
    Views {
        answered: u16,
        failed: u16,
        newest: Option<Arc<View>>,
        cleared: ViewId,
    },
    /// Reading whole rings: slots have moved on, and no coordinator that is left knows how far.
    Rings {
        answers: Vec<Option<Option<Vec<Word>>>>,
        cleared: ViewId,
    },
    /// Reading the words of a slot that is known to be decided; one answer for each acceptor.
    Settled(ViewId, Vec<Option<Option<Word>>>),
}

/// One reader; at most one round of READs is out at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Poll {
    stage: Stage,
    round: u32,
    posted: Instant,
    /// The view whose successor is asked for, and its acceptors.
    view: Option<Arc<View>>,
    /// A slot of a later lap was seen: there is a later view, whoever knows it.
    behind: bool,
    /// How often in a row a view could not be read in time.
    expired: u32,
}

impl Default for Poll {
    fn default() -> Self {
        Self::new()
    }
}

impl Poll {
    /// A reader with nothing out.
    #[must_use]
    pub const fn new() -> Self {
        Self { stage: Stage::Idle, round: 0, posted: Instant::ZERO, view: None, behind: false, expired: 0 }
    }

    /// Whether READs are out.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Takes an equal copy for the view that it asks about, if that is this one.
    pub(crate) fn share_view(&mut self, own: &Arc<View>, same: &Arc<View>) {
        if self.view.as_ref().is_some_and(|view| Arc::ptr_eq(view, own)) {
            self.view = Some(Arc::clone(same));
        }
    }

    /// Whether whole rings are being read, because no coordinator that is left has published the newest view.
    #[must_use]
    pub const fn reads_rings(&self) -> bool {
        matches!(self.stage, Stage::Rings { .. } | Stage::Settled(..))
    }

    /// When to give up what is out. A view that thousands of members fetch at once takes long, and whoever gives up early
    /// and asks again only lengthens the queue, so that nobody would ever get it: each failure in a row doubles the time.
    #[must_use]
    pub fn deadline(&self, config: &Config) -> Instant {
        match self.stage {
            Stage::Idle => Instant::NEVER,
            Stage::Words(_) => self.posted + config.timing.renew_timeout,
            // The last of these comes after views and rings, and its time counts from the same start.
            Stage::Value(..) | Stage::Views { .. } | Stage::Rings { .. } | Stage::Settled(..) => {
                self.posted + config.timing.renew_timeout.saturating_mul(VIEW_PATIENCE << self.expired)
            }
        }
    }

    /// Asks whether `view` is the newest. Drops whatever is out.
    pub fn ask<F: Fabric>(&mut self, view: &Arc<View>, config: &Config, now: Instant, fabric: &mut F) {
        self.start(view, now);
        self.stage = Stage::Words(vec![None; view.acceptors.len()]);
        let offset = config.layout.slot(view.id.next().0);
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollWord, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset }, 8, token);
        }
    }

    /// Asks the coordinators of `view` for the newest view that they know. Drops whatever is out.
    pub fn snapshot<F: Fabric>(&mut self, view: &Arc<View>, config: &Config, now: Instant, fabric: &mut F) {
        self.start(view, now);
        self.stage = Stage::Views { answered: 0, failed: 0, newest: None, cleared: ViewId::GENESIS };
        let from = config.layout.view();
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollView, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset: from }, config.layout.view_bytes(), token);
        }
    }

    /// As [`Poll::snapshot`], of others: of those who are said to decide after a later view than `view`.
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

    /// Gives up what is out.
    pub fn cancel(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.stage = Stage::Idle;
    }

    /// Gives up waiting for those who have not answered, and judges by the others: a majority that holds something under
    /// several numbers is not made to wait for an acceptor that is silent.
    pub fn expire(&mut self) -> Found {
        if !matches!(self.stage, Stage::Idle | Stage::Words(_) | Stage::Settled(..)) {
            self.expired = (self.expired + 1).min(DOUBLINGS_MAX);
        }
        let found = match (&self.stage, &self.view) {
            (Stage::Words(words), Some(view)) => {
                let slot = view.id.next();
                let good = || words.iter().filter_map(|word| (*word)?);
                let accepted = |word: Word| word.state(slot).is_some_and(|s| s.accepted_proposal != 0);
                let known = good().count() >= view.majority() && good().any(accepted);
                if known { Found::Undecided(slot) } else { Found::Failed }
            }
            (Stage::Rings { answers, cleared }, Some(view)) => {
                let good = answers.iter().filter(|answer| matches!(answer, Some(Some(_)))).count();
                if good >= view.majority() { Found::NothingNewer(*cleared) } else { Found::Failed }
            }
            _ => Found::Failed,
        };
        self.cancel();
        found
    }

    /// Takes the completion of one of the poll's READs.
    pub fn complete<F: Fabric>(
        &mut self,
        part: Part,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        if round != self.round {
            return None;
        }
        let bytes = match *result {
            Ok(Completion::Read(bytes)) => Some(bytes),
            _ => None,
        };
        let found = match (part, &mut self.stage) {
            (Part::PollWord, Stage::Words(words)) => {
                let word = bytes.and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
                let near = self.view.as_ref().map_or(ViewId::GENESIS, |view| view.id.next());
                let word = word.map(|word| config.plant.word(word, near));
                *words.get_mut(usize::from(peer))? = Some(word);
                self.weigh(config, fabric)?
            }
            (Part::PollWord, Stage::Settled(_, words)) => {
                let word = bytes.and_then(|b| b.try_into().ok()).map(|b| Word(u64::from_le_bytes(b)));
                *words.get_mut(usize::from(peer))? = Some(word);
                self.weigh_settled(config, fabric)?
            }
            (Part::PollValue, Stage::Value(slot, voters)) => {
                Self::value(*slot, self.view.as_ref()?.id, voters.as_deref(), bytes)
            }
            (Part::PollView, Stage::Views { answered, failed, newest, cleared }) => {
                *answered += 1;
                match bytes {
                    None => *failed += 1,
                    Some(bytes) => {
                        let view = decode_view_area(bytes).map(Arc::new);
                        *cleared = (*cleared).max(cleared_beside(bytes));
                        if view.as_ref().map(|v| v.id) > newest.as_ref().map(|v| v.id) {
                            *newest = view;
                        }
                    }
                }
                let asked = self.view.as_ref()?;
                let cleared = *cleared;
                let (acceptors, good) = (asked.acceptors.len(), usize::from(*answered - *failed));
                if good < asked.majority() {
                    if acceptors - usize::from(*failed) >= asked.majority() {
                        return None;
                    }
                    Found::Failed
                } else {
                    match newest.take() {
                        Some(view) if view.id > asked.id => Found::Newer(view, cleared),
                        _ if self.behind => {
                            self.read_rings(cleared, config, fabric);
                            return None;
                        }
                        _ => Found::NothingNewer(cleared),
                    }
                }
            }
            (Part::PollView, Stage::Rings { answers, .. }) => {
                let words = bytes.map(|bytes| {
                    bytes.as_chunks::<8>().0.iter().map(|word| Word(u64::from_le_bytes(*word))).collect()
                });
                *answers.get_mut(usize::from(peer))? = Some(words);
                self.weigh_rings(config, fabric)?
            }
            _ => return None,
        };
        self.cancel();
        self.expired = 0;
        Some(found)
    }

    /// Judges the slot words that have come so far.
    fn weigh<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Words(words) = &self.stage else { return None };
        let view = Arc::clone(self.view.as_ref()?);
        let slot = view.id.next();
        let majority = if config.plant.has(Mutant::MinorityRenewal) { 1 } else { view.majority() };
        let answered = words.iter().flatten().count();
        let good: Vec<(usize, Word)> =
            words.iter().enumerate().filter_map(|(at, w)| Some((at, (*w)??))).collect();
        let wraps = config.plant.has(Mutant::WrapIndex);
        let later = |word: Word| match wraps {
            false => word.lap(slot) == Lap::Later,
            true => word.0 >> 32 > slot.0 & 0xffff_ffff,
        };
        if good.iter().any(|(_, word)| later(*word)) {
            self.snapshot(&view, config, self.posted, fabric);
            self.behind = true;
            return None;
        }
        let accepted: Vec<(usize, State)> = good
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
        // Any acceptor that holds the value will do: readers share them out, so that no port carries it to all.
        let turn = fabric.address().region as usize % accepted.len();
        for &(at, state) in accepted[turn..].iter().chain(&accepted[..turn]) {
            let same = accepted.iter().filter(|(_, s)| {
                (s.accepted_proposal, s.accepted_value) == (state.accepted_proposal, state.accepted_value)
            });
            let proposers = config.layout.limits().proposers;
            if same.count() >= view.majority() && (1..=proposers).contains(&u32::from(state.accepted_value)) {
                let area = if config.plant.has(Mutant::ReuseValueArea) { ViewId(0) } else { slot };
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

    /// The newest decision that the rings show. Whoever made it is gone and told nobody who is left.
    fn weigh_rings<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Rings { answers, cleared } = &self.stage else { return None };
        let view = Arc::clone(self.view.as_ref()?);
        let answered = answers.iter().flatten().count();
        let rings: Vec<(usize, &Vec<Word>)> = answers
            .iter()
            .enumerate()
            .filter_map(|(at, ring)| Some((at, ring.as_ref()?.as_ref()?)))
            .collect();
        let decisions = (0..config.layout.limits().slots as usize).filter_map(|place| {
            let words: Vec<(usize, Word)> =
                rings.iter().filter_map(|(at, ring)| Some((*at, *ring.get(place)?))).collect();
            decision_after(view.id, &words, view.majority())
        });
        let newest = decisions.max_by_key(|(slot, ..)| *slot);
        if let Some((slot, at, value)) = newest {
            return self.fetch((slot, at, value), None, config, fabric);
        }
        let touched = rings.iter().flat_map(|(_, ring)| ring.iter().filter_map(|w| slot_after(view.id, *w)));
        let settled = touched.max().map(|slot| ViewId(slot.0 - 1)).filter(|slot| *slot > view.id);
        match settled.filter(|_| rings.len() >= view.majority()) {
            Some(slot) => {
                self.read_settled(slot, config, fabric);
                None
            }
            None => (answered == answers.len()).then_some(Found::NothingNewer(*cleared)),
        }
    }

    /// A slot is opened only when its predecessor is decided, so the predecessor of any that was touched is. Its words are
    /// read anew: those that came with the rings may have been read before the decision.
    fn read_settled<F: Fabric>(&mut self, slot: ViewId, config: &Config, fabric: &mut F) {
        let Some(view) = &self.view else { return };
        self.stage = Stage::Settled(slot, vec![None; view.acceptors.len()]);
        self.round = self.round.wrapping_add(1);
        let offset = config.layout.slot(slot.0);
        for (at, acceptor) in view.acceptors.iter().enumerate() {
            let token = tokens::pack(Part::PollWord, at as u16, self.round);
            fabric.read(Remote { at: acceptor.address, offset }, 8, token);
        }
    }

    /// The value with the highest number at any majority is the decided one: that majority shares an acceptor with the
    /// one that decided, and whatever was accepted under a later number is the same.
    fn weigh_settled<F: Fabric>(&mut self, config: &Config, fabric: &mut F) -> Option<Found> {
        let Stage::Settled(slot, words) = &self.stage else { return None };
        let view = self.view.as_ref()?;
        let good: Vec<(usize, State)> =
            words.iter().enumerate().filter_map(|(at, w)| Some((at, (*w)??.state(*slot)?))).collect();
        if good.len() < view.majority() {
            // A place that was used again meanwhile has a later decision, and the next look finds that.
            return (words.iter().all(Option::is_some)).then_some(Found::Failed);
        }
        let accepted = good.iter().filter(|(_, state)| state.accepted_proposal != 0);
        let Some(&(at, state)) = accepted.max_by_key(|(_, state)| state.accepted_proposal) else {
            // Others decided: the set of acceptors has changed by more than one.
            return Some(Found::Failed);
        };
        let voters = good.iter().map(|(at, _)| view.acceptors[*at].address.owner()).collect();
        let slot = *slot;
        self.fetch((slot, at, state.accepted_value), Some(voters), config, fabric)
    }

    /// Reads the value of a slot from an acceptor's area of this proposer.
    fn fetch<F: Fabric>(
        &mut self,
        (slot, at, value): (ViewId, usize, u16),
        voters: Option<Vec<Address>>,
        config: &Config,
        fabric: &mut F,
    ) -> Option<Found> {
        let acceptor = self.view.as_ref()?.acceptors.get(at)?.address;
        if !(1..=config.layout.limits().proposers).contains(&u32::from(value)) {
            return Some(Found::Failed);
        }
        let offset = config.layout.value(slot.0, value);
        self.stage = Stage::Value(slot, voters);
        let token = tokens::pack(Part::PollValue, at as u16, self.round);
        fabric.read(Remote { at: acceptor, offset }, config.layout.limits().value_bytes, token);
        None
    }

    /// `known` is the newest view that the reader knows.
    fn value(slot: ViewId, known: ViewId, voters: Option<&[Address]>, bytes: Option<&[u8]>) -> Found {
        // Every proposal for a slot follows the same view, so any of them tells whose words count.
        let is_decided = |view: &View| {
            let deciders = view.deciders();
            let heard = |a: &&Acceptor| voters.is_none_or(|voters| voters.contains(&a.address.owner()));
            deciders.iter().filter(heard).count() > deciders.len() / 2
        };
        let view = bytes
            .and_then(|bytes| sealed::open_for(slot, bytes).ok())
            .and_then(View::unseal)
            .filter(|view| view.id == slot);
        match view {
            Some(view) if !is_decided(&view) => Found::Failed,
            Some(view) if slot == known.next() => Found::Next(Arc::new(view)),
            Some(view) => {
                let cleared = view.cleared;
                Found::Newer(Arc::new(view), cleared)
            }
            // A value that can not be read whole is being recycled or rewritten: look again.
            None => Found::Undecided(known.next()),
        }
    }
}

/// The decision of a view after `known` in one place of the ring, if these words show one: its slot, an acceptor that
/// holds it, and whose value area it is in.
fn decision_after(known: ViewId, words: &[(usize, Word)], majority: usize) -> Option<(ViewId, usize, u16)> {
    let accepted = |word: Word| {
        let slot = slot_after(known, word)?;
        let state = word.state(slot).filter(|s| s.accepted_proposal != 0)?;
        Some((slot, state.accepted_proposal, state.accepted_value))
    };
    words.iter().find_map(|&(at, word)| {
        let (slot, _, value) = accepted(word)?;
        let same = words.iter().filter(|(_, w)| accepted(*w) == accepted(word)).count();
        (same >= majority).then_some((slot, at, value))
    })
}

/// The slot of a word, if it comes after `known`.
fn slot_after(known: ViewId, word: Word) -> Option<ViewId> {
    word.slot(known).filter(|slot| *slot > known)
}

/// The CLEAR that a region's owner knows: a single word, so it is never torn, and it holds for ever.
fn cleared_beside(bytes: &[u8]) -> ViewId {
    let at = core::mem::offset_of!(ViewHead, cleared);
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    ViewId(word.map_or(0, u64::from_le_bytes))
}

/// The view in a region's view area, or `None` if there is none or it was torn.
#[must_use]
pub fn decode_view_area(bytes: &[u8]) -> Option<View> {
    View::unseal(bytes.get(size_of::<ViewHead>()..)?)
}
