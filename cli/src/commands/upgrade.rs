//! `obol upgrade`: restarts the daemons of this host one at a time, and stops on trouble.

use crate::{alone, signals};
use clap::Args;
use obol_chaos::control;
use obol_config::duration;
use obol_fabric::host;
use obol_fabric::identity::Duty;
use obol_fabric::{Incarnation, Name, Release, Version};
use obol_membership::Kind;
use obol_node::{FileLock, Site};
use obol_observe::{Health, Observer, Process, RunningGateway, Snapshot, examine_keys};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::process::{Command, ExitCode};
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

/// Restart the daemons of this host that are of another version, one at a time
#[derive(Debug, Args)]
#[command(
    after_help = "Run it on one host after another, as the user of the daemons, once the new version is installed there. It restarts \
gateway, lease caches, agents and coordinators in this order, the leader last, waits after each until it is a member of the new \
version and the cluster is healthy, and stops with exit code 1 if that takes too long, or on Ctrl-C once the restart that is \
under way has ended; run again, it goes on with what is left. The cluster must be healthy at the beginning. What would keep a new \
daemon from its place (the release, the memory of a coordinator, the keys of the host) is tried before the first stop, and by --plan. \
One upgrade of a host runs at a time. Programs are restarted by their owners; it names those of an older version, and daemons that do not run.\n\
\nUntil the last member is upgraded the cluster works as the older release does, and can be brought back to it; see docs/upgrade.md.\n\
\nExample: obol upgrade --restart 'sudo systemctl restart \"$OBOL_UNIT\"'"
)]
pub(crate) struct Upgrade {
    /// Print what would be restarted, in order, and restart nothing
    #[arg(long)]
    plan: bool,
    /// Restart daemons of this version, too
    #[arg(long)]
    all: bool,
    /// The command that restarts a daemon, for sh; $OBOL_NAME, $OBOL_KIND and $OBOL_UNIT say which
    /// [default: systemctl restart "$OBOL_UNIT"]; a cluster of `obol up` has no units, and needs one
    /// like 'obol stop "$OBOL_NAME" && obol start "$OBOL_NAME"'
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Stop if a daemon is not back, or the cluster not healthy, for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::argument)]
    within: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
struct Step {
    #[serde(serialize_with = "as_text")]
    name: Name,
    kind: Daemon,
    unit: String,
    /// The version that it is of before.
    from: String,
    #[serde(skip)]
    before: Life,
    leads: bool,
    /// From the restart until it was back and the cluster healthy.
    took_s: Option<f64>,
}

/// Distinguishes a daemon from its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// That of a member.
    Member(Incarnation),
    /// That of a gateway, which is none.
    Gateway(host::Process),
}

/// A program that others have to restart.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Program {
    #[serde(serialize_with = "as_text")]
    name: Name,
    version: String,
}

fn as_text<S: serde::Serializer>(name: &Name, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name.as_str())
}

/// What is done, or would be.
#[derive(Serialize)]
struct Report<'a> {
    to: String,
    /// The release whose formats and behaviour all members understand.
    release: Option<String>,
    steps: &'a [Step],
    programs: &'a [Program],
    /// Units of daemons of this host that do not run.
    stopped: &'a [String],
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
        let (from, before) = (process.version.to_string(), Life::Member(process.incarnation));
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
        let (unit, from, before) = ("obol-gateway".to_owned(), version.to_string(), Life::Gateway(process));
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
        Life::Member(before) => before,
        Life::Gateway(before) => {
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

/// Waits until something holds in a healthy cluster, and has held for the time `steady`; if it does
/// not in time, or a signal comes first, says why.
fn until(
    observer: &mut Observer,
    (within, steady): (Duration, Duration),
    what: &str,
    stop: &AtomicBool,
    holds: impl Fn(&Observer, &Snapshot) -> bool,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut since = None;
    loop {
        let snapshot = observer.snapshot();
        let held = holds(observer, &snapshot);
        if held && snapshot.health == Health::Healthy {
            if since.get_or_insert_with(Instant::now).elapsed() >= steady {
                return Ok(());
            }
        } else {
            since = None;
        }
        let is_over = start.elapsed() >= within;
        if is_over || stop.load(Ordering::Relaxed) {
            let why = match (held, since) {
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
    let cluster = site.cluster.name();
    let refused = |why: String| Failure::Refused(format!("nothing was stopped: {why}"));
    if let Some(view) = &snapshot.view {
        let own = Release::own();
        if let Some(spoken) = view.release().filter(|spoken| !spoken.admits(own)) {
            let advice = own.advice(spoken);
            return Err(refused(format!(
                "cluster {cluster} speaks {spoken} and admits no {own} any more: {advice}"
            )));
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

/// Keeps other upgrades from this host until it is dropped: two would each find the cluster healthy, and
/// then stop a coordinator each.
fn lock(dir: &Path) -> Result<FileLock, Failure> {
    alone::lock(dir, LOCK, "another `obol upgrade` restarts the daemons of this host; wait for its end")
}

fn restart(step: &Step, command: &str, json: bool) -> Result<(), Failure> {
    let kind = serde_json::to_value(step.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("OBOL_NAME", step.name.as_str());
    shell.env("OBOL_KIND", kind).env("OBOL_UNIT", &step.unit);
    if json {
        // Standard output is for the report alone.
        shell.stdout(std::io::stderr());
    }
    let status = shell.status().map_err(Failure::failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`{command}` for {} ended with {status}", step.unit)))
}

fn show(
    steps: &[Step],
    programs: &[Program],
    stopped: &[String],
    release: Option<Release>,
) -> Result<(), Failure> {
    if steps.is_empty() {
        let running = if stopped.is_empty() { "" } else { " that run" };
        output::line(format_args!("all daemons of this host{running} are of {}", Version::own()))?;
    }
    for (n, step) in (1..).zip(steps) {
        let leads = if step.leads { ", which leads" } else { "" };
        output::line(format_args!("{n}. {} {} -> {}{leads}", step.unit, step.from, Version::own()))?;
    }
    for Program { name, version } in programs {
        output::line(format_args!("{name} is linked with {version}: restart it after its agent"))?;
    }
    for unit in stopped {
        output::line(format_args!("{unit} does not run; start it, or leave it if that is intended"))?;
    }
    if let Some(release) = release {
        output::line(format_args!("the cluster speaks {release}"))?;
    }
    Ok(())
}

/// Restarts all of them. What is left is named when one fails.
fn restart_all(
    observer: &mut Observer,
    args: &Upgrade,
    command: &str,
    stop: &AtomicBool,
    steps: &mut [Step],
) -> Result<(), Failure> {
    for at in 0..steps.len() {
        let Some(step) = steps.get(at).cloned() else { break };
        let begun = Instant::now();
        let member = if step.kind == Daemon::Gateway { "" } else { "a member and " };
        let what = format!("{} is not back: {member}of version {}", step.name, Version::own());
        // Other hosts that could not reach the gateway meanwhile may still exclude this one.
        let silence = observer.deployment().profile.ip.detection.to_std();
        let steady = if step.kind == Daemon::Gateway { silence } else { Duration::ZERO };
        let done = restart(&step, command, args.json).and_then(|()| {
            until(observer, (args.within, steady), &what, stop, |observer, snapshot| {
                is_back(&step, RunningGateway::find(observer.cluster()), snapshot)
            })
        });
        if let Err(Failure::Failed(why)) = done {
            let why = format!("{}: {why}; see `obol logs {} --since 5m`", step.unit, step.name);
            return Err(Failure::Failed(left(&why, steps, at)));
        }
        done?;
        let took_s = begun.elapsed().as_secs_f64();
        if !args.json {
            output::line(format_args!("{}: back, and the cluster healthy, after {took_s:.3} s", step.unit))?;
        }
        if let Some(step) = steps.get_mut(at) {
            step.took_s = Some(took_s);
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

pub(crate) fn run(root: &Path, cluster: Name, args: &Upgrade) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let _one = if args.plan { None } else { Some(lock(site.cluster.dir())?) };
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let mut steps = plan(&snapshot, RunningGateway::find(observer.cluster()), args.all);
    let mut release = snapshot.view.as_ref().and_then(|view| view.release());
    let mut programs = programs(&snapshot);
    let mut stopped = stopped(&snapshot, observer.deployment().own_host());
    if !args.plan {
        try_starts(&site, &snapshot, &steps)?;
        let stop = signals::ending()?;
        let command = match &args.restart {
            Some(command) => command.clone(),
            None if control::supervised(root, cluster).join(control::SOCKET).exists() => {
                return Err(Failure::Refused(format!(
                    "cluster {cluster} was started by `obol up`, and has no units of systemd to restart; say how: \
                     --restart 'obol stop \"$OBOL_NAME\" && obol start \"$OBOL_NAME\"'"
                )));
            }
            None => SYSTEMD.to_owned(),
        };
        if !steps.is_empty() {
            // A view change makes it look otherwise for a moment.
            let within = args.within.min(START_TIMEOUT);
            until(&mut observer, (within, Duration::ZERO), "", &stop, |_, _| true).map_err(|why| {
                let why = format!("cluster {cluster} is not healthy, and a restart may make it worse: {why}");
                Failure::Refused(why)
            })?;
        }
        restart_all(&mut observer, args, &command, &stop, &mut steps)?;
        let snapshot = observer.snapshot();
        release = snapshot.view.as_ref().and_then(|view| view.release());
        programs = self::programs(&snapshot);
        stopped = self::stopped(&snapshot, observer.deployment().own_host());
    }
    if args.json {
        let (to, release) = (Version::own().to_string(), release.map(|release| release.to_string()));
        output::json(&Report { to, release, steps: &steps, programs: &programs, stopped: &stopped })?;
    } else {
        show(if args.plan { &steps } else { &[] }, &programs, &stopped, release)?;
    }
    if args.plan {
        try_starts(&site, &snapshot, &steps)?;
    }
    Ok(ExitCode::SUCCESS)
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
