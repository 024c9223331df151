//! Where a member renews its lease: at one lease cache while one answers, otherwise at the
//! acceptors.
//!
//! uKharon, section 6.3, lease caches. The first lease on a view always comes from the acceptors; a
//! cache only renews. So failover never depends on a cache, and a member never learns of a view
//! from one.

use crate::Config;
use crate::mutants::Mutant;
use crate::rng::{Rng, mix};
use crate::view::{Kind, View};
use crate::wire::Message;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, ViewId};

/// A pending request to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    nonce: u64,
    cache: Incarnation,
    view: ViewId,
    posted: Instant,
}

/// A cache's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It vouches for this view as of the time of the request.
    Vouched {
        view: ViewId,
        /// When the request was posted.
        posted: Instant,
    },
    /// It cannot vouch for the view: poll the acceptors.
    Refused,
}

/// The lease cache of a view that a member uses first, as long as it answers. Each member has its
/// own order of caches, which spreads the load.
pub fn preferred(view: &View, me: Incarnation) -> Option<Incarnation> {
    view.of_kind(Kind::LeaseCache).map(|m| m.incarnation).min_by_key(|who| mix(me.0, who.0))
}

/// The caches of the newest view, in one member's order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RenewalSource {
    /// In the order in which this member uses them.
    caches: Vec<(Incarnation, Address)>,
    /// Caches that did not answer, and until when they are skipped.
    skipped: Vec<(Incarnation, Instant)>,
    question: Option<Question>,
    /// The process that is watched.
    watched: Option<Address>,
}

impl RenewalSource {
    /// Takes the caches of a new view.
    pub fn follow<F: Fabric>(&mut self, view: &View, me: Incarnation, fabric: &mut F) {
        self.caches = view.of_kind(Kind::LeaseCache).map(|m| (m.incarnation, m.address)).collect();
        self.caches.sort_by_key(|(who, _)| mix(me.0, who.0));
        self.skipped.retain(|(who, _)| view.member(*who).is_some());
        self.watch(fabric);
    }

    /// Stops using caches.
    pub fn clear<F: Fabric>(&mut self, fabric: &mut F) {
        self.caches.clear();
        self.skipped.clear();
        self.question = None;
        self.watch(fabric);
    }

    fn chosen(&self) -> Option<(Incarnation, Address)> {
        let skipped = |who| self.skipped.iter().any(|(p, _)| *p == who);
        self.caches.iter().find(|(who, _)| !skipped(*who)).copied()
    }

    /// A cache's death must be reported before its answer times out.
    fn watch<F: Fabric>(&mut self, fabric: &mut F) {
        let wanted = self.chosen().map(|(_, address)| address);
        if wanted == self.watched {
            return;
        }
        if let Some(old) = self.watched.take() {
            fabric.unwatch(old);
        }
        if let Some(new) = wanted {
            fabric.watch_lazily(new);
        }
        self.watched = wanted;
    }

    /// Asks the first available cache to vouch for `view`; false if there is none.
    pub fn request<F: Fabric>(&mut self, view: ViewId, rng: &mut Rng, now: Instant, fabric: &mut F) -> bool {
        let before = self.skipped.len();
        self.skipped.retain(|(_, until)| now < *until);
        if self.skipped.len() != before {
            self.watch(fabric);
        }
        let Some((cache, address)) = self.chosen() else { return false };
        let nonce = rng.next();
        self.question = Some(Question { nonce, cache, view, posted: now });
        fabric.send(address, &Message::Vouch { nonce, view }.encode());
        true
    }

    /// Whether a request to a cache is pending.
    pub const fn is_pending(&self) -> bool {
        self.question.is_some()
    }

    /// Whether a request is pending.
    pub const fn is_busy(&self) -> bool {
        self.question.is_some()
    }

    /// Drops the pending request.
    pub const fn cancel(&mut self) {
        self.question = None;
    }

    /// The timeout of the pending request.
    pub fn deadline(&self, config: &Config) -> Instant {
        self.question.map_or(Instant::NEVER, |q| q.posted + config.timing.cache_timeout)
    }

    /// Handles an answer. An answer to another request is ignored: it may describe a time before
    /// this one was posted.
    pub fn answered<F: Fabric>(
        &mut self,
        nonce: u64,
        vouched: bool,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) -> Option<Answer> {
        let any = config.mutant.has(Mutant::DropNonce);
        let question = self.question.take_if(|q| q.nonce == nonce || any)?;
        if vouched {
            return Some(Answer::Vouched { view: question.view, posted: question.posted });
        }
        self.skip(question.cache, config, now, fabric);
        Some(Answer::Refused)
    }

    /// Drops a request that has timed out; true if there was one.
    pub fn expire<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) -> bool {
        if now < self.deadline(config) {
            return false;
        }
        let Some(question) = self.question.take() else { return false };
        self.skip(question.cache, config, now, fabric);
        true
    }

    /// A process died, or may have; true if its answer was pending.
    pub fn died<F: Fabric>(&mut self, who: Address, config: &Config, now: Instant, fabric: &mut F) -> bool {
        let Some(cache) = self.caches.iter().find(|(_, at)| *at == who).map(|(cache, _)| *cache) else {
            return false;
        };
        self.skip(cache, config, now, fabric);
        self.question.take_if(|q| q.cache == cache).is_some()
    }

    /// Skips a cache for as long as the heartbeat detector usually needs to detect its failure: by
    /// then it is out of the view, or alive after all.
    fn skip<F: Fabric>(&mut self, cache: Incarnation, config: &Config, now: Instant, fabric: &mut F) {
        if config.mutant.has(Mutant::NoFallback) {
            return;
        }
        let timing = &config.timing;
        let pause = timing.heartbeat_period.saturating_mul(u64::from(timing.heartbeat_confirm) + 1);
        self.skipped.retain(|(who, _)| *who != cache);
        self.skipped.push((cache, now + pause.saturating_add(Nanos(1))));
        self.watch(fabric);
    }
}
