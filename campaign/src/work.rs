//! Programs that work under a view: they look whether it is active, take their time, look again,
//! and only then let the work take effect, as `guard` of the crate `agent` does. Row 18 is about
//! those that are stopped in between.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::Verdict;
use obol_fabric::sim::{Program, State};
use obol_fabric::{Address, Instant, SeatStatus, ViewId, page};
use obol_membership::Mutant;
use std::sync::atomic::AtomicU64;

/// Work that has not taken effect yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    node: u32,
    /// 0: the embedded app that the node is.
    seat: u16,
    /// Of the process that does it.
    who: Address,
    view: ViewId,
    /// When it is done, if its process runs; never while that is stopped.
    due: u64,
}

/// What a worker looks at, and whether it runs.
pub(super) struct Worker<'a> {
    pub(super) who: Address,
    pub(super) runs: bool,
    pub(super) words: &'a [AtomicU64; page::WORDS],
    pub(super) now: Instant,
}

impl Driver {
    pub(super) fn worker(&self, node: u32, seat: u16) -> Option<Worker<'_>> {
        let now = self.world.local_now(node);
        if seat == 0 {
            let state = self.world.state(node);
            let (who, runs) = (self.world.address(node), state == State::Running);
            return (state != State::Dead).then(|| Worker { who, runs, words: self.world.page(node), now });
        }
        let program = self.world.program(node, seat).filter(|p| p.is_alive())?;
        let words = self.world.program_page(program);
        Some(Worker { who: program.address(), runs: program.is_running(), words, now })
    }

    /// Whether a program knows that it is a member. One that is not may not act, and nobody waits
    /// for it or fences it: its agent's death alone clears the page.
    pub(super) fn is_member(&self, node: u32, seat: u16) -> bool {
        let status = self.world.program(node, seat).and_then(Program::status);
        seat == 0 || matches!(status, Some(SeatStatus::Member(_)))
    }

    /// Lets a program, or the embedded app of a node, begin work that takes so long.
    pub(super) fn begin_work(&mut self, node: u32, seat: u16, span: u64) {
        if !self.is_member(node, seat) {
            return;
        }
        let Some(worker) = self.worker(node, seat).filter(|worker| worker.runs) else { return };
        let Some(page) = page::load(worker.words) else { return };
        if page::active(worker.words, page.view, || worker.now) {
            let (who, view, due) = (worker.who, page.view, self.world.now() + span);
            self.works.push(Work { node, seat, who, view, due });
            self.log(format_args!("seat {seat} of node {node} begins to work in view {view}"));
        }
    }

    /// When the next work is done.
    pub(super) fn next_work(&self) -> u64 {
        self.works.iter().map(|work| work.due).min().unwrap_or(u64::MAX)
    }

    /// A process goes on: so does its work.
    pub(super) fn resume_work(&mut self, node: u32, seat: u16) {
        let now = self.world.now();
        for work in self.works.iter_mut().filter(|w| (w.node, w.seat) == (node, seat) && w.due == u64::MAX) {
            work.due = now;
        }
    }

    /// Lets work that is done take effect.
    pub(super) fn finish_work(&mut self) -> Verdict {
        let now = self.world.now();
        while let Some(at) = self.works.iter().position(|work| work.due <= now) {
            let work = self.works[at];
            let Some(worker) = self.worker(work.node, work.seat).filter(|worker| worker.who == work.who)
            else {
                self.works.swap_remove(at);
                continue;
            };
            if !worker.runs {
                self.works[at].due = u64::MAX;
                continue;
            }
            let active = page::active(worker.words, work.view, || worker.now);
            self.works.swap_remove(at);
            let Work { node, seat, view, .. } = work;
            self.oracle.marks.hit(if active { Mark::WorkDone } else { Mark::WorkAbandoned });
            if active || self.scenario.config.mutant.has(Mutant::SkipSecondCheck) {
                self.log(format_args!("the work of seat {seat} of node {node} in view {view} takes effect"));
                self.oracle.effect(&self.world, node, view)?;
            }
        }
        Ok(())
    }
}
