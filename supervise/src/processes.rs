//! The processes of a cluster: found by name or role, ended, and started again.

use crate::control::{self, ControlError, Request};
use crate::ending;
use crate::upgrade::not_admitted;
use obol_fabric::Name;
use obol_fabric::host::{Cluster, NameClaim, RegionInfo};
use obol_membership::Kind;
use obol_node::{Deployment, Site, hosts_here};
use obol_observe::namesakes::unused_elsewhere;
use obol_observe::{Observer, Process, Snapshot};
use obol_term::output::Failure;
use serde::Serialize;
use std::collections::BTreeSet;
use std::iter;
use std::path::Path;
use std::time::{Duration, Instant};

/// The role that stands for a process.
const LEADER: &str = "leader";

/// How long `start` waits for a process to take its place or to end.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// A process whose name is wanted again while it is still dying is waited for this long.
pub const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval while processes end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The process of this host that a name or a role stands for. `others` are those that are proposed as well
/// where there is none.
fn find<'a>(snapshot: &'a Snapshot, target: &str, others: &[String]) -> Result<&'a Process, Failure> {
    let named = || snapshot.processes.iter().filter(|p| p.alive && p.name.as_str() == target);
    let found = if target == LEADER { snapshot.leader() } else { named().next() };
    if let Some(first) = found
        && named().any(|other| other.process != first.process)
        && target != LEADER
    {
        let all: Vec<String> =
            named().map(|p| format!("pid {} ({})", p.process.pid, p.kind.name())).collect();
        return Err(Failure::Refused(format!(
            "several live processes are called {target}: {}; choose one, and end it by its pid",
            all.join(", ")
        )));
    }
    found.ok_or_else(|| {
        let live: Vec<&str> = snapshot
            .processes
            .iter()
            .filter(|p| p.alive)
            .map(|p| p.name.as_str())
            .chain(others.iter().map(String::as_str))
            .collect();
        if live.is_empty() {
            return Failure::Refused(format!("no live process {target}: none of the cluster lives"));
        }
        Failure::Refused(format!(
            "no live process {target}; there are: {}, and the role leader",
            live.join(", ")
        ))
    })
}

/// The gateway of this name, on this host or a further one that is this one, with the host's number.
/// It is not a member.
fn gateway(root: &Path, cluster: Name, target: &str) -> Option<(u8, RegionInfo)> {
    gateways(root, cluster).find(|(_, gateway)| gateway.name.as_str() == target)
}

/// The gateways of all hosts that are this machine.
fn gateways(root: &Path, cluster: Name) -> impl Iterator<Item = (u8, RegionInfo)> {
    let all = hosts_here(root, cluster).into_iter();
    all.filter_map(move |(host, name)| Some((host, Cluster::open(root, name).ok()?.gateway()?)))
}

/// Whom a name may mean beside the processes of this host: the gateways that are here, and the members of
/// other hosts, each with its host.
fn others(root: &Path, observer: &Observer, snapshot: &Snapshot) -> Vec<String> {
    let gateways = gateways(root, observer.cluster().name()).map(|(_, gateway)| gateway.name.to_string());
    gateways.chain(of_other_hosts(observer.deployment(), snapshot)).collect()
}

/// The members of other hosts, and who else lives there, each with its host.
pub fn of_other_hosts(deployment: &Deployment, snapshot: &Snapshot) -> Vec<String> {
    let own = deployment.own_host();
    let members = snapshot.view.iter().flat_map(|view| &view.members);
    let members = members.filter_map(|m| Some((deployment.host_of(m.address.region)?, m.name)));
    let alive = snapshot.remote.iter().filter(|process| process.alive);
    let all: BTreeSet<(u8, Name)> =
        members.chain(alive.map(|process| (process.host, process.name))).collect();
    let elsewhere = all.into_iter().filter(|(host, _)| *host != own);
    elsewhere.map(|(host, name)| format!("{name} (host {host})")).collect()
}

/// Observers of a cluster on all hosts that are this machine, that of this name first.
fn observers(root: &Path, cluster: Name) -> Result<Vec<Observer>, Failure> {
    let own = Observer::open(root, cluster).map_err(Failure::refused)?;
    let others = hosts_here(root, cluster).into_values().filter(|name| *name != cluster);
    Ok(iter::once(own).chain(others.filter_map(|name| Observer::open(root, name).ok())).collect())
}

/// The cluster with the process that a name or a role stands for: that of the command, or its part
/// on a further host that is this one. Who leads is known by all hosts together; for a name no other
/// machine is waited for.
pub fn locate(root: &Path, cluster: Name, target: &str) -> Result<(Observer, Snapshot), Failure> {
    let mut looks = Vec::new();
    for observer in observers(root, cluster)? {
        let mut observer = if target == LEADER { observer } else { observer.of_this_host() };
        let snapshot = observer.snapshot();
        let found = find(&snapshot, target, &[]).is_ok();
        looks.push((observer, snapshot));
        if found {
            return Ok(looks.swap_remove(looks.len() - 1));
        }
    }
    Ok(looks.swap_remove(0))
}

/// Where a process is that belongs to another machine, and what to do there; `None` if it does not.
fn elsewhere(
    root: &Path,
    observer: &Observer,
    snapshot: &Snapshot,
    target: &str,
    command: &str,
) -> Option<Failure> {
    let (cluster, deployment) = (observer.cluster(), observer.deployment());
    let name = if target == LEADER { snapshot.leader_name() } else { Name::new(target).ok() }?;
    // The file of hosts does not name all programs, and the view says where the members are.
    let member = || snapshot.view.as_ref()?.members.iter().find(|member| member.name == name);
    let host = deployment.home_of(name).or_else(|| deployment.host_of(member()?.address.region))?;
    if host == deployment.own_host() || hosts_here(root, cluster.name()).contains_key(&host) {
        return None;
    }
    let who = if target == LEADER { format!("the leader, {name},") } else { name.to_string() };
    Some(Failure::Refused(format!("{who} is of host {host}: run `obol {command} {name}` on that host")))
}

/// Why `start` starts nothing of a host that `obol host prepare` has set up.
fn started_by_others(deployment: &Deployment, target: &str) -> Failure {
    let Ok(name) = Name::new(target) else {
        return Failure::Refused(format!("{target:?} is the name of no process"));
    };
    let unit = match deployment.kind(name) {
        _ if !deployment.names().iter().any(|known| known == target) => None,
        Kind::Coordinator => target.strip_prefix("coord-").map(|number| format!("obol-coordinator@{number}")),
        Kind::LeaseCache => Some(format!("obol-cache@{target}")),
        Kind::Agent => Some(format!("obol-agent@{target}")),
        Kind::App => None,
    };
    let how = unit.map_or("what supervises it".to_owned(), |unit| format!("`systemctl start {unit}`"));
    let host = deployment.home_of(name).filter(|host| *host != deployment.own_host());
    let place = host.map_or(String::new(), |host| format!(" on host {host}"));
    Failure::Refused(format!(
        "no `obol up` supervises the hosts that `obol host prepare` has set up; start {target} by {how}{place}"
    ))
}

/// What was ended, and how; as scripts read it.
#[derive(Debug, Serialize)]
pub struct Ended {
    pub name: Name,
    pub pid: u32,
    /// None of a gateway, which is not a member.
    pub incarnation: Option<u64>,
    /// Of [`Member::stop`]: whether it left the cluster before it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<bool>,
}

/// A live process of a cluster.
pub enum Found {
    /// The gateway of a host that is this machine.
    Gateway(Gateway),
    Member(Box<Member>),
}

pub struct Gateway {
    /// The number of its host.
    pub host: u8,
    /// Whether members reach each other by RDMA devices, without it.
    pub has_devices: bool,
    region: RegionInfo,
}

/// A member of a cluster.
pub struct Member {
    process: Process,
    observer: Observer,
}

/// A member that was stopped.
pub struct Stopped {
    pub ended: Ended,
    /// The cluster after that.
    pub after: Snapshot,
    /// Programs that cannot act any more, if it was their agent.
    pub orphans: Vec<Name>,
    /// Whether it was a coordinator.
    pub was_coordinator: bool,
    /// Why a daemon that is started in its place by this program would be refused. A program that is linked
    /// with the library may be of another release.
    pub not_admitted: Option<String>,
}

impl Found {
    /// The process that a name or a role stands for; `command` is what the operator asks of it.
    pub fn of(root: &Path, cluster: Name, target: &str, command: &str) -> Result<Self, Failure> {
        if let Some((host, region)) = gateway(root, cluster, target) {
            let has_devices = Site::open(root, cluster).is_ok_and(|site| site.deployment.has_devices());
            return Ok(Self::Gateway(Gateway { host, has_devices, region }));
        }
        let (observer, snapshot) = locate(root, cluster, target)?;
        let found = find(&snapshot, target, &others(root, &observer, &snapshot))
            .map_err(|none| elsewhere(root, &observer, &snapshot, target, command).unwrap_or(none))?;
        let process = found.clone();
        Ok(Self::Member(Box::new(Member { process, observer })))
    }

    /// Kills it, and waits until it has ended.
    pub fn kill(&self) -> Result<Ended, Failure> {
        match self {
            Self::Gateway(Gateway { region, .. }) => {
                ending::kill(region.name.as_str(), region.process)?;
                Ok(Ended::gateway(region))
            }
            Self::Member(member) => {
                ending::kill(member.process.name.as_str(), member.process.process)?;
                Ok(Ended::member(&member.process, None))
            }
        }
    }
}

impl Ended {
    fn gateway(gateway: &RegionInfo) -> Self {
        Self { name: gateway.name, pid: gateway.process.pid, incarnation: None, left: None }
    }

    fn member(process: &Process, left: Option<bool>) -> Self {
        let incarnation = Some(process.incarnation.0);
        Self { name: process.name, pid: process.process.pid, incarnation, left }
    }
}

impl Gateway {
    /// Asks it to end, and waits until it has.
    pub fn stop(&self) -> Result<Ended, Failure> {
        ending::stop(self.region.name.as_str(), self.region.process)?;
        Ok(Ended::gateway(&self.region))
    }
}

impl Member {
    pub fn name(&self) -> Name {
        self.process.name
    }

    /// Lets it leave the cluster and end, which does not count as a failure.
    pub fn stop(mut self) -> Result<Stopped, Failure> {
        let process = &self.process;
        ending::stop(process.name.as_str(), process.process)?;
        // Whether it left or just ended, because no majority let it go, is in the newest view.
        let after = self.observer.snapshot();
        let departed = after.view.iter().flat_map(|view| &view.departed);
        let left = departed.filter(|d| d.left).any(|d| d.incarnation == process.incarnation);
        let orphans = if process.kind == Kind::Agent {
            let seats = after.all_processes().filter(|p| p.seat != 0 && p.region == process.region);
            seats.filter(|p| p.lost_agent(&after) && !p.left).map(|p| p.name).collect()
        } else {
            Vec::new()
        };
        let was_coordinator = process.kind == Kind::Coordinator;
        let view = after.view.as_ref().filter(|_| process.kind != Kind::App);
        let not_admitted = view.and_then(|view| not_admitted(self.observer.cluster().name(), view));
        Ok(Stopped {
            ended: Ended::member(process, Some(left)),
            after,
            orphans,
            was_coordinator,
            not_admitted,
        })
    }
}

/// A process that was started; as scripts read it.
#[derive(Debug, Serialize)]
pub struct Started<'a> {
    pub name: &'a str,
    pub pid: u32,
    /// Whether it has its place in the cluster; if not, it waits for that.
    pub in_place: bool,
    /// What it waits for, and for how long it has done so.
    #[serde(skip)]
    pub waits: Option<String>,
}

/// Has the supervisor of a cluster start a process that is down, and waits until it has its place.
pub fn start<'a>(root: &Path, cluster: Name, target: &'a str) -> Result<Started<'a>, Failure> {
    let here = Cluster::open(root, cluster).map_err(Failure::refused)?;
    if let Ok(site) = Site::open(root, cluster)
        && site.deployment.is_prepared()
    {
        return Err(started_by_others(&site.deployment, target));
    }
    let dir = control::supervised(&here);
    let pid =
        control::request(&dir, &Request::Start { name: target.to_owned() }).map_err(Failure::refused)?;
    let pid = pid.unwrap_or(0);
    let mut observers: Vec<Observer> =
        observers(root, cluster)?.into_iter().map(Observer::of_this_host).collect();
    let end = Instant::now() + START_TIMEOUT;
    loop {
        let alive: Vec<Process> = observers
            .iter_mut()
            .flat_map(|observer| observer.snapshot().processes)
            .filter(|process| process.alive)
            .collect();
        let here = |p: &Process| p.process.pid == pid && p.name.as_str() == target;
        let is_gateway = || gateway(root, cluster, target).is_some_and(|(_, found)| found.process.pid == pid);
        if alive.iter().any(here) || is_gateway() {
            return Ok(Started { name: target, pid, in_place: true, waits: None });
        }
        if !is_running(pid) {
            return Err(Failure::Failed(why(&dir, target)));
        }
        if Instant::now() > end {
            let agent = observers.first().and_then(|observer| observer.deployment().agent_of(target));
            let lives = |name: &str| alive.iter().any(|p| p.name.as_str() == name);
            let why = match agent.filter(|agent| !lives(agent)) {
                Some(agent) => format!("it waits for its agent: `obol start {agent}`"),
                None => "see `obol status`".to_owned(),
            };
            let waits =
                Some(format!("{target} is not a member yet after {} s; {why}", START_TIMEOUT.as_secs()));
            return Ok(Started { name: target, pid, in_place: false, waits });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Refuses a name that a live process has, of this host (where the one that is to be started claims it for
/// itself) or of another one.
pub fn unused(root: &Path, cluster: Name, name: &str) -> Result<(), Failure> {
    let name = Name::new(name).map_err(Failure::refused)?;
    let here = Cluster::open(root, cluster).map_err(Failure::refused)?;
    drop(NameClaim::reserve(&here, name).map_err(Failure::refused)?);
    unused_elsewhere(root, cluster, name)
}

/// Why a process that was started has ended, as its supervisor knows it.
pub fn why(dir: &Path, target: &str) -> String {
    match control::request(dir, &Request::Why { name: target.to_owned() }) {
        Err(ControlError::Refused(reason)) => reason,
        Err(error) => format!("{target} ended at once, and why is not known: {error}"),
        Ok(_) => format!("{target} ended at once"),
    }
}

/// Whether a process runs; one that has ended and was not reaped does not.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{HostNames, deployments};
    use obol_fabric::host;
    use obol_fabric::host::PER_HOST;
    use obol_fabric::{Address, Nanos};
    use obol_membership::View;
    use obol_observe::Health;
    use obol_profiles::Profile;
    use std::sync::Arc;

    #[test]
    fn where_no_process_has_a_name_those_of_other_hosts_are_proposed_with_theirs() {
        let name = |text: &str| Name::new(text).expect("a name");
        let names = HostNames::new(name("default"), Some(3)).expect("names");
        let deployment = Deployment::new(1, 3, 0, Profile::default()).expect("in bounds");
        let each = deployments(&deployment, Path::new("/none"), &names, 7).expect("a free port");
        let nodes =
            [1, 2, 3].map(|host: u32| (name(&format!("node-{host}")), Address::region(host * PER_HOST + 1)));
        let lease = Nanos::from_millis(20);
        let snapshot = Snapshot {
            at: obol_fabric::Instant(1),
            view: Some(Arc::new(View::genesis(&nodes, lease, lease))),
            processes: vec![process("node-1", 1)],
            // A member, and a program that has not joined.
            remote: vec![
                Process { host: 2, ..process("node-2", 2) },
                Process { host: 3, ..process("guest", 3) },
            ],
            health: Health::Healthy,
            reasons: Vec::new(),
        };
        let mut others = of_other_hosts(&each[0], &snapshot);
        others.sort();
        assert_eq!(others, ["guest (host 3)", "node-2 (host 2)", "node-3 (host 3)"]);
        match find(&snapshot, "nobody", &others) {
            Err(Failure::Refused(why)) => {
                assert!(why.contains(
                    "there are: node-1, guest (host 3), node-2 (host 2), node-3 (host 3), and the role"
                ));
            }
            other => panic!("{:?}", other.map(|found| found.name)),
        }
    }

    fn process(name: &str, pid: u32) -> Process {
        let name = Name::new(name).expect("a name");
        let process = host::Process { pid, started: 1 };
        Process { alive: true, process, ..Process::missing(name, Kind::App) }
    }

    #[test]
    fn a_name_stands_for_one_live_process() {
        let mut snapshot = Snapshot {
            at: obol_fabric::Instant(1),
            view: None,
            processes: vec![process("app-1", 1), process("app-2", 2), process("app-2", 3)],
            remote: Vec::new(),
            health: Health::Healthy,
            reasons: Vec::new(),
        };
        let refused = |snapshot: &Snapshot, target| match find(snapshot, target, &[]) {
            Err(Failure::Refused(why)) => why,
            other => panic!("{:?}", other.map(|found| found.name)),
        };
        assert_eq!(find(&snapshot, "app-1", &[]).expect("it lives").process.pid, 1);
        assert!(refused(&snapshot, "app-2").contains("pid 2 (app), pid 3 (app)"));
        assert!(refused(&snapshot, "app-3").contains("app-1, app-2, app-2, and the role leader"));
        snapshot.processes.iter_mut().for_each(|process| process.alive = false);
        assert!(refused(&snapshot, "app-1").contains("none of the cluster lives"));
    }
}
