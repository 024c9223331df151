//! What a coordinator hears, and what it does about it. A datagram is a hint, a question or a wish:
//! it may be late, lost or repeated, so nothing is taken for decided on its word but a view that is
//! sealed and follows the newest known one.

use super::{Accusation, Coordinator, cliques};
use crate::detectors::links;
use crate::metrics::Counter;
use crate::peer::MembershipState;
use crate::view::{Level, View};
use crate::wire::{self, Message};
use obol_fabric::{Address, Evidence, Fabric, Instant, ViewId};
use std::sync::Arc;

/// An operator's wish is forgotten after so many times `Timing::join_every`, after which operators
/// repeat it.
const WISH_JOINS: u64 = 4;

impl Coordinator {
    /// Until when an operator's wish that comes now is kept.
    fn wish_ends(&self, now: Instant) -> Instant {
        now + self.peer.config.timing.join_every.saturating_mul(WISH_JOINS)
    }

    pub(super) fn datagram<F: Fabric>(&mut self, from: Address, bytes: &[u8], now: Instant, fabric: &mut F) {
        fabric.count(Counter::DatagramsReceived, 1);
        let message = Message::decode(bytes);
        if message.is_ok_and(|message| self.peer.datagram(from, &message, now, fabric)) {
            return;
        }
        match message {
            Ok(Message::View { sealed, cleared }) => {
                let Some(view) = View::unseal_for(&self.peer.config.layout, sealed) else {
                    fabric.count(Counter::DatagramsRefused, 1);
                    return;
                };
                let base = view.base;
                if view.id == self.view().id.next() {
                    self.install(&Arc::new(view), sealed, now, fabric);
                } else if view.id > self.view().id && view.acceptors == self.view().acceptors {
                    self.ask(now, fabric);
                } else if view.id > self.view().id {
                    self.ask_others(view.acceptors, now, fabric);
                } else if view.acceptors.iter().any(|a| self.view().retired.contains(a.proposer)) {
                    // Those who were given up are back, and decide among themselves: they must hear
                    // of it.
                    fabric.send(from, &wire::deciders(self.view()));
                }
                if cleared {
                    self.learn_clear(base, fabric);
                }
            }
            Ok(Message::Step { id, cleared, step }) => {
                if let Some((view, sealed)) =
                    wire::apply_step(self.view(), step).filter(|(v, _)| v.fits(&self.peer.config.layout))
                {
                    self.install(&Arc::new(view), &sealed, now, fabric);
                } else if id > self.view().id {
                    self.ask(now, fabric);
                }
                self.learn_clear(cleared, fabric);
            }
            Ok(Message::Decided(id)) => {
                if id > self.view().id {
                    self.ask(now, fabric);
                }
            }
            Ok(Message::Clear(base)) => self.learn_clear(base, fabric),
            // Of links that are down, reports tell.
            Ok(Message::Notice { level: Level::Timeout, .. }) if links::are_watched(&self.peer.config) => {}
            Ok(Message::Notice { accuser, accused, level, evidence }) => {
                fabric.count(Counter::NoticesReceived, 1);
                if evidence == Evidence::Suspicion && self.view().has_lost(accuser) {
                    // Cut off, it saw nobody; and who watches now says the same if it is true. A
                    // proof is one from anybody.
                    return;
                }
                self.accuse(accused, Accusation { accuser, level }, evidence, now, fabric);
            }
            // One that was given up, and has not heard of it yet: the view tells it.
            Ok(Message::Join { newcomer, .. }) if self.view().retired.contains(newcomer.proposer) => {
                fabric.count(Counter::DatagramsRefused, 1);
            }
            Ok(Message::Join { newcomer, .. }) if !newcomer.fits(&self.peer.config.layout) => {
                fabric.count(Counter::DatagramsRefused, 1);
            }
            Ok(Message::Join { newcomer, as_of, proved }) => {
                self.suspect_former_life(newcomer.address);
                if !proved && !self.needs(newcomer.proposer) {
                    return;
                }
                let leads = self.leading;
                let left = self.peer.hold_back.left(&newcomer, &self.peer.config.timing, now);
                let newest = self.log.newest();
                let answer = self.requests.join(newcomer, as_of, from, left, newest, &self.peer.config);
                if let Some(reply) = answer.filter(|_| leads) {
                    fabric.send(from, &Message::JoinReply { token: newcomer.token, outcome: reply }.encode());
                }
            }
            Ok(Message::Leave(who)) => self.requests.leave(who, &self.log.newest().view),
            Ok(Message::Nudge(slot)) => self.nudged(slot, from, fabric),
            Ok(Message::SetLease(lease)) => {
                self.lease_scaler.reset();
                self.requests.set_lease(lease, self.wish_ends(now));
            }
            Ok(Message::Strained(lease)) => {
                let newest = Arc::clone(self.view());
                if let Some(lease) = self.lease_scaler.grow(lease, &newest, &self.peer.config, now) {
                    self.requests.set_lease(lease, Instant::NEVER);
                }
            }
            Ok(Message::SetAcceptor { number, decides, as_of }) => {
                self.requests.set_acceptor((number, decides), as_of, &self.log, self.wish_ends(now));
            }
            Ok(Message::Lost(view)) => {
                if view < self.view().id {
                    fabric.send(from, &wire::deciders(self.view()));
                }
            }
            Ok(Message::Deciders { id, acceptors }) => {
                if id > self.view().id {
                    self.ask_others(wire::acceptors(acceptors), now, fabric);
                }
            }
            Ok(Message::JoinReply { token, outcome: Err(refusal) }) => {
                if matches!(self.peer.state, MembershipState::Joining { token: mine, .. } if mine == token)
                    && !refusal.stands()
                {
                    self.stand_by(now);
                }
            }
            Ok(Message::Links { from, view, silent }) => {
                if let Some(seen) = self.log.get(view).map(|entry| Arc::clone(&entry.view)) {
                    self.cliques.heard(
                        from,
                        cliques::named(silent, &seen),
                        self.log.newest().view.as_ref(),
                        now,
                    );
                }
            }
            Ok(Message::Raised { nonce, chunk, raised }) => {
                if let Some(clearing) = &mut self.clearing {
                    clearing.raised(nonce, chunk, raised, &self.peer.config, fabric);
                }
            }
            // Answers that a view tells better, and what is asked of caches and members.
            Ok(
                Message::JoinReply { .. }
                | Message::Alive(_)
                | Message::Clock { .. }
                | Message::ClockIs { .. }
                | Message::Vouch { .. }
                | Message::Vouched { .. }
                | Message::Raise { .. },
            ) => {}
            Err(_) => fabric.count(Counter::DatagramsRefused, 1),
        }
    }

    /// Somebody found a slot that is not settled, or missed that it is.
    fn nudged<F: Fabric>(&mut self, slot: ViewId, from: Address, fabric: &mut F) {
        if let Some(entry) = self.log.get(slot) {
            if self.leading {
                let sealed = entry.view.seal();
                fabric.send(from, &self.announcement(&entry.view, &sealed));
            }
        } else if slot == self.view().id.next() {
            self.requests.settle_slot();
        } else if slot < self.view().id && self.leading {
            // Further back than the log reaches: tell how far the others are.
            fabric.send(from, &Message::Decided(self.view().id).encode());
        }
    }
}
