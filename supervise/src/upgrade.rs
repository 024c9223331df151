//! Restarts the daemons of this host one at a time, and stops on trouble.

use crate::{alone, control, signals};
use obol_fabric::host;
use obol_fabric::{Incarnation, Name, Release, Version};
use obol_identity::Duty;
use obol_membership::{Kind, View};
use obol_node::{FileLock, Site};
use obol_observe::{Health, Observer, Process, RunningGateway, Snapshot, examine_keys};
use obol_term::output::Failure;
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the cluster is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long it may take until the cluster is healthy before the first restart.
const START_TIMEOUT: Duration = Duration::from_secs(10);

const INTERRUPTED: &str = "interrupted by a signal";

/// Its lock is held by an upgrade of this host.
const LOCK: &str = "upgrade.lock";

/// Restarts a daemon of a deployed host.
const SYSTEMD: &str = "systemctl restart \"$OBOL_UNIT\"";

/// How daemons are restarted.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Whether daemons of this version are restarted, too.
    pub all: bool,
    /// The command that restarts a daemon, for sh; else that of systemd.
    pub restart: Option<&'a str>,
    /// How long a daemon may take to come back, and the cluster to be healthy.
    pub within: Duration,
    /// Whether standard output is for a report alone, so that the commands write to standard error.
    pub quiet: bool,
}

/// What is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Daemon {
    Gateway,
    LeaseCache,
    Agent,
    Coordinator,
}

impl Daemon {
    /// What its host's certificate has to allow.
    const fn duty(self) -> Duty {
        match self {
            Self::Gateway => Duty::Gateway,
            Self::LeaseCache => Duty::Cache,
            Self::Agent => Duty::Agent,
            Self::Coordinator => Duty::Coordinator,
        }
    }
}

/// One restart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    #[serde(serialize_with = "as_text")]
    name: Name,
    kind: Daemon,
    /// The unit of systemd that it is.
    pub unit: String,
    /// The version that it is of before.
    pub from: String,
    #[serde(skip)]
    before: DaemonId,
    pub leads: bool,
    /// From the restart until it was back and the cluster healthy.
    pub took_s: Option<f64>,
}

/// Distinguishes a daemon from its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonId {
    Member(Incarnation),
    /// That of a gateway, which is none.
    Gateway(host::Process),
}

/// A program that others have to restart.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    #[serde(serialize_with = "as_text")]
    pub name: Name,
    /// The version that it is linked with.
    pub version: String,
}

fn as_text<S: serde::Serializer>(name: &Name, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name.as_str())
}

/// What was done, or would be, as scripts read it.
#[derive(Debug, Serialize)]
pub struct Report {
    to: String,
    /// The release whose formats and behaviour all members understand.
    #[serde(serialize_with = "as_optional_text")]
    pub release: Option<Release>,
    /// The restarts.
    pub steps: Vec<Step>,
    /// Programs that are linked with another version.
    pub programs: Vec<Program>,
    /// Units of daemons of this host that do not run.
    pub stopped: Vec<String>,
}

impl Report {
    fn of(steps: Vec<Step>, snapshot: &Snapshot, own_host: u8) -> Self {
        Self {
            to: Version::own().to_string(),
            release: snapshot.view.as_ref().and_then(|view| view.release()),
            steps,
            programs: programs(snapshot),
            stopped: stopped(snapshot, own_host),
        }
    }
}

fn as_optional_text<S: serde::Serializer>(release: &Option<Release>, to: S) -> Result<S::Ok, S::Error> {
    release.map(|release| release.to_string()).serialize(to)
}

/// The number of a coordinator.
fn number_of(name: Name) -> Option<u16> {
    name.as_str().strip_prefix("coord-")?.parse().ok()
}

/// The daemon that a process is, and its unit; `None` for a program.
fn unit(process: &Process) -> Option<(Daemon, String)> {
    let name = process.name;
    match process.kind {
        Kind::Coordinator => {
            let number = number_of(name)?;
            Some((Daemon::Coordinator, format!("obol-coordinator@{number}")))
        }
        Kind::LeaseCache => Some((Daemon::LeaseCache, format!("obol-cache@{name}"))),
        Kind::Agent => Some((Daemon::Agent, format!("obol-agent@{name}"))),
        Kind::App => None,
    }
}

impl Step {
    fn of(process: &Process, leader: Option<Name>) -> Option<Self> {
        let name = process.name;
        let (kind, unit) = unit(process)?;
        let leads = kind == Daemon::Coordinator && leader == Some(name);
        let (from, before) = (process.version.to_string(), DaemonId::Member(process.incarnation));
        Some(Self { name, kind, unit, from, before, leads, took_s: None })
    }

    /// Later ones are restarted later.
    const fn order(&self) -> (u8, bool) {
        (self.kind as u8, self.leads)
    }
}

/// The daemons of this host that are not of this version, or all, in the order of their restarts.
fn plan(snapshot: &Snapshot, gateway: Option<RunningGateway>, all: bool) -> Vec<Step> {
    let own = Version::own();
    let leader = snapshot.leader_name();
    let daemons = snapshot.processes.iter().filter(|p| p.alive && p.seat == 0 && (all || p.version != own));
    let mut steps: Vec<Step> = daemons.filter_map(|p| Step::of(p, leader)).collect();
    if let Some(RunningGateway { name, process, version }) =
        gateway.filter(|found| all || found.version != own)
    {
        let (unit, from, before) =
            ("obol-gateway".to_owned(), version.to_string(), DaemonId::Gateway(process));
        steps.push(Step { name, kind: Daemon::Gateway, unit, from, before, leads: false, took_s: None });
    }
    steps.sort_by_key(Step::order);
    steps
}

/// Programs of this host that are linked with another version.
fn programs(snapshot: &Snapshot) -> Vec<Program> {
    let of_other = |p: &&Process| p.alive && p.kind == Kind::App && p.version != Version::own();
    let program = |p: &Process| Program { name: p.name, version: p.version.to_string() };
    snapshot.processes.iter().filter(of_other).map(program).collect()
}

/// Units of daemons of this host that do not run: what an upgrade that was interrupted may have left, or
/// an operator has stopped.
fn stopped(snapshot: &Snapshot, own_host: u8) -> Vec<String> {
    let daemons = snapshot.processes.iter().filter(|p| p.host == own_host && p.seat == 0);
    let runs = |p: &Process| snapshot.process(p.name.as_str()).is_some();
    daemons.filter(|p| !runs(p)).filter_map(|p| Some(unit(p)?.1)).collect()
}

/// Whether a restarted daemon is back: another life, of this version, and a member unless it is a
/// gateway.
fn is_back(step: &Step, gateway: Option<RunningGateway>, snapshot: &Snapshot) -> bool {
    let before = match step.before {
        DaemonId::Member(before) => before,
        DaemonId::Gateway(before) => {
            return gateway.is_some_and(|now| now.version == Version::own() && now.process != before);
        }
    };
    snapshot.process(step.name.as_str()).is_some_and(|p| {
        p.version == Version::own()
            && p.incarnation > before
            && snapshot.is_member(p)
            // A coordinator has no lease; all others are of use only with one.
            && (step.kind != Daemon::Agent || p.is_active(snapshot.at))
    })
}

/// Since when something has held in a healthy cluster.
#[derive(Default)]
struct Settled(Option<Instant>);

impl Settled {
    /// Takes a look; returns whether it has held for this time.
    fn look(&mut self, held: bool, health: Health, now: Instant, steady: Duration) -> bool {
        if !held || health != Health::Healthy {
            self.0 = None;
            return false;
        }
        now.duration_since(*self.0.get_or_insert(now)) >= steady
    }
}

/// Waits until something holds in a healthy cluster, and has held for the time `steady`; if it does
/// not in time, or a signal comes first, says why.
fn until(
    observer: &mut Observer,
    within: Duration,
    steady: Duration,
    what: &str,
    stop: &AtomicBool,
    holds: impl Fn(&Observer, &Snapshot) -> bool,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut settled = Settled::default();
    loop {
        let snapshot = observer.snapshot();
        let held = holds(observer, &snapshot);
        if settled.look(held, snapshot.health, Instant::now(), steady) {
            return Ok(());
        }
        let is_over = start.elapsed() >= within;
        if is_over || stop.load(Ordering::Relaxed) {
            let why = match (held, settled.0) {
                (false, _) => what.to_owned(),
                (true, None) => snapshot.reasons.join("; "),
                (true, Some(_)) => "the cluster has not been healthy for long enough".to_owned(),
            };
            let when =
                if is_over { format!("after {} s", within.as_secs_f64()) } else { INTERRUPTED.to_owned() };
            return Err(Failure::Failed(format!("{when}: {why}")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Tries, before anything is stopped, what the new daemons would be refused for. That the cluster can be
/// opened has shown that its profile and the parameters of this host can be read.
fn try_starts(site: &Site, snapshot: &Snapshot, steps: &[Step]) -> Result<(), Failure> {
    if steps.is_empty() {
        return Ok(());
    }
    let refused = |why: String| Failure::Refused(format!("nothing was stopped: {why}"));
    if let Some(view) = &snapshot.view {
        if let Some(why) = not_admitted(site.cluster.name(), view) {
            return Err(refused(why));
        }
        for step in steps.iter().filter(|step| step.kind == Daemon::Coordinator) {
            if let Some(number) = number_of(step.name) {
                let tried = site.require_votes(number, view);
                tried.map_err(|error| refused(format!("{} would not start again: {error}", step.name)))?;
            }
        }
    }
    let network = site.deployment.network.as_ref();
    let Some((network, keys)) = network.and_then(|network| Some((network, network.keys()?))) else {
        return Ok(());
    };
    let duties: Vec<Duty> = steps.iter().map(|step| step.kind.duty()).collect();
    let (valid_for, fault) = examine_keys(keys, network, &duties);
    let fault = fault.or_else(|| valid_for.is_none().then(|| "the certificate is not valid now".to_owned()));
    match fault {
        Some(fault) => Err(refused(format!(
            "the new daemons could not connect to other hosts by the keys in {}: {fault}",
            keys.display()
        ))),
        None => Ok(()),
    }
}

/// Why the cluster admits no new process of this program; `None` if it does.
pub(crate) fn not_admitted(cluster: Name, view: &View) -> Option<String> {
    let own = Release::own();
    let spoken = view.release().filter(|spoken| !spoken.admits(own))?;
    let advice = own.advice(spoken);
    Some(format!("cluster {cluster} speaks {spoken} and admits no {own} any more: {advice}"))
}

/// Keeps other upgrades from this host until it is dropped: two would each find the cluster healthy, and
/// then stop a coordinator each.
fn lock(dir: &Path) -> Result<FileLock, Failure> {
    alone::lock(dir, LOCK, "another `obol upgrade` restarts the daemons of this host; wait for its end")
}

fn restart(step: &Step, command: &str, quiet: bool) -> Result<(), Failure> {
    let kind = serde_json::to_value(step.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("OBOL_NAME", step.name.as_str());
    shell.env("OBOL_KIND", kind).env("OBOL_UNIT", &step.unit);
    if quiet {
        // Standard output is for the report alone.
        shell.stdout(std::io::stderr());
    }
    let status = shell.status().map_err(Failure::failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`{command}` for {} ended with {status}", step.unit)))
}

/// Restarts all of them. What is left is named when one fails.
fn restart_all(
    observer: &mut Observer,
    options: &Options<'_>,
    command: &str,
    stop: &AtomicBool,
    steps: &mut [Step],
    mut on_back: impl FnMut(&Step) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for at in 0..steps.len() {
        let Some(step) = steps.get(at).cloned() else { break };
        let begun = Instant::now();
        let member = if step.kind == Daemon::Gateway { "" } else { "a member and " };
        let what = format!("{} is not back: {member}of version {}", step.name, Version::own());
        // Other hosts that could not reach the gateway meanwhile may still exclude this one.
        let silence = observer.deployment().profile.ip.detection.to_std();
        let steady = if step.kind == Daemon::Gateway { silence } else { Duration::ZERO };
        let done = restart(&step, command, options.quiet).and_then(|()| {
            until(observer, options.within, steady, &what, stop, |observer, snapshot| {
                is_back(&step, RunningGateway::find(observer.cluster()), snapshot)
            })
        });
        if let Err(Failure::Failed(why)) = done {
            let why = format!("{}: {why}; see `obol logs {} --since 5m`", step.unit, step.name);
            return Err(Failure::Failed(left(&why, steps, at)));
        }
        done?;
        if let Some(step) = steps.get_mut(at) {
            step.took_s = Some(begun.elapsed().as_secs_f64());
            on_back(step)?;
        }
        if stop.load(Ordering::Relaxed) && at + 1 < steps.len() {
            return Err(Failure::Failed(left(INTERRUPTED, steps, at)));
        }
    }
    Ok(())
}

/// Why it ends with this step, and what it has not restarted.
fn left(why: &str, steps: &[Step], at: usize) -> String {
    let left: Vec<&str> = steps.iter().skip(at + 1).map(|step| step.unit.as_str()).collect();
    if left.is_empty() {
        return format!("{why}; not restarted: nothing");
    }
    format!(
        "{why}; not restarted: {}; `obol upgrade` goes on with what is of another version",
        left.join(", ")
    )
}

/// What an upgrade of this host would do, and what would keep a new daemon from its place.
pub fn plan_of(root: &Path, cluster: Name, all: bool) -> Result<(Report, Result<(), Failure>), Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let steps = plan(&snapshot, RunningGateway::find(observer.cluster()), all);
    let tried = try_starts(&site, &snapshot, &steps);
    Ok((Report::of(steps, &snapshot, observer.deployment().own_host()), tried))
}

/// Restarts the daemons of this host, and says which is back.
pub fn upgrade(
    root: &Path,
    cluster: Name,
    options: &Options<'_>,
    on_back: impl FnMut(&Step) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let _one = lock(site.cluster.dir())?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let mut steps = plan(&snapshot, RunningGateway::find(observer.cluster()), options.all);
    try_starts(&site, &snapshot, &steps)?;
    let stop = signals::ending()?;
    let command = match options.restart {
        Some(command) => command,
        None if control::supervised(&site.cluster).join(control::SOCKET).exists() => {
            return Err(Failure::Refused(format!(
                "cluster {cluster} was started by `obol up`, and has no units of systemd to restart; say how: \
                 --restart 'obol stop \"$OBOL_NAME\" && obol start \"$OBOL_NAME\"'"
            )));
        }
        None => SYSTEMD,
    };
    if !steps.is_empty() {
        // A view change makes it look otherwise for a moment.
        let within = options.within.min(START_TIMEOUT);
        until(&mut observer, within, Duration::ZERO, "", &stop, |_, _| true).map_err(|why| {
            let why = format!("cluster {cluster} is not healthy, and a restart may make it worse: {why}");
            Failure::Refused(why)
        })?;
    }
    restart_all(&mut observer, options, command, &stop, &mut steps, on_back)?;
    let snapshot = observer.snapshot();
    Ok(Report::of(steps, &snapshot, observer.deployment().own_host()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Address;
    use obol_membership::View;
    use obol_membership::view::coordinator_name;
    use std::sync::Arc;

    /// A gateway of an older version, as the process of this pid.
    fn gateway(pid: u32) -> RunningGateway {
        let (name, process) = (Name::new("gateway").expect("a name"), host::Process { pid, started: 8 });
        RunningGateway { name, process, version: Version::default() }
    }

    #[test]
    fn a_cluster_is_healthy_again_only_if_it_was_for_long_enough_with_the_process_back() {
        let (begun, steady) = (Instant::now(), Duration::from_secs(2));
        let mut settled = Settled::default();
        let mut look = |held, health, at| settled.look(held, health, begun + Duration::from_secs(at), steady);
        assert!(!look(true, Health::Healthy, 0) && !look(true, Health::Healthy, 1));
        for health in [Health::Degraded, Health::Unavailable, Health::Unreachable, Health::Unknown] {
            assert!(!look(true, health, 9), "{health:?}");
        }
        assert!(!look(true, Health::Healthy, 10), "it counts anew");
        assert!(!look(false, Health::Healthy, 12), "the process is not back");
        assert!(!look(true, Health::Healthy, 13) && look(true, Health::Healthy, 15));
        assert!(!Settled::default().look(true, Health::Degraded, begun, Duration::ZERO));
    }

    #[test]
    fn a_gateway_is_back_when_another_process_of_this_version_runs() {
        let (at, health) = (obol_fabric::Instant(1), Health::Healthy);
        let snapshot = Snapshot {
            at,
            view: None,
            processes: Vec::new(),
            remote: Vec::new(),
            health,
            reasons: Vec::new(),
        };
        let now = |pid| Some(RunningGateway { version: Version::own(), ..gateway(pid) });
        let step = plan(&snapshot, now(7), true).remove(0);
        assert!(!is_back(&step, None, &snapshot), "it has ended");
        assert!(!is_back(&step, now(7), &snapshot), "it was not restarted");
        assert!(!is_back(&step, Some(gateway(9)), &snapshot), "it is of the older version");
        assert!(is_back(&step, now(9), &snapshot));
    }

    #[test]
    fn the_leader_is_restarted_last_and_what_is_of_this_version_not_at_all() {
        let coordinators = [1, 2].map(|n| (coordinator_name(n), Address::region(n.into())));
        let lease = obol_fabric::Nanos::from_millis(20);
        let names = [("coord-1", Kind::Coordinator), ("coord-2", Kind::Coordinator), ("node-1", Kind::Agent)];
        let names = names.into_iter().chain([("cache-1", Kind::LeaseCache), ("app-1", Kind::App)]);
        let process = |(n, (text, kind)): (u64, (&str, Kind))| {
            let name = Name::new(text).expect("a name");
            Process { alive: true, incarnation: Incarnation(n), ..Process::missing(name, kind) }
        };
        let mut snapshot = Snapshot {
            at: obol_fabric::Instant(1),
            view: Some(Arc::new(View::genesis(&coordinators, lease, lease))),
            processes: (1..).zip(names).map(process).collect(),
            remote: Vec::new(),
            health: Health::Healthy,
            reasons: Vec::new(),
        };
        let gateway = Some(gateway(7));
        let units = |snapshot: &Snapshot, all| -> Vec<String> {
            plan(snapshot, gateway, all).into_iter().map(|step| step.unit).collect()
        };
        let order = [
            "obol-gateway",
            "obol-cache@cache-1",
            "obol-agent@node-1",
            "obol-coordinator@2",
            "obol-coordinator@1",
        ];
        assert_eq!(units(&snapshot, false), order);
        assert_eq!(programs(&snapshot).len(), 1, "a program is its owner's");
        snapshot.processes.iter_mut().for_each(|p| p.version = Version::own());
        assert_eq!(units(&snapshot, false), ["obol-gateway"]);
        assert_eq!(units(&snapshot, true), order);
    }
}
