//! The receiving machine: what a host knows of one other host by its pulses.

use super::{Death, Frame, FrameKind, PATH_BACK_AFTER, PATH_BEHIND, Timing};
use obol_fabric::contract::Evidence;
use obol_fabric::types::{Instant, Nanos};
use std::collections::VecDeque;

/// Deaths that are remembered so that each is reported once.
const REPORTED_MAX: usize = 256;
/// Notices that wait for the pulse before them; a further one is not held.
const HELD_MAX: usize = 64;

/// What the pulses of a host say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// No pulse has arrived for as long as the timeout. It implies nothing about the processes.
    Silent,
    /// Pulses arrive again, or for the first time in this life.
    Heard,
    /// Its kernel has reported a death there.
    Died(Death),
    /// The processes of these bits were alive in an earlier pulse and are not in the newest one.
    Vanished(u64),
    /// The path with this index does not deliver, and another one does.
    PathLost(usize),
    /// It delivers again.
    PathBack(usize),
}

/// Whether a path delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathState {
    /// Nothing has arrived by it in this life of the peer.
    #[default]
    Unheard,
    /// It delivers.
    Up,
    /// It does not, while others do.
    Lost,
}

/// Planted bugs, which the tests and the campaign have to find. Only their builds can plant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An old pulse that comes late counts as a sign of life.
    LateCounts,
    /// A frame that comes twice on a path is taken twice.
    TakesTwice,
    /// The deadline is moved by polling, so that detection takes up to twice the timeout.
    Polls,
    /// A notice is not held for the pulse before it.
    Overtakes,
    /// What was known of an earlier life is kept.
    KeepsLife,
    /// A bitmap that comes late overwrites a newer one.
    OldBitmap,
    /// A path that does not deliver is not compared with the others.
    PathAlone,
    /// Only the first path counts: where it is lost, the host is suspected.
    OnePath,
    /// Numbers are compared by their last 16 bits.
    NarrowNumbers,
    /// A host that was stopped judges before it takes what has arrived meanwhile.
    JudgesFirst,
    /// Time in which the host itself was away counts as silence of others.
    AbsenceCounts,
    /// No time does, so a host that is away again and again suspects nobody.
    AbsenceExcuses,
}

impl Bug {
    /// Whether this bug is the planted one: never in other builds than those of tests.
    pub(super) fn is_planted(self, planted: Option<Self>) -> bool {
        cfg!(any(test, feature = "mutants")) && planted == Some(self)
    }
}

/// The numbers that have arrived: the newest, and which of the 64 before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Window {
    newest: u64,
    /// Bit n: `newest - n` has arrived.
    seen: u64,
}

impl Window {
    /// Whether this number is new. One that is too old to know is not.
    fn take(&mut self, number: u64) -> bool {
        match number.checked_sub(self.newest) {
            Some(0) => false,
            Some(ahead) => {
                let kept = u32::try_from(ahead).ok().and_then(|ahead| self.seen.checked_shl(ahead));
                self.seen = kept.unwrap_or(0) | 1;
                self.newest = number;
                true
            }
            None => {
                let bit =
                    u32::try_from(self.newest - number).ok().and_then(|behind| 1u64.checked_shl(behind));
                let is_new = bit.is_some_and(|bit| self.seen & bit == 0);
                self.seen |= bit.unwrap_or(0);
                is_new
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Path {
    state: PathState,
    window: Window,
    /// The newest pulse by this path.
    pulse: u64,
    /// Newer pulses that other paths have delivered since this one last delivered any.
    missed: u64,
    /// Pulses without a gap since the path was lost.
    in_order: u32,
}

/// A notice that waits for the pulse before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    after: u64,
    until: Instant,
    deaths: Vec<Death>,
}

/// What a host knows of one other host by its pulses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    timing: Timing,
    paths: Vec<Path>,
    /// The newest pulse by any path, and the bitmap in it.
    newest: u64,
    alive: u64,
    /// When the peer is suspected; never before its first pulse, and while it is.
    deadline: Instant,
    /// An absence of this host was left out since the newest pulse.
    is_excused: bool,
    is_silent: bool,
    held: VecDeque<Held>,
    reported: VecDeque<Death>,
    bug: Option<Bug>,
}

impl Receiver {
    /// Of a peer that has not been heard. It is not suspected before it was: hosts start at
    /// different times, and an older release sends no pulses.
    pub fn new(timing: Timing, paths: usize) -> Self {
        Self {
            timing,
            paths: vec![Path::default(); paths],
            newest: 0,
            alive: 0,
            deadline: Instant::NEVER,
            is_excused: false,
            is_silent: false,
            held: VecDeque::new(),
            reported: VecDeque::new(),
            bug: None,
        }
    }

    /// The same with a planted bug, which has an effect in tests only.
    #[must_use]
    pub fn with(self, bug: Option<Bug>) -> Self {
        Self { bug, ..self }
    }

    fn has(&self, bug: Bug) -> bool {
        bug.is_planted(self.bug)
    }

    /// The number of a frame, or what a planted bug sees of it.
    fn number(&self, frame: &Frame) -> u64 {
        let mask = if self.has(Bug::NarrowNumbers) { u64::from(u16::MAX) } else { u64::MAX };
        frame.sequence & mask
    }

    /// The sender has begun a new life: its numbers start again, and what was heard of the earlier
    /// one says nothing. A peer that was heard is expected to go on, so its timeout runs on.
    pub fn begin_life(&mut self) {
        if self.has(Bug::KeepsLife) {
            return;
        }
        for path in &mut self.paths {
            *path = Path { state: path.state, ..Path::default() };
        }
        (self.newest, self.alive) = (0, 0);
        self.held.clear();
        self.reported.clear();
    }

    /// Whether each path delivers.
    pub fn paths(&self) -> impl Iterator<Item = PathState> + '_ {
        self.paths.iter().map(|path| path.state)
    }

    /// Whether the peer is suspected now.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The newest pulse in this life; 0 before the first.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// When [`Receiver::tick`] is due.
    pub fn due(&self) -> Instant {
        let deadline = if self.is_silent { Instant::NEVER } else { self.deadline };
        self.held.iter().map(|held| held.until).fold(deadline, Instant::min)
    }

    /// Takes an authentic frame that has arrived by a path. Returns whether it is the first copy of a
    /// pulse that is newer than all before it.
    ///
    /// A process that was not scheduled itself takes all that has arrived before it judges
    /// ([`Receiver::tick`]).
    pub fn receive(&mut self, path: usize, frame: &Frame, now: Instant, found: &mut Vec<Finding>) -> bool {
        let (number, takes_twice) = (self.number(frame), self.has(Bug::TakesTwice));
        let Some(by) = self.paths.get_mut(path) else { return false };
        if !by.window.take(number) && !takes_twice {
            return false;
        }
        match frame.kind {
            FrameKind::Notice { after } => {
                self.notice(after, &frame.deaths, now, found);
                false
            }
            FrameKind::Pulse => self.pulse(path, frame, now, found),
        }
    }

    fn pulse(&mut self, path: usize, frame: &Frame, now: Instant, found: &mut Vec<Finding>) -> bool {
        let number = self.number(frame);
        let is_newest = number > self.newest;
        if is_newest || self.has(Bug::OldBitmap) {
            let vanished = self.alive & !frame.alive;
            self.alive = frame.alive;
            if vanished != 0 {
                found.push(Finding::Vanished(vanished));
            }
        }
        if is_newest || self.has(Bug::LateCounts) {
            self.newest = self.newest.max(number);
            let was_heard = self.deadline != Instant::NEVER;
            if core::mem::take(&mut self.is_silent) || !was_heard {
                found.push(Finding::Heard);
            }
            self.is_excused = false;
            if path == 0 || !self.has(Bug::OnePath) {
                self.deadline = now + self.timing.timeout;
            }
        }
        self.arrived(path, number, is_newest, found);
        // A death in a pulse needs no hold: the pulse itself is not older.
        for death in &frame.deaths {
            self.report(*death, found);
        }
        self.release(now, found);
        is_newest
    }

    /// A pulse has arrived by a path. What others have delivered since this path last did is counted,
    /// not the difference of numbers: when a silent host is heard again, its paths resume together.
    fn arrived(&mut self, path: usize, sequence: u64, is_newest: bool, found: &mut Vec<Finding>) {
        let alone = self.has(Bug::PathAlone);
        for (index, other) in self.paths.iter_mut().enumerate().filter(|(index, _)| *index != path) {
            if !is_newest || alone {
                continue;
            }
            other.missed += 1;
            if other.missed >= PATH_BEHIND {
                other.in_order = 0;
                if core::mem::replace(&mut other.state, PathState::Lost) != PathState::Lost {
                    found.push(Finding::PathLost(index));
                }
            }
        }
        let Some(by) = self.paths.get_mut(path) else { return };
        by.missed = 0;
        if sequence <= by.pulse {
            return;
        }
        by.in_order = if sequence - by.pulse == 1 { by.in_order.saturating_add(1) } else { 0 };
        by.pulse = sequence;
        match by.state {
            PathState::Unheard => by.state = PathState::Up,
            PathState::Lost if by.in_order >= PATH_BACK_AFTER => {
                by.state = PathState::Up;
                found.push(Finding::PathBack(path));
            }
            PathState::Lost | PathState::Up => {}
        }
    }

    fn notice(&mut self, after: u64, deaths: &[Death], now: Instant, found: &mut Vec<Finding>) {
        // The pulse before it may come by another path. Pulses that are newer repeat what it had.
        if after <= self.newest || self.held.len() == HELD_MAX || self.has(Bug::Overtakes) {
            for death in deaths {
                self.report(*death, found);
            }
            return;
        }
        self.held.push_back(Held { after, until: now + self.timing.timeout, deaths: deaths.to_vec() });
    }

    /// Reports held notices whose pulse has arrived, or does not come.
    fn release(&mut self, now: Instant, found: &mut Vec<Finding>) {
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else { return };
            if held.after > self.newest && now < held.until {
                self.held.push_back(held);
                continue;
            }
            for death in held.deaths {
                self.report(death, found);
            }
        }
    }

    /// Reports a death once, and a suspicion before its proof.
    fn report(&mut self, death: Death, found: &mut Vec<Finding>) {
        let suspicion = Death { evidence: Evidence::Suspicion, ..death };
        for each in [suspicion, death] {
            if self.reported.contains(&each) {
                continue;
            }
            if self.reported.len() == REPORTED_MAX {
                self.reported.pop_front();
            }
            self.reported.push_back(each);
            found.push(Finding::Died(each));
        }
    }

    /// This host had no turn for `absence`. Others may have been stopped with it, as guests of one
    /// hypervisor are, so that time does not count as their silence: once until the next pulse, because
    /// a host that is away again and again has to suspect as well. Returns whether it was left out.
    pub fn away(&mut self, absence: Nanos) -> bool {
        let is_excused = self.is_excused && !self.has(Bug::AbsenceExcuses);
        if is_excused || self.is_silent || self.has(Bug::AbsenceCounts) {
            return false;
        }
        self.is_excused = true;
        self.deadline += absence;
        true
    }

    /// Judges the silence until now.
    pub fn tick(&mut self, now: Instant, found: &mut Vec<Finding>) {
        self.release(now, found);
        if now < self.deadline || self.is_silent {
            return;
        }
        if self.has(Bug::Polls) && now.since(self.deadline) < self.timing.timeout {
            return;
        }
        self.is_silent = true;
        found.push(Finding::Silent);
    }
}
