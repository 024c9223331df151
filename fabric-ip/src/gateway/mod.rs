//! The gateway of a host. Its threads:
//!
//! - the thread that calls [`serve`] has a region and watches the processes of its host, as every
//!   member does, on behalf of the processes of other hosts; with pulses it sends notices of deaths;
//! - `obol-admit` accepts connections and checks certificates, so that strangers take no time from
//!   those that were admitted;
//! - `obol-serve` executes operations and delivers datagrams;
//! - `obol-pulse` sends pulses and judges those of other hosts, if the profile has them. Then there is
//!   one more thread for each other host, whose connection there provides the keys.

mod admit;
mod budget;
mod pulse;
mod server;
mod session;
mod tracked;

use super::config::Config;
use admit::{Admission, Admitter};
use core::sync::atomic::AtomicU64;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use obol_fabric::contract::{Event, Evidence, Fabric, Machine};
use obol_fabric::endpoint::{Owner, Wait};
use obol_fabric::host::sched::{self, Slice};
use obol_fabric::host::soft_limit;
use obol_fabric::host::{Cluster, GATEWAY_FLAG, HostError, Region, Wake, clock};
use obol_fabric::metrics::{self, COUNTER_WORDS, CounterSlot};
use obol_fabric::slots;
use obol_fabric::types::{Address, Instant, Name, Nanos, RegionOwner};
use obol_identity::{Admit, Duty, IdentityError, Need, ServerKeys};
pub(crate) use pulse::{BareDatagrams, SessionKey};
use pulse::{Informant, PulseOutlets, PulseThread, Pulses, start_sessions};
pub use pulse::{
    PulseBlock, PulseDelays, PulseFrame, PulsePath, PulsePathState, PulsePeer, PulseReport, PulseReports,
};
use server::{Incoming, Server};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::thread::Builder;
use tracked::Tracked;

/// Why a gateway cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The cluster on this host is not available.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The host's keys cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The host is not in the configuration.
    #[error("host {host} has no gateway in the file of hosts")]
    NoSuchHost { host: u8 },
    /// It cannot listen.
    #[error("cannot listen on {address}: {error}; another gateway may run there")]
    Listen { address: SocketAddr, error: std::io::Error },
}

slots! {
    /// The counters of a gateway, in its region.
    GatewayCounter: CounterSlot {
        /// Processes that were admitted.
        Admitted(56) = "admitted",
        /// Connections that ended before the process had introduced itself.
        Strangers(57) = "strangers",
        /// Handshakes that were given up for later ones, because the connections of one address, or of all
        /// addresses outside of the cluster, were too many.
        Crowded(50) = "crowded",
        /// Times that a host had used its share of a turn, so that its further requests waited for the next
        /// one.
        Throttled(51) = "throttled",
        /// Datagrams of other hosts' processes that were lost, mostly because the receiver had not taken
        /// earlier ones of the same host.
        LanesFull(49) = "lanes_full",
        /// Sessions that were ended because the process took none of its answers for 10 seconds.
        Stalled(52) = "stalled",
        /// Sessions of observers that were ended for a later one, because those of their host were too many.
        Evicted(53) = "evicted",
        /// Watches that were refused: of observers, of processes that are not of this host, or too many.
        WatchesRefused(54) = "watches_refused",
        /// Connections that ended before the process had introduced itself, while the gateway was stopped
        /// or got no time: no strangers.
        Missed(55) = "missed",
        /// Processes whose certificate, cluster or layout did not fit.
        Refused(58) = "refused",
        /// Sessions that were ended for an invalid message.
        Invalid(59) = "invalid",
        /// Operations that the peer's role does not allow.
        Denied(60) = "denied",
        /// Suspicions of a host because no pulse of it arrived within the profile's `pulse.timeout`.
        PulseSilences(61) = "pulse_silences",
        /// Times that a path delivered no pulses of a host while another path did.
        PulsePathsLost(62) = "pulse_paths_lost",
        /// Datagrams to the port of pulses that were not authentic, or of a session that has ended.
        PulsesRefused(63) = "pulses_refused",
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
        self.add_all(counter, 1);
    }

    fn add_all(&self, counter: GatewayCounter, count: u64) {
        if let Some(word) =
            counters(&self.region, self.at).get(usize::from(CounterSlot::from(counter).number()))
        {
            metrics::add(word, count);
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
    /// The answer of the gateway's program to the question of a session.
    Answer(u64, Vec<u8>),
}

/// What other threads ask of the watching one.
enum WatchCommand {
    Watch(Address, Arc<()>),
    /// The second part of both is kept until they are carried out, see [`budget`].
    Unwatch(Address, Arc<()>),
    /// Seal notices to a host with this key.
    SealFor(u8, Arc<SessionKey>),
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
struct Relay {
    inbox: Inputs,
    tracked: Option<Tracked>,
}

impl Machine for Relay {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, _: &mut F) {
        if let Event::Death { who, evidence } = event {
            // First, because it goes over the network.
            if let Some(tracked) = &mut self.tracked {
                tracked.died(who, evidence);
            }
            self.inbox.put(Input::Death(who, evidence));
        }
    }
}

/// Commands that the watching thread carries out before it looks for deaths again.
const COMMANDS_OF_TURN: usize = 64;

/// The interval at which the gateway's threads have to show that they run.
const SHOW_EVERY: Nanos = Nanos::from_millis(500);

/// A thread that another one expects to turn its loop after a wake-up.
struct Liveness<'a> {
    wake: &'a Wake,
    /// Turns of the loop.
    turns: &'a AtomicU64,
    seen: u64,
}

impl<'a> Liveness<'a> {
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

/// A question of another host to the program of a gateway. If it is dropped, the one who asks waits
/// until it loses patience.
pub struct Question {
    bytes: Vec<u8>,
    session: u64,
    inbox: Inputs,
}

impl Question {
    /// What is asked.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends the answer.
    pub fn answer(self, bytes: Vec<u8>) {
        self.inbox.put(Input::Answer(self.session, bytes));
    }
}

/// Where annotations of other hosts go. What is none is refused.
#[derive(Clone, Debug)]
pub struct Notes {
    /// Takes them, each with the number of its host.
    pub sender: SyncSender<(u8, Vec<u8>)>,
    /// Whether bytes are an annotation.
    pub is_note: fn(&[u8]) -> bool,
}

/// What a gateway hands to its program. None of them is waited for: what finds no room is refused, or
/// lost.
#[derive(Clone, Debug, Default)]
pub struct Outlets {
    /// Annotations of other hosts; none is taken without it.
    pub notes: Option<Notes>,
    /// Questions of other hosts; none is taken without it.
    pub questions: Option<SyncSender<Question>>,
    /// What the pulses show, once a second and at each alarm.
    pub pulses: Option<Arc<PulseReports>>,
    /// Whether these have each frame that arrives, not the second's figures alone.
    pub trace: Arc<AtomicBool>,
}

/// Serves the regions of this host to the processes of others until `stop` is set and this thread
/// gets a signal. `ready` is called with the address once it listens; `alive` about twice a second from
/// then on, as long as the loops of all threads turn.
pub fn serve(
    cluster: &Cluster,
    name: Name,
    config: &Config,
    stop: &AtomicBool,
    outlets: Outlets,
    ready: impl FnOnce(SocketAddr),
    alive: impl FnMut(),
) -> Result<(), GatewayError> {
    let host = cluster.host();
    let address = config.gateway(host).ok_or(GatewayError::NoSuchHost { host })?;
    let readers_max = budget::readers_max(descriptors(), config.gateways.len());
    // For all threads, which run briefly: otherwise the watching one is woken on the core of the process
    // that dies, and waits until its memory is released. An older kernel schedules them like any other.
    let _ = sched::set_slice(None, Slice::Short);
    let keys =
        ServerKeys::load(&config.identity, Need { nonce: cluster.nonce(), host, duty: Duty::Gateway })?;
    let kernel = |doing| move |error| HostError::Kernel { doing, error };
    let listen = |error| GatewayError::Listen { address, error };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;

    let owner = Owner { kind: 0, name, region: None, groups: GATEWAY_FLAG };
    let mut endpoint = obol_fabric::Endpoint::open(cluster, owner, Wait::Block)?;
    let own = endpoint.address();
    let me = RegionOwner { region: own.region, generation: own.generation };
    let counts = Counts { region: endpoint.region().clone(), at: cluster.layout().counters(0) };
    let ((sender, inputs), (commands, watch_commands)) = (mpsc::channel(), mpsc::channel());
    let wake = Arc::new(Wake::new().map_err(kernel("make an event descriptor"))?);
    let inbox = Inputs { sender, wake: Arc::clone(&wake) };
    let ended = Arc::new(AtomicBool::new(false));
    let (pulses, pulsing) = config
        .pulse
        .as_ref()
        .map(|pulse| {
            let pulses = Pulses::default();
            let outlets = PulseOutlets {
                informant: Informant::new(cluster, endpoint.region(), me, config.devices),
                counts: counts.clone(),
                reports: outlets.pulses.clone(),
                trace: Arc::clone(&outlets.trace),
            };
            let threads = PulseThread::new(host, config, pulse, &pulses, outlets);
            (pulses, threads)
        })
        .unzip();
    let (pulse_thread, notices) = pulsing.unzip();
    let watching = commands.clone();
    let server = Server::new(
        cluster,
        endpoint.region(),
        me,
        config,
        readers_max,
        Incoming { inputs, wake: Arc::clone(&wake) },
        counts.clone(),
    )
    .map_err(kernel("wait for connections"))?
    .with_watcher(commands, endpoint.waker())
    .with_notes(outlets.notes)
    .with_questions(outlets.questions.map(|questions| (questions, inbox.clone())))
    .with_pulses(pulses.clone());
    let admit_wake = Wake::new().map_err(kernel("make an event descriptor"))?;
    let gate = Admitter::new(cluster, config, inbox.clone(), counts);
    let mut admit = Admit::new(listener, keys, cluster.nonce(), gate);
    let [served, admitted] = &[AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let serving =
            Builder::new().name("obol-serve".to_owned()).spawn_scoped(scope, || server.run(&ended, served));
        let admitting = Builder::new()
            .name("obol-admit".to_owned())
            .spawn_scoped(scope, || admit.run(&ended, &admit_wake, admitted));
        let pulsing = pulse_thread.map_or(Ok(()), |thread| {
            let (builder, ended) = (Builder::new().name("obol-pulse".to_owned()), &*ended);
            builder.spawn_scoped(scope, move || thread.run(ended)).map(drop)
        });
        let sessions =
            pulses.as_ref().map_or(Ok(()), |to| start_sessions(cluster, config, to, &watching, &ended));
        let started =
            serving.and(admitting).map(drop).and(pulsing).and(sessions).map_err(kernel("start a thread"));
        if started.is_ok() {
            ready(address);
            let threads = [Liveness::new(&wake, served), Liveness::new(&admit_wake, admitted)];
            let relay = Relay { inbox, tracked: notices.map(|notices| Tracked::new(notices, own.region)) };
            watch(&mut endpoint, relay, cluster, stop, &watch_commands, threads, alive);
        }
        ended.store(true, Ordering::Release);
        wake.wake();
        admit_wake.wake();
        started
    })?;
    Ok(())
}

/// Takes all descriptors that the system allows this process. Returns how many.
fn descriptors() -> usize {
    // If that fails, there are as many as before.
    let _ = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    soft_limit(Resource::RLIMIT_NOFILE).and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Watches processes for the serving thread until `stop` is set.
fn watch(
    endpoint: &mut obol_fabric::Endpoint,
    mut relay: Relay,
    cluster: &Cluster,
    stop: &AtomicBool,
    commands: &mpsc::Receiver<WatchCommand>,
    mut threads: [Liveness<'_>; 2],
    mut alive: impl FnMut(),
) {
    let mut due = Instant::ZERO;
    endpoint.run(&mut relay, stop, |Relay { tracked, .. }, endpoint| {
        let mut carried_out = 0;
        for command in commands.try_iter().take(COMMANDS_OF_TURN) {
            carried_out += 1;
            match command {
                WatchCommand::Watch(whom, _paid) => {
                    if let Some(tracked) = tracked {
                        tracked.ask(whom);
                        // Anew, so that a death that was reported before is reported once more.
                        endpoint.unwatch(whom);
                    }
                    endpoint.watch(whom);
                }
                WatchCommand::Unwatch(whom, _paid) => {
                    if tracked.as_mut().is_none_or(|tracked| tracked.drop_asked(whom)) {
                        endpoint.unwatch(whom);
                    }
                }
                WatchCommand::SealFor(host, key) => {
                    if let Some(tracked) = tracked {
                        tracked.notices.seal_for(host, key);
                    }
                }
            }
        }
        if carried_out == COMMANDS_OF_TURN {
            // Deaths go on meanwhile.
            endpoint.waker().wake();
        }
        let now = clock::now();
        if due <= now {
            if let Some(tracked) = tracked {
                tracked.update(cluster, endpoint);
            }
            due = now + SHOW_EVERY;
            // Each is woken, also if an earlier one hangs.
            if threads.iter_mut().fold(true, |all, thread| thread.take() & all) {
                alive();
            }
        }
    });
}
