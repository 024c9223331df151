//! `obol upgrade`: restarts the daemons of this host one at a time, and stops on trouble.

use clap::Args;
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::host::{Cluster, Observed};
use obol_fabric::{Incarnation, Name, Release, Version};
use obol_membership::Kind;
use obol_observe::{Health, Observer, Process, Snapshot};
use serde::Serialize;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How often the cluster is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long it may take until the cluster is healthy before the first restart.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Restart the daemons of this host that are of another version, one at a time
#[derive(Debug, Args)]
#[command(
    after_help = "Run it on one host after another, as the user of the daemons, once the new version is installed there. It restarts \
gateway, lease caches, agents and coordinators in this order, the leader last, waits after each until it is a member of the new \
version and the cluster is healthy, and stops with exit code 1 if that takes too long. The cluster must be healthy at the \
beginning. Programs are restarted by their owners; it names those of an older version.\n\
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
    #[arg(long, value_name = "COMMAND", default_value = "systemctl restart \"$OBOL_UNIT\"")]
    restart: String,
    /// Stop if a daemon is not back, or the cluster not healthy, for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
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

/// One restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<String>,
}

/// Distinguishes a daemon from its successor: its incarnation, or the generation of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Life(u64);

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
}

impl Step {
    fn of(process: &Process, leader: Option<Name>) -> Option<Self> {
        let name = process.name;
        let (kind, unit) = match process.kind {
            Kind::Coordinator => {
                let number = name.as_str().strip_prefix("coord-")?;
                (Daemon::Coordinator, format!("obol-coordinator@{number}"))
            }
            Kind::LeaseCache => (Daemon::LeaseCache, format!("obol-cache@{name}")),
            Kind::Agent => (Daemon::Agent, format!("obol-agent@{name}")),
            Kind::App => return None,
        };
        let leads = kind == Daemon::Coordinator && leader == Some(name);
        let (from, before) = (process.version.to_string(), Life(process.incarnation.0));
        Some(Self { name, kind, unit, from, before, leads, seconds: None })
    }

    /// Later ones are restarted later.
    const fn order(&self) -> (u8, bool) {
        (self.kind as u8, self.leads)
    }
}

/// The gateway of this host: its name, version and generation.
fn gateway(cluster: &Cluster) -> Option<(Name, Version, Life)> {
    let info = cluster.gateway()?;
    let version = Observed::open(cluster, info.number).ok()?.reader().seat(0)?.version;
    Some((info.name, version, Life(info.generation.into())))
}

/// The daemons of this host that are not of this version, or all, in the order of their restarts.
fn plan(snapshot: &Snapshot, gateway: Option<(Name, Version, Life)>, all: bool) -> Vec<Step> {
    let own = Version::own();
    let leader = snapshot.leader_name();
    let daemons = snapshot.processes.iter().filter(|p| p.alive && p.seat == 0 && (all || p.version != own));
    let mut steps: Vec<Step> = daemons.filter_map(|p| Step::of(p, leader)).collect();
    if let Some((name, version, before)) = gateway.filter(|(_, version, _)| all || *version != own) {
        let (unit, from) = ("obol-gateway".to_owned(), version.to_string());
        steps.push(Step { name, kind: Daemon::Gateway, unit, from, before, leads: false, seconds: None });
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

/// Whether a restarted daemon is back: another life, of this version, and a member.
fn is_back(step: &Step, observer: &Observer, snapshot: &Snapshot) -> bool {
    if step.kind == Daemon::Gateway {
        return gateway(observer.cluster())
            .is_some_and(|(_, version, life)| version == Version::own() && life != step.before);
    }
    snapshot.process(step.name.as_str()).is_some_and(|p| {
        p.version == Version::own()
            && p.incarnation > Incarnation(step.before.0)
            && snapshot.is_member(p)
            // A coordinator has no lease; all others are of use only with one.
            && (step.kind != Daemon::Agent || p.is_active(snapshot.at))
    })
}

/// Waits until something holds in a healthy cluster; if it does not in time, says why.
fn until(
    observer: &mut Observer,
    within: Duration,
    what: &str,
    holds: impl Fn(&Observer, &Snapshot) -> bool,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let snapshot = observer.snapshot();
        let held = holds(observer, &snapshot);
        if held && snapshot.health == Health::Healthy {
            return Ok(());
        }
        if start.elapsed() >= within {
            let why = if held { snapshot.reasons.join("; ") } else { what.to_owned() };
            return Err(Failure::Failed(format!("after {} s: {why}", within.as_secs_f64())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn restart(step: &Step, command: &str) -> Result<(), Failure> {
    let kind = serde_json::to_value(step.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("OBOL_NAME", step.name.as_str());
    shell.env("OBOL_KIND", kind).env("OBOL_UNIT", &step.unit);
    let status = shell.status().map_err(Failure::failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`{command}` for {} ended with {status}", step.unit)))
}

fn show(steps: &[Step], programs: &[Program], release: Option<Release>) -> Result<(), Failure> {
    if steps.is_empty() {
        output::line(format_args!("all daemons of this host are of {}", Version::own()))?;
    }
    for (n, step) in (1..).zip(steps) {
        let leads = if step.leads { ", which leads" } else { "" };
        output::line(format_args!("{n}. {} {} -> {}{leads}", step.unit, step.from, Version::own()))?;
    }
    for Program { name, version } in programs {
        output::line(format_args!("{name} is linked with {version}: restart it after its agent"))?;
    }
    if let Some(release) = release {
        output::line(format_args!("the cluster speaks {release}"))?;
    }
    Ok(())
}

/// Restarts all of them. What is left is named when one fails.
fn restart_all(observer: &mut Observer, args: &Upgrade, steps: &mut [Step]) -> Result<(), Failure> {
    for at in 0..steps.len() {
        let Some(step) = steps.get(at).cloned() else { break };
        let begun = Instant::now();
        let what = format!("{} is not back as a member of version {}", step.name, Version::own());
        let done = restart(&step, &args.restart).and_then(|()| {
            until(observer, args.within, &what, |observer, snapshot| is_back(&step, observer, snapshot))
        });
        if let Err(Failure::Failed(why)) = done {
            let left: Vec<&str> = steps.iter().skip(at + 1).map(|step| step.unit.as_str()).collect();
            let left = if left.is_empty() { "nothing".to_owned() } else { left.join(", ") };
            return Err(Failure::Failed(format!("{}: {why}; not restarted: {left}", step.unit)));
        }
        done?;
        let seconds = format!("{:.3}", begun.elapsed().as_secs_f64());
        if !args.json {
            output::line(format_args!("{}: back, and the cluster healthy, after {seconds} s", step.unit))?;
        }
        if let Some(step) = steps.get_mut(at) {
            step.seconds = Some(seconds);
        }
    }
    Ok(())
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Upgrade) -> Result<ExitCode, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let mut steps = plan(&snapshot, gateway(observer.cluster()), args.all);
    let mut release = snapshot.view.as_ref().and_then(|view| view.release());
    let mut programs = programs(&snapshot);
    if !args.plan {
        if !steps.is_empty() {
            // A view change makes it look otherwise for a moment.
            let within = args.within.min(START_TIMEOUT);
            until(&mut observer, within, "", |_, _| true).map_err(|why| {
                let why = format!("cluster {cluster} is not healthy, and a restart may make it worse: {why}");
                Failure::Refused(why)
            })?;
        }
        restart_all(&mut observer, args, &mut steps)?;
        let snapshot = observer.snapshot();
        release = snapshot.view.as_ref().and_then(|view| view.release());
        programs = self::programs(&snapshot);
    }
    if args.json {
        let (to, release) = (Version::own().to_string(), release.map(|release| release.to_string()));
        output::json(&Report { to, release, steps: &steps, programs: &programs })?;
    } else {
        show(if args.plan { &steps } else { &[] }, &programs, release)?;
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
        let gateway = Some((Name::new("gateway").expect("a name"), Version::default(), Life(1)));
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
