//! The owner's side of the seats: requests of programs, answers to them, and when a seat is free
//! again.

use crate::contract::{SeatRequest, SeatStatus};
use crate::host::futex;
use crate::host::occupancy::{Occupancy, Phase};
use crate::host::region::Region;
use crate::host::seat_words::{
    Answer, EXCLUDED, FULL, JOIN, LEAVE, LEFT, MEMBER, NAME_TAKEN, ON_HOLD, Request,
};
use crate::layout::Seat;
use crate::memory;
use crate::types::{Address, Incarnation, Name, Nanos};
use crate::version::Version;
use core::mem::offset_of;
use core::sync::atomic::{Ordering, fence};

/// The owner's state of the seats of its region.
pub(crate) struct Seats {
    region: Region,
    /// The owner's.
    home: Address,
    /// The last input to the machine, per seat.
    handed: Vec<Handed>,
}

/// The last input to the machine from a seat.
#[derive(Clone, Copy, Default)]
struct Handed {
    /// The occupant's.
    generation: u32,
    /// Its last request word.
    request: u64,
    /// Its promise of progress.
    progress_within: Nanos,
}

impl Seats {
    pub(crate) fn new(region: Region, home: Address) -> Self {
        let seats = region.layout().limits().seats as usize;
        Self { region, home, handed: vec![Handed::default(); seats] }
    }

    fn state(&self, seat: u16) -> Occupancy {
        Occupancy::of(self.region.seat_word(seat, offset_of!(Seat, state)).load(Ordering::Acquire))
    }

    /// The first unanswered request from seat `from` on that was not passed on since its last ring,
    /// or a changed promise.
    pub(crate) fn next_request(&mut self, from: u16) -> Option<(u16, SeatRequest)> {
        for seat in from.max(1)..self.handed.len() as u16 {
            let word = self.region.seat_word(seat, offset_of!(Seat, request)).load(Ordering::Acquire);
            let request = Request::of(word);
            if request.kind == 0 || self.state(seat).phase != Phase::Live {
                continue;
            }
            let generation = self.region.generation(seat);
            let promise = self.region.seat_word(seat, offset_of!(Seat, progress_within));
            let progress_within = Nanos(promise.load(Ordering::Relaxed));
            let Some(handed) = self.handed.get_mut(usize::from(seat)) else { continue };
            let before = core::mem::replace(handed, Handed { generation, request: word, progress_within });
            let answer = memory::low_half(self.region.seat_word(seat, offset_of!(Seat, status)));
            let is_new = (before.generation, before.request) != (generation, word)
                && !Answer::of(answer.load(Ordering::Relaxed)).is_answered(request);
            let asked = match request.kind {
                JOIN if is_new => self.join(seat, generation, progress_within),
                LEAVE if is_new => Some(SeatRequest::Leave),
                _ if before.progress_within != progress_within => Some(SeatRequest::Promise(progress_within)),
                _ => None,
            };
            if let Some(asked) = asked {
                return Some((seat, asked));
            }
        }
        None
    }

    fn join(&self, seat: u16, generation: u32, progress_within: Nanos) -> Option<SeatRequest> {
        let at = offset_of!(Seat, name);
        let word = |offset| self.region.seat_word(seat, offset).load(Ordering::Relaxed);
        let name = Name::from_words([word(at), word(at + 8), word(at + 16)])?;
        let token = word(offset_of!(Seat, token));
        let address = Address { seat, generation, ..self.home };
        let release = Version::of((word(offset_of!(Seat, status)) >> 32) as u32).release();
        Some(SeatRequest::Join { name, token, address, progress_within, release })
    }

    /// Answers the program in a seat.
    pub(crate) fn publish(&self, seat: u16, status: SeatStatus) {
        if let (0, SeatStatus::OnHold { until }) = (seat, status) {
            let held = self.region.seat_word(0, offset_of!(Seat, held_until));
            return held.store(until.0, Ordering::Relaxed);
        }
        let Some(handed) = self.handed.get(usize::from(seat)) else { return };
        // An answer to an earlier occupant is not for this one.
        if seat == 0 || handed.generation != self.region.generation(seat) {
            return;
        }
        let word = memory::low_half(self.region.seat_word(seat, offset_of!(Seat, status)));
        let before = Answer::of(word.load(Ordering::Relaxed));
        let (code, incarnation) = match status {
            SeatStatus::Member(incarnation) => (MEMBER, incarnation),
            SeatStatus::Excluded => (EXCLUDED, Incarnation::NONE),
            SeatStatus::Left => (LEFT, Incarnation::NONE),
            SeatStatus::Full => (FULL, Incarnation::NONE),
            SeatStatus::OnHold { .. } => (ON_HOLD, Incarnation::NONE),
            SeatStatus::NameTaken => (NAME_TAKEN, Incarnation::NONE),
        };
        // A join without room, on hold, or of a taken name remains valid.
        let sequence = if matches!(code, FULL | ON_HOLD | NAME_TAKEN) {
            before.sequence
        } else {
            Request::of(handed.request).sequence
        };
        if let SeatStatus::OnHold { until } = status {
            self.region.seat_word(seat, offset_of!(Seat, held_until)).store(until.0, Ordering::Relaxed);
        }
        let own = self.region.seat_word(seat, offset_of!(Seat, incarnation));
        if (before.code, before.sequence) == (code, sequence) && own.load(Ordering::Relaxed) == incarnation.0
        {
            return;
        }
        own.store(incarnation.0, Ordering::Relaxed);
        fence(Ordering::Release);
        let after = Answer { code, sequence, changes: before.changes.wrapping_add(1) };
        word.store(after.word(), Ordering::Release);
        futex::wake(word, u32::MAX);
    }

    /// Frees the seats whose occupants released them and are no longer members, and, if `dead` is
    /// set, those whose occupants are proved dead.
    pub(crate) fn free(&self, also_dead: bool) {
        for seat in 1..self.handed.len() as u16 {
            let state = self.region.seat_word(seat, offset_of!(Seat, state));
            let found = state.load(Ordering::Acquire);
            let occupancy = Occupancy::of(found);
            let status = memory::low_half(self.region.seat_word(seat, offset_of!(Seat, status)));
            let answer = Answer::of(status.load(Ordering::Relaxed));
            let is_member = answer.code == MEMBER;
            let may_be_over = match occupancy.phase {
                Phase::Free => false,
                Phase::Closed => true,
                // No system call for a seat whose occupant's thread is alive.
                Phase::Live => also_dead && self.region.is_dead(seat) && occupancy.is_open(),
                Phase::Claimed => also_dead && occupancy.is_open(),
            };
            if may_be_over && !is_member {
                self.region.seat_word(seat, offset_of!(Seat, request)).store(0, Ordering::Relaxed);
                // That its last occupant left remains visible until the next one.
                let kept = answer.code == LEFT;
                let gone = Answer { code: LEFT, sequence: 0, changes: 0 };
                status.store(if kept { gone.word() } else { 0 }, Ordering::Relaxed);
                let _ = state.compare_exchange(found, Occupancy::FREE, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}
