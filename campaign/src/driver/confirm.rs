//! Programs that request confirmation of a view whose lease has run out. They record the time, let
//! the acceptors be queried, and accept an answer for that time or later, like `confirm` of the
//! crate `agent`. An answer is equivalent to an `active` at the time of the request.

use super::Driver;
use crate::marks::Mark;
use crate::oracle::Verdict;
use obol_fabric::{Address, Instant, Page, ViewId, page};

/// A request without an answer times out after this many leases.
const TIMEOUT_LEASES: u64 = 24;

/// A program that waits for a confirmation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingConfirm {
    node: u32,
    /// 0: the node's embedded app.
    seat: u16,
    /// The requesting process.
    who: Address,
    view: ViewId,
    /// When it requested, on its node's clock.
    since: Instant,
    /// No view below this may have been active at that time.
    floor: ViewId,
    until: u64,
}

impl Driver {
    /// Lets a program, or a node's embedded app, request confirmation that the view of its page is
    /// active.
    pub(crate) fn begin_confirm(&mut self, node: u32, seat: u16) -> Verdict {
        if !self.is_member(node, seat) {
            return Ok(());
        }
        let Some(worker) = self.worker(node, seat).filter(|worker| worker.runs) else { return Ok(()) };
        let Some(page) = page::load(worker.words) else { return Ok(()) };
        // The page of a dead owner, or of an earlier life, is not renewed.
        let is_orphan = !std::ptr::eq(worker.words, self.cluster.page(node)) || self.cluster.is_dead(node);
        if is_orphan || page.end == Instant::ZERO {
            return Ok(());
        }
        let who = worker.who;
        let floor = self.oracle.floor(&self.cluster)?;
        let since = self.cluster.want_confirmed(node);
        let until = self.cluster.now() + TIMEOUT_LEASES * self.scenario.config.timing.lease.0;
        self.pending_confirms.push(PendingConfirm { node, seat, who, view: page.view, since, floor, until });
        self.log(format_args!("seat {seat} of node {node} requests confirmation of view {}", page.view));
        Ok(())
    }

    /// Lets programs read what a node has published.
    pub(crate) fn finish_confirms(&mut self, node: u32) -> Verdict {
        let now = self.cluster.now();
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

    /// Lets all acting members confirm the newest view, if no lease lasts as long as a renewal
    /// takes.
    pub(crate) fn confirm_all(&mut self) {
        if !self.scenario.far {
            return;
        }
        let newest = self.oracle.newest().id;
        let holders = self.scenario.coordinators..self.scenario.nodes() - self.scenario.caches;
        if self.confirming.0 != newest {
            let mut since = |node| {
                if self.cluster.runs(node) { self.cluster.want_confirmed(node) } else { Instant::NEVER }
            };
            self.confirming = (newest, holders.map(|node| (node, since(node))).collect());
            return;
        }
        for node in holders {
            // Older leases have ended since the answer: another is needed.
            let words = self.cluster.page(node);
            let is_answered = page::wanted(words) <= page::load(words).unwrap_or_default().confirmed;
            let begun =
                |page: &Page| page.confirmed < page.start && page.start <= self.cluster.local_now(node);
            if self.cluster.runs(node) && is_answered && page::load(words).is_some_and(|page| begun(&page)) {
                self.cluster.want_confirmed(node);
            }
        }
    }

    /// Whether the newest view is active at a node, or confirmed.
    pub(crate) fn may_act(&self, node: u32) -> bool {
        let (newest, words) = (self.oracle.newest().id, self.cluster.page(node));
        let (confirming, since) = &self.confirming;
        let confirmed = || {
            let since = since.iter().find(|(n, _)| *n == node).filter(|_| *confirming == newest);
            since.is_some_and(|(_, since)| page::confirmed(words, newest, *since))
        };
        page::active(words, newest, || self.cluster.local_now(node))
            || self.scenario.far && (self.scenario.is_cache(node) || confirmed())
    }
}
