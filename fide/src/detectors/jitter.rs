//! Delays of a network: recorded, or drawn from a model.

use obol_config::file;
use obol_fabric::Nanos;
use obol_observe::network_recording::{self, BYTES_MAX, Fault, NetworkRecording, Stream, Times};
use obol_rng::Rng;
use std::path::Path;

/// Frames of a modelled network.
pub const FRAMES: u32 = 2_000_000;
/// Frames that a recording needs at least: fewer say nothing about rare delays.
const FRAMES_MIN: usize = 1_000;
/// The share of a recording's frames, at either end, whose shortest delays show how the clocks drift:
/// one in this many.
const DRIFT_PART: usize = 5;

/// The longest recording and the longest delay: 30 days.
const LONGEST: u64 = 30 * 86_400 * 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it was sent, in nanoseconds from the first one.
    pub sent: u64,
    /// How long it took; `None` if it was lost.
    pub delay: Option<u64>,
}

/// The delays of one direction between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Where they are from.
    pub source: String,
    /// The pause between two frames, in nanoseconds.
    pub period: u64,
    /// The frames, in the order in which they were sent.
    pub frames: Vec<Frame>,
}

/// Why a recording cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A line has a fault.
    #[error("{path}:{line}:{column}: {fault}")]
    Line {
        path: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong.
        fault: String,
    },
    /// There is no such stream.
    #[error("{path}: there is no stream {wanted}; it has: {streams}")]
    Stream { path: String, wanted: usize, streams: String },
    /// Too little.
    #[error(
        "{path}: {frames} frames that arrived are too few to compare detectors; record at least {FRAMES_MIN}"
    )]
    Short {
        path: String,
        /// How many there are.
        frames: usize,
    },
    /// Too much.
    #[error("{0}: the frames, or their delays, extend over more than 30 days; are these nanoseconds?")]
    Long(String),
}

/// A network that is drawn. All its numbers are assumptions: that of a shared host without tuning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The shortest delay.
    pub floor: Nanos,
    /// The mean of what is usually added to it, exponentially distributed.
    pub jitter: Nanos,
    /// The mean time between two pauses, of the receiver or of a switch, during which nothing
    /// arrives.
    pub between_pauses: Nanos,
    /// The shortest pause; longer ones have a Pareto distribution with index 1.5.
    pub pause: Nanos,
    /// The longest pause.
    pub pause_max: Nanos,
    /// Lost frames in a million.
    pub lost_ppm: u32,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            floor: Nanos(20_000),
            jitter: Nanos(5_000),
            between_pauses: Nanos(100_000_000),
            pause: Nanos(50_000),
            pause_max: Nanos(20_000_000),
            lost_ppm: 10,
        }
    }
}

/// Uniform in (0, 1].
pub(super) fn unit(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

impl Model {
    pub fn draw(&self, period: Nanos, frames: u32, seed: u64) -> Delays {
        let mut rng = Rng::new(seed);
        let exponential = |rng: &mut Rng, mean: Nanos| (-unit(rng).ln() * mean.0 as f64) as u64;
        let mut pause_starts = exponential(&mut rng, self.between_pauses);
        let mut pause_ends = 0;
        let mut drawn = Vec::with_capacity(frames as usize);
        for number in 0..u64::from(frames) {
            let sent = number * period.0;
            let mut arrives = sent + self.floor.0 + exponential(&mut rng, self.jitter);
            while arrives >= pause_starts {
                let pause = self.pause.0 as f64 * unit(&mut rng).powf(-1.0 / 1.5);
                pause_ends = pause_starts + (pause as u64).min(self.pause_max.0);
                pause_starts = pause_ends + exponential(&mut rng, self.between_pauses);
            }
            arrives = arrives.max(pause_ends);
            let lost = rng.below(1_000_000) < u64::from(self.lost_ppm);
            drawn.push(Frame { sent, delay: (!lost).then_some(arrives - sent) });
        }
        let source = format!(
            "modelled (assumed): {} + {} exponential, a pause of {} to {} each {}, {} ppm lost",
            self.floor, self.jitter, self.pause, self.pause_max, self.between_pauses, self.lost_ppm
        );
        Delays { source, period: period.0, frames: drawn }
    }
}

impl Delays {
    /// Reads a recording: one of `obol tune --network --record`, with the number of the stream, from 1;
    /// or for each frame a line with the nanoseconds at which it was sent and received, `-` if it was
    /// lost. Lines that begin with # are comments.
    ///
    /// # Errors
    ///
    /// The first fault, with its place.
    pub fn load(path: &Path, stream: usize) -> Result<Self, RecordingError> {
        let text = file::text(path, BYTES_MAX, "recording of a network")
            .map_err(|error| RecordingError::Unreadable(format!("{}: {error}", path.display())))?;
        Self::parse(&text, &path.display().to_string(), stream)
    }

    /// Reads the text of a recording; `path` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`Delays::load`].
    pub fn parse(text: &str, path: &str, stream: usize) -> Result<Self, RecordingError> {
        let fault =
            |line, (column, fault)| RecordingError::Line { path: path.to_owned(), line, column, fault };
        if network_recording::is_recording(text) {
            let recording = NetworkRecording::parse(text)
                .map_err(|Fault { line, column, fault: text }| fault(line, (column, text)))?;
            return Self::from_streams(&recording.streams, path, stream);
        }
        if stream != 1 {
            let (path, streams) = (path.to_owned(), "one without a name".to_owned());
            return Err(RecordingError::Stream { path, wanted: stream, streams });
        }
        let mut read: Vec<Times> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let times = network_recording::times(line).map_err(|of| fault(number + 1, of))?;
            if read.last().is_some_and(|(before, _)| *before >= times.0) {
                let text = "frames must be in the order in which they were sent".to_owned();
                return Err(fault(number + 1, (1, text)));
            }
            read.push(times);
        }
        Self::from_times(&read, path)
    }

    fn from_streams(streams: &[Stream], path: &str, wanted: usize) -> Result<Self, RecordingError> {
        let Some(stream) = wanted.checked_sub(1).and_then(|at| streams.get(at)) else {
            let streams: Vec<_> =
                streams.iter().enumerate().map(|(n, of)| format!("{}: {of}", n + 1)).collect();
            let (path, streams) = (path.to_owned(), streams.join("; "));
            return Err(RecordingError::Stream { path, wanted, streams });
        };
        let delays = Self::from_times(&without_drift(&stream.frames), path)?;
        let source = format!("{}; stream {wanted} of {}: {stream}", delays.source, streams.len());
        Ok(Self { source, ..delays })
    }

    pub(super) fn from_times(read: &[Times], path: &str) -> Result<Self, RecordingError> {
        let arrived = read.iter().filter(|(_, received)| received.is_some()).count();
        if arrived < FRAMES_MIN {
            return Err(RecordingError::Short { path: path.to_owned(), frames: arrived });
        }
        // Two hosts' clocks differ: then the shortest delay counts as none.
        let apart = |sent: u64, received: u64| i128::from(received) - i128::from(sent);
        let least =
            read.iter().filter_map(|(sent, received)| Some(apart(*sent, (*received)?))).min().unwrap_or(0);
        let shift = least.min(0);
        let first = read[0].0;
        let most =
            read.iter().filter_map(|(sent, received)| Some(apart(*sent, (*received)?))).max().unwrap_or(0);
        let span = read[read.len() - 1].0 - first;
        if span > LONGEST || most - shift > i128::from(LONGEST) {
            return Err(RecordingError::Long(path.to_owned()));
        }
        let frames: Vec<Frame> = read
            .iter()
            .map(|(sent, received)| Frame {
                sent: sent - first,
                delay: received.map(|at| u64::try_from(apart(*sent, at) - shift).unwrap_or(LONGEST)),
            })
            .collect();
        let mut gaps: Vec<u64> = frames.windows(2).map(|pair| pair[1].sent - pair[0].sent).collect();
        gaps.sort_unstable();
        let clocks = if shift < 0 { ", its clocks differ: the shortest delay counts as none" } else { "" };
        Ok(Self { source: format!("recorded: {path}{clocks}"), period: gaps[gaps.len() / 2], frames })
    }

    /// From the first frame to the last, in nanoseconds.
    pub fn span(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.sent)
    }
}

/// Removes the drift of two hosts' clocks from the frames, because some parts in a million add up to
/// milliseconds: the shortest delay at the end then equals the one at the beginning.
pub(super) fn without_drift(frames: &[Times]) -> Vec<Times> {
    let apart = |(sent, received): &Times| Some((*sent, i128::from((*received)?) - i128::from(*sent)));
    let part = frames.len() / DRIFT_PART;
    let shortest = |of: &[Times]| of.iter().filter_map(apart).min_by_key(|(_, apart)| *apart);
    let ends =
        frames.get(..part).and_then(shortest).zip(frames.get(frames.len() - part..).and_then(shortest));
    let Some(((first, before), (last, after))) = ends.filter(|((first, _), (last, _))| last > first) else {
        return frames.to_vec();
    };
    let rate = (after - before) as f64 / (last - first) as f64;
    let corrected = |(sent, received): &Times| {
        let drifted = (sent.saturating_sub(first) as f64 - first.saturating_sub(*sent) as f64) * rate;
        (*sent, received.map(|at| at.saturating_add_signed(-(drifted as i64))))
    };
    frames.iter().map(corrected).collect()
}
