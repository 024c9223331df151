//! Drills on simulated clusters: the same selection, verdict and report as for processes, in
//! virtual time, and checked by the campaign's oracle as well. The same seed gives the same result.

use super::error::RunError;
use super::journal::{Host, Journal};
use super::options::Options;
use super::runner::Runner;
use super::subject::{Subject, System};
use crate::drillfile::{Drill, Step, TargetKind};
use crate::drills::agent::channel::Stamp;
use crate::drills::victims::select::{Chosen, Supervisor};
use crate::faults::Simulated;
use crate::faults::order::Direction;
use obol_campaign::{Act, Cluster, NodeSeat};
use obol_fabric::{Instant, Nanos};
use obol_membership::ActiveMutant;
use obol_node::Deployment;
use obol_observe::{ObservedEvent, Process, Snapshot};
use obol_profiles::Profile;

/// Coordinators, app nodes and, if a drill hits any, lease caches, as of `obol up`.
const COORDINATORS: u16 = 3;
const APPS: u16 = 3;
const CACHES: u16 = 3;
/// The kernel in the journal.
const KERNEL: &str = "simulated";

impl Subject for Cluster {
    fn deployment(&self) -> &Deployment {
        self.deployment()
    }

    fn snapshot(&mut self) -> Snapshot {
        Self::snapshot(self)
    }

    fn events(&mut self) -> Vec<ObservedEvent> {
        self.events()
    }

    fn now(&self) -> Instant {
        self.now()
    }

    fn sleep(&mut self, time: Nanos) {
        self.run_for(time);
    }

    fn others(&self) -> Vec<String> {
        self.others()
    }

    fn has_ended(&self, process: &Process) -> bool {
        let is = |other: &Process| other.process == process.process && other.alive;
        !Self::snapshot(self).processes.iter().any(is)
    }

    fn violation(&self) -> Option<String> {
        self.violation().map(|violation| format!("the oracle of the simulator: {violation}"))
    }
}

/// A simulated cluster, and the faults that wait for the cue.
pub(super) struct Simulation {
    cluster: Cluster,
    armed: Vec<Armed>,
}

/// A fault of one process.
struct Armed {
    name: String,
    inject: Vec<Act>,
    /// What undoes it, and after what time.
    undo: Option<(Nanos, Vec<Act>)>,
}

/// The acts that inject a fault into a process, and those that undo it.
fn acts(what: Simulated, (node, seat): NodeSeat, island: &[u32], nodes: u32) -> (Vec<Act>, Vec<Act>) {
    // The links between a target and all that are not.
    let links = |direction: Direction| -> Vec<(u32, u32)> {
        let others = (0..nodes).filter(|other| !island.contains(other));
        let ways = move |other| match direction {
            Direction::Out => vec![(node, other)],
            Direction::In => vec![(other, node)],
            Direction::Both => vec![(node, other), (other, node)],
        };
        others.flat_map(ways).collect()
    };
    let over = |act: fn((u32, u32)) -> Act, direction| -> Vec<Act> {
        links(direction).into_iter().map(act).collect()
    };
    let cuts = |direction| over(|(from, to)| Act::Cut(from, to), direction);
    match (what, seat) {
        (Simulated::Kill, 0) => (vec![Act::Kill(node)], Vec::new()),
        (Simulated::Kill, _) => (vec![Act::KillProgram(node, seat)], Vec::new()),
        (Simulated::Leave, 0) => (vec![Act::Leave(node)], Vec::new()),
        (Simulated::Leave, _) => (vec![Act::LeaveProgram(node, seat)], Vec::new()),
        (Simulated::Freeze, 0) => (vec![Act::Freeze(node)], vec![Act::Thaw(node)]),
        (Simulated::Freeze, _) => (vec![Act::FreezeProgram(node, seat)], vec![Act::ThawProgram(node, seat)]),
        (Simulated::Partition(direction), _) => {
            (cuts(direction), over(|(from, to)| Act::Heal(from, to), direction))
        }
        (Simulated::Degrade(direction, delay, losses), _) => {
            let degrade = |(from, to)| Act::Degrade(from, to, delay, losses);
            let undo = over(|(from, to)| Act::Degrade(from, to, 0, [0; 4]), direction);
            (links(direction).into_iter().map(degrade).collect(), undo)
        }
        // The programs in its seats end with it.
        (Simulated::Crash, 0) => {
            let mut crash = cuts(Direction::Both);
            crash.push(Act::Kill(node));
            (crash, Vec::new())
        }
        (Simulated::Crash, _) => (vec![Act::KillProgram(node, seat)], Vec::new()),
    }
}

impl System for Simulation {
    type Subject = Cluster;

    fn subject(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    fn supervisor(&self) -> Supervisor {
        Supervisor::Simulator
    }

    fn stamps(&self, process: &Process) -> bool {
        // A program in a seat reads its agent's page, whose stamp counts.
        process.seat == 0
    }

    fn host(&self) -> Host {
        Host { kernel: KERNEL.to_owned(), ..Host::this() }
    }

    fn arm(&mut self, _: &Drill, step: &Step, chosen: &[Chosen], _: &[Process]) -> Result<(), RunError> {
        self.armed.clear();
        for fault in &step.faults {
            let Some(what) = fault.kind.simulated() else {
                return Err(RunError::NotSimulated(vec![fault.kind.name()]));
            };
            let victims: Vec<&Chosen> = fault.victims(chosen).collect();
            let island: Vec<u32> = victims.iter().map(|victim| victim.process.region).collect();
            for victim in victims {
                let process = (victim.process.region, victim.process.seat);
                let (inject, undo) = acts(what, process, &island, self.cluster.nodes());
                let undo = fault.lasts.map(|lasts| (lasts, undo));
                self.armed.push(Armed { name: victim.process.name.to_string(), inject, undo });
            }
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError> {
        let mut stamps = Vec::new();
        for Armed { name, inject, undo } in self.armed.drain(..) {
            stamps.push(Stamp { name, at: self.cluster.now().0, error: None, host: 1, clock_error: 0 });
            inject.into_iter().for_each(|act| self.cluster.act(act));
            if let Some((lasts, acts)) = undo {
                acts.into_iter().for_each(|act| self.cluster.act_later(lasts, act));
            }
        }
        Ok(Some(stamps))
    }

    fn undo_early(&mut self) -> Result<(), RunError> {
        self.cluster.act_now();
        Ok(())
    }

    fn undone(&mut self, _: Nanos) -> Result<Vec<String>, RunError> {
        self.cluster.run_until_undone();
        Ok(Vec::new())
    }

    fn start(&mut self, victim: &Process) -> Result<(), RunError> {
        if let Some(process) = self.cluster.find(victim.name.as_str()) {
            self.cluster.start_process(process);
        }
        Ok(())
    }

    fn restored(&mut self) -> Result<(), RunError> {
        Ok(())
    }
}

/// Runs a drill on a simulated cluster of a profile. `mutant` plants a bug. `go_on` is called after
/// each repetition with its number; `false` ends the drill early.
pub fn simulate(
    drill: &Drill,
    profile: Profile,
    mutant: ActiveMutant,
    options: &Options,
    go_on: impl FnMut(u32) -> bool,
) -> Result<Journal, RunError> {
    let mut missing: Vec<&'static str> = Vec::new();
    for fault in drill.steps.iter().flat_map(|step| &step.faults) {
        if fault.kind.simulated().is_none() && !missing.contains(&fault.kind.name()) {
            missing.push(fault.kind.name());
        }
    }
    let outside = drill.steady.iter().filter(|steady| steady.external.is_some());
    missing.extend(outside.map(|steady| steady.probe.name()));
    if !drill.guards.watch.is_empty() {
        missing.push("abort conditions by probes");
    }
    if !missing.is_empty() {
        return Err(RunError::NotSimulated(missing));
    }
    let caches = drill.targets.iter().any(|target| target.kind == TargetKind::LeaseCache);
    let deployment = Deployment::new(COORDINATORS, APPS, if caches { CACHES } else { 0 }, profile)
        .map_err(|error| RunError::Simulator(error.to_string()))?
        .labelled(drill.environment);
    let mut cluster = Cluster::start(deployment, drill.seed.into(), mutant)
        .map_err(|error| RunError::Simulator(error.to_string()))?;
    let before = Runner::<Simulation>::check(&mut cluster, &Supervisor::Simulator, drill, options)?;
    let simulation = Simulation { cluster, armed: Vec::new() };
    Runner::new(drill, options, simulation, Vec::new()).run(before, go_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile;
    use crate::drills::engine::journal::Outcome;
    use std::path::PathBuf;

    /// The victims of each step end while it is armed, and the survivors go on before the cue.
    struct Early(Simulation);

    impl System for Early {
        type Subject = Cluster;

        fn subject(&mut self) -> &mut Cluster {
            self.0.subject()
        }

        fn supervisor(&self) -> Supervisor {
            self.0.supervisor()
        }

        fn stamps(&self, process: &Process) -> bool {
            self.0.stamps(process)
        }

        fn host(&self) -> Host {
            self.0.host()
        }

        fn arm(
            &mut self,
            drill: &Drill,
            step: &Step,
            chosen: &[Chosen],
            restart: &[Process],
        ) -> Result<(), RunError> {
            self.0.arm(drill, step, chosen, restart)?;
            self.0.fire()?;
            self.0.cluster.run_for(Nanos::from_secs(1));
            self.0.arm(drill, step, chosen, restart)
        }

        fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError> {
            self.0.fire()
        }

        fn undo_early(&mut self) -> Result<(), RunError> {
            self.0.undo_early()
        }

        fn undone(&mut self, lasts: Nanos) -> Result<Vec<String>, RunError> {
            self.0.undone(lasts)
        }

        fn start(&mut self, victim: &Process) -> Result<(), RunError> {
            self.0.start(victim)
        }

        fn restored(&mut self) -> Result<(), RunError> {
            self.0.restored()
        }
    }

    #[test]
    fn a_fault_in_one_direction_hits_the_links_of_that_direction_and_is_undone_there() {
        let of = |what| acts(what, (1, 0), &[1, 2], 4);
        let both = |inject: &[Act], undo: &[Act]| (inject.to_vec(), undo.to_vec());
        let (losses, healed) = ([5, 100, 0, 1000], [0; 4]);
        assert_eq!(
            of(Simulated::Degrade(Direction::Out, 7, losses)),
            both(
                &[Act::Degrade(1, 0, 7, losses), Act::Degrade(1, 3, 7, losses)],
                &[Act::Degrade(1, 0, 0, healed), Act::Degrade(1, 3, 0, healed)]
            )
        );
        assert_eq!(
            of(Simulated::Partition(Direction::In)),
            both(&[Act::Cut(0, 1), Act::Cut(3, 1)], &[Act::Heal(0, 1), Act::Heal(3, 1)])
        );
        let (crash, undo) = of(Simulated::Crash);
        assert_eq!((crash.last(), crash.len(), undo.len()), (Some(&Act::Kill(1)), 5, 0));
    }

    #[test]
    fn a_failover_before_the_cue_fails_no_repetition() {
        let (drill, _) = drillfile::load("triple-loss").expect("a drill that ships");
        let options = Options { count: Some(3), ..Options::new(PathBuf::new()) };
        let profile = Profile::builtin("laptop").expect("a profile");
        let deployment = Deployment::new(COORDINATORS, APPS, CACHES, profile).expect("it fits");
        let deployment = deployment.labelled(drill.environment);
        let mut cluster =
            Cluster::start(deployment, drill.seed.into(), ActiveMutant::NONE).expect("it starts");
        let before = Runner::<Simulation>::check(&mut cluster, &Supervisor::Simulator, &drill, &options);
        let early = Early(Simulation { cluster, armed: Vec::new() });
        let runner = Runner::new(&drill, &options, early, Vec::new());
        let journal = runner.run(before.expect("it may run"), |_| true).expect("it runs");
        assert_eq!(journal.trials.len(), 3);
        let failed = journal.trials.iter().find(|trial| trial.outcome == Outcome::Failed);
        assert!(failed.is_none(), "{failed:#?}");
    }
}
