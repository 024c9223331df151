//! How failovers and renewals scale with the number of members: with and without lease caches, with
//! leases waited for or fenced, with fences raised by the leader or through caches (uKharon,
//! section 6.3, and obol's additions).
//!
//! Leases are published for 32 members. Beyond that they, and all other periods, grow with the
//! number of members, so that renewals cost every coordinator the same at any size, and the
//! comparison is of failover costs.

use super::cluster::{self, COORDINATORS, ExperimentError, Shape, in_parallel};
use super::shared::Shared;
use obol_cluster_sim::Cluster;
use obol_fabric::{Nanos, ViewId};
use obol_fabric_sim::What;
use obol_membership::Kind;
use obol_observe::stats::Distribution;
use obol_profiles::Testbed;
use obol_profiles::testbed::Parameter;
use obol_rng::Rng;
use serde::Serialize;
use std::ops::RangeInclusive;
use strum::{IntoStaticStr, VariantArray};

/// The smallest and the largest number of members.
pub const MEMBERS: RangeInclusive<u32> = 8..=4096;
/// Members of all concurrently simulated clusters: this many take 1.5 GB.
const MEMBERS_AT_ONCE: u32 = *MEMBERS.end();
/// Members that the published lease is made for (uKharon, section 7.1).
const LEASE_MEMBERS: u32 = 32;
/// One cache per this many members, within these bounds.
const MEMBERS_PER_CACHE: u32 = 8;
const CACHES: RangeInclusive<u32> = 2..=16;
/// Leases for which renewals are counted.
const LEASES_COUNTED: u64 = 4;
/// A failover that takes longer than this has failed.
const FAILOVER_TIMEOUT: u64 = 400_000_000;

/// How leases are renewed and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Method {
    /// Renewed at the acceptors; survivors wait until old leases have run out.
    Waited,
    /// Renewed at caches; survivors wait.
    #[strum(serialize = "waited, caches")]
    WaitedCaches,
    /// Renewed at the acceptors; the leader raises all fences.
    Fenced,
    /// Renewed at caches; the leader raises all fences.
    #[strum(serialize = "fenced, caches")]
    FencedCaches,
    /// Renewed at caches, which also raise the fences.
    #[strum(serialize = "fanned out")]
    FannedOut,
}

impl Method {
    /// Its name in tables and plots.
    pub fn name(self) -> &'static str {
        self.into()
    }

    const fn caches(self) -> bool {
        !matches!(self, Self::Waited | Self::Fenced)
    }

    const fn fencing(self) -> bool {
        !matches!(self, Self::Waited | Self::WaitedCaches)
    }
}

/// One method at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Apps, each with a lease page of its own.
    pub members: u32,
    /// How leases are renewed and ended.
    pub method: Method,
    /// Lease caches.
    pub caches: u32,
    /// How long a lease lasts, in microseconds.
    pub lease_us: f64,
    /// Share of member time before the failure that was spent active, in percent.
    pub active_percent: f64,
    /// One-sided operations of renewals and heartbeats, a second, at each coordinator.
    pub coordinator_operations: f64,
    /// Datagrams a second at each cache; 0 without caches.
    pub cache_datagrams: f64,
    /// From the kill to the first survivor that is active: median, in microseconds.
    pub first_us: f64,
    /// From the kill to the last one.
    pub last_us: f64,
    /// Operations and datagrams that reached each coordinator from the kill until the last survivor
    /// was active.
    pub failover_operations: f64,
}

/// The sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    pub testbed: String,
    /// Failovers behind each point.
    pub repetitions: u32,
    /// The first seed.
    pub seed: u64,
    /// The results, by size, then by method.
    pub points: Vec<Point>,
    /// The testbed's parameters.
    pub inputs: Vec<Parameter>,
}

impl Scaling {
    /// The sizes, smallest first.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.points.iter().map(|point| point.members).collect();
        sizes.dedup();
        sizes
    }

    /// The method with the earliest first survivor at a size.
    pub fn best(&self, members: u32) -> Option<&Point> {
        self.points.iter().filter(|p| p.members == members).min_by(|a, b| a.first_us.total_cmp(&b.first_us))
    }
}

/// Measures all methods at 8, 16, 32, ... members up to `largest`.
pub fn scale(
    testbed: &Testbed,
    largest: u32,
    repetitions: u32,
    seed: u64,
    threads: usize,
) -> Result<Scaling, ExperimentError> {
    let sizes = (0..).map(|n| MEMBERS.start() << n).take_while(|members| *members <= largest);
    let mut points = Vec::new();
    for members in sizes {
        let threads = threads.min((MEMBERS_AT_ONCE / members) as usize);
        let first = points.len();
        points.extend(in_parallel(threads, Method::VARIANTS.len(), |at| {
            let seed = seed.wrapping_add(((first + at) as u64) << 32);
            point(testbed, members, Method::VARIANTS[at], repetitions, seed)
        })?);
    }
    Ok(Scaling { testbed: testbed.name.to_string(), repetitions, seed, points, inputs: testbed.parameters() })
}

fn shape(members: u32, method: Method) -> Shape {
    let caches = (members / MEMBERS_PER_CACHE).clamp(*CACHES.start(), *CACHES.end());
    Shape {
        apps: members,
        caches: if method.caches() { caches } else { 0 },
        fencing: method.fencing(),
        fan_out_from: if method == Method::FannedOut { 1 } else { u32::MAX },
        stretch: u64::from((members / LEASE_MEMBERS).max(1)),
        record: false,
        quick_start: true,
    }
}

fn point(
    testbed: &Testbed,
    members: u32,
    method: Method,
    repetitions: u32,
    seed: u64,
) -> Result<Point, ExperimentError> {
    let shape = shape(members, method);
    let (mut first, mut last) = (Distribution::new(), Distribution::new());
    let (mut steady, mut operations) = (Vec::new(), 0.0);
    for n in 0..u64::from(repetitions) {
        // After the largest seed comes 0.
        let seed = seed.wrapping_add(n);
        let (mut cluster, mut rng) = cluster::steady(testbed, shape, seed)?;
        steady.push(renewals(&mut cluster, &shape, testbed));
        let failover = failover(&mut cluster, &mut rng, &shape, seed)?;
        first.add(failover.first);
        last.add(failover.last);
        operations += failover.operations as f64;
    }
    let mean = |part: fn(&Steady) -> f64| steady.iter().map(part).sum::<f64>() / steady.len().max(1) as f64;
    Ok(Point {
        members,
        method,
        caches: shape.caches,
        lease_us: (testbed.deployment.lease.0 * shape.stretch) as f64 / 1000.0,
        active_percent: mean(|s| s.active_percent),
        coordinator_operations: mean(|s| s.coordinator),
        cache_datagrams: mean(|s| s.cache),
        first_us: first.quantile(0.5).as_micros_f64(),
        last_us: last.quantile(0.5).as_micros_f64(),
        failover_operations: operations / f64::from(repetitions.max(1)),
    })
}

/// Figures of a cluster without faults.
struct Steady {
    active_percent: f64,
    coordinator: f64,
    cache: f64,
}

fn renewals(cluster: &mut Cluster<Shared>, shape: &Shape, testbed: &Testbed) -> Steady {
    let lease = testbed.deployment.lease.0 * shape.stretch;
    let (mut at_coordinators, mut at_caches) = (0u64, 0u64);
    let (mut active, mut checks) = (0u64, 0u64);
    let span = LEASES_COUNTED * lease;
    let began = cluster.now();
    for check in 1..=LEASES_COUNTED * 4 {
        let until = began + check * lease / 4;
        while cluster.next_time().is_some_and(|next| next <= until) {
            let Some(step) = cluster.step() else { break };
            match step.what {
                What::Arrived if step.node < COORDINATORS => at_coordinators += 1,
                What::Datagram if step.node >= COORDINATORS + shape.apps => at_caches += 1,
                _ => {}
            }
        }
        let view = cluster.view(0).id;
        active += shape.app_nodes().filter(|node| cluster.is_active(*node, view)).count() as u64;
        checks += u64::from(shape.apps);
    }
    let a_second = |count: u64, among: u32| match among {
        0 => 0.0,
        n => count as f64 / f64::from(n) * 1e9 / span as f64,
    };
    Steady {
        active_percent: 100.0 * active as f64 / checks as f64,
        coordinator: a_second(at_coordinators, COORDINATORS),
        cache: a_second(at_caches, shape.caches),
    }
}

struct Failover {
    first: Nanos,
    last: Nanos,
    /// That reached each coordinator.
    operations: u64,
}

/// Kills an app and waits until every survivor is active without it.
fn failover(
    cluster: &mut Cluster<Shared>,
    rng: &mut Rng,
    shape: &Shape,
    seed: u64,
) -> Result<Failover, ExperimentError> {
    let view = std::sync::Arc::clone(cluster.view(0));
    let apps: Vec<u32> = view.of_kind(Kind::App).map(|member| member.address.region).collect();
    let at = rng.below(apps.len() as u64) as usize;
    let victim =
        *apps.get(at).ok_or_else(|| ExperimentError(format!("seed {seed}: view {} has no app", view.id)))?;
    let began = cluster.now();
    cluster.kill(victim);
    let mut survivors = Survivors::new(shape, victim, view.id.next());
    let mut reached = 0u64;
    while cluster.now() < began + FAILOVER_TIMEOUT {
        let Some(step) = cluster.step() else { break };
        if step.node < COORDINATORS && matches!(step.what, What::Arrived | What::Datagram) {
            reached += 1;
        }
        survivors.check(cluster, step.node);
        if let Some((first, last)) = survivors.all(cluster.now()) {
            let operations = reached / u64::from(COORDINATORS);
            return Ok(Failover { first: Nanos(first - began), last: Nanos(last - began), operations });
        }
    }
    let (waiting, of) = (survivors.missing, survivors.active_at.len());
    Err(ExperimentError(format!(
        "seed {seed}: {waiting} of {of} members were not active within {} of a death among {}",
        Nanos(FAILOVER_TIMEOUT),
        shape.apps
    )))
}

/// When each survivor is active in the new view, by its page.
struct Survivors {
    base: ViewId,
    first: u32,
    /// By node, from `first` on; [`u64::MAX`] if not known yet.
    active_at: Vec<u64>,
    missing: usize,
    /// Not all are active before this time, so no check is needed.
    check_at: u64,
}

impl Survivors {
    fn new(shape: &Shape, victim: u32, base: ViewId) -> Self {
        let first = shape.app_nodes().start;
        let active_at: Vec<u64> =
            shape.app_nodes().map(|node| if node == victim { 0 } else { u64::MAX }).collect();
        let missing = active_at.len() - 1;
        Self { base, first, active_at, missing, check_at: 0 }
    }

    /// A node's page may have changed.
    fn check(&mut self, cluster: &Cluster<Shared>, node: u32) {
        let Some(known) = node.checked_sub(self.first).and_then(|at| self.active_at.get_mut(at as usize))
        else {
            return;
        };
        if *known <= cluster.now() {
            return;
        }
        let new = cluster.active_at(node, self.base).unwrap_or(u64::MAX);
        match (*known == u64::MAX, new == u64::MAX) {
            (true, false) => self.missing -= 1,
            (false, true) => self.missing += 1,
            _ => {}
        }
        if new != *known {
            *known = new;
            self.check_at = 0;
        }
    }

    /// When the first and the last of them were active, once all are.
    fn all(&mut self, now: u64) -> Option<(u64, u64)> {
        if self.missing > 0 || now < self.check_at {
            return None;
        }
        let known = || self.active_at.iter().copied().filter(|at| *at > 0);
        let (first, last) = (known().min()?, known().max()?);
        self.check_at = last;
        (last <= now).then_some((first, last))
    }
}
