//! The part of an observer that knows who should be there.

use super::Observer;
use crate::calendar::unix_seconds;
use crate::missed::Missing;
use crate::{Absence, Process};
use obol_fabric::Name;
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, View};
use std::collections::HashSet;

impl Observer {
    /// Who is missed or left has a row, also where its region has another owner by now.
    pub(super) fn add_missing(
        &self,
        processes: &mut Vec<Process>,
        remote: &[Process],
        (view, missed): (Option<&View>, &[Missing]),
    ) {
        if self.trouble.is_some() || self.doubt.is_some() {
            // Those of other hosts may well run.
            return;
        }
        let expected: HashSet<String> = self.expected(processes, remote, view).collect();
        let deployed: HashSet<String> = self.deployment_without_coordinators().collect();
        let ended = |p: &&Process| !p.alive && p.kind != Kind::Coordinator;
        let left =
            |p: &&Process| self.absence(p.name.as_str(), processes, remote, view) == Some(Absence::Left);
        let gone: HashSet<Name> = processes.iter().filter(ended).filter(left).map(|p| p.name).collect();
        for process in processes.iter_mut().filter(|p| ended(&&**p)) {
            let name = process.name.as_str();
            // It left, or its agent did; and a start that failed expects it again.
            let left = process.left || deployed.contains(name) || gone.contains(&process.name);
            process.left = left && !expected.contains(name);
        }
        // A process of another kind may have the name.
        let is_known = |name: &str, kind| processes.iter().chain(remote).any(|p| p.stands_for(name, kind));
        let mut missing: Vec<Process> = Vec::new();
        for name in &deployed {
            // Names of a deployment were checked.
            let Ok(name) = Name::new(name) else { continue };
            if is_known(name.as_str(), self.deployment.kind(name)) {
                continue;
            }
            let left = !expected.contains(name.as_str());
            let host = self.host_of_missing(name, view);
            missing.push(Process { left, host, ..Process::missing(name, self.deployment.kind(name)) });
        }
        // A coordinator that decides is missed, on whichever host it was.
        let deciders = self.deciders(view);
        for name in deciders.names().iter().filter(|name| !is_known(name, Kind::Coordinator)) {
            let left = self.absence(name, processes, remote, view) == Some(Absence::Left);
            let Ok(name) = Name::new(name) else { continue };
            let host = self.host_of_missing(name, view);
            missing.push(Process { left, host, ..Process::missing(name, Kind::Coordinator) });
        }
        // A process that departed lately keeps its row also when its memory has another owner.
        let departed = view.iter().flat_map(|view| view.departed.iter().rev());
        let departed = departed.map(|gone| (gone.name, gone.kind, gone.left));
        // And one that failed before, while it is expected back.
        let all = departed.chain(missed.iter().map(|one| (one.name, one.kind, false)));
        for (gone, kind, left) in all.filter(|(_, kind, _)| *kind != Kind::Coordinator) {
            let name = gone.as_str();
            if is_known(name, kind) || missing.iter().any(|other| other.stands_for(name, kind)) {
                continue;
            }
            let host = self.host_of_missing(gone, view);
            missing.push(Process { left, host, ..Process::missing(gone, kind) });
        }
        if !missing.is_empty() {
            processes.append(&mut missing);
            processes.sort_by_key(|p| (p.kind, p.name));
        }
    }

    /// The host of a process that has no memory to read; 0 if it is not known.
    fn host_of_missing(&self, name: Name, view: Option<&View>) -> u8 {
        let mut named = view.iter().flat_map(|view| &view.members).filter(|m| m.name == name);
        let mut acceptors = view.iter().flat_map(|view| &view.acceptors);
        let decides = acceptors.find(|acceptor| coordinator_name(acceptor.proposer) == name);
        let address = named.next().map(|m| m.address).or_else(|| decides.map(|acceptor| acceptor.address));
        let host = address.and_then(|address| self.deployment.host_of(address.region));
        host.or_else(|| self.deployment.home_of(name)).unwrap_or_default()
    }

    /// Members that failed and are expected back, without those of the deployment, which are expected as
    /// long as they do not leave. One that runs and has not joined yet is reported for that.
    pub(super) fn missed(
        &mut self,
        here: &[Process],
        elsewhere: &[Process],
        view: Option<&View>,
    ) -> Vec<Missing> {
        let Some(view) = view else { return Vec::new() };
        let Self { missed, deployment, .. } = self;
        let deployed: HashSet<String> = deployment.names().into_iter().collect();
        let is_back = |one: &Missing| {
            let lives = |p: &&Process| p.alive && p.stands_for(one.name.as_str(), one.kind);
            let mut lives = here.iter().chain(elsewhere).filter(lives);
            lives.any(|p| view.member(p.incarnation).is_none() || p.incarnation > one.who)
        };
        let all = missed.of(view, unix_seconds());
        all.filter(|one| !deployed.contains(one.name.as_str()) && !is_back(one)).copied().collect()
    }
}
