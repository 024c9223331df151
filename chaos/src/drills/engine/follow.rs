//! Follows the cluster after the faults by flight recorders and views until every survivor is
//! active without the dead. It does not affect the failover.

use super::error::RunError;
use super::journal::{Outcome, Trial};
use super::overlap::{Killed, overlap_seen};
use super::subject::{Subject, System};
use crate::drillfile::{Step, StepFault};
use crate::drills::agent::channel::{LATE, Stamp};
use crate::drills::victims::select::Chosen;
use crate::faults::Effect;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::lease::lengthened;
use obol_membership::view::Departed;
use obol_observe::timeline::{History, Phases};
use obol_observe::{Health, Process, Snapshot};

/// Between two reads of the cluster. The stamps do not depend on it, and shorter intervals would
/// take CPU from the cluster.
pub(super) const POLL_INTERVAL: Nanos = Nanos::from_millis(2);
/// A failover that takes longer has failed.
const FAILOVER_TIMEOUT: Nanos = Nanos::from_secs(10);
/// A frozen process that is not detected within this time after its thaw goes undetected.
const THAWED_TIMEOUT: Nanos = Nanos::from_secs(1);
/// A cluster that is not healthy within this time cannot be drilled.
pub(super) const HEALTH_TIMEOUT: Nanos = Nanos::from_secs(10);
/// How long a process may take to leave.
const LEAVE_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Polls between two questions whether the drill has to end.
const STOP_POLLS: u64 = 10;

/// Reason of a failover that did not even begin; the names of those that should have been removed follow.
pub(crate) const UNSEEN: &str = "no view excludes";

/// Waits until the cluster is healthy.
pub fn healthy<S: Subject>(subject: &mut S) -> Result<Snapshot, RunError> {
    healthy_within(subject, HEALTH_TIMEOUT)
}

/// The same with a timeout, beside the time for which joins are on hold.
pub(crate) fn healthy_within<S: Subject>(subject: &mut S, within: Nanos) -> Result<Snapshot, RunError> {
    let mut deadline = subject.now() + within;
    let last = deadline + subject.deployment().profile.timing.join_hold_max;
    loop {
        let snapshot = subject.snapshot();
        let held = snapshot.processes.iter().map(|process| process.hold_left(snapshot.at)).max();
        if let Some(held) = held.filter(|held| *held > Nanos::ZERO && within > Nanos::ZERO) {
            deadline = deadline.max(snapshot.at + held + within).min(last);
        }
        if snapshot.health == Health::Healthy {
            return Ok(snapshot);
        }
        // Without any live process it will not recover.
        if subject.now() > deadline || snapshot.health == Health::Unreachable {
            return Err(RunError::NotHealthy(snapshot.reasons));
        }
        subject.sleep(POLL_INTERVAL);
    }
}

/// Why the drill has to end, if so.
type Stopped<'a> = &'a dyn Fn() -> Option<String>;

/// Follows a step and writes the outcome into the trial, which has the stamps of its faults.
/// Returns the history.
pub(super) fn follow<S: System>(
    system: &mut S,
    step: &Step,
    chosen: &[Chosen],
    before: &Snapshot,
    stopped: Stopped<'_>,
    trial: &mut Trial,
) -> Followed {
    let mut history = History::default();
    trial.stamps.iter().for_each(|stamp| history.add_clock_error(Nanos(stamp.clock_error)));
    // Nothing was injected on hosts that the cue reached too late.
    let late = trial.stamps.iter().filter(|stamp| stamp.error.as_deref() == Some(LATE));
    let missed: Vec<u8> = late.map(|stamp| stamp.host).collect();
    let by = |wanted: fn(&StepFault) -> bool| {
        let targets = |c: &&Chosen| step.faults.iter().any(|f| wanted(f) && f.targets.contains(&c.target));
        let hit = chosen.iter().filter(targets).map(|c| &c.process).filter(|p| !missed.contains(&p.host));
        hit.cloned().collect::<Vec<Process>>()
    };
    let silent = by(StepFault::silences);
    let leaving = by(|fault| fault.kind.effect() == Effect::Leaves);
    let old = before.view.as_ref().map(|view| view.id).unwrap_or_default();
    if !leaving.is_empty() {
        leave(system.subject(), &leaving, old, trial);
    }
    if !silent.is_empty() {
        let kills = step.faults.iter().any(|fault| fault.kind.effect().ends());
        let lasts = step
            .faults
            .iter()
            .filter(|fault| fault.silences())
            .filter_map(|fault| fault.lasts)
            .fold(Nanos::ZERO, Nanos::max);
        let patience = if kills { FAILOVER_TIMEOUT } else { lasts.saturating_add(THAWED_TIMEOUT) };
        let stamping: Vec<Name> =
            before.processes.iter().filter(|p| system.stamps(p)).map(|p| p.name).collect();
        let stamps = |p: &Process| stamping.contains(&p.name);
        let until = Until { old, patience, stopped };
        failover(system.subject(), &mut history, &silent, until, before, &stamps, trial);
    }
    let kills = by(|fault| fault.kind.effect() == Effect::Ends);
    let injection = |p: &Process| {
        let mut injected = trial.stamps.iter().filter(|stamp| stamp.error.is_none());
        let of = |stamp: &&Stamp| (stamp.name.as_str(), stamp.host) == (p.name.as_str(), p.host);
        injected.find(of).map(|stamp| Instant(stamp.at))
    };
    let killed = kills.into_iter().filter_map(|p| injection(&p).map(|at| (p, at))).collect();
    let mut followed = Followed { history, killed, tolerated: by(|fault| fault.tolerated) };
    check_overlap(system.subject(), &mut followed, before, trial);
    followed
}

/// The history of a step so far.
pub(super) struct Followed {
    history: History,
    killed: Killed,
    /// Those that must have stayed members.
    tolerated: Vec<Process>,
}

/// Fails the trial if a process was removed whose pause has to be tolerated. To be called when the pause
/// is over: a suspicion of its last moment is decided soon, or never.
pub(super) fn check_tolerated<S: Subject>(subject: &mut S, followed: &Followed, trial: &mut Trial) {
    if followed.tolerated.is_empty() {
        return;
    }
    let deadline = subject.now() + THAWED_TIMEOUT;
    loop {
        subject.refresh();
        let snapshot = subject.snapshot();
        let departed = snapshot.view.as_ref().map_or(&[][..], |view| &view.departed);
        let removed = |p: &Process| departed.iter().find(|d| d.incarnation == p.incarnation);
        let removed: Vec<String> = followed
            .tolerated
            .iter()
            .filter_map(|p| Some(format!("{} by view {}", p.name, removed(p)?.at)))
            .collect();
        if !removed.is_empty() {
            trial.failed += removed.len() as u64;
            let why = format!("a pause that is to be tolerated was not: removed {}", removed.join(", "));
            return trial.ends(Outcome::Failed, why);
        }
        if subject.now() > deadline {
            return;
        }
        subject.sleep(POLL_INTERVAL);
    }
}

/// Adds to the trial how long two incompatible views could be used at once so far, and fails the
/// trial for any such time.
pub(super) fn check_overlap<S: Subject>(
    subject: &mut S,
    followed: &mut Followed,
    before: &Snapshot,
    trial: &mut Trial,
) {
    let from = subject.now();
    subject.refresh();
    let snapshot = subject.snapshot();
    followed.history.take(&subject.events());
    trial.clock_error_ns = trial.clock_error_ns.max(followed.history.clock_error().0);
    let overlap = overlap_seen(&followed.history, &followed.killed, before, &snapshot, from);
    trial.overlap_ns = trial.overlap_ns.max(overlap.0);
    if trial.overlap_ns > 0 {
        let overlap = Nanos(trial.overlap_ns);
        trial.ends(Outcome::Failed, format!("two incompatible views could be used at once for {overlap}"));
    }
}

/// Until when a failover is followed.
#[derive(Clone, Copy)]
struct Until<'a> {
    /// The view before the fault.
    old: ViewId,
    /// For a view without the dead; one that comes in time leaves the survivors [`FAILOVER_TIMEOUT`].
    patience: Nanos,
    /// Why to stop following, if the drill ends.
    stopped: Stopped<'a>,
}

/// Follows until the cluster works without the silent processes.
fn failover<S: Subject>(
    subject: &mut S,
    history: &mut History,
    silent: &[Process],
    until: Until<'_>,
    before: &Snapshot,
    stamps: &dyn Fn(&Process) -> bool,
    trial: &mut Trial,
) {
    // An agent's removal includes the programs in its seats, alive or not.
    let regions: Vec<u32> = silent.iter().filter(|p| p.kind == Kind::Agent).map(|p| p.region).collect();
    let gone =
        |p: &&Process| silent.iter().any(|s| s.is(p)) || p.kind == Kind::App && regions.contains(&p.region);
    let dead: Vec<&Process> = before.processes.iter().filter(|p| p.alive).filter(gone).collect();
    let ids: Vec<Incarnation> = dead.iter().map(|p| p.incarnation).collect();
    let survives = |p: &&Process| p.alive && stamps(p) && !dead.iter().any(|d| d.name == p.name);
    let survivors = Survivors::of(&before.processes.iter().filter(survives).collect::<Vec<_>>());
    let first = Instant(trial.stamps.iter().map(|stamp| stamp.at).min().unwrap_or_default());
    let names: Vec<Name> = dead.iter().map(|p| p.name).collect();
    let outcome = until_active(subject, history, until, &ids, &names, first, &survivors);
    if let Some(report) = history.first_report(&ids, &names, first) {
        trial.suspected_ns = Some(report.when.since(first).0);
        trial.suspected_as = report.reason.map(|reason| reason.name().to_owned());
    }
    if !matches!(outcome, Failover::Failed(..)) {
        trial.failed += ids.len() as u64;
    }
    match outcome {
        Failover::Measured { phases, wait, agents, coordinators } => {
            trial.unavailable_ns = Some(phases.total().0);
            trial.failover_ns = Some(phases.total().0);
            trial.agents_ns = agents.map(|span| span.0);
            trial.coordinators_ns = coordinators.map(|span| span.0);
            let phases = Phases::NAMES.into_iter().zip(phases.values());
            trial.phases_ns = phases.map(|(name, span)| (name.to_owned(), span.0)).collect();
            trial.lease_wait_ns = wait.0;
        }
        Failover::Void(why, lasted) => {
            trial.ends(Outcome::Void, why);
            trial.unavailable_ns = lasted.map(|lasted| lasted.0);
        }
        Failover::Failed(why, lasted) => {
            trial.ends(Outcome::Failed, why);
            trial.unavailable_ns = Some(lasted.0);
        }
    }
}

/// Members that were removed as failed although no fault of the drill had hit them, from its begin
/// to its end: also between repetitions and while a fault lasts.
#[derive(Default)]
pub(super) struct Bystanders {
    /// The view up to which they are counted; `None` before the first snapshot.
    counted: Option<ViewId>,
    /// Victims of all faults so far.
    hit: Vec<Incarnation>,
}

impl Bystanders {
    /// Adds the victims of a step: the chosen processes, and the programs in the seats of chosen
    /// agents.
    pub(super) fn hit(&mut self, chosen: &[Chosen], before: &Snapshot) {
        let agents: Vec<u32> =
            chosen.iter().filter(|c| c.process.kind == Kind::Agent).map(|c| c.process.region).collect();
        let is_hit = |p: &&Process| {
            chosen.iter().any(|c| c.process.is(p)) || p.kind == Kind::App && agents.contains(&p.region)
        };
        self.hit.extend(before.processes.iter().filter(is_hit).map(|p| p.incarnation));
    }

    /// How many were removed since the last call.
    pub(super) fn removed(&mut self, snapshot: &Snapshot) -> u64 {
        let Some(view) = &snapshot.view else { return 0 };
        let Some(since) = self.counted.replace(view.id) else { return 0 };
        let strangers = |d: &&Departed| d.at > since && !d.left && !self.hit.contains(&d.incarnation);
        view.departed.iter().filter(strangers).count() as u64
    }
}

/// The processes that no fault has hit, by what a failover means to them.
struct Survivors {
    programs: Vec<Name>,
    agents: Vec<Name>,
    /// Those that are members.
    coordinators: Vec<Name>,
}

impl Survivors {
    fn of(processes: &[&Process]) -> Self {
        let of_kind = |kind| processes.iter().filter(move |p| p.kind == kind);
        let programs = of_kind(Kind::App).map(|p| p.name).collect();
        let agents = of_kind(Kind::Agent).map(|p| p.name).collect();
        let members = of_kind(Kind::Coordinator).filter(|p| p.incarnation != Incarnation::NONE);
        Self { programs, agents, coordinators: members.map(|p| p.name).collect() }
    }

    /// Those whose failover it is: an agent's lease serves its programs alone.
    fn served(&self) -> &[Name] {
        if self.programs.is_empty() { &self.agents } else { &self.programs }
    }
}

/// When the last of some processes did something; `None` if one has not, or there are none.
fn last(times: impl Iterator<Item = Option<Instant>>) -> Option<Instant> {
    times.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max())
}

enum Failover {
    Measured {
        phases: Phases,
        /// The wait of the survivors by the lease rule alone.
        wait: Nanos,
        /// Until the last agent was active.
        agents: Option<Nanos>,
        /// Until the last coordinator had the view.
        coordinators: Option<Nanos>,
    },
    /// Why it was not measured, and after what time the last program was active again; nothing
    /// where there was none.
    Void(String, Option<Nanos>),
    /// Why the cluster did not go on, and for how long it was watched.
    Failed(String, Nanos),
}

/// Follows the flight recorders until every survivor is active without the dead.
fn until_active<S: Subject>(
    subject: &mut S,
    history: &mut History,
    until: Until<'_>,
    dead: &[Incarnation],
    names: &[Name],
    injected: Instant,
    survivors: &Survivors,
) -> Failover {
    let Survivors { programs, agents, coordinators } = survivors;
    let (mut polls, mut was_excluded) = (0u64, false);
    let Until { old, patience, stopped } = until;
    loop {
        subject.sleep(POLL_INTERVAL);
        let limit = if was_excluded { patience.max(FAILOVER_TIMEOUT) } else { patience };
        let is_last = subject.now().since(injected) > limit;
        if is_last {
            // What other hosts did in time may not be in the copies that were read last.
            subject.refresh();
        }
        history.take(&subject.events());
        let snapshot = subject.snapshot();
        polls += 1;
        // Undone early, a fault may never be detected.
        if let Some(why) = polls.is_multiple_of(STOP_POLLS).then(stopped).flatten() {
            return Failover::Void(why, None);
        }
        let departed = snapshot.view.as_ref().map_or(&[][..], |view| &view.departed);
        let gone = |who: &Incarnation| departed.iter().find(|d| d.incarnation == *who).map(|d| d.at);
        let strangers =
            departed.iter().filter(|d| d.at > old && !d.left && !dead.contains(&d.incarnation)).count();
        let first = dead.iter().map(gone).collect::<Option<Vec<_>>>().and_then(|at| at.into_iter().max());
        let waiting: Vec<&str> = programs
            .iter()
            .chain(agents)
            .filter(|name| first.is_none_or(|id| history.active_from(id, **name).is_none()))
            .map(Name::as_str)
            .collect();
        if let (Some(id), Some(view)) = (first, snapshot.view.as_ref().filter(|_| waiting.is_empty())) {
            // Coordinators stamp before members can become active, so all stamps exist by now; but
            // they may be in a part that was read before, or on a host that was.
            subject.refresh();
            history.take(&subject.events());
            let drift = subject.deployment().profile.timing.drift_ppm;
            let actives = |names: &[Name]| last(names.iter().map(|name| history.active_from(id, *name)));
            let knew = last(coordinators.iter().map(|name| history.received_from(id, *name)));
            // Coordinators that do not lead learn of it last.
            if knew.is_none() && !coordinators.is_empty() && !is_last {
                was_excluded = true;
                continue;
            }
            let since = |at: Option<Instant>| at.map(|at| at.since(injected));
            let lasted = since(actives(survivors.served()));
            return if strangers > 0 {
                Failover::Void(format!("{strangers} other members were removed meanwhile"), lasted)
            } else {
                match Phases::of(history, id, dead, injected, survivors.served()) {
                    Some(phases) => Failover::Measured {
                        phases,
                        wait: lengthened(view.wait, drift),
                        agents: since(actives(agents)),
                        coordinators: since(knew),
                    },
                    None => Failover::Void(format!("the time line of view {id} is incomplete"), lasted),
                }
            };
        }
        // A view that the last look has shown leaves the survivors their time.
        if is_last && first.is_some() == was_excluded {
            let why = match first {
                None => {
                    let left = dead.iter().zip(names).filter(|(who, _)| gone(who).is_none());
                    let left: Vec<&str> = left.map(|(_, name)| name.as_str()).collect();
                    format!("{UNSEEN} {}", left.join(", "))
                }
                Some(id) => format!("not active in view {id}: {}", waiting.join(", ")),
            };
            let lasted = subject.now().since(injected);
            let others = match strangers {
                0 => String::new(),
                n => format!("; {n} other members were removed meanwhile"),
            };
            return Failover::Failed(format!("{why}, {limit} after the fault{others}"), lasted);
        }
        was_excluded = first.is_some();
    }
}

/// Waits until all that have to leave have left; reports those that were counted as failed.
fn leave<S: Subject>(subject: &mut S, leaving: &[Process], old: ViewId, trial: &mut Trial) {
    let end = subject.now() + LEAVE_TIMEOUT;
    loop {
        let snapshot = subject.snapshot();
        let departed = snapshot.view.as_ref().map(|view| view.departed.clone()).unwrap_or_default();
        // After its removal from the view it may still be exiting, and cannot be restarted before
        // it ends.
        let out =
            |p: &Process| departed.iter().any(|d| d.incarnation == p.incarnation) && subject.has_ended(p);
        if leaving.iter().all(out) {
            let failed = |d: &&Departed| {
                d.at > old && !d.left && leaving.iter().any(|p| p.incarnation == d.incarnation)
            };
            trial.failed += departed.iter().filter(failed).count() as u64;
            return;
        }
        if subject.now() > end {
            let names: Vec<&str> = leaving.iter().filter(|p| !out(p)).map(|p| p.name.as_str()).collect();
            let names = names.join(", ");
            return trial.ends(Outcome::Failed, format!("{names} did not leave within {LEAVE_TIMEOUT}"));
        }
        subject.sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Address;
    use obol_membership::View;
    use obol_membership::recorder::{EventKind, Record, Stamped};
    use obol_membership::view::{Departed, coordinator_name};
    use obol_node::Deployment;
    use obol_observe::ObservedEvent;
    use obol_profiles::Profile;
    use std::sync::Arc;

    const VICTIM: Incarnation = Incarnation(9);
    const INJECTED: Instant = Instant(1_000_000_000);

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn programs() -> Survivors {
        let programs = ["app-1", "app-2"].map(name).to_vec();
        Survivors { programs, agents: Vec::new(), coordinators: Vec::new() }
    }

    fn at(ms: u64) -> Instant {
        INJECTED + Nanos::from_millis(ms)
    }

    fn seen(process: &str, kind: Kind, what: EventKind, ms: u64, a: u64) -> ObservedEvent {
        let event = Stamped { number: 0, at: at(ms), record: Record { kind: what, reason: 1, a, b: 0 } };
        ObservedEvent { process: name(process), kind, event, clock_error: Nanos::ZERO }
    }

    /// A cluster whose view 43 excludes the victim. What happens on the other host is seen in copies of
    /// an interval, or after a refresh.
    struct Copied {
        deployment: Deployment,
        now: Instant,
        /// When the next copy of the other host is taken by itself.
        copied_at: Instant,
        refreshed: bool,
        /// Of both hosts, each with the time from which it can be read.
        events: Vec<ObservedEvent>,
        excluded_at: Instant,
    }

    impl Copied {
        /// The leader decides `ms` after the fault; app-2 of the other host is active soon afterwards,
        /// and seen so `copied` after the fault unless there is a refresh.
        fn new(ms: u64, copied: u64) -> Self {
            let c = Kind::Coordinator;
            let events = vec![
                seen("coord-1", c, EventKind::Notice, ms - 3, VICTIM.0),
                seen("coord-1", c, EventKind::Propose, ms - 2, 43),
                seen("coord-1", c, EventKind::Decide, ms, 43),
                seen("coord-1", c, EventKind::Clear, ms, 43),
                seen("app-1", Kind::App, EventKind::Active, ms + 1, 43),
                seen("app-2", Kind::App, EventKind::Active, ms + 1, 43),
            ];
            let profile = Profile::builtin("lan").expect("built in");
            Self {
                deployment: Deployment::new(1, 2, 0, profile).expect("in bounds"),
                now: INJECTED,
                copied_at: at(copied),
                refreshed: false,
                events,
                excluded_at: at(ms),
            }
        }

        fn follow(&mut self, patience: u64) -> Failover {
            self.follow_for(patience, &programs())
        }

        fn follow_for(&mut self, patience: u64, survivors: &Survivors) -> Failover {
            let until = Until { old: ViewId(42), patience: Nanos::from_millis(patience), stopped: &|| None };
            let (dead, names) = ([VICTIM], [name("app-3")]);
            until_active(self, &mut History::default(), until, &dead, &names, INJECTED, survivors)
        }
    }

    impl Subject for Copied {
        fn deployment(&self) -> &Deployment {
            &self.deployment
        }

        fn snapshot(&mut self) -> Snapshot {
            let old = View::genesis(&[(coordinator_name(1), Address::region(1))], Nanos(1), Nanos(1));
            let departed = Departed {
                token: 1,
                incarnation: VICTIM,
                name: name("app-3"),
                kind: Kind::App,
                at: ViewId(43),
                left: false,
            };
            let view = match self.now >= self.excluded_at {
                true => View { id: ViewId(43), departed: vec![departed], ..old },
                false => View { id: ViewId(42), ..old },
            };
            Snapshot {
                at: self.now,
                view: Some(Arc::new(view)),
                processes: Vec::new(),
                remote: Vec::new(),
                health: Health::Degraded,
                reasons: Vec::new(),
            }
        }

        fn events(&mut self) -> Vec<ObservedEvent> {
            let copied = self.refreshed || self.now >= self.copied_at;
            let is_read =
                |seen: &ObservedEvent| seen.event.at <= self.now && (seen.process != name("app-2") || copied);
            let (read, left) = self.events.iter().cloned().partition(is_read);
            self.events = left;
            self.refreshed = false;
            read
        }

        fn refresh(&mut self) {
            self.refreshed = true;
        }

        fn now(&self) -> Instant {
            self.now
        }

        fn sleep(&mut self, time: Nanos) {
            self.now += time;
        }

        fn others(&self) -> Vec<String> {
            Vec::new()
        }

        fn has_ended(&self, _: &Process) -> bool {
            true
        }
    }

    fn measured(outcome: Failover) -> Nanos {
        match outcome {
            Failover::Measured { phases, .. } => phases.total(),
            Failover::Void(why, _) | Failover::Failed(why, _) => panic!("{why}"),
        }
    }

    #[test]
    fn a_survivor_of_another_host_is_not_judged_by_a_copy_that_is_older_than_the_deadline() {
        // The view comes just in time, and the copy that shows app-2 active in it later.
        assert_eq!(measured(Copied::new(2_970, 3_040).follow(3_000)), Nanos::from_millis(2_971));
        // The interval of copies grows while a host does not answer: the last look is at a new one.
        assert_eq!(measured(Copied::new(2_970, 60_000).follow(3_000)), Nanos::from_millis(2_971));
    }

    #[test]
    fn a_failover_is_over_with_the_last_program_and_agents_and_coordinators_have_their_own_figures() {
        let survivors = Survivors {
            agents: vec![name("node-1")],
            coordinators: ["coord-1", "coord-2"].map(name).to_vec(),
            ..programs()
        };
        let with = |late: &[(&str, Kind, EventKind, u64)]| {
            let mut cluster = Copied::new(2_000, 2_000);
            let events = late.iter().map(|&(who, kind, what, ms)| seen(who, kind, what, ms, 43));
            cluster.events.extend(events);
            cluster
        };
        let agent = ("node-1", Kind::Agent, EventKind::Active, 2_050);
        let leader = ("coord-1", Kind::Coordinator, EventKind::ViewReceived, 2_001);
        let other = ("coord-2", Kind::Coordinator, EventKind::ViewReceived, 2_090);
        let ms = |ms| Some(Nanos::from_millis(ms));
        let figures = |cluster: &mut Copied, survivors: &Survivors| match cluster.follow_for(3_000, survivors)
        {
            Failover::Measured { phases, agents, coordinators, .. } => {
                (Some(phases.total()), agents, coordinators)
            }
            Failover::Void(why, _) | Failover::Failed(why, _) => panic!("{why}"),
        };
        assert_eq!(
            figures(&mut with(&[agent, leader, other]), &survivors),
            (ms(2_001), ms(2_050), ms(2_090))
        );
        // A coordinator that never learns of it costs its own figure only.
        assert_eq!(figures(&mut with(&[agent, leader]), &survivors), (ms(2_001), ms(2_050), None));
        // Without programs it is the agents' failover, and without an agent there is none.
        let agents = Survivors { programs: Vec::new(), ..survivors };
        assert_eq!(figures(&mut with(&[agent, leader, other]), &agents).0, ms(2_050));
        assert!(matches!(with(&[leader, other]).follow_for(3_000, &agents), Failover::Failed(..)));
    }

    #[test]
    fn who_is_not_active_after_the_last_look_is_named_and_a_view_that_is_late_is_none() {
        let mut stuck = Copied::new(2_970, 3_000);
        stuck.events.retain(|seen| seen.process != name("app-2"));
        let Failover::Failed(why, lasted) = stuck.follow(3_000) else { panic!("it failed") };
        assert_eq!(why, "not active in view 43: app-2, 10.0s after the fault");
        assert!(lasted > FAILOVER_TIMEOUT);
        let Failover::Failed(why, _) = Copied::new(3_500, 3_500).follow(3_000) else { panic!("it failed") };
        assert_eq!(why, "no view excludes app-3, 3.00s after the fault");
    }

    #[test]
    fn only_those_that_no_view_excludes_are_named() {
        // View 43 excludes one of two.
        let mut one = Copied::new(2_000, 2_000);
        let until = Until { old: ViewId(42), patience: Nanos::from_millis(3_000), stopped: &|| None };
        let dead = [VICTIM, Incarnation(3)];
        let names = ["app-3", "coord-1"].map(name);
        let survivors = programs();
        let outcome =
            until_active(&mut one, &mut History::default(), until, &dead, &names, INJECTED, &survivors);
        let Failover::Failed(why, _) = outcome else { panic!("it failed") };
        assert_eq!(why, "no view excludes coord-1, 3.00s after the fault");
    }

    #[test]
    fn a_pause_is_tolerated_only_if_no_view_removes_its_victim() {
        let victim = |who| {
            let mut process = Process::missing(name("app-3"), Kind::App);
            process.incarnation = who;
            process
        };
        let check = |who, excluded: u64| {
            let mut cluster = Copied::new(excluded, excluded);
            cluster.now = at(100);
            let followed = Followed {
                history: History::default(),
                killed: Killed::default(),
                tolerated: vec![victim(who)],
            };
            let mut trial = Trial::default();
            check_tolerated(&mut cluster, &followed, &mut trial);
            (trial.outcome, trial.reason, trial.failed)
        };
        assert_eq!(check(Incarnation(8), 150), (Outcome::Measured, None, 0));
        // Also by a suspicion that is decided a little later.
        let why = "a pause that is to be tolerated was not: removed app-3 by view 43".to_owned();
        assert_eq!(check(VICTIM, 50), (Outcome::Failed, Some(why.clone()), 1));
        assert_eq!(check(VICTIM, 900), (Outcome::Failed, Some(why), 1));
    }
}
