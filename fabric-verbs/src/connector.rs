//! The connector thread: it listens, answers requests, establishes connections for the endpoint,
//! and joins groups. It may make system calls, allocate and wait for peers; nothing here is on a
//! post path.
//!
//! A link has one direction. A process that operates on a peer's region connects; the peer grants
//! the rights of its role and never posts on that queue pair. So two processes that connect at the
//! same time do not conflict, and a peer's rights here depend on the access flags of its queue pair
//! alone.

use super::cm::{Event, EventChannel, Id, Joined, Key, Offer, Peer, Space, What};
use super::config::{Config, HostKeys, retry_within};
use super::error::VerbsError;
use super::exposed::{Exposed, Plane, Role, rights_of};
use super::handshake::{Hello, Identity, Refusal, Welcome};
use super::introduction::{Introduced, MESSAGE_BYTES_MAX, Ticket, TicketError, Tickets};
use super::nic::Nic;
use super::pair::{AddressHandle, Kind, QueuePair, Retry, Size};
use super::permits::Permits;
use super::queue::CompletionQueue;
use super::registration::Rights;
use super::sealing::{DatagramKey, PeerKey};
use obol_deaths::deadbeat::VerbsGroup;
use obol_fabric::contract::{LinkError, Token};
use obol_fabric::host::{Region, Wake, clock};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::remote::ClockRelation;
use obol_fabric::rights::Change;
use obol_fabric::types::{Address, Instant, Nanos};
use obol_identity::{Route, host_of};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant as Time};

/// Commands queued for this thread.
const BACKLOG: u16 = 128;
/// The maximum number of connections of peers.
const SERVED_MAX: usize = 2048;
/// The maximum of concurrent READs and CASes on a link, in the device; further posts wait there.
const READS_MAX: u8 = 16;
/// A connection attempt fails after this many times the bound of detection: the peer's host is
/// silent. It takes several round trips and the peer's connector thread, not just its device.
const CONNECT_DETECTIONS: u64 = 8;
/// The minimum timeout: on a busy host the thread may have to wait for a core.
const CONNECT_MIN: Nanos = Nanos::from_millis(500);

/// A command of the endpoint.
#[derive(Debug)]
pub(crate) enum Command {
    /// Connect to a region's owner.
    Connect { attempt: u64, to: SocketAddr, region: u32, generation: u32, plane: Plane },
    /// Release an unused connection.
    Bury { attempt: u64, pair: QueuePair },
    /// Change who may write into the own log.
    Permit { change: Change, token: Token },
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No answer, or the connection was lost.
    Silent(String),
    /// The process there rejects this one.
    Refused(Refusal),
    /// The peer, or its kernel, has ended the connection.
    Ended,
}

/// An event for the endpoint.
#[derive(Debug)]
pub(crate) enum ConnectorEvent {
    /// A connection is established.
    Up {
        attempt: u64,
        region: u32,
        pair: QueuePair,
        welcome: Welcome,
        handle: AddressHandle,
        /// The relation of the peer's clock to this host's.
        clock: ClockRelation,
        /// Where the hosts have keys.
        datagram_key: Option<Box<PeerKey>>,
    },
    /// A connection to the log of a region's owner is established.
    LogUp { attempt: u64, region: u32, pair: QueuePair },
    /// A change of permissions is in force, or was refused.
    Permitted { token: Token, result: Result<(), LinkError> },
    /// A peer has connected, and this is its datagram key.
    Met { from: Address, datagram_key: Box<PeerKey> },
    /// An attempt has failed, or a connection has ended.
    Down { attempt: u64, region: u32, cause: Cause },
    /// A connection was released: the device has dropped all its posts.
    Released { attempt: u64 },
    /// The port has joined a group.
    Group { index: usize, handle: AddressHandle, number: u32, qkey: u32, place: VerbsGroup },
    /// The port is not in a group (any more).
    GroupLost { index: usize, error: String },
}

/// A change of connections as a line of the log. Attempts that fail are repeated, so they matter less
/// than refusals.
fn log(event: &ConnectorEvent) {
    match event {
        ConnectorEvent::Up { region, .. } => {
            tracing::info!(target: "fabric", region, "connected to the owner of region {region}");
        }
        ConnectorEvent::LogUp { region, .. } => {
            tracing::info!(target: "fabric", region, "connected to the log of the owner of region {region}");
        }
        ConnectorEvent::Permitted { result: Err(error), .. } => {
            tracing::warn!(target: "fabric", "permissions cannot be changed: {error}");
        }
        ConnectorEvent::Down { region, cause: Cause::Refused(refusal), .. } => {
            tracing::warn!(target: "fabric", region, "the owner of region {region} refuses a connection: {refusal:?}");
        }
        ConnectorEvent::Down { region, cause, .. } => {
            tracing::debug!(target: "fabric", region, "no connection to the owner of region {region}: {cause:?}");
        }
        ConnectorEvent::GroupLost { index, error } => {
            tracing::warn!(target: "fabric", "the multicast group {index} is lost: {error}");
        }
        ConnectorEvent::Released { .. }
        | ConnectorEvent::Group { .. }
        | ConnectorEvent::Met { .. }
        | ConnectorEvent::Permitted { .. } => {}
    }
}

/// This process's identity for its peers.
pub(crate) struct Own {
    pub(crate) cluster: Identity,
    pub(crate) address: Address,
    pub(crate) role: Role,
    pub(crate) exposed: Exposed,
    pub(crate) permits: Permits,
    /// The destination of its datagrams.
    pub(crate) datagrams: Arc<QueuePair>,
    pub(crate) qkey: u32,
    /// Bits of its groups.
    pub(crate) groups: u32,
    /// The tokens of its death notices.
    pub(crate) tokens: [u64; 2],
    /// The tickets of peers that have introduced themselves, and what seals the own datagrams; `None`
    /// without keys.
    pub(crate) sealed: Option<(Arc<Tickets>, DatagramKey)>,
}

/// A request for a connection.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    attempt: u64,
    to: SocketAddr,
    region: u32,
    generation: u32,
    plane: Plane,
}

/// How this process introduces itself, where the hosts have keys.
#[derive(Debug)]
struct Introductions {
    keys: HostKeys,
    /// Attempts whose introduction is under way, each by a thread of its own.
    under_way: BTreeMap<u64, Wanted>,
    results: Receiver<(u64, Result<Ticket, TicketError>)>,
    done: Sender<(u64, Result<Ticket, TicketError>)>,
}

impl Introductions {
    fn new(keys: HostKeys) -> Self {
        let (done, results) = mpsc::channel();
        Self { keys, under_way: BTreeMap::new(), results, done }
    }
}

/// The state of a connection that this process requested.
#[derive(Debug)]
struct Attempt {
    id: Id,
    attempt: u64,
    region: u32,
    generation: u32,
    plane: Plane,
    /// Where the hosts have keys.
    ticket: Option<Ticket>,
    /// `None` before the route is resolved, and after the endpoint has taken it.
    pair: Option<QueuePair>,
    /// When the request was sent.
    asked: Instant,
    until: Option<Time>,
}

#[derive(Debug)]
struct Served {
    id: Id,
    /// `None` once it was ended, until the peer has taken note.
    pair: Option<QueuePair>,
    from: Address,
    role: Role,
    plane: Plane,
    /// Those of the peer on the pair.
    rights: Rights,
}

#[derive(Debug)]
struct Member {
    id: Id,
    index: usize,
    group: IpAddr,
}

/// The state of the thread.
pub(crate) struct Connector {
    nic: Arc<Nic>,
    channel: Arc<EventChannel>,
    listener: Option<Id>,
    own: Option<Own>,
    introductions: Option<Introductions>,
    /// This process's identity.
    from: Address,
    role: Role,
    cluster: Identity,
    own_ip: IpAddr,
    retry: Retry,
    patience: Duration,
    traffic_class: u8,
    reads: u8,
    sends: Arc<CompletionQueue>,
    /// For pairs that never post.
    idle: Arc<CompletionQueue>,
    size: Size,
    attempts: BTreeMap<Key, Attempt>,
    served: BTreeMap<Key, Served>,
    members: BTreeMap<Key, Member>,
    commands: Receiver<Command>,
    events: Sender<ConnectorEvent>,
    /// Rung after events; `None` if the endpoint polls anyway.
    bell: Option<Region>,
    has_events: Arc<AtomicBool>,
    wake: Arc<Wake>,
}

/// The parameters of a connector.
pub(crate) struct Start<'a> {
    pub(crate) nic: &'a Arc<Nic>,
    pub(crate) config: &'a Config,
    pub(crate) cluster: Identity,
    pub(crate) sends: &'a Arc<CompletionQueue>,
    pub(crate) size: Size,
    pub(crate) commands: Receiver<Command>,
    pub(crate) events: Sender<ConnectorEvent>,
    pub(crate) has_events: Arc<AtomicBool>,
    pub(crate) bell: Option<Region>,
    pub(crate) wake: Arc<Wake>,
}

impl Connector {
    pub(crate) fn new(start: Start<'_>) -> Result<Self, VerbsError> {
        let (asking, answering) = start.nic.choice().facts.reads_under_way;
        let patience = Nanos(start.config.detection.0.saturating_mul(CONNECT_DETECTIONS)).max(CONNECT_MIN);
        Ok(Self {
            nic: Arc::clone(start.nic),
            channel: EventChannel::new()?,
            listener: None,
            own: None,
            introductions: start.config.keys.clone().map(Introductions::new),
            from: Address::default(),
            role: Role::Reader,
            cluster: start.cluster,
            own_ip: start.config.listen.ip(),
            retry: retry_within(start.config.detection),
            patience: patience.to_std(),
            traffic_class: start.config.traffic_class,
            reads: READS_MAX.min(asking).min(answering).max(1),
            sends: Arc::clone(start.sends),
            idle: CompletionQueue::new(start.nic.context(), 1, None)?,
            size: start.size,
            attempts: BTreeMap::new(),
            served: BTreeMap::new(),
            members: BTreeMap::new(),
            commands: start.commands,
            events: start.events,
            bell: start.bell,
            has_events: start.has_events,
            wake: start.wake,
        })
    }

    /// Binds the address for peers; returns its port.
    pub(crate) fn bind(&mut self, listen: SocketAddr) -> Result<u16, VerbsError> {
        let id = Id::new(&self.channel, Space::Connections)?;
        // Connections of a coordinator's predecessor may linger.
        id.set_reuse_address()?;
        id.bind(listen)?;
        let port = id.port();
        self.listener = Some(id);
        Ok(port)
    }

    /// Starts to serve peers, and joins the groups.
    pub(crate) fn serve(&mut self, own: Own, groups: [IpAddr; 2]) -> Result<(), VerbsError> {
        self.from = own.address;
        self.role = own.role;
        self.own = Some(own);
        for (index, group) in groups.into_iter().enumerate() {
            self.join(index, group)?;
        }
        match &self.listener {
            Some(listener) => listener.listen(BACKLOG),
            None => Ok(()),
        }
    }

    fn join(&mut self, index: usize, group: IpAddr) -> Result<(), VerbsError> {
        let id = Id::new(&self.channel, Space::Datagrams)?;
        id.set_traffic_class(self.traffic_class)?;
        id.bind(SocketAddr::new(self.own_ip, 0))?;
        id.join(group)?;
        self.members.insert(id.key(), Member { id, index, group });
        Ok(())
    }

    /// Runs until the endpoint is dropped.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let now = Time::now();
            let next = self.attempts.values().filter_map(|a| a.until).min();
            let span = next.map(|until| until.saturating_duration_since(now));
            self.wake.wait(&*self.channel, span);
            while let Ok(command) = self.commands.try_recv() {
                self.handle(command);
            }
            self.take_tickets();
            loop {
                match self.channel.next() {
                    Ok(Some(event)) => self.take(event),
                    Ok(None) => break,
                    // No connection is possible any more; the endpoint learns it from its next
                    // command.
                    Err(_) => return,
                }
            }
            self.give_up(Time::now());
        }
    }

    fn report(&self, event: ConnectorEvent) {
        log(&event);
        // The receiver is gone only when the endpoint is being dropped, and this thread with it.
        let _ = self.events.send(event);
        self.has_events.store(true, Ordering::Release);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Connect { attempt, to, region, generation, plane } => {
                let wanted = Wanted { attempt, to, region, generation, plane };
                if self.introductions.is_some() {
                    self.introduce(wanted);
                } else {
                    self.start(wanted, None);
                }
            }
            Command::Bury { attempt, pair } => {
                self.attempts.retain(|_, a| a.attempt != attempt);
                // Once it is destroyed, the device writes to none of its posted buffers.
                drop(pair);
                self.report(ConnectorEvent::Released { attempt });
            }
            Command::Permit { change, token } => {
                let result = self.permit(&change);
                self.report(ConnectorEvent::Permitted { token, result });
            }
        }
    }

    /// Changes who may write into the own log. Who may do so from now on is given the right on its
    /// connection. The connection of who may not any more is ended, and so is one whose device refuses the
    /// change; they connect again, with the rights that they have then.
    fn permit(&mut self, change: &Change) -> Result<(), LinkError> {
        let own = self.own.as_mut().ok_or(LinkError::Unsupported)?;
        own.permits.change(change)?;
        let mut ended = Vec::new();
        for (key, served) in &mut self.served {
            let (Plane::Log, Some(pair)) = (served.plane, &served.pair) else { continue };
            let rights = own.permits.rights(&own.exposed, served.from, served.role).unwrap_or_default();
            if rights == served.rights {
                continue;
            }
            if rights.allows(Rights::WRITE) && pair.permit(rights).is_ok() {
                served.rights = rights;
            } else {
                ended.push(*key);
            }
        }
        // All are ended, whatever the result of one.
        let results: Vec<_> = ended.into_iter().map(|key| self.end(key)).collect();
        results.into_iter().collect()
    }

    /// Ends a peer's connection: when this has succeeded, nothing more is executed that came by it.
    fn end(&mut self, key: Key) -> Result<(), LinkError> {
        let Some(served) = self.served.get_mut(&key) else { return Ok(()) };
        // Informs the peer, which otherwise finds out by a timeout. The id stays until it knows.
        let _ = served.id.disconnect();
        let Some(Err(error)) = served.pair.take().map(QueuePair::destroy) else { return Ok(()) };
        tracing::error!(target: "fabric", "a queue pair is not destroyed, so nothing is revoked: {error}");
        Err(LinkError::Unsupported)
    }

    fn datagram_key(&self) -> Option<&DatagramKey> {
        self.own.as_ref()?.sealed.as_ref().map(|(_, datagram_key)| datagram_key)
    }

    fn never_began(&self, wanted: Wanted, cause: Cause) {
        let Wanted { attempt, region, .. } = wanted;
        self.report(ConnectorEvent::Down { attempt, region, cause });
    }

    /// Gets a ticket for a connection. That blocks, so a thread of its own does it.
    fn introduce(&mut self, wanted: Wanted) {
        let Wanted { attempt, to, region, generation, plane } = wanted;
        let (cluster, from, role) = (self.cluster, self.from, self.role);
        let hello = Hello { cluster, region, generation, from, role, plane };
        let (from, patience, wake) = (self.own_ip, self.patience, Arc::clone(&self.wake));
        // It was given by the other connection.
        let datagram_key = self.datagram_key().filter(|_| plane == Plane::Common).cloned();
        let Some(introductions) = &mut self.introductions else { return };
        let (keys, done) = (introductions.keys.clone(), introductions.done.clone());
        let Some(host) = host_of(region, &keys.coordinators) else {
            self.never_began(wanted, Cause::Silent(format!("region {region} is of no host")));
            return;
        };
        introductions.under_way.insert(attempt, wanted);
        let started = Builder::new().name("obol-introduce".to_owned()).spawn(move || {
            let route = Route {
                from: Some(from),
                to,
                who: "a process",
                host,
                nonce: hello.cluster.nonce,
                identity: &keys.directory,
                patience,
                message_bytes_max: MESSAGE_BYTES_MAX,
            };
            // The endpoint may have been closed meanwhile.
            let _ = done.send((attempt, Ticket::get(&route, &hello, datagram_key.as_ref())));
            wake.wake();
        });
        if let Err(error) = started {
            introductions.under_way.remove(&attempt);
            self.never_began(wanted, Cause::Silent(format!("cannot start a thread: {error}")));
        }
    }

    /// Connects where an introduction has ended.
    fn take_tickets(&mut self) {
        loop {
            let Some(introductions) = &mut self.introductions else { return };
            let Ok((attempt, result)) = introductions.results.try_recv() else { return };
            let Some(wanted) = introductions.under_way.remove(&attempt) else { continue };
            match result {
                Ok(ticket) => self.start(wanted, Some(ticket)),
                Err(TicketError::Refused(refusal)) => self.never_began(wanted, Cause::Refused(refusal)),
                Err(error) => self.never_began(wanted, Cause::Silent(error.to_string())),
            }
        }
    }

    fn start(&mut self, wanted: Wanted, ticket: Option<Ticket>) {
        if let Err(error) = self.resolve(wanted, ticket) {
            self.never_began(wanted, Cause::Silent(error.to_string()));
        }
    }

    fn resolve(&mut self, wanted: Wanted, ticket: Option<Ticket>) -> Result<(), VerbsError> {
        let Wanted { attempt, to, region, generation, plane } = wanted;
        let id = Id::new(&self.channel, Space::Connections)?;
        id.set_traffic_class(self.traffic_class)?;
        id.resolve_address(Some(self.own_ip), to, self.patience)?;
        let until = Some(Time::now() + self.patience);
        self.attempts.insert(
            id.key(),
            Attempt {
                id,
                attempt,
                region,
                generation,
                plane,
                ticket,
                pair: None,
                asked: Instant::ZERO,
                until,
            },
        );
        Ok(())
    }

    /// Fails attempts that have timed out.
    fn give_up(&mut self, now: Time) {
        let late: Vec<Key> = self
            .attempts
            .iter()
            .filter(|(_, a)| a.until.is_some_and(|u| u <= now))
            .map(|(k, _)| *k)
            .collect();
        for key in late {
            self.failed(key, Cause::Silent("no reply within the bound".to_owned()));
        }
    }

    fn failed(&mut self, key: Key, cause: Cause) {
        if let Some(gone) = self.attempts.remove(&key) {
            self.report(ConnectorEvent::Down { attempt: gone.attempt, region: gone.region, cause });
        }
    }

    fn take(&mut self, event: Event) {
        let key = event.key;
        match event.what {
            What::Request { id, peer } => self.answer(id, &peer),
            What::AddressResolved => self.advance(key, |this, key| this.route(key)),
            What::RouteResolved => self.advance(key, |this, key| this.connect(key)),
            What::Response(peer) => self.advance(key, |this, key| this.establish(key, &peer)),
            What::Rejected(data) => {
                let cause = match Refusal::decode(&data) {
                    None => Cause::Silent("no process listens there".to_owned()),
                    // It has passed the introduction, whose refusals are authentic. This one is not, so
                    // it proves nothing: neither that there is a successor, nor anything else.
                    Some(refusal) if self.introductions.is_some() => Cause::Silent(refusal.to_string()),
                    Some(refusal) => Cause::Refused(refusal),
                };
                self.failed(key, cause);
            }
            What::Failed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                self.failed(key, Cause::Silent(error.to_string()));
                self.served.remove(&key);
            }
            What::Disconnected => {
                self.served.remove(&key);
                self.failed(key, Cause::Ended);
            }
            What::Joined(joined) => self.joined(key, &joined),
            What::JoinFailed(errno) => {
                if let Some(member) = self.members.get(&key) {
                    let error = std::io::Error::from_raw_os_error(errno);
                    self.report(ConnectorEvent::GroupLost { index: member.index, error: error.to_string() });
                }
            }
            What::DeviceRemoved => {
                self.served.remove(&key);
                self.failed(key, Cause::Silent("the device was removed".to_owned()));
            }
            What::Established | What::Other(_) => {}
        }
    }

    fn advance(&mut self, key: Key, step: impl FnOnce(&mut Self, Key) -> Result<(), VerbsError>) {
        if let Err(error) = step(self, key) {
            self.failed(key, Cause::Silent(error.to_string()));
        }
    }

    fn route(&mut self, key: Key) -> Result<(), VerbsError> {
        match self.attempts.get(&key) {
            Some(attempt) => attempt.id.resolve_route(self.patience),
            None => Ok(()),
        }
    }

    fn connect(&mut self, key: Key) -> Result<(), VerbsError> {
        let Some(attempt) = self.attempts.get_mut(&key) else { return Ok(()) };
        let pair = QueuePair::new(self.nic.domain(), Kind::Reliable, &self.sends, &self.idle, self.size)?;
        // The peer never posts here.
        attempt.id.init(&pair, Rights::NONE)?;
        let data = match &attempt.ticket {
            Some(ticket) => ticket.request(),
            None => {
                let (region, generation, plane) = (attempt.region, attempt.generation, attempt.plane);
                let (cluster, from, role) = (self.cluster, self.from, self.role);
                Hello { cluster, region, generation, from, role, plane }.encode()
            }
        };
        attempt.asked = clock::now();
        attempt.id.connect(&pair, &Offer { reads: self.reads, retries: self.retry.count, data: &data })?;
        attempt.pair = Some(pair);
        Ok(())
    }

    fn establish(&mut self, key: Key, peer: &Peer) -> Result<(), VerbsError> {
        let answered = clock::now();
        let Some(attempt) = self.attempts.get_mut(&key) else { return Ok(()) };
        let Some(pair) = attempt.pair.take() else { return Ok(()) };
        let welcome = match &attempt.ticket {
            Some(ticket) => ticket.open(&peer.data),
            None => Welcome::decode(&peer.data).map(|welcome| (welcome, None)),
        };
        let Some((welcome, datagram_key)) = welcome else {
            self.failed(key, Cause::Silent("another service listens there".to_owned()));
            return Ok(());
        };
        attempt.id.ready(&pair, self.reads, self.retry)?;
        attempt.id.establish()?;
        attempt.until = None;
        if attempt.plane == Plane::Log {
            let (attempt, region) = (attempt.attempt, attempt.region);
            self.report(ConnectorEvent::LogUp { attempt, region, pair });
            return Ok(());
        }
        let handle = AddressHandle::new(self.nic.domain(), &self.nic.path(welcome.gid, welcome.lid))?;
        let clock = ClockRelation::measured(attempt.asked, welcome.clock, answered);
        let (attempt, region) = (attempt.attempt, attempt.region);
        self.report(ConnectorEvent::Up { attempt, region, pair, welcome, handle, clock, datagram_key });
        Ok(())
    }

    fn answer(&mut self, id: Id, peer: &Peer) {
        let sealed = self.own.as_ref().and_then(|own| own.sealed.as_ref());
        let introduced = sealed.map(|(tickets, _)| tickets.redeem(&peer.data, Time::now()));
        let (hello, mut introduced) = match introduced {
            Some(Some(introduced)) => (Ok(introduced.hello), Some(introduced)),
            Some(None) => (Err(Refusal::Certificate), None),
            None => match Hello::decode(&peer.data) {
                Some(hello) => (hello, None),
                // A foreign request: dropping the id rejects it.
                None => return,
            },
        };
        let refusal = match hello.and_then(|hello| self.check(&hello)) {
            Ok((hello, role, rights)) => {
                // A later connection of the same process, or of its successor, replaces the earlier
                // one, which ends first: none of its operations arrives after a post on the new
                // one. With the common one, that to the log ends, too.
                if hello.from.region != 0 {
                    let is_kept =
                        |served: &Served| hello.plane == Plane::Log && served.plane == Plane::Common;
                    self.served.retain(|_, s| s.from.region != hello.from.region || is_kept(s));
                }
                if let Some(introduced) = &mut introduced
                    && let Some(datagram_key) = introduced.datagram_key.take()
                {
                    // First: it may send as soon as it is admitted.
                    self.report(ConnectorEvent::Met { from: hello.from, datagram_key });
                }
                let plane = hello.plane;
                match self.admit(&id, plane, role, rights, introduced) {
                    Ok(pair) => {
                        let (pair, from) = (Some(pair), hello.from);
                        self.served.insert(id.key(), Served { id, pair, from, role, plane, rights });
                        return;
                    }
                    Err(_) => Refusal::Full,
                }
            }
            Err(refusal) => refusal,
        };
        // If the rejection cannot be sent, dropping the id reports that there is no connection.
        let _ = id.reject(&refusal.encode());
    }

    fn check(&self, hello: &Hello) -> Result<(Hello, Role, Rights), Refusal> {
        let own = self.own.as_ref().ok_or(Refusal::Full)?;
        hello.fits(&own.cluster, own.address)?;
        if self.served.len() >= SERVED_MAX {
            return Err(Refusal::Full);
        }
        // Only coordinators propose, and their numbers identify them; a member has a region.
        let role = match hello.role {
            Role::Proposer if !is_coordinator(hello.from.region) => Role::Reader,
            Role::Member if hello.from.region == 0 => Role::Reader,
            role => role,
        };
        let rights = match hello.plane {
            Plane::Common => rights_of(role, own.exposed.purpose()),
            Plane::Log => own.permits.rights(&own.exposed, hello.from, role).ok_or(Refusal::NoLog)?,
        };
        Ok((*hello, role, rights))
    }

    fn admit(
        &self,
        id: &Id,
        plane: Plane,
        role: Role,
        rights: Rights,
        introduced: Option<Introduced>,
    ) -> Result<QueuePair, VerbsError> {
        let refused = |errno| VerbsError::failed("rdma_accept", "a request", errno);
        let own = self.own.as_ref().ok_or(refused(libc::ENOTCONN))?;
        let size = Size { sends: 1, receives: 1, inline_bytes: 0 };
        let domain = match plane {
            Plane::Common => self.nic.domain(),
            Plane::Log => own.exposed.log_domain().ok_or(refused(libc::ENOTCONN))?,
        };
        let pair = QueuePair::new(domain, Kind::Reliable, &self.idle, &self.idle, size)?;
        id.init(&pair, rights)?;
        id.ready(&pair, self.reads, self.retry)?;
        let welcome = Welcome {
            generation: own.address.generation,
            keys: own.exposed.keys(role),
            gid: self.nic.choice().gid.gid,
            lid: self.nic.choice().port_facts.lid,
            queue_pair: own.datagrams.number(),
            qkey: own.qkey,
            tokens: own.tokens,
            clock: clock::now(),
        };
        let data = match (introduced, &own.sealed) {
            (Some(introduced), Some((_, datagram_key))) => introduced.seal(&welcome, datagram_key),
            (None, None) => Some(welcome.encode()),
            _ => None,
        };
        let data = data.ok_or(VerbsError::failed("rdma_accept", "a request", libc::EPROTO))?;
        id.accept(&pair, &Offer { reads: self.reads, retries: self.retry.count, data: &data })?;
        Ok(pair)
    }

    fn joined(&mut self, key: Key, joined: &Joined) {
        let Some(member) = self.members.get(&key) else { return };
        let index = member.index;
        let Some(own) = &self.own else { return };
        let is_member = own.groups & 1 << index != 0;
        let attached = if is_member { own.datagrams.attach(joined.group, joined.lid) } else { Ok(()) };
        match attached.and_then(|()| joined.handle(self.nic.domain())) {
            Ok(handle) => {
                let choice = self.nic.choice();
                let place = joined.destination(&choice.device, choice.port);
                self.report(ConnectorEvent::Group {
                    index,
                    handle,
                    number: joined.number,
                    qkey: joined.qkey,
                    place,
                });
            }
            Err(error) => self.report(ConnectorEvent::GroupLost { index, error: error.to_string() }),
        }
    }
}

const fn is_coordinator(region: u32) -> bool {
    region >= 1 && region as usize <= PROPOSERS_MAX
}

impl Drop for Connector {
    fn drop(&mut self) {
        for served in self.served.values() {
            // Informs the peer now instead of by a timeout, which is the fallback.
            let _ = served.id.disconnect();
        }
        for member in self.members.values() {
            let _ = member.id.leave(member.group);
        }
    }
}
