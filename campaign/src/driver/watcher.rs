//! Row 19: programs that follow the views without being members. One polls continuously, one so
//! rarely that slots are reused meanwhile, and both restart from where they left off, like a
//! restarted program.

use super::Driver;
use crate::marks::Mark;
use crate::oracle::{Verdict, broken};
use crate::role::World;
use crate::scenario::Scenario;
use obol_fabric::{Address, Remote, ViewId, memory};
use obol_fabric_sim::State;
use obol_membership::View;
use obol_membership::stream::{Item, Regions, Stream};
use std::sync::Arc;

/// The slow one reads once per this many rounds of faults.
const SLOW: u32 = 5;
/// Each restarts after this many polls.
const RESTART: u32 = 3;
/// Items of one poll at most: the slots of the longest ring, and gaps between them.
const ITEMS_MAX: u32 = 64;

/// A program that follows the views.
#[derive(Debug)]
pub(crate) struct Watcher {
    stream: Stream,
    /// The next expected view.
    next: ViewId,
    every: u32,
    checks: u32,
}

/// The coordinators' memory.
struct Memory<'a> {
    world: &'a World,
    coordinators: u32,
    /// Whether it outlives its process.
    keeps: bool,
}

impl Regions for Memory<'_> {
    fn coordinators(&mut self) -> Vec<Address> {
        (0..self.coordinators).map(Address::region).collect()
    }

    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>> {
        let node = from.at.region;
        let there = node < self.coordinators && (self.keeps || self.world.state(node) != State::Dead);
        let span = memory::span(self.world.memory(node), from.offset, len as usize).filter(|_| there)?;
        let mut bytes = vec![0; len as usize];
        memory::copy_out(span, &mut bytes);
        Some(bytes)
    }
}

/// The two of a run.
pub(crate) fn watchers(scenario: &Scenario, genesis: &Arc<View>) -> Vec<Watcher> {
    let watcher = |every| Watcher {
        stream: Stream::new(Some(genesis.id), Arc::clone(genesis), &scenario.config),
        next: genesis.id,
        every,
        checks: 0,
    };
    vec![watcher(1), watcher(SLOW)]
}

impl Driver {
    /// Polls the watchers that are due after round `round` of the faults.
    pub(crate) fn watch(&mut self, round: u32) -> Verdict {
        let mut watchers = std::mem::take(&mut self.watchers);
        let verdict =
            watchers.iter_mut().filter(|w| round.is_multiple_of(w.every)).try_for_each(|w| self.check(w));
        self.watchers = watchers;
        verdict
    }

    /// Everything that can be read now comes in order, without repetition, and gaps are reported.
    fn check(&mut self, watcher: &mut Watcher) -> Verdict {
        let now = self.cluster.now();
        let genesis = Arc::clone(self.cluster.genesis());
        let keeps = self.scenario.seed.is_multiple_of(2);
        let mut memory = Memory { world: &self.cluster, coordinators: self.scenario.coordinators, keeps };
        watcher.checks += 1;
        if watcher.checks.is_multiple_of(RESTART) {
            watcher.stream = Stream::new(watcher.stream.position(), genesis, &self.scenario.config);
        }
        for _ in 0..ITEMS_MAX {
            let Some(item) = watcher.stream.next(&mut memory) else { break };
            let wanted = watcher.next;
            let (first, last) = match &item {
                Item::View(view) => (view.id, view.id),
                Item::Gap { first, last } => (*first, *last),
            };
            let newest = self.oracle.newest().id;
            if first != wanted || last < first || last > newest {
                let what = format!("a stream gave views {first} to {last} for {wanted}; {newest} is decided");
                return broken!(19, now, "{what}");
            }
            match item {
                Item::View(view) if self.oracle.decisions.get(first).is_none_or(|d| d.view != view) => {
                    return broken!(19, now, "a stream gave a view {first} that is not the decided one");
                }
                Item::View(_) => self.oracle.marks.hit(Mark::Streamed),
                Item::Gap { .. } => self.oracle.marks.hit(Mark::StreamGap),
            }
            watcher.next = last.next();
        }
        Ok(())
    }

    /// At the end, when a majority lives, a stream is complete.
    pub(crate) fn watched_all(&mut self) -> Verdict {
        self.watch(0)?;
        let newest = self.oracle.newest().id;
        match self.watchers.iter().find(|w| w.next <= newest) {
            Some(w) => {
                broken!(19, self.cluster.now(), "a stream has not reached view {} of {newest}", w.next)
            }
            None => Ok(()),
        }
    }
}
