//! When to ask a gateway for an answer that is missing.
//!
//! TCP repeats the last packet of a stream only after a timeout of the kernel's, 200 ms or more, but
//! an earlier one as soon as the peer has acknowledged a later one (RFC 8985, 6.2). So a lost packet
//! needs a successor, whichever way it was lost: the process pings, and the gateway answers.

use obol_fabric::types::{Instant, Nanos};

/// An answer is missing after this many usual round trips; the span then doubles each time.
const FACTOR: u64 = 4;
/// The least of that: a busy processor delays answers, too.
const SPAN_MIN: Nanos = Nanos::from_millis(1);
/// The most of the first span, as a part of the bound of detection: several probes are made within it.
const DETECTION_DIVISOR: u64 = 16;
/// The weight of a new round trip in the average, as a part (RFC 6298, 2.3).
const ROUND_TRIP_DIVISOR: u64 = 8;

/// The timer of a link.
#[derive(Debug)]
pub(super) struct Probe {
    /// The usual time from a request to its answer.
    round_trip: Nanos,
    span_max: Nanos,
    /// When the oldest request without an answer was posted, unless a probe was sent since: its
    /// answer might be the probe's.
    posted: Option<Instant>,
    at: Instant,
    span: Nanos,
}

impl Probe {
    pub(super) fn new(detection: Nanos) -> Self {
        let span_max = Nanos(detection.0 / DETECTION_DIVISOR).max(SPAN_MIN);
        Self { round_trip: span_max, span_max, posted: None, at: Instant::NEVER, span: span_max }
    }

    /// Something was posted while nothing was missing.
    pub(super) fn start(&mut self, now: Instant) {
        self.span = self.round_trip.saturating_mul(FACTOR).clamp(SPAN_MIN, self.span_max);
        self.at = now + self.span;
        self.posted = Some(now);
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.span = self.span.saturating_mul(2);
        self.at = now + self.span;
        self.posted = None;
    }

    /// An answer has come. `more` says whether another is missing.
    pub(super) fn answered(&mut self, now: Instant, more: bool) {
        if let Some(posted) = self.posted.take() {
            let old = self.round_trip.0 - self.round_trip.0 / ROUND_TRIP_DIVISOR;
            self.round_trip = Nanos(old.saturating_add(now.since(posted).0 / ROUND_TRIP_DIVISOR));
        }
        if more {
            self.start(now);
            // The others' round trips have begun earlier.
            self.posted = None;
        } else {
            self.stop();
        }
    }

    /// Nothing is missing.
    pub(super) const fn stop(&mut self) {
        (self.at, self.posted) = (Instant::NEVER, None);
    }

    /// When the next probe is due.
    pub(super) const fn due(&self) -> Instant {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETECTION: Nanos = Nanos::from_millis(160);

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    #[test]
    fn the_span_follows_the_round_trip_within_its_bounds() {
        let mut probe = Probe::new(DETECTION);
        probe.start(ms(0));
        assert_eq!(probe.due(), ms(10), "unknown round trips: the most");
        for n in 1..100 {
            probe.answered(ms(n * 10), false);
            assert_eq!(probe.due(), Instant::NEVER);
            probe.start(ms(n * 10));
        }
        assert_eq!(probe.due(), ms(1000), "slow answers do not make it longer");
        for n in 100..200 {
            probe.start(ms(n));
            probe.answered(ms(n), false);
        }
        probe.start(ms(300));
        assert_eq!(probe.due(), ms(301), "fast ones make it as short as allowed");
    }

    #[test]
    fn each_further_probe_waits_for_twice_as_long_until_an_answer_comes() {
        let mut probe = Probe::new(DETECTION);
        probe.start(ms(0));
        probe.sent(ms(10));
        assert_eq!(probe.due(), ms(30));
        probe.sent(ms(30));
        assert_eq!(probe.due(), ms(70));
        // It took long because something was lost: no round trip.
        probe.answered(ms(70), true);
        assert_eq!(probe.due(), ms(80));
        probe.answered(ms(70), false);
        assert_eq!(probe.due(), Instant::NEVER);
    }
}
