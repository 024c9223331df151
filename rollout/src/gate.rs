//! The gate: runs a command that rolls something out, and decides by the cluster's figures before and
//! since whether it passes.

use super::command::{Running, shell, shown};
use super::forwarder::Forwarder;
use super::{Ahead, Compared, Ended, Limit, Looks, Outcome, Report, Subject, Verdict, Watcher, judge};
use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_observe::Health;
use obol_observe::annotations::{CHARS_MAX, Mark, RolloutMark, RolloutStep};
use obol_observe::calendar::unix_now;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two reads of the cluster: what an outage is measured by.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Between two judgements.
const JUDGE_INTERVAL: Duration = Duration::from_secs(1);
/// A cluster that is not as it was before has this much time after settling before the rollout has failed.
const AS_BEFORE_WITHIN: Duration = Duration::from_secs(10);
/// Between two marks for consoles.
const MARK_INTERVAL: Duration = Duration::from_secs(3);
/// How long an abort hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest name in marks, in characters.
const NAME_CHARS_MAX: usize = 60;

/// What is rolled out, and what it has to keep.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command that rolls out, and its arguments.
    pub command: Vec<String>,
    /// What is rolled out, for consoles and the report; none for the command itself.
    pub name: Option<String>,
    /// How long the cluster is observed before.
    pub baseline: Duration,
    /// How long it is observed after the command has ended.
    pub settle: Duration,
    /// The command fails if it takes longer.
    pub timeout: Duration,
    pub limits: Vec<Limit>,
    /// Pass though members have not come back, or the cluster is degraded at the end.
    pub allow_degraded: bool,
    /// A shell line that is run before the command and again after it.
    pub exercise: Option<String>,
    /// A shell line that is run where the rollout is to be undone.
    pub abort_hook: Option<String>,
    /// The output of programs goes to standard error.
    pub to_stderr: bool,
}

/// What is shown of a rollout under way.
pub trait Progress {
    /// The rollout of this name is in a phase, for `ahead` at the longest, and its limits are so.
    fn show(&mut self, name: &str, phase: &str, ahead: Duration, compared: &[String]);
    /// Nothing more follows.
    fn end(&mut self);
}

/// How a part of the rollout ended, if not as planned.
enum Cut {
    /// A signal.
    Interrupted,
    /// Limits that cannot hold any more.
    Lost(Vec<String>),
}

/// A rollout under way.
pub struct Gate<'a> {
    plan: &'a Plan,
    progress: &'a mut dyn Progress,
    /// As marks and progress have it.
    name: String,
    began: u64,
    watcher: Watcher,
    stop: Arc<AtomicBool>,
    judged: Instant,
    compared: Vec<Compared>,
    marked: Instant,
    forwarder: Forwarder,
    exercises: Vec<Ended>,
}

/// A command that was not run.
fn not_run(words: &[String]) -> Ended {
    Ended { command: shown(words), status: None, succeeded: false, took: 0.0 }
}

impl<'a> Gate<'a> {
    /// Opens a cluster, which must be healthy.
    pub fn open(
        root: &Path,
        cluster: Name,
        plan: &'a Plan,
        progress: &'a mut dyn Progress,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let began = unix_now();
        let mut watcher = Watcher::open(root, cluster).map_err(Failure::refused)?;
        let (health, reasons) = watcher.poll();
        if health != Health::Healthy {
            return Err(Failure::Refused(format!(
                "the cluster is {}, so nothing is rolled out: {}; see `obol status`",
                health.name(),
                reasons.join("; ")
            )));
        }
        let forwarder = Forwarder::start(root, cluster)?;
        let full = plan.name.clone().unwrap_or_else(|| shown(&plan.command));
        let now = Instant::now();
        Ok(Self {
            plan,
            progress,
            name: full.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect(),
            began,
            watcher,
            stop,
            judged: now,
            compared: Vec::new(),
            marked: now,
            forwarder,
            exercises: Vec::new(),
        })
    }

    /// Rolls out, and judges it.
    pub fn run(mut self, cluster: Name) -> Result<Report, Failure> {
        let (verdict, reasons, command) = self.roll_out()?;
        self.progress.end();
        self.mark(RolloutStep::Over, verdict.name(), &reasons);
        let hook = self.hook(verdict, &reasons, &command)?;
        let Self { mut watcher, began, compared, forwarder, exercises, .. } = self;
        if let Some(why) = forwarder.end() {
            let _ =
                output::remark(format_args!("consoles of other hosts do not show all of the rollout: {why}"));
        }
        let ended = Outcome { verdict, reasons, command, compared };
        let mut report = Report::new(cluster.to_string(), began, ended, watcher.periods());
        (report.exercises, report.hook) = (exercises, hook);
        Ok(report)
    }

    /// All of it. Returns the verdict with its reasons, and how the command ended.
    fn roll_out(&mut self) -> Result<(Verdict, Vec<String>, Ended), Failure> {
        let command = &self.plan.command;
        if let Some((verdict, reasons)) = self.baseline()? {
            return Ok((verdict, reasons, not_run(command)));
        }
        self.watcher.poll();
        self.watcher.begin();
        self.mark(RolloutStep::Begins, "running", &[]);
        let mut running = match Running::start(command, self.plan.to_stderr, &[]) {
            Ok(running) => running,
            Err(failure) => return Ok((Verdict::CommandFailed, vec![failure.to_string()], not_run(command))),
        };
        let deadline = Instant::now() + self.plan.timeout;
        let ended = loop {
            let ahead = deadline.saturating_duration_since(Instant::now()) + self.plan.settle;
            if let Some(cut) = self.step("running", ahead) {
                let ended = running.end().map_err(Failure::failed)?;
                let (verdict, reasons) = cut.verdict();
                return Ok((verdict, reasons, ended));
            }
            if let Some(ended) = running.poll().map_err(Failure::failed)? {
                break ended;
            }
            if Instant::now() >= deadline {
                let ended = running.end().map_err(Failure::failed)?;
                let why = format!("the command did not end within {}", Nanos::from_std(self.plan.timeout));
                return Ok((Verdict::CommandFailed, vec![why], ended));
            }
        };
        if !ended.succeeded {
            let status = ended.status.as_deref().unwrap_or_default();
            return Ok((Verdict::CommandFailed, vec![format!("the command ended with {status}")], ended));
        }
        self.watcher.poll();
        self.watcher.settle();
        let (verdict, reasons) = self.settle()?;
        Ok((verdict, reasons, ended))
    }

    /// Observes the cluster before the command. Returns a verdict if the command must not be run.
    fn baseline(&mut self) -> Result<Option<(Verdict, Vec<String>)>, Failure> {
        let exercised = match self.observe("baseline", self.plan.baseline)? {
            Ok(exercised) => exercised,
            Err(cut) => return Ok(Some(cut.verdict())),
        };
        if let Some(why) = exercised {
            return Ok(Some((Verdict::Void, vec![format!("before the command, {why}")])));
        }
        self.judge(Duration::ZERO);
        // Since the command there is nothing yet, and only what is missing before counts.
        let lacks = self.compared.iter().filter(|one| one.bound.is_none());
        let reasons: Vec<String> = lacks
            .map(|one| {
                format!(
                    "{} is limited relative to the baseline, which has too few samples: {} more are needed; take a longer \
                     --baseline, an --exercise, or an absolute limit",
                    one.what, one.lacks.0
                )
            })
            .collect();
        Ok((!reasons.is_empty()).then_some((Verdict::Void, reasons)))
    }

    /// In what the cluster is worse than before the rollout. What is so for a moment only, as between two
    /// leases, has time to become as it was. Members that died with the coordinators are in no view, so that
    /// no limit counts them.
    fn worse_at_the_end(&mut self) -> Vec<String> {
        let end = Instant::now() + AS_BEFORE_WITHIN;
        let mut looks = Looks::default();
        loop {
            let (health, reasons) = self.watcher.poll();
            let allows = self.plan.allow_degraded && health.serves();
            let roster = (!allows).then(|| self.watcher.roster());
            let is_good = looks.take(health, &reasons, roster.as_ref());
            if is_good || Instant::now() > end || self.stop.load(Ordering::Relaxed) {
                return looks.best();
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Observes the cluster after the command, and judges.
    fn settle(&mut self) -> Result<(Verdict, Vec<String>), Failure> {
        let exercised = match self.observe("settling", self.plan.settle)? {
            Ok(exercised) => exercised,
            Err(cut) => return Ok(cut.verdict()),
        };
        let worse = self.worse_at_the_end();
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Cut::Interrupted.verdict());
        }
        self.judge(Duration::ZERO);
        let failed = |holds: Option<bool>| {
            let of = self.compared.iter().filter(move |one| one.holds == holds);
            of.filter_map(Compared::complaint).collect::<Vec<_>>()
        };
        let mut wrong = failed(Some(false));
        wrong.extend(worse);
        // A limit on failed members counts these as well.
        if self.plan.limits.iter().all(|limit| limit.subject != Subject::Failed) {
            wrong.extend(self.watcher.roster().crashes());
        }
        wrong.extend(exercised.map(|why| format!("after the command, {why}")));
        if !wrong.is_empty() {
            return Ok((Verdict::Failed, wrong));
        }
        let open = failed(None);
        Ok(if open.is_empty() { (Verdict::Passed, open) } else { (Verdict::Void, open) })
    }

    /// Observes for a time, and until the exercise has ended. Returns why the exercise failed, if so.
    fn observe(&mut self, phase: &str, time: Duration) -> Result<Result<Option<String>, Cut>, Failure> {
        let end = Instant::now() + time;
        let mut running = match &self.plan.exercise {
            Some(line) => Some(Running::start(&shell(line), self.plan.to_stderr, &[])?),
            None => None,
        };
        self.watcher.set_exercises(running.is_some());
        let mut failed = None;
        while running.is_some() || Instant::now() < end {
            let ahead = end.saturating_duration_since(Instant::now());
            if let Some(cut) = self.step(phase, ahead) {
                if let Some(running) = running {
                    self.exercises.push(running.end().map_err(Failure::failed)?);
                }
                return Ok(Err(cut));
            }
            let Some(ended) =
                running.as_mut().map(Running::poll).transpose().map_err(Failure::failed)?.flatten()
            else {
                continue;
            };
            running = None;
            // What died last is seen by the next poll.
            self.watcher.poll();
            self.watcher.set_exercises(false);
            if !ended.succeeded {
                let status = ended.status.as_deref().unwrap_or_default();
                failed = Some(format!("the exercise ended with {status}"));
            }
            self.exercises.push(ended);
        }
        Ok(Ok(failed))
    }

    /// One poll, and whatever is due. `ahead` is the longest time until the end.
    fn step(&mut self, phase: &str, ahead: Duration) -> Option<Cut> {
        thread::sleep(POLL_INTERVAL);
        self.watcher.poll();
        if self.stop.load(Ordering::Relaxed) {
            return Some(Cut::Interrupted);
        }
        if self.judged.elapsed() < JUDGE_INTERVAL {
            return None;
        }
        self.judge(ahead);
        let is_baseline = phase == "baseline";
        let lost = |one: &&Compared| one.is_lost && !is_baseline;
        let lost: Vec<String> = self.compared.iter().filter(lost).filter_map(Compared::complaint).collect();
        let lines: Vec<String> = self.compared.iter().map(Compared::line).collect();
        // A limit of the rollout says nothing about the baseline.
        let shown = if is_baseline { Vec::new() } else { lines };
        self.progress.show(&self.name, phase, ahead, &shown);
        if !is_baseline && self.marked.elapsed() >= MARK_INTERVAL {
            self.mark(RolloutStep::Goes, phase, &lost);
        }
        (!lost.is_empty()).then_some(Cut::Lost(lost))
    }

    fn judge(&mut self, ahead: Duration) {
        self.judged = Instant::now();
        self.compared =
            judge(&self.plan.limits, self.watcher.periods(), Ahead { longest: Nanos::from_std(ahead) });
    }

    /// Shows it on the consoles of all hosts. They are informed, and the gate decides without them.
    fn mark(&mut self, step: RolloutStep, phase: &str, wrong: &[String]) {
        self.marked = Instant::now();
        let rollout = RolloutMark {
            name: self.name.clone(),
            phase: phase.to_owned(),
            compared: self.compared.iter().map(Compared::line).collect(),
            wrong: wrong.iter().map(|line| line.chars().take(CHARS_MAX).collect()).collect(),
            step,
        };
        let mark = Mark::rollout(clock::now(), rollout);
        if let Err(error) = mark.write(self.watcher.dir())
            && step != RolloutStep::Goes
        {
            let _ = output::remark(format_args!("consoles do not show the rollout: {error}"));
        }
        self.forwarder.send(mark);
    }

    /// Runs the hook, if the rollout is to be undone.
    fn hook(&self, verdict: Verdict, reasons: &[String], command: &Ended) -> Result<Option<Ended>, Failure> {
        let Some(line) = &self.plan.abort_hook else { return Ok(None) };
        if !verdict.is_bad() || command.status.is_none() {
            return Ok(None);
        }
        output::remark(format_args!("rollout: {}; runs the abort hook", verdict.name()))?;
        let env = [
            ("OBOL_ROLLOUT_VERDICT", verdict.name().to_owned()),
            ("OBOL_ROLLOUT_REASONS", reasons.join("\n")),
        ];
        let ended = Running::start(&shell(line), self.plan.to_stderr, &env)?.wait(HOOK_TIMEOUT);
        ended.map(Some).map_err(Failure::failed)
    }
}

impl Cut {
    fn verdict(self) -> (Verdict, Vec<String>) {
        match self {
            Self::Interrupted => (Verdict::Interrupted, vec!["a signal ended it".to_owned()]),
            Self::Lost(reasons) => (Verdict::Aborted, reasons),
        }
    }
}
