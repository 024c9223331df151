//! Runs a drill: steady state, arm, cue, follow, undo, repeated; then the verdict.
//!
//! Lost processes are expected: the runner works while the cluster is failing. It holds the
//! cluster's drill lock, so only one drill runs at a time, and first undoes what an earlier one
//! left behind.

use super::audited::Audited;
use super::error::RunError;
use super::fleet::Fleet;
use super::follow::{
    Bystanders, HEALTH_TIMEOUT, POLL_INTERVAL, check_overlap, check_tolerated, follow, healthy,
    healthy_within,
};
use super::journal::{self, Journal, Outcome, Probed, Trial, Verdict, Victim, counted, distribution};
use super::live::Live;
use super::options::Options;
use super::plan::{Plan, plan};
use super::probe::probe;
use super::progress::{Followed, Line, Progress, Stage};
use super::skew::{Skew, tolerated};
use super::stop::{self, Stop};
use super::subject::{Subject, System};
use crate::drillfile::{
    Abort, AbortMetric, CRASHED_ONCE, Drill, Metric, Rollback, Steady, Step, StepFault, Strategy,
};
use crate::drills::agent::channel::{Reply, Stamp};
use crate::drills::agent::halt;
use crate::drills::agent::lock::lock;
use crate::drills::agent::remote::RemoteError;
use crate::drills::agent::undo::{self, LeftBehind};
use crate::drills::victims::guard::Answer;
use crate::drills::victims::select::{Chosen, Supervisor, choose};
use crate::faults::Undone;
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::Timing;
use obol_membership::holds::JoinHolds;
use obol_node::FileLock;
use obol_observe::{Health, Observer, Process, Snapshot};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What undoes a crash.
const BY_OPERATOR: &str = "nothing undoes that but an operator, who starts it and its processes again";
/// How long the steady state may take to hold once the cluster is healthy.
const CONVERGENCE_TIMEOUT: Nanos = Nanos::from_secs(2);

/// Undoes what drills left behind on a cluster where none runs: on all hosts that are this machine.
pub fn recover(root: &Path, cluster: Name) -> Result<Undone, RunError> {
    let fleet = Fleet::open(root, cluster)?;
    let _held = lock_all(&fleet)?;
    recover_all(root, &fleet)
}

/// Keeps other drills from the hosts that are this machine. Fault agents do it on the others.
fn lock_all(fleet: &Fleet) -> Result<Vec<FileLock>, RunError> {
    fleet.dirs().map(|(_, dir)| Ok(lock(&dir)?)).collect()
}

fn recover_all(root: &Path, fleet: &Fleet) -> Result<Undone, RunError> {
    let mut all = Undone::default();
    for (_, name) in fleet.names_here() {
        let mut observer = Observer::open(root, name)?;
        let dir = observer.cluster().dir().to_owned();
        let mut undone = undo::recover(&mut observer).map_err(|error| RunError::Io(dir, error))?;
        all.done.append(&mut undone.done);
        all.failed.append(&mut undone.failed);
    }
    Ok(all)
}

pub(super) struct Runner<'a, S> {
    drill: &'a Drill,
    options: &'a Options,
    system: S,
    trials: Vec<Trial>,
    remarks: Vec<String>,
    /// How often each abort condition has held in a row.
    held: Vec<u32>,
    /// Victims so far: if a name fails too often, its join is on hold, and the drill would wait
    /// for it.
    failed: JoinHolds,
    bystanders: Bystanders,
    /// The requested repetitions.
    wanted: u32,
    /// Reasons to end it at once; none in the simulator.
    stop: Option<Stop>,
    /// Why lasting faults were undone early.
    cut: Option<String>,
    /// Whether its file ends a process that nothing restarts, so that the cluster misses it.
    leaves_down: bool,
}

/// Runs a drill. `go_on` is called after each repetition with its number; `false` ends the drill
/// early.
pub fn run(
    root: &Path,
    cluster: Name,
    drill: &Drill,
    options: &Options,
    go_on: impl FnMut(u32) -> bool,
) -> Result<Journal, RunError> {
    let mut audited = Audited::new(&options.accountable, root, cluster, &drill.id);
    match run_audited(root, cluster, drill, options, go_on, &mut audited) {
        Ok(mut journal) => {
            if let Err(error) = audited.ended(&journal) {
                // The faults are undone, and the results are there.
                journal.remarks.push(format!("the end of the drill is not logged: {error}"));
            }
            Ok(journal)
        }
        // The log cannot have this.
        Err(error @ RunError::Audit(_)) => Err(error),
        Err(error) => {
            audited.failed(&error)?;
            Err(error)
        }
    }
}

fn run_audited(
    root: &Path,
    cluster: Name,
    drill: &Drill,
    options: &Options,
    go_on: impl FnMut(u32) -> bool,
    audited: &mut Audited<'_>,
) -> Result<Journal, RunError> {
    let mut fleet = Fleet::open(root, cluster)?;
    let _held = lock_all(&fleet)?;
    if let Some(why) = fleet.dirs().find_map(|(_, dir)| halt::in_force(&dir)) {
        return Err(RunError::Halted(why));
    }
    audited.approved(drill)?;
    let Undone { done, failed } = recover_all(root, &fleet)?;
    if !failed.is_empty() {
        return Err(LeftBehind(failed).into());
    }
    let supervisor = fleet.supervisor();
    let before = Runner::<Live>::check(&mut fleet, &supervisor, drill, options)?;
    let snapshot = fleet.snapshot();
    audited.begins(&plan(drill, &fleet, &snapshot, &supervisor, 1))?;
    let stop = Stop::watch(fleet.dir(), &drill.guards.watch, &options.interrupted);
    let live = Live::start(root, drill, options, fleet, supervisor)?;
    Runner { stop: Some(stop), ..Runner::new(drill, options, live, done) }.run(before, go_on)
}

/// Refuses a second crash of hosts, by any repetition or step.
fn crashes_once(drill: &Drill, count: u32) -> Result<(), RunError> {
    let crashing = drill.steps.iter().filter(|step| step.faults.iter().any(StepFault::crashes_hosts)).count();
    let turns = count.saturating_add(drill.repeat.warmup);
    if crashing == 0 || crashing == 1 && turns <= 1 {
        return Ok(());
    }
    let says =
        format!("{CRASHED_ONCE}; here {crashing} steps crash hosts, in {turns} repetitions with warm-ups");
    Err(RunError::Guard(vec![Answer { guard: "means", allows: false, says }]))
}

/// Whether all guards allow a plan.
fn allowed(planned: Plan) -> Result<(), RunError> {
    let refusing: Vec<Answer> = planned.guards.into_iter().filter(|answer| !answer.allows).collect();
    if refusing.is_empty() { Ok(()) } else { Err(RunError::Guard(refusing)) }
}

/// The steady state, as far as it is wanted. What does not hold is looked at again for
/// [`CONVERGENCE_TIMEOUT`]: copies of other hosts' memory may be older than the newest view.
fn run_probes<S: Subject>(
    subject: &mut S,
    snapshot: &Snapshot,
    drill: &Drill,
    wanted: impl Fn(&Steady) -> bool,
) -> Vec<Probed> {
    let wanted: Vec<&Steady> = drill.steady.iter().filter(|steady| wanted(steady)).collect();
    let mut probed: Vec<Probed> = wanted.iter().map(|steady| probe(subject, snapshot, steady)).collect();
    let deadline = subject.now() + CONVERGENCE_TIMEOUT;
    // Systems outside are asked once.
    let again = |(steady, one): &(&&Steady, &mut Probed)| !one.holds && steady.external.is_none();
    while subject.now() < deadline && wanted.iter().zip(&mut probed).any(|one| again(&one)) {
        subject.sleep(POLL_INTERVAL);
        let snapshot = subject.snapshot();
        for (steady, one) in wanted.iter().zip(&mut probed).filter(again) {
            *one = probe(subject, &snapshot, steady);
        }
    }
    probed
}

impl<'a, S: System> Runner<'a, S> {
    /// Checks whether a run may begin, before any fault. Returns the steady state.
    pub(super) fn check(
        subject: &mut S::Subject,
        supervisor: &Supervisor,
        drill: &Drill,
        options: &Options,
    ) -> Result<Vec<Probed>, RunError> {
        crashes_once(drill, options.count.unwrap_or(drill.repeat.count))?;
        let snapshot = subject.snapshot();
        allowed(plan(drill, subject, &snapshot, supervisor, 1))?;
        if let Some(on_wait) =
            options.on_wait.filter(|_| !matches!(snapshot.health, Health::Healthy | Health::Unreachable))
        {
            on_wait(drill, &snapshot.reasons);
        }
        let snapshot = healthy(subject)?;
        for step in &drill.steps {
            choose(drill, step, &snapshot, supervisor, 1)?;
        }
        let before = run_probes(subject, &snapshot, drill, |steady| steady.before);
        if before.iter().any(|one| !one.holds) {
            return Err(RunError::Steady(before.into_iter().filter(|one| !one.holds).collect()));
        }
        Ok(before)
    }

    pub(super) fn new(drill: &'a Drill, options: &'a Options, system: S, remarks: Vec<String>) -> Self {
        let (held, wanted) = (vec![0; drill.guards.abort.len()], options.count.unwrap_or(drill.repeat.count));
        Self {
            drill,
            options,
            system,
            trials: Vec::new(),
            remarks,
            held,
            failed: JoinHolds::default(),
            bystanders: Bystanders::default(),
            wanted,
            stop: None,
            cut: None,
            leaves_down: false,
        }
    }

    /// All repetitions, and the verdict.
    pub(super) fn run(
        mut self,
        before: Vec<Probed>,
        mut go_on: impl FnMut(u32) -> bool,
    ) -> Result<Journal, RunError> {
        let (began, start) = (unix_seconds(), self.system.subject().now());
        self.bystanders.removed(&self.system.subject().snapshot());
        let (verdict, count) = self.repeat(self.wanted, &mut go_on)?;
        Ok(self.finish(verdict, count, began, start, before))
    }

    /// All repetitions. Returns the verdict of an early end, if there was one.
    fn repeat(
        &mut self,
        count: u32,
        go_on: &mut impl FnMut(u32) -> bool,
    ) -> Result<(Option<Verdict>, u32), RunError> {
        let drill = self.drill;
        let end = self.system.subject().now() + drill.timeout;
        let mut failures = 0;
        let warmups = (1..=drill.repeat.warmup).map(|n| (n, true));
        let most = count + extension(count);
        for (number, warmup) in warmups.chain((1..=most).map(|n| (n, false))) {
            if !warmup && number > count {
                let lacks = journal::lacks(&self.trials, count);
                if lacks == 0 {
                    return Ok((None, number - 1));
                }
                if let Some(step) = drill.steps.first().filter(|_| number == count + 1) {
                    self.report(number, step, Stage::Extends { lacks, most });
                }
            }
            let done = if warmup { 0 } else { number };
            for step in &drill.steps {
                let trial = match self.trial(step, number, warmup) {
                    Ok(trial) => self.count_bystanders(trial),
                    Err(error) => {
                        let (verdict, begun) = self.given_up(error, number)?;
                        return Ok((Some(verdict), if begun { done } else { done.saturating_sub(1) }));
                    }
                };
                let aborts = self.aborts(&trial).map(|why| (why, Verdict::Aborted));
                failures += u32::from(trial.outcome == Outcome::Failed);
                self.trials.push(trial);
                if let Some((why, verdict)) = aborts.or_else(|| Some((self.stopped()?, self.cut_verdict()))) {
                    self.remarks.push(why);
                    return Ok((Some(verdict), done));
                }
                if failures >= drill.repeat.stop_after_failures {
                    return Ok((Some(Verdict::Failed), done));
                }
            }
            let wanted = go_on(done) && self.system.subject().now() <= end;
            if !wanted && done >= count {
                return Ok((None, done));
            }
            if !wanted {
                self.remarks.push(format!("ended after {done} of {count} repetitions"));
                return Ok((Some(Verdict::Interrupted), done));
            }
            match &self.stop {
                Some(stop) => stop.wait(drill.repeat.gap, |part| self.system.subject().sleep(part)),
                None => self.system.subject().sleep(drill.repeat.gap),
            }
        }
        Ok((None, most))
    }

    /// Notes why a repetition was given up. Returns the verdict, and whether it had begun; the error
    /// itself if there are no results to keep.
    fn given_up(&mut self, error: RunError, number: u32) -> Result<(Verdict, bool), RunError> {
        let (why, verdict, begun) = match error {
            RunError::Guard(answers) => {
                self.remarks.extend(answers.into_iter().map(|a| format!("guard {}: {}", a.guard, a.says)));
                return Ok((Verdict::Aborted, true));
            }
            // Nothing was injected; the results so far are kept.
            RunError::Halted(why) => (why, self.cut_verdict(), false),
            RunError::FaultAgent(RemoteError::Answer(Reply::Halted { reason })) => {
                (reason, Verdict::Aborted, true)
            }
            RunError::FaultAgent(error) if self.stopped().is_some() => {
                (self.stopped().unwrap_or_else(|| error.to_string()), self.cut_verdict(), true)
            }
            RunError::FaultAgent(RemoteError::Refused(reason)) => {
                (format!("the fault agent refused repetition {number}: {reason}"), Verdict::Aborted, true)
            }
            // Results so far are kept.
            RunError::FaultAgent(error) => {
                self.remarks.push(format!("the fault agent was lost in repetition {number}: {error}"));
                self.remarks.extend(self.system.lost());
                return Ok((Verdict::Aborted, true));
            }
            error if self.trials.is_empty() => return Err(error),
            // The cluster did not recover from the previous repetition.
            error @ RunError::NotHealthy(_) => {
                (format!("before repetition {number}: {error}"), Verdict::Failed, false)
            }
            error => (format!("repetition {number} could not begin: {error}"), Verdict::Aborted, false),
        };
        self.remarks.push(why);
        Ok((verdict, begun))
    }

    /// The verdict where it has to end.
    fn cut_verdict(&self) -> Verdict {
        self.stop.as_ref().map_or(Verdict::Aborted, Stop::verdict)
    }

    /// Why it has to end, if so.
    fn stopped(&self) -> Option<String> {
        self.cut.clone().or_else(|| self.stop.as_ref()?.reason())
    }

    /// Fails where it has to end.
    fn go_on(&self) -> Result<(), RunError> {
        self.stopped().map_or(Ok(()), |why| Err(RunError::Halted(why)))
    }

    /// Has temporary faults undone, at their end or early. Returns what could not be undone.
    fn undo(&mut self, lasts: Nanos, trial: &Trial) -> Result<Vec<String>, RunError> {
        let injected = trial.stamps.iter().map(|stamp| Instant(stamp.at)).min();
        let now = self.system.subject().now();
        let end = injected.map_or(now, |injected| injected + lasts).min(now + lasts);
        if self.options.undo_early {
            self.system.undo_early()?;
        } else {
            self.wait_out(end)?;
        }
        // A fault agent that hangs is waited for from the end of its faults on.
        let left = end.since(self.system.subject().now());
        self.system.undone(left)
    }

    /// Waits until temporary faults end. Undoes them early where it has to end.
    fn wait_out(&mut self, end: Instant) -> Result<(), RunError> {
        if self.stop.is_none() {
            return Ok(());
        }
        loop {
            self.cut = self.stopped();
            if self.cut.is_some() {
                return self.system.undo_early();
            }
            let left = end.since(self.system.subject().now());
            if left == Nanos::ZERO || self.system.is_over() {
                return Ok(());
            }
            self.system.subject().sleep(left.min(stop::POLL_INTERVAL));
        }
    }

    fn report(&self, number: u32, step: &Step, stage: Stage) {
        if let Some(report) = self.options.on_progress {
            report(&Line::Step(Progress { number, step: step.name.clone(), stage }));
        }
    }

    /// Waits until the victims can fail without their joins being put on hold, and counts their
    /// failures; true if it waited.
    fn await_join_budget(&mut self, chosen: &[Chosen]) -> bool {
        let timing = self.system.subject().deployment().profile.timing;
        // Use half of the allowance at the same rate: decisions take time, and other failures count
        // as well.
        let (join_burst, join_window) = (timing.join_burst.div_ceil(2), Nanos(timing.join_window.0 / 2));
        let timing = Timing { join_burst, join_window, ..timing };
        let now = self.system.subject().now();
        let victims = || chosen.iter().map(|one| &one.process);
        let from = victims().map(|victim| self.failed.next_free_failure(victim.name, &timing, now)).max();
        let pause = from.map_or(Nanos::ZERO, |from| from.since(now));
        if pause > Nanos::ZERO {
            self.system.subject().sleep(pause);
            return true;
        }
        for victim in victims() {
            self.failed.failed(victim.name, victim.incarnation, &timing, now);
        }
        false
    }

    /// Adds bystanders removed since the end of the previous repetition.
    fn count_bystanders(&mut self, mut trial: Trial) -> Trial {
        let removed = self.bystanders.removed(&self.system.subject().snapshot());
        trial.falsely_failed += removed;
        trial.failed += removed;
        trial
    }

    /// Arms, sends the cue, follows, and undoes.
    fn trial(&mut self, step: &Step, number: u32, warmup: bool) -> Result<Trial, RunError> {
        self.go_on()?;
        self.report(number, step, Stage::Waits);
        let turn = if warmup { u32::MAX - number } else { number };
        let (before, chosen) = loop {
            healthy(self.system.subject())?;
            // Earlier events are dropped before the snapshot from which the step is judged. A survivor may
            // be active in a later view while the faults are armed, and says so once only.
            self.system.subject().events();
            let before = healthy(self.system.subject())?;
            let chosen = choose(self.drill, step, &before, &self.system.supervisor(), turn)?;
            if !self.await_join_budget(&chosen) {
                break (before, chosen);
            }
        };
        let supervisor = self.system.supervisor();
        allowed(plan(self.drill, self.system.subject(), &before, &supervisor, turn))?;
        self.bystanders.hit(&chosen, &before);
        let restart = self.restart(step, &chosen);
        let crashes = |c: &Chosen| {
            step.faults.iter().any(|fault| fault.crashes_hosts() && fault.targets.contains(&c.target))
        };
        let stays_down =
            |c: &Chosen| crashes(c) || !c.supervised && step.faults.iter().any(|fault| fault.ends(&c.target));
        self.leaves_down |= chosen.iter().any(stays_down);
        self.system.arm(self.drill, step, &chosen, &restart)?;
        let victims: Vec<String> = chosen.iter().map(|one| one.process.name.to_string()).collect();
        self.report(number, step, Stage::Armed(victims));
        let mut trial = Trial {
            number,
            warmup,
            step: step.name.clone(),
            victims: chosen.iter().map(victim).collect(),
            ..Trial::default()
        };
        self.go_on()?;
        let Some(stamps) = self.system.fire()? else {
            trial.ends(Outcome::Void, "the cue did not arrive in time, and nothing was injected");
            return Ok(trial);
        };
        trial.stamps = stamps;
        let hosts: BTreeSet<u8> = chosen.iter().filter(|c| crashes(c)).map(|c| c.process.host).collect();
        self.report(number, step, Stage::Injected);
        let stop = self.stop.as_ref();
        let gone = self.system.agent_gone();
        let stopped =
            || stop.and_then(Stop::reason).or_else(|| gone().then(|| RemoteError::Ended.to_string()));
        let mut followed = follow(&mut self.system, step, &chosen, &before, &stopped, &mut trial);
        let cut = self.stopped().is_some();
        if cut {
            // A host that has not crashed yet is spared.
            self.system.spare();
        }
        self.remarks.extend(crash_remarks(&hosts, &trial.stamps, cut));
        self.report(number, step, Stage::Followed(Followed::of(&trial)));
        self.check_cue(step, &mut trial);
        let lasts = step.faults.iter().filter_map(|fault| fault.lasts).fold(Nanos::ZERO, Nanos::max);
        if lasts > Nanos::ZERO {
            let failed = match self.undo(lasts, &trial) {
                Err(error) => {
                    // A fault agent that is halted undoes and ends without orders.
                    trial.ends(Outcome::Void, self.stopped().ok_or(error)?);
                    return Ok(trial);
                }
                Ok(failed) => failed,
            };
            if !failed.is_empty() {
                trial.ends(Outcome::Failed, failed.join("; "));
            }
            // A victim that has resumed, or is reachable again, must not have acted in the old view
            // since.
            check_tolerated(self.system.subject(), &followed, &mut trial);
            check_overlap(self.system.subject(), &mut followed, &before, &mut trial);
            self.report(number, step, Stage::Undone);
        }
        if let Some(violation) = self.system.subject().violation() {
            trial.ends(Outcome::Failed, violation);
        }
        if let Err(error) = self.roll_back(step, &chosen, &trial) {
            // Even if the failover worked, the cluster is not complete again.
            trial.ends(Outcome::Failed, format!("the processes could not be restarted: {error}"));
            return Ok(trial);
        }
        self.system.restored()?;
        if trial.outcome == Outcome::Void && trial.unavailable_ns.is_none() {
            let injected =
                trial.stamps.iter().map(|stamp| stamp.at).min().map_or(self.system.subject().now(), Instant);
            let subject = self.system.subject();
            // One that does not recover ends the drill before the next repetition.
            let _ = healthy_within(subject, HEALTH_TIMEOUT);
            trial.unavailable_ns = Some(subject.now().since(injected).0);
        }
        self.report(number, step, Stage::Restored);
        Ok(trial)
    }

    /// The processes that a step ends, that the drill restarts, and that the supervisor can start.
    fn restart(&self, step: &Step, chosen: &[Chosen]) -> Vec<Process> {
        let ends = |c: &&Chosen| {
            let ends = step.faults.iter().any(|fault| fault.ends(&c.target) && !fault.crashes_hosts());
            ends && self.drill.rollback.restart.contains(&c.target)
        };
        let able = chosen.iter().filter(ends).filter(|c| c.supervised);
        able.map(|c| c.process.clone()).collect()
    }

    /// Voids a trial whose faults were not injected together.
    fn check_cue(&self, step: &Step, trial: &mut Trial) {
        let skew = Skew::of(&trial.stamps);
        (trial.skew_ns, trial.skew_error_ns) = (skew.found.0, skew.error.0);
        let most = tolerated(step.max_cue_skew, &trial.stamps);
        let missed = trial
            .stamps
            .iter()
            .find_map(|stamp: &Stamp| stamp.error.as_ref().map(|e| format!("{}: {e}", stamp.name)));
        let reason = match missed {
            Some(missed) => Some(format!("a fault missed: {missed}")),
            None if skew.most() > most && skew.error == Nanos::ZERO => {
                Some(format!("the cue's skew is {}, more than max_cue_skew = {most}", skew.found))
            }
            None if skew.most() > most => Some(format!(
                "the cue's skew is {} and, by the error of the hosts' clocks, up to {}, more than max_cue_skew = {most}",
                skew.found,
                skew.most()
            )),
            None => None,
        };
        // A failure of the cluster counts all the same.
        if let Some(reason) = reason
            && trial.outcome == Outcome::Measured
        {
            trial.ends(Outcome::Void, reason);
        }
    }

    /// Restarts ended processes as the drill requires.
    fn roll_back(&mut self, step: &Step, chosen: &[Chosen], trial: &Trial) -> Result<(), RunError> {
        let wanted = match self.drill.rollback.strategy {
            Strategy::Always => true,
            Strategy::Deviated => trial.outcome == Outcome::Failed,
            Strategy::Never => false,
        };
        if !wanted {
            return Ok(());
        }
        for victim in self.restart(step, chosen) {
            self.system.start(&victim)?;
        }
        Ok(())
    }

    /// Why the drill is aborted, if so.
    fn aborts(&mut self, trial: &Trial) -> Option<String> {
        let mut why = None;
        for (Abort { metric, above, samples }, held) in self.drill.guards.abort.iter().zip(&mut self.held) {
            let value = match metric {
                AbortMetric::OverlapNs => Some(trial.overlap_ns as f64),
                AbortMetric::UnavailableUs => trial.unavailable_ns.map(|ns| ns as f64 / 1000.0),
                AbortMetric::FalseSuspicions => Some(trial.falsely_failed as f64),
                AbortMetric::SkewUs => {
                    Some(trial.skew_ns.saturating_add(trial.skew_error_ns) as f64 / 1000.0)
                }
            };
            let Some(value) = value else { continue };
            *held = if value > *above { *held + 1 } else { 0 };
            if *held >= *samples {
                why = Some(format!(
                    "aborted: {} was {value:.0} in repetition {}, above {above}",
                    metric.name(),
                    trial.number
                ));
            }
        }
        why
    }

    /// The steady state afterwards, and the verdict.
    fn finish(
        mut self,
        early: Option<Verdict>,
        count: u32,
        began: u64,
        start: Instant,
        before: Vec<Probed>,
    ) -> Journal {
        // A failure is reported as it is.
        let patience = if early == Some(Verdict::Failed) { Nanos::ZERO } else { HEALTH_TIMEOUT };
        let (snapshot, whole) = match healthy_within(self.system.subject(), patience) {
            Ok(snapshot) => (snapshot, true),
            Err(error) => {
                self.remarks.push(format!("after the last repetition: {error}"));
                (self.system.subject().snapshot(), false)
            }
        };
        let after = run_probes(self.system.subject(), &snapshot, self.drill, |steady| steady.after);
        // Bystanders removed since the last repetition, or in one that was given up.
        if let Some(last) = self.trials.pop() {
            let last = self.count_bystanders(last);
            self.trials.push(last);
        }
        let judged = journal::judge(self.drill, &self.trials);
        let extended = count.saturating_sub(self.wanted);
        if extended > 0 {
            let missing = match journal::lacks(&self.trials, self.wanted) {
                0 => String::new(),
                lacks => format!("; {lacks} more samples are missing, but no more are added"),
            };
            self.remarks.push(format!(
                "{extended} repetitions were added to the {} requested ones, in place of void ones{missing}",
                self.wanted
            ));
        }
        if journal::judged_nothing(self.drill, &self.trials, &judged, &after) {
            self.remarks.push(match self.drill.judges() {
                true => "nothing was judged: too few repetitions were measured for any bound".to_owned(),
                false => "this drill judges nothing: it has neither an [[expect]], nor a [[steady]] for afterwards, nor a \
                          fault that is to be tolerated, so it cannot pass"
                    .to_owned(),
            });
        }
        let verdict = early.unwrap_or_else(|| match whole || self.leaves_down || !restores(self.drill) {
            true => journal::verdict(self.drill, &self.trials, &judged, &after),
            // As between two repetitions: the cluster did not recover from the last one.
            false => Verdict::Failed,
        });
        let figures_us = Metric::figures()
            .map(|metric| (metric.name().to_owned(), distribution(&self.trials, metric).summary()))
            .filter(|(_, summary)| summary.n > 0)
            .collect();
        let (host, ssh) = (self.system.host(), self.system.ssh());
        let subject = self.system.subject();
        let took = subject.now().since(start).as_micros_f64() / 1e6;
        let deployment = subject.deployment();
        Journal {
            schema: journal::SCHEMA,
            drill: self.drill.id.clone(),
            title: self.drill.title.clone(),
            began,
            took,
            verdict,
            count,
            extended,
            void: counted(&self.trials).filter(|t| t.outcome == Outcome::Void).count() as u32,
            profile: deployment.profile.name.to_string(),
            environment: deployment.environment.to_string(),
            host,
            ssh,
            before,
            after,
            figures_us,
            judged,
            trials: self.trials,
            remarks: self.remarks,
        }
    }
}

/// What is said of hosts that a step crashes; of those where a drill was `cut` short, it may not have.
fn crash_remarks(hosts: &BTreeSet<u8>, stamps: &[Stamp], cut: bool) -> Vec<String> {
    let hit = hosts.iter().filter(|host| stamps.iter().any(|stamp| stamp.hit(**host)));
    let what = if cut { "may have crashed" } else { "was crashed" };
    hit.map(|host| format!("host {host} {what}: {BY_OPERATOR}")).collect()
}

/// How many repetitions a run may add in place of void ones: half as many again.
const fn extension(count: u32) -> u32 {
    count.div_ceil(2)
}

/// Whether a drill restarts all processes that it kills, so that the cluster must be healthy
/// afterwards.
fn restores(drill: &Drill) -> bool {
    let faults = drill.steps.iter().flat_map(|step| &step.faults);
    let mut killed = faults.filter(|f| f.kind.effect().ends() && !f.crashes_hosts()).flat_map(|f| &f.targets);
    let Rollback { strategy, restart } = &drill.rollback;
    killed.all(|target| *strategy == Strategy::Always && restart.contains(target))
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn victim(chosen: &Chosen) -> Victim {
    Victim {
        target: chosen.target.clone(),
        process: chosen.process.name.to_string(),
        host: chosen.process.host,
        pid: chosen.process.process.pid,
        incarnation: chosen.process.incarnation.0,
    }
}

#[cfg(test)]
mod tests;
