//! The oracle: it knows true time and everybody's memory, checks after every step, and stops at the
//! first violation.
//!
//! It derives its criteria from decided values alone: which views are compatible, who may read a
//! page, how long a lease can last. It trusts no state machine's own claims.

mod decisions;
mod leases;
mod pages;
mod processes;
mod pulses;
mod seats;
mod stamps;
mod violation;

pub(crate) use decisions::Decisions;
pub use violation::Violation;
pub(crate) use violation::{Cue, Verdict, broken};

use super::marks::{Mark, Marks};
use super::role::World;
use super::scenario::{Scenario, Trial};
use obol_fabric::{Address, ViewId};
use obol_fabric_sim::{StepInfo, What};
use obol_membership::View;
use pages::Pages;
use processes::Processes;
use pulses::Pulsed;
use stamps::Stamps;
use std::sync::Arc;

/// The state of the oracle in a run.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) decisions: Decisions,
    processes: Processes,
    pages: Pages,
    stamps: Stamps,
    /// If hosts exchange pulses.
    pub(crate) pulses: Option<Pulsed>,
    coordinators: u32,
    /// Whether violations of rows 5 and 10 are only counted, because the clocks exceed the bound.
    forgives: bool,
    /// Counted violations of rows 5 and 10.
    pub(crate) overlaps: u64,
    /// The observations of the last step.
    pub(crate) cues: Vec<Cue>,
    pub(crate) marks: Marks,
}

impl Oracle {
    pub(crate) fn new(scenario: &Scenario, genesis: &Arc<View>) -> Self {
        Self {
            decisions: Decisions::new(scenario, genesis),
            processes: Processes::new(scenario),
            pages: Pages::new(scenario),
            stamps: Stamps::new(scenario),
            pulses: scenario.pulses.as_ref().map(Pulsed::new),
            coordinators: scenario.coordinators,
            forgives: matches!(scenario.trial, Trial::Sweep(_)) && !scenario.trial.clocks_keep(),
            overlaps: 0,
            cues: Vec::new(),
            marks: Marks::NONE,
        }
    }

    /// The newest decided view.
    pub(crate) fn newest(&self) -> &Arc<View> {
        self.decisions.newest()
    }

    /// Views decided so far that removed a failed member.
    pub(crate) const fn failovers(&self) -> u64 {
        self.decisions.failovers
    }

    /// Checks the changes of a step.
    pub(crate) fn after(&mut self, world: &World, step: &StepInfo) -> Verdict {
        match self.judge(world, step) {
            Err(violation) if self.forgives && matches!(violation.row, 5 | 10) => {
                self.overlaps += 1;
                self.marks.hit(Mark::OverlapPastBound);
                Ok(())
            }
            verdict => verdict,
        }
    }

    fn judge(&mut self, world: &World, step: &StepInfo) -> Verdict {
        match step.what {
            What::Step => self.node(world, step.node),
            What::Arrived | What::Rest => self.memory(world, step.node, step.what == What::Rest),
            _ => self.pages.advance(world, &self.decisions, world.now(), &mut self.marks),
        }
    }

    /// Checks a node whose machine was called.
    pub(crate) fn node(&mut self, world: &World, node: u32) -> Verdict {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)?;
        let seen = self.processes.check(world, &self.decisions, node, &mut self.marks)?;
        self.stamps.check(world, &self.decisions, node)?;
        if seen.proposed {
            self.cues.push(Cue::Proposed(node));
        }
        if seen.took_over {
            self.cues.push(Cue::Takeover);
        }
        if let Some(base) = seen.cleared {
            self.cues.push(Cue::ClearSent);
            self.pages.cleared(world, &self.decisions, node, base)?;
        }
        if node < self.coordinators {
            self.decisions.leases.hear(node, &world.machine(node).reports);
        }
        if node >= self.coordinators && self.pages.check(world, &self.decisions, node, &mut self.marks)? {
            self.cues.push(Cue::Renewed(node));
        }
        Ok(())
    }

    /// Checks a node whose memory a peer may have changed.
    fn memory(&mut self, world: &World, node: u32, long: bool) -> Verdict {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)?;
        if node >= self.coordinators {
            return self.pages.fence(world, &self.decisions, node, &mut self.marks);
        }
        let newest = self.decisions.newest().id;
        if self.decisions.check(world, node, long, &mut self.cues, &mut self.marks)? {
            self.pages.decided(world, &self.decisions, newest)?;
        }
        Ok(())
    }

    /// Row 18: work that was begun in a view takes effect.
    pub(crate) fn effect(&mut self, world: &World, node: u32, view: ViewId) -> Verdict {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)?;
        self.pages.effect(&self.decisions, world.now(), node, view)
    }

    /// Row 18: a program of a node uses a view by a page of view `on`, in a call that began when
    /// nothing below `floor` might be active.
    pub(crate) fn used(
        &mut self,
        world: &World,
        node: u32,
        who: Address,
        view: &View,
        on: ViewId,
        floor: ViewId,
    ) -> Verdict {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)?;
        let (id, now) = (view.id, world.now());
        let Some(decided) = self.decisions.get(id).filter(|decided| *decided.view == *view) else {
            return broken!(18, now, "a program of node {node} uses a view {id} that was not decided");
        };
        if !decided.view.members.iter().any(|m| m.address == who) {
            return broken!(18, now, "a program of node {node} uses view {id}, which does not name it");
        }
        if id > on.next() {
            return broken!(18, now, "a program of node {node} uses view {id} by a lease on view {on}");
        }
        self.pages.used(world, &self.decisions, node, id, floor)
    }

    /// The base below which nothing may be active any more.
    pub(crate) fn floor(&mut self, world: &World) -> Result<ViewId, Violation> {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)?;
        Ok(self.pages.floor())
    }

    /// The latest base with a CLEAR sent.
    pub(crate) const fn cleared(&self) -> ViewId {
        self.pages.clear_sent()
    }

    /// Row 18: a view is confirmed for a program that requested it when nothing below `floor` might
    /// be active any more.
    pub(crate) fn confirmed(&self, node: u32, view: ViewId, floor: ViewId, now: u64) -> Verdict {
        match self.decisions.get(view).map(|decided| decided.base) {
            Some(base) if base >= floor => Ok(()),
            Some(base) => broken!(
                18,
                now,
                "node {node} confirms view {view} of base {base} for a request made when nothing below {floor} was active"
            ),
            None => broken!(18, now, "node {node} confirms view {view}, which was not decided"),
        }
    }

    /// A process is about to end, or a node to restart: records what was active until now.
    pub(crate) fn before_fault(&mut self, world: &World) -> Verdict {
        self.pages.advance(world, &self.decisions, world.now(), &mut self.marks)
    }

    /// A node was killed: its page stays with the programs that map it.
    pub(crate) fn killed(&mut self, world: &World, node: u32) {
        self.processes.ended(world, node, &mut self.marks);
        self.pages.killed(world, node);
        self.died(world, world.address(node));
    }

    /// A process has ended: a node's, or a program's.
    pub(crate) fn died(&mut self, world: &World, who: Address) {
        self.stamps.died(who, world.now());
    }

    /// Row 20: merges the flight recorders.
    pub(crate) fn merge(&mut self, world: &World) -> Verdict {
        self.stamps.merge(world.now())
    }

    /// Row 20: checks the time lines of all failovers after the last event.
    pub(crate) fn timelines(&mut self, world: &World) -> Verdict {
        self.stamps.merge(world.now())?;
        self.stamps.failovers(&self.decisions, world.now(), &mut self.marks)
    }

    /// A run is over.
    pub(crate) fn finish(&mut self, world: &World) {
        for node in 0..world.len() {
            self.processes.ended(world, node, &mut self.marks);
            self.marks.merge(world.machine(node).marks);
        }
        let adverse_events = world.adverse_events();
        for (count, mark) in [
            (adverse_events.lost, Mark::DatagramLost),
            (adverse_events.doubled, Mark::DatagramDoubled),
            (adverse_events.multicasts_lost, Mark::MulticastLost),
            (adverse_events.notices_lost, Mark::NoticeLost),
            (adverse_events.proofs_lost, Mark::ProofLost),
            (adverse_events.stalls, Mark::Stalled),
            (adverse_events.timeouts, Mark::LinkTimedOut),
            (adverse_events.torn, Mark::Torn),
        ] {
            if count > 0 {
                self.marks.hit(mark);
            }
        }
        if self.decisions.count() == 0 {
            return;
        }
        let longer = self.decisions.lease_changes.0;
        let shorter = self.decisions.lease_changes.1;
        if longer {
            self.marks.hit(Mark::LeaseLonger);
        }
        if shorter {
            self.marks.hit(Mark::LeaseShorter);
        }
    }
}
