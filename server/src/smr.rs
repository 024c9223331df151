//! A replica of the store as a daemon: it prints its state, and serves clients of Redis.

pub mod departed;

use crate::POLL_INTERVAL;
use obol_fabric::host::{Waker, program};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_node::Site;
use obol_observe::namesakes::Namesakes;
use obol_replica::{ClientMember, LogState, Observer, ReplicaError, Settings, Work, serve_preset};
use obol_resp::{Front, Server};
use obol_smr::{
    Client, ClientError, Departure, Done, KeyValue, Operation, OrderBook, Preset, REPLICA_PREFIX,
    ReplicaState, Service,
};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the replicas keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Keys and values.
    Keys,
    /// Orders that are matched by price and time.
    OrderBook,
}

/// Where and how a replica serves clients of Redis.
#[derive(Clone, Debug)]
pub struct Resp {
    /// Where it listens.
    pub address: SocketAddr,
    /// The file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// Clients may be on other hosts, though nothing is encrypted.
    pub unencrypted: bool,
}

/// How a replica runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it keeps; the same for all replicas of a cluster.
    pub service: ServiceKind,
    /// How an earlier leader is excluded; the same for all replicas of a cluster.
    pub preset: Preset,
    /// What every replica needs; a temporary one ends with its command, and the store with it.
    pub settings: Settings,
    /// It serves clients of Redis.
    pub resp: Option<Resp>,
    /// Bytes of keys and values beyond which it refuses commands that need memory.
    pub memory_max: Option<u64>,
    /// Print its state as JSON lines.
    pub json: bool,
}

/// What a user is told of an error: one of the host has failed, and others are refusals.
pub fn failure(error: ReplicaError) -> Failure {
    match error {
        ReplicaError::File { .. } | ReplicaError::Thread(_) | ReplicaError::Client(_) => {
            Failure::failed(error)
        }
        _ => Failure::refused(error),
    }
}

/// One operation.
struct Once {
    operation: Option<Operation>,
    ended: Option<Done>,
    until: Instant,
}

impl Work for Once {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        if let Some(operation) = self.operation.take() {
            // An empty window takes one; the length was checked.
            let _ = client.begin(obol_fabric::host::clock::now(), operation, endpoint);
        }
        self.ended = client.take();
        self.ended.is_some() || Instant::now() >= self.until
    }
}

/// Asks for one operation, as a client of this name, which the caller has reserved.
pub fn ask(site: &Site, name: Name, operation: Operation, timeout: Duration) -> Result<Done, Failure> {
    let mut client = ClientMember::join(site, name, POLL_INTERVAL).map_err(failure)?;
    let mut once = Once { operation: Some(operation), ended: None, until: Instant::now() + timeout };
    let used = client.run(&mut once, &AtomicBool::new(false));
    drop(client);
    used.map_err(failure)?;
    once.ended.ok_or_else(|| {
        Failure::Failed(format!(
            "no answer within {timeout:?}; see `obol smr status` whether a majority of the replicas runs ({REPLICA_PREFIX}1, ...)"
        ))
    })
}

/// What a replica keeps, when it begins.
trait Begins: Service {
    fn begin(options: &Options) -> Self;
}

impl Begins for KeyValue {
    fn begin(options: &Options) -> Self {
        options.memory_max.map_or_else(Self::default, |most| Self::default().with_memory_max(most))
    }
}

impl Begins for OrderBook {
    fn begin(_: &Options) -> Self {
        Self::default()
    }
}

#[derive(Serialize)]
struct StandingJson {
    event: &'static str,
    standing: &'static str,
    /// It has all of the log; of a leader: it serves.
    whole: bool,
    /// Of a leader: voters that have everything.
    redundancy: usize,
    voters: usize,
    term: u64,
    applied: u64,
}

fn standing(state: ReplicaState) -> (&'static str, bool, usize) {
    match state {
        ReplicaState::Out => ("out", false, 0),
        ReplicaState::Following { whole } => ("following", whole, 0),
        ReplicaState::TakingOver => ("taking-over", false, 0),
        ReplicaState::Leading { ready, redundancy } => ("leading", ready, redundancy),
        ReplicaState::Waiting => ("waiting", false, 0),
        ReplicaState::Yields => ("yields", false, 0),
        ReplicaState::Misfit => ("misfit", false, 0),
        ReplicaState::Unsupported => ("unsupported", false, 0),
        ReplicaState::Refuses => ("refuses", false, 0),
    }
}

/// Hosts a replica: prints its state, and serves connections between its turns.
struct ReplicaHost<'a> {
    json: bool,
    name: Name,
    server: Option<Server<'a>>,
    /// Whether it was asked to begin an empty store and has not led yet.
    to_begin_anew: bool,
    /// The store ends with the command that started it, which is not worth a remark.
    temporary: bool,
    namesakes: Namesakes,
}

impl Observer for ReplicaHost<'_> {
    fn joined(&mut self, waker: Waker) {
        if let Some(server) = &self.server {
            server.joined(waker);
        }
    }

    fn name_taken(&mut self) -> Option<String> {
        self.namesakes.refusal()
    }

    fn needs_client(&self) -> bool {
        self.server.is_some()
    }

    fn work(&mut self, client: &mut Client, endpoint: &mut Endpoint) {
        if let Some(server) = &mut self.server {
            server.work_beside(client, endpoint);
        }
    }

    fn client_failed(&mut self, error: ClientError) {
        if let Some(server) = &mut self.server {
            server.client_failed(error);
        }
    }

    fn changed(&mut self, state: ReplicaState, log: LogState) {
        match state {
            ReplicaState::TakingOver | ReplicaState::Leading { .. } => self.to_begin_anew = false,
            ReplicaState::Following { whole: true } | ReplicaState::Yields if self.to_begin_anew => {
                self.to_begin_anew = false;
                // It follows whether or not this is read.
                let _ = output::remark(format_args!(
                    "obol: {}: --force-empty has no effect, and nothing was lost: replicas that run have a store, and this one takes \
                     that. To begin an empty one, stop all replicas first",
                    self.name
                ));
            }
            _ => {}
        }
        if state == ReplicaState::Waiting {
            // It waits whether or not this is read.
            let _ = output::remark(format_args!(
                "obol: {}: no replica that runs has the store. It continues when a majority of its voters returns, such as one that \
                 was frozen. If there is none, end all replicas and start the first one with --force-empty: the keys are lost then",
                self.name
            ));
        }
        if self.json {
            let (standing, whole, redundancy) = standing(state);
            let (voters, term, applied) = (log.voters, log.term.0, log.applied.0);
            let event = "standing";
            let line = StandingJson { event, standing, whole, redundancy, voters, term, applied };
            // A replica continues whether or not this is read.
            let _ = output::json(&line);
        }
    }

    fn leaves(&mut self, departure: Departure) -> bool {
        let what = match departure {
            Departure::Left => return false,
            Departure::Last if self.temporary => return true,
            Departure::Last => {
                "it had the last copy of the store, which ends with it. A first replica of this host now waits for the store; \
                 --force-empty begins an empty one"
            }
            Departure::Pending => {
                "it leaves, and the replicas that are left are not a majority of the voters, or lack what it has: they do not serve \
                 until those return that are frozen or cut off. `obol smr status` shows what each has; `obol smr recover` \
                 continues with that of one"
            }
        };
        // It ends whether or not this is read.
        let _ = output::remark(format_args!("obol: {}: {what}", self.name));
        true
    }

    fn recovers(&mut self) {
        // It continues whether or not this is read.
        let _ = output::remark(format_args!(
            "obol: {}: it continues alone with what it has, as the only voter of a new log (`obol smr recover`)",
            self.name
        ));
    }

    fn unmarked(&mut self, error: ReplicaError) {
        // It serves all the same.
        let _ = output::remark(format_args!("obol: {}: {error}", self.name));
    }
}

/// Serves until `stop` is set; the caller has reserved the name.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<(), Failure> {
    let front = options
        .resp
        .as_ref()
        .map(|resp| {
            let Resp { address, password_file, unencrypted } = resp;
            Front::bind(*address, options.settings.name, password_file.as_deref(), *unencrypted)
        })
        .transpose()?;
    // Keys are dropped in steps, and no step may join or give back what all of them have freed.
    program::keep_freed();
    let ended = AtomicBool::new(false);
    // With a priority, or without a pause, connections would take the core from all others.
    let may_serve =
        site.deployment.profile.scheduling.priority().is_none() && options.settings.poll_every != Nanos::ZERO;
    std::thread::scope(|scope| {
        let flags = [stop, &ended];
        // Before this thread gets its priority, which new threads would have as well.
        let server = match front {
            Some(front) if may_serve => front.beside(scope, flags).map(Some).map_err(Failure::failed),
            Some(front) => front.start(scope, site, flags).map(|()| None),
            None => Ok(None),
        };
        let served = server.and_then(|server| {
            let Settings { name, force_empty: to_begin_anew, temporary, .. } = options.settings;
            let namesakes = Namesakes::of(site, name);
            let mut host =
                ReplicaHost { json: options.json, name, server, to_begin_anew, temporary, namesakes };
            serve(site, options, stop, &mut host)
        });
        ended.store(true, Ordering::Relaxed);
        served
    })
}

/// Runs replicas, one after the other, until stopped: for [`run`], and for programs that observe them
/// themselves.
pub fn serve(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    match options.service {
        ServiceKind::Keys => serve_as::<KeyValue>(site, options, stop, observer),
        ServiceKind::OrderBook => serve_as::<OrderBook>(site, options, stop, observer),
    }
}

fn serve_as<S: Begins>(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    let mut begin = || Ok(S::begin(options));
    serve_preset(options.preset, site, &options.settings, &mut begin, stop, observer).map_err(failure)
}
