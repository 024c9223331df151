//! IP as a [`Transport`]: regions of this host by shared memory, those of others by the links to
//! their gateways.

use super::config::Config;
use super::connect::{Attempt, connect};
use super::frame::{Hello, OPERATION_BYTES_MAX, Request, Seat, Target, take_sender};
use super::link::{Link, Outcome, Pending, What};
use super::poller::Poller;
use super::pulse_word::{self, PulseWord};
use obol_fabric::contract::{Evidence, LinkError, Remote, Token};
use obol_fabric::endpoint::{Done, Endpoint, Owner, Received, RemoteDeaths, Taken, Transport, Wait};
use obol_fabric::host::{
    Cluster, GATEWAY_FLAG, HostError, MAILBOX_FLAG, MappedRegions, REGIONS, Region, clock,
};
use obol_fabric::layout::Layout;
use obol_fabric::rights::{Change, Role};
use obol_fabric::shm::Memory;
use obol_fabric::types::{Address, Instant};
use obol_fabric::version::Release;
use obol_identity::{Duty, Identity, IdentityError};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::Duration;

/// Connecting to a gateway may take this many detection bounds, and at least [`CONNECT_MIN`].
const CONNECT_FACTOR: u32 = 8;
const CONNECT_MIN: Duration = Duration::from_millis(500);

/// Why an endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The cluster or region of this host is not available.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The host's keys cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The host's certificate does not allow the process.
    #[error(
        "the certificate of this host does not allow {duty} on host {host}; `obol host keys` makes new ones"
    )]
    NotAllowed {
        /// What the process would be.
        duty: Duty,
        host: u8,
    },
    /// The region is another host's.
    #[error(
        "coordinator {number} belongs to {}, and this is host {host}; compare the file of hosts",
        .of.map_or("no host".to_owned(), |of| format!("host {of}"))
    )]
    Elsewhere {
        /// The coordinator.
        number: u32,
        /// The number of its host, if it has one.
        of: Option<u8>,
        /// The number of this host.
        host: u8,
    },
}

/// The state of a link, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The other host's number.
    pub host: u8,
    /// Its gateway.
    pub to: SocketAddr,
    pub connected: bool,
    /// The reason why it is not, if an error occurred.
    pub trouble: Option<String>,
}

/// An endpoint's access to the regions of all hosts.
pub struct Ip {
    own: Address,
    host: u8,
    layout: Layout,
    config: Config,
    hello: Hello,
    region: Region,
    local: Memory,
    /// The own host's gateway, once it has delivered something.
    gateway: Option<Address>,
    /// By the number of the host.
    links: Vec<Option<Link>>,
    outcome: Outcome,
    /// By region: counts the failures that were delivered.
    epochs: Vec<u32>,
    attempts: (Sender<Attempt>, Receiver<Attempt>),
    poller: Poller,
}

/// The rights of a process on the regions of others.
const fn role(owner: &Owner, config: &Config) -> Role {
    match owner.region {
        Some(_) => Role::Proposer,
        None if config.raises_fences => Role::Fencer,
        None => Role::Member,
    }
}

/// Claims a region of the cluster for the calling thread. Peers of this host may use it as soon
/// as this returns, those of other hosts as long as this host's gateway runs.
pub fn open(cluster: &Cluster, owner: Owner, wait: Wait, config: &Config) -> Result<Endpoint, OpenError> {
    let (host, role) = (cluster.host(), role(&owner, config));
    if let Some(number) = owner.region
        && let of = config.host_of(number)
        && of != Some(host)
    {
        return Err(OpenError::Elsewhere { number, of, host });
    }
    let claims = Identity::load(&config.identity)?.claims(cluster.nonce())?;
    let duty = Duty::of(role);
    if claims.host != host || !claims.allow(duty) {
        return Err(OpenError::NotAllowed { duty, host });
    }
    let flag = if config.keeps_mailbox { MAILBOX_FLAG } else { 0 };
    let owner = Owner { groups: owner.groups | flag, ..owner };
    let taken = Taken::take(cluster, &owner)?;
    match Ip::new(cluster, &taken, config, role) {
        Ok(ip) => {
            let address = ip.own;
            Ok(taken.go_live(cluster, address, ip, wait))
        }
        Err(error) => {
            taken.give_back();
            Err(HostError::Kernel { doing: "wait for connections", error }.into())
        }
    }
}

/// A line for the first loss of a connection, and ever fewer of those that follow.
fn log_lost(host: u8, to: SocketAddr, failures: u32, why: &str) {
    tracing::warn!(
        target: "fabric", host, %to, failures,
        "no connection to the gateway of host {host} at {to}: {why}; connecting again (failures: {failures})"
    );
}

impl Ip {
    /// All links used so far.
    pub fn link_status(&self) -> Vec<LinkStatus> {
        let shown = |link: &Link| LinkStatus {
            host: link.host,
            to: link.to,
            connected: link.stream().is_some(),
            trouble: link.trouble.clone(),
        };
        self.links.iter().flatten().map(shown).collect()
    }

    fn new(cluster: &Cluster, taken: &Taken<'_>, config: &Config, role: Role) -> std::io::Result<Self> {
        let me = taken.sender;
        let layout = *cluster.layout();
        let (nonce, digest) = (cluster.nonce(), layout.digest());
        let hosts = config.gateways.len() + 1;
        Ok(Self {
            own: config.address(me.region, me.generation),
            host: cluster.host(),
            layout,
            config: config.clone(),
            hello: Hello {
                nonce,
                layout: digest,
                release: Release::own(),
                region: me.region,
                generation: me.generation,
                role,
            },
            region: taken.region.clone(),
            local: Memory::new(cluster, &taken.region, me),
            gateway: None,
            links: (0..hosts).map(|_| None).collect(),
            outcome: Outcome::default(),
            epochs: vec![0; REGIONS as usize],
            attempts: mpsc::channel(),
            poller: Poller::start(taken.region.clone())?,
        })
    }

    /// The link to a host, which exists, and an attempt to connect if one is due.
    fn link(&mut self, host: u8) -> Option<&mut Link> {
        let (to, detection) = (self.config.gateway(host)?, self.config.detection);
        let from = self.config.gateway(self.host).map(|gateway| gateway.ip());
        let link =
            self.links.get_mut(usize::from(host))?.get_or_insert_with(|| Link::new(host, to, detection));
        if link.stream().is_none()
            && let Some(number) = link.begin(clock::now())
        {
            let (config, hello, region) = (self.config.clone(), self.hello, self.region.clone());
            let results = self.attempts.0.clone();
            let (failures, trouble) = link.failures();
            let patience = (config.detection.to_std() * CONNECT_FACTOR).max(CONNECT_MIN);
            let started = Builder::new().name("obol-connect".to_owned()).spawn(move || {
                if let Some(why) = trouble.filter(|_| failures.is_power_of_two()) {
                    log_lost(host, to, failures, &why);
                }
                let result = connect(from, to, host, &config.identity, &hello, patience);
                if result.is_ok() {
                    tracing::info!(target: "fabric", host, %to, failures, "connected to the gateway of host {host} at {to}");
                }
                // The endpoint may have been closed meanwhile.
                let _ = results.send(Attempt::new(host, number, result));
                region.ring();
            });
            if let Err(error) = started {
                link.lose(format!("cannot start a thread: {error}"), clock::now(), &mut self.outcome);
            }
        }
        Some(link)
    }

    /// The host of a region, if it is another one.
    fn elsewhere(&self, at: Address) -> Option<u8> {
        self.config.host_of(at.region).filter(|host| *host != self.host)
    }

    /// Posts an operation to a region of another host.
    fn post<'b>(
        &mut self,
        remote: Remote,
        token: Token,
        what: What,
        len: usize,
        request: impl FnOnce(Target) -> Request<'b>,
    ) {
        let (at, region) = (remote.at, remote.at.region);
        let end = (remote.offset as usize).checked_add(len);
        let fits = remote.offset.is_multiple_of(8)
            && len <= OPERATION_BYTES_MAX
            && end.is_some_and(|end| end <= self.layout.bytes())
            && u32::from(at.seat) < self.layout.limits().seats;
        let impairment = self.local.regions().impairment(region);
        let broken = self.outcome.broken.contains(&region) || impairment.cut || impairment.operations_fail;
        let epoch = self.epochs.get(region as usize).copied().unwrap_or_default();
        let Some(host) = self.elsewhere(at) else {
            return self.outcome.done.push_back((token, Done::Failed(LinkError::PeerReplaced)));
        };
        if self.link(host).is_none() {
            return self.outcome.done.push_back((token, Done::Failed(LinkError::PeerReplaced)));
        }
        let Some(Some(link)) = self.links.get_mut(usize::from(host)) else { return };
        if !fits {
            return link.refuse(token, region, LinkError::OutOfBounds, &mut self.outcome);
        }
        if broken {
            return link.refuse(token, region, LinkError::PeerDead, &mut self.outcome);
        }
        let request = request(Target { seat: Seat::of(at), offset: remote.offset, epoch });
        link.post(Pending { token, region, what }, &request, clock::now, &mut self.outcome);
    }

    /// An address as the own host's table has it.
    const fn within_host(remote: Remote) -> Remote {
        Remote { at: Address { host: 0, port: 0, ..remote.at }, ..remote }
    }

    /// Takes what has arrived from other hosts.
    fn poll(&mut self, now: Instant) {
        while let Ok(attempt) = self.attempts.1.try_recv() {
            let Some(Some(link)) = self.links.get_mut(usize::from(attempt.host)) else { continue };
            if link.take(attempt, now, &mut self.outcome)
                && let Some(Err(error)) = link.stream().map(|stream| self.poller.add(stream))
            {
                link.lose(error.to_string(), now, &mut self.outcome);
            }
            link.flush(|| now, &mut self.outcome);
        }
        for link in self.links.iter_mut().flatten() {
            link.receive(now, &mut self.outcome);
        }
    }
}

impl Ip {
    fn receive_one(&mut self, bytes: &mut Vec<u8>) -> Received {
        let received = self.local.receive(bytes);
        let Received::Datagram(sender) = received else { return received };
        if self.gateway != Some(sender) {
            let table = &self.local.regions().cluster.table;
            let groups = table.get(sender.region).map_or(0, |entry| entry.role.groups);
            if groups & GATEWAY_FLAG == 0 {
                return Received::Datagram(self.config.address(sender.region, sender.generation));
            }
            self.gateway = Some(sender);
        }
        take_sender(bytes).map_or(Received::Refused, Received::Datagram)
    }

    /// The own gateway reports what the pulses of another host say. A link that is not used yet needs
    /// none of it.
    fn pulsed(&mut self, bytes: &[u8]) {
        let Some(word) = PulseWord::decode(bytes) else { return };
        let (PulseWord::Silent(host) | PulseWord::Died(host, ..) | PulseWord::Vanished(host, _)) = word;
        let Some(Some(link)) = self.links.get_mut(usize::from(host)) else { return };
        match word {
            PulseWord::Silent(_) => link.silenced(clock::now(), &mut self.outcome),
            PulseWord::Died(_, seat, evidence) => {
                link.report(seat, evidence, &mut self.outcome);
            }
            PulseWord::Vanished(_, region) => link.ask_again(region),
        }
    }
}

impl Transport for Ip {
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        if self.is_local(from.at) {
            return self.local.read(Self::within_host(from), len, token);
        }
        self.post(from, token, What::Read, len as usize, |at| Request::Read { at, len });
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        if self.is_local(to.at) {
            return self.local.write(Self::within_host(to), bytes, token);
        }
        self.post(to, token, What::Write, bytes.len(), |at| Request::Write { at, bytes });
    }

    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        if self.is_local(to.at) {
            return self.local.write_unsignaled(Self::within_host(to), bytes, token);
        }
        self.post(to, token, What::WriteUnsignaled, bytes.len(), |at| Request::Write { at, bytes });
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        if self.is_local(at.at) {
            return self.local.cas(Self::within_host(at), expected, desired, token);
        }
        self.post(at, token, What::Cas, 8, |at| Request::Cas { at, expected, desired });
    }

    fn refuse_permit(&mut self, token: Token) {
        self.local.refuse_permit(token);
    }

    fn permit(&mut self, change: Change, token: Token) {
        self.local.permit(change, token);
    }

    fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        if self.is_local(to) {
            return self.local.send(Address { host: 0, port: 0, ..to }, bytes);
        }
        let Some(host) = self.elsewhere(to) else { return false };
        if !self.local.fits(bytes) || self.local.impaired(to.region) != Ok(false) {
            return false;
        }
        self.link(host)
            .is_some_and(|link| link.send(&Request::Datagram { to: Seat::of(to), bytes }, clock::now))
    }

    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        let mut lost = self.local.multicast(bit, bytes);
        if !self.local.fits(bytes) {
            return lost;
        }
        for host in 1..self.links.len() as u8 {
            if host == self.host {
                continue;
            }
            let message = Request::Multicast { groups: bit, bytes };
            let sent = self.link(host).is_some_and(|link| link.send(&message, clock::now));
            lost += u64::from(!sent);
        }
        lost
    }

    fn flush(&mut self) {
        self.local.flush();
        for link in self.links.iter_mut().flatten() {
            link.flush(clock::now, &mut self.outcome);
        }
    }

    /// Datagrams that other hosts' gateways could not deliver.
    fn lost(&mut self) -> u64 {
        core::mem::take(&mut self.outcome.lost)
    }

    fn release_due(&mut self, now: Instant) {
        self.local.release_due(now);
        self.poll(now);
        for link in self.links.iter_mut().flatten() {
            // After what has arrived was taken: this process may have been frozen itself.
            link.check(now, &mut self.outcome);
        }
    }

    fn due(&self) -> Instant {
        let links = self.links.iter().flatten().map(Link::due);
        links.fold(self.local.due(), Instant::min)
    }

    /// Those of other hosts first: see [`Transport::waiting_first`].
    fn complete(&mut self) -> Option<(Token, Done)> {
        self.outcome.done.pop_front().or_else(|| self.local.complete())
    }

    fn recycle(&mut self, done: Done) {
        self.local.recycle(done);
    }

    fn settle(&mut self) {
        self.local.settle();
        for region in self.outcome.broken.drain(..) {
            if let Some(epoch) = self.epochs.get_mut(region as usize) {
                *epoch = epoch.wrapping_add(1);
            }
        }
    }

    fn waiting(&self) -> usize {
        self.local.waiting() + self.outcome.done.len()
    }

    /// Not local ones: what fails at once of what is posted to other hosts comes before them.
    fn waiting_first(&self) -> usize {
        self.outcome.done.len()
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Received {
        loop {
            let received = self.receive_one(bytes);
            if received != Received::Datagram(pulse_word::FROM) {
                return received;
            }
            self.pulsed(bytes);
        }
    }

    fn has_datagrams(&mut self) -> bool {
        self.local.has_datagrams()
    }

    fn regions(&mut self) -> &mut MappedRegions {
        self.local.regions()
    }

    fn is_local(&self, whom: Address) -> bool {
        self.config.host_of(whom.region) == Some(self.host)
    }

    /// Connects again where something waits for it.
    fn tidy(&mut self, now: Instant) {
        self.local.tidy(now);
        for host in 1..self.links.len() as u8 {
            if matches!(self.links.get(usize::from(host)), Some(Some(link)) if link.wants_connection()) {
                self.link(host);
            }
        }
    }

    fn arm(&mut self) -> bool {
        // An attempt may have ended since; what arrives after this rings.
        self.poll(clock::now());
        for link in self.links.iter().flatten() {
            if let Some(stream) = link.stream()
                && self.poller.arm(stream).is_err()
            {
                return false;
            }
        }
        self.waiting() == 0 && self.outcome.deaths.is_empty()
    }
}

impl RemoteDeaths for Ip {
    fn watch(&mut self, whom: Address) {
        let Some(host) = self.elsewhere(whom) else { return };
        if self.link(host).is_some()
            && let Some(Some(link)) = self.links.get_mut(usize::from(host))
        {
            link.watch(whom, &mut self.outcome);
        }
    }

    fn unwatch(&mut self, whom: Address) {
        let Some(host) = self.elsewhere(whom) else { return };
        if let Some(Some(link)) = self.links.get_mut(usize::from(host)) {
            link.unwatch(whom, &mut self.outcome);
        }
    }

    fn death(&mut self) -> Option<(Address, Evidence)> {
        self.outcome.deaths.pop_front()
    }
}
