//! Programs that want to know whether their view is active although its lease has run out: they
//! note the time, have the acceptors asked, and take an answer that holds for that time or later,
//! as `confirm` of the crate `agent` does. An answer is as good as an `active` that was called when
//! they asked.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::Verdict;
use obol_fabric::{Address, Instant, Page, ViewId, page};

/// Who has no answer after so many leases gives up.
const PATIENCE_LEASES: u64 = 24;

/// A program that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingConfirm {
    node: u32,
    /// 0: the embedded app that the node is.
    seat: u16,
    /// Of the process that asks.
    who: Address,
    view: ViewId,
    /// When it asked, by the clock of its node.
    since: Instant,
    /// Below this nothing may have been active any more when it asked.
    floor: ViewId,
    until: u64,
}

impl Driver {
    /// Lets a program, or the embedded app of a node, ask whether the view that its page is on is
    /// active.
    pub(super) fn begin_confirm(&mut self, node: u32, seat: u16) -> Verdict {
        if !self.is_member(node, seat) {
            return Ok(());
        }
        let Some(worker) = self.worker(node, seat).filter(|worker| worker.runs) else { return Ok(()) };
        let Some(page) = page::load(worker.words) else { return Ok(()) };
        // Nobody renews the page of a dead owner, or of an earlier life of it.
        let is_orphan = !std::ptr::eq(worker.words, self.world.page(node)) || self.is_dead(node);
        if is_orphan || page.end == Instant::ZERO {
            return Ok(());
        }
        let who = worker.who;
        let floor = self.oracle.floor(&self.world)?;
        let since = self.world.want_confirmed(node);
        let until = self.world.now() + PATIENCE_LEASES * self.scenario.config.timing.lease.0;
        self.pending_confirms.push(PendingConfirm { node, seat, who, view: page.view, since, floor, until });
        self.log(format_args!("seat {seat} of node {node} wants view {} confirmed", page.view));
        Ok(())
    }

    /// Lets programs see what a node has published.
    pub(super) fn finish_confirms(&mut self, node: u32) -> Verdict {
        let now = self.world.now();
        let mut at = 0;
        while let Some(&pending) = self.pending_confirms.get(at) {
            let PendingConfirm { seat, who, view, since, floor, until, .. } = pending;
            if pending.node != node && now < until {
                at += 1;
                continue;
            }
            let worker = self.worker(pending.node, seat).filter(|worker| worker.who == who && now < until);
            let Some(worker) = worker else {
                self.pending_confirms.swap_remove(at);
                continue;
            };
            if !worker.runs || !page::confirmed(worker.words, view, since) {
                at += 1;
                continue;
            }
            let active = page::active(worker.words, view, || worker.now);
            self.oracle.marks.hit(if active { Mark::Confirmed } else { Mark::ConfirmedWithoutLease });
            self.log(format_args!("view {view} is confirmed for seat {seat} of node {}", pending.node));
            self.pending_confirms.swap_remove(at);
            self.oracle.confirmed(pending.node, view, floor, now)?;
        }
        Ok(())
    }

    /// Has all members that act confirm the newest view, where no lease lasts as long as a renewal
    /// takes.
    pub(super) fn confirm_all(&mut self) {
        if !self.scenario.far {
            return;
        }
        let newest = self.oracle.newest().id;
        let holders = self.scenario.coordinators..self.scenario.nodes() - self.scenario.caches;
        if self.confirming.0 != newest {
            let mut since =
                |node| if self.runs(node) { self.world.want_confirmed(node) } else { Instant::NEVER };
            self.confirming = (newest, holders.map(|node| (node, since(node))).collect());
            return;
        }
        for node in holders {
            // Older leases have ended since the answer: another is needed.
            let words = self.world.page(node);
            let is_answered = page::wanted(words) <= page::load(words).unwrap_or_default().confirmed;
            let begun = |page: &Page| page.confirmed < page.start && page.start <= self.world.local_now(node);
            if self.runs(node) && is_answered && page::load(words).is_some_and(|page| begun(&page)) {
                self.world.want_confirmed(node);
            }
        }
    }

    /// Whether the newest view is active at a node, or as good as.
    pub(super) fn may_act(&self, node: u32) -> bool {
        let (newest, words) = (self.oracle.newest().id, self.world.page(node));
        let (asked, since) = &self.confirming;
        let confirmed = || {
            let since = since.iter().find(|(n, _)| *n == node).filter(|_| *asked == newest);
            since.is_some_and(|(_, since)| page::confirmed(words, newest, *since))
        };
        page::active(words, newest, || self.world.local_now(node))
            || self.scenario.far && (self.scenario.is_cache(node) || confirmed())
    }
}
