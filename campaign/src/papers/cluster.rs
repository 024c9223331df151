//! A cluster of the shipped state machines on a simulated testbed: built, brought to a steady
//! state, and observed in true time.

use super::shared::{Shared, Views};
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::{Address, Instant, Layout, Limits, Name, Nanos};
use obol_fabric_sim::{Clock, Delay, Network};
use obol_membership::view::{Edit, Newcomer};
use obol_membership::{ActiveMutant, Change, Config, Kind, Member, Timing, View};
use obol_observe::ObservedEvent;
use obol_observe::timeline::merge;
use obol_profiles::Testbed;
use obol_rng::Rng;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Coordinators of every experiment, as in uKharon, section 7.
pub(super) const COORDINATORS: u32 = 3;
/// Largest clock error in parts per billion: uKharon, appendix C, measured 0.001 %.
const RATE_PPB: u64 = 10_000;
/// A new cluster must reach a steady state within this true time.
const STEADY_WITHIN: u64 = 50_000_000;

/// A failed experiment, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExperimentError(pub String);

/// The cluster to build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Embedded apps: the nodes after the coordinators.
    pub(super) apps: u32,
    /// Lease caches: the last nodes.
    pub(super) caches: u32,
    pub(super) fencing: bool,
    pub(super) fan_out_from: u32,
    /// Factor of all periods and leases, relative to the published ones.
    pub(super) stretch: u64,
    /// Whether flight recorders are written.
    pub(super) record: bool,
    /// Whether the cluster starts on an unlimited fabric, and moves to the testbed in the steady
    /// state.
    pub(super) quick_start: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            apps: 0,
            caches: 0,
            fencing: false,
            fan_out_from: u32::MAX,
            stretch: 1,
            record: false,
            quick_start: false,
        }
    }
}

impl Shape {
    pub(super) const fn nodes(&self) -> u32 {
        COORDINATORS + self.apps + self.caches
    }

    /// Kind and name of a node that is not a coordinator.
    fn kind(&self, node: u32) -> (Kind, &'static str) {
        if self.app_nodes().contains(&node) { (Kind::App, "app") } else { (Kind::LeaseCache, "cache") }
    }

    pub(super) const fn app_nodes(&self) -> std::ops::Range<u32> {
        COORDINATORS..COORDINATORS + self.apps
    }
}

/// The timing of the published cluster. Unpublished values are chosen off the paths of the
/// experiments.
pub(super) fn timing(testbed: &Testbed, shape: &Shape) -> Timing {
    let published = &testbed.deployment;
    let stretched = |span: Nanos| span.saturating_mul(shape.stretch);
    let lease = stretched(published.lease);
    Timing {
        lease,
        lease_max: lease,
        lease_calm: Nanos::from_secs(1),
        renew_every: stretched(published.renew_every),
        renew_timeout: lease,
        cache_lease: stretched(published.cache_lease),
        cache_timeout: Nanos(lease.0 / 2),
        fan_out_from: shape.fan_out_from,
        drift_ppm: published.drift_ppm,
        fencing: shape.fencing,
        heartbeat_every: stretched(published.heartbeat_every),
        heartbeat_period: stretched(published.heartbeat_period),
        heartbeat_confirm: 2,
        link_every: Nanos::from_micros(250),
        link_timeout: Nanos::from_millis(1),
        notice_every: Nanos::from_micros(50),
        join_every: Nanos::from_micros(200),
        join_burst: 1,
        standby: Nanos::from_millis(5),
        poll_every: stretched(Nanos::from_micros(50)),
        backoff_max: Nanos::from_micros(10),
        resync_after: Nanos::from_secs(60),
        ..Timing::default()
    }
}

/// Largest size of a member, and of a view without members.
const MEMBER_BYTES: u32 = 64;
const VIEW_BYTES: u32 = 8192;

fn limits(shape: &Shape) -> Limits {
    Limits {
        slots: 8,
        proposers: COORDINATORS,
        value_bytes: (VIEW_BYTES + shape.nodes().saturating_sub(32) * MEMBER_BYTES).next_multiple_of(64),
        lane_slots: 64,
        datagram_bytes: 4096,
        ..Limits::LEAST
    }
}

/// Nothing is lost, and a failed link costs its timeout.
pub(super) fn network(testbed: &Testbed, shape: &Shape) -> Network {
    let quick = Network { per_kib: Nanos::ZERO, step: Delay::fixed(1), ..Network::default() };
    Network {
        link_timeout: Delay::new(1_000_000, 0),
        heartbeat_every: testbed.deployment.heartbeat_every,
        rejoin: None,
        record: shape.record,
        ..if shape.quick_start { quick } else { Network::default() }
    }
}

/// Runs `work` for `0..count` on this many threads; the results do not depend on their number.
pub(super) fn in_parallel<T: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T, ExperimentError> + Sync,
) -> Result<Vec<T>, ExperimentError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T, ExperimentError>)>> = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let result = work(at);
                    done.lock().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A view with all members except the last app, without leases: the start of a cluster whose
/// thousands of members would otherwise join one after the other. The join of the last one makes
/// all of them members.
fn populated(shape: &Shape, founders: &View, member: impl Fn(u32) -> Member) -> View {
    let joins = (COORDINATORS..shape.nodes()).filter(|node| *node + 1 != shape.app_nodes().end);
    let admit = joins.filter_map(|node| {
        let (kind, what) = shape.kind(node);
        let address = Address { generation: 1, ..Address::region(node) };
        let token = member(node).join_token()?;
        Some(Newcomer::new(kind, name(what, node), address, token))
    });
    let edit = Edit { admit: admit.collect(), ..Edit::default() };
    let view = founders.successor(&edit, founders.cleared, ActiveMutant::NONE);
    View { cleared: view.base, changes: vec![Change::Settled], ..view }
}

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}-{number}")).unwrap_or_default()
}

/// A cluster that has just been started.
fn start(testbed: &Testbed, shape: Shape, seed: u64) -> Result<(Cluster<Shared>, Rng), ExperimentError> {
    let layout = Layout::new(limits(&shape)).map_err(|error| ExperimentError(error.to_string()))?;
    let timing = timing(testbed, &shape);
    let config = Config { release: obol_fabric::Release::THIS, timing, layout, mutant: ActiveMutant::NONE };
    let mut cluster = Cluster::new(config, COORDINATORS, network(testbed, &shape), seed);
    if !shape.quick_start {
        cluster.calibrate(testbed.model.clone());
    }
    let views = Views::default();
    let mut rng = Rng::new(seed ^ 0x7ab1_e200_0000_0000);
    let mut draw = || {
        let (seed, rate) = (rng.next_u64(), rng.below(2 * RATE_PPB + 1) as i64 - RATE_PPB as i64);
        (seed, Clock::new(Instant(1_000_000 + rng.below(1 << 40)), rate))
    };
    let drawn: Vec<(u64, Clock)> = (0..shape.nodes()).map(|_| draw()).collect();
    let member = |cluster: &Cluster<Shared>, node: u32| {
        let (kind, what) = shape.kind(node);
        cluster.start(drawn[node as usize].0).member(kind, name(what, node))
    };
    if shape.quick_start {
        let populated = populated(&shape, cluster.genesis(), |node| member(&cluster, node));
        cluster.begin_with(|_| populated);
    }
    for node in 0..shape.nodes() {
        let (seed, clock) = drawn[node as usize];
        if node < COORDINATORS {
            let machine = cluster.start(seed).coordinator(node as u16 + 1);
            cluster.add_process(Shared::new(Process::Coordinator(Box::new(machine)), &views), clock);
        } else {
            let process = Process::Member(Box::new(member(&cluster, node)));
            cluster.add_small_process(Shared::new(process, &views), clock);
        }
    }
    Ok((cluster, rng))
}

/// A cluster in a steady state: all are members of one view, and every app is active in it.
///
/// The numbers are for what the experiment draws.
pub(super) fn steady(
    testbed: &Testbed,
    shape: Shape,
    seed: u64,
) -> Result<(Cluster<Shared>, Rng), ExperimentError> {
    let (mut cluster, mut rng) = start(testbed, shape, seed)?;
    let members = shape.nodes() as usize;
    while cluster.now() < STEADY_WITHIN {
        cluster.run_for(testbed.deployment.lease.0 * shape.stretch);
        let view = Arc::clone(cluster.view(0));
        let settled = view.members.len() == members
            && (0..shape.nodes()).all(|node| cluster.view(node).id == view.id)
            && shape.app_nodes().all(|node| cluster.is_active(node, view.id));
        if settled {
            if shape.quick_start {
                cluster.calibrate(testbed.model.clone());
            }
            // A random time after the effects of the last join.
            let lease = shape.stretch * testbed.deployment.lease.0;
            let more = rng.below(lease * if shape.quick_start { 1 } else { 20 });
            cluster.run_for(lease * if shape.quick_start { 2 } else { 10 } + more);
            return Ok((cluster, rng));
        }
    }
    let view = cluster.view(0);
    Err(ExperimentError(format!(
        "seed {seed}: after {} of true time view {} has {} of {members} members, or not all of them are active",
        Nanos(STEADY_WITHIN),
        view.id,
        view.members.len()
    )))
}

/// The events of all flight recorders, by and in true time.
pub(super) fn recorded(cluster: &Cluster<Shared>) -> Vec<ObservedEvent> {
    let view = Arc::clone(cluster.view(0));
    let mut events = Vec::new();
    for node in 0..cluster.len() {
        let Some(member) = view.members.iter().find(|m| m.address.region == node) else { continue };
        let observed = |event| ObservedEvent {
            process: member.name,
            kind: member.kind,
            event,
            clock_error: Nanos::ZERO,
        };
        events.extend(cluster.records(node).map(observed));
    }
    merge(events, ActiveMutant::NONE)
}
