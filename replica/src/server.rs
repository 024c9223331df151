//! A replica's thread: a member that keeps the log, until it is stopped or cannot serve any more.

use crate::holders::{Holder, seconds};
use crate::marks::{self, MarkOwner};
use crate::{AGAIN_EVERY, ReplicaError, area, join};
use obol_fabric::host::{Waker, clock, sched};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_fabric_verbs::{retry_within, timeout_of};
use obol_node::Site;
use obol_node::endpoint::{self, EndpointError};
use obol_node::network::{Fabric, Network};
use obol_smr::identity::{of_first_log, of_newer_log};
use obol_smr::{
    Active, Actor, Area, Beats, Client, ClientError, Departure, Detector, Grants, Guard, Index, Node, Pace,
    Preset, PullScore, Replica, ReplicaState, Service, Term, Views, Votes,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a replica that sends no part of a snapshot may take before another one is asked.
const CHUNK_TIMEOUT: Nanos = Nanos::from_millis(20);

/// How often a replica looks for what it was not woken up for. A replica that takes over first applies
/// what it has received since its last look.
const IDLE_EVERY: Nanos = Nanos::from_micros(500);

/// How often a replica looks at the counters of others, with preset `mu`: one that stands still for 14
/// looks has failed. On shared cores a process may get none for some ms.
const POLL_INTERVAL: Nanos = Nanos::from_millis(1);
/// Looks after which a counter that stands still has failed.
const LOOKS_TO_FAIL: u64 = 14;

/// The interval of looks, and of heartbeats with preset `dare`. A replica does not fail within a timeout
/// of its RDMA device: a lost packet is sent again only after it, and the profile chose it longer than
/// the pauses of processors.
fn look_every(site: &Site) -> Nanos {
    let deployment = &site.deployment;
    match &deployment.network {
        Some(Network { fabric: Fabric::Rdma, .. }) => {
            let timeout = timeout_of(retry_within(deployment.profile.rdma.detection));
            POLL_INTERVAL.max(Nanos(timeout.0 / LOOKS_TO_FAIL))
        }
        _ => POLL_INTERVAL,
    }
}

/// How long a replica that is to end tries to leave the store to the others.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// How often a replica that lacks a majority looks for the word of an operator that it is to continue alone.
const RECOVERY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often a client beside a replica looks for answers that it was not woken up for.
const BESIDE_POLL_INTERVAL: Nanos = Nanos::from_micros(100);

/// Pause before a client beside a replica that can no longer be used is replaced.
const REPLACE_AFTER: Duration = Duration::from_millis(500);

/// Interval at which a leader's redundancy is reported at most.
const LEADS_EVERY: Duration = Duration::from_millis(50);

/// How a replica runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name, which begins with [`obol_smr::REPLICA_PREFIX`].
    pub name: Name,
    /// How many replicas vote on a new log.
    pub voters: u32,
    /// It keeps no copies, as a baseline for benchmarks.
    pub unreplicated: bool,
    /// It begins a new log even if earlier replicas of this host had one and died, as long as it is the
    /// oldest replica of the cluster and none has a log. What was answered before is lost then, also if
    /// replicas of other hosts have it that are only frozen or cut off: those end when they return. While
    /// replicas of this host are frozen or excluded that have a log, nothing is begun, and the replica ends
    /// with [`ReplicaError::Held`]. So it is set on an operator's word, for the first replica that is started
    /// after all have ended, and never by a program itself.
    pub force_empty: bool,
    /// Its store ends with the command that started it, and is not missed then.
    pub temporary: bool,
    /// Its poll interval; zero keeps a core busy.
    pub poll_every: Nanos,
}

impl Settings {
    const fn whose(&self) -> MarkOwner {
        if self.temporary { MarkOwner::Command } else { MarkOwner::User }
    }
}

/// The log of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// How many replicas vote.
    pub voters: usize,
    /// The newest term.
    pub term: Term,
    /// The newest entry that was applied.
    pub applied: Index,
}

/// To whom a replica's state is reported.
pub trait Observer {
    /// It has a place in the cluster; the handle ends a wait of its thread.
    fn joined(&mut self, _waker: Waker) {}

    /// Its state has changed.
    fn changed(&mut self, _state: ReplicaState, _log: LogState) {}

    /// It is not admitted, because another member has its name. Returns why it is to end for that, if it
    /// is; otherwise it waits.
    fn name_taken(&mut self) -> Option<String> {
        None
    }

    /// Whether a client is to run beside the replica, on its thread and endpoint.
    fn needs_client(&self) -> bool {
        false
    }

    /// Uses that client, after each turn of the thread, which sleeps then: if it is not to,
    /// [`Client::look_soon`] says so.
    fn work(&mut self, _client: &mut Client, _endpoint: &mut Endpoint) {}

    /// That client can no longer be used. Another one follows.
    fn client_failed(&mut self, _error: ClientError) {}

    /// It was stopped, and ends. `departure` says what becomes of the store. Returns whether a later first
    /// replica of this host is to wait for the store instead of beginning an empty one, if this one does not
    /// leave it to others.
    fn leaves(&mut self, _departure: Departure) -> bool {
        false
    }

    /// It continues alone, on an operator's word.
    fn recovers(&mut self) {}

    /// This host cannot note that it has the store. It serves all the same; a later replica may then
    /// begin a new log.
    fn unmarked(&mut self, _error: ReplicaError) {}
}

/// Runs a replica until it is stopped, and reports its state in between.
struct Turns<'a, S, E, G> {
    node: &'a mut Node<S, E, G>,
    site: &'a Site,
    settings: &'a Settings,
    stop: &'a AtomicBool,
    observer: &'a mut dyn Observer,
    area: Area,
    /// When a client that failed is replaced.
    replace_at: Option<Instant>,
    /// Since when it is to end.
    stopped: Option<Instant>,
    /// When it looks next whether it is to continue alone.
    recovery_at: Instant,
}

impl<S: Service, E: Detector, G: Guard> Turns<'_, S, E, G> {
    /// Has the client beside the replica used.
    fn use_client(
        node: &mut Node<S, E, G>,
        observer: &mut dyn Observer,
        area: Area,
        replace_at: &mut Option<Instant>,
        endpoint: &mut Endpoint,
    ) {
        let Some(client) = node.client() else { return };
        match (client.error(), *replace_at) {
            (None, _) => {
                client.look(clock::now(), endpoint);
                // An answer may have ended it.
                if client.error().is_none() {
                    observer.work(client, endpoint);
                }
            }
            (Some(error), None) => {
                *replace_at = Some(Instant::now() + REPLACE_AFTER);
                observer.client_failed(error);
            }
            (Some(_), Some(at)) if Instant::now() >= at => {
                *replace_at = None;
                node.replace_client(clock::now(), client_beside(area), endpoint);
            }
            (Some(_), Some(_)) => {}
        }
    }
}

/// A client that runs beside a replica.
fn client_beside(area: Area) -> Client {
    Client::new(area, obol_agent::seed(), BESIDE_POLL_INTERVAL, AGAIN_EVERY)
}

/// What a replica was until it ended.
struct Life {
    last: ReplicaState,
    /// Whether it ever had the whole state of the store.
    had_store: bool,
    /// Why it is not admitted and has ended.
    refusal: Option<String>,
}

impl<S: Service, E: Detector, G: Guard> Turns<'_, S, E, G> {
    fn run(self, endpoint: &mut Endpoint) -> Life {
        let Self { node, site, settings, stop, observer, area, mut replace_at, mut stopped, mut recovery_at } =
            self;
        observer.joined(endpoint.waker());
        let (done, mut reported) = (AtomicBool::new(false), None);
        let (mut last, mut at, mut had_store) = (ReplicaState::Out, Instant::now(), false);
        let mut refusal = None;
        endpoint.run(node, &done, |node, endpoint| {
            Self::use_client(node, observer, area, &mut replace_at, endpoint);
            let Some(replica) = node.replica() else { return };
            last = replica.state();
            // Those of a leader change without its redundancy when one is dead.
            let voters = replica.config().voters.len();
            // While there are commands on the way, a leader's redundancy changes with each.
            let is_same = |(before, of): (ReplicaState, usize)| {
                let leads = |state| matches!(state, ReplicaState::Leading { ready: true, .. });
                (before, of) == (last, voters) || leads(before) && leads(last) && at.elapsed() < LEADS_EVERY
            };
            if !reported.is_some_and(is_same) {
                (reported, at) = (Some((last, voters)), Instant::now());
                let has_all = matches!(
                    last,
                    ReplicaState::Following { whole: true } | ReplicaState::Leading { ready: true, .. }
                );
                if has_all {
                    had_store = true;
                    settings
                        .whose()
                        .set(site, settings.name)
                        .unwrap_or_else(|error| observer.unmarked(error));
                }
                let (term, applied) = (replica.term(), replica.applied());
                observer.changed(last, LogState { voters, term, applied });
            } else if settings.poll_every == Nanos::ZERO {
                // It polls without a pause, so it yields its core to other processes.
                std::thread::yield_now();
            }
            let is_over = matches!(
                last,
                ReplicaState::Yields
                    | ReplicaState::Misfit
                    | ReplicaState::Unsupported
                    | ReplicaState::Refuses
            );
            let leaves = stop.load(Ordering::Relaxed) && {
                let since = *stopped.get_or_insert_with(Instant::now);
                node.replica_mut().is_none_or(|replica| {
                    replica.retire();
                    replica.departure() != Departure::Pending || since.elapsed() >= LEAVE_WITHIN
                })
            };
            if node.member().is_name_taken() {
                refusal = observer.name_taken();
            }
            let is_refused = refusal.is_some() || node.member().refused_by().is_some();
            if is_over || leaves || is_refused {
                done.store(true, Ordering::Relaxed);
            }
            let is_stalled = node.replica().is_some_and(Replica::is_stalled);
            if is_stalled && Instant::now() >= recovery_at {
                recovery_at = Instant::now() + RECOVERY_POLL_INTERVAL;
                if marks::end_recovery(site, settings.name.as_str())
                    && let Some(replica) = node.replica_mut()
                {
                    let known = [replica.log()];
                    replica.continue_alone(of_newer_log(obol_agent::seed(), seconds(), known));
                    observer.recovers();
                }
            }
        });
        Life { last, had_store, refusal }
    }
}

/// [`serve`] with the detector and the guard of a preset.
pub fn serve_preset<S: Service>(
    preset: Preset,
    site: &Site,
    settings: &Settings,
    empty: &mut dyn FnMut() -> Result<S, ReplicaError>,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(), ReplicaError> {
    match preset {
        Preset::View => serve::<S, Views, Active>(site, settings, empty, stop, observer),
        Preset::MuViews => serve::<S, Views, Grants>(site, settings, empty, stop, observer),
        Preset::Mu => serve::<S, PullScore, Grants<false>>(site, settings, empty, stop, observer),
        Preset::Dare => serve::<S, Beats, Votes>(site, settings, empty, stop, observer),
    }
}

/// Runs a replica on this thread until it is stopped: a new one each time it had to give way to one
/// that has the log, with the service that `empty` makes in its
/// initial state, which is the same on all replicas.
pub fn serve<S: Service, E: Detector, G: Guard>(
    site: &Site,
    settings: &Settings,
    empty: &mut dyn FnMut() -> Result<S, ReplicaError>,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(), ReplicaError> {
    let name = settings.name;
    let mut may_bootstrap = settings.force_empty || settings.whose().left(site)?.is_empty();
    let polls = settings.poll_every == Nanos::ZERO;
    // Scheduled as the agent that watches it; a thread that polls without a pause would block its
    // core for all others.
    if let Some(priority) = site.deployment.profile.scheduling.priority().filter(|_| !polls) {
        // Without the right to it the replica works all the same; `obol status` shows who has none.
        let _ = sched::run_fifo_alone(priority);
    }
    let area = area(site)?;
    let holders = Holder::of(site, &area)?;
    if settings.force_empty {
        Holder::refuse_beside(&holders, name)?;
    }
    let mut client = observer.needs_client().then(|| client_beside(area));
    let number = if settings.force_empty {
        of_newer_log(obol_agent::seed(), seconds(), holders.iter().map(|one| one.log))
    } else {
        of_first_log(obol_agent::seed())
    };
    loop {
        let poll_every = settings.poll_every;
        let look_every = look_every(site);
        let pace = Pace { poll_every, idle_every: IDLE_EVERY, patience: CHUNK_TIMEOUT, look_every };
        let replica = Replica::<S, E, G>::new(area, pace, empty()?);
        let voters = if settings.unreplicated { 1 } else { settings.voters };
        let replica = if may_bootstrap { replica.founding(number, voters) } else { replica };
        let replica = if settings.unreplicated { replica.unreplicated() } else { replica };
        let (mut endpoint, mut node) = join(site, name, Actor::Replica(Box::new(replica)))?;
        if let Some(client) = client.take() {
            node = node.with_client(client);
        }
        marks::end_recovery(site, name.as_str());
        let (replace_at, stopped, recovery_at) = (None, None, Instant::now());
        let turns = Turns {
            node: &mut node,
            site,
            settings,
            stop,
            observer: &mut *observer,
            area,
            replace_at,
            stopped,
            recovery_at,
        };
        let Life { last, had_store, refusal } = turns.run(&mut endpoint);
        let departure = node.replica().map_or(Departure::Left, Replica::departure);
        client = node.take_client();
        endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
        if stop.load(Ordering::Relaxed) {
            let keeps = departure != Departure::Left && observer.leaves(departure);
            // The mark that one without the store has found tells of the death of an earlier one.
            if had_store && !keeps {
                settings.whose().clear(site, name.as_str());
            }
            return Ok(());
        }
        if let Some(refusal) = refusal {
            return Err(ReplicaError::NameTaken(refusal));
        }
        EndpointError::refused(name, &node)?;
        match last {
            ReplicaState::Misfit => return Err(ReplicaError::Misfit(name)),
            ReplicaState::Refuses => return Err(ReplicaError::Refuses(name)),
            ReplicaState::Unsupported => return Err(ReplicaError::Unsupported(name)),
            // As the oldest without a place it gives way to a replica that has the log, and returns
            // with nothing: it had nothing.
            _ => may_bootstrap = false,
        }
    }
}
