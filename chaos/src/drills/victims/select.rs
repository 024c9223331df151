//! Selection of victims: the processes that a drill's targets stand for, chosen for each repetition
//! from the drill's seed.

use crate::drillfile::{Drill, Select, Step, StepFault, Target, TargetKind};
use crate::faults::Scope;
use obol_fabric::host::Cluster;
use obol_membership::rng::mix;
use obol_membership::{Kind, renewal_source};
use obol_node::{Deployment, Network};
use obol_observe::{Deciders, Process, Snapshot};
use obol_supervise::control::{self, Request};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Chosen {
    /// The target for which it was chosen.
    pub target: String,
    pub process: Process,
    /// Whether its supervisor restarts it.
    pub supervised: bool,
}

/// What can restart a cluster's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Supervisor {
    /// Nothing.
    #[default]
    None,
    /// The `up` with this pid: its own children only.
    Up(u32),
    /// The supervisors of the hosts, as the file of hosts names them.
    Hosts(Arc<Network>),
    /// The simulator: every process.
    Simulator,
}

impl Supervisor {
    /// What restarts the processes of a cluster.
    pub fn of(cluster: &Cluster, deployment: &Deployment) -> Self {
        match &deployment.network {
            Some(network) if !network.supervisors.is_empty() => Self::Hosts(Arc::new(network.clone())),
            // Without an answer, processes that need a restart are not hit.
            _ => control::request(&control::supervised(cluster), &Request::Hello)
                .ok()
                .flatten()
                .map_or(Self::None, Self::Up),
        }
    }

    /// Whether it restarts this process.
    pub fn restarts(&self, process: &Process) -> bool {
        match self {
            Self::None => false,
            Self::Up(up) => parent(process.process.pid) == Some(*up),
            Self::Hosts(network) => network.restarts(process.host, process.kind, process.name),
            Self::Simulator => true,
        }
    }

    /// Whether this program of a seat stamps when it becomes active, as those that `up` starts.
    pub fn stamps(&self, process: &Process) -> bool {
        matches!(self, Self::Up(_)) && self.restarts(process)
    }
}

impl StepFault {
    /// The chosen processes that it hits. The programs in an agent's seats have no links of their
    /// own.
    pub(crate) fn victims<'a>(&'a self, chosen: &'a [Chosen]) -> impl Iterator<Item = &'a Chosen> {
        let scope = self.kind.scope();
        let hit = move |c: &&Chosen| match scope {
            Scope::Process | Scope::Network => true,
            Scope::Links => c.process.seat == 0,
            Scope::Host => false,
        };
        chosen.iter().filter(|c| self.targets.contains(&c.target)).filter(hit)
    }
}

/// A snapshot whose processes are those of all hosts: a cue reaches each of them.
pub(crate) fn merged(mut snapshot: Snapshot) -> Snapshot {
    if !snapshot.remote.is_empty() {
        snapshot.processes.append(&mut snapshot.remote);
        snapshot.processes.sort_by_key(|process| (process.kind, process.name));
    }
    snapshot
}

/// The parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the program's name, which may contain anything: state, parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Why no process can be chosen for a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No live process fits.
    #[error("target {target} wants {wants}, and {}", none_fits(.wants))]
    Empty { target: String, wants: String },
    /// All candidates were chosen for other targets.
    #[error("target {target} selects {wants}, and all live ones are other targets already")]
    Taken {
        target: String,
        /// The kind that it wants.
        wants: &'static str,
    },
    /// Nothing is known to restart any of the candidates.
    #[error(
        "target {target} selects {wants} that `obol up` can restart, or the supervisor that the file of hosts names for \
         its host, and there is none; without one run {names}. To hit one of them anyway, name it in a drill file: \
         {target} = {{ kind = \"{wants}\", name = \"{first}\" }}",
        names = .there.join(", "),
        first = .there.first().map_or("", String::as_str)
    )]
    Unsupervised {
        target: String,
        /// The kind that it wants.
        wants: &'static str,
        /// The candidates.
        there: Vec<String>,
    },
    /// It is unknown which coordinators decide.
    #[error(
        "target {target} selects from the coordinators that decide, and no view can be read that names them; see \
         `obol status`"
    )]
    NoView { target: String },
    /// There are fewer candidates than required.
    #[error("target {target} wants {wants} processes, and {there} fit; see `obol status`")]
    TooFew {
        target: String,
        /// How many it wants.
        wants: usize,
        /// How many there are.
        there: usize,
    },
}

fn none_fits(wants: &str) -> &'static str {
    if wants.contains("lease-cache") {
        "no lease cache is alive; start the cluster with `obol up --caches N`"
    } else {
        "no live process fits; see `obol status`"
    }
}

/// Chooses the victims of a step, in the order of its targets, for repetition `number`.
///
/// Programs that operators attached themselves are spared unless the drill names them. So are
/// processes without a supervisor if they have to be restarted.
pub fn choose(
    drill: &Drill,
    step: &Step,
    snapshot: &Snapshot,
    supervisor: &Supervisor,
    number: u32,
) -> Result<Vec<Chosen>, SelectError> {
    let mut chosen: Vec<Chosen> = Vec::new();
    // Targets that others refer to come first: a cache is chosen for the app that it serves.
    let used = |target: &&Target| step.faults.iter().any(|fault| fault.targets.contains(&target.name));
    let (referring, plain): (Vec<&Target>, Vec<&Target>) =
        drill.targets.iter().filter(used).partition(|target| target.serving.is_some());
    // A process is chosen for one target only, so targets of all processes come last.
    let (greedy, modest): (Vec<&Target>, Vec<&Target>) =
        plain.into_iter().partition(|target| matches!(target.select, Select::All | Select::Percent(100)));
    for target in modest.into_iter().chain(referring).chain(greedy) {
        let turn = mix(
            mix(u64::from(drill.seed), u64::from(number)),
            target.name.bytes().fold(0, |h, b| mix(h, u64::from(b))),
        );
        let served = target.serving.as_ref().and_then(|name| chosen.iter().find(|c| c.target == *name));
        let mut found = match served {
            Some(served) => vec![serving(snapshot, &served.process).ok_or_else(|| empty(target))?],
            None => {
                let ends = step.faults.iter().any(|fault| fault.ends(&target.name));
                let restarts = ends && drill.rollback.restart.contains(&target.name);
                let cut = step.faults.iter().any(|fault| {
                    fault.hits_hosts()
                        && fault.kind.effect().takes_out()
                        && fault.targets.contains(&target.name)
                });
                // The runner could not follow what happens to the others.
                let own = |p: &Process| cut && p.elsewhere.is_none();
                let spared =
                    |p: &Process| own(p) || !cut && is_spared(p, target, restarts, snapshot, supervisor);
                pick(target, snapshot, &chosen, turn, &spared)?
            }
        };
        if target.kind == TargetKind::Node {
            let apps = |agent: &Process| {
                let region = agent.region;
                snapshot
                    .processes
                    .iter()
                    .filter(move |p| p.region == region && p.seat != 0 && p.alive)
                    .cloned()
            };
            found = found
                .into_iter()
                .flat_map(|agent| std::iter::once(agent.clone()).chain(apps(&agent)).collect::<Vec<_>>())
                .collect();
        }
        let wide = step.faults.iter().any(|fault| fault.hits_hosts() && fault.targets.contains(&target.name));
        if wide {
            found = on_their_hosts(&found, snapshot);
            found.retain(|process| !chosen.iter().any(|c: &Chosen| c.process.is(process)));
        }
        chosen.extend(found.into_iter().map(|process| {
            let supervised = supervisor.restarts(&process);
            Chosen { target: target.name.clone(), process, supervised }
        }));
    }
    Ok(chosen)
}

/// All processes of the hosts of some.
fn on_their_hosts(some: &[Process], snapshot: &Snapshot) -> Vec<Process> {
    let live = snapshot.processes.iter().filter(|process| process.alive);
    live.filter(|process| some.iter().any(|one| one.host == process.host)).cloned().collect()
}

/// Whether a process is spared unless it is named.
fn is_spared(
    process: &Process,
    target: &Target,
    restarts: bool,
    snapshot: &Snapshot,
    supervisor: &Supervisor,
) -> bool {
    let theirs = |p: &Process| p.kind == Kind::App && !supervisor.restarts(p);
    // Faults of a node, or of an agent that dies, also affect the programs in its seats.
    let hosts = restarts || target.kind == TargetKind::Node;
    let mut seats =
        snapshot.processes.iter().filter(|p| p.alive && p.seat != 0 && p.region == process.region);
    theirs(process)
        || restarts && !supervisor.restarts(process)
        || process.kind == Kind::Agent && hosts && seats.any(theirs)
}

fn empty(target: &Target) -> SelectError {
    let kind = target.kind.name();
    let wants = match &target.select {
        Select::Named(name) => format!("the {kind} {name}"),
        Select::Leader => "the leading coordinator".to_owned(),
        _ => format!("a {kind}"),
    };
    SelectError::Empty { target: target.name.clone(), wants }
}

/// The lease cache that renews a process's leases: the first in its holder's order.
fn serving(snapshot: &Snapshot, process: &Process) -> Option<Process> {
    let view = snapshot.view.as_ref()?;
    let holder = snapshot.processes.iter().find(|p| p.region == process.region && p.seat == 0)?;
    let cache = renewal_source::preferred(view, holder.incarnation)?;
    snapshot.processes.iter().find(|p| p.alive && p.incarnation == cache).cloned()
}

fn pick(
    target: &Target,
    snapshot: &Snapshot,
    chosen: &[Chosen],
    turn: u64,
    is_spared: &dyn Fn(&Process) -> bool,
) -> Result<Vec<Process>, SelectError> {
    let kind = target.process_kind();
    let taken = |p: &&Process| chosen.iter().any(|c| c.process.name == p.name);
    // A majority is one of those that decide. Spares are none of them.
    let counts = target.kind == TargetKind::Coordinator
        && matches!(target.select, Select::Minority | Select::Majority);
    let no_view = || SelectError::NoView { target: target.name.clone() };
    let deciders = counts.then(|| Deciders::newest(snapshot).ok_or_else(no_view)).transpose()?;
    let fits = |p: &&Process| {
        let decides = deciders.as_ref().is_none_or(|deciders| deciders.includes(p));
        p.kind == kind && p.alive && !p.frozen && !p.lost_agent(snapshot) && decides
    };
    let mut all: Vec<&Process> = snapshot.processes.iter().filter(fits).filter(|p| !taken(p)).collect();
    if !matches!(target.select, Select::Named(_) | Select::Leader) {
        let (spared, others): (Vec<&Process>, Vec<&Process>) = all.into_iter().partition(|p| is_spared(p));
        if others.is_empty() && !spared.is_empty() {
            let there = spared.into_iter().map(|p| p.name.to_string()).collect();
            let (target, wants) = (target.name.clone(), target.kind.name());
            return Err(SelectError::Unsupervised { target, wants, there });
        }
        all = others;
    }
    let many = all.len();
    let wants = match &target.select {
        Select::Leader => {
            let leader = snapshot.leader().filter(|p| !taken(p)).ok_or_else(|| empty(target))?;
            if is_spared(leader) {
                let there = vec![leader.name.to_string()];
                let (target, wants) = (target.name.clone(), target.kind.name());
                return Err(SelectError::Unsupervised { target, wants, there });
            }
            return Ok(vec![leader.clone()]);
        }
        Select::Named(name) => {
            let named = all.into_iter().find(|p| p.name == *name).ok_or_else(|| empty(target))?;
            return Ok(vec![named.clone()]);
        }
        Select::One => 1,
        Select::All => many,
        Select::Fixed(n) => *n as usize,
        Select::Percent(p) => (many * *p as usize / 100).max(1),
        Select::Minority => deciders.as_ref().map_or(many.saturating_sub(1) / 2, Deciders::minority),
        Select::Majority => deciders.as_ref().map_or(many / 2 + 1, Deciders::majority),
    };
    if many == 0 && snapshot.processes.iter().any(|p| fits(&p)) {
        return Err(SelectError::Taken { target: target.name.clone(), wants: target.kind.name() });
    }
    if many == 0 || wants == 0 {
        return Err(empty(target));
    }
    if wants > many {
        return Err(SelectError::TooFew { target: target.name.clone(), wants, there: many });
    }
    // A choice without repetition whose order depends only on the seed and the names.
    all.sort_by_key(|p| p.name);
    all.sort_by_key(|p| mix(turn, p.name.as_str().bytes().fold(0, |h, b| mix(h, u64::from(b)))));
    Ok(all.into_iter().take(wants).cloned().collect())
}
