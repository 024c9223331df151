//! Operations over IP beside bare echoes over TCP, in turns. The asking thread runs on one core, and
//! the answering one on another, as on two hosts: a wake-up within a core takes a third of the time.

use super::micro::{ACCEPTORS, Acceptors, Over, PROPOSER, nine};
use super::{Figure, ip_failover};
use obol_chaos::floor::Floors;
use obol_fabric::host::sched::Slice;
use obol_fabric::host::sched::pin_to_core;
use obol_fabric::{Endpoint, Event, Fabric, Instant, Layout, Machine, Nanos, Remote, Token, ViewId};
use obol_fabric_ip::floor::Echoes;
use obol_membership::consensus::{Consensus, Engine, Outcome};
use obol_membership::{ActiveMutant, View, tokens};
use obol_node::Deployment;
use obol_node::network::Fabric as Network;
use obol_observe::stats::Distribution;
use obol_profiles::Profile;
use obol_term::output::Failure;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alternations of floor and product.
const TURNS: u32 = 5;
/// What is timed in each turn.
const COUNT: u32 = 2_000;
/// Failovers, and failovers of bare processes.
const FAILOVERS: u32 = 30;
/// Pause before something that failed is tried again: connections are being made.
const PAUSE: Nanos = Nanos::from_millis(5);
/// A machine that gets nowhere for this long is given up.
const PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(20);

/// No token of the engine's.
const READ: Token = Token(u64::MAX);

/// READs a word of another host again and again.
struct Reads<'a> {
    at: Remote,
    posted: Instant,
    retry: Instant,
    clock: Stopwatch<'a>,
}

/// Counts and times.
struct Stopwatch<'a> {
    times: Vec<Nanos>,
    count: u32,
    /// Set when all were timed, or nothing happens any more.
    stop: &'a AtomicBool,
    until: Instant,
}

impl<'a> Stopwatch<'a> {
    fn new(count: u32, stop: &'a AtomicBool) -> Self {
        stop.store(false, Ordering::Relaxed);
        Self { times: Vec::with_capacity(count as usize), count, stop, until: Instant::NEVER }
    }

    /// Returns whether to go on.
    fn add(&mut self, span: Nanos) -> bool {
        self.times.push(span);
        let more = self.times.len() < self.count as usize;
        self.stop.store(!more, Ordering::Relaxed);
        more
    }

    /// Something failed.
    fn failed(&mut self, now: Instant) {
        if self.until == Instant::NEVER {
            self.until = now + PROGRESS_TIMEOUT;
        }
        self.stop.store(now > self.until, Ordering::Relaxed);
    }

    fn end(self, what: &str) -> Result<Vec<Nanos>, Failure> {
        if self.times.len() == self.count as usize {
            return Ok(self.times);
        }
        Err(Failure::Failed(format!("{what} over IP: nothing happens for {PROGRESS_TIMEOUT}")))
    }
}

impl Reads<'_> {
    fn post<F: Fabric>(&mut self, fabric: &mut F) {
        self.posted = obol_fabric::host::clock::now();
        fabric.read(self.at, 8, READ);
    }
}

impl Machine for Reads<'_> {
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        let Event::Completion { token: READ, result } = event else {
            // An acceptor that no decision of the turn before has waited for.
            return;
        };
        if result.is_err() {
            self.clock.failed(now);
            self.retry = now + PAUSE;
        } else if self.clock.add(obol_fabric::host::clock::now().since(self.posted)) {
            self.post(fabric);
        }
    }

    fn tick<F: Fabric>(&mut self, _: Instant, fabric: &mut F) {
        self.retry = Instant::NEVER;
        self.post(fabric);
    }

    fn deadline(&self) -> Instant {
        self.retry
    }
}

/// Decides slot after slot, as the stable leader.
struct Decisions<'a> {
    engine: Engine,
    view: &'a View,
    /// The slot that is being decided.
    slot: u64,
    proposed: Option<Instant>,
    retry: Instant,
    clock: Stopwatch<'a>,
}

impl Decisions<'_> {
    fn prepare<F: Fabric>(&mut self, fabric: &mut F) {
        self.proposed = None;
        let outcome = self.engine.prepare(fabric);
        self.take(outcome.as_ref(), fabric);
    }

    fn open<F: Fabric>(&mut self, fabric: &mut F) {
        self.slot += 1;
        self.engine.open(ViewId(self.slot), &self.view.acceptors, None);
        self.prepare(fabric);
    }

    fn take<F: Fabric>(&mut self, outcome: Option<&Outcome>, fabric: &mut F) {
        let now = obol_fabric::host::clock::now();
        match outcome {
            None => {}
            Some(Outcome::Aborted(_)) => {
                self.clock.failed(now);
                self.retry = now + PAUSE;
            }
            Some(Outcome::Decided { .. }) => {
                let Some(proposed) = self.proposed.take() else { return };
                if self.clock.add(now.since(proposed)) {
                    self.open(fabric);
                }
            }
            Some(Outcome::Prepared | Outcome::Adopted) => {
                let mut next = self.view.clone();
                next.id = ViewId(self.slot);
                self.proposed = Some(obol_fabric::host::clock::now());
                let outcome = self.engine.accept(next.to_frame(), |_| {}, fabric);
                self.take(outcome.as_ref(), fabric);
            }
        }
    }
}

impl Machine for Decisions<'_> {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
        let Event::Completion { token, result } = event else { return };
        let Some((part, peer, round)) = tokens::unpack(token) else { return };
        let outcome = self.engine.complete(part, peer, round, &result, fabric);
        self.take(outcome.as_ref(), fabric);
    }

    fn tick<F: Fabric>(&mut self, _: Instant, fabric: &mut F) {
        self.retry = Instant::NEVER;
        match self.slot.is_multiple_of(u64::from(COUNT)) && self.clock.times.is_empty() {
            true => self.open(fabric),
            false => self.prepare(fabric),
        }
    }

    fn deadline(&self) -> Instant {
        self.retry
    }
}

/// One turn: READs, then decisions from a slot on.
fn one_turn(
    endpoint: &mut Endpoint,
    view: &View,
    layout: Layout,
    turn: u32,
) -> Result<(Vec<Nanos>, Vec<Nanos>), Failure> {
    let stop = AtomicBool::new(false);
    let at = Remote { at: Deployment::coordinator(1).1, offset: layout.seat(0) };
    let clock = Stopwatch::new(COUNT, &stop);
    let mut reads = Reads { at, posted: Instant::ZERO, retry: Instant::ZERO, clock };
    endpoint.run(&mut reads, &stop, |_, _| {});
    let reads = reads.clock.end("READs")?;
    let clock = Stopwatch::new(COUNT, &stop);
    let engine = Engine::new(1, layout, ActiveMutant::NONE);
    let slot = u64::from(turn * COUNT);
    let mut decisions = Decisions { engine, view, slot, proposed: None, retry: Instant::ZERO, clock };
    endpoint.run(&mut decisions, &stop, |_, _| {});
    Ok((reads, decisions.clock.end("decisions")?))
}

/// The medians of echoes over TCP and TLS, of three at once, of READs and of decisions, in microseconds.
fn operations(root: &Path, profile: &Profile) -> Result<[f64; 5], Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let answering = cores - 1;
    pin_to_core(0).map_err(Failure::failed)?;
    let acceptors = Acceptors::open(root, profile.clone(), Over::Ip(answering))?;
    let site = acceptors.site(PROPOSER);
    let network = site.deployment.network.as_ref();
    let Some((Network::Ip { keys }, address)) = network.map(|network| (&network.fabric, network.address))
    else {
        return Err(Failure::Failed("the cluster of the benchmark is not over IP".to_owned()));
    };
    let mut echoes = Echoes::start(keys, address, answering).map_err(Failure::failed)?;
    let mut endpoint = site.coordinator(PROPOSER).map_err(Failure::failed)?;
    let (view, layout) = (nine(ACCEPTORS), *site.cluster.layout());
    let mut all = [(); 5].map(|()| Distribution::new());
    for turn in 0..TURNS {
        let (reads, decisions) = one_turn(&mut endpoint, &view, layout, turn)?;
        let times = [
            echoes.plain(COUNT).map_err(Failure::failed)?,
            echoes.sealed(COUNT).map_err(Failure::failed)?,
            echoes.slowest(COUNT).map_err(Failure::failed)?,
            reads,
            decisions,
        ];
        for (all, times) in all.iter_mut().zip(times) {
            times.into_iter().for_each(|time| all.add(time));
        }
    }
    Ok(all.map(|times| times.quantile(0.5).as_micros_f64()))
}

pub(super) fn run(root: &Path) -> Result<Vec<Figure>, Failure> {
    let profile = Profile::builtin("lan").map_err(Failure::failed)?;
    // A thread of its own, because it and what it starts are bound to cores.
    let measured = std::thread::scope(|scope| scope.spawn(|| operations(root, &profile)).join());
    let measured =
        measured.unwrap_or_else(|_| Err(Failure::Failed("the measuring thread panicked".to_owned())));
    let [plain, sealed, slowest, read, decide] = measured?;
    let mut bare = Floors::default();
    bare.run(root, FAILOVERS, Slice::Default)?;
    let failover = ip_failover::run(root, &profile, FAILOVERS)?.quantile(0.5).as_micros_f64();
    let parts = bare.detected.quantile(0.5).as_micros_f64() + 3.0 * plain;
    Ok(vec![
        Figure::against("READ by a gateway against an echo over TCP, p50", "us", read, plain, 1.5),
        Figure::against("echo over TLS against one over TCP, p50", "us", sealed, plain, 1.3),
        Figure::against("decide, 3 hosts, against the slowest of 3 echoes", "us", decide, slowest, 2.0),
        Figure::against("app of another host dies, against notice + 3 echoes", "us", failover, parts, 2.0),
    ])
}
