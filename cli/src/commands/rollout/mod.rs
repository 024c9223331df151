//! `obol rollout`: runs a command that rolls something out, and decides by the cluster's figures
//! before and since whether it passes.

mod command;
mod forwarder;

use crate::signals;
use clap::Args;
use command::{Running, shell, shown};
use forwarder::Forwarder;
use obol_chaos::rollout::{
    Ahead, Compared, Ended, Limit, LimitError, Looks, Report, Subject, Verdict, Watcher, judge,
};
use obol_config::duration;
use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_hooks::missing_program;
use obol_observe::annotations::{CHARS_MAX, Mark, RolloutMark, RolloutStep};
use obol_observe::calendar::unix_now;
use obol_observe::{Health, Percentile};
use obol_term::output::{self, Failure};
use std::io::{ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
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
/// Between two lines of progress that say nothing new, and two marks for consoles.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const MARK_INTERVAL: Duration = Duration::from_secs(3);
/// How long an abort hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest name in marks, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Gate a rollout: a baseline, a command, and a verdict by the cluster's figures before and since
#[derive(Debug, Args)]
#[command(
    after_help = "Observes a baseline, runs COMMAND, and watches until --settle after it. As soon as a limit cannot \
    hold any more, COMMAND is ended (SIGTERM to its process group, 10 s later SIGKILL) and the hook is run. Limits are \
    absolute (500us, 0.01%) or relative to the baseline (+20%). A limit that cannot be judged for lack of samples makes the \
    rollout void; a relative one that lacks them before COMMAND, before it is run. Graceful leaves do not count as failures.\n\
    \nAt the end the cluster must be as it was before: healthy, with the same members, or programs in place of others of their \
    sort (shop-... of shop-...), and none that joined since may have failed. --allow-degraded and --max-failed say otherwise.\n\
    \nExit codes: 0 passed, 1 failed by a limit, 2 refused before anything was run, 3 COMMAND failed, 4 aborted, \
    5 interrupted, 6 void.\n\
    \nExamples:\n\
    \x20 obol rollout --max-failed 0 --max-late-renewals 0.01% --max-unavailable 0s -- ansible-playbook upgrade.yml\n\
    \x20 obol rollout --exercise 'obol drill app --count 300' --max-failover-p99 +20% -- ./deploy 1.4"
)]
pub(crate) struct Rollout {
    /// The command that rolls out, and its arguments; it gets no input
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// What is rolled out, for consoles and the report [default: COMMAND]
    #[arg(long)]
    name: Option<String>,
    /// How long the cluster is observed before
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::argument)]
    baseline: Duration,
    /// How long it is observed after COMMAND has ended
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration::argument)]
    settle: Duration,
    /// COMMAND fails if it takes longer
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration::argument)]
    timeout: Duration,
    #[command(flatten)]
    limits: Limits,
    /// Pass though members have not come back, or the cluster is degraded at the end
    #[arg(long)]
    allow_degraded: bool,
    /// A shell line that is run during the baseline and again after COMMAND, so that there are
    /// samples on both sides, for instance a drill
    #[arg(long, value_name = "LINE")]
    exercise: Option<String>,
    /// A shell line that is run where the rollout fails, is aborted or interrupted; it has the
    /// verdict in OBOL_ROLLOUT_VERDICT, and the reasons in OBOL_ROLLOUT_REASONS
    #[arg(long, value_name = "LINE")]
    abort_hook: Option<String>,
    /// A new directory for the report: rollout.md, rollout.html and rollout.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object for scripts; the output of COMMAND goes to standard error
    #[arg(long)]
    json: bool,
}

/// The limits; at least one is needed.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Limits {
    /// Limit on the median failover
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<0>)]
    max_failover_p50: Option<Limit>,
    /// Limit on the 90th percentile of failovers
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<1>)]
    max_failover_p90: Option<Limit>,
    /// Limit on the 99th percentile of failovers; it needs 299 of them
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<2>)]
    max_failover_p99: Option<Limit>,
    /// Limit on the longest failover; it holds if there is none
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<3>)]
    max_failover: Option<Limit>,
    /// Limit on the 99th percentile of the durations of lease renewals
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<4>)]
    max_renewal_p99: Option<Limit>,
    /// Limit on the share of lease renewals that are late or find no majority
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, value_parser = limit::<5>)]
    max_late_renewals: Option<Limit>,
    /// Limit on the time in which no program can act, since COMMAND began
    #[arg(long, value_name = "TIME", value_parser = limit::<6>)]
    max_unavailable: Option<Limit>,
    /// Limit on the time in which not all expected members can act, since COMMAND began
    #[arg(long, value_name = "TIME", value_parser = limit::<8>)]
    max_degraded: Option<Limit>,
    /// Limit on the members that fail since COMMAND began, without those of the exercise
    #[arg(long, value_name = "N", value_parser = limit::<7>)]
    max_failed: Option<Limit>,
}

/// What the options limit, in their order.
const SUBJECTS: [Subject; 9] = [
    Subject::Failover(Percentile::P50),
    Subject::Failover(Percentile::P90),
    Subject::Failover(Percentile::P99),
    Subject::Failover(Percentile::Max),
    Subject::Renewal(Percentile::P99),
    Subject::LateRenewals,
    Subject::Unavailable,
    Subject::Failed,
    Subject::Degraded,
];

fn limit<const N: usize>(text: &str) -> Result<Limit, LimitError> {
    SUBJECTS[N].limit(text)
}

impl Limits {
    fn all(&self) -> Vec<Limit> {
        let Self {
            max_failover_p50,
            max_failover_p90,
            max_failover_p99,
            max_failover,
            max_renewal_p99,
            max_late_renewals,
            max_unavailable,
            max_degraded,
            max_failed,
        } = *self;
        let failovers = [max_failover_p50, max_failover_p90, max_failover_p99, max_failover];
        let others = [max_renewal_p99, max_late_renewals, max_unavailable, max_degraded, max_failed];
        failovers.into_iter().chain(others).flatten().collect()
    }
}

/// How a part of the rollout ended, if not as planned.
enum Cut {
    /// A signal.
    Interrupted,
    /// Limits that cannot hold any more.
    Lost(Vec<String>),
}

/// A rollout under way.
struct Gate<'a> {
    options: &'a Rollout,
    limits: Vec<Limit>,
    name: String,
    watcher: Watcher,
    stop: Arc<AtomicBool>,
    judged: Instant,
    compared: Vec<Compared>,
    progress: Progress,
    marked: Instant,
    forwarder: Forwarder,
    exercises: Vec<Ended>,
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Rollout) -> Result<ExitCode, Failure> {
    let stop = signals::ending()?;
    // Before anybody waits for a baseline.
    if let Some(why) = options.command.first().and_then(|program| missing_program(program)) {
        return Err(Failure::Refused(format!("{why}; nothing is observed or rolled out")));
    }
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
    let out = options.out.as_deref().map(new_directory).transpose()?;
    let full = options.name.clone().unwrap_or_else(|| shown(&options.command));
    let now = Instant::now();
    let mut gate = Gate {
        options,
        limits: options.limits.all(),
        name: full.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect(),
        watcher,
        stop,
        judged: now,
        compared: Vec::new(),
        progress: Progress::default(),
        marked: now,
        forwarder,
        exercises: Vec::new(),
    };
    let (verdict, reasons, command) = gate.roll_out()?;
    gate.progress.end();
    gate.mark(RolloutStep::Over, verdict.name(), &reasons);
    let hook = gate.hook(verdict, &reasons, &command)?;
    let Gate { mut watcher, compared, forwarder, exercises, .. } = gate;
    if let Some(why) = forwarder.end() {
        let _ = output::remark(format_args!("consoles of other hosts do not show all of the rollout: {why}"));
    }
    let (before, since, _) = watcher.periods();
    let periods = (before, since);
    let mut report = Report::new(cluster.to_string(), began, (verdict, reasons), command, compared, periods);
    (report.exercises, report.hook) = (exercises, hook);
    let said = output::json_or(options.json, &report, |report| {
        report.lines().into_iter().try_for_each(output::line)
    });
    if let Some(dir) = out {
        output::kept("report", dir, report.write(dir));
    }
    // Whether to go on is decided already: the exit code says it whatever becomes of the reports.
    Ok(output::verdict(verdict.code(), said))
}

/// Makes the directory of the report, before anything is run.
fn new_directory(dir: &Path) -> Result<&Path, Failure> {
    match std::fs::create_dir(dir) {
        Ok(()) => Ok(dir),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::Refused(format!("{} exists; nothing is overwritten", dir.display())))
        }
        Err(error) => Err(Failure::Refused(format!("{}: {error}", dir.display()))),
    }
}

/// A command that was not run.
fn not_run(words: &[String]) -> Ended {
    Ended { command: shown(words), status: None, succeeded: false, took: 0.0 }
}

impl Gate<'_> {
    /// All of it. Returns the verdict with its reasons, and how the command ended.
    fn roll_out(&mut self) -> Result<(Verdict, Vec<String>, Ended), Failure> {
        let command = &self.options.command;
        if let Some((verdict, reasons)) = self.baseline()? {
            return Ok((verdict, reasons, not_run(command)));
        }
        self.watcher.poll();
        self.watcher.begin();
        self.mark(RolloutStep::Begins, "running", &[]);
        let mut running = match Running::start(command, self.options.json, &[]) {
            Ok(running) => running,
            Err(failure) => return Ok((Verdict::CommandFailed, vec![failure.to_string()], not_run(command))),
        };
        let deadline = Instant::now() + self.options.timeout;
        let ended = loop {
            let ahead = deadline.saturating_duration_since(Instant::now()) + self.options.settle;
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
                let why = format!("the command did not end within {}", Nanos::from_std(self.options.timeout));
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
        let exercised = match self.observe("baseline", self.options.baseline)? {
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
            let allows = self.options.allow_degraded && health.serves();
            let roster = (!allows).then(|| self.watcher.roster());
            let is_good = looks.take((health, &reasons), roster.as_ref());
            if is_good || Instant::now() > end || self.stop.load(Ordering::Relaxed) {
                return looks.best();
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Observes the cluster after the command, and judges.
    fn settle(&mut self) -> Result<(Verdict, Vec<String>), Failure> {
        let exercised = match self.observe("settling", self.options.settle)? {
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
        if self.options.limits.max_failed.is_none() {
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
        let mut running = match &self.options.exercise {
            Some(line) => Some(Running::start(&shell(line), self.options.json, &[])?),
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
            judge(&self.limits, self.watcher.periods(), Ahead { longest: Nanos::from_std(ahead) });
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
        let Some(line) = &self.options.abort_hook else { return Ok(None) };
        if !verdict.is_bad() || command.status.is_none() {
            return Ok(None);
        }
        output::remark(format_args!("rollout: {}; runs the abort hook", verdict.name()))?;
        let env = [
            ("OBOL_ROLLOUT_VERDICT", verdict.name().to_owned()),
            ("OBOL_ROLLOUT_REASONS", reasons.join("\n")),
        ];
        let ended = Running::start(&shell(line), self.options.json, &env)?.wait(HOOK_TIMEOUT);
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

/// Progress on standard error: one line that changes on a terminal, while no command writes to it;
/// otherwise plain lines.
#[derive(Default)]
struct Progress {
    last: Option<(String, Instant)>,
    /// Whether the cursor is on a line that changes.
    is_open: bool,
}

impl Progress {
    fn show(&mut self, name: &str, phase: &str, ahead: Duration, compared: &[String]) {
        let what = if compared.is_empty() { String::new() } else { format!(": {}", compared.join("; ")) };
        let changes = std::io::stderr().is_terminal() && phase != "running";
        if changes {
            let line = format!("rollout {name}: {phase}, {} s left{what}", ahead.as_secs());
            let width = terminal_width();
            let line: String = line.chars().take(width.saturating_sub(1)).collect();
            // Progress is informative only.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", obol_term::plain::line(&line));
            self.is_open = true;
            return;
        }
        self.end();
        let is_news = self.last.as_ref().is_none_or(|(shown, _)| shown != phase);
        let is_due = self.last.as_ref().is_some_and(|(_, at)| at.elapsed() >= LINE_INTERVAL);
        if is_news || is_due {
            self.last = Some((phase.to_owned(), Instant::now()));
            let _ = output::remark(format_args!("rollout {name}: {phase}{what}"));
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn terminal_width() -> usize {
    crossterm::terminal::size().map_or(80, |(width, _)| width.into())
}
