//! Hosts that exchange pulses, with the machines that gateways run (`obol_fabric_ip::pulse`). Each
//! host has a thread that sends and judges, one receiver for each other host, and sessions with
//! their gateways. What it concludes has the effects that it has over IP: links are given up, deaths
//! are told. Paths fail independently of the links of processes.
//!
//! Everything here happens between two steps of the world.

use super::Driver;
use crate::marks::Mark;
use crate::oracle::{Verdict, Violation, broken};
use crate::pulses::PulsePlan;
use obol_fabric::{Address, Evidence, Instant, Nanos};
use obol_fabric_ip::pulse::{
    Bug, Death, Finding, Frame, FrameKind, Numbers, PathState, Presence, Receiver, Sender, Turn,
};
use obol_fabric_sim::{Clock, Delay, State};
use obol_membership::ActiveMutant;
use obol_rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Frames that wait for a stopped host; later ones are lost.
const INBOX_MAX: usize = 64;
/// From a death until the gateway of its host reports it.
const DEATH_NOTICED: Delay = Delay::new(500, 1_000);
/// Numbers from which on a power of two is a wrap of fewer bits.
const WRAPS_FROM: u64 = 1 << 16;

/// A frame on its way.
#[derive(Debug)]
struct Flight {
    from: u32,
    path: usize,
    /// Whose key has sealed it.
    session: u32,
    /// When it was sent, in true time.
    sent: u64,
    bytes: Arc<[u8]>,
}

#[derive(Debug)]
enum Pending {
    /// A frame arrives at a host.
    Arrive(u32, Flight),
    /// The kernel of a host reports a death to this life of its gateway.
    Died(u32, u32, Death),
    /// A gateway connects to another one, if both still are in these lives.
    Connect { from: u32, to: u32, lives: (u32, u32) },
}

/// What a host has for another one.
#[derive(Debug)]
struct Peer {
    receiver: Receiver,
    /// The session whose frames it opens, and the one whose frames the other opens.
    open: Option<u32>,
    seal: Option<u32>,
}

/// The gateway of a host, and its thread of pulses.
#[derive(Debug)]
struct Host {
    clock: Clock,
    life: u32,
    is_paused: bool,
    numbers: Numbers,
    sender: Sender,
    presence: Presence,
    /// By number; its own is not used.
    peers: Vec<Peer>,
    /// What has arrived while it was paused.
    inbox: VecDeque<Flight>,
    deaths: Vec<Death>,
    /// True time of the thread's last turn, and of its next one.
    turned_at: Option<u64>,
    wake_at: u64,
}

/// The state of a path from one host to another.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    is_cut: bool,
    delay: u64,
}

/// The pulses of a run.
#[derive(Debug)]
pub(crate) struct Pulses {
    plan: PulsePlan,
    mutant: ActiveMutant,
    nodes: u32,
    rng: Rng,
    hosts: Vec<Host>,
    paths: Vec<Path>,
    /// By true time, then in the order of scheduling.
    queue: BTreeMap<(u64, u64), Pending>,
    scheduled: u64,
    sessions: u32,
    loss_permille: u32,
    /// True time of the next event.
    due: u64,
    hash: u64,
}

/// The thread of a host's pulses.
struct Thread<'a> {
    pulses: &'a mut Pulses,
    at: u32,
    driver: &'a mut Driver,
}

/// The planted bug of a host's machines, if the campaign's is one of theirs.
#[cfg(feature = "mutants")]
fn planted(mutant: ActiveMutant) -> Option<Bug> {
    use obol_membership::Mutant;
    let all = [
        (Mutant::PulseByOnePath, Bug::OnePath),
        (Mutant::LatePulseCounts, Bug::LateCounts),
        (Mutant::NarrowPulseNumbers, Bug::NarrowNumbers),
        (Mutant::PulseOfEarlierLife, Bug::KeepsLife),
        (Mutant::SilenceByPolling, Bug::Polls),
        (Mutant::PathAlone, Bug::PathAlone),
        (Mutant::JudgedFirst, Bug::JudgesFirst),
        (Mutant::AbsenceCounts, Bug::AbsenceCounts),
    ];
    all.into_iter().find(|(planted, _)| mutant.has(*planted)).map(|(_, bug)| bug)
}

#[cfg(not(feature = "mutants"))]
const fn planted(_: ActiveMutant) -> Option<Bug> {
    None
}

impl Pulses {
    /// `clocks` are those of the hosts.
    pub(crate) fn new(
        plan: PulsePlan,
        clocks: Vec<Clock>,
        nodes: u32,
        seed: u64,
        mutant: ActiveMutant,
    ) -> Self {
        let mut pulses = Self {
            plan,
            mutant,
            nodes,
            rng: Rng::new(seed ^ 0x9015_e5e5_0000_0000),
            hosts: Vec::new(),
            paths: vec![Path::default(); (plan.hosts * plan.hosts) as usize * plan.paths],
            queue: BTreeMap::new(),
            scheduled: 0,
            sessions: 0,
            loss_permille: plan.loss_permille,
            due: 0,
            hash: 0,
        };
        for clock in clocks {
            let host = pulses.gateway(clock, 1, Numbers::at(plan.sent), 0);
            pulses.hosts.push(host);
        }
        for host in 0..plan.hosts {
            pulses.connect_to_all(host, 0);
        }
        pulses.plan_next();
        pulses
    }

    /// A new gateway, as it starts.
    fn gateway(&self, clock: Clock, life: u32, numbers: Numbers, now: u64) -> Host {
        let PulsePlan { timing, paths, hosts, .. } = self.plan;
        let peer = |_| Peer {
            receiver: Receiver::new(timing, paths).with(planted(self.mutant)),
            open: None,
            seal: None,
        };
        Host {
            clock,
            life,
            is_paused: false,
            numbers,
            sender: Sender::new(timing.period, clock.local(now)),
            presence: Presence::new(timing),
            peers: (0..hosts).map(peer).collect(),
            inbox: VecDeque::new(),
            deaths: Vec::new(),
            turned_at: None,
            wake_at: now,
        }
    }

    fn host(&mut self, number: u32) -> &mut Host {
        &mut self.hosts[number as usize]
    }

    fn peer(&mut self, host: u32, of: u32) -> &mut Peer {
        &mut self.hosts[host as usize].peers[of as usize]
    }

    fn path(&mut self, from: u32, to: u32, path: usize) -> &mut Path {
        let pair = (from * self.plan.hosts + to) as usize;
        &mut self.paths[pair * self.plan.paths + path]
    }

    fn others(&self, host: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.plan.hosts).filter(move |other| *other != host)
    }

    /// The nodes on a host.
    fn nodes_of(&self, host: u32) -> impl Iterator<Item = u32> + use<> {
        (host..self.nodes).step_by(self.plan.hosts as usize)
    }

    fn push(&mut self, at: u64, pending: Pending) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), pending);
    }

    /// Schedules a host's attempts to connect to all others.
    fn connect_to_all(&mut self, from: u32, now: u64) {
        let period = self.plan.timing.period.0;
        for to in self.others(from) {
            let at = now + 1 + self.rng.below(period);
            let lives = (self.hosts[from as usize].life, self.hosts[to as usize].life);
            self.push(at, Pending::Connect { from, to, lives });
        }
    }

    /// Schedules the next turn of a host's thread.
    fn arm(&mut self, host: u32, now: u64) {
        let host = self.host(host);
        let due = host.peers.iter().map(|peer| peer.receiver.due()).fold(host.sender.due(), Instant::min);
        host.wake_at = if host.is_paused { u64::MAX } else { host.clock.to_true(due).max(now + 1) };
    }

    fn plan_next(&mut self) {
        let turn = self.hosts.iter().map(|host| host.wake_at).min().unwrap_or(u64::MAX);
        self.due = self.queue.first_key_value().map_or(turn, |((at, _), _)| turn.min(*at));
    }

    /// True time of the next event.
    pub(crate) const fn due(&self) -> u64 {
        self.due
    }

    /// When the last of the frames arrives that are on their way, in true time.
    pub(crate) fn last_arrival(&self) -> u64 {
        let arrives = |pending: &Pending| matches!(pending, Pending::Arrive(..));
        self.queue.iter().rev().find(|(_, pending)| arrives(pending)).map_or(0, |((at, _), _)| *at)
    }

    /// A hash of all frames that have arrived.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether a path to a host delivers, as the host has found.
    pub(crate) fn state(&self, host: u32, of: u32, path: usize) -> PathState {
        let peer = &self.hosts[host as usize].peers[of as usize];
        peer.receiver.paths().nth(path).unwrap_or_default()
    }

    /// Executes the event that is due: what arrives before what is judged.
    fn step(&mut self, driver: &mut Driver) -> Verdict {
        let now = driver.cluster.now();
        if let Some(first) = self.queue.first_entry().filter(|first| first.key().0 <= now) {
            match first.remove() {
                Pending::Arrive(to, flight) => self.arrive(to, flight, driver)?,
                Pending::Died(host, life, death) => self.report(host, life, death, driver),
                Pending::Connect { from, to, lives } => self.connect((from, to), lives, driver),
            }
        } else if let Some(at) = self.hosts.iter().position(|host| host.wake_at <= now) {
            self.turn(at as u32, driver)?;
        }
        self.judge(driver)?;
        self.plan_next();
        Ok(())
    }

    /// What running hosts suspect now is what the oracle expects.
    fn judge(&self, driver: &Driver) -> Verdict {
        let Some(pulsed) = &driver.oracle.pulses else { return Ok(()) };
        let now = driver.cluster.now();
        let mut running = self.hosts.iter().zip(0..).filter(|(host, _)| !host.is_paused);
        running.try_for_each(|(host, number)| pulsed.judge(number, host.clock.local(now), now))
    }

    /// A turn of a host's thread.
    fn turn(&mut self, at: u32, driver: &mut Driver) -> Verdict {
        let now = driver.cluster.now();
        for death in std::mem::take(&mut self.host(at).deaths) {
            self.notify(at, death, driver);
        }
        self.publish_alive(at, driver);
        Thread { pulses: self, at, driver }.turn()?;
        self.host(at).turned_at = Some(now);
        self.arm(at, now);
        Ok(())
    }

    /// Sets the bitmap of living processes.
    fn publish_alive(&self, host: u32, driver: &Driver) {
        let alive =
            self.nodes_of(host).zip(0..).filter(|(node, _)| driver.cluster.state(*node) != State::Dead);
        self.hosts[host as usize].numbers.set_alive(alive.fold(0, |bits, (_, bit)| bits | 1u64 << bit));
    }

    /// Sends a frame to all other hosts, on all paths.
    fn send(&mut self, from: u32, frame: &Frame, now: u64) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let bytes: Arc<[u8]> = bytes.into();
        for to in self.others(from) {
            let Some(session) = self.peer(from, to).seal else { continue };
            for path in 0..self.plan.paths {
                let Path { is_cut, delay } = *self.path(from, to, path);
                if is_cut || self.rng.permille(self.loss_permille) {
                    continue;
                }
                let at = now + self.plan.one_way.draw(&mut self.rng).max(1) + delay;
                let flight = Flight { from, path, session, sent: now, bytes: Arc::clone(&bytes) };
                self.push(at, Pending::Arrive(to, flight));
            }
        }
    }

    fn arrive(&mut self, to: u32, flight: Flight, driver: &mut Driver) -> Verdict {
        if self.host(to).is_paused {
            if self.host(to).inbox.len() < INBOX_MAX {
                let opens = self.peer(to, flight.from).open == Some(flight.session);
                let frame = Frame::decode(&flight.bytes).filter(|_| opens);
                if frame.is_some_and(|frame| frame.kind == FrameKind::Pulse)
                    && let Some(pulsed) = &mut driver.oracle.pulses
                {
                    pulsed.waits(to, flight.from, flight.sent);
                }
                self.host(to).inbox.push_back(flight);
            }
            return Ok(());
        }
        self.take(to, &flight, driver)?;
        self.arm(to, driver.cluster.now());
        Ok(())
    }

    /// A host's thread takes a frame.
    fn take(&mut self, to: u32, flight: &Flight, driver: &mut Driver) -> Verdict {
        let (from, now) = (flight.from, driver.cluster.now());
        let local = self.host(to).clock.local(now);
        let timeout = self.plan.timing.timeout;
        let peer = self.peer(to, from);
        if peer.open != Some(flight.session) {
            // Of another session: it cannot be opened.
            return Ok(());
        }
        let Some(frame) = Frame::decode(&flight.bytes) else {
            return broken!(24, now, "a frame of host {from} cannot be read");
        };
        match (frame.kind, &mut driver.oracle.pulses) {
            (FrameKind::Pulse, Some(pulsed)) => {
                let is_newer = pulsed.arrived(to, from, flight.path, flight.sent, local);
                if !is_newer && now - flight.sent > timeout.0 {
                    driver.oracle.marks.hit(Mark::LatePulse);
                }
            }
            (FrameKind::Notice { after }, _) if after > peer.receiver.newest() => {
                driver.oracle.marks.hit(Mark::NoticeHeld);
            }
            _ => {}
        }
        let mut found = Vec::new();
        peer.receiver.receive(flight.path, &frame, local, &mut found);
        self.hash = (self.hash.rotate_left(5) ^ now ^ frame.sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.conclude(to, from, found, driver)
    }

    /// What a host concludes has its effects on its processes.
    fn conclude(&mut self, at: u32, of: u32, found: Vec<Finding>, driver: &mut Driver) -> Verdict {
        let now = driver.cluster.now();
        let local = self.host(at).clock.local(now);
        for finding in found {
            driver.log(format_args!("host {at} finds {finding:?} of host {of}"));
            if let Some(pulsed) = &mut driver.oracle.pulses {
                pulsed.found(at, of, finding, local, now)?;
            }
            match finding {
                Finding::Silent => {
                    let paused = self.host(of).is_paused;
                    driver.oracle.marks.hit(if paused { Mark::HostSilent } else { Mark::SilentAlive });
                    for watcher in self.nodes_of(at) {
                        self.nodes_of(of).for_each(|other| driver.cluster.give_up(watcher, other));
                    }
                }
                Finding::Heard => {}
                Finding::Died(death) => self.report_elsewhere(at, death, driver)?,
                Finding::Vanished(bits) => {
                    let gone = self.nodes_of(of).zip(0..).filter(|(_, bit)| bits >> bit & 1 == 1);
                    for (region, _) in gone {
                        self.nodes_of(at).for_each(|watcher| driver.cluster.watch_again(watcher, region));
                    }
                }
                Finding::PathLost(path) => {
                    driver.oracle.marks.hit(Mark::PathLost);
                    if self.path(of, at, path).is_cut && !self.path(at, of, path).is_cut {
                        driver.oracle.marks.hit(Mark::PathLostOneWay);
                    }
                }
                Finding::PathBack(_) => driver.oracle.marks.hit(Mark::PathBack),
            }
        }
        Ok(())
    }

    /// The processes of a host learn of a death on another one.
    fn report_elsewhere(&self, host: u32, death: Death, driver: &mut Driver) -> Verdict {
        let Death { region, generation, seat, evidence } = death;
        let who = Address { region, generation, seat, ..Address::default() };
        let lives = if seat == 0 {
            driver.cluster.address(region) == who && !driver.cluster.is_dead(region)
        } else {
            driver.cluster.program(region, seat).is_some_and(|p| p.address() == who && p.is_alive())
        };
        if lives {
            return broken!(24, driver.cluster.now(), "pulses report the death of {who:?}, which lives");
        }
        driver.oracle.marks.hit(Mark::DeathByPulse);
        self.nodes_of(host).for_each(|watcher| driver.cluster.report_death(watcher, who, evidence));
        Ok(())
    }

    /// The kernel has reported a death to a gateway.
    fn report(&mut self, host: u32, life: u32, death: Death, driver: &Driver) {
        if self.host(host).life != life {
            return;
        }
        if self.host(host).is_paused {
            return self.host(host).deaths.push(death);
        }
        self.notify(host, death, driver);
    }

    fn notify(&mut self, host: u32, death: Death, driver: &Driver) {
        let now = driver.cluster.now();
        self.publish_alive(host, driver);
        let this = self.host(host);
        let frames = this.numbers.notices(&[death], this.clock.local(now));
        this.sender.repeat([death]);
        frames.iter().for_each(|frame| self.send(host, frame, now));
    }

    /// A gateway makes a session with another one, which has pulses expected there, or tries again.
    /// Sessions use the first path.
    fn connect(&mut self, (from, to): (u32, u32), lives: (u32, u32), driver: &mut Driver) {
        let now = driver.cluster.now();
        if lives != (self.host(from).life, self.host(to).life) {
            return;
        }
        let is_cut = self.path(from, to, 0).is_cut || self.path(to, from, 0).is_cut;
        if is_cut || self.host(from).is_paused || self.host(to).is_paused {
            return self.push(now + self.plan.timing.period.0, Pending::Connect { from, to, lives });
        }
        self.sessions += 1;
        let session = self.sessions;
        let receiving = self.peer(to, from);
        receiving.open = Some(session);
        receiving.receiver.begin_life();
        if let Some(pulsed) = &mut driver.oracle.pulses {
            pulsed.begin_life(to, from);
        }
        self.peer(from, to).seal = Some(session);
    }

    /// A gateway ends, and another one starts. The others notice it when they ping it.
    fn restart(&mut self, host: u32, driver: &mut Driver) {
        let now = driver.cluster.now();
        let (clock, life) = (self.host(host).clock, self.host(host).life + 1);
        let gateway = self.gateway(clock, life, Numbers::default(), now);
        *self.host(host) = gateway;
        if let Some(pulsed) = &mut driver.oracle.pulses {
            pulsed.forget(host);
        }
        self.connect_to_all(host, now);
        for from in self.others(host) {
            let at = now + 1 + self.rng.below(2 * self.plan.timing.timeout.0);
            let lives = (self.host(from).life, life);
            self.push(at, Pending::Connect { from, to: host, lives });
        }
    }
}

impl Driver {
    /// When the next event of pulses is due; never if the hosts exchange none.
    pub(crate) fn pulses_due(&self) -> u64 {
        self.pulses.as_ref().map_or(u64::MAX, |pulses| pulses.due())
    }

    fn with_pulses(&mut self, call: impl FnOnce(&mut Pulses, &mut Self) -> Verdict) -> Verdict {
        let Some(mut pulses) = self.pulses.take() else { return Ok(()) };
        let verdict = call(&mut pulses, self);
        pulses.plan_next();
        self.pulses = Some(pulses);
        verdict
    }

    /// Executes the event of pulses that is due.
    pub(crate) fn step_pulses(&mut self) -> Verdict {
        self.with_pulses(Pulses::step)
    }

    /// A process has ended: its host's gateway will report it.
    pub(crate) fn report_by_pulses(&mut self, who: Address) {
        let now = self.cluster.now();
        let Some(pulses) = &mut self.pulses else { return };
        let host = pulses.plan.host_of(who.region);
        let Address { region, generation, seat, .. } = who;
        let death = Death { region, generation, seat, evidence: Evidence::Proof };
        let at = now + DEATH_NOTICED.draw(&mut pulses.rng);
        let life = pulses.host(host).life;
        pulses.push(at, Pending::Died(host, life, death));
        pulses.plan_next();
    }

    /// Whether the host of a node is stopped.
    pub(crate) fn is_paused(&self, node: u32) -> bool {
        let paused = |pulses: &Pulses| pulses.hosts[pulses.plan.host_of(node) as usize].is_paused;
        self.pulses.as_deref().is_some_and(paused)
    }

    /// Cuts a path from one host to another, or restores it. What was sent still arrives.
    pub(crate) fn set_path(&mut self, from: u32, to: u32, path: u16, is_cut: bool) {
        self.log(format_args!("path {path} from host {from} to host {to} is cut: {is_cut}"));
        if let Some(pulses) = &mut self.pulses {
            pulses.path(from, to, path.into()).is_cut = is_cut;
        }
    }

    /// Delays what is sent on a path from now on.
    pub(crate) fn delay_path(&mut self, from: u32, to: u32, path: u16, delay: u64) {
        self.log(format_args!("path {path} from host {from} to host {to} takes {delay} ns more"));
        if let Some(pulses) = &mut self.pulses {
            pulses.path(from, to, path.into()).delay = delay;
        }
    }

    /// Stops a host: all its processes, and its gateway.
    pub(crate) fn pause_host(&mut self, host: u32) {
        let Some(pulses) = &mut self.pulses else { return };
        pulses.host(host).is_paused = true;
        pulses.host(host).wake_at = u64::MAX;
        let nodes: Vec<u32> = pulses.nodes_of(host).collect();
        self.log(format_args!("host {host} is stopped"));
        for node in nodes {
            self.programs(node).into_iter().for_each(|seat| self.cluster.freeze_program(node, seat));
            self.freeze(node);
        }
    }

    /// Lets a host continue.
    pub(crate) fn resume_host(&mut self, host: u32) -> Verdict {
        let Some(pulses) = self.pulses.as_mut().filter(|pulses| pulses.hosts[host as usize].is_paused) else {
            return Ok(());
        };
        pulses.host(host).is_paused = false;
        let nodes: Vec<u32> = pulses.nodes_of(host).collect();
        self.log(format_args!("host {host} continues"));
        for node in nodes {
            self.programs(node).into_iter().for_each(|seat| self.thaw_program(node, seat));
            self.thaw(node);
        }
        // Before anything is judged, it takes what has arrived.
        self.with_pulses(|pulses, driver| {
            let now = driver.cluster.now();
            let Host { clock, turned_at, .. } = *pulses.host(host);
            let absence = turned_at.map(|at| clock.local(now).since(clock.local(at)));
            let absence = absence.filter(|absence| *absence > pulses.plan.timing.away());
            if let Some((pulsed, absence)) = driver.oracle.pulses.as_mut().zip(absence) {
                pulsed.away(host, absence);
            }
            pulses.turn(host, driver)
        })
    }

    /// Starts the gateway of a host that runs again.
    pub(crate) fn restart_gateway(&mut self, host: u32) -> Verdict {
        self.log(format_args!("the gateway of host {host} starts again"));
        self.with_pulses(|pulses, driver| {
            if !pulses.host(host).is_paused {
                pulses.restart(host, driver);
            }
            Ok(())
        })
    }

    /// Ends all faults of pulses.
    pub(crate) fn heal_pulses(&mut self) -> Verdict {
        let Some(pulses) = &mut self.pulses else { return Ok(()) };
        pulses.paths.fill(Path::default());
        pulses.loss_permille = 0;
        (0..pulses.plan.hosts).try_for_each(|host| self.resume_host(host))
    }
}

impl Turn for Thread<'_> {
    type Error = Violation;

    fn now(&self) -> Instant {
        self.pulses.hosts[self.at as usize].clock.local(self.driver.cluster.now())
    }

    fn sender(&mut self) -> (&mut Sender, &Numbers) {
        let Host { sender, numbers, .. } = self.pulses.host(self.at);
        (sender, numbers)
    }

    fn send(&mut self, frame: &Frame) {
        self.pulses.send(self.at, frame, self.driver.cluster.now());
        if frame.sequence >= WRAPS_FROM && frame.sequence.is_power_of_two() {
            self.driver.oracle.marks.hit(Mark::PulseNumbersWrapped);
        }
    }

    fn presence(&mut self) -> &mut Presence {
        &mut self.pulses.host(self.at).presence
    }

    fn away(&mut self, absence: Nanos) {
        for of in self.pulses.others(self.at) {
            self.pulses.peer(self.at, of).receiver.away(absence);
        }
    }

    fn receive(&mut self) -> Verdict {
        while let Some(flight) = self.pulses.host(self.at).inbox.pop_front() {
            self.pulses.take(self.at, &flight, self.driver)?;
        }
        Ok(())
    }

    fn judge(&mut self, now: Instant) -> Verdict {
        for of in self.pulses.others(self.at) {
            let mut found = Vec::new();
            self.pulses.peer(self.at, of).receiver.tick(now, &mut found);
            self.pulses.conclude(self.at, of, found, self.driver)?;
        }
        Ok(())
    }

    fn bug(&self) -> Option<Bug> {
        planted(self.pulses.mutant)
    }
}
