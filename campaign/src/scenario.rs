//! Draws a scenario from a seed: cluster, clocks, network, and rounds of faults. It does not depend
//! on the planted bug, so that a mutant runs in the same world as the shipped code.

use super::pulses::PulsePlan;
use obol_fabric::{Instant, Layout, Limits, Nanos, ViewId};
use obol_fabric_sim::{Clock, Delay, Network};
use obol_membership::consensus::{INSTANCES, PROPOSAL_MAX};
use obol_membership::{ActiveMutant, Config, Timing};
use obol_rng::Rng;

/// One in this many seeds is a canary.
pub const CANARY_EVERY: u64 = 100;
/// One in this many seeds is a step of the sweep of clock rates, halfway between two canaries.
pub const SWEEP_EVERY: u64 = CANARY_EVERY;
/// Clock errors of a sweep, in permille of the drift bound.
pub const SWEEP_PERMILLE: [u32; 10] = [500, 900, 999, 1_100, 1_250, 1_500, 2_000, 4_000, 8_000, 20_000];
/// The drift bound of a sweep, in parts per million.
const SWEEP_DRIFT_PPM: u32 = 20_000;
/// The lease of a sweep: the drift bound's share of it exceeds the time between a renewal and a
/// decision.
const SWEEP_LEASE: u64 = 10_000_000;
/// Seats of a region: the owner and up to three programs.
const SEATS: u32 = 4;
/// Bytes of a view: 33 members and as many departed ones twice over.
const VALUE_BYTES: u32 = 6144;
/// Bytes of a small view, for each coordinator.
const TIGHT_VALUE_BYTES: u32 = 240;
/// Most views fit into a datagram; into a short one, a few members and changes.
const DATAGRAM_BYTES: u32 = 2048;
const SHORT_DATAGRAM_BYTES: u32 = 512;
/// Values are laid out in multiples of this.
const VALUE_ALIGN: u32 = 64;
/// Drift bounds that are drawn, in parts per million.
const DRIFTS_PPM: [u32; 5] = [20, 200, 1_000, 5_000, 20_000];
/// Factor of all timeouts if delays exceed leases.
const SLOW_TIMEOUT_FACTOR: u64 = 8;
/// Clock error of a canary, in parts per billion: far beyond any bound.
const CANARY_RATE_PPB: i64 = 400_000_000;

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Faults, then none: no violation is allowed.
    Faults,
    /// Clocks are far beyond the bound: row 5 or 10 must be violated.
    Canary,
    /// Clocks are off by this many permille of the bound: within it no violation is allowed, beyond
    /// it only of rows that depend on clocks.
    Sweep(u32),
}

impl Trial {
    const fn of(seed: u64) -> Self {
        if seed % CANARY_EVERY == CANARY_EVERY - 1 {
            return Self::Canary;
        }
        if seed % SWEEP_EVERY == SWEEP_EVERY / 2 {
            let step = (seed / SWEEP_EVERY) as usize % SWEEP_PERMILLE.len();
            return Self::Sweep(SWEEP_PERMILLE[step]);
        }
        Self::Faults
    }

    /// Whether clocks keep to the drift bound.
    pub const fn clocks_keep(self) -> bool {
        match self {
            Self::Faults => true,
            Self::Canary => false,
            Self::Sweep(permille) => permille < 1_000,
        }
    }
}

/// A cluster and its faults, as drawn from a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// The kind of run.
    pub trial: Trial,
    /// Coordinators: nodes `0..coordinators`.
    pub coordinators: u32,
    /// The last coordinators, which become acceptors only when an operator requests it.
    pub spares: u32,
    /// Agents: the nodes after them.
    pub agents: u32,
    /// Embedded apps: the nodes after those.
    pub embedded: u32,
    /// Lease caches: the last nodes.
    pub caches: u32,
    /// Members of these nodes that exist from the beginning; the others join later.
    pub early: u32,
    /// The first view: in some runs so late that the bits by which slots distinguish laps wrap.
    pub first_view: ViewId,
    /// Configuration of the state machines.
    pub config: Config,
    /// The network of the safety phase.
    pub rough: Network,
    /// The network of the liveness phase.
    pub calm: Network,
    /// Every node's clock.
    pub clocks: Vec<Clock>,
    /// Within what time programs promise progress; zero without a promise.
    pub promise: Nanos,
    /// An acceptor, and the number that it has promised in every slot of the ring's first lap: one
    /// of the last numbers.
    pub exhausted: Option<(u32, u16)>,
    /// A coordinator that was away, and for how many views: its memory is outdated.
    pub away: Option<(u32, u64)>,
    /// Whether all run on one host, so that a starting process finds every coordinator's region
    /// there.
    pub one_host: bool,
    /// How its hosts exchange pulses, if they do. Then each coordinator's region is found by the
    /// processes of its host.
    pub pulses: Option<PulsePlan>,
    /// Whether delays exceed the usual lease, so that only adaptive leases make a view active.
    pub slow: bool,
    /// The same without adaptive leases, so that no view is ever active by a lease: members request
    /// confirmation.
    pub far: bool,
    /// Whether programs request confirmations during faults.
    pub confirms: bool,
    /// Whether faults begin with a change of acceptors while the first ones are frozen, which
    /// members read later.
    pub outvoted: bool,
    /// Whether faults begin with a coordinator that freezes in the middle of a proposal, while the
    /// ring of slots goes round under other acceptors.
    pub outpaced: bool,
    /// Rounds of faults in the safety phase.
    pub rounds: u32,
    /// Whether a permanent partition follows: the remaining members must be a clique.
    pub split: bool,
    /// The network fails as a whole, and heals: see `divided`.
    pub blackout: bool,
    /// Each host cannot connect to the next one: see `divided`.
    pub ring: bool,
    /// Nobody can connect to any host but the first: see `divided`.
    pub closed_hosts: bool,
    /// A suspicion is wrong and not repeated: see `divided`.
    pub told_once: bool,
    /// Programs in the same seat of different nodes have the same name, so one of them is a member.
    pub namesakes: bool,
    /// Whether a crash loop follows: a program that crashes as soon as it is a member, with little
    /// effect on others.
    pub crash_loop: bool,
    /// Whether a loop of graceful leaves follows: a program that leaves as soon as it is a member, and
    /// joins again.
    pub leave_loop: bool,
    /// Whether a process is suspected again and again, and each time comes back.
    pub flap: bool,
    /// Time limit for recovery after the end of the faults.
    pub patience: u64,
}

/// How many processes of each kind a scenario begins with.
#[derive(Clone, Copy)]
pub(crate) struct Processes {
    pub(crate) coordinators: u32,
    pub(crate) agents: u32,
    pub(crate) caches: u32,
}

impl Processes {
    pub(crate) const fn count(self) -> u32 {
        self.coordinators + self.agents + self.caches
    }
}

impl Scenario {
    /// Initial acceptors: nodes `0..deciders()`.
    pub const fn deciders(&self) -> u32 {
        self.coordinators - self.spares
    }

    /// Nodes with a machine.
    pub const fn nodes(&self) -> u32 {
        self.coordinators + self.agents + self.embedded + self.caches
    }

    /// Whether a node is a lease cache.
    pub const fn is_cache(&self, node: u32) -> bool {
        node >= self.coordinators + self.agents + self.embedded
    }

    /// Whether a node is an agent, whose seats programs can take.
    pub const fn is_agent(&self, node: u32) -> bool {
        node >= self.coordinators && node < self.coordinators + self.agents
    }

    /// Draws a scenario. The same seed gives the same scenario.
    pub fn draw(seed: u64, plant: ActiveMutant) -> Self {
        let trial = Trial::of(seed);
        match trial {
            Trial::Faults => Self::with_faults(seed, plant),
            Trial::Canary => Self::skewed(seed, trial, 100_000, 200, CANARY_RATE_PPB, plant),
            Trial::Sweep(permille) => {
                let rate = i64::from(SWEEP_DRIFT_PPM) * i64::from(permille);
                Self::skewed(seed, trial, SWEEP_LEASE, SWEEP_DRIFT_PPM, rate, plant)
            }
        }
    }

    /// Each aspect draws from a generator of its own, so that a new draw changes no other aspect.
    fn with_faults(seed: u64, plant: ActiveMutant) -> Self {
        let mut rng = Rng::new(seed ^ 0x0b01_ca3b_a160_0000);
        let deciders = if rng.permille(650) { 3 } else { 5 };
        let mut change = Rng::new(seed ^ 0xacce_9702_0000_0000);
        let spares = if change.permille(250) { 1 + change.below(2) as u32 } else { 0 };
        let coordinators = deciders + spares;
        let agents = 1 + rng.below(6) as u32;
        let embedded = rng.below(5) as u32;
        let lease = if rng.permille(150) { 400_000 } else { 24_000 + rng.below(176_000) };
        let calm = calm_network(&mut rng, lease);
        let rough = rough_network(&mut rng, lease, calm);
        let drift_ppm = DRIFTS_PPM[rng.below(DRIFTS_PPM.len() as u64) as usize];
        let timing = timing(&mut rng, lease, drift_ppm);
        let slots = if rng.permille(700) { 4 } else { 8 };
        let config = config(timing, coordinators, slots, plant);
        let processes = Processes { coordinators, agents, caches: 0 };
        let drawn = Self::without_faults(seed, processes, config, calm, Vec::new());
        let mut drawn = Self { spares, embedded, rough, ..drawn };
        drawn.draw_limits();
        drawn.draw_pages();
        drawn.draw_extremes();
        drawn.draw_caches();
        drawn.draw_lease_range();
        drawn.draw_links();
        drawn.draw_confirmations();
        drawn.draw_holds();
        drawn.draw_namesakes();
        drawn.draw_replacement();
        drawn.draw_past();
        drawn.draw_clocks(&mut rng);
        drawn.draw_pulses();
        drawn.early = 1 + rng.below(u64::from(agents + embedded)) as u32;
        drawn.rounds = 12 + rng.below(20) as u32;
        // Spares have to join, and the last request of an operator is done or expires first.
        drawn.patience = patience(&drawn.config.timing, &drawn.calm)
            * if spares > 0 { 2 } else { 1 }
            * if drawn.slow { SLOW_TIMEOUT_FACTOR } else { 1 };
        drawn
    }

    /// Constant delays, the number of the first view, and the bytes of views and datagrams.
    fn draw_limits(&mut self) {
        let mut limits = Rng::new(self.seed ^ 0x11a1_7500_0000_0000);
        if limits.permille(60) {
            (self.calm, self.rough) = (steady(self.calm), steady(self.rough));
        }
        if limits.permille(120) {
            self.first_view = ViewId(INSTANCES - 1 - limits.below(60));
        }
        // Room for the coordinators and a few more members.
        let least = TIGHT_VALUE_BYTES * self.coordinators;
        let tight = (least + limits.below(u64::from(least)) as u32).next_multiple_of(VALUE_ALIGN);
        // An operator is not notified that a change of acceptors does not fit.
        let is_tight = limits.permille(100) && self.spares == 0;
        let is_short = Rng::new(self.seed ^ 0xda81_6500_0000_0000).permille(150);
        self.config.layout = layout(Limits {
            value_bytes: if is_tight { tight } else { VALUE_BYTES },
            datagram_bytes: if is_short { SHORT_DATAGRAM_BYTES } else { DATAGRAM_BYTES },
            ..*self.config.layout.limits()
        });
    }

    /// Whether the page of a dead agent can be fenced.
    fn draw_pages(&mut self) {
        let outlive = Rng::new(self.seed ^ 0x9a6e_5000_0000_0000).coin();
        (self.calm.pages_outlive, self.rough.pages_outlive) = (outlive, outlive);
    }

    /// Delays that exceed the lease, and an acceptor without proposal numbers.
    fn draw_extremes(&mut self) {
        let lease = self.config.timing.lease.0;
        let mut ends = Rng::new(self.seed ^ 0x3a57_0f1a_0000_0000);
        self.slow = ends.permille(30);
        if self.slow {
            // A round trip takes one to nearly two leases.
            let way = Delay::new(lease * (52 + ends.below(40)) / 100, lease / 50);
            (self.calm.one_way, self.rough.one_way) = (way, way);
        }
        // If an operator removes all but two acceptors, both are needed.
        if ends.permille(60) && self.spares == 0 {
            // No proposer can outbid any of these.
            let number = PROPOSAL_MAX - ends.below(u64::from(self.coordinators)) as u16;
            self.exhausted = Some((ends.below(u64::from(self.deciders())) as u32, number));
        }
    }

    /// Lease caches, timeouts of renewals, and whether programs promise progress.
    fn draw_caches(&mut self) {
        let lease = self.config.timing.lease.0;
        // A round of words and one of values must fit in, or a slow process never catches up.
        let least = 10 * (self.rough.one_way.min.0 + 3 * self.rough.one_way.jitter.0) + 4_000;
        let mut more = Rng::new(self.seed ^ 0xcac4_e500_0000_0000);
        self.caches = if more.permille(600) { 1 + more.below(3) as u32 } else { 0 };
        let timing = &mut self.config.timing;
        timing.renew_timeout = timing.renew_timeout.max(Nanos(least));
        timing.cache_lease = Nanos(lease / 2 + more.below(lease));
        // A request and its answer.
        timing.cache_timeout = Nanos(least / 4 + more.below(lease / 4));
        timing.fan_out_from = if more.permille(500) { 1 + more.below(4) as u32 } else { u32::MAX };
        if self.slow {
            // A cache's own lease does not adapt.
            (timing.cache_lease, timing.cache_timeout) = (Nanos(4 * lease), Nanos(2 * lease));
        }
        self.promise = Nanos(if more.permille(500) { 10_000 + more.below(3 * lease) } else { 0 });
    }

    /// How far leases adapt.
    fn draw_lease_range(&mut self) {
        let timing = &mut self.config.timing;
        let lease = timing.lease.0;
        let mut stretch = Rng::new(self.seed ^ 0x57e7_c400_0000_0000);
        if stretch.permille(500) {
            timing.lease_max = Nanos(lease + stretch.below(4 * lease));
            timing.lease_calm = Nanos(lease + stretch.below(12 * lease));
        }
        if self.slow {
            (timing.lease_max, timing.lease_calm) = (Nanos(16 * lease), Nanos(64 * lease));
        }
    }

    /// Whether links are watched, and whether a permanent partition follows.
    fn draw_links(&mut self) {
        // In a full view, a process may be kept out for no other reason.
        let may_split = self.exhausted.is_none() && !self.is_tight();
        let timing = &mut self.config.timing;
        let lease = timing.lease.0;
        let mut links = Rng::new(self.seed ^ 0x114e_5000_0000_0000);
        timing.link_watch = links.permille(120) && !self.slow;
        timing.link_timeout = Nanos(lease * (2 + links.below(6)));
        timing.link_every = Nanos(timing.link_timeout.0 / (3 + links.below(3)));
        self.split = timing.link_watch && may_split && links.permille(600);
        let mut divided = Rng::new(self.seed ^ 0xd171_de00_0000_0000);
        self.blackout = timing.link_watch && may_split && divided.permille(500);
        self.ring = timing.link_watch && may_split && divided.permille(500);
        self.closed_hosts = timing.link_watch && may_split && divided.permille(500);
        // Whether links are watched or not: what one process says of another is judged in both cases.
        self.told_once = may_split && divided.permille(150);
    }

    /// Whether leases can last at all, and whether programs request confirmations.
    fn draw_confirmations(&mut self) {
        let timing = &mut self.config.timing;
        let mut asks = Rng::new(self.seed ^ 0xa5c6_0000_0000_0000);
        self.far = self.slow && asks.permille(500);
        if self.far {
            timing.lease_max = timing.lease;
            // As in a profile, where the repetition of a renewal has to fit into a lease: no answer
            // arrives within it.
            timing.renew_timeout = Nanos(timing.lease.0 / 2);
        }
        self.confirms = self.far || asks.permille(500);
    }

    /// Joins of a name that fails or leaves often are on hold, and joins share views; a crash loop may
    /// follow, and a loop of leaves.
    fn draw_holds(&mut self) {
        let mut loops = Rng::new(self.seed ^ 0xc4a5_1022_0000_0000);
        if !loops.permille(300) {
            return;
        }
        // If leases do not last, effects on others cannot be attributed.
        let may_loop = !self.split && !self.slow && self.exhausted.is_none() && !self.is_tight();
        let timing = &mut self.config.timing;
        let lease = timing.lease.0;
        timing.join_burst = 1 + loops.below(4) as u32;
        // Longer than it takes to join and to be detected as dead: a longer life starts a new count.
        timing.join_window = Nanos(lease * (8 + loops.below(8)));
        timing.join_hold = Nanos(lease * (4 + loops.below(3)));
        timing.join_hold_max = Nanos(timing.join_hold.0 * (4 + loops.below(6)));
        timing.join_pause = Nanos(if loops.coin() { lease / 10 } else { 0 });
        self.crash_loop = loops.permille(400) && may_loop;
        self.leave_loop = loops.permille(400) && may_loop;
        self.flap = loops.permille(300) && may_loop;
    }

    fn draw_namesakes(&mut self) {
        // The loops count the ends of members by their names.
        let is_loop = self.crash_loop || self.leave_loop || self.flap;
        self.namesakes = Rng::new(self.seed ^ 0x9a3e_5000_0000_0000).permille(250) && !is_loop;
    }

    /// Whether spares replace missing acceptors, and with what faults an operator's change begins.
    fn draw_replacement(&mut self) {
        if self.spares == 0 {
            return;
        }
        let deciders = self.deciders();
        let timing = &mut self.config.timing;
        let lease = timing.lease.0;
        let mut successors = Rng::new(self.seed ^ 0x5ba6_e502_0000_0000);
        timing.replace = successors.permille(700);
        if timing.replace {
            timing.replace_after = Nanos(lease + successors.below(3 * lease));
            timing.replace_pause = Nanos(2 * lease + successors.below(20 * lease));
        }
        self.outvoted = Rng::new(self.seed ^ 0x0417_0000_0000_0000).permille(700);
        // These faults need three acceptors, and a leader that is suspected for lost answers.
        self.outpaced = !self.outvoted && deciders == 3 && !timing.link_watch && !self.slow;
    }

    /// A coordinator that was away, and whether all run on one host.
    fn draw_past(&mut self) {
        let slots = u64::from(self.config.layout.limits().slots);
        let mut past = Rng::new(self.seed ^ 0x0a3a_0300_0000_0000);
        if past.permille(150) && self.exhausted.is_none() {
            let node = past.below(u64::from(self.coordinators)) as u32;
            let views = time_away(&mut past, slots);
            self.away = Some((node, views));
            self.first_view.0 = self.first_view.0.max(views + slots + past.below(1 << 20));
        }
        self.one_host = past.coin();
    }

    /// Clocks, most of them at one end of the drift bound.
    fn draw_clocks(&mut self, rng: &mut Rng) {
        let bound = i64::from(self.config.timing.drift_ppm) * 999;
        self.clocks = (0..self.nodes())
            .map(|_| {
                let rate = match rng.below(10) {
                    0..=3 => bound,
                    4..=7 => -bound,
                    _ => rng.below(2 * bound as u64 + 1) as i64 - bound,
                };
                Clock::new(Instant(1_000_000 + rng.below(1 << 40)), rate)
            })
            .collect();
    }

    /// Whether the nodes are processes of hosts that exchange pulses; those of a host have one clock.
    fn draw_pulses(&mut self) {
        self.pulses = PulsePlan::draw(self.seed, self.config.timing.lease.0).filter(|_| !self.slow);
        if let Some(plan) = self.pulses {
            self.one_host = false;
            self.clocks = (0..self.nodes()).map(|node| self.clocks[plan.host_of(node) as usize]).collect();
        }
    }

    /// Whether a view has room for a few members only.
    fn is_tight(&self) -> bool {
        self.config.layout.limits().value_bytes != VALUE_BYTES
    }

    /// Identifies the drawn cluster, to compare builds.
    pub fn fingerprint(&self) -> String {
        let Self {
            coordinators, spares, agents, embedded, caches, early, config, rough, calm, clocks, ..
        } = self;
        let limits = (self.first_view, config.layout.limits());
        let drawn = (
            coordinators,
            spares,
            agents,
            embedded,
            caches,
            early,
            limits,
            config.timing,
            rough,
            calm,
            clocks,
        );
        let exhausted = self.exhausted.map_or(String::new(), |exhausted| format!("{exhausted:?}"));
        let away = self.away.map_or(String::new(), |away| format!("{away:?}"));
        let pulses = self.pulses.map_or(String::new(), |pulses| format!("{pulses:?}"));
        let all = format!("{drawn:?}{exhausted}{away}{}{pulses}", self.one_host);
        format!("{:08x}", crc32fast::hash(all.as_bytes()))
    }

    /// Three coordinators and three agents. The holder that will be cut off has a slow clock, all
    /// others fast ones: beyond the bound its lease outlasts their wait, whatever the protocol
    /// does.
    fn skewed(
        seed: u64,
        trial: Trial,
        lease: u64,
        drift_ppm: u32,
        rate_ppb: i64,
        plant: ActiveMutant,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let calm = calm_network(&mut rng, lease);
        let mut timing = timing(&mut rng, lease, drift_ppm);
        timing.fencing = false;
        let config = config(timing, 3, 4, plant);
        let slow = Clock::new(Instant(1_000_000), -rate_ppb);
        let fast = Clock::new(Instant(1_000_000), rate_ppb);
        let clocks = vec![fast, fast, fast, slow, fast, fast];
        let patience = patience(&timing, &calm);
        let processes = Processes { coordinators: 3, agents: 3, caches: 0 };
        Self { trial, patience, ..Self::without_faults(seed, processes, config, calm, clocks) }
    }

    /// These processes, without faults.
    pub(crate) fn without_faults(
        seed: u64,
        processes: Processes,
        config: Config,
        network: Network,
        clocks: Vec<Clock>,
    ) -> Self {
        let Processes { coordinators, agents, caches } = processes;
        Self {
            seed,
            trial: Trial::Faults,
            coordinators,
            spares: 0,
            agents,
            embedded: 0,
            caches,
            early: agents,
            first_view: ViewId::GENESIS,
            config,
            rough: network,
            calm: network,
            clocks,
            promise: Nanos::ZERO,
            exhausted: None,
            away: None,
            one_host: true,
            pulses: None,
            slow: false,
            far: false,
            confirms: false,
            outvoted: false,
            outpaced: false,
            rounds: 0,
            split: false,
            blackout: false,
            ring: false,
            closed_hosts: false,
            told_once: false,
            namesakes: false,
            crash_loop: false,
            leave_loop: false,
            flap: false,
            patience: u64::MAX,
        }
    }
}

/// How many views an acceptor has missed: one or a few laps of the ring, or a number at which
/// narrower words would have wrapped.
fn time_away(rng: &mut Rng, slots: u64) -> u64 {
    let bits = match rng.below(4) {
        0 => return slots + rng.below(4 * slots),
        1 => return (1 << 15) + rng.below(1 << 15),
        2 => 16,
        _ => 15 + rng.below(17),
    };
    (1 << bits) + rng.below(96) - 64
}

fn config(timing: Timing, coordinators: u32, slots: u32, plant: ActiveMutant) -> Config {
    let layout = layout(Limits {
        seats: SEATS,
        slots,
        proposers: coordinators,
        value_bytes: VALUE_BYTES,
        lanes: 4,
        lane_slots: 16,
        datagram_bytes: DATAGRAM_BYTES,
        recorder_events: 64,
    });
    Config { release: obol_fabric::Release::THIS, timing, layout, mutant: plant }
}

fn layout(limits: Limits) -> Layout {
    Layout::new(limits).expect("these limits are in bounds")
}

fn timing(rng: &mut Rng, lease: u64, drift_ppm: u32) -> Timing {
    let part =
        |rng: &mut Rng, least: u64, most: u64| Nanos(lease * (least + rng.below(most - least + 1)) / 100);
    Timing {
        lease: Nanos(lease),
        lease_max: Nanos(lease),
        lease_calm: Nanos(8 * lease),
        renew_every: Nanos(lease / 3),
        renew_timeout: part(rng, 25, 60),
        cache_lease: Nanos(lease),
        cache_timeout: Nanos(lease / 4),
        fan_out_from: u32::MAX,
        drift_ppm,
        fencing: rng.permille(700),
        heartbeat_every: Nanos(2_000),
        heartbeat_period: Nanos(5_000 + part(rng, 10, 60).0),
        heartbeat_confirm: 2 + rng.below(2) as u32,
        link_every: Nanos(lease),
        link_timeout: Nanos(4 * lease),
        notice_after: Nanos(500 + rng.below(10_000)),
        notice_every: part(rng, 30, 100),
        join_every: part(rng, 30, 150),
        join_burst: 1,
        standby: part(rng, 100, 800),
        poll_every: part(rng, 30, 150),
        backoff_max: Nanos(2_000 + rng.below(15_000)),
        // Half of the clusters, depending on earlier draws.
        announce_hold: Nanos(if lease.is_multiple_of(2) { lease / 4 } else { 0 }),
        resync_after: if rng.permille(300) { part(rng, 200, 600) } else { Nanos(1 << 36) },
        ..Timing::default()
    }
}

/// A fabric at the paper's scale, sometimes so slow that completions come late in a lease.
fn calm_network(rng: &mut Rng, lease: u64) -> Network {
    let slow = if rng.coin() { 300 } else { (lease / 16).min(2_500) };
    let way = 200 + rng.below(slow);
    let jitter = 10 + rng.below(way / 2);
    let delay = |min: u64, jitter: u64| Delay::new(min, jitter);
    Network {
        one_way: delay(way, jitter),
        multicast: delay(way + rng.below(way), jitter),
        loopback: delay(60 + rng.below(200), 20),
        per_kib: Nanos(80),
        tear: delay(10, 50),
        notice: delay(200 + rng.below(8_000), 1_000),
        proof: delay(100 + rng.below(6_000), 1_000),
        link_timeout: delay(8_000 + rng.below(lease / 3), 2_000),
        step: delay(50 + rng.below(200), 40),
        wake_up: delay(100, 100),
        seat: delay(200, 200),
        ask_every: delay(lease / 2, lease / 8),
        rejoin: Some(delay(lease / 8, lease / 4)),
        heartbeat_every: Nanos(2_000),
        ..Network::default()
    }
}

/// The same fabric, congested and lossy.
fn rough_network(rng: &mut Rng, lease: u64, calm: Network) -> Network {
    let share = |rng: &mut Rng, most: u64| match rng.below(3) {
        0 => 0,
        1 => rng.below(most / 10 + 1) as u32,
        _ => rng.below(most + 1) as u32,
    };
    let mut rough = calm;
    rough.loss_permille = share(rng, 300);
    rough.duplicate_permille = share(rng, 200);
    rough.multicast_loss_permille = if rng.permille(120) { 1000 } else { 0 };
    rough.notice_loss_permille = share(rng, 300);
    rough.proof_loss_permille = if rng.permille(250) { 1000 } else { share(rng, 500) };
    rough.stall_permille = share(rng, 20);
    rough.stall = Delay::new(1_000, 1 + rng.below(lease / 4));
    if rng.permille(300) {
        // Completions that come late in a lease, and multicasts that overtake each other.
        rough.one_way.jitter = Nanos(rough.one_way.min.0 * (1 + rng.below(3)));
    }
    if rng.permille(400) {
        rough.multicast.jitter = Nanos(rng.below(lease / 4));
    }
    rough
}

/// The same fabric with minimal, constant delays: contenders in lockstep stay so unless they use
/// random backoff.
fn steady(network: Network) -> Network {
    let still = |delay: Delay| Delay { jitter: Nanos::ZERO, ..delay };
    Network {
        one_way: still(network.one_way),
        multicast: still(network.multicast),
        loopback: still(network.loopback),
        step: still(network.step),
        wake_up: still(network.wake_up),
        ..network
    }
}

/// The bound of row 21: every stage of detection, removal, admission and leasing may have to be
/// repeated for each missing coordinator.
fn patience(timing: &Timing, calm: &Network) -> u64 {
    let confirm = timing.confirm_at(timing.lease_max);
    let detect = timing.heartbeat_period.0 * u64::from(confirm + 1) + 4 * calm.link_timeout.min.0;
    // Each coordinator before the final leader may lead first.
    let links = if timing.link_watch { 4 * timing.link_timeout.0 } else { 0 };
    let stage = detect
        + links
        + timing.notice_every.0
        + timing.join_every.0
        + timing.poll_every.0
        + timing.renew_timeout.0
        + calm.ask_every.min.0;
    let resync = if timing.resync_after.0 < 1 << 30 { timing.resync_after.0 } else { 0 };
    let replaces = if timing.replace { 2 * (timing.replace_after.0 + timing.replace_pause.0) } else { 0 };
    let shrinks = if timing.lease_max > timing.lease { 2 * timing.lease_calm.0 } else { 0 };
    // The join of a name that failed often waits for the longest hold, and other joins' view may
    // come just before.
    let holds = 2 * timing.join_hold_max.0;
    40 * stage + 2 * timing.standby.0 + 12 * timing.lease.0 + resync + shrinks + holds + replaces
}
