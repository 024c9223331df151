//! `obol tune`: sweeps leases and heartbeats on clusters of its own, without and with load, and
//! writes a profile.

use crate::commands::tune_network;
use crate::signals;
use clap::Args;
use obol_chaos::drills::Host;
use obol_chaos::drills::tune::{self, Counted, Measured, PAUSES, Recommended, Tuned};
use obol_chaos::drills::tune_network::{confidence, every};
use obol_chaos::running::{Running, Shape, dies_with_parent};
use obol_config::duration;
use obol_fabric::host::sched;
use obol_fabric::{Name, Nanos};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Find the lease and the heartbeat that this machine sustains, and write a profile
#[derive(Debug, Args)]
#[command(
    after_help = "Starts clusters of its own: leases and heartbeats of rising length, without load and with all \
    cores and memory busy (stress-ng where it is installed), as in uKharon's Figure 3. What is recommended is tried \
    before it is written.\n\
    \nA percentage is a lower bound with 95 % confidence, in the sweep and in the trial: 99.99 % needs 29,958 timely renewals in a row. \
    The trial of a profile that renews seldom lasts longer than a step, until it has that many.\n\
    \nExit codes: 0 a profile is recommended, 1 none is, or its trial failed, 2 refused.\n\
    With --network no cluster is started: the longest gap between two pulses in each second of the running one is \
    counted, or extrapolated with a bound. What the samples do not bear is refused.\n\
    \nTry: obol tune --write mine.toml --html tune.html && obol up --profile ./mine.toml\n     obol tune --network --every 1mo --write mine.toml\n     obol tune --network --record network.rec && obol sim detectors --network network.rec"
)]
pub(crate) struct Tune {
    /// Percentage of renewals that must be in time
    #[arg(long, alias = "share", value_name = "PERCENT", default_value_t = 99.99, value_parser = percent)]
    pub(crate) timely: f64,
    /// How long each step is measured, and at least the trial; one that can no longer reach the percentage ends early
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration::argument)]
    pub(crate) time: Duration,
    /// The profile to start from: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
    /// Write the recommended profile to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Write the evidence to this file, as a page that needs no other
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Derive period and timeout of the pulses of the running cluster from what its gateways have
    /// measured
    #[arg(long, conflicts_with_all = ["timely", "time", "profile"])]
    pub(crate) network: bool,
    /// The wanted time between two false suspicions in the whole cluster
    #[arg(long, value_name = "TIME", default_value = "1mo", requires = "network", value_parser = every)]
    pub(crate) every: f64,
    /// The confidence of that, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", requires = "network", value_parser = confidence)]
    pub(crate) confidence: f64,
    /// The number of another host and a copy of its cluster's directory, with what its gateway has
    /// measured
    #[arg(long, value_name = "HOST=DIRECTORY", requires = "network", value_parser = samples)]
    pub(crate) samples: Vec<(u8, PathBuf)>,
    /// Record each pulse that arrives at this host to this file, which must not exist yet, instead of
    /// deriving anything; `obol sim detectors --network` reads it
    #[arg(long, value_name = "FILE", requires = "network", conflicts_with_all = ["write", "html", "every", "confidence", "samples", "json"])]
    pub(crate) record: Option<PathBuf>,
    /// How long it is recorded
    #[arg(long = "for", value_name = "TIME", requires = "record", default_value = "30s", value_parser = duration::argument)]
    pub(crate) record_for: Duration,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// A host and a directory.
fn samples(text: &str) -> Result<(u8, PathBuf), String> {
    let wanted = || format!("`{text}` is not a HOST=DIRECTORY such as 2=/tmp/host-2");
    let (host, directory) = text.split_once('=').ok_or_else(wanted)?;
    Ok((host.parse().map_err(|_| wanted())?, directory.into()))
}

/// A percentage that some number of samples can claim.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err("a number between 0 and 100, such as 99.99".to_owned()),
    }
}

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
/// So often a step looks whether it is hopeless.
const LOOK_AT_COUNTS: Duration = Duration::from_secs(1);
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
                let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
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
    stop: Arc<AtomicBool>,
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
        let shape = Shape {
            name: "tune",
            profile,
            apps: APPS,
            caches: 0,
            hosts: None,
            patience: START_TIMEOUT,
            logs: false,
        };
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
            let renewals = (counted.timely + counted.late) as f64;
            // It ends by the number of renewals, not by how they went: the bound stays one.
            let enough = renewals / tune::renewals_needed(self.timely) as f64;
            let part = steps.min(enough.max(steps / f64::from(times)));
            if part >= 1.0 || part > 0.0 && tune::is_hopeless(counted, part, self.timely) {
                break counted;
            }
            let until = self.time.saturating_mul(if steps < 1.0 { 1 } else { times });
            self.sleep(LOOK_AT_COUNTS.min(until.saturating_sub(began.elapsed())))?;
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

pub(crate) fn run(root: &Path, cluster: Name, options: &Tune) -> Result<ExitCode, Failure> {
    if options.network {
        return tune_network::run(root, cluster, options);
    }
    let base = Profile::load(&options.profile).map_err(Failure::refused)?;
    if let Some(path) = options.write.iter().chain(&options.html).find(|path| path.exists()) {
        return Err(Failure::Refused(format!("{} exists; nothing is overwritten", path.display())));
    }
    let stop = signals::ending()?;
    let bench = Bench { root, time: options.time, timely: options.timely, stop, begun: Cell::new(0) };
    let loads = [Load::None, Load::best()];
    let most = (options.time + SETTLE + AROUND).saturating_mul(u32::try_from(STEPS_MAX).unwrap_or(u32::MAX));
    let longer = options.time.saturating_mul(TRIALS * (TRIAL_TIMES_MAX - 1));
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
        options.time.as_secs_f64(),
        (most.as_secs_f64() / 60.0).ceil(),
        (longer.as_secs_f64() / 60.0).ceil()
    ))?;
    let mut sweep = Vec::new();
    for load in loads {
        let mut clean = 0;
        for pause in PAUSES {
            let measured = bench.measure(&tune::step(&base, pause), pause, load, 1)?;
            let good = measured.suffices(options.timely);
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
        wanted_percent: options.timely,
        step_seconds: options.time.as_secs_f64(),
        recommended: None,
        sweep,
    };
    let mut profile = None;
    if let Some((lease, silence)) = tune::choose(&tuned.sweep, options.timely) {
        let made = tune::for_pause(&base, lease, silence).map_err(Failure::failed)?;
        let tried = loads.map(|load| bench.measure(&made, lease, load, TRIAL_TIMES_MAX));
        let tried = tried.into_iter().collect::<Result<_, _>>()?;
        tuned.recommended = Some(Recommended::new(&made, lease, tried));
        profile = Some(made);
    }
    // What took minutes is shown whatever becomes of the files.
    let said = output::json_or(options.json, &tuned, print);
    if let Some(path) = &options.html {
        output::kept("evidence", path, std::fs::write(path, tuned.html()));
    }
    if let (Some(path), Some(profile)) = (&options.write, profile.filter(|_| tuned.holds())) {
        // Scripts continue with it, so without it this has failed.
        output::file(path, profile.to_toml())?;
        output::remark(format_args!("the profile is in {0}; try it: obol up --profile {0}", path.display()))?;
    }
    let code = if tuned.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

fn print(tuned: &Tuned) -> std::io::Result<()> {
    let heads = ["PAUSE", "RENEWALS", "LATE", "IN TIME", "CLAIMED", "SUSPICIONS"];
    let [pause, renewals, late, timely, claimed, suspicions] = heads;
    output::line(format_args!(
        "{pause:>8} {renewals:>9} {late:>7} {timely:>11} {claimed:>11} {suspicions:>10}  LOAD"
    ))?;
    let tried = tuned.recommended.iter().flat_map(|found| &found.tried);
    for (n, m) in tuned.sweep.iter().chain(tried).enumerate() {
        if n == tuned.sweep.len() {
            output::line("the recommended profile, tried:")?;
        }
        let (pause, [renewals, late, timely, claimed, suspicions]) =
            (m.pause_us.to_string(), m.cells("none up"));
        output::line(format_args!(
            "{pause:>8} {renewals:>9} {late:>7} {timely:>11} {claimed:>11} {suspicions:>10}  {}",
            m.load
        ))?;
    }
    output::line(tuned.advice())
}
