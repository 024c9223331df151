//! The gateway of a host. Three threads:
//!
//! - the thread that calls [`serve`] has a region and watches the processes of its host, as every
//!   member does, on behalf of the processes of other hosts;
//! - `obol-admit` accepts connections and checks certificates, so that strangers take no time from
//!   those that were admitted;
//! - `obol-serve` executes operations and delivers datagrams.

mod admit;
mod server;
mod session;

use super::config::Config;
use super::identity::{Duty, Identity, IdentityError};
use crate::atomic::AtomicU64;
use crate::contract::{Event, Evidence, Fabric, Machine};
use crate::drive::Drive;
use crate::endpoint::{Owner, Wait};
use crate::host::region::Region;
use crate::host::table::GATEWAY_FLAG;
use crate::host::wake::Wake;
use crate::host::{Cluster, HostError, clock};
use crate::metrics::{self, COUNTER_WORDS, CounterSlot};
use crate::slots;
use crate::types::{Address, Instant, Name, Nanos, RegionOwner};
use admit::Admission;
use server::Server;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::thread::Builder;

/// Why a gateway cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The cluster on this host is not available.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The host's keys cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate does not make this host a gateway of its number.
    #[error(
        "the certificate of this host does not allow a gateway of host {host}; `obol host keys` makes new ones"
    )]
    NotAllowed {
        /// The host's number.
        host: u8,
    },
    /// The host is not in the configuration.
    #[error("host {host} has no gateway in the file of hosts")]
    NoSuchHost {
        /// The host's number.
        host: u8,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {error}; another gateway may run there")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The error.
        error: std::io::Error,
    },
}

slots! {
    /// The counters of a gateway, in its region.
    GatewayCounter: CounterSlot {
        /// Processes that were admitted.
        Admitted(56) = "admitted",
        /// Connections that ended before the process had introduced itself.
        Strangers(57) = "strangers",
        /// Processes whose certificate, cluster or layout did not fit.
        Refused(58) = "refused",
        /// Sessions that were ended for an invalid message.
        Invalid(59) = "invalid",
        /// Operations that the peer's role does not allow.
        Denied(60) = "denied",
    }
}

/// The counters in the gateway's region. Each is written by one thread.
#[derive(Clone)]
struct Counts {
    region: Region,
    at: u32,
}

impl Counts {
    fn add(&self, counter: GatewayCounter) {
        if let Some(word) =
            counters(&self.region, self.at).get(usize::from(CounterSlot::from(counter).number()))
        {
            metrics::add(word, 1);
        }
    }
}

fn counters(region: &Region, at: u32) -> &[AtomicU64] {
    region.part(at, COUNTER_WORDS * 8)
}

/// What the running gateway of this host has counted, in the order of [`GatewayCounter::ALL`].
pub fn counted(cluster: &Cluster) -> Option<Vec<u64>> {
    let region = Region::open(cluster, cluster.gateway()?.number).ok()?;
    let words = metrics::snapshot(counters(&region, cluster.layout().counters(0)));
    let value =
        |counter: &GatewayCounter| words.get(usize::from(CounterSlot::from(*counter).number())).copied();
    GatewayCounter::ALL.iter().map(value).collect()
}

/// What the other threads hand to the serving one.
enum Input {
    Admitted(Box<Admission>),
    Death(Address, Evidence),
}

/// What the serving thread asks of the watching one.
enum WatchCommand {
    Watch(Address),
    Unwatch(Address),
}

/// The sending side of an inbox of the serving thread.
#[derive(Clone)]
struct Inputs {
    sender: mpsc::Sender<Input>,
    wake: Arc<Wake>,
}

impl Inputs {
    fn put(&self, input: Input) {
        // The serving thread ends last.
        let _ = self.sender.send(input);
        self.wake.wake();
    }
}

/// Passes deaths on.
struct Relay(Inputs);

impl Machine for Relay {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, _: &mut F) {
        if let Event::Death { who, evidence } = event {
            self.0.put(Input::Death(who, evidence));
        }
    }
}

/// The interval at which the gateway's threads have to show that they run.
const PULSE_EVERY: Nanos = Nanos::from_millis(500);

/// A thread that another one expects to turn its loop after a wake-up.
struct Pulse<'a> {
    wake: &'a Wake,
    /// Turns of the loop.
    turns: &'a AtomicU64,
    seen: u64,
}

impl<'a> Pulse<'a> {
    fn new(wake: &'a Wake, turns: &'a AtomicU64) -> Self {
        Self { wake, turns, seen: 0 }
    }

    /// Whether the loop has turned since the last call that found so.
    fn take(&mut self) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        let turned = turns != self.seen;
        self.seen = turns;
        self.wake.wake();
        turned
    }
}

/// Serves the regions of this host to the processes of others until `stop` is set and this thread
/// gets a signal. `notes` takes the annotations of other hosts, as far as it has room; none is taken
/// without it. `ready` is called with the address once it listens; `alive` about twice a second from
/// then on, as long as the loops of all threads turn.
pub fn serve(
    cluster: &Cluster,
    name: Name,
    config: &Config,
    stop: &AtomicBool,
    notes: Option<SyncSender<Vec<u8>>>,
    ready: impl FnOnce(SocketAddr),
    alive: impl FnMut(),
) -> Result<(), GatewayError> {
    let host = cluster.host();
    let address = config.gateway(host).ok_or(GatewayError::NoSuchHost { host })?;
    let version = admit::version(&config.identity);
    let identity = Identity::load(&config.identity)?;
    let claims = identity.claims(cluster.nonce())?;
    if claims.host != host || !claims.allow(Duty::Gateway) {
        return Err(GatewayError::NotAllowed { host });
    }
    let kernel = |doing| move |error| HostError::Kernel { doing, error };
    let listen = |error| GatewayError::Listen { address, error };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;

    let owner = Owner { kind: 0, name, region: None, groups: GATEWAY_FLAG };
    let mut endpoint = crate::shm::Endpoint::open(cluster, owner, Wait::Block)?;
    let own = endpoint.address();
    let me = RegionOwner { region: own.region, generation: own.generation };
    let counts = Counts { region: endpoint.region().clone(), at: cluster.layout().counters(0) };
    let (sender, inputs) = mpsc::channel();
    let (commands, watch_commands) = mpsc::channel();
    let wake = Arc::new(Wake::new().map_err(kernel("make an event descriptor"))?);
    let inbox = Inputs { sender, wake: Arc::clone(&wake) };
    let ended = AtomicBool::new(false);
    let server =
        Server::new(cluster, endpoint.region(), me, config, (inputs, Arc::clone(&wake)), counts.clone())
            .map_err(kernel("wait for connections"))?
            .with_watcher(commands, endpoint.waker())
            .with_notes(notes);
    let admit_wake = Wake::new().map_err(kernel("make an event descriptor"))?;
    let mut admit =
        admit::Admit::new(listener, (&identity, version), cluster, config, inbox.clone(), counts)?;

    let turns = [AtomicU64::new(0), AtomicU64::new(0)];
    let [served, admitted] = &turns;
    std::thread::scope(|scope| {
        let serving =
            Builder::new().name("obol-serve".to_owned()).spawn_scoped(scope, || server.run(&ended, served));
        let admitting = Builder::new()
            .name("obol-admit".to_owned())
            .spawn_scoped(scope, || admit.run(&ended, &admit_wake, admitted));
        let started = serving.and(admitting).map_err(kernel("start a thread"));
        if started.is_ok() {
            ready(address);
            let threads = [Pulse::new(&wake, served), Pulse::new(&admit_wake, admitted)];
            watch(&mut endpoint, inbox, stop, &watch_commands, (threads, alive));
        }
        ended.store(true, Ordering::Release);
        wake.wake();
        admit_wake.wake();
        started.map(drop)
    })?;
    Ok(())
}

/// Watches processes for the serving thread until `stop` is set.
fn watch(
    endpoint: &mut crate::shm::Endpoint,
    inbox: Inputs,
    stop: &AtomicBool,
    commands: &mpsc::Receiver<WatchCommand>,
    (mut threads, mut alive): ([Pulse<'_>; 2], impl FnMut()),
) {
    let mut due = Instant::ZERO;
    endpoint.run(&mut Relay(inbox), stop, |_, endpoint| {
        for command in commands.try_iter() {
            match command {
                WatchCommand::Watch(whom) => endpoint.watch(whom),
                WatchCommand::Unwatch(whom) => endpoint.unwatch(whom),
            }
        }
        let now = clock::now();
        if due <= now {
            due = now + PULSE_EVERY;
            // Each is woken, also if an earlier one hangs.
            if threads.iter_mut().fold(true, |all, thread| thread.take() & all) {
                alive();
            }
        }
    });
}
