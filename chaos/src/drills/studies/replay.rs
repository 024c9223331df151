//! Replays the faults of a campaign's script on processes, as far as they exist there: what broke a
//! simulated cluster is tried on a real one.
//!
//! The undo record, written before the first fault, names every process that may be hit, so `obol
//! drill recover` can undo what this process does not.

use crate::drills::agent::halt;
use crate::drills::agent::lock::lock;
use crate::drills::agent::undo::{self, LeftBehind};
use crate::drills::agent::warden::Warden;
use crate::drills::engine::error::RunError;
use crate::drills::engine::follow::{healthy, healthy_within};
use crate::drills::victims::select::Supervisor;
use crate::faults::{Record, Undone};
use obol_campaign::{Act, Scenario, Script};
use obol_fabric::host::{Held, Impairment, Process as Pid, clock};
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::ActiveMutant;
use obol_membership::view::coordinator_name;
use obol_node::Deployment;
use obol_node::deployment::{app_node_names, cache_name};
use obol_observe::{Observer, Process, Snapshot};
use obol_supervise::control::{self, Request};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::{io, thread};

/// Between two attempts to restart processes, and the number of attempts.
const RESTART_INTERVAL: Nanos = Nanos::from_secs(1);
const RESTARTS_MAX: u32 = 10;

/// An action on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Start,
    Freeze,
    Thaw,
    Leave,
}

/// A script's act in terms of processes.
enum Mapped {
    One(Action, String),
    Leader,
    Link { from: String, to: String, cut: bool },
}

/// What a script does on processes.
#[derive(Debug, Serialize)]
pub struct ReplayPlan {
    /// Acts that can be replayed.
    pub acts: usize,
    /// Why others cannot, each reason once.
    pub missing: BTreeSet<String>,
    /// Slowdown relative to the script: leases of processes are longer.
    pub slower: u64,
}

/// The outcome.
#[derive(Debug, Serialize)]
pub struct Replayed {
    pub plan: ReplayPlan,
    /// Acts that were replayed.
    pub played: usize,
    /// Acts that missed their process, and why.
    pub missed: Vec<String>,
    /// What was undone at the end, and what could not be undone.
    pub undone: Undone,
    /// Why the cluster is not healthy afterwards.
    pub unhealthy: Vec<String>,
}

/// The process that corresponds to a node, or to a program in its seat.
fn name_of(scenario: &Scenario, node: u32, seat: u16, known: &[String]) -> Result<String, String> {
    let number = |first: u32| (node - first + 1) as u16;
    let (first_agent, first_cache) =
        (scenario.coordinators, scenario.coordinators + scenario.agents + scenario.embedded);
    let name = if node < first_agent {
        coordinator_name(number(0)).to_string()
    } else if scenario.is_agent(node) {
        let [agent, app] = app_node_names(number(first_agent));
        match seat {
            0 => agent,
            1 => app,
            _ => return Err("`obol up` starts one app at each agent".to_owned()),
        }
    } else if scenario.is_cache(node) {
        cache_name(number(first_cache))
    } else {
        return Err("`obol up` starts no embedded apps".to_owned());
    };
    if known.contains(&name) { Ok(name) } else { Err(format!("the cluster has no {name}")) }
}

/// A script's act in terms of processes, or why it has no equivalent.
fn map_act(act: Act, scenario: &Scenario, deployment: &Deployment) -> Result<Mapped, String> {
    let known = &deployment.names();
    let one = |deed, node, seat| Ok(Mapped::One(deed, name_of(scenario, node, seat, known)?));
    let link = |from, to, cut| {
        if deployment.network.is_some() {
            return Err("the links of this cluster belong to its RDMA device".to_owned());
        }
        let [from, to] = [from, to].map(|node| name_of(scenario, node, 0, known));
        Ok(Mapped::Link { from: from?, to: to?, cut })
    };
    let none = |what: &str| Err(format!("{what} is not a fault of processes"));
    match act {
        Act::Kill(node) => one(Action::Kill, node, 0),
        Act::KillProgram(node, seat) => one(Action::Kill, node, seat),
        Act::KillLeader => Ok(Mapped::Leader),
        Act::Start(node) => one(Action::Start, node, 0),
        Act::Attach(node, seat) => one(Action::Start, node, seat),
        Act::Freeze(node) => one(Action::Freeze, node, 0),
        Act::FreezeProgram(node, seat) => one(Action::Freeze, node, seat),
        Act::Thaw(node) => one(Action::Thaw, node, 0),
        Act::ThawProgram(node, seat) => one(Action::Thaw, node, seat),
        Act::Leave(node) => one(Action::Leave, node, 0),
        Act::LeaveProgram(node, seat) => one(Action::Leave, node, seat),
        Act::Cut(from, to) => link(from, to, true),
        Act::Heal(from, to) => link(from, to, false),
        Act::Degrade(..) => none("a link that loses and delays"),
        Act::HangProgram(..) | Act::UnhangProgram(..) => none("a program that hangs"),
        Act::Suspect(..) => none("a false suspicion"),
        Act::Work(..) => none("the work of a program"),
        Act::Confirm(..) => none("a confirmed view"),
        Act::RepeatJoins => none("a repeated join"),
        Act::LateView(_) => none("a late announcement"),
        Act::CutPath(..) | Act::HealPath(..) | Act::DelayPath(..) => none("a path of pulses"),
        Act::PauseHost(_) | Act::ResumeHost(_) => none("a host that stops"),
        Act::RestartGateway(_) => none("a gateway that starts again"),
        Act::SetLease(..) => none("another lease (`obol lease`)"),
        Act::SetAcceptor(..) => none("a change of coordinators (`obol coordinators`)"),
    }
}

/// What a script would do to a cluster. Touches nothing.
pub fn plan_script(observer: &Observer, script: &Script) -> ReplayPlan {
    let scenario = Scenario::draw(script.seed, ActiveMutant::NONE);
    let mut plan = ReplayPlan { acts: 0, missing: BTreeSet::new(), slower: slower(observer, &scenario) };
    for timed in &script.acts {
        match map_act(timed.act, &scenario, observer.deployment()) {
            Ok(_) => plan.acts += 1,
            Err(why) => drop(plan.missing.insert(why)),
        }
    }
    plan
}

fn slower(observer: &Observer, scenario: &Scenario) -> u64 {
    let (here, there) = (observer.deployment().profile.timing.lease, scenario.config.timing.lease);
    here.0.div_ceil(there.0.max(1)).max(1)
}

/// Waits for a moment; false if drills are halted before.
fn wait_until(due: Instant, dir: &Path) -> bool {
    loop {
        if halt::in_force(dir).is_some() {
            return false;
        }
        let left = due.since(clock::now()).to_std();
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(halt::POLL_INTERVAL));
    }
}

/// Replays a script's faults, undoes them, and waits until the cluster is healthy. `go_on` is
/// called before each act; `false` ends the replay early. `program` is this program, whose warden undoes
/// them if this process is killed.
pub fn replay_script(
    root: &Path,
    cluster: Name,
    program: &Path,
    script: &Script,
    mut go_on: impl FnMut() -> bool,
) -> Result<Replayed, RunError> {
    let mut observer = Observer::open(root, cluster)?;
    let dir = observer.cluster().dir().to_owned();
    let io = |error| RunError::Io(dir.clone(), error);
    let _held = lock(&dir)?;
    if let Some(why) = halt::in_force(&dir) {
        return Err(RunError::Halted(why));
    }
    let undone = undo::recover(&mut observer).map_err(io)?;
    if !undone.failed.is_empty() {
        return Err(LeftBehind(undone.failed).into());
    }
    let before = healthy(&mut observer)?;
    let scenario = Scenario::draw(script.seed, ActiveMutant::NONE);
    let plan = plan_script(&observer, script);
    let _warden = Warden::start(program, root, cluster).map_err(io)?;
    let mut player = Player {
        supervisor: Supervisor::of(observer.cluster(), observer.deployment()),
        record: record(&observer, &before).map_err(io)?,
        observer,
    };
    player.record.write(&dir).map_err(io)?;
    let (mut played, mut missed) = (0, Vec::new());
    let began = clock::now();
    for timed in &script.acts {
        let Ok(meant) = map_act(timed.act, &scenario, player.observer.deployment()) else { continue };
        let due = began + Nanos(timed.at.saturating_mul(plan.slower));
        if !wait_until(due, &dir) || !go_on() {
            break;
        }
        match player.play(&meant) {
            Ok(()) => played += 1,
            Err(why) => missed.push(why),
        }
    }
    let mut undone = Undone::default();
    // Processes that were started meanwhile may have been stopped, too.
    let mut now = player.observer.snapshot();
    let is_impaired = |p: &Process| player.observer.cluster().impairment(p.region) != Impairment::default();
    now.processes.retain(|process| process.frozen || is_impaired(process));
    let left = record(&player.observer, &now).map_err(io)?;
    undo::undo(&left, &mut player.observer, &mut undone);
    // Processes that were killed last, or are leaving, may not have ended before.
    for _ in 0..RESTARTS_MAX {
        if healthy_within(&mut player.observer, RESTART_INTERVAL).is_ok() {
            break;
        }
        undo::restart(&player.record, &mut player.observer, &mut undone);
    }
    if undone.failed.is_empty() {
        player.record.remove(&dir).map_err(io)?;
    }
    let unhealthy = match healthy(&mut player.observer) {
        Ok(_) => Vec::new(),
        Err(RunError::NotHealthy(reasons)) => reasons,
        Err(error) => vec![error.to_string()],
    };
    Ok(Replayed { plan, played, missed, undone, unhealthy })
}

/// The undo record: every process may have been stopped, impaired or ended.
fn record(observer: &Observer, snapshot: &Snapshot) -> io::Result<Record> {
    let me = Pid::current()?;
    let supervisor = Supervisor::of(observer.cluster(), observer.deployment());
    let ours = || snapshot.processes.iter().filter(|p| p.alive && supervisor.restarts(p));
    let mut record = Record::new((me.pid, me.started), observer.deployment().names());
    record.frozen = ours().map(|p| (p.name.to_string(), p.process.pid, p.process.started)).collect();
    for process in ours().filter(|p| p.seat == 0) {
        let info = observer.cluster().region_info(process.region);
        record.impaired.extend(info.map(|info| (process.name.to_string(), info.number, info.generation)));
    }
    Ok(record)
}

struct Player {
    observer: Observer,
    supervisor: Supervisor,
    record: Record,
}

impl Player {
    fn process(&mut self, name: &str) -> Result<Process, String> {
        let snapshot = self.observer.snapshot();
        let process = snapshot.process(name).ok_or_else(|| format!("{name} is down"))?;
        if !self.supervisor.restarts(process) {
            return Err(format!("{name} was not started by `obol up`"));
        }
        Ok(process.clone())
    }

    fn play(&mut self, meant: &Mapped) -> Result<(), String> {
        match meant {
            Mapped::Leader => {
                let leader = self.observer.snapshot().leader_name().ok_or("no coordinator leads")?;
                self.signal(leader.as_str(), Held::kill)
            }
            Mapped::One(Action::Kill, name) => self.signal(name, Held::kill),
            Mapped::One(Action::Leave, name) => self.signal(name, Held::terminate),
            Mapped::One(Action::Freeze, name) => self.signal(name, Held::freeze),
            Mapped::One(Action::Thaw, name) => self.signal(name, Held::thaw),
            Mapped::One(Action::Start, name) => {
                if self.observer.snapshot().process(name).is_some() {
                    return Ok(());
                }
                let request = Request::Start { name: name.clone() };
                let started = control::request(self.observer.cluster().dir(), &request);
                started.map(drop).map_err(|error| format!("{name}: {error}"))
            }
            Mapped::Link { from, to, cut } => self.link(from, to, *cut),
        }
    }

    fn signal(&mut self, name: &str, send: impl FnOnce(&Held) -> io::Result<()>) -> Result<(), String> {
        let process = self.process(name)?;
        let sent = process.process.hold().and_then(|held| send(&held));
        sent.map_err(|error| format!("{name} (pid {}): {error}", process.process.pid))
    }

    /// Cuts or restores the link from one process to another. A process has at most one cut link.
    fn link(&mut self, from: &str, to: &str, cut: bool) -> Result<(), String> {
        let sender = self.process(from)?.region;
        let receiver = self.process(to)?.region;
        let cluster = self.observer.cluster();
        let peer = u16::try_from(receiver).map_err(|error| format!("{to}: {error}"))?;
        let info = cluster.region_info(sender).ok_or_else(|| format!("{from} is down"))?;
        let there = cluster.impairment(sender).unheard_at;
        if cut && there != 0 && there != peer {
            return Err(format!("{from} is cut off from another process already; only one link can be cut"));
        }
        if !cut && there != peer {
            return Ok(());
        }
        let what = Impairment { unheard_at: if cut { peer } else { 0 }, ..Impairment::default() };
        let done = cluster.impair(sender, info.generation, what);
        done.then_some(()).ok_or_else(|| format!("the region of {from} has another owner now"))
    }
}
