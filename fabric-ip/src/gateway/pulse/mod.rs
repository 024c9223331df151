//! The thread `obol-pulse`: sends this host's pulses to the gateways of all others, and judges
//! theirs. It runs before ordinary programs where the system allows that, and does nothing else: what
//! it finds it puts into the lanes of this host's processes.
//!
//! It wakes once per period, sends, and takes all that has arrived since; for notices, and when a
//! suspicion is due, it wakes at once. A pulse counts from when the kernel has received it.

mod filter;
mod inform;
mod measure;
mod outgoing;
mod reports;
mod seal;
mod sessions;
mod socket;

pub(super) use inform::Informant;
pub use measure::{PulseBlock, PulseDelays, PulseFrame, PulsePath, PulsePathState, PulsePeer, PulseReport};
pub(super) use outgoing::Notices;
pub use reports::PulseReports;
pub(crate) use seal::SessionKey;
pub(super) use sessions::start as start_sessions;
pub(crate) use socket::BareDatagrams;

use super::{Counts, GatewayCounter};
use crate::config::{Config, PulseConfig};
use crate::pulse::{Death, Finding, Frame, Numbers, PathState, Presence, Receiver, Sender, TURN_EVERY, Turn};
use core::convert::Infallible;
use measure::Measure;
use nix::sys::prctl::set_timerslack;
use obol_fabric::host::sched::{self, ThreadUsage};
use obol_fabric::host::{FIRST_FREE, PER_HOST, clock};
use obol_fabric::types::{Instant, Nanos};
use outgoing::Outgoing;
use socket::{Arrivals, Inbox, PathSockets};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// After how long a path whose address is not there is tried again.
const BIND_EVERY: Nanos = Nanos::from_secs(1);

/// What other threads ask of this one. It takes them in its next turn.
pub(super) enum Command {
    /// The kernel of this host has reported a death, and notices were sent.
    Died(Death),
    /// Seal frames to a host with this key.
    SealFor(u8, Arc<SessionKey>),
    /// Open frames of a host with this key. Its sender has begun a new life or a new session.
    OpenOf(u8, Box<SessionKey>),
}

/// The inbox of the thread. It looks into it only if no other thread does at that time, see
/// [`reports`].
#[derive(Clone, Default)]
pub(super) struct Pulses {
    commands: Arc<Mutex<Vec<Command>>>,
}

impl Pulses {
    pub(super) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }
}

/// The bit of a region in the bitmap of its host: members first, then coordinators.
const fn bit(region: u32) -> u64 {
    let at = if region < FIRST_FREE { PER_HOST + region - 1 } else { region % PER_HOST };
    1 << at
}

const _: () = assert!(PER_HOST + FIRST_FREE - 1 <= u64::BITS, "each region of a host has a bit");

fn regions(host: u8, bits: u64) -> impl Iterator<Item = u32> {
    let own = u32::from(host) * PER_HOST;
    (0..u64::BITS).filter(move |at| bits & 1 << at != 0).map(move |at| match at.checked_sub(PER_HOST) {
        Some(coordinator) => coordinator + 1,
        None => own + at,
    })
}

struct Peer {
    host: u8,
    /// By path.
    addresses: Vec<SocketAddr>,
    open: Option<Box<SessionKey>>,
    receiver: Receiver,
    measure: Measure,
    heard: bool,
}

/// A path of this host.
struct Path {
    at: SocketAddr,
    retry_at: Instant,
    failures: u32,
    pulses: Inbox,
    notices: Inbox,
}

/// A datagram that was taken. In the order in which they are handled: pulses by their arrival, then
/// notices, which name pulses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Taken {
    is_notice: bool,
    /// Of the kernel; 0 if it has not noted it.
    stamp: u64,
    path: usize,
    index: usize,
}

pub(super) struct PulseThread {
    config: PulseConfig,
    paths: Vec<Path>,
    peers: Vec<Peer>,
    sender: Sender,
    presence: Presence,
    outgoing: Outgoing,
    inbox: Pulses,
    informant: Informant,
    counts: Counts,
    reports: Option<Arc<PulseReports>>,
    /// Something was found that operators are to see before the second has ended.
    alarm: bool,
    /// Another thread has had the queue of reports: not before this time again, since a real-time
    /// thread that does not sleep keeps it from releasing that.
    report_at: Instant,
    /// The kernel's counts of what it has dropped, by path, as they were read last.
    dropped: Vec<u32>,
    /// Whether reports have each frame.
    trace: Arc<AtomicBool>,
    found: Vec<Finding>,
    taken: Vec<Taken>,
    /// When the sockets were last emptied, and whether they may have had more.
    emptied: Instant,
    more: bool,
}

/// Where the thread of pulses puts what it finds.
pub(super) struct PulseOutlets {
    /// The processes of this host, which hear of silent hosts and of deaths.
    pub(super) informant: Informant,
    pub(super) counts: Counts,
    pub(super) reports: Option<Arc<PulseReports>>,
    /// Whether reports have each frame.
    pub(super) trace: Arc<AtomicBool>,
}

impl PulseThread {
    /// The thread, and what the thread that watches processes sends notices by.
    pub(super) fn new(
        host: u8,
        config: &Config,
        pulse: &PulseConfig,
        pulses: &Pulses,
        outlets: PulseOutlets,
    ) -> (Self, Notices) {
        let PulseOutlets { informant, counts, reports, trace } = outlets;
        let now = clock::now();
        let hosts = u8::try_from(config.gateways.len()).unwrap_or(u8::MAX);
        let path = |at| Path { at, retry_at: now, failures: 0, pulses: Inbox::new(), notices: Inbox::new() };
        let paths: Vec<Path> = pulse.addresses(config, host).into_iter().map(path).collect();
        let others = (1..=hosts).filter(|other| *other != host);
        let peers = others.clone().map(|other| Peer {
            host: other,
            addresses: pulse.addresses(config, other),
            open: None,
            receiver: Receiver::new(pulse.timing, paths.len()),
            measure: Measure::new(paths.len(), now),
            heard: false,
        });
        let peers: Vec<_> = peers.collect();
        let sockets_of_paths = paths.len();
        let sockets = paths.iter().map(|_| OnceLock::new()).collect();
        let to = peers.iter().map(|peer| (peer.host, peer.addresses.clone()));
        let outgoing = Outgoing::new(host, to, sockets, Arc::new(Numbers::default()));
        let notices = Notices::new(outgoing.for_thread(), pulses.clone());
        let thread = Self {
            config: pulse.clone(),
            paths,
            peers,
            sender: Sender::new(pulse.timing.period, now),
            presence: Presence::new(pulse.timing),
            outgoing,
            inbox: pulses.clone(),
            informant,
            counts,
            reports,
            alarm: false,
            report_at: now,
            dropped: vec![0; sockets_of_paths],
            trace,
            found: Vec::new(),
            taken: Vec::new(),
            emptied: now,
            more: false,
        };
        (thread, notices)
    }

    /// Runs until `ended` is set, and some milliseconds more.
    pub(super) fn run(mut self, ended: &AtomicBool) {
        if let Some(priority) = self.config.priority
            && let Err(error) = sched::run_fifo_alone(priority)
        {
            tracing::warn!(
                target: "gateway",
                "pulses are sent without real-time priority, so other programs delay them: {error}; grant \
                 CAP_SYS_NICE, or set pulse.priority to none"
            );
        }
        // Without it only the timers are later.
        let _ = set_timerslack(1);
        while !ended.load(Ordering::Acquire) {
            self.bind(clock::now());
            self.handle_commands();
            let Ok(()) = self.turn();
            let now = clock::now();
            self.informant.tick(now);
            self.report(now);
            if !self.more {
                self.wait();
            }
        }
        if let Some(reports) = &self.reports {
            reports.close();
        }
    }

    /// Waits until a pulse is due, a suspicion, a report, or a notice arrives.
    fn wait(&self) {
        let now = clock::now();
        let mut due = self.sender.due().min(self.informant.due()).min(now + TURN_EVERY);
        for peer in &self.peers {
            due = due.min(peer.receiver.due()).min(peer.measure.due().max(self.report_at));
        }
        let open = self.outgoing.sockets().iter().filter_map(OnceLock::get);
        socket::wait(open.map(|path| &path.notices), due);
    }

    /// Opens the paths that are not open. An address may come later than this process.
    fn bind(&mut self, now: Instant) {
        let open = self.open();
        for (number, (path, sockets)) in self.paths.iter_mut().zip(self.outgoing.sockets().iter()).enumerate()
        {
            if path.retry_at > now || sockets.get().is_some() {
                continue;
            }
            path.retry_at = now + BIND_EVERY;
            let opened = PathSockets::bind(path.at).and_then(|opened| {
                opened.take_only(number as u8, &open)?;
                Ok(opened)
            });
            match opened {
                Ok(opened) => drop(sockets.set(opened)),
                Err(error) => {
                    path.failures = path.failures.saturating_add(1);
                    if path.failures.is_power_of_two() {
                        let (at, failures) = (path.at, path.failures);
                        tracing::error!(
                            target: "gateway", %at, failures,
                            "no pulses by the path of {at}: {error} (failures: {failures})"
                        );
                    }
                }
            }
        }
    }

    /// The sessions whose frames are taken.
    fn open(&self) -> Vec<filter::Open> {
        self.peers.iter().filter_map(|peer| Some((peer.host, peer.open.as_ref()?.session()))).collect()
    }

    /// Has the kernel take frames of these sessions alone.
    fn take_open(&self) {
        let open = self.open();
        for (path, sockets) in self.outgoing.sockets().iter().enumerate() {
            if let Some(Err(error)) = sockets.get().map(|sockets| sockets.take_only(path as u8, &open)) {
                // What the former program takes is opened all the same; of a new session it takes none.
                tracing::error!(target: "gateway", path, "no pulses of new sessions by path {path}: {error}");
            }
        }
    }

    /// Counts what the kernel has dropped.
    fn count_dropped(&mut self) {
        for (sockets, before) in self.outgoing.sockets().iter().zip(&mut self.dropped) {
            if let Some(now) = sockets.get().and_then(PathSockets::dropped) {
                let more = now.wrapping_sub(core::mem::replace(before, now));
                self.counts.add_all(GatewayCounter::PulsesRefused, u64::from(more));
            }
        }
    }

    fn handle_commands(&mut self) {
        let inbox = self.inbox.clone();
        // Otherwise they are taken in the next turn.
        let Ok(mut commands) = inbox.commands.try_lock() else { return };
        let mut opened = false;
        for command in commands.drain(..) {
            match command {
                Command::Died(death) => self.sender.repeat([death]),
                Command::SealFor(host, key) => self.outgoing.seal_for(host, key),
                Command::OpenOf(host, key) => {
                    if let Some(peer) = self.peers.iter_mut().find(|peer| peer.host == host) {
                        opened = true;
                        peer.open = Some(key);
                        peer.receiver.begin_life();
                        peer.measure.restart();
                    }
                }
            }
        }
        if opened {
            self.take_open();
        }
    }

    fn take(&mut self, Taken { is_notice, path, index, .. }: Taken, arrived: Instant) {
        let Some(of) = self.paths.get_mut(path) else { return };
        let inbox = if is_notice { &mut of.notices } else { &mut of.pulses };
        let datagram = inbox.datagram(index);
        let host = seal::claimed_host(datagram);
        let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.host) == host) else {
            return self.counts.add(GatewayCounter::PulsesRefused);
        };
        let frame = peer.open.as_ref().and_then(|key| key.open(path as u8, datagram));
        let Some(frame) = frame else {
            return self.counts.add(GatewayCounter::PulsesRefused);
        };
        peer.measure.frame(path, &frame, arrived);
        if peer.receiver.receive(path, &frame, arrived, &mut self.found) {
            peer.measure.pulse(arrived);
        }
        let host = peer.host;
        self.publish(host);
    }

    /// Informs the processes of this host, and its operators.
    fn publish(&mut self, host: u8) {
        if self.found.is_empty() {
            return;
        }
        for finding in core::mem::take(&mut self.found) {
            let Some(peer) = self.peers.iter_mut().find(|peer| peer.host == host) else { continue };
            let address = |path: usize| peer.addresses.get(path).map(ToString::to_string).unwrap_or_default();
            match finding {
                Finding::Silent => {
                    self.informant.silent(host);
                    self.counts.add(GatewayCounter::PulseSilences);
                    peer.measure.silent();
                    let timeout = self.config.timing.timeout;
                    tracing::warn!(target: "gateway", host, "host {host} has sent no pulse for {timeout}: it is suspected");
                    self.alarm = true;
                }
                Finding::Heard => {
                    peer.heard = true;
                    tracing::info!(target: "gateway", host, "host {host} sends pulses");
                    self.alarm = true;
                }
                Finding::Died(death) => self.informant.died(host, death),
                Finding::Vanished(bits) => {
                    regions(host, bits).for_each(|region| self.informant.vanished(host, region));
                }
                Finding::PathLost(path) => {
                    self.counts.add(GatewayCounter::PulsePathsLost);
                    let path = address(path);
                    tracing::warn!(
                        target: "gateway", host, path,
                        "the path from host {host} at {path} is lost; pulses arrive by another one"
                    );
                    self.alarm = true;
                }
                Finding::PathBack(path) => {
                    let path = address(path);
                    tracing::info!(target: "gateway", host, path, "the path from host {host} at {path} is back");
                    self.alarm = true;
                }
            }
        }
        self.informant.wake(clock::now());
    }

    /// Hands over the blocks that have ended, and alarms. While another thread has the queue it does
    /// so in a later turn, and the block lasts until then.
    fn report(&mut self, now: Instant) {
        let has_ended = self.peers.iter().any(|peer| now >= peer.measure.due());
        if !has_ended && !self.alarm {
            return;
        }
        let reports = self.reports.clone();
        let queue = match &reports {
            Some(reports) => match reports.try_lock() {
                None => {
                    self.report_at = now + self.config.timing.period.min(TURN_EVERY);
                    return;
                }
                queue => queue,
            },
            None => None,
        };
        self.alarm = false;
        if has_ended {
            self.count_dropped();
        }
        let report = self.summary(now);
        if let Some(mut queue) = queue {
            queue.put(report);
        }
        if let Some(reports) = &reports {
            reports.wake();
        }
        if has_ended {
            self.informant.prepare();
        }
    }

    /// What is known, with the blocks that have ended.
    fn summary(&mut self, now: Instant) -> PulseReport {
        let trace = self.trace.load(Ordering::Relaxed);
        let peers = self.peers.iter_mut().map(|peer| {
            let (block, frames) = peer.measure.take(now, trace).unzip();
            PulsePeer {
                host: peer.host,
                heard: peer.heard,
                silent: peer.receiver.is_silent(),
                paths: peer.paths().collect(),
                block,
                frames: frames.unwrap_or_default(),
            }
        });
        let peers = peers.collect();
        let timing = self.config.timing;
        let ThreadUsage { busy, waits } = sched::thread_usage();
        PulseReport {
            at: now.0,
            period: timing.period.0,
            timeout: timing.timeout.0,
            busy: busy.0,
            waits,
            peers,
        }
    }
}

impl Turn for PulseThread {
    type Error = Infallible;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn sender(&mut self) -> (&mut Sender, &Numbers) {
        (&mut self.sender, self.outgoing.numbers())
    }

    fn send(&mut self, frame: &Frame) {
        self.outgoing.send(frame);
    }

    fn presence(&mut self) -> &mut Presence {
        &mut self.presence
    }

    fn away(&mut self, absence: Nanos) {
        for peer in &mut self.peers {
            if peer.receiver.away(absence) {
                peer.measure.away(absence);
            }
        }
    }

    /// Takes what has arrived, in the order of arrival on all paths: a path that is not read for a
    /// while would look as if it delivered nothing.
    fn receive(&mut self) -> Result<(), Infallible> {
        self.more = false;
        // Before the pulses, so that those which notices name are among them.
        for (path, sockets) in self.paths.iter_mut().zip(self.outgoing.sockets().iter()) {
            path.notices.clear();
            path.pulses.clear();
            if let Some(sockets) = sockets.get() {
                self.more |= path.notices.fill(&sockets.notices);
            }
        }
        for (path, sockets) in self.paths.iter_mut().zip(self.outgoing.sockets().iter()) {
            if let Some(sockets) = sockets.get() {
                self.more |= path.pulses.fill(&sockets.pulses);
            }
        }
        let mut taken = core::mem::take(&mut self.taken);
        for (path, of) in self.paths.iter().enumerate() {
            for (is_notice, inbox) in [(false, &of.pulses), (true, &of.notices)] {
                let one = |index| Taken { is_notice, stamp: inbox.arrived(index).unwrap_or(0), path, index };
                taken.extend((0..inbox.len()).map(one));
            }
        }
        taken.sort_unstable();
        let arrivals = Arrivals::new(self.emptied);
        // What a thread that was away finds in its sockets may be the oldest that arrived meanwhile.
        let away = self.config.timing.away();
        for one in taken.drain(..) {
            self.take(one, arrivals.of(one.stamp, away));
        }
        self.taken = taken;
        self.emptied = arrivals.now();
        Ok(())
    }

    fn judge(&mut self, now: Instant) -> Result<(), Infallible> {
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(index) else { break };
            peer.receiver.tick(now, &mut self.found);
            let host = peer.host;
            self.publish(host);
        }
        Ok(())
    }
}

impl Peer {
    fn paths(&self) -> impl Iterator<Item = PulsePath> + '_ {
        let states = self.receiver.paths().chain(std::iter::repeat(PathState::Unheard));
        self.addresses
            .iter()
            .zip(states)
            .map(|(at, state)| PulsePath { address: at.ip(), state: state.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_of_a_host_has_a_bit_of_its_own() {
        let of_host = |host: u32| (1..FIRST_FREE).chain(host * PER_HOST..(host + 1) * PER_HOST);
        for host in [1u8, 31] {
            let mut all = 0;
            for region in of_host(u32::from(host)) {
                assert_eq!(all & bit(region), 0, "{region}");
                all |= bit(region);
                assert_eq!(regions(host, bit(region)).collect::<Vec<_>>(), [region]);
            }
        }
    }
}
