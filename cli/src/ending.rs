//! How processes and clusters are ended, and started again: `obol kill`, `stop`, `start` and `down`, and
//! what other commands need of it.

use crate::commands::coordinator;
use crate::commands::smr::departed::Departure;
use crate::directory::Directory;
use crate::logging;
use crate::saved;
use clap::Args;
use obol_chaos::control::{self, ControlError, Request};
use obol_chaos::ending;
use obol_chaos::hosts::further_hosts;
use obol_fabric::host::{Cluster, HostError, NameClaim, RegionInfo};
use obol_fabric::{Incarnation, Name};
use obol_membership::Kind;
use obol_node::{Deployment, Site, hosts_here};
use obol_observe::{Observer, Process, Snapshot};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::iter;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The role that stands for a process.
const LEADER: &str = "leader";

/// Which process is meant.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A process by name (app-2, node-1, cache-1, coord-3) or by role (leader)
    pub(crate) target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `kill` and `stop` did, as JSON.
#[derive(Serialize)]
struct EndedJson {
    name: Name,
    pid: u32,
    /// None of a gateway, which is not a member.
    incarnation: Option<u64>,
    /// Of `stop`: whether it left the cluster before it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<bool>,
}

impl EndedJson {
    fn gateway(gateway: &RegionInfo) -> Self {
        Self { name: gateway.name, pid: gateway.process.pid, incarnation: None, left: None }
    }

    fn member(process: &Process, left: Option<bool>) -> Self {
        let incarnation = Some(process.incarnation.0);
        Self { name: process.name, pid: process.process.pid, incarnation, left }
    }
}

/// What `start` did, as JSON.
#[derive(Serialize)]
struct StartedJson<'a> {
    name: &'a str,
    pid: u32,
    /// Whether it has its place in the cluster; if not, it waits for that.
    in_place: bool,
}

/// What `down` did on one host, as JSON.
#[derive(Serialize)]
struct DownJson {
    cluster: Name,
    /// Its directory, if others than obol made it, so that it stays.
    kept: Option<String>,
}

/// How long `down` waits for a supervisor, and for killed processes, to be gone.
const DOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long `start` waits for a process to take its place or to end.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// A process whose name is wanted again while it is still dying is waited for this long.
pub(crate) const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time `down` reports what it waits for.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// Poll interval while processes end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The process that a name or a role stands for.
fn find<'a>(snapshot: &'a Snapshot, target: &str, gateways: &[Name]) -> Result<&'a Process, Failure> {
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
            .map(|p| &p.name)
            .chain(gateways)
            .map(Name::as_str)
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

fn gateway_names(root: &Path, cluster: Name) -> Vec<Name> {
    gateways(root, cluster).map(|(_, gateway)| gateway.name).collect()
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
pub(crate) fn locate(root: &Path, cluster: Name, target: &str) -> Result<(Observer, Snapshot), Failure> {
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
    (target, command): (&str, &str),
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

pub(crate) fn kill(
    root: &Path,
    cluster: Name,
    Target { target, json }: &Target,
) -> Result<ExitCode, Failure> {
    if let Some((_, gateway)) = gateway(root, cluster, target) {
        ending::kill(target, gateway.process)?;
        output::json_or(*json, &EndedJson::gateway(&gateway), |ended| {
            output::line(format_args!("killed {target} (pid {})", ended.pid))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let (observer, snapshot) = locate(root, cluster, target)?;
    let process = find(&snapshot, target, &gateway_names(root, cluster))
        .map_err(|none| elsewhere(root, &observer, &snapshot, (target, "kill")).unwrap_or(none))?;
    ending::kill(process.name.as_str(), process.process)?;
    output::json_or(*json, &EndedJson::member(process, None), |ended| {
        output::line(format_args!(
            "killed {} (pid {}, incarnation {})",
            ended.name, ended.pid, process.incarnation
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a process leave the cluster and end, which does not count as a failure.
pub(crate) fn stop(
    root: &Path,
    cluster: Name,
    Target { target, json }: &Target,
) -> Result<ExitCode, Failure> {
    if let Some((host, gateway)) = gateway(root, cluster, target) {
        ending::stop(target, gateway.process)?;
        output::json_or(*json, &EndedJson::gateway(&gateway), |ended| {
            output::line(format_args!(
                "stopped {target} (pid {}): the other hosts cannot reach host {host}, and exclude it until it is started again",
                ended.pid
            ))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut observer, snapshot) = locate(root, cluster, target)?;
    let process = find(&snapshot, target, &gateway_names(root, cluster))
        .map_err(|none| elsewhere(root, &observer, &snapshot, (target, "stop")).unwrap_or(none))?;
    let departure = Departure::of(root, cluster, process.name)?;
    ending::stop(process.name.as_str(), process.process)?;
    // Whether it left or just ended, because no majority let it go, is in the newest view.
    let (name, who) = (process.name, process.incarnation);
    let after = observer.snapshot();
    let departed = after.view.iter().flat_map(|view| &view.departed);
    let left = departed.filter(|d| d.left).any(|d| d.incarnation == who);
    let how = if left { "it left the cluster" } else { "it ended without leaving" };
    output::json_or(*json, &EndedJson::member(process, Some(left)), |ended| {
        output::line(format_args!("stopped {name} (pid {}, incarnation {who}): {how}", ended.pid))
    })?;
    let orphans = after.all_processes().filter(|p| p.seat != 0 && p.region == process.region);
    let orphans: Vec<&str> =
        orphans.filter(|p| p.lost_agent(&after) && !p.left).map(|p| p.name.as_str()).collect();
    if process.kind == Kind::Agent && !orphans.is_empty() {
        let them = orphans.join(", ");
        output::remark(format_args!(
            "obol: {them} cannot act without {name}: start it again, or stop {them} as well"
        ))?;
    }
    let lost = (process.kind == Kind::Coordinator).then(|| coordinator::lost_majority(&after)).flatten();
    if let Some(lost) = lost {
        output::remark(lost)?;
    }
    if let Some(warning) = departure.and_then(Departure::warning) {
        output::remark(format_args!("obol: {warning}"))?;
    }
    // The others take what they did not agree to for a failure, and pay for a failover.
    Ok(if left { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn start(
    root: &Path,
    cluster: Name,
    Target { target, json }: &Target,
) -> Result<ExitCode, Failure> {
    Cluster::open(root, cluster).map_err(Failure::refused)?;
    if let Ok(site) = Site::open(root, cluster)
        && site.deployment.is_prepared()
    {
        return Err(started_by_others(&site.deployment, target));
    }
    let dir = control::supervised(root, cluster);
    let pid =
        control::request(&dir, &Request::Start { name: target.to_owned() }).map_err(Failure::refused)?;
    let pid = pid.unwrap_or(0);
    let say = |in_place| {
        output::json_or(*json, &StartedJson { name: target, pid, in_place }, |started| {
            output::line(format_args!("started {target} (pid {})", started.pid))
        })
    };
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
            say(true)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !is_running(pid) {
            return Err(Failure::Failed(why(&dir, target)));
        }
        if Instant::now() > end {
            say(false)?;
            let agent = observers.first().and_then(|observer| observer.deployment().agent_of(target));
            let lives = |name: &str| alive.iter().any(|p| p.name.as_str() == name);
            let why = match agent.filter(|agent| !lives(agent)) {
                Some(agent) => format!("it waits for its agent: `obol start {agent}`"),
                None => "see `obol status`".to_owned(),
            };
            output::remark(format_args!(
                "obol: {target} is not a member yet after {} s; {why}",
                START_TIMEOUT.as_secs()
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Refuses a name that a live process has, of this host (where the one that is to be started claims it for
/// itself) or of another one.
pub(crate) fn unused(root: &Path, cluster: Name, name: &str) -> Result<(), Failure> {
    let name = Name::new(name).map_err(Failure::refused)?;
    let here = Cluster::open(root, cluster).map_err(Failure::refused)?;
    drop(NameClaim::reserve(&here, name).map_err(Failure::refused)?);
    unused_elsewhere(root, cluster, name)
}

/// Refuses a name that a live process of another host has: claims of names reach as far as a host.
pub(crate) fn unused_elsewhere(root: &Path, cluster: Name, name: Name) -> Result<(), Failure> {
    let refusal = refusal_of(root, cluster, name, |_| true)?;
    refusal.map_or(Ok(()), |refusal| Err(Failure::Refused(refusal)))
}

/// The refusal of a name that a member of another host has, which is alive.
pub(crate) fn refusal_by_member(root: &Path, cluster: Name, name: Name) -> Result<Option<String>, Failure> {
    // Others that wait for the name do not have it.
    refusal_of(root, cluster, name, |holder| holder.incarnation != Incarnation::NONE)
}

/// The refusal of a name that a live process of another host has, which also `is_holder`.
fn refusal_of(
    root: &Path,
    cluster: Name,
    name: Name,
    is_holder: impl Fn(&Process) -> bool,
) -> Result<Option<String>, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let seen = observer.snapshot();
    let here = |other: &Process| seen.processes.iter().any(|here| here.process == other.process);
    let mut namesakes = seen.all_processes().filter(|other| other.alive && other.name == name);
    let holder = namesakes.find(|other| is_holder(other) && !here(other));
    Ok(holder.map(|holder| format!("{name} runs already (pid {} of another host)", holder.process.pid)))
}

/// Why a process that was started has ended, as its supervisor knows it.
pub(crate) fn why(dir: &Path, target: &str) -> String {
    match control::request(dir, &Request::Why { name: target.to_owned() }) {
        Err(ControlError::Refused(reason)) => reason,
        Err(error) => format!("{target} ended at once, and why is not known: {error}"),
        Ok(_) => format!("{target} ended at once"),
    }
}

/// Whether a process runs; one that has ended and was not reaped does not.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Ends the cluster by its supervisor if there is one, and by killing its processes if there is
/// none; then removes what is left.
pub(crate) fn down(root: &Path, cluster: Name, json: bool) -> Result<ExitCode, Failure> {
    if let Ok(site) = Site::open(root, cluster)
        && site.deployment.is_prepared()
    {
        return Err(Failure::Refused(prepared(&root.join(cluster.as_str()), cluster)));
    }
    // All are opened first: one supervisor removes the directories of all, and knows only the processes
    // that it has started.
    let further: Vec<_> =
        further_hosts(root, cluster).into_iter().map(|name| (name, Cluster::open(root, name))).collect();
    end_cluster(root, cluster, Cluster::open(root, cluster), (false, json))?;
    for (name, opened) in further {
        end_cluster(root, name, opened, (true, json))?;
    }
    logging::retire();
    Ok(ExitCode::SUCCESS)
}

/// Why `down` does not end a host that `obol host prepare` has set up.
fn prepared(dir: &Path, cluster: Name) -> String {
    format!(
        "cluster {cluster} has several hosts, and `obol host prepare` has set this one up: {} holds the votes of its \
         coordinators, which cannot vote again without it. To take this host out of the cluster, replace its \
         coordinators (`obol coordinator replace --help`), stop its processes with their supervisor, and remove the \
         directory with `obol host clean FILE`, where FILE is the file of hosts",
        dir.display()
    )
}

/// Ends a cluster on one host. One that `was_there` when the command began may be gone by now: its
/// supervisor ends it on all hosts.
fn end_cluster(
    root: &Path,
    cluster: Name,
    opened: Result<Cluster, HostError>,
    (was_there, json): (bool, bool),
) -> Result<(), Failure> {
    let opened = match opened {
        Ok(opened) => Some(opened),
        // Whatever is wrong with the table, its supervisor can still be asked and its files
        // removed.
        Err(error @ (HostError::Version { .. } | HostError::Corrupt { .. })) => {
            output::remark(format_args!("obol: {error}; removing its files"))?;
            None
        }
        // A directory without a table is what is left of an `up` or `down` that was killed.
        Err(HostError::NotFound { .. }) if was_there || root.join(cluster.as_str()).exists() => None,
        Err(error) => return Err(Failure::refused(error)),
    };
    let mut kept = None;
    // If it is gone by now, another command has ended the cluster.
    if let Ok(directory) = Directory::open(root, cluster) {
        ask_to_end(&directory)?;
        if let Some(opened) = &opened {
            kill_all(opened)?;
        }
        directory.remove().map_err(|error| match error {
            HostError::Unsafe { .. } => Failure::refused(error),
            error => Failure::failed(error),
        })?;
        if directory.is_there() {
            let path = directory.path().display().to_string();
            output::remark(format_args!("obol: {path} was not made by obol and stays"))?;
            kept = Some(path);
        }
    } else if let Some(opened) = &opened {
        kill_all(opened)?;
    }
    saved::end(root, cluster)
        .map_err(|error| Failure::Failed(format!("cannot remove saved views: {error}")))?;
    output::json_or(json, &DownJson { cluster, kept }, |_| {
        output::line(format_args!("cluster {cluster} is down"))
    })?;
    Ok(())
}

/// Asks the supervisor to end the cluster, and waits until it has.
fn ask_to_end(directory: &Directory) -> Result<(), Failure> {
    let end = Instant::now() + DOWN_TIMEOUT;
    let mut slow = Slow::new();
    loop {
        match ask_to_stop(directory, &mut slow) {
            Ok(_) => break,
            // An `up` that has just begun does not listen yet, and one that ends does not listen
            // any more.
            Err(ControlError::NoSupervisor(_)) if directory.is_held() && Instant::now() < end => {
                slow.report(|| {
                    "an `obol up` that holds the cluster's directory and does not listen".to_owned()
                })?;
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(ControlError::NoSupervisor(_)) => return Ok(()),
            Err(error) => {
                output::remark(format_args!("obol: {error}; killing its processes"))?;
                return Ok(());
            }
        }
    }
    // A directory that others made stays, and has other files for a moment after its table is gone.
    while Instant::now() < end && (directory.holds_cluster() || directory.is_held()) {
        slow.report(|| format!("the `obol up` to remove {}", directory.path().display()))?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The supervisor answers when all processes have ended. Reports what it waits for.
fn ask_to_stop(directory: &Directory, slow: &mut Slow) -> Result<Option<u32>, ControlError> {
    let path = directory.path();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| control::request_within(&path, &Request::Stop, DOWN_TIMEOUT));
        let asked = Instant::now();
        while !asking.is_finished() {
            // One that does not listen refuses at once.
            if asked.elapsed() >= REPORT_AFTER {
                // It waits whether or not this is read.
                let _ = slow.report(|| "the `obol up` to end the cluster's processes".to_owned());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // A panic has been reported already.
        asking.join().unwrap_or_else(|_| Err(ControlError::NoSupervisor(path.join(control::SOCKET))))
    })
}

/// Says once, when it takes long, what is waited for.
struct Slow {
    began: Instant,
    reported: bool,
}

impl Slow {
    fn new() -> Self {
        Self { began: Instant::now(), reported: false }
    }

    fn report(&mut self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        if !self.reported && self.began.elapsed() >= REPORT_AFTER {
            self.reported = true;
            output::remark(format_args!(
                "obol: waiting for {}, {} s at most",
                what(),
                DOWN_TIMEOUT.as_secs()
            ))?;
        }
        Ok(())
    }
}

/// Kills every process of a cluster and waits until all have ended.
fn kill_all(cluster: &Cluster) -> Result<(), Failure> {
    let end = Instant::now() + DOWN_TIMEOUT;
    let mut slow = Slow::new();
    loop {
        let mut live = Vec::new();
        // A drill that runs beside the cluster is not of it.
        let own = |info: &RegionInfo| Kind::from_number(info.kind).is_some() || info.is_gateway();
        for info in cluster.regions().into_iter().filter(own) {
            let mut processes = vec![(info.name, info.process)];
            if let Ok(region) = obol_fabric::host::Observed::open(cluster, info.number) {
                let seats = 1..cluster.layout().limits().seats as u16;
                let seats = seats.filter_map(|seat| region.reader().seat(seat));
                processes.extend(seats.map(|seat| (seat.name, seat.process)));
            }
            for (name, process) in processes {
                // Who is gone already needs no killing.
                let Ok(held) = process.hold() else { continue };
                let killed = held.kill();
                if !held.has_ended() {
                    let why = killed.err().map_or(String::new(), |error| format!(": {error}"));
                    live.push(format!("{name} (pid {}{why})", process.pid));
                }
            }
        }
        if live.is_empty() {
            return Ok(());
        }
        live.dedup();
        if Instant::now() >= end {
            return Err(Failure::Failed(format!(
                "killed {} s ago, these have not ended: {}. The kernel holds them: in a frozen control group, or in a \
                 device or file system that does not answer. The cluster's directory stays; run `obol down` again when they have ended",
                DOWN_TIMEOUT.as_secs(),
                live.join(", ")
            )));
        }
        slow.report(|| live.join(", "))?;
        std::thread::sleep(POLL_INTERVAL);
    }
}
