//! RDMA as a [`Transport`]: operations use the queue pair of their link, datagrams one queue pair
//! for all.
//!
//! Posts to a peer without a connection are queued, up to a limit, until the connector thread has
//! established one or failed. A failed completion breaks the link: all pending and queued
//! operations on it fail, and so do posts until those failures are delivered. Then the link is
//! re-established, with back-off while the peer does not answer. One of a WRITE into a peer's log breaks
//! the connection to that log alone, which says nothing of the peer.
//!
//! Operations on the own region use a connection of the device with itself: the device's CAS is
//! atomic among its own operations, not with those of the CPU.

use super::config::Config;
use super::connector::{Cause, Command, ConnectorEvent};
use super::datagrams::Datagrams;
use super::exposed::Plane;
use super::handshake::Refusal;
use super::link::{Abandoned, Link, PostOutcome, error_of, error_of_cause};
use super::ops::{Ops, Slot, What};
use super::outbox::{Destination, Outbox};
use super::pair::{AddressHandle, QueuePair};
use super::post::To;
use super::queue::{CompletionQueue, Status, WorkCompletion};
use super::sealing::PeerKey;
use super::threads::Threads;
use super::watch::OwnerWatches;
use obol_deaths::deadbeat::VerbsGroup;
use obol_fabric::contract::{Evidence, LinkError, Remote, Token};
use obol_fabric::endpoint::{Done, Received, RemoteDeaths, Transport};
use obol_fabric::host::{FIRST_FREE, MappedRegions, PER_HOST, REGIONS, clock};
use obol_fabric::layout::Layout;
use obol_fabric::notice::Notice;
use obol_fabric::rights::Change;
use obol_fabric::types::{Address, Instant, Nanos, host_bits};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// How often coordinators without a link are tried, where the hosts have keys: the first and the last
/// interval. They connect as well, to the members of the view, and most numbers have no process.
pub(super) const MEET_EVERY_MIN: Nanos = Nanos::from_secs(1);
const MEET_EVERY_MAX: Nanos = Nanos::from_secs(16);
/// Completions per poll.
pub(super) const BATCH: usize = 32;

/// A multicast group for datagrams.
#[derive(Debug)]
struct Group {
    handle: AddressHandle,
    number: u32,
    qkey: u32,
    /// The same for the kernel module deadbeat.
    place: VerbsGroup,
}

impl Group {
    /// The index of [`obol_fabric::Group::Everyone`].
    const EVERYONE: usize = obol_fabric::Group::Everyone.bit().trailing_zeros() as usize;
}

/// An endpoint's access to an RDMA device.
pub struct Rdma {
    pub(super) own: Address,
    /// This host's number in the cluster.
    pub(super) host: u8,
    pub(super) layout: Layout,
    pub(super) config: Config,
    /// Mapped regions of processes of this host, which report their deaths.
    pub(super) local: MappedRegions,
    pub(super) links: Vec<Option<Box<Link>>>,
    pub(super) ops: Ops,
    pub(super) completions: Arc<CompletionQueue>,
    /// The results of the last poll.
    pub(super) batch: Box<[WorkCompletion]>,
    pub(super) datagrams: Datagrams,
    pub(super) outbox: Outbox,
    /// Datagrams lost when they left the outbox.
    pub(super) lost: u64,
    pub(super) groups: Groups,
    pub(super) watches: OwnerWatches,
    /// Regions with undelivered failures.
    pub(super) broken: Vec<u32>,
    /// Those whose log's connection has failed, which does not concern READs.
    pub(super) broken_logs: Vec<u32>,
    /// Regions whose links wait for room that other links may free.
    pub(super) starved: VecDeque<u32>,
    /// Regions whose links hold a WRITE back.
    pub(super) held: Vec<u32>,
    /// Operations of broken links that the device may still execute.
    pub(super) limbo: Vec<(u64, Vec<Slot>)>,
    pub(super) attempts: u64,
    /// The interval of checks of links with pending operations, if any, and the next check.
    pub(super) check_every: Option<Nanos>,
    pub(super) check_at: Instant,
    pub(super) commands: Sender<Command>,
    pub(super) events: Receiver<ConnectorEvent>,
    pub(super) has_events: Arc<AtomicBool>,
    pub(super) threads: Threads,
    /// When coordinators without a link are tried again, where the hosts have keys.
    pub(super) meet_at: Instant,
    /// The interval to the next time.
    pub(super) meet_every: Nanos,
}

/// Both groups, once the port has joined them, or why it has not.
#[derive(Debug, Default)]
pub(super) struct Groups([Option<Group>; 2], [Option<String>; 2]);

/// The state of a link, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The peer's region.
    pub region: u32,
    pub to: SocketAddr,
    pub connected: bool,
    /// Whether it is connected to the log that the peer keeps; `None` if it is not known to keep one.
    pub log: Option<bool>,
    /// The reason why it is not, if an error occurred.
    pub trouble: Option<String>,
}

/// The link to a region, if there is one.
fn known(links: &[Option<Box<Link>>], region: u32) -> Option<&Link> {
    links.get(region as usize)?.as_deref()
}

/// An address without host and port, as in a host's table.
const fn within_host(at: Address) -> Address {
    Address { host: 0, port: 0, ..at }
}

/// The address by which a peer is known that listens there.
fn peer_address(region: u32, to: SocketAddr, generation: u32) -> Address {
    let within = Address { generation, ..Address::region(region) };
    if region < FIRST_FREE {
        // Coordinators are known by their numbers.
        return within;
    }
    Address { host: host_bits(to.ip()), port: to.port(), ..within }
}

impl Rdma {
    /// All links used so far.
    pub fn link_status(&self) -> Vec<LinkStatus> {
        let shown = |(region, link): (usize, &Option<Box<Link>>)| {
            let link = link.as_ref()?;
            let trouble = link.trouble().map(|cause| match cause {
                Cause::Silent(error) => error.clone(),
                Cause::Refused(refusal) => refusal.to_string(),
                Cause::Ended => "the peer has ended it".to_owned(),
            });
            let (region, connected, log) = (region as u32, link.is_up(), link.log_status());
            Some(LinkStatus { region, to: link.to, connected, log, trouble })
        };
        self.links.iter().enumerate().filter_map(shown).collect()
    }

    /// Why the port is not in a group, if it is not.
    pub fn group_errors(&self) -> impl Iterator<Item = (usize, &str)> {
        self.groups.1.iter().enumerate().filter_map(|(index, error)| Some((index, error.as_deref()?)))
    }

    /// Whether the port has joined both groups. Until then, datagrams to a group are lost.
    pub const fn is_in_groups(&self) -> bool {
        matches!(self.groups.0, [Some(_), Some(_)])
    }

    /// The address of a region's owner.
    fn place(&self, at: Address) -> Option<SocketAddr> {
        if at.region == self.own.region { Some(self.config.listen) } else { self.config.place(at) }
    }

    /// The link to a region, created if there is none.
    fn link(&mut self, at: Address) -> Result<&mut Link, LinkError> {
        let to = self.place(at).ok_or(LinkError::PeerReplaced)?;
        let layout = self.layout;
        let place = self.links.get_mut(at.region as usize).ok_or(LinkError::PeerReplaced)?;
        Ok(place.get_or_insert_with(|| Box::new(Link::new(at.region, to, layout))))
    }

    /// Whether an address names the connected owner of the region, or why not. A later owner makes
    /// the link reconnect.
    fn check_owner(&mut self, at: Address) -> Result<(), LinkError> {
        let to = self.place(at).ok_or(LinkError::PeerReplaced)?;
        let link = self.link(at)?;
        let known = link.generation;
        let is_owner = at.seat == 0 && at.generation != 0;
        if link.to == to && (!is_owner || known == 0 || at.generation == known) {
            return Ok(());
        }
        if is_owner && known != 0 && (at.generation.wrapping_sub(known) as i32) < 0 {
            return Err(LinkError::PeerReplaced);
        }
        link.to = to;
        if link.is_up() {
            self.lose(at.region, Cause::Ended, None, LinkError::PeerReplaced);
        }
        if let Ok(link) = self.link(at) {
            link.reset_back_off();
        }
        Ok(())
    }

    fn refuse(&mut self, at: Address, token: Token, error: LinkError) {
        let breaks = matches!(error, LinkError::PeerDead | LinkError::Unmapped);
        if breaks && !self.broken.contains(&at.region) {
            self.broken.push(at.region);
        }
        match self.links.get_mut(at.region as usize) {
            Some(Some(link)) => link.refuse(token, error, &mut self.ops),
            _ => self.ops.refuse(token, error),
        }
    }

    /// The error of an operation that is known before it is posted.
    fn check(&mut self, remote: Remote, what: What, bytes: usize) -> Result<(), LinkError> {
        let at = remote.at;
        if at.seat != 0 && matches!(what, What::Cas(..)) {
            // The connection is to the region's owner, which may be a successor: a device compares no generation of a
            // seat, so a fence might be raised on the wrong page.
            return Err(LinkError::Unsupported);
        }
        self.check_owner(at)?;
        let is_log_broken = self.broken_logs.contains(&at.region) && !matches!(what, What::Read(_));
        if is_log_broken || self.broken.contains(&at.region) {
            return Err(LinkError::PeerDead);
        }
        if self.is_local(at) {
            // The kernel already knows what the device would find out by trying.
            self.local.peer(within_host(at))?;
        } else if u32::from(at.seat) >= self.layout.limits().seats {
            return Err(LinkError::OutOfBounds);
        }
        let end = remote.offset as usize + bytes;
        let fits =
            remote.offset.is_multiple_of(8) && end <= self.layout.bytes() && bytes <= self.ops.bytes_max();
        if fits { Ok(()) } else { Err(LinkError::OutOfBounds) }
    }

    fn post(&mut self, remote: Remote, what: What, payload: &[u8], token: Token) {
        let bytes = match what {
            What::Read(bytes) | What::Write(bytes) => bytes as usize,
            What::Cas(..) | What::Probe => 8,
        };
        if let Err(error) = self.check(remote, what, bytes) {
            return self.refuse(remote.at, token, error);
        }
        let at = remote.at;
        let Some(Some(link)) = self.links.get_mut(at.region as usize) else {
            return self.refuse(at, token, LinkError::PeerReplaced);
        };
        let handed = link.hand(token, what, remote.offset, payload, &mut self.ops, clock::now);
        let waits = link.is_up() && link.is_waiting();
        if waits && !self.starved.contains(&at.region) {
            self.starved.push_back(at.region);
        }
        if link.holds() && !self.held.contains(&at.region) {
            self.held.push(at.region);
        }
        let trouble = link.trouble().map_or(LinkError::PeerDead, error_of_cause);
        if waits {
            self.connect_log(at.region, false);
        }
        match handed {
            Ok(PostOutcome::Accepted) => {}
            Ok(PostOutcome::Connect) => self.connect(at),
            Ok(PostOutcome::Refused) => self.refuse(at, token, trouble),
            Err(error) => self.lose(at.region, Cause::Silent(error.to_string()), None, LinkError::PeerDead),
        }
    }

    /// Requests a connection to the owner of the region of an address.
    fn connect(&mut self, at: Address) {
        let region = at.region;
        let Some(Some(link)) = self.links.get_mut(region as usize) else { return };
        self.attempts += 1;
        let attempt = self.attempts;
        link.connecting(attempt);
        let to = link.to;
        // For a coordinator, any owner is meant, and a seat's generation is not its region's.
        let any = region < FIRST_FREE || at.seat != 0;
        let generation = if any { 0 } else { at.generation };
        let plane = Plane::Common;
        let sent = self.commands.send(Command::Connect { attempt, to, region, generation, plane });
        self.threads.wake();
        if sent.is_err() {
            self.lose(region, Cause::Silent("the connector has ended".to_owned()), None, LinkError::PeerDead);
        }
    }

    /// Requests a connection to the log of a region's owner, if an operation waits for it, or `keeps`
    /// says that there is to be one.
    fn connect_log(&mut self, region: u32, keeps: bool) {
        let Some(Some(link)) = self.links.get_mut(region as usize) else { return };
        if !link.wants_log(keeps, clock::now) {
            return;
        }
        self.attempts += 1;
        let attempt = self.attempts;
        link.connecting_log(attempt);
        let (to, generation, plane) = (link.to, link.generation, Plane::Log);
        // If the connector has ended, the whole link is lost with its next connection.
        let _ = self.commands.send(Command::Connect { attempt, to, region, generation, plane });
        self.threads.wake();
    }

    /// Whether this process keeps connections to the logs of others, as it has one itself.
    const fn keeps_logs(&self) -> bool {
        self.config.log.is_some()
    }

    /// Has the connector release a connection that is not used any more.
    fn bury(&mut self, Abandoned { attempt, pair, slots }: Abandoned) {
        self.limbo.push((attempt, slots));
        // If the connector has ended, its end has released everything.
        let _ = self.commands.send(Command::Bury { attempt, pair });
        self.threads.wake();
    }

    /// A link is broken, or could not be established.
    fn lose(&mut self, region: u32, cause: Cause, first: Option<(Slot, LinkError)>, error: LinkError) {
        let Some(Some(link)) = self.links.get_mut(region as usize) else { return };
        let now = clock::now();
        let known = link.generation;
        let replaced = match &cause {
            Cause::Refused(Refusal::Generation { generation }) => Some(*generation),
            _ => None,
        };
        let denied = first.is_some_and(|(_, error)| error == LinkError::Denied);
        for abandoned in link.down(cause, first, error, now, &mut self.ops) {
            self.bury(abandoned);
        }
        if !self.broken.contains(&region) {
            self.broken.push(region);
        }
        if let Some(generation) = replaced {
            self.watches.replaced(region, known, generation);
        } else if !denied {
            self.watches.suspect(region);
        }
    }

    /// The connection to a peer's log is broken, or could not be established. That says nothing about
    /// the peer: it ends the connections of processes that may not write there any more.
    fn lose_log(&mut self, region: u32, error: LinkError) {
        let Some(Some(link)) = self.links.get_mut(region as usize) else { return };
        let (abandoned, fails) = link.log_down(error, clock::now(), &mut self.ops);
        if let Some(abandoned) = abandoned {
            self.bury(abandoned);
        }
        if fails && !self.broken_logs.contains(&region) {
            self.broken_logs.push(region);
        }
        self.pump(region);
        self.connect_log(region, self.keeps_logs());
    }

    /// The connection to a peer's log is established.
    fn log_up(&mut self, attempt: u64, region: u32, pair: QueuePair) {
        match self.links.get_mut(region as usize) {
            Some(Some(link)) if link.log_attempt() == Some(attempt) => {
                link.log_up(attempt, pair);
                self.pump(region);
            }
            // It is no longer wanted.
            _ => self.bury(Abandoned { attempt, pair, slots: Vec::new() }),
        }
    }

    /// A connection, or an attempt at one, has ended.
    fn ended(&mut self, attempt: u64, region: u32, cause: Cause) {
        let Some(link) = known(&self.links, region) else { return };
        let error = error_of_cause(&cause);
        if link.attempt() == Some(attempt) {
            self.lose(region, cause, None, error);
        } else if link.log_attempt() == Some(attempt) {
            self.lose_log(region, error);
        }
    }

    /// Handles the connector's events.
    fn take_events(&mut self) {
        if !self.has_events.load(Ordering::Relaxed) || !self.has_events.swap(false, Ordering::AcqRel) {
            return;
        }
        while let Ok(event) = self.events.try_recv() {
            match event {
                ConnectorEvent::Up { attempt, region, pair, welcome, handle, datagram_key, .. } => {
                    self.welcome(attempt, region, pair, welcome, handle, datagram_key);
                }
                ConnectorEvent::Met { from, datagram_key } => self.datagrams.learn(from, *datagram_key),
                ConnectorEvent::LogUp { attempt, region, pair } => self.log_up(attempt, region, pair),
                ConnectorEvent::Permitted { token, result } => self.ops.permitted(token, result),
                ConnectorEvent::Down { attempt, region, cause } => self.ended(attempt, region, cause),
                ConnectorEvent::Released { attempt } => {
                    if let Some(at) = self.limbo.iter().position(|(one, _)| *one == attempt) {
                        let (_, slots) = self.limbo.swap_remove(at);
                        slots.into_iter().for_each(|slot| self.ops.release(slot));
                        self.feed();
                    }
                }
                ConnectorEvent::Group { index, handle, number, qkey, place } => {
                    if let Some(group) = self.groups.0.get_mut(index) {
                        *group = Some(Group { handle, number, qkey, place });
                        self.groups.1[index] = None;
                    }
                }
                ConnectorEvent::GroupLost { index, error } => {
                    if let Some(trouble) = self.groups.1.get_mut(index) {
                        *trouble = Some(error);
                    }
                }
            }
        }
    }

    fn welcome(
        &mut self,
        attempt: u64,
        region: u32,
        pair: QueuePair,
        welcome: super::handshake::Welcome,
        handle: AddressHandle,
        datagram_key: Option<Box<PeerKey>>,
    ) {
        let link = match self.links.get_mut(region as usize) {
            Some(Some(link)) if link.attempt() == Some(attempt) => link,
            _ => {
                // It is no longer wanted.
                return self.bury(Abandoned { attempt, pair, slots: Vec::new() });
            }
        };
        let known = link.generation;
        let at = peer_address(region, link.to, welcome.generation);
        link.up(attempt, pair, welcome, handle);
        if let Some(datagram_key) = datagram_key {
            self.datagrams.learn(at, *datagram_key);
        }
        self.watches.met(region, known, welcome.generation, welcome.tokens);
        self.pump(region);
        self.connect_log(region, self.keeps_logs());
    }

    /// Connects to coordinators without a link. Only who has a connection can open the datagrams of
    /// another process, so members and coordinators need one before the first datagram.
    fn meet_coordinators(&mut self, now: Instant) {
        for number in 1..=self.config.coordinators.len() as u32 {
            let at = Address::region(number);
            if number == self.own.region {
                continue;
            }
            if self.link(at).is_ok_and(|link| link.is_due(now)) {
                self.connect(at);
            }
        }
    }

    /// Posts a link's queued items.
    fn pump(&mut self, region: u32) {
        let Some(Some(link)) = self.links.get_mut(region as usize) else { return };
        let pumped = link.pump(&mut self.ops, &mut self.datagrams);
        let waits = link.is_up() && link.is_waiting();
        if waits && !self.starved.contains(&region) {
            self.starved.push_back(region);
        }
        if link.holds() && !self.held.contains(&region) {
            self.held.push(region);
        }
        if waits {
            self.connect_log(region, false);
        }
        if let Err(error) = pumped {
            self.lose(region, Cause::Silent(error.to_string()), None, LinkError::PeerDead);
        }
    }

    /// There is room again.
    fn feed(&mut self) {
        for _ in 0..self.starved.len() {
            if let Some(region) = self.starved.pop_front() {
                self.pump(region);
            }
        }
    }

    /// Posts WRITEs without a following CAS.
    fn flush_writes(&mut self) {
        while let Some(region) = self.held.pop() {
            let Some(Some(link)) = self.links.get_mut(region as usize) else { continue };
            if let Err(error) = link.flush(&self.ops) {
                self.lose(region, Cause::Silent(error.to_string()), None, LinkError::PeerDead);
            }
        }
    }

    /// Queues a datagram until the end of the event.
    fn put(&mut self, destination: Destination, bytes: &[u8]) {
        if self.outbox.is_full() {
            self.flush_datagrams();
        }
        self.outbox.put(destination, bytes);
    }

    fn flush_datagrams(&mut self) {
        while let Some((destination, bytes)) = self.outbox.take() {
            let sent = match destination {
                Destination::Region(region) => match self.links.get(region as usize) {
                    Some(Some(link)) => link.send(&bytes, &mut self.datagrams),
                    _ => false,
                },
                Destination::Group(index) => match self.groups.0.get(index) {
                    Some(Some(group)) => {
                        let to = To { handle: &group.handle, number: group.number, qkey: group.qkey };
                        self.datagrams.send(&to, &bytes)
                    }
                    _ => false,
                },
            };
            self.lost += u64::from(!sent);
            self.outbox.recycle(bytes);
        }
    }

    /// Probes links without completions.
    fn check_links(&mut self) {
        for region in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(region) else { continue };
            if let Err(error) = link.check(&mut self.ops) {
                self.lose(region as u32, Cause::Silent(error.to_string()), None, LinkError::PeerDead);
            }
        }
    }

    /// Takes completions from the device. Returns whether there were any.
    fn poll(&mut self) -> bool {
        self.flush_writes();
        let Ok(n) = self.completions.poll(&mut self.batch) else { return false };
        for at in 0..n {
            let Some(completion) = self.batch.get(at).copied() else { break };
            // An unknown one belongs to an abandoned operation of a broken link.
            let Some((slot, region)) = self.ops.find(completion.id()) else { continue };
            if completion.status() == Status::SUCCESS {
                if let Some(Some(link)) = self.links.get_mut(region as usize) {
                    link.ended(slot, &mut self.ops);
                }
            } else {
                let error = error_of(completion.status());
                if known(&self.links, region).is_some_and(Link::is_on_log) {
                    self.lose_log(region, error);
                    continue;
                }
                let cause = Cause::Silent(completion.status().name().to_owned());
                self.lose(region, cause, Some((slot, error)), LinkError::PeerDead);
            }
        }
        if n > 0 {
            self.feed();
        }
        n > 0
    }
}

impl Transport for Rdma {
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.post(from, What::Read(len), &[], token);
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        match u32::try_from(bytes.len()) {
            Ok(len) if len.is_multiple_of(8) => self.post(to, What::Write(len), bytes, token),
            _ => self.refuse(to.at, token, LinkError::OutOfBounds),
        }
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.post(at, What::Cas(expected, desired), &[], token);
    }

    fn refuse_permit(&mut self, token: Token) {
        self.ops.refuse(token, LinkError::Unsupported);
    }

    fn permit(&mut self, change: Change, token: Token) {
        if self.commands.send(Command::Permit { change, token }).is_err() {
            // The connector has ended, and nobody else has the queue pairs of peers.
            return self.refuse_permit(token);
        }
        self.threads.wake();
    }

    fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        if self.check_owner(to).is_err() {
            return false;
        }
        let Some(Some(link)) = self.links.get_mut(to.region as usize) else { return false };
        if link.is_up() {
            self.put(Destination::Region(to.region), bytes);
            return true;
        }
        match link.keep(bytes, clock::now()) {
            PostOutcome::Accepted => true,
            PostOutcome::Connect => {
                self.connect(to);
                true
            }
            PostOutcome::Refused => false,
        }
    }

    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        let index = bit.trailing_zeros() as usize;
        if !matches!(self.groups.0.get(index), Some(Some(_))) {
            return 1;
        }
        self.put(Destination::Group(index), bytes);
        0
    }

    /// Posts held WRITEs.
    fn flush(&mut self) {
        self.flush_writes();
        self.flush_datagrams();
    }

    fn lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }

    fn release_due(&mut self, now: Instant) {
        let Some(every) = self.check_every else { return };
        if !self.ops.are_under_way() {
            self.check_at = now + every;
        } else if now >= self.check_at {
            self.check_at = now + every;
            self.check_links();
        }
    }

    fn due(&self) -> Instant {
        if self.check_every.is_some() && self.ops.are_under_way() { self.check_at } else { Instant::NEVER }
    }

    fn complete(&mut self) -> Option<(Token, Done)> {
        loop {
            if let Some(next) = self.ops.next() {
                return Some(next);
            }
            self.take_events();
            if !self.poll() && self.ops.results() == 0 {
                return None;
            }
        }
    }

    fn recycle(&mut self, done: Done) {
        self.ops.recycle(done);
    }

    fn settle(&mut self) {
        let links = &self.links;
        // Failures that come after what is under way are not delivered yet.
        let fails = |region: &u32| known(links, *region).is_some_and(Link::has_failures);
        self.broken.retain(fails);
        self.broken_logs.retain(fails);
    }

    fn waiting(&self) -> usize {
        self.ops.results()
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Received {
        // A peer that has just connected may have sent already.
        self.take_events();
        loop {
            let received = self.datagrams.receive(bytes);
            match Notice::decode(bytes) {
                Some(notice) if matches!(received, Received::Datagram(_)) => {
                    self.watches.take_notice(&notice);
                }
                _ => return received,
            }
        }
    }

    fn has_datagrams(&mut self) -> bool {
        self.datagrams.poll()
    }

    fn regions(&mut self) -> &mut MappedRegions {
        &mut self.local
    }

    fn is_local(&self, whom: Address) -> bool {
        if whom.region == self.own.region {
            return true;
        }
        match self.config.coordinators.get((whom.region as usize).wrapping_sub(1)) {
            // Hosts may share an address behind one device, but a coordinator's region is on its
            // own host only.
            Some(place) => place.ip() == self.config.listen.ip() && self.local.generation(whom.region) != 0,
            None => {
                let host = whom.region / PER_HOST;
                whom.region < REGIONS && host == u32::from(self.host)
            }
        }
    }

    /// Retries links of watched peers, and to logs.
    fn tidy(&mut self, now: Instant) {
        if self.keeps_logs() {
            (0..self.links.len() as u32).for_each(|region| self.connect_log(region, true));
        }
        let is_due =
            |links: &[_], whom: &Address| known(links, whom.region).is_some_and(|link| link.is_due(now));
        let due: Vec<Address> = self.watches.unproved().filter(|whom| is_due(&self.links, whom)).collect();
        for whom in due {
            // Two addresses may have one link.
            if is_due(&self.links, &whom) {
                self.connect(whom);
            }
        }
        if self.config.keys.is_some() && now >= self.meet_at {
            self.meet_at = now + self.meet_every;
            self.meet_every = self.meet_every.saturating_mul(2).min(MEET_EVERY_MAX);
            self.meet_coordinators(now);
        }
    }

    /// Arms the completion queues; the sleeper thread rings the doorbell on their events.
    /// Completions before arming are found here, later ones ring, so none is missed. An
    /// unnecessarily armed queue would interrupt the loop with the first operation of its next
    /// turn.
    fn arm(&mut self) -> bool {
        if self.ops.are_under_way() && self.completions.arm().is_err() || !self.datagrams.arm() {
            return false;
        }
        self.take_events();
        !self.poll() && self.ops.results() == 0 && !self.watches.has_events()
    }
}

impl RemoteDeaths for Rdma {
    fn watch(&mut self, whom: Address) {
        if self.check_owner(whom).is_err() {
            self.watches.add_replaced(whom);
            return;
        }
        let Some(Some(link)) = self.links.get_mut(whom.region as usize) else { return };
        let (generation, due) = (link.generation, link.is_due(clock::now()));
        let reachable = link.is_up() || link.attempt().is_some() || due;
        self.watches.add(whom, generation, reachable);
        if due {
            self.connect(whom);
        }
    }

    fn unwatch(&mut self, whom: Address) {
        self.watches.remove(whom);
    }

    fn take_relocated(&mut self) -> Option<Address> {
        let whom = self.watches.unproved().find(|whom| self.is_local(*whom))?;
        self.watches.remove(whom);
        Some(whom)
    }

    fn route_to_other_hosts(&self, notice: &[u8]) -> Option<(VerbsGroup, Vec<u8>)> {
        let group = self.groups.0.get(Group::EVERYONE)?.as_ref()?;
        Some((group.place.clone(), self.datagrams.framed(notice)?))
    }

    fn take_notice_counts(&mut self) -> (u64, u64) {
        self.watches.take_counts()
    }

    fn death(&mut self) -> Option<(Address, Evidence)> {
        self.watches.next()
    }
}
