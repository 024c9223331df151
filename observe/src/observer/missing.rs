//! The part of an observer that knows who should be there.

use super::Observer;
use crate::calendar::unix_seconds;
use crate::missed::Missing;
use crate::{Absence, Process};
use obol_fabric::Name;
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, View};
use obol_node::Deployment;
use std::collections::HashSet;

impl Observer {
    /// Who is missed or left has a row, also where its region has another owner by now.
    pub(super) fn add_missing(
        &self,
        processes: &mut Vec<Process>,
        remote: &[Process],
        view: Option<&View>,
        missed: &[Missing],
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
        let host_of = |name| host_of_missing(&self.deployment, name, view, self.missed.region_of(name));
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
            let host = host_of(name);
            missing.push(Process { left, host, ..Process::missing(name, self.deployment.kind(name)) });
        }
        // A coordinator that decides is missed, on whichever host it was.
        let deciders = self.deciders(view);
        for name in deciders.names().iter().filter(|name| !is_known(name, Kind::Coordinator)) {
            let left = self.absence(name, processes, remote, view) == Some(Absence::Left);
            let Ok(name) = Name::new(name) else { continue };
            let host = host_of(name);
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
            let host = host_of(gone);
            missing.push(Process { left, host, ..Process::missing(gone, kind) });
        }
        if !missing.is_empty() {
            processes.append(&mut missing);
            processes.sort_by_key(|p| (p.kind, p.name));
        }
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

/// The host of a process that has no memory to read, which had its `last` region; 0 if it is not known. The
/// file of hosts does not name the programs that join by themselves.
fn host_of_missing(deployment: &Deployment, name: Name, view: Option<&View>, last: Option<u32>) -> u8 {
    let mut named = view.iter().flat_map(|view| &view.members).filter(|m| m.name == name);
    let mut acceptors = view.iter().flat_map(|view| &view.acceptors);
    let decides = acceptors.find(|acceptor| coordinator_name(acceptor.proposer) == name);
    let address = named.next().map(|m| m.address).or_else(|| decides.map(|acceptor| acceptor.address));
    let host = address.and_then(|address| deployment.host_of(address.region));
    let host = host.or_else(|| deployment.home_of(name));
    host.or_else(|| deployment.host_of(last?)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::host::PER_HOST;
    use obol_fabric::{Address, Incarnation, Nanos};
    use obol_membership::view::Member;
    use obol_node::Network;
    use obol_profiles::Profile;
    use std::net::IpAddr;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn the_host_of_a_dead_program_is_known_by_the_view_the_file_of_hosts_or_its_last_region() {
        let hosts: Vec<IpAddr> = (1..=3).map(|n| IpAddr::from([10, 1, 0, n])).collect();
        let network = Network {
            hosts: hosts.clone(),
            members: vec!["node-2".to_owned()],
            homes: vec![2],
            ..Network::local(1, hosts[0], 7471, 1)
        };
        let deployment = Deployment::new(1, 0, 0, Profile::default()).expect("it fits").over(network);
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        let of = |called, view: Option<&View>, last| host_of_missing(&deployment, name(called), view, last);
        assert_eq!(of("kv-2", Some(&view), None), 0, "nobody knows");
        assert_eq!(of("kv-2", Some(&view), Some(2 * PER_HOST + 3)), 2);
        assert_eq!(of("node-2", Some(&view), Some(3 * PER_HOST)), 2, "it belongs there");
        assert_eq!((of("coord-1", Some(&view), None), of("coord-1", None, None)), (1, 1));
        let first = view.members[0];
        let address = Address::region(3 * PER_HOST + 1);
        view.members.push(Member {
            incarnation: Incarnation(9),
            kind: Kind::App,
            name: name("kv-2"),
            address,
            ..first
        });
        assert_eq!(of("kv-2", Some(&view), Some(2 * PER_HOST + 3)), 3, "it is a member again");
    }
}
