//! The sending machine of a host.

use super::{DEATH_REPEATS, DEATHS_MAX, Death, Frame, FrameKind};
use core::sync::atomic::{AtomicU64, Ordering};
use obol_fabric::types::{Instant, Nanos};
use std::collections::VecDeque;

/// Deaths that wait for a frame: more processes than a host has seats for do not die at once.
const WAITING_MAX: usize = 1024;

/// What all frames of a host's life have in common. Pulses and notices are sent by two threads, and
/// neither waits for the other: the one that learns of a death sends the notice itself.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Of the last frame, and of the last pulse that was sent.
    last: AtomicU64,
    pulse: AtomicU64,
    /// The liveness bitmap.
    alive: AtomicU64,
}

impl Numbers {
    /// As after this many frames, which a simulation does not send.
    pub fn at(sequence: u64) -> Self {
        Self { last: sequence.into(), pulse: sequence.into(), alive: 0.into() }
    }

    /// Sets the liveness bitmap.
    pub fn set_alive(&self, alive: u64) {
        self.alive.store(alive, Ordering::Release);
    }

    /// A pulse was sent. Notices name it from now on; not before, or its receiver would wait for it.
    pub fn sent(&self, pulse: &Frame) {
        self.pulse.store(pulse.sequence, Ordering::Release);
    }

    /// The notices of deaths, to be sent at once.
    pub fn notices(&self, deaths: &[Death], now: Instant) -> Vec<Frame> {
        // Read before the number is drawn, so that it is smaller.
        let after = self.pulse.load(Ordering::Acquire);
        let frame = |deaths: &[Death]| self.frame(FrameKind::Notice { after }, now, deaths.to_vec());
        deaths.chunks(DEATHS_MAX).filter_map(frame).collect()
    }

    /// The next frame of this life. `None` once all numbers are used, which a sender does not live to
    /// see: a number is never used twice, because it seals the frame.
    fn frame(&self, kind: FrameKind, now: Instant, deaths: Vec<Death>) -> Option<Frame> {
        let drawn = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| last.checked_add(1));
        let alive = self.alive.load(Ordering::Acquire);
        Some(Frame { sequence: drawn.ok()? + 1, sent: now, alive, kind, deaths })
    }
}

/// Makes the pulses of a host. One frame goes to all peers, on all paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    period: Nanos,
    /// When the next pulse is due.
    next: Instant,
    /// Deaths, and in how many further pulses each is repeated.
    recent: VecDeque<(Death, u32)>,
}

impl Sender {
    /// A new life, whose first pulse is due now.
    pub const fn new(period: Nanos, now: Instant) -> Self {
        Self { period, next: now, recent: VecDeque::new() }
    }

    /// When the next pulse is due.
    pub const fn due(&self) -> Instant {
        self.next
    }

    /// The pulse that is due, if one is; [`Numbers::sent`] once it was sent. A sender that is late does
    /// not make up for the pulses that it missed, and keeps its beat.
    pub fn tick(&mut self, numbers: &Numbers, now: Instant) -> Option<Frame> {
        if now < self.next {
            return None;
        }
        let missed = now.since(self.next).0 / self.period.0.max(1);
        self.next += self.period.saturating_mul(missed.saturating_add(1));
        let deaths = self.recent.iter().take(DEATHS_MAX).map(|(death, _)| *death).collect();
        let frame = numbers.frame(FrameKind::Pulse, now, deaths)?;
        let sent = self.recent.len().min(DEATHS_MAX);
        for _ in 0..sent {
            // To the end, so that those that wait come in.
            if let Some((death, left)) = self.recent.pop_front()
                && left > 1
            {
                self.recent.push_back((death, left - 1));
            }
        }
        Some(frame)
    }

    /// Repeats deaths, whose notices were sent, in the next pulses.
    pub fn repeat(&mut self, deaths: impl IntoIterator<Item = Death>) {
        self.recent.extend(deaths.into_iter().map(|death| (death, DEATH_REPEATS)));
        let surplus = self.recent.len().saturating_sub(WAITING_MAX);
        // They were in a notice each.
        self.recent.drain(..surplus);
    }
}
