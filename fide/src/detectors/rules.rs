//! When each detector suspects.
//!
//! All of them work with the same period and the same delays. Where one uses several messages at
//! once, all that go to the watched host have the delays of the run at that time, so that its pauses
//! concern all; replies, messages between others and a second path take theirs from other parts of
//! the run, as if they were independent.

use super::jitter::{Delays, unit};
use super::setting::{Outcome, Setting};
use obol_rng::Rng;

/// A failure detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// uKharon's first level: the kernel reports the death of a process. A silent host reports
    /// nothing: the detection times are those of a process.
    Notice,
    /// uKharon's second level: a counter, READ once in a period, that does not change within the
    /// timeout. The host still answers.
    Counter,
    /// uKharon's third level: an operation that is not answered within the timeout.
    Operation,
    /// One frame in a period over one path, and a timer that each arrival restarts.
    Pulse,
    /// A pulse over two paths whose delays are independent. Pauses of the hosts themselves concern
    /// both paths; they are not better than one then.
    Pulse2,
    /// Phi-accrual (Hayashibara et al., SRDS 2004) with a window of 1000 gaps between arrivals.
    Phi,
    /// SWIM (Das et al., DSN 2002) among eight: a ping, and three indirect ones after a third of
    /// the protocol's period, which is the timeout here. Detected when a member is suspected.
    Swim,
    /// Redis Sentinel's rule: no reply within the timeout at two of three observers.
    Sentinel,
}

/// Members among which SWIM chooses, and indirect pings.
const SWIM_MEMBERS: u64 = 8;
const SWIM_INDIRECT: u64 = 3;
/// Gaps that phi-accrual remembers.
const WINDOW: usize = 1_000;

/// A sign of life: it leaves the watched host and arrives; the next one has to arrive within the
/// allowed time behind it.
#[derive(Clone, Copy, Debug)]
struct Sign {
    leaves: u64,
    arrives: u64,
    allowed: u64,
}

/// When the watched host fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failures<'a> {
    /// So often, at random moments.
    Random(u64),
    /// At these moments, in nanoseconds from the first frame.
    At(&'a [u64]),
}

impl Failures<'_> {
    const fn count(self) -> u64 {
        match self {
            Self::Random(count) => count,
            Self::At(moments) => moments.len() as u64,
        }
    }

    /// For each failure what `detect` finds.
    fn each(self, delays: &Delays, rng: &mut Rng, detect: impl Fn(u64) -> Option<u64>) -> Vec<Option<u64>> {
        match self {
            Self::Random(count) => (0..count).map(|_| detect(random_failure(delays, rng))).collect(),
            Self::At(moments) => moments.iter().map(|at| detect(*at)).collect(),
        }
    }
}

impl Detector {
    pub const ALL: [Self; 8] = [
        Self::Notice,
        Self::Counter,
        Self::Operation,
        Self::Pulse,
        Self::Pulse2,
        Self::Phi,
        Self::Swim,
        Self::Sentinel,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "uKharon 1: notice",
            Self::Counter => "uKharon 2: counter",
            Self::Operation => "uKharon 3: operation",
            Self::Pulse => "pulse, one path",
            Self::Pulse2 => "pulse, two paths",
            Self::Phi => "phi-accrual",
            Self::Swim => "SWIM, 8 members",
            Self::Sentinel => "Sentinel, 2 of 3",
        }
    }

    /// Runs it on all delays.
    pub(super) fn run(
        self,
        delays: &Delays,
        setting: Setting,
        failures: Failures<'_>,
        rng: &mut Rng,
    ) -> Outcome {
        let timeout = setting.timeout();
        match self {
            Self::Notice => notice(delays, failures, rng),
            Self::Counter => timer(&replies(delays, 1, timeout, true), delays, failures, rng),
            Self::Operation => operation(delays, timeout, failures, rng),
            Self::Pulse => timer(&frames(delays, &[0], timeout), delays, failures, rng),
            Self::Pulse2 => timer(&frames(delays, &[0, 1], timeout), delays, failures, rng),
            Self::Phi => timer(&accrued(delays, setting.phi()), delays, failures, rng),
            Self::Swim => swim(delays, timeout, failures, rng),
            Self::Sentinel => sentinel(delays, timeout, failures, rng),
        }
    }
}

/// Independent parts of a run.
const PARTS: usize = 8;

/// The delay of a frame, or of the one that takes its place in another part.
fn delay(delays: &Delays, number: usize, part: usize) -> Option<u64> {
    let frames = &delays.frames;
    frames[(number + part * frames.len() / PARTS) % frames.len()].delay
}

/// A random moment of failure: not so close to either end that there is no sign before it, or no
/// time behind it.
fn random_failure(delays: &Delays, rng: &mut Rng) -> u64 {
    let span = delays.span();
    span / 10 + rng.below(span * 8 / 10)
}

/// Signs in the order of their arrivals, without those that a newer one overtook.
fn in_order(mut signs: Vec<Sign>) -> Vec<Sign> {
    signs.sort_by_key(|sign| (sign.arrives, sign.leaves));
    let mut newest = None;
    signs.retain(|sign| {
        let newer = newest.is_none_or(|leaves| sign.leaves > leaves);
        if newer {
            newest = Some(sign.leaves);
        }
        newer
    });
    signs
}

fn frames(delays: &Delays, parts: &[usize], allowed: u64) -> Vec<Sign> {
    let sign = |(number, frame): (usize, &super::jitter::Frame)| {
        let delay = parts.iter().filter_map(|part| delay(delays, number, part * PARTS / 2)).min()?;
        Some(Sign { leaves: frame.sent, arrives: frame.sent + delay, allowed })
    };
    in_order(delays.frames.iter().enumerate().filter_map(sign).collect())
}

/// Replies to requests. A counter's value must be newer by one increment, which is made once in a
/// period: what is READ is up to a period old. `part` is that of the way back.
fn replies(delays: &Delays, part: usize, allowed: u64, counter: bool) -> Vec<Sign> {
    let sign = |(number, frame): (usize, &super::jitter::Frame)| {
        let there = frame.sent + delay(delays, number, 0)?;
        let back = delay(delays, number, part)?;
        let leaves = if counter { there / delays.period * delays.period } else { there };
        Some(Sign { leaves, arrives: there + back, allowed })
    };
    in_order(delays.frames.iter().enumerate().filter_map(sign).collect())
}

/// Counts gaps that are longer than allowed, and detects failures by the first.
fn timer(signs: &[Sign], delays: &Delays, failures: Failures<'_>, rng: &mut Rng) -> Outcome {
    let late = |pair: &&[Sign]| pair[1].arrives > pair[0].arrives + pair[0].allowed;
    let false_suspicions = signs.windows(2).filter(late).count() as u64;
    let detected = failures.each(delays, rng, |failure| silence(signs, failure));
    Outcome { false_suspicions, detected }
}

/// From a failure to the end of the allowed time; `None` if there was no sign before it.
fn silence(signs: &[Sign], failure: u64) -> Option<u64> {
    let left = signs.partition_point(|sign| sign.leaves <= failure);
    let last = signs[..left].last()?;
    Some((last.arrives + last.allowed).saturating_sub(failure))
}

fn notice(delays: &Delays, failures: Failures<'_>, rng: &mut Rng) -> Outcome {
    let one = |rng: &mut Rng| delay(delays, rng.below(delays.frames.len() as u64) as usize, 0);
    Outcome { false_suspicions: 0, detected: (0..failures.count()).map(|_| one(rng)).collect() }
}

fn operation(delays: &Delays, timeout: u64, failures: Failures<'_>, rng: &mut Rng) -> Outcome {
    let there = |number: usize| delay(delays, number, 0);
    let took = |number: usize| Some(there(number)? + delay(delays, number, 1)?);
    let late = |number: usize| took(number).is_none_or(|took| took > timeout);
    // One suspicion, however many operations in a row are late.
    let begins = |number: &usize| late(*number) && !number.checked_sub(1).is_some_and(late);
    let false_suspicions = (0..delays.frames.len()).filter(begins).count() as u64;
    let detected = failures.each(delays, rng, |failure| {
        // The first operation that the host does not execute any more; earlier ones that are
        // under way at most a few periods.
        let posted = delays.frames.partition_point(|frame| frame.sent <= failure);
        let first = (0..posted)
            .rev()
            .take_while(|number| there(*number).is_none_or(|d| delays.frames[*number].sent + d > failure))
            .last()
            .unwrap_or(posted);
        Some((delays.frames.get(first)?.sent + timeout).saturating_sub(failure))
    });
    Outcome { false_suspicions, detected }
}

/// Signs whose allowed time follows from the gaps before them.
fn accrued(delays: &Delays, phi: f64) -> Vec<Sign> {
    let mut signs = frames(delays, &[0], 0);
    let deviations = deviations(phi);
    let (mut sum, mut squares) = (0.0, 0.0);
    // A deviation of nearly zero would make any delay a suspicion: implementations have a least one.
    let least = delays.period as f64 / 100.0;
    for number in 0..signs.len() {
        let gap = |at: usize, signs: &[Sign]| (signs[at].arrives - signs[at - 1].arrives) as f64;
        if number > 0 {
            let new = gap(number, &signs);
            sum += new;
            squares += new * new;
        }
        if number > WINDOW {
            let old = gap(number - WINDOW, &signs);
            sum -= old;
            squares -= old * old;
        }
        let count = number.clamp(1, WINDOW) as f64;
        let mean = if number == 0 { delays.period as f64 } else { sum / count };
        let deviation = (squares / count - mean * mean).max(0.0).sqrt().max(least);
        signs[number].allowed = (mean + deviations * deviation) as u64;
    }
    signs
}

/// By how many standard deviations a gap exceeds the mean when phi is reached: the logistic
/// approximation of the normal distribution that implementations use.
fn deviations(phi: f64) -> f64 {
    let reached = |y: f64| {
        let e = (-y * (1.5976 + 0.070_566 * y * y)).exp();
        -(e / (1.0 + e)).log10()
    };
    let (mut low, mut high) = (-5.0, 40.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if reached(middle) < phi { low = middle } else { high = middle }
    }
    high
}

fn swim(delays: &Delays, period: u64, failures: Failures<'_>, rng: &mut Rng) -> Outcome {
    let count = delays.frames.len();
    let ping = period / 3;
    let other = |rng: &mut Rng| delay(delays, rng.below(count as u64) as usize, 0);
    // A ping reaches the watched host through `hops` others, and its reply comes back through them.
    let took = |rng: &mut Rng, at: u64, hops: u32| {
        let mut sum = delay(delays, (at / delays.period) as usize, 0)?;
        for _ in 0..=2 * hops {
            sum += other(rng)?;
        }
        Some(sum)
    };
    let mut answers = |at: u64| {
        took(rng, at, 0).is_some_and(|took| took <= ping)
            || (0..SWIM_INDIRECT).any(|_| took(rng, at + ping, 1).is_some_and(|took| took <= period - ping))
    };
    // Seven others ping it, each once in seven periods on average.
    let probes = delays.span() / period;
    // Each suspicion is refuted before the next probe.
    let false_suspicions = (0..probes).filter(|probe| !answers(probe * period)).count() as u64;
    let others = SWIM_MEMBERS - 1;
    let detected = (0..failures.count())
        .map(|_| {
            // The members' periods begin at different times; each chooses one of seven.
            let mut soonest = u64::MAX;
            for _ in 0..others {
                let begins = rng.below(period);
                let chance = 1.0 / others as f64;
                let periods = (unit(rng).ln() / (1.0 - chance).ln()) as u64;
                soonest = soonest.min(begins + periods * period);
            }
            Some(soonest + period)
        })
        .collect();
    Outcome { false_suspicions, detected }
}

fn sentinel(delays: &Delays, timeout: u64, failures: Failures<'_>, rng: &mut Rng) -> Outcome {
    let observers: Vec<Vec<Sign>> = (1..4).map(|part| replies(delays, part, timeout, false)).collect();
    // When each observer begins to suspect, and when it stops.
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for pair in observers.iter().flat_map(|signs| signs.windows(2)) {
        let ends = pair[0].arrives + pair[0].allowed;
        if pair[1].arrives > ends {
            changes.extend([(ends, 1), (pair[1].arrives, -1)]);
        }
    }
    changes.sort_unstable();
    let mut suspecting = 0;
    let mut false_suspicions = 0;
    for (_, change) in changes {
        suspecting += change;
        false_suspicions += u64::from(change > 0 && suspecting == 2);
    }
    let detected = failures.each(delays, rng, |failure| {
        let mut times: Vec<u64> = observers.iter().filter_map(|signs| silence(signs, failure)).collect();
        times.sort_unstable();
        times.get(1).copied()
    });
    Outcome { false_suspicions, detected }
}
