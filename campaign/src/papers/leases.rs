//! uKharon, Figure 3: the lease length needed for timely renewals while other traffic loads the
//! network and other programs load the memory.
//!
//! When a lease is renewed does not depend on its length. So one run of each load, with leases that
//! never run out, covers every length at once: a renewal is timely for all lengths that reach from
//! the previous renewal's post to its own completion.

use super::cluster::{self, ExperimentError, Shape};
use super::shared::Shared;
use obol_cluster_sim::Cluster;
use obol_fabric::{Instant, Nanos, page};
use obol_fabric_sim::{BILLION, Quantiles};
use obol_membership::lease::shortened;
use obol_profiles::Testbed;
use obol_profiles::testbed::Parameter;
use serde::Serialize;

/// Members that renew, as in the paper.
const RENEWERS: u32 = 32;
/// Lease lengths in microseconds, as in the paper.
pub const LENGTHS_US: std::ops::RangeInclusive<u64> = 18..=30;
/// Network loads in percent. The paper has four, and names 30, 80 and the maximum.
const NETWORK: [u32; 4] = [30, 50, 80, 100];
/// Memory loads in percent.
const MEMORY: [u32; 3] = [0, 50, 100];
/// The lease of the runs, which never runs out.
const ENDLESS: Nanos = Nanos::from_millis(1);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Of the links' bandwidth, in percent.
    pub network_percent: u32,
    /// Of the memory's, in percent.
    pub memory_percent: u32,
    pub renewals: u64,
    /// For each of [`LENGTHS_US`], the percentage of renewals that would have been timely.
    pub timely_percent: Vec<f64>,
    /// For each of [`LENGTHS_US`], the percentage of time in which `active` would have returned at
    /// once.
    pub covered_percent: Vec<f64>,
}

/// The sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Leases {
    pub testbed: String,
    /// Members that renew.
    pub renewers: u32,
    /// True time of each run in milliseconds.
    pub span_ms: u32,
    /// The first seed.
    pub seed: u64,
    /// Lease lengths in microseconds.
    pub lengths_us: Vec<u64>,
    /// The results.
    pub loads: Vec<Load>,
    /// The testbed's parameters.
    pub inputs: Vec<Parameter>,
}

/// The queueing delay of a packet at a port that other packets occupy for `percent` of the time.
/// Below saturation an M/D/1 queue, with an exponential distribution of positive waiting times
/// (Kleinrock, Queueing Systems I, section 5.12, for the mean); a saturated port has full queues.
fn queueing(testbed: &Testbed, percent: u32) -> Quantiles {
    if percent >= 100 {
        return testbed.saturated.clone();
    }
    let packet = f64::from(testbed.model.mtu_bytes) / 1024.0 * testbed.model.link_per_kib.0 as f64;
    let load = f64::from(percent) / 100.0;
    let mean_if_any = packet / (2.0 * (1.0 - load));
    let at = |quantile: u32| {
        let beyond = f64::from(BILLION - quantile.min(BILLION - 1)) / f64::from(BILLION);
        Nanos((mean_if_any * (load / beyond).ln()).max(0.0).round() as u64)
    };
    let free = ((1.0 - load) * f64::from(BILLION)).round() as u32;
    let tail = [900_000_000, 990_000_000, 999_000_000, 999_900_000, 999_990_000, 999_999_000, BILLION];
    let steps = (1..8).map(|n| free + (899_000_000u32.saturating_sub(free)) / 8 * n);
    let mut places: Vec<u32> = [0, free].into_iter().chain(steps).chain(tail).collect();
    places.sort_unstable();
    places.dedup();
    let points = places.into_iter().map(|place| (place, at(place))).collect();
    Quantiles::new(points).unwrap_or_else(|_| testbed.saturated.clone())
}

fn under(testbed: &Testbed, network_percent: u32, memory_percent: u32) -> Testbed {
    let mut loaded = testbed.clone();
    loaded.model.queueing = queueing(testbed, network_percent);
    loaded.model.interval = testbed.model.interval.towards(&testbed.interval_loaded, memory_percent * 10);
    loaded.deployment.lease = ENDLESS;
    loaded
}

/// Measures all loads.
pub fn leases(testbed: &Testbed, span_ms: u32, seed: u64) -> Result<Leases, ExperimentError> {
    let mut loads = Vec::new();
    for network in NETWORK {
        for memory in MEMORY {
            loads.push(load(testbed, network, memory, Nanos::from_millis(u64::from(span_ms)), seed)?);
        }
    }
    Ok(Leases {
        testbed: testbed.name.to_string(),
        renewers: RENEWERS,
        span_ms,
        seed,
        lengths_us: LENGTHS_US.collect(),
        loads,
        inputs: testbed.parameters(),
    })
}

/// From the post of each renewal to the completion of the next, at all members.
fn gaps(testbed: &Testbed, span: Nanos, seed: u64) -> Result<Vec<u64>, ExperimentError> {
    let shape = Shape { apps: RENEWERS, ..Shape::default() };
    let (mut cluster, _) = cluster::steady(testbed, shape, seed)?;
    let usable = shortened(testbed.deployment.lease, testbed.deployment.drift_ppm);
    let end = cluster.now() + span.0;
    let posted = |cluster: &Cluster<Shared>, node: u32| {
        let page = page::load(cluster.page(node)).unwrap_or_default();
        Instant(page.end.0.saturating_sub(usable.0))
    };
    let first = shape.app_nodes().start;
    let mut last: Vec<Instant> = shape.app_nodes().map(|node| posted(&cluster, node)).collect();
    let mut gaps = Vec::new();
    while cluster.now() < end {
        let Some(step) = cluster.step() else { break };
        if !shape.app_nodes().contains(&step.node) {
            continue;
        }
        let before = &mut last[(step.node - first) as usize];
        let now = posted(&cluster, step.node);
        if now > *before {
            gaps.push(cluster.local_now(step.node).since(*before).0);
            *before = now;
        }
    }
    Ok(gaps)
}

fn load(
    testbed: &Testbed,
    network: u32,
    memory: u32,
    span: Nanos,
    seed: u64,
) -> Result<Load, ExperimentError> {
    let gaps = gaps(&under(testbed, network, memory), span, seed)?;
    if gaps.is_empty() {
        return Err(ExperimentError(format!(
            "seed {seed}: no lease was renewed at {network} % network load within {span}"
        )));
    }
    let of_lengths = |share: &dyn Fn(u64) -> f64| {
        let usable = |us| shortened(Nanos::from_micros(us), testbed.deployment.drift_ppm).0;
        LENGTHS_US.map(|us| 100.0 * share(usable(us))).collect()
    };
    let timely = |length: u64| gaps.iter().filter(|&&gap| gap <= length).count() as f64 / gaps.len() as f64;
    let covered = |length: u64| {
        let uncovered: u64 = gaps.iter().map(|gap| gap.saturating_sub(length)).sum();
        let whole = span.0 as f64 * f64::from(RENEWERS);
        (1.0 - uncovered as f64 / whole).max(0.0)
    };
    Ok(Load {
        network_percent: network,
        memory_percent: memory,
        renewals: gaps.len() as u64,
        timely_percent: of_lengths(&timely),
        covered_percent: of_lengths(&covered),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testbed() -> Testbed {
        Testbed::builtin("infiniband").expect("it is in order")
    }

    #[test]
    fn a_queue_grows_with_its_load() {
        let waits: Vec<Quantiles> = [0, 30, 80, 99, 100].map(|load| queueing(&testbed(), load)).into();
        assert_eq!(waits[0].at(BILLION), Nanos::ZERO);
        for pair in waits.windows(2) {
            assert!(pair[0].mean() < pair[1].mean(), "{pair:?}");
        }
        // M/D/1 at 80 %: load * packet / (2 * (1 - load)), with packets of 328 ns.
        assert!((550..770).contains(&waits[2].mean().0), "{}", waits[2].mean());
    }
}
