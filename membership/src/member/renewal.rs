//! How a member keeps its lease: it polls, and turns every answer into a renewal, a newer view, or
//! another poll.

use super::Member;
use crate::lease::{Renewed, Voucher};
use crate::metrics::{Counter, Histogram};
use crate::mutants::Mutant;
use crate::peer::Peer;
use crate::poll::Found;
use crate::recorder::{EventKind, Record};
use crate::renewal_source::Answer;
use crate::timers::Timer;
use crate::wire::Message;
use obol_fabric::{Address, Fabric, Instant, Nanos, ViewId};

/// A lease that is renewed too late lapses and resumes, possibly a thousand times per second. Of
/// each view, the first lapses are recorded, then those whose number is a power of two.
const LAPSES_NOTED: u64 = 4;
/// A lapse of this duration is recorded whatever its number.
const LAPSE_LASTS: Nanos = Nanos::from_secs(1);

/// A leader settles a slot at the first request that reaches it. A slot that is still undecided after this
/// many periods of a request may be decided by acceptors that this process cannot read.
const UNDECIDED_PERIODS: u64 = 4;

/// Counts how often the lease on a view lapsed. The flight recorder has room for a few hundred
/// events, which lapses must not push out: a failover has to stay readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lapses {
    view: ViewId,
    count: u64,
    /// Whether a lapse is in progress that was not recorded.
    silent: bool,
}

impl Lapses {
    /// The lease on this view has ended; returns whether to record that.
    const fn begun(&mut self, view: ViewId) -> bool {
        if view.0 != self.view.0 {
            *self = Self { view, count: 0, silent: false };
        }
        self.count += 1;
        self.silent = self.count > LAPSES_NOTED && !self.count.is_power_of_two();
        !self.silent
    }

    /// The lease is valid, again or for the first time; returns whether to record that.
    const fn over(&mut self, view: ViewId) -> bool {
        let is_again = view.0 == self.view.0;
        !(core::mem::replace(&mut self.silent, false) && is_again)
    }
}

impl Member {
    /// Asks whether the newest known view is still the newest: a cache if that suffices, otherwise
    /// the acceptors.
    pub(super) fn poll_newest<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let page = self.lease.page();
        let renews = self.peer.is_member()
            && page.view == self.view.id
            && page.end != Instant::ZERO
            && self.announced <= self.view.id
            // A cache's answer is as old as its lease: too old where the own lease has expired.
            && self.wanted.is_none()
            && !self.peer.is_out_of_touch(now);
        if !renews || !self.source.request(self.view.id, &mut self.peer.rng, now, fabric) {
            self.peer.poll_acceptors(&self.view, now, fabric);
        }
        self.peer.schedule_poll(now);
    }

    pub(super) fn found<F: Fabric>(&mut self, found: Found, now: Instant, fabric: &mut F) {
        match found {
            Found::Empty { view, posted } => {
                self.peer.contact = now;
                self.peer.poll.answered(now.since(posted), &self.peer.config);
                self.renewed(view, posted, Voucher::Acceptors, now, fabric);
                self.confirm_later(posted, now);
                if self.announced > self.view.id && self.announced_at <= posted {
                    // A majority accepts a view before it is announced, so these READs would have
                    // found it. The announcement was wrong; polling further would never end.
                    self.announced = self.view.id;
                } else if self.announced > self.view.id {
                    // Another process knows more: its multicast may have overtaken the slot's CASes
                    // at this majority.
                    self.peer.timers.set(Timer::Poll, now);
                }
            }
            Found::Next(view) => {
                fabric.count(Counter::ViewsFetched, 1);
                let frame = view.to_frame();
                self.install(view, &frame, false, now, fabric);
                if !self.peer.poll.is_busy() {
                    // Later views may exist.
                    self.peer.timers.set(Timer::Poll, now);
                }
            }
            Found::Newer(view, _) => {
                let frame = view.to_frame();
                self.install(view, &frame, true, now, fabric);
            }
            Found::NothingNewer(_) => {
                self.peer.contact = now;
                self.poll_newest(now, fabric);
            }
            Found::Undecided(slot) if self.announced >= slot || self.stays_undecided(slot, now) => {
                // The slot is decided, but the remaining acceptors hold it under several numbers,
                // or none holds it whole; or it may be, by acceptors that this process cannot read.
                self.undecided = None;
                self.peer.contact = now;
                self.peer.poll.snapshot(&self.view, &self.peer.config, now, fabric);
            }
            Found::Undecided(slot) => {
                self.peer.contact = now;
                Peer::send_to_acceptors(&self.view, 0, &Message::Settle(slot), fabric);
            }
            Found::Failed => {
                if self.incarnation().is_some() {
                    fabric.count(Counter::RenewalsFailed, 1);
                }
                self.peer.query_deciders(self.view.id, now, fabric);
            }
        }
    }

    /// Whether the slot has been undecided for long enough to look for its value elsewhere.
    fn stays_undecided(&mut self, slot: ViewId, now: Instant) -> bool {
        let since = self.undecided.filter(|(of, _)| *of == slot).map_or(now, |(_, since)| since);
        self.undecided = Some((slot, since));
        let patience = self.peer.config.timing.join_every.saturating_mul(UNDECIDED_PERIODS);
        since + patience <= now && !self.peer.config.mutant.has(Mutant::SettleForEver)
    }

    /// Handles a cache's answer.
    pub(super) fn vouched<F: Fabric>(
        &mut self,
        nonce: u64,
        newest: ViewId,
        vouched: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        let Some(answer) = self.source.answered(nonce, vouched, &self.peer.config, now, fabric) else {
            return;
        };
        self.note_announced(newest, now);
        match answer {
            Answer::Vouched { view, posted } => {
                // A cache's knowledge may be as old as its lease.
                self.peer.contact = self.peer.contact.max(posted - self.view.cache_lease);
                fabric.count(Counter::RenewalsCached, 1);
                self.renewed(view, posted, Voucher::Cache, now, fabric);
                if self.announced > self.view.id {
                    self.peer.timers.set(Timer::Poll, now);
                }
            }
            Answer::Refused => {
                fabric.count(Counter::CachesPassed, 1);
                self.peer.poll_acceptors(&self.view, now, fabric);
            }
        }
    }

    /// Abandons a request that a cache has not answered in time.
    pub(super) fn expire_cache<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if !self.source.expire(&self.peer.config, now, fabric) {
            return;
        }
        fabric.count(Counter::CachesPassed, 1);
        if self.peer.config.mutant.has(Mutant::NoFallback) {
            self.poll_newest(now, fabric);
        } else {
            self.peer.poll_acceptors(&self.view, now, fabric);
        }
    }

    /// As a cache: answers a member.
    pub(super) fn vouch<F: Fabric>(
        &self,
        from: Address,
        nonce: u64,
        view: ViewId,
        now: Instant,
        fabric: &mut F,
    ) {
        let vouched = self.peer.is_member() && self.lease.vouches(view, now);
        fabric.count(if vouched { Counter::Vouches } else { Counter::VouchesRefused }, 1);
        fabric.send(from, &Message::Vouched { nonce, newest: self.view.id, vouched }.encode());
    }

    /// A program asks whether its view was active at `since` or later, because the lease that it
    /// reads has expired. The acceptors are polled at once, or after a pending poll that is too old
    /// for an answer. One round of READs at a time serves all programs. (uKharon, Algorithm 2, line
    /// 10.)
    pub(super) fn confirm<F: Fabric>(&mut self, since: Instant, now: Instant, fabric: &mut F) {
        if !self.peer.is_member() || self.lease.page().confirmed >= since {
            return;
        }
        fabric.count(Counter::ConfirmsAsked, 1);
        self.wanted = Some(self.wanted.map_or(since, |wanted| wanted.max(since)));
        if !self.peer.poll.is_busy() {
            self.source.cancel();
            self.peer.poll_acceptors(&self.view, now, fabric);
        }
    }

    /// READs posted at `posted` completed: programs that asked later need another poll.
    fn confirm_later(&mut self, posted: Instant, now: Instant) {
        self.wanted = self.wanted.filter(|since| posted < *since);
        if self.wanted.is_some() {
            self.peer.timers.set(Timer::Poll, now);
        }
    }

    pub(super) fn renewed<F: Fabric>(
        &mut self,
        view: ViewId,
        posted: Instant,
        voucher: Voucher,
        now: Instant,
        fabric: &mut F,
    ) {
        if self.view.id != view || !self.peer.is_member() {
            return;
        }
        let before = self.lease.page().end;
        match self.lease.renewed(view, voucher, posted, now) {
            Renewed::Outdated => return,
            Renewed::First => {}
            Renewed::OnTime => {
                fabric.count(Counter::RenewalsOnTime, 1);
                fabric.observe(Histogram::Margin, before.since(now));
            }
            Renewed::Late => {
                fabric.count(Counter::RenewalsLate, 1);
                fabric.observe(Histogram::Margin, Nanos::ZERO);
                self.request_longer_lease(now, fabric);
            }
        }
        fabric.observe(Histogram::Renewal, now.since(posted));
        fabric.publish_page(self.lease.page());
        if self.peer.config.mutant.has(Mutant::FenceByHolder) {
            let fence = obol_fabric::Remote { at: fabric.address(), offset: self.peer.config.layout.fence() };
            fabric.write(fence, &self.view.base.0.to_le_bytes(), obol_fabric::Token(0));
        }
        if self.peer.config.mutant.has(Mutant::RenewalLowersFence) {
            let fence = obol_fabric::Remote { at: fabric.address(), offset: self.peer.config.layout.fence() };
            fabric.write(fence, &[0; 8], obol_fabric::Token(0));
        }
        self.note_active(now, fabric);
    }

    /// Requests longer leases if renewals are late repeatedly. A cache's own lease serves others,
    /// who report for themselves.
    fn request_longer_lease<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.kind.acts() && self.late_renewals.late(&self.view, &self.peer.config.timing, now) {
            Peer::send_to_acceptors(&self.view, 0, &Message::LeaseTooShort(self.view.lease), fabric);
        }
    }

    /// Records when the page becomes active, and when its lease expires. A leaving member gives its
    /// lease up, so nothing is recorded.
    pub(super) fn note_active<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let page = self.lease.page();
        let is = page.start <= now && now < page.end && page.view == self.view.id;
        let active = is.then_some(page.view);
        let lasting = page.end + LAPSE_LASTS;
        if let Some(view) = active
            && active != self.active
        {
            if self.lapses.over(view) {
                fabric.record(Record::new(EventKind::Active, view.0, 0));
            }
        } else if let Some(view) = self.active
            && !is
            && page.end <= now
        {
            if !self.peer.leaves() && self.lapses.begun(view) {
                fabric.record(Record::new(EventKind::LeaseLost, view.0, self.lapses.count));
            }
        } else if active.is_none() && self.lapses.silent && page.view == self.lapses.view && lasting <= now {
            self.lapses.silent = false;
            fabric.record(Record::new(EventKind::LeaseLost, page.view.0, self.lapses.count));
        }
        self.active = active;
        let turn = match active {
            Some(_) => page.end,
            None if self.lapses.silent && page.view == self.lapses.view && now < lasting => lasting,
            None if now < page.start && page.start < page.end => page.start,
            None => Instant::NEVER,
        };
        self.peer.timers.set(Timer::Activity, turn);
    }

    /// Fetches views that were announced but not received.
    pub(super) fn catch_up<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.announced > self.view.id
            && !self.peer.poll.is_busy()
            && !self.peer.config.mutant.has(Mutant::NoPoll)
        {
            self.poll_newest(now, fabric);
        }
    }
}
