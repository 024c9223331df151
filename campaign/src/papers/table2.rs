//! uKharon, Table 2: from a failure to the first moment at which a survivor is active in a view
//! without the failed app. The app fails alone or together with the leader, a lease cache, or both.
//! It is detected by its kernel (deadbeat) or by a counter that stalls (heartbeat).

use super::cluster::{self, ExperimentError, Shape, in_parallel};
use super::shared::Shared;
use obol_cluster_sim::Cluster;
use obol_fabric::{Instant, Nanos};
use obol_fabric_sim::{BILLION, Quantiles};
use obol_membership::{Kind, View};
use obol_observe::named_enum;
use obol_observe::stats::Distribution;
use obol_observe::timeline::{History, Phases};
use obol_profiles::Testbed;
use obol_profiles::testbed::Parameter;
use obol_rng::Rng;
use serde::Serialize;
use std::sync::Arc;

/// Apps of the cluster: one that fails, one that is observed, and one more. With coordinators and
/// caches they fill the paper's eight nodes.
const APPS: u32 = 3;
/// Caches, if any: one may fail.
const CACHES: u32 = 2;
/// Within this time a process has stepped after its page became active.
const STEP_MAX: u64 = 30_000;
/// A failover that takes longer than this has failed.
const FAILOVER_TIMEOUT: u64 = 5_000_000;

named_enum! {
    /// How deaths are detected.
    Detector {
        /// By their kernel: processes are killed.
        Deadbeat = "deadbeat",
        /// By their counters alone: processes are stopped, as by a kernel that hangs, and their
        /// memory still answers.
        Heartbeat = "heartbeat",
    }
}

/// Which processes fail at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Whether there are lease caches.
    pub caches: bool,
    /// Whether the leader fails with the app.
    pub leader: bool,
    /// Whether a lease cache fails with the app.
    pub cache: bool,
    /// How it is detected.
    pub detector: Detector,
    /// The published median in microseconds.
    pub published: f64,
}

/// The published table: rows and columns as in the paper, deadbeat before heartbeat.
const PUBLISHED: [(bool, bool, bool, [f64; 2]); 6] = [
    (false, false, false, [50.0, 96.0]),
    (false, true, false, [64.0, 114.0]),
    (true, false, false, [74.0, 108.0]),
    (true, true, false, [96.0, 138.0]),
    (true, false, true, [75.0, 113.0]),
    (true, true, true, [101.0, 139.0]),
];

impl Scenario {
    /// All twelve.
    pub fn all() -> impl Iterator<Item = Self> {
        [Detector::Deadbeat, Detector::Heartbeat].into_iter().zip(0..).flat_map(|(detector, column)| {
            PUBLISHED.into_iter().map(move |(caches, leader, cache, published)| Self {
                caches,
                leader,
                cache,
                detector,
                published: published[column],
            })
        })
    }

    /// The paper's notation: A, A+C, A+L, A+L+C.
    pub const fn name(&self) -> &'static str {
        match (self.leader, self.cache) {
            (false, false) => "A",
            (true, false) => "A+C",
            (false, true) => "A+L",
            (true, true) => "A+L+C",
        }
    }
}

/// The results of one setting of one scenario, in microseconds from the app's failure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The median until a survivor is active in a view without the app.
    pub p50: f64,
    /// The 95 % confidence interval of that median.
    pub p50_interval: [f64; 2],
    /// Its 99th percentile, with enough repetitions.
    pub p99: Option<f64>,
    /// The median until a survivor is active in a view without any failed process, where the
    /// program published by the paper's authors stops its clock. Equal to `p50` if only the app
    /// fails.
    pub all_p50: f64,
    /// The mean duration of each phase until the app is excluded, in the order of
    /// [`Phases::NAMES`], if all time lines were complete: they add up to the mean. See [`Phases`].
    pub phases: Option<[f64; 6]>,
}

/// One scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What failed, in the paper's notation.
    pub failed: &'static str,
    /// What fails, how it is detected, and the published median.
    pub scenario: Scenario,
    /// As in the paper: leases are waited for.
    pub waited: Figure,
    /// The deviation of its median from the published one, in percent.
    pub deviation_percent: f64,
    /// Leases are fenced.
    pub fenced: Figure,
    /// Leases are fenced, and kernels report the signal, not the exit; `None` for heartbeats.
    pub early: Option<Figure>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Table2 {
    pub testbed: String,
    /// Failovers behind each figure.
    pub repetitions: u32,
    /// The first seed.
    pub seed: u64,
    /// The results.
    pub cells: Vec<Cell>,
    /// The testbed's parameters.
    pub inputs: Vec<Parameter>,
}

impl Table2 {
    /// The largest deviation from the paper, in percent.
    pub fn worst(&self) -> f64 {
        self.cells.iter().map(|cell| cell.deviation_percent.abs()).fold(0.0, f64::max)
    }
}

/// Measures all cells. The same seed gives the same table, whatever the number of threads. After the
/// largest seed comes 0.
pub fn table2(
    testbed: &Testbed,
    repetitions: u32,
    seed: u64,
    threads: usize,
) -> Result<Table2, ExperimentError> {
    let early = testbed.clone().with_early_notice();
    let scenarios: Vec<Scenario> = Scenario::all().collect();
    let cells = in_parallel(threads, scenarios.len(), |at| {
        cell(testbed, &early, &scenarios[at], repetitions, seed.wrapping_add((at as u64) << 32))
    })?;
    Ok(Table2 { testbed: testbed.name.to_string(), repetitions, seed, cells, inputs: testbed.parameters() })
}

/// The setting of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Waited,
    Fenced,
    Early,
}

fn cell(
    testbed: &Testbed,
    early: &Testbed,
    scenario: &Scenario,
    repetitions: u32,
    seed: u64,
) -> Result<Cell, ExperimentError> {
    let waited = figure(testbed, scenario, Setting::Waited, repetitions, seed)?;
    let fenced = figure(testbed, scenario, Setting::Fenced, repetitions, seed)?;
    let early = match scenario.detector {
        Detector::Deadbeat => Some(figure(early, scenario, Setting::Early, repetitions, seed)?),
        Detector::Heartbeat => None,
    };
    let deviation_percent = (waited.p50 - scenario.published) / scenario.published * 100.0;
    Ok(Cell { failed: scenario.name(), scenario: *scenario, waited, deviation_percent, fenced, early })
}

fn figure(
    testbed: &Testbed,
    scenario: &Scenario,
    setting: Setting,
    repetitions: u32,
    seed: u64,
) -> Result<Figure, ExperimentError> {
    let (mut app, mut all) = (Distribution::new(), Distribution::new());
    let mut phases = Some([0.0; 6]);
    for n in 0..u64::from(repetitions) {
        let failover = failover(testbed, scenario, setting, seed.wrapping_add(n))?;
        app.add(failover.app_excluded);
        all.add(failover.all_excluded);
        phases = phases.zip(failover.phases).map(|(sums, line)| {
            let parts = line.values();
            core::array::from_fn(|at| sums[at] + parts[at].as_micros_f64() / f64::from(repetitions))
        });
    }
    let (summary, (low, high)) = (app.summary(), app.median_interval());
    Ok(Figure {
        p50: app.quantile(0.5).as_micros_f64(),
        p50_interval: [low, high].map(Nanos::as_micros_f64),
        p99: summary.p99,
        all_p50: all.quantile(0.5).as_micros_f64(),
        phases,
    })
}

/// A pending fault: time and node.
type Fault = (u64, u32);

/// When each victim dies after a cue. Each has a killer of its own, which waits for the cue
/// independently (uKharon, section 7.2), so the offsets are independent.
fn kills(victims: &[u32], cue: u64, spread: &Quantiles, rng: &mut Rng) -> Vec<Fault> {
    victims.iter().map(|node| (cue + spread.draw(rng), *node)).collect()
}

/// One failover, timed from the app's failure.
struct Failover {
    /// Until a survivor is active in a view without the app.
    app_excluded: Nanos,
    /// Until it is active in a view without any process that failed.
    all_excluded: Nanos,
    /// The phases until the app is excluded, if the flight recorders have them all.
    phases: Option<Phases>,
}

fn failover(
    testbed: &Testbed,
    scenario: &Scenario,
    setting: Setting,
    seed: u64,
) -> Result<Failover, ExperimentError> {
    let caches = if scenario.caches { CACHES } else { 0 };
    let fencing = setting != Setting::Waited;
    let shape = Shape { apps: APPS, caches, fencing, record: true, ..Shape::default() };
    let (mut cluster, mut rng) = cluster::steady(testbed, shape, seed)?;
    // The oldest of their kinds fail, so the youngest member, which watches the leader's counter in
    // the ring, lives. Otherwise the leader's failure would be detected later, by other
    // coordinators.
    let view = Arc::clone(cluster.view(0));
    let of_kind = |kind, nth| view.of_kind(kind).nth(nth).map(|member| member.address.region);
    let (Some(app), Some(survivor)) = (of_kind(Kind::App, 0), of_kind(Kind::App, 1)) else {
        return Err(ExperimentError(format!("seed {seed}: view {} has too few apps", view.id)));
    };
    // For the same reason avoid the cache that watches the app's counter: its predecessor in the
    // ring.
    let ring: Vec<u32> = view.members.iter().filter(|m| m.has_core()).map(|m| m.address.region).collect();
    let watcher = ring.windows(2).find(|pair| pair[1] == app).map(|pair| pair[0]);
    let caches: Vec<u32> = view.of_kind(Kind::LeaseCache).map(|m| m.address.region).collect();
    let spared = |cache: &&u32| Some(**cache) != watcher && ring.last() != Some(cache);
    let cache = caches.iter().find(spared).or(caches.first()).copied().unwrap_or(app);
    let cue = cluster.now();
    let victims = [(true, app), (scenario.cache, cache), (scenario.leader, 0)];
    let failed: Vec<u32> = victims.into_iter().filter_map(|(fails, node)| fails.then_some(node)).collect();
    let mut faults = kills(&failed, cue, &testbed.spread, &mut rng);
    let began = faults.first().map_or(cue, |(at, _)| *at);
    faults.sort_unstable();
    let last = cue + testbed.spread.at(BILLION).0;
    let mut due = faults.into_iter().peekable();
    let mut excluded = None;
    while cluster.now() < last + FAILOVER_TIMEOUT {
        while let Some((at, node)) = due.next_if(|(at, _)| cluster.next_time().is_none_or(|next| *at <= next))
        {
            cluster.run_until(at);
            match scenario.detector {
                // Notified of the signal, the leader acts while the process is still exiting.
                Detector::Deadbeat if setting == Setting::Early => cluster.signal(node),
                Detector::Deadbeat => cluster.kill(node),
                Detector::Heartbeat => cluster.freeze(node),
            }
        }
        // Only the app's removal begins a new run; views without leader and cache are compatible.
        let before_next = |time: &u64| cluster.next_time().is_some_and(|next| *time < next);
        if let Some(time) = cluster.active_at(survivor, view.id.next()).filter(before_next) {
            let first = *excluded.get_or_insert(time);
            let newest = cluster.view(survivor);
            if !newest.members.iter().any(|member| failed.contains(&member.address.region)) {
                return Ok(Failover {
                    app_excluded: Nanos(first - began),
                    all_excluded: Nanos(time - began),
                    phases: phases(&mut cluster, &view, app, began, survivor, first),
                });
            }
        }
        if cluster.step().is_none() {
            break;
        }
    }
    Err(ExperimentError(format!(
        "seed {seed}: no failover of {} within {}",
        scenario.name(),
        Nanos(FAILOVER_TIMEOUT)
    )))
}

/// The phases of a completed failover. If more than the app was killed, the time line has several
/// causes.
fn phases(
    cluster: &mut Cluster<Shared>,
    old: &View,
    app: u32,
    began: u64,
    survivor: u32,
    active: u64,
) -> Option<Phases> {
    let member = |node| old.members.iter().find(|m| m.address.region == node);
    let (dead, survivor) = (member(app)?, member(survivor)?);
    // The flight recorder has it after the process's next step.
    cluster.run_for(active - cluster.now().min(active) + STEP_MAX);
    let mut history = History::default();
    history.take(&cluster::recorded(cluster));
    let id = old.id.next();
    let phases = Phases::of(&history, id, &[dead.incarnation], Instant(began), &[survivor.name])?;
    // A process stamps `active` when it checks: it was true from an earlier moment on.
    let late = phases.total().saturating_sub(Nanos(active - began));
    Some(Phases { active: phases.active.saturating_sub(late), ..phases })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_three_victims_dies_first_equally_often() {
        let spread =
            Quantiles::new(vec![(0, Nanos::ZERO), (BILLION, Nanos::from_micros(10))]).expect("they rise");
        let mut rng = Rng::new(1);
        let mut first = [0_u32; 3];
        for _ in 0..3000 {
            let mut faults = kills(&[0, 1, 2], 500, &spread, &mut rng);
            assert!(faults.iter().all(|(at, _)| (500..=10_500).contains(at)));
            faults.sort_unstable();
            first[faults[0].1 as usize] += 1;
        }
        assert!(first.iter().all(|times| (900..1100).contains(times)), "{first:?}");
    }
}
