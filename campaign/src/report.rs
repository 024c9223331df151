//! Runs many seeds on all cores and sums up the results.

use super::marks::Mark;
use super::runner::{Run, run};
use super::scenario::Trial;
use obol_fabric::host::sched::thread_usage;
use obol_membership::ActiveMutant;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A campaign of this many seeds must have taken every path.
const MARKS_FROM_SEEDS: u64 = 2000;
/// Violations that are reported one by one.
const FAILURES_MAX: usize = 20;
/// How long [`throughput`] measures.
const THROUGHPUT_TIME: Duration = Duration::from_secs(1);
/// Nanoseconds of an hour.
const HOUR: f64 = 3.6e12;

/// The seeds of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many.
    pub seeds: u64,
    /// The first. The last, `first + seeds - 1`, must be a `u64` as well.
    pub first: u64,
    pub threads: usize,
    /// The planted bug.
    pub plant: ActiveMutant,
}

/// A seed that violated an invariant, or a canary that did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub seed: u64,
    /// The row of the table of invariants.
    pub row: u8,
    /// True time in nanoseconds.
    #[serde(rename = "at_ns")]
    pub time: u64,
    /// What happened.
    pub what: String,
}

/// The results of a campaign.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seeds run, canaries included.
    pub seeds: u64,
    /// Views that removed a failed member.
    pub failovers: u64,
    /// Simulated time.
    pub simulated_hours: f64,
    /// Seeds that violated an invariant, and canaries that did not.
    pub violations: u64,
    /// With 95 % confidence, the share of seeds that violate an invariant is below this; 1 if one
    /// did.
    pub upper_bound_95: f64,
    /// Paths that no seed took.
    pub marks_missing: Vec<&'static str>,
    /// How many seeds took each path, and the first of them.
    pub marks: Vec<Reached>,
    /// Elapsed time.
    #[serde(rename = "wall_s")]
    pub wall_seconds: f64,
    /// Processor time of all threads together.
    #[serde(rename = "cpu_s")]
    pub cpu_seconds: f64,
    /// The violations, by seed; the first few.
    pub failures: Vec<Failure>,
    /// Canaries that failed as expected.
    pub canaries: u64,
    /// Clock rates within and beyond the drift bound.
    pub clock_sweep: Vec<DriftSweepStep>,
    /// Throughput: by processor time, as the elapsed time includes what other programs took.
    pub failovers_per_second_per_core: f64,
    /// The longest recovery, in permille of the bound of row 21.
    pub recovery_permille_max: u64,
}

impl Report {
    /// Whether the campaign found no violation, and took all paths.
    pub fn is_clean(&self) -> bool {
        self.violations == 0 && (self.seeds < MARKS_FROM_SEEDS || self.marks_missing.is_empty())
    }
}

/// A path, and the seeds that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reached {
    pub mark: &'static str,
    /// How many seeds.
    pub seeds: u64,
    /// The first of them; `None` if no seed took it.
    pub first: Option<u64>,
}

impl Reached {
    fn none() -> Vec<Self> {
        Mark::ALL.iter().map(|(mark, _)| Self { mark, seeds: 0, first: None }).collect()
    }
}

/// A step of the sweep of clock rates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriftSweepStep {
    /// Clock error, in permille of the drift bound.
    pub permille: u32,
    /// Seeds run.
    pub seeds: u64,
    /// Of these, seeds in which two incompatible views were active at once.
    pub overlapped: u64,
}

struct Sum {
    failovers: u64,
    time: u64,
    seeds: u64,
    canaries: u64,
    recovery: u64,
    marks: Vec<Reached>,
    sweep: BTreeMap<u32, DriftSweepStep>,
    failures: Vec<Failure>,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            failovers: 0,
            time: 0,
            seeds: 0,
            canaries: 0,
            recovery: 0,
            marks: Reached::none(),
            sweep: BTreeMap::new(),
            failures: Vec::new(),
        }
    }
}

impl Sum {
    fn add(&mut self, run: Run) {
        self.seeds += 1;
        self.failovers += run.failovers;
        self.time += run.time;
        for (reached, (_, mark)) in self.marks.iter_mut().zip(Mark::ALL) {
            if run.marks.has(*mark) {
                reached.seeds += 1;
                reached.first = Some(reached.first.map_or(run.seed, |first| first.min(run.seed)));
            }
        }
        self.recovery = self.recovery.max(run.recovery_permille);
        if let Trial::Sweep(permille) = run.trial {
            let step =
                self.sweep.entry(permille).or_insert(DriftSweepStep { permille, seeds: 0, overlapped: 0 });
            step.seeds += 1;
            step.overlapped += u64::from(run.overlaps > 0);
        }
        match (run.trial, run.violation) {
            (Trial::Canary, Some(violation)) if matches!(violation.row, 5 | 10) => self.canaries += 1,
            (Trial::Canary, found) => {
                let what = match found {
                    Some(violation) => format!("the canary should violate row 5 or 10, not: {violation}"),
                    None => "the canary survived: the oracle does not detect overlaps".to_owned(),
                };
                self.failures.push(Failure { seed: run.seed, row: 5, time: run.time, what });
            }
            (_, Some(v)) => {
                self.failures.push(Failure { seed: run.seed, row: v.row, time: v.time, what: v.what });
            }
            (_, None) => {}
        }
    }
}

/// Failovers for each second of processor time; 0 if that was too short to be measured.
fn rate(failovers: u64, busy: f64) -> f64 {
    if busy > 0.0 { failovers as f64 / busy } else { 0.0 }
}

/// Runs a campaign. `progress` is called occasionally with the number of completed seeds.
#[must_use]
pub fn campaign(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Report {
    let began = Instant::now();
    let threads = options.threads.max(1);
    let (next, done, busy) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= options.seeds {
                        busy.fetch_add(thread_usage().busy.0, Ordering::Relaxed);
                        return;
                    }
                    let run = run(options.first + n, options.plant, false);
                    sum.lock().add(run);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let wall = began.elapsed().as_secs_f64();
    let busy = busy.into_inner() as f64 / 1e9;
    let mut sum = std::mem::take(&mut *sum.lock());
    sum.failures.sort_by_key(|v| v.seed);
    let violations = sum.failures.len() as u64;
    sum.failures.truncate(FAILURES_MAX);
    Report {
        seeds: sum.seeds,
        failovers: sum.failovers,
        simulated_hours: sum.time as f64 / HOUR,
        upper_bound_95: if violations == 0 { (3.0 / sum.seeds.max(1) as f64).min(1.0) } else { 1.0 },
        violations,
        marks_missing: sum.marks.iter().filter(|m| m.seeds == 0).map(|m| m.mark).collect(),
        marks: sum.marks,
        wall_seconds: wall,
        cpu_seconds: busy,
        failures: sum.failures,
        canaries: sum.canaries,
        clock_sweep: sum.sweep.into_values().collect(),
        failovers_per_second_per_core: rate(sum.failovers, busy),
        recovery_permille_max: sum.recovery,
    }
}

/// The result for a planted bug.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub name: &'static str,
    /// The row that it breaks.
    pub row: u8,
    /// Whether a seed caught it, by that row.
    pub caught: bool,
    /// Earlier seeds that violated other rows, by row: they do not count.
    pub other_rows: BTreeMap<u8, u64>,
    /// Seeds until the first that caught it.
    pub seeds_to_detection: Option<u64>,
    /// The violation of that seed.
    pub shown: Option<Failure>,
}

/// The results for all planted bugs.
#[derive(Clone, Debug, Serialize)]
pub struct MutationResults {
    /// One by one.
    pub mutants: Vec<Found>,
}

/// Searches on several threads for the first seed from `first` on that catches a planted bug by a
/// violation of its declared row. Seeds with clocks beyond the drift bound do not count, and
/// violations of other rows are not attributed to the bug.
#[must_use]
pub fn hunt(
    name: &'static str,
    row: u8,
    plant: ActiveMutant,
    first: u64,
    budget: u64,
    threads: usize,
) -> Found {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let best: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let others: Mutex<BTreeMap<u8, u64>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= budget {
                        return;
                    }
                    let run = run(first + n, plant, false);
                    if !run.trial.clocks_keep() {
                        continue;
                    }
                    if let Some(v) = run.violation {
                        let failure = Failure { seed: run.seed, row: v.row, time: v.time, what: v.what };
                        if failure.row != row {
                            *others.lock().entry(failure.row).or_insert(0) += 1;
                            continue;
                        }
                        let mut best = best.lock();
                        if best.as_ref().is_none_or(|(found, _)| *found > n) {
                            *best = Some((n, failure));
                        }
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let best = best.lock().take();
    Found {
        name,
        row,
        caught: best.is_some(),
        other_rows: std::mem::take(&mut *others.lock()),
        seeds_to_detection: best.as_ref().map(|(n, _)| n + 1),
        shown: best.map(|(_, failure)| failure),
    }
}

/// Failovers per second of processor time, checked by the oracle, over about a second.
pub fn throughput() -> f64 {
    let (began, before) = (Instant::now(), thread_usage().busy);
    let (mut seed, mut failovers) = (1, 0);
    while began.elapsed() < THROUGHPUT_TIME {
        failovers += run(seed, ActiveMutant::NONE, false).failovers;
        seed += 1;
    }
    rate(failovers, thread_usage().busy.0.saturating_sub(before.0) as f64 / 1e9)
}
