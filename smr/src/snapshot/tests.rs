//! Whom a loader asks, how long it waits, and how long a provider keeps a snapshot, in virtual time.

use super::*;
use crate::log::Log;
use crate::service::LoadError;
use crate::state::State;
use crate::tokens::{bytes_of, part_of};
use core::ops::Range;
use obol_fabric::{Event, Layout, Limits, Machine};
use obol_fabric_sim::{Clock, Network, World};

const NODES: usize = 4;
/// The replica without a state. The others have it, the last of them is the youngest, and leads.
const LOADER: usize = 0;
const LEADER: usize = 3;
const POLL_EVERY: Nanos = Nanos::from_micros(4);
const PATIENCE: Nanos = Nanos::from_micros(150);
/// Several times as long as a loader waits for one that does not begin.
const LONG: Nanos = Nanos(30 * PATIENCE.0);

const LIMITS: Limits = Limits {
    slots: 8,
    proposers: 3,
    value_bytes: 6400,
    lanes: 16,
    lane_slots: 64,
    datagram_bytes: 4096,
    ..Limits::LEAST
};

/// A service with a state of several chunks, which is saved in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Parts {
    bytes: Vec<u8>,
    saved: Option<usize>,
    ended: u32,
}

/// Bytes of a part, so that each chunk needs a new one.
const PART: usize = 4 * 1024;

impl Service for Parts {
    const KIND: u8 = 11;

    fn apply(&mut self, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, _: &[u8], _: &mut Vec<u8>) {}
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        self.bytes = from.to_vec();
        Ok(())
    }

    fn begin_save(&mut self) -> Option<u64> {
        self.saved = Some(0);
        Some(self.bytes.len() as u64)
    }

    fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        let from = self.saved?;
        let end = self.bytes.len().min(from + PART);
        to.extend_from_slice(&self.bytes[from..end]);
        self.saved = Some(end);
        Some(end == self.bytes.len())
    }

    fn end_save(&mut self) {
        self.saved = None;
        self.ended += 1;
    }
}

struct Side {
    own: Incarnation,
    replicated: Replicated<Parts>,
    provider: Provider,
    loader: Loader<Parts>,
    is_loaded: bool,
}

impl Machine for Side {
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, _: &mut F) {
        let Event::Completion { token, result } = event else { return };
        let Some((Part::Chunk, id)) = part_of(token) else { return };
        let read = self.loader.on_read(now, self.own, id, bytes_of(result), &mut self.replicated, true);
        self.is_loaded |= read.expect("a state that fits");
    }
}

/// Replicas whose turns a test gives.
struct Bed {
    world: World<Side>,
    area: Area,
    replicas: Vec<(Incarnation, Address)>,
    /// When each has its next turn.
    turns: [u64; NODES],
    /// How long a turn takes while a provider serves a snapshot.
    step: Nanos,
    /// Providers that the loader has asked, in order.
    asked: Vec<usize>,
}

impl Bed {
    fn new() -> Self {
        let layout = Layout::new(LIMITS).expect("within the bounds");
        let mut world = World::new(layout, Network { record: false, count: false, ..Network::default() }, 1);
        for node in 0..NODES {
            let mut state = State::new(Parts::default(), 0);
            if node != LOADER {
                (state.log, state.applied.index) = (state.identity(0x77_0000), Index(5));
                state.service.bytes = (0..10 * PART).map(|n| n as u8).collect();
            }
            let replicated = Replicated { state, log: Log::default(), gap: false, lags: false };
            let own = Incarnation(node as u64 + 1);
            let (provider, loader) = (Provider::default(), Loader::default());
            let side = Side { own, replicated, provider, loader, is_loaded: false };
            world.add(side, Clock::new(Instant(1_000_000), 0), 0);
        }
        world.run_until(PATIENCE.0);
        let member = |node| (Incarnation(u64::from(node) + 1), world.address(node));
        let replicas = (0..NODES as u32).map(member).collect();
        let area = Area::of(&layout).expect("there is room");
        let (turns, asked) = ([0; NODES], Vec::new());
        Self { world, area, replicas, turns, step: Nanos::ZERO, asked }
    }

    fn side(&self, node: usize) -> &Side {
        self.world.machine(node as u32)
    }

    fn is_serving(&self, node: usize) -> bool {
        self.side(node).provider.serving.is_some()
    }

    /// One that gets no turns answers nobody.
    fn stop(&mut self, node: usize) {
        self.turns[node] = u64::MAX;
    }

    /// Lets time pass while `goes_on`; returns how much.
    fn run_while(&mut self, most: Nanos, goes_on: impl Fn(&Self) -> bool) -> Nanos {
        let begun = self.world.now();
        while goes_on(self) && self.world.now() < begun + most.0 {
            let now = self.world.now() + POLL_EVERY.0;
            self.world.run_until(now);
            for node in 0..NODES {
                if self.turns[node] <= now {
                    self.turn(node);
                    let takes = if self.is_serving(node) { self.step } else { Nanos::ZERO };
                    self.turns[node] = self.world.now() + takes.0;
                }
            }
        }
        Nanos(self.world.now() - begun)
    }

    fn turn(&mut self, node: usize) {
        let (replicas, area, leader) = (&self.replicas, self.area, Some(self.replicas[LEADER].0));
        let from = self.world.with_machine(node as u32, |side, now, fabric| {
            let Side { own, replicated, provider, loader, is_loaded } = side;
            if node != LOADER {
                provider.poll(now, *own, replicas, area, PATIENCE, replicated, fabric);
                return None;
            }
            if *is_loaded {
                return None;
            }
            let (own, pauses) = ((*own, node), Pauses { pause: POLL_EVERY, patience: PATIENCE });
            let before = loader.id;
            loader.poll(now, own, replicas, leader, Index(1), area, pauses, replicated, fabric);
            loader.from.filter(|_| loader.id != before)
        });
        if let Some((who, _)) = from.expect("it runs") {
            self.asked.push(who.0 as usize - 1);
        }
    }

    fn is_loaded(&self) -> bool {
        let (from, to) = (self.side(LEADER), self.side(LOADER));
        to.is_loaded && from.replicated.state.service.bytes == to.replicated.state.service.bytes
    }
}

/// Within the time that it takes to notice.
fn around(span: Nanos) -> Range<Nanos> {
    span.saturating_sub(PATIENCE)..span.saturating_add(PATIENCE)
}

#[test]
fn the_youngest_is_asked_first_and_the_leader_last() {
    let mut bed = Bed::new();
    (1..NODES).for_each(|node| bed.stop(node));
    bed.run_while(PATIENCE.saturating_mul(4), |bed| bed.asked.len() < 4);
    assert_eq!(bed.asked, [2, 1, LEADER, 2]);
}

#[test]
fn a_provider_that_does_not_begin_is_left_after_the_patience() {
    let mut bed = Bed::new();
    bed.stop(2);
    let took = bed.run_while(LONG, |bed| bed.asked.len() < 2);
    assert!((PATIENCE..PATIENCE.saturating_mul(2)).contains(&took), "{took:?}");
    bed.run_while(LONG, |bed| !bed.is_loaded());
    assert_eq!((bed.is_loaded(), &bed.asked[..]), (true, &[2, 1][..]));
}

#[test]
fn a_provider_that_has_begun_may_take_long_for_each_chunk() {
    let mut bed = Bed::new();
    bed.step = LONG;
    let took = bed.run_while(Nanos(1000 * LONG.0), |bed| !bed.is_loaded());
    assert_eq!((bed.is_loaded(), &bed.asked[..]), (true, &[2][..]));
    assert!(took > Nanos(STALLED * PATIENCE.0), "{took:?}: longer than one chunk may take");
}

#[test]
fn a_provider_that_makes_no_chunk_any_more_is_left_for_another_one() {
    let mut bed = Bed::new();
    bed.run_while(LONG, |bed| bed.side(LOADER).loader.chunks < 2);
    assert!(bed.is_serving(2));
    bed.stop(2);
    let stalled = Nanos(STALLED * PATIENCE.0);
    let took = bed.run_while(stalled.saturating_mul(2), |bed| bed.asked.len() < 2);
    assert!(around(stalled).contains(&took), "{took:?}");
    bed.run_while(LONG, |bed| !bed.is_loaded());
    assert_eq!((bed.is_loaded(), &bed.asked[..]), (true, &[2, 1][..]));
}

#[test]
fn a_snapshot_that_nobody_asks_for_any_more_is_given_up() {
    let mut bed = Bed::new();
    bed.run_while(LONG, |bed| bed.side(LOADER).loader.chunks < 2);
    let ended = |bed: &Bed| bed.side(2).replicated.state.service.ended;
    bed.stop(LOADER);
    let forgotten = Nanos(FORGOTTEN * PATIENCE.0);
    let took = bed.run_while(forgotten.saturating_mul(2), |bed| bed.is_serving(2));
    assert!(around(forgotten).contains(&took), "{took:?}");
    assert_eq!(ended(&bed), 1, "the service keeps nothing for it");
    // The request that still lies in its memory is an old one: it begins nothing for it again.
    bed.run_while(forgotten, |bed| !bed.is_serving(2));
    assert_eq!((bed.is_serving(2), ended(&bed)), (false, 1));
}

#[test]
fn a_snapshot_is_kept_while_it_is_asked_for_however_seldom_the_provider_looks() {
    let mut bed = Bed::new();
    bed.step = Nanos(2 * FORGOTTEN * PATIENCE.0);
    bed.run_while(Nanos(100 * bed.step.0), |bed| !bed.is_loaded());
    assert_eq!((bed.is_loaded(), &bed.asked[..]), (true, &[2][..]));
}
