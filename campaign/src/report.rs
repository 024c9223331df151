//! Runs many seeds on all cores and sums up the results.

use super::marks::Mark;
use super::runner::{Run, run};
use super::scenario::Trial;
use obol_fabric::host::sched::thread_usage;
use obol_membership::ActiveMutant;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
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

/// The seeds of a shard, or of a whole campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    #[serde(rename = "seed")]
    pub first: u64,
    pub seeds: u64,
}

/// The seeds of a campaign.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that runs it, for the report.
    pub build: String,
    /// How many.
    pub seeds: u64,
    /// The first. The last, `first + seeds - 1`, must be a `u64` as well.
    pub first: u64,
    /// Those of the whole campaign, if this is a shard of it; otherwise the same.
    pub of: Shard,
    pub threads: usize,
    /// The planted bug.
    pub plant: ActiveMutant,
}

/// A seed that violated an invariant, or a canary that did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The results of a campaign, or of some shards of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The program that ran it; reports of different ones are not merged.
    pub build: String,
    /// The first seed.
    #[serde(rename = "seed")]
    pub first: u64,
    /// Seeds run, canaries included.
    pub seeds: u64,
    /// The seeds of the whole campaign.
    pub of: Shard,
    /// Views that removed a failed member.
    pub failovers: u64,
    /// Simulated time.
    pub simulated_ns: u64,
    /// The same in hours.
    pub simulated_hours: f64,
    /// Seeds that violated an invariant, and canaries that did not.
    pub violations: u64,
    /// With 95 % confidence, the share of seeds that violate an invariant is below this; 1 if one
    /// did.
    pub upper_bound_95: f64,
    /// Paths that no seed took.
    pub marks_missing: Vec<String>,
    /// How many seeds took each path, and the first of them.
    pub marks: Vec<Reached>,
    /// Elapsed time; of shards, the sum.
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

    pub(crate) fn empty(build: String, first: u64, of: Shard) -> Self {
        Self {
            build,
            first,
            seeds: 0,
            of,
            failovers: 0,
            simulated_ns: 0,
            simulated_hours: 0.0,
            violations: 0,
            upper_bound_95: 1.0,
            marks_missing: Vec::new(),
            marks: Mark::ALL
                .iter()
                .map(|(mark, _)| Reached { mark: (*mark).to_owned(), seeds: 0, first: None })
                .collect(),
            wall_seconds: 0.0,
            cpu_seconds: 0.0,
            failures: Vec::new(),
            canaries: 0,
            clock_sweep: Vec::new(),
            failovers_per_second_per_core: 0.0,
            recovery_permille_max: 0,
        }
    }

    fn add(&mut self, run: Run) {
        self.seeds += 1;
        self.failovers += run.failovers;
        self.simulated_ns += run.time;
        for (reached, (_, mark)) in self.marks.iter_mut().zip(Mark::ALL) {
            if run.marks.has(*mark) {
                reached.seeds += 1;
                reached.first = Some(reached.first.map_or(run.seed, |first| first.min(run.seed)));
            }
        }
        self.recovery_permille_max = self.recovery_permille_max.max(run.recovery_permille);
        if let Trial::Sweep(permille) = run.trial {
            let step = self.sweep_step(permille);
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
                self.fail(Failure { seed: run.seed, row: 5, time: run.time, what });
            }
            (_, Some(v)) => self.fail(Failure { seed: run.seed, row: v.row, time: v.time, what: v.what }),
            (_, None) => {}
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.violations += 1;
        self.failures.push(failure);
    }

    pub(crate) fn sweep_step(&mut self, permille: u32) -> &mut DriftSweepStep {
        let at = self.clock_sweep.binary_search_by_key(&permille, |step| step.permille);
        let at = at.unwrap_or_else(|at| {
            self.clock_sweep.insert(at, DriftSweepStep { permille, seeds: 0, overlapped: 0 });
            at
        });
        &mut self.clock_sweep[at]
    }

    /// Computes what follows from the sums.
    pub(crate) fn conclude(mut self) -> Self {
        self.failures.sort_by_key(|v| v.seed);
        self.failures.truncate(FAILURES_MAX);
        self.simulated_hours = self.simulated_ns as f64 / HOUR;
        self.upper_bound_95 =
            if self.violations == 0 { (3.0 / self.seeds.max(1) as f64).min(1.0) } else { 1.0 };
        self.marks_missing = self.marks.iter().filter(|m| m.seeds == 0).map(|m| m.mark.clone()).collect();
        self.failovers_per_second_per_core = rate(self.failovers, self.cpu_seconds);
        self
    }
}

/// A path, and the seeds that took it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    pub mark: String,
    /// How many seeds.
    pub seeds: u64,
    /// The first of them; `None` if no seed took it.
    pub first: Option<u64>,
}

/// A step of the sweep of clock rates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftSweepStep {
    /// Clock error, in permille of the drift bound.
    pub permille: u32,
    /// Seeds run.
    pub seeds: u64,
    /// Of these, seeds in which two incompatible views were active at once.
    pub overlapped: u64,
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
    let sum = Mutex::new(Report::empty(options.build.clone(), options.first, options.of));
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
    let mut sum = sum.into_inner();
    sum.wall_seconds = began.elapsed().as_secs_f64();
    sum.cpu_seconds = busy.into_inner() as f64 / 1e9;
    sum.conclude()
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
