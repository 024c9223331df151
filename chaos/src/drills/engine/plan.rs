//! A dry run: which victims would be chosen, and what each guard decides. Touches nothing.

use super::fleet::Fleet;
use super::subject::Subject;
use crate::drillfile::Drill;
use crate::drills::agent::halt;
use crate::drills::audit::approval::{self, Source};
use crate::drills::victims::guard::{self, Answer};
use crate::drills::victims::select::{Chosen, Supervisor, choose};
use obol_config::duration;
use obol_fabric::Name;
use obol_observe::Snapshot;
use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub drill: String,
    pub title: String,
    /// Repetitions that count.
    pub count: u32,
    /// Its steps in the first repetition.
    pub steps: Vec<PlannedStep>,
    /// The guards' decisions.
    pub guards: Vec<Answer>,
    /// Whether all of them allow it.
    pub allowed: bool,
    /// Whether the drill can reach a verdict. If not, it cannot pass.
    pub judges: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedStep {
    pub step: String,
    pub faults: Vec<PlannedFault>,
    /// Why no victim can be chosen.
    pub refusal: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedFault {
    pub fault: String,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: Option<String>,
    /// Whether its victims are expected to stay members.
    pub tolerated: bool,
    /// Its victims if the cluster does not change until then; of a fault of hosts, all processes there.
    pub hits: Vec<Hit>,
}

/// A process that would be hit.
#[derive(Clone, Debug, Serialize)]
pub struct Hit {
    /// The target for which it is chosen.
    pub target: String,
    pub process: String,
    /// The number of its host.
    pub host: u8,
    /// Its process id.
    pub pid: u32,
    pub program: Option<PathBuf>,
    /// Whether its supervisor restarts it: the `obol up` that started it, or that of its host.
    pub supervised: bool,
}

impl Plan {
    /// With what a run asks before it looks at the cluster: whether drills are halted, and whether
    /// another user has approved this text, if the drill wants that.
    #[must_use]
    pub fn permitted(mut self, drill: &Drill, source: &Source, fleet: &Fleet, cluster: Name) -> Self {
        let mut answers = Vec::new();
        if let Some(says) = fleet.dirs().find_map(|(_, dir)| halt::in_force(&dir)) {
            answers.push(Answer { guard: "halt", allows: false, says });
        }
        if drill.guards.require_approval {
            let found = approval::check(Some(source), cluster.as_str());
            let allows = found.is_ok();
            let says = match found {
                Ok(found) => format!("approved by {} until {}", found.by.name(), found.expires()),
                Err(error) => error.to_string(),
            };
            answers.push(Answer { guard: "require_approval", allows, says });
        }
        self.allowed &= answers.iter().all(|answer| answer.allows);
        answers.append(&mut self.guards);
        self.guards = answers;
        self
    }
}

/// Plans repetition `number`.
pub fn plan<S: Subject>(
    drill: &Drill,
    subject: &S,
    snapshot: &Snapshot,
    supervisor: &Supervisor,
    number: u32,
) -> Plan {
    let deployment = subject.deployment();
    let simulated = *supervisor == Supervisor::Simulator;
    let mut guards = vec![guard::environment(drill.environment.as_str(), deployment)];
    let mut steps = Vec::new();
    for step in &drill.steps {
        guards.extend(
            step.faults
                .iter()
                .map(|fault| guard::supported(drill, fault, deployment, simulated))
                .filter(|answer| !answer.allows),
        );
        guards.extend(
            step.faults
                .iter()
                .filter_map(|fault| guard::detection(fault, &drill.guards, snapshot, deployment)),
        );
        let (chosen, refusal) = match choose(drill, step, snapshot, supervisor, number) {
            Ok(chosen) => (chosen, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let of_fault = |targets: &[String]| {
            chosen.iter().filter(|c| targets.contains(&c.target)).collect::<Vec<&Chosen>>()
        };
        let out: Vec<&Chosen> = step
            .faults
            .iter()
            .filter(|f| f.kind.effect().takes_out())
            .flat_map(|f| of_fault(&f.targets))
            .collect();
        guards.extend(guard::check(&drill.guards, snapshot, &out, chosen.len()));
        let own = deployment.own_host();
        let wide = || step.faults.iter().filter(move |fault| fault.hits_hosts() && !simulated);
        guards.extend(wide().filter_map(|fault| guard::spared(fault, &of_fault(&fault.targets), deployment)));
        let cut = wide().filter(|fault| fault.kind.effect().takes_out());
        if cut.flat_map(|fault| of_fault(&fault.targets)).any(|c| c.process.host == own) {
            let says = "this host would be cut off, and with it the runner; run the drill on another host";
            guards.push(Answer { guard: "means", allows: false, says: says.to_owned() });
        }
        let faults = step.faults.iter().map(|fault| PlannedFault {
            fault: fault.kind.describe(),
            lasts: fault.lasts.map(duration::print),
            tolerated: fault.tolerated,
            hits: chosen
                .iter()
                .filter(|c| fault.reaches(c))
                .map(|c| Hit {
                    target: c.target.clone(),
                    process: c.process.name.to_string(),
                    host: c.process.host,
                    pid: c.process.process.pid,
                    program: subject.program(&c.process),
                    supervised: c.supervised,
                })
                .collect(),
        });
        steps.push(PlannedStep { step: step.name.clone(), faults: faults.collect(), refusal });
    }
    let allowed =
        guards.iter().all(|answer| answer.allows) && steps.iter().all(|step| step.refusal.is_none());
    Plan {
        drill: drill.id.clone(),
        title: drill.title.clone(),
        count: drill.repeat.count,
        steps,
        guards,
        allowed,
        judges: drill.judges(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::host::Process as HostProcess;
    use obol_fabric::{Address, Instant, Nanos};
    use obol_membership::view::coordinator_name;
    use obol_membership::{Kind, View};
    use obol_node::Deployment;
    use obol_observe::{Health, ObservedEvent, Process};
    use obol_profiles::Profile;
    use std::sync::Arc;

    /// A cluster whose coordinators were three when it was started.
    struct Grown(Deployment);

    impl Subject for Grown {
        fn deployment(&self) -> &Deployment {
            &self.0
        }

        fn snapshot(&mut self) -> Snapshot {
            snapshot(Some(3), 3)
        }

        fn events(&mut self) -> Vec<ObservedEvent> {
            Vec::new()
        }

        fn now(&self) -> Instant {
            Instant(0)
        }

        fn sleep(&mut self, _: Nanos) {}

        fn others(&self) -> Vec<String> {
            Vec::new()
        }

        fn has_ended(&self, _: &Process) -> bool {
            false
        }
    }

    /// Running coordinators; the first `deciders` of them decide. `None` if no view can be read.
    fn snapshot(deciders: Option<u16>, coordinators: u16) -> Snapshot {
        let view = deciders.map(|many| {
            let all: Vec<(Name, Address)> =
                (1..=many).map(|n| (coordinator_name(n), Address::region(n.into()))).collect();
            Arc::new(View::genesis(&all, Nanos::from_millis(20), Nanos::from_millis(20)))
        });
        let one = |n: u16| Process {
            process: HostProcess { pid: 1_000_000 + u32::from(n), started: 1 },
            region: n.into(),
            alive: true,
            ..Process::missing(coordinator_name(n), Kind::Coordinator)
        };
        let processes = (1..=coordinators).map(one).collect();
        let (health, reasons) = (Health::Healthy, Vec::new());
        Snapshot { at: Instant(0), view, processes, remote: Vec::new(), health, reasons }
    }

    fn plan_of(text: &str, snapshot: &Snapshot) -> Plan {
        let drill = crate::drillfile::parse(text, "d").expect("a drill");
        let subject = Grown(Deployment::new(3, 1, 0, Profile::default()).expect("it fits"));
        plan(&drill, &subject, snapshot, &Supervisor::Simulator, 1)
    }

    /// Plans to kill the coordinators of these targets.
    fn planned(snapshot: &Snapshot, keep: &str, targets: &[&str]) -> Plan {
        let names: Vec<String> = (0..targets.len()).map(|n| format!("t{n}")).collect();
        let targets: Vec<String> = names
            .iter()
            .zip(targets)
            .map(|(name, which)| format!("{name} = {{ kind = \"coordinator\", {which} }}\n"))
            .collect();
        let text = format!(
            "[drill]\nschema = 1\nid = \"d\"\ntitle = \"t\"\nenvironment = \"local\"\n\
             [guards]\nmax_targets = 10\nkeep_acceptors = {keep}\n[targets]\n{}[[step]]\nname = \"s\"\n\
             fault = {{ kind = \"kill\", target = {names:?} }}\n",
            targets.concat(),
        );
        plan_of(&text, snapshot)
    }

    /// What the guard says, and whether it allows the plan.
    fn guard(plan: &Plan) -> (bool, &str) {
        let answer = plan.guards.iter().find(|answer| answer.guard == "keep_acceptors").expect("an answer");
        (answer.allows, &answer.says)
    }

    fn victims(plan: &Plan) -> Vec<&str> {
        let hits = plan.steps[0].faults[0].hits.iter();
        hits.map(|hit| hit.process.as_str()).collect()
    }

    #[test]
    fn a_guard_counts_those_who_decide_and_neither_spares_nor_the_first_ones() {
        const MAJORITY: &str = "\"majority\"";
        let named = |numbers: &[u16]| -> Vec<String> {
            numbers.iter().map(|n| format!("name = \"coord-{n}\"")).collect()
        };
        let check = |snapshot: &Snapshot, keep: &str, numbers: &[u16]| {
            let targets = named(numbers);
            let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            let plan = planned(snapshot, keep, &targets);
            let (allows, says) = guard(&plan);
            (allows, says.to_owned())
        };
        // Two were added, and a spare runs.
        let grown = snapshot(Some(5), 6);
        let says = |left: u16, all: u16, required: u16| {
            format!("leaves {left} of {all} coordinators that decide, {required} required")
        };
        assert_eq!(check(&grown, MAJORITY, &[2, 4, 5]), (false, says(2, 5, 3)));
        assert_eq!(check(&grown, MAJORITY, &[2, 4, 6]), (true, says(3, 5, 3)));
        assert_eq!(check(&grown, "4", &[2, 4]), (false, says(3, 5, 4)));
        // Two spares of `up`.
        let spares = snapshot(Some(3), 5);
        assert_eq!(check(&spares, MAJORITY, &[2, 3]), (false, says(1, 3, 2)));
        assert_eq!(check(&spares, MAJORITY, &[2, 4, 5]), (true, says(2, 3, 2)));
        assert_eq!(check(&spares, "3", &[1]), (false, says(2, 3, 3)));
        // One that is frozen is not left either.
        let mut frozen = snapshot(Some(3), 5);
        frozen.processes[0].frozen = true;
        assert_eq!(check(&frozen, MAJORITY, &[2]), (false, says(1, 3, 2)));
        // Deciders of other hosts count.
        let mut apart = snapshot(Some(3), 3);
        apart.remote = apart.processes.split_off(1);
        assert_eq!(check(&apart, MAJORITY, &[1]), (true, says(2, 3, 2)));
        let (allows, unknown) = check(&snapshot(None, 5), MAJORITY, &[1]);
        assert!(!allows && unknown.contains("no view can be read"), "{unknown}");
    }

    #[test]
    fn a_majority_of_coordinators_is_one_of_those_who_decide() {
        let number = |plan: &Plan, last: u16| {
            let victims = victims(plan);
            let decide = |name: &&str| (1..=last).any(|n| coordinator_name(n).as_str() == *name);
            assert!(victims.iter().all(decide), "{victims:?}");
            victims.len()
        };
        for (deciders, coordinators, majority, minority) in [(5, 6, 3, 2), (3, 5, 2, 1), (4, 7, 3, 1)] {
            let seen = snapshot(Some(deciders), coordinators);
            for (select, wanted) in [("majority", majority), ("minority", minority)] {
                let plan = planned(&seen, "0", &[&format!("select = \"{select}\"")]);
                assert_eq!(number(&plan, deciders), wanted, "{select} of {deciders}, {plan:?}");
            }
        }
        let plan = planned(&snapshot(None, 5), "0", &["select = \"minority\""]);
        let refusal = plan.steps[0].refusal.as_deref();
        assert!(refusal.is_some_and(|why| why.contains("no view can be read")), "{plan:?}");
    }

    #[test]
    fn a_program_in_a_seat_is_listed_for_a_freeze_and_not_for_a_fault_of_links() {
        let mut cluster = snapshot(Some(3), 3);
        let agent = Process {
            process: HostProcess { pid: 1_000_010, started: 1 },
            region: 9,
            alive: true,
            ..Process::missing(Name::new("node-1").expect("a name"), Kind::Agent)
        };
        let program =
            Process { name: Name::new("app-1").expect("a name"), kind: Kind::App, seat: 1, ..agent.clone() };
        cluster.processes.extend([agent, program]);
        for (kind, listed) in
            [("freeze", &["node-1", "app-1"][..]), ("partition\", layer = \"fabric", &["node-1"])]
        {
            let text = format!(
                "[drill]\nschema = 1\nid = \"d\"\ntitle = \"t\"\nenvironment = \"local\"\n[targets]\n\
                 node = {{ kind = \"node\", name = \"node-1\" }}\n[[step]]\nname = \"s\"\n\
                 fault = {{ kind = \"{kind}\", for = \"2s\", target = \"node\" }}\n"
            );
            assert_eq!(victims(&plan_of(&text, &cluster)), listed, "{kind}");
        }
    }
}
