//! Drills on a live cluster: kill on one cue, wait until every survivor is active without the dead, start
//! replacements, and again. Times come from the processes' own flight recorders.

use crate::control::{self, ControlError, Request};
use crate::observe::{Health, Observer, Process, Snapshot};
use crate::stats::{Distribution, Summary};
use crate::timeline::{History, Phases};
use obol_fabric::shm::clock;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::lease::lengthened;
use obol_profiles::SiteError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fmt, io, thread};

/// Between two looks at the flight recorders. The stamps do not depend on it; looking more often would only take the
/// cores from the cluster.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A failover that takes longer has failed.
const FAILOVER_TIMEOUT: Nanos = Nanos::from_secs(10);
/// A cluster that is not healthy for so long can not be drilled.
const HEALTH_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// One app, each in turn.
    App,
    /// The leading coordinator.
    Leader,
    /// A lease cache, each in turn.
    Cache,
    /// An app and the leader on one cue.
    AppAndLeader,
    /// An app and a lease cache.
    AppAndCache,
    /// All three.
    AppLeaderAndCache,
}

impl Victims {
    /// The drill's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Leader => "leader",
            Self::Cache => "cache",
            Self::AppAndLeader => "app+leader",
            Self::AppAndCache => "app+cache",
            Self::AppLeaderAndCache => "app+leader+cache",
        }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Who dies.
    pub victims: Victims,
    /// How often.
    pub count: u32,
    /// Pause after each repetition.
    pub gap: Duration,
}

/// How a drill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every repetition was measured, or was void for a reason outside the cluster.
    Passed,
    /// A failover did not end, or a member was removed that nobody had killed.
    Failed,
    /// Stopped before its end.
    Interrupted,
}

/// The machine that a drill ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }
}

/// One repetition that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Its phases.
    pub phases: Phases,
    /// What the lease rule alone would have made the survivors wait.
    pub wait: Nanos,
}

/// What a drill found. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Every repetition that was measured.
    #[serde(skip)]
    pub measurements: Vec<Measurement>,
    /// Which drill.
    pub drill: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// Repetitions that were begun.
    pub count: u32,
    /// Repetitions that could not be measured.
    pub void: u32,
    /// Members that were removed although nobody had killed them.
    pub false_suspicions: u64,
    /// Kill to the last survivor's `active`.
    pub failover_us: Summary,
    /// The same, phase by phase.
    pub phases_us: BTreeMap<&'static str, Summary>,
    /// What the lease rule alone would have made the survivors wait after the decision.
    pub lease_wait_us: f64,
    /// The cluster's profile.
    pub profile: String,
    /// The machine.
    pub host: Host,
    /// Why repetitions were void or failed, each with its number.
    pub remarks: Vec<String>,
}

/// Why a drill could not run on.
#[derive(Debug)]
pub enum DrillError {
    /// The cluster can not be observed.
    Observe(SiteError),
    /// The supervisor did not start a replacement.
    Control(ControlError),
    /// The cluster is not healthy, so nothing can be learned from breaking it further.
    NotHealthy(Vec<String>),
    /// There is nobody to kill.
    NoVictim(&'static str),
    /// A victim could not be killed.
    Kill(Name, io::Error),
}

impl fmt::Display for DrillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observe(error) => error.fmt(f),
            Self::Control(error) => error.fmt(f),
            Self::NotHealthy(reasons) => {
                write!(
                    f,
                    "the cluster is not healthy, and a drill needs it to be: {}; see `obol status`",
                    reasons.join("; ")
                )
            }
            Self::NoVictim("lease-cache") => {
                write!(f, "there is no lease cache to kill; start the cluster with `obol up --caches N`")
            }
            Self::NoVictim(what) => write!(f, "there is no {what} to kill; see `obol status`"),
            Self::Kill(name, error) => write!(f, "could not kill {name}: {error}"),
        }
    }
}

impl std::error::Error for DrillError {}

impl From<SiteError> for DrillError {
    fn from(error: SiteError) -> Self {
        Self::Observe(error)
    }
}

impl From<ControlError> for DrillError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

/// One repetition.
pub(crate) enum Outcome {
    Measured(Measurement),
    Void(String),
    Failed(String),
}

/// Runs a drill. `go_on` is called after each repetition with its number; `false` ends the drill early.
pub fn run(
    root: &Path,
    cluster: Name,
    plan: Plan,
    mut go_on: impl FnMut(u32) -> bool,
) -> Result<Report, DrillError> {
    let mut observer = Observer::open(root, cluster)?;
    let mut failover = Distribution::new();
    let mut phases: [Distribution; 6] = core::array::from_fn(|_| Distribution::new());
    let mut report = Report {
        measurements: Vec::new(),
        drill: plan.victims.name(),
        verdict: Verdict::Passed,
        count: 0,
        void: 0,
        false_suspicions: 0,
        failover_us: failover.summary(),
        phases_us: BTreeMap::new(),
        lease_wait_us: 0.0,
        profile: observer.deployment().profile.name.to_string(),
        host: Host::this(),
        remarks: Vec::new(),
    };
    for number in 1..=plan.count {
        report.count = number;
        let (outcome, strangers) = repetition(&mut observer, plan.victims, number)?;
        report.false_suspicions += strangers;
        match outcome {
            Outcome::Measured(measured) => {
                failover.add(measured.phases.total());
                for (distribution, value) in phases.iter_mut().zip(measured.phases.values()) {
                    distribution.add(value);
                }
                report.lease_wait_us = report.lease_wait_us.max(measured.wait.as_micros_f64());
                report.measurements.push(measured);
            }
            Outcome::Void(why) => {
                report.void += 1;
                report.remarks.push(format!("repetition {number} is void: {why}"));
            }
            Outcome::Failed(why) => {
                report.verdict = Verdict::Failed;
                report.remarks.push(format!("repetition {number} failed: {why}"));
                break;
            }
        }
        if !go_on(number) && number < plan.count {
            report.verdict = Verdict::Interrupted;
            break;
        }
        thread::sleep(plan.gap);
    }
    if report.false_suspicions > 0 {
        report.verdict = Verdict::Failed;
    }
    report.failover_us = failover.summary();
    report.phases_us = Phases::NAMES.into_iter().zip(phases.iter().map(Distribution::summary)).collect();
    Ok(report)
}

/// Waits until the cluster is healthy.
pub(crate) fn healthy(observer: &mut Observer) -> Result<Snapshot, DrillError> {
    let deadline = clock::now() + HEALTH_TIMEOUT;
    loop {
        let snapshot = observer.snapshot();
        if snapshot.health == Health::Healthy {
            return Ok(snapshot);
        }
        // Where nobody lives, nobody comes back.
        if clock::now() > deadline || snapshot.health == Health::Unreachable {
            return Err(DrillError::NotHealthy(snapshot.reasons));
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn choose(snapshot: &Snapshot, victims: Victims, number: u32) -> Result<Vec<Process>, DrillError> {
    let in_turn = |kind: Kind| {
        let all: Vec<&Process> = snapshot.processes.iter().filter(|p| p.kind == kind && p.alive).collect();
        let at = (number as usize).checked_rem(all.len()).ok_or(DrillError::NoVictim(kind.name()))?;
        Ok::<_, DrillError>(all[at].clone())
    };
    let (app, cache) = (|| in_turn(Kind::App), || in_turn(Kind::LeaseCache));
    let leader = || snapshot.leader().cloned().ok_or(DrillError::NoVictim("leader"));
    Ok(match victims {
        Victims::App => vec![app()?],
        Victims::Leader => vec![leader()?],
        Victims::Cache => vec![cache()?],
        Victims::AppAndLeader => vec![app()?, leader()?],
        Victims::AppAndCache => vec![app()?, cache()?],
        Victims::AppLeaderAndCache => vec![app()?, leader()?, cache()?],
    })
}

/// Kills, waits, restarts. Also tells how many members were removed that nobody had killed.
fn repetition(observer: &mut Observer, victims: Victims, number: u32) -> Result<(Outcome, u64), DrillError> {
    let before = healthy(observer)?;
    let dead = choose(&before, victims, number)?;
    let survivors: Vec<Name> = before
        .processes
        .iter()
        .filter(|p| p.alive && p.kind.acts() && !dead.iter().any(|d| d.name == p.name))
        .map(|p| p.name)
        .collect();
    let old = before.view.as_ref().map(|view| view.id).unwrap_or_default();
    let ids: Vec<Incarnation> = dead.iter().map(|p| p.incarnation).collect();
    // Each victim is held by a descriptor, never by a number that can be reused.
    let mut held = Vec::new();
    for victim in &dead {
        held.push(victim.process.hold().map_err(|error| DrillError::Kill(victim.name, error))?);
    }
    observer.events();
    let killed = clock::now();
    for (victim, process) in dead.iter().zip(&held) {
        process.kill().map_err(|error| DrillError::Kill(victim.name, error))?;
    }
    let (outcome, strangers) = follow(observer, old, &ids, killed, &survivors);
    for victim in &dead {
        // The supervisor refuses as long as the kernel has not taken the old process away.
        control::ask(observer.cluster().dir(), &Request::Start { name: victim.name.to_string() })?;
    }
    Ok((outcome, strangers))
}

/// Watches the flight recorders until every survivor is active without the dead. Also tells how many others were removed.
pub(crate) fn follow(
    observer: &mut Observer,
    old: ViewId,
    dead: &[Incarnation],
    killed: Instant,
    survivors: &[Name],
) -> (Outcome, u64) {
    let mut history = History::default();
    loop {
        thread::sleep(LOOK_EVERY);
        history.take(&observer.events());
        let snapshot = observer.snapshot();
        let Some(view) = snapshot.view else { continue };
        let gone = |who: &Incarnation| view.departed.iter().find(|d| d.incarnation == *who).map(|d| d.at);
        let strangers =
            view.departed.iter().filter(|d| d.at > old && !d.left && !dead.contains(&d.incarnation)).count();
        let first = dead.iter().map(gone).collect::<Option<Vec<_>>>().and_then(|at| at.into_iter().max());
        if let Some(id) = first {
            let done = survivors.iter().all(|name| history.active_from(id, *name).is_some());
            if done {
                // Coordinators write their stamps before the members can have theirs, so all are read by now; but
                // they may lie in a part that was read just before.
                history.take(&observer.events());
                let drift = observer.deployment().profile.timing.drift_ppm;
                let wait = lengthened(view.wait, drift);
                let outcome = if strangers > 0 {
                    Outcome::Void(format!("{strangers} other members were removed meanwhile"))
                } else {
                    match Phases::of(&history, id, dead, killed, survivors) {
                        Some(phases) => Outcome::Measured(Measurement { phases, wait }),
                        None => Outcome::Void(format!("the time line of view {id} has a hole")),
                    }
                };
                return (outcome, strangers as u64);
            }
        }
        if clock::now().since(killed) > FAILOVER_TIMEOUT {
            let waiting: Vec<&str> = survivors
                .iter()
                .filter(|name| first.is_none_or(|id| history.active_from(id, **name).is_none()))
                .map(Name::as_str)
                .collect();
            let why = match first {
                None => "no view excludes the dead".to_owned(),
                Some(id) => format!("not active in view {id}: {}", waiting.join(", ")),
            };
            return (Outcome::Failed(format!("{why}, {FAILOVER_TIMEOUT} after the kill")), strangers as u64);
        }
    }
}
