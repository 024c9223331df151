//! What the pulses of a host show of the network: per second, the longest gap between new pulses, and
//! for each path the floor and the spread of its delays. `obol tune --network` derives timeouts from
//! these.

use crate::pulse::{Frame, PathState};
use obol_fabric::types::{Instant, Nanos};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The length of a block.
pub(super) const BLOCK: Nanos = Nanos::from_secs(1);

/// What a gateway knows of the pulses of other hosts, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseReport {
    /// When, by the clock of this host.
    pub at: u64,
    /// The period and the timeout, in nanoseconds.
    pub period: u64,
    /// See `period`.
    pub timeout: u64,
    /// The time that the thread has used on a core so far, in nanoseconds.
    #[serde(default)]
    pub busy: u64,
    /// How often it has waited.
    #[serde(default)]
    pub waits: u64,
    /// Each other host.
    pub peers: Vec<PulsePeer>,
}

/// The pulses of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulsePeer {
    pub host: u8,
    /// Whether it was ever heard.
    pub heard: bool,
    /// Whether it is suspected.
    pub silent: bool,
    pub paths: Vec<PulsePath>,
    /// The second that has just ended, if one has since the last report.
    pub block: Option<PulseBlock>,
    /// Each frame of that second, in the order of arrival, if [`super::super::Outlets::trace`] is set.
    #[serde(skip)]
    pub frames: Vec<PulseFrame>,
}

/// A frame that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PulseFrame {
    pub path: u8,
    /// Its number, which is the same on all paths.
    pub sequence: u64,
    /// When it was sent, by the clock of the sending host.
    pub sent: u64,
    /// When it has arrived, by the clock of this host.
    pub arrived: u64,
}

/// The most frames that are kept of a second: with the shortest period and the most paths.
const FRAMES_MAX: usize = 100_000;

/// A path from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulsePath {
    /// The other host's address on it.
    pub address: IpAddr,
    /// `unheard`, `up` or `lost`.
    pub state: PulsePathState,
}

/// Whether a path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PulsePathState {
    /// Nothing has arrived by it.
    Unheard,
    /// It delivers.
    Up,
    /// Others deliver, and it does not.
    Lost,
}

impl From<PathState> for PulsePathState {
    fn from(state: PathState) -> Self {
        match state {
            PathState::Unheard => Self::Unheard,
            PathState::Up => Self::Up,
            PathState::Lost => Self::Lost,
        }
    }
}

/// One second of pulses. All times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseBlock {
    /// New pulses.
    pub pulses: u64,
    /// The longest gap between two of them that ended in this second.
    pub gap_max: u64,
    /// How often the host was suspected.
    pub silences: u64,
    pub paths: Vec<PulseDelays>,
}

/// The delays of a path in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseDelays {
    pub frames: u64,
    /// The least difference of arrival and sending. The clocks of two hosts have different origins, so
    /// only the sum of both directions is a delay.
    pub floor: i64,
    /// How much longer the slowest frame took than the fastest.
    pub spread_max: u64,
    /// The mean of that over all frames.
    pub spread_mean: u64,
}

/// Collects blocks of one host.
#[derive(Debug)]
pub(super) struct Measure {
    block: PulseBlock,
    delays: Vec<Delays>,
    ends: Instant,
    last: Option<Instant>,
    /// Kept while frames are traced.
    frames: Option<Vec<PulseFrame>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Delays {
    frames: u64,
    min: i64,
    max: i64,
    sum: i128,
}

impl Measure {
    pub(super) fn new(paths: usize, now: Instant) -> Self {
        let delays = vec![Delays::default(); paths];
        Self { block: PulseBlock::default(), delays, ends: now + BLOCK, last: None, frames: None }
    }

    /// A frame has arrived by a path.
    pub(super) fn frame(&mut self, path: usize, frame: &Frame, now: Instant) {
        let Some(of) = self.delays.get_mut(path) else { return };
        let sent = frame.sent;
        if let Some(frames) = self.frames.as_mut().filter(|frames| frames.len() < FRAMES_MAX) {
            let (path, sequence) = (path as u8, frame.sequence);
            frames.push(PulseFrame { path, sequence, sent: sent.0, arrived: now.0 });
        }
        let delay = now.0.wrapping_sub(sent.0).cast_signed();
        (of.min, of.max) =
            if of.frames == 0 { (delay, delay) } else { (of.min.min(delay), of.max.max(delay)) };
        of.frames += 1;
        of.sum += i128::from(delay);
    }

    /// A new pulse has arrived.
    pub(super) fn pulse(&mut self, now: Instant) {
        self.block.pulses += 1;
        if let Some(last) = self.last.replace(now) {
            self.block.gap_max = self.block.gap_max.max(now.since(last).0);
        }
    }

    /// The host is suspected. Its next pulse ends no gap: its absence does not count as jitter.
    pub(super) const fn silent(&mut self) {
        self.block.silences += 1;
        self.last = None;
    }

    /// This host was away for `absence`, which the receiver has left out.
    pub(super) fn away(&mut self, absence: Nanos) {
        self.last = self.last.map(|last| last + absence);
    }

    /// Its sender has started again.
    pub(super) const fn restart(&mut self) {
        self.last = None;
    }

    pub(super) const fn due(&self) -> Instant {
        self.ends
    }

    /// The block that has ended, and its frames if they were kept. Whether those of the next one are
    /// kept is decided now.
    pub(super) fn take(&mut self, now: Instant, trace: bool) -> Option<(PulseBlock, Vec<PulseFrame>)> {
        if now < self.ends {
            return None;
        }
        self.ends = now + BLOCK;
        let frames = self.frames.take().unwrap_or_default();
        // As many as before, so that the next second does not wait for memory again and again.
        self.frames = trace.then(|| Vec::with_capacity(frames.len()));
        let mut block = core::mem::take(&mut self.block);
        block.paths = self.delays.iter().map(Delays::summary).collect();
        self.delays.fill(Delays::default());
        Some((block, frames))
    }
}

impl Delays {
    fn summary(&self) -> PulseDelays {
        let mean = if self.frames == 0 { 0 } else { self.sum / i128::from(self.frames) };
        PulseDelays {
            frames: self.frames,
            floor: self.min,
            spread_max: self.max.wrapping_sub(self.min).unsigned_abs(),
            spread_mean: u64::try_from(mean - i128::from(self.min)).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, sent: u64) -> Frame {
        let kind = crate::pulse::FrameKind::Pulse;
        Frame { sequence, sent: Instant(sent), alive: 0, kind, deaths: Vec::new() }
    }

    #[test]
    fn a_block_has_the_longest_gap_and_the_spread_of_each_path() {
        let mut measure = Measure::new(2, Instant(1000));
        for (sent, arrived) in [(5000, 1000), (5100, 1130), (5200, 1210)] {
            measure.frame(0, &frame(1, sent), Instant(arrived));
            measure.pulse(Instant(arrived));
        }
        measure.silent();
        measure.pulse(Instant(900_000));
        assert_eq!(measure.take(Instant(900_000), true), None);
        let (block, frames) = measure.take(measure.due(), true).expect("it has ended");
        assert_eq!((block.pulses, block.gap_max, block.silences), (4, 130, 1));
        let first = PulseDelays { frames: 3, floor: -4000, spread_max: 30, spread_mean: 14 };
        assert_eq!(block.paths, [first, PulseDelays::default()]);
        assert_eq!(frames, [], "they were not wanted");
        measure.frame(1, &frame(9, 70), Instant(80));
        let (block, frames) = measure.take(measure.due(), false).expect("ended");
        assert_eq!(block.pulses, 0);
        assert_eq!(frames, [PulseFrame { path: 1, sequence: 9, sent: 70, arrived: 80 }]);
        measure.frame(1, &frame(10, 70), Instant(80));
        assert_eq!(measure.take(measure.due(), false).map(|(_, frames)| frames), Some(Vec::new()));
    }
}
