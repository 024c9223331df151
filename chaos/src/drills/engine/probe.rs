//! Probes of the steady state.

use super::external;
use super::journal::Probed;
use super::subject::Subject;
use crate::drillfile::{Probe, Steady};
use obol_fabric::Incarnation;
use obol_observe::{Deciders, Snapshot};

/// Runs a probe.
pub fn probe<S: Subject>(subject: &S, snapshot: &Snapshot, steady: &Steady) -> Probed {
    if let Some(external) = &steady.external {
        let (holds, saw) = external::look(external, steady.tolerance);
        return Probed { probe: steady.probe, holds, saw };
    }
    let (value, saw) = observe(subject, snapshot, steady.probe);
    Probed { probe: steady.probe, holds: value == steady.tolerance, saw }
}

fn observe<S: Subject>(subject: &S, snapshot: &Snapshot, probe: Probe) -> (bool, String) {
    let live = || snapshot.processes.iter().filter(|p| p.alive);
    let names = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(", ")
    };
    match probe {
        Probe::ViewConverged => {
            let Some(newest) = &snapshot.view else { return (false, "there is no view".to_owned()) };
            let behind = live().filter(|p| {
                p.incarnation == Incarnation::NONE || p.view.as_ref().map(|view| view.id) != Some(newest.id)
            });
            let behind: Vec<&str> = behind.map(|p| p.name.as_str()).collect();
            match behind.is_empty() {
                true => (true, format!("all {} processes know view {}", live().count(), newest.id)),
                false => (false, format!("{} do not know view {}", names(behind), newest.id)),
            }
        }
        Probe::LeaderPresent => match snapshot.leader() {
            Some(leader) => (true, format!("{} leads", leader.name)),
            None => (false, "no coordinator leads".to_owned()),
        },
        Probe::Majority => {
            let Some(deciders) = Deciders::newest(snapshot) else {
                return (false, "there is no view".to_owned());
            };
            let (all, there) = (deciders.names().len(), deciders.acting(snapshot).count());
            (there >= deciders.majority(), format!("{there} of {all} coordinators run"))
        }
        Probe::LeasesActive => {
            let idle = live().filter(|p| p.kind.acts() && !p.is_active(snapshot.at));
            let idle: Vec<&str> = idle.map(|p| p.name.as_str()).collect();
            match idle.is_empty() {
                true => (true, "every member with a lease may act".to_owned()),
                false => (false, format!("{} have no active lease", names(idle))),
            }
        }
        Probe::PromQl | Probe::Http | Probe::Command => (false, "it has no parameters".to_owned()),
        Probe::ProcessesUp => {
            let deciders = Deciders::expected(subject.deployment(), snapshot.view.as_deref());
            let mut expected = deciders.names().to_vec();
            expected.extend(subject.others());
            let missing: Vec<&str> =
                expected.iter().filter(|name| snapshot.process(name).is_none()).map(String::as_str).collect();
            match missing.is_empty() {
                true => (true, format!("all {} processes run", expected.len())),
                false => (false, format!("{} down", names(missing))),
            }
        }
    }
}
