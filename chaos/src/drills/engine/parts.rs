//! The part of each host in a step: what its fault agent injects, and what it has to know of the
//! others.

use super::error::RunError;
use super::subject::Subject;
use crate::drillfile::Step;
use crate::drills::agent::channel::OtherVictim;
use crate::drills::victims::select::Chosen;
use crate::faults::Scope;
use crate::faults::order::{Injection, TargetProcess};
use obol_observe::Process;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What the fault agent of a host does on a cue.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) injections: Vec<Injection>,
    /// The victims on this host that become unavailable.
    silent: Vec<OtherVictim>,
    /// Those to restart if the runner cannot.
    pub(super) restart: Vec<String>,
    /// Whether the host ends.
    pub(super) crashes: bool,
    /// Whether something was started again on this host.
    pub(super) restarted: bool,
}

impl Part {
    /// Whether something is undone when its time is over.
    pub(super) fn lasts(&self) -> bool {
        self.injections.iter().any(|injection| injection.lasts.is_some())
    }
}

/// The parts of all hosts that have one, by number. Faults of a host without targets are those of the
/// runner's host, `own`.
pub(super) fn parts<S: Subject>(
    subject: &S,
    step: &Step,
    chosen: &[Chosen],
    restart: &[Process],
    own: u8,
) -> Result<BTreeMap<u8, Part>, RunError> {
    let mut parts: BTreeMap<u8, Part> = BTreeMap::new();
    for (island, fault) in (1..).zip(&step.faults) {
        let order = Injection { lasts: fault.lasts.map(|span| span.0), ..fault.kind.order(island) };
        let victims: Vec<&Process> = fault.victims(chosen).map(|victim| &victim.process).collect();
        if fault.kind.takes_out(&order) {
            for victim in &victims {
                let other =
                    OtherVictim { name: victim.name.to_string(), region: victim.region, seat: victim.seat };
                parts.entry(victim.host).or_default().silent.push(other);
            }
        }
        match fault.kind.scope() {
            Scope::Host => parts.entry(own).or_default().injections.push(order),
            Scope::Network => {
                let mut hosts: Vec<u8> = victims.iter().map(|victim| victim.host).collect();
                hosts.sort_unstable();
                hosts.dedup();
                let order = order.with("peers", &others(subject, &hosts));
                for host in hosts {
                    let part = parts.entry(host).or_default();
                    part.injections.push(order.clone());
                    part.crashes |= fault.crashes_hosts();
                }
            }
            Scope::Process | Scope::Links => {
                for victim in victims {
                    let whom = Some(whom(subject, victim, own)?);
                    let order = Injection { whom, ..order.clone() };
                    parts.entry(victim.host).or_default().injections.push(order);
                }
            }
        }
    }
    for process in restart {
        parts.entry(process.host).or_default().restart.push(process.name.to_string());
    }
    Ok(parts)
}

/// The victims on other hosts than this.
pub(super) fn elsewhere(parts: &BTreeMap<u8, Part>, host: u8) -> Vec<OtherVictim> {
    let others = parts.iter().filter(|(other, _)| **other != host);
    others.flat_map(|(_, part)| part.silent.clone()).collect()
}

/// The addresses of all hosts but these.
fn others<S: Subject>(subject: &S, hosts: &[u8]) -> Vec<IpAddr> {
    let network = subject.deployment().network.as_ref();
    let all = network.into_iter().flat_map(|network| (1..).zip(&network.hosts));
    all.filter(|(number, _)| !hosts.contains(number)).map(|(_, address)| *address).collect()
}

fn whom<S: Subject>(subject: &S, process: &Process, own: u8) -> Result<TargetProcess, RunError> {
    let program = subject.program(process);
    if program.is_none() && process.host == own {
        return Err(RunError::Ended(process.name));
    }
    let obol_fabric::host::Process { pid, started } = process.process;
    Ok(TargetProcess { name: process.name.to_string(), pid, started, program })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drillfile::{self, Drill};
    use obol_fabric::{Instant, Name, Nanos};
    use obol_membership::Kind;
    use obol_node::network::Fabric;
    use obol_node::{Deployment, Network};
    use obol_observe::{ObservedEvent, Snapshot};
    use obol_profiles::Profile;

    /// A cluster of three hosts. Only its deployment is known.
    struct Hosts(Deployment);

    impl Hosts {
        fn new() -> Self {
            let hosts: Vec<IpAddr> = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n])).to_vec();
            let fabric = Fabric::Ip { keys: "keys".into() };
            let network =
                Network { fabric, hosts, ..Network::local(7, IpAddr::from([10, 0, 0, 1]), 7471, 3) };
            let profile = Profile::builtin("lan").expect("it is built in");
            Self(Deployment::new(3, 3, 0, profile).expect("three fit").over(network))
        }
    }

    impl Subject for Hosts {
        fn deployment(&self) -> &Deployment {
            &self.0
        }

        fn snapshot(&mut self) -> Snapshot {
            unreachable!("parts are made of what was chosen")
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

        fn program(&self, process: &Process) -> Option<std::path::PathBuf> {
            (process.host == 1).then(|| "/usr/bin/obol".into())
        }
    }

    fn drill(fault: &str) -> Drill {
        let text = format!(
            "[drill]\nschema = 1\nid = \"d\"\ntitle = \"t\"\nenvironment = \"local\"\n[targets]\n\
             app = {{ kind = \"app\", select = \"all\" }}\n[[step]]\nname = \"s\"\nfault = {{ {fault}, target = \"app\" }}\n"
        );
        drillfile::parse(&text, "d.toml").expect("a good file")
    }

    fn chosen(host: u8) -> Chosen {
        let name = Name::new(&format!("app-{host}")).expect("a name");
        let region = 32 * u32::from(host);
        // The same pid on each, as on machines that boot alike.
        let process = obol_fabric::host::Process { pid: 700, started: 9 };
        let process =
            Process { process, host, region, seat: 1, alive: true, ..Process::missing(name, Kind::App) };
        Chosen { target: "app".to_owned(), process, supervised: true }
    }

    #[test]
    fn each_host_injects_into_its_own_processes_and_knows_the_victims_of_the_others() {
        let (drill, victims) = (drill("kind = \"kill\""), [1, 2, 3].map(chosen));
        let restart = [victims[1].process.clone()];
        let parts = parts(&Hosts::new(), &drill.steps[0], &victims, &restart, 1).expect("parts");
        assert_eq!(parts.keys().copied().collect::<Vec<u8>>(), [1, 2, 3]);
        for (host, part) in &parts {
            let [injection] = &part.injections[..] else { panic!("{part:?}") };
            let whom = injection.whom.as_ref().expect("a victim");
            assert_eq!(whom.name, format!("app-{host}"));
            // Programs of other hosts cannot be seen from here.
            assert_eq!(whom.program.is_some(), *host == 1);
            let others: Vec<String> = elsewhere(&parts, *host).into_iter().map(|other| other.name).collect();
            assert!(others.len() == 2 && !others.contains(&whom.name), "{others:?}");
            assert_eq!(part.restart, if *host == 2 { vec!["app-2".to_owned()] } else { Vec::new() });
            assert!(!part.lasts());
        }
    }

    #[test]
    fn a_fault_between_hosts_is_injected_once_on_each_and_spares_those_hit_with_it() {
        let drill = drill("kind = \"partition\", layer = \"host\", for = \"1s\"");
        let victims = [chosen(2), chosen(3), chosen(3)];
        let parts = parts(&Hosts::new(), &drill.steps[0], &victims, &[], 1).expect("parts");
        assert_eq!(parts.keys().copied().collect::<Vec<u8>>(), [2, 3]);
        for part in parts.values() {
            let [injection] = &part.injections[..] else { panic!("{part:?}") };
            assert_eq!(injection.get::<Vec<IpAddr>>("peers"), Ok(vec![IpAddr::from([10, 0, 0, 1])]));
            assert!(part.lasts() && injection.whom.is_none());
        }
    }
}
