//! Opening an endpoint over RDMA. The region is a file of this host, as over shared memory, so that
//! attached programs, local observers and persistent acceptor memory work in the same way; in
//! addition it is registered with the device.
#![allow(unsafe_code)]

use super::config::{Config, check_interval, retry_within};
use super::connector::{Connector, Own, Start};
use super::datagrams::Datagrams;
use super::device::DeviceSelector;
use super::error::VerbsError;
use super::exposed::{Exposed, Purpose, Role};
use super::handshake::Identity;
use super::introduction::{Count, TicketGate, Tickets};
use super::link::{DEPTH, INLINE_BYTES};
use super::nic::Nic;
use super::ops::{OPS_MAX, Ops};
use super::outbox::Outbox;
use super::pair::Size;
use super::permits::Permits;
use super::queue::{CompletionChannel, CompletionQueue, WorkCompletion};
use super::registration::Memory;
use super::sealing::DatagramKey;
use super::sys::RDMA_UDP_QKEY;
use super::threads::Threads;
use super::watch::OwnerWatches;
use super::wire::{BATCH, Groups, MEET_EVERY_MIN, Rdma};
use core::sync::atomic::AtomicU64;
use obol_fabric::endpoint::{Endpoint, Owner, Taken, Wait};
use obol_fabric::host::{Cluster, HostError, MappedRegions, REGIONS, Region, Wake};
use obol_fabric::layout::{Layout, PROPOSERS_MAX};
use obol_fabric::metrics::{self, COUNTER_WORDS, CounterSlot, FabricCounter};
use obol_fabric::rights::lies_in;
use obol_fabric::types::{Address, Instant, RegionOwner, host_bits, ip_of};
use obol_identity::{Admit, Duty, Need, ServerKeys};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// The minimum size of operations whatever the limits: members also write to mailboxes, not only
/// views.
const OPERATION_BYTES: u32 = 4096;
/// The maximum size of the few operations of a process with a mailbox that concern more of the value
/// areas at once: a replica READs all rings of another one.
const BULK_BYTES_MAX: u32 = 4 << 20;

// SAFETY: a region's mapping is never moved or replaced, is held by every clone of it, and was made
// for writing: one that is mapped for reading only is an `Observed` and gives no `Region` away.
unsafe impl Memory for Region {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Why an endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The cluster or region of this host is not available.
    #[error("{0}")]
    Shm(#[from] HostError),
    /// The device is not available, or lacks a capability.
    #[error("{0}")]
    Verbs(#[from] VerbsError),
    /// The configuration is invalid.
    #[error("{field}: {fault}")]
    Config {
        field: &'static str,
        /// The fault, with a remedy.
        fault: String,
    },
}

impl Config {
    fn check_owner(&self, owner: &Owner) -> Result<(), OpenError> {
        let wrong = |field, fault: String| Err(OpenError::Config { field, fault });
        let Some(number) = owner.region else { return Ok(()) };
        if self.keeps_mailbox {
            return wrong(
                "keeps_mailbox",
                format!("coordinator {number} decides views where its mailbox would be; leave it to members"),
            );
        }
        match self.coordinators.get((number as usize).wrapping_sub(1)) {
            Some(place) if *place == self.listen => Ok(()),
            Some(place) => {
                wrong("listen", format!("coordinator {number} is to listen at {place}, as its entry says"))
            }
            None => wrong(
                "coordinators",
                format!("there is no entry for coordinator {number}; add where it listens"),
            ),
        }
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let wrong = |field, fault: String| Err(OpenError::Config { field, fault });
        if self.coordinators.len() > PROPOSERS_MAX {
            let n = self.coordinators.len();
            return wrong("coordinators", format!("{n} of them, but a cluster has at most {PROPOSERS_MAX}"));
        }
        if self.listen.ip().is_unspecified() {
            return wrong(
                "listen",
                "give an address of the device; it also says which device is used".to_owned(),
            );
        }
        if let Some(group) = self.groups.iter().find(|group| !group.is_multicast()) {
            let fault =
                format!("{group} is not a multicast address; choose two, such as 239.0.0.1 and 239.0.0.2");
            return wrong("groups", fault);
        }
        if self.groups[0] == self.groups[1] {
            return wrong("groups", "both are the same; choose two multicast addresses".to_owned());
        }
        Ok(())
    }

    /// The address of a region's owner: for a coordinator as configured, for others from the
    /// address itself.
    pub(super) fn place(&self, at: Address) -> Option<SocketAddr> {
        if at.host != 0 {
            return Some(SocketAddr::new(ip_of(at.host), at.port));
        }
        self.coordinators.get((at.region as usize).checked_sub(1)?).copied()
    }
}

/// Claims a region of the cluster for the calling thread and exposes it on an RDMA device.
/// Peers may use it as soon as this returns. The port joins the groups in the background: see
/// [`Rdma::is_in_groups`].
pub fn open(cluster: &Cluster, owner: Owner, wait: Wait, config: &Config) -> Result<Endpoint, OpenError> {
    config.check()?;
    config.check_owner(&owner)?;
    // Before any resource is taken: most errors occur here.
    let selector = DeviceSelector { address: Some(config.listen.ip()), ..config.device.clone() };
    let nic = Arc::new(Nic::open(&selector, config.traffic_class)?);
    let taken = Taken::take(cluster, &owner)?;
    match Rdma::open(cluster, &taken, &owner, &nic, config) {
        Ok(rdma) => {
            let address = rdma.own;
            Ok(taken.go_live(cluster, address, rdma, wait))
        }
        Err(error) => {
            taken.give_back();
            Err(error)
        }
    }
}

/// Whether the log, if there is one, lies where peers may WRITE.
fn check_log(config: &Config, purpose: Purpose, layout: &Layout) -> Result<(), OpenError> {
    let Some(part) = &config.log else { return Ok(()) };
    let (values, begin, end) = (layout.values(), part.start, part.end);
    let fits = begin < end
        && lies_in(&values, begin, end - begin)
        && begin.is_multiple_of(8)
        && end.is_multiple_of(8);
    let fault = match purpose {
        Purpose::Plain => "a process without a mailbox has no log; set keeps_mailbox".to_owned(),
        _ if fits => return Ok(()),
        _ => format!(
            "bytes {begin} to {end} are not words of the value areas, which are bytes {} to {}",
            values.start, values.end
        ),
    };
    Err(OpenError::Config { field: "log", fault })
}

/// The address of this process for peers.
fn own_address(sender: RegionOwner, owner: &Owner, config: &Config, port: u16) -> Address {
    let RegionOwner { region, generation, .. } = sender;
    if owner.region.is_some() {
        // Coordinators are identified by their numbers; their addresses are in everyone's
        // configuration.
        return Address { generation, ..Address::region(region) };
    }
    Address { host: host_bits(config.listen.ip()), port, seat: 0, region, generation }
}

/// The rights of peers on the region, and of this process on theirs.
fn duties(owner: &Owner, config: &Config) -> (Purpose, Role) {
    if owner.region.is_some() {
        return (Purpose::Acceptor, Role::Proposer);
    }
    let purpose = if config.keeps_mailbox { Purpose::Mailbox } else { Purpose::Plain };
    (purpose, if config.raises_fences { Role::Fencer } else { Role::Member })
}

/// Where peers introduce themselves.
struct IntroductionListener {
    at: SocketAddr,
    listener: TcpListener,
    keys: ServerKeys,
    coordinators: Vec<u8>,
    hosts: Vec<IpAddr>,
    tickets: Arc<Tickets>,
    datagram_key: DatagramKey,
    count: Count,
}

impl IntroductionListener {
    /// `None` without keys. Those that do not allow what the process will claim are refused here,
    /// not by each peer.
    fn open(
        cluster: &Cluster,
        region: &Region,
        owner: &Owner,
        config: &Config,
    ) -> Result<Option<Self>, OpenError> {
        let Some(host) = &config.keys else { return Ok(None) };
        let wrong = |field, fault: String| OpenError::Config { field, fault };
        let duty = Duty::of(duties(owner, config).1);
        let keys =
            ServerKeys::load(&host.directory, Need { nonce: cluster.nonce(), host: cluster.host(), duty })
                .map_err(|error| wrong("keys", error.to_string()))?;
        let listening = |error: std::io::Error| {
            let at = config.listen;
            wrong("listen", format!("cannot listen on TCP {at}: {error}; another process may run there"))
        };
        let listener = TcpListener::bind(config.listen).map_err(listening)?;
        let at = listener.local_addr().map_err(listening)?;
        let datagram_key = DatagramKey::draw().ok_or_else(|| {
            wrong("keys", "the system has no random bytes for the own datagrams".to_owned())
        })?;
        let count = counts(region, cluster.layout());
        let tickets = Arc::new(Tickets::new(Arc::clone(&count)));
        let (coordinators, hosts) = (host.coordinators.clone(), host.hosts.clone());
        Ok(Some(Self { at, listener, keys, coordinators, hosts, tickets, datagram_key, count }))
    }

    fn sealed(&self) -> (Arc<Tickets>, DatagramKey) {
        (Arc::clone(&self.tickets), self.datagram_key.clone())
    }

    fn admit(self, cluster: Identity, own: Address) -> Admit<TicketGate> {
        let Self { listener, keys, tickets, coordinators, hosts, .. } = self;
        let gate = TicketGate { tickets, cluster, own, coordinators, hosts };
        Admit::new(listener, keys, cluster.nonce, gate)
    }
}

/// Counts in the region of this process. Each counter has one thread.
fn counts(region: &Region, layout: &Layout) -> Count {
    let (region, at) = (region.clone(), layout.counters(0));
    Arc::new(move |counter: FabricCounter| {
        let words = region.part(at, COUNTER_WORDS * 8);
        if let Some(word) = words.get(usize::from(CounterSlot::from(counter).number())) {
            metrics::add(word, 1);
        }
    })
}

impl Rdma {
    fn open(
        cluster: &Cluster,
        taken: &Taken<'_>,
        owner: &Owner,
        nic: &Arc<Nic>,
        config: &Config,
    ) -> Result<Self, OpenError> {
        let layout = *cluster.layout();
        let (purpose, role) = duties(owner, config);
        check_log(config, purpose, &layout)?;
        let identity = Identity::new(cluster.nonce(), &layout);
        let place = (config.pages, nic.choice().numa_node);
        let channel = CompletionChannel::new(nic.context())?;
        let completions = CompletionQueue::new(nic.context(), OPS_MAX, Some(&channel))?;
        let datagram_bytes = layout.limits().datagram_bytes as usize;
        let mut datagrams =
            Datagrams::new(nic, &channel, RDMA_UDP_QKEY, identity.nonce, datagram_bytes, place)?;
        let (commands, command_rx) = mpsc::channel();
        let (tx, events) = mpsc::channel();
        let has_events = Arc::new(AtomicBool::new(false));
        let kernel = |error| HostError::Kernel { doing: "start a thread", error };
        let wake = Arc::new(Wake::new().map_err(kernel)?);
        let mut connector = Connector::new(Start {
            nic,
            config,
            cluster: identity,
            sends: &completions,
            size: Size { sends: DEPTH, receives: 1, inline_bytes: INLINE_BYTES },
            commands: command_rx,
            events: tx,
            has_events: Arc::clone(&has_events),
            bell: Some(taken.region.clone()),
            wake: Arc::clone(&wake),
        })?;
        let introductions = IntroductionListener::open(cluster, &taken.region, owner, config)?;
        // Both ports have the same number.
        let listen = introductions.as_ref().map_or(config.listen, |introductions| introductions.at);
        let port = connector.bind(listen)?;
        let own = own_address(taken.sender, owner, config, port);
        let config = Config { listen: SocketAddr::new(config.listen.ip(), port), ..config.clone() };
        datagrams.set_own(own);
        if let Some(introductions) = &introductions {
            datagrams.seal_with(introductions.datagram_key.clone(), Arc::clone(&introductions.count));
        }
        let memory = Arc::new(taken.region.clone()) as Arc<dyn Memory>;
        let own_side = Own {
            cluster: identity,
            address: own,
            role,
            exposed: Exposed::with_log(nic.domain(), &memory, &layout, purpose, config.log.clone())?,
            permits: Permits::new(&layout, config.log.clone()),
            datagrams: Arc::clone(&datagrams.pair),
            qkey: RDMA_UDP_QKEY,
            groups: owner.groups,
            tokens: taken.tokens.unwrap_or_default(),
            sealed: introductions.as_ref().map(IntroductionListener::sealed),
        };
        connector.serve(own_side, config.groups)?;
        let bytes_max = layout.view_bytes().max(layout.limits().value_bytes).max(OPERATION_BYTES) as usize;
        let values = layout.values();
        let bulk = config.keeps_mailbox.then(|| (values.end - values.start).min(BULK_BYTES_MAX) as usize);
        let mut threads = Threads::start(connector, &wake).map_err(kernel)?;
        if let Some(introductions) = introductions {
            threads.admit(introductions.admit(identity, own)).map_err(kernel)?;
        }
        threads.sleep_on(channel, taken.region.clone()).map_err(kernel)?;
        Ok(Self {
            own,
            host: cluster.host(),
            layout,
            local: MappedRegions::new(cluster.clone(), taken.sender, taken.region.clone()),
            links: (0..REGIONS).map(|_| None).collect(),
            ops: Ops::new(nic.domain(), bytes_max, bulk, place)?,
            completions,
            batch: vec![WorkCompletion::default(); BATCH].into(),
            datagrams,
            outbox: Outbox::new(datagram_bytes),
            lost: 0,
            groups: Groups::default(),
            watches: OwnerWatches::default(),
            broken: Vec::with_capacity(REGIONS as usize),
            broken_logs: Vec::new(),
            starved: VecDeque::with_capacity(REGIONS as usize),
            held: Vec::with_capacity(REGIONS as usize),
            limbo: Vec::new(),
            attempts: 0,
            check_every: check_interval(retry_within(config.detection)),
            check_at: Instant::ZERO,
            commands,
            events,
            has_events,
            threads,
            meet_at: Instant::ZERO,
            meet_every: MEET_EVERY_MIN,
            config,
        })
    }
}
