//! The sweep of `obol tune`: clusters of its own, without and with load, and a trial of what is
//! recommended.

use super::tune::{self, Counted, Measured, PAUSES, Recommended, Tuned};
use crate::drills::Host;
use obol_fabric::Nanos;
use obol_fabric::host::sched;
use obol_fabric::host::this_program;
use obol_profiles::Profile;
use obol_supervise::running::{Running, Shape, dies_with_parent};
use obol_term::output::{self, Failure};
use std::cell::Cell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Nodes of each cluster.
const APPS: u16 = 3;
/// A cluster that is not healthy by then has leases that are too short for this machine.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// From this pause on a cluster that does not come up has another reason than its leases.
const TRUSTED: Nanos = Nanos::from_millis(100);
/// Before anything is counted, a new cluster comes to rest, and a load starts.
const SETTLE: Duration = Duration::from_millis(500);
/// MiB that a load writes.
const MEBIBYTES: u32 = 128;
/// A load that is not ended ends by itself this long after its step.
const LOAD_GRACE: Duration = Duration::from_secs(30);
/// Shortest step, and interval of checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of checks whether a step is hopeless.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);
/// Steps of the trial, at most: leases of 200 ms are renewed 50 times a second.
const TRIAL_TIMES_MAX: u32 = 40;
/// Upper estimate for starting and ending a step's cluster, for the printed plan.
const AROUND: Duration = Duration::from_secs(2);
/// Every pause, and the trial of what is recommended, under each load.
const STEPS_MAX: usize = 2 * (PAUSES.len() + 1);
/// Trials among them.
const TRIALS: u32 = 2;
/// Steps in a row that lose nothing; after them longer pauses teach nothing.
const CLEAN_STEPS: usize = 2;

/// What runs beside the cluster.
#[derive(Clone, Copy)]
enum Load {
    None,
    StressNg,
    Own,
}

impl Load {
    /// stress-ng where it is installed, else our own.
    fn best() -> Self {
        let there =
            Command::new("stress-ng").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if there.is_ok_and(|status| status.success()) { Self::StressNg } else { Self::Own }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::StressNg => "stress-ng on all cores, and memory",
            Self::Own => "all cores busy, and memory",
        }
    }

    fn start(self, time: Duration) -> Result<Option<Busy>, Failure> {
        let lasts = time + LOAD_GRACE;
        let mut command = match self {
            Self::None => return Ok(None),
            Self::StressNg => {
                let mut command = dies_with_parent("stress-ng", None).map_err(Failure::failed)?;
                let bytes = format!("{MEBIBYTES}M");
                let seconds = lasts.as_secs().to_string();
                command.args([
                    "--quiet",
                    "--cpu",
                    "0",
                    "--vm",
                    "1",
                    "--vm-bytes",
                    &bytes,
                    "--timeout",
                    &seconds,
                ]);
                command
            }
            Self::Own => {
                let mut command = this_program::command().map_err(Failure::failed)?;
                let threads = Host::this().cores.to_string();
                let (mebibytes, nanoseconds) = (MEBIBYTES.to_string(), lasts.as_nanos().to_string());
                command.args(["drill-load", "--threads", &threads, "--mebibytes", &mebibytes]);
                command.args(["--nanoseconds", &nanoseconds]);
                sched::pass_parent_id(&mut command);
                command
            }
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Ok(Some(Busy(child.map_err(|error| Failure::Failed(format!("the load does not start: {error}")))?)))
    }
}

/// A load that runs. It ends with this.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // SIGTERM would let stress-ng end its workers; they end with their parent as well, and it
        // with this process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a step is measured with.
struct Bench<'a> {
    root: &'a Path,
    time: Duration,
    timely: f64,
    stop: &'a AtomicBool,
    /// Steps that were begun.
    begun: Cell<usize>,
}

impl Bench<'_> {
    /// Sleeps, unless the end is requested.
    fn sleep(&self, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Failed("interrupted: nothing is recommended".to_owned()));
            }
            thread::sleep(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Reports the next step; tuning continues if that fails.
    fn report(&self, load: Load, pause: Nanos, what: fmt::Arguments<'_>) {
        let _ = output::remark(format_args!(
            "tune: step {} of at most {STEPS_MAX}: load {}, pause {pause}: {what}",
            self.begun.get(),
            load.name()
        ));
    }

    /// Counts what a cluster of this profile does while the load runs, for the time of a step. If it
    /// renews too seldom to claim the wanted share by then, for up to `times` as long.
    fn measure(&self, profile: &Profile, pause: Nanos, load: Load, times: u32) -> Result<Measured, Failure> {
        self.begun.set(self.begun.get() + 1);
        let shape = Shape { patience: START_TIMEOUT, ..Shape::new("tune", profile, APPS) };
        let running = match Running::start(self.root, &shape) {
            Ok(running) => running,
            // Its leases are so short that it does not even begin: that is the result of
            // the step.
            Err(error) if pause < TRUSTED => {
                self.report(load, pause, format_args!("{error}"));
                return Ok(Measured::new(load.name(), pause, Counted::default()));
            }
            Err(error) => return Err(error),
        };
        let mut observer = running.observer()?;
        let busy = load.start(self.time.saturating_mul(times))?;
        self.sleep(SETTLE)?;
        let before = Counted::of(&observer.snapshot());
        let began = Instant::now();
        let counted = loop {
            let counted = Counted::of(&observer.snapshot()).since(before);
            let steps = began.elapsed().as_secs_f64() / self.time.as_secs_f64();
            let renewals = counted.renewals() as f64;
            // It ends by the number of renewals, not by how they went: the bound stays one.
            let enough = renewals / tune::renewals_needed(self.timely) as f64;
            let part = steps.min(enough.max(steps / f64::from(times)));
            if part >= 1.0 || part > 0.0 && tune::is_hopeless(counted, part, self.timely) {
                break counted;
            }
            let until = self.time.saturating_mul(if steps < 1.0 { 1 } else { times });
            self.sleep(COUNTS_INTERVAL.min(until.saturating_sub(began.elapsed())))?;
        };
        drop(busy);
        let measured = Measured::new(load.name(), pause, counted);
        self.report(
            load,
            pause,
            format_args!(
                "{} renewals, {} late, {} false suspicions, {:.1} s",
                measured.renewals,
                measured.late,
                measured.false_suspicions,
                began.elapsed().as_secs_f64()
            ),
        );
        Ok(measured)
    }
}

/// Sweeps, from the profile `base`, with steps of this time, for this percentage of renewals in time.
/// Returns what was found, and the recommended profile.
pub fn sweep(
    root: &Path,
    base: &Profile,
    time: Duration,
    timely: f64,
    stop: &AtomicBool,
) -> Result<(Tuned, Option<Profile>), Failure> {
    let bench = Bench { root, time, timely, stop, begun: Cell::new(0) };
    let loads = [Load::None, Load::best()];
    let most = (time + SETTLE + AROUND).saturating_mul(u32::try_from(STEPS_MAX).unwrap_or(u32::MAX));
    let longer = time.saturating_mul(TRIALS * (TRIAL_TIMES_MAX - 1));
    if base.scheduling.priority().is_some_and(|priority| !sched::may_run_fifo(priority)) {
        output::remark(format_args!(
            "tune: no real-time scheduling, which the profile {} asks for: healthy processes will be removed while the machine is busy. \
             Grant CAP_SYS_NICE, or tune the profile laptop",
            base.name
        ))?;
    }
    output::remark(format_args!(
        "tune: {} pauses under each of {} loads, then the profile under each: at most {STEPS_MAX} steps of {:.0} s, so {:.0} min \
         at the most, and {:.0} min more if the profile renews too seldom to show the percentage in such a step. A step that is hopeless ends early, and a load's steps end after {CLEAN_STEPS} good ones",
        PAUSES.len(),
        loads.len(),
        time.as_secs_f64(),
        (most.as_secs_f64() / 60.0).ceil(),
        (longer.as_secs_f64() / 60.0).ceil()
    ))?;
    let mut sweep = Vec::new();
    for load in loads {
        let mut clean = 0;
        for pause in PAUSES {
            let measured = bench.measure(&tune::step(base, pause), pause, load, 1)?;
            let good = measured.suffices(timely);
            clean = if good { clean + 1 } else { 0 };
            sweep.push(measured);
            if clean == CLEAN_STEPS {
                break;
            }
        }
    }
    let mut tuned = Tuned {
        base: base.name.to_string(),
        host: Host::this(),
        wanted_percent: timely,
        step_seconds: time.as_secs_f64(),
        recommended: None,
        sweep,
    };
    let mut profile = None;
    if let Some((lease, silence)) = tune::choose(&tuned.sweep, timely) {
        let made = tune::for_pause(base, lease, silence).map_err(Failure::failed)?;
        let tried = loads.map(|load| bench.measure(&made, lease, load, TRIAL_TIMES_MAX));
        let tried = tried.into_iter().collect::<Result<_, _>>()?;
        tuned.recommended = Some(Recommended::new(&made, lease, tried));
        profile = Some(made);
    }
    Ok((tuned, profile))
}
