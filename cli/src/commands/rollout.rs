//! `obol rollout`: runs a command that rolls something out, and decides by the cluster's figures
//! before and since whether it passes.

use clap::Args;
use obol_config::duration;
use obol_fabric::Name;
use obol_hooks::missing_program;
use obol_observe::Percentile;
use obol_rollout::{Gate, Limit, LimitError, Plan, Subject};
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two lines of progress that say nothing new.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

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

impl Rollout {
    fn plan(&self) -> Plan {
        Plan {
            command: self.command.clone(),
            name: self.name.clone(),
            baseline: self.baseline,
            settle: self.settle,
            timeout: self.timeout,
            limits: self.limits.all(),
            allow_degraded: self.allow_degraded,
            exercise: self.exercise.clone(),
            abort_hook: self.abort_hook.clone(),
            to_stderr: self.json,
        }
    }
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Rollout) -> Result<ExitCode, Failure> {
    let stop = signals::ending()?;
    // Before anybody waits for a baseline.
    if let Some(why) = options.command.first().and_then(|program| missing_program(program)) {
        return Err(Failure::Refused(format!("{why}; nothing is observed or rolled out")));
    }
    let (plan, mut progress) = (options.plan(), Progress::default());
    let gate = Gate::open(root, cluster, &plan, &mut progress, stop)?;
    // Before anything is run.
    let out = options.out.as_deref().map(output::new_directory).transpose()?;
    let report = gate.run(cluster)?;
    let said = output::json_or(options.json, &report, |report| {
        report.lines().into_iter().try_for_each(output::line)
    });
    if let Some(dir) = out {
        output::kept("report", dir, report.write(dir));
    }
    // Whether to go on is decided already: the exit code says it whatever becomes of the reports.
    Ok(output::verdict(report.verdict.code(), said))
}

/// Progress on standard error: one line that changes on a terminal, while no command writes to it;
/// otherwise plain lines.
#[derive(Default)]
struct Progress {
    last: Option<(String, Instant)>,
    /// Whether the cursor is on a line that changes.
    is_open: bool,
}

impl obol_rollout::Progress for Progress {
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
