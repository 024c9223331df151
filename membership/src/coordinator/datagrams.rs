//! How a coordinator handles datagrams. A datagram is a hint, a question or a request and may be
//! late, lost or repeated. Its word is taken for a decision in one case only: a framed view that
//! follows the newest known one.

use super::{Accusation, Coordinator, cliques};
use crate::detectors::links;
use crate::metrics::Counter;
use crate::peer::MembershipState;
use crate::view::{Deciders, Newcomer, Reason, View};
use crate::wire::{self, Message, Refusal};
use obol_fabric::{Address, Evidence, Fabric, Instant, ViewId};
use std::sync::Arc;

/// A request of an operator expires after this many periods of `Timing::join_every`, at which
/// operators repeat it.
const REQUEST_PERIODS: u64 = 4;

impl Coordinator {
    /// When an operator's request that arrives now expires.
    fn request_expiry(&self, now: Instant) -> Instant {
        now + self.peer.config.timing.join_every.saturating_mul(REQUEST_PERIODS)
    }

    pub(super) fn datagram<F: Fabric>(&mut self, from: Address, bytes: &[u8], now: Instant, fabric: &mut F) {
        fabric.count(Counter::DatagramsReceived, 1);
        let Ok(message) = Message::decode(bytes) else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        match message {
            Message::View { frame, cleared } => self.on_view(from, frame, cleared, now, fabric),
            Message::Step { id: _, cleared, step } => self.on_step(from, step, cleared, now, fabric),
            Message::Decided(id) if id > self.view().id => self.poll_views(now, fabric),
            Message::Clear(base) => self.learn_clear(base, fabric),
            // Broken links are handled by reports.
            Message::Notice { reason: Reason::Timeout, .. } if links::are_watched(&self.peer.config) => {}
            Message::Notice { accuser, accused, reason, evidence } => {
                fabric.count(Counter::NoticesReceived, 1);
                // An accuser outside of the view may be cut off from the members. If its report is
                // true, the member that watches now repeats it. A proof holds whatever its sender.
                // What this process has reported itself, it knows.
                let is_own = Some(accuser) == self.incarnation();
                if !is_own && (evidence == Evidence::Proof || self.view().may_have(accuser)) {
                    self.accuse(accused, Accusation { accuser, reason }, evidence, now, fabric);
                }
            }
            Message::Join { newcomer, as_of, proved } => {
                self.on_join(from, newcomer, as_of, proved, now, fabric);
            }
            Message::Leave(who) => self.requests.leave(who, &self.log.newest().view),
            Message::Settle(slot) => self.on_settle(slot, from, fabric),
            Message::SetLease(lease) => {
                self.lease_scaler.reset();
                self.requests.set_lease(lease, self.request_expiry(now));
            }
            Message::LeaseTooShort(lease) => {
                let newest = &self.log.newest().view;
                if let Some(lease) = self.lease_scaler.grow(lease, newest, &self.peer.config, now) {
                    let until = now + self.peer.config.timing.lease_calm;
                    self.requests.adapt_lease(lease, newest, until);
                }
            }
            Message::SetAcceptor { number, decides, as_of } => {
                self.requests.set_acceptor(number, decides, as_of, &self.log, self.request_expiry(now));
            }
            Message::WhoDecides(view) if view < self.view().id => {
                fabric.send(from, &wire::deciders(self.view()));
            }
            Message::Deciders { id, acceptors } if id > self.view().id => {
                self.poll_others(wire::acceptors(acceptors), now, fabric);
            }
            Message::JoinReply { token, outcome: Err(refusal) } => {
                self.on_refusal(token, refusal, now, fabric);
            }
            Message::Links { from, view, silent } => {
                if let Some(seen) = self.log.get(view) {
                    let silent = cliques::named(silent, &seen.view);
                    self.cliques.on_report(from, silent, self.log.newest().view.as_ref(), now);
                }
            }
            Message::Reached { at, reached } => self.newcomer_read_by_other(at, reached, fabric),
            Message::Raised { nonce, chunk, raised } => {
                if let Some(clearing) = &mut self.clearing {
                    clearing.raised(nonce, chunk, raised, &self.peer.config, fabric);
                }
            }
            // Outdated messages, answers that views make redundant, and requests to caches and
            // members.
            Message::Decided(_)
            | Message::WhoDecides(_)
            | Message::Deciders { .. }
            | Message::JoinReply { .. }
            | Message::Vouch { .. }
            | Message::Vouched { .. }
            | Message::Raise { .. } => {}
            Message::Heartbeat(_)
            | Message::Unheard(_)
            | Message::Reach(_)
            | Message::ClockRequest { .. }
            | Message::ClockReply { .. } => {
                self.peer.datagram(from, &message, now, fabric);
            }
        }
    }

    /// A join of this coordinator was refused.
    fn on_refusal<F: Fabric>(&mut self, token: u64, refusal: Refusal, now: Instant, fabric: &mut F) {
        let is_own = matches!(self.peer.state, MembershipState::Joining { token: own, .. } if own == token);
        match refusal {
            Refusal::Release(spoken) if is_own => self.peer.refused_by = Some(spoken),
            // A leader has answered. It is asked again soon, for it may come to need this coordinator.
            Refusal::OnHold(left) if is_own => {
                self.await_leader(now);
                self.peer.publish_hold(left, now, fabric);
            }
            refusal if is_own && !refusal.is_temporary() => self.stand_by(now),
            _ => {}
        }
    }

    /// A datagram with what differs in a decided view from its predecessor.
    fn on_step<F: Fabric>(
        &mut self,
        from: Address,
        step: &[u8],
        cleared: ViewId,
        now: Instant,
        fabric: &mut F,
    ) {
        let Some(deciders) = wire::deciders_of_step(step) else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        let follows = deciders.can_follow(self.view());
        let applied = wire::apply_step(self.view(), step).filter(|_| follows);
        if let Some((view, frame)) = applied.filter(|(v, _)| v.fits(&self.peer.config.layout)) {
            self.install(&Arc::new(view), &frame, now, fabric);
        } else {
            self.follow_announced(from, deciders, now, fabric);
        }
        if follows {
            self.learn_clear(cleared, fabric);
        }
    }

    /// A datagram with a decided view.
    fn on_view<F: Fabric>(
        &mut self,
        from: Address,
        frame: &[u8],
        cleared: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        let Some(view) = View::from_frame_for(&self.peer.config.layout, frame) else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        let (base, follows) = (view.base, view.can_follow(self.view()));
        if follows && view.id == self.view().id.next() {
            self.install(&Arc::new(view), frame, now, fabric);
        } else {
            self.follow_announced(from, Deciders::of(&view), now, fabric);
        }
        if cleared && follows {
            self.learn_clear(base, fabric);
        }
    }

    /// A view was announced that is not the next one: reads later ones. If a set that a recovery gave
    /// up decides among itself, informs the sender, and takes nothing from it, whatever the number of
    /// its view: it may have decided any number of views meanwhile.
    fn follow_announced<F: Fabric>(
        &mut self,
        from: Address,
        announced: Deciders,
        now: Instant,
        fabric: &mut F,
    ) {
        let own = self.view();
        if !announced.can_follow(own) {
            fabric.count(Counter::DatagramsRefused, 1);
            fabric.send(from, &wire::deciders(own));
        } else if announced.id > own.id && announced.acceptors == own.acceptors {
            self.poll_views(now, fabric);
        } else if announced.id > own.id {
            self.poll_others(announced.acceptors, now, fabric);
        }
    }

    /// A request to become a member.
    fn on_join<F: Fabric>(
        &mut self,
        from: Address,
        newcomer: Newcomer,
        as_of: ViewId,
        proved: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        // A retired coordinator may not know that it is: the view says so.
        if self.view().retired.contains(newcomer.proposer) || !newcomer.fits(&self.peer.config.layout) {
            return fabric.count(Counter::DatagramsRefused, 1);
        }
        self.suspect_former_life(newcomer.address);
        if !proved && !self.needs(newcomer.proposer) {
            return;
        }
        let obstacle = self.obstacle(&newcomer, now);
        let newest = self.log.newest();
        let answer = self.requests.join(newcomer, as_of, from, obstacle, newest, &self.peer.config);
        if let Some(outcome) = answer.filter(|_| self.leading) {
            fabric.send(from, &Message::JoinReply { token: newcomer.token, outcome }.encode());
        }
    }

    /// A process found a slot that is not settled, or missed that it is.
    fn on_settle<F: Fabric>(&mut self, slot: ViewId, from: Address, fabric: &mut F) {
        if let Some(entry) = self.log.get(slot) {
            if self.leading {
                let frame = entry.view.to_frame();
                fabric.send(from, &self.announcement(&entry.view, &frame));
            }
        } else if slot == self.view().id.next() {
            self.requests.settle_slot();
        } else if slot < self.view().id && self.leading {
            // Older than the log: report the newest view instead.
            fabric.send(from, &Message::Decided(self.view().id).encode());
        }
    }
}
