//! Hot loops in one process: deciding on a prepared slot, changing the leader, and the lease check,
//! each beside the bare instructions that it cannot do without.

use super::Figure;
use obol_fabric::host::this_program;
use obol_fabric::host::{Cluster, Region, clock};
use obol_fabric::{Endpoint, Event, Fabric, Instant, Layout, Machine, Name, Nanos, ViewId};
use obol_membership::consensus::{Consensus, Engine, Outcome};
use obol_membership::view::{Edit, Newcomer};
use obol_membership::{ActiveMutant, Kind, View, tokens};
use obol_node::{Deployment, Network, Site};
use obol_observe::stats::Distribution;
use obol_profiles::Profile;
use obol_supervise::hosts::{self, HostNames};
use obol_supervise::running::{Reaper, dies_with_parent};
use obol_term::output::Failure;
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Decisions that are timed.
const DECISIONS: u64 = 20_000;
/// Lease checks in one timed batch, so that the clock's own cost does not count; and batches.
const CHECKS: u32 = 1_000;
const BATCHES: u32 = 400;

/// A machine that only proposes: what a coordinator does between "has work" and "is decided".
struct Proposer {
    engine: Engine,
    outcome: Option<Outcome>,
}

impl Proposer {
    fn new(me: u16, layout: Layout) -> Self {
        Self { engine: Engine::new(me, layout, ActiveMutant::NONE), outcome: None }
    }
}

impl Machine for Proposer {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
        let Event::Completion { token, result } = event else { return };
        let Some((part, peer, round)) = tokens::unpack(token) else { return };
        if let Some(outcome) = self.engine.complete(part, peer, round, &result, fabric) {
            self.outcome = Some(outcome);
        }
    }
}

/// Coordinators 1 to 3, each held by a thread, and the directories that go with the last of them.
/// Coordinator 4 proposes.
pub(super) struct Acceptors {
    root: PathBuf,
    /// By host; the coordinators take turns.
    sites: Vec<Arc<Site>>,
    stop: Arc<AtomicBool>,
    holders: Vec<std::thread::JoinHandle<()>>,
    gateways: Vec<Child>,
    _cleanup: Vec<Reaper>,
}

/// What the proposer reaches the acceptors over.
#[derive(Clone, Copy)]
pub(super) enum Over {
    /// The memory of one host.
    Memory,
    /// The RDMA device with this address.
    Rdma(SocketAddr),
    /// Gateways on a core: each coordinator has a host of its own.
    Ip(u32),
}

/// Coordinators of the benchmark: the acceptors and the proposer.
pub(super) const ACCEPTORS: u16 = 3;
pub(super) const PROPOSER: u16 = ACCEPTORS + 1;

impl Acceptors {
    pub(super) fn open(root: &Path, profile: Profile, over: Over) -> Result<Self, Failure> {
        let root = root.to_owned();
        let name = Name::new(&format!("micro-{}", std::process::id())).map_err(Failure::failed)?;
        let mut deployment = Deployment::new(PROPOSER, 1, 0, profile).map_err(Failure::refused)?;
        if let Over::Rdma(at) = over {
            deployment = deployment.over(Network::local(obol_agent::seed(), at.ip(), at.port(), PROPOSER));
        }
        let gateways_on = if let Over::Ip(core) = over { Some(core) } else { None };
        let names = HostNames::new(name, gateways_on.map(|_| PROPOSER as u8))?;
        let (mut sites, mut cleanup) = (Vec::new(), Vec::new());
        let deployments = hosts::deployments(&deployment, &root, &names, obol_agent::seed())?;
        for (name, deployment) in names.all().iter().zip(&deployments) {
            cleanup.push(Reaper::of_own_cluster(&root, *name, None)?);
            let site = Site::create(&root, *name, deployment.clone()).map_err(Failure::failed)?;
            sites.push(Arc::new(site));
        }
        let mut gateways = Vec::new();
        hosts::make_keys(&deployments)?;
        if names.are_several() {
            for name in names.all() {
                gateways.push(gateway(&root, *name, gateways_on).map_err(Failure::failed)?);
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (tx, rx) = std::sync::mpsc::channel();
        let mut holders = Vec::new();
        for number in 1..=ACCEPTORS {
            let host = usize::from(number - 1) % sites.len();
            let (site, stop, tx) = (Arc::clone(&sites[host]), Arc::clone(&stop), tx.clone());
            holders.push(std::thread::spawn(move || {
                let opened = site.coordinator(number);
                let held = opened.as_ref().err().map(ToString::to_string);
                // The receiver counts all.
                let _ = tx.send(held);
                // Holds its memory until the end.
                while opened.is_ok() && !stop.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }));
        }
        let this = Self { root, sites, stop, holders, gateways, _cleanup: cleanup };
        for _ in 1..=ACCEPTORS {
            if let Some(error) = rx.recv().map_err(Failure::failed)? {
                return Err(Failure::Failed(error));
            }
        }
        Ok(this)
    }

    /// The host of a coordinator.
    pub(super) fn site(&self, number: u16) -> &Site {
        &self.sites[usize::from(number - 1) % self.sites.len()]
    }
}

/// A gateway that ends with this thread.
fn gateway(root: &Path, cluster: Name, core: Option<u32>) -> std::io::Result<Child> {
    let program = this_program::file()?;
    let mut command = dies_with_parent(&program.to_string_lossy(), core)?;
    command.args(["gateway", "--cluster", cluster.as_str(), "--root"]).arg(root);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for Acceptors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for holder in self.holders.drain(..) {
            // A panic has been reported already.
            let _ = holder.join();
        }
        for gateway in &mut self.gateways {
            // It may have ended by itself.
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
        for site in &self.sites {
            if let Err(error) = Cluster::remove(&self.root, site.cluster.name()) {
                let _ = obol_term::output::remark(format_args!("bench: {error}"));
            }
        }
    }
}

/// The view of a cluster of nine, as large as the ones that real failovers decide.
pub(super) fn nine(acceptors: u16) -> View {
    let coordinators: Vec<_> = (1..=acceptors).map(Deployment::coordinator).collect();
    let genesis = View::genesis(&coordinators, Nanos::from_millis(20), Nanos::from_millis(20));
    let member = |n: u32, kind: Kind| {
        let name = Name::new(&format!("{}-{n}", kind.name())).unwrap_or_default();
        let address = obol_fabric::Address { generation: 1, ..obol_fabric::Address::region(100 + n) };
        Newcomer::new(kind, name, address, u64::from(n))
    };
    let admit = (0..6).map(|n| member(n, if n < 3 { Kind::Agent } else { Kind::App })).collect();
    genesis.successor(&Edit { admit, ..Edit::default() }, ViewId::GENESIS, ActiveMutant::NONE)
}

/// A decision that takes this long will not come. Links over RDMA are made meanwhile.
const DECIDE_TIMEOUT: Nanos = Nanos::from_secs(20);
/// Turns of the loop between two looks whether that is so.
const TURNS: u32 = 1_000;

/// Turns until the proposer has an outcome, retrying what was aborted.
fn until_done(endpoint: &mut Endpoint, proposer: &mut Proposer) -> Result<Outcome, Failure> {
    let mut end = None;
    loop {
        // The clock is looked at seldom: a look at it takes as long as an operation.
        for _ in 0..TURNS {
            match proposer.outcome.take() {
                Some(Outcome::Aborted(_)) => proposer.outcome = proposer.engine.prepare(endpoint),
                Some(outcome) => return Ok(outcome),
                None => drop(endpoint.poll_once(proposer)),
            }
        }
        let now = clock::now();
        if now > *end.get_or_insert(now + DECIDE_TIMEOUT) {
            return Err(Failure::Failed("the engine did not decide".to_owned()));
        }
    }
}

/// Decides slot after slot, on odd ones as the stable leader, on even ones after a change of the
/// leader.
struct Decide<'a> {
    view: &'a View,
    layout: Layout,
    decisions: u64,
}

/// How long it took.
struct Decided {
    decide: Distribution,
    change: Distribution,
}

impl Decide<'_> {
    fn run(self, endpoint: &mut Endpoint) -> Result<Decided, Failure> {
        let (mut decide, mut change) = (Distribution::new(), Distribution::new());
        let acceptors = &self.view.acceptors;
        let [mut first, mut second] = [1, 2].map(|me| Proposer::new(me, self.layout));
        for slot in 1..=self.decisions {
            let mut next = self.view.clone();
            next.id = ViewId(slot);
            first.engine.open(next.id, acceptors, None);
            first.outcome = first.engine.prepare(endpoint);
            until_done(endpoint, &mut first)?;
            let began = clock::now();
            if slot % 2 == 1 {
                first.outcome = first.engine.accept(next.to_frame(), |_| {}, endpoint);
                until_done(endpoint, &mut first)?;
                decide.add(clock::now().since(began));
            } else {
                // The leader has prepared the slot, and another takes over.
                second.engine.open(next.id, acceptors, Some(1));
                second.outcome = second.engine.prepare(endpoint);
                until_done(endpoint, &mut second)?;
                second.outcome = second.engine.accept(next.to_frame(), |_| {}, endpoint);
                until_done(endpoint, &mut second)?;
                change.add(clock::now().since(began));
            }
        }
        Ok(Decided { decide, change })
    }
}

fn decide(acceptors: &Acceptors, view: &View, decisions: u64) -> Result<Decided, Failure> {
    let site = acceptors.site(PROPOSER);
    let layout = *site.cluster.layout();
    let mut endpoint = site.coordinator(PROPOSER).map_err(Failure::failed)?;
    Decide { view, layout, decisions }.run(&mut endpoint)
}

pub(super) fn run(root: &Path) -> Result<Vec<Figure>, Failure> {
    let acceptors = Acceptors::open(root, Profile::default(), Over::Memory)?;
    let view = nine(ACCEPTORS);
    let Decided { decide, change } = decide(&acceptors, &view, DECISIONS)?;
    let mut bare = Distribution::new();
    bare_pairs(&acceptors.site(PROPOSER).cluster, &view, &mut bare)?;
    let p50 = |times: &Distribution| times.quantile(0.5).as_micros_f64();
    Ok(vec![
        Figure::at_most("decide on a prepared slot, 3 acceptors, p50", "us", p50(&decide), 1.0),
        Figure::against("the same against bare copies and CASes", "us", p50(&decide), p50(&bare), 10.0),
        Figure::at_most("leader change to first decision, p50", "us", p50(&change), 2.0),
    ])
}

/// Decisions that are timed over RDMA.
const RDMA_DECISIONS: u64 = 4_000;

/// What consensus takes over RDMA.
#[derive(Serialize)]
pub(super) struct OverRdma {
    bench: &'static str,
    /// A decision on a prepared slot, with three acceptors.
    decide_us: f64,
    /// A change of the leader, to its first decision.
    leader_change_us: f64,
    /// What a decision writes to each acceptor.
    value_bytes: usize,
    decisions: u64,
}

impl fmt::Display for OverRdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "over RDMA, {} decisions of {} bytes at {ACCEPTORS} acceptors: decide {:.2} us, leader change to first \
             decision {:.2} us (p50)",
            self.decisions, self.value_bytes, self.decide_us, self.leader_change_us
        )
    }
}

/// The same consensus over RDMA, by loopback through the device.
pub(super) fn over_rdma(root: &Path, at: SocketAddr, profile: Profile) -> Result<OverRdma, Failure> {
    let acceptors = Acceptors::open(root, profile, Over::Rdma(at))?;
    let view = nine(ACCEPTORS);
    let Decided { decide, change } = decide(&acceptors, &view, RDMA_DECISIONS)?;
    let p50 = |times: &Distribution| times.quantile(0.5).as_micros_f64();
    Ok(OverRdma {
        bench: "consensus over RDMA",
        decide_us: p50(&decide),
        leader_change_us: p50(&change),
        value_bytes: view.to_frame().len(),
        decisions: RDMA_DECISIONS,
    })
}

/// The least that a decision costs: the view copied into three regions and three words swapped.
fn bare_pairs(cluster: &Cluster, view: &View, times: &mut Distribution) -> Result<(), Failure> {
    let regions = [1, 2, 3].map(|n| Region::open(cluster, n));
    let mut opened = Vec::new();
    for region in regions {
        opened.push(region.map_err(Failure::failed)?);
    }
    let frame = view.to_frame();
    let layout = cluster.layout();
    for n in 0..DECISIONS {
        let began = clock::now();
        for region in &opened {
            let home = obol_fabric::memory::span(region, layout.value(n, 1), frame.len());
            obol_fabric::memory::copy_in(home.unwrap_or_default(), &frame);
            fence(Ordering::Release);
            let word = &region[layout.slot(n) as usize / 8];
            let seen = word.load(Ordering::Relaxed);
            let _ = word.compare_exchange(seen, n, Ordering::AcqRel, Ordering::Acquire);
        }
        times.add(clock::now().since(began));
    }
    Ok(())
}

/// The median cost of one call, in nanoseconds.
fn per_call(mut call: impl FnMut() -> bool) -> f64 {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let began = clock::now();
            for _ in 0..CHECKS {
                black_box(call());
            }
            clock::now().since(began).0 as f64 / f64::from(CHECKS)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

/// The lease check beside a bare seqlock read with a clock read.
pub(super) fn checks(attached: impl FnMut() -> bool, embedded: impl FnMut() -> bool) -> Vec<Figure> {
    let words: [AtomicU64; 4] = [0, 0, u64::MAX, 7].map(AtomicU64::new);
    let bare = || {
        let before = words[0].load(Ordering::Acquire);
        let [start, end, holder] = [1, 2, 3].map(|i| words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = before & 1 == 0 && words[0].load(Ordering::Relaxed) == before;
        let now = clock::now().0;
        whole && start <= now && now < end && holder == black_box(7)
    };
    let (bare, attached, embedded) = (per_call(bare), per_call(attached), per_call(embedded));
    vec![
        Figure::against("active(), attached, p50", "ns", attached, bare, 1.3),
        Figure::against("active(), embedded, p50", "ns", embedded, bare, 1.3),
    ]
}

/// How many failovers a core simulates in a second.
pub(super) fn simulation() -> Figure {
    let failovers = obol_campaign::throughput();
    Figure::at_least("simulated failovers per second and core", "/s", failovers, 200.0)
}
