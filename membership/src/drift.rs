//! Clock drift: does any member's clock run faster or slower than the bound that all leases rely
//! on?
//!
//! uKharon, appendix C, relies on invariant TSCs; here the rates are measured, pair by pair. A
//! member requests another's clock, which was then read between the request and the arrival of the
//! reply. Two such replies bound the ratio of the two rates from both sides, whatever the delays of
//! the messages. Only a ratio that is certainly outside the bound raises an alarm: a slow network
//! makes the measurement coarser, never wrong.

use crate::Config;
use crate::metrics::Counter;
use crate::recorder::{EventKind, Record};
use crate::rng::Rng;
use crate::timing::Timing;
use crate::view::View;
use crate::wire::Message;
use obol_fabric::{Address, Fabric, Incarnation, Instant};
use std::collections::BTreeMap;

/// One request is sent per this many periods of the heartbeat detector.
const EVERY_HEARTBEATS: u64 = 8;
/// Peers whose earlier reply is kept.
pub const PEERS_MAX: usize = 256;

/// One request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exchange {
    posted: Instant,
    answered: Instant,
    /// The peer's clock in between.
    clock: Instant,
}

/// A clock that is proved to be beyond the bound.
struct Alarm {
    /// The peer, as seen from here. The local clock may be the wrong one.
    who: Incarnation,
    /// Whether it runs faster than the local one; otherwise slower.
    fast: bool,
    /// By at least how much, in parts per million.
    ppm: u64,
}

/// A pending request for the time of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    who: Incarnation,
    nonce: u64,
    posted: Instant,
}

/// The measurements of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Drift {
    due: Instant,
    pending: Option<Request>,
    last: Incarnation,
    first: BTreeMap<Incarnation, Exchange>,
}

impl Drift {
    /// Forgets former members.
    pub fn follow(&mut self, view: &View) {
        self.first.retain(|who, _| view.member(*who).is_some());
    }

    /// When the next request is due.
    pub const fn deadline(&self) -> Instant {
        self.due
    }

    /// Sends a request to the member after the last one. One request is pending at a time; a lost
    /// one is abandoned with the next.
    pub fn tick<F: Fabric>(
        &mut self,
        view: &View,
        me: Incarnation,
        rng: &mut Rng,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        if now < self.due {
            return;
        }
        self.due = now + config.timing.heartbeat_period.saturating_mul(EVERY_HEARTBEATS);
        let peers = || view.members.iter().filter(|m| m.has_core() && m.incarnation != me);
        let next = peers().find(|m| m.incarnation > self.last).or_else(|| peers().next());
        let Some(peer) = next else { return };
        self.last = peer.incarnation;
        let nonce = rng.token();
        self.pending = Some(Request { who: peer.incarnation, nonce, posted: now });
        fabric.send(peer.address, &Message::ClockRequest { nonce }.encode());
    }

    /// Replies to a request: `now` lies between its post and the reply's arrival.
    pub fn answer<F: Fabric>(to: Address, nonce: u64, now: Instant, fabric: &mut F) {
        fabric.send(to, &Message::ClockReply { nonce, clock: now }.encode());
    }

    /// Handles a reply, and raises the alarm if it proves that a clock is beyond the bound.
    pub fn on_reply<F: Fabric>(
        &mut self,
        nonce: u64,
        clock: Instant,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        if let Some(Alarm { who, fast, ppm }) = self.answered(nonce, clock, &config.timing, now) {
            fabric.count(Counter::DriftAlarms, 1);
            let kind = if fast { EventKind::ClockFast } else { EventKind::ClockSlow };
            fabric.record(Record::new(kind, who.0, ppm));
        }
    }

    fn answered(&mut self, nonce: u64, clock: Instant, timing: &Timing, now: Instant) -> Option<Alarm> {
        let Request { who, posted, .. } = self.pending.take_if(|request| request.nonce == nonce)?;
        assert!(posted <= now, "an answer follows its request");
        let later = Exchange { posted, answered: now, clock };
        let Some(first) = self.first.get(&who).copied() else {
            if self.first.len() < PEERS_MAX {
                self.first.insert(who, later);
                assert!(self.first.len() <= PEERS_MAX);
            }
            return None;
        };
        let bound = timing.drift_ppm;
        let alarm = judge(&first, &later, bound).map(|(fast, ppm)| Alarm { who, fast, ppm });
        // A good measurement starts a new one, so that a clock that fails later is not averaged
        // away.
        let unsure = first.answered.since(first.posted).saturating_add(now.since(posted));
        let span = posted.since(first.answered);
        if alarm.is_some() || u128::from(unsure.0) * 4_000_000 < u128::from(span.0) * u128::from(bound) {
            self.first.insert(who, later);
        }
        alarm
    }
}

/// Whether two replies prove that the ratio of the rates is beyond `(1 + d) / (1 - d)` or below its
/// inverse; and by at least how much the peer's rate is off, in parts per million.
fn judge(first: &Exchange, later: &Exchange, bound_ppm: u32) -> Option<(bool, u64)> {
    const MILLION: u128 = 1_000_000;
    let span = |from: Instant, to: Instant| u128::from(to.since(from).0);
    // The local bounds of the time between the two moments at which the peer read its clock.
    let (least, most) = (span(first.answered, later.posted), span(first.posted, later.answered));
    let peer = span(first.clock, later.clock);
    let (fast, slow) = (MILLION + u128::from(bound_ppm), MILLION.saturating_sub(u128::from(bound_ppm)));
    let ppm =
        |more: u128, less: u128| u64::try_from((more - less) * MILLION / less.max(1)).unwrap_or(u64::MAX);
    if peer * slow > most * fast {
        return Some((true, ppm(peer, most)));
    }
    // A span that may be empty proves nothing.
    if least > 0 && peer * fast < least * slow {
        return Some((false, u64::try_from((least - peer) * MILLION / least).unwrap_or(u64::MAX)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange at a true time, with a peer whose clock runs at `rate` parts in a million.
    fn at(time: u64, out: u64, back: u64, rate: u64) -> Exchange {
        let clock = Instant((time + out) * rate / 1_000_000);
        Exchange { posted: Instant(time), answered: Instant(time + out + back), clock }
    }

    #[test]
    fn delays_alone_never_raise_an_alarm() {
        for (out, back) in [(1, 900_000), (900_000, 1), (500_000, 500_000)] {
            for (out2, back2) in [(1, 900_000), (900_000, 1), (1, 1)] {
                let (first, later) = (at(0, out, back, 1_000_000), at(2_000_000, out2, back2, 1_000_000));
                assert_eq!(judge(&first, &later, 0), None, "{out} {back} {out2} {back2}");
            }
        }
    }

    #[test]
    fn a_reply_counts_for_the_pending_request_alone() {
        let timing = Timing::default();
        let request = Request { who: Incarnation(7), nonce: 1, posted: Instant(100) };
        let mut drift = Drift { pending: Some(request), ..Drift::default() };
        assert!(drift.answered(2, Instant(105), &timing, Instant(110)).is_none());
        assert!(drift.first.is_empty() && drift.pending.is_some(), "the reply to an abandoned request");
        assert!(drift.answered(1, Instant(105), &timing, Instant(110)).is_none());
        assert!(drift.first.contains_key(&Incarnation(7)) && drift.pending.is_none());
    }

    #[test]
    fn a_clock_beyond_the_bound_is_found_once_the_span_is_long_enough() {
        for (rate, fast) in [(1_001_000, true), (999_000, false)] {
            let first = at(0, 5_000, 5_000, rate);
            let near = at(10_000_000, 5_000, 5_000, rate);
            assert_eq!(judge(&first, &near, 200), None, "20 us of doubt in 10 ms hide 1000 ppm");
            let far = at(1_000_000_000, 5_000, 5_000, rate);
            let (found, ppm) = judge(&first, &far, 200).expect("an alarm");
            assert_eq!(found, fast);
            assert!((900..=1_000).contains(&ppm), "{ppm}");
            assert_eq!(
                judge(&first, &far, 600),
                None,
                "two clocks that are off by 500 each are within the bound"
            );
        }
    }
}
