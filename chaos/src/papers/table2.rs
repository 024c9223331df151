//! uKharon, Table 2: from a failure to the first moment at which a survivor is active in a view without the failed
//! app. The app dies alone or together with the leader, a lease cache, or both; it is noticed by its kernel (deadbeat) or
//! by a counter that stands still (heartbeat).

use super::cluster::{Cluster, Shape, Stuck, in_parallel};
use crate::stats::Distribution;
use crate::timeline::{History, Phases};
use crate::words::words;
use obol_fabric::{Instant, Nanos};
use obol_membership::{Kind, View};
use obol_profiles::Testbed;
use obol_profiles::testbed::Parameter;
use serde::Serialize;
use std::sync::Arc;

/// Apps of the cluster: the one that dies, the one that is watched, and one more. With the coordinators and the caches
/// they fill the paper's eight nodes.
const APPS: u32 = 3;
/// Caches, where there are any: one may die.
const CACHES: u32 = 2;
/// Within so much time a process has stepped after its page became active.
const STEP_MAX: u64 = 30_000;
/// A failover that takes longer than this does not come any more.
const PATIENCE: u64 = 5_000_000;

words! {
    /// How deaths are noticed.
    Detector {
        /// By their kernel: processes are killed.
        Deadbeat = "deadbeat",
        /// By their counters alone: processes are stopped, as by a kernel that hangs, and their memory still answers.
        Heartbeat = "heartbeat",
    }
}

/// What fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Whether there are lease caches.
    pub caches: bool,
    /// Whether the leader fails with the app.
    pub leader: bool,
    /// Whether a lease cache fails with the app.
    pub cache: bool,
    /// How it is noticed.
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

    /// As the paper calls it: A, A+C, A+L, A+L+C.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match (self.leader, self.cache) {
            (false, false) => "A",
            (true, false) => "A+C",
            (false, true) => "A+L",
            (true, true) => "A+L+C",
        }
    }
}

/// What comes out of one setting of one scenario, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The median.
    pub p50: f64,
    /// The 99th percentile, if there are enough repetitions to claim it.
    pub p99: Option<f64>,
    /// How long each phase took on average, in the order of [`Phases::NAMES`], where all time lines were whole: they add up
    /// to the mean. See [`Phases`].
    pub phases: Option<[f64; 6]>,
}

/// One scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What failed, as the paper calls it.
    pub failed: &'static str,
    /// What fails, how it is noticed, what was published.
    pub scenario: Scenario,
    /// As in the paper: leases are waited for.
    pub waited: Figure,
    /// How far its median is from the published one, in percent of that.
    pub deviation_percent: f64,
    /// Leases are fenced.
    pub fenced: Figure,
    /// Leases are fenced, and kernels tell of the signal, not the exit; `None` where no kernel tells anything.
    pub early: Option<Figure>,
}

/// The table.
#[derive(Clone, Debug, Serialize)]
pub struct Table2 {
    /// The testbed.
    pub testbed: String,
    /// Failovers behind each figure.
    pub repetitions: u32,
    /// The first seed.
    pub seed: u64,
    /// What came out.
    pub cells: Vec<Cell>,
    /// What went in.
    pub inputs: Vec<Parameter>,
}

impl Table2 {
    /// The largest deviation from the paper, in percent.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.cells.iter().map(|cell| cell.deviation_percent.abs()).fold(0.0, f64::max)
    }
}

/// Measures all cells. The same seed gives the same table, whatever the number of threads.
pub fn table2(testbed: &Testbed, repetitions: u32, seed: u64, threads: usize) -> Result<Table2, Stuck> {
    let early = testbed.clone().with_early_notice();
    let scenarios: Vec<Scenario> = Scenario::all().collect();
    let cells = in_parallel(threads, scenarios.len(), |at| {
        cell(testbed, &early, &scenarios[at], repetitions, seed + ((at as u64) << 32))
    })?;
    Ok(Table2 { testbed: testbed.name.to_string(), repetitions, seed, cells, inputs: testbed.parameters() })
}

/// In which setting a failover is measured.
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
) -> Result<Cell, Stuck> {
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
) -> Result<Figure, Stuck> {
    let mut times = Distribution::new();
    let mut phases = Some([0.0; 6]);
    for n in 0..u64::from(repetitions) {
        let (time, line) = failover(testbed, scenario, setting, seed + n)?;
        times.add(time);
        phases = phases.zip(line).map(|(sums, line)| {
            let parts = line.values();
            core::array::from_fn(|at| sums[at] + parts[at].as_micros_f64() / f64::from(repetitions))
        });
    }
    let summary = times.summary();
    Ok(Figure { p50: summary.p50, p99: summary.p99, phases })
}

/// A fault to come: when, and at which node.
type Fault = (u64, u32);

/// One failover, from the app's failure; its phases, if the flight recorders tell them all.
fn failover(
    testbed: &Testbed,
    scenario: &Scenario,
    setting: Setting,
    seed: u64,
) -> Result<(Nanos, Option<Phases>), Stuck> {
    let caches = if scenario.caches { CACHES } else { 0 };
    let fencing = setting != Setting::Waited;
    let shape = Shape { apps: APPS, caches, fencing, record: true, ..Shape::default() };
    let mut cluster = Cluster::steady(testbed, shape, seed)?;
    // The oldest of their kinds: so the youngest member lives, who watches the leader's counter in the ring. Were they
    // stopped together, the leader would be noticed later, by the other coordinators.
    let view = Arc::clone(cluster.world.machine(0).view());
    let of_kind = |kind, nth| view.of_kind(kind).nth(nth).map(|member| member.address.region);
    let (Some(app), Some(survivor)) = (of_kind(Kind::App, 0), of_kind(Kind::App, 1)) else {
        return Err(Stuck(format!("seed {seed}: view {} has too few apps", view.id)));
    };
    // For the same reason rather not the cache that watches the app's counter: its predecessor in the ring.
    let ring: Vec<u32> = view.members.iter().filter(|m| m.has_core()).map(|m| m.address.region).collect();
    let watcher = ring.windows(2).find(|pair| pair[1] == app).map(|pair| pair[0]);
    let caches: Vec<u32> = view.of_kind(Kind::LeaseCache).map(|m| m.address.region).collect();
    let spared = |cache: &&u32| Some(**cache) != watcher && ring.last() != Some(cache);
    let cache = caches.iter().find(spared).or(caches.first()).copied().unwrap_or(app);
    let began = cluster.world.now();
    let mut faults: Vec<Fault> = vec![(began, app)];
    let mut at = began;
    // In the order in which the paper names them: each kill is as imprecise as the one before.
    for (fails, node) in [(scenario.cache, cache), (scenario.leader, 0)] {
        if fails {
            at += testbed.spread.draw(&mut cluster.rng);
            faults.push((at, node));
        }
    }
    let last = at;
    let mut due = faults.into_iter().peekable();
    while cluster.world.now() < last + PATIENCE {
        while let Some((at, node)) =
            due.next_if(|(at, _)| cluster.world.next_time().is_none_or(|next| *at <= next))
        {
            cluster.world.run_until(at);
            match scenario.detector {
                // Told of the signal, the leader acts while the process is still being taken apart.
                Detector::Deadbeat if setting == Setting::Early => cluster.world.signal(node),
                Detector::Deadbeat => cluster.world.kill(node),
                Detector::Heartbeat => cluster.world.freeze(node),
            }
        }
        // Only the app's removal begins a new run; leader and cache leave views compatible.
        if let Some(time) = cluster.active_before_next(survivor, view.id.next()) {
            return Ok((Nanos(time - began), phases(&mut cluster, &view, (app, began), (survivor, time))));
        }
        if cluster.step().is_none() {
            break;
        }
    }
    Err(Stuck(format!("seed {seed}: no failover of {} within {}", scenario.name(), Nanos(PATIENCE))))
}

/// The phases of a failover that has just come to its end. What kills more than the app has more causes than a time line has.
fn phases(
    cluster: &mut Cluster,
    old: &View,
    (app, began): (u32, u64),
    (survivor, active): (u32, u64),
) -> Option<Phases> {
    let member = |node| old.members.iter().find(|m| m.address.region == node);
    let (dead, survivor) = (member(app)?, member(survivor)?);
    // The flight recorder tells of it in the process's next step.
    cluster.run_for(active - cluster.world.now().min(active) + STEP_MAX);
    let mut history = History::default();
    history.take(&cluster.recorded());
    let id = old.id.next();
    let phases = Phases::of(&history, id, &[dead.incarnation], Instant(began), &[survivor.name])?;
    // A process stamps what it finds when it looks: `active` was true from an earlier moment on.
    let late = phases.total().saturating_sub(Nanos(active - began));
    Some(Phases { active: phases.active.saturating_sub(late), ..phases })
}
