//! The CAS engine: abortable consensus on one slot at a time by one-sided compare-and-swap.
//!
//! uKharon, section 5 and appendix A, Algorithm 5, with three differences. A phase succeeds when a
//! majority of its CASes succeeded, even if another one failed meanwhile, and aborts once that is
//! impossible. An adopted value is read from an acceptor that accepted it and written into the
//! proposer's own value area before it is proposed again, because an accepted index must always
//! name bytes that the acceptor holds. The adopted value is the one that is decided and announced.
//!
//! Safety does not depend on the predictions: a wrong one costs an abort.

use super::slot_word::{PROPOSAL_MAX, SlotState, SlotWord};
use super::{Abort, Consensus, Outcome, Phase};
use crate::frame;
use crate::mutants::{ActiveMutant, Mutant};
use crate::tokens::{self, Part};
use crate::view::Acceptor;
use obol_fabric::{Completion, Fabric, Layout, LinkError, Remote, ViewId};
use std::sync::Arc;

/// The result of the last CAS at an acceptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Pending,
    Swapped,
    /// It found another word.
    Mismatch,
    /// The link failed: the result is unknown.
    Lost,
    /// None was posted: the acceptor's proposal numbers are exhausted.
    UsedUp,
}

/// What the proposer assumes about one acceptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    acceptor: Acceptor,
    /// The word that its slot holds if all posted CASes succeed.
    predicted: SlotWord,
    /// The expected word of the last CAS.
    expected: SlotWord,
    /// Number of the last CAS posted to it.
    round: u32,
    answer: Answer,
    /// Whether its accepted value could not be read whole in this attempt, so that it counts as
    /// none.
    value_torn: bool,
}

/// The state of one proposer; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CasEngine {
    layout: Layout,
    mutant: ActiveMutant,
    me: u16,
    slot: ViewId,
    phase: Phase,
    proposal: u16,
    rows: Vec<Row>,
    /// The value that is proposed or was adopted.
    value: Arc<[u8]>,
    adopted: bool,
    round: u32,
    /// Last known words of the ring's other slots: predictions for the next lap.
    ring: Vec<Vec<(Acceptor, SlotWord)>>,
}

impl CasEngine {
    fn majority(&self) -> usize {
        if self.mutant.has(Mutant::HalfIsMajority) {
            return (self.rows.len() / 2).max(1);
        }
        self.rows.len() / 2 + 1
    }

    fn state(&self, row: usize) -> SlotState {
        self.rows[row].predicted.state(self.slot).unwrap_or_default()
    }

    fn post_cas<F: Fabric>(&mut self, at: usize, desired: SlotWord, fabric: &mut F) {
        let promised = desired.state(self.slot).map(|state| state.min_proposal);
        assert_eq!(promised, Some(self.proposal), "every word of an attempt has its number");
        assert!(
            self.state(at).min_proposal <= self.proposal || self.mutant.has(Mutant::WrapProposal),
            "a promise is never taken back"
        );
        self.round = self.round.wrapping_add(1);
        let row = &mut self.rows[at];
        row.expected = row.predicted;
        row.predicted = desired;
        row.round = self.round;
        row.answer = Answer::Pending;
        row.value_torn = false;
        let (expected, token) = (row.expected, tokens::pack(Part::EngineCas, at as u16, row.round));
        fabric.cas(self.word_at(at), expected.raw(), desired.raw(), token);
    }

    /// Whether this proposer can still outbid the promise of the acceptor in this row.
    fn has_room(&self, row: usize) -> bool {
        self.mutant.has(Mutant::WrapProposal)
            || self.state(row).min_proposal <= PROPOSAL_MAX - self.layout.limits().proposers as u16
    }

    /// Checks whether the current phase has its majority, or can no longer get one.
    fn judge<F: Fabric>(&mut self, fabric: &mut F) -> Option<Outcome> {
        if !matches!(self.phase, Phase::Preparing | Phase::Accepting) {
            return None;
        }
        let count = |answer| self.rows.iter().filter(|row| row.answer == answer).count();
        let (swapped, mismatch) = (count(Answer::Swapped), count(Answer::Mismatch));
        let lost = count(Answer::Lost) + count(Answer::UsedUp);
        if swapped >= self.majority() {
            return if self.phase == Phase::Preparing { self.adopt(fabric) } else { Some(self.decided()) };
        }
        if self.rows.len() - mismatch - lost >= self.majority() {
            return None;
        }
        let of_later = |row: &Row| row.predicted.state(self.slot).is_none();
        let outbid = |row: &Row| {
            row.answer != Answer::UsedUp
                && row.predicted.state(self.slot).is_some_and(|state| state.min_proposal > self.proposal)
        };
        let reason = if self.rows.iter().any(of_later) {
            Abort::Behind
        } else if self.rows.iter().any(outbid) {
            Abort::Contended
        } else if mismatch > 0 {
            Abort::Mispredicted
        } else {
            Abort::NoMajority
        };
        Some(self.abort(reason))
    }

    /// Prepared: adopts the accepted value with the highest number among the promises, if there is
    /// one.
    fn adopt<F: Fabric>(&mut self, fabric: &mut F) -> Option<Outcome> {
        let highest = (0..self.rows.len())
            .filter(|&at| self.rows[at].answer == Answer::Swapped && !self.rows[at].value_torn)
            .map(|at| (self.rows[at].expected.state(self.slot).unwrap_or_default(), at))
            .filter(|(state, _)| state.accepted_proposal != 0)
            .max_by_key(|(state, _)| state.accepted_proposal);
        let Some((state, at)) = highest.filter(|_| !self.mutant.has(Mutant::SkipAdoption)) else {
            self.phase = Phase::Prepared(false);
            return Some(Outcome::Prepared);
        };
        if state.accepted_value == 0 || u32::from(state.accepted_value) > self.layout.limits().proposers {
            return Some(self.abort(Abort::Unreadable));
        }
        assert!(at <= usize::from(u8::MAX));
        self.phase = Phase::Reading(at as u8);
        let value = self.value_at(at, state.accepted_value);
        self.post_read(at, value, self.layout.limits().value_bytes, fabric);
        None
    }

    /// The area of a proposer's value at an acceptor.
    fn value_at(&self, at: usize, proposer: u16) -> Remote {
        let area = if self.mutant.has(Mutant::ReuseValueArea) { ViewId(0) } else { self.slot };
        Remote { at: self.rows[at].acceptor.address, offset: self.layout.value(area.0, proposer) }
    }

    fn word_at(&self, at: usize) -> Remote {
        Remote { at: self.rows[at].acceptor.address, offset: self.layout.slot(self.slot.0) }
    }

    fn post_read<F: Fabric>(&mut self, at: usize, from: Remote, bytes: u32, fabric: &mut F) {
        self.round = self.round.wrapping_add(1);
        fabric.read(from, bytes, tokens::pack(Part::EngineRead, at as u16, self.round));
    }

    /// Proposes the value to one acceptor, if its word is known to be of this slot: in the word of
    /// an earlier lap, the value area still holds what was accepted there. One whose promise is
    /// pending has its turn when that arrives.
    fn accept_at<F: Fabric>(&mut self, at: usize, value: &[u8], fabric: &mut F) {
        let row = &self.rows[at];
        let is_reached = if self.mutant.has(Mutant::WriteOverEarlierLap) {
            row.answer != Answer::UsedUp && row.predicted.state(self.slot).is_some()
        } else {
            matches!(row.answer, Answer::Swapped | Answer::Mismatch)
                && row.predicted.slot(self.slot) == Some(self.slot)
        };
        if !is_reached || self.state(at).min_proposal > self.proposal {
            return;
        }
        let accepted = SlotState {
            min_proposal: self.proposal,
            accepted_proposal: self.proposal,
            accepted_value: self.me,
        };
        let home = self.value_at(at, self.me);
        let token = tokens::pack(Part::EngineWrite, at as u16, self.round);
        let is_early = self.mutant.has(Mutant::CasBeforeWrite);
        if !is_early {
            fabric.write(home, value, token);
        }
        self.post_cas(at, SlotWord::new(self.slot, accepted), fabric);
        if is_early {
            fabric.write(home, value, token);
        }
    }

    /// Whether the last CAS to this acceptor proposed the value of this attempt.
    fn is_proposed(&self, at: usize) -> bool {
        self.state(at).accepted_proposal == self.proposal
    }

    fn decided(&mut self) -> Outcome {
        let mut swapped = (0..self.rows.len()).filter(|at| self.rows[*at].answer == Answer::Swapped);
        assert!(
            swapped.all(|at| self.is_proposed(at)),
            "an acceptor counts for what it accepted in this attempt"
        );
        self.phase = Phase::Decided;
        Outcome::Decided { value: Arc::clone(&self.value), adopted: self.adopted }
    }

    fn abort(&mut self, reason: Abort) -> Outcome {
        // Acceptors mostly hold the same word, so one that has not answered was probably
        // mispredicted in the same way. Learning that from its own answer would cost another
        // attempt. The exception is exhausted numbers: an acceptor assumed to be exhausted is not
        // tried.
        let mut with_room = (0..self.rows.len()).filter(|at| self.has_room(*at)).map(|at| &self.rows[at]);
        let wrong = with_room.find(|row| row.answer == Answer::Mismatch);
        if let Some((expected, found)) = wrong.map(|row| (row.expected, row.predicted)) {
            for row in &mut self.rows {
                if row.answer == Answer::Pending && row.expected == expected {
                    row.predicted = found;
                }
            }
        }
        self.phase = Phase::Idle;
        Outcome::Aborted(reason)
    }
}

impl Consensus for CasEngine {
    fn new(me: u16, layout: Layout, mutant: ActiveMutant) -> Self {
        Self {
            layout,
            mutant,
            me,
            slot: ViewId::GENESIS,
            phase: Phase::Decided,
            proposal: 0,
            rows: Vec::new(),
            value: Arc::from([]),
            adopted: false,
            round: 0,
            ring: vec![Vec::new(); layout.limits().slots as usize],
        }
    }

    fn slot(&self) -> ViewId {
        self.slot
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn open(&mut self, slot: ViewId, acceptors: &[Acceptor], prepared_by: Option<u16>) {
        let index = |slot: ViewId| (slot.0 % u64::from(self.layout.limits().slots)) as usize;
        let leaving = index(self.slot);
        self.ring[leaving] = self.rows.iter().map(|row| (row.acceptor, row.predicted)).collect();
        let lap = &self.ring[index(slot)];
        let guess = prepared_by
            .filter(|&by| by != self.me && u32::from(by) <= self.layout.limits().proposers)
            .map(|by| SlotWord::new(slot, SlotState { min_proposal: by, ..SlotState::default() }));
        self.rows = acceptors
            .iter()
            .map(|&acceptor| {
                let known = lap.iter().find(|(known, _)| *known == acceptor).map(|(_, word)| *word);
                let predicted = guess.or(known).unwrap_or_default();
                Row {
                    acceptor,
                    predicted,
                    expected: predicted,
                    round: 0,
                    answer: Answer::Pending,
                    value_torn: false,
                }
            })
            .collect();
        self.slot = slot;
        self.phase = Phase::Idle;
        self.proposal = self.me;
        self.adopted = false;
        self.value = Arc::from([]);
    }

    /// Algorithm 5, lines 14 to 27.
    ///
    /// An acceptor whose numbers are exhausted is skipped like an unreachable one: it need not be
    /// part of the majority.
    fn prepare<F: Fabric>(&mut self, fabric: &mut F) -> Option<Outcome> {
        if (0..self.rows.len()).any(|at| self.rows[at].predicted.state(self.slot).is_none()) {
            return Some(self.abort(Abort::Behind));
        }
        let with_room: Vec<usize> = (0..self.rows.len()).filter(|at| self.has_room(*at)).collect();
        if with_room.len() < self.majority() {
            return Some(self.abort(Abort::Exhausted));
        }
        let highest = with_room.iter().map(|at| self.state(*at).min_proposal).max().unwrap_or(0);
        let stride = self.layout.limits().proposers as u16;
        let wraps = self.mutant.has(Mutant::WrapProposal) && highest > PROPOSAL_MAX - stride;
        // A number that this proposer already used is skipped as well: the proposal of an earlier
        // attempt may be accepted under it somewhere.
        let taken = if self.mutant.has(Mutant::ReuseNumber) { highest.saturating_sub(1) } else { highest };
        while self.proposal <= taken && !wraps {
            self.proposal += stride;
        }
        assert!(
            self.proposal <= PROPOSAL_MAX,
            "an acceptor with room promised less than a stride below the end"
        );
        assert!((self.proposal - self.me).is_multiple_of(stride), "no other proposer has this number");
        assert!(
            self.proposal > highest
                || self.mutant.has(Mutant::ReuseNumber)
                || self.mutant.has(Mutant::WrapProposal),
            "a number is higher than every promise it asks for"
        );
        self.phase = Phase::Preparing;
        for at in 0..self.rows.len() {
            if !with_room.contains(&at) {
                self.rows[at].answer = Answer::UsedUp;
                continue;
            }
            let promised = SlotState { min_proposal: self.proposal, ..self.state(at) };
            self.post_cas(at, SlotWord::new(self.slot, promised), fabric);
        }
        None
    }

    /// Algorithm 5, lines 29 to 42.
    ///
    /// The value is written before the slot is swapped, on the same link, so an acceptor never
    /// holds an accepted index without its value; and after its word is known to be of this slot,
    /// so a later lap never writes over bytes that a word of an earlier one names.
    fn accept<F: Fabric>(
        &mut self,
        own: Arc<[u8]>,
        before: impl FnOnce(&mut F),
        fabric: &mut F,
    ) -> Option<Outcome> {
        let Phase::Prepared(adopted) = self.phase else { return None };
        let promises = self.rows.iter().filter(|row| row.answer == Answer::Swapped).count();
        assert!(promises >= self.majority(), "a majority has promised before anything is proposed");
        assert!(!adopted || !self.value.is_empty(), "what was adopted has been read");
        self.adopted = adopted;
        let value = if adopted { Arc::clone(&self.value) } else { Arc::clone(&own) };
        self.phase = Phase::Accepting;
        before(fabric);
        for at in 0..self.rows.len() {
            self.accept_at(at, &value, fabric);
        }
        self.value = if self.mutant.has(Mutant::AnnounceOwnValue) && !own.is_empty() { own } else { value };
        self.judge(fabric)
    }

    fn complete<F: Fabric>(
        &mut self,
        part: Part,
        peer: u16,
        round: u32,
        result: &Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) -> Option<Outcome> {
        let at = usize::from(peer);
        match part {
            Part::EngineCas => {
                let row = self.rows.get_mut(at)?;
                // The result of an older CAS says nothing: a later one is pending on the same link.
                if row.round != round || row.answer != Answer::Pending {
                    return None;
                }
                row.answer = match *result {
                    Ok(Completion::Swapped(found)) if found == row.expected.raw() => Answer::Swapped,
                    Ok(Completion::Swapped(_)) if self.mutant.has(Mutant::FailedCasIsAck) => Answer::Swapped,
                    Ok(Completion::Swapped(found)) => {
                        row.predicted = SlotWord::read(found, self.slot, self.mutant);
                        Answer::Mismatch
                    }
                    _ => Answer::Lost,
                };
                if matches!(self.phase, Phase::Accepting | Phase::Decided) && !self.is_proposed(at) {
                    let value = Arc::clone(&self.value);
                    self.accept_at(at, &value, fabric);
                }
                self.judge(fabric)
            }
            Part::EngineRead if self.phase == Phase::Reading(at as u8) && round == self.round => {
                let Ok(Completion::Read(bytes)) = *result else { return Some(self.abort(Abort::Unreadable)) };
                let Ok(whole) = frame::decode_frame_for(self.slot, bytes) else {
                    if self.mutant.has(Mutant::TornValueOfLaterLap) {
                        self.rows[at].value_torn = true;
                        return self.adopt(fabric);
                    }
                    self.phase = Phase::Checking(at as u8);
                    self.post_read(at, self.word_at(at), size_of::<u64>() as u32, fabric);
                    return None;
                };
                self.value = Arc::from(whole);
                self.phase = Phase::Prepared(true);
                Some(Outcome::Adopted)
            }
            Part::EngineRead if self.phase == Phase::Checking(at as u8) && round == self.round => {
                let raw = match *result {
                    Ok(Completion::Read(bytes)) => bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw)),
                    _ => None,
                };
                let Some(raw) = raw else { return Some(self.abort(Abort::Unreadable)) };
                let word = SlotWord::read(raw, self.slot, self.mutant);
                if word.state(self.slot).is_none() {
                    // The bytes are of a later lap, which says nothing about this slot.
                    self.rows[at].predicted = word;
                    return Some(self.abort(Abort::Behind));
                }
                // The value's proposer was overwriting it with another one, perhaps as it died. It
                // may do so only under a later number that a majority promised without reporting
                // this value: so this one was not chosen and will not be.
                self.rows[at].value_torn = true;
                self.adopt(fabric)
            }
            _ => None,
        }
    }
}
