//! Shared by the model checks: a fabric that only records posts, and the exploration of a model.

// Each test binary uses a part of this.
#![allow(dead_code)]

use obol_fabric::metrics::{CounterSlot, HistogramSlot};
use obol_fabric::recorder::{EventCode, Record};
use obol_fabric::*;
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::time::Instant as Clock;

/// The limits of every model: the smallest ring, and two proposers.
pub(crate) const LIMITS: Limits = Limits { seats: 2, proposers: 2, ..Limits::LEAST };

/// One posted operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    Read { from: Remote, len: u32 },
    Write { to: Remote, bytes: Vec<u8> },
    Cas { at: Remote, expected: u64, desired: u64 },
}

/// A fabric that only records a machine's posts, in order; the model decides their results.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) posts: Vec<(Post, Token)>,
    pub(crate) sent: Vec<(Address, Vec<u8>)>,
    pub(crate) cleared: Option<ViewId>,
}

impl Fabric for Noted {
    fn address(&self) -> Address {
        Address::default()
    }
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.posts.push((Post::Read { from, len }, token));
    }
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.posts.push((Post::Write { to, bytes: bytes.to_vec() }, token));
    }
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.posts.push((Post::Cas { at, expected, desired }, token));
    }
    fn permit(&mut self, _: Writers, _: Range<u32>, _: Permission, _: Token) {
        unreachable!("the membership changes no permissions");
    }
    fn send(&mut self, to: Address, bytes: &[u8]) {
        self.sent.push((to, bytes.to_vec()));
    }
    fn multicast(&mut self, _: Group, _: &[u8]) {}
    fn watch(&mut self, _: Address) {}
    fn unwatch(&mut self, _: Address) {}
    fn publish_page(&mut self, _: &Page) {}
    fn publish_view(&mut self, _: ViewId, _: &[u8]) {}
    fn publish_cleared(&mut self, base: ViewId) {
        self.cleared = Some(base);
    }
    fn publish_incarnation(&mut self, _: Incarnation) {}
    fn publish_unreachable(&mut self, _: u64) {}
    fn publish_seat(&mut self, _: u16, _: SeatStatus) {}
    fn record(&mut self, _: Record<impl Into<EventCode>>) {}
    fn count(&mut self, _: impl Into<CounterSlot>, _: u64) {}
    fn observe(&mut self, _: impl Into<HistogramSlot>, _: Nanos) {}
    fn observe_since(&mut self, _: impl Into<HistogramSlot>, _: Instant) {}
}

/// Forwards everything but `u32`s to the hasher.
///
/// The machines derive `Hash`, and their only changing `u32`s are round numbers, by which a machine
/// recognises completions of its latest posts. The models keep exactly that with every operation
/// instead (an operation is `fresh` or not), so two states that differ only in round numbers behave
/// alike.
pub(crate) struct WithoutRounds<'a, H>(pub(crate) &'a mut H);

impl<H: Hasher> Hasher for WithoutRounds<'_, H> {
    fn finish(&self) -> u64 {
        self.0.finish()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
    fn write_u32(&mut self, _: u32) {}
    fn write_u64(&mut self, n: u64) {
        self.0.write_u64(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.0.write_usize(n);
    }
}

/// Forwards instants relative to now, clamped to `reach`, and everything else unchanged.
///
/// Instants are distinguished from other numbers by their size: no clock here shows less than
/// `epoch`.
pub(crate) struct Relative<'a, H> {
    pub(crate) inner: &'a mut H,
    pub(crate) now: Instant,
    pub(crate) epoch: u64,
    pub(crate) reach: u64,
}

impl<H: Hasher> Hasher for Relative<'_, H> {
    fn finish(&self) -> u64 {
        self.inner.finish()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.inner.write(bytes);
    }
    fn write_u64(&mut self, n: u64) {
        if n < self.epoch {
            self.inner.write_u64(n);
        } else {
            // Odd, and so different from any number below.
            let ahead = n.saturating_add(self.reach).saturating_sub(self.now.0).min(2 * self.reach);
            self.inner.write_u64(u64::MAX - ahead);
        }
    }
    fn write_usize(&mut self, n: usize) {
        self.inner.write_usize(n);
    }
}

/// A quick hash, good enough to draw samples by.
#[derive(Default)]
pub(crate) struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0 >> 16
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) seconds: f64,
    /// The broken property and the steps that break it.
    pub(crate) broken: Option<(&'static str, Vec<String>)>,
    /// Goals that were not reached.
    pub(crate) unreached: Vec<&'static str>,
}

/// A model whose states can be visited by several threads.
pub(crate) trait Explorable:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
    + Send
    + Sync
    + 'static
{
}

impl<M> Explorable for M where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
            Action: Clone + Debug + PartialEq,
        > + Send
        + Sync
        + 'static
{
}

/// Visits every reachable state, or stops at the first that breaks a property.
pub(crate) fn explore(model: impl Explorable) -> Explored {
    let began = Clock::now();
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let wanted = checker.model().properties();
    let is_mark =
        |name: &str| wanted.iter().any(|p| p.name == name && matches!(p.expectation, Expectation::Sometimes));
    let marks = wanted.iter().map(|p| p.name).filter(|name| is_mark(name));
    let unreached = marks.filter(|name| !found.contains_key(name)).collect();
    let broken = found.into_iter().find(|(name, _)| !is_mark(name));
    Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: began.elapsed().as_secs_f64(),
        broken: broken
            .map(|(name, path)| (name, path.into_actions().iter().map(|a| format!("{a:?}")).collect())),
        unreached,
    }
}

/// The model holds, and has at least the expected number of states.
pub(crate) fn holds(name: &str, model: impl Explorable, states_min: usize) {
    let found = explore(model);
    println!("{name}: {} states, depth {}, {:.1} s", found.states, found.depth, found.seconds);
    if let Some((property, steps)) = found.broken {
        panic!("{name}: not so: {property}, after {} steps:\n  {}", steps.len(), steps.join("\n  "));
    }
    assert!(found.unreached.is_empty(), "{name}: never reached: {:?}", found.unreached);
    assert!(found.states >= states_min, "{name}: only {} states; {states_min} expected", found.states);
}

/// The planted bug is found.
pub(crate) fn breaks(name: &str, model: impl Explorable) -> Vec<String> {
    let found = explore(model);
    let (property, steps) = found
        .broken
        .unwrap_or_else(|| panic!("{name}: not caught in {} states, {:.1} s", found.states, found.seconds));
    println!(
        "{name}: caught after {} steps, {} states, {:.1} s: not so: {property}",
        steps.len(),
        found.states,
        found.seconds
    );
    steps
}

/// A test for each model that holds.
macro_rules! hold {
    ($($(#[$meta:meta])* $test:ident: $model:expr, at least $states:literal states;)+) => { $(
        $(#[$meta])*
        #[test]
        fn $test() {
            crate::common::holds(stringify!($test), $model, $states);
        }
    )+ };
}
pub(crate) use hold;

/// A test for each planted bug that a model finds.
#[cfg(feature = "mutants")]
macro_rules! caught {
    ($($test:ident: $mutant:ident in $model:expr;)+) => { $(
        #[test]
        fn $test() {
            let mutant = obol_membership::ActiveMutant::new(obol_membership::Mutant::$mutant);
            let steps = crate::common::breaks(obol_membership::Mutant::$mutant.name(), $model(mutant));
            assert!(!steps.is_empty());
        }
    )+ };
}
#[cfg(feature = "mutants")]
pub(crate) use caught;
