//! Where a member renews its lease: at one lease cache while one answers, otherwise at the
//! acceptors.
//!
//! uKharon, section 6.3, lease caches. The first lease on a view always comes from the acceptors; a
//! cache only renews. So a cache lies on nobody's way from a failure to being active again, and a
//! member never learns of a view from one.

use crate::Config;
use crate::mutants::Mutant;
use crate::rng::{Rng, mix};
use crate::view::{Kind, View};
use crate::wire::Message;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, ViewId};

/// A question that a cache has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    nonce: u64,
    cache: Incarnation,
    view: ViewId,
    posted: Instant,
}

/// What a cache's answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It vouches for this view as of when it was asked.
    Vouched {
        /// The view.
        view: ViewId,
        /// When the question was posted.
        posted: Instant,
    },
    /// It can not vouch for the view: ask the acceptors.
    Refused,
}

/// The lease cache of a view that a member asks first, as long as it answers. Each member has its
/// own order of them, so that they share the work.
#[must_use]
pub fn preferred(view: &View, me: Incarnation) -> Option<Incarnation> {
    view.of_kind(Kind::LeaseCache).map(|m| m.incarnation).min_by_key(|who| mix(me.0, who.0))
}

/// The caches of the newest view, as one member sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RenewalSource {
    /// In the order in which this member asks them.
    caches: Vec<(Incarnation, Address)>,
    /// Caches that did not answer, and until when they are passed over.
    passed: Vec<(Incarnation, Instant)>,
    question: Option<Question>,
    /// Whose death is to be reported.
    watched: Option<Address>,
}

impl RenewalSource {
    /// Learns of a view's caches. Each member has its own order of them, so that they share the
    /// work.
    pub fn follow<F: Fabric>(&mut self, view: &View, me: Incarnation, fabric: &mut F) {
        self.caches = view.of_kind(Kind::LeaseCache).map(|m| (m.incarnation, m.address)).collect();
        self.caches.sort_by_key(|(who, _)| mix(me.0, who.0));
        self.passed.retain(|(who, _)| view.member(*who).is_some());
        self.watch(fabric);
    }

    /// Uses no cache any more.
    pub fn clear<F: Fabric>(&mut self, fabric: &mut F) {
        self.caches.clear();
        self.passed.clear();
        self.question = None;
        self.watch(fabric);
    }

    fn chosen(&self) -> Option<(Incarnation, Address)> {
        let passed = |who| self.passed.iter().any(|(p, _)| *p == who);
        self.caches.iter().find(|(who, _)| !passed(*who)).copied()
    }

    /// The death of the cache that is asked must be known before it has to be waited for.
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

    /// Asks the first cache that is not passed over to vouch for `view`; false if there is none.
    pub fn ask<F: Fabric>(&mut self, view: ViewId, rng: &mut Rng, now: Instant, fabric: &mut F) -> bool {
        let before = self.passed.len();
        self.passed.retain(|(_, until)| now < *until);
        if self.passed.len() != before {
            self.watch(fabric);
        }
        let Some((cache, address)) = self.chosen() else { return false };
        let nonce = rng.next();
        self.question = Some(Question { nonce, cache, view, posted: now });
        fabric.send(address, &Message::Vouch { nonce, view }.encode());
        true
    }

    /// Whether a cache has been asked and has not answered.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Gives up the question that is out.
    pub const fn cancel(&mut self) {
        self.question = None;
    }

    /// When the question that is out is given up.
    #[must_use]
    pub fn deadline(&self, config: &Config) -> Instant {
        self.question.map_or(Instant::NEVER, |q| q.posted + config.timing.cache_timeout)
    }

    /// Takes an answer. One to another question is none: it may tell of a time before this one was
    /// posted.
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
        self.pass_over(question.cache, config, now, fabric);
        Some(Answer::Refused)
    }

    /// Gives up a question that was out for too long; true if there was one.
    pub fn give_up<F: Fabric>(&mut self, config: &Config, now: Instant, fabric: &mut F) -> bool {
        if now < self.deadline(config) {
            return false;
        }
        let Some(question) = self.question.take() else { return false };
        self.pass_over(question.cache, config, now, fabric);
        true
    }

    /// A process died, or may have; true if its answer was waited for.
    pub fn died<F: Fabric>(&mut self, who: Address, config: &Config, now: Instant, fabric: &mut F) -> bool {
        let Some(cache) = self.caches.iter().find(|(_, at)| *at == who).map(|(cache, _)| *cache) else {
            return false;
        };
        self.pass_over(cache, config, now, fabric);
        self.question.take_if(|q| q.cache == cache).is_some()
    }

    /// Asks another cache for as long as the heartbeat detector mostly needs to find this one out: then it
    /// is out of the view, or alive after all.
    fn pass_over<F: Fabric>(&mut self, cache: Incarnation, config: &Config, now: Instant, fabric: &mut F) {
        if config.mutant.has(Mutant::NoFallback) {
            return;
        }
        let timing = &config.timing;
        let pause = timing.heartbeat_period.saturating_mul(u64::from(timing.heartbeat_confirm) + 1);
        self.passed.retain(|(who, _)| *who != cache);
        self.passed.push((cache, now + pause.saturating_add(Nanos(1))));
        self.watch(fabric);
    }
}
