//! Programs that work under a view: they check that it is active, take their time, check again, and
//! only then let the work take effect, like `guard` of the crate `agent`. Row 18 concerns those
//! that are stopped in between.

use super::Driver;
use crate::marks::Mark;
use crate::oracle::Verdict;
use obol_fabric::{Address, Instant, SeatStatus, ViewId, page};
use obol_fabric_sim::{Program, State};
use obol_membership::Mutant;
use std::sync::atomic::AtomicU64;

/// Work that has not taken effect yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    node: u32,
    /// 0: the node's embedded app.
    seat: u16,
    who: Address,
    view: ViewId,
    /// When it completes; never while its process is stopped.
    due: u64,
}

/// The page of a worker, and whether it runs.
pub(crate) struct Worker<'a> {
    pub(crate) who: Address,
    pub(crate) runs: bool,
    pub(crate) words: &'a [AtomicU64; page::WORDS],
    pub(crate) now: Instant,
}

impl Driver {
    pub(crate) fn worker(&self, node: u32, seat: u16) -> Option<Worker<'_>> {
        let now = self.cluster.local_now(node);
        if seat == 0 {
            let state = self.cluster.state(node);
            let (who, runs) = (self.cluster.address(node), state == State::Running);
            return (state != State::Dead).then(|| Worker { who, runs, words: self.cluster.page(node), now });
        }
        let program = self.cluster.program(node, seat).filter(|p| p.is_alive())?;
        let words = self.cluster.program_page(program);
        Some(Worker { who: program.address(), runs: program.is_running(), words, now })
    }

    /// Whether a program knows that it is a member. A non-member must not act, and no leader waits
    /// for it or fences it: only its agent's death clears the page.
    pub(crate) fn is_member(&self, node: u32, seat: u16) -> bool {
        let status = self.cluster.program(node, seat).and_then(Program::status);
        seat == 0 || matches!(status, Some(SeatStatus::Member(_)))
    }

    /// Lets a program, or a node's embedded app, begin work of this duration.
    pub(crate) fn begin_work(&mut self, node: u32, seat: u16, span: u64) {
        if !self.is_member(node, seat) {
            return;
        }
        let Some(worker) = self.worker(node, seat).filter(|worker| worker.runs) else { return };
        let Some(page) = page::load(worker.words) else { return };
        if page::active(worker.words, page.view, || worker.now) {
            let (who, view, due) = (worker.who, page.view, self.cluster.now() + span);
            self.works.push(Work { node, seat, who, view, due });
            self.log(format_args!("seat {seat} of node {node} begins to work in view {view}"));
        }
    }

    /// When the next work completes.
    pub(crate) fn next_work(&self) -> u64 {
        self.works.iter().map(|work| work.due).min().unwrap_or(u64::MAX)
    }

    /// A process resumes, and so does its work.
    pub(crate) fn resume_work(&mut self, node: u32, seat: u16) {
        let now = self.cluster.now();
        for work in self.works.iter_mut().filter(|w| (w.node, w.seat) == (node, seat) && w.due == u64::MAX) {
            work.due = now;
        }
    }

    /// Lets completed work take effect.
    pub(crate) fn finish_work(&mut self) -> Verdict {
        let now = self.cluster.now();
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
                self.oracle.effect(&self.cluster, node, view)?;
            }
        }
        Ok(())
    }
}
