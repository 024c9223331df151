//! Rows 1, 3 and 4 for each process: it installs decided views in order, without silent gaps. The
//! counters of its region give most marks.

use super::decisions::Decisions;
use super::violation::{Violation, broken};
use crate::marks::{Mark, Marks};
use crate::role::World;
use crate::scenario::Scenario;
use obol_fabric::{ViewId, recorder};
use obol_membership::View;
use obol_membership::metrics::Counter;
use obol_membership::recorder::EventKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state of a process.
#[derive(Debug, Default)]
struct Process {
    generation: u32,
    view: Option<Arc<View>>,
    installs: u64,
    jumps: u64,
    clears: u64,
    takeovers: u64,
    /// The slot in which it has proposed.
    proposes: Option<ViewId>,
    aborts: u64,
    vouches: u64,
    /// Holders cleared by this coordinator when it last sent CLEAR.
    holders: u64,
}

/// Observations of a step of a process.
pub(super) struct Seen {
    /// It sent this CLEAR.
    pub(super) cleared: Option<ViewId>,
    pub(super) took_over: bool,
    pub(super) proposed: bool,
}

/// All processes with a machine.
#[derive(Debug)]
pub(super) struct Processes {
    coordinators: u32,
    all: Vec<Process>,
}

impl Processes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let all = (0..scenario.nodes()).map(|_| Process::default()).collect();
        Self { coordinators: scenario.coordinators, all }
    }

    pub(super) fn check(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        marks: &mut Marks,
    ) -> Result<Seen, Violation> {
        let generation = world.address(node).generation;
        if self.all[node as usize].generation != generation {
            // Acceptor memory, and its counters, outlive the process.
            let fresh = Process {
                generation,
                installs: world.counter(node, Counter::ViewsInstalled),
                jumps: world.counter(node, Counter::ViewJumps),
                clears: world.counter(node, Counter::ClearsSent),
                takeovers: world.counter(node, Counter::Takeovers),
                aborts: world.counter(node, Counter::Aborts),
                holders: Self::cleared_holders(world, node),
                ..Process::default()
            };
            let first = self.all[node as usize].generation == 0;
            self.all[node as usize] =
                if first { Process { generation, ..Process::default() } } else { fresh };
        }
        let view = world.machine(node).view();
        let changed = self.all[node as usize].view.as_ref().is_none_or(|old| !Arc::ptr_eq(old, view));
        if changed {
            self.installed(world, decisions, node)?;
        }
        if node >= self.coordinators {
            self.vouched(world, node)?;
            return Ok(Seen { cleared: None, took_over: false, proposed: false });
        }
        self.led(world, decisions, node, marks)
    }

    /// Row 8: a cache vouches only while its own lease runs.
    fn vouched(&mut self, world: &World, node: u32) -> super::Verdict {
        let vouches = world.counter(node, Counter::Vouches);
        if core::mem::replace(&mut self.all[node as usize].vouches, vouches) == vouches {
            return Ok(());
        }
        let page = obol_fabric::page::load(world.page(node)).unwrap_or_default();
        if page.end <= world.local_now(node) {
            let view = page.view;
            return broken!(8, world.now(), "node {node} vouched for view {view} after its lease");
        }
        Ok(())
    }

    /// A process has installed another view.
    fn installed(&mut self, world: &World, decisions: &Decisions, node: u32) -> super::Verdict {
        let time = world.now();
        let view = world.machine(node).view();
        let process = &mut self.all[node as usize];
        if process.view.is_none() && decisions.is_before(view.id) {
            // The first view of a coordinator that was away since before the run.
            process.view = Some(Arc::clone(view));
            return Ok(());
        }
        let Some(decided) = decisions.get(view.id) else {
            return broken!(1, time, "node {node} installed view {}, which was not decided", view.id);
        };
        if !Arc::ptr_eq(view, &decided.view) && *view != decided.view {
            return broken!(
                1,
                time,
                "node {node} installed a view {} that differs from the decided one",
                view.id
            );
        }
        let installs = world.counter(node, Counter::ViewsInstalled);
        let jumps = world.counter(node, Counter::ViewJumps);
        let process = &mut self.all[node as usize];
        let (steps, jumped) = (installs - process.installs, jumps > process.jumps);
        if let Some(old) = &process.view {
            if view.id < old.id {
                return broken!(3, time, "node {node} went back from view {} to {}", old.id, view.id);
            }
            if !jumped && view.id.0 - old.id.0 > steps {
                return broken!(4, time, "node {node} went from view {} to {} silently", old.id, view.id);
            }
        }
        process.installs = installs;
        process.jumps = jumps;
        process.view = Some(Arc::clone(view));
        Ok(())
    }

    fn cleared_holders(world: &World, node: u32) -> u64 {
        [Counter::FencesRaised, Counter::FencesFannedOut, Counter::ClearedByProof, Counter::ClearedByWait]
            .into_iter()
            .map(|c| world.counter(node, c))
            .sum()
    }

    /// A coordinator's actions as a leader.
    fn led(
        &mut self,
        world: &World,
        decisions: &Decisions,
        node: u32,
        marks: &mut Marks,
    ) -> Result<Seen, Violation> {
        let clears = world.counter(node, Counter::ClearsSent);
        let takeovers = world.counter(node, Counter::Takeovers);
        let aborts = world.counter(node, Counter::Aborts);
        let process = &self.all[node as usize];
        let (cleared, took_over) = (clears > process.clears, takeovers > process.takeovers);
        if aborts > process.aborts {
            self.aborted(world, node, aborts - process.aborts, marks);
        }
        let base = world.machine(node).view().base;
        let holders = Self::cleared_holders(world, node);
        if cleared && decisions.had_holders(base) && holders == process.holders {
            marks.hit(Mark::ClearByBlindWait);
        }
        if took_over {
            let leads = |n: u32| {
                world.state(n) != obol_fabric_sim::State::Dead
                    && world.machine(n).coordinator().is_some_and(obol_membership::Coordinator::is_leading)
            };
            if (0..self.coordinators).filter(|n| leads(*n)).count() > 1 {
                marks.hit(Mark::TwoLeaders);
            }
            if world.machine(node).coordinator().is_some_and(|c| c.incarnation().is_none()) {
                marks.hit(Mark::StandbyLeads);
            }
        }
        let proposes = world.machine(node).coordinator().and_then(obol_membership::Coordinator::proposes);
        let process = &mut self.all[node as usize];
        if cleared {
            process.holders = holders;
        }
        (process.clears, process.takeovers, process.aborts) = (clears, takeovers, aborts);
        let proposed = std::mem::replace(&mut process.proposes, proposes) != proposes && proposes.is_some();
        Ok(Seen { cleared: cleared.then_some(base), took_over, proposed })
    }

    /// The reasons of aborted attempts are in the flight recorder.
    fn aborted(&self, world: &World, node: u32, count: u64, marks: &mut Marks) {
        let words = world.recorder(node);
        let written = words[0].load(Ordering::Relaxed);
        let recent = recorder::read::<EventKind>(words, written.saturating_sub(count + 8));
        let acceptors = world.machine(node).view().acceptors.len() as u64;
        for event in recent.iter().filter(|e| e.record.kind == EventKind::Abort) {
            if event.record.b >= 2 * acceptors && matches!(event.record.reason, 0 | 1) {
                marks.hit(Mark::PausesGrew);
            }
            match event.record.reason {
                0 => marks.hit(Mark::AbortMispredicted),
                1 => marks.hit(Mark::AbortContended),
                2 => marks.hit(Mark::AbortNoMajority),
                4 => marks.hit(Mark::AbortBehind),
                _ => {}
            }
        }
    }

    /// A process is gone, or the run is over: collects marks from its counters.
    pub(super) fn ended(&self, world: &World, node: u32, marks: &mut Marks) {
        for (counter, mark) in [
            (Counter::Adoptions, Mark::Adoption),
            (Counter::ViewJumps, Mark::Jump),
            (Counter::ViewsFetched, Mark::Fetch),
            (Counter::FencesRaised, Mark::ClearByFence),
            (Counter::ClearedByProof, Mark::ClearByProof),
            (Counter::ClearedByWait, Mark::ClearByWait),
            (Counter::ClearsUsed, Mark::ClearUsed),
            (Counter::Takeovers, Mark::Takeover),
            (Counter::RenewalsLate, Mark::RenewalLate),
            (Counter::Vouches, Mark::Vouched),
            (Counter::VouchesRefused, Mark::VouchRefused),
            (Counter::CachesPassed, Mark::CachePassed),
            (Counter::FencesFannedOut, Mark::FannedOut),
            (Counter::RenewalsFailed, Mark::RenewalFailed),
            (Counter::FalseSuspicions, Mark::Retracted),
            (Counter::DriftAlarms, Mark::DriftAlarm),
        ] {
            if world.counter(node, counter) > 0 {
                marks.hit(mark);
            }
        }
    }
}
