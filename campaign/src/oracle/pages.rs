//! Rows 5, 6, 7, 10 and 18: which lease pages can be active, for whom, between which true times.
//!
//! A page changes only when its holder publishes or a peer raises the fence, so between two steps
//! it is active on one interval of true time, given by the node's clock. The *floor* is the highest
//! base that had an active page or a CLEAR. From then on, no page that a process can read may be
//! active below it, as `docs/design/leases.md` claims.

use super::decisions::Decisions;
use super::violation::{Verdict, Violation, broken};
use crate::marks::{Mark, Marks};
use crate::role::World;
use crate::scenario::Scenario;
use obol_fabric::{Address, Instant, Nanos, Page, ViewId, page};
use obol_fabric_sim::State;
use obol_membership::{ActiveMutant, Mutant};

/// Rounding of two clock readings, in nanoseconds.
const ROUNDING: u64 = 4;
/// What of a lease may be used: on a clock that is slow by the bound it lasts no longer than a wait of
/// the whole lease on one that is fast by it.
fn usable(lease: Nanos, drift_ppm: u32) -> Nanos {
    let lost = (u128::from(lease.0) * u128::from(drift_ppm)).div_ceil(1_000_000);
    Nanos(u64::try_from(u128::from(lease.0).saturating_sub(lost)).unwrap_or(0))
}

/// Never.
const NEVER: u64 = u64::MAX;

/// A page of one life of one node.
#[derive(Debug)]
struct Copy {
    node: u32,
    generation: u32,
    /// The address of its words, to find the programs that map it.
    region: usize,
    page: Page,
    fence: ViewId,
    /// The base of the page's view, by comparing members.
    base: ViewId,
    /// True times between which it is active, if a process reads it.
    from: u64,
    until: u64,
    /// Whether `from` has been reached and checked.
    entered: bool,
}

/// Why nothing below the floor may be active.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Nothing,
    /// This node's page was active.
    Active(u32),
    /// This coordinator sent CLEAR.
    Clear(u32),
    /// A program of this node used a view by its own computation.
    Used(u32),
}

/// All pages of a run.
#[derive(Debug)]
pub(super) struct Pages {
    /// Of the present (or last) life of each node; `None` before it published.
    present: Vec<Option<Copy>>,
    /// Of earlier lives, as long as a program maps them.
    orphans: Vec<Copy>,
    coordinators: u32,
    /// The first lease cache: no process acts under a cache's page, so it never overlaps with
    /// another.
    caches: u32,
    /// When the next page becomes active.
    next: u64,
    floor: ViewId,
    reason: Reason,
    /// The latest base with a CLEAR sent.
    clear_sent: ViewId,
    /// The shortest round trip.
    round_trip: u64,
    /// Whether clocks keep to the drift bound, as rows 6 and 7 assume.
    clocks_keep: bool,
    drift_ppm: u32,
    plant: ActiveMutant,
}

impl Pages {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            present: (0..scenario.nodes()).map(|_| None).collect(),
            orphans: Vec::new(),
            coordinators: scenario.coordinators,
            caches: scenario.nodes() - scenario.caches,
            next: NEVER,
            floor: ViewId::GENESIS,
            reason: Reason::Nothing,
            clear_sent: ViewId::GENESIS,
            round_trip: 2 * scenario.calm.one_way.min.0,
            clocks_keep: scenario.trial.clocks_keep(),
            drift_ppm: scenario.config.timing.drift_ppm,
            plant: scenario.config.mutant,
        }
    }

    pub(super) const fn floor(&self) -> ViewId {
        self.floor
    }

    pub(super) const fn clear_sent(&self) -> ViewId {
        self.clear_sent
    }

    fn all(&self) -> impl Iterator<Item = &Copy> {
        self.present.iter().flatten().chain(&self.orphans)
    }

    /// Advances true time to `to` without changes.
    #[inline]
    pub(super) fn advance(
        &mut self,
        world: &World,
        decisions: &Decisions,
        to: u64,
        marks: &mut Marks,
    ) -> Verdict {
        if to < self.next {
            return Ok(());
        }
        loop {
            let due = |c: &Copy| !c.entered && c.from < c.until && c.from <= to;
            let present = self.present.iter().flatten().enumerate().filter(|(_, c)| due(c));
            let first = present.map(|(_, c)| (c.from, c.node, false, c.generation));
            let orphans =
                self.orphans.iter().filter(|c| due(c)).map(|c| (c.from, c.node, true, c.generation));
            let Some((time, node, orphan, generation)) = first.chain(orphans).min() else { break };
            let slot = if orphan {
                self.orphans.iter_mut().find(|c| c.node == node && c.generation == generation)
            } else {
                self.present[node as usize].as_mut()
            };
            let Some(copy) = slot else { break };
            copy.entered = true;
            let (base, region, view) = (copy.base, copy.region, copy.page.view);
            if node >= self.caches || !readable(world, decisions, node, generation, region, view) {
                continue;
            }
            match world.state(node) {
                _ if orphan => marks.hit(Mark::OrphanActive),
                State::Dead => marks.hit(Mark::OrphanActive),
                State::Frozen => marks.hit(Mark::FrozenActive),
                State::Running => {}
            }
            if base < self.floor {
                return self.overlap(time, node, view, base);
            }
            if base > self.floor {
                self.raise(world, decisions, time, base, Reason::Active(node), false)?;
            }
        }
        self.schedule();
        Ok(())
    }

    fn schedule(&mut self) {
        self.next =
            self.all().filter(|c| !c.entered && c.from < c.until).map(|c| c.from).min().unwrap_or(NEVER);
    }

    fn overlap(&self, time: u64, node: u32, view: ViewId, base: ViewId) -> Verdict {
        let floor = self.floor;
        match self.reason {
            Reason::Clear(by) => broken!(
                10,
                time,
                "node {node} is active in view {view} of base {base} after node {by} sent CLEAR({floor})"
            ),
            Reason::Active(by) => broken!(
                5,
                time,
                "node {node} is active in view {view} of base {base} after node {by} was in base {floor}"
            ),
            Reason::Used(by) => broken!(
                18,
                time,
                "node {node} is active in view {view} of base {base} after a program of node {by} used base {floor}"
            ),
            Reason::Nothing => Ok(()),
        }
    }

    /// From `time` on nothing below `base` may be active. With `later`, this includes pages that
    /// become active later without a further renewal.
    fn raise(
        &mut self,
        world: &World,
        decisions: &Decisions,
        time: u64,
        base: ViewId,
        reason: Reason,
        later: bool,
    ) -> Verdict {
        (self.floor, self.reason) = (base, reason);
        for c in self.all() {
            let active = c.from < c.until && time < c.until && (later || c.from <= time);
            if active
                && c.node < self.caches
                && c.base < base
                && readable(world, decisions, c.node, c.generation, c.region, c.page.view)
            {
                return self.overlap(time, c.node, c.page.view, c.base);
            }
        }
        Ok(())
    }

    /// Work takes effect in a view.
    pub(super) fn effect(&self, decisions: &Decisions, time: u64, node: u32, view: ViewId) -> Verdict {
        let Some(base) = decisions.get(view).map(|decided| decided.base) else {
            return broken!(18, time, "node {node} acts in view {view}, which was not decided");
        };
        if base < self.floor {
            let floor = self.floor;
            return broken!(
                18,
                time,
                "node {node} acts in view {view} of base {base} when nothing below {floor} may be active"
            );
        }
        Ok(())
    }

    /// A program uses a view, in a call that began when nothing below `floor` might be active.
    pub(super) fn used(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        view: ViewId,
        floor: ViewId,
    ) -> Verdict {
        let Some(decided) = decisions.get(view) else { return Ok(()) };
        let base = decided.base;
        // As row 7: waits for leases on the view include no more.
        let successor = decisions.get(view.next()).map(|next| next.at);
        if successor.is_some_and(|at| world.now() > at + decided.run_reach.0 + ROUNDING) {
            return broken!(
                18,
                world.now(),
                "a program of node {node} uses view {view} longer than a lease after its successor"
            );
        }
        if base < floor {
            return broken!(
                18,
                world.now(),
                "a program of node {node} uses view {view} of base {base} when nothing below {floor} may be active"
            );
        }
        if base > self.floor {
            self.raise(world, decisions, world.now(), base, Reason::Used(node), false)?;
        }
        Ok(())
    }

    /// A coordinator has sent CLEAR.
    pub(super) fn cleared(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        base: ViewId,
    ) -> Verdict {
        if decisions.get(base).is_none() {
            return broken!(10, world.now(), "node {node} cleared view {base}, which was not decided");
        }
        self.clear_sent = self.clear_sent.max(base);
        if base > self.floor {
            self.raise(world, decisions, world.now(), base, Reason::Clear(node), true)?;
        }
        Ok(())
    }

    /// Checks the page of a node that was called; true if it was published again.
    pub(super) fn check(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        marks: &mut Marks,
    ) -> Result<bool, Violation> {
        let words = world.page(node);
        let Some(shown) = page::load(words) else { return Ok(false) };
        let generation = world.address(node).generation;
        let old = self.present[node as usize].as_ref().filter(|c| c.generation == generation);
        if old.map_or(Page::default(), |c| c.page) == shown {
            return Ok(false);
        }
        let before = old.map_or(Instant::ZERO, |c| c.page.end);
        let now = world.now();
        let mut copy = Copy {
            node,
            generation,
            region: world.memory(node).as_ptr() as usize,
            page: shown,
            fence: page::fenced(words),
            base: ViewId::GENESIS,
            from: NEVER,
            until: 0,
            entered: false,
        };
        let holds = shown.end != Instant::ZERO;
        if holds {
            let Some(decided) = decisions.get(shown.view) else {
                return broken!(
                    5,
                    now,
                    "node {node} holds a lease on view {}, which was not decided",
                    shown.view
                );
            };
            copy.base = decided.base;
            copy.until = world.to_true(node, shown.end);
            if !self.is_fenced(&copy) {
                copy.from = world.to_true(node, shown.start).max(now);
            }
            // Row 6: the READs were posted at most a round trip ago.
            let posted = world.clock(node).local(now.saturating_sub(self.round_trip));
            let cache = node >= self.caches;
            let lease = if cache { decided.run_cache_lease } else { decided.run_lease };
            let latest = posted + usable(lease, self.drift_ppm);
            if self.clocks_keep && shown.end.0 > latest.0 + ROUNDING && shown.end > before {
                let over = shown.end.0 - latest.0;
                broken!(
                    6,
                    now,
                    "node {node} holds view {} for {over} ns longer than its READs allow",
                    shown.view
                )?;
            }
            // Row 7: a renewal had not read the next slot after its decision.
            if let Some(next) = decisions.get(shown.view.next()).filter(|_| self.clocks_keep) {
                let reach = if cache { decided.run_cache_lease } else { decided.run_reach };
                let limit = next.at + reach.0 + ROUNDING;
                if copy.until > limit {
                    let over = copy.until - limit;
                    broken!(
                        7,
                        now,
                        "node {node} holds view {} for {over} ns longer than a lease after its successor",
                        shown.view
                    )?;
                }
            }
        }
        let extended = holds && shown.end > before;
        self.present[node as usize] = Some(copy);
        self.schedule();
        self.advance(world, decisions, now, marks)?;
        Ok(extended)
    }

    /// Whether the fence revokes a page.
    fn is_fenced(&self, copy: &Copy) -> bool {
        copy.fence > copy.page.view && !self.plant.has(Mutant::IgnoreFence)
    }

    /// Checks the fence of a node whose memory a peer may have changed.
    pub(super) fn fence(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        marks: &mut Marks,
    ) -> Verdict {
        let fence = page::fenced(world.page(node));
        let generation = world.address(node).generation;
        // The page of a dead holder is fenced through a program that maps it.
        let is_dead = world.state(node) == State::Dead;
        let orphan =
            self.orphans.iter().position(|c| is_dead && (c.node, c.generation) == (node, generation));
        let unknown = self.present[node as usize].as_ref().is_none_or(|c| c.generation != generation);
        if orphan.is_none() && unknown {
            if fence == ViewId::GENESIS {
                return Ok(());
            }
            self.present[node as usize] = Some(Copy {
                node,
                generation,
                region: world.memory(node).as_ptr() as usize,
                page: Page::default(),
                fence: ViewId::GENESIS,
                base: ViewId::GENESIS,
                from: NEVER,
                until: 0,
                entered: false,
            });
        }
        let copy = match orphan {
            Some(at) => self.orphans.get_mut(at),
            None => self.present[node as usize].as_mut(),
        };
        let Some(copy) = copy else { return Ok(()) };
        if copy.fence == fence {
            return Ok(());
        }
        let now = world.now();
        if fence < copy.fence {
            let old = copy.fence;
            return broken!(10, now, "the fence of node {node} fell from {old} to {fence}");
        }
        if fence > decisions.newest().id.next() {
            return broken!(
                21,
                now,
                "node {node} is fenced at view {fence}, whose predecessor was not decided"
            );
        }
        copy.fence = fence;
        if is_dead {
            marks.hit(Mark::DeadFenced);
        }
        if fence > copy.page.view && !self.plant.has(Mutant::IgnoreFence) {
            copy.until = copy.until.min(now);
            if !copy.entered {
                copy.from = NEVER;
            }
            self.schedule();
        }
        Ok(())
    }

    /// A view was decided: leases on its predecessor end within one lease from now. (Row 7.)
    pub(super) fn decided(&self, world: &World, decisions: &Decisions, before: ViewId) -> Verdict {
        let Some(old) = decisions.get(before).filter(|_| self.clocks_keep) else { return Ok(()) };
        for c in self.present.iter().flatten().filter(|c| c.page.view == before && c.from < c.until) {
            let reach = if c.node >= self.caches { old.run_cache_lease } else { old.run_reach };
            let limit = world.now() + reach.0 + ROUNDING;
            if c.until > limit && c.node >= self.coordinators {
                let over = c.until - limit;
                broken!(
                    7,
                    world.now(),
                    "node {} holds view {before} for {over} ns longer than a lease",
                    c.node
                )?;
            }
        }
        Ok(())
    }

    /// A node was killed: its page is no longer written, but programs may read it.
    pub(super) fn killed(&mut self, world: &World, node: u32) {
        self.orphans.retain(|c| world.programs(c.node).any(|p| p.is_alive() && maps(p.memory(), c.region)));
        if let Some(copy) = self.present[node as usize].take() {
            self.orphans.push(copy);
        }
        self.schedule();
    }
}

fn maps(memory: &[std::sync::atomic::AtomicU64], region: usize) -> bool {
    memory.as_ptr() as usize == region
}

/// Whether a live process in `view` can read this page.
fn readable(
    world: &World,
    decisions: &Decisions,
    node: u32,
    generation: u32,
    region: usize,
    view: ViewId,
) -> bool {
    let Some(decided) = decisions.get(view) else { return false };
    let names = |address: Address| decided.view.members.iter().any(|m| m.address == address);
    let owner = Address { region: node, generation, ..Address::default() };
    let owned = world.state(node) != State::Dead && world.address(node).generation == generation;
    if owned && names(owner) {
        return true;
    }
    world.programs(node).any(|p| p.is_alive() && maps(p.memory(), region) && names(p.address()))
}
